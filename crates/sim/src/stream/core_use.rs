//! What each core has run so far, and how its threads share it.

use std::collections::{BTreeMap, BTreeSet};
use superpage_trace::{Cores, Info};

/// What each core has run so far.
#[derive(Default)]
pub(crate) struct CoreUse {
    /// The number of cores that there may be; 0: the stream does not say which.
    number: u32,
    cores: BTreeMap<u32, Core>,
    current: u32,
    threads: BTreeSet<u32>,
    turns: u64,
}

/// One core.
#[derive(Default)]
struct Core {
    instructions: u64,
    thread: Option<u32>,
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
        self.current = Cores::of(self.number, thread);
        let core = self.cores.entry(self.current).or_default();
        // One that has run before goes on where another was.
        let turns = !self.threads.insert(thread) && core.thread != Some(thread);
        self.turns += u64::from(turns);
        core.thread = Some(thread);
        Some(self.current as usize)
    }

    /// The current core has made these instructions, or they were left out.
    pub(crate) fn pass(&mut self, instructions: u64) {
        if self.number > 0 {
            self.cores.entry(self.current).or_default().instructions += instructions;
        }
    }

    /// The cores that have run something; 0: the stream does not say which.
    pub(crate) fn used(&self) -> u64 {
        self.cores.len() as u64
    }

    /// Whether the stream says which thread runs on which core.
    pub(crate) fn are_known(&self) -> bool {
        self.number > 0
    }

    /// How often a thread went on after another one of its core.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }

    /// The share of all instructions that the core with most of them made.
    pub(crate) fn busiest(&self) -> f64 {
        let instructions = || self.cores.values().map(|core| core.instructions);
        match (instructions().sum(), instructions().max()) {
            (0, _) | (_, None) => 1.0,
            (all, Some(most)) => most as f64 / all as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_one_core_take_turns_and_the_busiest_is_known() {
        let on = |cores| CoreUse::new(&Info { cores, ..Info::default() });
        let mut two = on(2);
        for (thread, instructions) in [(0, 10), (1, 60), (0, 5), (2, 5), (1, 10), (0, 10)] {
            assert_eq!(two.switch(thread), Some(thread as usize % 2));
            two.pass(instructions);
        }
        assert_eq!((two.turns(), two.busiest()), (1, 0.7));
        let mut none = on(0);
        assert_eq!(none.switch(5), None);
        none.pass(7);
        assert_eq!((none.turns(), none.busiest(), none.are_known()), (0, 1.0, false));
    }
}
