//! `btree`: a B+ tree, filled in random or ascending order and then used.
//!
//! The tree is really kept, in simulated memory, and the references are those of its operations
//! ([`tree`]). First `keys` keys are inserted, the part `fill`; then `operations` follow, the part
//! `use`: look-ups of keys that are in the tree, each as likely as the others, and, with `inserts`
//! above 0, that share of insertions of new keys. In random order each key is any number of 64
//! bits, in ascending order the one before it and one.
//!
//! Nodes are allocated one after another from a heap that grows by 132 KB, as `malloc` of the GNU C
//! library takes them from the end of its arena: 8 bytes more than a node needs, rounded up to 16.
//! None is ever freed. A node of `order=16` takes 288 bytes so. Filled at random, nodes are full to
//! 70 %: 28 bytes a key with `order=16`, 24 with 64. In ascending order all leaves but the last
//! stay half full. The generator keeps 8 bytes for each key that a node has room for, 4 for each
//! child, and 8 for the node: about half of what the program has.
//!
//! 3 instructions a reference are assumed; how keys are drawn is not in the stream.

mod tree;

use super::Kind;
use super::parameters::{MOST_COUNT, Parameter, Values};
use super::program::{Out, Program, Running};
use crate::{Error, Event, Info, Source};
use superpage_pages::Random;
use tree::Tree;

pub(super) const KIND: Kind = Kind {
    name: "btree",
    help: "look-ups and insertions in a B+ tree",
    parameters: &[
        Parameter { name: "keys", default: "10M", help: "keys inserted at first" },
        Parameter { name: "order", default: "16", help: "the most children of a node and keys of a leaf" },
        Parameter { name: "fill", default: "random", help: "the order of insertions: random or ascending" },
        Parameter { name: "operations", default: "1M", help: "operations after that" },
        Parameter { name: "inserts", default: "0", help: "the share of them that are insertions" },
        Parameter { name: "seed", default: "1", help: "chooses keys and operations" },
    ],
    start,
};

/// The most keys in all: what the numbers of nodes leave room for.
const MOST_KEYS: u64 = 4_000_000_000;

/// Operations in a step.
const BLOCK: u64 = 256;

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let keys = values.count("keys", 1..=MOST_KEYS)?;
    let order = values.count("order", 4..=512)?;
    let random = values.choice("fill", "random", "ascending")?;
    let operations = values.count("operations", 0..=MOST_COUNT)?;
    let inserts = values.fraction("inserts", 0.0..=1.0)?;
    let seed = values.seed()?;
    let inserted = (operations as f64 * inserts) as u64;
    if inserted > MOST_KEYS - keys {
        return Err(values.wrong("operations", "a number with which at most 4G keys are inserted in all"));
    }
    let full = if random { 0.69 } else { 0.5 };
    let nodes = ((keys + inserted) as f64 / (order as f64 * full) * 1.1) as u64 + 2;
    let depth = 1 + (keys.max(2) as f64).log(order as f64 * full).ceil() as u64;
    let runs = if random { depth * (keys + operations) } else { keys / 8 + depth * operations } * 2;
    let info = Info { runs: Some(runs), memory: Tree::bytes(order, nodes), ..Info::default() };
    let keys_of = Keys { random, seed };
    let choices = Random::new(!seed);
    let workload = Workload { keys, keys_of, order, left: operations, inserts, choices, tree: None, inserted: 0 };
    Ok(Running::described(values, workload, info))
}

/// The keys, in the order of their insertion.
struct Keys {
    random: bool,
    seed: u64,
}

impl Keys {
    /// The key with this number. All differ.
    fn key(&self, number: u64) -> u64 {
        if self.random { Random::at(self.seed, number).next() } else { number }
    }
}

struct Workload {
    /// How many are inserted at first.
    keys: u64,
    keys_of: Keys,
    order: u64,
    /// Operations to come.
    left: u64,
    inserts: f64,
    choices: Random,
    /// None before the first step and after the last.
    tree: Option<Tree>,
    /// Keys inserted so far.
    inserted: u64,
}

impl Program for Workload {
    fn step(&mut self, out: &mut Out) -> bool {
        let Some(tree) = &mut self.tree else {
            if self.inserted > 0 {
                return false;
            }
            out.begin();
            out.event(Event::Mark("fill".into()));
            self.tree = Some(Tree::new(out, self.order));
            return true;
        };
        if self.inserted < self.keys {
            for number in self.inserted..self.keys.min(self.inserted + BLOCK) {
                tree.insert(out, self.keys_of.key(number));
                self.inserted = number + 1;
            }
            if self.inserted == self.keys {
                out.event(Event::Mark("use".into()));
            }
            return true;
        }
        if self.left == 0 {
            out.event(Event::Exit);
            self.tree = None;
            return true;
        }
        let count = self.left.min(BLOCK);
        self.left -= count;
        for _ in 0..count {
            if self.inserts > 0.0 && self.choices.fraction() < self.inserts {
                tree.insert(out, self.keys_of.key(self.inserted));
                self.inserted += 1;
            } else {
                let key = self.keys_of.key(self.choices.below(self.inserted));
                let found = tree.find(out, key);
                debug_assert!(found, "a key that was inserted");
            }
        }
        true
    }
}
