//! The rows as cells for people, the same in the table, in Markdown and in HTML.

use super::{Comparison, Row};
use superpage_report::{bytes, count, time};

/// A table of text. The first column is the policy; numbers stand in all others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cells {
    /// The names of the columns.
    pub head: Vec<String>,
    /// A row for each policy.
    pub rows: Vec<Vec<String>>,
}

/// What stands in a column, of one row.
type Cell = fn(&Row) -> Option<String>;

/// The columns that are always there, and those that are where the hardware counts.
const COLUMNS: [(&str, Cell); 9] = [
    ("policy", |row| {
        Some(if row.memory_before == super::COLD { format!("{} (cold host)", row.policy) } else { row.policy.clone() })
    }),
    ("time", |row| Some(spread(row.wall_seconds.median, row.wall_seconds.stddev))),
    ("user", |row| Some(spread(row.user_seconds.median, row.user_seconds.stddev))),
    ("system", |row| Some(spread(row.system_seconds.median, row.system_seconds.stddev))),
    ("faults", |row| Some(count(row.minor_faults))),
    ("major", |row| Some(count(row.major_faults))),
    ("peak", |row| Some(bytes(row.peak_rss_bytes))),
    ("huge", huge),
    ("time / base", ratio),
];
const COUNTED: [(&str, Cell); 7] = [
    ("dTLB loads", |row| row.dtlb_loads.map(count)),
    ("misses", |row| row.dtlb_load_misses.map(count)),
    ("dTLB stores", |row| row.dtlb_stores.map(count)),
    ("misses", |row| row.dtlb_store_misses.map(count)),
    ("iTLB loads", |row| row.itlb_loads.map(count)),
    ("misses", |row| row.itlb_misses.map(count)),
    ("walk cycles", |row| row.walk_cycles.map(count)),
];

/// The cells of a comparison. A counter that counted under no policy has no column.
pub fn cells(comparison: &Comparison) -> Cells {
    let last = COLUMNS.len() - 1;
    let counted = COUNTED.iter().filter(|(_, cell)| comparison.rows.iter().any(|row| cell(row).is_some()));
    let columns: Vec<&(&str, Cell)> = COLUMNS[..last].iter().chain(counted).chain(&COLUMNS[last..]).collect();
    let row = |row: &Row| columns.iter().map(|(_, cell)| cell(row).unwrap_or_else(|| "-".into())).collect();
    Cells {
        head: columns.iter().map(|(name, _)| name.to_string()).collect(),
        rows: comparison.rows.iter().map(row).collect(),
    }
}

/// The median and the standard deviation of times.
fn spread(median: f64, stddev: Option<f64>) -> String {
    match stddev {
        Some(stddev) => format!("{} ± {}", time(median), time(stddev)),
        None => time(median),
    }
}

/// The share that is mapped by huge pages, and that in the folios that the policy is about.
fn huge(row: &Row) -> Option<String> {
    let huge = row.huge_coverage_percent.map(|percent| format!("{percent:.1} %"));
    let folios = row.folio_coverage_percent.map(|percent| format!("folios {percent:.1} %"));
    let both: Vec<String> = huge.into_iter().chain(folios).collect();
    (!both.is_empty()).then(|| both.join(", "))
}

/// The ratio to base and its interval; whether it differs at all.
fn ratio(row: &Row) -> Option<String> {
    let Some(ratio) = row.time_ratio else { return Some("1".into()) };
    let sign = match ratio {
        ratio if !ratio.differs() => "",
        ratio if ratio.high < 1.0 => " faster",
        _ => " slower",
    };
    Some(format!("{:.3} ({:.3} to {:.3}){sign}", ratio.estimate, ratio.low, ratio.high))
}
