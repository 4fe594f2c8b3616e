//! How long a sweep will take: by the cells that ran, or by a moment of each stream.

mod common;

use common::{cells, options, plan, plan_of, ran};
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use superpage_sim::{Kept, keep};
use superpage_sweep::{Estimate, Options, Plan, estimate};

fn estimated(plan: &Plan, path: &Path, options: &Options) -> Estimate {
    estimate(plan, path, options, &AtomicBool::new(false)).unwrap()
}

/// The note with the seconds that a cell took.
const SECONDS: &str = "superpage.seconds";

/// Leaves the cells of a workload for which there are seconds here, and removes its others: each
/// says that it took so long, or nothing.
fn leave(path: &Path, workload: &str, seconds: &[Option<f64>]) {
    let mut seconds = seconds.iter();
    for cell in cells(path) {
        let kept = Kept::read(fs::read(&cell).unwrap()).unwrap();
        if kept.runs[0].row.workload != workload {
            continue;
        }
        let Some(seconds) = seconds.next() else {
            fs::remove_file(&cell).unwrap();
            continue;
        };
        // The file that is made has a digest of its own.
        let others = kept.notes.iter().filter(|(key, _)| key != "superpage.digest" && key != SECONDS);
        let others = others.map(|(key, value)| (key.as_str(), value.clone()));
        let notes: Vec<_> = others.chain(seconds.map(|seconds| (SECONDS, seconds.to_string()))).collect();
        fs::write(&cell, keep(&kept.runs, &notes).unwrap()).unwrap();
    }
}

#[track_caller]
fn close(estimate: &Estimate, expected: f64) {
    let seconds = estimate.seconds.unwrap();
    assert!((seconds - expected).abs() < 1e-6 * expected, "{estimate:?}, expected {expected} s");
}

#[test]
fn cells_take_as_long_as_others_over_their_stream_took() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    ran(path, &options("1/1")).unwrap();
    leave(path, "touch:bytes=64K", &[Some(100.0), Some(300.0), None]);
    leave(path, "touch:bytes=128K", &[Some(1000.0)]);
    // One over the first stream and three over the other are missing.
    let found = estimated(&plan(), path, &options("1/1"));
    assert_eq!((found.cells, found.rows, found.shard_cells, found.there), (8, 8, 8, 4));
    assert_eq!((found.measured, found.tried, found.differs.clone()), (3, 0, None));
    assert!(found.overhead > 0.0);
    close(&found, (200.0 + 3.0 * 1000.0 + 4.0 * found.overhead) / 2.0);
    // No more at a time than there are, and one at least.
    let many = estimated(&plan(), path, &Options { jobs: 100, ..options("1/1") });
    close(&many, (200.0 + 3.0 * 1000.0) / 4.0 + many.overhead);
    let none = estimated(&plan(), path, &Options { jobs: 0, ..options("1/1") });
    close(&none, 200.0 + 3.0 * 1000.0 + 4.0 * none.overhead);
    // A shard has its cells, and learns from all.
    let shards = ["1/2", "2/2"].map(|shard| estimated(&plan(), path, &Options { jobs: 1, ..options(shard) }));
    assert_eq!(shards.each_ref().map(|shard| (shard.shard_cells, shard.measured)), [(4, 3); 2]);
    assert_eq!(shards[0].there + shards[1].there, 4);
    let all: f64 = shards.iter().map(|shard| shard.seconds.unwrap() - shard.overhead * (4 - shard.there) as f64).sum();
    assert!((all - 3200.0).abs() < 1e-3, "{shards:?}");
}

#[test]
fn a_stream_of_which_no_cell_was_measured_is_tried() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    ran(path, &options("1/1")).unwrap();
    leave(path, "touch:bytes=64K", &[Some(1000.0); 3]);
    leave(path, "touch:bytes=128K", &[]);
    let found = estimated(&plan(), path, &Options { jobs: 1, ..options("1/1") });
    assert_eq!((found.there, found.measured, found.tried), (3, 3, 1));
    // What was tried takes far less.
    let tried = found.seconds.unwrap() - 1000.0 - 5.0 * found.overhead;
    assert!(tried > 0.0 && tried < 200.0, "{found:?}");
    // Where nothing may be tried, it is as of all that were measured.
    let found = estimate(&plan(), path, &options("1/1"), &AtomicBool::new(true)).unwrap();
    assert_eq!(found.tried, 0);
    close(&found, (5.0 * 1000.0 + 5.0 * found.overhead) / 2.0);
}

#[test]
fn a_sweep_that_has_not_begun_is_tried_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new");
    let found = estimated(&plan(), &path, &options("1/1"));
    assert_eq!((found.cells, found.shard_cells, found.there, found.measured, found.tried), (8, 8, 0, 0, 2));
    assert!(found.overhead > 0.0 && found.seconds.unwrap() > 4.0 * found.overhead, "{found:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let stopped = estimate(&plan(), &path, &options("1/1"), &AtomicBool::new(true)).unwrap();
    assert_eq!((stopped.tried, stopped.seconds), (0, None));
}

#[test]
fn a_stream_is_tried_for_a_moment_and_scaled_by_how_much_of_it_that_was() {
    let folder = tempfile::tempdir().unwrap();
    let of = |references: &str| {
        let workload = format!("random:bytes=1M,references={references}");
        let text = format!(
            "[sweep]\nname = \"long\"\n[axes]\nworkload = \"{workload}\"\nmachine = \"zen5\"\npolicy = [\"base\", \"thp\"]\n"
        );
        estimated(&plan_of(&text), folder.path(), &Options { jobs: 1, ..options("1/1") }).seconds.unwrap()
    };
    // Years of simulation, of which some 500 ms are run; and ten times as many.
    let (long, longer) = (of("100000G"), of("1000000G"));
    assert!(long > 1e4 && longer > long, "{long} s, and ten times {longer} s");
}

#[test]
fn of_a_sweep_that_has_all_cells_nothing_is_left_and_another_differs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    ran(path, &options("1/1")).unwrap();
    let found = estimated(&plan(), path, &options("1/1"));
    assert_eq!((found.there, found.measured, found.tried, found.overhead), (8, 8, 0, 0.0));
    assert_eq!((found.seconds, found.differs), (Some(0.0), None));
    let other = plan_of(
        "[sweep]\nname = \"small\"\n[axes]\nworkload = \"touch:bytes=64K\"\nmachine = \"zen5\"\npolicy = \"base\"\n\
         memory = \"64M\"\n",
    );
    let found = estimated(&other, path, &options("1/1"));
    assert!(found.differs.unwrap().contains("is of another sweep"));
}
