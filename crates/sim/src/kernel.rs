//! The kernel of a point: what it does at traps and at events of the stream, and when memory runs out.

use crate::hardware::Hardware;
use crate::point::{Point, Problem};
use superpage_mmu::{Request, Trap};
use superpage_pages::{Access, Protection, Vpn};
use superpage_trace::{Event, ProcessId};
use superpage_vm::{Backing, FaultError, Growth, Map};

impl Point {
    /// What the kernel does when the hardware cannot go on: until the access succeeds, as a processor would retry it.
    pub(crate) fn trap(&mut self, request: Request, trap: Trap) -> Result<(), Problem> {
        let (page, access) = (request.page(), request.access());
        if trap == Trap::Absent {
            self.windows.fault(access == Access::Execute);
        }
        let text = |error: superpage_vm::Error| Problem::Run(error.to_string());
        let mut trap = Some(trap);
        // A fault maps the page, or first a mapping must be made or widened: three steps are the most that it can take.
        for _ in 0..4 {
            let Some(_) = trap else { return Ok(()) };
            match self.vm.fault(&mut Hardware(&mut self.mmu), self.space, page, access) {
                Ok(_) => trap = self.mmu.retry(request).err(),
                Err(FaultError::Unmapped(_)) => {
                    self.unmapped_accesses += 1;
                    let (backing, growth) = (Backing::Anonymous, Growth::Fixed);
                    let map = Map { start: page, pages: 1, protection: rights(access), shared: false, backing, growth };
                    self.vm.map(&mut Hardware(&mut self.mmu), self.space, map).map_err(text)?;
                }
                Err(FaultError::Protection(..)) => {
                    self.widened_rights += 1;
                    let held = self.mmu.lookup(self.space.0, page).map_or(Protection::NONE, |(_, _, held)| held);
                    let mut hardware = Hardware(&mut self.mmu);
                    self.vm.protect(&mut hardware, self.space, page, 1, held | rights(access)).map_err(text)?;
                }
                Err(error @ FaultError::OutOfMemory(_)) => return Err(Problem::Process(error.to_string())),
                Err(error) => return Err(Problem::Run(error.to_string())),
            }
        }
        Err(Problem::Run(format!("page {:#x} traps again and again: a fault in superpage itself", page.0)))
    }

    /// Ends the current process, which cannot go on; what the stream still has of it is left out.
    pub(crate) fn end_process(&mut self, reason: &str) -> Result<(), String> {
        let process = self.process.expect("only a process faults");
        self.reasons.push(format!("process {} was ended: {reason}", process.0));
        self.exit()?;
        self.ended.insert(process);
        (self.process, self.dead) = (Some(process), true);
        Ok(())
    }

    /// The current process ceases.
    fn exit(&mut self) -> Result<(), String> {
        self.note_peak();
        self.vm.exit(&mut Hardware(&mut self.mmu), self.space).map_err(text)?;
        if let Some(process) = self.process.take() {
            self.spaces.remove(&process);
        }
        Ok(())
    }

    /// What the stream says besides accesses.
    pub(crate) fn event(&mut self, event: &Event) -> Result<(), String> {
        match *event {
            Event::Switch { process, .. } => self.switch(process),
            Event::Exit if self.dead => {
                (self.dead, self.process) = (false, None);
                Ok(())
            }
            // Nor do the children of a process exist that was ended.
            Event::Fork { child } if self.dead => {
                self.ended.insert(child);
                Ok(())
            }
            Event::Mark(ref name) => {
                self.mark(name);
                Ok(())
            }
            Event::Idle { microseconds } => {
                self.idle_microseconds += microseconds;
                Ok(())
            }
            Event::Note(_) => Ok(()),
            _ if self.dead => Ok(()),
            Event::Exit => self.exit(),
            Event::Skipped { references, instructions } => {
                self.windows.skip(references, instructions);
                Ok(())
            }
            _ => self.request(event),
        }
    }

    fn switch(&mut self, process: ProcessId) -> Result<(), String> {
        self.process = Some(process);
        self.dead = self.ended.contains(&process);
        if self.dead {
            return Ok(());
        }
        self.space = match self.spaces.get(&process) {
            Some(space) => *space,
            None => {
                let space = self.vm.create_space();
                self.spaces.insert(process, space);
                space
            }
        };
        self.mmu.switch(self.space.0);
        Ok(())
    }

