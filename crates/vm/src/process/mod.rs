//! What processes request: to begin and end, memory, files.

mod file;
pub(crate) mod mapping;

use crate::space::{Entry, Pooled};
use crate::{Error, PAGES_LIMIT, Pmap, SpaceId, Vm};
use alloc::vec::Vec;
use superpage_pages::{Protection, Vpn};

impl Vm {
    /// Creates an address space with nothing mapped, with the smallest unused number.
    pub fn create_space(&mut self) -> SpaceId {
        self.spaces.create()
    }

    /// Whether an address space exists. O(1).
    pub fn has_space(&self, space: SpaceId) -> bool {
        self.spaces.get(space).is_ok()
    }

    /// Executes another program in a process: its mappings are removed, its address space remains.
    /// O(pages mapped).
    ///
    /// # Errors
    /// The address space does not exist, or a page of it is busy ([`Error::Busy`]).
    pub fn exec(&mut self, pmap: &mut impl Pmap, space: SpaceId) -> Result<(), Error> {
        self.none_busy(space, 0..PAGES_LIMIT, None)?;
        pmap.flush(space);
        self.policy.gone(space);
        self.remove(pmap, space, 0..PAGES_LIMIT);
        Ok(())
    }

    /// Ends a process: its mappings are removed, and its number may be reused. O(pages mapped).
    ///
    /// # Errors
    /// The address space does not exist, or a page of it is busy ([`Error::Busy`]).
    pub fn exit(&mut self, pmap: &mut impl Pmap, space: SpaceId) -> Result<(), Error> {
        self.none_busy(space, 0..PAGES_LIMIT, None)?;
        pmap.flush(space);
        self.remove(pmap, space, 0..PAGES_LIMIT);
        pmap.destroy(space);
        self.frames.take_tables(pmap);
        self.policy.gone(space);
        self.spaces.remove(space);
        Ok(())
    }

    /// Forks a process. Shared mappings are shared with the child; the pages of private ones are
    /// shared until one of the two writes, so the parent's mappings lose the right to write. The
    /// child starts with an empty page table: it faults on resident pages. O(pages mapped).
    ///
    /// # Errors
    /// The address space does not exist.
    pub fn fork(&mut self, pmap: &mut impl Pmap, parent: SpaceId) -> Result<SpaceId, Error> {
        let entries: Vec<Entry> = self.spaces.get(parent)?.iter().copied().collect();
        self.frames.stats.note_peak();
        let child = self.create_space();
        self.spaces.share(parent, child);
        let first = entries.first().map_or(Vpn(0), |entry| Vpn(entry.start));
        pmap.gather(parent, first..Vpn(entries.last().map_or(0, |entry| entry.end)), |pmap| {
            for entry in entries {
                let object = self.objects.get_mut(entry.object);
                object.entries += 1;
                object.sole = false;
                let copy = !entry.shared;
                if copy && !entry.copy {
                    self.each_mapped(pmap, parent, &entry, |vm, pmap, leaf| {
                        if leaf.rights.contains(Protection::WRITE) {
                            let size = vm.frames.ladder.size(leaf.level);
                            pmap.protect(parent, leaf.at, size, entry.rights_without_write());
                        }
                    });
                    self.spaces.get_mut(parent).put(Entry { copy, ..entry });
                }
                // What the parent has reserved in the static pool stays the parent's alone, as in
                // Linux.
                let pooled = if entry.pooled == Pooled::Reserved { Pooled::Unreserved } else { entry.pooled };
                self.spaces.get_mut(child).put(Entry { copy, pooled, ..entry });
            }
        });
        Ok(child)
    }
}
