//! Shadow superpages: over frames that lie anywhere, since the memory controller maps a range of
//! physical addresses with no memory behind them, the *shadow* range, to frames, base page by base
//! page. Swanson, Stoller and Carter, Increasing TLB reach using superpages backed by shadow
//! memory, ISCA 1998.
//!
//! The operating system's rule is modelled here, so that no policy has to know of it. Before the
//! next access after changes of mappings, from the smallest size up: an aligned block with a
//! changed page becomes a shadow superpage if it is full of base pages, or of shadow superpages of
//! the next smaller size, with the same rights, and no frame of it is mapped elsewhere too (a line
//! would have two addresses in the caches). Before one of its pages changes, or a frame of it is
//! mapped elsewhere, a superpage splits into those of the next smaller size, and those with the
//! page split in turn.
//!
//! The shadow range has an equal part for each size; a superpage takes the lowest free slot, and
//! without a free slot none is made. In the index a shadow superpage is a mapping like any other,
//! to frames of the shadow range. The frames behind it and the use bits of its base pages are kept
//! here: the memory manager sees base pages.

use super::notifiers::{Change, Effects, Notifier};
use super::{Invalidate, Layout, Mapping, MappingId, Mappings, SpacePages, Work};
use crate::counters::Remaps;
use crate::mappings::pte::Pte;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use superpage_pages::{Protection, Used, Vpn};

/// No shadow superpage.
const NONE: u32 = u32::MAX;

/// A base page of a shadow superpage.
#[derive(Clone, Copy, Debug)]
pub(super) struct BasePage {
    pub(super) frame: u64,
    used: Used,
}

/// A shadow superpage.
#[derive(Clone, Debug)]
struct Superpage {
    space: u32,
    first: Vpn,
    pages: Vec<BasePage>,
}

/// The part of the shadow range for superpages of one size: slots of that size.
#[derive(Clone, Debug)]
struct Pool {
    /// Its first frame, and the base-two logarithm of the base pages of a slot.
    first: u64,
    order: u32,
    /// The number of slots, and the first that was never in use.
    slots: u64,
    fresh: u64,
    freed: BinaryHeap<Reverse<u64>>,
}

impl Pool {
    /// Takes the lowest free slot; returns its first frame.
    fn take(&mut self) -> Option<u64> {
        let slot = match self.freed.pop() {
            Some(Reverse(slot)) => slot,
            None if self.fresh < self.slots => {
                self.fresh += 1;
                self.fresh - 1
            }
            None => return None,
        };
        Some(self.first + (slot << self.order))
    }

    fn give(&mut self, frame: u64) {
        self.freed.push(Reverse((frame - self.first) >> self.order));
    }
}

/// What maps a frame.
#[derive(Clone, Copy, Debug)]
struct FrameUse {
    /// The number of mappings.
    mappings: u32,
    /// The number of the shadow superpage among them, or [`NONE`].
    superpage: u32,
}

/// The controller's table, and the operating system's records of it.
#[derive(Clone, Debug)]
pub(super) struct Shadow {
    /// Real frames are below this one.
    memory: u64,
    /// By level of the ladder, from the first above the base page.
    pools: Vec<Pool>,
    superpages: Vec<Superpage>,
    free: Vec<u32>,
    uses: Vec<FrameUse>,
    remaps: Remaps,
    /// Pages that have changed since the last access; neighbours are one range.
    changed: Vec<SpacePages>,
}

impl Shadow {
    /// The use of a frame.
    fn of(&mut self, frame: u64) -> &mut FrameUse {
        assert!(frame < self.memory, "frame {frame:#x} is in the shadow range");
        let at = frame as usize;
        if self.uses.len() <= at {
            self.uses.resize(at + 1, FrameUse { mappings: 0, superpage: NONE });
        }
        &mut self.uses[at]
    }

    fn pool(&mut self, size_level: usize) -> &mut Pool {
        &mut self.pools[size_level - 1]
    }

