//! Foreign traces become streams with mappings.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use superpage_pages::{Access, Protection};
use superpage_trace::{Batch, Error, Event, ProcessId, Run, Source, import};

pub(crate) fn write(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

pub(crate) fn read_all(source: &mut dyn Source) -> Result<Batch, Error> {
    let (mut all, mut batch) = (Batch::default(), Batch::default());
    while source.fill(&mut batch)? {
        let first = all.runs.len() as u32;
        all.runs.extend(&batch.runs);
        all.events.extend(batch.events.drain(..).map(|(place, event)| (first + place, event)));
    }
    Ok(all)
}

pub(crate) fn imported(format: &str, bytes: &[u8]) -> Result<Batch, Error> {
    read_all(&mut import::import(format, write(bytes).path(), false, None)?)
}

/// The error's sentence without the name of the file.
pub(crate) fn said(format: &str, bytes: &[u8]) -> String {
    let file = write(bytes);
    let read = import::import(format, file.path(), false, None).and_then(|mut source| read_all(&mut source));
    let error = read.expect_err("a wrong trace was read");
    assert_eq!(error.status(), 2);
    error.to_string().replace(&*file.path().to_string_lossy(), "FILE")
}

const LACKEY: &str = "\
==7729== Lackey, an example Valgrind tool
==7729== Command: ls -l /
==7729==\x20
I  0401ab70,3
I  0401ab73,5
 S 1fff000618,8
 L 1fff000ffc,8
I  0401affe,4
 M 1fff001010,4
==7729== done
";

#[test]
fn lackey_text_becomes_runs() {
    let file = write(LACKEY.as_bytes());
    let mut source = import::import("lackey", file.path(), false, None).unwrap();
    assert_eq!(source.info().workload, "ls -l /");
    assert!(source.info().fetches);
    let batch = read_all(&mut source).unwrap();
    let (code, stack) = (0x401a, 0x1fff000);
    let expected = [
        Run::new(code, Access::Execute, 3, 3),
        Run::new(stack, Access::Write, 1, 0),
        Run::new(stack, Access::Read, 1, 0),
        Run::new(stack + 1, Access::Read, 2, 0),
        Run::new(code + 1, Access::Execute, 1, 0),
        Run::new(stack + 1, Access::Write, 1, 0),
    ];
    assert_eq!(batch.runs, expected);
    let events: Vec<_> = batch.events.into_iter().map(|event| event.1).collect();
    assert_eq!(events[0], Event::Switch { process: ProcessId(0), thread: 0 });
    assert!(matches!(&events[1], Event::Note(note) if note.contains("lackey")));
    let map = |event: &Event| match *event {
        Event::Map { start, pages, protection, .. } => (start, pages, protection),
        _ => panic!("{event:?} is no mapping"),
    };
    let maps: Vec<_> = events[2..].iter().map(map).collect();
    assert_eq!(maps, [(code, 2, Protection::ALL), (stack, 2, Protection::READ_WRITE)]);
}

#[test]
fn lackey_is_read_plain_and_compressed() {
    let plain = b"I  00400000,3\n L 1ffefff8,8\n".repeat(100);
    let runs = imported("lackey", &plain).unwrap().runs;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&plain).unwrap();
    let gzip = gzip.finish().unwrap();
    assert_eq!(imported("lackey", &gzip).unwrap().runs, runs);
    assert_eq!(imported("lackey", &zstd::encode_all(&plain[..], 3).unwrap()).unwrap().runs, runs);
    let error = said("lackey", &gzip[..gzip.len() / 2]);
    assert!(error.contains("cannot be decompressed") && error.is_ascii(), "{error}");
    assert!(
        said("lackey", &[4, 0x22, 0x4d, 0x18, 0x64])
            .contains("compressed with lz4, which is not read: unpack it first")
    );
}

#[test]
fn lackey_errors_name_the_line() {
    let text = LACKEY.replace(" M 1fff001010,4", "total 24");
    let said_of_output = said("lackey", text.as_bytes());
    assert!(said_of_output.starts_with("FILE: line 9: \"total 24\" is not a Lackey record"), "{said_of_output}");
    assert!(said("lackey", b"==1== Lackey\n").contains("contains no access"));
    assert!(said("lackey", &[0xff; 300]).starts_with("FILE: line 1: "));
    assert!(said("lackey", b" L 1fff000618").contains("line 1"));
    let endless = [b"==1== ".as_slice(), &vec![b'x'; 5 << 20]].concat();
    assert!(said("lackey", &endless).contains("at 4194304 bytes the line has no end"), "one line is not held whole");
}