    /// What the current process asks of the kernel.
    fn request(&mut self, event: &Event) -> Result<(), String> {
        self.note_peak();
        let (hardware, shift) = (&mut Hardware(&mut self.mmu), self.shift);
        match *event {
            Event::Map { start, pages, protection, shared, backing, growth } => {
                let (start, pages) = outward(shift, start, pages);
                let backing = match backing {
                    superpage_trace::Backing::Anonymous => Backing::Anonymous,
                    superpage_trace::Backing::File { file, file_pages, offset } => {
                        let (offset, end) = (offset >> shift, file_pages.div_ceil(1 << shift));
                        Backing::File { file, pages: end, offset }
                    }
                };
                let growth = match growth {
                    superpage_trace::Growth::Fixed => Growth::Fixed,
                    superpage_trace::Growth::Up => Growth::Up,
                    superpage_trace::Growth::Down => Growth::Down,
                };
                let map = Map { start, pages, protection, shared, backing, growth };
                self.vm.map(hardware, self.space, map).map_err(text)
            }
            Event::Unmap { start, pages } => match inward(shift, start, pages) {
                (_, 0) => Ok(()),
                (first, count) => self.vm.unmap(hardware, self.space, first, count).map_err(text),
            },
            Event::Protect { start, pages, protection } => match inward(shift, start, pages) {
                (_, 0) => Ok(()),
                (first, count) => self.vm.protect(hardware, self.space, first, count, protection).map_err(text),
            },
            Event::Discard { start, pages } => match inward(shift, start, pages) {
                (_, 0) => Ok(()),
                (first, count) => self.vm.discard(hardware, self.space, first, count).map_err(text),
            },
            Event::Grow { start, pages } => {
                let (first, count) = outward(shift, start, pages);
                self.vm.grow(hardware, self.space, first, count).map_err(text)
            }
            Event::Remap { from, from_pages, to, to_pages } => {
                let (from, to) = (outward(shift, from, from_pages), outward(shift, to, to_pages));
                match self.vm.remap(hardware, self.space, from, to) {
                    // Pages that the stream can tell apart and this machine cannot; what is touched there is mapped then.
                    Err(superpage_vm::Error::Overlap(_) | superpage_vm::Error::Unmapped(_)) => Ok(()),
                    other => other.map_err(text),
                }
            }
            Event::Fork { child } => {
                let space = self.vm.fork(hardware, self.space).map_err(text)?;
                self.spaces.insert(child, space);
                Ok(())
            }
            Event::Exec => self.vm.exec(hardware, self.space).map_err(text),
            Event::Open { .. }
            | Event::Close { .. }
            | Event::Read { .. }
            | Event::Write { .. }
            | Event::Sync { .. }
            | Event::Remove { .. }
            | Event::Wire { .. }
            | Event::Unwire { .. }
            | Event::Rewrite { .. } => Ok(()),
            Event::Switch { .. }
            | Event::Exit
            | Event::Skipped { .. }
            | Event::Mark(_)
            | Event::Idle { .. }
            | Event::Note(_) => unreachable!("these ask nothing of the memory manager"),
        }
    }
}

/// Base pages of `1 << shift` pages of the stream: all that hold one of these.
fn outward(shift: u32, start: u64, pages: u64) -> (Vpn, u64) {
    let first = start >> shift;
    (Vpn(first), (start + pages).div_ceil(1 << shift) - first)
}

/// Base pages of `1 << shift` pages of the stream: only those that are wholly among these.
fn inward(shift: u32, start: u64, pages: u64) -> (Vpn, u64) {
    let first = start.div_ceil(1 << shift);
    (Vpn(first), ((start + pages) >> shift).saturating_sub(first))
}

fn text(error: superpage_vm::Error) -> String {
    error.to_string()
}

/// The least rights with which `access` is allowed.
fn rights(access: Access) -> Protection {
    match access {
        Access::Read => Protection::READ,
        Access::Write => Protection::READ_WRITE,
        Access::Execute => Protection::READ_EXECUTE,
    }
}