    /// A new superpage; returns its number.
    fn add(&mut self, superpage: Superpage) -> u32 {
        self.remaps.table_writes += superpage.pages.len() as u64;
        let number = self.free.pop().unwrap_or(self.superpages.len() as u32);
        superpage.pages.iter().for_each(|page| self.uses[page.frame as usize].superpage = number);
        match self.superpages.get_mut(number as usize) {
            Some(free) => *free = superpage,
            None => self.superpages.push(superpage),
        }
        number
    }

    /// Removes a superpage of this level, whose slot begins at `frame`; returns its base pages.
    fn take(&mut self, number: u32, size_level: usize, frame: u64) -> Vec<BasePage> {
        let pages = std::mem::take(&mut self.superpages[number as usize].pages);
        pages.iter().for_each(|page| self.uses[page.frame as usize].superpage = NONE);
        self.remaps.table_writes += pages.len() as u64;
        self.remaps.flushed_pages += pages.len() as u64;
        self.pool(size_level).give(frame);
        self.free.push(number);
        pages
    }
}

impl Mappings {
    /// Starts making shadow superpages, in a range of `frames` frames from `first` on. No page is
    /// mapped yet.
    pub(crate) fn keep_shadow(&mut self, first: u64, frames: u64) {
        let sizes = self.ladder().len() as u64 - 1;
        let pool = |size_level: usize| {
            let (order, end) = (self.order(size_level), first + frames * size_level as u64 / sizes);
            let first = (first + frames * (size_level as u64 - 1) / sizes).next_multiple_of(1 << order);
            Pool { first, order, slots: end.saturating_sub(first) >> order, fresh: 0, freed: BinaryHeap::new() }
        };
        let pools = (1..=sizes as usize).map(pool).collect();
        let (superpages, free, uses, remaps) = (Vec::new(), Vec::new(), Vec::new(), Remaps::default());
        let shadow = Shadow { memory: first, pools, superpages, free, uses, remaps, changed: Vec::new() };
        self.shadow = Some(Box::new(shadow));
    }

    /// Whether there may be shadow superpages.
    #[inline(always)]
    pub(crate) fn shadows(&self) -> bool {
        self.shadow.is_some()
    }

    /// Their cost so far, besides page-table entries and shootdowns.
    pub(crate) fn remaps(&self) -> Remaps {
        self.shadow.as_ref().map_or(Remaps::default(), |shadow| shadow.remaps)
    }

    fn expect_shadow(&mut self) -> &mut Shadow {
        self.shadow.as_mut().expect("there are shadow superpages only where they are kept")
    }

    /// The base page with this index in a shadow superpage.
    pub(super) fn shadowed(&self, pte: Pte, index: u64) -> BasePage {
        let shadow = self.shadow.as_ref().expect("there are shadow superpages only where they are kept");
        shadow.superpages[pte.child() as usize].pages[index as usize]
    }

    /// An access of this number to a page of the shadow superpage with this head. The controller
    /// sets its use bits as exactly as page tables do, though a real one would see only misses in
    /// the caches.
    #[inline(never)]
    pub(super) fn use_shadowed(&mut self, head: u32, page: Vpn, access: u64) {
        let index = page - self.nodes.first_page(head);
        let number = self.ptes[head as usize].child();
        let used = &mut self.expect_shadow().superpages[number as usize].pages[index as usize].used;
        (used.referenced, used.modified) = (true, used.modified || access & 1 != 0);
    }

    /// A page-table entry with the use bits of a base page of a shadow superpage; `None` if it is
    /// in none.
    pub(super) fn shadowed_use(&self, MappingId { space, at, size }: MappingId) -> Option<Pte> {
        self.shadow.as_ref()?;
        let Mapping { pte, first, .. } = self.mapping(space, at).filter(|mapping| mapping.pte.is_shadow())?;
        assert_eq!(self.size_level(size), 0, "page {at:?} of space {space} is a base page");
        Some(Pte::leaf(0, 0, pte.protection(), self.shadowed(pte, at - first).used))
    }

    /// As [`Mappings::clear`], of a base page of a shadow superpage: its bits are in the
    /// controller, and TLBs have none. `None` if it is in none.
    pub(super) fn clear_shadowed(&mut self, mapping: MappingId, change: fn(Pte) -> Pte) -> Option<Pte> {
        let before = self.shadowed_use(mapping)?;
        let after = change(before);
        let Mapping { pte, first, .. } = self.mapping(mapping.space, mapping.at)?;
        let shadow = self.expect_shadow();
        shadow.superpages[pte.child() as usize].pages[(mapping.at - first) as usize].used = after.used();
        shadow.remaps.table_writes += u64::from(before != after);
        Some(before)
    }

