//! Arbitrary bytes as traces of other tools: refused with one sentence, or imported as a valid
//! stream.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Write;
use superpage_trace::{Batch, Source, import};

fuzz_target!(|input: (u8, &[u8])| {
    let (format, bytes) = input;
    let formats: Vec<_> = import::formats().collect();
    let format = formats[usize::from(format) % formats.len()];
    let mut file = tempfile::NamedTempFile::new().expect("a file for temporary things");
    file.write_all(bytes).expect("room for it");
    match import::import(format, file.path(), bytes.len() % 2 == 0, Some(file.path()).filter(|_| bytes.first() == Some(&b'p'))) {
        Err(error) => assert!(!error.to_string().contains('\n'), "one sentence: {error}"),
        Ok(mut source) => {
            let mut batch = Batch::default();
            while let Ok(true) = source.fill(&mut batch) {
                assert!(batch.events.iter().all(|event| event.0 as usize <= batch.runs.len()));
            }
        }
    }
});
