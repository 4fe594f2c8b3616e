//! Page colouring (Navarro et al., section 6.3; Kessler and Hill): which frames single base pages
//! get.

use crate::machine::{ALPHA, Machine};
use proptest::prelude::*;
use superpage_pages::{Access, Extent, Level, Pfn};
use superpage_vm::{Buddy, FaultKind, Growth};

/// The colours of the Alpha's second-level cache: 4 MB, direct-mapped, pages of 8 KB.
const COLOURS: u64 = 512;

fn base(frames: u64) -> Machine {
    Machine::new(ALPHA, frames, "base:colours=512")
}

/// Pages of its colour and others that were allocated.
fn counted(machine: &Machine) -> (u64, u64) {
    let stats = machine.vm.stats();
    (stats.coloured_pages, stats.uncoloured_pages)
}

#[test]
fn pages_get_frames_of_their_colour_in_whatever_order_they_are_touched() {
    let mut machine = base(8 * COLOURS);
    machine.anonymous(100, 4 * COLOURS, Growth::Fixed);
    // Two kernel pages are in the way of the lowest frames.
    machine.vm.wire_page().unwrap();
    machine.vm.wire_page().unwrap();
    for number in 0..3 * COLOURS {
        let page = 100 + number * 1001 % (4 * COLOURS);
        let frame = machine.write(page).frame;
        assert_eq!(frame.0 % COLOURS, page % COLOURS);
    }
    assert_eq!(counted(&machine), (3 * COLOURS, 0));
}

#[test]
fn without_colours_frames_are_the_lowest_and_nothing_is_counted() {
    for policy in ["base", "base:colours=0", "base:colours=512,place=reservation"] {
        let mut machine = Machine::new(ALPHA, 8 * COLOURS, policy);
        machine.anonymous(128, 64, Growth::Fixed);
        let frames: Vec<u64> = [191, 130, 180].map(|page| machine.write(page).frame.0).to_vec();
        // A reservation is no single page: its frames are next to each other anyway.
        let reserved = policy.ends_with("reservation");
        assert_eq!(frames, if reserved { [63, 2, 52] } else { [0, 1, 2] }, "{policy}");
        assert_eq!(counted(&machine), (0, 0), "{policy}");
    }
}

#[test]
fn where_no_frame_of_the_colour_is_free_any_is_taken() {
    let mut machine = base(4 * COLOURS);
    machine.anonymous(0, 8 * COLOURS, Growth::Fixed);
    for number in 0..8 {
        let frame = machine.write(number * COLOURS + 7).frame.0;
        assert_eq!(frame % COLOURS == 7, number < 4, "{number}: {frame}");
    }
    assert_eq!(counted(&machine), (4, 4));
    // One is free again.
    machine.unmap(7 + COLOURS, 1);
    machine.anonymous(7 + COLOURS, 1, Growth::Fixed);
    assert_eq!(machine.write(7 + COLOURS).frame.0 % COLOURS, 7);
    assert_eq!(counted(&machine), (5, 4));
    machine.end();
}

#[test]
fn no_more_extents_are_broken_than_the_colours_need() {
    let whole = |machine: &Machine| machine.vm.buddy().free_extents(Level(3));
    let mut machine = base(16 * COLOURS);
    machine.anonymous(0, 8 * COLOURS, Growth::Fixed);
    // All colours, however far apart the pages are, come from one extent.
    machine.write_all((0..COLOURS).map(|page| page % 8 * COLOURS + page));
    assert_eq!(whole(&machine), 15);
    // Of one colour, each extent has one frame.
    machine.write_all((1..8).map(|number| number * COLOURS));
    assert_eq!(whole(&machine), 8);
    // What is broken is used before what is whole, and of that the smallest piece.
    machine.write(3);
    assert_eq!(whole(&machine), 8);
    assert_eq!(machine.frame(3), Some(Pfn(COLOURS + 3)));
    assert_eq!(counted(&machine), (COLOURS + 8, 0));
    machine.unmap(0, 8 * COLOURS);
    assert_eq!(whole(&machine), 16);
    machine.end();
}

