//! What page tables take, counted by hand.

use crate::script::{Script, run_script};
use std::sync::atomic::AtomicBool;
use superpage_pages::Access;
use superpage_sim::{Conditions, Watch, plan, run_parts};
use superpage_trace::{Source, workload};

fn page_tables(source: &mut dyn Source, machine: &str, policies: &[&str]) -> Vec<u64> {
    let policies: Vec<String> = policies.iter().map(ToString::to_string).collect();
    let setups = plan(&[machine.into()], &policies, &Conditions::default()).unwrap();
    let runs = run_parts(&setups, source, &AtomicBool::new(false), &|_| {}, &Watch::default()).unwrap();
    runs.iter().map(|run| run.row.page_table_bytes).collect()
}

#[test]
fn a_gigabyte_takes_a_table_for_each_two_megabytes_and_those_above() {
    for text in ["touch:bytes=1G,step=2M", "touch:bytes=64M", "share:bytes=64M,processes=1"] {
        let lowest = if text.contains("1G") { 512 } else { 32 };
        // Five levels: a root, and one table at each of the next three.
        let bytes = page_tables(&mut *workload::parse(text).unwrap(), "zen5", &["thp"]);
        assert_eq!(bytes[0], (lowest + 4) * 4096, "{text}");
        // Entries of 2 MB are in the tables of the second level. Shared memory gets none under
        // `thp`.
        let above = if text.starts_with("touch") { 4 } else { lowest + 4 };
        assert_eq!(bytes[1], above * 4096, "{text}");
    }
    // One entry of 8 bytes for each 8 KB, of whatever size the pages are: 8 tables of 8 KB, and two
    // above.
    let bytes = page_tables(&mut *workload::parse("touch:bytes=64M").unwrap(), "alpha-21264", &["reservation"]);
    assert_eq!(bytes, [10 * 8192; 2]);
}

#[test]
fn each_process_has_tables_of_its_own_for_memory_that_is_shared() {
    let text = "share:bytes=64M,processes=5,step=2M";
    let bytes = page_tables(&mut *workload::parse(text).unwrap(), "harpertown", &["base"]);
    assert_eq!(bytes, [5 * (32 + 3) * 4096]);
    assert_eq!(
        page_tables(&mut *workload::parse("touch:bytes=64M,rounds=5").unwrap(), "harpertown", &["base"]),
        [35 * 4096]
    );
}

#[test]
fn a_part_has_the_peak_of_its_own() {
    let mut script = Script::large_then_small();
    let setups = plan(&["harpertown".into()], &["base".into()], &Conditions::default()).unwrap();
    let runs = run_parts(&setups, &mut script, &AtomicBool::new(false), &|_| {}, &Watch::default()).unwrap();
    let parts: Vec<u64> = runs[0].parts.iter().map(|part| part.row.page_table_bytes).collect();
    assert_eq!((parts, runs[0].row.page_table_bytes), (vec![7 * 4096, 4 * 4096], 7 * 4096));
}

#[test]
fn addresses_beyond_the_tree_take_no_second_root() {
    let mut script = Script::new();
    script.process(0);
    // The Alpha translates 43 bits.
    for start in [0x1000, 0x1000 + (1 << 31), 0x1000 + (1 << 33)] {
        script.map(start, 2);
        script.touch(start..start + 2, Access::Write);
    }
    let row = run_script(&mut script, "alpha-21264", &["base"], &Conditions::default()).pop().unwrap();
    assert_eq!(row.page_table_bytes, (1 + 3 + 3) * 8192);
}
