//! Writes a machine file for the simulator from the measurements.

use super::{Finding, Probe, Value};
use procfs::{CpuInfo, Current, Meminfo};
use std::fmt;
use toml::Table;

/// A built-in machine: its name and its file.
type Template = (&'static str, &'static str);
const ZEN4: Template = ("zen4", include_str!("../../machines/zen4.toml"));
const ZEN5: Template = ("zen5", include_str!("../../machines/zen5.toml"));
const GOLDEN_COVE: Template = ("golden-cove", include_str!("../../machines/golden-cove.toml"));
const SKYLAKE_SP: Template = ("skylake-sp", include_str!("../../machines/skylake-sp.toml"));
const HARPERTOWN: Template = ("harpertown", include_str!("../../machines/harpertown.toml"));
const NEOVERSE_V2: Template = ("neoverse-v2", include_str!("../../machines/neoverse-v2.toml"));

/// What the processor says that it is.
pub(crate) struct Processor {
    vendor: String,
    family: u32,
    model: u32,
    name: String,
}

impl Processor {
    pub(crate) fn here() -> Processor {
        CpuInfo::current().map_or_else(
            |_| Processor::read(&|_| ""),
            |info| Processor::read(&|key| info.get_field(0, key).unwrap_or("")),
        )
    }

    /// By the fields of `/proc/cpuinfo`; those that are not there are empty.
    fn read<'a>(of: &dyn Fn(&str) -> &'a str) -> Processor {
        let arm = of("CPU part");
        Processor {
            vendor: if arm.is_empty() { of("vendor_id") } else { "ARM" }.into(),
            family: of("cpu family").parse().unwrap_or(0),
            model: of("model").parse().or(u32::from_str_radix(arm.trim_start_matches("0x"), 16)).unwrap_or(0),
            name: of("model name").into(),
        }
    }

    /// The built-in machine that is nearest, and whether it is of the same family.
    fn nearest(&self) -> (Template, bool) {
        match (self.vendor.as_str(), self.family, self.model) {
            ("AuthenticAMD", 25, 0x10..=0x1f | 0x60..=0x7f | 0xa0..=0xaf) => (ZEN4, true),
            ("AuthenticAMD", 26.., _) => (ZEN5, self.family == 26),
            ("AuthenticAMD", ..) => (ZEN4, false),
            ("GenuineIntel", 6, 143 | 151 | 154 | 183 | 186 | 191 | 207) => (GOLDEN_COVE, true),
            ("GenuineIntel", 6, 85 | 94 | 158) => (SKYLAKE_SP, true),
            ("GenuineIntel", 6, 15 | 23 | 29) => (HARPERTOWN, true),
            ("ARM", _, part) => (NEOVERSE_V2, part == 0xd4f),
            _ => (GOLDEN_COVE, false),
        }
    }
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.vendor.as_str() {
            "ARM" => write!(f, "ARM part {:#x}", self.model),
            vendor => write!(f, "{} ({vendor} family {} model {})", self.name, self.family, self.model),
        }
    }
}

/// The machine file.
pub(crate) fn file(probe: &Probe, processor: &Processor) -> String {
    let ((name, text), same) = processor.nearest();
    let mut machine: Table = text.parse().expect("built-in files are right");
    let others = format!(
        "what was not measured is as of {name}, the nearest built-in machine{}",
        if same { "" } else { " (of another family)" }
    );
    machine.insert("name".into(), "probed".into());
    machine.insert("description".into(), format!("measured by superpage probe on {processor}").into());
    // The walks measured read one entry, from the second cache for data.
    let caches = machine.get("line-cache").and_then(toml::Value::as_array);
    let second = caches.and_then(|caches| caches.get(1)?.get("hit-cycles")?.as_integer()).unwrap_or(0);
    for (key, part) in &mut machine {
        let parts: Vec<&mut Table> = match part {
            toml::Value::Table(part) => vec![part],
            toml::Value::Array(parts) => parts.iter_mut().filter_map(toml::Value::as_table_mut).collect(),
            _ => continue,
        };
        for part in parts {
            let measured = measured(probe, key, part, second);
            let ways = part.get("ways").cloned();
            set(part, measured, &others);
            if key == "tlb" {
                fit(part, ways);
            }
        }
    }
    if let Some(finding) = probe.finding("host.fractures")
        && finding.is_so() == Some(true)
    {
        let mut host = Table::new();
        host.insert("backs-by".into(), "4K".into());
        host.insert("source".into(), format!("measured: {}", said(finding)).into());
        machine.insert("host".into(), host.into());
    }
    let head =
        "# Made by superpage probe. Measured values say so in `source`, with the evidence; all others are `assumed`.\n";
    format!("{head}{}", toml::to_string_pretty(&machine).expect("a table of plain values"))
}