    /// These frames are mapped once more.
    pub(super) fn count_frames(&mut self, first: u64, frames: u64) {
        if let Some(shadow) = &mut self.shadow {
            (first..first + frames).for_each(|frame| shadow.of(frame).mappings += 1);
        }
    }

    /// The mapping with this head is removed: its frames are mapped once less.
    pub(super) fn forget_frames(&mut self, head: u32, pte: Pte, caches: &mut impl Invalidate) {
        let (frame, order) = (self.frames.get(head), self.order(pte.size_level()));
        let Some(shadow) = &mut self.shadow else { return };
        if pte.is_shadow() {
            caches.drop_lines(frame..frame + (1 << order));
            let pages = shadow.take(pte.child(), pte.size_level(), frame);
            pages.iter().for_each(|page| shadow.of(page.frame).mappings -= 1);
        } else {
            (frame..frame + (1 << order)).for_each(|frame| shadow.of(frame).mappings -= 1);
        }
    }

    /// Splits the shadow superpages that a change of mappings would make wrong; call it before the
    /// change.
    #[inline(never)]
    pub(crate) fn split_before(&mut self, change: &Change, caches: &mut impl Invalidate) -> Effects {
        match &change.frames {
            Some(frames) => self.unshare(frames.clone(), caches),
            None => self.uncover(change.space, &change.pages, caches),
        }
    }

    /// Whether [`Mappings::make_superpages`] has something to do.
    #[inline]
    pub(crate) fn has_changed_pages(&self) -> bool {
        self.shadow.as_ref().is_some_and(|shadow| !shadow.changed.is_empty())
    }

    /// Makes the shadow superpages that changes since the last access allow. A kernel often makes
    /// several changes at once, and the next one undoes what would follow from one alone.
    #[cold]
    pub(crate) fn make_superpages(&mut self, caches: &mut impl Invalidate) -> Effects {
        let mut effects = Effects::default();
        let changed = self.shadow.as_mut().map(|shadow| std::mem::take(&mut shadow.changed));
        for SpacePages { space, pages } in changed.into_iter().flatten() {
            effects += self.cover(space, &pages, caches);
        }
        effects
    }

    /// Splits the shadow superpages that have any of these pages, which are all mapped and are
    /// about to change.
    fn uncover(&mut self, space: u32, pages: &Range<u64>, caches: &mut impl Invalidate) -> Effects {
        let (mut effects, mut at) = (Effects::default(), pages.start);
        while at < pages.end {
            let Some(mapping) = self.mapping(space, Vpn(at)) else { break };
            let first = mapping.first.0;
            let end = first + (1 << self.order(mapping.pte.size_level()));
            if mapping.pte.is_shadow() {
                effects.work.writes += self.split(space, mapping, pages, caches);
                effects.shot.push(SpacePages { space, pages: first..end });
            }
            at = end;
        }
        effects
    }

    /// Splits all shadow superpages of a space. Cost: O(all superpages).
    pub(crate) fn uncover_all(&mut self, space: u32, caches: &mut impl Invalidate) -> Effects {
        let mut effects = Effects::default();
        let Some(shadow) = &self.shadow else { return effects };
        let its = shadow.superpages.iter().filter(|held| held.space == space && !held.pages.is_empty());
        let mut all: Vec<Range<u64>> = its.map(|held| held.first.0..held.first.0 + held.pages.len() as u64).collect();
        all.sort_unstable_by_key(|pages| pages.start);
        for pages in all {
            effects += self.uncover(space, &pages, caches);
        }
        effects
    }

