//! Final traces of drmemtrace, written here record by record as DynamoRIO's `trace_entry.h`
//! describes them.

use super::import::{read_all, write};
use proptest::prelude::*;
use std::fs;
use std::io::Write;
use std::path::Path;
use superpage_pages::Access;
use superpage_trace::export::export;
use superpage_trace::import::{Imported, import};
use superpage_trace::{Batch, Error, Event, ProcessId, Run, RunBuilder, Source};

const READ: u16 = 0;
const WRITE: u16 = 1;
const PREFETCH_T0: u16 = 3;
const INSTR: u16 = 10;
const RETURN: u16 = 16;
const BUNDLE: u16 = 17;
const DATA_FLUSH: u16 = 20;
const DATA_FLUSH_END: u16 = 21;
const THREAD: u16 = 22;
const THREAD_EXIT: u16 = 23;
const PID: u16 = 24;
const HEADER: u16 = 25;
const FOOTER: u16 = 26;
const MARKER: u16 = 28;
const NO_FETCH: u16 = 29;
const MAYBE_FETCH: u16 = 30;
const SYSENTER: u16 = 31;
const PREFETCH_WRITE_L3_NT: u16 = 46;
const ENCODING: u16 = 47;
const UNTAKEN: u16 = 49;
const TIMESTAMP: u16 = 2;
const CPU_ID: u16 = 3;
const FILETYPE: u16 = 9;
const LINE_SIZE: u16 = 10;
const VERSION: u16 = 12;
const WINDOW: u16 = 14;
const PHYSICAL: u16 = 15;
const VIRTUAL: u16 = 17;
const PAGE_SIZE: u16 = 18;
const CHUNK_COUNT: u16 = 20;
const CHUNK_FOOTER: u16 = 21;
const RECORD_ORDINAL: u16 = 22;
const SYSCALL_START: u16 = 27;
const SYSCALL_END: u16 = 28;
const FUTURE: u16 = 99;

/// A trace file in the making.
#[derive(Clone, Default)]
struct File(Vec<u8>);

impl File {
    /// The records before the first timestamp, in raw2trace's order.
    fn begin(thread: u64, process: u64) -> File {
        let file = File::default().put(HEADER, 0, 7).mark(VERSION, 7).mark(FILETYPE, 0xe40);
        let file = file.put(THREAD, 4, thread).put(PID, 4, process);
        file.mark(LINE_SIZE, 64).mark(CHUNK_COUNT, 10_000_000).mark(PAGE_SIZE, 4096)
    }

    fn put(mut self, kind: u16, size: u16, value: u64) -> File {
        self.0.extend(kind.to_le_bytes());
        self.0.extend(size.to_le_bytes());
        self.0.extend(value.to_le_bytes());
        self
    }

    fn mark(self, kind: u16, value: u64) -> File {
        self.put(MARKER, kind, value)
    }

    fn at(self, time: u64) -> File {
        self.mark(TIMESTAMP, time).mark(CPU_ID, u64::MAX)
    }

