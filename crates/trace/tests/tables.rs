//! Tables as traces: what `export` writes comes back, and others' tables of addresses are read.

use crate::import::{imported, read_all, said, write};
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::fs;
use std::sync::Arc;
use superpage_pages::{Access, Hint, Protection};
use superpage_trace::file::{Reader, Writer};
use superpage_trace::workload::{parse, parse_lines};
use superpage_trace::{Backing, Batch, Error, Event, Growth, Info, ProcessId, Run, Source, export, import};

/// A stream whose batches are given.
pub(crate) struct Given(pub(crate) Info, pub(crate) Vec<Batch>);

impl Source for Given {
    fn info(&self) -> &Info {
        &self.0
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        *batch = if self.1.is_empty() { Batch::default() } else { self.1.remove(0) };
        Ok(!batch.runs.is_empty() || !batch.events.is_empty())
    }
}

/// One of every event that a stream without sampling may have, and runs between them.
fn every_event() -> Given {
    let map = |start, shared, backing, growth| Event::Map {
        start,
        pages: 8,
        protection: Protection::READ_EXECUTE,
        shared,
        backing,
        growth,
    };
    let file = Backing::File { file: 2, file_pages: 9, offset: 1 };
    let events = [
        Event::Note("a \"quoted\" note, in Zürich".into()),
        Event::Switch { process: ProcessId(3), thread: 4 },
        map(16, false, file, Growth::Fixed),
        map(1 << 50, true, Backing::Anonymous, Growth::Down),
        map(300, false, Backing::Anonymous, Growth::Up),
        Event::Grow { start: 300, pages: 9 },
        Event::Protect { start: 300, pages: 9, protection: Protection::READ_WRITE },
        Event::Advise { start: 300, pages: 9, hint: Hint::Huge },
        Event::Discard { start: 300, pages: 1 },
        Event::Rewrite { start: 300, pages: 2 },
        Event::Remap { from: 300, from_pages: 9, to: 400, to_pages: 10 },
        Event::Open { file: 2, file_pages: 9 },
        Event::Read { file: 2, start: 1, pages: 3 },
        Event::Write { file: 2, start: 1, pages: 3 },
        Event::Sync { file: 2 },
        Event::Close { file: 2 },
        Event::Wire { pages: 4 },
        Event::Unwire { pages: 3 },
        Event::Idle { microseconds: 5 },
        Event::Mark("web 2".into()),
        Event::Call { path: "pipe-read".into(), at: 0x12ff0, bytes: 17 },
        Event::Call { path: "null".into(), at: 0, bytes: 0 },
        Event::Fork { child: ProcessId(5) },
        Event::Unmap { start: 16, pages: 8 },
        Event::Remove { file: 2 },
        Event::Exec,
        Event::Exit,
    ];
    let mut batch = Batch::default();
    let last = events.len() - 2;
    for (number, event) in events.into_iter().enumerate() {
        batch.event(event);
        if (5..last).contains(&number) {
            batch.run(Run::on_line((1 << 56) + number as u64, Access::Read, 7, 9));
            batch.run(Run::on_line((1 << 56) + number as u64, Access::Execute, 7, 9));
        }
    }
    Given(Info { lines: true, fetches: true, calls: true, ..Info::default() }, vec![batch])
}

fn comes_back(make: &dyn Fn() -> Box<dyn Source>) {
    let folder = tempfile::tempdir().unwrap();
    let (expected, info) = (read_all(&mut *make()).unwrap(), make().info().clone());
    for format in ["csv", "parquet", "text"] {
        let path = folder.path().join(format);
        export::export(format, &mut *make(), Some(&path), None).unwrap();
        let mut back = import::import(format, &path, false, None).unwrap();
        let found = (back.info().lines, back.info().fetches, back.info().calls);
        assert_eq!(found, (info.lines, info.fetches, info.calls), "{format}");
        assert!(read_all(&mut back).unwrap() == expected, "{format}");
    }
}

#[test]
fn what_export_writes_comes_back() {
    comes_back(&|| Box::new(every_event()));
    for workload in ["random:bytes=1M,references=20K", "web:requests=20"] {
        comes_back(&|| parse(workload).unwrap_or_else(|error| panic!("{error}")));
    }
    comes_back(&|| parse_lines("stride:step=4K,touches=1K,rounds=3").unwrap());
}

const OURS: &str = "\
ip,address,kind,size,thread,time
1,0x1000,R,8,71,1.5
2,8200,store,8,71,1.5
3,0x2FFC,W,8,70,2
4, 0x0000000000001000 ,,,70,3
";

