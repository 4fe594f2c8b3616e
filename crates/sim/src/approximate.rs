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

/// What a reader must know of a stream with several threads, or several cores.
pub(crate) fn interleaved(row: &Row) -> String {
    let on = match (row.cores, row.most_cores) {
        (on, most) if on < most => format!("{on} of {most} cores"),
        (1, _) => "1 core".into(),
        (on, _) => format!("{on} cores"),
    };
    match (row.threads, row.cores) {
        (0 | 1, 0) => String::new(),
        (0 | 1, 1) if row.most_cores <= 1 => String::new(),
        (0 | 1, 1) => format!(", 1 thread on {on}"),
        (0 | 1, _) => format!(", on {on}"),
        (threads, 0) => format!(
            ", {threads} threads in turns on one core, in an order that the recording made (--cores gives each its own)"
        ),
        (threads, _) => format!(", {threads} threads on {on}"),
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

/// Misses in the last level per 1000 instructions; of a sample without the interval, which
/// [`misses`] has, but where that reaches 0.
pub(crate) fn mpki(row: &Row) -> String {
    let Some(mpki) = row.mpki else { return "-".into() };
    match sample(row) {
        None => three_digits(mpki),
        Some((_, false)) => UNKNOWN.into(),
        Some((sampled, true)) => match sampled.tlb_misses_error {
            Some(error) if error >= row.tlb_misses as f64 => {
                let most = (row.tlb_misses as f64 + error) * 1000.0 / row.instructions as f64;
                format!("< {}", three_digits(most))
            }
            _ => format!("≈ {}", three_digits(mpki)),
        },
    }
}

/// A number with three digits that count, at most four places.
fn three_digits(value: f64) -> String {
    let places = if value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else if value >= 0.9995 {
        2
    } else {
        3 + usize::from(value < 0.09995)
    };
    format!("{value:.places$}")
}

/// How much more memory was resident than with `base`, at the peaks, in percent.
pub(crate) fn more_memory(row: &Row, base: &Row) -> String {
    let (here, there) = (row.peak_resident_bytes as f64, base.peak_resident_bytes as f64);
    known(
        row,
        if there > 0.0 {
            format!("{:+.0} %", 100.0 * (here / there - 1.0)).replace("-0 %", "+0 %")
        } else {
            "-".into()
        },
    )
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
    modelled(row, row.seconds)
}

/// The time that the threads take on their cores.
pub(crate) fn elapsed(row: &Row) -> String {
    modelled(row, row.elapsed_seconds)
}

fn modelled(row: &Row, seconds: f64) -> String {
    match sample(row) {
        None => time(seconds),
        Some((_, false)) => UNKNOWN.into(),
        Some((_, true)) => format!("≈ {}", time(seconds)),
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
