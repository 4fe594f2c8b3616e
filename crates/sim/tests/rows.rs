//! What rows say of themselves.

use std::collections::BTreeSet;
use std::fs;
use superpage_report::{Key, KeyKind, Keys, keys_page};
use superpage_sim::Row;

const INTRODUCTION: &str = "What `superpage sim`, `sweep` and the Python package give for each simulation, in this order: the keys of JSON, and the \
columns of CSV, Parquet and Arrow, in which nested keys are JSON as text. Made from `crates/sim/src/row.rs`, where each is declared once, by \
`SUPERPAGE_WRITE=1 cargo test -p superpage-sim --test all rows::`.\n\n\
A *count* only grows: that of a part of a run is a difference. A *state* is a value at a moment, a *ratio* is computed from others, a \
*condition* is what was asked for. With ≈, a sampled stream leaves an estimate, of which `sampled` has the error.";

/// `docs/rows.md` is what the code says.
#[test]
fn every_key_is_described() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rows.md");
    let page = keys_page("Rows", INTRODUCTION, Row::KEYS);
    if std::env::var_os("SUPERPAGE_WRITE").is_some() {
        fs::write(path, &page).unwrap();
    }
    assert!(fs::read_to_string(path).is_ok_and(|written| written == page), "docs/rows.md is not of this code");
}

#[test]
fn json_has_the_keys_in_their_order() {
    let json = serde_json::to_value(Row::default()).unwrap();
    let names: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, Row::KEYS.iter().map(|key| key.name).collect::<Vec<_>>());
}

#[test]
fn no_key_is_there_twice_and_what_has_a_unit_in_its_name_has_it() {
    let ends = [("_bytes", "bytes"), ("_cycles", "cycles"), ("seconds", "s"), ("_percent", "%")];
    fn check(keys: &[Key], ends: &[(&str, &str)]) {
        let names: BTreeSet<&str> = keys.iter().map(|key| key.name).collect();
        assert_eq!(names.len(), keys.len());
        for key in keys {
            for (_, unit) in ends.iter().filter(|(end, _)| key.name.ends_with(end)) {
                assert_eq!(key.unit, *unit, "{}", key.name);
            }
            assert!(key.kind != KeyKind::Count || !key.name.starts_with("peak_"), "{}", key.name);
            check(key.keys, ends);
        }
    }
    check(Row::KEYS, &ends);
}
