//! Shadow superpages under a whole kernel: it does what it does without them, and streams without
//! lines are refused.

use std::sync::atomic::AtomicBool;
use superpage_sim::{Conditions, Row, Watch, plan, run_parts};
use superpage_trace::workload;

const WITH: Watch = Watch { lines: true, every: None, contiguity: false, cores: None };

fn rows(machines: &[&str], policies: &[&str], text: &str, memory: u64) -> Vec<Row> {
    let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
    let conditions = Conditions { memory: Some(memory), ..Conditions::default() };
    let setups = plan(&names(machines), &names(policies), &conditions).unwrap();
    let source = &mut *workload::parse_lines(text).unwrap();
    run_parts(&setups, source, &AtomicBool::new(false), &|_| (), &WITH)
        .unwrap()
        .into_iter()
        .map(|run| run.row)
        .collect()
}

/// Also where memory is short, and the page daemon goes by use bits; and where processes share
/// memory.
#[test]
fn the_kernel_does_the_same() {
    for (text, memory) in [
        ("tree:nodes=1000,operations=2K", 512 << 20),
        ("web:requests=200,first=5K,kept=100", 512 << 20),
        ("zipf:bytes=16M,object=200,references=30K", 8 << 20),
        ("share:bytes=2M,processes=3", 512 << 20),
        ("matrix:n=150,rounds=1", 512 << 20),
    ] {
        for machine in ["alpha-21264", "zen5"] {
            let shadow = format!("{machine}+shadow");
            let rows = rows(&[machine, &shadow], &["base", "reservation", "thp"], text, memory);
            let (plain, shadowed) = rows.split_at(3);
            for (plain, row) in plain.iter().zip(shadowed) {
                let remaps = row.shadow.unwrap();
                assert!(plain.shadow.is_none());
                if row.policy == "base" && machine != "zen5" {
                    assert!(remaps.promotions > 0 && row.tlb_misses <= plain.tlb_misses, "{text}: {remaps:?}");
                }
                // What the hardware counts, and what follows from that.
                let expected = Row {
                    machine: row.machine.clone(),
                    itlb_misses: row.itlb_misses,
                    dtlb_misses: row.dtlb_misses,
                    tlb_misses: row.tlb_misses,
                    first_level_dtlb_misses: row.first_level_dtlb_misses,
                    first_level_itlb_misses: row.first_level_itlb_misses,
                    second_level_dtlb_hits: row.second_level_dtlb_hits,
                    second_level_itlb_hits: row.second_level_itlb_hits,
                    tlb_miss_reduction_percent: row.tlb_miss_reduction_percent,
                    walks: row.walks,
                    walk_memory_references: row.walk_memory_references,
                    mpki: row.mpki,
                    walk_mpki: row.walk_mpki,
                    cycles: row.cycles,
                    tlb_hit_cycles: row.tlb_hit_cycles,
                    walk_cycles: row.walk_cycles,
                    data_cycles: row.data_cycles,
                    fault_cycles: row.fault_cycles,
                    fault_p50: row.fault_p50,
                    fault_p99: row.fault_p99,
                    fault_p999: row.fault_p999,
                    fault_max: row.fault_max,
                    fault_latency: row.fault_latency,
                    promotion_cycles: row.promotion_cycles,
                    background_cycles: row.background_cycles,
                    other_core_cycles: row.other_core_cycles,
                    daemon_cycles: row.daemon_cycles,
                    superpage_cycles: row.superpage_cycles,
                    seconds: row.seconds,
                    elapsed_seconds: row.elapsed_seconds,
                    speedup: row.speedup,
                    page_table_bytes: row.page_table_bytes,
                    caches: row.caches,
                    shadow: row.shadow,
                    pte_traversals: row.pte_traversals,
                    shootdowns: row.shootdowns,
                    assumed: row.assumed.clone(),
                    ..plain.clone()
                };
                assert_eq!(*row, expected, "{text} on {machine}");
            }
        }
    }
}

#[test]
fn a_stream_without_lines_is_refused() {
    let setups = plan(&["zen5+shadow".into()], &["base".into()], &Conditions::default()).unwrap();
    let source = &mut *workload::parse("touch:bytes=64K").unwrap();
    let run = run_parts(&setups, source, &AtomicBool::new(false), &|_| (), &Watch::default());
    let error = run.unwrap_err().to_string();
    assert!(error.contains("machine zen5+shadow: only lines say") && error.contains("give --lines"), "{error}");
}
