//! The rows for files: JSON in hyperfine's shape, CSV, Markdown.

use super::columns::{did_table, table};
use super::statistics::Spread;
use super::{Comparison, Row};
use serde_json::{Value, json};
use superpage_report::foreign;

/// JSON in hyperfine's shape, for its scripts and plots: times in seconds, `user` and `system` as
/// means, the policy as a parameter. `memory_usage_byte` are the peaks of the whole tree.
/// `ended_early` says that a signal left rounds out.
pub fn json(comparison: &Comparison) -> String {
    let result = |row: &Row| {
        let Spread { median, mean, stddev, min, max } = row.wall_seconds;
        json!({
            "command": row.command,
            "mean": mean,
            "stddev": stddev,
            "median": median,
            "user": row.user_seconds.mean,
            "system": row.system_seconds.mean,
            "min": min,
            "max": max,
            "times": row.times,
            "memory_usage_byte": row.peaks,
            "exit_codes": row.exit_codes,
            "parameters": { "policy": row.policy },
        })
    };
    let results: Vec<Value> = comparison.rows.iter().map(result).collect();
    format!("{:#}\n", json!({ "results": results, "ended_early": comparison.ended_early() }))
}

/// CSV: hyperfine's columns, then the other keys of the rows; times in seconds, sizes in bytes.
/// Values that were not measured are empty. What a terminal would obey is escaped.
pub fn csv(comparison: &Comparison) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for (index, row) in comparison.rows.iter().enumerate() {
        let fields = fields(row);
        if index == 0 {
            writer.write_record(fields.iter().map(|(name, _)| name)).expect("memory takes all");
        }
        let cells = fields.iter().map(|(_, value)| foreign(value).into_owned());
        writer.write_record(cells).expect("all rows have the same columns");
    }
    String::from_utf8(writer.into_inner().expect("memory takes all")).expect("all fields are text")
}

fn fields(row: &Row) -> Vec<(&'static str, String)> {
    let ratio = |value: fn(&super::statistics::Ratio) -> Option<f64>| {
        row.time_ratio.as_ref().and_then(value).map(|value| value.to_string()).unwrap_or_default()
    };
    let some = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    let number = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    let wall = &row.wall_seconds;
    vec![
        ("command", row.command.clone()),
        ("mean", wall.mean.to_string()),
        ("stddev", number(wall.stddev)),
        ("median", wall.median.to_string()),
        ("user", row.user_seconds.mean.to_string()),
        ("system", row.system_seconds.mean.to_string()),
        ("min", wall.min.to_string()),
        ("max", wall.max.to_string()),
        ("parameter_policy", row.policy.clone()),
        ("runs", row.runs.to_string()),
        ("minor_faults", row.minor_faults.to_string()),
        ("major_faults", row.major_faults.to_string()),
        ("peak_rss_bytes", row.peak_rss_bytes.to_string()),
        ("huge_bytes", some(row.huge_bytes)),
        ("huge_coverage_percent", number(row.huge_coverage_percent)),
        ("folio_bytes", some(row.folio_bytes)),
        ("folio_coverage_percent", number(row.folio_coverage_percent)),
        ("dtlb_loads", some(row.dtlb_loads)),
        ("dtlb_load_misses", some(row.dtlb_load_misses)),
        ("dtlb_stores", some(row.dtlb_stores)),
        ("dtlb_store_misses", some(row.dtlb_store_misses)),
        ("itlb_loads", some(row.itlb_loads)),
        ("itlb_misses", some(row.itlb_misses)),
        ("walk_cycles", some(row.walk_cycles)),
        ("speedup", row.speedup.to_string()),
        ("ratio", ratio(|ratio| Some(ratio.estimate))),
        ("ratio_low", ratio(|ratio| Some(ratio.interval()?.0))),
        ("ratio_high", ratio(|ratio| Some(ratio.interval()?.1))),
        ("ratio_level", ratio(|ratio| Some(ratio.level))),
        ("memory_before", row.memory_before.to_string()),
        ("most_huge_bytes", some(row.most_huge_bytes)),
        ("reached", row.reached.map(|reached| reached.to_string()).unwrap_or_default()),
        ("verdict", row.verdict.map(|verdict| verdict.name().to_string()).unwrap_or_default()),
        ("did", row.did.clone()),
        ("settings_differed", row.settings_differed.to_string()),
        ("ended_early", row.ended_early.to_string()),
        ("dropped", row.dropped.clone().unwrap_or_default()),
        ("looked_bytes", some(row.looked_bytes)),
        ("requests_per_second", number(row.requests_per_second)),
        ("latency_p50_seconds", number(row.latency_p50_seconds)),
        ("latency_p99_seconds", number(row.latency_p99_seconds)),
        ("latency_p999_seconds", number(row.latency_p999_seconds)),
        ("load_seconds", number(row.load_seconds)),
        ("end_bytes", some(row.end_bytes)),
        ("load_peak_bytes", some(row.load_peak_bytes)),
        ("free_blocks", some(row.free_blocks)),
    ]
}

/// The table with all columns in Markdown, with the advice, what each policy did, and the notes
/// below.
pub fn markdown(comparison: &Comparison) -> String {
    let command = comparison.command.replace('`', "'");
    let mut out = format!("`{command}`: {}\n\n{}", comparison.rounds_in_words(), table(comparison).markdown());
    if let Some(advice) = &comparison.advice {
        out += &format!("\n{}\n", advice.sentence);
    }
    out += &format!("\n{}", did_table(comparison).markdown());
    if !comparison.notes.is_empty() {
        out.push('\n');
        comparison.notes.iter().for_each(|note| out += &format!("- {note}\n"));
    }
    out
}