/// The share of the entries that its curve shows, or the inverse, that the sets and ways of a TLB
/// multiply to at least.
const SHAPES_AGREE: f64 = 0.8;

/// The values of a part of the machine that were measured: key, value, evidence. A reference to the
/// second cache for data takes `second` cycles.
fn measured(probe: &Probe, key: &str, part: &Table, second: i64) -> Vec<(&'static str, toml::Value, String)> {
    let number = |name: &str| {
        let finding = probe.finding(name)?;
        Some((finding.as_number()?, said(finding)))
    };
    let whole = |name: &str| number(name).map(|(value, said)| (toml::Value::Integer(value.round() as i64), said));
    let mut values = Vec::new();
    let mut add = |key: &'static str, value: Option<(toml::Value, String)>| {
        values.extend(value.map(|(value, said)| (key, value, said)));
    };
    let level = part.get("level").and_then(toml::Value::as_integer);
    let serves_data = matches!(part.get("serves").and_then(toml::Value::as_str), Some("data" | "load" | "unified"));
    match (key, level) {
        ("clock", _) => add("hertz", whole("clock.hertz")),
        ("memory", _) => {
            let bytes = Meminfo::current().map(|memory| memory.mem_total).ok();
            add("size", bytes.map(|bytes| (format!("{}M", bytes >> 20).into(), "MemTotal of /proc/meminfo".into())));
        }
        ("tlb", Some(level)) if serves_data => {
            // What was measured with pages of a size is about the TLB that holds them.
            let sizes = part.get("sizes").and_then(toml::Value::as_array).into_iter().flatten();
            let mut sizes = sizes.filter_map(toml::Value::as_str);
            let measured = |size: &&str| probe.finding(&format!("tlb.l{level}.entries.{size}")).is_some();
            let Some(size) = sizes.find(measured) else { return values };
            // Sets and ways of far more or fewer entries than the curve shows are not those of this
            // TLB.
            let agrees = |finding: &&Finding| finding.confidence >= SHAPES_AGREE;
            let ways = probe.finding(&format!("tlb.l{level}.ways.{size}")).filter(agrees);
            let full = ways.is_some_and(|finding| finding.value == Some(Value::Text("full".into())));
            let ways = if full {
                ways.map(|finding| ("full".into(), said(finding)))
            } else {
                ways.and_then(|finding| Some((toml::Value::Integer(finding.as_number()? as i64), said(finding))))
            };
            let known = ways.as_ref().map(|(value, _)| value.clone()).or(part.get("ways").cloned());
            let set = known.and_then(|ways| ways.as_integer()).unwrap_or(1);
            let sets = probe.finding(&format!("tlb.l{level}.sets.{size}")).filter(agrees);
            let sets = sets.and_then(|finding| Some((finding.as_number()? as i64 * set, said(finding))));
            let seen = number(&format!("tlb.l{level}.entries.{size}")).map(|(entries, said)| {
                ((entries as i64 / set).max(1) * set, format!("{said}, as whole sets of {set}"))
            });
            let entries = sets.or(seen).map(|(entries, said)| (toml::Value::Integer(entries), said));
            add("entries", entries);
            add("ways", ways);
            if level == 2 {
                add("hit-cycles", whole(&format!("tlb.l2.hit.{size}")));
            }
        }
        ("walk", _) => {
            let rest = |(cycles, said): (f64, String)| {
                let rest = (cycles.round() as i64 - second).max(0);
                (toml::Value::Integer(rest), format!("{said}; without the {second} of the last reference"))
            };
            let walk = number("walk.near").map(rest);
            add("refill-cycles", walk);
        }
        ("costs", _) => {
            add("fault", whole("fault.fixed"));
            add("zero-per-kb", whole("zero.per-kb"));
            add("shootdown-send", whole("shootdown.send"));
            add("shootdown-receive", whole("shootdown.receive"));
        }
        _ => {}
    }
    values
}

