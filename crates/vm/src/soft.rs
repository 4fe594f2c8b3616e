//! Page tables in software, for tests, benchmarks and examples.

use crate::{Contiguity, Mapped, Pmap, SpaceId, Used};
use alloc::vec::Vec;
use core::ops::Range;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use superpage_pages::{Access, Ladder, Level, PageSize, Pfn, Protection, Vpn};

#[derive(Clone, Copy)]
struct Mapping {
    frame: Pfn,
    level: Level,
    protection: Protection,
    used: Used,
}

/// A [`Pmap`] on a hash table of mappings, with one element per mapping of any size. It checks the
/// guarantees that the trait gives an implementation, and panics if the memory manager breaks one:
/// it is also a test of its caller.
pub struct SoftPmap {
    ladder: Ladder,
    mappings: HashMap<(SpaceId, Vpn), Mapping, FxBuildHasher>,
    /// Mappings of each space.
    counts: Vec<usize>,
    /// The space of the change in progress, and whether anything is to be invalidated for it.
    gathering: Option<(SpaceId, bool)>,
    shootdowns: u64,
}

impl SoftPmap {
    /// Page tables for a ladder of sizes, with nothing mapped. The manager's ladder may have more
    /// sizes, which then cannot be mapped.
    pub fn new(ladder: Ladder) -> SoftPmap {
        SoftPmap { ladder, mappings: HashMap::default(), counts: Vec::new(), gathering: None, shootdowns: 0 }
    }

    /// Does what the hardware does at an access: sets the reference bit and, at a write, the dirty
    /// bit. Returns `false` if it would fault: nothing is mapped there, or not with this right.
    pub fn access(&mut self, space: SpaceId, at: Vpn, access: Access) -> bool {
        let Some((key, mapping)) = self.find(space, at) else { return false };
        if !mapping.protection.allows(access) {
            return false;
        }
        let used = &mut self.mapping(key).used;
        used.referenced = true;
        used.modified |= access == Access::Write;
        true
    }

    /// The number of mappings of all spaces.
    pub fn mappings(&self) -> usize {
        self.mappings.len()
    }

    /// How often TLBs had to invalidate something: once for each mapping that was removed,
    /// changed or demoted, or once for all those of one gathered change.
    pub fn shootdowns(&self) -> u64 {
        self.shootdowns
    }

    fn shoot_down(&mut self, space: SpaceId) {
        match &mut self.gathering {
            Some((of, stale)) => {
                assert_eq!(*of, space, "another space is changed at the same time");
                *stale = true;
            }
            None => self.shootdowns += 1,
        }
    }

    fn find(&self, space: SpaceId, at: Vpn) -> Option<((SpaceId, Vpn), Mapping)> {
        self.ladder.levels().find_map(|level| {
            let key = (space, at.align_down(self.ladder.pages(level)));
            self.mappings.get(&key).filter(|mapping| mapping.level >= level).and_then(|mapping| {
                let inside = at - key.1 < self.ladder.pages(mapping.level);
                inside.then_some((key, *mapping))
            })
        })
    }

    fn mapping(&mut self, key: (SpaceId, Vpn)) -> &mut Mapping {
        self.mappings.get_mut(&key).unwrap_or_else(|| panic!("no mapping starts at {key:?}"))
    }

