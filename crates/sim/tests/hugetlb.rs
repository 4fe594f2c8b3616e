//! The static pool in the simulator: refused before a run, made before or after memory is
//! fragmented, and what becomes of programs that find no page of it, or do what it does not let
//! them do.

use crate::script::{Script, run_script};
use superpage_pages::{Access, Protection};
use superpage_sim::{Conditions, Row, plan};
use superpage_trace::{Event, ProcessId};

const MB2: u64 = 512;

fn memory(bytes: u64, fragment: &str) -> Conditions {
    Conditions { memory: Some(bytes), fragment: fragment.parse().unwrap(), ..Conditions::default() }
}

/// The row of a policy, not that of `base`.
fn row(script: &mut Script, policy: &str, conditions: &Conditions) -> Row {
    let rows = run_script(script, "zen5", &[policy], conditions);
    rows.into_iter().find(|row| row.policy != "base").unwrap()
}

/// A program that maps 16 MB and touches all of it.
fn touching() -> Script {
    let mut script = Script::new();
    script.process(1);
    script.map(MB2, 8 * MB2);
    script.touch(MB2..9 * MB2, Access::Write);
    script
}

#[test]
fn pages_come_from_the_pool_or_are_base_pages() {
    let of = |policy: &str| row(&mut touching(), policy, &memory(64 << 20, "0"));
    let pool = of("hugetlb:pool=16M");
    assert_eq!((pool.faults, pool.pool_faults, pool.pool_bytes, pool.pool_fallbacks), (8, 8, 16 << 20, 0));
    let thp = of("thp");
    assert_eq!(
        (pool.faults, pool.tlb_misses, pool.cycles),
        (thp.faults, thp.tlb_misses, thp.cycles),
        "huge as under thp"
    );
    let short = of("hugetlb:pool=14M");
    assert_eq!((short.faults, short.pool_faults, short.pool_fallbacks), (8 * MB2, 0, 1));
    assert_eq!((pool.error, short.error, short.frames_leaked), (None, None, 0));
}

#[test]
fn a_late_pool_finds_what_fragmentation_has_left() {
    let rows = |policy: &str| {
        let setups = plan(&["zen5".into()], &[policy.into()], &memory(64 << 20, "2M:0.5")).unwrap();
        let run = |source: &mut Script| superpage_sim::run(&setups, source, &Default::default(), &|_| {});
        run(&mut touching()).map(|rows| rows[1].pool_faults).map_err(|error| error.to_string())
    };
    assert_eq!(rows("hugetlb:pool=32M,at=late"), Ok(8));
    assert_eq!(
        rows("hugetlb:pool=34M,at=late"),
        Err("machine zen5: a pool of 34.0 MB does not fit: 16 free extents of 2M are left, 32.0 MB; ask for at most \
            that"
            .into())
    );
}

#[test]
fn what_cannot_be_is_refused_when_it_is_planned() {
    let plan = |policy: &str| {
        let planned = plan(&["zen5".into()], &[policy.into()], &memory(64 << 20, "0"));
        planned.err().map_or(String::new(), |error| error.to_string())
    };
    assert_eq!(
        plan("hugetlb:pool=1G"),
        "machine zen5: policy hugetlb:pool=1G: a pool of 1.00 GB does not fit: 32 free extents of 2M are left, 64.0 MB; \
         ask for at most that"
    );
    assert!(plan("hugetlb:pool=16M,size=8M").contains("memory has no superpages of that size"));
    assert_eq!(plan("hugetlb:pool=64M"), "");
    assert!(plan("hugetlb:size=3M").contains("size"));
    assert!(plan("hugetlb:size=2M+1G").contains("size is a page size such as 2M"));
}

#[test]
fn who_finds_no_page_is_ended_and_the_run_goes_on() {
    let ended = |policy: &str| {
        let mut script = touching();
        script.process(2);
        script.map(MB2, 4);
        script.touch(MB2..MB2 + 4, Access::Write);
        row(&mut script, policy, &memory(64 << 20, "0"))
    };
    let killed = ended("hugetlb:pool=8M,without=kill");
    let error = killed.error.unwrap();
    assert!(
        error.contains("process 1 was ended: a mapping wants 16.0 MB of the pool, and 8.00 MB are left"),
        "{error}"
    );
    assert_eq!((killed.faults, killed.frames_leaked), (4, 0), "the other process ran");
    let killed = ended("hugetlb:pool=8M,noreserve=on");
    let error = killed.error.unwrap();
    assert!(error.contains("process 1 was ended: no page of the pool is left for page 0xa00"), "{error}");
    assert_eq!((killed.pool_faults, killed.faults, killed.frames_leaked), (4, 8, 0));
}

#[test]
fn a_child_that_writes_is_ended_where_no_page_is_left_to_copy_to() {
    let mut script = touching();
    script.event(Event::Fork { child: ProcessId(2) });
    script.process(2);
    script.touch(MB2..MB2 + 4, Access::Write);
    script.process(1);
    script.touch(MB2..MB2 + 4, Access::Write);
    let row = row(&mut script, "hugetlb:pool=16M", &memory(64 << 20, "0"));
    assert!(row.error.clone().unwrap().contains("process 2 was ended: no page of the pool"), "{:?}", row.error);
    assert!(!row.error.unwrap().contains("process 1"), "the memory is its alone then");
}

#[test]
fn calls_that_would_cut_a_page_are_refused_and_counted() {
    let mut script = touching();
    // A guard page; a part that is given back; growth, as by realloc.
    script.event(Event::Protect { start: 2 * MB2, pages: 1, protection: Protection::NONE });
    script.event(Event::Unmap { start: 3 * MB2 + 5, pages: 100 });
    script.event(Event::Remap { from: MB2, from_pages: 8 * MB2, to: 20 * MB2, to_pages: 10 * MB2 });
    script.touch(20 * MB2..30 * MB2, Access::Write);
    // A right that the stream says nothing of.
    script.event(Event::Protect { start: 20 * MB2, pages: MB2, protection: Protection::READ });
    script.touch(20 * MB2 + 7..20 * MB2 + 9, Access::Write);
    let row = row(&mut script, "hugetlb:pool=40M", &memory(64 << 20, "0"));
    assert_eq!((row.pool_refusals, row.pool_faults, row.error), (3, 18, None));
    assert_eq!(row.end_resident_bytes, 20 << 20, "what it had before was unmapped");
}
