//! A hash table of groups of eight entries, as the PowerPC has it, in front of the operating
//! system's tree: a cache of the tree, for pages of all spaces. Dougan, Mackerras and Yodaiken,
//! OSDI 1999, sections 3, 6.2, 7 and 8.
//!
//! A page is in its primary group (VSID xor page index) or in its secondary one (the complement). A
//! search looks at the entries of both in order, up to 16, until one has the page. If none has it,
//! software reads the tree, from the root, and places the page into a free entry of the primary
//! group, or else of the secondary one, or else in place of an entry of the primary group, in turn;
//! it looks at entries again for that. With software that searches there may be no hash table: then
//! it reads the tree at once.
//!
//! Entries of VSIDs that no space has any more are *zombies*: they stay until they are replaced or
//! reclaimed.

use super::radix::Radix;
use super::{TableFormat, Walks};
use crate::counters::GroupCounts;
use crate::machine::{Machine, Search};
use crate::mappings::{Mappings, Pointer, Shape, SpacePage};
use crate::tlb::batch::Batch;
use crate::tlb::reach::PartialHits;
use crate::tlb::uses::each;
use crate::walk::lines::Reads;
use crate::walk::segments::{CONTEXTS, Segments, VirtualPage, context_of, nobodys};
use std::ops::Range;
use superpage_pages::{Counts, Ladder, Vpn};

/// The entries of a group.
const WAYS: usize = 8;

/// Where the table is among page-table entries.
const TABLE: u32 = super::HOST;

/// The levels of the tree. The index of mappings has one more above them, which is not in memory.
const TREE_LEVELS: usize = 2;

/// No page: an entry that is free.
const FREE: VirtualPage = u64::MAX;

/// How VSIDs are scattered unless the operating system says otherwise: Linux/PPC's constant.
const SCATTER: u32 = 897;

/// The hash table and the segments.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    pub(crate) segments: Segments,
    /// The pages, eight to a group.
    entries: Vec<VirtualPage>,
    /// Whether the table is used at all.
    pub(crate) used: bool,
    /// Whether its lines and those of the tree go through the caches.
    pub(crate) cached: bool,
    /// Whether all zombies are reclaimed when a page finds no free entry.
    pub(crate) on_demand: bool,
    /// Whether there may be zombies that were never looked for.
    zombies: bool,
    software: bool,
    /// The way of a primary group that is replaced next.
    turn: usize,
    /// Where a reclaim goes on.
    hand: usize,
    /// Entries in use, the most that ever were, and the live ones, which are no zombies.
    in_use: u64,
    most_in_use: u64,
    live: u64,
    /// The entries of each context, so that they are known when it ends.
    of_context: Vec<u32>,
}

impl TableFormat for Groups {
    fn refuses(bits: &[u8], ladder: &Ladder) -> Option<String> {
        Radix::refuses(bits, ladder)
    }

    fn shape(machine: &Machine) -> Shape {
        Radix::shape(machine)
    }

    fn new(machine: &Machine, _: &Shape) -> Groups {
        let of = machine.groups.as_ref().expect("the machine file was checked");
        Groups {
            segments: Segments::new(SCATTER),
            entries: vec![FREE; of.groups as usize * WAYS],
            used: true,
            cached: true,
            on_demand: false,
            zombies: false,
            software: of.search == Search::Software,
            turn: 0,
            hand: 0,
            in_use: 0,
            most_in_use: 0,
            live: 0,
            of_context: vec![0; CONTEXTS as usize],
        }
    }

    fn walk(&mut self, mappings: &Mappings, batch: &Batch, walks: Walks, mut reads: Reads<'_>) {
        for index in each(walks.requests) {
            let entry = batch.entries[index];
            let page = SpacePage { space: mappings.nodes.space_of(entry), page: Vpn(batch.pages[index]) };
            self.refill(mappings, page, Some(entry), &mut reads);
        }
    }

    fn walk_absent(&mut self, mappings: &Mappings, page: SpacePage, _: PartialHits, mut reads: Reads<'_>) {
        self.refill(mappings, page, None, &mut reads);
    }

    fn drop_pointer(&mut self, _: Pointer) {}

    /// Does nothing: entries have VSIDs, so a switch between spaces flushes none.
    fn flush(&mut self) {}

