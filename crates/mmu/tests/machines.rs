//! Machine files: the built-in ones are sound, and what is wrong with another is told in one
//! sentence.

use proptest::prelude::*;
use superpage_mmu::{Index, Machine, Replacement, Serves};
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
    assert_eq!(find("tlb.STLB 1G.replacement"), Some("\"lru\""));
    assert_eq!(find("tlb.STLB.replacement"), None);
    assert_eq!(find("walk-cache.2.entries"), Some("32"));
    assert_eq!(find("tlb.STLB.entries"), None);
}

/// What any hardware has: farther caches are larger and slower, farther TLBs hold no fewer base
/// pages, moving costs no less than clearing.
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
    assert!(
        refused("ways = \"full\"", "ways = 4\nindex = \"hash\"").contains("expected one of `low`, `xor`, `skewed`")
    );
    let spaces = |value: &str| refused("ways = \"full\"", &format!("ways = \"full\"\nspaces = {value}"));
    assert!(spaces("0").contains("spaces: expected a number from 1 to 4096"));
    assert!(spaces("\"none\"").contains("a number of address spaces, or \"all\""));
    let full = "replacement = \"round-robin\"";
    let skewed = |keys: &str| refused(&format!("ways = \"full\"\n{full}"), &format!("ways = 4\n{keys}"));
    assert!(
        skewed(&format!("{full}\nindex = \"skewed\""))
            .contains("tlb \"DTB\": index skewed with replacement round-robin")
    );
    assert!(
        skewed("replacement = \"lru\"\nsize-ways = [1, 2]")
            .contains("for each of the 4 sizes, and no more than 4 in all, not [1, 2]")
    );
    assert!(skewed("replacement = \"lru\"\nsize-ways = [2, 1, 1, 1]").contains("no more than 4 in all"));
    let sets = refused("entries = 128\nways = \"full\"", "entries = 96\nways = 4\nindex = \"xor\"");
    assert!(sets.contains("tlb \"DTB\": index xor with 24 sets: xor needs a power of two of sets"), "{sets}");
    assert!(refused("size = \"512M\"", "size = \"512 MB\"").contains("512 MB"));
    assert!(refused("[\"8K\", \"64K\", \"512K\", \"4M\"]", "[\"8K\", \"64K\", \"64K\"]").contains("ascend"));
    assert!(refused("serves = \"data\"", "serves = \"load\"").contains("no TLB holds pages of 8K for Write"));
    assert!(refused("serves = \"data\"", "serves = \"unified\"").contains("two TLBs of level 1"));
    let sizes = "sizes = [\"8K\", \"64K\", \"512K\", \"4M\"]\nentries";
    assert!(refused(sizes, "sizes = []\nentries").contains("sizes is empty"));
    assert!(refused(sizes, "sizes = [\"8K\", \"64K\", \"512K\", \"4M\", \"64K\"]\nentries").contains("64K twice"));
    assert!(refused("bits = [10, 10, 10]", "bits = [8, 10, 10]").contains("4M"));
    assert!(refused("assumed = [\"refill-cycles\"]", "assumed = [\"cycles\"]").contains("walk.assumed"));
    assert!(
        refused("level = 2\nin = \"DTB\"\nentries = 8", "level = 4\nin = \"DTB\"\nentries = 8").contains("from 2 to 3")
    );
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
fn new_sizes_go_between_those_that_a_tlb_held() {
    let sizes = |machine: &Machine, name: &str| -> String {
        let tlb = machine.tlb.iter().find(|tlb| tlb.name == name).unwrap();
        tlb.sizes.iter().map(|size| format!("{size} ")).collect()
    };
    let between =
        "[pages]\nsizes = [\"4K\", \"64K\", \"2M\", \"32M\", \"1G\"]\n[[tlb]]\nname = \"*\"\nsizes = \"between\"\n";
    let mine = laid("golden-cove", between).unwrap();
    assert_eq!(sizes(&mine, "DTLB loads 4K"), "4K 64K ");
    assert_eq!(sizes(&mine, "DTLB loads 2M"), "2M 32M ");
    assert_eq!(sizes(&mine, "DTLB loads 1G"), "1G ");
    assert_eq!(sizes(&mine, "DTLB stores"), "4K 64K 2M 32M 1G ");
    // Below its base page the Alpha had none: there such pages are held where that was.
    let mine = laid("alpha-21264", &between.replace("\n[[tlb]]", "\n[page-table]\nkind = \"radix\"\n[[tlb]]")).unwrap();
    assert_eq!(sizes(&mine, "DTB"), "4K 64K 2M 32M 1G ");
    let new = laid("zen5", "[[tlb]]\nname = \"L9\"\nsizes = \"between\"\n").unwrap_err();
    assert!(new.contains("[[tlb]] \"L9\""), "{new}");
}

