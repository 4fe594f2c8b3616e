//! What a program asks for, as the kernel of a simulation hears it.

use crate::script::{Script, run_script};
use superpage_pages::{Access, Hint};
use superpage_sim::Conditions;
use superpage_trace::{Event, ProcessId};

/// Three mappings of 4 MB, the first advised to be huge, the second to be base pages, all of them
/// touched.
fn script(shift: u64) -> Script {
    let mut script = Script::new();
    script.process(0);
    for (start, hint) in [(0x1000, Some(Hint::Huge)), (0x2000, Some(Hint::Base)), (0x3000, None)] {
        script.map(start, 1024);
        if let Some(hint) = hint {
            script.event(Event::Advise { start: start + shift, pages: 1024 - shift, hint });
        }
    }
    // None of it, and nothing that is mapped.
    script.event(Event::Advise { start: 0x3000, pages: 0, hint: Hint::Base });
    script.event(Event::Advise { start: 0x8000, pages: 512, hint: Hint::Base });
    for start in [0x1000, 0x2000, 0x3000] {
        script.touch(start..start + 1024, Access::Write);
    }
    script
}

#[test]
fn each_policy_makes_of_hints_what_it_says() {
    let policies =
        ["thp", "thp:enabled=madvise", "thp:hints=ignored", "mthp:size=2M,enabled=madvise", "base:hints=opt-in"];
    let promoted = |shift: u64| -> Vec<u64> {
        let rows = run_script(&mut script(shift), "zen5", &policies, &Conditions::default());
        rows.iter().filter(|row| row.policy != "base").map(|row| row.promotions).collect()
    };
    assert_eq!(promoted(0), [4, 2, 6, 2, 0]);
    // From its second page on: what lies across the edge of a hint is base pages under any policy.
    assert_eq!(promoted(1), [3, 1, 4, 1, 0]);
}

/// Folios of sizes that the machine has no pages of, of others where the program asks for huge
/// pages.
#[test]
fn folios_are_of_other_sizes_where_they_are_asked_for() {
    let faults =
        |policy: &str| run_script(&mut script(0), "zen5", &[policy], &Conditions::default()).pop().unwrap().faults;
    assert_eq!(faults("mthp:size=16K"), 256 + 1024 + 256);
    assert_eq!(faults("mthp:size=16K,madvise=64K"), 64 + 1024 + 256);
    assert_eq!(faults("mthp:size=16K,enabled=madvise,always=32K"), 128 + 1024 + 128);
    assert_eq!(faults("mthp:size=32K,enabled=madvise,always=16K"), 128 + 1024 + 256);
}

#[test]
fn a_page_that_is_advised_in_part_is_not() {
    // The Alpha's pages hold two of the stream.
    let row = |shift: u64, policy: &str| {
        run_script(&mut script(shift), "alpha-21264", &[policy], &Conditions::default()).pop().unwrap().promotions
    };
    assert_eq!(row(1, "mthp:size=64K,enabled=madvise"), row(2, "mthp:size=64K,enabled=madvise"));
    assert_eq!(row(0, "mthp:size=64K,enabled=madvise"), 64);
}

#[test]
fn a_child_inherits_hints_and_a_new_program_has_none() {
    let mut script = Script::new();
    script.process(0);
    script.map(0x1000, 1024);
    script.event(Event::Advise { start: 0x1000, pages: 1024, hint: Hint::Huge });
    script.event(Event::Fork { child: ProcessId(1) });
    // What a parent shares with its child is base pages.
    script.event(Event::Exit);
    script.process(1);
    script.touch(0x1000..0x1200, Access::Write);
    script.event(Event::Exec);
    script.map(0x1000, 1024);
    script.touch(0x1000..0x1200, Access::Write);
    let rows = run_script(&mut script, "zen5", &["thp:enabled=madvise"], &Conditions::default());
    assert_eq!(rows.last().unwrap().promotions, 1);
}
