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

/// A write to a page of a privately mapped file begins to read it, and the process does not wait; the file is then
/// written, and the process writes after all: its copy is of the file as it was.
#[test]
fn a_private_copy_is_of_the_time_when_its_read_began() {
    let map = [0, 26, 48, 9, 16, 195];
    let write = [33, 26, 48, 7, 0, 192];
    let open_and_write_file = [[17, 245, 75, 7, 0, 193], [20, 245, 75, 7, 0, 193]];
    let write_again = [92, 7, 42, 23, 198, 190];
    let mut world = World::slow(0, 44_143_946_114_221_333_958_431_289_579_724_592_678, 1826);
    [map, write].into_iter().chain(open_and_write_file).chain([write_again]).for_each(|op| world.step(op));
    world.end();
}
