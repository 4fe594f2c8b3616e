//! The fault path (Navarro et al., sections 4.1, 4.5): finds the page or populates it, maps it, and
//! tries to promote it.

pub(crate) mod busy;
mod collapse_text;
pub(crate) mod compact;
pub(crate) mod give_back;
pub(crate) mod pooled;
pub(crate) mod prepopulate;
pub(crate) mod promotion;
pub(crate) mod relocate;
mod zero_page;

use crate::fault::promotion::{Leaf, Window};
use crate::frame::Populated;
use crate::frame::static_pool::HugePool;
use crate::object::population::Walk;
use crate::object::{ObjectId, PageOf};
use crate::policy::huge;
use crate::space::{Entry, Pooled};
use crate::vm::Vm;
use crate::{Address, Backed, FaultError, Filled, Growth, Memory, NoContents, Page, Pmap, SpaceId};
use superpage_pages::{Access, Extent, Level, Mapped, Pfn, Protection, Vpn};

/// How a fault was resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// A page of zeroes was populated.
    Zero,
    /// The zero page was mapped, without the right to write: the page takes no memory before it is
    /// written.
    ZeroPage,
    /// A page was populated from a file.
    File,
    /// A page was populated from swap space.
    Swap,
    /// The page was a cache page, and was populated again with its contents.
    Cached,
    /// The page was populated already, and is now mapped here as well.
    Resident,
    /// The page was copied, at its first write.
    Copy,
    /// The mapping was only given the right to write.
    Rights,
    /// The mapping was there, with enough rights: the fault was resolved meanwhile, as by another
    /// processor.
    Spurious,
}

/// What was done to resolve a fault, for callers that charge time for it. The access can be retried
/// at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a fault that failed must end somewhere, and one that was resolved be tried again"]
#[non_exhaustive]
pub struct Fault {
    /// How it was resolved.
    pub kind: FaultKind,
    /// The frame of the page, which holds its contents.
    pub frame: Pfn,
    /// The frame that the page was copied from: always if `kind` is [`FaultKind::Copy`], and if it
    /// is [`FaultKind::Cached`] and the page could not stay in its frame. That frame may hold
    /// another page by now.
    pub source: Option<Pfn>,
    /// Whether the page was populated and its frame was reserved.
    pub reserved: bool,
    /// The level of the extent that was asked for: a base page's if the frame was reserved, or
    /// nothing larger fits or is wanted.
    pub wanted: Level,
    /// The level of the extent that was allocated, if one was.
    pub allocated: Option<Level>,
    /// Reservations preempted for that allocation.
    pub preempted: u32,
    /// The level of the page that maps the address now: above the base page's after a promotion.
    pub mapped: Level,
}

impl Fault {
    /// A fault that took no frame.
    pub(crate) fn new(kind: FaultKind, frame: Pfn, mapped: Level) -> Fault {
        let (source, wanted) = (None, Level::BASE);
        Fault { kind, frame, source, reserved: false, wanted, allocated: None, preempted: 0, mapped }
    }
}

/// What resolves a fault, and which.
pub(crate) struct FaultContext<'a, P, M> {
    pub(crate) pmap: &'a mut P,
    pub(crate) memory: &'a mut M,
    pub(crate) site: Site,
}

/// The access that faulted: who, where and how.
#[derive(Clone, Copy)]
pub(crate) struct Site {
    pub(crate) space: SpaceId,
    pub(crate) entry: Entry,
    pub(crate) at: Vpn,
    pub(crate) access: Access,
    /// The largest extent that may be taken: less than the ladder's where page tables for more
    /// cannot be had.
    pub(crate) most: Level,
}

impl Site {
    fn index(&self) -> u64 {
        self.entry.index(self.at.0)
    }

    fn page(&self) -> Page {
        Page::Mapped { space: self.space, at: self.at }
    }

    pub(crate) fn window(&self, object: ObjectId) -> Window<'_> {
        Window { space: self.space, entry: &self.entry, object }
    }
}

/// The frames that a page, or an extent around it, was populated in.
#[derive(Clone, Copy)]
pub(crate) struct Destination {
    pub(crate) page: Page,
    /// The object that gets the page.
    pub(crate) object: ObjectId,
    pub(crate) frames: Extent,
}

