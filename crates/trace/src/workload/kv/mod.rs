//! `kv`: a key-value store in memory: a hash table whose entries and values lie in an allocator
//! with size classes.
//!
//! The table is an array of a power of two of buckets, at least as many as there are `keys`, each
//! the head of a chain. An entry is 24 bytes: the next one, the key and the value's address. A
//! value has from `least` to `most` bytes, in words of 8, each size as likely, drawn when it is
//! set. Both are allocated in [`slabs`] as by jemalloc; so memory that is free but not given back
//! is what jemalloc's layout leaves. Buckets are a separate mapping.
//!
//! The part `fill` sets all keys in their order. With `drop` above 0 the part `drop` deletes that
//! share of the keys, chosen at random: what remains is spread over memory that was full, as in
//! Redis after deletions. The part `use` is `operations` on keys of unequal popularity, drawn as in
//! [`zipf`](super::zipf): with the probability `inserts` a key is set, to a new value if it has
//! one; with the probability `deletes` it is deleted; else its value is read whole. A key that is
//! not there is looked for.
//!
//! What the generator keeps takes about 40 bytes for each key, and 48 for each run of the
//! allocator. 3 instructions a reference are assumed, and 20 more for the hash of a key. The table
//! does not grow, and nothing is cached for a thread.

mod slabs;

use super::Kind;
use super::parameters::{MOST_COUNT, Parameter, Values};
use super::permutation::Permutation;
use super::program::{Out, Program, REGION, Running, next_region};
use super::zipf::Popularity;
use crate::{Error, Event, Info, Source};
use slabs::{Slabs, class_size};
use superpage_pages::{Access, Random};

pub(super) const KIND: Kind = Kind {
    name: "kv",
    help: "a key-value store: a hash table over an allocator with size classes, with deletions",
    parameters: &[
        Parameter { name: "keys", default: "1M", help: "keys set at first, at most 64M" },
        Parameter { name: "least", default: "64", help: "the least size of a value, a multiple of 8" },
        Parameter { name: "most", default: "1K", help: "the largest, up to 1M" },
        Parameter { name: "drop", default: "0", help: "the share of the keys that is then deleted" },
        Parameter { name: "operations", default: "1M", help: "operations after that" },
        Parameter { name: "inserts", default: "0.1", help: "the share of them that set a key" },
        Parameter { name: "deletes", default: "0.1", help: "the share that delete a key; the rest read one" },
        Parameter { name: "theta", default: "0.99", help: "how unequal keys are in them; 0 is uniform" },
        Parameter { name: "discard", default: "yes", help: "whether free runs are given back to the system" },
        Parameter { name: "seed", default: "1", help: "chooses sizes, keys and operations" },
    ],
    start,
};

/// The most keys and the most bytes of all their slots.
const MOST_KEYS: u64 = 64_000_000;
const MOST_LIVE: u64 = 32 << 30;

/// Bytes of an entry, and where the address of its value is.
const ENTRY: u64 = 24;
const VALUE: u64 = 16;

const INSTRUCTIONS: u32 = 3;
const HASH: u32 = 20;

/// Operations in a step.
const BLOCK: u64 = 64;

/// No key, at the end of a chain.
const NONE: u32 = u32::MAX;

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let keys = values.count("keys", 1..=MOST_KEYS)?;
    let least = values.bytes("least", 8..=1 << 20)?;
    let most = values.bytes("most", least..=1 << 20)?;
    for (name, size) in [("least", least), ("most", most)] {
        if !size.is_multiple_of(8) {
            return Err(values.wrong(name, "a multiple of 8"));
        }
    }
    if keys * (class_size(ENTRY) + class_size(most)) > MOST_LIVE {
        return Err(values.wrong("keys", "a number with which entries and values take at most 32G bytes"));
    }
    let drop = values.fraction("drop", 0.0..=1.0)?;
    let operations = values.count("operations", 0..=MOST_COUNT)?;
    let [inserts, deletes] = [values.fraction("inserts", 0.0..=1.0)?, values.fraction("deletes", 0.0..=1.0)?];
    if inserts + deletes > 1.0 {
        return Err(values.wrong("deletes", "a share that is at most 1 together with inserts"));
    }
    let theta = values.fraction("theta", 0.0..=8.0)?;
    let discard = values.choice("discard", "yes", "no")?;
    let seed = values.seed()?;
    let mean = (least + most) / 2;
    let pages = 1 + mean / 4096;
    let dropped = (keys as f64 * drop) as u64;
    let runs = keys * (8 + pages) + dropped * 8 + operations.saturating_mul(5 + pages);
    let buckets = keys.next_power_of_two();
    // Of each key what `Key` holds and its popularity, 16 bytes more while that is made; a run for
    // each page at most.
    let memory = keys * (24 + 8 + 16) + buckets * 4 + keys * (class_size(ENTRY) + class_size(mean)) / 4096 * 64;
    let info = Info { runs: Some(runs), memory, ..Info::default() };
    let plan = Plan { keys, least, most, dropped, inserts, deletes, theta, buckets, seed };
    let slabs = Slabs::new(next_region(REGION, 8 * buckets), discard);
    let store = Store { plan, slabs, heads: Vec::new(), keys: Vec::new(), random: Random::new(seed) };
    Ok(Running::described(values, Workload { store, operations, state: State::Start }, info))
}

