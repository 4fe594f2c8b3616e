//! Hosts with a policy of their own: what the guest's policy and the host's make of each other.

use proptest::prelude::*;
use std::sync::atomic::AtomicBool;
use superpage_sim::{Conditions, Row, Setup, named, plan, run};
use superpage_trace::workload;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

fn on_hosts(hosts: &[&str], memory: u64) -> Conditions {
    Conditions { memory: Some(memory), host_policies: names(hosts), ..Conditions::default() }
}

fn rows(setups: &[Setup], workload: &str) -> Vec<Row> {
    let mut source = workload::parse(workload).unwrap();
    run(setups, source.as_mut(), &AtomicBool::new(false), &|_| {}).unwrap()
}

fn grid(machine: &str, policies: &[&str], conditions: &Conditions, workload: &str) -> Vec<Row> {
    rows(&plan(&[machine.into()], &names(policies), conditions).unwrap(), workload)
}

/// What must hold of any row on a host with a policy.
fn check(row: &Row) {
    let what = format!("{} {}", row.machine, row.policies());
    assert_eq!((row.frames_leaked, row.host_frames_leaked), (0, 0), "{what}");
    assert_eq!((&row.error, row.complete), (&None, true), "{what}");
    let guest = row.program_cycles + row.tlb_hit_cycles + row.walk_cycles + row.fault_cycles + row.zero_cycles;
    let more = row.copy_cycles + row.promotion_cycles + row.background_cycles + row.io_cycles;
    assert_eq!(row.cycles, guest + more + row.host_cycles, "{what}");
    assert!(row.host_faults > 0 && row.host_cycles > 0, "{what}");
    // What the guest has had at once, and its tables, are mapped.
    let backed: u64 = row.host_pages.iter().map(|(size, count)| size.bytes() * count).sum();
    assert!(backed >= row.peak_resident_bytes, "{what}: {backed} for {}", row.peak_resident_bytes);
}

const WORKLOAD: &str = "random:bytes=32M,references=200K";

#[test]
fn both_sizes_are_crossed() {
    let conditions = on_hosts(&["base", "thp"], 256 << 20);
    let rows = grid("zen5+nested", &["base", "thp"], &conditions, WORKLOAD);
    let order: Vec<String> = rows.iter().map(Row::policies).collect();
    assert_eq!(order, ["base on base", "thp on base", "base on thp", "thp on thp"]);
    rows.iter().for_each(check);
    // A translation is as large as both map it: pages of 2 MB help the TLBs only where both have
    // them.
    let misses: Vec<u64> = rows.iter().map(|row| row.tlb_misses).collect();
    assert!(misses[0] == misses[1] && misses[0] == misses[2] && misses[3] * 10 < misses[0], "{misses:?}");
    // The host's make walks shorter all the same, and the guest's faults are its own.
    let references: Vec<u64> = rows.iter().map(|row| row.walk_memory_references).collect();
    assert!(references[2] < references[0] && references[2] < references[1], "{references:?}");
    assert_eq!([rows[0].faults, rows[1].faults], [rows[2].faults, rows[3].faults]);
    assert!(rows[2].host_faults * 100 < rows[0].host_faults, "{} faults", rows[2].host_faults);
    assert!(rows[0].host_pages[1].1 == 0 && rows[3].host_pages[1].1 >= 16, "{:?}", rows[3].host_pages);
    // All are compared with base on base.
    assert_eq!((rows[0].speedup, rows[0].tlb_miss_reduction_percent), (Some(1.0), Some(0.0)));
    assert_eq!(rows[3].speedup, Some(rows[0].cycles as f64 / rows[3].cycles as f64));
    // Hosts that map all by one size are these, without faults.
    for (machine, which) in [("zen5+nested", [0, 1]), ("zen5+nested-2m", [2, 3])] {
        let fixed =
            grid(machine, &["base", "thp"], &Conditions { memory: Some(256 << 20), ..Conditions::default() }, WORKLOAD);
        for (fixed, row) in fixed.iter().zip(which.map(|which| &rows[which])) {
            assert_eq!((fixed.tlb_misses, fixed.faults), (row.tlb_misses, row.faults), "{machine} {}", row.policies());
            assert_eq!((&fixed.host_policy, fixed.host_faults, fixed.host_cycles), (&None, 0, 0));
            let difference = fixed.walk_memory_references.abs_diff(row.walk_memory_references);
            assert!(difference <= 64, "{machine} {}: {difference} references", row.policies());
        }
    }
}