/// Where the contents of a page that is being populated come from.
#[derive(Clone, Copy)]
pub(crate) enum Content {
    Zero,
    /// Nowhere: the caller overwrites all of it at once.
    Overwritten,
    /// The backing store of this object.
    Read {
        from: Backed,
        of: ObjectId,
    },
    /// This frame, which holds it as a cache page.
    Cached(u32),
    /// This frame, which holds the page or held it last.
    Copy(u32),
    /// The frame itself, which still holds them although it was freed.
    Left,
}

impl Content {
    /// For a page that was never populated, of an object with this file or none.
    pub(crate) fn new(of: ObjectId, file: Option<u32>, index: u64) -> Content {
        file.map_or(Content::Zero, |file| Content::Read { from: Backed::File { file, page: index }, of })
    }

    /// The frame that is copied to fill the frame `to`, if one is.
    pub(crate) fn source(self, to: Pfn) -> Option<Pfn> {
        match self {
            Content::Cached(frame) | Content::Copy(frame) => Some(Pfn(u64::from(frame))).filter(|from| *from != to),
            _ => None,
        }
    }
}

impl Vm {
    /// Resolves a fault on a page; the caller then retries the access.
    ///
    /// A page that is not populated gets its reserved frame, or a frame in a new reservation of the
    /// preferred size. The frame is filled ([`Memory`]) and then mapped as a base page, with all
    /// rights that the mapping has (the hardware sets dirty bits; if the policy demotes clean
    /// superpages at their first write, a clean page does not get the right to write yet). A page
    /// found behind a copy-on-write object is mapped without the right to write, or copied if the
    /// access is a write. A read of private anonymous memory without contents may map the zero page
    /// instead of all this ([`ZeroPage`](crate::ZeroPage)). Afterwards the largest region around
    /// the page that is fully populated, in an extent and uniformly mapped becomes a superpage, by
    /// one call of [`Pmap::promote`] per size.
    ///
    /// A fault takes at most one frame, except for what the policy populates beside the page. No
    /// second fault follows: the retried access succeeds, unless another processor has changed
    /// something meanwhile. What the last eight faults mapped stays resident while the daemon frees
    /// memory in advance; it is evicted last when a fault finds no frame.
    ///
    /// Costs O(number of sizes), if nothing is preempted, and one call of `memory`.
    ///
    /// # Errors
    /// The address space does not exist, the page is not mapped, or the access is not allowed; no
    /// frame is left: run the daemon ([`Vm::run_daemon`]) and try again, or end a process; the
    /// static pool has no page left ([`FaultError::NoPoolPage`]): end the process; `memory` cannot
    /// fill the frame; or the page is being read in ([`FaultError::Busy`]): wait for
    /// [`Vm::read_done`] and try again.
    #[inline]
    pub fn fault(
        &mut self,
        pmap: &mut impl Pmap,
        memory: &mut impl Memory,
        address: Address,
        access: Access,
    ) -> Result<Fault, FaultError> {
        let Address { space, at } = address;
        let map = self.space(space).map_err(|_| FaultError::NoSpace(space))?;
        let Some(entry) = map.find(at.0) else { return Err(FaultError::Unmapped(at)) };
        if !entry.protection.allows(access) {
            return Err(FaultError::Protection(at, access));
        }
        // Before anything is decided: making room for a table may take a reservation or a cache
        // page.
        let pool = self.frames.huge.as_ref().filter(|_| entry.pooled != Pooled::Not);
        let least = pool.map_or(Level::BASE, HugePool::level);
        if !self.give_tables(pmap, space, at, least) {
            self.frames.stats.faults_out_of_memory += 1;
            return Err(FaultError::OutOfMemory(at));
        }
        let site = Site { space, entry, at, access, most: self.frames.ladder.largest() };
        let front = self.objects.get(entry.object);
        let (alone, file) = (front.backing.is_none(), front.file);
        let walk = self.frames.population.walk(entry.object, site.index());
        let mut context = FaultContext { pmap, memory, site };
        let ended = if entry.pooled != Pooled::Not {
            self.fault_in_pool(&mut context)
        } else if let Some(fault) = self.map_zeroes(&mut context) {
            Ok(fault)
        } else if alone && !entry.copy && !walk.populated && self.frames.swap_and_cache.is_empty() {
            let content = Content::new(entry.object, file, site.index());
            self.fill(&mut context, walk, content)
        } else {
            self.search(&mut context)
        };
        if self.wants.fault || self.wants.starved {
            self.tell_fault(address, &ended);
        }
        let fault = ended?;
        self.hash_if_wanted(pmap, memory);
        if self.events.faulted
            && let Some(background) = &mut self.background
        {
            background.faulted(space, at, fault.mapped);
        }
        Ok(fault)
    }

