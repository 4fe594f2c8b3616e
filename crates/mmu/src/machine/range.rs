//! The ranges of the numbers in a machine file. They are wide: a value outside is a slip, or would
//! overflow sums of cycles in a long run. What a machine needs beyond these ranges is checked in
//! [`super::check`].

use super::MAX_TLB_LEVELS;
use toml::{Table, Value};

/// Cycles of one step of the hardware. With 2^43 steps, days of simulation, sums stay within 64
/// bits.
const STEP_CYCLES: i64 = 1_000_000;
/// Cycles of one step of the operating system.
const WORK_CYCLES: i64 = 1_000_000_000;

/// Table, key (`*`: all others), the least and the most.
const RANGES: [(&str, &str, i64, i64); 41] = [
    ("clock", "hertz", 1, 100_000_000_000),
    ("clock", "cores", 1, 4096),
    ("clock", "threads-per-core", 1, 8),
    ("memory", "latency-cycles", 0, STEP_CYCLES),
    ("memory", "line-bytes", 8, 4096),
    ("memory", "overlap", 1, 64),
    // Each miss looks at all.
    ("memory", "streams", 0, 64),
    ("spaces", "number-bits", 0, 32),
    ("tlb", "level", 1, MAX_TLB_LEVELS as i64),
    ("tlb", "entries", 1, 1 << 24),
    ("tlb", "ways", 1, 1 << 24),
    ("tlb", "spaces", 1, 4096),
    ("tlb", "hit-cycles", 0, STEP_CYCLES),
    ("clustered", "pages", 1, 64),
    ("clustered", "buckets", 1, 1 << 24),
    ("groups", "groups", 1, 1 << 20),
    ("groups", "entry-cycles", 0, STEP_CYCLES),
    ("groups", "software-entry-cycles", 0, STEP_CYCLES),
    ("groups", "enter-cycles", 0, STEP_CYCLES),
    ("groups", "blocks", 0, 64),
    ("perforated", "most-holes-percent", 0, 60),
    ("range-tlb", "entries", 1, 4096),
    ("shadow", "entries", 1, 1 << 24),
    ("shadow", "ways", 1, 1 << 24),
    ("shadow", "hit-cycles", 0, STEP_CYCLES),
    ("shadow", "table-write-cycles", 0, STEP_CYCLES),
    ("shadow", "flush-per-kb", 0, WORK_CYCLES),
    ("walk", "refill-cycles", 0, STEP_CYCLES),
    ("walk-cache", "level", 2, 16),
    ("walk-cache", "entries", 0, (1 << 16) - 1),
    ("line-cache", "ways", 1, (1 << 16) - 1),
    ("line-cache", "hit-cycles", 0, STEP_CYCLES),
    ("line-cache", "shared-by", 1, 4096),
    ("instruction-cache", "ways", 1, (1 << 16) - 1),
    ("instruction-cache", "hit-cycles", 0, STEP_CYCLES),
    ("costs", "cycles-per-instruction", 0, 1000),
    ("costs", "*", 0, WORK_CYCLES),
    ("disk", "seek-microseconds", 0, 10_000_000),
    ("disk", "near-seek-microseconds", 0, 10_000_000),
    ("disk", "capacity-bytes", 1, 1 << 60),
    ("disk", "bytes-per-second", 1, 1_000_000_000_000_000),
];

/// The most bytes of a line cache. 64 GB occur in memory-side caches.
pub(crate) const LINE_CACHE_BYTES: u64 = 64 << 30;

/// The first number of a file that is outside its range: its key, and what was expected.
pub(super) fn outside(file: &Table) -> Option<(String, String)> {
    file.iter().find_map(|(table, value)| match value {
        Value::Table(part) => in_part(table, table, part),
        Value::Array(parts) => parts.iter().filter_map(Value::as_table).find_map(|part| {
            let name = part.get("name").and_then(Value::as_str).map(|name| format!("{table} \"{name}\""));
            in_part(table, &name.unwrap_or(table.clone()), part)
        }),
        _ => None,
    })
}

fn in_part(table: &str, label: &str, part: &Table) -> Option<(String, String)> {
    part.iter().find_map(|(key, value)| {
        let of = |known: &str| RANGES.iter().find(|(of, about, ..)| *of == table && *about == known);
        let &(_, _, least, most) = of(key).or_else(|| of("*"))?;
        let inside = match *value {
            Value::Integer(number) => (least..=most).contains(&number),
            // Neither an infinity nor a NaN is in any range.
            Value::Float(number) => (least as f64..=most as f64).contains(&number),
            // A word, as in `ways = "full"`, or something that the file's form does not allow.
            _ => true,
        };
        (!inside).then(|| (format!("{label}.{key}"), format!("expected a number from {least} to {most}, not {value}")))
    })
}

#[cfg(test)]
mod tests {
    use super::super::Machine;

    const ALPHA: &str = include_str!("../../machines/alpha-21264.toml");

    /// Sets a key of the first table of that name.
    fn with(table: &str, key: &str, value: &str) -> String {
        let head = ALPHA.find(table).unwrap();
        let start = head + ALPHA[head..].find(&format!("\n{key} = ")).unwrap() + 1;
        let end = start + ALPHA[start..].find('\n').unwrap();
        format!("{}{key} = {value}{}", &ALPHA[..start], &ALPHA[end..])
    }

    #[test]
    fn a_number_outside_its_range_is_named_with_the_range() {
        for (table, key, value) in [
            ("[costs]", "cycles-per-instruction", "inf"),
            ("[costs]", "cycles-per-instruction", "nan"),
            ("[costs]", "cycles-per-instruction", "-1"),
            ("[costs]", "fault", "9223372036854775807"),
            ("[[tlb]]", "hit-cycles", "9223372036854775807"),
            ("[[tlb]]", "entries", "268435456"),
            ("[[tlb]]", "entries", "4294967296"),
            ("[[tlb]]", "entries", "0"),
            ("[walk]", "refill-cycles", "-7"),
            ("[memory]", "latency-cycles", "9223372036854775807"),
            ("[clock]", "hertz", "0"),
            ("[disk]", "seek-microseconds", "9223372036854775807"),
        ] {
            let error = Machine::parse(&with(table, key, value), "test.toml").unwrap_err().to_string();
            let table = table.trim_matches(['[', ']']);
            assert!(error.contains(&format!(".{key}: expected a number from ")) && error.contains(table), "{error}");
            assert!(error.ends_with(&format!("not {value}")), "{error}");
        }
        let error = Machine::parse(&with("[[line-cache]]", "size", "\"1T\""), "test.toml").unwrap_err().to_string();
        assert!(error.contains("line-cache") && error.contains("at most 64G"), "{error}");
    }

    #[test]
    fn every_number_of_the_built_in_machines_has_a_range() {
        for name in Machine::names() {
            let text = std::fs::read_to_string(format!("{}/machines/{name}.toml", env!("CARGO_MANIFEST_DIR"))).unwrap();
            let file: toml::Table = toml::from_str(&text).unwrap();
            let parts = file.iter().flat_map(|(table, value)| match value {
                toml::Value::Table(part) => vec![(table, part)],
                toml::Value::Array(parts) => parts.iter().filter_map(|part| Some((table, part.as_table()?))).collect(),
                _ => Vec::new(),
            });
            for (table, part) in parts {
                for (key, value) in part.iter().filter(|(_, value)| value.is_integer() || value.is_float()) {
                    let known =
                        super::RANGES.iter().any(|(of, about, ..)| of == table && (about == key || *about == "*"));
                    assert!(known, "{name}: {table}.{key} = {value}");
                }
            }
        }
    }
}
