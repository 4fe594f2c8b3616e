//! The trace file beside Parquet: how small, how fast to write, how fast to read, on one core.
//!
//! `cargo bench -p superpage-trace --bench format` prints the table of docs/trace-parquet.md.
//! Everything happens in memory, and reading gives batches of runs in both, one after the other, as
//! a simulation takes them. Besides two made streams it takes the traces named in
//! `SUPERPAGE_TRACES` (separated by colons) and those in `corpus/`; of each the first 16 M runs.
//! Each figure is the best of five rounds.

use parquet::basic::{Compression, ZstdLevel};
use parquet::column::reader::ColumnReader;
use parquet::data_type::{Int32Type, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use superpage_pages::{Access, Random};
use superpage_trace::file::{Reader, Writer};
use superpage_trace::{Batch, Info, Run, Source};

const MOST_RUNS: usize = 16_000_000;
const ROUNDS: usize = 5;
const ROW_GROUP: usize = 1 << 20;

fn main() {
    println!(
        "{:<24} {:<14} {:>9} {:>10} {:>12} {:>14} {:>14}",
        "stream", "format", "M runs", "bytes/run", "bytes/ref", "write M runs/s", "read M runs/s"
    );
    let made = [("made: a program", program(8_000_000)), ("made: random pages", random(2_000_000))];
    for (name, runs) in made {
        compare(name, &runs);
    }
    for path in recorded() {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        compare(&name, &load(&path));
    }
}

fn compare(name: &str, runs: &[Run]) {
    let references: u64 = runs.iter().filter(|r| r.access() != Access::Execute).map(|r| u64::from(r.references)).sum();
    let stream = Stream { name, runs, references };
    measure(&stream, "superpage", write_ours, read_ours);
    let zstd = Compression::ZSTD(ZstdLevel::try_new(3).expect("zstd has a level 3"));
    measure(&stream, "parquet zstd", |runs| write_parquet(runs, zstd), read_parquet);
    let plain = Compression::UNCOMPRESSED;
    measure(&stream, "parquet plain", |runs| write_parquet(runs, plain), read_parquet);
}

/// What is written and read.
struct Stream<'a> {
    name: &'a str,
    runs: &'a [Run],
    /// Loads and stores.
    references: u64,
}

fn measure(
    stream: &Stream<'_>,
    format: &str,
    write: impl Fn(&[Run]) -> Vec<u8>,
    read: impl Fn(&[u8], &mut dyn FnMut(&[Run])),
) {
    let Stream { name, runs, references } = *stream;
    let (mut write_seconds, mut read_seconds, mut length) = (f64::MAX, f64::MAX, 0);
    for round in 0..ROUNDS {
        let start = Instant::now();
        let bytes = write(runs);
        write_seconds = write_seconds.min(start.elapsed().as_secs_f64());
        length = bytes.len();
        if round == 0 {
            let mut back = Vec::with_capacity(runs.len());
            read(&bytes, &mut |batch| back.extend_from_slice(batch));
            assert!(back == runs, "{format} gives back other runs");
        }
        let start = Instant::now();
        read(&bytes, &mut |batch| {
            std::hint::black_box(batch);
        });
        read_seconds = read_seconds.min(start.elapsed().as_secs_f64());
    }
    let count = runs.len() as f64;
    println!(
        "{name:<24} {format:<14} {:>9.1} {:>10.3} {:>12.3} {:>14.0} {:>14.0}",
        count / 1e6,
        length as f64 / count,
        length as f64 / references as f64,
        count / write_seconds / 1e6,
        count / read_seconds / 1e6,
    );
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no writer panics").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn write_ours(runs: &[Run]) -> Vec<u8> {
    let out = Shared::default();
    let mut writer = Writer::new(out.clone(), &Info::default(), &[]).expect("memory takes a header");
    let mut batch = Batch::default();
    for part in runs.chunks(Batch::RUNS) {
        batch.clear();
        batch.runs.extend_from_slice(part);
        writer.write(&batch).expect("memory takes bytes");
    }
    writer.finish().expect("memory takes a footer");
    std::mem::take(&mut *out.0.lock().expect("no writer panics"))
}

fn read_ours(bytes: &[u8], each: &mut dyn FnMut(&[Run])) {
    let mut reader = Reader::from_bytes(bytes.to_vec(), "memory", false).expect("what was written opens");
    let mut batch = Batch::default();
    while reader.fill(&mut batch).expect("what was written reads") {
        each(&batch.runs);
    }
}

