//! Grids: their order, their sameness with any number of threads, and what they refuse.

use std::sync::atomic::AtomicBool;
use superpage_sim::{Conditions, Format, Row, plan, plan_machines, run, write};
use superpage_trace::workload;

/// One small instance of every built-in workload, and mixes.
const WORKLOADS: [&str; 11] = [
    "matrix:n=200,rounds=2",
    "tree:nodes=2000,operations=5K",
    "fftw:n=32",
    "touch:bytes=4M",
    "stride:step=1M,touches=64",
    "random:bytes=4M,references=20K",
    "sequential:bytes=4M",
    "chase:bytes=4M,references=20K",
    "zipf:bytes=4M,references=20K",
    "touch:bytes=2M+random:bytes=2M,references=20K@slice=1K",
    "touch:bytes=2M;random:bytes=2M,references=20K",
];

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn grid(workload: &str, machines: &[&str], policies: &[&str], conditions: &Conditions) -> Vec<Row> {
    let setups = plan(&names(machines), &names(policies), conditions).unwrap();
    let mut source = workload::parse(workload).unwrap();
    run(&setups, source.as_mut(), &AtomicBool::new(false), &|_| {}).unwrap()
}

fn bytes(rows: &[Row], format: Format) -> Vec<u8> {
    let mut out = Vec::new();
    write(rows, format, superpage_report::Screen::of(100), &mut out).unwrap();
    out
}

#[test]
fn the_same_bytes_come_out_with_one_thread_and_with_two() {
    let machines = ["alpha-21264", "zen5", "neoverse-v2"];
    let policies = ["base", "reservation", "reservation:preempt=off"];
    for workload in WORKLOADS {
        let rows = [1, 2, 2].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let conditions = Conditions { memory: Some(64 << 20), ..Conditions::default() };
            pool.install(|| grid(workload, &machines, &policies, &conditions))
        });
        for format in [Format::Json, Format::Csv, Format::Parquet, Format::Table] {
            let outputs = rows.each_ref().map(|rows| bytes(rows, format));
            assert_eq!(outputs[0], outputs[1], "{workload}");
            assert_eq!(outputs[1], outputs[2], "{workload}");
        }
    }
}

#[test]
fn no_frame_is_lost_with_memory_scarce_or_not_fragmented_or_not() {
    let policies = [
        "base",
        "reservation",
        "reservation:preempt=off",
        "reservation:pieces=free",
        "reservation:promote=never",
        "reservation:stepwise=off,demote-on-unmap=off",
        "reservation:growing-limit=off,past-end=off",
    ];
    for workload in WORKLOADS {
        for memory in [64 << 20, 8 << 20, 2 << 20] {
            for fragment in ["0", "0.5", "1"] {
                let fragment = fragment.parse().unwrap();
                let conditions = Conditions { memory: Some(memory), fragment, ..Conditions::default() };
                for row in grid(workload, &["alpha-21264", "skylake-sp"], &policies, &conditions) {
                    assert_eq!(row.frames_leaked, 0, "{workload} {} {}", row.machine, row.policy);
                    assert_eq!(row.error.is_some(), !row.complete);
                    let resident = row.peak_resident_bytes;
                    assert!(resident <= memory, "{workload} {} {}: {resident}", row.machine, row.policy);
                    if let Some(error) = &row.error {
                        assert!(error.contains("give the machine more memory"), "{error}");
                    }
                }
            }
        }
    }
}