#[test]
fn what_an_overlay_says_is_assumed_if_it_says_so() {
    let assumed = |text: &str| {
        let mine = laid("skylake-sp", text).unwrap();
        let of = |key: &str| mine.assumed().iter().any(|(known, _)| known == key);
        [of("tlb.STLB 1G.replacement"), of("costs.fault"), of("costs.promotion")]
    };
    assert_eq!(assumed(""), [true; 3]);
    let patch = "[[tlb]]\nname = \"STLB 1G\"\nreplacement = \"random\"\nsource = \"a paper\"\n[costs]\nfault = 7\n";
    assert_eq!(assumed(patch), [false, false, true]);
    assert_eq!(assumed(&format!("{patch}assumed = [\"fault\"]\n")), [false, true, true]);
}

#[test]
fn an_overlay_patches_all_walk_caches_and_removes_tables() {
    for every in ["level = \"*\"", "name = \"*\""] {
        let mine = laid("zen5", &format!("[[walk-cache]]\n{every}\nentries = 3\n")).unwrap();
        let entries: Vec<_> = mine.walk_cache.iter().map(|cache| (cache.level, cache.entries)).collect();
        assert_eq!(entries, [(2, 3), (3, 3), (4, 3), (5, 3)]);
    }
    let mine = laid("zen5+range", "range-tlb = []\ninstruction-cache = []\n").unwrap();
    assert!(mine.range_tlb.is_none() && mine.instruction_cache.is_none());
    let none = laid("zen5", "host = []\nperforated = []\n").unwrap();
    assert!(none.host.is_none() && none.perforated.is_none());
    assert!(laid("zen5", "clock = []\n").unwrap_err().contains("missing field `clock`"));
}

#[test]
fn what_a_hosts_walk_caches_assume_is_listed_and_checked() {
    let guest = Machine::builtin("zen5+nested").unwrap();
    assert!(guest.assumed().contains(&("host.walk-cache.2.entries".into(), "32".into())), "{:?}", guest.assumed());
    let wrong = laid(
        "zen5+nested",
        "[host]\nwalk-cache = [{ level = 2, entries = 3, source = \"a test\", assumed = [\"ways\"] }]\n",
    );
    let wrong = wrong.unwrap_err();
    assert!(wrong.contains("host.walk-cache.2.assumed names \"ways\", which is not a key there"), "{wrong}");
}

