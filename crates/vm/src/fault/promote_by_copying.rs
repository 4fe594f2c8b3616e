//! Promotion by copying: the populated pages of a region, wherever they lie, are copied into one
//! extent, the rest of it is zeroed, the region is mapped again with one shootdown, and the
//! old frames are freed. Linux calls this a collapse.

use crate::fault::leaves::Leaf;
use crate::fault::site::{FaultContext, Site};
use crate::frame::CopiedPage;
use crate::object::ObjectId;
use crate::outcome::Promotion;
use crate::queue::swap_and_cache::PagesIn;
use crate::space::Entry;
use crate::vm::Vm;
use crate::{How, Memory, Page, Pmap, Promoted, Region, Used, Why};
use alloc::vec::Vec;
use superpage_pages::{Access, Hint, Level, Mapped, Pfn};

/// A region that lies in one map entry, aligned there as in its object, and may be promoted as far
/// as the program and the hardware are concerned.
#[derive(Clone, Copy)]
pub(super) struct Located {
    pub(super) region: Region,
    pub(super) entry: Entry,
    pub(super) object: ObjectId,
    /// The index of its first page.
    pub(super) low: u64,
}

/// A region of anonymous memory that can be promoted.
struct Eligible {
    located: Located,
    /// Whether it lies in one extent.
    in_place: bool,
    /// Ascending.
    populated: Vec<PopulatedPage>,
}

/// A populated page of a region.
struct PopulatedPage {
    /// Its place in the region.
    position: u64,
    frame: u32,
}

impl Eligible {
    /// Whether the page of this place in the region is populated.
    fn is_populated(&self, position: u64) -> bool {
        self.populated.binary_search_by_key(&position, |page| page.position).is_ok()
    }
}

impl Vm {
    /// Makes one superpage of a region, all of whose pages must be private, anonymous and in
    /// memory; unpopulated pages of it are populated with zeroes. By copying it needs a free extent
    /// (it preempts no reservation and wakes no daemon for it) and costs one shootdown. Where the
    /// program asks for base pages it is refused, under every policy, as Linux refuses
    /// `MADV_COLLAPSE`. O(pages of the region); if the memory object was shared, times the number
    /// of address spaces. For embedders: a kernel's own scanner, or its `madvise(MADV_COLLAPSE)`;
    /// the policy's background promotes by itself.
    ///
    /// # Errors
    /// [`Why`] the region was not promoted. The state is as before, except that page tables may
    /// have been given frames for it; and after [`Why::Contents`] and [`Why::NoExtent`], pages may
    /// have been populated in place, or cache pages dropped from the extent for the copy.
    pub fn promote_region(
        &mut self,
        pmap: &mut impl Pmap,
        memory: &mut impl Memory,
        region: Region,
        how: How,
    ) -> Result<Promoted, Why> {
        self.promote_populated(pmap, memory, Promotion { region, least: 1, how })
    }

    /// As [`Vm::promote_region`], with a number of pages that must be populated.
    pub(crate) fn promote_populated(
        &mut self,
        pmap: &mut impl Pmap,
        memory: &mut impl Memory,
        wanted: Promotion,
    ) -> Result<Promoted, Why> {
        let done = self.locate(pmap, wanted.region).and_then(|located| {
            if self.is_text(&located.entry) {
                return self.collapse_text(pmap, memory, &located, wanted);
            }
            let eligible = self.eligible(pmap, located, wanted.least)?;
            match (eligible.in_place, wanted.how) {
                (true, How::InPlace | How::Either) => self.promote_in_place(pmap, memory, &eligible),
                (false, How::ByCopying | How::Either) => self.promote_by_copying(pmap, memory, &eligible),
                _ => Err(Why::Otherwise),
            }
        });
        done.inspect_err(|why| self.policy.refused(*why))
    }