    /// A fault on a page that may be populated or have contents, somewhere in the chain of objects.
    fn search(&mut self, context: &mut FaultContext<'_, impl Pmap, impl Memory>) -> Result<Fault, FaultError> {
        let Site { space, entry, access, .. } = context.site;
        let index = context.site.index();
        let writing = access == Access::Write;
        let holder = self.holder(entry.object, index);
        if let Some(walk) = &holder
            && walk.populated
            && self.frames.busy.contains(walk.frame)
        {
            return Err(FaultError::Busy(Pfn(u64::from(walk.frame))));
        }
        match holder {
            Some(walk) if !walk.populated => {
                let content = self.content(walk.page);
                if !writing || walk.page.object == entry.object && !entry.copy {
                    return self.fill(context, walk, content);
                }
                let own = if entry.copy { self.own(space, entry) } else { entry };
                if own.object == walk.page.object {
                    context.site.entry = own;
                    return self.fill(context, walk, content);
                }
                // The copy is made from what the page would be read from, and takes one frame: with
                // one more for the page that is copied, each could be evicted for the other for
                // ever.
                let content = if let Content::Cached(frame) = content { Content::Copy(frame) } else { content };
                self.fill_own(context, own, content)
            }
            Some(walk) if walk.page.object == entry.object && !entry.copy => {
                Ok(self.map_resident(context.pmap, &context.site, &walk, entry.protection))
            }
            Some(walk) if !writing => {
                let rights = entry.rights_without_write();
                Ok(self.map_resident(context.pmap, &context.site, &walk, rights))
            }
            Some(walk) => {
                let own = if entry.copy { self.own(space, entry) } else { entry };
                if own.object == walk.page.object {
                    context.site.entry = own;
                    return Ok(self.map_resident(context.pmap, &context.site, &walk, own.protection));
                }
                if self.frames.is_held(walk.frame) && self.available() == 1 {
                    // There is no other frame to copy it to.
                    self.frames.evict(walk.page, walk.frame, false);
                } else {
                    // The page that is copied must not be the one that is evicted for the copy.
                    self.frames.used_again(walk.frame);
                }
                self.fill_own(context, own, Content::Copy(walk.frame))
            }
            None => {
                let last = self.objects.chain(entry.object).last().expect("a chain has its front");
                let content = Content::new(last, self.objects.get(last).file, index);
                if let Content::Read { .. } = content
                    && (!writing || last == entry.object && !entry.copy)
                {
                    // Private mappings share the pages of the file until they write.
                    let walk = self.frames.population.walk(last, index);
                    return self.fill(context, walk, content);
                }
                let own = if entry.copy { self.own(space, entry) } else { entry };
                self.fill_own(context, own, content)
            }
        }
    }

    /// Where the contents are of a page that has some but is not populated.
    fn content(&self, page: PageOf) -> Content {
        let swap_and_cache = &self.frames.swap_and_cache;
        let cached = swap_and_cache.cached(page).map(Content::Cached);
        let swapped =
            swap_and_cache.slot(page).map(|slot| Content::Read { from: Backed::Swap { slot }, of: page.object });
        cached.or(swapped).expect("the page was found to have contents")
    }

    /// Populates a page of the object of `own`, the site's entry after it got an object that it may
    /// write.
    fn fill_own(
        &mut self,
        context: &mut FaultContext<'_, impl Pmap, impl Memory>,
        own: Entry,
        content: Content,
    ) -> Result<Fault, FaultError> {
        let walk = self.frames.population.walk(own.object, context.site.index());
        let entry = core::mem::replace(&mut context.site.entry, own);
        let result = self.fill(context, walk, content);
        let kept = matches!(result, Ok(_) | Err(FaultError::Busy(_)));
        if !kept && own.object != entry.object {
            self.disown(context.site.space, entry, own.object);
        }
        result
    }

