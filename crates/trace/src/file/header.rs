//! The header of a file: its format, version and contents.

use super::bytes::{Bytes, Damage, put_number, put_text};
use crate::event::{Info, Sampling};
use xxhash_rust::xxh3::xxh3_64;

/// The first bytes of every trace file.
pub(crate) const MAGIC: [u8; 8] = *b"sp-trace";

/// The version that this crate writes, and the newest that it reads. Version 1 had fewer kinds of
/// events. In 1 and 2, reads after a write of the same page counted in its run, and samples did not
/// mark their windows. In 3, all periods of a sample had the same length, and windows did not begin
/// with the pages used last. 4 had no hints, 5 no lines, 6 no system calls. In 7, windows began
/// with 8192 pages at most, and footers did not say how many threads there were.
pub const VERSION: u32 = 8;

/// The first version whose footer has the number of threads.
pub(crate) const THREADED: u32 = 8;

/// The first version in which a window begins with all pages used in the gap before it.
const WHOLE: u32 = 8;

/// The first version that may have system calls.
const CALLED: u32 = 7;

/// The first version in which runs may be of lines.
const LINED: u32 = 6;

/// The first version in which all accesses of a run are of its kind.
const KINDS_APART: u32 = 3;

/// The first version that marks the windows of a sample.
const PLACED: u32 = 3;

/// The first version in which a window begins with the pages used last before it.
const WARM: u32 = 4;

/// The version in which a stream is written: a copy of an old file keeps its version.
pub(crate) fn version(info: &Info) -> u32 {
    match info {
        Info { loads_in_writes: true, .. } => KINDS_APART - 1,
        Info { cold_windows: true, .. } => WARM - 1,
        Info { short_windows: true, .. } => WHOLE - 1,
        _ => VERSION,
    }
}

/// The bytes before the description: magic, version, its length.
pub(crate) const PREFIX: usize = 16;

/// The longest description, in bytes.
pub(crate) const DESCRIPTION_BYTES: usize = 1 << 20;

const FETCHES: u8 = 1;
const SAMPLED: u8 = 2;
const LINES: u8 = 4;
const CALLS: u8 = 8;
/// The windows of a sample begin with pages that their own thread used.
const OWN_WINDOWS: u8 = 16;

/// The whole header: prefix, description, checksum of both.
pub(crate) fn encode(info: &Info, notes: &[(String, String)]) -> Vec<u8> {
    let mut description = Vec::new();
    put_text(&mut description, &info.workload);
    let fetches = if info.fetches { FETCHES } else { 0 };
    let sampled = if info.sampling.is_some() { SAMPLED } else { 0 };
    let lines = if info.lines { LINES } else { 0 };
    let calls = if info.calls && version(info) >= CALLED { CALLS } else { 0 };
    let own_windows = if info.sampling.is_some() && !info.mixed_windows { OWN_WINDOWS } else { 0 };
    description.push(fetches | sampled | lines | calls | own_windows);
    if let Some(Sampling { on, period, seed }) = info.sampling {
        put_number(&mut description, on);
        put_number(&mut description, period);
        if version(info) >= PLACED {
            put_number(&mut description, seed.map_or(0, |seed| seed.saturating_add(1)));
        }
    }
    put_number(&mut description, notes.len() as u64);
    for (key, value) in notes {
        put_text(&mut description, key);
        put_text(&mut description, value);
    }
    let mut out = Vec::with_capacity(PREFIX + description.len() + 8);
    out.extend(MAGIC);
    out.extend(version(info).to_le_bytes());
    out.extend((description.len() as u32).to_le_bytes());
    out.extend(description);
    out.extend(xxh3_64(&out).to_le_bytes());
    out
}

/// The stream's description and the notes, from the description bytes of a file of that version.
pub(crate) fn decode(description: &[u8], version: u32) -> Result<(Info, Vec<(String, String)>), Damage> {
    let mut bytes = Bytes(description);
    let workload = bytes.text()?.to_owned();
    let flags = bytes.byte()?;
    let sampling = match flags & SAMPLED {
        0 => None,
        _ => {
            let (on, period) = (bytes.number()?, bytes.number()?);
            // The seed plus one, 0 for none.
            let seed = if version < PLACED { 0 } else { bytes.number()? };
            Some(Sampling { on, period, seed: seed.checked_sub(1) })
        }
    };
    let mut notes = Vec::new();
    for _ in 0..bytes.number()? {
        notes.push((bytes.text()?.to_owned(), bytes.text()?.to_owned()));
    }
    bytes.end()?;
    let (fetches, loads_in_writes) = (flags & FETCHES != 0, version < KINDS_APART);
    let lines = version >= LINED && flags & LINES != 0;
    let calls = version >= CALLED && flags & CALLS != 0;
    let [cold_windows, short_windows] = [WARM, WHOLE].map(|since| sampling.is_some() && version < since);
    let mixed_windows = sampling.is_some() && flags & OWN_WINDOWS == 0;
    let (runs, memory, cores, siblings) = (None, 0, 0, 0);
    let info = Info {
        workload,
        sampling,
        fetches,
        lines,
        calls,
        loads_in_writes,
        cold_windows,
        short_windows,
        mixed_windows,
        runs,
        memory,
        cores,
        siblings,
        cut: false,
    };
    Ok((info, notes))
}