fn said(finding: &Finding) -> String {
    format!("{}: {} (rounds agree to {:.0} %)", finding.what, finding.evidence, 100.0 * finding.confidence)
}

/// Sets what was measured, and marks all else as assumed.
fn set(part: &mut Table, measured: Vec<(&'static str, toml::Value, String)>, others: &str) {
    let about = |key: &str| matches!(key, "source" | "assumed" | "name");
    let evidence: Vec<String> = measured.iter().map(|(key, _, said)| format!("{key} measured: {said}")).collect();
    let keys: Vec<&str> = measured.iter().map(|(key, ..)| *key).collect();
    let assumed: Vec<toml::Value> =
        part.keys().filter(|key| !about(key) && !keys.contains(&key.as_str())).map(|key| key.clone().into()).collect();
    let mut source = evidence.join("; ");
    if !assumed.is_empty() {
        source = if source.is_empty() { others.to_string() } else { format!("{source}; {others}") };
    }
    part.insert("source".into(), source.into());
    part.insert("assumed".into(), assumed.into());
    for (key, value, _) in measured {
        part.insert(key.into(), value);
    }
}

/// Replaces what the shape measured of a TLB may not allow, since it was of another: replacements,
/// and index functions, may need a number of ways, and of sets. Both are assumed.
fn fit(part: &mut Table, ways_before: Option<toml::Value>) {
    if part.get("ways") != ways_before.as_ref() {
        part.insert("replacement".into(), "lru".into());
    }
    let number = |key: &str| part.get(key).and_then(toml::Value::as_integer);
    let sets = number("entries").zip(number("ways")).map_or(1, |(entries, ways)| entries / ways.max(1));
    if part.contains_key("index") && sets.count_ones() != 1 {
        part.insert("index".into(), "low".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processor(fields: &[(&str, &'static str)]) -> Processor {
        Processor::read(&|key| fields.iter().find(|(name, _)| *name == key).map_or("", |(_, value)| value))
    }

    /// What was measured on a Golden Cove: 96 entries for 4 KB, 33 (of 32) for 2 MB, none for 1 GB.
    #[test]
    fn the_entries_of_a_size_go_to_the_tlb_that_holds_it() {
        let number = |name: &str, value: f64| Finding::number(name, name, value, 1.0, "seen".into());
        let findings = vec![number("tlb.l1.entries.4K", 96.0), number("tlb.l1.entries.2M", 33.0)];
        let probe = Probe { findings, latency: Vec::new(), processor: String::new(), stopped: false };
        let text = file(&probe, &processor(&[("vendor_id", "GenuineIntel"), ("cpu family", "6"), ("model", "143")]));
        let machine: Table = text.parse().unwrap();
        let tlbs = machine["tlb"].as_array().unwrap().iter().map(|tlb| tlb.as_table().unwrap());
        let loads = tlbs.filter(|tlb| tlb["level"].as_integer() == Some(1) && tlb["serves"].as_str() == Some("load"));
        let of = |tlb: &Table| {
            let assumed = tlb["assumed"].as_array().unwrap().contains(&"entries".into());
            (tlb["sizes"][0].as_str().unwrap().to_string(), tlb["entries"].as_integer().unwrap(), assumed)
        };
        let expected = [("4K", 96, false), ("2M", 32, false), ("1G", 8, true)];
        assert_eq!(loads.map(of).collect::<Vec<_>>(), expected.map(|(size, n, a)| (size.to_string(), n, a)));
    }

    /// What is measured of Skylake's TLBs may not suit the replacements and index functions of its
    /// file.
    #[test]
    fn a_shape_of_ones_own_has_a_replacement_that_allows_it() {
        let number = |name: &str, value: f64| Finding::number(name, name, value, 1.0, "seen".into());
        let skylake = processor(&[("vendor_id", "GenuineIntel"), ("cpu family", "6"), ("model", "85")]);
        let stlb = |findings: Vec<Finding>| {
            let probe = Probe { findings, latency: Vec::new(), processor: String::new(), stopped: false };
            let machine: Table = file(&probe, &skylake).parse().unwrap();
            let tlb =
                machine["tlb"].as_array().unwrap().iter().find(|tlb| tlb["name"].as_str() == Some("STLB")).unwrap();
            let assumed = |key: &str| tlb["assumed"].as_array().unwrap().contains(&key.into());
            assert!(assumed("replacement") && assumed("index"));
            ["entries", "index", "replacement"].map(|key| tlb[key].to_string().replace('"', ""))
        };
        assert_eq!(stlb(vec![number("tlb.l2.entries.4K", 1539.0)]), ["1536", "xor", "mru3-plru4"]);
        assert_eq!(stlb(vec![number("tlb.l2.entries.4K", 1500.0)]), ["1500", "low", "mru3-plru4"]);
        let of_eight = vec![number("tlb.l2.entries.4K", 1536.0), number("tlb.l2.ways.4K", 8.0)];
        assert_eq!(stlb(of_eight), ["1536", "low", "lru"]);
        // 1152 entries where 1878 are seen: the strides showed something else.
        let doubtful = |name: &str, value: f64| Finding::number(name, name, value, 0.61, "seen".into());
        let of_nine = vec![
            number("tlb.l2.entries.4K", 1878.0),
            doubtful("tlb.l2.ways.4K", 9.0),
            doubtful("tlb.l2.sets.4K", 128.0),
        ];
        assert_eq!(stlb(of_nine), ["1872", "low", "mru3-plru4"]);
    }

    /// On a machine where an instruction reaches all processors.
    #[test]
    fn costs_of_shootdowns_that_were_measured_are_not_assumed() {
        let number = |name: &str, value: f64| Finding::number(name, name, value, 1.0, "seen".into()).unit("cycles");
        let findings = vec![number("shootdown.send", 3456.7), number("shootdown.receive", 0.0)];
        let probe = Probe { findings, latency: Vec::new(), processor: String::new(), stopped: false };
        let machine: Table = file(&probe, &processor(&[("vendor_id", "AuthenticAMD")])).parse().unwrap();
        let costs = machine["costs"].as_table().unwrap();
        let of =
            |key: &str| (costs[key].as_integer().unwrap(), costs["assumed"].as_array().unwrap().contains(&key.into()));
        let keys = ["shootdown", "shootdown-send", "shootdown-receive"];
        assert_eq!(keys.map(of), [(250, true), (3457, false), (0, false)]);
        assert!(costs["source"].as_str().unwrap().contains("shootdown-send measured: shootdown.send: seen"));
    }

    #[test]
    fn processors_find_their_family() {
        let read = |fields: &[(&str, &'static str)]| processor(fields).nearest();
        let amd = read(&[("vendor_id", "AuthenticAMD"), ("cpu family", "25"), ("model", "17"), ("model name", "EPYC")]);
        assert_eq!((amd.0.0, amd.1), ("zen4", true));
        let intel = read(&[("vendor_id", "GenuineIntel"), ("cpu family", "6"), ("model", "143")]);
        assert_eq!(intel.0.0, "golden-cove");
        assert_eq!(read(&[("CPU part", "0xd4f")]).0.0, "neoverse-v2");
        assert!(!read(&[]).1);
    }
}
