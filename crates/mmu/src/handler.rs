//! How an operating system keeps TLBs and hash tables up to date: its flushes, the memory that it
//! maps by blocks, and the software that is entered at a miss. Dougan, Mackerras and Yodaiken, OSDI
//! 1999, sections 5 to 8.
//!
//! Here the kernel has a separate address space, whose entries stay in the TLBs at a switch of
//! programs, unless the switch flushes them.

use crate::counters::Counters;
use crate::mappings::{Invalidate, Mapping, SpacePages};
use crate::mmu::Mmu;
use crate::request::{Request, Trap};
use crate::tlb::first::FirstLevel;
use crate::tlb::further::FurtherLevels;
use crate::walk::Walker;
use crate::walk::formats::Groups;
use crate::walk::lines::Reads;
use std::ops::Range;
use superpage_pages::{Access, Vpn};

/// All pages of a space.
const WHOLE: Range<u64> = 0..u64::MAX;
/// The most pages of a range that are flushed one by one, 4 GB, and how many are at once.
const MOST_FLUSHED: u64 = 1 << 20;
const FLUSHED_AT_ONCE: u64 = 1 << 16;

/// How pages leave the TLBs, and the hash table, when their mappings change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Flush {
    /// Page by page; of a whole space all that are mapped, as the first Linux/PPC did.
    #[default]
    Eager,
    /// A whole space, and a range of more pages than this, by giving the space another number; 0:
    /// ranges go page by page.
    Lazy {
        /// The most pages that are flushed one by one.
        cutoff: u64,
    },
}

/// A block that is translated by a register.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    /// The address space.
    pub space: u32,
    /// Its base pages.
    pub pages: Range<u64>,
}

/// An access of the kernel to a line of 64 bytes of its own memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touch {
    /// The page, in the kernel's space, where it is mapped.
    pub page: Vpn,
    /// The line in the page.
    pub line: u32,
    /// The kind.
    pub access: Access,
}

/// The software that is entered at a miss.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Handler {
    /// The memory that it touches besides the tables.
    pub touches: Vec<Touch>,
    /// Whether translation is on while it runs, so that it may miss in the TLBs itself.
    pub translated: bool,
}

/// What the operating system does. By default the kernel's memory is not modelled, flushes are
/// eager, and a hash table is used if there is one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Upkeep {
    /// The kernel's address space.
    pub kernel: Option<u32>,
    /// Context numbers are multiplied by this, for VSIDs that are scattered over the hash table.
    /// There are 2^20 of them, divided by the largest power of two in it, which is at most 256.
    pub scatter: u32,
    /// Whether context numbers are process numbers ([`Mmu::set_process`]) instead of counted. Then
    /// flushes must be eager, since a space cannot get another number.
    pub by_process: bool,
    /// Whether software that searches has a hash table; without one it reads the tree.
    pub table: bool,
    /// Whether page tables go through the caches.
    pub cached_tables: bool,
    /// Whether all zombies are reclaimed when a page finds no free entry.
    pub reclaims_on_demand: bool,
    /// How pages are flushed.
    pub flush: Flush,
    /// The blocks.
    pub blocks: Vec<Block>,
    /// The software that is entered at a miss; without it, a miss touches only the tables.
    pub handler: Option<Handler>,
}

impl Default for Upkeep {
    fn default() -> Upkeep {
        Upkeep {
            kernel: None,
            scatter: 897,
            by_process: false,
            table: true,
            cached_tables: true,
            reclaims_on_demand: false,
            flush: Flush::Eager,
            blocks: Vec::new(),
            handler: None,
        }
    }
}

/// Counts of all machines at one time.
#[derive(Clone, Debug)]
pub struct SavedCounts {
    shared: Counters,
    /// Of each first level, and of the levels behind it.
    first_levels: Vec<(Counters, Vec<SavedBehind>)>,
}

/// Counts of TLBs of further levels, and of each walker behind them.
type SavedBehind = (Counters, Vec<Counters>);

impl Upkeep {
    /// Whether lines are accessed one by one, because the kernel's accesses come between them.
    pub(crate) fn one_by_one(&self) -> bool {
        self.handler.is_some() || !self.blocks.is_empty()
    }
}