    fn validate(&self, mappings: &Mappings) -> Result<(), String> {
        self.segments.validate()?;
        let mut found: Vec<VirtualPage> = Vec::new();
        for (at, page) in self.entries.iter().copied().enumerate().filter(|(_, page)| *page != FREE) {
            let groups = self.groups(page);
            if !groups.iter().any(|group| group.contains(&at)) {
                return Err(format!("entry {at} has page {page:#x} of groups {groups:?}"));
            }
            found.push(page);
        }
        let count = found.len();
        found.sort_unstable();
        found.dedup();
        if found.len() != count || count as u64 != self.in_use {
            return Err(format!("{count} entries, {} of different pages, {} counted", found.len(), self.in_use));
        }
        let live = found.iter().filter(|page| self.segments.lives(**page)).count() as u64;
        let of_contexts: u64 = self.of_context.iter().map(|entries| u64::from(*entries)).sum();
        if live != self.live || of_contexts != self.in_use || self.most_in_use < self.in_use {
            let (counted, most) = (self.live, self.most_in_use);
            return Err(format!("{live} live entries, {counted} counted; {of_contexts} of contexts; {most} at most"));
        }
        let mapped: std::collections::BTreeSet<_> =
            mappings.all().filter_map(|(space, page, _)| self.segments.known(space, page.0)).collect();
        match found.iter().find(|page| self.segments.lives(**page) && !mapped.contains(page)) {
            Some(page) => Err(format!("page {page:#x} is in the hash table and is not mapped")),
            None => Ok(()),
        }
    }
}

impl Groups {
    /// The entries of the primary group of a page, and of its secondary one.
    fn groups(&self, page: VirtualPage) -> [Range<usize>; 2] {
        let mask = self.entries.len() / WAYS - 1;
        let hash = (page >> 16 ^ page & 0xffff) as usize;
        [hash & mask, !hash & mask].map(|group| group * WAYS..(group + 1) * WAYS)
    }

    fn find(&self, page: VirtualPage) -> Option<usize> {
        self.groups(page).into_iter().flatten().find(|at| self.entries[*at] == page)
    }

    /// Whether a search for this page would find it.
    fn holds(&self, space: u32, page: Vpn) -> bool {
        self.used && self.segments.known(space, page.0).is_some_and(|page| self.find(page).is_some())
    }

    /// Whether software is entered for this page, which no TLB has.
    pub(crate) fn enters_software(&self, space: u32, page: Vpn) -> bool {
        self.software || !self.holds(space, page)
    }

    /// The page under its VSID. If VSIDs have run out, the table is emptied and all are given
    /// again.
    fn page(&mut self, space: u32, page: u64) -> VirtualPage {
        self.segments.page(space, page).unwrap_or_else(|| {
            self.segments.begin_again();
            self.entries.fill(FREE);
            self.of_context.fill(0);
            (self.in_use, self.live) = (0, 0);
            self.zombies = false;
            self.segments.page(space, page).expect("there are numbers again")
        })
    }

    /// Reads these page-table entries.
    fn read(&self, entries: impl IntoIterator<Item = u32>, reads: &mut Reads<'_>) {
        let mut count = 0;
        for entry in entries {
            reads.lines.want(count, entry);
            count += 1;
        }
        if self.cached {
            reads.lines.read(count, reads.counters);
        } else {
            reads.counters.line_misses += count as u64;
        }
    }

    /// Serves a TLB miss. `entry` is the page's entry in the tree, if it is mapped.
    fn refill(&mut self, mappings: &Mappings, page: SpacePage, entry: Option<u32>, reads: &mut Reads<'_>) {
        let mut counts = GroupCounts::default();
        counts.entered += u64::from(self.software);
        let named = self.used.then(|| self.page(page.space, page.page.0));
        let found = named.map(|page| self.search(page, &mut counts, reads));
        if found != Some(true) {
            counts.entered += u64::from(!self.software);
            counts.tree_walks += 1;
            self.read(tree(mappings, page), reads);
            if let (Some(page), Some(_)) = (named, entry) {
                self.place(page, &mut counts, reads);
            }
        }
        reads.counters.groups.add(&counts);
    }