#[test]
fn pages_of_any_power_of_two_fill_a_mapping() {
    for machine in ["zen5+tailored", "golden-cove+tailored", "alpha-21264+tailored"] {
        let conditions = Conditions { memory: Some(64 << 20), ..Conditions::default() };
        let rows = grid("touch:bytes=4092K", &[machine], &["reservation"], &conditions);
        let row = rows.iter().find(|row| row.policy == "reservation").unwrap();
        // 1023 base pages: one page of each size from 2 MB down.
        let pages: Vec<(u64, u64)> = row.pages.iter().map(|(size, count)| (size.bytes(), *count)).collect();
        let expected: Vec<(u64, u64)> = (12..=30).map(|shift| (1 << shift, u64::from(shift <= 21))).collect();
        assert_eq!(pages, expected, "{machine}");
        assert_eq!((row.faults, row.frames_leaked, &row.error), (1023, 0, &None), "{machine}");
        // Each of these was made of two halves, and the halves of their halves before.
        let made: u64 = (1..10).map(|level| (1023 >> level) as u64).sum();
        assert_eq!(row.promotions, made, "{machine}");
    }
}

#[test]
fn rows_stand_in_the_order_of_the_grid_and_compare_with_base() {
    let conditions = Conditions::default();
    let rows = grid("touch:bytes=4M", &["zen4", "alpha-21264"], &["reservation", "base"], &conditions);
    let order: Vec<(&str, &str)> = rows.iter().map(|row| (row.machine.as_str(), row.policy.as_str())).collect();
    assert_eq!(
        order,
        [("zen4", "reservation"), ("zen4", "base"), ("alpha-21264", "reservation"), ("alpha-21264", "base")]
    );
    for row in &rows {
        let base = rows.iter().find(|base| base.machine == row.machine && base.policy == "base").unwrap();
        assert_eq!(row.speedup, Some(base.cycles as f64 / row.cycles as f64));
    }
    // Not asked for, it runs all the same, and first.
    let rows = grid("touch:bytes=4M", &["zen4"], &["reservation"], &conditions);
    assert_eq!(rows.iter().map(|row| row.policy.as_str()).collect::<Vec<_>>(), ["base", "reservation"]);
}

#[test]
fn json_is_an_array_of_rows_with_all_keys_of_the_design() {
    let rows = grid("touch:bytes=4M", &["zen5"], &["reservation"], &Conditions::default());
    let value: serde_json::Value = serde_json::from_slice(&bytes(&rows, Format::Json)).unwrap();
    let keys = "workload machine policy references instructions faults itlb_misses dtlb_misses tlb_misses \
        tlb_miss_reduction_percent walks walk_memory_references cycles speedup peak_touched_bytes peak_resident_bytes \
        bloat_percent pages promotions demotions reservations_made reservations_preempted page_ins page_outs bytes_zeroed \
        bytes_copied bytes_read bytes_written contiguity frames_leaked";
    for row in value.as_array().unwrap() {
        for key in keys.split_whitespace() {
            assert!(row.get(key).is_some(), "{key}");
        }
        assert!(row["pages"].as_object().unwrap().contains_key("2M"));
    }
}

