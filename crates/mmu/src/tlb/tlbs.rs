//! The TLBs of a machine.
//!
//! A request for a page of one size by one kind of access looks into at most one TLB of each level,
//! nearest first, and where it misses into those that hold pointers. [`crate::tlb::reach`] defines
//! what an entry covers; the number of its translation selects the set. A shootdown precedes every
//! change of a mapping, so an entry always agrees with the page table. So size, rights and dirty
//! bit are read from the page-table entry, where hardware would read them from the TLB entry.

use crate::machine::MAX_TLB_LEVELS;
use crate::machine::{Joins, Machine};
use crate::mappings::pte::{Pte, SIZE_LEVELS};
use crate::mappings::{Mapping, Mappings, Pointer, SpacePage, Stale};
use crate::tlb::batch::{Batch, bit_of};
use crate::tlb::kept_spaces::KeptSpaces;
use crate::tlb::ranges::RangeTlb;
use crate::tlb::reach::entries::{Entries, on_entries};
use crate::tlb::reach::{Entry, Holds, Joining, Lookup, PartialHits, Reach, use_pointer};
use crate::tlb::recent::FirstTlb;
use crate::tlb::storage::Cache;
use crate::tlb::uses::{EMPTY, EntryId, Use, each};

use std::collections::BTreeMap;
use std::ops::Range;
use superpage_pages::{MAX_LEVELS, PageSize, Vpn};

/// One TLB.
#[derive(Clone, Debug)]
struct Tlb {
    entries: Entries,
    /// The kinds of request that it serves, as a bit set ([`bit_of`]).
    kinds: u64,
    /// The levels of the ladder whose pages it holds, as a bit set.
    size_levels: u32,
    level: usize,
    /// Its position in the machine file.
    index: usize,
    /// How it joins base pages, or the order of its perforated pages, if it has either.
    joins: Option<Joining>,
    /// For an inclusive TLB: the nearer ones that may hold only what it holds, as a bit set of
    /// positions in the file.
    encloses: u32,
    /// Whether it holds pointers to tables of the lowest level.
    pointers: bool,
    /// The spaces that it keeps entries of, if not of all: for each hardware thread.
    spaces: Option<Vec<KeptSpaces>>,
}

/// How many pages of one size a TLB holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// The TLB, by its position in the machine file.
    pub tlb: usize,
    /// What the entries hold.
    pub contents: Contents,
    /// The size of the page, or of one of them.
    pub size: PageSize,
    /// Entries for pages of it.
    pub entries: u64,
}

/// What an entry of a TLB holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Contents {
    /// One mapping, or the part of it that a host backs by one page.
    Mapping,
    /// Several base pages.
    Pages,
    /// A perforated page.
    Perforated,
    /// A fragment of the hole bitmap of one.
    Bitmap,
    /// A page-table entry that points to a table of the lowest level, whose pages are of the size
    /// named.
    Pointer,
}

/// The TLBs of some levels.
#[derive(Clone, Debug)]
pub(crate) struct Tlbs {
    /// From the nearest level on.
    all: Vec<Tlb>,
    /// By level of the ladder: the shift from a base page's number to that of the translation.
    orders: [u8; SIZE_LEVELS],
    /// By level of the ladder: the base-two logarithm of the number of translations of a page.
    parts: [u8; SIZE_LEVELS],
    /// Whether any of them is inclusive of others.
    inclusive: bool,
    /// Whether the size of a translation depends on its place ([`Mappings::translated`]).
    by_place: bool,
    /// The highest level of them, counted from 1.
    levels: usize,
    /// The range TLB beside that level.
    ranges: Option<RangeTlb>,
    /// The current hardware thread of the core.
    sibling: u32,
}

/// Where the requests of a batch were served, as bit sets.
#[derive(Clone, Copy, Default)]
pub(crate) struct Served {
    /// By TLB level.
    pub(crate) hits: [u64; MAX_TLB_LEVELS],
    /// By none of these TLBs.
    pub(crate) missed: u64,
    /// Which of those have shorter walks.
    pub(crate) partial: PartialHits,
}

