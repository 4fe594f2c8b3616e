//! The summary that `superpage trace info` prints.

use super::reader::{Lost, Reader};
use super::totals::Totals;
use crate::Error;
use crate::event::Source;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A summary of a trace file.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// The file.
    pub file: PathBuf,
    /// The version of its format.
    pub version: u32,
    /// What ran.
    pub workload: String,
    /// A hexadecimal digest of its blocks that can be read; rows of `superpage sim` contain the
    /// same one.
    pub digest: String,
    /// The free keys and values of its header.
    pub notes: BTreeMap<String, String>,
    /// Whether all of it can be read.
    pub complete: bool,
    /// What cannot be read, if not.
    pub lost: Option<Lost>,
    /// Whether it contains instruction fetches.
    pub has_fetches: bool,
    /// Whether its runs are of lines of 64 bytes.
    pub has_lines: bool,
    /// Whether it contains system calls.
    pub has_calls: bool,
    /// Whether runs of writes include the loads of the same page after them, as in versions 1 and
    /// 2 of the format.
    pub loads_in_writes: bool,
    /// References and fetches kept in each sampling period, if it is sampled.
    pub sample_on: Option<u64>,
    /// The sampling period, in references and fetches, if it is sampled.
    pub sample_period: Option<u64>,
    /// The seed of the positions of the sample's windows, if it is sampled and has one.
    pub sample_seed: Option<u64>,
    /// The share of data references that it contains: 1 unless it is sampled.
    pub sampled_share: f64,
    /// The length of the file.
    pub bytes: u64,
    /// Its blocks that can be read.
    pub blocks: usize,
    /// The size of its columns before compression, divided by that of the file.
    pub compression_ratio: f64,
    /// Bytes of the file per data reference in it.
    pub bytes_per_reference: f64,
    /// Bytes of the file per run.
    pub bytes_per_run: f64,
    /// Its totals, as far as it can be read.
    #[serde(flatten)]
    pub totals: Totals,
}

/// Summarizes the trace file `path` and verifies every checksum. With `up_to_cut` a cut or damaged
/// trace is not an error: [`Summary::lost`] says what is missing, and what can be read is counted.
/// Cost: reading the file; if the footer is missing or a block is damaged, also decoding it.
///
/// # Errors
/// Those of [`Reader::open`], or with `up_to_cut` of [`Reader::open_up_to_cut`]; and without it
/// damage to a block.
pub fn info(path: &Path, up_to_cut: bool) -> Result<Summary, Error> {
    let mut reader = if up_to_cut { Reader::open_up_to_cut(path)? } else { Reader::open(path)? };
    let raw_bytes = reader.verify()?;
    let digest = reader.digest().unwrap_or_default();
    let totals = match (reader.lost(), reader.totals()) {
        (None, Some(totals)) => totals.clone(),
        _ => reader.count()?,
    };
    let info = reader.info();
    let bytes = reader.bytes();
    let read = bytes - reader.lost().map_or(0, |lost| lost.bytes);
    let each = |count: u64| if count == 0 { 0.0 } else { read as f64 / count as f64 };
    Ok(Summary {
        file: path.to_owned(),
        version: reader.version(),
        workload: info.workload.clone(),
        digest,
        notes: reader.notes().iter().cloned().collect(),
        complete: reader.lost().is_none(),
        lost: reader.lost().cloned(),
        has_fetches: info.fetches,
        has_lines: info.lines,
        has_calls: info.calls,
        loads_in_writes: info.loads_in_writes,
        sample_on: info.sampling.map(|sampling| sampling.on),
        sample_period: info.sampling.map(|sampling| sampling.period),
        sample_seed: info.sampling.and_then(|sampling| sampling.seed),
        sampled_share: totals.sampled_share(),
        bytes,
        blocks: reader.blocks(),
        compression_ratio: raw_bytes as f64 / read as f64,
        bytes_per_reference: each(totals.references),
        bytes_per_run: each(totals.runs),
        totals,
    })
}
