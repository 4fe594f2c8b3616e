//! What memory holds, by frame, and where it is written to: so that a test sees that contents are right, and what was
//! written.

use std::collections::HashMap;
use superpage_pages::Pfn;
use superpage_vm::{Backed, Fault, FaultKind, Store};

pub(crate) struct Disk {
    /// What each frame holds.
    pub(crate) memory: Vec<u64>,
    /// What each page of a file, or each slot of swap space, holds; zero where nothing was written.
    pub(crate) stored: HashMap<(Option<u32>, u64), u64>,
    /// All pages that were written, in order.
    pub(crate) log: Vec<Backed>,
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
        Disk { memory: vec![u64::MAX; frames as usize], stored: HashMap::new(), log: Vec::new() }
    }

    fn read(&self, from: Backed) -> u64 {
        self.stored.get(&key(from)).copied().unwrap_or(0)
    }

    /// What a fault leaves to its caller.
    pub(crate) fn fill(&mut self, fault: &Fault) {
        let contents = match fault.kind {
            FaultKind::Zero => Some(0),
            FaultKind::File | FaultKind::Swap => fault.backed.map(|backed| self.read(backed)),
            FaultKind::Copy | FaultKind::Cached => fault.source.map(|frame| self.memory[frame.0 as usize]),
            FaultKind::Resident | FaultKind::Rights | FaultKind::Spurious => None,
        };
        if let Some(contents) = contents {
            self.memory[fault.frame.0 as usize] = contents;
        }
        for page in &fault.filled {
            self.memory[page.frame.0 as usize] = page.backed.map_or(0, |backed| self.read(backed));
        }
    }
}

impl Store for Disk {
    fn write(&mut self, to: Backed, frame: Pfn) {
        self.stored.insert(key(to), self.memory[frame.0 as usize]);
        self.log.push(to);
    }

    fn digest(&mut self, frame: Pfn) -> u128 {
        self.memory[frame.0 as usize].into()
    }
}