impl Mmu {
    /// Sets how the operating system keeps TLBs and hash tables up to date. Call it before anything
    /// is mapped or translated.
    ///
    /// # Panics
    /// `scatter` is 0, or a multiple of 512; context numbers are those of processes, and flushes
    /// are lazy.
    pub fn set_upkeep(&mut self, upkeep: Upkeep) {
        assert!(!upkeep.scatter.is_multiple_of(512), "too few contexts with a scatter of {}", upkeep.scatter);
        assert!(!upkeep.by_process || upkeep.flush == Flush::Eager, "a process has one number");
        for (groups, _) in self.each_groups() {
            groups.segments.set(upkeep.scatter, upkeep.kernel, upkeep.by_process);
            groups.used = upkeep.table;
            groups.cached = upkeep.cached_tables;
            groups.on_demand = upkeep.reclaims_on_demand;
        }
        self.upkeep = upkeep;
    }

    /// Sets what the software that is entered at a miss touches, if there is such software.
    pub fn set_handler_touches(&mut self, touches: Vec<Touch>) {
        if let Some(handler) = &mut self.upkeep.handler {
            handler.touches = touches;
        }
    }

    /// Enters the kernel's space, which is not a switch; returns the space that ran.
    ///
    /// # Panics
    /// [`Upkeep::kernel`] is none.
    pub fn enter_kernel(&mut self) -> u32 {
        let kernel = self.upkeep.kernel.expect("the kernel has a space");
        self.run_in(kernel)
    }

    /// Sets whether loads and stores are preloaded in time (section 10.2): a miss in the first line
    /// cache fills all caches, but the program does not wait, and it counts as prefetched.
    pub fn preload(&mut self, preloading: bool) {
        self.walkers().for_each(|walker| walker.preload(preloading));
    }

    /// Adds a block. It translates those of its pages that are mapped; others fault as without it.
    ///
    /// # Panics
    /// The machine has no blocks.
    pub fn add_block(&mut self, block: Block) {
        assert!(self.walks_again(), "a block on a machine that has none");
        self.upkeep.blocks.push(block);
    }

    /// Removes all blocks that translate any of these pages of a space.
    pub fn drop_blocks(&mut self, space: u32, pages: Range<u64>) {
        let meets = |block: &Block| block.pages.start < pages.end && pages.start < block.pages.end;
        self.upkeep.blocks.retain(|block| block.space != space || !meets(block));
    }

    /// Sets the process number of a space, from which its VSIDs follow with [`Upkeep::by_process`].
    /// Call it before the first access to the space.
    pub fn set_process(&mut self, space: u32, process: u32) {
        self.each_groups().for_each(|(groups, _)| groups.segments.set_process(space, process));
    }

    /// Returns from the kernel to this space.
    pub fn leave_kernel(&mut self, space: u32) {
        self.run_in(space);
    }

    fn run_in(&mut self, space: u32) -> u32 {
        self.catch_up();
        self.mappings.clear_index_cache();
        self.first_levels.get_mut().iter_mut().for_each(|first_level| first_level.forget());
        std::mem::replace(&mut self.space, space)
    }

    /// Flushes a range of a space, as an operating system does before it changes mappings there:
    /// page by page, mapped or not, or by giving the space another number. Without a hash table,
    /// page by page only pages whose mappings change are flushed, so this does nothing.
    pub fn flush_range(&mut self, space: u32, pages: Range<u64>) {
        if !pages.is_empty() && (self.walks_again() || self.renews(space, &pages)) {
            self.shoot(space, pages);
        }
    }

    /// The counts so far, for [`Mmu::restore_counts`]: work in between is charged to no program.
    pub fn save_counts(&self) -> SavedCounts {
        let of_behind = |further: &FurtherLevels| {
            (further.counters, further.walkers.iter().map(|walker| walker.counters).collect())
        };
        let of_front =
            |first_level: &FirstLevel| (first_level.counters, first_level.further.iter().map(of_behind).collect());
        SavedCounts { shared: self.counters, first_levels: self.served().iter().map(of_front).collect() }
    }

    /// Restores saved counts, except of reclaimed entries of hash tables.
    pub fn restore_counts(&mut self, saved: SavedCounts) {
        self.counters = saved.shared;
        for (first_level, (counters, of_behind)) in self.first_levels.get_mut().iter_mut().zip(saved.first_levels) {
            first_level.counters = counters;
            for (further, (counters, of_walkers)) in first_level.further.iter_mut().zip(of_behind) {
                further.counters = counters;
                for (walker, counters) in further.walkers.iter_mut().zip(of_walkers) {
                    let reclaimed = walker.counters.groups.reclaimed;
                    walker.counters = counters;
                    walker.counters.groups.reclaimed = reclaimed;
                }
            }
        }
    }

