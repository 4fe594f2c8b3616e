//! The encoding of events: position, kind and fields.

use super::bytes::{Bytes, Damage, put_number, put_text};
use crate::Phase;
use crate::event::{Backing, CALL_BYTES, Event, Growth, ProcessId};
use superpage_pages::{Hint, Protection};

/// The longest text of an [`Event::Note`] or [`Event::Mark`] that a file keeps, in bytes; the rest
/// is cut off.
pub const NOTE_BYTES: usize = 1 << 14;

/// The number of kinds of events.
pub(crate) const KINDS: usize = 26;

/// The number of kinds in version 1 of the format: the first of them.
pub(crate) const KINDS_1: usize = 12;

/// The number in version 2.
pub(crate) const KINDS_2: usize = 23;

/// The number in versions 3 and 4.
pub(crate) const KINDS_4: usize = 24;

/// The number in versions 5 and 6.
pub(crate) const KINDS_6: usize = 25;

/// The names of the kinds, by their numbers in a file. None equals the name of a kind of run.
#[rustfmt::skip]
pub(crate) const KIND_NAMES: [&str; KINDS] = [
    "switch", "map", "unmap", "protect", "discard", "grow", "remap", "fork", "exec", "exit", "skipped", "note",
    "open", "close", "file-read", "file-write", "sync", "remove", "wire", "unwire", "idle", "mark", "rewrite",
    "phase", "advise", "call",
];

/// The number of the kind of an event in a file.
pub(crate) fn kind(event: &Event) -> usize {
    match event {
        Event::Switch { .. } => 0,
        Event::Map { .. } => 1,
        Event::Unmap { .. } => 2,
        Event::Protect { .. } => 3,
        Event::Discard { .. } => 4,
        Event::Grow { .. } => 5,
        Event::Remap { .. } => 6,
        Event::Fork { .. } => 7,
        Event::Exec => 8,
        Event::Exit => 9,
        Event::Skipped { .. } => 10,
        // Files have no cores, so that is a note there.
        Event::Note(_) | Event::Migrate { .. } => 11,
        Event::Open { .. } => 12,
        Event::Close { .. } => 13,
        Event::Read { .. } => 14,
        Event::Write { .. } => 15,
        Event::Sync { .. } => 16,
        Event::Remove { .. } => 17,
        Event::Wire { .. } => 18,
        Event::Unwire { .. } => 19,
        Event::Idle { .. } => 20,
        Event::Mark(_) => 21,
        Event::Rewrite { .. } => 22,
        Event::Phase { .. } => 23,
        Event::Advise { .. } => 24,
        Event::Call { .. } => 25,
    }
}

/// The number of phases of a sample; the number of a phase with its own period is larger by
/// this.
const PHASES: u64 = 3;

/// The name of the kind of an event.
pub(crate) fn kind_name(event: &Event) -> &'static str {
    KIND_NAMES[kind(event)]
}

/// Adds an event: its kind in a byte, then its fields in the order of their declaration.
pub(crate) fn put(out: &mut Vec<u8>, event: &Event) {
    out.push(kind(event) as u8);
    let mut numbers = |values: &[u64]| values.iter().for_each(|&value| put_number(out, value));
    match *event {
        Event::Switch { process, thread } => numbers(&[process.0.into(), thread.into()]),
        Event::Map { start, pages, protection, shared, backing, growth } => {
            let (file, growth) = (backing != Backing::Anonymous, growth_number(growth));
            let how = protection.bits() | u8::from(shared) << 3 | growth << 4 | u8::from(file) << 6;
            numbers(&[start, pages, how.into()]);
            if let Backing::File { file, file_pages, offset } = backing {
                numbers(&[file.into(), file_pages, offset]);
            }
        }
        Event::Unmap { start, pages }
        | Event::Discard { start, pages }
        | Event::Grow { start, pages }
        | Event::Rewrite { start, pages } => numbers(&[start, pages]),
        Event::Protect { start, pages, protection } => numbers(&[start, pages, protection.bits().into()]),
        Event::Advise { start, pages, hint } => numbers(&[start, pages, hint as u64]),
        Event::Remap { from, from_pages, to, to_pages } => numbers(&[from, from_pages, to, to_pages]),
        Event::Fork { child } => numbers(&[child.0.into()]),
        Event::Migrate { thread, to } => put_text(out, &format!("thread {thread} to hardware thread {to}")),
        Event::Exec | Event::Exit => {}
        Event::Skipped { references, instructions } => numbers(&[references, instructions]),
        Event::Open { file, file_pages } => numbers(&[file.into(), file_pages]),
        Event::Close { file } | Event::Sync { file } | Event::Remove { file } => numbers(&[file.into()]),
        Event::Read { file, start, pages } | Event::Write { file, start, pages } => {
            numbers(&[file.into(), start, pages]);
        }
        Event::Wire { pages } | Event::Unwire { pages } => numbers(&[pages]),
        Event::Idle { microseconds } => numbers(&[microseconds]),
        Event::Phase { phase, period: None } => numbers(&[phase as u64]),
        Event::Phase { phase, period: Some(period) } => numbers(&[PHASES + phase as u64, period]),
        Event::Call { ref path, at, bytes } => {
            put_text(out, cut(path, CALL_BYTES));
            put_number(out, at);
            put_number(out, bytes);
        }
        Event::Note(ref text) | Event::Mark(ref text) => put_text(out, cut(text, NOTE_BYTES)),
    }
}