#[test]
fn a_table_of_addresses_is_read() {
    let expected = [
        Run::new(1, Access::Read, 1, 0),
        Run::new(2, Access::Write, 1, 0),
        Run::new(2, Access::Write, 1, 0),
        Run::new(3, Access::Write, 1, 0),
        Run::new(1, Access::Read, 1, 0),
    ];
    for text in [OURS.to_owned(), OURS.replace('\n', "\r\n"), format!("\u{feff}{OURS}\n\n")] {
        let file = write(text.as_bytes());
        let mut source = import::import("csv", file.path(), false, None).unwrap();
        let notes = source.notes();
        assert_eq!(notes[0].1, "address, kind, size, thread, time; not used: ip");
        let batch = read_all(&mut source).unwrap();
        assert_eq!(batch.runs, expected);
        assert!(batch.events.contains(&(2, Event::Switch { process: ProcessId(0), thread: 1 })), "{:?}", batch.events);
    }
    let lines = import::import("csv", write(OURS.as_bytes()).path(), true, None).unwrap();
    assert!(lines.info().lines);
    let counted = imported("csv", b"address,instructions\n4096,3\n8192,\"4\"\n").unwrap().runs;
    assert_eq!(counted, [Run::new(1, Access::Read, 1, 3), Run::new(2, Access::Read, 1, 4)]);
    // Of the thread of the row, not of the row before.
    let table = "address,thread,instructions\n4096,0,1000\n8192,1,1\n4096,0,1000\n12288,2,7\n";
    let [first, other] = [Run::new(1, Access::Read, 1, 1000), Run::new(2, Access::Read, 1, 1)];
    assert_eq!(imported("csv", table.as_bytes()).unwrap().runs, [first, other, first, Run::new(3, Access::Read, 1, 7)]);
    let most = format!("address,instructions\n4096,{}\n", 1u64 << 32);
    assert!(said("csv", most.as_bytes()).contains("instructions 4294967296, expected at most 4294967295"));
}

#[test]
fn runs_alone_are_a_stream_of_touched_pages() {
    let table = "kind,page,references,thread,process\nread,16.0,5,0,9\nwrite,17,,1,9\n";
    let batch = imported("csv", table.as_bytes()).unwrap();
    assert_eq!(batch.runs, [Run::new(16, Access::Read, 5, 0), Run::new(17, Access::Write, 1, 0)]);
    assert!(batch.events.iter().any(|(_, event)| matches!(event, Event::Map { start: 16, pages: 2, .. })));
    assert!(batch.events.contains(&(1, Event::Switch { process: ProcessId(0), thread: 1 })));
}

#[test]
fn a_wrong_table_is_one_sentence_with_the_line() {
    let csv = |lines: &str| said("csv", lines.as_bytes());
    for (table, problem) in [
        ("", "has the columns \"\"; expected one named address"),
        ("addr,rw\n1,2\n", "has the columns \"addr, rw\"; expected one named address"),
        ("address\n", "contains no access"),
        ("address,address\n1,2\n", "has two columns named address; expected one"),
        ("address\n\"4096\n", "line 2: a quote that is not closed"),
        ("address\n0x10\n-4\n", "FILE: line 3: address \"-4\", expected a whole number from 0 to 2^64 - 1"),
        ("address\n18446744073709551616\n", "line 2: address \"18446744073709551616\""),
        ("address\n0x1g\n", "line 2: address \"0x1g\""),
        ("address,kind\n1,jump\n", "line 2: kind \"jump\", expected read, write or execute"),
        ("address,kind\n1,map\n", "line 2: kind map with an address"),
        ("address,kind\n\n1\n", "line 3: 1 cells, expected 2"),
        ("address,kind\n,R\n", "line 2: no address"),
        ("address,size\n1,99999999\n", "line 2: size 99999999, expected at most 65536"),
        ("address,time\n1,2\n1,1\n", "line 3: time 1 after 2: sort the table by time"),
        ("address,time\n1,noon\n", "line 2: a time that is no number"),
        ("address,process\n1,2\n1,1\n", "line 3: process 1 after 2, expected rows of one"),
        ("address,kind,instructions\n1,R,4\n1,X,\n", "line 3: both instructions and rows of kind execute"),
        ("kind,page\nread,4503599627370496\n", "line 2: no page, expected its number, below 2^52"),
        ("kind,page,references\nread,1,0\n", "line 2: 0 references"),
        ("kind,page,references\nread,1,4294967296\n", "line 2: 4294967296 references"),
        ("kind,page,line\nread,1,64\n", "line 2: line 64, expected one of the page's 64"),
        ("kind,page,line\nread,1,2\nread,1,\n", "line 3: a line in some rows only"),
        ("kind,page\nread,1\nexit,\n", "line 3: exit after rows without events"),
        ("kind,page\nexit,\n", "line 2: exit of no process"),
        (
            "kind,page,pages,detail\nswitch,,,\nmap,1,2,rw- mine\n",
            "line 3: a map of page 1, pages 2, detail \"rw- mine\"",
        ),
        ("kind,page,pages\nunmap,4503599627370495,9\n", "line 2: unmap of 9 pages"),
        ("kind,page,detail\nphase,,gap\n", "line 2: part of a sampled stream"),
    ] {
        assert!(csv(table).contains(problem), "{table}: {}", csv(table));
    }
    let text = said("text", b"switch   process 0 thread 0\nread     page 0x10 references many\n");
    assert!(text.starts_with("FILE: line 2: references \"many\", expected a whole number"), "{text}");
    assert!(said("text", b"hello\n").contains("line 1: kind \"hello\""));
    let pages = import::import("csv", write(b"kind,page\nread,1\n").path(), true, None).err().unwrap();
    assert!(pages.to_string().contains("import it without --lines"));
}