    /// The preferred size of a reservation, or of an extent that is taken at once, for a page that
    /// has no reserved frame: a base page where the program's hint is against it. `site` is the
    /// access that faulted, if there is one.
    pub(crate) fn preferred(&self, site: Option<&Site>, walk: &Walk) -> Level {
        if walk.covered > 0 || site.is_some_and(|site| !self.answers.place.hints.allow(site.entry.hint)) {
            return Level::BASE;
        }
        let prefer = site.map_or(0, |site| site.entry.prefer);
        let changed = site.and_then(|site| self.answers_in(&site.entry));
        let answers = changed.as_ref().unwrap_or(&self.answers);
        let mut largest = self.frames.largest_without_overlap(answers, walk);
        if let Some(site) = site {
            largest = largest.min(site.most);
        }
        if largest == Level::BASE {
            return Level::BASE;
        }
        let PageOf { object, index } = walk.page;
        let (known, ladder) = (self.objects.get(object), &self.frames.ladder);
        let extents = answers.takes_extents();
        let fits = |level| !extents || site.is_some_and(|site| self.fills_whole(site, object, level));
        let zeroed = self.preferences[prefer as usize].only_zeroed;
        let ready = |level| !zeroed || self.frames.zeroed.find(level).is_some();
        let mut preferred = known.preferred(answers, ladder, largest, index);
        while preferred > Level::BASE && !(fits(preferred) && ready(preferred)) {
            preferred = known.preferred(answers, ladder, preferred.down(), index);
        }
        preferred
    }

