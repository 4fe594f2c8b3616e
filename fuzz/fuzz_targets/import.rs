//! Arbitrary bytes as traces of other tools: refused with one sentence, or imported as a valid stream.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Write;
use superpage_trace::{Batch, import};

fuzz_target!(|input: (bool, &[u8])| {
    let (lackey, bytes) = input;
    let mut file = tempfile::NamedTempFile::new().expect("a file for temporary things");
    file.write_all(bytes).expect("room for it");
    match import::import(if lackey { "lackey" } else { "champsim" }, file.path()) {
        Err(error) => assert!(!error.to_string().contains('\n'), "one sentence: {error}"),
        Ok(mut source) => {
            let mut batch = Batch::default();
            while let Ok(true) = source.fill(&mut batch) {
                assert!(batch.events.iter().all(|event| event.0 as usize <= batch.runs.len()));
            }
        }
    }
});