#[test]
fn a_bomb_takes_no_memory() {
    let mut text = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    std::io::Write::write_all(&mut text, b"address\n").unwrap();
    (0..64).for_each(|_| std::io::Write::write_all(&mut text, &vec![b'1'; 1 << 20]).unwrap());
    let bomb = text.finish().unwrap();
    assert!(said("csv", &bomb).contains("line 2: at 4194304 bytes the line has no end"));
    let commas = format!("address\n{}\n", ",".repeat(1 << 20));
    assert!(said("csv", commas.as_bytes()).contains("cells, expected 1"));
}

/// A data frame's file: addresses as unsigned numbers or not, and kinds where there are some.
fn frame(compression: Compression, unsigned: bool, addresses: &[i64], kinds: &[Option<&str>]) -> Vec<u8> {
    let annotated = if unsigned { " (INTEGER(64,false))" } else { "" };
    let schema = format!("message schema {{ optional int64 address{annotated}; optional binary kind (UTF8); }}");
    let properties = WriterProperties::builder().set_compression(compression).build();
    let schema = parse_message_type(&schema).unwrap();
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(addresses, Some(&vec![1; addresses.len()]), None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let levels: Vec<i16> = kinds.iter().map(|kind| kind.is_some().into()).collect();
    let values: Vec<ByteArray> = kinds.iter().flatten().map(|kind| ByteArray::from(*kind)).collect();
    column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.into_inner().unwrap()
}

#[test]
fn a_data_frame_is_read() {
    let kinds = [Some("W"), None, Some("read")];
    let zstd = Compression::ZSTD(ZstdLevel::default());
    for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, zstd] {
        let runs = imported("parquet", &frame(compression, false, &[0x1000, 0x2008, 0x2010], &kinds)).unwrap().runs;
        assert_eq!(runs, [Run::new(1, Access::Write, 1, 0), Run::new(2, Access::Read, 2, 0)]);
    }
    let last = imported("parquet", &frame(zstd, true, &[-1, 1, 2], &kinds)).unwrap().runs;
    assert_eq!(last[0], Run::new(u64::MAX >> 12, Access::Write, 1, 0));
    let negative = said("parquet", &frame(zstd, false, &[1, -1, 2], &kinds));
    assert_eq!(negative, "FILE: row 1: -1, expected a number from 0");
    assert!(said("parquet", b"PAR1 and no more").contains("expected a whole Parquet file"));
    assert!(said("parquet", b"").contains("expected a whole Parquet file"));
}

/// Each byte of a small file is another in turn: the file is refused or read, and nothing panics.
#[test]
fn a_damaged_data_frame_is_refused_or_read() {
    for (compression, flips) in [(Compression::UNCOMPRESSED, [1, 0xff]), (Compression::SNAPPY, [0x80, 3])] {
        let whole = frame(compression, true, &[0x1000, 0x2008, 0x2010], &[Some("W"), None, Some("read")]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("frame");
        for byte in 0..whole.len() {
            for flip in flips {
                let mut damaged = whole.clone();
                damaged[byte] ^= flip;
                fs::write(&path, &damaged).unwrap();
                if let Err(error) = import::import("parquet", &path, false, None).and_then(|mut it| read_all(&mut it)) {
                    assert!(!error.to_string().contains('\n') && error.status() == 2, "{error}");
                }
            }
            fs::write(&path, &whole[..byte]).unwrap();
            assert!(import::import("parquet", &path, false, None).is_err());
        }
    }
}

/// A trace file of a table is one of the stream that was exported: readers accept it.
#[test]
fn a_trace_is_written_of_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let (table, trace) = (folder.path().join("table"), folder.path().join("trace.sp"));
    export::export("csv", &mut every_event(), Some(&table), None).unwrap();
    let mut source = import::import("csv", &table, false, None).unwrap();
    let mut writer = Writer::create(&trace, source.info(), source.notes()).unwrap();
    let mut batch = Batch::default();
    while source.fill(&mut batch).unwrap() {
        writer.write(&batch).unwrap();
    }
    writer.finish().unwrap();
    let read = read_all(&mut Reader::open(&trace).unwrap()).unwrap();
    assert!(read == read_all(&mut every_event()).unwrap());
}
