//! Experiment files of any contents: read and checked, never run, for they start programs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;
use superpage_reproduce::Experiment;

fuzz_target!(|text: &str| {
    let _ = Experiment::parse(text, "fuzz", "fuzz", "fuzz.toml", BTreeMap::new());
});