/// Three columns, the page and the kind in one: the least work that Parquet can do for a run.
fn write_parquet(runs: &[Run], compression: Compression) -> Vec<u8> {
    let schema = "message runs { required int64 tag; required int32 references; required int32 instructions; }";
    let schema = Arc::new(parse_message_type(schema).expect("a schema"));
    let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, properties).expect("a writer");
    for part in runs.chunks(ROW_GROUP) {
        let mut group = writer.next_row_group().expect("a row group");
        let tags: Vec<i64> = part.iter().map(|run| (run.page() << 2 | run.access() as u64) as i64).collect();
        let mut column = group.next_column().expect("a column").expect("the first column");
        column.typed::<Int64Type>().write_batch(&tags, None, None).expect("tags");
        column.close().expect("a column");
        for count in [|run: &Run| run.references, |run: &Run| run.instructions] {
            let counts: Vec<i32> = part.iter().map(|run| count(run) as i32).collect();
            let mut column = group.next_column().expect("a column").expect("a further column");
            column.typed::<Int32Type>().write_batch(&counts, None, None).expect("counts");
            column.close().expect("a column");
        }
        group.close().expect("a row group");
    }
    writer.close().expect("a footer");
    bytes
}

fn read_parquet(bytes: &[u8], each: &mut dyn FnMut(&[Run])) {
    let reader = SerializedFileReader::new(bytes::Bytes::copy_from_slice(bytes)).expect("what was written opens");
    let (mut tags, mut references, mut instructions) = (Vec::new(), Vec::new(), Vec::new());
    let mut batch = Vec::new();
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group).expect("a row group");
        let mut columns = (0..3).map(|column| group.get_column_reader(column).expect("a column"));
        let [
            Some(ColumnReader::Int64ColumnReader(mut tag)),
            Some(ColumnReader::Int32ColumnReader(mut reference)),
            Some(ColumnReader::Int32ColumnReader(mut instruction)),
        ] = [columns.next(), columns.next(), columns.next()]
        else {
            panic!("other columns than were written");
        };
        loop {
            tags.clear();
            references.clear();
            instructions.clear();
            let (read, _, _) = tag.read_records(Batch::RUNS, None, None, &mut tags).expect("tags");
            reference.read_records(Batch::RUNS, None, None, &mut references).expect("references");
            instruction.read_records(Batch::RUNS, None, None, &mut instructions).expect("instructions");
            if read == 0 {
                break;
            }
            batch.clear();
            batch.extend(tags.iter().zip(&references).zip(&instructions).map(
                |((&tag, &references), &instructions)| {
                    let access = [Access::Read, Access::Write, Access::Execute][(tag & 3) as usize % 3];
                    Run::new(tag as u64 >> 2, access, references as u32, instructions as u32)
                },
            ));
            each(&batch);
        }
    }
}

/// Loops over a few pages of stack, heap, globals and code, most rounds alike, each loop left after
/// a while.
fn program(count: usize) -> Vec<Run> {
    let mut random = Random::new(1);
    let mut runs = Vec::with_capacity(count + 64);
    while runs.len() < count {
        let body: Vec<Run> = (0..4 + random.below(40)).map(|_| one_run(&mut random)).collect();
        for _ in 0..1 + random.below(60) {
            for &run in &body {
                runs.push(if random.below(12) == 0 { one_run(&mut random) } else { run });
            }
        }
    }
    runs.truncate(count);
    runs
}

fn one_run(random: &mut Random) -> Run {
    let references = 1 + random.below(2) as u32 * random.below(9) as u32;
    let kind = if random.below(3) == 0 { Access::Write } else { Access::Read };
    // Square of a uniform number: low pages often, high ones seldom.
    let skewed = |random: &mut Random, pages: u64| random.below(pages) * random.below(pages) / pages;
    match random.below(10) {
        0..=2 => Run::new(0x7_ffff_e000 - random.below(3), kind, references, 0),
        3..=6 => Run::new(0x5_5555_6000 + skewed(random, 3000), kind, references, 0),
        7 => Run::new(0x5_5555_5800 + random.below(20), kind, references, 0),
        _ => {
            let fetches = 1 + random.below(40) as u32 * (1 + random.below(10) as u32 / 9 * 30);
            Run::new(0x5_5555_5000 + skewed(random, 300), Access::Execute, fetches, fetches)
        }
    }
}

/// The worst: 65536 pages, no two runs alike.
fn random(count: usize) -> Vec<Run> {
    let mut random = Random::new(2);
    (0..count).map(|_| Run::new(0x7_f000_0000 + random.below(1 << 16), Access::Read, 1, 3)).collect()
}

fn recorded() -> Vec<PathBuf> {
    let named = std::env::var_os("SUPERPAGE_TRACES");
    let mut paths: Vec<PathBuf> = named.iter().flat_map(std::env::split_paths).collect();
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus");
    let found = std::fs::read_dir(corpus).into_iter().flatten().flatten().map(|entry| entry.path());
    paths.extend(found.filter(|path| path.extension().is_some_and(|extension| extension == "sp")));
    paths.sort();
    paths
}

fn load(path: &Path) -> Vec<Run> {
    let mut reader = Reader::open(path).unwrap_or_else(|error| panic!("{error}"));
    let (mut runs, mut batch) = (Vec::new(), Batch::default());
    while runs.len() < MOST_RUNS && reader.fill(&mut batch).unwrap_or_else(|error| panic!("{error}")) {
        runs.extend_from_slice(&batch.runs);
    }
    runs
}
