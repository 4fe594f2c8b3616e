//! Machine files: the built-in ones are sound, and what is wrong with another is told in one sentence.

use superpage_mmu::Machine;

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
    assert!(refused("bits = [10, 10, 10]", "bits = [8, 10, 10]").contains("4M"));
    assert!(refused("assumed = [\"refill-cycles\"]", "assumed = [\"cycles\"]").contains("walk.assumed"));
    assert!(refused("level = 2\nentries = 8", "level = 4\nentries = 8").contains("from 2 to 3"));
    assert!(refused("[clock]", "[clock").contains("test.toml at line"));
    let unknown = Machine::builtin("pdp-11").unwrap_err().to_string();
    assert!(unknown.contains("pdp-11") && unknown.contains("zen5"), "{unknown}");
}