impl Tlbs {
    /// The empty TLBs of a machine: the first level, and the further ones. All are further ones
    /// where an inclusive level may drop entries of nearer ones, and where a first-level TLB holds
    /// pointers, which misses of other TLBs look up. The machine file has been checked.
    pub(crate) fn new(machine: &Machine) -> [Tlbs; 2] {
        let inclusive = machine.has_inclusive();
        let pointing = machine.tlb.iter().any(|tlb| tlb.level == 1 && tlb.holds_pointers(machine));
        let first = |level: usize| level == 1 && !inclusive && !pointing;
        let mut behind = Tlbs::of(machine, |level| !first(level));
        behind.ranges = machine.range_tlb.as_ref().map(|ranges| RangeTlb::new(ranges.entries));
        [Tlbs::of(machine, first), behind]
    }

    /// The TLBs of some levels, counted from 1.
    fn of(machine: &Machine, level: impl Fn(usize) -> bool) -> Tlbs {
        let ladder = machine.ladder();
        // A translation is no larger than the host's page.
        let by_place = machine.has_managed_host();
        let fixed = machine.host.as_ref().filter(|_| !by_place);
        let largest = fixed.map(|host| host.backs_by.unwrap_or(ladder.base()));
        let translated = |size: PageSize| largest.map_or(size, |largest| size.min(largest));
        let mut all: Vec<Tlb> = Vec::new();
        for (index, tlb) in machine.tlb.iter().enumerate().filter(|(_, tlb)| level(tlb.level)) {
            let held = ladder.sizes().iter().enumerate().filter(|(_, size)| tlb.sizes.contains(&translated(**size)));
            let size_levels: u32 = held.map(|(size_level, _)| 1 << size_level).sum();
            let asks =
                |kind: &usize| size_levels >> (kind >> 2) & 1 != 0 && kind & 3 != 3 && tlb.serves.covers(kind & 3);
            let kinds = (0..MAX_LEVELS * 4).filter(asks).map(|kind| 1 << bit_of(kind)).sum();
            let (entries, encloses) = (Entries::new(machine, tlb), machine.enclosed_by(tlb));
            let perforated = tlb.holds_perforated(machine);
            let order = u32::from(machine.page_table.bits[0]);
            let perforated = perforated.then_some(Joining { order, ..Joining::default() });
            let joins = tlb.joined(machine).map(Joins::joining).or(perforated);
            let (spaces, pointers) = (tlb.spaces.map(|most| vec![KeptSpaces::new(most)]), tlb.holds_pointers(machine));
            all.push(Tlb {
                entries,
                kinds,
                size_levels,
                level: tlb.level - 1,
                index,
                joins,
                encloses,
                pointers,
                spaces,
            });
        }
        // Requests that no other TLB serves look up pointers.
        all.sort_by_key(|tlb| (tlb.level, tlb.pointers));
        let (mut orders, mut parts) = ([0; SIZE_LEVELS], [0; SIZE_LEVELS]);
        for (size_level, size) in ladder.sizes().iter().enumerate() {
            orders[size_level] = (translated(*size).shift() - ladder.base().shift()) as u8;
            parts[size_level] = (size.shift() - translated(*size).shift()) as u8;
        }
        let levels = all.last().map_or(0, |tlb| tlb.level + 1);
        Tlbs {
            inclusive: all.iter().any(|tlb| tlb.encloses != 0),
            by_place,
            levels,
            all,
            orders,
            parts,
            ranges: None,
            sibling: 0,
        }
    }

    /// Makes room for so many hardware threads, when they are empty.
    pub(crate) fn share(&mut self, siblings: u32) {
        for tlb in &mut self.all {
            on_entries!(&mut tlb.entries, cache => cache.share(siblings));
            tlb.spaces.iter_mut().for_each(|spaces| spaces.resize(siblings as usize, spaces[0].clone()));
        }
    }

