//! Any sequence of operations of several processes on one memory: valid after each, and every page holds what was written.
#![no_main]

#[path = "../../crates/vm/tests/common/mod.rs"]
mod common;

use common::{World, plain};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u128, u16, Vec<common::Op>)| {
    let (ladder, answers, frames, ops) = input;
    let mut world = World::new(ladder, answers, frames);
    plain(ops).into_iter().for_each(|op| world.step(op));
    world.end();
});