    fn end(self, thread: u64) -> Vec<u8> {
        self.put(THREAD_EXIT, 4, thread).put(FOOTER, 0, 0).0
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

/// An archive of these parts, by PKWARE's APPNOTE: every second one is stored, not deflated.
fn zip(parts: &[&[u8]]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (number, part) in parts.iter().enumerate() {
        let mut deflated = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        deflated.write_all(part).unwrap();
        let (method, packed) = if number % 2 == 0 { (8u16, deflated.finish().unwrap()) } else { (0, part.to_vec()) };
        let mut sum = flate2::Crc::new();
        sum.update(part);
        let name = format!("chunk.{number:04}");
        let mut common = [20u16, 0, method, 0, 0].map(u16::to_le_bytes).concat();
        common.extend([sum.sum(), packed.len() as u32, part.len() as u32].map(u32::to_le_bytes).concat());
        common.extend([name.len() as u16, 0].map(u16::to_le_bytes).concat());
        directory.extend([&b"PK\x01\x02\x14\0"[..], &common, &[0; 10], &(archive.len() as u32).to_le_bytes()].concat());
        directory.extend(name.as_bytes());
        archive.extend([&b"PK\x03\x04"[..], &common, name.as_bytes(), &packed].concat());
    }
    let (count, start) = ((parts.len() as u16).to_le_bytes(), archive.len() as u32);
    let places = [directory.len() as u32, start].map(u32::to_le_bytes).concat();
    [&archive, &directory, &b"PK\x05\x06\0\0\0\0"[..], &count, &count, &places, &[0; 2]].concat()
}

fn open(path: &Path) -> Result<Imported, Error> {
    import("drmemtrace", path, false, None)
}

fn imported(bytes: &[u8]) -> Result<Batch, Error> {
    read_all(&mut open(write(bytes).path())?)
}

/// The error's sentence without the name of the file.
fn said(bytes: &[u8]) -> String {
    let file = write(bytes);
    let error = open(file.path()).and_then(|mut source| read_all(&mut source)).expect_err("a wrong trace was read");
    assert_eq!(error.status(), 2);
    error.to_string().replace(&*file.path().to_string_lossy(), "FILE")
}

fn note<'a>(source: &'a Imported, key: &str) -> &'a str {
    &source.notes().iter().find(|note| note.0 == key).unwrap_or_else(|| panic!("no note {key}")).1
}

/// A file with every kind of record, and the runs of it, counted by hand.
fn all_kinds() -> (Vec<u8>, Vec<Run>) {
    let file = File::begin(7, 7).at(1000);
    let file = file.put(ENCODING, 8, 0x9090_9090_9090_9090).put(ENCODING, 2, 0x9090).put(INSTR, 10, 0x40_0000);
    let file = file.put(READ, 8, 0x1000).put(WRITE, 16, 0x1ff8).put(PREFETCH_T0, 0, 0x9000).put(UNTAKEN, 2, 0x40_000a);
    // Three more, of 4, 1 and 3 bytes: the last one crosses into the next page.
    let file = file.put(RETURN, 1, 0x40_0ff9).put(BUNDLE, 3, u64::from_le_bytes([4, 1, 3, 0, 0, 0, 0, 0]));
    let file = file.put(DATA_FLUSH, 0, 0x9000).put(DATA_FLUSH_END, 0, 0x9_0000).put(SYSENTER, 2, 0x40_1002);
    // A string instruction: fetched once, then twice without.
    let file = file.put(INSTR, 2, 0x40_1004).put(READ, 1, 0x2000).put(NO_FETCH, 2, 0x40_1004).put(READ, 1, 0x2001);
    let file = file.put(MAYBE_FETCH, 2, 0x40_1004).put(READ, 1, 0x2002).put(MAYBE_FETCH, 2, 0x40_1006);
    // Only the address of the next access; a system call's own instructions; a marker of the
    // future.
    let file = file.put(INSTR, 0, 0x40_5000).mark(SYSCALL_START, 1).put(INSTR, 3, 0xffff_ffff_8000_0000);
    let file = file.put(WRITE, 8, 0xffff_8880_0000_0000).mark(SYSCALL_END, 1).mark(FUTURE, 5);
    let file = file.put(PREFETCH_WRITE_L3_NT, 0, 0x9000).put(WRITE, 4, 0x2003);
    let runs = vec![
        Run::new(0x400, Access::Execute, 6, 6),
        Run::new(1, Access::Read, 1, 0),
        Run::new(1, Access::Write, 1, 0),
        // The run of stores stays open while loads are from the same page.
        Run::new(2, Access::Write, 2, 0),
        Run::new(0x401, Access::Execute, 4, 3),
        Run::new(2, Access::Read, 3, 0),
    ];
    (file.end(7), runs)
}

