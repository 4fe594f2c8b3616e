//! Arbitrary operations of several processes on one memory: every page must hold what was written,
//! and the state must be valid at random moments and at the end. (The crate's property test checks
//! after each operation, and is slow.)
#![no_main]

#[allow(dead_code, unused_imports, reason = "tests use more of it")]
#[path = "../../crates/vm/tests/common/mod.rs"]
mod common;

use common::{World, plain};
use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::xxh3_64;

fuzz_target!(|input: (u8, u128, u16, Vec<common::Op>)| {
    let (ladder, answers, frames, ops) = input;
    // One of four configurations has a slow store.
    let slow = ladder >> 6 == 3;
    let world = World::new(ladder, answers, frames);
    let mut world = if slow { world.slow() } else { world };
    for (at, op) in plain(ops).into_iter().enumerate() {
        world.apply(op);
        world.answer_daemon();
        // One in 32, at positions that a small change of the input moves.
        if xxh3_64(&[&op[..], &at.to_le_bytes()].concat()) % 32 == 0 {
            world.check(op);
        }
    }
    world.end();
});