    /// As [`Mappings::uncover`], of superpages with any of these frames, which are about to be
    /// mapped elsewhere too.
    fn unshare(&mut self, frames: Range<u64>, caches: &mut impl Invalidate) -> Effects {
        let mut effects = Effects::default();
        for frame in frames {
            let Some(shadow) = &self.shadow else { break };
            let used = shadow.uses.get(frame as usize).filter(|used| used.superpage != NONE);
            if let Some(held) = used.map(|used| &shadow.superpages[used.superpage as usize]) {
                let index = held.pages.iter().position(|page| page.frame == frame);
                let (space, at) = (held.space, held.first + index.expect("the superpage has its frame") as u64);
                effects += self.uncover(space, &(at.0..at.0 + 1), caches);
            }
        }
        effects
    }

    /// Splits a shadow superpage around some pages; returns the page-table entries that are
    /// written.
    fn split(&mut self, space: u32, mapping: Mapping, around: &Range<u64>, caches: &mut impl Invalidate) -> u64 {
        let Mapping { head, pte, first } = mapping;
        let (size_level, frame) = (pte.size_level(), self.frames.get(head));
        caches.drop_leaf(mapping);
        caches.drop_lines(frame..frame + (1 << self.order(size_level)));
        self.ptes[head as usize..][..1 << pte.replicas()].fill(Pte::ABSENT);
        self.nodes.of(head).live -= 1 << pte.replicas();
        let shadow = self.expect_shadow();
        shadow.remaps.demotions += 1;
        let pages = shadow.take(pte.child(), size_level, frame);
        let parts = Parts { space, protection: pte.protection(), around };
        self.lay(size_level - 1, first, &pages, &parts)
    }

    /// Maps the pages of a superpage that was split by pages of this level, or of smaller ones
    /// around those that change. Returns the page-table entries that are written.
    fn lay(&mut self, size_level: usize, first: Vpn, pages: &[BasePage], parts: &Parts<'_>) -> u64 {
        let step = 1usize << self.order(size_level);
        // If the superpage was one entry at a higher level, that points to a table now.
        let mut written = u64::from(self.layout(size_level).level != self.layout(size_level + 1).level);
        for (at, pages) in (first.0..).step_by(step).zip(pages.chunks(step)) {
            let changes = parts.around.start < at + step as u64 && at < parts.around.end;
            let slot = (size_level > 0 && !changes).then(|| self.expect_shadow().pool(size_level).take()).flatten();
            written += match slot {
                Some(frame) => {
                    let superpage = Superpage { space: parts.space, first: Vpn(at), pages: pages.to_vec() };
                    self.write_shadow(size_level, frame, parts.protection, superpage)
                }
                None if size_level > 0 => self.lay(size_level - 1, Vpn(at), pages, parts),
                None => {
                    let Layout { level, replicas } = self.layout(0);
                    let id = self.make(parts.space, Vpn(at), level);
                    self.write_leaf(id, Pte::leaf(0, replicas, parts.protection, pages[0].used), pages[0].frame);
                    self.nodes.of(id).live += 1 << replicas;
                    1 << replicas
                }
            };
        }
        written
    }

    /// Maps a shadow superpage of this level, whose slot begins at `frame`, where nothing is
    /// mapped; returns the page-table entries that are written.
    fn write_shadow(&mut self, size_level: usize, frame: u64, protection: Protection, superpage: Superpage) -> u64 {
        let (Layout { level, replicas }, space, first) = (self.layout(size_level), superpage.space, superpage.first);
        let number = self.expect_shadow().add(superpage);
        let id = self.make(space, first, level);
        self.write_leaf(id, Pte::shadow(size_level, replicas, protection, number), frame);
        self.nodes.of(id).live += 1 << replicas;
        1 << replicas
    }

    /// Makes shadow superpages that include any of these pages, which have changed.
    fn cover(&mut self, space: u32, pages: &Range<u64>, caches: &mut impl Invalidate) -> Effects {
        let mut effects = Effects::default();
        for size_level in 1..self.ladder().len() {
            let (size, made) = (1u64 << self.order(size_level), effects.shot.len());
            for at in (pages.start / size * size..pages.end).step_by(size as usize) {
                if let Some(work) = self.join(size_level, space, Vpn(at), caches) {
                    effects.work += work;
                    effects.shot.push(SpacePages { space, pages: at..at + size });
                }
            }
            if effects.shot.len() == made {
                break;
            }
        }
        effects
    }