    /// Serves this hardware thread from now on.
    pub(crate) fn set_sibling(&mut self, sibling: u32) {
        self.sibling = sibling;
        self.ranges.iter_mut().for_each(|ranges| ranges.set_sibling(sibling));
        self.all.iter_mut().for_each(|tlb| on_entries!(&mut tlb.entries, cache => cache.set_sibling(sibling)));
    }

    /// The highest level of them, counted from 1.
    #[inline(always)]
    pub(crate) fn levels(&self) -> usize {
        self.levels
    }

    /// Whether they serve all requests alike: the TLBs are equal, and so is their order.
    pub(crate) fn is_like(&self, other: &Tlbs) -> bool {
        let shapes = |tlbs: &Tlbs| -> Vec<_> {
            let shape = |tlb: &Tlb| {
                let (geometry, replacement) = on_entries!(&tlb.entries, cache => (cache.geometry, cache.replacement));
                let kind = std::mem::discriminant(&tlb.entries);
                let shares = on_entries!(&tlb.entries, cache => cache.shares().cloned());
                let position = (tlb.level, tlb.index, tlb.encloses, tlb.pointers);
                let serves = (tlb.kinds, tlb.size_levels, tlb.joins, tlb.spaces.clone());
                (kind, geometry, shares, replacement, position, serves)
            };
            tlbs.all.iter().map(shape).collect()
        };
        let ranges = |tlbs: &Tlbs| tlbs.ranges.as_ref().map(RangeTlb::entries);
        let placed = |tlbs: &Tlbs| (tlbs.orders, tlbs.parts, tlbs.by_place);
        placed(self) == placed(other) && ranges(self) == ranges(other) && shapes(self) == shapes(other)
    }

    /// Each, as a first-level TLB.
    pub(crate) fn first_tlbs(&self) -> impl Iterator<Item = FirstTlb> {
        self.all.iter().enumerate().map(|(index, tlb)| FirstTlb {
            index,
            kinds: tlb.kinds,
            known: !self.by_place && matches!(tlb.entries, Entries::Exact(_) | Entries::Fractured(_)),
        })
    }

    /// The number of the translation of this base page, in the page with this page-table entry, as
    /// TLBs see it.
    #[inline(always)]
    pub(crate) fn number(&self, page: Vpn, pte: Pte) -> u64 {
        page.0 >> (self.order(pte) & 63)
    }

    /// The numbers of all translations of a mapping.
    fn numbers(&self, first: Vpn, pte: Pte) -> Range<u64> {
        let number = self.number(first, pte);
        number..number + (1 << self.parts[pte.size_level() % SIZE_LEVELS])
    }

    /// Drops a mapping from all TLBs; returns the number of entries dropped.
    pub(crate) fn drop_leaf(&mut self, Mapping { head, pte, first }: Mapping) -> u64 {
        let numbers = self.numbers(first, pte);
        if self.by_place {
            return self.forget_pieces(numbers, head, pte);
        }
        drop_from(&mut self.all, u32::MAX, head, numbers, pte)
    }

    /// As [`Tlbs::drop_leaf`], of a mapping whose pieces may be in any TLB.
    #[cold]
    #[inline(never)]
    fn forget_pieces(&mut self, numbers: Range<u64>, head: u32, pte: Pte) -> u64 {
        self.all.iter_mut().map(|tlb| tlb.forget(&numbers, head, pte)).sum()
    }

    /// Takes a base page whose use bits `changed` will change out of the entries that it shares
    /// with others.
    pub(crate) fn separate(&mut self, Mapping { head, pte, first }: Mapping, changed: u32) {
        let number = self.number(first, pte);
        for tlb in self.all.iter_mut().filter(|_| pte.size_level() == 0) {
            if let Some(joins) = tlb.joins.filter(|joins| joins.alike & changed != 0) {
                on_entries!(&mut tlb.entries, cache => Reach::separate(cache, number, head, joins));
            }
        }
    }