#[test]
fn what_a_terminal_would_obey_is_escaped_in_csv() {
    let mut rows = grid("touch:bytes=1M", &["zen5"], &["base"], &Conditions::default());
    rows[0].workload = "a\n\u{1b}[2J".into();
    let csv = String::from_utf8(bytes(&rows, Format::Csv)).unwrap();
    assert!(csv.contains(r"a\n\u{1b}[2J") && !csv.contains('\u{1b}'), "{csv}");
    assert_eq!(csv.lines().count(), 1 + rows.len());
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_runs() {
    let sizes = |sizes: &[&str]| Some(sizes.iter().map(|size| size.parse().unwrap()).collect());
    let fine = Conditions::default;
    let fragment = |text: &str| Conditions { fragment: text.parse().unwrap(), ..Conditions::default() };
    let cases: [(&str, &str, Conditions, &str); 8] = [
        ("pdp-11", "base", fine(), "alpha-21264"),
        ("no/such.toml", "base", fine(), "no/such.toml"),
        ("zen5", "magic", fine(), "reservation"),
        ("zen5", "reservation:magic=on", fine(), "preempt"),
        ("zen5", "base", Conditions { sizes: sizes(&["64K"]), ..fine() }, "4K/2M/1G"),
        ("zen5", "base", Conditions { memory: Some(0), ..fine() }, "--memory"),
        ("zen5", "base", Conditions { memory: Some(1 << 20), ..fine() }, "2M"),
        ("zen5", "base", fragment("64K:0.5"), "4K/2M/1G"),
    ];
    for (machine, policy, conditions, part) in cases {
        let error = plan(&names(&[machine]), &names(&[policy]), &conditions).unwrap_err().to_string();
        assert!(error.contains(part) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn a_base_page_smaller_than_the_pages_of_a_stream_is_refused() {
    let mut machine = superpage_sim::machine("zen5").unwrap();
    machine.pages.sizes = ["1K", "2M"].map(|size| size.parse().unwrap()).to_vec();
    let error = plan_machines(&[machine], &names(&["base"]), &Conditions::default()).unwrap_err().to_string();
    assert!(error.contains("1K") && error.contains("at least 4K"), "{error}");
}

#[test]
fn machines_of_one_name_are_refused() {
    let error = plan(&names(&["zen5", "zen5"]), &names(&["base"]), &Conditions::default()).unwrap_err().to_string();
    assert!(error.contains("zen5") && error.contains("own `name`"), "{error}");
}

#[test]
fn out_of_memory_ends_a_row_and_says_so() {
    let conditions = Conditions { memory: Some(2 << 20), ..Conditions::default() };
    let rows = grid("touch:bytes=16M", &["zen5"], &["reservation"], &conditions);
    assert!(rows.iter().all(|row| !row.complete && row.error.is_some()));
    // What was touched is in memory or in swap space, which is twice as much.
    assert!(rows.iter().all(|row| row.peak_resident_bytes <= 2 << 20 && row.peak_touched_bytes <= 6 << 20));
}

#[test]
fn an_immovable_page_in_every_extent_leaves_no_largest_superpage() {
    let rows = |text: &str, machine: &str, policies: &[&str], memory: u64| {
        let fragment = text.parse().unwrap();
        let conditions = Conditions { memory: Some(memory), fragment, ..Conditions::default() };
        grid("touch:bytes=16M,step=8K", &[machine], policies, &conditions)
    };
    let largest = &rows("4M:1", "alpha-21264", &["reservation"], 64 << 20)[1];
    let (size, count) = largest.pages[3];
    assert_eq!((size.to_string().as_str(), count), ("4M", 0));
    assert!(largest.pages[2].1 > 0, "512K is still to be had");
    assert!(largest.contiguity < 1.0);
    assert_eq!((largest.fragmented[2].1, largest.immovable_bytes), (1.0, 16 * 8192));
    // Of each size, also where memory has no extent of the largest, and whatever sizes the policy
    // uses.
    let policies = ["thp", "reservation:sizes=2M", "reservation"];
    for row in rows("1", "zen5", &policies, 512 << 20) {
        assert_eq!(row.pages.iter().skip(1).map(|(_, count)| count).sum::<u64>(), 0, "{}", row.policy);
        assert_eq!((row.fragmented.len(), row.fragmented[0].1), (1, 1.0), "{}", row.policy);
        assert_eq!((row.immovable_bytes, row.frames_leaked), (256 * 4096, 0));
    }
    let half = rows("0.5", "alpha-21264", &["reservation:sizes=64K", "reservation"], 512 << 20);
    for row in &half {
        assert!(row.fragmented.iter().all(|(_, share)| *share == 0.5), "{}: {:?}", row.policy, row.fragmented);
        assert_eq!(row.immovable_bytes, half[0].immovable_bytes);
    }
}

#[test]
fn a_row_says_how_it_was_run_and_its_cycles_add_up() {
    let policies = ["base", "reservation", "thp", "talluri-hill", "reservation:hash=read,demote-on-write=off"];
    for (workload, memory) in [
        ("zipf:bytes=4M,references=30K", 3 << 20),
        ("dirty-file:bytes=4M,every=4", 16 << 20),
        ("touch:bytes=2M+random:bytes=2M,references=20K@slice=1K", 64 << 20),
        ("tree:nodes=2000,operations=5K", 64 << 20),
    ] {
        let conditions = Conditions { memory: Some(memory), seed: 7, ..Conditions::default() };
        for row in grid(workload, &["alpha-21264", "golden-cove", "neoverse-v2"], &policies, &conditions) {
            let parts = [
                row.program_cycles,
                row.tlb_hit_cycles,
                row.walk_cycles,
                row.fault_cycles,
                row.zero_cycles,
                row.copy_cycles,
                row.promotion_cycles,
                row.background_cycles,
                row.io_cycles,
            ];
            assert_eq!(parts.iter().sum::<u64>(), row.cycles, "{workload} {} {}", row.machine, row.policy);
            let background = row.background_cycles + row.other_core_cycles;
            assert!(background >= row.daemon_cycles && row.promotion_cycles <= row.superpage_cycles);
            let (data, instructions) = (row.first_level_dtlb_misses, row.first_level_itlb_misses);
            assert_eq!(data, row.second_level_dtlb_hits + row.dtlb_misses);
            assert_eq!(instructions, row.second_level_itlb_hits + row.itlb_misses);
            assert!(row.machine != "alpha-21264" || row.tlb_hit_cycles == 0, "one level");
            assert_eq!((row.memory_bytes, row.swap_bytes, row.seed), (memory, 2 * memory, 7));
            assert_eq!((row.trace_digest, &*row.version), (None, env!("CARGO_PKG_VERSION")));
        }
    }
}

#[test]
fn a_superpage_made_at_the_fault_is_one_and_costs_no_promotion() {
    let conditions = Conditions { memory: Some(64 << 20), ..Conditions::default() };
    let row = &grid("touch:bytes=16M", &["neoverse-v2"], &["thp"], &conditions)[1];
    assert_eq!((row.promotions, row.superpages_at_fault, row.promotion_cycles), (8, 8, 0), "4K/64K/2M/1G");
    assert_eq!(row.promotions_by_size.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [0, 8, 0]);
}

#[test]
fn a_superpage_unmapped_is_one_shootdown() {
    // The workload unmaps its memory, and the machine ends it: code, data and stack.
    let conditions = Conditions { memory: Some(64 << 20), ..Conditions::default() };
    let rows = grid("touch:bytes=16M", &["zen5"], &["thp"], &conditions);
    let unmapped: Vec<u64> = rows.iter().map(|row| row.shootdowns).collect();
    assert_eq!(unmapped, [4096 + 1, 8 + 1], "base pages, and pages of 2 MB");
}

#[test]
fn folios_are_pages_where_the_machine_has_such_pages() {
    let conditions = Conditions { memory: Some(64 << 20), ..Conditions::default() };
    for (machine, folios) in [("neoverse-v2", 256), ("zen5", 0)] {
        let rows = grid("touch:bytes=16M", &[machine], &["mthp", "mthp:size=64K+2M"], &conditions);
        let [base, small, both] = &rows[..] else { panic!("{} rows", rows.len()) };
        assert_eq!(base.faults - small.faults, 4096 - 256, "{machine}: one for 16 pages");
        let superpages: Vec<u64> = small.pages[1..].iter().map(|(_, count)| *count).collect();
        assert_eq!(superpages, [folios, 0, 0], "{machine}");
        assert_eq!(small.promotions, folios, "{machine}");
        assert_eq!((both.pages[2].1, base.faults - both.faults), (8, 4096 - 8), "{machine}: the largest that fits");
    }
    let wrong = plan(&["zen5".into()], &["mthp:size=2K".into()], &conditions).unwrap_err().to_string();
    assert!(wrong.contains("zen5") && wrong.contains("2K") && wrong.contains("above 4K"), "{wrong}");
}
