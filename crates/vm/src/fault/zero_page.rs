//! The zero page ([`ZeroPage`]): frames of zeroes that the kernel keeps, and that reads of memory
//! without contents map, without the right to write. A leaf of a page table that maps one is a
//! *zero leaf*. No object holds such a frame, so a search from objects or frames never finds a zero
//! leaf; each space lists its zero leaves. A zero leaf lies in one map entry, of private anonymous
//! memory, and maps only pages without contents: whatever gives such a page contents first removes
//! the leaf ([`Vm::unmap_zero_leaves`]), or splits it if it is huge. The rest of the crate treats
//! it as if nothing were mapped there.

use crate::fault::leaves::Move;
use crate::fault::site::{FaultContext, Site};
use crate::policy::{Place, Promote, ZeroPage, huge};
use crate::space::{Entry, Space};
use crate::vm::Vm;
use crate::{Fault, FaultKind, Memory, Pmap, SpaceId, Used};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use superpage_pages::{Access, Extent, Level, MAX_LEVELS, Mapped, Vpn};

/// A leaf that maps the zero page of a level, by its first page.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ZeroLeaf {
    at: Vpn,
    level: Level,
}

impl Vm {
    /// The frames of the zero page, which are wired; none before it is first mapped. For embedders:
    /// nothing may write these frames.
    pub fn zero_page(&self) -> impl Iterator<Item = Extent> + '_ {
        self.frames.zero_pages()
    }

    /// Resolves a fault by mapping the zero page: a huge one if it may, else a base one. `None`,
    /// with no mapping changed, if the access is a write, the page has contents, or there is no
    /// zero page. O(pages populated around it).
    pub(crate) fn map_zero_page(&mut self, context: &mut FaultContext<'_, impl Pmap, impl Memory>) -> Option<Fault> {
        let Site { space, entry, at, access, .. } = context.site;
        let off = self.policy.answers.place.zero_page == ZeroPage::Off;
        if off || access == Access::Write || !self.has_no_contents(&entry, at, Level::BASE) {
            return None;
        }
        let fault = match context.pmap.lookup(space, at) {
            Some(mapped) => Fault::new(FaultKind::Spurious, mapped.frame, self.frames.level(mapped.size)),
            None => {
                let huge = huge(&self.frames.ladder);
                let large = self.may_map_huge_zero_page(context.pmap, &context.site, huge);
                let level = match large && self.enter_zero_leaf(context, huge) {
                    true => huge,
                    false if self.enter_zero_leaf(context, Level::BASE) => Level::BASE,
                    false => return None,
                };
                let frame = context.pmap.lookup(space, at).expect("it was entered").frame;
                Fault::new(FaultKind::ZeroPage, frame, level)
            }
        };
        self.frames.stats.count_fault(fault.kind);
        Some(fault)
    }

    /// Maps the zero page of a level around the page of the site, where nothing is mapped. `false`
    /// if there is no room for it or for its page tables.
    pub(crate) fn enter_zero_leaf(
        &mut self,
        context: &mut FaultContext<'_, impl Pmap, impl Memory>,
        level: Level,
    ) -> bool {
        let FaultContext { pmap, memory, site: Site { space, entry, at, .. } } = context;
        let start = at.align_down(self.frames.ladder.pages(level));
        let Some(frame) = self.frames.zero_page_of(*memory, level) else { return false };
        if !self.frames.give_spare_tables(&self.policy.answers, *pmap, space.page(start), level) {
            return false;
        }
        let (size, protection) = (self.frames.ladder.size(level), entry.rights_without_write());
        pmap.enter(*space, start, Mapped { frame, size, protection }, Access::Read);
        self.put_zero_leaf(*space, ZeroLeaf { at: start, level });
        true
    }

    /// Whether no page of the region of this level around `at` has contents: in a file, populated,
    /// or elsewhere.
    /// O(nodes there).
    fn has_no_contents(&self, entry: &Entry, at: Vpn, level: Level) -> bool {
        let pages = self.frames.ladder.pages(level);
        let low = entry.index(at.align_down(pages).0);
        let mut runs = Vec::new();
        let mut empty = |object| {
            self.frames.population.runs(object, low, low + pages, &mut runs);
            self.objects.get(object).file.is_none()
                && runs.is_empty()
                && !self.frames.swap_and_cache.has_pages_in(object, low, low + pages)
        };
        !entry.shared && self.objects.chain(entry.object).all(&mut empty)
    }

    /// Whether the huge zero page may be mapped around the page of a site: where a fault might take
    /// a huge page, and nothing is mapped.
    fn may_map_huge_zero_page(&self, pmap: &impl Pmap, site: &Site, level: Level) -> bool {
        let Site { space, entry, at, .. } = site;
        let (ladder, place) = (
            &self.frames.ladder,
            self.policy.answers_in(entry.prefer, entry.hint).unwrap_or(self.policy.answers).place,
        );
        let pages = ladder.pages(level);
        let start = at.align_down(pages);
        let wanted = matches!(place.zero_page, ZeroPage::Huge | ZeroPage::HugeSplit)
            && place.frames != Place::BasePage
            && place.size.allows(ladder, level)
            && place.hints.allow(entry.hint)
            && self.policy.answers.promote.when != Promote::Never;
        wanted
            && level > Level::BASE
            && pmap.contiguity(ladder.size(level)).is_whole()
            && entry.holds_region(*at, pages)
            && self.zero_leaves(*space, start..start + pages).is_empty()
            && self.has_no_contents(entry, start, level)
    }

    /// Whether an extent may be populated around the page of a site at once, as far as zero leaves
    /// go: where there is none, as in Linux, or where one that a write replaces maps all of it.
    pub(crate) fn may_replace_zero_leaves(&self, site: &Site, level: Level) -> bool {
        let pages = self.frames.ladder.pages(level);
        let start = site.at.align_down(pages);
        let leaves = self.zero_leaves(site.space, start..start + pages);
        leaves.is_empty()
            || self.policy.answers.place.zero_page == ZeroPage::Huge && leaves == [ZeroLeaf { at: start, level }]
    }

    /// The zero leaves that map any of these pages, ascending. O(log leaves) and one step for each.
    fn zero_leaves(&self, space: SpaceId, Range { start, end }: Range<Vpn>) -> Vec<ZeroLeaf> {
        let Ok(Space { zero_leaves, .. }) = self.spaces.get(space) else { return Vec::new() };
        let before = zero_leaves.range(..start.0).next_back();
        let across = before.filter(|(at, level)| *at + self.frames.ladder.pages(**level) > start.0);
        let leaves = across.into_iter().chain(zero_leaves.range(start.0..end.0));
        leaves.map(|(at, level)| ZeroLeaf { at: Vpn(*at), level: *level }).collect()
    }

    fn put_zero_leaf(&mut self, space: SpaceId, ZeroLeaf { at, level }: ZeroLeaf) {
        self.spaces.get_mut(space).zero_leaves.insert(at.0, level);
        self.frames.stats.mapped[level.index()] += 1;
        self.frames.stats.zero_page_mapped += self.frames.ladder.pages(level);
    }

    fn take_zero_leaf(&mut self, space: SpaceId, ZeroLeaf { at, level }: ZeroLeaf) {
        self.spaces.get_mut(space).zero_leaves.remove(&at.0);
        self.frames.stats.mapped[level.index()] -= 1;
        self.frames.stats.zero_page_mapped -= self.frames.ladder.pages(level);
    }

    fn remove_zero_leaf(&mut self, pmap: &mut impl Pmap, space: SpaceId, leaf: ZeroLeaf) -> Used {
        self.take_zero_leaf(space, leaf);
        pmap.remove(space, leaf.at, self.frames.ladder.size(leaf.level))
    }

    /// Splits the huge zero leaf that lies across the edge between `at` and the page before it, if
    /// one does, into base ones.
    pub(crate) fn split_zero_leaf(&mut self, pmap: &mut impl Pmap, space: SpaceId, at: Vpn) {
        for leaf in self.zero_leaves(space, at..at) {
            let (ladder, ZeroLeaf { at: start, level }) = (self.frames.ladder, leaf);
            pmap.demote(space, start, ladder.size(level), ladder.base());
            self.frames.stats.demotions[level.index()] += 1;
            self.take_zero_leaf(space, leaf);
            for page in 0..ladder.pages(level) {
                self.put_zero_leaf(space, ZeroLeaf { at: start + page, level: Level::BASE });
            }
        }
    }

    /// Removes the zero leaves of these pages: they get contents, or lose their mapping.
    pub(crate) fn unmap_zero_leaves(&mut self, pmap: &mut impl Pmap, space: SpaceId, pages: Range<Vpn>) {
        if self.frames.stats.zero_page_mapped == 0 {
            return;
        }
        [pages.start, pages.end].into_iter().for_each(|edge| self.split_zero_leaf(pmap, space, edge));
        for leaf in self.zero_leaves(space, pages) {
            self.remove_zero_leaf(pmap, space, leaf);
        }
    }

    /// Gives the zero leaves in a part of an entry, across whose ends nothing is mapped, the rights
    /// of that part.
    pub(crate) fn protect_zero_leaves(&mut self, pmap: &mut impl Pmap, space: SpaceId, part: &Entry) {
        for ZeroLeaf { at, level } in self.zero_leaves(space, Vpn(part.start)..Vpn(part.end)) {
            pmap.protect(space, at, self.frames.ladder.size(level), part.rights_without_write());
        }
    }

    /// Moves the zero leaves of an entry to its new place; huge ones that are not aligned there are
    /// split. Those for which page tables have no room are dropped: the next read maps them.
    pub(crate) fn move_zero_leaves(&mut self, pmap: &mut impl Pmap, Move { space, entry, to }: Move<'_>) {
        let pages = Vpn(entry.start)..Vpn(entry.end);
        let moved = |at: Vpn| to + (at - pages.start);
        for ZeroLeaf { at, level } in self.zero_leaves(space, pages.clone()) {
            if self.policy.answers.demote.on_move || !moved(at).is_aligned(self.frames.ladder.pages(level)) {
                self.split_zero_leaf(pmap, space, at + 1);
            }
        }
        for leaf @ ZeroLeaf { at, level } in self.zero_leaves(space, pages.clone()) {
            let mapped = pmap.lookup(space, at).expect("it is mapped");
            let used = self.remove_zero_leaf(pmap, space, leaf);
            if self.frames.give_spare_tables(&self.policy.answers, pmap, space.page(moved(at)), level) {
                if used.referenced {
                    pmap.enter(space, moved(at), mapped, Access::Read)
                } else {
                    pmap.enter_untouched(space, moved(at), mapped)
                }
                self.put_zero_leaf(space, ZeroLeaf { at: moved(at), level });
            }
        }
    }

    /// Checks that each zero leaf is mapped, in one entry and with its rights, to a frame of the
    /// zero page, and hides no contents; counts them by level.
    pub(crate) fn validate_zero_leaves(&self, pmap: &impl Pmap) -> Result<[u64; MAX_LEVELS], String> {
        let (mut by_level, mut mapped) = ([0; MAX_LEVELS], 0);
        for (space, map) in self.spaces.iter() {
            for (at, level) in map.zero_leaves.iter().map(|(at, level)| (Vpn(*at), *level)) {
                let pages = self.frames.ladder.pages(level);
                let entry = map.find(at.0).filter(|entry| at.0 + pages <= entry.end);
                let leaf = pmap.lookup(space, at);
                let right = entry.zip(leaf).is_some_and(|(entry, leaf)| {
                    leaf.size == self.frames.ladder.size(level)
                        && leaf.protection == entry.rights_without_write()
                        && [leaf.frame, leaf.frame + (pages - 1)].iter().all(|frame| self.frames.is_zero_page(*frame))
                        && self.has_no_contents(&entry, at, level)
                });
                if !right {
                    return Err(format!("{leaf:?} at page {:#x} of space {} is no zero leaf", at.0, space.0));
                }
                by_level[level.index()] += 1;
                mapped += pages;
            }
        }
        if mapped == self.frames.stats.zero_page_mapped {
            Ok(by_level)
        } else {
            Err(format!("{mapped} pages map the zero page, which is not the count"))
        }
    }
}
