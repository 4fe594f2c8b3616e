//! A stream as a table: the same rows in each format.

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use std::fs;
use std::path::Path;
use superpage_pages::{Access, Protection};
use superpage_trace::file::{Reader, Writer};
use superpage_trace::{Backing, Batch, Error, Event, Growth, Info, ProcessId, Run, export};

/// A trace of a few rows of most kinds in a directory of its own.
fn trace() -> (tempfile::TempDir, Reader) {
    let mut batch = Batch::default();
    batch.event(Event::Switch { process: ProcessId(3), thread: 4 });
    batch.event(Event::Map {
        start: 16,
        pages: 8,
        protection: Protection::READ_WRITE,
        shared: false,
        backing: Backing::File { file: 2, file_pages: 9, offset: 1 },
        growth: Growth::Fixed,
    });
    batch.run(Run::new(16, Access::Write, 5, 0));
    batch.run(Run::new(17, Access::Execute, 6, 6));
    batch.event(Event::Note("a \"quoted\" note".into()));
    batch.event(Event::Skipped { references: 7, instructions: 8 });
    batch.run(Run::new(18, Access::Read, 1, 2));
    batch.event(Event::Open { file: 2, file_pages: 9 });
    batch.event(Event::Read { file: 2, start: 1, pages: 3 });
    batch.event(Event::Wire { pages: 4 });
    batch.event(Event::Idle { microseconds: 5 });
    batch.event(Event::Mark("web".into()));
    batch.event(Event::Call { path: "pipe-read".into(), at: 0x12ff0, bytes: 17 });
    batch.event(Event::Exit);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("small.sp");
    let mut writer = Writer::create(&path, &Info { calls: true, ..Info::default() }, &[]).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let reader = Reader::open(&path).unwrap();
    (directory, reader)
}

fn exported(format: &str) -> (tempfile::TempDir, Vec<u8>) {
    let (directory, mut reader) = trace();
    let path = directory.path().join("out");
    export::export(format, &mut reader, Some(&path), None).unwrap();
    let bytes = fs::read(path).unwrap();
    (directory, bytes)
}

const CSV: &str = "\
process,thread,kind,page,pages,references,instructions,detail,line
3,4,switch,,,,,,
3,4,map,16,8,,,\"rw- private file 2 of 9 pages from 1, fixed\",
3,4,write,16,,5,0,,
3,4,execute,17,,6,6,,
3,4,note,,,,,\"a \"\"quoted\"\" note\",
3,4,skipped,,,7,8,,
3,4,read,18,,1,2,,
3,4,open,,9,,,\"file 2\",
3,4,file-read,1,3,,,\"file 2\",
3,4,wire,,4,,,,
3,4,idle,,,,,\"5 us\",
3,4,mark,,,,,\"web\",
3,4,call,18,2,,,\"pipe-read, 17 bytes at 0x12ff0\",
3,4,exit,,,,,,
";

#[test]
fn csv() {
    assert_eq!(String::from_utf8(exported("csv").1).unwrap(), CSV);
}

#[test]
fn text() {
    let text = String::from_utf8(exported("text").1).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 14);
    assert_eq!(lines[8], "file-read page 0x1 pages 3 file 2");
    assert_eq!(lines[0], "switch   process 3 thread 4");
    assert_eq!(lines[1], "map      page 0x10 pages 8 rw- private file 2 of 9 pages from 1, fixed");
    assert_eq!(lines[3], "execute  page 0x11 references 6 instructions 6");
}

#[test]
fn parquet_holds_the_rows_of_csv() {
    let (directory, _) = exported("parquet");
    let reader = SerializedFileReader::try_from(&*directory.path().join("out")).unwrap();
    let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), CSV.lines().count() - 1);
    for (row, line) in rows.iter().zip(CSV.lines().skip(1)) {
        let cells: Vec<_> = line.splitn(8, ',').collect();
        assert_eq!((row.get_int(0).unwrap(), row.get_int(1).unwrap()), (3, 4));
        assert_eq!(row.get_string(2).unwrap(), cells[2]);
        for (column, cell) in cells.iter().enumerate().take(7).skip(3) {
            assert_eq!(row.get_long(column).ok(), cell.parse().ok(), "{line}");
        }
        let quoted = cells[7].strip_suffix(',').expect("no line in a stream of pages");
        let detail = (!quoted.is_empty()).then(|| quoted[1..quoted.len() - 1].replace("\"\"", "\""));
        assert_eq!(row.get_string(7).ok(), detail.as_ref(), "{line}");
    }
}

/// A few runs may be very many records.
#[test]
fn what_would_fill_the_file_system_is_refused() {
    let (directory, _) = trace();
    let (small, large) = (directory.path().join("small.sp"), directory.path().join("large.sp"));
    let mut batch = Batch::default();
    batch.event(Event::Switch { process: ProcessId(0), thread: 0 });
    (0..100_000).for_each(|page| batch.run(Run::new(page, Access::Read, u32::MAX, u32::MAX)));
    let mut writer = Writer::create(&large, &Info::default(), &[]).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let out = directory.path().join("out");
    for format in export::formats() {
        export::check_room(format, (&small, false), Some(&out)).unwrap();
        let checked = export::check_room(format, (&large, false), Some(&out));
        let error = checked.as_ref().err().map(|error| (error.status(), error.to_string()));
        match format {
            "champsim" | "drmemtrace" => assert!(
                error.as_ref().is_some_and(|(status, text)| *status == 2 && text.contains("5 % are to stay")),
                "{error:?}"
            ),
            _ => assert_eq!(error, None),
        }
    }
    export::check_room("champsim", (&large, false), Some(&directory.path().join("out.zst"))).unwrap();
    assert!(!out.exists());
}

#[test]
fn what_cannot_be_written_is_one_sentence_and_leaves_nothing() {
    let (directory, mut reader) = trace();
    let mut error = |format: &str, path: Option<&Path>| -> Error {
        reader.seek_to_block(0).unwrap();
        export::export(format, &mut reader, path, None).unwrap_err()
    };
    assert!(error("xml", None).to_string().contains("expected one of: parquet, csv, text"));
    assert!(error("csv", Some(directory.path())).to_string().contains("is a directory"));
    if Path::new("/dev/full").exists() {
        for format in export::formats() {
            assert!(error(format, Some(Path::new("/dev/full"))).to_string().contains("free some space"), "{format}");
        }
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}