    /// Drops the stale parts of a perforated page; returns the number of entries dropped.
    pub(crate) fn drop_region(&mut self, first_id: u32, first: Vpn, stale: Stale) -> u64 {
        self.all.iter_mut().fold(0, |dropped, tlb| {
            let joins = tlb.joins.unwrap_or_default();
            dropped + on_entries!(&mut tlb.entries, cache => Reach::drop_region(cache, first_id, first, stale, joins))
        })
    }

    /// Drops a pointer to a table.
    pub(crate) fn drop_pointer(&mut self, Pointer { id, number, .. }: Pointer) {
        for tlb in self.all.iter_mut().filter(|tlb| tlb.pointers) {
            on_entries!(&mut tlb.entries, cache => cache.forget(&(number..number + 1), id));
        }
    }

    /// Drops ranges that have one of these pages; returns the number of entries dropped.
    pub(crate) fn forget_ranges(&mut self, space: u32, pages: &Range<u64>) -> u64 {
        self.ranges.as_mut().map_or(0, |ranges| ranges.forget(space, pages))
    }

    /// The number of ranges that are held.
    pub(crate) fn ranges_held(&self) -> u64 {
        self.ranges.as_ref().map_or(0, RangeTlb::len)
    }

    /// Switches to a space. If a TLB then drops the entries of another one, all its entries are
    /// looked at.
    pub(crate) fn switch(&mut self, mappings: &Mappings, space: u32) {
        for at in 0..self.all.len() {
            let tlb = &mut self.all[at];
            let kept = tlb.spaces.as_mut().and_then(|spaces| spaces.get_mut(self.sibling as usize));
            let Some(gone) = kept.and_then(|spaces| spaces.switch(space)) else { continue };
            let which = 1 << tlb.index | tlb.encloses;
            for tlb in self.all.iter_mut().filter(|tlb| which >> tlb.index & 1 != 0) {
                on_entries!(&mut tlb.entries, cache => cache.drop_where(&|key| mappings.nodes.space_of(key) == gone));
            }
        }
    }

    /// Whether one of them holds the translation that a request of this kind needs. TLBs whose
    /// entries hold several mappings, or are not selected by the number alone, are left out.
    pub(crate) fn has(&self, EntryId { number, key }: EntryId, kind: usize) -> bool {
        self.all.iter().filter(|tlb| tlb.kinds >> bit_of(kind) & 1 != 0).any(|tlb| match &tlb.entries {
            Entries::Exact(cache) => cache.find(number, key).is_some(),
            Entries::Fractured(cache) => cache.find(number, key).is_some(),
            _ => false,
        })
    }

    /// Drops all of a space for the current hardware thread; returns the number of entries dropped.
    /// Costs a look at all entries.
    pub(crate) fn drop_space(&mut self, mappings: &Mappings, space: u32) -> u64 {
        let (before, _) = self.held_of(mappings, space);
        for tlb in &mut self.all {
            on_entries!(&mut tlb.entries, cache => cache.drop_where(&|key| mappings.nodes.space_of(key) == space));
        }
        before - self.held_of(mappings, space).0
    }

    /// The entries that are of a space, and all that are in use.
    pub(crate) fn held_of(&self, mappings: &Mappings, space: u32) -> (u64, u64) {
        let held = self.all.iter().flat_map(|tlb| tlb.held(mappings));
        held.fold((0, 0), |(held, all), (key, _)| (held + u64::from(mappings.nodes.space_of(key) == space), all + 1))
    }

