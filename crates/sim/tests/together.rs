//! Machines on which a kernel does the same are simulated together: each row of a grid is the row that its machine and policy
//! have alone, to the last byte, with any number of threads.

use crate::script::Marked;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use superpage_mmu::{Host, Machine, Replacement, UseBit, Ways};
use superpage_sim::{Conditions, Run, Setup, Watch, plan_machines, run_parts};
use superpage_trace::{Sample, Sampling, Source, workload};

/// Four built-in machines with six variants of each: those share page tables, and some of them the first level, all TLBs, or all that is
/// counted. And overlays, some of them also with other walkers.
fn machines() -> Vec<Machine> {
    let variant = |machine: &Machine, name: &str, change: fn(&mut Machine)| {
        let mut machine = machine.clone();
        machine.name = format!("{} {name}", machine.name);
        change(&mut machine);
        machine
    };
    let mut all = Vec::new();
    for name in ["golden-cove", "zen5", "alpha-21264", "harpertown"] {
        let machine = Machine::builtin(name).unwrap();
        all.push(variant(&machine, "with a small second level", |machine| {
            for tlb in machine.tlb.iter_mut().filter(|tlb| tlb.level == 2) {
                (tlb.entries, tlb.ways) = (64, Ways::Of(4));
            }
            machine.walk_cache.truncate(1);
        }));
        all.push(variant(&machine, "with a small first level", |machine| {
            for tlb in machine.tlb.iter_mut().filter(|tlb| tlb.level == 1) {
                (tlb.entries, tlb.ways, tlb.replacement) = (8, Ways::Of(2), Replacement::Lru);
            }
        }));
        all.push(variant(&machine, "with a small walker", |machine| {
            machine.walk_cache.iter_mut().for_each(|cache| cache.entries = cache.entries.min(2));
            machine.line_cache.truncate(1);
        }));
        all.push(variant(&machine, "with other costs", |machine| {
            machine.clock.hertz /= 3;
            machine.costs.fault *= 2;
            machine.costs.zero_per_kb += 7;
            machine.memory.latency_cycles += 90;
            machine.disk.seek_microseconds += 5;
        }));
        all.push(variant(&machine, "that includes", |machine| {
            machine.tlb.iter_mut().filter(|tlb| tlb.level == 2).for_each(|tlb| tlb.inclusive = true);
            machine.line_cache.truncate(1);
        }));
        all.push(variant(&machine, "as a guest", |machine| {
            machine.host = Some(Host::default());
        }));
        all.push(machine);
    }
    // Overlays: some share page tables with the machine that they are laid on, some have tables of their own.
    let overlays = [
        "coalescing",
        "colt",
        "partial-subblock",
        "complete-subblock",
        "perforated",
        "nested",
        "nested-2m",
        "lru",
        "range",
        "clustered",
    ];
    all.extend(overlays.map(|overlay| Machine::builtin(&format!("zen5+{overlay}")).unwrap()));
    for overlay in ["coalescing", "perforated", "nested", "range", "clustered"] {
        all.push(variant(&Machine::builtin(&format!("zen5+{overlay}")).unwrap(), "with another walker", |machine| {
            machine.walk_cache.truncate(1);
            machine.line_cache.truncate(1);
        }));
    }
    all.push(variant(&Machine::builtin("zen5+coalescing").unwrap(), "if the bits agree", |machine| {
        for joins in machine.tlb.iter_mut().filter_map(|tlb| tlb.joins.as_mut()) {
            joins.alike = vec![UseBit::Referenced, UseBit::Dirty];
        }
    }));
    all
}

/// Policies that machines can share a kernel under, and some that ask for time, misses or idle digests.
const POLICIES: [&str; 10] = [
    "base",
    "reservation",
    "reservation:preempt=off",
    "reservation:hash=idle",
    "reservation:hash=read",
    "freebsd",
    "talluri-hill",
    "thp",
    "mthp",
    "promote",
];

const WORKLOADS: [&str; 6] = [
    "matrix:n=120",
    "tree:nodes=2000,operations=5K",
    "random:bytes=24M,references=30K",
    "zipf:bytes=8M,references=30K",
    "touch:bytes=20M",
    "touch:bytes=2M;random:bytes=2M,references=20K",
];

/// A stream in three marked parts, whole or a sample.
fn stream(text: &str, sampled: bool) -> Box<dyn Source> {
    let source = workload::parse(text).unwrap();
    match sampled {
        true => Box::new(Sample::new(source, Sampling { on: 2100, period: 10_000, seed: Some(7) })),
        false => Box::new(Marked::new(source, 3)),
    }
}

fn runs(setups: &[Setup], source: &mut dyn Source, watch: Watch, threads: usize) -> Vec<Run> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| run_parts(setups, source, &AtomicBool::new(false), &|_| {}, &watch).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn each_row_is_that_of_its_machine_and_policy_alone(
        (first, near) in (0..machines().len(), prop::sample::subsequence((0..7).collect::<Vec<_>>(), 2..5)),
        far in prop::sample::subsequence((0..machines().len()).collect::<Vec<_>>(), 0..3),
        policies in prop::sample::subsequence(POLICIES.to_vec(), 1..4),
        workload in prop::sample::select(WORKLOADS.to_vec()),
        (sampled, scarce, samples) in (any::<bool>(), any::<bool>(), prop::bool::weighted(0.2)),
    ) {
        // Those that are near each other are mostly of one make, so that they share TLBs.
        let all = machines();
        let which: BTreeSet<usize> = near.iter().map(|near| (first + near) % all.len()).chain(far).collect();
        let machines: Vec<Machine> = which.into_iter().map(|which| all[which].clone()).collect();
        let memory = if scarce { 12 << 20 } else { 128 << 20 };
        let conditions = Conditions { memory: Some(memory), ..Conditions::default() };
        let policies: Vec<String> = policies.into_iter().map(String::from).collect();
        let watch = Watch { sample_seconds: samples.then_some(1e-3), ..Watch::default() };
        let setups = plan_machines(&machines, &policies, &conditions).unwrap();
        let together = [1, 2].map(|threads| runs(&setups, stream(workload, sampled).as_mut(), watch, threads));
        prop_assert_eq!(&together[0], &together[1]);
        for machine in &machines {
            for policy in &policies {
                // Only `base` is always with it, to compare with: under another policy, so with a kernel of its own.
                let alone = plan_machines(std::slice::from_ref(machine), std::slice::from_ref(policy), &conditions).unwrap();
                let alone = runs(&alone, stream(workload, sampled).as_mut(), watch, 1);
                for run in alone {
                    let of = |other: &&Run| (&other.row.machine, &other.row.policy) == (&run.row.machine, &run.row.policy);
                    prop_assert_eq!(together[0].iter().find(of), Some(&run));
                }
            }
        }
    }
}
