//! How much of a process's memory must be huge.

use super::mapping::{Mapping, MappingKind};
use super::process::Process;
use std::fmt;
use std::str::FromStr;

/// How much of a kind of memory must be huge: `heap huge >= 90 %`, of `heap` (private anonymous
/// memory), `shared`, `code` or `all`; memory of a hugetlb pool is `shared` or `heap`, as it is
/// mapped.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Expectation {
    of: ExpectedKind,
    percent: f64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum ExpectedKind {
    Heap,
    Shared,
    Code,
    All,
}

impl ExpectedKind {
    /// Each kind, its word in an expectation, and in the sentence about it.
    const WORDS: [(ExpectedKind, &str, &str); 4] = [
        (ExpectedKind::Heap, "heap", "heap"),
        (ExpectedKind::Shared, "shared", "shared memory"),
        (ExpectedKind::Code, "code", "code"),
        (ExpectedKind::All, "all", "memory"),
    ];

    fn words(self) -> (ExpectedKind, &'static str, &'static str) {
        ExpectedKind::WORDS[self as usize]
    }
}

impl Expectation {
    /// A sentence without its subject's name if too little is huge: `89.9 % of the heap is in huge
    /// pages, less than the expected 90 %`. Of no such memory at all nothing is.
    pub fn unmet(&self, process: &Process) -> Option<String> {
        // What `run --text` has copied has no file any more.
        let copied =
            |mapping: &Mapping| mapping.kind == MappingKind::Anonymous && mapping.permissions.starts_with("r-x");
        let counts = |mapping: &&Mapping| match self.of {
            ExpectedKind::Heap | ExpectedKind::Shared if mapping.kind == MappingKind::Hugetlb => {
                mapping.permissions.ends_with('s') == (self.of == ExpectedKind::Shared)
            }
            ExpectedKind::Heap => mapping.kind == MappingKind::Anonymous && !copied(mapping),
            ExpectedKind::Shared => mapping.kind == MappingKind::SharedMemory,
            ExpectedKind::Code => mapping.is_code() || copied(mapping),
            ExpectedKind::All => true,
        };
        let sum = |of: fn(&Mapping) -> u64| process.mappings.iter().filter(counts).map(of).sum::<u64>();
        let (resident, huge) = (sum(|mapping| mapping.resident_bytes), sum(|mapping| mapping.huge_bytes));
        let percent = if resident == 0 { 0.0 } else { 100.0 * huge as f64 / resident as f64 };
        // Rounded down, it is below what it should be in print too.
        let (_, _, name) = self.of.words();
        (percent < self.percent).then(|| {
            let found = (10.0 * percent).floor() / 10.0;
            format!("{found:.1} % of the {name} is in huge pages, less than the expected {} %", self.percent)
        })
    }
}

impl FromStr for Expectation {
    type Err = String;

    fn from_str(text: &str) -> Result<Expectation, String> {
        let expected = "expected a kind of memory and a percentage with its sign, as `heap huge >= 90 %`: of heap, \
                        shared, code or all";
        let (memory, share) = text.split_once(">=").ok_or(expected)?;
        let words: Vec<&str> = memory.split_whitespace().collect();
        let of = ExpectedKind::WORDS.iter().find(|(_, word, _)| words == [*word, "huge"]).ok_or(expected)?.0;
        let percent = share.trim().strip_suffix('%').and_then(|share| share.trim().parse::<f64>().ok());
        let percent = percent.filter(|percent| (0.0..=100.0).contains(percent)).ok_or(expected)?;
        Ok(Expectation { of, percent })
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} huge >= {} %", self.of.words().1, self.percent)
    }
}

#[cfg(test)]
mod tests {
    use super::super::advice::tests::mapping;
    use super::*;
    use superpage_linux::why::Why;

    #[test]
    fn what_is_expected_is_of_a_kind_of_memory() {
        let mut heap = mapping(MappingKind::Anonymous, "rw-p", "", Why::NotAdvised, 100);
        heap.huge_bytes = 90 << 20;
        let process = |mappings| Process { pid: 1, command: "server".into(), mappings, notes: Vec::new() };
        let heap = process(vec![heap, mapping(MappingKind::File, "r-xp", "/bin/x", Why::TooSmall, 100)]);
        for (text, unmet) in [
            ("heap huge >= 90 %", None),
            ("heap huge>=90.04%", Some("90.0 % of the heap is in huge pages, less than the expected 90.04 %")),
            ("all huge >= 45%", None),
            ("all huge >= 58 %", Some("45.0 % of the memory is in huge pages, less than the expected 58 %")),
            ("code huge >= 1 %", Some("0.0 % of the code is in huge pages, less than the expected 1 %")),
            ("shared huge >= 0 %", None),
        ] {
            let expectation: Expectation = text.parse().unwrap();
            assert_eq!(expectation.unmet(&heap).as_deref(), unmet, "{text}");
            assert_eq!(expectation.to_string().parse(), Ok(expectation));
        }
        let mut almost = mapping(MappingKind::Anonymous, "rw-p", "", Why::NotAdvised, 10000);
        almost.huge_bytes = 8996 << 20;
        let expectation: Expectation = "heap huge >= 90 %".parse().unwrap();
        assert!(expectation.unmet(&process(vec![almost])).unwrap().starts_with("89.9 % "));
        // Code that was copied to memory without a file.
        let mut copied = mapping(MappingKind::Anonymous, "r-xp", "", Why::NotAdvised, 4);
        copied.huge_bytes = copied.resident_bytes;
        let expectation: Expectation = "code huge >= 90 %".parse().unwrap();
        assert_eq!(expectation.unmet(&process(vec![copied])), None);
        // Memory of a pool, as it is mapped.
        let pool = |permissions| {
            let mapping =
                mapping(MappingKind::Hugetlb, permissions, "/anon_hugepage (deleted)", Why::NotCollapsed, 100);
            process(vec![Mapping { huge_bytes: mapping.resident_bytes, ..mapping }])
        };
        for (text, permissions, met) in [
            ("shared huge >= 90 %", "rw-s", true),
            ("shared huge >= 90 %", "rw-p", false),
            ("heap huge >= 90 %", "rw-p", true),
            ("heap huge >= 90 %", "rw-s", false),
        ] {
            let expectation: Expectation = text.parse().unwrap();
            assert_eq!(expectation.unmet(&pool(permissions)).is_none(), met, "{text} of {permissions}");
        }
        for text in
            ["", "heap >= 90 %", "heap huge > 90 %", "heap huge >= 90", "heap huge >= 101 %", "heap huge >= nan %"]
        {
            assert!(text.parse::<Expectation>().unwrap_err().starts_with("expected a kind"), "{text}");
        }
    }
}