#[test]
fn lackey_reads_what_valgrind_writes() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("true.lackey");
    let mut command = Command::new("valgrind");
    command.args(["--tool=lackey", "--trace-mem=yes"]).arg(format!("--log-file={}", log.display())).arg("true");
    if !command.output().is_ok_and(|output| output.status.success()) {
        eprintln!("valgrind is not here; nothing to read");
        return;
    }
    let mut source = import::import("lackey", &log, false, None).unwrap();
    assert_eq!(source.info().workload, "true");
    let batch = read_all(&mut source).unwrap();
    let text = fs::read_to_string(&log).unwrap();
    let fetches = text.lines().filter(|line| line.starts_with("I  ")).count() as u64;
    let counted: u64 =
        batch.runs.iter().filter(|run| run.access() == Access::Execute).map(|run| u64::from(run.instructions)).sum();
    assert_eq!(counted, fetches);
    let mapped: Vec<_> = batch
        .events
        .iter()
        .filter_map(|(_, event)| match event {
            Event::Map { start, pages, protection, .. } => Some((*start..start + pages, *protection)),
            _ => None,
        })
        .collect();
    for run in &batch.runs {
        assert!(mapped.iter().any(|(pages, rights)| pages.contains(&run.page()) && rights.allows(run.access())));
    }
}

fn instruction(address: u64, loads: &[u64], stores: &[u64]) -> [u8; 64] {
    let mut record = [0; 64];
    record[..8].copy_from_slice(&address.to_le_bytes());
    for (at, value) in (16..).step_by(8).zip(stores).chain((32..).step_by(8).zip(loads)) {
        record[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    record
}

fn champsim() -> (Vec<u8>, [Run; 5]) {
    let records = [
        instruction(0x40_0000, &[0x1008, 0x2010], &[]),
        instruction(0x40_0004, &[0x2018], &[0x2020]),
        instruction(0x40_1000, &[], &[0x2028, 0]),
    ];
    let runs = [
        Run::new(0x400, Access::Execute, 2, 2),
        Run::new(1, Access::Read, 1, 0),
        Run::new(2, Access::Read, 2, 0),
        Run::new(2, Access::Write, 2, 0),
        Run::new(0x401, Access::Execute, 1, 1),
    ];
    (records.concat(), runs)
}

#[test]
fn champsim_is_read_plain_and_compressed() {
    let (plain, runs) = champsim();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&plain).unwrap();
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 6);
    xz.write_all(&plain).unwrap();
    let packed = [gzip.finish().unwrap(), xz.finish().unwrap(), zstd::encode_all(&plain[..], 3).unwrap()];
    assert_eq!(imported("champsim", &plain).unwrap().runs, runs);
    for bytes in packed {
        assert_eq!(imported("champsim", &bytes).unwrap().runs, runs);
        assert!(said("champsim", &bytes[..bytes.len() / 2]).contains("cannot be decompressed"));
    }
}

/// A record of 96 bytes, each part put where `cloudsuite_instr` of ChampSim's `trace_instruction.h`
/// has it.
fn cloudsuite(address: u64, stores: [u64; 4], loads: [u64; 4]) -> Vec<u8> {
    let registers = [&[0u8; 2][..], &[9; 4], &[9; 4]].concat();
    let addresses = stores.into_iter().chain(loads).flat_map(u64::to_le_bytes);
    let start = address.to_le_bytes().into_iter().chain(registers).chain([0xee; 6]);
    start.chain(addresses).chain([3, 0]).chain([0xee; 6]).collect()
}

#[test]
fn cloudsuite_has_records_of_its_own() {
    let records = [
        cloudsuite(0x40_0000, [0x5000, 0, 0, 0x6008], [0x1008, 0, 0x1010, 0x2010]),
        cloudsuite(0x40_0004, [0; 4], [0; 4]),
    ];
    let runs = [
        Run::new(0x400, Access::Execute, 2, 2),
        Run::new(1, Access::Read, 2, 0),
        Run::new(2, Access::Read, 1, 0),
        Run::new(5, Access::Write, 1, 0),
        Run::new(6, Access::Write, 1, 0),
    ];
    assert_eq!(imported("champsim-cloudsuite", &records.concat()).unwrap().runs, runs);
    assert!(
        said("champsim-cloudsuite", &records.concat()[..100])
            .contains("byte 96 of its records: ends 4 bytes into a record")
    );
}

#[test]
fn champsim_errors_name_the_byte() {
    let (mut plain, _) = champsim();
    assert!(said("champsim", &plain[..100]).starts_with("FILE: byte 64 of its records: ends 36 bytes into a record"));
    plain[64 + 9] = 7;
    assert!(said("champsim", &plain).starts_with("FILE: byte 64 of its records: is not a record of ChampSim"));
    assert!(said("champsim", b"").contains("contains no access"));
}