    /// Populates, fills and maps the page of a walk.
    #[inline]
    fn fill(
        &mut self,
        context: &mut FaultContext<'_, impl Pmap, impl Memory>,
        mut walk: Walk,
        mut content: Content,
    ) -> Result<Fault, FaultError> {
        let Site { space, at, access, .. } = context.site;
        let PageOf { object, index } = walk.page;
        // Only one fault at a time reads a page from its backing store: its own page may be written
        // out there before another has it.
        if let Content::Read { of, .. } = content
            && let Some(frame) = self.frames.busy.reading(of, index)
        {
            return Err(FaultError::Busy(Pfn(u64::from(frame))));
        }
        let owner = self.objects.get_mut(object);
        let low = owner.low;
        if owner.growth == Growth::Down {
            owner.low = low.min(index);
        }
        let preferred = self.preferred(Some(&context.site), &walk);
        let changed = self.answers_in(&context.site.entry);
        let entry = &context.site.entry;
        let compacts = changed.as_ref().unwrap_or(&self.answers).scarce.then.compacts(entry.hint);
        // An extent that reaches past the mapping may never fill, and one of a file is seldom worth
        // it.
        let wanted = preferred.min(huge(&self.frames.ladder));
        let pages = self.frames.ladder.pages(wanted);
        let whole = at.align_down(pages).0 >= entry.start && at.align_down(pages).0 + pages <= entry.end;
        if compacts
            && wanted > Level::BASE
            && whole
            && matches!(content, Content::Zero | Content::Read { .. })
            && self.objects.get(object).file.is_none()
            && self.compact_for(context.pmap, context.memory, wanted)
        {
            // Reservations may have been broken, and tables taken for what moved.
            walk = self.frames.population.walk(object, index);
            if !self.give_tables(context.pmap, space, at, Level::BASE) {
                self.objects.get_mut(object).low = low;
                self.frames.stats.faults_out_of_memory += 1;
                return Err(FaultError::OutOfMemory(at));
            }
        }
        let answers = changed.as_ref().unwrap_or(&self.answers);
        let extents = answers.takes_extents();
        let populated = match content {
            Content::Cached(frame) => self.frames.reactivate(answers, &mut walk, preferred, frame),
            _ => self.frames.populate(answers, &mut walk, preferred, at.0),
        };
        let Some(populated) = populated else {
            self.objects.get_mut(object).low = low;
            self.frames.stats.faults_out_of_memory += 1;
            return Err(FaultError::OutOfMemory(at));
        };
        if let Content::Copy(frame) = content
            && frame == walk.frame
        {
            content = Content::Left;
        }
        // All that was populated, an extent or a page, is filled and mapped now.
        let taken = if extents { populated.allocated } else { Level::BASE };
        let frames = Extent::around(&self.frames.ladder, Pfn(u64::from(walk.frame)), taken);
        let one = taken > Level::BASE && context.pmap.contiguity(self.frames.ladder.size(taken)).is_whole();
        let mappable = !one || self.give_tables(context.pmap, space, at, taken);
        let filled = if mappable {
            let to = Destination { page: context.site.page(), object, frames };
            self.provide(context.memory, to, content, &populated).map_err(|NoContents| FaultError::Contents(at))
        } else {
            Err(FaultError::OutOfMemory(at))
        };
        let filled = match filled {
            Ok(filled) => filled,
            Err(error) => {
                // Undo, as if it had never been asked for.
                let pages = self.frames.ladder.pages(taken);
                self.frames.unpopulate(object, index & !(pages - 1), (index | (pages - 1)) + 1);
                self.objects.get_mut(object).low = low;
                if mappable {
                    return Err(error);
                }
                // A smaller extent needs fewer tables, a base page none.
                context.site.most = taken.down();
                let walk = self.frames.population.walk(object, index);
                return self.fill(context, walk, content);
            }
        };
        let base = self.frames.ladder.base();
        if let Content::Copy(frame) = content
            && context.pmap.lookup(space, at).is_some()
        {
            let behind = self.objects.get(object).backing.and_then(|backing| self.holder(backing, index));
            let behind = behind.expect("what was mapped is populated behind the page that hides it").page.object;
            self.demote_around(context.pmap, context.site.window(behind), at, false);
            let used = context.pmap.remove(space, at, base);
            self.note_modified(used, frame, 1);
            self.frames.stats.mapped[0] -= 1;
        }
        let zeroed_before = self.frames.stats.bytes_zeroed;
        let zeroed_ahead = populated.zeroed && taken == populated.allocated && matches!(content, Content::Zero);
        let kind = self.note_content(walk.page, walk.frame, content);
        let stats = &mut self.frames.stats;
        stats.faults += 1;
        *match kind {
            FaultKind::Copy => &mut stats.faults_copy,
            FaultKind::File => &mut stats.faults_file,
            FaultKind::Swap => &mut stats.faults_swap,
            FaultKind::Cached => &mut stats.faults_cached,
            _ => &mut stats.faults_zero,
        } += 1;
        if let (Filled::Later, Content::Read { of, .. }) = (filled, content) {
            self.begin_reading(walk.page, of, walk.frame);
            return Err(FaultError::Busy(frames.start));
        }
        self.strand(object, walk.frame..walk.frame + 1, access == Access::Write);
        let start = at.align_down(self.frames.ladder.pages(taken));
        self.uncover(context.pmap, space, start..start + self.frames.ladder.pages(taken));
        let rights = context.site.entry.rights(object);
        let rights = if access == Access::Write { rights } else { self.rights_if_clean(object, rights) };
        let (mut full, mut mapped) = (populated.full, Level::BASE);
        if taken > Level::BASE {
            mapped = self.enter_extent(context.pmap, &context.site, &walk, rights);
        } else {
            context.pmap.enter(
                space,
                at,
                Mapped { frame: Pfn(u64::from(walk.frame)), size: base, protection: rights },
                access,
            );
            self.frames.stats.mapped[0] += 1;
        }
        if zeroed_ahead {
            // That was counted when it was done.
            self.frames.stats.bytes_zeroed = zeroed_before;
        }
        if taken == Level::BASE && self.answers.populate.threshold < 8 {
            full = full.max(self.prepopulate(context, object, rights));
        }
        if taken == Level::BASE && self.answers.populate.around > 1 {
            full = full.max(self.populate_around(context, object, rights));
        }
        self.frames.served(walk.frame);
        if mapped == Level::BASE && full > 0 {
            let leaf = Leaf { at, frame: walk.frame, level: Level::BASE, rights };
            mapped = self.promote(context.pmap, context.site.window(object), leaf, Level(full));
        }
        Ok(Fault {
            source: content.source(frames.start),
            reserved: populated.reserved,
            wanted: preferred,
            allocated: (!populated.reserved).then_some(populated.allocated),
            preempted: populated.preempted,
            ..Fault::new(kind, Pfn(u64::from(walk.frame)), mapped)
        })
    }

    /// Fills the frames in which a page, or an extent around it, was populated.
    #[inline(always)]
    pub(crate) fn provide(
        &self,
        memory: &mut impl Memory,
        Destination { page, object, frames: to }: Destination,
        content: Content,
        populated: &Populated,
    ) -> Result<Filled, NoContents> {
        let source = content.source(to.start);
        let filled = source.is_some() || matches!(content, Content::Zero | Content::Read { .. });
        if filled && populated.allocated > Level::BASE {
            let extent = Extent::around(&self.frames.ladder, to.start, populated.allocated);
            memory.reserved(extent, page, &self.frames.buddy);
        }
        match (content, source) {
            (_, Some(from)) => memory.copy(from, to.start, page),
            (Content::Zero, None) if populated.zeroed && to.level == populated.allocated => {}
            (Content::Zero, None) => memory.zero(to.start, self.frames.ladder.pages(to.level), page)?,
            (Content::Read { from: from @ Backed::File { .. }, of }, None) if of != object => {
                return memory.read_private(from, to.start, page);
            }
            (Content::Read { from, .. }, None) => return memory.read(from, to.start, page),
            // The contents are there, or the caller brings them.
            (Content::Overwritten | Content::Cached(_) | Content::Copy(_) | Content::Left, None) => {}
        }
        Ok(Filled::Now)
    }