    /// The order of the smallest aligned block around this page in which they hold another mapping
    /// than the page's own, which has these pages. Costs a look at all entries.
    pub(crate) fn held_around(&self, mappings: &Mappings, space: u32, page: Vpn, own: &Range<u64>) -> Option<u32> {
        let order = |head: u32| {
            let held = mappings.nodes.first_page(head).0;
            let other = mappings.nodes.space_of(head) == space && !own.contains(&held);
            other.then(|| u64::BITS - (held ^ page.0).leading_zeros())
        };
        let of_tlb = |tlb: &Tlb| -> Option<u32> {
            let heads = tlb.held(mappings).into_iter().flat_map(|(_, holds)| {
                let (first, bits) = match holds {
                    Holds::Mapping(head) => (head, 1),
                    Holds::Pages(first, pages) => (first, pages),
                    Holds::Perforated | Holds::Bitmap | Holds::Pointer => (0, 0),
                };
                each(bits).map(move |index| first + index as u32)
            });
            heads.filter_map(order).min()
        };
        let ranges = self.ranges.iter().filter_map(|ranges| ranges.held_around(space, page, own));
        self.all.iter().filter_map(of_tlb).chain(ranges).min()
    }

    /// Empties all TLBs.
    pub(crate) fn flush(&mut self) {
        self.ranges.iter_mut().for_each(RangeTlb::flush);
        self.all.iter_mut().for_each(|tlb| on_entries!(&mut tlb.entries, cache => cache.flush()));
    }

    /// Takes a batch through all levels, and fills those in which requests miss.
    #[inline(always)]
    pub(crate) fn translate(&mut self, mappings: &Mappings, batch: &Batch) -> Served {
        if self.inclusive {
            return self.translate_inclusive(mappings, batch);
        }
        let mut served = Served { missed: batch.all(), ..Served::default() };
        if self.ranges.is_some() {
            self.translate_ranged(mappings, batch, &mut served);
            return served;
        }
        for tlb in &mut self.all {
            let asking = batch.groups().iter().filter(|group| group.is_in(tlb.kinds));
            let asking = asking.fold(0, |asking, group| asking | group.requests) & served.missed;
            let walked = if tlb.pointers { served.missed & !asking } else { 0 };
            if asking | walked != 0 {
                let missed = tlb.access(asking, tlb.lookup(batch, mappings, walked), &mut served.partial);
                served.hits[tlb.level % MAX_TLB_LEVELS] |= asking & !missed;
                served.missed &= !asking | missed;
            }
        }
        served
    }

    /// As [`Tlbs::translate`] where a range TLB is beside the last level, request by request.
    #[inline(never)]
    fn translate_ranged(&mut self, mappings: &Mappings, batch: &Batch, served: &mut Served) {
        let (last, Some(ranges)) = (self.levels - 1, &mut self.ranges) else { return };
        for index in each(batch.all()) {
            let (bit, head) = (1 << index, batch.heads[index]);
            // An entry has all of a mapping, or nothing.
            let (space, first) = (mappings.nodes.space_of(head), mappings.nodes.first_page(head));
            let group = batch.groups().iter().find(|group| group.requests & bit != 0);
            let asked = self.all.iter_mut().filter(|tlb| group.is_some_and(|group| group.is_in(tlb.kinds)));
            let (mut hit, mut in_range) = (None, None);
            for tlb in asked {
                if tlb.level == last {
                    in_range = Some(ranges.hit(space, first));
                }
                let ranged = in_range == Some(true);
                if ranged {
                    // Both are used, and this one is not filled.
                    tlb.touch(index, &tlb.lookup(batch, mappings, 0));
                }
                let lookup = tlb.lookup(batch, mappings, 0);
                if ranged || tlb.access(bit, lookup, &mut served.partial) == 0 {
                    hit = Some(tlb.level);
                    break;
                }
            }
            // No TLB of the last level may hold pages of this size.
            if hit.is_none() && in_range.is_none() && ranges.hit(space, first) {
                hit = Some(last);
            }
            match hit {
                Some(level) => {
                    served.hits[level % MAX_TLB_LEVELS] |= bit;
                    served.missed &= !bit;
                }
                None => ranges.fill(mappings, space, first),
            }
        }
    }

