//! The bytes that the manager says it holds are those that it holds: nothing is forgotten, nothing
//! counted twice.

use crate::allocated::allocated;
use crate::machine::{ALPHA, Machine};
use superpage_pages::Access;
use superpage_vm::Growth;

/// What the manager says it holds, and what is free once it is gone.
fn said_and_held(sizes: &str, frames: u64, policy: &str, pages: impl Iterator<Item = u64>) -> (f64, f64) {
    let mut machine = Machine::new(sizes, frames, policy);
    machine.anonymous(0, 1 << 34, Growth::Fixed);
    pages.for_each(|page| {
        machine.access(page, Access::Write).unwrap();
    });
    let said = machine.vm.metadata_bytes();
    let before = allocated();
    drop(machine.vm);
    (said as f64, (before - allocated()) as f64)
}

#[test]
fn what_it_says_it_holds_is_what_is_freed_with_it() {
    // Without page lists, which would hide the rest.
    let none = |policy: &str| format!("{policy}:reclaim=none");
    for (sizes, policy, step, count, frames) in [
        // One page in each region of the largest size: roots, nodes, children, reservations.
        (ALPHA, none("reservation"), 512, 3000, 1 << 21),
        // Single pages: their frames.
        (ALPHA, none("base"), 1, 30_000, 1 << 15),
        (ALPHA, none("base"), 512, 3000, 1 << 15),
        // Bits of large regions beside the nodes.
        ("4K 2M", none("reservation"), 512, 3000, 1 << 21),
        ("4K 2M 1G", none("base"), 512, 500, 1 << 15),
        ("8K", none("base"), 1 << 20, 100, 1 << 10),
        // With page lists.
        (ALPHA, "reservation".into(), 1, 30_000, 1 << 15),
    ] {
        let (said, held) = said_and_held(sizes, frames, &policy, (0..count).map(|page| page * step));
        // What does not grow, such as a list of levels, is a kilobyte at most.
        assert!(
            (said - held).abs() < held / 100.0 + 1024.0,
            "{sizes}, {policy}: it says {said} bytes and holds {held}"
        );
    }
}

#[test]
fn with_everything_on_it_takes_at_most_four_thousandths_of_memory() {
    for (sizes, policy) in [("4K 2M", "base"), ("4K 64K 2M", "reservation"), (ALPHA, "reservation")] {
        let frames = 1 << 15;
        let (said, _) = said_and_held(sizes, frames, policy, 0..frames);
        let base: u64 = if sizes == ALPHA { 8192 } else { 4096 };
        let share = said / (frames * base) as f64;
        assert!(share < 0.004, "{sizes}, {policy}: {said} bytes, {share} of memory");
    }
}
