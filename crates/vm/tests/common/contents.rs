//! What memory holds by frame, and the backing store.

use std::collections::HashMap;
use superpage_pages::Pfn;
use superpage_vm::{Backed, Memory, NoContents, Page};

/// See the module.
pub(crate) struct Contents {
    pub(crate) memory: Vec<u32>,
    pub(crate) disk: HashMap<(u32, u64), u32>,
    swap: HashMap<u32, u32>,
}

impl Contents {
    /// Nothing is stored, and frames hold anything.
    pub(crate) fn new(frames: u64) -> Contents {
        Contents { memory: vec![u32::MAX; frames as usize], disk: HashMap::new(), swap: HashMap::new() }
    }
}

impl Memory for Contents {
    fn zero(&mut self, first: Pfn, frames: u64, _: Page) -> Result<(), NoContents> {
        self.memory[first.0 as usize..(first.0 + frames) as usize].fill(0);
        Ok(())
    }

    fn copy(&mut self, from: Pfn, to: Pfn, _: Page) {
        self.memory[to.0 as usize] = self.memory[from.0 as usize];
    }

    fn read(&mut self, from: Backed, to: Pfn, _: Page) -> Result<(), NoContents> {
        self.memory[to.0 as usize] = match from {
            Backed::File { file, page } => self.disk.get(&(file, page)).copied().unwrap_or(0),
            Backed::Swap { slot } => self.swap[&slot],
        };
        Ok(())
    }

    fn write(&mut self, to: Backed, frame: Pfn) {
        let contents = self.memory[frame.0 as usize];
        match to {
            Backed::File { file, page } => self.disk.insert((file, page), contents),
            Backed::Swap { slot } => self.swap.insert(slot, contents),
        };
    }

    fn digest(&mut self, frame: Pfn) -> u128 {
        u128::from(self.memory[frame.0 as usize])
    }
}
