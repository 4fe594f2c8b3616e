//! The rows as tables for people: the same on the screen, in Markdown and in HTML.

use super::advice::percent;
use super::row::Verdict;
use super::statistics::{LEVEL, Ratio};
use super::{Comparison, Row, counted};
use superpage_report::{Column, Table, bytes, count, time};

/// What stands in a column, of one row.
type Cell = fn(&Row) -> Option<String>;

/// The columns but the last: those that answer, which are always shown, and those that are only
/// shown wide.
const COLUMNS: [(&str, bool, Cell); 23] = [
    ("time", true, |row| {
        row.requests_per_second.is_none().then(|| spread(row.wall_seconds.median, row.wall_seconds.stddev))
    }),
    ("per request", false, |row| {
        row.requests_per_second.map(|_| spread(row.wall_seconds.median, row.wall_seconds.stddev))
    }),
    ("requests/s", true, |row| row.requests_per_second.map(rate)),
    ("p50", true, |row| row.latency_p50_seconds.map(time)),
    ("p99", true, |row| row.latency_p99_seconds.map(time)),
    ("p99.9", true, |row| row.latency_p999_seconds.map(time)),
    ("user", false, |row| Some(spread(row.user_seconds.median, row.user_seconds.stddev))),
    ("system", false, |row| Some(spread(row.system_seconds.median, row.system_seconds.stddev))),
    ("faults", false, |row| Some(count(row.minor_faults))),
    ("major", false, |row| Some(count(row.major_faults))),
    ("huge", true, huge),
    ("memory", true, |row| Some(bytes(row.peak_rss_bytes))),
    ("under load", false, |row| row.load_peak_bytes.map(bytes)),
    ("at end", true, |row| row.end_bytes.map(bytes)),
    ("dTLB loads", false, |row| row.dtlb_loads.map(count)),
    ("misses", false, |row| row.dtlb_load_misses.map(count)),
    ("dTLB stores", false, |row| row.dtlb_stores.map(count)),
    ("misses", false, |row| row.dtlb_store_misses.map(count)),
    ("iTLB loads", false, |row| row.itlb_loads.map(count)),
    ("misses", false, |row| row.itlb_misses.map(count)),
    ("walk cycles", false, |row| row.walk_cycles.map(count)),
    ("free blocks", false, |row| row.free_blocks.map(count)),
    ("runs", false, |row| Some(row.runs.to_string())),
];

/// The table of a comparison: one row per policy. A counter without a count under any policy has no
/// column.
pub fn table(comparison: &Comparison) -> Table {
    let rows = &comparison.rows;
    let shown: Vec<&(&str, bool, Cell)> =
        COLUMNS.iter().filter(|(_, _, cell)| rows.iter().any(|row| cell(row).is_some())).collect();
    let head = shown
        .iter()
        .map(|(name, always, _)| if *always { Column::number(*name) } else { Column::number(*name).only_wide() });
    let reference = rows.first().map_or("now", |row| row.policy.as_str());
    let of = if rows.iter().any(|row| row.requests_per_second.is_some()) { "time per request" } else { "time" };
    let level = comparison.level().filter(|level| *level < LEVEL);
    let level = level.map_or(String::new(), |level| format!(" ({} sure)", percent(level)));
    let last = Column::number(format!("{of} / {reference}{level}"));
    let mut table = Table::new(std::iter::once(Column::prose("policy")).chain(head).chain([last]));
    for row in rows {
        let cold = if row.memory_before == super::host::COLD { " (cold host)" } else { "" };
        let cells = shown.iter().map(|(_, _, cell)| cell(row).unwrap_or_else(|| "-".into()));
        table.row(std::iter::once(format!("{}{cold}", row.policy)).chain(cells).chain([ratio(row)]));
    }
    table
}

/// What each policy really did.
pub fn did_table(comparison: &Comparison) -> Table {
    let mut table = Table::new([Column::name("policy"), Column::prose("what it did")]);
    let did = |row: &Row| match &row.dropped {
        Some(why) => format!("{}; run no more after {}: {why}", row.did, counted(row.runs, "round")),
        None => row.did.clone(),
    };
    comparison.rows.iter().for_each(|row| table.row([row.policy.clone(), did(row)]));
    table
}

/// The median and the standard deviation of times, in the same unit.
fn spread(median: f64, stddev: Option<f64>) -> String {
    let median = time(median);
    let Some(stddev) = stddev else { return median };
    let (number, unit) = median.split_once(' ').expect("a time has a unit");
    match unit {
        "s" => format!("{number} ± {stddev:.3} s"),
        "ms" => format!("{number} ± {:.2} ms", stddev * 1e3),
        _ => format!("{number} ± {:.1} us", stddev * 1e6),
    }
}