/// The parameters.
struct Plan {
    keys: u64,
    least: u64,
    most: u64,
    /// Keys that are deleted after filling.
    dropped: u64,
    inserts: f64,
    deletes: f64,
    theta: f64,
    buckets: u64,
    seed: u64,
}

/// What a key has; `entry` 0 if it is not in the store.
#[derive(Clone, Copy)]
struct Key {
    entry: u64,
    value: u64,
    bytes: u32,
    /// The next key of the chain.
    next: u32,
}

struct Store {
    plan: Plan,
    slabs: Slabs,
    /// The first key of each bucket.
    heads: Vec<u32>,
    keys: Vec<Key>,
    random: Random,
}

impl Store {
    fn allocate(&mut self) {
        self.heads = vec![NONE; self.plan.buckets as usize];
        self.keys = vec![Key { entry: 0, value: 0, bytes: 0, next: NONE }; self.plan.keys as usize];
    }

    fn bucket(&self, key: u32) -> u64 {
        Random::at(self.plan.seed ^ 0x6b76, key.into()).next() & (self.plan.buckets - 1)
    }

    /// Looks a key up: the bucket, then the entries of its chain up to the key's. Returns the key
    /// before it in the chain, if the key is there and is not the first.
    fn look_up(&self, out: &mut Out, key: u32) -> Option<u32> {
        let bucket = self.bucket(key);
        out.data(REGION + 8 * bucket, Access::Read, 1, HASH + INSTRUCTIONS);
        let (mut before, mut at) = (None, self.heads[bucket as usize]);
        while at != NONE {
            let entry = &self.keys[at as usize];
            out.words(entry.entry + 8, Access::Read, 1, INSTRUCTIONS);
            if at == key {
                return before;
            }
            out.words(entry.entry, Access::Read, 1, INSTRUCTIONS);
            (before, at) = (Some(at), entry.next);
        }
        None
    }

    fn holds(&self, key: u32) -> bool {
        self.keys[key as usize].entry != 0
    }

    fn read(&self, out: &mut Out, key: u32) {
        self.look_up(out, key);
        if self.holds(key) {
            let Key { entry, value, bytes, .. } = self.keys[key as usize];
            out.words(entry + VALUE, Access::Read, 1, INSTRUCTIONS);
            out.words(value, Access::Read, u64::from(bytes) / 8, INSTRUCTIONS);
        }
    }

    fn set(&mut self, out: &mut Out, key: u32) {
        self.look_up(out, key);
        let Plan { least, most, .. } = self.plan;
        let bytes = least + 8 * self.random.below((most - least) / 8 + 1);
        if self.holds(key) {
            let Key { entry, value, .. } = self.keys[key as usize];
            out.words(entry + VALUE, Access::Read, 1, INSTRUCTIONS);
            self.slabs.free(out, value);
        } else {
            let bucket = self.bucket(key);
            let entry = self.slabs.allocate(out, ENTRY);
            let head = &mut self.heads[bucket as usize];
            self.keys[key as usize].entry = entry;
            self.keys[key as usize].next = std::mem::replace(head, key);
            out.words(entry, Access::Write, 2, INSTRUCTIONS);
            out.data(REGION + 8 * bucket, Access::Write, 1, INSTRUCTIONS);
        }
        let value = self.slabs.allocate(out, bytes);
        out.words(value, Access::Write, bytes / 8, INSTRUCTIONS);
        let key = &mut self.keys[key as usize];
        (key.value, key.bytes) = (value, bytes as u32);
        out.words(key.entry + VALUE, Access::Write, 1, INSTRUCTIONS);
    }

    fn delete(&mut self, out: &mut Out, key: u32) {
        let before = self.look_up(out, key);
        if !self.holds(key) {
            return;
        }
        let none = Key { entry: 0, value: 0, bytes: 0, next: NONE };
        let Key { entry, value, next, .. } = std::mem::replace(&mut self.keys[key as usize], none);
        out.words(entry, Access::Read, 1, INSTRUCTIONS);
        let link = if let Some(before) = before {
            self.keys[before as usize].next = next;
            self.keys[before as usize].entry
        } else {
            let bucket = self.bucket(key);
            self.heads[bucket as usize] = next;
            REGION + 8 * bucket
        };
        out.words(link, Access::Write, 1, INSTRUCTIONS);
        out.words(entry + VALUE, Access::Read, 1, INSTRUCTIONS);
        self.slabs.free(out, value);
        self.slabs.free(out, entry);
    }
}

struct Workload {
    store: Store,
    /// Operations to come.
    operations: u64,
    state: State,
}

enum State {
    Start,
    /// The next key.
    Fill(u32),
    /// The next place in the order of deletions.
    Drop(u64, Permutation),
    Use(Popularity),
    Done,
}

