//! Which figures are estimates and why, and formatting them: with their error, and only the digits
//! that it leaves. All that shows rows asks here.

use crate::predictions;
use crate::{Row, Sampled};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use superpage_report::{InSample, KeyKind, Keys, count, time};

/// Printed where a sample cannot tell: no window was measured, or what the kernel did is not known.
const UNKNOWN: &str = "?";

const UNSURE: &str = "what the sample left out decides what the kernel does";

impl Row {
    /// Why the value of a key is no exact count, and how sure it is, in words without a full stop;
    /// `None` if it is exact.
    pub fn why_inexact(&self, key: &str) -> Option<Cow<'static, str>> {
        let sampled = self.sampled.as_ref()?;
        let known = Row::KEYS.iter().find(|known| known.name == key)?;
        let sure = || Cow::Borrowed("with a 95 % interval in `sampled`");
        match known.sample {
            InSample::OfStream => None,
            _ if known.kind == KeyKind::Condition => None,
            _ if !sampled.kernel_exact => Some(Cow::Borrowed(UNSURE)),
            InSample::Estimated => Some(sampled.why_no_interval.clone().unwrap_or_else(sure)),
            InSample::Exact => None,
        }
    }
}

/// How far the counts of some rows are known, for what shows many at once.
#[derive(Clone, Debug, Default)]
pub struct Certainty {
    rows: u64,
    estimates: u64,
    unsure: u64,
    /// The largest speedup of rows without line caches.
    most: Option<f64>,
    /// Whether there are speedups on a machine that was probed, without and with line caches.
    probed: [bool; 2],
    /// Why estimates have no known error.
    bare: BTreeMap<Cow<'static, str>, u64>,
}

impl Certainty {
    /// Takes a row into account.
    pub fn see(&mut self, row: &Row) {
        self.rows += 1;
        if let (Some(gain), false) = (row.speedup, row.is_base()) {
            if row.caches.is_none() {
                self.most = Some(self.most.map_or(gain, |most| most.max(gain)));
            }
            self.probed[usize::from(row.caches.is_some())] |= predictions::is_probed(&row.machine);
        }
        let Some(sampled) = &row.sampled else { return };
        self.estimates += 1;
        self.unsure += u64::from(!sampled.kernel_exact);
        if let Some(why) = &sampled.why_no_interval {
            *self.bare.entry(why.clone()).or_default() += 1;
        }
    }

    /// What stands before numbers that are made of these rows: `≈ ` where some are estimates.
    pub fn sign(&self) -> &'static str {
        if self.estimates > 0 { "≈ " } else { "" }
    }

    /// How far speedups of rows without line caches, and on machines that were probed, can be
    /// trusted, in sentences; empty where there are neither.
    pub fn bound(&self) -> String {
        let most = self.most.map(|most| {
            format!(
                "Speedups are bounds, not times: at most {most:.3} x, with walks that nothing overlaps and a program whose own cache \
                 misses cost nothing; --lines models caches."
            )
        });
        let earned =
            [false, true].into_iter().filter(|lines| self.probed[usize::from(*lines)]).map(predictions::sentence);
        most.into_iter().chain(earned).collect::<Vec<String>>().join(" ")
    }

    /// What a reader must know of times and misses of these rows, in sentences.
    pub fn sentence(&self) -> String {
        if self.estimates == 0 {
            return "Times are modelled from exact counts.".into();
        }
        let mut text = format!(
            "Times are modelled. Misses, walks and times of {} of {} rows are estimates from samples (≈)",
            count(self.estimates),
            count(self.rows)
        );
        for (why, rows) in &self.bare {
            text += &format!("; {} of them have no known error: {why}", count(*rows));
        }
        text += ".";
        if self.unsure > 0 {
            text += &format!(" Of {} rows nothing but what was touched is known (?): {UNSURE}.", count(self.unsure));
        }
        text
    }
}

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
    match row.threads {
        0 | 1 => String::new(),
        threads => format!(", {threads} threads in turns on one core, in an order that the recording made"),
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

/// The notes below a table of a sampled stream.
pub(crate) fn notes(rows: &[Row]) -> Vec<String> {
    // A table may also hold rows of a whole stream.
    let rows: Vec<(&Row, &Sampled)> = rows.iter().filter_map(|row| Some((row, row.sampled.as_ref()?))).collect();
    let Some((_, sampled)) = rows.first() else { return Vec::new() };
    let mut notes = vec![format!(
        "sampled: {} of every {} accesses ({:.2} %), with all mappings and first touches{}; misses, walks and time are estimates \
         from {} windows{}",
        count(sampled.on),
        count(sampled.period),
        100.0 * sampled.share,
        if rows.iter().all(|(_, sampled)| sampled.kernel_exact) { ", so what the kernel does is known" } else { "" },
        count(sampled.windows),
        if rows.iter().any(|(_, sampled)| sampled.why_no_interval.is_none()) {
            ", ± half a 95 % interval"
        } else {
            ""
        }
    )];
    if sampled.windows < 2 {
        notes.push("too few windows for an estimate: record with a shorter period, or without --sample".into());
    } else {
        let mut reasons: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (row, sampled) in &rows {
            if let Some(why) = &sampled.why_no_interval {
                reasons.entry(why).or_default().insert(&row.machine);
            }
        }
        for (why, machines) in reasons {
            let machines = Vec::from_iter(machines).join(", ");
            notes.push(format!("the estimates (≈) on {machines} have no known error: {why}"));
        }
    }
    // Of the rows whose kernel is not known: what the policy does by itself goes by time, and what
    // the daemon takes away by references.
    let unknown = rows.iter().filter(|(_, sampled)| !sampled.kernel_exact);
    let (short, timed): (Vec<_>, Vec<_>) = unknown.partition(|(row, _)| row.daemon_runs > 0 || row.error.is_some());
    let named = |rows: &[&(&Row, &Sampled)]| {
        let names: Vec<String> = rows.iter().map(|(row, _)| format!("{} {}", row.machine, row.policies())).collect();
        names.join(", ")
    };
    if !short.is_empty() {
        notes.push(format!(
            "memory was short under {}: what is evicted then depends on references that the sample left out, so that \
             nothing but what was touched is known (?): record without --sample, or give more --memory",
            named(&short)
        ));
    }
    if !timed.is_empty() {
        notes.push(format!(
            "{} goes by time, which is an estimate here, so that nothing but what was touched is known (?): record without --sample",
            named(&timed)
        ));
    }
    notes
}