    /// The idle task looks at `entries` entries of the hash table, at most at all, and frees
    /// zombies; through the caches if `cached`.
    pub fn reclaim(&mut self, entries: u64, cached: bool) {
        for (groups, mut reads) in self.each_groups() {
            groups.reclaim(entries, cached, &mut reads);
        }
    }

    /// Entries of the hash table of a machine: in use, live (of pages that a space has), and all;
    /// `None` without a hash table.
    pub fn groups_in_use(&self, machine: usize) -> Option<[u64; 3]> {
        self.of_groups(machine, Groups::use_of)
    }

    /// The most entries of the hash table of a machine that ever were in use; `None` without a hash
    /// table.
    pub fn most_groups_in_use(&self, machine: usize) -> Option<u64> {
        self.of_groups(machine, Groups::most_in_use)
    }

    /// The entries in use of each group of the hash table of a machine; empty without a hash table.
    pub fn entries_by_group(&self, machine: usize) -> Vec<u64> {
        self.of_groups(machine, |groups| groups.by_group().collect()).unwrap_or_default()
    }

    /// The entries in use in the first-level TLBs of a machine: the kernel's, and all.
    pub fn held_by_kernel(&self, machine: usize) -> (u64, u64) {
        let kernel = self.upkeep.kernel.unwrap_or(u32::MAX);
        self.of_served(machine, |first_level, _, _| first_level.tlbs.held_of(&self.mappings, kernel))
    }

    /// Whether a flush of these pages gives the space another number.
    fn renews(&self, space: u32, pages: &Range<u64>) -> bool {
        let many = |cutoff: u64| *pages == WHOLE || (cutoff > 0 && pages.end - pages.start > cutoff);
        matches!(self.upkeep.flush, Flush::Lazy { cutoff } if many(cutoff)) && self.upkeep.kernel != Some(space)
    }

    fn walkers(&mut self) -> impl Iterator<Item = &mut Walker> {
        self.first_levels.get_mut().iter_mut().flat_map(FirstLevel::walkers)
    }

    /// The hash table of each machine that has one, and the caches through which it is read.
    fn each_groups(&mut self) -> impl Iterator<Item = (&mut Groups, Reads<'_>)> {
        self.walkers().filter_map(Walker::groups)
    }

    /// Flushes changed pages from the hash table, or gives the space another number.
    pub(crate) fn keep_up(&mut self, space: u32, pages: Range<u64>) {
        if self.renews(space, &pages) {
            return self.renew(space);
        }
        if !self.walks_again() {
            return;
        }
        // Addresses of 32 bits are flushed page by page. Of a whole space, and of what a program
        // has reserved beyond 32 bits, only mapped pages are, which software finds in the tree.
        let near = if pages == WHOLE {
            pages.start..pages.start
        } else {
            pages.start..pages.end.min(pages.start + MOST_FLUSHED)
        };
        for start in near.clone().step_by(FLUSHED_AT_ONCE as usize) {
            let piece: Vec<u64> = (start..near.end.min(start + FLUSHED_AT_ONCE)).collect();
            self.flush_pages(space, &piece);
        }
        let mut far = Vec::new();
        if near.end < pages.end {
            let all =
                self.mappings.all().filter(|(of, page, _)| *of == space && (near.end..pages.end).contains(&page.0));
            far.extend(all.map(|(_, page, _)| page.0));
            far.sort_unstable();
            self.flush_pages(space, &far);
        }
        let flushed = if pages == WHOLE { far.len() as u64 } else { pages.end - pages.start };
        if !self.upkeep.table {
            // Each page is a shootdown; the caller has counted the first.
            let others = flushed.saturating_sub(1);
            self.counters.shootdowns += others;
            self.counters.shootdowns_running += if space == self.space { others } else { 0 };
        }
    }

    /// Pages leave the TLBs and the table, one by one.
    fn flush_pages(&mut self, space: u32, pages: &[u64]) {
        self.drop_from_tlbs(space, pages);
        if self.upkeep.table {
            for (groups, mut reads) in self.each_groups() {
                pages.iter().for_each(|page| groups.flush_page(space, *page, &mut reads));
            }
        }
    }

    /// Drops pages of a space from the TLBs, as they are from the hash table, whether their
    /// mappings change or not.
    fn drop_from_tlbs(&mut self, space: u32, pages: &[u64]) {
        self.first_levels.get_mut().iter_mut().for_each(FirstLevel::forget);
        for page in pages {
            if let Some(mapping) = self.mappings.mapping(space, Vpn(*page)) {
                self.first_levels.get_mut().drop_leaf(mapping);
            }
        }
    }

