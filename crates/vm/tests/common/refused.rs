//! What is refused has changed nothing: what a world looks like before a call that may fail, and
//! calls that must fail.

use super::World;
use std::fmt::Debug;
use superpage_pages::{Access, Extent, Hint, Level, PageRange, Pfn, Protection, Vpn};
use superpage_vm::{Cache, Error, FaultError, How, Map, PAGES_LIMIT, Region, SpaceId, Stats, Why};

/// What of a state is cheap to compare: each mapping that is removed or changed counts as a
/// shootdown, and each that is entered as a mapping. Entries are compared with what programs have
/// asked for.
pub(crate) struct Before {
    stats: Stats,
    mappings: usize,
    shootdowns: u64,
    free: u64,
    kernel: u64,
    busy: usize,
    metadata: usize,
}

impl Before {
    pub(crate) fn of(world: &World) -> Before {
        Before {
            stats: world.vm.stats(),
            mappings: world.pmap.mappings(),
            shootdowns: world.pmap.shootdowns(),
            free: world.vm.buddy().free_frames(),
            kernel: world.vm.kernel_frames(),
            busy: world.vm.busy_frames().count(),
            metadata: world.vm.metadata_bytes(),
        }
    }

    /// Checks that all is as it was.
    pub(crate) fn unchanged(&self, world: &World, why: &impl Debug) {
        self.counted_alike(world, why);
        for (space, slots) in &world.slots {
            let mut end = 0;
            for (page, slot) in slots {
                let gap = Vpn(end).pages(page - end);
                assert!(gap.pages == 0 || !world.vm.maps_any(*space, gap), "{gap:?} of {space:?} after {why:?}");
                assert_eq!(world.vm.hint(*space, Vpn(*page)), Some(slot.hint), "{page:#x} of {space:?} after {why:?}");
                end = page + 1;
            }
            assert!(!world.vm.maps_any(*space, Vpn(end).pages(PAGES_LIMIT - end)), "{space:?} after {why:?}");
        }
    }

    /// The same without map entries, which faults do not change.
    fn counted_alike(&self, world: &World, why: &impl Debug) {
        let now = Before::of(world);
        assert_eq!(now.stats, self.stats, "statistics after {why:?}");
        let all = |it: &Before| [it.free, it.kernel, it.busy as u64, it.metadata as u64];
        assert_eq!(all(&now), all(self), "free, kernel's and busy frames, bytes of metadata after {why:?}");
        self.mapped_alike(world, why);
    }

    /// Checks that page tables are as they were; a fault may have compacted, which maps pages
    /// elsewhere.
    fn mapped_alike(&self, world: &World, why: &impl Debug) {
        let stats = world.vm.stats();
        assert_eq!((world.pmap.mappings(), stats.mapped), (self.mappings, self.stats.mapped), "mappings after {why:?}");
        let alike = world.pmap.shootdowns() == self.shootdowns;
        assert!(alike || stats.pages_moved > self.stats.pages_moved, "shootdowns after {why:?}");
    }

    /// Checks what a fault has left that was not resolved, or an access to a file. Where it needed
    /// a frame, reservations may have been preempted and cache pages dropped.
    pub(crate) fn unresolved(&self, world: &World, error: FaultError) {
        let (before, now) = (&self.stats, world.vm.stats());
        match error {
            FaultError::OutOfMemory(_) | FaultError::Contents(_) | FaultError::NoPoolPage(_) => {
                let held = world.vm.answers().reclaim.cache == Cache::Held;
                assert!(
                    now.resident_pages == before.resident_pages || held && now.resident_pages < before.resident_pages
                );
                assert_eq!(now.faults, before.faults, "{error}");
                self.mapped_alike(world, &error);
            }
            // The page is populated, by this fault or by one before it.
            FaultError::Busy(frame) => {
                assert!(world.vm.busy_frames().any(|busy| busy == frame));
                self.mapped_alike(world, &error);
            }
            _ => self.counted_alike(world, &error),
        }
    }

    /// Checks what the promotion of a region has left that was refused: pages that were populated
    /// in place stay, and pages of text that were read, some of which may be being read.
    pub(crate) fn not_promoted(&self, world: &World, why: Why) {
        let text = world.vm.answers().promote.text;
        if why == Why::Contents || text && matches!(why, Why::Busy | Why::NoExtent) {
            assert_eq!(world.pmap.shootdowns(), self.shootdowns);
            assert!(world.vm.stats().resident_pages >= self.stats.resident_pages);
        } else {
            self.unchanged(world, &why);
        }
    }
}

