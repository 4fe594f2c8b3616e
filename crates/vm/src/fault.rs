//! The fault path (Navarro et al., sections 4.1, 4.5): finds the page or populates it, maps it, tries to promote.

use crate::object::ObjectId;
use crate::population::Walk;
use crate::space::Entry;
use crate::vm::Vm;
use crate::{FaultError, Growth, Pmap, SpaceId};
use superpage_pages::{Access, Level, Pfn, Protection, Vpn};

/// What a fault came down to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// A page of zeroes was populated.
    Zero,
    /// A page was populated from a file.
    File,
    /// The page was populated already, and is now mapped here as well.
    Resident,
    /// The page was copied, at its first write.
    Copy,
    /// The mapping was given the right to write.
    Rights,
    /// The mapping was there, with enough rights: somebody else resolved the fault.
    Spurious,
}

/// What was done to resolve a fault, for those who charge time for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What it came down to.
    pub kind: FaultKind,
    /// The frame of the page: to be filled by the caller, before the access is retried, as `kind` says.
    pub frame: Pfn,
    /// The frame to copy from, if `kind` is [`FaultKind::Copy`].
    pub source: Option<Pfn>,
    /// Whether the page was populated and its frame was reserved.
    pub reserved: bool,
    /// The level of the extent that was allocated, if one was.
    pub allocated: Option<Level>,
    /// Reservations preempted for that.
    pub preempted: u32,
    /// The level of the page that maps the address now: above the base page's after a promotion.
    pub mapped: Level,
}

impl Vm {
    /// Resolves a fault on the page `at`: the caller may then retry the access.
    ///
    /// A page that is not populated gets its reserved frame, or a frame in a new reservation of the preferred size, and
    /// is mapped as a base page, with all rights that the mapping has (the hardware sets dirty bits). A page that is
    /// populated behind a shadow is mapped without the right to write, or copied if this is a write. Afterwards the
    /// largest region around the page that is fully populated, in an extent and uniformly mapped becomes a superpage, by one
    /// call of [`Pmap::promote`] per size.
    ///
    /// Costs O(number of sizes), if nothing is preempted.
    ///
    /// # Errors
    /// The address space does not exist, the page is not mapped, the access is not allowed, or no frame is left.
    #[inline]
    pub fn fault(
        &mut self,
        pmap: &mut impl Pmap,
        space: SpaceId,
        at: Vpn,
        access: Access,
    ) -> Result<Fault, FaultError> {
        let map = self.space(space).map_err(|_| FaultError::NoSpace(space))?;
        let entry = map.find(at.0).ok_or(FaultError::Unmapped(at))?;
        if !entry.protection.allows(access) {
            return Err(FaultError::Protection(at, access));
        }
        let index = entry.index(at.0);
        let front = self.objects.get(entry.object);
        let (alone, file) = (front.backing.is_none(), front.file.is_some());
        let walk = self.frames.population.walk(entry.object, index);
        if alone && !entry.copy && !walk.populated {
            let kind = if file { FaultKind::File } else { FaultKind::Zero };
            return self.fill(pmap, space, &entry, entry.object, at, access, walk, kind);
        }
        self.search(pmap, space, entry, at, access)
    }

    /// A fault on a page that may be populated, somewhere in the chain of objects.
    fn search(
        &mut self,
        pmap: &mut impl Pmap,
        space: SpaceId,
        entry: Entry,
        at: Vpn,
        access: Access,
    ) -> Result<Fault, FaultError> {
        let index = entry.index(at.0);
        let writing = access == Access::Write;
        match self.holder(entry.object, index) {
            Some((holder, walk)) if holder == entry.object && !entry.copy => {
                Ok(self.map_resident(pmap, space, &entry, holder, at, access, walk, entry.protection))
            }
            Some((holder, walk)) if !writing => {
                let rights = entry.rights_without_write();
                Ok(self.map_resident(pmap, space, &entry, holder, at, access, walk, rights))
            }
            Some((holder, walk)) => {
                let own = if entry.copy { self.own(space, entry) } else { entry };
                if own.object == holder {
                    return Ok(self.map_resident(pmap, space, &own, holder, at, access, walk, own.protection));
                }
                let source = Some(Pfn(u64::from(walk.frame)));
                let fault = self.fill_own(pmap, space, entry, own, at, access, FaultKind::Copy)?;
                Ok(Fault { source, ..fault })
            }
            None => {
                let last = self.objects.chain(entry.object).last().expect("a chain has its front");
                let in_file = self.objects.get(last).file.is_some();
                let kind = if in_file { FaultKind::File } else { FaultKind::Zero };
                if in_file && !writing {
                    // Private mappings share the pages of the file until they write.
                    let walk = self.frames.population.walk(last, index);
                    return self.fill(pmap, space, &entry, last, at, access, walk, kind);
                }
                let own = if entry.copy { self.own(space, entry) } else { entry };
                self.fill_own(pmap, space, entry, own, at, access, kind)
            }
        }
    }