    fn exact(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> &mut Mapping {
        let level = self.level(size);
        let mapping = self.mapping((space, at));
        assert_eq!(mapping.level, level, "the mapping at {at:?} has another size than {size}");
        mapping
    }

    fn level(&self, size: PageSize) -> Level {
        self.ladder.level(size).unwrap_or_else(|| panic!("{size} is no size of {}", self.ladder))
    }

    fn add(&mut self, space: SpaceId, at: Vpn, mapping: Mapping) {
        let pages = self.ladder.pages(mapping.level);
        assert!(at.is_aligned(pages) && mapping.frame.is_aligned(pages), "{at:?} or {:?} not aligned", mapping.frame);
        assert!((0..pages).all(|page| self.find(space, at + page).is_none()), "{at:?} is mapped already");
        if self.counts.len() <= space.0 as usize {
            self.counts.resize(space.0 as usize + 1, 0);
        }
        self.counts[space.0 as usize] += 1;
        self.mappings.insert((space, at), mapping);
    }

    fn take(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> Mapping {
        let mapping = *self.exact(space, at, size);
        self.mappings.remove(&(space, at));
        self.counts[space.0 as usize] -= 1;
        mapping
    }
}

impl Pmap for SoftPmap {
    fn enter(&mut self, space: SpaceId, at: Vpn, to: Mapped, access: Access) {
        let used = Used { referenced: true, modified: access == Access::Write };
        let level = self.level(to.size);
        self.add(space, at, Mapping { frame: to.frame, level, protection: to.protection, used });
    }

    fn remove(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> Used {
        self.shoot_down(space);
        self.take(space, at, size).used
    }

    fn protect(&mut self, space: SpaceId, at: Vpn, size: PageSize, protection: Protection) {
        self.shoot_down(space);
        self.exact(space, at, size).protection = protection;
    }

    fn promote(&mut self, space: SpaceId, at: Vpn, from: PageSize, to: PageSize) {
        self.shoot_down(space);
        let level = self.level(to);
        let step = self.ladder.pages(self.level(from));
        let first = *self.exact(space, at, from);
        let mut used = Used::default();
        for page in (0..self.ladder.pages(level)).step_by(step as usize) {
            let part = self.take(space, at + page, from);
            assert_eq!(part.frame, first.frame + page, "the frames at {at:?} are not contiguous");
            assert_eq!(part.protection, first.protection, "the rights at {at:?} are not uniform");
            used.referenced |= part.used.referenced;
            used.modified |= part.used.modified;
        }
        self.add(space, at, Mapping { level, used, ..first });
    }

    fn demote(&mut self, space: SpaceId, at: Vpn, from: PageSize, to: PageSize) {
        self.shoot_down(space);
        let whole = self.take(space, at, from);
        let level = self.level(to);
        assert!(level < whole.level, "{from} is demoted to {to}");
        for page in (0..self.ladder.pages(whole.level)).step_by(self.ladder.pages(level) as usize) {
            self.add(space, at + page, Mapping { frame: whole.frame + page, level, ..whole });
        }
    }

    fn contiguity(&self, size: PageSize) -> Contiguity {
        if self.ladder.level(size).is_some() { Contiguity::Whole } else { Contiguity::Parts }
    }

    fn lookup(&self, space: SpaceId, at: Vpn) -> Option<Mapped> {
        let ((_, start), mapping) = self.find(space, at)?;
        let (frame, size) = (mapping.frame + (at - start), self.ladder.size(mapping.level));
        Some(Mapped { frame, size, protection: mapping.protection })
    }

    fn used(&self, space: SpaceId, at: Vpn, size: PageSize) -> Used {
        let mapping = self.mappings.get(&(space, at)).filter(|mapping| self.ladder.size(mapping.level) == size);
        mapping.unwrap_or_else(|| panic!("no mapping of {size} starts at {at:?}")).used
    }

    fn clear_referenced(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> bool {
        self.shoot_down(space);
        core::mem::take(&mut self.exact(space, at, size).used.referenced)
    }

    fn clear_modified(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> bool {
        self.shoot_down(space);
        core::mem::take(&mut self.exact(space, at, size).used.modified)
    }

    fn begin_gather(&mut self, space: SpaceId, _pages: Range<Vpn>) {
        assert_eq!(self.gathering, None, "changes do not nest");
        self.gathering = Some((space, false));
    }

    fn flush_gathered(&mut self, space: SpaceId) {
        let (of, stale) = self.gathering.take().expect("a change was begun");
        assert_eq!(of, space, "another change was begun");
        self.shootdowns += u64::from(stale);
    }

    fn destroy(&mut self, space: SpaceId) {
        let left = self.counts.get(space.0 as usize).copied().unwrap_or(0);
        assert_eq!(left, 0, "{space:?} is destroyed with mappings");
    }
}
