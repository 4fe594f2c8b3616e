//! Threads on cores, as an axis of a sweep.

mod common;

use common::{Seen, cells, options, plan_of};
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use superpage_pages::{Access, Protection};
use superpage_sim::{Conditions, Kept, Row, Watch, plan, run_parts};
use superpage_sweep::{Done, Plan, Sweep, run};
use superpage_trace::file::{Reader, Writer};
use superpage_trace::{Backing, Batch, Cores, Event, Growth, Info, ProcessId, Run};

/// A trace of four threads that touch pages of one mapping in turn.
fn threads(path: &Path) {
    let info = Info { workload: "threads".into(), ..Info::default() };
    let mut writer = Writer::create(path, &info, &[]).unwrap();
    let mut batch = Batch::default();
    let switch = |thread| Event::Switch { process: ProcessId(0), thread };
    batch.event(switch(0));
    let (protection, backing, growth) = (Protection::READ_WRITE, Backing::Anonymous, Growth::Fixed);
    batch.event(Event::Map { start: 0x1000, pages: 4000, protection, shared: false, backing, growth });
    for piece in 0..8 {
        for thread in 0..4 {
            batch.event(switch(thread));
            let first = 0x1000 + 1000 * u64::from(thread);
            (0..900).for_each(|page| batch.run(Run::new(first + (page * 7 + piece) % 1000, Access::Write, 1, 3)));
        }
    }
    batch.event(switch(0));
    batch.event(Event::Exit);
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
}

fn text(trace: &Path, more: &str) -> String {
    let trace = trace.display();
    format!(
        "[sweep]\nname = \"cores\"\n[axes]\ntrace = \"{trace}\"\nmachine = [\"zen5\", \"neoverse-v2\"]\n\
         policy = \"thp\"\nmemory = \"64M\"\n{more}\n"
    )
}

fn ran(plan: &Plan, folder: &Path) -> Done {
    run(plan, folder, &options("1/1"), &AtomicBool::new(false), &Seen::default()).unwrap()
}

/// The rows of a call of `sim`.
fn alone(trace: &Path, cores: Option<Cores>) -> Vec<Row> {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let conditions = Conditions { memory: Some(64 << 20), ..Conditions::default() };
    let setups = plan(&names(&["zen5", "neoverse-v2"]), &names(&["thp"]), &conditions).unwrap();
    let watch = Watch { cores, ..Watch::default() };
    let stop = AtomicBool::new(false);
    let runs = run_parts(&setups, &mut Reader::open(trace).unwrap(), &stop, &|_| {}, &watch).unwrap();
    runs.into_iter().map(|run| run.row).collect()
}

#[test]
fn each_number_of_cores_has_cells_of_its_own_with_the_rows_of_sim() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("threads.sp");
    threads(&trace);
    let expected: Vec<Row> = [None, Some(1), Some(4)]
        .map(|number| alone(&trace, number.map(|number| Cores { quantum: 2000, ..Cores::new(number) })))
        .concat();
    let plan = plan_of(&text(&trace, "cores = [\"none\", 1, 4]"));
    let without = plan_of(&text(&trace, ""));
    // Quanta that are not said are those of `sim`.
    let usual: Vec<Row> = [1, 4].map(|number| alone(&trace, Some(Cores::new(number)))).concat();
    let out = folder.path().join("out");
    ran(&plan, &out);
    let rows = rows_of(&out);
    let of = |most: u64| rows.iter().filter(|row| row.most_cores == most).count();
    assert_eq!((rows.len(), of(0), of(1), of(4)), (12, 4, 4, 4));
    let counts = |row: &Row| (row.tlb_misses, row.cycles, row.faults, row.shootdowns, row.cores, row.elapsed_seconds);
    let same = |row: &Row, all: &[Row]| {
        let is = |other: &&Row| {
            (&other.machine, &other.policy, other.most_cores) == (&row.machine, &row.policy, row.most_cores)
        };
        assert_eq!(counts(row), counts(all.iter().find(is).expect("a row of sim")));
    };
    rows.iter().filter(|row| row.most_cores > 0).for_each(|row| same(row, &usual));
    rows.iter().filter(|row| row.most_cores == 0).for_each(|row| same(row, &expected));
    // What was without cores is the cell that it was.
    let names = |plan: &Plan| plan.cell_names().map(|(name, _)| name.to_string()).collect::<Vec<_>>();
    assert!(names(&without).iter().all(|name| names(&plan).contains(name)));
    // Nothing runs again, and another quantum is another cell.
    assert_eq!(ran(&plan, &out).ran, 0);
    let turns = plan_of(&text(&trace, "cores = [1, 4]\nquantum = [\"2K\", \"10M\"]"));
    let shorter = folder.path().join("turns");
    ran(&turns, &shorter);
    let rows = rows_of(&shorter);
    assert_eq!(rows.len(), 16);
    rows.iter().filter(|row| row.quantum == 2000).for_each(|row| same(row, &expected));
    rows.iter().filter(|row| row.quantum == Cores::QUANTUM).for_each(|row| same(row, &usual));
    let both = plan_of(&text(&trace, "cores = 3\nmigrate = [false, true]"));
    let migrated = folder.path().join("migrated");
    ran(&both, &migrated);
    let migrate = rows_of(&migrated).iter().map(|row| row.migrate).filter(|migrate| *migrate).count();
    assert_eq!((both.cells(), migrate), (8, 4));
}

