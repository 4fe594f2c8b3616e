//! The trace file: what is written comes back, and nothing bad comes of bad bytes.

use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use superpage_pages::{Access, Hint, Protection};
use superpage_trace::file::{BLOCK_RUNS, NOTE_BYTES, Reader, VERSION, Writer, info};
use superpage_trace::{Backing, Batch, Error, Event, Growth, Info, Phase, ProcessId, Run, Sampling, Source};

/// Bytes that can be looked at while a writer owns them.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn example_info() -> Info {
    let sampling = Some(Sampling { on: 1 << 20, period: 1 << 24, seed: Some(1) });
    Info { workload: "gzip -9 file".into(), sampling, fetches: true, calls: true, ..Info::default() }
}

fn encode(info: &Info, batches: &[Batch]) -> Vec<u8> {
    let out = Shared::default();
    let mut writer = Writer::new(out.clone(), info, &[("arch".into(), "x86_64".into())]).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
    let bytes = out.0.lock().unwrap();
    bytes.clone()
}

/// Everything from where the reader stands, in one batch.
fn read_all(reader: &mut Reader) -> Result<Batch, Error> {
    let (mut all, mut batch) = (Batch::default(), Batch::default());
    while reader.fill(&mut batch)? {
        assert!(!batch.runs.is_empty() || !batch.events.is_empty());
        assert!(batch.runs.len() <= Batch::RUNS);
        append(&mut all, &batch);
    }
    assert!(batch.runs.is_empty() && batch.events.is_empty());
    Ok(all)
}

fn append(all: &mut Batch, batch: &Batch) {
    let first = all.runs.len() as u32;
    all.runs.extend(&batch.runs);
    all.events.extend(batch.events.iter().map(|(place, event)| (first + place, event.clone())));
}

fn joined(batches: &[Batch]) -> Batch {
    let mut all = Batch::default();
    batches.iter().for_each(|batch| append(&mut all, batch));
    all
}

fn event() -> impl Strategy<Value = Event> {
    let growth = prop_oneof![Just(Growth::Fixed), Just(Growth::Up), Just(Growth::Down)];
    let file = (any::<u32>(), any::<u64>(), any::<u64>());
    let backing = prop_oneof![
        Just(Backing::Anonymous),
        file.prop_map(|(file, file_pages, offset)| Backing::File { file, file_pages, offset }),
    ];
    let map = (any::<u64>(), any::<u64>(), 0u8..8, any::<bool>(), backing, growth);
    prop_oneof![
        (any::<u32>(), any::<u32>()).prop_map(|(p, thread)| Event::Switch { process: ProcessId(p), thread }),
        map.prop_map(|(start, pages, bits, shared, backing, growth)| {
            Event::Map { start, pages, protection: Protection::from_bits(bits), shared, backing, growth }
        }),
        any::<(u64, u64)>().prop_map(|(start, pages)| Event::Unmap { start, pages }),
        (any::<(u64, u64)>(), 0u8..8).prop_map(|((start, pages), bits)| {
            Event::Protect { start, pages, protection: Protection::from_bits(bits) }
        }),
        any::<(u64, u64)>().prop_map(|(start, pages)| Event::Discard { start, pages }),
        (any::<(u64, u64)>(), 0u64..4).prop_map(|((start, pages), number)| {
            Event::Advise { start, pages, hint: Hint::from_number(number).unwrap() }
        }),
        any::<(u64, u64)>().prop_map(|(start, pages)| Event::Grow { start, pages }),
        any::<(u64, u64, u64, u64)>().prop_map(|(from, from_pages, to, to_pages)| Event::Remap {
            from,
            from_pages,
            to,
            to_pages
        }),
        any::<u32>().prop_map(|child| Event::Fork { child: ProcessId(child) }),
        Just(Event::Exec),
        Just(Event::Exit),
        ("[a-z0-9-]{1,32}", any::<(u64, u64)>()).prop_map(|(path, (at, bytes))| Event::Call { path, at, bytes }),
        any::<(u64, u64)>().prop_map(|(references, instructions)| Event::Skipped { references, instructions }),
        ".{0,40}".prop_map(Event::Note),
        file_event(),
    ]
}

