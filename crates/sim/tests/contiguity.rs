//! How much of mapped memory is in groups that TLBs can join.

use crate::script::{Batches, Script};
use std::sync::atomic::AtomicBool;
use superpage_pages::{Access, Protection};
use superpage_sim::{Conditions, ContiguousPercent, Run, Watch, plan, run_parts};
use superpage_trace::{Backing, Event, Growth, Source};

/// Reservations of 64 KB, populated page by page.
const RESERVED: &str = "mthp:size=64K,place=reservation";

fn run(source: &mut dyn Source, contiguity: bool) -> Run {
    let setups = plan(&["zen5".into()], &[RESERVED.into()], &Conditions::default()).unwrap();
    let watch = Watch { contiguity, ..Watch::default() };
    run_parts(&setups, source, &AtomicBool::new(false), &|_| {}, &watch).unwrap().pop().unwrap()
}

/// 18 anonymous pages, 16 of which are whole groups, 5 pages of a file, of which 4 are a group of
/// 16 KB, and a copy of another.
fn peak() -> Script {
    let mut script = Script::new();
    script.event(Event::Mark("part".into()));
    script.process(0);
    script.map(0x1000, 64);
    script.map_file(0x8000, 1, 32);
    let (protection, growth) = (Protection::READ_WRITE, Growth::Fixed);
    let backing = Backing::File { file: 2, file_pages: 16, offset: 0 };
    script.event(Event::Map { start: 0x9000, pages: 16, protection, shared: false, backing, growth });
    script.touch(0x1000..0x1010, Access::Write);
    script.touch(0x1015..0x1016, Access::Write);
    script.touch(0x8000..0x8004, Access::Read);
    script.touch(0x8009..0x800a, Access::Write);
    script.touch(0x9003..0x9004, Access::Write);
    script
}

fn of_peak() -> ContiguousPercent {
    let share = |part: f64, all: f64| Some(100.0 * part / all);
    ContiguousPercent {
        anonymous_16k: share(16.0, 18.0),
        anonymous_32k: share(16.0, 18.0),
        file_16k: share(4.0, 5.0),
        file_32k: share(0.0, 5.0),
    }
}

#[test]
fn shares_are_those_of_pages_in_whole_groups() {
    let measured = run(&mut peak(), true);
    assert_eq!(measured.row.contiguous_percent, Some(of_peak()));
    assert_eq!(measured.parts[0].row.contiguous_percent, None, "not of a part");
    assert_eq!(run(&mut peak(), false).row.contiguous_percent, None, "not unless it is asked for");
}

#[test]
fn shares_are_those_when_most_was_touched() {
    // After the peak less is left, in other groups, and at the end fewer pages are touched than at
    // the peak.
    let later = || {
        let mut script = Script::new();
        script.event(Event::Unmap { start: 0x1000, pages: 12 });
        script.touch(0x1020..0x102b, Access::Write);
        script
    };
    let mut together = peak();
    together.event(Event::Unmap { start: 0x1000, pages: 12 });
    together.touch(0x1020..0x102b, Access::Write);
    assert_eq!(run(&mut together.clone(), true).row.contiguous_percent, Some(of_peak()));
    assert_eq!(run(&mut Batches(vec![peak(), later()]), true).row.contiguous_percent, Some(of_peak()), "two batches");
    // Two more pages are a new peak: of 19 pages 4 and 12 are in groups of 16 KB, 8 in one of 32
    // KB.
    together.touch(0x102b..0x102d, Access::Write);
    let shares = run(&mut together, true).row.contiguous_percent.unwrap();
    assert_eq!(shares.anonymous_16k, Some(100.0 * 16.0 / 19.0));
    assert_eq!(shares.anonymous_32k, Some(100.0 * 8.0 / 19.0));
}
