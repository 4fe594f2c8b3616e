//! Address spaces, as a stream requires them.

use super::Kernel;
use crate::hardware::{Cause, Doing, Hardware};
use crate::stream::{inward, outward};
use superpage_pages::PageRange;
use superpage_trace::Event;
use superpage_vm::{Backing, Error, Growth, Map};

impl Kernel {
    /// Maps memory of the current process.
    pub(super) fn map(&mut self, hardware: &mut Hardware, map: Map) -> Result<(), Error> {
        self.vm.map(hardware, self.processes.space, map)?;
        self.note_mapped(map.start.pages(map.pages));
        Ok(())
    }

    /// Something is mapped here from now on, for misses by mapping.
    fn note_mapped(&mut self, range: PageRange) {
        self.misses.iter_mut().for_each(|misses| misses.mapped(range));
    }

    /// Handles an event that concerns the current process's address space, as the manager does it.
    pub(crate) fn memory_event(&mut self, hardware: &mut Hardware, event: &Event) -> Result<(), Error> {
        let shift = self.shift;
        hardware.doing = Doing::Call(match event {
            Event::Protect { .. } | Event::Discard { .. } | Event::Advise { .. } => Cause::Protect,
            Event::Fork { .. } => Cause::CopyOnWrite,
            _ => Cause::Unmap,
        });
        match *event {
            Event::Map { start, pages, protection, shared, backing, growth } => {
                let PageRange { start, pages } = outward(shift, start, pages);
                let backing = match backing {
                    superpage_trace::Backing::Anonymous => Backing::Anonymous,
                    superpage_trace::Backing::File { file, file_pages, offset } => {
                        self.held.reach(&mut self.disk, file, file_pages, shift);
                        // A program may map an empty file, and find it longer when it touches it.
                        let (offset, end) = (offset >> shift, file_pages.div_ceil(1 << shift).max(1));
                        Backing::File { file, pages: end, offset }
                    }
                };
                let growth = match growth {
                    superpage_trace::Growth::Fixed => Growth::Fixed,
                    superpage_trace::Growth::Up => Growth::Up,
                    superpage_trace::Growth::Down => Growth::Down,
                };
                let map = Map::anonymous(start, pages).protection(protection).shared(shared);
                let map = map.backing(backing).growth(growth);
                self.map(hardware, map)
            }
            Event::Unmap { start, pages } => match inward(shift, start, pages) {
                PageRange { pages: 0, .. } => Ok(()),
                range => self.vm.unmap(hardware, self.processes.space, range),
            },
            Event::Protect { start, pages, protection } => match inward(shift, start, pages) {
                PageRange { pages: 0, .. } => Ok(()),
                range => self.vm.protect(hardware, self.processes.space, range, protection),
            },
            Event::Discard { start, pages } => match inward(shift, start, pages) {
                PageRange { pages: 0, .. } => Ok(()),
                range => self.vm.discard(hardware, self.processes.space, range),
            },
            Event::Advise { start, pages, hint } => match inward(shift, start, pages) {
                PageRange { pages: 0, .. } => Ok(()),
                range => self.vm.advise(hardware, self.processes.space, range, hint),
            },
            Event::Grow { start, pages } => {
                let PageRange { start, pages } = outward(shift, start, pages);
                self.vm.grow(hardware, self.processes.space, start, pages)?;
                self.note_mapped(start.pages(pages));
                Ok(())
            }
            Event::Remap { from, from_pages, to, to_pages } => {
                let (from, to) = (outward(shift, from, from_pages), outward(shift, to, to_pages));
                self.note_mapped(to);
                match self.vm.remap(hardware, self.processes.space, from, to) {
                    // Pages that the stream distinguishes and this machine does not; if they are
                    // touched they are mapped then.
                    Err(Error::Overlap(_) | Error::Unmapped(_)) => Ok(()),
                    other => other,
                }
            }
            Event::Fork { child } => {
                let space = self.vm.fork(hardware, self.processes.space)?;
                self.processes.spaces.insert(child, space);
                hardware.mmu.set_process(space.0, child.0);
                self.processes.current.map_or(Ok(()), |parent| self.inherit(parent, child))
            }
            Event::Exec => self.vm.exec(hardware, self.processes.space),
            _ => unreachable!("{event:?} is none of address spaces"),
        }
    }
}