    /// As [`Tlbs::translate`], of a first level; returns which missed.
    #[inline(always)]
    pub(crate) fn translate_first(&mut self, mappings: &Mappings, batch: &Batch) -> u64 {
        let mut missed = batch.all();
        for tlb in &mut self.all {
            let asking = batch.groups().iter().filter(|group| group.is_in(tlb.kinds));
            let asking = asking.fold(0, |asking, group| asking | group.requests);
            if asking != 0 {
                missed &= !asking | tlb.access(asking, tlb.lookup(batch, mappings, 0), &mut PartialHits::default());
            }
        }
        missed
    }

    /// Gives small sets ways, for [`Tlbs::use_at`], or makes them rows again.
    #[cold]
    pub(crate) fn set_placed(&mut self, placed: bool) {
        for tlb in &mut self.all {
            match &mut tlb.entries {
                Entries::Exact(cache) => cache.set_placed(placed),
                Entries::Fractured(cache) => cache.set_placed(placed),
                // Their requests are not noted.
                _ => {}
            }
        }
    }

    /// As [`Cache::use_at`], in a TLB.
    #[inline(always)]
    pub(crate) fn use_at(&mut self, tlb: usize, at: usize, used: Use) -> bool {
        match self.all.get_mut(tlb).map(|tlb| &mut tlb.entries) {
            Some(Entries::Exact(cache)) => cache.use_at(at, used),
            Some(Entries::Fractured(cache)) => cache.use_at(at, used),
            _ => false,
        }
    }

    /// As [`Cache::access_one`], in a TLB whose requests are noted.
    pub(crate) fn access_one(&mut self, tlb: usize, used: Use) -> (bool, Option<usize>) {
        match &mut self.all[tlb].entries {
            Entries::Exact(cache) => cache.access_one(used),
            Entries::Fractured(cache) => cache.access_one(used),
            _ => unreachable!("requests of other TLBs are not noted"),
        }
    }

    /// The shift from a base page's number to that of the translation, in the page with this entry.
    #[inline(always)]
    pub(crate) fn order(&self, pte: Pte) -> u8 {
        self.orders[pte.size_level() % SIZE_LEVELS]
    }

    /// As [`Tlbs::translate`] where a level is inclusive, request by request: the farthest level is
    /// filled first, and what it evicts is dropped from nearer ones.
    #[inline(never)]
    fn translate_inclusive(&mut self, mappings: &Mappings, batch: &Batch) -> Served {
        let mut served = Served::default();
        for index in each(batch.all()) {
            let used = batch.uses().at(index);
            let asked = |tlb: &Tlb| {
                batch.groups().iter().any(|group| group.requests >> index & 1 != 0 && group.is_in(tlb.kinds))
            };
            let hit = self
                .all
                .iter_mut()
                .position(|tlb| asked(tlb) && on_entries!(&mut tlb.entries, cache => cache.hit(used)));
            match hit {
                Some(at) => served.hits[self.all[at].level] |= 1 << index,
                None => served.missed |= 1 << index,
            }
            for at in (0..hit.unwrap_or(self.all.len())).rev() {
                if asked(&self.all[at]) {
                    self.fill_inclusive(at, used, mappings);
                }
            }
        }
        served
    }

    /// Fills one TLB, and drops what it evicts from the nearer ones that it includes.
    fn fill_inclusive(&mut self, at: usize, filled: Use, mappings: &Mappings) {
        let Mappings { ptes, nodes, .. } = mappings;
        let (orders, parts) = (self.orders, self.parts);
        let tlb = &mut self.all[at];
        let encloses = tlb.encloses;
        let evicted = on_entries!(&mut tlb.entries, cache => {
            let (evicted, payload) = cache.fill(filled);
            (encloses != 0 && evicted != EMPTY).then(|| {
                let size_level = ptes[evicted as usize].size_level();
                let first = nodes.first_page(evicted).0 >> orders[size_level];
                (evicted, covered(cache, payload, first..first + (1 << parts[size_level])))
            })
        });
        if let Some((evicted, numbers)) = evicted {
            drop_from(&mut self.all, encloses, evicted, numbers, ptes[evicted as usize]);
        }
    }

