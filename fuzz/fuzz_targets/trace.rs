//! The trace reader on arbitrary bytes: as a whole file, and as the contents of a block with valid
//! checksums, so that the columns and the events are reached. It must never panic, whatever the
//! bytes and wherever it seeks.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use superpage_trace::file::Reader;
use superpage_trace::{Batch, Source};
use xxhash_rust::xxh3::xxh3_64;

#[derive(Arbitrary, Debug)]
enum Input {
    File(Vec<u8>),
    Block { version: u8, raw: Vec<u8>, runs: u16, events: u16, seek: u16 },
}

fuzz_target!(|input: Input| match input {
    Input::File(bytes) => {
        for up_to_cut in [false, true] {
            if let Ok(mut reader) = Reader::from_bytes(bytes.clone(), "fuzz", up_to_cut) {
                read(&mut reader);
            }
        }
    }
    Input::Block { version, raw, runs, events, seek } => {
        let bytes = sealed(1 + version % 7, &raw, runs.into(), events.into());
        // By the rules of a stream, which few such bytes keep, and as it is.
        read(&mut Reader::from_bytes(bytes.clone(), "fuzz", true).expect("the header is sound"));
        let mut reader = Reader::from_bytes(bytes, "fuzz", true).expect("the header is sound").unchecked();
        read(&mut reader);
        if reader.seek_to_block(usize::from(seek)).is_ok() {
            read(&mut reader);
        }
    }
});

fn read(reader: &mut Reader) {
    let mut batch = Batch::default();
    while let Ok(true) = reader.fill(&mut batch) {
        assert!(batch.runs.len() <= Batch::RUNS);
        assert!(batch.events.iter().all(|event| event.0 as usize <= batch.runs.len()));
    }
}

/// A file that consists of one block of `raw`, without a footer: docs/trace-format.md describes the
/// bytes.
fn sealed(version: u8, raw: &[u8], runs: u32, events: u32) -> Vec<u8> {
    // A description of three bytes: no workload, system calls where the version has them, no notes.
    let flags = if version == 7 { 8 } else { 0 };
    let mut file = b"sp-trace".to_vec();
    file.extend([version, 0, 0, 0, 3, 0, 0, 0, 0, flags, 0]);
    file.extend(xxh3_64(&file).to_le_bytes());
    let packed = zstd::bulk::compress(raw, 1).expect("zstd takes any bytes");
    let mut frame = b"SPBK".to_vec();
    for word in [0, packed.len() as u32, raw.len() as u32, runs, events, 0, 0] {
        frame.extend(word.to_le_bytes());
    }
    frame.extend(packed);
    frame.extend(xxh3_64(&frame).to_le_bytes());
    file.extend(frame);
    file
}
