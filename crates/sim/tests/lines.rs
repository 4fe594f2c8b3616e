//! Data in the caches of page tables: TLBs count as without, grids as one by one, and what cannot
//! be is refused.

use std::sync::atomic::AtomicBool;
use superpage_mmu::Machine;
use superpage_sim::{Conditions, Row, Setup, Watch, plan, plan_machines, run_parts};
use superpage_trace::{Source, workload};

const WITH: Watch = Watch { lines: true, every: None, contiguity: false, cores: None };

fn rows(setups: &[Setup], source: &mut dyn Source, watch: &Watch) -> Vec<Row> {
    let runs = run_parts(setups, source, &AtomicBool::new(false), &|_| (), watch).unwrap();
    runs.into_iter().map(|run| run.row).collect()
}

fn setups(machines: &[&str], policies: &[&str]) -> Vec<Setup> {
    let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
    let memory = Conditions { memory: Some(512 << 20), ..Conditions::default() };
    plan(&names(machines), &names(policies), &memory).unwrap()
}

const WORKLOADS: [&str; 7] = [
    "matrix:n=150,rounds=1",
    "tree:nodes=1000,operations=2K",
    "fftw:n=16",
    "zipf:bytes=8M,object=200,references=30K",
    "web:requests=200,first=5K,kept=100",
    "sp:n=12,steps=1",
    "cmp:bytes=1M",
];

#[test]
fn tlbs_and_the_kernel_count_the_same_with_lines() {
    // On a machine whose stores have no TLB of the first level, each run of stores is a miss of it,
    // and there are more of lines.
    let setups = setups(&["zen5", "alpha-21264", "golden-cove", "zen5+coalescing"], &["reservation", "thp", "promote"]);
    for text in WORKLOADS {
        let without = rows(&setups, &mut *workload::parse(text).unwrap(), &Watch::default());
        let with = rows(&setups, &mut *workload::parse_lines(text).unwrap(), &WITH);
        for (pages, lines) in without.into_iter().zip(with) {
            let caches = lines.caches.expect("lines were asked for");
            // The workloads that go through memory in order are prefetched, where there is a
            // prefetcher.
            assert_eq!(caches.l1d_prefetched > 0, lines.machine != "alpha-21264", "{text} on {}", lines.machine);
            assert!(lines.data_cycles > 0 && pages.caches.is_none() && pages.data_cycles == 0);
            // Policies with a clock see another time.
            if pages.policy == "promote" {
                continue;
            }
            let walks = lines.walk_cycles as i64 - pages.walk_cycles as i64;
            let expected = Row {
                caches: lines.caches,
                data_cycles: lines.data_cycles,
                walk_cycles: lines.walk_cycles,
                cycles: (pages.cycles as i64 + walks) as u64 + lines.data_cycles,
                seconds: lines.seconds,
                elapsed_seconds: lines.elapsed_seconds,
                speedup: lines.speedup,
                mean_bloat_percent: lines.mean_bloat_percent,
                mean_huge_percent: lines.mean_huge_percent,
                assumed: lines.assumed.clone(),
                ..pages
            };
            assert_eq!(lines, expected, "{text}");
        }
    }
}

#[test]
fn a_trace_with_lines_is_one_of_pages_without_the_switch() {
    let setups = setups(&["golden-cove", "neoverse-v2"], &["reservation"]);
    for text in WORKLOADS {
        let pages = rows(&setups, &mut *workload::parse(text).unwrap(), &Watch::default());
        let mut lines = rows(&setups, &mut *workload::parse_lines(text).unwrap(), &Watch::default());
        // A run is one moment, and those of lines are shorter.
        for (lines, pages) in lines.iter_mut().zip(&pages) {
            lines.mean_bloat_percent = pages.mean_bloat_percent;
            lines.mean_huge_percent = pages.mean_huge_percent;
        }
        assert_eq!(lines, pages, "{text}");
    }
}

#[test]
fn machines_together_are_those_alone() {
    let mut machines: Vec<Machine> =
        ["zen5", "zen4", "golden-cove", "zen5+nested"].map(|name| Machine::builtin(name).unwrap()).into();
    let mut small = machines[0].clone();
    small.name = "small caches".into();
    small.line_cache.iter_mut().zip([4 << 10, 16 << 10, 64 << 10]).for_each(|(cache, size)| {
        (cache.size, cache.ways) = (size, 4);
    });
    machines.push(small);
    let policies = ["reservation".to_string()];
    let plan = |machines: &[Machine]| plan_machines(machines, &policies, &Conditions::default()).unwrap();
    let text = "zipf:bytes=8M,object=64,references=50K";
    let together = rows(&plan(&machines), &mut *workload::parse_lines(text).unwrap(), &WITH);
    let alone = machines.iter().flat_map(|machine| {
        rows(&plan(std::slice::from_ref(machine)), &mut *workload::parse_lines(text).unwrap(), &WITH)
    });
    assert_eq!(together, alone.collect::<Vec<_>>());
    let of = |name: &str| together.iter().find(|row| row.machine == name).and_then(|row| row.caches).unwrap();
    assert!(of("small caches").memory_accesses > of("zen5").memory_accesses);
}

/// A region of 8 MB and its page-table entries, of 16 KB, in a cache of 32 KB: alone the entries
/// stay in it, beside the data they do not.
#[test]
fn data_push_page_tables_out_of_a_small_cache() {
    let mut machine = Machine::builtin("zen5").unwrap();
    machine.line_cache.truncate(1);
    (machine.line_cache[0].size, machine.line_cache[0].ways) = (32 << 10, 8);
    machine.tlb.iter_mut().for_each(|tlb| (tlb.entries, tlb.ways) = (8, superpage_mmu::Ways::Full));
    let setups = plan_machines(&[machine], &["base".into()], &Conditions::default()).unwrap();
    let text = "random:bytes=8M,references=100K";
    let without = rows(&setups, &mut *workload::parse(text).unwrap(), &Watch::default()).remove(0);
    let with = rows(&setups, &mut *workload::parse_lines(text).unwrap(), &WITH).remove(0);
    assert_eq!(with.walks, without.walks);
    assert!(with.walk_cycles > 2 * without.walk_cycles, "{} {}", with.walk_cycles, without.walk_cycles);
    assert!(with.caches.unwrap().walk_memory_accesses > 20_000);
}

#[test]
fn what_has_no_lines_is_refused() {
    let setups = setups(&["zen5"], &["base"]);
    let fails = |setups: &[Setup], source: &mut dyn Source| {
        run_parts(setups, source, &AtomicBool::new(false), &|_| (), &WITH).unwrap_err().to_string()
    };
    let error = fails(&setups, &mut *workload::parse("touch:bytes=64K").unwrap());
    assert!(error.contains("touch:bytes=64K: has pages and no lines"), "{error}");
    let mut bare = Machine::builtin("zen5").unwrap();
    bare.line_cache.clear();
    let bare = plan_machines(&[bare], &["base".into()], &Conditions::default()).unwrap();
    let error = fails(&bare, &mut *workload::parse_lines("touch:bytes=64K").unwrap());
    assert!(error.contains("machine zen5: it has no line caches"), "{error}");
}
