//! What each thread has run so far, and how threads share cores.

use super::stretch::Done;
use std::collections::{BTreeMap, HashMap};
use superpage_trace::{Cores, Info};

/// What each thread has run so far. Where the stream does not say on which core, all are one, with
/// number 0.
#[derive(Default)]
pub(crate) struct CoreUse {
    /// The number of cores that there may be; 0: the stream does not say which. And of hardware
    /// threads of each.
    number: u32,
    siblings: u32,
    /// Whether fetches are accesses of the stream.
    fetches: bool,
    /// The accesses of each thread that has run something, with those left out.
    accesses: BTreeMap<u32, u64>,
    /// Of each core that has run something, its instructions, and the thread that ran last.
    cores: BTreeMap<u32, (u64, u32)>,
    turns: u64,
    /// The instructions of each thread on each core.
    threads: HashMap<(u32, u32), u64>,
    /// The hardware threads of threads that have migrated, and how often any has.
    migrated: HashMap<u32, u32>,
    migrations: u64,
    /// The core and the thread that run.
    current: (u32, u32),
}

impl CoreUse {
    /// At the beginning of a stream.
    pub(crate) fn new(info: &Info) -> CoreUse {
        CoreUse { number: info.cores, siblings: info.siblings.max(1), fetches: info.fetches, ..CoreUse::default() }
    }

    /// The stream goes on with this thread; returns its core, if it has one, and its hardware
    /// thread there.
    pub(crate) fn switch(&mut self, thread: u32) -> Option<(usize, usize)> {
        if self.number == 0 {
            return None;
        }
        let begins = || Cores::of(self.number * self.siblings, thread);
        let on = self.migrated.get(&thread).copied().unwrap_or_else(begins);
        let core = Cores::of(self.number, on);
        self.current = (core, thread);
        Some((core as usize, (on / self.number) as usize))
    }

    /// The thread is on this hardware thread the next time that the stream switches to it.
    pub(crate) fn migrate(&mut self, thread: u32, to: u32) {
        self.migrated.insert(thread, to);
        self.migrations += 1;
    }

    /// The current thread has run this.
    pub(crate) fn pass(&mut self, done: &Done) {
        self.count(done.accesses, done.instructions);
    }

    /// These data references and instructions of the current thread were left out.
    pub(crate) fn skip(&mut self, references: u64, instructions: u64) {
        self.count(references + if self.fetches { instructions } else { 0 }, instructions);
    }

    fn count(&mut self, accesses: u64, instructions: u64) {
        let (core, thread) = self.current;
        let (ran, last) = self.cores.entry(core).or_insert((0, thread));
        *ran += instructions;
        let changed = std::mem::replace(last, thread) != thread;
        self.turns += u64::from(changed && self.accesses.contains_key(&thread));
        *self.accesses.entry(thread).or_default() += accesses;
        *self.threads.entry(self.current).or_default() += instructions;
    }

    /// The accesses of each thread so far, with those left out.
    pub(crate) fn accesses(&self) -> &BTreeMap<u32, u64> {
        &self.accesses
    }

    /// How often a thread went on after another of its core.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }

    /// The cores that have run something; 0: the stream does not say which.
    pub(crate) fn used(&self) -> u64 {
        if self.number == 0 { 0 } else { self.cores.len() as u64 }
    }

    /// How often threads have migrated.
    pub(crate) fn migrations(&self) -> u64 {
        self.migrations
    }

    /// The share of all instructions that the core with most of them made.
    pub(crate) fn busiest(&self) -> f64 {
        let instructions = || self.cores.values().map(|(instructions, _)| *instructions);
        match (instructions().sum(), instructions().max()) {
            (0, _) | (_, None) => 1.0,
            (all, Some(most)) => most as f64 / all as f64,
        }
    }

    /// The cores on which two threads or more made over a tenth of all instructions each, if
    /// another core made less than half of what the busiest did.
    pub(crate) fn crowded(&self) -> u64 {
        let made = || self.cores.values().map(|(instructions, _)| *instructions);
        let (all, most): (u64, u64) = (made().sum(), made().max().unwrap_or(0));
        let idle = self.used() < u64::from(self.number) || made().any(|made| made * 2 < most);
        let mut busy: HashMap<u32, u64> = HashMap::new();
        let busy_threads = self.threads.iter().filter(|(_, made)| **made * 10 > all);
        busy_threads.for_each(|((core, _), _)| *busy.entry(*core).or_default() += 1);
        if idle { busy.values().filter(|threads| **threads > 1).count() as u64 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(cores: u32) -> CoreUse {
        CoreUse::new(&Info { cores, fetches: true, ..Info::default() })
    }

    fn ran(instructions: u64) -> Done {
        Done { references: 1, instructions, accesses: 1 + instructions }
    }

    #[test]
    fn the_busiest_core_is_known_and_who_went_on() {
        let mut three = on(3);
        for (thread, instructions) in [(0, 10), (1, 60), (0, 5), (3, 5), (1, 10), (0, 10)] {
            assert_eq!(three.switch(thread), Some((thread as usize % 3, 0)));
            three.pass(&ran(instructions));
        }
        three.switch(2);
        assert_eq!((three.used(), three.busiest()), (2, 0.7), "core 2 has run nothing");
        assert_eq!(three.turns(), 1, "thread 0 after thread 3");
        three.skip(7, 100);
        assert_eq!(
            three.accesses().iter().map(|(thread, all)| (*thread, *all)).collect::<Vec<_>>(),
            [(0, 28), (1, 72), (2, 107), (3, 6)]
        );
        let mut none = on(0);
        assert_eq!(none.switch(5), None);
        none.pass(&ran(7));
        none.switch(6);
        none.skip(1, 1);
        assert_eq!((none.used(), none.busiest(), none.turns(), none.crowded()), (0, 1.0, 0, 0));
        assert_eq!(none.accesses().get(&0), Some(&10));
    }

    #[test]
    fn a_core_with_two_busy_threads_is_crowded_while_another_is_idle() {
        let crowded = |instructions: &[(u32, u64)]| {
            let mut three = on(3);
            for (thread, instructions) in instructions {
                three.switch(*thread);
                three.pass(&ran(*instructions));
            }
            three.crowded()
        };
        assert_eq!(crowded(&[(0, 40), (3, 40), (1, 20)]), 1, "core 2 has run nothing");
        assert_eq!(crowded(&[(0, 40), (3, 40), (1, 20), (2, 20)]), 1, "cores 1 and 2 are idle most of the time");
        assert_eq!(crowded(&[(0, 20), (3, 20), (1, 30), (2, 30)]), 0, "all are busy");
        assert_eq!(crowded(&[(0, 90), (3, 8), (1, 2)]), 0, "one thread does it all");
    }

    #[test]
    fn a_thread_that_migrates_is_on_its_core_from_then_on() {
        let mut two = on(2);
        assert_eq!((two.switch(0), two.switch(2)), (Some((0, 0)), Some((0, 0))));
        two.migrate(2, 1);
        assert_eq!((two.switch(2), two.switch(0), two.migrations()), (Some((1, 0)), Some((0, 0)), 1));
        let mut four = CoreUse::new(&Info { cores: 2, siblings: 2, ..Info::default() });
        assert_eq!((four.switch(1), four.switch(3)), (Some((1, 0)), Some((1, 1))));
        four.migrate(1, 2);
        assert_eq!(four.switch(1), Some((0, 1)));
    }
}
