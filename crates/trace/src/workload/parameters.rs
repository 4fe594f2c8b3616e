//! The parameters of a workload, `key=value,key=value`, and the checks on their values.

use crate::Error;
use std::ops::RangeInclusive;
use superpage_pages::{ExactBytes, parse_bytes, parse_count};

/// The most bytes that a workload may map in one region: 16 TB, well within the 47 bits of a user's
/// addresses.
pub(super) const MOST_BYTES: u64 = 1 << 44;

/// The most references, rounds and operations that a parameter may ask for.
pub(super) const MOST_COUNT: u64 = 1_000_000_000_000_000;

/// One parameter of a workload, for help texts and for checking arguments.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The key.
    pub name: &'static str,
    /// The default value, as a user would write it.
    pub default: &'static str,
    /// What it means, in a line.
    pub help: &'static str,
}

/// The values of a workload's parameters: those given, and for the rest the defaults.
pub(super) struct Values<'a> {
    /// Whether the stream is to have lines.
    pub(super) lines: bool,
    workload: &'static str,
    given: &'a str,
    values: Vec<(&'static str, &'a str)>,
}

impl<'a> Values<'a> {
    /// Parses `text`, `key=value,key=value` or empty, for the workload of that name. A key may be
    /// given once.
    pub(super) fn parse(
        workload: &'static str,
        parameters: &'static [Parameter],
        text: &'a str,
        lines: bool,
    ) -> Result<Values<'a>, Error> {
        let mut values: Vec<_> = parameters.iter().map(|p| (p.name, p.default)).collect();
        let mut given = vec![false; values.len()];
        for pair in text.split(',').filter(|_| !text.is_empty()) {
            let wrong = |problem: String| Error::input(format!("{workload}:{pair}"), problem);
            let known = || parameters.iter().map(|p| p.name).collect::<Vec<_>>().join(", ");
            let Some((key, value)) = pair.split_once('=') else {
                return Err(wrong(format!("expected key=value with a key of {}", known())));
            };
            let key = key.trim();
            let Some(index) = values.iter().position(|(name, _)| *name == key) else {
                return Err(wrong(format!("{workload} has no parameter {key:?}; it has {}", known())));
            };
            if std::mem::replace(&mut given[index], true) {
                return Err(wrong(format!("{key} is given twice; keep one of them")));
            }
            values[index].1 = value.trim();
        }
        Ok(Values { lines, workload, given: text, values })
    }

    /// The workload as the user wrote it.
    pub(super) fn label(&self) -> String {
        if self.given.is_empty() { self.workload.into() } else { format!("{}:{}", self.workload, self.given) }
    }

    /// The text of a value. Panics if the workload has no such parameter: the table and the code
    /// disagree.
    pub(super) fn text(&self, name: &str) -> &'a str {
        self.values.iter().find(|(known, _)| *known == name).expect("a parameter of the table").1
    }

    /// The error for the value of `name`: what was `expected`, in the words of the caller.
    pub(super) fn wrong(&self, name: &str, expected: &str) -> Error {
        Error::input(format!("{}:{name}={}", self.workload, self.text(name)), format!("expected {expected}"))
    }

    /// A number of bytes in `range`.
    pub(super) fn bytes(&self, name: &str, range: RangeInclusive<u64>) -> Result<u64, Error> {
        let (from, to) = (ExactBytes(*range.start()), ExactBytes(*range.end()));
        let expected = || format!("a size from {from} to {to} bytes, such as 64K");
        match parse_bytes(self.text(name)) {
            Ok(bytes) if range.contains(&bytes) => Ok(bytes),
            _ => Err(self.wrong(name, &expected())),
        }
    }

    /// A count in `range`.
    pub(super) fn count(&self, name: &str, range: RangeInclusive<u64>) -> Result<u64, Error> {
        match parse_count(self.text(name)) {
            Ok(count) if range.contains(&count) => Ok(count),
            _ => Err(self
                .wrong(name, &format!("a count from {} to {}, such as 10 or 2K (2000)", range.start(), range.end()))),
        }
    }

    /// A seed: any number of 64 bits.
    pub(super) fn seed(&self) -> Result<u64, Error> {
        self.text("seed").parse().map_err(|_| self.wrong("seed", "a whole number below 2^64"))
    }

    /// A time, such as 200ms, in microseconds.
    pub(super) fn microseconds(&self, name: &str) -> Result<u64, Error> {
        let text = self.text(name);
        let units = [("us", 1), ("ms", 1000), ("s", 1_000_000)];
        let given = units.into_iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)));
        let time = given.and_then(|(number, factor)| number.parse::<u64>().ok()?.checked_mul(factor));
        time.filter(|time| *time <= MOST_COUNT).ok_or_else(|| self.wrong(name, "a time in us, ms or s, such as 200ms"))
    }

    /// One of two words: `true` for `yes`, `false` for `no`.
    pub(super) fn choice(&self, name: &str, yes: &str, no: &str) -> Result<bool, Error> {
        match self.text(name) {
            text if text == yes => Ok(true),
            text if text == no => Ok(false),
            _ => Err(self.wrong(name, &format!("{yes} or {no}"))),
        }
    }

    /// A decimal fraction in `range`, such as 0.99.
    pub(super) fn fraction(&self, name: &str, range: RangeInclusive<f64>) -> Result<f64, Error> {
        match self.text(name).parse::<f64>() {
            Ok(value) if range.contains(&value) => Ok(value),
            _ => {
                Err(self
                    .wrong(name, &format!("a decimal number from {} to {}, such as 0.5", range.start(), range.end())))
            }
        }
    }
}
