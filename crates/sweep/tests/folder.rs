//! The folder of a sweep: who may work in it at once, and which cells it takes for its own.

mod common;

use common::{Seen, cells, options, plan, plan_of, ran};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use superpage_sim::{Error, Kept, keep};
use superpage_sweep::{Options, RemoteCells, Shard, run};

fn refused(path: &Path, shard: &str) -> String {
    match ran(path, &options(shard)) {
        Err(Error::Usage(problem)) => problem,
        other => panic!("{shard}: {other:?}"),
    }
}

/// Holds the locks of a shard, as a process that runs it does.
fn hold(path: &Path, shard: &str, names: &[(&str, bool)]) -> Vec<fs::File> {
    ran(path, &options(shard)).unwrap();
    let lock = |&(name, alone): &(&str, bool)| {
        let file = fs::File::options().read(true).write(true).open(path.join("locks").join(name)).unwrap();
        if alone { file.try_lock() } else { file.try_lock_shared() }.unwrap();
        file
    };
    names.iter().map(lock).collect()
}

#[test]
fn shards_of_one_number_share_a_folder_and_no_others_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let held = hold(path, "1/2", &[("all", false), ("of-2", false), ("1-of-2", true)]);
    assert!(refused(path, "1/2").contains("shard 1/2 of it runs already"));
    assert!(refused(path, "1/3").contains("shards of-2 of it run, and this is one of 3"));
    assert!(refused(path, "1/1").contains("another sweep runs in it"));
    // The other shard finds what is missing, and ends the sweep.
    let seen = Seen::default();
    let done = run(&plan(), path, &options("2/2"), &AtomicBool::new(false), &seen).unwrap();
    let all = plan().cells();
    assert_eq!((done.there, done.ran), (all, all / 2));
    assert_eq!(*seen.0.lock().unwrap(), [(all / 2, 0)]);
    assert_eq!(done.rows, Some(plan().rows()));
    drop(held);
    // Cells are the same whoever ran them, so another number of shards finds all of them.
    assert_eq!(ran(path, &options("1/3")).unwrap().ran, 0);
    let held = hold(path, "1/1", &[("all", true)]);
    assert!(refused(path, "1/2").contains("a sweep without --shard runs in it"));
    drop(held);
}

#[test]
fn a_shard_has_its_cells_and_all_shards_have_all() {
    for of in 1..6 {
        let folder = tempfile::tempdir().unwrap();
        let mut there = 0;
        for index in 1..=of {
            let done = ran(folder.path(), &options(&format!("{index}/{of}"))).unwrap();
            there += done.ran;
            assert_eq!(done.there, there);
            assert_eq!(done.rows.is_some(), there == plan().cells(), "{index}/{of}");
        }
        assert_eq!(there, plan().cells());
    }
    for wrong in ["0/1", "2/1", "1", "1/0", "/", "-1/2", "1/2/3"] {
        assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
    }
}

#[test]
fn a_cell_with_the_wrong_number_of_rows_is_damaged_and_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    ran(path, &options("1/1")).unwrap();
    let rows = fs::read(path.join("rows.parquet")).unwrap();
    let all = cells(path);
    let kept = Kept::read(fs::read(&all[1]).unwrap()).unwrap();
    // The file that is made has a digest of its own.
    let notes = kept.notes.iter().filter(|(key, _)| key != "superpage.digest");
    let notes: Vec<(&str, String)> = notes.map(|(key, value)| (key.as_str(), value.clone())).collect();
    let more = [kept.runs.clone(), kept.runs.clone()].concat();
    let (expected, given) = (kept.runs.len(), more.len());
    fs::write(&all[1], keep(&more, &notes).unwrap()).unwrap();
    fs::copy(&all[2], &all[0]).unwrap();
    let Err(Error::Output { problem, .. }) = ran(path, &options("1/1")) else { panic!("damaged cells were taken") };
    assert!(problem.contains("2 damaged cells: "), "{problem}");
    assert!(problem.contains(&format!("it has {given} rows, expected {expected}")), "{problem}");
    assert!(problem.contains("it is of another cell"), "{problem}");
    let repair = Options { repair: true, ..options("1/1") };
    assert_eq!(ran(path, &repair).unwrap().ran, 2);
    assert_eq!(fs::read(path.join("rows.parquet")).unwrap(), rows);
}