    /// How often regions were refused so far, by reason.
    pub fn refusals(&self) -> impl Iterator<Item = (Why, u64)> + '_ {
        self.policy.refusals()
    }

    /// Finds what maps a region, and checks whether that may be promoted.
    fn locate(&self, pmap: &impl Pmap, region: Region) -> Result<Located, Why> {
        let Region { space, start, level } = region;
        let ladder = &self.frames.ladder;
        if level == Level::BASE
            || level > ladder.largest()
            || !pmap.contiguity(ladder.size(level)).is_whole()
            || !start.is_aligned(ladder.pages(level))
        {
            return Err(Why::TooSmall);
        }
        let pages = ladder.pages(level);
        let entry = self.spaces.get(space).ok().and_then(|map| map.find(start.0)).ok_or(Why::TooSmall)?;
        if entry.is_pooled() {
            return Err(Why::Otherwise);
        }
        let (object, low) = (entry.object, entry.index(start.0));
        let high = low + pages;
        let known = self.objects.get(object);
        let inside = entry.holds_extent(start, pages) && low >= known.low && high <= known.high;
        if !inside || !entry.protection.allows(Access::Read) {
            return Err(Why::TooSmall);
        }
        if entry.hint == Hint::Base {
            return Err(Why::AdvisedAgainst);
        }
        if !self.policy.answers.place.hints.allow_background(entry.hint) {
            return Err(Why::NotAdvised);
        }
        Ok(Located { region, entry, object, low })
    }

    /// Checks whether a region of anonymous memory can be promoted.
    fn eligible(&self, pmap: &impl Pmap, located: Located, least: u32) -> Result<Eligible, Why> {
        let Located { region: Region { space, start, level }, entry, object, low } = located;
        let (known, ladder) = (self.objects.get(object), &self.frames.ladder);
        let high = low + ladder.pages(level);
        if known.file.is_some() {
            return Err(Why::FileFolios);
        }
        if pmap.lookup(space, start).is_some_and(|mapped| mapped.size >= ladder.size(level)) {
            return Err(Why::Superpage);
        }
        if self.frames.busy.of(object, &(low..high)).is_some() {
            return Err(Why::Busy);
        }
        let mut runs = Vec::new();
        self.frames.population.runs(object, low, high, &mut runs);
        if runs.is_empty() || runs.iter().map(|run| run.end - run.start).sum::<u64>() < u64::from(least) {
            return Err(Why::NotPopulated);
        }
        let frame = |index| self.frames.population.walk(object, index).frame;
        let indices = runs.into_iter().flatten();
        let populated: Vec<PopulatedPage> =
            indices.map(|index| PopulatedPage { position: index - low, frame: frame(index) }).collect();
        let swap_and_cache = &self.frames.swap_and_cache;
        let PagesIn { cached, swapped } = swap_and_cache.pages_in(object, low, high);
        let held = |index: u64| populated.binary_search_by_key(&(index - low), |page| page.position).is_ok();
        if !cached.is_empty() || !swapped.iter().all(|index| held(*index)) {
            return Err(Why::Swapped);
        }
        if populated.iter().any(|page| self.frames.is_held(page.frame)) {
            return Err(Why::Swapped);
        }
        let behind = |index| {
            !held(index)
                && known.backing.is_some_and(|behind| self.frames.holder(&self.objects, behind, index).is_some())
        };
        // With a file behind it, every page has contents.
        let of_file = || self.objects.chain(object).any(|object| self.objects.get(object).file.is_some());
        if entry.copy || entry.shared || known.backing.is_some() && (of_file() || (low..high).any(behind)) {
            return Err(Why::SharedByFork);
        }
        if !known.sole {
            for PopulatedPage { position, frame } in &populated {
                let mappings = self.spaces.mappings(&self.objects, pmap, object.page(low + position), *frame);
                if mappings.into_iter().any(|mapping| mapping.space != space || mapping.at != start + *position) {
                    return Err(Why::SharedByFork);
                }
            }
        }
        let in_place = self.frames.population.walk(object, low + populated[0].position).covered >= level.0;
        Ok(Eligible { located, in_place, populated })
    }

    /// Populates the rest of a region in the extent that it lies in, and promotes its mappings size
    /// by size. Where that fails, since they differ or the hardware lacks a size between, the
    /// region is unmapped and mapped as one superpage.
    fn promote_in_place(
        &mut self,
        pmap: &mut impl Pmap,
        memory: &mut impl Memory,
        eligible: &Eligible,
    ) -> Result<Promoted, Why> {
        let Located { region: Region { space, start, level }, entry, object, low } = eligible.located;
        let pages = self.frames.ladder.pages(level);
        let PopulatedPage { position, frame } = eligible.populated[0];
        let at = start + position;
        let mapped = pmap.lookup(space, at);
        let rights = mapped.map_or(entry.protection, |mapped| mapped.protection);
        let site = Site { space, entry, at, access: Access::Read, most: level };
        let mut context = FaultContext { pmap, memory, site };
        let mut zeroed = 0;
        for index in low..low + pages {
            if self.frames.population.walk(object, index).populated {
                continue;
            }
            if !self.prepopulate_one(&mut context, object.page(index), rights) {
                return Err(Why::Contents);
            }
            zeroed += 1;
        }
        let promoted = mapped.is_some_and(|mapped| {
            let leaf = Leaf { at, frame, level: self.frames.level(mapped.size), rights };
            self.climb_to(context.pmap, site.window(object), leaf, level) == level
        });
        if !promoted {
            if !self.frames.give_spare_tables(&self.policy.answers, pmap, space.page(start), level) {
                return Err(Why::NoExtent);
            }
            let used = self.remove_region(pmap, eligible.located.region);
            if self.objects.get(object).sole {
                // Superpages in it, of which none is left.
                for smaller in (1..level.0).map(|level| Level(level + 1)) {
                    for index in (low..low + pages).step_by(self.frames.ladder.pages(smaller) as usize) {
                        let walk = self.frames.population.walk(object, index);
                        self.frames.count_children(&walk, smaller, 0);
                    }
                }
            }
            self.enter_region(pmap, &eligible.located, Pfn(u64::from(frame) - position), used);
        }
        Ok(Promoted { copied: 0, zeroed })
    }

    fn promote_by_copying(
        &mut self,
        pmap: &mut impl Pmap,
        memory: &mut impl Memory,
        eligible: &Eligible,
    ) -> Result<Promoted, Why> {
        let Located { region: Region { space, start, level }, object, low, .. } = eligible.located;
        let (pages, base) = (self.frames.ladder.pages(level), self.frames.ladder.base());
        if !self.frames.give_spare_tables(&self.policy.answers, pmap, space.page(start), level) {
            return Err(Why::NoExtent);
        }
        let extent = self.frames.buddy.allocate(level).ok_or(Why::NoExtent)?;
        let ready = self.frames.taken(extent);
        let page = |position: u64| Page::Mapped { space, at: start + position };
        // What can fail comes first.
        let mut holes = (0..pages).filter(|position| !eligible.is_populated(*position));
        if !ready && holes.any(|position| memory.zero(extent.start + position, 1, page(position)).is_err()) {
            self.frames.free(extent);
            return Err(Why::Contents);
        }
        let used = self.remove_region(pmap, eligible.located.region);
        let copied: Vec<CopiedPage> = eligible
            .populated
            .iter()
            .map(|&PopulatedPage { position, frame }| {
                memory.copy(Pfn(u64::from(frame)), extent.start + position, page(position));
                let (dirty, untouched) = (self.frames.is_dirty(frame), self.frames.is_untouched(frame));
                CopiedPage { position, dirty, untouched }
            })
            .collect();
        self.frames.unpopulate(object, low, low + pages);
        self.frames.install_copied(object, low, extent, &copied);
        let copied = copied.len() as u64;
        let zeroed = pages - copied;
        let stats = &mut self.frames.stats;
        stats.bytes_copied += copied * base.bytes();
        stats.bytes_zeroed += if ready { 0 } else { zeroed * base.bytes() };
        stats.promotions_by_copying += 1;
        self.enter_region(pmap, &eligible.located, extent.start, used);
        Ok(Promoted { copied, zeroed })
    }

    /// Removes all mappings of a region with one shootdown, and returns how it was used.
    fn remove_region(&mut self, pmap: &mut impl Pmap, Region { space, start, level }: Region) -> Used {
        let end = start + self.frames.ladder.pages(level);
        pmap.gather(space, start..end, |pmap| {
            pmap.gathers_to_promote();
            self.unmap_zero_leaves(pmap, space, start..end);
            let mut used = Used::default();
            let mut at = start;
            while at < end {
                let Some(leaf) = self.frames.leaf(pmap, space, at) else {
                    at = at + 1;
                    continue;
                };
                let pages = self.frames.ladder.pages(leaf.level);
                let of = pmap.remove(space, at, self.frames.ladder.size(leaf.level));
                used = Used { referenced: used.referenced || of.referenced, modified: used.modified || of.modified };
                self.frames.note_modified(of, leaf.frame, pages);
                self.frames.stats.mapped[leaf.level.index()] -= 1;
                at = at + pages;
            }
            used
        })
    }

    /// Maps a region, of which nothing is mapped and which fills the extent that begins with this
    /// frame, as one superpage; `used` are the bits of the mappings that it had.
    fn enter_region(&mut self, pmap: &mut impl Pmap, located: &Located, frame: Pfn, used: Used) {
        let Located { region: Region { space, start, level }, entry, object, low } = *located;
        let first = frame.0 as u32;
        let mut frames = first..first + self.frames.ladder.pages(level) as u32;
        let modified = used.modified || frames.any(|frame| self.frames.is_dirty(frame));
        let protection = if modified { entry.protection } else { self.rights_if_clean(object, entry.protection) };
        let access = if used.modified { Access::Write } else { Access::Read };
        pmap.enter(space, start, Mapped { frame, size: self.frames.ladder.size(level), protection }, access);
        let walk = self.frames.population.walk(object, low);
        self.frames.note_superpage(&self.objects, &walk, level, false);
        self.frames.take_tables(pmap);
    }
}