#[test]
fn every_kind_of_record_counts_as_it_should() {
    let (bytes, runs) = all_kinds();
    let file = write(&bytes);
    let mut source = open(file.path()).unwrap();
    assert!(source.info().fetches);
    let expected = "version 7, threads: 1, files: 1; left out: prefetches: 2, cache flushes: 1, iterations of string \
                    instructions after the first: 2, accesses of the kernel: 2";
    assert_eq!(source.notes(), [("drmemtrace".to_owned(), expected.to_owned())]);
    let batch = read_all(&mut source).unwrap();
    assert_eq!(batch.runs, runs);
    assert_eq!(imported(&gzip(&bytes)).unwrap(), batch);
    assert_eq!(imported(&zstd::encode_all(&bytes[..], 1).unwrap()).unwrap(), batch);
}

#[test]
fn lines_are_kept() {
    let file = write(&File::begin(1, 1).at(1).put(INSTR, 4, 0x40_003e).put(READ, 8, 0x1100).end(1));
    let batch = read_all(&mut import("drmemtrace", file.path(), true, None).unwrap()).unwrap();
    let line = |line, access, instructions| Run::on_line(line, access, 1, instructions);
    let (execute, read) = (Access::Execute, Access::Read);
    assert_eq!(batch.runs, [line(0x1_0000, execute, 1), line(0x1_0001, execute, 0), line(0x44, read, 0)]);
}

#[test]
fn chunks_of_a_zip_follow_each_other_and_repeat_no_time() {
    let folder = tempfile::tempdir().unwrap();
    // The chunk of thread 1 ends at time 10, which the next one repeats; thread 2 is at the same
    // time, and comes after both.
    let first = File::begin(1, 9).at(10).put(READ, 1, 0x1000).mark(CHUNK_FOOTER, 0).0;
    let second = File::default().mark(RECORD_ORDINAL, 9).at(10).put(READ, 1, 0x2000).at(30).put(READ, 1, 0x3000).end(1);
    fs::write(folder.path().join("drmemtrace.my.app.1.0001.trace.zip"), zip(&[&first, &second])).unwrap();
    let other = File::begin(2, 9).at(10).put(READ, 1, 0x5000).at(20).put(READ, 1, 0x6000).end(2);
    fs::write(folder.path().join("drmemtrace.my.app.2.0002.trace.zip"), zip(&[&other])).unwrap();
    fs::write(folder.path().join("serial_schedule.bin.gz"), gzip(b"none of ours")).unwrap();
    let mut source = open(folder.path()).unwrap();
    assert_eq!(source.info().workload, "my.app");
    assert!(note(&source, "drmemtrace").starts_with("version 7, threads: 2, files: 2"));
    let batch = read_all(&mut source).unwrap();
    assert_eq!(batch.runs.iter().map(|run| run.page()).collect::<Vec<_>>(), [1, 2, 5, 6, 3]);
    let switches: Vec<_> = batch.events.iter().filter(|event| matches!(event.1, Event::Switch { .. })).collect();
    let switch = |place, thread| (place, Event::Switch { process: ProcessId(0), thread });
    assert_eq!(switches, [&switch(0, 0), &switch(2, 1), &switch(4, 0)]);
}

