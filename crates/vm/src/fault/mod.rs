//! The fault path (Navarro et al., sections 4.1, 4.5): finds the page or populates it, maps it, and
//! tries to promote it.

mod busy;
mod collapse_text;
mod compact;
mod demotion;
mod fill;
mod give_back;
pub(crate) mod leaves;
mod pooled;
mod prepopulate;
mod promote_by_copying;
mod promotion;
pub(crate) mod site;
mod zero_page;

use crate::fault::leaves::Leaf;
use crate::fault::site::{FaultContext, Site};
use crate::frame::static_pool::HugePool;
use crate::frame::taken::Content;
use crate::object::PageOf;
use crate::object::population::Walk;
use crate::vm::Vm;
use crate::{Address, Backed, Fault, FaultError, FaultKind, Memory, Pmap};
use superpage_pages::{Access, Level, Mapped, Pfn, Protection};

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
    /// A fault takes at most one frame, except for what the policy populates around the page. No
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
        let before = self.frames.stats.filled();
        let map = self.spaces.get(space).map_err(|_| FaultError::NoSpace(space))?;
        let Some(entry) = map.find(at.0) else { return Err(FaultError::Unmapped(at)) };
        if !entry.protection.allows(access) {
            return Err(FaultError::Protection(at, access));
        }
        // Before anything is decided: making room for a table may take a reservation or a cache
        // page.
        let pool = self.frames.huge.as_ref().filter(|_| entry.is_pooled());
        let least = pool.map_or(Level::BASE, HugePool::level);
        if !self.frames.give_tables(&self.policy.answers, pmap, space.page(at), least) {
            self.frames.stats.faults_out_of_memory += 1;
            return Err(FaultError::OutOfMemory(at));
        }
        let site = Site { space, entry, at, access, most: self.frames.ladder.largest() };
        let front = self.objects.get(entry.object);
        let (alone, file) = (front.backing.is_none(), front.file);
        let walk = self.frames.population.walk(entry.object, site.index());
        let mut context = FaultContext { pmap, memory, site };
        let ended = if entry.is_pooled() {
            self.fault_in_pool(&mut context)
        } else if let Some(fault) = self.map_zero_page(&mut context) {
            Ok(fault)
        } else if alone && !entry.copy && !walk.populated && self.frames.swap_and_cache.is_empty() {
            let content = Content::new(entry.object, file, site.index());
            self.fill(&mut context, walk, content)
        } else {
            self.search(&mut context)
        };
        if let Err(error) = &ended
            && !matches!(error, FaultError::Busy(_))
        {
            self.spaces.disown(&mut self.objects, space, entry, context.site.entry.object);
        }
        self.policy.fault_ended(address, entry.hint, &ended);
        let fault = ended?.since(before, &self.frames.stats);
        self.hash_if_wanted(pmap, memory);
        self.policy.faulted(address, fault.mapped);
        Ok(fault)
    }

    /// A fault on a page that may be populated or have contents, somewhere in the chain of objects.
    fn search(&mut self, context: &mut FaultContext<'_, impl Pmap, impl Memory>) -> Result<Fault, FaultError> {
        let Site { entry, access, .. } = context.site;
        let index = context.site.index();
        let writing = access == Access::Write;
        let Some(walk) = self.frames.holder(&self.objects, entry.object, index) else {
            let last = self.objects.chain(entry.object).last().expect("a chain has its front");
            let content = Content::new(last, self.objects.get(last).file, index);
            if let Content::Read { .. } = content
                && (!writing || last == entry.object && !entry.copy)
            {
                // Private mappings share the pages of the file until they write.
                let walk = self.frames.population.walk(last, index);
                return self.fill(context, walk, content);
            }
            return self.fill_own(context, content);
        };
        let object = walk.page.object;
        if walk.populated && self.frames.busy.contains(walk.frame) {
            return Err(FaultError::Busy(Pfn(u64::from(walk.frame))));
        }
        if writing {
            self.own_entry(&mut context.site);
        }
        let reached = !writing || context.site.entry.object == object;
        if !walk.populated {
            return match self.content(walk.page) {
                content if reached => self.fill(context, walk, content),
                // The copy is made from what the page would be read from, and takes one frame: with
                // one more for the page that is copied, each could be evicted for the other for
                // ever.
                Content::Cached(frame) => self.fill_own(context, Content::Copy(frame)),
                content => self.fill_own(context, content),
            };
        }
        if reached {
            let rights = context.site.entry.rights(object);
            return Ok(self.map_resident(context.pmap, &context.site, &walk, rights));
        }
        if self.frames.is_held(walk.frame) && self.frames.available(&self.policy.answers) == 1 {
            // There is no other frame to copy it to.
            self.frames.evict(walk.page, walk.frame, false);
        } else {
            // The page that is copied must not be the one that is evicted for the copy.
            self.frames.used_again(walk.frame);
        }
        self.fill_own(context, Content::Copy(walk.frame))
    }

    /// Where the contents are of a page that has some but is not populated.
    fn content(&self, page: PageOf) -> Content {
        let swap_and_cache = &self.frames.swap_and_cache;
        let cached = swap_and_cache.cached(page).map(Content::Cached);
        let swapped =
            swap_and_cache.slot(page).map(|slot| Content::Read { from: Backed::Swap { slot }, of: page.object });
        cached.or(swapped).expect("the page was found to have contents")
    }

    /// Gives the site's entry an object that it may write, until the fault fails.
    fn own_entry(&mut self, site: &mut Site) {
        if site.entry.copy {
            site.entry = self.spaces.own(&mut self.objects, site.space, site.entry);
        }
    }

    /// Populates a page of an object that the site's entry may write.
    fn fill_own(
        &mut self,
        context: &mut FaultContext<'_, impl Pmap, impl Memory>,
        content: Content,
    ) -> Result<Fault, FaultError> {
        self.own_entry(&mut context.site);
        let walk = self.frames.population.walk(context.site.entry.object, context.site.index());
        self.fill(context, walk, content)
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
                (FaultKind::Spurious, self.frames.level(mapped.size))
            }
            Some(mapped) => {
                let mut level = self.frames.level(mapped.size);
                if writing && level > Level::BASE && self.tracks_dirt(object) {
                    level = self.first_write(pmap, site, walk, level);
                }
                pmap.protect(space, at.align_down(ladder.pages(level)), ladder.size(level), rights);
                (FaultKind::Rights, level)
            }
            None => {
                uniform = if writing { rights } else { self.rights_if_clean(object, rights) };
                let mut level = self.resident_extent(pmap, site, walk);
                if level > Level::BASE
                    && !self.frames.give_spare_tables(&self.policy.answers, pmap, space.page(at), level)
                {
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
        self.frames.stats.count_fault(kind);
        let full = Level(self.frames.population.full_level(walk));
        let leaf = Leaf { at, frame: walk.frame, level: from, rights: uniform };
        let mapped = self.promote(pmap, site.window(object), leaf, full);
        Fault::new(kind, Pfn(u64::from(walk.frame)), mapped)
    }
}
