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
    assert!(refused("ways = \"full\"", "ways = 5").contains("128 entries are not a whole number of sets of 5 ways"));
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

/// The machine of this name with an overlay of this text.
fn laid(name: &str, text: &str) -> Result<Machine, String> {
    let read = |_: &str| Ok(format!("name = \"mine\"\ndescription = \"a test\"\n{text}"));
    Machine::named(&format!("{name}+mine.toml"), read).map_err(|error| error.to_string())
}

#[test]
fn an_overlay_says_what_is_different() {
    let (plain, mine) = (Machine::builtin("skylake-sp").unwrap(), laid("skylake-sp", "").unwrap());
    assert_eq!((mine.name.as_str(), &mine.tlb, &mine.costs), ("skylake-sp+mine", &plain.tlb, &plain.costs));
    assert!(mine.description.ends_with("; a test"), "{}", mine.description);

    let mine = laid("skylake-sp", "[[tlb]]\nname = \"STLB\"\nentries = 3072\n[costs]\nfault = 7\n").unwrap();
    let stlb = |machine: &Machine| machine.tlb.iter().find(|tlb| tlb.name == "STLB").unwrap().clone();
    assert_eq!((stlb(&mine).entries, stlb(&mine).ways, mine.costs.fault), (3072, stlb(&plain).ways, 7));
    assert_eq!((mine.tlb.len(), mine.costs.promotion), (plain.tlb.len(), plain.costs.promotion));

    let mine = laid("skylake-sp", "walk-cache = []\n[[tlb]]\nname = \"*\"\nreplacement = \"random\"\n").unwrap();
    assert!(mine.walk_cache.is_empty() && mine.tlb.iter().all(|tlb| tlb.replacement.name() == "random"));
    assert!(mine.tlb.iter().zip(&plain.tlb).all(|(mine, plain)| mine.name == plain.name));
}

#[test]
fn what_an_overlay_says_is_assumed_if_it_says_so() {
    let assumed = |text: &str| {
        let mine = laid("skylake-sp", text).unwrap();
        let of = |key: &str| mine.assumed().iter().any(|(known, _)| known == key);
        [of("tlb.STLB.replacement"), of("costs.fault"), of("costs.promotion")]
    };
    assert_eq!(assumed(""), [true; 3]);
    let patch = "[[tlb]]\nname = \"STLB\"\nreplacement = \"random\"\nsource = \"a paper\"\n[costs]\nfault = 7\n";
    assert_eq!(assumed(patch), [false, false, true]);
    assert_eq!(assumed(&format!("{patch}assumed = [\"fault\"]\n")), [false, true, true]);
}

#[test]
fn what_is_wrong_with_an_overlay_is_told() {
    let refused = |text: &str| laid("zen5", text).unwrap_err();
    let entries = refused("[[tlb]]\nname = \"L1 DTLB\"\nentries = 0\n");
    assert!(entries.contains("built-in machine zen5 with mine.toml: ") && entries.contains("from 1"), "{entries}");
    let lacking = refused("[[tlb]]\nname = \"L9\"\n");
    assert!(
        lacking.contains("[[tlb]] \"L9\": missing field `level`; ") && lacking.contains("\"L1 DTLB\", "),
        "{lacking}"
    );
    let kind = refused("[page-table]\nkind = \"hashed\"\n");
    assert!(
        kind.contains("page-table.kind: unknown variant `hashed`, expected one of `radix`, `linear`, `perforated`"),
        "{kind}"
    );
    let replacement = refused("[[tlb]]\nname = \"L1 DTLB\"\nreplacement = \"best\"\n");
    assert!(replacement.contains("[[tlb]] \"L1 DTLB\": ") && replacement.contains("best"), "{replacement}");
    let twice = refused("[[tlb]]\nname = \"L1 DTLB\"\nentries = 8\n[[tlb]]\nname = \"L1 DTLB\"\nways = 8\n");
    assert!(twice.contains("mine.toml: overlay: [[tlb]] \"L1 DTLB\" is there twice"), "{twice}");
    assert!(refused("[cost]\nfault = 1\n").contains("cost"));
    assert!(refused("tlb = [7]\n").contains("[[tlb]]"));
    assert!(refused("[").contains("machine file mine.toml at line"));
    let unknown = Machine::builtin("zen5+best").unwrap_err().to_string();
    assert!(unknown.contains("overlay \"best\"") && unknown.contains("fractured"), "{unknown}");
    let nameless = Machine::named("zen5+mine.toml", |_| Ok(String::new())).unwrap_err().to_string();
    assert!(nameless.contains("mine.toml: overlay: expected a name"), "{nameless}");
}

/// Machines on which perforated pages cannot be: tables or second levels that do not fit.
const UNFIT: [&str; 3] = ["alpha-21264", "harpertown", "golden-cove"];

/// Every overlay goes on every machine, but for perforated pages.
#[test]
fn every_built_in_overlay_fits_every_machine() {
    for overlay in Machine::overlays() {
        for name in Machine::names() {
            if overlay == "perforated" && UNFIT.contains(&name) {
                let why = Machine::builtin(&format!("{name}+{overlay}")).unwrap_err().to_string();
                assert!(
                    why.contains("perforated") && why.contains("holds") || why.contains("expected one of"),
                    "{why}"
                );
                continue;
            }
            let laid = Machine::builtin(&format!("{name}+{overlay}")).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(laid.name, format!("{name}+{overlay}"));
        }
    }
}
