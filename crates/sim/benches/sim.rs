//! The numbers of DESIGN.md for the simulator, each beside what it is measured against, in the same run.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use superpage_mmu::Machine;
use superpage_sim::{Conditions, Row, Setup, plan, plan_machines, run};
use superpage_trace::file::Reader;
use superpage_trace::{Batch, Source, workload};

/// The fastest of so many rounds counts, for others use the machine too.
const ROUNDS: usize = 3;

fn seconds(mut round: impl FnMut()) -> f64 {
    let times = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        round();
        start.elapsed().as_secs_f64()
    });
    times.fold(f64::INFINITY, f64::min)
}

/// Loads of random words of 256 MB, as `random` does them, on this machine: millions a second.
fn native(references: u64) -> f64 {
    let words = vec![1u64; (256 << 20) / 8];
    let mask = words.len() as u64 - 1;
    let mut state = 1u64;
    let time = seconds(|| {
        let mut sum = 0u64;
        for _ in 0..references {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            sum = sum.wrapping_add(words[(state >> 20 & mask) as usize]);
        }
        black_box(sum);
    });
    references as f64 / time / 1e6
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
    println!("{what:<64} | {ours:>14} | {reference:>22} | {figure}");
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

fn main() {
    // `cargo test --benches` only looks whether it runs.
    let scale = if std::env::args().any(|argument| argument == "--bench") { 1 } else { 100 };
    let references = 50_000_000 / scale;
    row("what", "ours".into(), "reference".into(), "figure of DESIGN.md");
    let loads = native(references);
    let random = format!("random:bytes=256M,references={references}");
    let parse = |text: &str| workload::parse(text).expect("a built-in workload");
    for machine in ["skylake-sp", "golden-cove", "zen5", "neoverse-v2", "alpha-21264"] {
        for threads in [1, 2] {
            let setups = point(machine, "base");
            let time = on(threads, || seconds(|| drop(black_box(simulate(&setups, parse(&random))))));
            let ours = format!("{:.1} M refs/s", references as f64 / time / 1e6);
            let what = format!("random 256M, {machine}, base, stream included, {threads} threads");
            row(&what, ours, format!("{loads:.1} M loads/s native"), "at least native, toward 100");
        }
    }

    let traces = corpus();
    if traces.is_empty() {
        println!("no recorded programs: `make corpus` makes them");
        return;
    }
    let setups = point("golden-cove", "reservation");
    let (mut accesses, mut runs, mut time, mut decode) = (0, 0, 0.0, 0.0);
    for path in &traces {
        let open = || Box::new(Reader::open(path).expect("the corpus is whole")) as Box<dyn Source>;
        decode += seconds(|| {
            let (mut source, mut batch) = (open(), Batch::default());
            while source.fill(&mut batch).expect("the corpus is whole") {
                black_box(&batch);
            }
        });
        let (mut source, mut batch) = (open(), Batch::default());
        while source.fill(&mut batch).expect("the corpus is whole") {
            runs += batch.runs.len();
            accesses += batch.runs.iter().map(|run| u64::from(run.references)).sum::<u64>();
        }
        time += on(1, || seconds(|| drop(black_box(simulate(&setups, open())))));
    }
    let rate = |count: f64, time: f64| format!("{:.0} M/s", count / time / 1e6);
    let what = format!("the corpus, golden-cove, reservation, 1 thread: {} programs, accesses", traces.len());
    row(&what, rate(accesses as f64, time), "-".into(), "at least 500 M/s");
    row("  the same in runs (reference: decoding alone)", rate(runs as f64, time), rate(runs as f64, decode), "-");

    let one = plan_machines(&machines()[..1], &["base".into()], &Conditions::default()).expect("sound");
    let all = plan_machines(&machines(), &["base".into()], &Conditions::default()).expect("sound");
    let largest = traces.iter().max_by_key(|path| path.metadata().map_or(0, |data| data.len())).expect("not empty");
    let open = || Box::new(Reader::open(largest).expect("the corpus is whole")) as Box<dyn Source>;
    let alone = seconds(|| drop(black_box(simulate(&one, open()))));
    let together = seconds(|| drop(black_box(simulate(&all, open()))));
    let name = largest.file_stem().unwrap_or_default().to_string_lossy();
    let what = format!("64 machines in one pass over {name}, all threads");
    row(&what, format!("{:.1} x", together / alone), "one machine: 1 x".into(), "at most 4 x");
}