    /// Looks at the entries of both groups; returns whether one has the page.
    fn search(&self, page: VirtualPage, counts: &mut GroupCounts, reads: &mut Reads<'_>) -> bool {
        let found = self.find(page);
        counts.searches += 1;
        counts.found += u64::from(found.is_some());
        let mut looked = Vec::with_capacity(2 * WAYS);
        for at in self.groups(page).into_iter().flatten() {
            looked.push(TABLE + at as u32);
            if Some(at) == found {
                break;
            }
        }
        counts.looked += looked.len() as u64;
        self.read(looked, reads);
        found.is_some()
    }

    /// Places a page that is not in the table.
    fn place(&mut self, page: VirtualPage, counts: &mut GroupCounts, reads: &mut Reads<'_>) {
        let primary = self.groups(page)[0].start;
        let mut free = self.look_for_free(page, counts, reads);
        if free.is_none() && self.on_demand && self.zombies {
            counts.looked_to_place += self.entries.len() as u64;
            self.reclaim(self.entries.len() as u64, self.cached, reads);
            self.zombies = false;
            free = self.look_for_free(page, counts, reads);
        }
        let at = free.unwrap_or_else(|| {
            self.turn = (self.turn + 1) % WAYS;
            primary + self.turn
        });
        counts.reloads += 1;
        let held = self.entries[at];
        if held != FREE {
            counts.evicts += 1;
            counts.live_evicts += u64::from(self.segments.lives(held));
            self.empty(at);
        }
        self.entries[at] = page;
        self.in_use += 1;
        self.most_in_use = self.most_in_use.max(self.in_use);
        self.live += u64::from(self.segments.lives(page));
        self.of_context[context_of(page)] += 1;
    }

    /// An entry that is in use is free from now on.
    fn empty(&mut self, at: usize) {
        let page = std::mem::replace(&mut self.entries[at], FREE);
        self.in_use -= 1;
        self.live -= u64::from(self.segments.lives(page));
        self.of_context[context_of(page)] -= 1;
    }

    /// Looks at the entries of both groups for one that is free.
    fn look_for_free(&self, page: VirtualPage, counts: &mut GroupCounts, reads: &mut Reads<'_>) -> Option<usize> {
        let mut looked = Vec::with_capacity(2 * WAYS);
        let free = self.groups(page).into_iter().flatten().find(|at| {
            looked.push(TABLE + *at as u32);
            self.entries[*at] == FREE
        });
        counts.looked_to_place += looked.len() as u64;
        self.read(looked, reads);
        free
    }

    /// Software looks for a page that is to be flushed, and frees its entry. It looks for one that
    /// was never used just as well.
    pub(crate) fn flush_page(&mut self, space: u32, page: u64, reads: &mut Reads<'_>) {
        if !self.used {
            return;
        }
        let page = self.segments.known(space, page).unwrap_or_else(|| nobodys(page));
        let mut counts = GroupCounts::default();
        self.search(page, &mut counts, reads);
        let GroupCounts { looked, .. } = counts;
        reads.counters.groups.add(&GroupCounts { flushed: 1, looked_to_flush: looked, ..GroupCounts::default() });
        if let Some(at) = self.find(page) {
            self.empty(at);
        }
    }

    /// Gives a space other VSIDs; its entries in the table are zombies from now on.
    pub(crate) fn renew(&mut self, space: u32) {
        self.end(space);
        self.zombies = true;
    }

    /// A space ends: no space has its VSIDs any more.
    pub(crate) fn end(&mut self, space: u32) {
        let contexts = self.segments.contexts_of(space).iter();
        self.live -= contexts.map(|context| u64::from(self.of_context[*context as usize])).sum::<u64>();
        self.segments.renew(space);
    }

    /// Software looks at `entries` entries, from where it stopped last, and frees zombies; through
    /// the caches if `cached`.
    pub(crate) fn reclaim(&mut self, entries: u64, cached: bool, reads: &mut Reads<'_>) {
        let before = std::mem::replace(&mut self.cached, cached);
        let mut freed = 0;
        for _ in 0..entries.min(self.entries.len() as u64) {
            self.read([TABLE + self.hand as u32], reads);
            let held = self.entries[self.hand];
            if held != FREE && !self.segments.lives(held) {
                self.empty(self.hand);
                freed += 1;
            }
            self.hand = (self.hand + 1) % self.entries.len();
        }
        self.cached = before;
        reads.counters.groups.add(&GroupCounts { reclaimed: freed, ..GroupCounts::default() });
    }