/// The events that version 1 of the format had not.
fn file_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        any::<(u32, u64)>().prop_map(|(file, file_pages)| Event::Open { file, file_pages }),
        any::<u32>().prop_map(|file| Event::Close { file }),
        any::<(u32, u64, u64)>().prop_map(|(file, start, pages)| Event::Read { file, start, pages }),
        any::<(u32, u64, u64)>().prop_map(|(file, start, pages)| Event::Write { file, start, pages }),
        any::<u32>().prop_map(|file| Event::Sync { file }),
        any::<u32>().prop_map(|file| Event::Remove { file }),
        any::<u64>().prop_map(|pages| Event::Wire { pages }),
        any::<u64>().prop_map(|pages| Event::Unwire { pages }),
        any::<u64>().prop_map(|microseconds| Event::Idle { microseconds }),
        ".{0,40}".prop_map(Event::Mark),
        any::<(u64, u64)>().prop_map(|(start, pages)| Event::Rewrite { start, pages }),
        (prop_oneof![Just(Phase::Gap), Just(Phase::Warming), Just(Phase::Measured)], any::<Option<u64>>())
            .prop_map(|(phase, period)| Event::Phase { phase, period }),
    ]
}

fn run() -> impl Strategy<Value = Run> {
    let page = prop_oneof![0u64..20, 0u64..2000, 0u64..1 << 62];
    let count = || prop_oneof![4 => 0u32..10, 1 => 250u32..260, 1 => any::<u32>()];
    let access = prop_oneof![Just(Access::Read), Just(Access::Write), Just(Access::Execute)];
    (page, access, count(), count())
        .prop_map(|(page, access, references, instructions)| Run::new(page, access, references.max(1), instructions))
}

