//! Figures of rows as text. Estimates have their error, and only the digits that it leaves.

use crate::{Row, Sampled};
use superpage_report::{count, time};

/// Printed where a sample cannot tell: no window was measured, or what the kernel did is not known.
const UNKNOWN: &str = "?";

/// The sample behind a row, and whether any estimate can be made from it.
fn sample(row: &Row) -> Option<(&Sampled, bool)> {
    row.sampled.as_ref().map(|sampled| (sampled, sampled.windows >= 2 && sampled.kernel_exact))
}

/// A count that would be exact in a whole stream: an interval or, if that reaches 0, its upper end.
fn with_interval(value: u64, error: Option<f64>) -> String {
    match error {
        None => format!("≈ {}", count(value)),
        Some(error) if error >= value as f64 => format!("< {}", count((value as f64 + error).ceil() as u64)),
        Some(error) => format!("{} ± {}", count(value), count(error.ceil() as u64)),
    }
}

/// What a reader must know of a stream with several threads.
pub(crate) fn interleaved(row: &Row) -> String {
    let cores = if row.cores == 1 { "core" } else { "cores" };
    match (row.threads, row.cores) {
        (0 | 1, 0 | 1) => String::new(),
        (0 | 1, on) => format!(", on {on} {cores}"),
        (threads, 0) => format!(
            ", {threads} threads in turns on one core, in an order that the recording made (--cores gives each its own)"
        ),
        (threads, on) => format!(", {threads} threads on {on} {cores}"),
    }
}

/// Misses in the last level.
pub(crate) fn misses(row: &Row) -> String {
    match sample(row) {
        None => count(row.tlb_misses),
        Some((_, false)) => UNKNOWN.into(),
        Some((sampled, true)) => with_interval(row.tlb_misses, sampled.tlb_misses_error),
    }
}

/// Memory references of walks; their interval is only in the JSON.
pub(crate) fn walk_references(row: &Row) -> String {
    match sample(row) {
        None => count(row.walk_memory_references),
        Some((_, false)) => UNKNOWN.into(),
        Some((sampled, true)) => match sampled.walk_memory_references_error {
            Some(error) if error >= row.walk_memory_references as f64 => UNKNOWN.into(),
            _ => format!("≈ {}", count(row.walk_memory_references)),
        },
    }
}

/// Modelled time: most of it is known even in a sample.
pub(crate) fn seconds(row: &Row) -> String {
    match sample(row) {
        None => time(row.seconds),
        Some((_, false)) => UNKNOWN.into(),
        Some((_, true)) => format!("≈ {}", time(row.seconds)),
    }
}

/// A figure relative to `base`: with its error or, if it may be no different from `none`, only
/// that.
fn compared(row: &Row, value: Option<f64>, error: Option<f64>, none: f64, digits: usize) -> String {
    let Some(value) = value else { return "-".into() };
    match (sample(row), error) {
        (None, _) => format!("{value:.digits$}"),
        (Some((_, false)), _) => UNKNOWN.into(),
        // `base` itself.
        (Some(_), _) if row.is_base() => format!("{value:.digits$}"),
        (Some(_), None) => format!("≈ {value:.digits$}"),
        (Some(_), Some(error)) if (value - none).abs() <= error => format!("≈ {none}"),
        (Some(_), Some(error)) => format!("{value:.digits$} ± {error:.digits$}"),
    }
}

/// Misses saved, in percent.
pub(crate) fn fewer(row: &Row) -> String {
    let error = row.sampled.as_ref().and_then(|sampled| sampled.tlb_miss_reduction_percent_error);
    match compared(row, row.tlb_miss_reduction_percent, error, 0.0, if row.sampled.is_some() { 1 } else { 2 }) {
        text if text == "-" || text == UNKNOWN => text,
        text => format!("{text} %"),
    }
}

/// Cycles of `base` divided by cycles of this row.
pub(crate) fn speedup(row: &Row) -> String {
    let error = row.sampled.as_ref().and_then(|sampled| sampled.speedup_error);
    compared(row, row.speedup, error, 1.0, 3)
}

/// A count of the kernel, which is known unless memory was short in a sampled stream.
pub(crate) fn known(row: &Row, text: String) -> String {
    if row.sampled.as_ref().is_none_or(|sampled| sampled.kernel_exact) { text } else { UNKNOWN.into() }
}
