//! What Linux's policies do of what programs do, worked out by hand.

use crate::script::{Script, run_script};
use superpage_pages::Access;
use superpage_sim::{Conditions, Row};
use superpage_trace::Event;

fn row(mut script: Script, policy: &str) -> Row {
    run_script(&mut script, "zen5", &[policy], &Conditions::default()).pop().unwrap()
}

/// 2 MB are touched, some pages of them discarded and touched again.
fn holes(discarded: u64) -> Script {
    let mut script = Script::new();
    script.process(0);
    script.map(0x1000, 512);
    script.touch(0x1000..0x1200, Access::Write);
    script.event(Event::Discard { start: 0x1010, pages: discarded });
    script.touch(0x1010..0x1010 + discarded, Access::Write);
    script
}

#[test]
fn what_is_discarded_of_an_extent_is_free_and_is_placed_anew() {
    // Under `thp` as base pages: only khugepaged would make a superpage of them again.
    let thp = row(holes(32), "thp");
    assert_eq!((thp.faults, thp.promotions, thp.peak_resident_bytes), (1 + 32, 1, 2 << 20));
    // Under `mthp` as the largest folios that fit.
    for (policy, discarded, faults) in
        [("mthp:size=64K+2M", 16, 2), ("mthp:size=64K+2M", 496, 1 + 31), ("mthp:size=16K+64K", 4, 32 + 1)]
    {
        let row = row(holes(discarded), policy);
        assert_eq!(row.faults, faults, "{policy}, {discarded} pages");
    }
}

#[test]
fn the_background_runs_while_nothing_else_does() {
    let promoted = |pieces: u64| {
        let mut script = Script::new();
        script.process(0);
        script.map(0x1000, 1024);
        script.touch(0x1000..0x1400, Access::Write);
        (0..pieces).for_each(|_| script.event(Event::Idle { microseconds: 5_000_000 / pieces }));
        let row = row(script, "promote:age=1s,interval=100ms,idle=100ms,cpu=1,burst=10s");
        // What is unmapped whole at the end is not taken apart first.
        assert_eq!(row.demotions, 0);
        row.promotions
    };
    assert_eq!([1, 2, 3, 50, 500].map(promoted), [2; 5]);
}

#[test]
fn an_empty_file_may_be_mapped() {
    let mut script = Script::new();
    script.process(0);
    let (protection, growth) = (superpage_pages::Protection::READ_WRITE, superpage_trace::Growth::Fixed);
    let backing = superpage_trace::Backing::File { file: 1, file_pages: 0, offset: 0 };
    script.event(Event::Map { start: 0x1000, pages: 4, protection, shared: true, backing, growth });
    script.touch(0x1000..0x1004, Access::Write);
    for policy in ["base", "reservation", "thp"] {
        let row = row(script.clone(), policy);
        assert_eq!((row.error, row.peak_touched_bytes, row.frames_leaked), (None, 4 * 4096, 0), "{policy}");
    }
}