    /// Makes the pages from `first` on a shadow superpage of this level, if they can be one.
    fn join(&mut self, size_level: usize, space: u32, first: Vpn, caches: &mut impl Invalidate) -> Option<Work> {
        let (step, pages) = (1u64 << self.order(size_level - 1), 1u64 << self.order(size_level));
        let fits = |index: u64| self.part(size_level - 1, space, first + index);
        // Most fill up in order, so the last page is the likeliest to be absent.
        let protection = fits(pages - step)?;
        let alike = |index: u64| fits(index) == Some(protection);
        if !(0..pages - step).step_by(step as usize).all(alike) {
            return None;
        }
        let frame = self.expect_shadow().pool(size_level).take()?;
        // The node of the new leaf must not be freed with the old ones.
        let level = self.layout(size_level).level;
        let leaf = self.find(space, first, level).expect("the nodes above a mapping exist").id;
        self.nodes.of(leaf).live += 1;
        let (mut joined, mut traversals) = (Vec::with_capacity(pages as usize), 0);
        for at in (first.0..first.0 + pages).step_by(step as usize) {
            let mapping = self.mapping(space, Vpn(at)).expect("all parts were looked at");
            let Mapping { head, pte, .. } = mapping;
            let old = self.frames.get(head);
            caches.drop_leaf(mapping);
            caches.drop_lines(old..old + step);
            if pte.is_shadow() {
                joined.extend(self.expect_shadow().take(pte.child(), size_level - 1, old));
            } else {
                self.expect_shadow().remaps.flushed_pages += 1;
                joined.push(BasePage { frame: old, used: pte.used() });
            }
            let entries = 1 << pte.replicas();
            traversals += u64::from(entries);
            self.ptes[head as usize..][..entries as usize].fill(Pte::ABSENT);
            self.release(head, entries, caches);
        }
        let writes = self.write_shadow(size_level, frame, protection, Superpage { space, first, pages: joined });
        self.nodes.of(leaf).live -= 1;
        self.expect_shadow().remaps.promotions += 1;
        Some(Work { writes, traversals })
    }

    /// The rights of the page of this level that begins here, if it can be part of a shadow
    /// superpage.
    fn part(&self, size_level: usize, space: u32, at: Vpn) -> Option<Protection> {
        let Mapping { head, pte, .. } = self.mapping(space, at)?;
        let free = || {
            let used = self.shadow.as_ref()?.uses.get(self.frames.get(head) as usize)?;
            Some(used.mappings == 1)
        };
        let whole = pte.is_shadow() || size_level == 0 && free() == Some(true);
        (pte.size_level() == size_level && whole).then(|| pte.protection())
    }
}

impl Notifier for Shadow {
    #[inline(always)]
    fn is_kept(mappings: &Mappings) -> bool {
        mappings.shadows()
    }

    fn after(
        mappings: &mut Mappings,
        Change { space, pages, .. }: &Change,
        work: Work,
        _: &mut impl Invalidate,
    ) -> Effects {
        if let Some(shadow) = &mut mappings.shadow {
            match shadow.changed.last_mut() {
                Some(SpacePages { space: of, pages: last })
                    if of == space && last.start <= pages.end && pages.start <= last.end =>
                {
                    *last = last.start.min(pages.start)..last.end.max(pages.end);
                }
                _ => shadow.changed.push(SpacePages { space: *space, pages: pages.clone() }),
            }
        }
        Effects { work, shot: Vec::new() }
    }