/// All rows of a folder's cells.
fn rows_of(folder: &Path) -> Vec<Row> {
    let kept = cells(folder).into_iter().map(|cell| Kept::read(fs::read(cell).unwrap()).unwrap());
    kept.flat_map(|kept| kept.runs).map(|run| run.row).collect()
}

#[test]
fn cells_of_one_stream_on_as_many_cores_share_a_pass() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("threads.sp");
    threads(&trace);
    let plan = plan_of(&text(&trace, "cores = [2, 4]\nseed = [1, 2]\nfragment = 0.5"));
    let passes: Vec<usize> = plan.cell_names().map(|(_, pass)| pass).collect();
    let of = |pass: usize| passes.iter().filter(|of| **of == pass).count();
    assert_eq!((of(0), of(1), passes.len()), (passes.len() / 2, passes.len() / 2, passes.len()));
    let stop = AtomicBool::new(false);
    let places = |pass: usize| (0..passes.len()).filter(|place| passes[*place] == pass).collect::<Vec<_>>();
    assert_eq!(plan.run_cells(&places(1), &stop).unwrap().unwrap().len(), of(1));
    assert!(plan.run_cells(&[places(0)[0], places(1)[0]], &stop).is_err());
    assert_eq!(plan.traces().collect::<Vec<_>>(), [trace.to_str().unwrap()]);
}

#[test]
fn what_cannot_have_cores_is_refused_before_anything_runs() {
    let refused = |axes: &str| {
        let text = format!("[sweep]\nname = \"cores\"\n[axes]\npolicy = \"base\"\n{axes}\n");
        Sweep::of_text(&text, "cores.toml").and_then(|sweep| Plan::new(sweep, &[])).err().map(|error| error.to_string())
    };
    let touch = "workload = \"touch:bytes=64K\"\n";
    let sampled = concat!("trace = \"", env!("CARGO_MANIFEST_DIR"), "/../../corpus/povray.sp\"\nmachine = \"zen5\"\n");
    for (axes, why) in [
        (format!("{sampled}cores = [1, 2]"), "an old sample"),
        (format!("{sampled}cores = 1\nmigrate = true"), "leave out --migrate"),
        (format!("{touch}machine = \"alpha-21264\"\ncores = [1, 2]"), "machine alpha-21264: it has 1 core, not 2"),
        (format!("{touch}machine = [\"zen5\", \"ppc604\"]\ncores = 2"), "machine ppc604: software refills"),
        (format!("{touch}machine = \"zen5\"\nquantum = 5"), "axes.quantum: is of threads on cores"),
        (format!("{touch}machine = \"zen5\"\ncores = [\"none\", 2]\nquantum = 5"), "give axes.cores, without none"),
        (format!("{touch}machine = \"zen5\"\nmigrate = true"), "axes.migrate: is of threads on cores"),
        (format!("{touch}machine = \"zen5\"\ncores = 2\nmigrate = 1"), "axes.migrate: 1: "),
        (format!("{touch}machine = \"zen5\"\ncores = 0"), "axes.cores: 0: expected a number from 1 to 4096, or none"),
        (format!("{touch}machine = \"zen5\"\ncores = 2\nquantum = 0"), "axes.quantum: 0: expected"),
        (
            format!("{touch}machine = \"zen5\"\ncores = 2\nquantum = [\"10M\", 10000000]"),
            "axes.quantum: 10M and 10000000 are the same",
        ),
    ] {
        let problem = refused(&axes);
        assert!(problem.as_ref().is_some_and(|problem| problem.contains(why)), "{axes}: {problem:?}");
    }
    assert_eq!(refused(&format!("{sampled}cores = 1")), None);
    assert_eq!(refused(&format!("{touch}machine = [\"alpha-21264\", \"ppc604\"]\ncores = [\"none\", 1]")), None);
}
