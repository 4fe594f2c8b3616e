//! What memory holds, by frame, and where it is written to: so that a test sees that contents are
//! right, and what was written.

use std::collections::HashMap;
use superpage_pages::Pfn;
use superpage_vm::{Backed, Filled, Memory, NoContents, Page};

pub(crate) struct Disk {
    /// What each frame holds.
    pub(crate) memory: Vec<u64>,
    /// What each page of a file, or each slot of swap space, holds; zero where nothing was written.
    pub(crate) stored: HashMap<(Option<u32>, u64), u64>,
    /// All pages that were written, in order.
    pub(crate) log: Vec<Backed>,
    /// So many frames can still be filled with zeroes or read; then it fails. `None`: all.
    pub(crate) fills: Option<u64>,
    /// Whether reads are over later, and those that are under way.
    pub(crate) slow: bool,
    pub(crate) reading: HashMap<Pfn, Backed>,
}

fn key(backed: Backed) -> (Option<u32>, u64) {
    match backed {
        Backed::File { file, page } => (Some(file), page),
        Backed::Swap { slot } => (None, slot.into()),
    }
}

impl Disk {
    /// Nothing is stored, and frames hold anything.
    pub(crate) fn new(frames: u64) -> Disk {
        Disk {
            memory: vec![u64::MAX; frames as usize],
            stored: HashMap::new(),
            log: Vec::new(),
            fills: None,
            slow: false,
            reading: HashMap::new(),
        }
    }

    /// A read is over: the frame has what is stored.
    pub(crate) fn finish(&mut self, frame: Pfn) {
        let from = self.reading.remove(&frame).expect("a read is under way");
        self.memory[frame.0 as usize] = self.stored.get(&key(from)).copied().unwrap_or(0);
    }

    fn fill(&mut self) -> Result<(), NoContents> {
        match &mut self.fills {
            Some(0) => Err(NoContents),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Memory for Disk {
    fn zero(&mut self, first: Pfn, frames: u64, _: Page) -> Result<(), NoContents> {
        self.fill()?;
        self.memory[first.0 as usize..(first.0 + frames) as usize].fill(0);
        Ok(())
    }

    fn copy(&mut self, from: Pfn, to: Pfn, _: Page) {
        self.memory[to.0 as usize] = self.memory[from.0 as usize];
    }

    fn read(&mut self, from: Backed, to: Pfn, _: Page) -> Result<Filled, NoContents> {
        self.fill()?;
        if self.slow {
            self.memory[to.0 as usize] = u64::MAX;
            self.reading.insert(to, from);
            return Ok(Filled::Later);
        }
        self.memory[to.0 as usize] = self.stored.get(&key(from)).copied().unwrap_or(0);
        Ok(Filled::Now)
    }

    fn write(&mut self, to: Backed, frame: Pfn) {
        self.stored.insert(key(to), self.memory[frame.0 as usize]);
        self.log.push(to);
    }

    fn is_zero(&mut self, frame: Pfn) -> bool {
        self.memory[frame.0 as usize] == 0
    }

    fn digest(&mut self, frame: Pfn) -> u128 {
        self.memory[frame.0 as usize].into()
    }
}