#[test]
fn empty_words_are_no_words() {
    let empty = refused("source = \"", "source = \"\" # ");
    assert!(empty.contains(".source: it is empty; say where the values come from"), "{empty}");
    assert!(refused("name = \"DTB\"", "name = \" \"").contains("tlb. .name: it is empty"));
    assert!(laid("zen5", "[costs]\nfault = 7\nsource = \"\"\n").unwrap_err().contains("costs.source: it is empty"));
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
    let within = |keys: &str| refused(&format!("[[walk-cache]]\nlevel = 2\n{keys}\n"));
    assert!(within("entries = 0").contains("walk-cache of level 2: expected 1 to 65535 entries"));
    let third = refused("[[walk-cache]]\nlevel = 3\nentries = 0\nin = \"L2 DTLB\"\n");
    assert!(third.contains("in \"L2 DTLB\": only entries of level 2 are in a TLB"), "{third}");
    assert!(within("entries = 0\nin = \"L9\"").contains("there is no such TLB"));
    assert!(within("entries = 0\nin = \"L1 DTLB\"").contains("it must be of the last level"));
    let twice = refused("[[tlb]]\nname = \"L1 DTLB\"\nentries = 8\n[[tlb]]\nname = \"L1 DTLB\"\nways = 8\n");
    assert!(twice.contains("mine.toml: overlay: [[tlb]] \"L1 DTLB\" is there twice"), "{twice}");
    assert!(refused("[cost]\nfault = 1\n").contains("cost"));
    assert!(refused("tlb = [7]\n").contains("[[tlb]]"));
    assert!(refused("[").contains("machine file mine.toml at line"));
    let unknown = Machine::builtin("zen5+best").unwrap_err().to_string();
    assert!(unknown.contains("overlay \"best\"") && unknown.contains("fractured"), "{unknown}");
    let nameless = Machine::named("zen5+mine.toml", |_| Ok(String::new())).unwrap_err().to_string();
    assert!(nameless.contains("mine.toml: overlay: expected a name"), "{nameless}");
    let empty = Machine::named("zen5+mine.toml", |_| Ok("name = \"\"\ndescription = \"d\"\n".into()));
    assert!(empty.unwrap_err().to_string().contains("expected a name of some words"));
}