    /// Checks that superpages, slots and frames are what is mapped.
    fn validate(mappings: &Mappings) -> Result<(), String> {
        let Some(shadow) = &mappings.shadow else { return Ok(()) };
        let mut times = vec![0; shadow.uses.len()];
        for (space, at, mapped) in mappings.all() {
            let frames = mapped.size.bytes() >> mappings.ladder().base().shift();
            (mapped.frame.0..mapped.frame.0 + frames).for_each(|frame| times[frame as usize] += 1);
            let used = shadow.uses[mapped.frame.0 as usize];
            let Some(Mapping { head, pte, first }) = mappings.mapping(space, at) else { continue };
            let number = if pte.is_shadow() { pte.child() } else { NONE };
            if used.superpage != number {
                return Err(format!(
                    "frame {:#x} is said to be in {:#x}, and is in {number:#x}",
                    mapped.frame.0, used.superpage
                ));
            }
            if number == NONE {
                continue;
            }
            let (size_level, frame) = (pte.size_level(), mappings.frames.get(head));
            let (held, pool) = (&shadow.superpages[number as usize], &shadow.pools[size_level - 1]);
            let slot = Reverse((frame - pool.first) >> pool.order);
            let taken = slot.0 < pool.fresh && (at != first || pool.freed.iter().all(|free| *free != slot));
            let its = (held.space, held.first, held.pages.len()) == (space, first, 1 << pool.order);
            if !taken || !its || frame % (1 << pool.order) != 0 {
                return Err(format!(
                    "shadow superpage {number} at {first:?} of space {space}, frame {frame:#x}: {held:?}"
                ));
            }
        }
        if !shadow.uses.iter().map(|used| used.mappings).eq(times.iter().copied()) {
            return Err("frames are not mapped as often as is counted".into());
        }
        Ok(())
    }
}

/// What all parts of a superpage that is split have alike.
struct Parts<'a> {
    space: u32,
    protection: Protection,
    /// The pages that change.
    around: &'a Range<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::mmu::Mmu;
    use crate::request::Request;
    use superpage_pages::{Access, Mapped, Pfn};

    /// A shadow superpage over pages 512 to 1023, whose frames are far from each other, beside a
    /// base page.
    fn covered() -> Mappings {
        let mut mmu = Mmu::new(&Machine::builtin("skylake-sp+shadow").unwrap());
        let size = mmu.mappings.ladder().base();
        let mut enter = |page: u64, frame: u64| {
            mmu.enter(0, Vpn(page), Mapped { frame: Pfn(frame), size, protection: Protection::ALL }, Access::Read);
        };
        (512..1024).for_each(|page| enter(page, 3 * page));
        enter(0, 7);
        assert_eq!(mmu.run_lines(&[Request::new(Vpn(512), Access::Read)], &[0]), None);
        let mappings = mmu.mappings;
        assert_eq!((Shadow::validate(&mappings), mappings.remaps().promotions), (Ok(()), 1));
        mappings
    }

    #[test]
    fn shadow_superpages_that_are_not_what_is_mapped_are_refused() {
        let of = covered();
        let refused = |expected: &str, change: fn(&mut Shadow)| {
            let mut mappings = of.clone();
            change(mappings.expect_shadow());
            let problem = Shadow::validate(&mappings).unwrap_err();
            assert!(problem.contains(expected), "{problem}, expected {expected}");
        };
        refused("is said to be in", |shadow| shadow.uses[7].superpage = 0);
        refused("is said to be in", |shadow| shadow.uses[3 * 600].superpage = NONE);
        // Its slot is in use, once.
        refused("shadow superpage 0", |shadow| shadow.pools[0].fresh = 0);
        refused("shadow superpage 0", |shadow| shadow.pools[0].freed.push(Reverse(0)));
        refused("shadow superpage 0", |shadow| shadow.superpages[0].space = 1);
        refused("shadow superpage 0", |shadow| shadow.superpages[0].first = Vpn(1024));
        refused("shadow superpage 0", |shadow| {
            shadow.superpages[0].pages.push(BasePage { frame: 1, used: Used::default() })
        });
        refused("as often as is counted", |shadow| shadow.uses[3 * 600].mappings = 2);
        refused("as often as is counted", |shadow| shadow.uses[8].mappings = 1);
        // A frame that is not aligned.
        let mut mappings = of.clone();
        let head = mappings.mapping(0, Vpn(512)).unwrap().head;
        let frame = mappings.frames.get(head);
        mappings.frames.set(head, frame + 1);
        assert!(Shadow::validate(&mappings).unwrap_err().contains("shadow superpage 0"));
        // Another slot is free.
        let mut mappings = of.clone();
        (mappings.expect_shadow().pools[0].fresh, mappings.expect_shadow().pools[0].freed) =
            (2, BinaryHeap::from([Reverse(1)]));
        assert_eq!(Shadow::validate(&mappings), Ok(()));
    }
}
