//! The kernel's own pages (Navarro et al., section 5.2): clustered in pools, or scattered over
//! memory.

use crate::machine::{ALPHA, Machine};
use superpage_pages::{Level, Pfn};
use superpage_vm::{Error, Growth};

/// Eight extents of 4 MB.
const FRAMES: u64 = 8 * 512;

fn whole(machine: &Machine) -> u64 {
    machine.vm.buddy().free_extents(Level(3))
}

/// Memory fills up while the kernel takes a page now and then; then the program ends. Gives the
/// frames of the kernel and the extents of the largest size that are whole again.
fn fill_and_free(policy: &str) -> (Machine, Vec<Pfn>, u64) {
    let mut machine = Machine::new(ALPHA, FRAMES, policy);
    assert_eq!(whole(&machine), 8);
    machine.anonymous(0, FRAMES, Growth::Fixed);
    let mut kernel = Vec::new();
    for page in 0..FRAMES - 64 {
        machine.put(page, 1);
        if page % 128 == 0 {
            kernel.push(machine.vm.wire_page().unwrap());
        }
    }
    machine.vm.validate(&machine.pmap).unwrap();
    machine.unmap(0, FRAMES);
    let left = whole(&machine);
    (machine, kernel, left)
}

#[test]
fn clustered_pages_cost_one_extent_and_scattered_ones_nearly_all() {
    let (machine, kernel, left) = fill_and_free("reservation");
    assert_eq!((kernel.len(), left), (32, 7), "one pool of 64 frames");
    assert_eq!((machine.vm.stats().wired_frames, machine.vm.kernel_frames()), (64, 32));
    let (machine, kernel, left) = fill_and_free("base:wired=cluster");
    assert_eq!((kernel.len(), left), (32, 7));
    drop(machine);
    let (machine, kernel, left) = fill_and_free("base:wired=scatter");
    assert_eq!((kernel.len(), left), (32, 0), "a page in every extent");
    assert_eq!(machine.vm.stats().wired_frames, 32);
}

#[test]
fn a_pool_is_given_back_with_its_last_page() {
    for policy in ["reservation", "reservation:wired=scatter"] {
        let (mut machine, kernel, _) = fill_and_free(policy);
        for frame in &kernel {
            assert!(machine.vm.kernel_frames() > 0);
            machine.vm.unwire_page(*frame).unwrap();
            machine.vm.validate(&machine.pmap).unwrap();
            assert_eq!(machine.vm.unwire_page(*frame), Err(Error::NotWired(*frame)));
        }
        assert_eq!((machine.vm.stats().wired_frames, whole(&machine)), (0, 8), "{policy}");
        machine.end();
    }
}

#[test]
fn a_pool_is_used_up_before_the_next_is_made() {
    let mut machine = Machine::alpha(FRAMES);
    let mut frames: Vec<Pfn> = (0..64).map(|_| machine.vm.wire_page().unwrap()).collect();
    frames.sort_unstable();
    assert!(frames.windows(2).all(|pair| pair[0] + 1 == pair[1]), "contiguous");
    assert_eq!(machine.vm.stats().wired_frames, 64);
    let hole = frames[10];
    machine.vm.unwire_page(hole).unwrap();
    assert_eq!(machine.vm.wire_page(), Ok(hole), "the page that was given back goes first");
    let next = machine.vm.wire_page().unwrap();
    assert_eq!((machine.vm.stats().wired_frames, machine.vm.kernel_frames()), (128, 65));
    machine.vm.unwire_page(next).unwrap();
    assert_eq!(machine.vm.stats().wired_frames, 64);
}

#[test]
fn with_memory_full_the_kernel_takes_a_reserved_frame_or_none() {
    let mut machine = Machine::alpha(64);
    machine.anonymous(0, 64, Growth::Fixed);
    (0..63).for_each(|page| machine.put(page, 1));
    let frame = machine.vm.wire_page().unwrap();
    assert_eq!((frame, machine.vm.stats().reservations_preempted > 0), (Pfn(63), true));
    assert_eq!(machine.vm.wire_page(), Err(Error::NoFrame));
    machine.vm.unwire_page(frame).unwrap();
    machine.end();
}

/// Programs and the kernel take pages in turn, and the programs end: how many blocks of 2 MB have a
/// page of the kernel.
fn tainted(policy: &str) -> (u64, Vec<u64>) {
    let mut machine = Machine::new("4K 2M", 16 * 512, policy);
    machine.anonymous(0, 16 * 512, Growth::Fixed);
    let mut kernel = Vec::new();
    for page in 0..12 * 512 {
        machine.put(page, 1);
        if page % 64 == 0 {
            kernel.push(machine.vm.wire_page().unwrap());
        }
    }
    machine.vm.validate(&machine.pmap).unwrap();
    machine.unmap(0, 16 * 512);
    let (mut blocks, steered) =
        (kernel.iter().map(|frame| frame.0 / 512).collect::<Vec<_>>(), policy.contains("pools"));
    blocks.sort_unstable();
    blocks.dedup();
    assert_eq!(machine.vm.tainted_blocks(), if steered { blocks.len() as u64 } else { 0 }, "{policy}");
    let free = machine.vm.buddy().free_extents(Level(1));
    assert_eq!(free, 16 - blocks.len() as u64, "{policy}");
    kernel.into_iter().for_each(|frame| machine.vm.unwire_page(frame).unwrap());
    assert_eq!(machine.vm.tainted_blocks(), 0);
    machine.end();
    (free, blocks)
}

#[test]
fn the_kernels_pages_are_steered_to_the_upper_end() {
    assert_eq!(tainted("base"), (3, (0..13).collect()), "a page in every block that programs use");
    assert_eq!(tainted("base:pools=two"), (15, vec![15]));
    assert_eq!(tainted("base:pools=two,wired=cluster"), (15, vec![15]));
}

#[test]
fn the_kernels_pages_are_steered_to_a_block_that_has_some() {
    let second = |policy: &str| {
        let mut machine = Machine::new("4K 2M 1G", 2 << 18, policy);
        // A program has the first gigabyte; when the kernel has a page in the second, a little of
        // the first is free.
        machine.anonymous(0, 1 << 18, Growth::Fixed);
        (0..1 << 18).step_by(512).for_each(|page| machine.put(page, 1));
        let first = machine.vm.wire_page().unwrap();
        machine.unmap(0, 3);
        let next = machine.vm.wire_page().unwrap();
        machine.vm.validate(&machine.pmap).unwrap();
        (first.0 >> 18, next.0 >> 18, machine.vm.tainted_blocks())
    };
    // What is unmapped of a huge page is free at once.
    assert_eq!(second("thp:deferred-split=off"), (1, 0, 0));
    assert_eq!(second("thp:deferred-split=off,pools=block:1G"), (1, 1, 1));
}
