//! Machine files: the built-in ones are sound, and what is wrong with another is told in one sentence.

use superpage_mmu::{Machine, Serves};
use superpage_pages::Access;

fn serves(tlb: Serves, access: Access) -> bool {
    match tlb {
        Serves::Unified => true,
        Serves::Data => access != Access::Execute,
        Serves::Load => access == Access::Read,
        Serves::Store => access == Access::Write,
        Serves::Instruction => access == Access::Execute,
    }
}

#[test]
fn every_built_in_machine_is_sound() {
    for name in Machine::names() {
        let machine = Machine::builtin(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(machine.name, name);
        assert!(!machine.assumed().is_empty(), "{name}: no machine is published whole");
        assert!(machine.assumed().iter().any(|(key, _)| key == "costs.fault"), "{name}: costs are assumed");
    }
}

#[test]
fn assumed_values_are_listed_with_key_and_value() {
    let machine = Machine::builtin("skylake-sp").unwrap();
    let find = |key: &str| machine.assumed().iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str());
    assert_eq!(find("tlb.STLB.replacement"), Some("\"lru\""));
    assert_eq!(find("walk-cache.2.entries"), Some("32"));
    assert_eq!(find("tlb.STLB.entries"), None);
}

/// What any hardware has: farther caches are larger and slower, farther TLBs hold no fewer base pages, moving costs no less than
/// clearing.
#[test]
fn farther_is_larger_and_slower() {
    for name in Machine::names() {
        let machine = Machine::builtin(name).unwrap();
        for pair in machine.line_cache.windows(2) {
            assert!(pair[0].size < pair[1].size && pair[0].hit_cycles < pair[1].hit_cycles, "{name}: {}", pair[1].name);
        }
        assert!(machine.line_cache.last().unwrap().hit_cycles < machine.memory.latency_cycles, "{name}: memory");
        assert!(machine.costs.zero_per_kb <= machine.costs.copy_per_kb, "{name}: copying");
        for size in &machine.pages.sizes[..1] {
            let entries = |level: usize, access: Access| {
                let of = |tlb: &&superpage_mmu::TlbSpec| {
                    tlb.level == level && tlb.sizes.contains(size) && serves(tlb.serves, access)
                };
                machine.tlb.iter().find(of).map(|tlb| tlb.entries)
            };
            for access in [Access::Read, Access::Write, Access::Execute] {
                if let (Some(near), Some(far)) = (entries(1, access), entries(2, access)) {
                    assert!(near <= far, "{name}: {near} entries for {size} before {far}");
                }
            }
        }
    }
}

fn alpha() -> String {
    include_str!("../../../machines/alpha-21264.toml").to_string()
}

fn refused(from: &str, to: &str) -> String {
    let text = alpha();
    assert!(text.contains(from), "{from}");
    let error = Machine::parse(&text.replacen(from, to, 1), "test.toml").expect_err("the file is wrong").to_string();
    assert!(error.contains("test.toml"), "{error}");
    assert!(!error.contains('\n'), "{error}");
    error
}

#[test]
fn what_is_wrong_is_told() {
    assert!(refused("entries = 128", "entires = 128").contains("entires"));
    assert!(refused("ways = \"full\"", "ways = 5").contains("128 entries are no whole number of sets of 5 ways"));
    assert!(refused("ways = \"full\"", "ways = \"many\"").contains("\"full\""));
    assert!(refused("replacement = \"round-robin\"", "replacement = \"best\"").contains("best"));
    assert!(refused("replacement = \"round-robin\"", "replacement = \"tree-plru\"").contains("at most 64"));
    assert!(refused("size = \"512M\"", "size = \"512 MB\"").contains("512 MB"));
    assert!(refused("[\"8K\", \"64K\", \"512K\", \"4M\"]", "[\"8K\", \"64K\", \"64K\"]").contains("ascend"));
    assert!(refused("serves = \"data\"", "serves = \"load\"").contains("no TLB holds pages of 8K for Write"));
    assert!(refused("serves = \"data\"", "serves = \"unified\"").contains("two TLBs of level 1"));
    let sizes = "sizes = [\"8K\", \"64K\", \"512K\", \"4M\"]\nentries";
    assert!(refused(sizes, "sizes = []\nentries").contains("sizes is empty"));
    assert!(refused(sizes, "sizes = [\"8K\", \"64K\", \"512K\", \"4M\", \"64K\"]\nentries").contains("64K twice"));
    assert!(refused("bits = [10, 10, 10]", "bits = [8, 10, 10]").contains("4M"));
    assert!(refused("assumed = [\"refill-cycles\"]", "assumed = [\"cycles\"]").contains("walk.assumed"));
    assert!(refused("level = 2\nentries = 8", "level = 4\nentries = 8").contains("from 2 to 3"));
    assert!(refused("[clock]", "[clock").contains("test.toml at line"));
    let unknown = Machine::builtin("pdp-11").unwrap_err().to_string();
    assert!(unknown.contains("pdp-11") && unknown.contains("zen5"), "{unknown}");
}