#[test]
fn mistakes_with_names_are_one_sentence_each() {
    let error = |format: &str, path: &str| {
        import::import(format, Path::new(path), false, None).err().expect("it opened").to_string()
    };
    assert!(error("sniper", "x").contains("expected one of: champsim, champsim-cloudsuite, csv, drmemtrace"));
    assert!(error("lackey", "/").contains("is a directory"));
    assert!(error("lackey", "no such file").contains("No such file"));
    if cfg!(target_os = "linux") {
        assert!(error("lackey", "/dev/null").contains("save it to a file first"));
    }
    let formats =
        ["champsim", "champsim-cloudsuite", "csv", "drmemtrace", "gem5", "lackey", "parquet", "perf", "pin", "text"];
    assert_eq!(import::formats().collect::<Vec<_>>(), formats);
}

#[test]
fn texts_of_other_tools_are_read() {
    let pin = imported("pin", b"0x401000: R 0x7ffe0010\n0x401004: W 0x7ffe0018\n#eof\n").unwrap();
    assert_eq!(pin.runs, [Run::new(0x7ffe0, Access::Read, 1, 1), Run::new(0x7ffe0, Access::Write, 1, 1)]);
    let gem5 =
        b"77: system.mem: Read from cpu.inst of size 64 on address 0x1f90 C\n78: system.mem: 00000000  00 10  ..\n";
    assert_eq!(imported("gem5", gem5).unwrap().runs, [Run::new(1, Access::Execute, 1, 1)]);
    assert_eq!(imported("gem5", b"r,8192,64,1000\nu,0,64,1001\n").unwrap().runs, [Run::new(2, Access::Read, 1, 0)]);
    let perf =
        "  7 1.5: cpu/mem-loads/P: 1008 5080022 |OP LOAD|LVL L1 hit|SNP None|TLB L2 miss|LCK No\n8 1.6: e: 2008\n";
    let file = write(perf.as_bytes());
    let mut source = import::import("perf", file.path(), false, None).unwrap();
    assert!(source.notes()[0].1.contains("these are samples"));
    let batch = read_all(&mut source).unwrap();
    assert_eq!(batch.runs, [Run::new(1, Access::Read, 1, 0), Run::new(2, Access::Read, 1, 0)]);
    assert!(batch.events.contains(&(1, Event::Switch { process: ProcessId(0), thread: 1 })));
    assert!(said("pin", b"0x1: R 0x10\n0x1 R 0x10\n").starts_with("FILE: line 2: \"0x1 R 0x10\" is not of pinatrace"));
    assert!(said("gem5", b"hello\n").contains("line 1: \"hello\" is not of gem5"));
    assert!(said("perf", b"ls 7 1.5: 1008\n").contains("is no sample; expected what perf script"));
    assert!(
        said("perf", b"7 1.5: e: 1008\n7 nan: e: 1008\n").starts_with("FILE: line 2: \"7 nan: e: 1008\" is no sample")
    );
    let cut = "the text is cut off; expected #eof as its last line";
    assert_eq!(said("pin", b"0x401000: R 0x7ffe0010\n0x401004: W 0x7f"), format!("FILE: line 2: {cut}"));
    for [first, second] in
        [["r,8192,64,1,78", "w,0,64,1,77,99"], ["78: m: Write from c of size 8 on address 0 C", "w,0,8,77"]]
    {
        let backwards = "FILE: line 2: time 77 after 78; expected times that do not decrease";
        assert_eq!(said("gem5", format!("{first}\n{second}\n").as_bytes()), backwards);
    }
}

#[test]
fn each_of_several_files_is_a_thread() {
    let instructions = |ip: u64, data: u64| (0..3000).flat_map(|_| instruction(ip, &[data], &[])).collect::<Vec<u8>>();
    let files = [write(&instructions(0x40_0000, 0x1000)), write(&instructions(0x50_0000, 0x1000)[..64 * 1500])];
    let paths = files.each_ref().map(|file| file.path().to_owned());
    let mut source = import::import_threads("champsim", &paths, false).unwrap();
    let batch = read_all(&mut source).unwrap();
    let sum: u64 = batch.runs.iter().map(|run| u64::from(run.references)).sum();
    assert_eq!(sum, 2 * 4500);
    let of = |events: &[(u32, Event)]| -> Vec<u32> {
        let thread = |(_, event): &(u32, Event)| match event {
            Event::Switch { thread, .. } => Some(*thread),
            _ => None,
        };
        events.iter().filter_map(thread).collect()
    };
    assert_eq!(of(&batch.events), [0, 1, 0, 1, 0]);
    let table = write(b"kind,page\nread,1\n");
    let mut both = import::import_threads("csv", &[table.path().to_owned(), table.path().to_owned()], false);
    let error = both.as_mut().err().expect("runs are no accesses").to_string();
    assert!(error.contains("only traces of accesses can be threads of one"), "{error}");
}
