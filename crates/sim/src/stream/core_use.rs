//! What each core has run so far, and how its threads share it.

use std::collections::{BTreeMap, HashMap};
use superpage_trace::{Cores, Info};

/// What each core has run so far.
#[derive(Default)]
pub(crate) struct CoreUse {
    /// The number of cores that there may be; 0: the stream does not say which.
    number: u32,
    /// The instructions of each core that has run something.
    cores: BTreeMap<u32, u64>,
    /// The instructions of each thread on each core.
    threads: HashMap<(u32, u32), u64>,
    /// The cores of threads that have migrated, and how often any has.
    migrated: HashMap<u32, u32>,
    migrations: u64,
    /// The core and the thread that run.
    current: (u32, u32),
}

impl CoreUse {
    /// At the beginning of a stream.
    pub(crate) fn new(info: &Info) -> CoreUse {
        CoreUse { number: info.cores, ..CoreUse::default() }
    }

    /// The stream goes on with this thread; returns its core, if it has one.
    pub(crate) fn switch(&mut self, thread: u32) -> Option<usize> {
        if self.number == 0 {
            return None;
        }
        let core = self.migrated.get(&thread).copied().unwrap_or_else(|| Cores::of(self.number, thread));
        self.current = (core, thread);
        Some(core as usize)
    }

    /// The thread is on this core the next time that the stream switches to it.
    pub(crate) fn migrate(&mut self, thread: u32, core: u32) {
        self.migrated.insert(thread, core);
        self.migrations += 1;
    }

    /// The current core has made these instructions, or they were left out.
    pub(crate) fn pass(&mut self, instructions: u64) {
        if self.number > 0 {
            *self.cores.entry(self.current.0).or_default() += instructions;
            *self.threads.entry(self.current).or_default() += instructions;
        }
    }

    /// The cores that have run something; 0: the stream does not say which.
    pub(crate) fn used(&self) -> u64 {
        self.cores.len() as u64
    }

    /// How often threads have migrated.
    pub(crate) fn migrations(&self) -> u64 {
        self.migrations
    }

    /// The share of all instructions that the core with most of them made.
    pub(crate) fn busiest(&self) -> f64 {
        let instructions = || self.cores.values().copied();
        match (instructions().sum(), instructions().max()) {
            (0, _) | (_, None) => 1.0,
            (all, Some(most)) => most as f64 / all as f64,
        }
    }

    /// The cores on which two threads or more made over a tenth of all instructions each, if
    /// another core made less than half of what the busiest did.
    pub(crate) fn crowded(&self) -> u64 {
        let (all, most): (u64, u64) = (self.cores.values().sum(), self.cores.values().copied().max().unwrap_or(0));
        let idle = self.used() < u64::from(self.number) || self.cores.values().any(|made| made * 2 < most);
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
        CoreUse::new(&Info { cores, ..Info::default() })
    }

    #[test]
    fn the_busiest_core_is_known() {
        let mut three = on(3);
        for (thread, instructions) in [(0, 10), (1, 60), (0, 5), (3, 5), (1, 10), (0, 10)] {
            assert_eq!(three.switch(thread), Some(thread as usize % 3));
            three.pass(instructions);
        }
        three.switch(2);
        assert_eq!((three.used(), three.busiest()), (2, 0.7), "core 2 has run nothing");
        let mut none = on(0);
        assert_eq!(none.switch(5), None);
        none.pass(7);
        assert_eq!((none.used(), none.busiest(), none.crowded()), (0, 1.0, 0));
    }

    #[test]
    fn a_core_with_two_busy_threads_is_crowded_while_another_is_idle() {
        let crowded = |instructions: &[(u32, u64)]| {
            let mut three = on(3);
            for (thread, instructions) in instructions {
                three.switch(*thread);
                three.pass(*instructions);
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
        assert_eq!((two.switch(0), two.switch(2)), (Some(0), Some(0)));
        two.migrate(2, 1);
        assert_eq!((two.switch(2), two.switch(0), two.migrations()), (Some(1), Some(0), 1));
    }
}
