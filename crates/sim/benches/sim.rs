//! The numbers of DESIGN.md for the simulator, each beside what it is measured against, in the same
//! run.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use superpage_mmu::Machine;
use superpage_sim::{Conditions, Row, Setup, plan, plan_machines, run};
use superpage_trace::file::Reader;
use superpage_trace::{Batch, Source, workload};

/// So many times ours and the reference are timed, one after the other. Medians count, for others
/// use the machine too.
const PAIRS: usize = 9;

/// What pairs of measurements say: the medians of ours, of the reference, and of the quotient of
/// each pair.
struct Pairs {
    ours: f64,
    reference: f64,
    quotient: f64,
}

/// The seconds that both take.
fn pairs(mut ours: impl FnMut(), mut reference: impl FnMut()) -> Pairs {
    let seconds = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    let times: Vec<(f64, f64)> = (0..PAIRS).map(|_| (seconds(&mut ours), seconds(&mut reference))).collect();
    let median = |value: fn(&(f64, f64)) -> f64| {
        let mut values: Vec<f64> = times.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[PAIRS / 2]
    };
    Pairs { ours: median(|pair| pair.0), reference: median(|pair| pair.1), quotient: median(|pair| pair.0 / pair.1) }
}

/// Loads of random words of 256 MB, as `random` does them.
struct Native(Vec<u64>);

impl Native {
    fn load(&self, references: u64) {
        let mask = self.0.len() as u64 - 1;
        let (mut state, mut sum) = (1u64, 0u64);
        for _ in 0..references {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            sum = sum.wrapping_add(self.0[(state >> 20 & mask) as usize]);
        }
        black_box(sum);
    }
}

/// One machine and one policy, without `base` beside it unless that is the policy.
fn point(machine: &str, policy: &str) -> Vec<Setup> {
    let setups = plan(&[machine.into()], &[policy.into()], &Conditions::default()).expect("built-in names");
    setups.into_iter().rev().take(1).collect()
}

fn simulate(setups: &[Setup], mut source: Box<dyn Source>) -> Vec<Row> {
    run(setups, source.as_mut(), &AtomicBool::new(false), &|_| {}).expect("the stream is sound")
}

/// Runs `work` on that many threads.
fn on<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads start").install(work)
}

fn row(what: &str, ours: String, reference: String, figure: &str) {
    println!("{what:<66} | {ours:>14} | {reference:>22} | {figure}");
}

fn corpus() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus");
    let mut traces: Vec<PathBuf> = std::fs::read_dir(folder)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    traces.retain(|path| path.extension().is_some_and(|extension| extension == "sp"));
    traces.sort();
    traces
}

/// 64 machines of four makes, whose second-level TLBs have from 256 to 8192 entries.
fn machines() -> Vec<Machine> {
    let mut machines = Vec::new();
    for name in ["skylake-sp", "golden-cove", "zen4", "zen5"] {
        let machine = Machine::builtin(name).expect("a built-in machine");
        for step in 1..=16 {
            let mut machine = machine.clone();
            for tlb in machine.tlb.iter_mut().filter(|tlb| tlb.level == 2) {
                tlb.entries = tlb.ways() * 8 * step;
            }
            machine.name = format!("{name}-{step}");
            machines.push(machine);
        }
    }
    machines
}

/// Twelve policies of all kinds.
const POLICIES: [&str; 12] = [
    "base",
    "reservation",
    "reservation:preempt=off",
    "reservation:stepwise=off",
    "reservation:demote-on-write=off",
    "reservation:promote=never",
    "freebsd",
    "freebsd:promote=never",
    "talluri-hill",
    "thp",
    "mthp",
    "reservation:pieces=free",
];

