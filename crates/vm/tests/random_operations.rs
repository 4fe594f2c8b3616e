//! Random sequences of all operations, over several processes, ladders and policies, with little memory: the state is
//! valid and every page holds what was written to it after each of them.

mod common;

use common::{Op, World};
use proptest::prelude::*;

proptest! {
    #[test]
    fn every_state_is_valid(
        ladder: u8,
        answers: u64,
        frames: u16,
        ops in proptest::collection::vec(any::<Op>(), 1..120),
    ) {
        let mut world = World::new(ladder, answers, frames);
        for op in ops {
            world.step(op);
        }
        world.end();
    }
}
