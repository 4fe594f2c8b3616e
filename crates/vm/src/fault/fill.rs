//! How a fault populates a page: takes a frame for it, or an extent around it, fills that, and maps
//! it.

use crate::fault::leaves::Leaf;
use crate::fault::site::{FaultContext, Site};
use crate::frame::taken::{Content, Provided, Taken};
use crate::object::PageOf;
use crate::object::population::Walk;
use crate::policy::huge;
use crate::vm::Vm;
use crate::{Backed, Fault, FaultError, FaultKind, Filled, Growth, Memory, NoContents, Page, Pmap};
use superpage_pages::{Access, Extent, Level, Mapped, Pfn};

impl Vm {
    /// The preferred size of a reservation, or of an extent that is taken at once, for a page that
    /// has no reserved frame: a base page where the program's hint is against it. `site` is the
    /// access that faulted, if there is one.
    pub(crate) fn preferred(&self, site: Option<&Site>, walk: &Walk) -> Level {
        if walk.covered > 0 || site.is_some_and(|site| !self.policy.answers.place.hints.allow(site.entry.hint)) {
            return Level::BASE;
        }
        let prefer = site.map_or(0, |site| site.entry.prefer);
        let changed = site.and_then(|site| self.policy.answers_in(site.entry.prefer, site.entry.hint));
        let answers = changed.as_ref().unwrap_or(&self.policy.answers);
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
        let zeroed = self.policy.preference(prefer).only_zeroed;
        let ready = |level| !zeroed || self.frames.has_zeroed(level);
        let mut preferred = known.preferred(answers, ladder, largest, index);
        while preferred > Level::BASE && !(fits(preferred) && ready(preferred)) {
            preferred = known.preferred(answers, ladder, preferred.down(), index);
        }
        preferred
    }

    /// Populates, fills and maps the page of a walk.
    #[inline]
    pub(super) fn fill(
        &mut self,
        context: &mut FaultContext<'_, impl Pmap, impl Memory>,
        walk: Walk,
        content: Content,
    ) -> Result<Fault, FaultError> {
        let Site { space, at, .. } = context.site;
        let PageOf { object, index } = walk.page;
        // Only one fault at a time reads a page from its backing store: its own page may be written
        // out there before another has it.
        if let Content::Read { of, .. } = content
            && let Some(frame) = self.frames.busy.reading(of, index)
        {
            return Err(FaultError::Busy(Pfn(u64::from(frame))));
        }
        let Some(taken) = self.take(context, walk, content) else {
            self.frames.stats.faults_out_of_memory += 1;
            return Err(FaultError::OutOfMemory(at));
        };
        let level = taken.frames.level;
        let one = level > Level::BASE && context.pmap.contiguity(self.frames.ladder.size(level)).is_whole();
        if one && !self.frames.give_tables(&self.policy.answers, context.pmap, space.page(at), level) {
            taken.undo(&mut self.frames);
            // A smaller extent needs fewer tables, a base page none.
            context.site.most = level.down();
            let walk = self.frames.population.walk(object, index);
            return self.fill(context, walk, content);
        }
        let provided = self.provide(context.memory, context.site.page(), taken);
        let Provided { taken, kind, filled } = provided.map_err(|NoContents| FaultError::Contents(at))?;
        let owner = self.objects.get_mut(object);
        if owner.growth == Growth::Down {
            owner.low = owner.low.min(index);
        }
        self.frames.stats.count_fault(kind);
        match filled {
            Filled::Now => Ok(self.enter(context, &taken, kind)),
            Filled::Later => Err(FaultError::Busy(Pfn(u64::from(taken.walk.frame)))),
        }
    }

    /// Takes frames for the page of a walk, of the preferred size; where the program waits for
    /// that, memory is compacted first. `None` if no frame is left.
    #[inline]
    fn take(
        &mut self,
        context: &mut FaultContext<'_, impl Pmap, impl Memory>,
        mut walk: Walk,
        content: Content,
    ) -> Option<Taken> {
        let Site { space, at, .. } = context.site;
        let PageOf { object, index } = walk.page;
        let preferred = self.preferred(Some(&context.site), &walk);
        let changed = self.policy.answers_in(context.site.entry.prefer, context.site.entry.hint);
        let entry = &context.site.entry;
        let compacts = changed.as_ref().unwrap_or(&self.policy.answers).scarce.then.compacts(entry.hint);
        // An extent that reaches past the mapping may never fill, and one of a file is seldom worth
        // it.
        let wanted = preferred.min(huge(&self.frames.ladder));
        let pages = self.frames.ladder.pages(wanted);
        if compacts
            && wanted > Level::BASE
            && entry.holds_region(at, pages)
            && matches!(content, Content::Zero | Content::Read { .. })
            && self.objects.get(object).file.is_none()
            && self.compact_for(context.pmap, context.memory, wanted)
        {
            // Reservations may have been broken, and tables taken for what moved.
            walk = self.frames.population.walk(object, index);
            if !self.frames.give_tables(&self.policy.answers, context.pmap, space.page(at), Level::BASE) {
                return None;
            }
        }
        let answers = changed.as_ref().unwrap_or(&self.policy.answers);
        self.frames.take(answers, (walk, content), preferred, at.0)
    }

