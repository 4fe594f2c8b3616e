//! `chase`: a walk along a linked list whose nodes are in random order, each load's address the
//! value of the load before it: no two misses overlap.
//!
//! The region is full of nodes of `node` bytes, and the list is one cycle through all of them; a
//! lap visits each once. The order is a permutation that is computed and not stored, so the list
//! may be of any length. The links are written first in the order of memory, as a sequential pass
//! of 8-byte stores over the region, unless `populate=no`. 3 instructions a load are assumed: load,
//! count, branch.

use super::Kind;
use super::loads::{Place, region};
use super::parameters::{Parameter, Values};
use super::permutation::Permutation;
use crate::{Error, Source};

pub(super) const KIND: Kind = Kind {
    name: "chase",
    help: "dependent loads along a linked list in random order",
    parameters: &[
        Parameter { name: "bytes", default: "256M", help: "the size of the region" },
        Parameter { name: "node", default: "64", help: "the size of a node, a multiple of 8" },
        Parameter { name: "references", default: "100M", help: "the number of loads" },
        Parameter { name: "seed", default: "1", help: "chooses the order of the nodes" },
        Parameter { name: "populate", default: "yes", help: "whether the region is written once before: yes or no" },
    ],
    start,
};

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let bytes = region(values)?;
    let node = values.bytes("node", 8..=bytes)?;
    if !node.is_multiple_of(8) {
        return Err(values.wrong("node", "a multiple of 8 bytes, the size of a link"));
    }
    let nodes = bytes / node;
    let cycle = Cycle { order: Permutation::new(nodes, values.seed()?), nodes, node, next: 0 };
    super::loads::start(values, bytes, cycle)
}

struct Cycle {
    order: Permutation,
    nodes: u64,
    node: u64,
    /// The place of the next node in the list.
    next: u64,
}

impl Place for Cycle {
    const INSTRUCTIONS: u32 = 3;

    #[inline]
    fn next(&mut self) -> u64 {
        let at = self.next;
        self.next = if at + 1 == self.nodes { 0 } else { at + 1 };
        self.order.at(at) * self.node
    }
}
