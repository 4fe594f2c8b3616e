//! The random operations are worth their time only if they come to every mechanism: here a fixed set of them is counted.
//! Contents are checked, and the state of each world in the end; after each operation that is for `random_operations`.

mod common;

use common::World;
use superpage_vm::Stats;

/// The generator splitmix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[test]
fn every_mechanism_is_reached() {
    let mut state = 15;
    let mut reached: Vec<(&str, u64)> = Vec::new();
    for number in 0..240u16 {
        let mut world = World::new(number as u8, next(&mut state), next(&mut state) as u16);
        for _ in 0..300 {
            let bytes = next(&mut state).to_le_bytes();
            world.apply(bytes[..6].try_into().unwrap());
            world.answer_daemon();
        }
        let stats: Stats = world.vm.stats();
        let counts = [
            ("zero", stats.faults_zero),
            ("file", stats.faults_file),
            ("resident", stats.faults_resident),
            ("copy", stats.faults_copy),
            ("rights", stats.faults_rights),
            ("out of memory", stats.faults_out_of_memory),
            ("promoted", stats.promotions[1]),
            ("promoted twice", stats.promotions[2]),
            ("promoted three times", stats.promotions[3]),
            ("demoted", stats.demotions[1]),
            ("demoted from above", stats.demotions[2]),
            ("demoted from the third", stats.demotions[3]),
            ("found reserved", stats.reserved_found),
            ("preempted", stats.reservations_preempted),
            ("pieces freed", stats.pieces_freed),
            ("pieces kept", stats.pieces_kept),
            ("collapses", stats.collapses),
            ("wired", stats.wired_frames),
            ("swapped in", stats.faults_swap),
            ("cached", stats.faults_cached),
            ("read and written", stats.file_hits),
            ("written out", stats.page_outs),
            ("evicted", stats.evictions),
            ("demoted at a write", stats.demotions_on_write),
            ("demoted speculatively", stats.speculative_demotions),
            ("promoted again", stats.repromotions),
            ("contiguity restored", stats.contiguity_restored),
            ("untouched", stats.untouched_pages),
            ("spared by digests", stats.pages_spared),
        ];
        if reached.is_empty() {
            reached = counts.to_vec();
        } else {
            reached.iter_mut().zip(counts).for_each(|(sum, (_, count))| sum.1 += count);
        }
        world.end();
    }
    println!("{reached:?}");
    assert!(reached.iter().all(|(_, count)| *count > 5), "{reached:?}");
}
