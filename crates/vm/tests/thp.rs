//! What Linux does beside taking a huge page at the first touch: `defrag`.

use crate::machine::Machine;
use superpage_pages::{Hint, Level, Vpn};
use superpage_vm::{Growth, Map, Place, Policy, Prefer};

/// Memory in which each third page of a full one is left, so that no extent of 2 MB is free; faults take huge pages
/// from now on.
fn scattered(policy: &str) -> Machine {
    let mut machine = Machine::new("4K 2M", 4096, &format!("{policy},place=base"));
    machine.anonymous(1 << 16, 4032, Growth::Fixed);
    (0..4032).for_each(|page| machine.put((1 << 16) + page, page));
    (0..4032).filter(|page| page % 3 > 0).for_each(|page| machine.unmap((1 << 16) + page, 1));
    assert_eq!(machine.vm.buddy().free_extents(Level(1)), 0);
    let (space, huge) = (machine.space, Prefer { place: Some(Place::Extent), ..Prefer::default() });
    machine.vm.as_system(&mut machine.pmap, &mut machine.disk, |system| assert!(system.prefer(space, None, huge)));
    machine
}

/// The table of `vma_thp_gfp_mask`: by `defrag`, whether a fault compacts and whether the thread does, elsewhere and
/// where the program asks for huge pages.
#[test]
fn defrag_says_who_compacts_by_what_is_asked_for() {
    for (defrag, fault, thread) in [
        ("always", [true, true], [false, false]),
        ("defer", [false, false], [true, true]),
        ("defer+madvise", [false, true], [true, false]),
        ("madvise", [false, true], [false, false]),
        ("never", [false, false], [false, false]),
    ] {
        for policy in ["thp:", "mthp:size=2M,"] {
            for (advised, hint) in [Hint::None, Hint::Huge].into_iter().enumerate() {
                let mut machine = scattered(&format!("{policy}defrag={defrag}"));
                let case = format!("{policy}defrag={defrag}, {hint}");
                let map = Map::anonymous(Vpn(512), 1024).hint(hint);
                machine.vm.map(&mut machine.pmap, machine.space, map).unwrap();
                let level = |huge: bool| Level(u8::from(huge));
                assert_eq!(machine.write(512).mapped, level(fault[advised]), "{case}");
                assert_eq!(machine.vm.stats().compactions, u64::from(fault[advised]), "{case}");
                assert_eq!(machine.vm.due(), thread[advised].then_some(0), "{case}");
                let next = machine.vm.advance(&mut machine.pmap, &mut machine.disk, 1, 0);
                assert_eq!((next, machine.vm.due()), (None, None), "{case}");
                machine.vm.validate(&machine.pmap).unwrap();
                let done = fault[advised] || thread[advised];
                assert_eq!(machine.vm.stats().compactions, u64::from(done), "{case}");
                assert_eq!(machine.write(1024).mapped, level(done), "{case}");
                assert!((0..1344).all(|page| machine.get((1 << 16) + 3 * page) == 3 * page), "{case}");
                machine.end();
            }
        }
    }
}

#[test]
fn compaction_at_the_fault_is_one_answer_with_two_names() {
    let answers = |text: &str| text.parse::<Policy>().unwrap().answers;
    assert_eq!(answers("thp:defrag=always"), answers("thp:compact=on"));
    assert_eq!(answers("thp"), answers("thp:defrag=never,compact=advised"));
    assert_eq!(answers("thp:defrag=never"), answers("thp:compact=off"));
    assert_eq!("thp:compact=off".parse::<Policy>().unwrap().to_string(), "thp:compact=off");
    assert_eq!("thp:compact=advised".parse::<Policy>().unwrap().to_string(), "thp");
}