    /// Looks up, for a walk to an absent page, the pointer to its table and the perforated page
    /// that it is a hole of; a hit is a use. The first bits of the sets say what was hit.
    pub(crate) fn partial_hits(&mut self, mappings: &Mappings, page: SpacePage, access: usize) -> PartialHits {
        let (SpacePage { space, page }, mut partial, kind) = (page, PartialHits::default(), access as u8);
        for tlb in self.all.iter_mut().filter(|tlb| tlb.pointers) {
            if let Some(found) = mappings.find(space, page, 1) {
                let held = on_entries!(&mut tlb.entries, cache => use_pointer(cache, mappings, found.id, kind));
                partial.pointers |= u64::from(held);
            }
        }
        let found = mappings.perforates().then(|| mappings.find(space, page, 1)).flatten();
        let Some(found) = found.filter(|found| found.level == 1 && mappings.region(found.id).is_some()) else {
            return partial;
        };
        for tlb in self.all.iter_mut().filter(|tlb| tlb.kinds >> access & 1 != 0) {
            let joins = tlb.joins.unwrap_or_default();
            let more = on_entries!(&mut tlb.entries, cache => Reach::partial_hits(cache, kind, page, found.id, joins));
            partial.regions |= more.regions;
            partial.fragments |= more.fragments;
        }
        partial
    }

    /// How many pages of each size each TLB holds, without zeroes.
    pub(crate) fn held(&self, mappings: &Mappings) -> Vec<Held> {
        let mut held = Vec::new();
        let base = mappings.ladder().base();
        for tlb in &self.all {
            let mut counts: BTreeMap<(Contents, PageSize), u64> = BTreeMap::new();
            for (_, holds) in tlb.held(mappings) {
                let of = match holds {
                    Holds::Mapping(head) => {
                        (Contents::Mapping, mappings.ladder().sizes()[mappings.ptes[head as usize].size_level()])
                    }
                    Holds::Pages(..) => (Contents::Pages, base),
                    Holds::Pointer => (Contents::Pointer, base),
                    Holds::Perforated => (Contents::Perforated, mappings.perforated_size()),
                    Holds::Bitmap => (Contents::Bitmap, mappings.perforated_size()),
                };
                *counts.entry(of).or_default() += 1;
            }
            held.extend(counts.into_iter().map(|((contents, size), entries)| Held {
                tlb: tlb.index,
                contents,
                size,
                entries,
            }));
        }
        held
    }

    /// Checks that every entry is a mapping of a size that its TLB holds, in its set, where it is
    /// looked for, so that no page is in a TLB twice; and that inclusive levels hold what they
    /// must.
    pub(crate) fn validate(&self, mappings: &Mappings) -> Result<(), String> {
        self.ranges.iter().try_for_each(|ranges| ranges.validate(mappings))?;
        self.all.iter().try_for_each(|tlb| on_entries!(&tlb.entries, cache => self.validate_one(tlb, cache, mappings)))
    }

    /// Whether the entry at this index of a TLB holds this translation.
    pub(crate) fn is_at(&self, tlb: usize, at: usize, EntryId { number, key }: EntryId) -> bool {
        on_entries!(&self.all[tlb].entries, cache => {
            let (set, way) = (at / cache.geometry.ways(), at % cache.geometry.ways());
            cache.selects(number, set) && cache.find(number, key) == Some(way)
        })
    }

