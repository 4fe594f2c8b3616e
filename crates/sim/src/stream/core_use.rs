//! What each core has run so far, and how its threads share it.

use std::collections::BTreeMap;
use superpage_trace::{Cores, Info};

/// What each core has run so far.
#[derive(Default)]
pub(crate) struct CoreUse {
    /// The number of cores that there may be; 0: the stream does not say which.
    number: u32,
    /// The instructions of each core that has run something.
    cores: BTreeMap<u32, u64>,
    current: u32,
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
        Some(self.current as usize)
    }

    /// The current core has made these instructions, or they were left out.
    pub(crate) fn pass(&mut self, instructions: u64) {
        if self.number > 0 {
            *self.cores.entry(self.current).or_default() += instructions;
        }
    }

    /// The cores that have run something; 0: the stream does not say which.
    pub(crate) fn used(&self) -> u64 {
        self.cores.len() as u64
    }

    /// The share of all instructions that the core with most of them made.
    pub(crate) fn busiest(&self) -> f64 {
        let instructions = || self.cores.values().copied();
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
    fn the_busiest_core_is_known() {
        let on = |cores| CoreUse::new(&Info { cores, ..Info::default() });
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
        assert_eq!((none.used(), none.busiest()), (0, 1.0));
    }
}
