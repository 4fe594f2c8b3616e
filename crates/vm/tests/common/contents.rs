//! What memory holds by frame, and the backing store.

use std::collections::HashMap;
use superpage_pages::Pfn;
use superpage_vm::{Backed, Filled, Memory, NoContents, Page};

/// See the module.
pub(crate) struct Contents {
    pub(crate) memory: Vec<u32>,
    pub(crate) disk: HashMap<(u32, u64), u32>,
    swap: HashMap<u32, u32>,
    /// The reads that are under way, the oldest first: the frame, what is read, and what was there
    /// when it began.
    pub(crate) reading: Vec<(Pfn, Backed, u32)>,
    /// The number of choices made so far, where the store is slow.
    choices: Option<u64>,
}

impl Contents {
    /// Nothing is stored, and frames hold anything.
    pub(crate) fn new(frames: u64) -> Contents {
        Contents {
            memory: vec![u32::MAX; frames as usize],
            disk: HashMap::new(),
            swap: HashMap::new(),
            reading: Vec::new(),
            choices: None,
        }
    }

    /// From now on half of the reads are over later, and a few frames cannot be filled at the first
    /// try.
    pub(crate) fn slow(&mut self) {
        self.choices = Some(0);
    }

    /// One of so many: another one each time, and never the first where the store is fast.
    pub(crate) fn choose(&mut self, of: u64) -> u64 {
        let Some(choices) = &mut self.choices else { return 1 };
        *choices += 1;
        (choices.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % of
    }

    /// Now and then nothing can be had.
    fn fail(&mut self) -> Result<(), NoContents> {
        if self.choose(64) == 0 { Err(NoContents) } else { Ok(()) }
    }

    fn stored(&self, from: Backed) -> u32 {
        match from {
            Backed::File { file, page } => self.disk.get(&(file, page)).copied().unwrap_or(0),
            Backed::Swap { slot } => self.swap[&slot],
        }
    }

    /// A read is over: the frame has what is stored, which nobody may have changed meanwhile.
    pub(crate) fn finish(&mut self, frame: Pfn) {
        let place = self.reading.iter().position(|(to, ..)| *to == frame).expect("a busy frame is read into");
        let (_, from, then) = self.reading.remove(place);
        assert_eq!(self.stored(from), then, "{from:?} was written while it was read");
        self.memory[frame.0 as usize] = then;
    }
}

impl Memory for Contents {
    fn zero(&mut self, first: Pfn, frames: u64, _: Page) -> Result<(), NoContents> {
        self.fail()?;
        self.memory[first.0 as usize..(first.0 + frames) as usize].fill(0);
        Ok(())
    }

    fn copy(&mut self, from: Pfn, to: Pfn, _: Page) {
        self.memory[to.0 as usize] = self.memory[from.0 as usize];
    }

    fn read(&mut self, from: Backed, to: Pfn, _: Page) -> Result<Filled, NoContents> {
        self.fail()?;
        let stored = self.stored(from);
        if self.choose(2) == 0 {
            // Anything may be there until it is over.
            self.memory[to.0 as usize] = u32::MAX - 1;
            self.reading.push((to, from, stored));
            return Ok(Filled::Later);
        }
        self.memory[to.0 as usize] = stored;
        Ok(Filled::Now)
    }

    fn write(&mut self, to: Backed, frame: Pfn) {
        let contents = self.memory[frame.0 as usize];
        assert!(self.reading.iter().all(|(into, ..)| *into != frame), "{frame:?} is read into");
        match to {
            Backed::File { file, page } => self.disk.insert((file, page), contents),
            Backed::Swap { slot } => self.swap.insert(slot, contents),
        };
    }

    fn is_zero(&mut self, frame: Pfn) -> bool {
        self.memory[frame.0 as usize] == 0
    }

    fn digest(&mut self, frame: Pfn) -> u128 {
        u128::from(self.memory[frame.0 as usize])
    }
}