    fn validate_one<C: Reach>(&self, tlb: &Tlb, cache: &Cache<C>, mappings: &Mappings) -> Result<(), String> {
        let index = tlb.index;
        cache.validate().map_err(|error| format!("TLB {index}: {error}"))?;
        for entry in cache.entries() {
            let Entry { set, way, key, payload, sibling } = entry;
            let wrong = |what: &str| Err(format!("TLB {index} set {set} way {way} key {key}: {what}"));
            let joins = tlb.joins.unwrap_or_default();
            let space = mappings.nodes.space_of(key);
            if tlb.spaces.as_ref().is_some_and(|spaces| !spaces[sibling as usize].keep(space)) {
                return wrong(&format!("the TLB does not keep entries of space {space}"));
            }
            let Holds::Mapping(id) = C::holds(key, payload, mappings) else {
                C::validate(cache, entry, 0, mappings, joins).or_else(|what| wrong(&what))?;
                continue;
            };
            let pte = mappings.ptes[id as usize];
            if !pte.is_leaf() || Mappings::head(id, pte) != id {
                return wrong(&format!("the entry is not a mapping, {pte:?}"));
            }
            let covered = C::covered(payload, self.numbers(mappings.nodes.first_page(id), pte));
            let pte = if self.by_place { mappings.translated(Vpn(covered.start), id) } else { pte };
            if tlb.size_levels >> pte.size_level() & 1 == 0 {
                return wrong(&format!("the TLB does not hold this size, {pte:?}"));
            }
            C::validate(cache, entry, covered.start, mappings, joins).or_else(|what| wrong(&what))?;
            let holds = |outer: &Tlb| {
                let mut covered = covered.clone();
                on_entries!(&outer.entries, cache => covered.all(|number| cache.find_of(sibling, number, id).is_some()))
            };
            let must =
                |outer: &&Tlb| outer.size_levels >> pte.size_level() & 1 != 0 && outer.encloses >> index & 1 != 0;
            if !self.all.iter().filter(must).all(holds) {
                return wrong("an inclusive level lacks the page");
            }
        }
        Ok(())
    }
}

impl Tlb {
    /// A look-up of requests of a batch in it.
    #[inline(always)]
    fn lookup<'a>(&self, batch: &'a Batch, mappings: &'a Mappings, walked: u64) -> Lookup<'a> {
        Lookup { batch, mappings, walked, joining: self.joins.unwrap_or_default() }
    }

    /// Looks up the requests of `asking`, and fills on each miss; returns which missed. Those that
    /// are walked look up pointers.
    #[inline(always)]
    fn access(&mut self, asking: u64, lookup: Lookup<'_>, partial: &mut PartialHits) -> u64 {
        on_entries!(&mut self.entries, cache => Reach::access(cache, asking, &lookup, partial))
    }

    /// What its entries hold, and their keys.
    fn held(&self, mappings: &Mappings) -> Vec<(u32, Holds)> {
        on_entries!(&self.entries, cache => cache.held(mappings))
    }

    /// Uses the entry that covers one request of a batch, if there is one.
    fn touch(&mut self, index: usize, lookup: &Lookup<'_>) {
        on_entries!(&mut self.entries, cache => Reach::touch(cache, index, lookup));
    }

    /// Drops these translations of a mapping.
    #[inline(always)]
    fn forget(&mut self, numbers: &Range<u64>, head: u32, pte: Pte) -> u64 {
        let joins = self.joins.unwrap_or_default();
        on_entries!(&mut self.entries, cache => Reach::forget(cache, numbers, head, pte, joins))
    }
}

/// The translations that an entry of this TLB covers, of all that its mapping has.
fn covered<C: Reach>(_: &Cache<C>, payload: C::Payload, mapping: Range<u64>) -> Range<u64> {
    C::covered(payload, mapping)
}

/// Drops these translations of a page from those TLBs whose bit is set in `which`.
fn drop_from(tlbs: &mut [Tlb], which: u32, head: u32, numbers: Range<u64>, pte: Pte) -> u64 {
    let (size_level, mut dropped) = (1 << pte.size_level(), 0);
    for tlb in tlbs.iter_mut().filter(|tlb| tlb.size_levels & size_level != 0 && which >> tlb.index & 1 != 0) {
        dropped += tlb.forget(&numbers, head, pte);
    }
    dropped
}