#[test]
fn a_page_of_a_file_has_the_colour_of_where_it_is_used() {
    let mut machine = base(8 * COLOURS);
    machine.file(0x4007, 64, true, 3);
    assert_eq!(machine.read(0x4007).frame.0 % COLOURS, 7);
    machine.vm.open(1, 4096).unwrap();
    let fault = machine.read_file(1, 2000).unwrap();
    assert_eq!((fault.kind, fault.frame.0 % COLOURS), (FaultKind::File, 2000 % COLOURS));
    assert_eq!(counted(&machine), (2, 0));
}

#[test]
fn a_copy_of_a_page_has_its_colour_too() {
    let mut machine = base(8 * COLOURS);
    machine.anonymous(0x1000, 64, Growth::Fixed);
    machine.put(0x1005, 1);
    let child = machine.vm.fork(&mut machine.pmap, machine.space).unwrap();
    let fault = machine.fault(child, 0x1005, Access::Write).unwrap();
    assert_eq!((fault.kind, fault.frame.0 % COLOURS), (FaultKind::Copy, 5));
}

/// One step of a program, or of the kernel for itself.
#[derive(Clone, Debug)]
enum Step {
    Touch(u64),
    Unmap(u64, u64),
    Wire,
    Unwire(usize),
    Squeeze,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0u64..2000).prop_map(Step::Touch),
        // One colour after the other is used up.
        10 => (0u64..8, 0u64..250).prop_map(|(colour, row)| Step::Touch(8 * row + colour * colour % 3)),
        4 => (0u64..2000, 1u64..200).prop_map(|(start, pages)| Step::Unmap(start, pages)),
        2 => Just(Step::Wire),
        1 => any::<usize>().prop_map(Step::Unwire),
        1 => Just(Step::Squeeze),
    ]
}

/// Whether a frame of the colour of `page` is free in an extent without cache pages.
fn is_free(buddy: &Buddy, colours: u64, page: u64) -> bool {
    let plain = buddy.iter().filter(|extent| buddy.cached_in(*extent).next().is_none());
    let frames = |extent: Extent| extent.start.0..extent.start.0 + buddy.ladder().pages(extent.level);
    plain.flat_map(frames).any(|frame| frame % colours == page % colours)
}

proptest! {
    /// A page gets a frame of its colour if, and only if, one is free that lies in no extent with
    /// cache pages.
    #[test]
    fn a_page_gets_its_colour_if_a_plain_set_of_free_frames_has_one(
        order in 1u32..11,
        frames in 1u64..300,
        cache in prop_oneof![Just("held"), Just("available"), Just("free")],
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let colours = 1 << order;
        let policy = format!("base:colours={colours},cache={cache}");
        let mut machine = Machine::with_swap("4K 8K 64K 512K", frames, &policy, 4000);
        machine.anonymous(0, 2000, Growth::Fixed);
        let mut wired = Vec::new();
        for step in steps {
            match step {
                Step::Touch(page) => {
                    let has = is_free(machine.vm.buddy(), colours, page);
                    let (before, allocated) = (counted(&machine), machine.vm.stats().allocations[0]);
                    if let Ok(Some(fault)) = machine.try_touch(page, Access::Write) {
                        let same = fault.frame.0 % colours == page % colours;
                        let new = machine.vm.stats().allocations[0] - allocated;
                        if new == 1 && fault.kind != FaultKind::Cached {
                            prop_assert!(same || !has, "page {page} got {:?}", fault.frame);
                            let counts = (before.0 + u64::from(same), before.1 + u64::from(!same));
                            prop_assert_eq!(counted(&machine), counts);
                        }
                    } else {
                        machine.daemon();
                    }
                }
                Step::Unmap(start, pages) => {
                    machine.unmap(start, pages);
                    machine.anonymous(start, pages, Growth::Fixed);
                }
                Step::Wire => wired.extend(machine.vm.wire_page()),
                Step::Unwire(which) if !wired.is_empty() => {
                    let frame = wired.swap_remove(which % wired.len());
                    machine.vm.unwire_page(frame).unwrap();
                }
                Step::Unwire(_) => {}
                Step::Squeeze => _ = machine.daemon(),
            }
        }
        machine.vm.validate(&machine.pmap).unwrap();
        wired.into_iter().for_each(|frame| machine.vm.unwire_page(frame).unwrap());
        machine.end();
    }
}
