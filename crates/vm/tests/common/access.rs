//! An access of a program: the faults on its way, and that it finds what was written last.

use super::refused::Before;
use super::{Source, World};
use superpage_pages::{Access, Level, Vpn};
use superpage_vm::{FaultError, FaultKind, Pmap, SpaceId, Vm};

impl World {
    /// A program's access: the hardware's, or the fault and then the hardware's. A write may write
    /// the `same` as was there. `false` if memory is full.
    pub(super) fn access(&mut self, space: SpaceId, page: u64, access: Access, same: bool) -> bool {
        let at = Vpn(page);
        let slot = self.slots[&space].get(&page).copied();
        let allowed = slot.is_some_and(|slot| slot.protection.allows(access));
        assert_eq!(self.vm.hint(space, at), slot.map(|slot| slot.hint), "the hint of page {page:#x} of {space:?}");
        let promotions = |vm: &Vm| vm.stats().promotions.iter().sum::<u64>();
        // The daemon may have to make room, once; and it and the background come before the
        // program, once.
        let (mut steps, mut daemon, mut before_it) = (0, false, page.is_multiple_of(2));
        while !self.pmap.access(space, at, access) {
            if self.vm.wants_misses() {
                self.vm.missed(&self.pmap, space, at, None);
            }
            // Now and then a read is over that nobody waits for.
            if self.contents.choose(4) == 0
                && let Some((frame, ..)) = self.contents.reading.last().copied()
            {
                self.finish(frame);
            }
            steps += 1;
            assert!(steps < 3, "the access faults again and again");
            let (promoted, before) = (promotions(&self.vm), Before::of(self));
            let done = self.vm.fault(&mut self.pmap, &mut self.contents, space.page(at), access);
            if let Err(error) = done {
                before.unresolved(self, error);
            }
            match done {
                Ok(fault) => {
                    let slot = slot.expect("only what is mapped can fault in");
                    if !self.vm.answers().place.hints.allow(slot.hint) {
                        assert_eq!(promotions(&self.vm), promoted, "a superpage is made against the program's hint");
                        assert_eq!(fault.allocated.unwrap_or(Level::BASE), Level::BASE);
                    }
                    match (fault.kind, slot.source) {
                        (FaultKind::Zero, Source::Cell { cell, shared: true }) => {
                            assert!(
                                self.cells[cell] == 0 || self.discarded.contains(&cell),
                                "shared contents are lost"
                            );
                            self.cells[cell] = 0;
                        }
                        (FaultKind::File, source @ Source::Cell { .. }) => panic!("{source:?} was read from a file"),
                        _ => {}
                    }
                    let mapped = self.pmap.lookup(space, at).expect("a resolved fault has mapped the page");
                    assert_eq!(mapped.frame, fault.frame);
                    // What the background does may make it fault again, and take the frame.
                    if std::mem::take(&mut before_it) {
                        self.answer_daemon();
                        (steps, daemon) = (0, false);
                    }
                }
                Err(FaultError::Busy(frame)) => {
                    assert!(allowed);
                    // Somebody else may have to wait for it, or nobody.
                    if self.contents.choose(2) == 0 {
                        let begun =
                            self.contents.reading.iter().find(|(into, ..)| *into == frame).map(|(.., then)| *then);
                        self.slots(space).entry(page).and_modify(|slot| slot.begun = begun);
                        return true;
                    }
                    self.finish(frame);
                    (steps, daemon) = (0, false);
                }
                Err(FaultError::Unmapped(_)) => {
                    assert!(slot.is_none());
                    return true;
                }
                Err(FaultError::Protection(..)) => {
                    assert!(slot.is_some() && !allowed);
                    return true;
                }
                Err(FaultError::OutOfMemory(_)) => {
                    assert!(allowed && self.vm.buddy().free_frames() == 0);
                    assert!(!daemon, "the daemon said that it made room");
                    daemon = self.vm.run_daemon(&mut self.pmap, &mut self.contents);
                    let reading = self.contents.reading.first().copied();
                    match reading.filter(|_| !daemon) {
                        // What it was read into is busy no more, and may go.
                        Some((frame, ..)) => {
                            self.finish(frame);
                            steps = 0;
                        }
                        None if !daemon => return false,
                        None => {}
                    }
                }
                // The pool has none left for what is not reserved.
                Err(FaultError::NoPoolPage(_)) => {
                    assert!(allowed && self.vm.stats().pool_free_frames == self.vm.stats().pool_reserved_frames);
                    return false;
                }
                // The store has failed, which it does not do twice.
                Err(FaultError::Contents(_)) => {
                    assert!(allowed);
                    steps = 0;
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(allowed, "an access went through that the mapping does not allow");
        if self.misses && self.vm.wants_misses() {
            let neighbour = [None, Some(1), Some(4), Some(9)][(page / 2 % 4) as usize];
            self.vm.missed(&self.pmap, space, at, neighbour);
        }
        let frame = self.pmap.lookup(space, at).unwrap().frame.0 as usize;
        let source = slot.unwrap().source;
        // What was given up may be populated again, with zeroes, by a fault on a page beside it.
        if let Source::Cell { cell, shared: true } = source
            && self.discarded.contains(&cell)
            && self.contents.memory[frame] == 0
        {
            self.cells[cell] = 0;
        }
        let expected = match source {
            Source::Cell { cell, .. } | Source::Copied { cell, .. } => self.cells[cell],
            Source::File { file, page, shared } => {
                let begun = slot.unwrap().begun.filter(|begun| !shared && *begun == self.contents.memory[frame]);
                begun.or_else(|| self.files.get(&(file, page)).copied()).unwrap_or(0)
            }
        };
        assert_eq!(self.contents.memory[frame], expected, "the contents of page {page:#x} of {space:?}, {source:?}");
        if access == Access::Write {
            let contents = if same { expected } else { self.written + 1 };
            self.written = self.written.max(contents);
            self.contents.memory[frame] = contents;
            match source {
                Source::Cell { cell, .. } | Source::Copied { cell, .. } => self.cells[cell] = contents,
                Source::File { file, page, shared: true } => self.write_file(file, page, contents),
                Source::File { file, page: of, shared: false } => {
                    let cell = self.cell();
                    self.cells[cell] = contents;
                    self.slots(space).get_mut(&page).unwrap().source = Source::Copied { cell, file, page: of };
                }
            }
        }
        true
    }
}