/// Which set a translation is in is said of each TLB that has several, so that it has a source or
/// is assumed.
#[test]
fn the_index_of_every_built_in_tlb_is_said() {
    for name in Machine::names() {
        let text = std::fs::read_to_string(format!("{}/machines/{name}.toml", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let file: toml::Table = text.parse().unwrap();
        for (tlb, part) in Machine::builtin(name).unwrap().tlb.iter().zip(file["tlb"].as_array().unwrap()) {
            assert_eq!(tlb.sets() > 1, part.get("index").is_some(), "{name}: {}", tlb.name);
        }
    }
}

/// What the overlay `lru` takes back, and nothing else.
fn plain(mut machine: Machine) -> Machine {
    for tlb in &mut machine.tlb {
        (tlb.index, tlb.replacement, tlb.spaces) = (Index::Low, Replacement::Lru, None);
        tlb.size_ways.clear();
    }
    machine
}

proptest! {
    /// With `+lru` all TLBs of any machine have LRU, the plain index and entries of all spaces,
    /// whatever overlays came before; all else stays, and once more changes nothing. Measured
    /// values are assumed then, and one that follows is applied.
    #[test]
    fn plain_lru_takes_back_all_tlbs(
        name in prop::sample::select(Machine::names().collect::<Vec<_>>()),
        (index, replacement) in (prop::sample::select(Index::ALL), prop::sample::select(Replacement::ALL)),
        (bits, ways, which) in (0u32..8, prop::sample::select(vec![1usize, 4, 8, 12, 64]), any::<prop::sample::Index>()),
    ) {
        let bare = Machine::builtin(name).unwrap();
        let tlb = &bare.tlb[which.index(bare.tlb.len())];
        let (index_name, replacement_name, entries) = (index.name(), replacement.name(), ways << bits);
        let patch = format!(
            "name = \"mine\"\ndescription = \"a test\"\n[[tlb]]\nname = \"{}\"\nentries = {entries}\nways = {ways}\n\
             index = \"{index_name}\"\nreplacement = \"{replacement_name}\"\n",
            tlb.name
        );
        let named = |overlays: &str| Machine::named(&format!("{name}{overlays}"), |_| Ok(patch.clone()));
        let compared = |machine: Machine| {
            let tlbs: Vec<_> = plain(machine.clone()).tlb;
            (tlbs, machine.walk_cache, machine.line_cache, machine.costs, machine.spaces)
        };
        let lru = named("+lru").unwrap();
        prop_assert_eq!(plain(lru.clone()), lru.clone());
        prop_assert_eq!(compared(lru.clone()), compared(bare.clone()));
        let assumed = |key: String| lru.assumed().iter().any(|(known, _)| *known == key);
        let all = bare.tlb.iter().all(|tlb| ["index", "replacement", "spaces"].iter().all(|key| assumed(format!("tlb.{}.{key}", tlb.name))));
        prop_assert!(all, "what is not measured is assumed");
        prop_assert_eq!(named("+lru+lru").unwrap().tlb, lru.tlb.clone());
        // One that its TLB refuses is refused, whatever comes after it.
        let Ok(mine) = named("+mine.toml") else {
            prop_assert!(named("+mine.toml+lru").is_err());
            return Ok(());
        };
        prop_assert_eq!(compared(named("+mine.toml+lru").unwrap()), compared(mine));
        let last = named("+lru+mine.toml").unwrap();
        let found = last.tlb.iter().find(|other| other.name == tlb.name).unwrap();
        prop_assert_eq!((found.index, found.replacement, found.entries), (index, replacement, entries));
        let others = last.tlb.iter().filter(|other| other.name != tlb.name);
        prop_assert!(others.clone().all(|tlb| (tlb.index, tlb.replacement) == (Index::Low, Replacement::Lru)));
    }
}

/// Overlays that are not for every machine, and where they are not: tables or second levels do not
/// fit, or sizes of pages.
const UNFIT: [(&str, &[&str]); 8] = [
    ("contiguous", &["alpha-21264"]),
    ("nested", &["alpha-21264"]),
    ("nested-2m", &["alpha-21264"]),
    ("perforated", &["alpha-21264", "harpertown", "golden-cove"]),
    ("range", &["alpha-21264"]),
    ("shared-walk-cache", &["alpha-21264", "harpertown", "skylake-sp", "golden-cove", "neoverse-v2"]),
    ("skewed", &["alpha-21264", "harpertown", "skylake-sp", "golden-cove", "neoverse-v2"]),
    ("victima", &["alpha-21264"]),
];

/// Every other overlay goes on every machine.
#[test]
fn every_built_in_overlay_fits_every_machine() {
    for overlay in Machine::overlays() {
        for name in Machine::names() {
            // Hash tables of groups go with plain TLBs of one level alone.
            let grouped = name.starts_with("ppc") && !["lru", "tlb-64"].contains(&overlay);
            if grouped || UNFIT.iter().any(|(unfit, machines)| *unfit == overlay && machines.contains(&name)) {
                let why = Machine::builtin(&format!("{name}+{overlay}")).unwrap_err().to_string();
                let said = [
                    "holds",
                    "expected one of",
                    "is not one of",
                    "is not within",
                    "is linear",
                    "has one level",
                    "does not have",
                    "no such TLB",
                ]
                .iter()
                .any(|word| why.contains(word));
                assert!(why.contains(overlay) && said, "{why}");
                continue;
            }
            let laid = Machine::builtin(&format!("{name}+{overlay}")).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(laid.name, format!("{name}+{overlay}"));
        }
    }
}

#[test]
fn wrong_types_are_told_in_words() {
    let rate = "bytes-per-second = 25_000_000";
    for (to, words) in [
        ("\"many\"", "\"many\" is not a whole number of 0 or more"),
        ("1.5", "1.5 is not a whole number of 0 or more"),
        ("true", "true is not a whole number of 0 or more"),
        ("[1]", "a list is not a whole number of 0 or more"),
    ] {
        let error = refused(rate, &format!("bytes-per-second = {to}"));
        assert!(error.contains(words), "{error}");
    }
    let error = refused("bits = [10, 10, 10]", "bits = [300, 10, 10]");
    assert!(error.contains("300 is not a whole number from 0 to 255"), "{error}");
}

#[test]
fn values_are_set_by_name() {
    let of = |name: &str| Machine::builtin(name).map_err(|error| error.to_string());
    let machine = of("zen5+fractured:tlb.L2 DTLB.entries=512,costs.fault=900,tlb.L2 DTLB.ways=8").unwrap();
    let tlb = machine.tlb.iter().find(|tlb| tlb.name == "L2 DTLB").unwrap();
    assert_eq!((tlb.entries, machine.costs.fault), (512, 900));
    assert_eq!(machine.name, "zen5+fractured:tlb.L2 DTLB.entries=512,costs.fault=900,tlb.L2 DTLB.ways=8");
    let assumed = |machine: &Machine| machine.assumed().iter().any(|(key, _)| key == "costs.fault");
    assert!(assumed(&of("zen5").unwrap()) && !assumed(&machine));
    assert_eq!(of("zen5:memory.size=2G,memory.overlap=1.5,walk-cache.2.entries=7").unwrap().memory.size, 2 << 30);
    let all = of("zen5:tlb.*.hit-cycles=3").unwrap();
    assert!(all.tlb.iter().all(|tlb| tlb.hit_cycles == 3));
    for (name, part) in [
        ("zen5:cost.fault=1", "cost.fault: the machine has no table cost; it has clock, costs, "),
        ("zen5:costs.faults=1", "costs.faults: there is no such key; take one of "),
        ("zen5:tlb.L3.entries=1", "there is no tlb L3; take one of L1 DTLB, "),
        ("zen5:tlb.entries=1", "expected LIST.NAME.KEY"),
        ("zen5:fault=1", "expected TABLE.KEY"),
        ("zen5:costs.fault=1,costs.fault=2", "costs.fault is set twice"),
        ("zen5:costs.fault=1,costs", "costs: expected KEY=VALUE"),
        ("zen5:tlb.L2 DTLB.entries=0", "\"L2 DTLB\".entries"),
        ("zen5:tlb.L2 DTLB.sizes=4K", "write an overlay"),
        ("zen5:costs.fault=many", "costs.fault"),
    ] {
        let error = of(name).unwrap_err();
        assert!(error.contains(part), "{name}: {error}");
    }
    let text = |name: &str| Machine::with_text(name, |_| unreachable!()).unwrap().1;
    assert_eq!(
        Machine::parse(&text("zen5+nested:costs.fault=7"), "again").unwrap(),
        of("zen5+nested:costs.fault=7").unwrap()
    );
    assert_ne!(text("zen5"), text("zen5:costs.fault=7"));
}

#[test]
fn a_hash_table_of_groups_is_of_four_gigabytes_and_names_who_searches() {
    let refused = |machine: &str, overlay: &str| {
        let text = format!("name = \"mine\"\ndescription = \"d\"\n{overlay}");
        Machine::named(&format!("{machine}+mine.toml"), |_| Ok(text.clone())).unwrap_err().to_string()
    };
    let bits = refused("ppc604", "[page-table]\nbits = [1, 1, 1]\n");
    assert!(bits.contains("page-table.bits: expected 20 bits of page number") && bits.contains("not 3"), "{bits}");
    let software = refused("ppc603", "[groups]\nentry-cycles = 7\n");
    assert!(software.contains("groups.entry-cycles: software searches here"), "{software}");
    let hardware = refused("ppc603", "[groups]\nsearch = \"hardware\"\n");
    assert!(hardware.contains("groups.entry-cycles: a processor that searches"), "{hardware}");
    let wrong = |set: &str| Machine::builtin(&format!("ppc604:groups.{set}")).unwrap_err().to_string();
    assert!(wrong("groups=1000").contains("groups.groups: expected a power of two, not 1000"));
    for size in ["64K", "192K", "512M"] {
        assert!(wrong(&format!("block-size={size}")).contains("expected a power of two from 128K to 256M"), "{size}");
    }
    for size in ["128K", "256M"] {
        Machine::builtin(&format!("ppc604:groups.block-size={size}")).unwrap();
    }
    // The largest is what a file that names none has.
    let unread = |_: &str| unreachable!("there is no file");
    let (_, text) = Machine::with_text("ppc604:groups.block-size=128K", unread).unwrap();
    let silent: Vec<&str> = text.lines().filter(|line| !line.starts_with("block-size")).collect();
    assert_eq!(Machine::parse(&silent.join("\n"), "silent").unwrap().groups.unwrap().block_size, 256 << 20);
}
