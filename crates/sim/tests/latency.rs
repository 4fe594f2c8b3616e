//! How long faults take.

use crate::script::Script;
use std::sync::atomic::AtomicBool;
use superpage_pages::Access;
use superpage_sim::{Conditions, FaultLatency, FaultTimes, Row, Run, Watch, plan, run_parts};
use superpage_trace::{Event, Source, workload};

fn runs(machines: &[&str], policies: &[&str], memory: u64, source: &mut dyn Source) -> Vec<Run> {
    let names = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
    let conditions = Conditions { memory: Some(memory), ..Conditions::default() };
    let setups = plan(&names(machines), &names(policies), &conditions).unwrap();
    run_parts(&setups, source, &AtomicBool::new(false), &|_| {}, &Watch::default()).unwrap()
}

fn kinds(row: &Row) -> [FaultTimes; 4] {
    let FaultLatency { base_page, superpage, compaction, disk } = row.fault_latency;
    [base_page, superpage, compaction, disk]
}

/// In a part that does nothing else, faults take what the kernel does; on machines that share a
/// kernel too.
#[test]
fn latencies_add_up_to_the_work_of_faults() {
    let mut script = Script::new();
    script.process(0);
    script.map(0x1000, 4096);
    script.touch(0x1000..0x1010, Access::Write);
    script.event(Event::Mark("faults".into()));
    script.touch(0x1100..0x1f00, Access::Write);
    let machines = ["zen5", "golden-cove", "neoverse-v2", "alpha-21264"];
    for run in runs(&machines, &["thp", "reservation", "freebsd"], 64 << 20, &mut script) {
        let (row, machine) = (&run.parts[0].row, superpage_sim::machine(&run.row.machine).unwrap());
        let all = kinds(row);
        assert_eq!(all.map(|kind| kind.faults).iter().sum::<u64>(), row.faults);
        let work = row.fault_cycles + row.zero_cycles + row.copy_cycles + row.promotion_cycles;
        assert_eq!(all.map(|kind| kind.cycles).iter().sum::<u64>(), work, "{} {}", row.machine, row.policy);
        assert_eq!([all[2], all[3]], [FaultTimes::default(); 2]);
        assert_eq!(all.map(|kind| kind.max).iter().max(), Some(&row.fault_max));
        assert!(row.fault_p50 <= row.fault_p99 && row.fault_p99 <= row.fault_p999 && row.fault_p999 <= row.fault_max);
        if row.policy == "base" {
            let costs = &machine.costs;
            let page = costs.fault + (machine.pages.sizes[0].bytes() >> 10) * costs.zero_per_kb + costs.pte_write;
            assert_eq!((row.fault_max, all[0].cycles), (page, page * row.faults));
            assert!((page..page + page / 1000 + 1).contains(&row.fault_p50), "{} for {page}", row.fault_p50);
        } else {
            assert!(all[1].faults > 0 && row.fault_max > all[0].p50, "{} {}", row.machine, row.policy);
        }
        // The whole run has those before the mark too.
        assert_eq!(kinds(&run.row).map(|kind| kind.faults).iter().sum::<u64>(), run.row.faults);
        assert!(run.row.faults > row.faults && run.row.fault_max >= row.fault_max);
    }
}

#[test]
fn what_waits_for_the_disk_is_told_apart() {
    let mut source = workload::parse("random:bytes=8M,references=20K").unwrap();
    for run in runs(&["harpertown", "zen5"], &["base"], 6 << 20, source.as_mut()) {
        let (row, disk) = (&run.row, run.row.fault_latency.disk);
        let seek = superpage_sim::machine(&row.machine).unwrap();
        let seek = seek.disk.seek_microseconds * seek.clock.hertz / 1_000_000;
        assert!(disk.faults > 0 && row.fault_latency.base_page.faults > 0 && row.page_ins > 0);
        assert!(disk.p50 >= seek && disk.max == row.fault_max && disk.cycles <= row.io_cycles + row.fault_cycles);
        assert!(row.fault_latency.base_page.max < seek);
    }
}

/// Faults that want 2 MB where memory is in pieces, with compaction and without: those that compact
/// take longer, and are told apart.
#[test]
fn what_compacts_first_is_told_apart() {
    let mut script = Script::new();
    script.process(0);
    script.map(0x1000, 8192);
    script.touch(0x1000..0x3000, Access::Write);
    // One page of each region stays: no extent is free.
    for region in 0..16 {
        let start = 0x1000 + region * 512;
        script.event(Event::Unmap { start: start + 1, pages: 511 });
    }
    script.map(0x8000, 2048);
    script.event(Event::Mark("huge".into()));
    script.touch(0x8000..0x8800, Access::Write);
    // Huge pages that lost pages are split at once, so that there is room to compact.
    let compacting = "thp:compact=on,deferred-split=off";
    for run in runs(&["zen5"], &["base", "thp", compacting], 36 << 20, &mut script) {
        let (row, FaultLatency { superpage, compaction, .. }) = (&run.parts[0].row, run.parts[0].row.fault_latency);
        if row.policy != compacting {
            assert_eq!((compaction, row.compactions), (FaultTimes::default(), 0), "{}", row.policy);
            continue;
        }
        assert!(row.compactions > 0 && row.pages_moved > 0, "{row:?}");
        assert_eq!((compaction.faults, compaction.max), (row.compactions, row.fault_max));
        assert!(superpage.faults == 0 || compaction.p50 > superpage.p50);
    }
}