fn main() {
    // `cargo test --benches` only looks whether it runs.
    let scale = if std::env::args().any(|argument| argument == "--bench") { 1 } else { 100 };
    let references = 20_000_000 / scale;
    row("what", "ours".into(), "reference".into(), "ours of the reference; to beat");
    let native = Native(vec![1; (256 << 20) / 8]);
    let random = format!("random:bytes=256M,references={references}");
    let parse = |text: &str| workload::parse(text).expect("a built-in workload");
    let rate = |count: f64, time: f64| format!("{:.1} M/s", count / time / 1e6);
    for machine in ["skylake-sp", "golden-cove", "zen5", "neoverse-v2", "alpha-21264"] {
        for threads in [1, 2] {
            let setups = point(machine, "base");
            let ours = || on(threads, || drop(black_box(simulate(&setups, parse(&random)))));
            let Pairs { ours, reference, quotient } = pairs(ours, || native.load(references));
            row(
                &format!("random 256M, {machine}, base, stream included, {threads} threads"),
                rate(references as f64, ours),
                format!("{} native", rate(references as f64, reference)),
                &format!("{:.2} x; 0.9 x with AVX-512, 0.5 x without", 1.0 / quotient),
            );
        }
    }

    let traces = corpus();
    if traces.is_empty() {
        println!("no recorded programs: `make corpus` makes them");
        return;
    }
    let open = |path: &PathBuf| Box::new(Reader::open(path).expect("the corpus is whole")) as Box<dyn Source>;
    let all_of = |work: &dyn Fn(&Batch)| {
        for path in &traces {
            let (mut source, mut batch) = (open(path), Batch::default());
            while source.fill(&mut batch).expect("the corpus is whole") {
                work(&batch);
            }
        }
    };
    let accesses = std::cell::Cell::new(0);
    all_of(&|batch| {
        let more: u64 = batch.runs.iter().map(|run| u64::from(run.references)).sum();
        accesses.set(accesses.get() + more);
    });
    for machine in ["golden-cove", "zen5"] {
        let setups = point(machine, "reservation");
        let ours = || on(1, || traces.iter().for_each(|path| drop(black_box(simulate(&setups, open(path))))));
        let Pairs { ours, reference, quotient } = pairs(ours, || all_of(&|batch| _ = black_box(batch.runs.len())));
        row(
            &format!("the corpus, {machine}, reservation, 1 thread: {} programs, accesses", traces.len()),
            rate(accesses.get() as f64, ours),
            format!("{} decoded", rate(accesses.get() as f64, reference)),
            &format!("{quotient:.1} x; 600 M/s, 1.8 x"),
        );
    }

    let largest = traces.iter().max_by_key(|path| path.metadata().map_or(0, |data| data.len())).expect("not empty");
    let name = largest.file_stem().unwrap_or_default().to_string_lossy();
    let plan = |machines: &[Machine], policies: &[&str]| {
        let policies: Vec<String> = policies.iter().map(ToString::to_string).collect();
        plan_machines(machines, &policies, &Conditions::default()).expect("sound")
    };
    let (one, all) = (plan(&machines()[..1], &["base"]), plan(&machines(), &["base"]));
    let run_on_one = |setups: &[Setup], path: &PathBuf| on(1, || drop(black_box(simulate(setups, open(path)))));
    let Pairs { ours, reference, quotient } = pairs(|| run_on_one(&all, largest), || run_on_one(&one, largest));
    row(
        &format!("64 machines in one pass over {name}, 1 thread"),
        format!("{ours:.2} s"),
        format!("{reference:.2} s for one"),
        &format!("{quotient:.1} x; 4 x"),
    );
    let few: Vec<Machine> = machines().into_iter().skip(16).step_by(2).take(8).collect();
    let (grid, alone) =
        (plan(&few, &POLICIES), few.iter().map(|machine| plan(std::slice::from_ref(machine), &POLICIES)));
    let alone: Vec<Setup> = alone.flatten().collect();
    let Pairs { ours, reference, quotient } = pairs(
        || run_on_one(&grid, largest),
        || alone.iter().for_each(|setup| run_on_one(std::slice::from_ref(setup), largest)),
    );
    row(
        &format!("12 policies x 8 machines in one pass over {name}, 1 thread"),
        format!("{ours:.2} s"),
        format!("{reference:.2} s one by one"),
        &format!("{quotient:.2} x; 0.1 x"),
    );
}
