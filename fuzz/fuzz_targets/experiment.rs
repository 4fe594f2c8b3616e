//! Experiment files with arbitrary contents: parsed and checked, never run, since they start
//! programs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;
use superpage_reproduce::Experiment;

fuzz_target!(|text: &str| {
    let _ = Experiment::parse(text, "fuzz", "fuzz", "fuzz.toml", BTreeMap::new());
});