impl Program for Workload {
    fn step(&mut self, out: &mut Out) -> bool {
        let store = &mut self.store;
        match &mut self.state {
            State::Start => {
                store.allocate();
                out.begin();
                out.event(Event::Mark("fill".into()));
                out.map_anonymous(REGION, 8 * store.plan.buckets);
                self.state = State::Fill(0);
            }
            State::Fill(next) if u64::from(*next) == store.plan.keys => {
                if store.plan.dropped > 0 {
                    out.event(Event::Mark("drop".into()));
                }
                self.state = State::Drop(0, Permutation::new(store.plan.keys, store.random.next()));
            }
            State::Fill(next) => {
                let end = store.plan.keys.min(u64::from(*next) + BLOCK) as u32;
                (std::mem::replace(next, end)..end).for_each(|key| store.set(out, key));
            }
            State::Drop(next, _) if *next == store.plan.dropped => {
                out.event(Event::Mark("use".into()));
                let Plan { keys, theta, .. } = store.plan;
                let places = Permutation::new(keys, store.random.next());
                self.state = State::Use(Popularity::new(keys, theta, &places));
            }
            State::Drop(next, order) => {
                let end = store.plan.dropped.min(*next + BLOCK);
                (std::mem::replace(next, end)..end).for_each(|place| store.delete(out, order.at(place) as u32));
            }
            State::Use(_) if self.operations == 0 => {
                out.event(Event::Exit);
                self.state = State::Done;
            }
            State::Use(popularity) => {
                let count = self.operations.min(BLOCK);
                self.operations -= count;
                for _ in 0..count {
                    let (kind, key) = (store.random.fraction(), popularity.object(store.random.next()) as u32);
                    if kind < store.plan.inserts {
                        store.set(out, key);
                    } else if kind < store.plan.inserts + store.plan.deletes {
                        store.delete(out, key);
                    } else {
                        store.read(out, key);
                    }
                }
            }
            State::Done => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn store(keys: u64, least: u64, most: u64) -> Store {
        let (buckets, seed) = (keys.next_power_of_two(), 3);
        let (dropped, inserts, deletes, theta) = (0, 0.0, 0.0, 0.0);
        let plan = Plan { keys, least, most, dropped, inserts, deletes, theta, buckets, seed };
        let slabs = Slabs::new(next_region(REGION, 8 * buckets), true);
        let mut store = Store { plan, slabs, heads: Vec::new(), keys: Vec::new(), random: Random::new(seed) };
        store.allocate();
        store
    }

    fn references(out: &Out) -> u64 {
        out.runs().iter().map(|run| u64::from(run.references)).sum()
    }

    #[test]
    fn the_store_holds_what_was_set_and_not_deleted() {
        let (mut store, mut out, mut random) = (store(300, 8, 5000), Out::default(), Random::new(9));
        let mut expected = BTreeMap::new();
        for round in 0..20_000 {
            let key = random.below(300) as u32;
            // Now more keys come, now more go.
            if random.below(100) < if round / 3000 % 2 == 0 { 70 } else { 20 } {
                store.set(&mut out, key);
                expected.insert(key, store.keys[key as usize].bytes);
            } else {
                store.delete(&mut out, key);
                expected.remove(&key);
            }
            if round % 100 > 0 {
                continue;
            }
            let held = (0..300).filter(|key| store.holds(*key)).map(|key| (key, store.keys[key as usize].bytes));
            assert!(held.eq(expected.clone()));
            let slots = expected.values().map(|bytes| class_size(ENTRY) + class_size(u64::from(*bytes))).sum::<u64>();
            assert_eq!(store.slabs.validate(), slots, "live bytes");
            // Chains hold each key once, and no other.
            let mut chained = Vec::new();
            for head in &store.heads {
                let mut at = *head;
                while at != NONE {
                    chained.push(at);
                    at = store.keys[at as usize].next;
                }
            }
            chained.sort_unstable();
            assert!(chained.iter().eq(expected.keys()));
        }
    }

    #[test]
    fn an_operation_makes_the_references_of_its_words() {
        let (mut store, mut out) = (store(1, 800, 800), Out::default());
        let mut made = |store: &mut Store, operation: fn(&mut Store, &mut Out)| {
            let before = references(&out);
            operation(store, &mut out);
            references(&out) - before
        };
        assert_eq!(made(&mut store, |store, out| store.read(out, 0)), 1, "the bucket");
        // The bucket twice, the entry's words, the value, and a run's bitmap, read and written, for
        // each of both.
        assert_eq!(made(&mut store, |store, out| store.set(out, 0)), 2 + 3 + 100 + 4);
        // The bucket, the entry's key and address, and the value.
        assert_eq!(made(&mut store, |store, out| store.read(out, 0)), 1 + 2 + 100);
        // The same, with another address and value, and two bitmaps.
        assert_eq!(made(&mut store, |store, out| store.set(out, 0)), 1 + 3 + 100 + 4);
        // The bucket twice, the entry's words, and two bitmaps.
        assert_eq!(made(&mut store, |store, out| store.delete(out, 0)), 2 + 3 + 4);
    }
}
