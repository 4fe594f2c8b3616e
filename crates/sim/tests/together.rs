//! Machines on which a kernel does the same are simulated together: each row of a grid is the row
//! that its machine and policy have alone, to the last byte, with any number of threads.

use crate::script::Marked;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use superpage_mmu::{Host, Machine, Replacement, UseBit, Ways};
use superpage_sim::{Conditions, Files, Fragment, Run, Setup, Watch, plan_machines, run_parts};
use superpage_trace::{Sample, Sampling, Source, workload};

/// Four built-in machines with six variants of each: those share page tables, and some of them the
/// first level, all TLBs, or all that is counted. And overlays, some of them also with other
/// walkers.
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
    // Overlays: some share page tables with the machine that they are laid on, some have tables of
    // their own.
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

/// Policies that machines can share a kernel under, and some that ask for time, misses or idle
/// digests.
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
    if sampled {
        Box::new(Sample::new(source, Sampling { on: 2100, period: 10_000, seed: Some(7) }))
    } else {
        Box::new(Marked::new(source, 3))
    }
}

fn runs(setups: &[Setup], source: &mut dyn Source, watch: Watch, threads: usize) -> Vec<Run> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| run_parts(setups, source, &AtomicBool::new(false), &|_| {}, &watch).unwrap())
}

/// Where two rows begin to differ, which are thousands of characters each.
fn first_difference(one: Option<&Run>, other: &Run) -> String {
    let (one, other) = (format!("{one:?}"), format!("{:?}", Some(other)));
    let alike = one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
    let near = |text: &str| text[alike.saturating_sub(60)..text.len().min(alike + 60)].to_string();
    format!("together {}\nalone {}", near(&one), near(&other))
}

/// Whether each row of the grid is that of its machine and policy alone, with 1, 2 and 4 threads.
fn each_is_as_alone(
    machines: &[Machine],
    policies: &[String],
    conditions: &Conditions,
    watch: Watch,
    stream: &dyn Fn() -> Box<dyn Source>,
) -> Result<(), TestCaseError> {
    let setups = plan_machines(machines, policies, conditions).unwrap();
    let together = [1, 2, 4].map(|threads| runs(&setups, stream().as_mut(), watch, threads));
    prop_assert_eq!(&together[0], &together[1]);
    prop_assert_eq!(&together[0], &together[2]);
    for machine in machines {
        for policy in policies {
            // Only `base` is always with it, to compare with: under another policy, so with a
            // kernel of its own.
            let alone = plan_machines(std::slice::from_ref(machine), std::slice::from_ref(policy), conditions).unwrap();
            for run in runs(&alone, stream().as_mut(), watch, 1) {
                let key = |run: &Run| (run.row.machine.clone(), run.row.policies());
                let same = together[0].iter().find(|other| key(other) == key(&run));
                prop_assert!(same == Some(&run), "{:?}: {}", key(&run), first_difference(same, &run));
            }
        }
    }
    Ok(())
}

/// Any machine with up to two overlays that fit it.
fn drawn() -> impl Strategy<Value = Machine> {
    let names: Vec<&str> = Machine::names().collect();
    let overlays: Vec<&str> = Machine::overlays().collect();
    let laid = prop::sample::subsequence(overlays, 0..3).prop_shuffle();
    (prop::sample::select(names), laid).prop_filter_map("overlays that do not fit", |(name, overlays)| {
        Machine::builtin(&std::iter::once(name).chain(overlays).collect::<Vec<_>>().join("+")).ok()
    })
}

/// Answers that a policy may be given beside its name.
const ANSWERS: [&str; 6] = ["", "threshold=4/8", "sizes=64K+2M", "promote=never", "reserve=largest", "cache=free"];

/// As many as the variable `PROPTEST_CASES` says, or a few.
fn cases() -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let usual = ProptestConfig::default();
    ProptestConfig { cases: if asked { usual.cases } else { 12 }, ..usual }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn so_it_is_of_any_machines_with_any_switches(
        machines in prop::collection::vec(drawn(), 1..5),
        policies in prop::collection::btree_map(prop::sample::select(POLICIES.to_vec()), prop::sample::select(ANSWERS.to_vec()), 1..3),
        workload in prop::sample::select(WORKLOADS.to_vec()),
        memory in prop::sample::select(vec![12u64, 48, 256]),
        (sampled, lines, contiguity, samples) in (any::<bool>(), any::<bool>(), any::<bool>(), prop::bool::weighted(0.2)),
        (fragmented, cold, hosted) in (any::<bool>(), any::<bool>(), any::<bool>()),
    ) {
        let conditions = Conditions {
            memory: Some(memory << 20),
            fragment: if fragmented { "0.5".parse().unwrap() } else { Fragment::default() },
            files: if cold { Files::Cold } else { Files::Warm },
            ..Conditions::default()
        };
        let policies: Vec<String> = policies.into_iter().map(|(name, more)| match more {
            "" => name.into(),
            more if name.contains(':') => format!("{name},{more}"),
            more => format!("{name}:{more}"),
        }).collect();
        let machines: BTreeMap<String, Machine> =
            machines.into_iter().map(|machine| (machine.name.clone(), machine)).collect();
        // Shadow superpages are for streams with lines, and guests alone can have hosts with
        // policies.
        let mut machines: Vec<Machine> =
            machines.into_values().filter(|machine| lines || machine.shadow.is_none()).collect();
        let guests = machines.iter().filter(|machine| machine.host.is_some()).count();
        // Where the host puts a line is not known where it has a policy.
        let hosted = hosted && !lines && guests > 0;
        if hosted {
            machines.retain(|machine| machine.host.is_some());
        }
        let conditions = Conditions { host_policies: if hosted { vec!["thp".into()] } else { Vec::new() }, ..conditions };
        machines.retain(|machine| plan_machines(std::slice::from_ref(machine), &policies, &conditions).is_ok());
        let every = samples.then_some(superpage_sim::Every::Seconds(1e-3));
        let watch = Watch { every, contiguity, lines, cores: None };
        let stream = || if lines { workload::parse_lines(workload).unwrap() } else { stream(workload, sampled) };
        if !machines.is_empty() {
            each_is_as_alone(&machines, &policies, &conditions, watch, &stream)?;
        }
    }

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
        let watch = Watch { every: samples.then_some(superpage_sim::Every::Seconds(1e-3)), ..Watch::default() };
        each_is_as_alone(&machines, &policies, &conditions, watch, &|| stream(workload, sampled))?;
    }
}
