//! What memory holds by frame, and the backing store.

use std::collections::HashMap;
use superpage_pages::Pfn;
use superpage_vm::{Backed, Fault, FaultKind, Store};

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

    fn read(&self, from: Backed) -> u32 {
        match from {
            Backed::File { file, page } => self.disk.get(&(file, page)).copied().unwrap_or(0),
            Backed::Swap { slot } => self.swap[&slot],
        }
    }

    /// Does for a frame, and for those populated beside it, what a fault left to its caller.
    pub(crate) fn fill(&mut self, fault: &Fault) {
        let frame = fault.frame.0 as usize;
        match fault.kind {
            FaultKind::Zero => self.memory[frame] = 0,
            FaultKind::File | FaultKind::Swap => {
                self.memory[frame] = self.read(fault.backed.expect("what is read is somewhere"));
            }
            FaultKind::Copy => self.memory[frame] = self.memory[fault.source.expect("a copy has a source").0 as usize],
            FaultKind::Cached => {
                if let Some(source) = fault.source {
                    self.memory[frame] = self.memory[source.0 as usize];
                }
            }
            FaultKind::Resident | FaultKind::Rights | FaultKind::Spurious => {}
        }
        for filled in &fault.filled {
            self.memory[filled.frame.0 as usize] = filled.backed.map_or(0, |backed| self.read(backed));
        }
    }
}

impl Store for Contents {
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
