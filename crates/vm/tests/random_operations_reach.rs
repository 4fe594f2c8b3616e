//! The random operations are worth their time only if they come to every mechanism: here those of
//! some worlds are counted. Contents are checked, and the state of each world in the end; after
//! each operation that is for `random_operations`.
//!
//! `SEEDS=50 cargo test -p superpage-vm --test all reach -- --nocapture` tries so many seeds, each
//! alone, and prints how often each mechanism was reached.

use crate::common::{Op, World, plain};
use superpage_pages::Random;
use superpage_vm::Stats;

/// Worlds of one seed, and the operations and scenarios of each.
const WORLDS: u8 = 100;
const OPERATIONS: usize = 70;

/// A mechanism: how often it was reached in all worlds, and in how many of them.
struct Reached {
    name: &'static str,
    count: u64,
    worlds: u64,
}

/// How often one world came to each mechanism.
fn counts(stats: &Stats) -> [(&'static str, u64); 34] {
    [
        ("zero", stats.faults_zero),
        ("zero page", stats.faults_zero_page),
        ("file", stats.faults_file),
        ("resident", stats.faults_resident),
        ("copy", stats.faults_copy),
        ("rights", stats.faults_rights),
        ("out of memory", stats.faults_out_of_memory),
        ("promoted", stats.promotions[1]),
        ("promoted twice", stats.promotions[2]),
        ("promoted three times", stats.promotions[3]),
        ("promoted by copying", stats.promotions_by_copying),
        ("demoted", stats.demotions[1]),
        ("demoted from above", stats.demotions[2]),
        ("demoted from the third", stats.demotions[3]),
        ("found reserved", stats.reserved_found),
        ("preempted", stats.reservations_preempted),
        ("pieces freed", stats.pieces_freed),
        ("pieces kept", stats.pieces_kept),
        ("collapses", stats.collapses),
        ("wired", stats.wired_frames),
        ("held", stats.foreign_frames),
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
        ("coloured", stats.coloured_pages),
        ("uncoloured", stats.uncoloured_pages),
    ]
}

/// What the worlds of a seed came to.
fn reached(seed: u64) -> Vec<Reached> {
    let mut random = Random::new(seed);
    let mut all: Vec<Reached> = Vec::new();
    for number in 0..WORLDS {
        let answers = u128::from(random.next()) << 64 | u128::from(random.next());
        let mut world = World::new(number, answers, random.next() as u16);
        let ops: Vec<Op> = (0..OPERATIONS).map(|_| random.next().to_le_bytes()[..6].try_into().unwrap()).collect();
        for op in plain(ops) {
            world.apply(op);
            world.answer_daemon();
        }
        let counts = counts(&world.vm.stats());
        if all.is_empty() {
            all.extend(counts.map(|(name, _)| Reached { name, count: 0, worlds: 0 }));
        }
        for (reached, (_, count)) in all.iter_mut().zip(counts) {
            reached.count += count;
            reached.worlds += u64::from(count > 0);
        }
        world.end();
    }
    all
}

#[test]
fn every_mechanism_is_reached() {
    let seeds: u64 = std::env::var("SEEDS").map_or(1, |seeds| seeds.parse().expect("SEEDS is a number of seeds"));
    let all: Vec<Vec<Reached>> = (0..seeds).map(reached).collect();
    println!(
        "{seeds} seeds of {WORLDS} worlds: mechanism, times in a world (mean), % of worlds; least of a seed: times, worlds"
    );
    for (index, Reached { name, .. }) in all[0].iter().enumerate() {
        let of = all.iter().map(|seed| &seed[index]);
        let share = |sum: u64| sum as f64 / (seeds * u64::from(WORLDS)) as f64;
        let (mean, worlds) = (share(of.clone().map(|it| it.count).sum()), share(of.clone().map(|it| it.worlds).sum()));
        let (least, fewest) = (of.clone().map(|it| it.count).min().unwrap(), of.map(|it| it.worlds).min().unwrap());
        println!("{name:24}{mean:12.2}{:8.1}{least:12}{fewest:8}", 100.0 * worlds);
    }
    for (seed, reached) in all.iter().enumerate() {
        for Reached { name, count, .. } in reached {
            assert!(*count > 5, "{name}: {count} times with seed {seed}");
        }
    }
}