#[test]
fn a_host_promotes_meanwhile() {
    let quick = named("promote:age=1ms,interval=1ms,cpu=0.5").unwrap().0;
    let conditions = on_hosts(&[&quick, "reservation"], 256 << 20);
    let rows = grid("zen5+nested", &["thp"], &conditions, "random:bytes=32M,references=6M");
    rows.iter().for_each(check);
    let of = |name: &str| rows.iter().find(|row| row.policies() == name).unwrap();
    let (base, promoted, reserved) = (of("thp on base"), of(&format!("thp on {quick}")), of("thp on reservation"));
    // One copies what it has mapped by base pages, and one finds it in place.
    assert!(promoted.host_promotions > 0 && promoted.host_bytes_copied > 0 && promoted.host_shootdowns > 0);
    assert!(reserved.host_promotions > 0 && reserved.host_bytes_copied == 0);
    for row in [promoted, reserved] {
        assert!(row.tlb_misses < base.tlb_misses, "{}: {}", row.policies(), row.tlb_misses);
        assert_eq!((row.faults, row.promotions, row.shootdowns), (base.faults, base.promotions, base.shootdowns));
    }
}

#[test]
fn what_is_no_guest_has_no_host_policy() {
    let refused = |machine: &str, host: &str| {
        let error = plan(&names(&[machine]), &names(&["thp"]), &on_hosts(&[host], 256 << 20)).unwrap_err().to_string();
        assert!(!error.contains('\n'), "{error}");
        error
    };
    for machine in ["zen5", "zen5+fractured"] {
        let error = refused(machine, "base");
        assert!(
            error.contains(&format!("machine {machine}: --host-policy")) && error.contains("zen5+nested"),
            "{error}"
        );
    }
    assert!(refused("zen5+nested", "magic").contains("thp"));
    assert!(refused("zen5+nested", "thp:sizes=64K").contains("4K/2M/1G"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, ..ProptestConfig::default() })]

    /// Any policy on any host: no frame is lost on either side, and each row is that of its
    /// policies alone.
    #[test]
    fn any_policy_runs_on_any_host(
        policies in prop::sample::subsequence(vec!["base", "thp", "reservation", "promote", "mthp", "freebsd"], 1..3),
        hosts in prop::sample::subsequence(vec!["base", "thp", "reservation", "promote", "mthp:size=64K+2M", "freebsd", "talluri-hill"], 1..3),
        machine in prop::sample::select(vec!["zen5+nested", "neoverse-v2+nested", "skylake-sp+nested-2m"]),
        workload in prop::sample::select(vec![
            "zipf:bytes=8M,references=30K",
            "touch:bytes=20M",
            "tree:nodes=2000,operations=5K",
            "touch:bytes=2M+random:bytes=2M,references=20K@slice=1K",
            "dirty-file:bytes=4M,every=4",
        ]),
        scarce: bool,
    ) {
        let memory = if scarce { 12 << 20 } else { 128 << 20 };
        let all = grid(machine, &policies, &on_hosts(&hosts, memory), workload);
        all.iter().for_each(check);
        for (policy, host) in policies.iter().flat_map(|policy| hosts.iter().map(move |host| (policy, host))) {
            let name = format!("{policy} on {host}");
            let alone = grid(machine, &[policy], &on_hosts(&[host], memory), workload);
            let of = |rows: &[Row]| rows.iter().find(|row| row.policies() == name).cloned();
            prop_assert_eq!(of(&all), of(&alone));
            prop_assert!(of(&all).is_some());
        }
    }
}
