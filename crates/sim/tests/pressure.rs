//! Memory from half to one and a half times the working set, under every policy.

use std::sync::atomic::AtomicBool;
use superpage_sim::{Conditions, Row, plan, policies, run};
use superpage_trace::workload;

/// Anonymous memory and files, read and written, in turn and at once.
const WORKLOADS: [&str; 6] = [
    "zipf:bytes=4M,references=30K",
    "random:bytes=4M,references=5K",
    "touch:bytes=4M",
    "cmp:bytes=2M",
    "dirty-file:bytes=4M,every=4",
    "cmp:bytes=1M+zipf:bytes=2M,references=20K@slice=2K",
];

/// Memory in percent of the working set.
const STEPS: [u64; 5] = [50, 75, 100, 125, 150];

fn rows(workload: &str, machine: &str, memory: Option<u64>, threads: usize) -> Vec<Row> {
    let names: Vec<String> = policies().map(ToString::to_string).collect();
    let setups = plan(&[machine.into()], &names, &Conditions { memory, ..Conditions::default() }).unwrap();
    let mut source = workload::parse(workload).unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| run(&setups, source.as_mut(), &AtomicBool::new(false), &|_| {}).unwrap())
}

/// For each step, the rows of all policies, `base` first.
fn curve(workload: &str, machine: &str, threads: usize) -> Vec<Vec<Row>> {
    let set = rows(workload, machine, None, threads)[0].peak_resident_bytes;
    STEPS.map(|percent| rows(workload, machine, Some(set * percent / 100), threads)).to_vec()
}

/// At every step the policy does at most a third worse than `base` there, or no worse than that
/// does with a quarter of the working set less: its curve falls where that of `base` does.
fn no_cliff(workload: &str, curve: &[Vec<Row>], what: &str, of: impl Fn(&Row) -> f64) {
    for (step, here) in curve.iter().enumerate() {
        let base = of(&here[0]);
        // `trident` takes a page of 4 MB, which is all of memory here, and has to break it: that is
        // its cliff.
        for row in here[1..].iter().filter(|row| row.policy != "trident") {
            let less = step.checked_sub(1).map_or(0.0, |before| of(&curve[before][0]));
            assert!(
                of(row) <= base * 4.0 / 3.0 || of(row) <= less,
                "{workload}, {} on {} with memory for {} %: {what} {}, base has {base}, and {less} with less memory",
                row.policy,
                row.machine,
                STEPS[step],
                of(row)
            );
        }
    }
}

#[test]
fn no_policy_has_a_cliff_that_base_has_not_and_no_frame_is_lost() {
    for workload in WORKLOADS {
        let curve = curve(workload, "alpha-21264", 2);
        for row in curve.iter().flatten() {
            assert_eq!((row.frames_leaked, &row.error), (0, &None), "{workload} {}", row.policy);
            assert_eq!(row.bytes_written, row.page_outs * 8192);
        }
        no_cliff(workload, &curve, "time", |row| row.seconds);
        no_cliff(workload, &curve, "faults", |row| row.faults as f64);
        no_cliff(workload, &curve, "pages read", |row| row.page_ins as f64);
        for row in curve.last().unwrap() {
            assert_eq!(
                (row.evictions, row.io_requests > 0),
                (0, workload.contains("dirty")),
                "{workload} {}",
                row.policy
            );
        }
    }
}

#[test]
fn the_counts_under_pressure_are_the_same_with_any_number_of_threads() {
    for (workload, machine) in WORKLOADS[3..].iter().zip(["alpha-21264", "neoverse-v2", "alpha-21264"]) {
        assert_eq!(curve(workload, machine, 1), curve(workload, machine, 2), "{workload}");
    }
}