    /// Fills what was taken, and counts that, or undoes it. A page that is filled later is busy.
    #[inline(always)]
    pub(crate) fn provide(
        &mut self,
        memory: &mut impl Memory,
        page: Page,
        taken: Taken,
    ) -> Result<Provided, NoContents> {
        let Taken { walk, populated, frames: to, content, .. } = &taken;
        let source = content.source(to.start);
        let filled = source.is_some() || matches!(content, Content::Zero | Content::Read { .. });
        if filled && populated.allocated > Level::BASE {
            let extent = Extent::around(&self.frames.ladder, to.start, populated.allocated);
            memory.reserved(extent, page, &self.frames.buddy);
        }
        let filled = match (*content, source) {
            (_, Some(from)) => {
                memory.copy(from, to.start, page);
                Ok(Filled::Now)
            }
            (Content::Zero, None) if !taken.is_zeroed() => {
                memory.zero(to.start, self.frames.ladder.pages(to.level), page).map(|()| Filled::Now)
            }
            (Content::Read { from: from @ Backed::File { .. }, of }, None) if of != walk.page.object => {
                memory.read_private(from, to.start, page)
            }
            (Content::Read { from, .. }, None) => memory.read(from, to.start, page),
            // The contents are there, or the caller brings them.
            _ => Ok(Filled::Now),
        };
        match filled {
            Ok(filled) => {
                let kind = self.note_filled(&taken, filled);
                Ok(Provided { taken, kind, filled })
            }
            Err(NoContents) => {
                taken.undo(&mut self.frames);
                Err(NoContents)
            }
        }
    }

    /// Counts that what was taken has its contents, or will be read.
    #[inline]
    fn note_filled(&mut self, taken: &Taken, filled: Filled) -> FaultKind {
        let Taken { walk: Walk { page, frame, .. }, content, .. } = *taken;
        let bytes = self.frames.ladder.base().bytes();
        let stats = &mut self.frames.stats;
        let (kind, differs) = match content {
            Content::Zero => {
                // What was zeroed ahead was counted then.
                let zeroed = if taken.is_zeroed() { 0 } else { self.frames.ladder.pages(taken.frames.level) };
                stats.bytes_zeroed += zeroed * bytes;
                (FaultKind::Zero, false)
            }
            Content::Overwritten => (FaultKind::Zero, false),
            // The frame that held it was freed, and taken again.
            Content::Copy(from) if from == frame => (FaultKind::Cached, true),
            Content::Copy(_) => (FaultKind::Copy, true),
            // A private page of a file was not copied before.
            Content::Read { from: Backed::File { .. }, .. } => {
                (FaultKind::File, self.objects.get(page.object).file.is_none())
            }
            // The slot may be that of the page behind this one.
            Content::Read { from: Backed::Swap { slot }, .. } => {
                (FaultKind::Swap, self.frames.swap_and_cache.slot(page) != Some(slot))
            }
            Content::Cached(_) => (FaultKind::Cached, false),
        };
        stats.bytes_copied += if content.source(taken.frames.start).is_some() { bytes } else { 0 };
        if let Some(pages) = &mut self.frames.pages
            && differs
        {
            pages.set_dirty(frame, true);
        }
        if let Content::Read { of, .. } = content {
            stats.page_ins += 1;
            stats.bytes_read += bytes;
            if !differs {
                self.frames.hash_when_read(&self.policy.answers, frame);
            }
            if filled == Filled::Later {
                self.begin_reading(page, of, frame);
            }
        }
        kind
    }

    /// Maps what a fault has taken and filled, and tries to promote it.
    #[inline]
    fn enter(
        &mut self,
        context: &mut FaultContext<'_, impl Pmap, impl Memory>,
        taken: &Taken,
        kind: FaultKind,
    ) -> Fault {
        let Site { space, at, access, .. } = context.site;
        let Taken { walk, frames, content, .. } = taken;
        let (PageOf { object, index }, level) = (walk.page, frames.level);
        let base = self.frames.ladder.base();
        if let Content::Copy(from) = *content
            && from != walk.frame
            && context.pmap.lookup(space, at).is_some()
        {
            let behind =
                self.objects.get(object).backing.and_then(|backing| self.frames.holder(&self.objects, backing, index));
            let behind = behind.expect("what was mapped is populated behind the page that hides it").page.object;
            self.demote_around(context.pmap, context.site.window(behind), at, false);
            let used = context.pmap.remove(space, at, base);
            self.frames.note_modified(used, from, 1);
            self.frames.stats.mapped[0] -= 1;
        }
        self.frames.strand(&self.objects, object, walk.frame..walk.frame + 1, access == Access::Write);
        let start = at.align_down(self.frames.ladder.pages(level));
        self.unmap_zero_leaves(context.pmap, space, start..start + self.frames.ladder.pages(level));
        let rights = context.site.entry.rights(object);
        let rights = if access == Access::Write { rights } else { self.rights_if_clean(object, rights) };
        let (mut full, mut mapped) = (taken.populated.full, Level::BASE);
        if level > Level::BASE {
            mapped = self.enter_extent(context.pmap, &context.site, walk, rights);
        } else {
            let to = Mapped { frame: frames.start, size: base, protection: rights };
            context.pmap.enter(space, at, to, access);
            self.frames.stats.mapped[0] += 1;
            if self.policy.answers.populate.threshold < 8 {
                full = full.max(self.prepopulate(context, object, rights));
            }
            if self.policy.answers.populate.around > 1 {
                full = full.max(self.populate_around(context, object, rights));
            }
        }
        self.frames.served(walk.frame);
        if mapped == Level::BASE && full > 0 {
            let leaf = Leaf { at, frame: walk.frame, level: Level::BASE, rights };
            mapped = self.promote(context.pmap, context.site.window(object), leaf, Level(full));
        }
        taken.fault(kind, mapped)
    }
}
