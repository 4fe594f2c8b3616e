//! Random sequences of all operations, over several processes, ladders and policies, with little memory: the state is
//! valid and every page holds what was written to it after each of them.

use crate::common::{Op, World, plain};
use proptest::prelude::*;
use proptest::{collection, option};

/// Plain operations, those of scenarios among them; where a test fails, each of them may turn out to be needless.
fn operations() -> impl Strategy<Value = Vec<Op>> {
    let all = collection::vec(any::<Op>(), 1..80).prop_map(plain);
    let each = all.prop_flat_map(|ops| ops.into_iter().map(|op| option::weighted(0.999, Just(op))).collect::<Vec<_>>());
    each.prop_map(|ops| ops.into_iter().flatten().collect())
}

proptest! {
    #[test]
    fn every_state_is_valid(ladder: u8, answers: u128, frames: u16, ops in operations()) {
        let mut world = World::new(ladder, answers, frames);
        for op in ops {
            world.step(op);
        }
        world.end();
    }

    #[test]
    fn every_state_is_valid_where_reads_take_their_time(ladder: u8, answers: u128, frames: u16, ops in operations()) {
        let mut world = World::slow(ladder, answers, frames);
        for op in ops {
            world.step(op);
        }
        world.end();
    }
}
