//! The notes below a table: what a reader must know of its rows.

use crate::idle::{idle, too_short};
use crate::table::percent;
use crate::{BackgroundOn, Row, Sampled};
use std::collections::{BTreeMap, BTreeSet};
use superpage_report::count;

/// The notes that must stand below a table for it to be honest.
pub(crate) fn notes(group: &[Row], part: bool) -> Vec<String> {
    let mut notes = of_sample(group);
    for row in group {
        let kernel = row.kernel.as_ref().map_or(String::new(), |kernel| format!(" {kernel}"));
        let name = format!("{} {}{kernel}", row.machine, row.policies());
        if let Some(error) = &row.error {
            notes.push(format!("{name}: ended early: {error}"));
        }
        // A part that is shorter than a period is nothing to say.
        if row.background_runs == Some(0) && !part {
            let why = too_short(row);
            notes.push(format!("{name}: its background never ran while the program had memory: {why}"));
        }
        if row.other_core_cycles >= row.cycles.max(100) / 100 {
            notes.push(format!(
                "{name}: background work of {} of its time is on another core (--background program charges the \
                 program)",
                percent(100.0 * row.other_core_cycles as f64 / row.cycles.max(1) as f64)
            ));
        }
        notes.extend(idle(row, group).filter(|_| !part).map(|why| format!("{name}: no superpage: {why}")));
        notes.extend(where_from(row, group).map(|text| format!("{name}: {text}")));
        let leaked = row.frames_leaked + row.host_frames_leaked;
        if leaked > 0 {
            notes.push(format!("{name}: {leaked} frames leaked: this is a bug in superpage"));
        }
    }
    if let Some(row) = group.first().filter(|row| row.crowded_cores > 0 && !part) {
        let (cores, have) = if row.crowded_cores == 1 { ("core", "has") } else { ("cores", "have") };
        let remedy = if row.migrate { "" } else { " (--migrate moves threads to idle cores)" };
        notes.push(format!(
            "{} {cores} {have} two busy threads or more, while another is idle most of the time{remedy}",
            row.crowded_cores
        ));
    }
    for machine in group.chunk_by(|a, b| a.machine == b.machine) {
        let most = machine.iter().map(|row| row.unmapped_accesses).max().unwrap_or(0);
        if most > 0 {
            let name = &machine[0].machine;
            notes.push(format!("{name}: {} accesses outside all recorded mappings, mapped page by page", count(most)));
        }
    }
    notes
}

/// What saved or cost a row time against `base`, if walks are less than half of it; of several
/// kernels against the first, however much walks are.
fn where_from(row: &Row, group: &[Row]) -> Option<String> {
    let base = group.iter().find(|base| base.machine == row.machine && base.is_base())?;
    let known = |row: &Row| row.sampled.as_ref().is_none_or(|sampled| sampled.kernel_exact);
    if !known(row) || !known(base) || base.cycles == 0 || row.complete != base.complete {
        return None;
    }
    let percent = |then: u64, now: u64| 100.0 * (then as f64 - now as f64) / base.cycles as f64;
    let gained = percent(base.cycles, row.cycles);
    let walks = percent(base.walk_cycles, row.walk_cycles);
    let other = base.kernel.as_ref().filter(|kernel| row.kernel.as_ref() != Some(kernel));
    if gained.abs() < 1.0 || other.is_none() && walks / gained >= 0.5 {
        return None;
    }
    let background = match row.background {
        BackgroundOn::Core => "waits for the page daemon and background",
        BackgroundOn::Program => "the page daemon and background",
    };
    let parts = [
        ("cache misses", base.data_cycles, row.data_cycles),
        ("hits in later TLB levels", base.tlb_hit_cycles, row.tlb_hit_cycles),
        ("faults, entries and shootdowns", base.fault_cycles, row.fault_cycles),
        ("zeroing", base.zero_cycles, row.zero_cycles),
        ("copying", base.copy_cycles, row.copy_cycles),
        ("promotions and demotions", base.promotion_cycles, row.promotion_cycles),
        (background, base.background_cycles, row.background_cycles),
        ("the disk", base.io_cycles, row.io_cycles),
        ("the host's kernel", base.host_cycles, row.host_cycles),
    ];
    let mut parts: Vec<(&str, f64)> = parts.map(|(what, then, now)| (what, percent(then, now))).into();
    parts.push(("walks", walks));
    // All that a reader of the sum would miss, and walks in any case; the largest first.
    parts.retain(|(what, part)| *what == "walks" || part.abs() >= 0.5 && part.abs() >= gained.abs() / 20.0);
    parts.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
    let less = |percent: f64| format!("{:.1} % {}", percent.abs(), if percent < 0.0 { "more" } else { "less" });
    let parts: Vec<String> = parts.iter().map(|(what, part)| format!("{} in {what}", less(*part))).collect();
    let than = other.map_or(String::new(), |kernel| format!(" than with {kernel}"));
    Some(format!("{} time{than}: {}", less(gained), parts.join(", ")))
}

/// The notes below a table of a sampled stream.
fn of_sample(rows: &[Row]) -> Vec<String> {
    // A table may also hold rows of a whole stream.
    let rows: Vec<(&Row, &Sampled)> = rows.iter().filter_map(|row| Some((row, row.sampled.as_ref()?))).collect();
    let Some((_, sampled)) = rows.first() else { return Vec::new() };
    let mut notes = vec![format!(
        "sampled: {} of every {} accesses ({:.2} %), with all mappings and first touches{}; misses, walks and \
         time are estimates \
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
            "{} goes by time, which is an estimate here, so that nothing but what was touched is known (?): \
             record without --sample",
            named(&timed)
        ));
    }
    notes
}