    /// Gives a space another number: its entries in TLBs and hash tables match nothing any more.
    fn renew(&mut self, space: u32) {
        self.shot = Some(SpacePages { space, pages: WHOLE });
        self.counters.groups.renewed += 1;
        for first_level in self.first_levels.get_mut() {
            first_level.forget();
            first_level.counters.shootdown_entries += first_level.tlbs.drop_space(&self.mappings, space);
            for further in &mut first_level.further {
                further.counters.shootdown_entries += further.tlbs.drop_space(&self.mappings, space);
            }
            for (groups, _) in first_level.walkers().filter_map(Walker::groups) {
                groups.renew(space);
            }
        }
    }

    /// A space ends: no space has its VSIDs any more.
    pub(crate) fn end_contexts(&mut self, space: u32) {
        for (groups, _) in self.each_groups() {
            groups.end(space);
        }
    }

    /// Whether the retry after a trap walks like any other access: a page may be in more than one
    /// table.
    pub(crate) fn walks_again(&self) -> bool {
        self.walks_again
    }

    /// As [`Mmu::retry`], where it walks.
    pub(crate) fn access_again(&mut self, request: Request, line: Option<u32>) -> Result<(), Trap> {
        match self.lookup(self.space, request.page()) {
            None => return Err(Trap::Absent),
            Some(held) if !held.protection.allows(request.access()) => {
                return Err(Trap::Rights { held: held.protection });
            }
            Some(_) => {}
        }
        let trap = match line {
            Some(line) => self.run_lines(&[request], &[line]),
            None => self.run(&[request]),
        };
        trap.map_or(Ok(()), |(_, trap)| Err(trap))
    }

    /// As [`Mmu::run_lines`], request by request: the handler's accesses come before the access
    /// that missed.
    pub(crate) fn run_handled(&mut self, requests: &[Request], lines: &[u32]) -> Option<(usize, Trap)> {
        requests.iter().zip(lines).enumerate().find_map(|(at, (request, line))| {
            if self.access_block(*request, *line) {
                return None;
            }
            if self.enters_software(*request) {
                self.handle();
            }
            self.run_one(*request, *line).map(|trap| (at, trap))
        })
    }

    fn run_one(&mut self, request: Request, line: u32) -> Option<Trap> {
        let asked = crate::tlb::first::Lined { requests: &[request], lines: &[line] };
        let mut trap = None;
        for first_level in self.first_levels.get_mut() {
            trap = first_level.run_lines(&mut self.mappings, self.space, asked).map(|(_, trap)| trap);
        }
        trap
    }

    /// Accesses a line that a block translates; returns whether one does.
    fn access_block(&mut self, request: Request, line: u32) -> bool {
        let (space, page) = (self.space, request.page());
        if !self.upkeep.blocks.iter().any(|block| block.space == space && block.pages.contains(&page.0))
            || !self.access_real(request, line)
        {
            return false;
        }
        for walker in self.walkers() {
            walker.counters.groups.blocks += 1;
        }
        true
    }

    /// Accesses a line of a page without any TLB; returns whether it is mapped.
    fn access_real(&mut self, request: Request, line: u32) -> bool {
        let mapped = self.mappings.mapping(self.space, request.page());
        let Some(Mapping { head, .. }) = mapped else { return false };
        let frame = self.mappings.frame_of(head, request.page());
        self.first_levels
            .get_mut()
            .iter_mut()
            .for_each(|first_level| first_level.access_line(frame, line, request.access() == Access::Execute));
        true
    }

    /// Whether a request misses in the TLBs so that software is entered.
    fn enters_software(&self, request: Request) -> bool {
        self.served().iter().any(|first_level| {
            !first_level.has(&self.mappings, self.space, request)
                && first_level.further.iter().flat_map(|further| &further.walkers).any(|walker| {
                    walker.groups_held().is_some_and(|groups| groups.enters_software(self.space, request.page()))
                })
        })
    }

    /// The software that is entered touches its memory. If it misses too, the software entered then
    /// touches nothing.
    fn handle(&mut self) {
        let Some(handler) = self.upkeep.handler.take() else { return };
        let space = self.enter_kernel();
        for touch in &handler.touches {
            let request = Request::new(touch.page, touch.access);
            if handler.translated {
                if !self.access_block(request, touch.line) {
                    let trap = self.run_one(request, touch.line);
                    assert_eq!(trap, None, "the kernel's memory is mapped: {touch:?}");
                }
            } else {
                self.access_real(request, touch.line);
            }
        }
        self.leave_kernel(space);
        self.upkeep.handler = Some(handler);
    }
}
