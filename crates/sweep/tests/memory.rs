//! Where memory runs short while cells run together, half of them run at a time, and what they
//! count is the same. A process of its own, since what watches memory is the process's.

mod common;

use common::{Seen, options, plan_of};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use superpage_sim::{Error, Limit, watch_memory};
use superpage_sweep::{Done, run};

/// Cells over one stream, each pass of which takes longer than it takes to look at memory once.
const SWEEP: &str = "[sweep]\nname = \"long\"\n[axes]\nworkload = \"random:bytes=32M,references=2M\"\nmachine = \"zen5\"\n\
    policy = [\"base\", \"thp\", \"reservation\", \"promote\"]\nmemory = [\"128M\", \"256M\"]\n";

/// So many looks at memory find it short.
static SHORT: AtomicUsize = AtomicUsize::new(0);

fn left() -> Vec<Limit> {
    let short = SHORT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |looks| looks.checked_sub(1)).is_ok();
    let bytes = if short { 1 << 20 } else { u64::MAX };
    vec![Limit { bytes, of: "this test's limit".into(), counts_untouched: false }]
}

fn ran(path: &Path) -> Result<Done, Error> {
    let options = superpage_sweep::Options { jobs: 1, ..options("1/1") };
    run(&plan_of(SWEEP), path, &options, &AtomicBool::new(false), &Seen::default())
}

#[test]
fn half_of_the_cells_run_at_a_time_where_memory_is_short() {
    watch_memory(left);
    let rows = |short: usize| {
        SHORT.store(short, Ordering::Relaxed);
        let folder = tempfile::tempdir().unwrap();
        let done = ran(folder.path()).unwrap();
        assert_eq!(SHORT.load(Ordering::Relaxed), 0, "no pass was long enough to look at memory");
        assert_eq!((done.ran, done.rows), (8, Some(8)));
        fs::read(folder.path().join("rows.parquet")).unwrap()
    };
    let whole = rows(0);
    // The first four of them, then two of these.
    assert!(rows(1) == whole);
    assert!(rows(2) == whole);
    // Four, two and one of them are too much at once, and that one is not when it runs last.
    assert!(rows(3) == whole);
    // Each is too much, though it runs alone: a sentence, and its folder goes on later.
    SHORT.store(usize::MAX, Ordering::Relaxed);
    let folder = tempfile::tempdir().unwrap();
    match ran(folder.path()) {
        Err(Error::Memory(problem)) => {
            assert!(problem.contains("a cell over random"), "{problem}");
            assert!(problem.contains("of this test's limit, while a row was"), "{problem}");
        }
        other => panic!("{other:?}"),
    }
    SHORT.store(0, Ordering::Relaxed);
    assert_eq!(ran(folder.path()).unwrap().rows, Some(8));
    assert!(fs::read(folder.path().join("rows.parquet")).unwrap() == whole);
}
