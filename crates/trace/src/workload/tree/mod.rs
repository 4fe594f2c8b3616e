//! `tree`: the paper's synthetic benchmark of many small objects with poor locality (Navarro et
//! al., section 6.2).
//!
//! A red-black tree is really kept, in simulated memory, and every load and store of its fields is
//! in the stream: the descent, the recolouring and the rotations, the free lists of `malloc`. First
//! `nodes` nodes with random keys are inserted. Then `operations` operations are drawn at random:
//! 50 % lookups, 24 % insertions, 24 % deletions, 2 % traversals. A node points to a record of 128
//! bytes, allocated and initialised (16 stores) when the node is inserted; a lookup and a traversal
//! read half of the record (8 loads). Lookups and deletions draw their key from those in the tree
//! and insertions draw a new one, so that the tree stays about as large as it was; drawing costs no
//! reference. A traversal goes in order by the nodes' parent pointers, with no stack. A deletion
//! from an empty tree, or a lookup in it, becomes an insertion.
//!
//! Nodes have six fields of 8 bytes and what `malloc` and the tree's library keep with them: more
//! than 64 bytes, so that with the powers of two that `malloc` deals in they take 128, as records
//! do, and share pages with these. The paper does not say so. Its superpages do (table 1): 13.0 MB
//! in all, 50000 times 128 and 128 bytes with some more, where 64 would be 9.6 MB. The heap grows
//! by a page of 8 KB at a time, right behind the program's data as [`process`](super::process)
//! says. 3 instructions a reference are assumed; their fetches are not in the stream.
//!
//! The paper does not say how many operations it ran. Its counter shows 35 steps of 512 K misses
//! (the 97.14 % of table 1 are `1 - 1/35`), and nearly all of them come from traversals, of nearly
//! one miss a node, whose record is next to it: 8.3 M misses in 10000 operations, in 128
//! round-robin entries for 8 KB pages. So about 21000 operations, the default.

mod heap;
mod red_black;

use super::parameters::{MOST_COUNT, Parameter, Values};
use super::process::{LEAST_HEAP, Process};
use super::program::{Out, Program, Running};
use super::{Kind, file};
use crate::{Error, Event, Source};
use heap::Heap;
use red_black::{NIL, Tree};
use superpage_pages::Access;
use superpage_pages::Random;

pub(super) const KIND: Kind = Kind {
    name: "tree",
    help: "random operations on a red-black tree of small records (Navarro et al., section 6.2)",
    parameters: &[
        Parameter { name: "nodes", default: "50000", help: "nodes inserted at first" },
        Parameter { name: "operations", default: "21000", help: "operations after that" },
        Parameter { name: "seed", default: "1", help: "chooses keys and operations" },
    ],
    start,
};

/// Bytes of a node and of a record, and how many words of a record a lookup reads.
const NODE: u64 = 72;
const RECORD: u64 = 128;
const HALF: u32 = (RECORD / 8 / 2) as u32;

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let nodes = values.count("nodes", 1..=100_000_000)?;
    let operations = values.count("operations", 0..=MOST_COUNT)?;
    let seed = values.seed()?;
    // About 30 runs an insertion or deletion, and four for each node of a traversal.
    let runs = 30 * (nodes + operations) + (operations / 50).saturating_mul(4 * nodes);
    let workload = Workload {
        building: nodes,
        left: operations,
        keys: Random::new(seed),
        choices: Random::new(!seed),
        live: Vec::new(),
        tree: Tree::default(),
        heap: None,
    };
    Ok(Running::start(values, workload, false, runs))
}

struct Workload {
    /// Nodes still to be inserted before the operations.
    building: u64,
    /// Operations to come.
    left: u64,
    /// Every key is new: 2^64 draws in a row differ.
    keys: Random,
    choices: Random,
    /// The keys in the tree, in no order.
    live: Vec<u64>,
    tree: Tree,
    /// The process's heap; none before the first step and after the last.
    heap: Option<Heap>,
}

/// One load or store of at most 8 bytes at an address, and the instructions around it.
#[inline]
fn access(out: &mut Out, address: u64, access: Access) {
    out.data(address, access, 1, 3);
}

/// `words` loads or stores of 8 bytes from an address on, within a page.
fn accesses(out: &mut Out, address: u64, access: Access, words: u32) {
    out.words(address, access, words.into(), 3);
}

impl Program for Workload {
    fn step(&mut self, out: &mut Out) -> bool {
        if self.building == 0 && self.left == 0 {
            let running = self.heap.take().is_some();
            if running {
                out.event(Event::Exit);
            }
            return running;
        }
        if self.heap.is_none() {
            out.begin();
            self.heap = Some(Heap::new(Process::start(out, file("tree"), LEAST_HEAP, false)));
        }
        if self.building > 0 {
            self.building -= 1;
            self.insert(out);
            return true;
        }
        self.left -= 1;
        match self.choices.below(100) {
            0..50 if !self.live.is_empty() => {
                let key = self.live[self.choices.below(self.live.len() as u64) as usize];
                let node = self.tree.find(out, key);
                self.read_record(out, node);
            }
            74..98 if !self.live.is_empty() => self.delete(out),
            98.. => self.traverse(out),
            _ => self.insert(out),
        }
        true
    }
}

impl Workload {
    fn insert(&mut self, out: &mut Out) {
        let heap = self.heap.as_mut().expect("a heap that lives while there is work");
        let (node, record) = (heap.allocate(out, NODE), heap.allocate(out, RECORD));
        accesses(out, record, Access::Write, (RECORD / 8) as u32);
        let key = self.keys.next();
        self.tree.insert(out, key, node, record);
        self.live.push(key);
    }

    fn delete(&mut self, out: &mut Out) {
        let key = self.live.swap_remove(self.choices.below(self.live.len() as u64) as usize);
        let node = self.tree.find(out, key);
        let record = self.tree.record(out, node);
        let address = self.tree.delete(out, node);
        let heap = self.heap.as_mut().expect("a heap that lives while there is work");
        heap.free(out, record, RECORD);
        heap.free(out, address, NODE);
    }

    fn traverse(&mut self, out: &mut Out) {
        let mut node = self.tree.first(out);
        while node != NIL {
            self.read_record(out, node);
            node = self.tree.successor(out, node);
        }
    }

    fn read_record(&self, out: &mut Out, node: u32) {
        let record = self.tree.record(out, node);
        accesses(out, record, Access::Read, HALF);
    }
}