/// The longest beginning of a text that has at most `most` bytes.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=text.len().min(most)).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

/// Takes an event.
pub(crate) fn get(bytes: &mut Bytes) -> Result<Event, Damage> {
    Ok(match bytes.byte()? {
        0 => Event::Switch { process: ProcessId(bytes.small()?), thread: bytes.small()? },
        1 => {
            let (start, pages, how) = (bytes.number()?, bytes.number()?, bytes.byte()?);
            Event::Map {
                start,
                pages,
                protection: Protection::from_bits(how),
                shared: how & 8 != 0,
                growth: growth(how >> 4 & 3)?,
                backing: match how >> 6 {
                    0 => Backing::Anonymous,
                    1 => Backing::File { file: bytes.small()?, file_pages: bytes.number()?, offset: bytes.number()? },
                    _ => return Err(Damage("it holds a mapping of an unknown kind")),
                },
            }
        }
        2 => Event::Unmap { start: bytes.number()?, pages: bytes.number()? },
        3 => Event::Protect {
            start: bytes.number()?,
            pages: bytes.number()?,
            protection: Protection::from_bits(bytes.byte()?),
        },
        4 => Event::Discard { start: bytes.number()?, pages: bytes.number()? },
        5 => Event::Grow { start: bytes.number()?, pages: bytes.number()? },
        6 => Event::Remap {
            from: bytes.number()?,
            from_pages: bytes.number()?,
            to: bytes.number()?,
            to_pages: bytes.number()?,
        },
        7 => Event::Fork { child: ProcessId(bytes.small()?) },
        8 => Event::Exec,
        9 => Event::Exit,
        10 => Event::Skipped { references: bytes.number()?, instructions: bytes.number()? },
        11 => Event::Note(bytes.text()?.to_owned()),
        12 => Event::Open { file: bytes.small()?, file_pages: bytes.number()? },
        13 => Event::Close { file: bytes.small()? },
        14 => Event::Read { file: bytes.small()?, start: bytes.number()?, pages: bytes.number()? },
        15 => Event::Write { file: bytes.small()?, start: bytes.number()?, pages: bytes.number()? },
        16 => Event::Sync { file: bytes.small()? },
        17 => Event::Remove { file: bytes.small()? },
        18 => Event::Wire { pages: bytes.number()? },
        19 => Event::Unwire { pages: bytes.number()? },
        20 => Event::Idle { microseconds: bytes.number()? },
        21 => Event::Mark(bytes.text()?.to_owned()),
        22 => Event::Rewrite { start: bytes.number()?, pages: bytes.number()? },
        23 => {
            let number = bytes.number()?;
            let (number, own) = number.checked_sub(PHASES).map_or((number, false), |number| (number, true));
            let phase = Phase::of(number).ok_or(Damage("it holds an unknown phase of a sample"))?;
            Event::Phase { phase, period: if own { Some(bytes.number()?) } else { None } }
        }
        24 => Event::Advise {
            start: bytes.number()?,
            pages: bytes.number()?,
            hint: Hint::from_number(bytes.number()?).ok_or(Damage("it holds an unknown hint"))?,
        },
        25 => Event::Call { path: bytes.text()?.to_owned(), at: bytes.number()?, bytes: bytes.number()? },
        _ => return Err(Damage("it holds an event of an unknown kind")),
    })
}

fn growth_number(growth: Growth) -> u8 {
    match growth {
        Growth::Fixed => 0,
        Growth::Up => 1,
        Growth::Down => 2,
    }
}

fn growth(number: u8) -> Result<Growth, Damage> {
    match number {
        0 => Ok(Growth::Fixed),
        1 => Ok(Growth::Up),
        2 => Ok(Growth::Down),
        _ => Err(Damage("it holds a mapping that grows in an unknown direction")),
    }
}
