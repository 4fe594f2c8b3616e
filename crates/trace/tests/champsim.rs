//! Streams as ChampSim's records, and back.

use crate::import::read_all;
use crate::tables::Given;
use std::fs;
use superpage_pages::Access::{Execute, Read, Write};
use superpage_pages::{Access, Protection};
use superpage_trace::workload::parse;
use superpage_trace::{Backing, Batch, Event, Growth, Info, ProcessId, Run, export, import};

/// A stream with fetches: some code, and data that it uses.
fn fetched() -> Given {
    let map = |start, pages| Event::Map {
        start,
        pages,
        protection: Protection::ALL,
        shared: false,
        backing: Backing::Anonymous,
        growth: Growth::Fixed,
    };
    let mut batch = Batch::default();
    batch.event(Event::Switch { process: ProcessId(0), thread: 0 });
    batch.event(map(0x400, 2));
    for run in [
        Run::new(0x400, Execute, 3, 3),
        Run::new(1, Read, 2, 0),
        Run::new(2, Write, 30, 0),
        Run::new(0x401, Execute, 2, 1),
        Run::new(2, Read, 9, 0),
        Run::new(3, Read, 1, 0),
    ] {
        batch.run(run);
    }
    batch.event(map(8, 1));
    batch.run(Run::new(8, Write, 1, 0));
    Given(Info { fetches: true, ..Info::default() }, vec![batch])
}

/// Pages and references of runs of fetches, or of data, of which runs of one page and kind are one.
fn runs(batch: &Batch, fetches: bool) -> Vec<(u64, Access, u64)> {
    let mut found: Vec<(u64, Access, u64)> = Vec::new();
    for run in batch.runs.iter().filter(|run| (run.access() == Execute) == fetches) {
        match found.last_mut().filter(|last| (last.0, last.1) == (run.page(), run.access())) {
            Some(last) => last.2 += u64::from(run.references),
            None => found.push((run.page(), run.access(), run.references.into())),
        }
    }
    found
}

#[test]
fn accesses_keep_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let [records, events] = ["records", "events"].map(|name| folder.path().join(name));
    export::export("champsim", &mut fetched(), Some(&records), Some(&events)).unwrap();
    let bytes = fs::read(&records).unwrap();
    assert_eq!(bytes.len() % 64, 0);
    let back = read_all(&mut import::import("champsim", &records, false, None).unwrap()).unwrap();
    let expected = read_all(&mut fetched()).unwrap();
    assert_eq!(runs(&back, false), runs(&expected, false));
    let pages: Vec<u64> = runs(&back, true).iter().map(|run| run.0).collect();
    assert_eq!(pages, [0x400, 0x401]);
    // 30 stores, two in each of the first three instructions; all but the last run is then written.
    let instructions: Vec<u64> = runs(&back, true).iter().map(|run| run.2).collect();
    assert_eq!(instructions.iter().sum::<u64>(), bytes.len() as u64 / 64);
    let table = fs::read_to_string(&events).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "record,process,thread,kind,page,pages,references,instructions,detail,line");
    assert_eq!(lines[2], "0,0,0,map,1024,2,,,\"rwx private anonymous, fixed\",");
    let before = bytes.len() / 64 - 1;
    assert_eq!(lines[3], format!("{before},0,0,map,8,1,,,\"rwx private anonymous, fixed\","));
}

#[test]
fn a_stream_without_fetches_keeps_its_instructions() {
    let folder = tempfile::tempdir().unwrap();
    let workload = "random:bytes=1M,references=20K";
    let expected = read_all(&mut *parse(workload).unwrap()).unwrap();
    for end in ["champsim", "champsim.gz", "champsim.xz", "champsim.zst"] {
        let path = folder.path().join(end);
        export::export("champsim", &mut *parse(workload).unwrap(), Some(&path), None).unwrap();
        let magic: &[u8] = match end {
            "champsim.gz" => &[0x1f, 0x8b],
            "champsim.xz" => &[0xfd, b'7', b'z', b'X', b'Z', 0],
            "champsim.zst" => &[0x28, 0xb5, 0x2f, 0xfd],
            _ => &[],
        };
        assert!(fs::read(&path).unwrap().starts_with(magic), "{end}");
        let back = read_all(&mut import::import("champsim", &path, false, None).unwrap()).unwrap();
        assert_eq!(runs(&back, false), runs(&expected, false), "{end}");
        let sum = |batch: &Batch| batch.runs.iter().map(|run| u64::from(run.instructions)).sum::<u64>();
        assert!(sum(&expected) > 0 && sum(&back) >= sum(&expected), "{} {}", sum(&back), sum(&expected));
    }
}

#[test]
fn what_champsim_has_no_place_for_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [path, events] = ["out", "events"].map(|name| folder.path().join(name));
    let mut batch = Batch::default();
    for process in [0, 1] {
        batch.event(Event::Switch { process: ProcessId(process), thread: 0 });
        batch.run(Run::new(1, Read, 1, 1));
    }
    let mut two = Given(Info::default(), vec![batch]);
    let error = export::export("champsim", &mut two, Some(&path), Some(&events)).unwrap_err();
    assert!(error.to_string().contains("accesses of several processes") && error.status() == 2, "{error}");
    let error = export::export("csv", &mut fetched(), Some(&path), Some(&events)).unwrap_err();
    assert!(error.to_string().contains("has the events among its rows") && error.status() == 2, "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