    /// Counts that a frame was populated and filled with a page of an object.
    #[inline]
    pub(crate) fn note_content(&mut self, page: PageOf, frame: u32, content: Content) -> FaultKind {
        let bytes = self.frames.ladder.base().bytes();
        let stats = &mut self.frames.stats;
        let (kind, differs) = match content {
            Content::Zero => {
                stats.bytes_zeroed += bytes;
                (FaultKind::Zero, false)
            }
            Content::Overwritten => (FaultKind::Zero, false),
            Content::Copy(_) => {
                stats.bytes_copied += bytes;
                (FaultKind::Copy, true)
            }
            // A private page of a file has no copy of its own yet.
            Content::Read { from: Backed::File { .. }, .. } => {
                (FaultKind::File, self.objects.get(page.object).file.is_none())
            }
            // The slot may be that of the page behind this one.
            Content::Read { from: Backed::Swap { slot }, .. } => {
                (FaultKind::Swap, self.frames.swap_and_cache.slot(page) != Some(slot))
            }
            Content::Cached(_) => (FaultKind::Cached, false),
            Content::Left => (FaultKind::Cached, true),
        };
        if let Content::Read { .. } = content {
            stats.page_ins += 1;
            stats.bytes_read += bytes;
            if !differs {
                self.hash_when_read(frame);
            }
        }
        if let Some(pages) = &mut self.frames.pages
            && differs
        {
            pages.set_dirty(frame, true);
        }
        kind
    }

    /// Maps the populated page of a walk, or gives its mapping more rights.
    fn map_resident(&mut self, pmap: &mut impl Pmap, site: &Site, walk: &Walk, rights: Protection) -> Fault {
        let (Site { space, at, access, .. }, object) = (*site, walk.page.object);
        let ladder = self.frames.ladder;
        let writing = access == Access::Write;
        let mut uniform = rights;
        let (kind, from) = match pmap.lookup(space, at) {
            Some(mapped) if mapped.protection.allows(access) => {
                uniform = mapped.protection;
                (FaultKind::Spurious, self.level(mapped.size))
            }
            Some(mapped) => {
                let mut level = self.level(mapped.size);
                if writing && level > Level::BASE && self.tracks_dirt(object) {
                    level = self.first_write(pmap, site, walk, level);
                }
                pmap.protect(space, at.align_down(ladder.pages(level)), ladder.size(level), rights);
                (FaultKind::Rights, level)
            }
            None => {
                uniform = if writing { rights } else { self.rights_if_clean(object, rights) };
                let mut level = self.resident_extent(pmap, site, walk);
                if level > Level::BASE && !self.give_spare_tables(pmap, space, at, level) {
                    level = Level::BASE;
                }
                let pages = ladder.pages(level);
                let frame = Pfn(u64::from(walk.frame) & !(pages - 1));
                let to = Mapped { frame, size: ladder.size(level), protection: uniform };
                pmap.enter(space, at.align_down(pages), to, access);
                let stats = &mut self.frames.stats;
                stats.mapped[level.index()] += 1;
                if level > Level::BASE {
                    stats.promotions[level.index()] += 1;
                    stats.promotions_at_fault += 1;
                }
                (FaultKind::Resident, level)
            }
        };
        self.frames.used_again(walk.frame);
        self.frames.served(walk.frame);
        let stats = &mut self.frames.stats;
        stats.faults += 1;
        *match kind {
            FaultKind::Spurious => &mut stats.faults_spurious,
            FaultKind::Rights => &mut stats.faults_rights,
            _ => &mut stats.faults_resident,
        } += 1;
        let full = Level(self.frames.population.full_level(walk));
        let leaf = Leaf { at, frame: walk.frame, level: from, rights: uniform };
        let mapped = self.promote(pmap, site.window(object), leaf, full);
        Fault::new(kind, Pfn(u64::from(walk.frame)), mapped)
    }
}
