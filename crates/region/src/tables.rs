//! The page tables of a region, as the manager sees them: [`Pmap`] on Linux.
//!
//! The kernel's page tables are a cache of these: a mapping here may be absent there until the next
//! fault, never the other way round. A superpage of 64 KB is 16 mappings of base pages there, with
//! contiguous frames, which processors that coalesce neighbours exploit; one of 2 MB is one
//! mapping.
//!
//! *Reference bits.* A process cannot read the hardware's bits. So clearing one removes the mapping
//! from the kernel's tables, and the fault that brings it back reveals the reference (one system
//! call to clear, one fault at the next use). *Dirty bits.* Whatever can be read can be written
//! here, so a mapping counts as modified from the moment that the kernel's tables have it. No write
//! is ever missed; a page that was only read may be written out unnecessarily.

use super::memory::{self, BASE};
use superpage_pages::{Access, Ladder, Level, PageSize, Pfn, Protection, Vpn};
use superpage_vm::{Mapped, Pmap, SpaceId, Used};

/// The level of a page that is not the first of a mapping.
const NO_LEVEL: u8 = u8::MAX;

/// How much of a mapping is in the kernel's tables.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Present {
    /// Nothing.
    None,
    /// Perhaps a part.
    Part,
    /// All, by base pages, except pages entered since the last fault.
    All,
    /// All, as one huge page.
    Huge,
}

/// The state of a base page of the region.
#[derive(Clone, Copy)]
struct Page {
    /// The frame of the mapping that starts here.
    frame: u32,
    /// Its level.
    level: u8,
    /// How much of it is in the kernel's tables.
    present: Present,
    used: Used,
}

const ABSENT: Page =
    Page { frame: 0, level: NO_LEVEL, present: Present::None, used: Used { referenced: false, modified: false } };

/// A mapping: where it starts, and what it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mapping {
    pub(crate) start: Vpn,
    pub(crate) frame: Pfn,
    pub(crate) level: Level,
    pub(crate) present: Present,
}

/// The page tables of a region: every mapping, and how much of it is in the kernel's tables.
pub(crate) struct Tables {
    ladder: Ladder,
    first: Vpn,
    start: *mut u8,
    pages: Vec<Page>,
    huge: u64,
    /// Pages entered that are not in the kernel's tables yet.
    pub(crate) entered: Vec<Vpn>,
    /// Starts of regions promoted to the largest size that may not yet be one page in the kernel's
    /// tables.
    pub(crate) promoted: Vec<Vpn>,
}

// SAFETY: the pointer is the start of the region, bound to no thread; nothing is read or written
// through it here.
unsafe impl Send for Tables {}

impl Tables {
    /// For so many base pages from `start` on, none mapped.
    pub(crate) fn new(ladder: Ladder, start: *mut u8, pages: usize) -> Tables {
        let (first, pages) = (Vpn((start.addr() / BASE) as u64), vec![ABSENT; pages]);
        Tables { ladder, first, start, pages, huge: 0, entered: Vec::new(), promoted: Vec::new() }
    }

    /// The ladder of sizes.
    pub(crate) fn ladder(&self) -> &Ladder {
        &self.ladder
    }

    /// The number of the base page that holds an address.
    pub(crate) fn vpn(&self, address: u64) -> Vpn {
        self.ladder.vpn(address)
    }

    /// The number of base pages from the start of the region to this one.
    pub(crate) fn index(&self, at: Vpn) -> usize {
        (at - self.first) as usize
    }

    /// The address of a page.
    pub(crate) fn address(&self, at: Vpn) -> *mut u8 {
        self.start.wrapping_add(self.index(at) * BASE)
    }

    /// The mapping that holds a page.
    pub(crate) fn mapping(&self, at: Vpn) -> Option<Mapping> {
        self.ladder.levels().find_map(|level| {
            let start = at.align_down(self.ladder.pages(level));
            let page = start.0.checked_sub(self.first.0).map(|index| &self.pages[index as usize])?;
            (page.level == level.0).then(|| Mapping {
                start,
                frame: Pfn(u64::from(page.frame)),
                level,
                present: page.present,
            })
        })
    }