    /// Entries that are in use, how many of them are of pages that a space has, and all. O(1).
    pub(crate) fn use_of(&self) -> [u64; 3] {
        [self.in_use, self.live, self.entries.len() as u64]
    }

    /// The most entries that ever were in use.
    pub(crate) fn most_in_use(&self) -> u64 {
        self.most_in_use
    }

    /// Bytes that the table and the segments of this many groups take, as far as they are written
    /// to at once, and at most.
    pub(crate) fn bytes(groups: u64) -> (u64, u64) {
        let entries = groups.saturating_mul((WAYS * size_of::<VirtualPage>()) as u64);
        (entries, entries.saturating_add(u64::from(CONTEXTS) * (size_of::<u32>() + size_of::<bool>()) as u64))
    }

    /// The entries in use of each group.
    pub(crate) fn by_group(&self) -> impl Iterator<Item = u64> + '_ {
        self.entries.chunks(WAYS).map(|group| group.iter().filter(|page| **page != FREE).count() as u64)
    }
}

/// The entries of the tree that software reads for a page, from the upper level down: those of its
/// two lower levels, or the root's, if there is nothing below.
fn tree(mappings: &Mappings, SpacePage { space, page }: SpacePage) -> Vec<u32> {
    let last = mappings.find(space, page, 1).map_or(mappings.levels(), |found| found.level);
    let levels = (last..=last.max(TREE_LEVELS)).rev();
    levels.filter_map(|level| mappings.find(space, page, level)).map(|found| found.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    /// A table that holds a page of a context that no space has, with the mappings beside it, of
    /// which there are none.
    fn with_a_zombie() -> (Groups, Mappings, usize) {
        let machine = Machine::builtin("ppc604").unwrap();
        let shape = Groups::shape(&machine);
        let (mut groups, mappings) = (Groups::new(&machine, &shape), Mappings::new(machine.ladder(), &shape));
        let page = (5 << 4) << 16 | 0x123;
        let at = groups.groups(page)[0].start + 3;
        groups.entries[at] = page;
        (groups.in_use, groups.most_in_use, groups.of_context[5]) = (1, 1, 1);
        assert_eq!(groups.validate(&mappings), Ok(()));
        (groups, mappings, at)
    }

    #[test]
    fn a_table_that_does_not_agree_with_its_counts_is_refused() {
        let refused = |expected: &str, change: fn(&mut Groups, usize)| {
            let (mut groups, mappings, at) = with_a_zombie();
            change(&mut groups, at);
            let problem = groups.validate(&mappings).unwrap_err();
            assert!(problem.contains(expected), "{problem}, expected {expected}");
        };
        refused("of groups", |groups, at| {
            let groups_apart = groups.entries.len() / 4;
            groups.entries.swap(at, at ^ groups_apart);
        });
        refused("1 entries, 1 of different pages, 2 counted", |groups, _| {
            (groups.in_use, groups.most_in_use, groups.of_context[5]) = (2, 2, 2);
        });
        refused("2 entries, 1 of different pages, 2 counted", |groups, at| {
            groups.entries[at + 1] = groups.entries[at];
            (groups.in_use, groups.most_in_use, groups.of_context[5]) = (2, 2, 2);
        });
        refused("0 live entries, 1 counted", |groups, _| groups.live = 1);
        refused("2 of contexts", |groups, _| groups.of_context[7] = 1);
        refused("0 at most", |groups, _| groups.most_in_use = 0);
        refused("is in the hash table and is not mapped", |groups, _| {
            let page = groups.segments.page(0, 7).unwrap();
            let at = groups.groups(page)[1].end - 1;
            groups.entries[at] = page;
            groups.of_context[context_of(page)] += 1;
            (groups.in_use, groups.most_in_use, groups.live) = (2, 2, 1);
        });
    }

    #[test]
    fn the_table_says_what_it_holds_and_takes() {
        let (groups, _, at) = with_a_zombie();
        assert_eq!((groups.use_of(), groups.most_in_use()), ([1, 0, groups.entries.len() as u64], 1));
        let by_group: Vec<u64> = groups.by_group().collect();
        assert_eq!((by_group.len(), by_group[at / WAYS], by_group.iter().sum()), (groups.entries.len() / WAYS, 1, 1));
        assert_eq!(Groups::bytes(16), (16 * 64, 16 * 64 + (5 << 20)));
    }
}