fn batch(most: usize) -> impl Strategy<Value = Batch> {
    let events = prop::collection::vec((any::<prop::sample::Index>(), event()), 0..8);
    (prop::collection::vec(run(), 0..most), events).prop_map(|(runs, events)| {
        let mut events: Vec<_> =
            events.into_iter().map(|(place, event)| (place.index(runs.len() + 1) as u32, event)).collect();
        events.sort_by_key(|event| event.0);
        Batch { runs, events }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_comes_back(batches in prop::collection::vec(batch(400), 0..6), again in 1usize..40) {
        // Repeated, so that some cases have several blocks.
        let batches: Vec<_> = std::iter::repeat_n(batches, again).flatten().collect();
        let mut reader = Reader::from_bytes(encode(&example_info(), &batches), "a trace", false).unwrap().unchecked();
        prop_assert_eq!(read_all(&mut reader).unwrap(), joined(&batches));
        prop_assert!(reader.lost().is_none());
    }

    #[test]
    fn lines_come_back(batches in prop::collection::vec(batch(200), 0..6), shift in 0u64..64) {
        let mut batches = batches;
        for run in batches.iter_mut().flat_map(|batch| &mut batch.runs) {
            let line = run.line() + (run.page() + shift) % 64;
            *run = Run::on_line(line, run.access(), run.references, run.instructions);
        }
        let info = Info { lines: true, sampling: None, ..example_info() };
        let mut reader = Reader::from_bytes(encode(&info, &batches), "a trace", false).unwrap().unchecked();
        prop_assert!(reader.info().lines && reader.info().calls && reader.version() == VERSION);
        prop_assert_eq!(read_all(&mut reader).unwrap(), joined(&batches));
    }

    #[test]
    fn damage_makes_a_sentence_and_never_a_panic(
        batches in prop::collection::vec(batch(60), 0..3),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = encode(&example_info(), &batches);
        let whole = joined(&batches);
        let before = bytes.clone();
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        let changed = bytes != before;
        for up_to_cut in [false, true] {
            let opened = Reader::from_bytes(bytes.clone(), "a trace", up_to_cut).map(Reader::unchecked);
            match opened.and_then(|mut reader| read_all(&mut reader)) {
                Ok(read) if changed && up_to_cut => prop_assert!(whole.runs.starts_with(&read.runs)),
                // The one change that goes unseen: none.
                Ok(read) => prop_assert!(!changed && read == whole),
                Err(error) => prop_assert!(changed && error.to_string().starts_with("a trace: "), "{}", error),
            }
        }
    }
}

/// A file without a footer whose one block is `raw`, with right lengths and checksums all over.
fn sealed(raw: &[u8], runs: u32, events: u32) -> Vec<u8> {
    let whole = encode(&example_info(), &[]);
    let first_block = 16 + u32::from_le_bytes(whole[12..16].try_into().unwrap()) as usize + 8;
    let packed = zstd::bulk::compress(raw, 1).unwrap();
    let mut frame = b"SPBK".to_vec();
    for word in [0, packed.len() as u32, raw.len() as u32, runs, events, 0, 0] {
        frame.extend(word.to_le_bytes());
    }
    frame.extend(packed);
    frame.extend(xxhash_rust::xxh3::xxh3_64(&frame).to_le_bytes());
    [&whole[..first_block], &frame].concat()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hostile_blocks_that_match_their_checksums_never_panic(
        batch in batch(300),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
        more in 0u32..2,
    ) {
        let bytes = encode(&example_info(), std::slice::from_ref(&batch));
        let Some(at) = bytes.windows(4).position(|part| part == b"SPBK") else { return Ok(()) };
        let word = |index: usize| u32::from_le_bytes(bytes[at + 4 * index..][..4].try_into().unwrap());
        let packed = &bytes[at + 32..at + 32 + word(2) as usize];
        let mut raw = zstd::bulk::decompress(packed, word(3) as usize).unwrap();
        let untouched = changes.is_empty() && cut.is_none() && more == 0;
        for (place, value) in changes {
            let place = place.index(raw.len());
            raw[place] = value;
        }
        raw.truncate(cut.map_or(raw.len(), |cut| cut.index(raw.len())));
        let bytes = sealed(&raw, word(4) + more, word(5) + more);
        let mut reader = Reader::from_bytes(bytes, "a trace", true).unwrap().unchecked();
        let read = read_all(&mut reader).unwrap();
        prop_assert!(!untouched || read.runs == batch.runs);
        reader.seek_to_block(0).unwrap();
        read_all(&mut reader).unwrap();
    }
}

/// Several blocks: three processes in turn, pages that wander.
fn several_blocks() -> Vec<Batch> {
    let mut batches = Vec::new();
    for part in 0..12u64 {
        let mut batch = Batch::default();
        batch.event(Event::Switch { process: ProcessId(part as u32 % 3), thread: part as u32 });
        for run in 0..Batch::RUNS as u64 {
            if run == 9000 {
                batch.event(Event::Unmap { start: part, pages: run });
            }
            let page = (part * 37 + run * run % 701) ^ run >> 9;
            batch.run(Run::new(
                page,
                [Access::Read, Access::Write, Access::Execute][run as usize % 3],
                1 + page as u32,
                7,
            ));
        }
        batches.push(batch);
    }
    batches
}

#[test]
fn every_truncation_is_told_and_its_whole_part_read() {
    let batches = several_blocks();
    let whole = joined(&batches);
    let bytes = encode(&example_info(), &batches);
    let first_block = bytes.windows(4).position(|part| part == b"SPBK").unwrap();
    let mut longest = 0;
    for cut in (0..bytes.len()).filter(|cut| cut % 997 == 0 || *cut < 200 || bytes.len() - cut < 200) {
        let error = Reader::from_bytes(bytes[..cut].to_vec(), "a trace", false).err().expect("a cut trace opened");
        let said = error.to_string();
        assert_eq!(error.status(), 2);
        if cut < first_block {
            assert!(said.contains("empty") || said.contains("header"), "{cut}: {said}");
            assert!(Reader::from_bytes(bytes[..cut].to_vec(), "a trace", true).is_err());
        } else {
            assert!(said.contains("--up-to-cut") && said.contains("block") && said.contains("byte"), "{cut}: {said}");
            let mut reader = Reader::from_bytes(bytes[..cut].to_vec(), "a trace", true).unwrap();
            assert!(reader.totals().is_none());
            let read = read_all(&mut reader).unwrap();
            assert!(whole.runs.starts_with(&read.runs));
            assert!(matches!(read.events.last(), Some((_, Event::Note(note))) if note.contains("lost")));
            assert_eq!(reader.info().runs, Some(read.runs.len() as u64));
            assert!(read.runs.len() >= longest);
            longest = read.runs.len();
        }
    }
    assert_eq!(longest, whole.runs.len());
}

#[test]
fn a_damaged_block_is_named_and_what_is_before_it_read() {
    let batches = several_blocks();
    let whole = joined(&batches);
    let mut bytes = encode(&example_info(), &batches);
    let blocks: Vec<_> = (0..bytes.len() - 4).filter(|&at| &bytes[at..at + 4] == b"SPBK").collect();
    assert_eq!(blocks.len(), 3);
    bytes[blocks[1] + 100] ^= 1;
    let mut reader = Reader::from_bytes(bytes.clone(), "a trace", false).unwrap();
    let said = read_all(&mut reader).unwrap_err().to_string();
    assert!(said.contains("block 1") && said.contains(&format!("byte {}", blocks[1])), "{said}");
    let mut reader = Reader::from_bytes(bytes, "a trace", true).unwrap();
    let read = read_all(&mut reader).unwrap();
    assert_eq!(read.runs, whole.runs[..BLOCK_RUNS]);
    let lost = reader.lost().unwrap();
    assert_eq!((lost.block, lost.runs), (1, Some((whole.runs.len() - BLOCK_RUNS) as u64)));
}

#[test]
fn a_run_of_no_references_is_damage() {
    let mut batch = Batch::default();
    batch.event(Event::Switch { process: ProcessId(0), thread: 0 });
    batch.run(Run::new(5, Access::Read, 0, 48));
    let mut reader = Reader::from_bytes(encode(&example_info(), &[batch]), "a trace", false).unwrap();
    let said = read_all(&mut reader).unwrap_err().to_string();
    assert!(said.contains("a run of no references"), "{said}");
}

#[test]
fn seeking_finds_every_block_and_who_was_current() {
    let batches = several_blocks();
    let whole = joined(&batches);
    let mut reader = Reader::from_bytes(encode(&example_info(), &batches), "a trace", false).unwrap();
    assert_eq!(reader.blocks(), 3);
    for block in [2, 0, 1] {
        reader.seek_to_block(block).unwrap();
        let read = read_all(&mut reader).unwrap();
        assert_eq!(read.runs, whole.runs[block * BLOCK_RUNS..]);
        if block > 0 {
            // The next switch stands directly before the first run: it follows the one that the
            // seek tells.
            let told = (block * BLOCK_RUNS / Batch::RUNS) as u32 - 1;
            assert_eq!(read.events[0], (0, Event::Switch { process: ProcessId(told % 3), thread: told }));
        }
    }
    assert!(reader.seek_to_block(4).is_err());
}

#[test]
fn the_footer_tells_what_the_trace_amounts_to() {
    let mut batch = Batch::default();
    batch.event(Event::Switch { process: ProcessId(0), thread: 0 });
    batch.run(Run::new(1, Access::Read, 3, 0));
    batch.run(Run::new(1, Access::Write, 2, 0));
    batch.run(Run::new(9, Access::Execute, 7, 6));
    batch.event(Event::Fork { child: ProcessId(4) });
    batch.event(Event::Switch { process: ProcessId(4), thread: 1 });
    batch.run(Run::new(1, Access::Read, 1, 0));
    batch.event(Event::Skipped { references: 18, instructions: 30 });
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("small.sp");
    let mut writer = Writer::create(&path, &example_info(), &[("arch".into(), "alpha".into())]).unwrap();
    writer.write(&batch).unwrap();
    // Where files without a name are, nothing is beside it that a kill could leave behind.
    assert_eq!(names(directory.path()).len(), usize::from(!cfg!(target_os = "linux")));
    let totals = writer.finish().unwrap();
    assert_eq!(names(directory.path()), ["small.sp"]);
    assert_eq!((totals.runs, totals.read_runs, totals.write_runs, totals.execute_runs), (4, 2, 1, 1));
    assert_eq!((totals.references, totals.fetches, totals.instructions), (6, 7, 6));
    assert_eq!((totals.pages, totals.processes), (3, 2));
    assert_eq!(
        totals.events.iter().map(|(&k, &n)| (k, n)).collect::<Vec<_>>(),
        [("fork", 1), ("skipped", 1), ("switch", 2)]
    );
    assert_eq!(totals.sampled_share(), 0.25);
    let summary = info(&path, false).unwrap();
    assert_eq!(summary.totals, totals);
    assert!(summary.complete && summary.has_fetches && summary.notes["arch"] == "alpha");
    assert_eq!((summary.sample_on, summary.sample_period), (Some(1 << 20), Some(1 << 24)));
    assert_eq!(summary.bytes, fs::metadata(&path).unwrap().len());

    // The same counts without the footer, from the blocks themselves.
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    assert!(info(&path, false).unwrap_err().to_string().contains("--up-to-cut"));
    let cut = info(&path, true).unwrap();
    assert!(!cut.complete && cut.lost.is_some());
    assert_eq!(cut.totals, totals);
}

fn names(directory: &Path) -> Vec<String> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn an_unfinished_file_leaves_nothing_and_spoils_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kept.sp");
    fs::write(&path, "the one before").unwrap();
    let mut writer = Writer::create(&path, &example_info(), &[]).unwrap();
    several_blocks().iter().for_each(|batch| writer.write(batch).unwrap());
    drop(writer);
    assert_eq!(names(directory.path()), ["kept.sp"]);
    assert_eq!(fs::read(&path).unwrap(), b"the one before");
}

#[test]
fn a_full_disk_is_one_sentence() {
    let full = Path::new("/dev/full");
    if !full.exists() {
        return;
    }
    let error = Writer::create(full, &example_info(), &[]).err().expect("a full disk took a header");
    assert!(error.to_string().contains("free some space"), "{error}");
    assert_eq!(error.status(), 1);
}

#[test]
fn mistakes_with_names_are_one_sentence_each() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| -> PathBuf {
        let path = directory.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let mut newer = encode(&example_info(), &[]);
    newer[8] = 9;
    let cases = [
        (directory.path().to_owned(), "is a directory"),
        (directory.path().join("none.sp"), "No such file"),
        (file("empty.sp", b""), "is empty"),
        (file("text.sp", b"I  0401ab70,3\n"), "it looks like text"),
        (file("gzip.sp", &[0x1f, 0x8b, 8, 0]), "it looks like gzip"),
        (file("newer.sp", &newer), "version 9"),
    ];
    for (path, expected) in cases {
        let error = Reader::open(&path).err().expect("a wrong file opened");
        let said = error.to_string();
        assert!(said.contains(expected) && said.contains(&*path.to_string_lossy()), "{said}");
        assert_eq!(error.status(), 2);
    }
    assert!(Writer::create(directory.path(), &example_info(), &[]).is_err());
    assert!(Writer::create(&directory.path().join("none/x.sp"), &example_info(), &[]).is_err());
}

#[test]
fn long_notes_are_cut_and_many_events_end_a_block() {
    let mut batch = Batch::default();
    batch.event(Event::Note("é".repeat(NOTE_BYTES)));
    for page in 0..300_000 {
        batch.event(Event::Unmap { start: 1 << 50, pages: page });
    }
    let mut reader =
        Reader::from_bytes(encode(&Info::default(), &[batch.clone()]), "a trace", false).unwrap().unchecked();
    assert!(reader.blocks() > 1);
    batch.events[0].1 = Event::Note("é".repeat(NOTE_BYTES / 2));
    assert_eq!(read_all(&mut reader).unwrap().events, batch.events);
}

#[test]
fn a_trace_of_version_1_is_read() {
    // Version 1 lacks the events of files and is else as version 2: another number in the header,
    // which has a checksum.
    let written = Batch { runs: vec![Run::new(1, Access::Read, 3, 0)], ..Batch::default() };
    let mut old =
        encode(&Info { loads_in_writes: true, sampling: None, ..example_info() }, std::slice::from_ref(&written));
    let header = 16 + u32::from_le_bytes(old[12..16].try_into().unwrap()) as usize;
    old[8] = 1;
    let sum = xxhash_rust::xxh3::xxh3_64(&old[..header]);
    old[header..header + 8].copy_from_slice(&sum.to_le_bytes());
    // The footer sums up the header too: up to there.
    let mut reader = Reader::from_bytes(old, "a trace", true).unwrap().unchecked();
    assert_eq!(reader.version(), 1);
    assert!(reader.info().loads_in_writes);
    assert_eq!(read_all(&mut reader).unwrap().runs, written.runs);
    for (lines, calls) in [(false, false), (true, false), (false, true), (true, true)] {
        let info = Info { sampling: None, lines, calls, ..example_info() };
        let reader = Reader::from_bytes(encode(&info, &[]), "a trace", false).unwrap();
        assert_eq!((reader.info().lines, reader.info().calls, reader.version()), (lines, calls, VERSION));
    }
}

#[test]
fn a_stream_without_calls_takes_none() {
    let mut batch = Batch::default();
    batch.event(Event::Switch { process: ProcessId(0), thread: 0 });
    batch.event(Event::Call { path: "null".into(), at: 0, bytes: 0 });
    let mut writer = Writer::new(Vec::new(), &Info::default(), &[]).unwrap();
    assert!(writer.write(&batch).unwrap_err().to_string().contains("said to hold none"));
    // And a file whose header is wrong: without the flag, with the checksum that it then has.
    let mut bytes = encode(&Info { calls: true, ..Info::default() }, &[batch]);
    let header = 16 + u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    bytes[17] ^= 8;
    let sum = xxhash_rust::xxh3::xxh3_64(&bytes[..header]);
    bytes[header..header + 8].copy_from_slice(&sum.to_le_bytes());
    let error = read_all(&mut Reader::from_bytes(bytes, "a trace", false).unwrap()).unwrap_err().to_string();
    assert!(error.contains("holds a system call"), "{error}");
}

#[test]
fn a_trace_of_version_2_says_that_loads_are_in_its_write_runs_and_a_copy_too() {
    let old = encode(&Info { loads_in_writes: true, ..example_info() }, &[]);
    assert_eq!(old[8..12], 2u32.to_le_bytes());
    let reader = Reader::from_bytes(old, "a trace", false).unwrap();
    assert!(reader.info().loads_in_writes);
    assert_eq!(Reader::from_bytes(encode(reader.info(), &[]), "a copy", false).unwrap().version(), 2);
    assert!(!Reader::from_bytes(encode(&example_info(), &[]), "a trace", false).unwrap().info().loads_in_writes);
}

#[test]
fn a_sample_of_version_3_begins_its_windows_with_anything_and_a_copy_too() {
    let info = Info { cold_windows: true, short_windows: true, mixed_windows: true, calls: false, ..example_info() };
    let old = encode(&info, &[]);
    assert_eq!(old[8..12], 3u32.to_le_bytes());
    let reader = Reader::from_bytes(old, "a trace", false).unwrap();
    assert_eq!(*reader.info(), Info { runs: reader.info().runs, ..info });
    assert_eq!(Reader::from_bytes(encode(reader.info(), &[]), "a copy", false).unwrap().version(), 3);
    assert!(!Reader::from_bytes(encode(&example_info(), &[]), "a trace", false).unwrap().info().cold_windows);
}

#[test]
fn a_sample_of_version_7_has_short_windows_and_a_copy_too() {
    let info = Info { short_windows: true, mixed_windows: true, ..example_info() };
    let old = encode(&info, &[]);
    assert_eq!(old[8..12], 7u32.to_le_bytes());
    let reader = Reader::from_bytes(old, "a trace", false).unwrap();
    assert_eq!(*reader.info(), Info { runs: reader.info().runs, ..info });
    assert_eq!(reader.totals().unwrap().threads, None, "its footer does not say how many");
    assert_eq!(Reader::from_bytes(encode(reader.info(), &[]), "a copy", false).unwrap().version(), 7);
    assert!(!Reader::from_bytes(encode(&example_info(), &[]), "a trace", false).unwrap().info().short_windows);
}

#[test]
fn a_sample_says_whether_its_windows_are_of_one_thread_each() {
    for mixed_windows in [false, true] {
        let info = Info { mixed_windows, ..example_info() };
        assert!(info.sampling.is_some());
        let reader = Reader::from_bytes(encode(&info, &[]), "a trace", false).unwrap();
        assert_eq!(*reader.info(), Info { runs: reader.info().runs, ..info });
        assert_eq!(reader.version(), VERSION);
    }
    let whole = Info { sampling: None, ..example_info() };
    assert!(!Reader::from_bytes(encode(&whole, &[]), "a trace", false).unwrap().info().mixed_windows);
}

#[test]
fn a_footer_says_how_many_threads_a_program_had() {
    let mut batch = Batch::default();
    for thread in [0, 1, 0, 2] {
        batch.event(Event::Switch { process: ProcessId(0), thread });
        batch.run(Run::new(1, Access::Read, 3, 0));
    }
    let info = Info { sampling: None, ..example_info() };
    let reader = Reader::from_bytes(encode(&info, &[batch]), "a trace", false).unwrap();
    assert_eq!(reader.totals().unwrap().threads, Some(3));
}

/// What reading a trace of these events, and a run after them, says.
fn told(events: &[Event], run: Option<Run>) -> String {
    let mut batch = Batch::default();
    events.iter().for_each(|event| batch.event(event.clone()));
    run.into_iter().for_each(|run| batch.run(run));
    let mut reader =
        Reader::from_bytes(encode(&Info { calls: true, ..Info::default() }, &[batch]), "a trace", false).unwrap();
    let error = read_all(&mut reader).expect_err("a trace that breaks a rule was read");
    assert_eq!(error.status(), 2);
    error.to_string()
}

#[test]
fn events_that_no_memory_can_follow_are_bad_input() {
    let switch = Event::Switch { process: ProcessId(0), thread: 0 };
    let map = |start, pages, backing| {
        let (protection, shared, growth) = (Protection::READ, false, Growth::Fixed);
        Event::Map { start, pages, protection, shared, backing, growth }
    };
    let file = |file_pages, offset| Backing::File { file: 1, file_pages, offset };
    let call = |path: &str, at, bytes| Event::Call { path: path.into(), at, bytes };
    let limit = superpage_trace::PAGES_LIMIT;
    for (event, says) in [
        (map(1, u64::MAX, Backing::Anonymous), "map of 18446744073709551615 pages from page 0x1 on"),
        (map(1, 0, Backing::Anonymous), "at least one page"),
        (map(limit, 1, Backing::Anonymous), "up to page 2^52"),
        (map(1, 1, file(limit + 1, 0)), "up to page 2^52"),
        (map(1, 2, file(1, limit - 1)), "up to page 2^52"),
        (Event::Unmap { start: 1, pages: limit }, "unmap of"),
        (Event::Discard { start: u64::MAX, pages: 1 }, "discard of"),
        (Event::Advise { start: 1, pages: limit, hint: Hint::from_number(1).unwrap() }, "advise of"),
        (Event::Grow { start: 1, pages: limit }, "grow of"),
        (Event::Remap { from: 1, from_pages: 1, to: 5, to_pages: 0 }, "remap of 0 pages"),
        (Event::Wire { pages: limit + 1 }, "wire of"),
        (call("", 0, 0), "1 to 32 lower-case letters"),
        (call("Read", 0, 0), "by the path \"Read\""),
        (call("read", u64::MAX, 2), "call with 2 bytes"),
        (Event::Fork { child: ProcessId(0) }, "fork of process 0, which exists"),
        (Event::Close { file: 7 }, "has open"),
    ] {
        let said = told(&[switch.clone(), event.clone()], None);
        assert!(said.starts_with("a trace: block 0, event 1: ") && said.contains(says), "{event:?}: {said}");
    }
    let said = told(&[Event::Exec], None);
    assert!(said.contains("event 0: exec of no process, expected a switch"), "{said}");
    let run = Run::new(1, Access::Read, 1, 0);
    let said = told(&[switch.clone(), Event::Exit], Some(run));
    assert!(said.contains("event 2: accesses of no process"), "{said}");
    let said = told(&[switch], Some(Run::new(limit, Access::Read, 1, 0)));
    assert!(said.contains("block 0, an access to page 0x10000000000000, expected pages below 2^52"), "{said}");
}