/// The share that is mapped by huge pages, and that in the folios that the policy is about.
fn huge(row: &Row) -> Option<String> {
    let huge = row.huge_coverage_percent.map(|percent| format!("{percent:.1} %"));
    let folios = row.folio_coverage_percent.map(|percent| format!("folios {percent:.0} %"));
    let both: Vec<String> = huge.into_iter().chain(folios).collect();
    (!both.is_empty()).then(|| both.join(", "))
}

/// Requests a second, to three digits where they are few.
fn rate(rate: f64) -> String {
    match rate {
        few if few < 10.0 => format!("{few:.2}"),
        some if some < 100.0 => format!("{some:.1}"),
        many => count(many.round() as u64),
    }
}

/// The ratio to the reference and its interval, if that says anything; whether it differs at all.
fn ratio(row: &Row) -> String {
    let Some(ratio) = row.time_ratio else { return "1".into() };
    let verdict = match row.verdict {
        Some(Verdict::Faster) => " faster",
        Some(Verdict::Slower) => " slower",
        Some(Verdict::NothingReached) => ", did nothing",
        Some(Verdict::SettingsDiffered) => return "settings differed".into(),
        Some(Verdict::StatusesDiffer) => return "statuses differ".into(),
        _ => "",
    };
    match row.shown_ratio() {
        Some(Ratio { estimate, low, high, .. }) => format!("{estimate:.3} ({low:.3} to {high:.3}){verdict}"),
        None if row.is_comparable() => format!("{:.3}, no interval", ratio.estimate),
        None => format!("{:.3}{verdict}", ratio.estimate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::advice::tests::{comparison, row};
    use crate::compare::statistics::Spread;
    use superpage_report::Screen;

    #[test]
    fn the_answer_fits_a_hundred_columns() {
        let times: Vec<f64> = (0..10).map(|round| 0.7 + 0.02 * round as f64).collect();
        let slow: Vec<f64> = times.iter().map(|time| 1.3 * time).collect();
        let wide = |name: &str, reference: Option<(&[f64], usize)>| {
            let spread = Spread { median: 0.78882, mean: 0.7, stddev: Some(0.10586), min: 0.1, max: 1.0 };
            let mut row = row(name, if reference.is_some() { &slow } else { &times }, 1023 << 20, reference);
            (row.wall_seconds, row.user_seconds, row.system_seconds) = (spread, spread, spread);
            (row.minor_faults, row.huge_coverage_percent) = (68_315, Some(12.0));
            row.folio_coverage_percent = name.starts_with("mthp").then_some(93.5);
            row.dtlb_loads = Some(1 << 40);
            let did = "promoted 0 of 12 candidate regions, and a reason that is as long as they come here, or longer";
            row.tell(did.into(), Some(!name.starts_with("promote")), None);
            row
        };
        let rows = vec![
            wide("now", None),
            wide("mthp:size=64K", Some((&times, 5))),
            wide("promote:age=1s", Some((&times, 5))),
        ];
        let comparison = comparison(rows);
        let widest = |text: String| text.lines().map(|line| line.chars().count()).max().unwrap();
        let text = Screen::of(100).table(&table(&comparison));
        assert!(text.lines().count() <= 6 && widest(text.clone()) <= 100, "{text}");
        assert!(
            ["time / now", "huge", "memory", "did nothing", "slower"].iter().all(|word| text.contains(word)),
            "{text}"
        );
        assert!(widest(Screen::of(100).table(&did_table(&comparison))) <= 100);
        // Of a server, under a policy with many parameters: in two parts, and no word is broken.
        let (mut server, percent) = (comparison.clone(), "folios 94 %");
        for row in &mut server.rows {
            (row.requests_per_second, row.end_bytes) = (Some(225_000.0), Some(1023 << 20));
            [&mut row.latency_p50_seconds, &mut row.latency_p99_seconds, &mut row.latency_p999_seconds]
                .into_iter()
                .for_each(|latency| *latency = Some(16.87e-3));
        }
        server.rows[1].policy = "mthp:size=16K+32K+64K+128K+256K+512K+1M".into();
        let text = Screen::of(100).table(&table(&server));
        assert!(text.lines().count() <= 20 && widest(text.clone()) <= 100, "{text}");
        assert!(
            ["p99.9", "16K+32K+", percent, "time per request / now"].iter().all(|part| text.contains(part)),
            "{text}"
        );
        let all = Screen::stdout(true).table(&table(&comparison));
        assert!(["user", "system", "faults", "major", "dTLB loads"].iter().all(|word| all.contains(word)), "{all}");
    }
}