    /// The base pages that are mapped, by number in the region, each with its frame.
    pub(crate) fn mapped(&self) -> impl Iterator<Item = (usize, Pfn)> + '_ {
        let starts = self.pages.iter().enumerate().filter(|(_, page)| page.level != NO_LEVEL);
        starts.flat_map(|(index, page)| {
            let pages = self.ladder.pages(Level(page.level)) as usize;
            (0..pages).map(move |part| (index + part, Pfn(u64::from(page.frame) + part as u64)))
        })
    }

    /// Records that a mapping is in the kernel's tables, for an access just made: even after a
    /// read, a write may follow unseen.
    pub(crate) fn set_present(&mut self, start: Vpn, present: Present) {
        let page = self.page(start);
        page.used = Used { referenced: true, modified: true };
        let was = std::mem::replace(&mut page.present, present);
        self.huge = self.huge + u64::from(present == Present::Huge) - u64::from(was == Present::Huge);
    }

    /// The number of mappings of 2 MB that are one in hardware too.
    pub(crate) fn huge(&self) -> u64 {
        self.huge
    }

    fn page(&mut self, at: Vpn) -> &mut Page {
        let index = self.index(at);
        &mut self.pages[index]
    }

    fn exact(&mut self, at: Vpn, size: PageSize) -> &mut Page {
        let level = self.level(size);
        let page = self.page(at);
        assert_eq!(page.level, level.0, "no mapping of {size} starts at {at:?}");
        page
    }

    fn level(&self, size: PageSize) -> Level {
        self.ladder.level(size).unwrap_or_else(|| panic!("{size} is not a size of {}", self.ladder))
    }

    /// Removes a mapping from the kernel's tables. When this returns no thread can access it.
    fn absent(&mut self, at: Vpn, size: PageSize) {
        let was = std::mem::replace(&mut self.page(at).present, Present::None);
        self.huge -= u64::from(was == Present::Huge);
        if was > Present::None
            && let Err(error) = memory::zap(self.address(at), size.bytes() as usize)
        {
            panic!("the kernel does not unmap {size} at {at:?}: {error}");
        }
    }

    /// Checks that mappings are aligned, lie inside, do not overlap; and the count of huge pages.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let (mut free, mut huge) = (0, 0);
        for (index, page) in self.pages.iter().enumerate() {
            if page.level == NO_LEVEL {
                continue;
            }
            let pages = self.ladder.pages(Level(page.level)) as usize;
            let at = self.first + index as u64;
            if index < free || !at.is_aligned(pages as u64) || u64::from(page.frame) % pages as u64 != 0 {
                return Err(format!("the mapping at page {index} overlaps another or is not aligned"));
            }
            free = index + pages;
            if free > self.pages.len() {
                return Err(format!("the mapping at page {index} ends beyond the region"));
            }
            huge += u64::from(page.present == Present::Huge);
        }
        if huge == self.huge { Ok(()) } else { Err(format!("{huge} mappings are huge, but {} are counted", self.huge)) }
    }
}

impl Pmap for Tables {
    fn enter(&mut self, _: SpaceId, at: Vpn, to: Mapped, access: Access) {
        let level = self.level(to.size);
        assert!(self.mapping(at).is_none(), "{at:?} is mapped already");
        // The pager enters it into the kernel's tables when the fault is resolved, before the next
        // call of the manager.
        self.entered.extend((0..self.ladder.pages(level)).map(|page| at + page));
        let page = self.page(at);
        let used = Used { referenced: true, modified: access == Access::Write };
        *page = Page { frame: to.frame.0 as u32, level: level.0, present: Present::All, used };
    }

    fn remove(&mut self, _: SpaceId, at: Vpn, size: PageSize) -> Used {
        let used = self.exact(at, size).used;
        self.absent(at, size);
        self.page(at).level = NO_LEVEL;
        used
    }

    fn protect(&mut self, _: SpaceId, at: Vpn, size: PageSize, protection: Protection) {
        assert_eq!(protection, Protection::READ_WRITE, "all of a region is for reading and writing ({size} at {at:?})");
    }

    fn promote(&mut self, _: SpaceId, at: Vpn, from: PageSize, to: PageSize) {
        let (step, pages, level) =
            (self.ladder.pages(self.level(from)), self.ladder.pages(self.level(to)), self.level(to));
        let (mut least, mut most) = (Present::Huge, Present::None);
        let mut used = Used::default();
        for part in (0..pages).step_by(step as usize) {
            let page = self.exact(at + part, from);
            page.level = NO_LEVEL;
            (least, most) = (least.min(page.present), most.max(page.present));
            used.referenced |= page.used.referenced;
            used.modified |= page.used.modified;
        }
        let present = if least == most { least } else { Present::Part };
        if level == self.ladder.largest() {
            self.promoted.push(at);
        }
        let page = self.page(at);
        *page = Page { level: level.0, present, used, ..*page };
    }

    fn demote(&mut self, _: SpaceId, at: Vpn, from: PageSize, to: PageSize) {
        let (step, pages, level) =
            (self.ladder.pages(self.level(to)), self.ladder.pages(self.level(from)), self.level(to));
        if self.exact(at, from).present == Present::Huge {
            // A part cannot be removed from a huge page. The parts come back as they are used.
            self.absent(at, from);
        }
        let whole = *self.page(at);
        for part in (0..pages).step_by(step as usize) {
            let page = self.page(at + part);
            *page = Page { frame: whole.frame + part as u32, level: level.0, ..whole };
        }
    }

    fn lookup(&self, _: SpaceId, at: Vpn) -> Option<Mapped> {
        self.mapping(at).map(|mapping| Mapped {
            frame: mapping.frame + (at - mapping.start),
            size: self.ladder.size(mapping.level),
            protection: Protection::READ_WRITE,
        })
    }

    fn used(&self, _: SpaceId, at: Vpn, size: PageSize) -> Used {
        let page = &self.pages[self.index(at)];
        assert_eq!(page.level, self.level(size).0, "no mapping of {size} starts at {at:?}");
        page.used
    }

    fn clear_referenced(&mut self, _: SpaceId, at: Vpn, size: PageSize) -> bool {
        let was = std::mem::take(&mut self.exact(at, size).used.referenced);
        if was {
            self.absent(at, size);
        }
        was
    }

    fn clear_modified(&mut self, _: SpaceId, at: Vpn, size: PageSize) -> bool {
        let was = std::mem::take(&mut self.exact(at, size).used.modified);
        if was {
            self.absent(at, size);
        }
        was
    }

    fn destroy(&mut self, _: SpaceId) {
        assert!(self.pages.iter().all(|page| page.level == NO_LEVEL), "the space is destroyed with mappings");
    }
}