#[test]
fn a_page_table_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    fs::create_dir_all(trace.join("aux")).unwrap();
    let text = "# VirtualToPhysical\naddress_mapping_group \t {\n  page_size: 2097152\n  address_mapping {\n    \
                virtual_address: 4194304\n    physical_address: 0x600000\n  }\n  information {\n    page_count: 1\n    \
                bytes_mapped: 2097152\n  }\n}\n";
    let file = File::begin(1, 1).at(1).put(READ, 8, 0x40_1000).put(READ, 8, 0x5f_f000).put(READ, 8, 0x60_0000);
    // Physical addresses of the trace itself, which the file beside it goes before.
    let file = file.mark(PHYSICAL, 0x9_3000).mark(VIRTUAL, 0x40_1234);
    fs::write(trace.join("a.1.memtrace.gz"), gzip(&file.end(1))).unwrap();
    let told = |v2p: Option<&Path>| {
        import("drmemtrace", folder.path(), false, v2p)
            .map(|source| note(&source, "page table").to_owned())
            .map_err(|e| e.to_string())
    };
    assert!(told(None).unwrap().starts_with("physical addresses in the trace: pages of 4K: 1 (4.00 KB); "));
    assert!(told(None).unwrap().ends_with("touched pages that it maps: 33.3 %"));
    let v2p = trace.join("aux/v2p.textproto");
    fs::write(&v2p, text).unwrap();
    let expected = "v2p.textproto: pages of 2M: 1 (2.00 MB); of them in extents that are aligned and physically contiguous, of \
                    1G: 0.0 % (0); touched pages that it maps: 66.7 %";
    assert_eq!(told(None).unwrap(), expected);
    let given = folder.path().join("other");
    fs::write(&given, text.replace("2097152", "0x1000").replace("4194304", "4097")).unwrap();
    assert!(told(Some(&given)).unwrap_err().contains("other: after line 12: its address 0x1001 is not a multiple"));
    fs::write(&v2p, &text[..100]).unwrap();
    assert!(told(None).unwrap_err().contains("ends within a group"));
    assert!(told(Some(Path::new("no such file"))).unwrap_err().contains("No such file"));
}

#[test]
fn what_a_trace_lacks_is_noted() {
    let file = File::begin(1, 1).mark(FILETYPE, 0x100).mark(WINDOW, 0).at(1).put(READ, 8, 0x1000).mark(WINDOW, 2);
    let file = write(&file.put(READ, 8, 0x1000).end(1));
    let mut source = open(file.path()).unwrap();
    assert!(!source.info().fetches);
    assert!(note(&source, "filtered").contains("too few"));
    assert!(note(&source, "windows").starts_with("3 with gaps"));
    assert_eq!(read_all(&mut source).unwrap().runs, [Run::new(1, Access::Read, 2, 0)]);
}

#[test]
fn wrong_files_are_one_sentence_each() {
    let (bytes, _) = all_kinds();
    let begin = || File::begin(1, 1);
    assert!(said(b"").contains("byte 0 of its records: ends without a footer"));
    assert!(said(b"hello").contains("is not a header of drmemtrace"));
    assert!(said(&[0x20; 240]).contains("byte 0 of its records: is not a header of drmemtrace"));
    // A raw file: its header is type 6, kind 4, version 7, and a file type.
    let raw = (6u64 << 61 | 4 << 56 | 7 << 48 | 0xe40).to_le_bytes();
    assert!(said(&[raw, [0; 8]].concat()).contains("is a raw trace of drmemtrace; expected a final one: drrun"));
    assert!(said(&[4, 0x22, 0x4d, 0x18, 0]).contains("lz4"));
    assert!(said(b"\xff\x06\0\0sNaPpY").contains("snappy"));
    assert!(
        said(&File::default().put(HEADER, 0, 8).0).contains("is version 8 of drmemtrace's format; expected 1 to 7")
    );
    let narrow = [HEADER, 0, 5, 0, MARKER, VERSION, 5, 0].map(u16::to_le_bytes).concat();
    assert!(said(&narrow[..12]).contains("of 32 bits"));
    assert!(said(&bytes[..bytes.len() - 12]).contains("ends without a footer, so it is cut: fetch it again"));
    let cut = said(&bytes[..bytes.len() - 5]);
    assert!(cut.starts_with(&format!("FILE: byte {} of its records: ends 7 bytes into", bytes.len() - 12)), "{cut}");
    assert!(said(&gzip(&bytes)[..50]).contains("cannot be decompressed"));
    assert!(said(&begin().put(50, 0, 0).end(1)).contains("byte 96 of its records: has kind 50"));
    assert!(said(&begin().put(INSTR, 4, 0).put(BUNDLE, 9, 0).end(1)).contains("a bundle of 9 instructions"));
    assert!(said(&begin().put(BUNDLE, 1, 1).end(1)).contains("without one before it"));
    assert!(said(&File::default().put(HEADER, 0, 2).put(READ, 8, 0).0).contains("an access before any thread"));
    assert!(
        said(&begin().put(PID, 4, 2).end(1)).contains("byte 96 of its records: is of process 2, and those before of 1")
    );
    assert!(said(&begin().mark(PAGE_SIZE, 1000).end(1)).contains("has page size 1000"));
    assert!(said(&begin().at(1).end(1)).contains("contains no access"));
    let mut archive = zip(&[&bytes]);
    assert!(said(&archive[..archive.len() - 30]).contains("is a damaged zip file"));
    let data = 30 + "chunk.0000".len();
    archive[data + 20] ^= 0x40;
    assert!(said(&archive).contains("cannot be decompressed"));
}