    /// Populates a page of the object of `own`, which is `entry` after it was given an object to write.
    #[allow(clippy::too_many_arguments, reason = "one internal call with all that a fault knows")]
    fn fill_own(
        &mut self,
        pmap: &mut impl Pmap,
        space: SpaceId,
        entry: Entry,
        own: Entry,
        at: Vpn,
        access: Access,
        kind: FaultKind,
    ) -> Result<Fault, FaultError> {
        let walk = self.frames.population.walk(own.object, own.index(at.0));
        let result = self.fill(pmap, space, &own, own.object, at, access, walk, kind);
        if result.is_err() && own.object != entry.object {
            self.disown(space, entry, own.object);
        }
        result
    }

    /// Populates and maps a page of `object`.
    #[allow(clippy::too_many_arguments, reason = "one internal call with all that a fault knows")]
    #[inline]
    fn fill(
        &mut self,
        pmap: &mut impl Pmap,
        space: SpaceId,
        entry: &Entry,
        object: ObjectId,
        at: Vpn,
        access: Access,
        mut walk: Walk,
        kind: FaultKind,
    ) -> Result<Fault, FaultError> {
        let index = entry.index(at.0);
        let owner = self.objects.get_mut(object);
        let low = owner.low;
        if owner.growth == Growth::Down {
            owner.low = low.min(index);
        }
        let preferred = if walk.covered > 0 {
            Level::BASE
        } else {
            let largest = self.frames.largest_without_overlap(&self.policy, &walk);
            self.objects.get(object).preferred(&self.policy, &self.frames.ladder, largest, index)
        };
        let Some(populated) = self.frames.populate(&self.policy, object, index, &mut walk, preferred) else {
            self.objects.get_mut(object).low = low;
            self.frames.stats.faults_out_of_memory += 1;
            return Err(FaultError::OutOfMemory(at));
        };
        let base = self.frames.ladder.base();
        if kind == FaultKind::Copy && pmap.lookup(space, at).is_some() {
            let behind = self.objects.get(object).backing.and_then(|backing| self.holder(backing, index));
            let (behind, _) = behind.expect("what was mapped is populated behind the page that hides it");
            self.demote_around(pmap, space, entry, behind, at, false);
            pmap.remove(space, at, base);
            self.frames.stats.mapped[0] -= 1;
        }
        let writable = object == entry.object && !entry.copy;
        let rights = if writable { entry.protection } else { entry.rights_without_write() };
        pmap.enter(space, at, Pfn(u64::from(walk.frame)), base, rights, access);
        let stats = &mut self.frames.stats;
        stats.mapped[0] += 1;
        stats.faults += 1;
        match kind {
            FaultKind::Copy => {
                stats.faults_copy += 1;
                stats.bytes_copied += base.bytes();
            }
            FaultKind::File => {
                stats.faults_file += 1;
                stats.bytes_read += base.bytes();
            }
            _ => {
                stats.faults_zero += 1;
                stats.bytes_zeroed += base.bytes();
            }
        }
        let mut mapped = Level::BASE;
        if populated.full > 0 {
            let full = Level(populated.full);
            mapped = self.promote(pmap, space, entry, object, at, walk.frame, Level::BASE, full, rights);
        }
        Ok(Fault {
            kind,
            frame: Pfn(u64::from(walk.frame)),
            source: None,
            reserved: populated.reserved,
            allocated: (!populated.reserved).then_some(populated.allocated),
            preempted: populated.preempted,
            mapped,
        })
    }

    /// Maps a populated page of `object`, or gives its mapping more rights.
    #[allow(clippy::too_many_arguments, reason = "one internal call with all that a fault knows")]
    fn map_resident(
        &mut self,
        pmap: &mut impl Pmap,
        space: SpaceId,
        entry: &Entry,
        object: ObjectId,
        at: Vpn,
        access: Access,
        walk: Walk,
        rights: Protection,
    ) -> Fault {
        let ladder = self.frames.ladder;
        let (kind, from) = match pmap.lookup(space, at) {
            Some(mapped) if mapped.protection.allows(access) => (FaultKind::Spurious, self.level(mapped.size)),
            Some(mapped) => {
                let level = self.level(mapped.size);
                pmap.protect(space, at.align_down(ladder.pages(level)), mapped.size, rights);
                (FaultKind::Rights, level)
            }
            None => {
                pmap.enter(space, at, Pfn(u64::from(walk.frame)), ladder.base(), rights, access);
                self.frames.stats.mapped[0] += 1;
                (FaultKind::Resident, Level::BASE)
            }
        };
        let stats = &mut self.frames.stats;
        stats.faults += 1;
        *match kind {
            FaultKind::Spurious => &mut stats.faults_spurious,
            FaultKind::Rights => &mut stats.faults_rights,
            _ => &mut stats.faults_resident,
        } += 1;
        let full = Level(self.frames.population.full_level(&walk));
        let mapped = self.promote(pmap, space, entry, object, at, walk.frame, from, full, rights);
        let frame = Pfn(u64::from(walk.frame));
        Fault { kind, frame, source: None, reserved: false, allocated: None, preempted: 0, mapped }
    }
}