/// Calls that must be refused, whatever the state: of spaces, files and frames that do not exist,
/// with ranges that are empty, too long or overlap.
pub(crate) fn must_be_refused(world: &mut World, space: SpaceId, range: PageRange) {
    let before = Before::of(world);
    let World { vm, pmap, contents, .. } = &mut *world;
    let (nobody, no_file) = (SpaceId(1000), 1000);
    let none = Err(Error::NoSpace(nobody));
    let PageRange { start, pages } = range;
    assert_eq!(vm.map(pmap, nobody, Map::anonymous(start, pages)), none);
    assert_eq!(vm.unmap(pmap, nobody, range), none);
    assert_eq!(vm.protect(pmap, nobody, range, Protection::READ), none);
    assert_eq!(vm.advise(pmap, nobody, range, Hint::Huge), none);
    assert_eq!(vm.discard(pmap, nobody, range), none);
    assert_eq!(vm.grow(pmap, nobody, start, pages), none);
    assert_eq!(vm.remap(pmap, nobody, range, range), none);
    assert_eq!(vm.exec(pmap, nobody), none);
    assert_eq!(vm.exit(pmap, nobody), none);
    assert_eq!(vm.fork(pmap, nobody).map(|_| ()), none);
    assert_eq!(vm.place(nobody, 1, 0, Vpn(0)..start).map(|_| ()), none);
    let fault = vm.fault(pmap, contents, nobody.page(start), Access::Read);
    assert_eq!(fault.map(|_| ()), Err(FaultError::NoSpace(nobody)));
    for wrong in [start.pages(0), Vpn(PAGES_LIMIT - 1).pages(2), Vpn(u64::MAX).pages(2)] {
        let refused = Err(Error::Range { start: wrong.start.0, pages: wrong.pages });
        assert_eq!(vm.map(pmap, space, Map::anonymous(wrong.start, wrong.pages)), refused);
        assert_eq!(vm.unmap(pmap, space, wrong), refused);
        assert_eq!(vm.protect(pmap, space, wrong, Protection::READ), refused);
        assert_eq!(vm.advise(pmap, space, wrong, Hint::Huge), refused);
        assert_eq!(vm.discard(pmap, space, wrong), refused);
        assert_eq!(vm.remap(pmap, space, wrong, range), refused);
        assert_eq!(vm.remap(pmap, space, range, wrong), refused);
    }
    let long = PAGES_LIMIT + 1;
    assert!(vm.map(pmap, space, Map::file(start, pages, no_file, long, 0)).is_err());
    assert!(vm.map(pmap, space, Map::file(start, pages, no_file, 200, PAGES_LIMIT)).is_err());
    assert_eq!(vm.open(no_file, long), Err(Error::Range { start: 0, pages: long }));
    let closed = Err(FaultError::NotOpen(no_file));
    assert_eq!(vm.read(pmap, contents, no_file, 0).map(|_| ()), closed);
    assert_eq!(vm.write(contents, no_file, 0).map(|_| ()), closed);
    assert_eq!(vm.close(no_file), Err(Error::NotOpen(no_file)));
    assert_eq!(vm.sync(pmap, contents, no_file), Err(Error::NotOpen(no_file)));
    if vm.maps_any(space, start.pages(1)) {
        assert_eq!(vm.remap(pmap, space, start.pages(2), (start + 1).pages(2)), Err(Error::Overlap(start + 1)));
    } else {
        assert_eq!(vm.remap(pmap, space, range, range), Err(Error::Unmapped(start)));
        assert_eq!(vm.grow(pmap, space, start, pages), Err(Error::Unmapped(start)));
        let fault = vm.fault(pmap, contents, space.page(start), Access::Read);
        assert_eq!(fault.map(|_| ()), Err(FaultError::Unmapped(start)));
    }
    for frame in [Pfn(vm.buddy().frames()), Pfn(u64::MAX)] {
        assert_eq!(vm.unwire_page(frame), Err(Error::NotWired(frame)));
        assert_eq!(vm.read_done(frame, Ok(())), Err(Error::NotBusy(frame)));
        assert_eq!(vm.wire(Extent { start: frame, level: Level::BASE }), Err(Error::NotFree));
    }
    for (space, level) in [(nobody, Level(1)), (space, Level::BASE), (space, Level(vm.ladder().len() as u8))] {
        let refused = vm.promote_region(pmap, contents, Region { space, start, level }, How::Either);
        assert_eq!(refused, Err(Why::TooSmall));
    }
    before.unchanged(world, &"calls that must be refused");
}