#[test]
fn wrong_folders_are_one_sentence_each() {
    let folder = tempfile::tempdir().unwrap();
    let said = || open(folder.path()).err().expect("a wrong folder was read").to_string();
    assert!(said().contains("has no files of drmemtrace"));
    fs::create_dir(folder.path().join("raw")).unwrap();
    assert!(said().contains("has only a raw trace"));
    for (process, name) in [(1, "a.1.trace"), (2, "b.2.trace")] {
        fs::write(folder.path().join(name), File::begin(process, process).at(1).put(READ, 1, 0).end(1)).unwrap();
    }
    let mixed = said();
    assert!(mixed.contains("b.2.trace: is of process 2, and ") && mixed.contains("a.1.trace of 1; "), "{mixed}");
}

type Access3 = (Access, u64, u64);

/// Parts of a thread: the time, and what is accessed then.
fn threads() -> impl Strategy<Value = Vec<Vec<(u64, Vec<Access3>)>>> {
    let access = prop_oneof![Just(Access::Read), Just(Access::Write), Just(Access::Execute)];
    let accesses = prop::collection::vec((access, 0u64..0x4000, 1u64..20), 0..6);
    prop::collection::vec(prop::collection::vec((1u64..20, accesses), 1..8), 1..5)
}

fn files(threads: &[Vec<(u64, Vec<Access3>)>]) -> Vec<Vec<u8>> {
    let kind = |access| match access {
        Access::Read => READ,
        Access::Write => WRITE,
        Access::Execute => INSTR,
    };
    let numbered = threads.iter().enumerate();
    let file = |(number, parts): (usize, &Vec<(u64, Vec<Access3>)>)| {
        let mut file = File::begin(number as u64, 5);
        for (time, accesses) in parts {
            file = file.at(*time);
            for &(access, at, bytes) in accesses {
                file = file.put(kind(access), bytes as u16, at);
            }
        }
        file.end(number as u64)
    };
    numbered.map(file).collect()
}

/// The stream of these threads, by the rule: again and again the part with the earliest time, of
/// equal ones the first file's.
fn naive(threads: &[Vec<(u64, Vec<Access3>)>]) -> Batch {
    let (mut builder, mut batch, mut numbers) = (RunBuilder::new(), Batch::default(), Vec::new());
    let (mut done, mut current) = (vec![0; threads.len()], 0);
    loop {
        let next = (0..threads.len()).filter(|&thread| done[thread] < threads[thread].len());
        let Some(thread) = next.min_by_key(|&thread| threads[thread][done[thread]].0) else { break };
        for &(access, at, bytes) in &threads[thread][done[thread]].1 {
            if !numbers.contains(&thread) {
                numbers.push(thread);
            }
            let number = numbers.iter().position(|&other| other == thread).unwrap() as u32;
            if std::mem::replace(&mut current, number) != number {
                builder.event(&mut batch, Event::Switch { process: ProcessId(0), thread: number });
            }
            match access {
                Access::Read => builder.read(&mut batch, at, bytes),
                Access::Write => builder.write(&mut batch, at, bytes),
                Access::Execute => builder.fetch(&mut batch, at, bytes),
            }
        }
        done[thread] += 1;
    }
    builder.close(&mut batch);
    batch
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn threads_are_merged_by_the_rule(threads in threads()) {
        let folder = tempfile::tempdir().unwrap();
        for (number, bytes) in files(&threads).iter().enumerate() {
            fs::write(folder.path().join(format!("{number}.trace")), bytes).unwrap();
        }
        let expected = naive(&threads);
        match open(folder.path()) {
            Err(error) => prop_assert!(expected.runs.is_empty() && error.to_string().contains("contains no access")),
            Ok(mut source) => {
                let mut batch = read_all(&mut source).unwrap();
                batch.events.retain(|event| matches!(event.1, Event::Switch { .. }));
                prop_assert_eq!(batch.events.remove(0), (0, Event::Switch { process: ProcessId(0), thread: 0 }));
                prop_assert_eq!(batch, expected);
            }
        }
    }

    #[test]
    fn changed_bytes_are_refused_or_read(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        packed in 0..3,
        cut in any::<prop::sample::Index>(),
    ) {
        let (bytes, _) = all_kinds();
        let mut bytes = [bytes.clone(), gzip(&bytes), zip(&[&bytes[..240], &bytes[240..]])][packed as usize].clone();
        for (place, change) in changes {
            let place = place.index(bytes.len());
            bytes[place] ^= change;
        }
        bytes.truncate(bytes.len() - cut.index(bytes.len()) * usize::from(cut.index(4) == 0));
        if let Err(error) = imported(&bytes) {
            prop_assert!(!error.to_string().contains('\n'), "{}", error);
        }
    }
}