#[test]
fn cells_that_ran_elsewhere_are_checked_before_they_are_kept() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    ran(other.path(), &options("1/1")).unwrap();
    let plan = Arc::new(plan());
    let stop = AtomicBool::new(false);
    let store = RemoteCells::open(Arc::clone(&plan), folder.path(), false, &stop).unwrap().unwrap();
    assert_eq!(store.missing().unwrap().len(), plan.cells());
    let files: Vec<(String, Vec<u8>)> = cells(other.path())
        .iter()
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().into(), fs::read(path).unwrap()))
        .collect();
    let wrong = |name: &str, bytes: &[u8]| store.write(name, bytes).unwrap_err().to_string();
    assert!(wrong("none", &files[0].1).contains("none of this sweep"));
    assert!(wrong(&files[0].0, b"damaged").contains(&files[0].0));
    for (name, bytes) in &files {
        store.write(name, bytes).unwrap();
    }
    assert_eq!(store.finish(files.len(), "sweep").unwrap().rows, Some(plan.rows()));
    let rows = |path: &Path| fs::read(path.join("rows.parquet")).unwrap();
    assert_eq!(rows(folder.path()), rows(other.path()));
}

#[test]
fn a_sweep_of_many_values_is_gone_on_with() {
    let seeds: Vec<String> = (0..70_000).map(|seed| seed.to_string()).collect();
    let text = format!(
        "[sweep]\nname = \"many\"\n[axes]\nworkload = \"touch:bytes=4K\"\nmachine = \"zen5\"\npolicy = \"base\"\nmemory = \"4M\"\n\
         seed = [{}]\n",
        seeds.join(", ")
    );
    let (plan, folder) = (plan_of(&text), tempfile::tempdir().unwrap());
    // All are left for another time.
    let once = || run(&plan, folder.path(), &options("1/1"), &AtomicBool::new(true), &Seen::default());
    assert_eq!(once().unwrap().there, 0);
    assert!(fs::metadata(folder.path().join("sweep.json")).unwrap().len() > 1 << 20);
    assert_eq!(once().unwrap().there, 0);
}

#[test]
fn what_does_not_go_with_lines_is_refused_before_anything_runs() {
    let refused = |more: &str| {
        let text = format!("[sweep]\nname = \"lines\"\n{more}\n");
        match superpage_sweep::Plan::new(superpage_sweep::Sweep::of_text(&text, "lines.toml").unwrap(), &[]) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{more} was taken"),
        }
    };
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus/whole/gzip.sp");
    let lines = refused(&format!("lines = true\n[axes]\ntrace = \"{trace}\"\nmachine = \"zen5\"\npolicy = \"base\""));
    assert!(lines.contains("has pages and no lines"), "{lines}");
    let shadow = refused("[axes]\nworkload = \"touch:bytes=4K\"\nmachine = \"zen5+shadow\"\npolicy = \"base\"");
    assert!(shadow.contains("lines"), "{shadow}");
}

#[test]
fn a_trace_that_changes_while_a_sweep_runs_makes_no_rows() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus/whole");
    let trace = folder.path().join("a.sp");
    fs::copy(format!("{corpus}/sha256sum.sp"), &trace).unwrap();
    let text = format!(
        "[sweep]\nname = \"changes\"\n[axes]\ntrace = \"{}\"\nmachine = \"zen5\"\npolicy = \"base\"\n",
        trace.display()
    );
    let plan = plan_of(&text);
    fs::copy(format!("{corpus}/shuf.sp"), &trace).unwrap();
    let path = folder.path().join("sweep");
    let error = run(&plan, &path, &options("1/1"), &AtomicBool::new(false), &Seen::default()).unwrap_err();
    assert!(error.to_string().contains("has changed since the sweep began"), "{error}");
    assert!(cells(&path).is_empty());
}

#[test]
fn a_cell_with_an_error_is_kept_until_it_is_to_be_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    ran(path, &options("1/1")).unwrap();
    let rows = fs::read(path.join("rows.parquet")).unwrap();
    let all = cells(path);
    let kept = Kept::read(fs::read(&all[3]).unwrap()).unwrap();
    let notes = kept.notes.iter().filter(|(key, _)| key != "superpage.digest");
    let notes: Vec<(&str, String)> = notes.map(|(key, value)| (key.as_str(), value.clone())).collect();
    let mut runs = kept.runs.clone();
    runs.iter_mut().for_each(|run| run.row.error = Some("the disk was on fire".into()));
    fs::write(&all[3], keep(&runs, &notes).unwrap()).unwrap();
    let done = ran(path, &options("1/1")).unwrap();
    assert!(done.ran == 0 && done.failed[0].contains("on fire"), "{done:?}");
    let done = ran(path, &Options { repair: true, ..options("1/1") }).unwrap();
    assert_eq!((done.ran, done.failed.len()), (1, 0));
    assert_eq!(fs::read(path.join("rows.parquet")).unwrap(), rows);
}