/// A stream that came from a trace, so that it has the mappings that importing makes.
fn again(source: &mut dyn Source, folder: &Path, name: &str) -> (Vec<u8>, Imported) {
    let path = folder.join(name);
    export("drmemtrace", source, Some(&path), None).unwrap();
    (fs::read(&path).unwrap(), open(&path).unwrap())
}

#[test]
fn what_was_exported_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let first = folder.path().join("first");
    fs::write(&first, all_kinds().0).unwrap();
    // Crossings after which a page's only instruction, or its last of several, ends; and two
    // threads.
    let file = File::begin(7, 7).at(1).put(INSTR, 4, 0x5ffe).put(READ, 8, 0x9000).put(INSTR, 4, 0x6002);
    let file = file.put(INSTR, 4, 0x6ffe).put(WRITE, 8, 0x9008).put(READ, 8, 0x9010).put(INSTR, 2, 0x1000);
    let file = file.put(INSTR, 4, 0x6000).put(READ, 8, 0xa000).put(INSTR, 4, 0x6ffe).put(INSTR, 4, 0x7002);
    let file = file.put(THREAD, 4, 8).put(PID, 4, 7).at(2).put(INSTR, 4, 0x7002).put(WRITE, 8, 0xa000).end(8);
    let second = folder.path().join("second");
    fs::write(&second, file).unwrap();
    for (path, name) in [(&first, "a.gz"), (&second, "b.zst")] {
        let whole = read_all(&mut open(path).unwrap()).unwrap();
        let (_, mut back) = again(&mut open(path).unwrap(), folder.path(), name);
        let back = read_all(&mut back).unwrap();
        assert_eq!((back.runs, back.events), (whole.runs, whole.events), "{name}");
    }
}

#[test]
fn a_stream_without_fetches_gets_code() {
    let folder = tempfile::tempdir().unwrap();
    let mut workload = superpage_trace::workload::parse("random:bytes=1M,references=2K").unwrap();
    let given = read_all(&mut *superpage_trace::workload::parse("random:bytes=1M,references=2K").unwrap()).unwrap();
    let (bytes, mut back) = again(&mut *workload, folder.path(), "plain");
    let back = read_all(&mut back).unwrap();
    let sum = |batch: &Batch, count: fn(&Run) -> u32| batch.runs.iter().map(|run| u64::from(count(run))).sum::<u64>();
    assert_eq!(sum(&back, |run| run.instructions), sum(&given, |run| run.instructions));
    assert_eq!(bytes.len() % 12, 0);
    let data = |batch: &Batch| batch.runs.iter().filter(|run| run.access() != Access::Execute).count();
    assert_eq!(data(&back), data(&given));
}
