//! The radix tables of a guest, walked in two dimensions: wherever the guest's walk goes to a
//! table, and at its end to the page, the address there is the guest's, which the host's own tables
//! translate. With n levels in the guest and m in the host that are up to n m + n + m references.
//! Bhargava et al., Accelerating two-dimensional page walks for virtualized systems, ASPLOS 2008.
//!
//! The walk caches of the guest hold addresses that are already translated. The host's tables have
//! separate walk caches, and the *nested TLB* holds translations of the guest's memory, of tables
//! and of pages alike. Both outlast a switch between spaces of the guest.
//!
//! The guest's pages may be perforated ([`super::perforated`]): the bitmaps and the shadow entries
//! are in the guest's memory too, in separate frames. Park et al. (ISCA 2020) support
//! virtualization without details; this model combines the rules of both.
//!
//! The host maps the guest's memory by pages of one size, each at its first use; or a memory
//! manager of the host maps it ([`Host::managed`], [`crate::mappings`]), and then a walk ends where
//! nothing is mapped, and reports the frame. Where a page of the host has several entries, as one
//! of 64 KB has, the walk to a larger page of the guest reads the first. The guest's tables are in
//! the guest's memory, a page each, above all its frames.

use super::perforated::{Perforated, Target};
use super::radix::Radix;
use super::{HOST, TableFormat, Walks};
use crate::machine::Replacement;
use crate::machine::{Host, Machine};
use crate::mappings::{Found, Mappings, Pointer, Shape, SpacePage};
use crate::tlb::batch::Batch;
use crate::tlb::reach::{Entry, PartialHits};
use crate::tlb::storage::Cache;
use crate::tlb::uses::{EntryId, each};
use crate::walk::lines::Reads;
use crate::walk::walk_caches::WalkCaches;
use superpage_pages::{Access, Ladder, MAX_LEVELS, Mapped, PageSize, Pfn, Protection, Vpn};

/// The first frame of the guest's tables.
pub(crate) const TABLES: u64 = 1 << 35;
/// The first frame of the second halves of its tables of the second level, which have the shadow
/// entries.
const SHADOW_TABLES: u64 = TABLES + (1 << 34);
/// The first frame of its hole bitmaps.
const BITMAP_PAGES: u64 = TABLES + (1 << 33);

/// The walker of the guest's tables, and the host.
#[derive(Clone, Debug)]
pub(crate) struct Nested {
    guest: Radix,
    host: Box<Radix>,
    /// The host's tables, by the guest's frames.
    tables: Box<Mappings>,
    /// The size of the host's pages, and the base-two logarithm of its base pages.
    backs_by: PageSize,
    order: u32,
    nested_tlb: Option<Box<Cache>>,
    /// By level of the ladder: the shift from a base page's number to that of the translation.
    orders: [u8; MAX_LEVELS],
    /// The base-two logarithm of the pages whose bits are in one page of hole bitmaps.
    bitmap_order: u32,
    reached: Reached,
}

/// Findings of walks in the tables of a host with a memory manager.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reached {
    /// Mappings whose use bits are to be set, by their heads.
    pub(crate) used: Vec<u32>,
    /// Frames of the guest's pages that have no page of the host.
    pub(crate) unbacked: Vec<u64>,
}

/// The tables of a host, with nothing mapped.
pub(crate) fn tables_of_host(machine: &Machine, host: &Host) -> Mappings {
    Mappings::new(machine.ladder(), &Radix::shape(&machine.as_host(host)))
}

impl TableFormat for Nested {
    fn refuses(bits: &[u8], ladder: &Ladder) -> Option<String> {
        Radix::refuses(bits, ladder)
    }

    fn shape(machine: &Machine) -> Shape {
        if machine.perforated.is_some() { Perforated::shape(machine) } else { Radix::shape(machine) }
    }

    fn new(machine: &Machine, shape: &Shape) -> Nested {
        let host = machine.host.as_ref().expect("the machine file was checked");
        let (of_host, ladder) = (machine.as_host(host), machine.ladder());
        let backs_by = host.backs_by.unwrap_or(ladder.base());
        let base = ladder.base().shift();
        let mut orders = [0; MAX_LEVELS];
        for (order, size) in orders.iter_mut().zip(ladder.sizes()) {
            let largest = if host.managed { *size } else { backs_by };
            *order = (largest.min(*size).shift() - base) as u8;
        }
        Nested {
            guest: Radix::new(machine, shape),
            host: Box::new(Radix::new(&of_host, &Radix::shape(&of_host))),
            tables: Box::new(tables_of_host(machine, host)),
            backs_by,
            order: backs_by.shift() - base,
            nested_tlb: (host.nested_tlb > 0).then(|| Box::new(Cache::new(1, host.nested_tlb, Replacement::Lru))),
            orders,
            bitmap_order: base + 3,
            reached: Reached::default(),
        }
    }

    fn walk(&mut self, mappings: &Mappings, batch: &Batch, walks: Walks, mut reads: Reads<'_>) {
        for index in each(walks.requests) {
            let located = batch.located(index);
            let target = Target::of(mappings, batch, index, walks.partial);
            match target {
                None => {
                    let level = mappings.nodes.level_of(located.entry);
                    self.walk_guest(mappings, Found { id: located.entry, level }, &mut reads);
                }
                Some(target) => self.walk_into(mappings, target, &mut reads),
            }
            // The TLB's entry of the region has the frame of the host.
            if target.is_some_and(|target| target.region_hit && !target.is_hole()) {
                continue;
            }
            let page = Vpn(located.number << self.orders[(located.kind >> 2) % MAX_LEVELS]);
            let frame = mappings.frame_of(located.head, page);
            if !self.translate(mappings, frame, &mut reads) {
                self.reached.unbacked.push(frame);
            }
        }
    }

    fn walk_absent(&mut self, mappings: &Mappings, page: SpacePage, partial: PartialHits, mut reads: Reads<'_>) {
        match Target::absent(mappings, page, partial) {
            None => {
                let found = mappings.find(page.space, page.page, 1).expect("the root exists");
                self.walk_guest(mappings, found, &mut reads);
            }
            Some(target) => self.walk_into(mappings, target, &mut reads),
        }
    }

    fn drop_pointer(&mut self, pointer: Pointer) {
        self.guest.drop_pointer(pointer);
    }

    fn caches(&mut self) -> Option<&mut WalkCaches> {
        Some(&mut self.guest.caches)
    }

    fn flush(&mut self) {
        self.guest.flush();
    }

    /// Checks the caches against what guest and host have mapped.
    fn validate(&self, mappings: &Mappings) -> Result<(), String> {
        self.guest.validate(mappings)?;
        let tables = mappings.backing.as_ref().map_or(&*self.tables, |backing| &backing.tables);
        tables.validate().map_err(|error| format!("the host's tables: {error}"))?;
        self.host.validate(tables).map_err(|error| format!("the host's walker: {error}"))?;
        let Some(cache) = &self.nested_tlb else { return Ok(()) };
        cache.validate()?;
        let maps = |id: u32| {
            let pte = tables.ptes[id as usize];
            pte.is_leaf() && Mappings::head(id, pte) == id
        };
        match cache.entries().into_iter().find(|entry| !maps(entry.key)) {
            Some(Entry { key, .. }) => {
                Err(format!("the nested TLB holds entry {key} of the host, which is no mapping"))
            }
            None => Ok(()),
        }
    }
}

impl Nested {
    /// Reads the guest's entries down to this one, each after its table's address is translated.
    fn walk_guest(&mut self, mappings: &Mappings, found: Found, reads: &mut Reads<'_>) {
        let path = self.guest.path(mappings, found, &mut reads.counters.walk_cache_hits);
        for (step, id) in path.top_down().enumerate() {
            // A walk cache has the address of the first table translated.
            let table = TABLES + u64::from(id >> mappings.nodes.bits());
            self.read(mappings, id, (step > 0 || !path.cached).then_some(table), reads);
        }
    }

    /// Walks to a page of a perforated page, or to its absent entry.
    fn walk_into(&mut self, mappings: &Mappings, target: Target<'_>, reads: &mut Reads<'_>) {
        let (above, bits) = (target.above(mappings), mappings.nodes.bits());
        if !target.region_hit {
            self.walk_guest(mappings, Found { id: above, level: 2 }, reads);
        }
        let [bitmap, shadow, own] = target.further(mappings, &mut self.guest, reads.counters);
        if let Some(id) = bitmap {
            self.read(mappings, id, Some(BITMAP_PAGES + (target.frame() >> self.bitmap_order)), reads);
        }
        if let Some(id) = shadow {
            self.read(mappings, id, Some(SHADOW_TABLES + u64::from(above >> bits)), reads);
        }
        if let Some(id) = own {
            // A walk cache that has the shadow entry has the address of the table translated.
            self.read(mappings, id, shadow.map(|_| TABLES + u64::from(id >> bits)), reads);
        }
    }

    /// Reads an entry, after the guest's frame that has it is translated, if it is not yet.
    fn read(&mut self, mappings: &Mappings, id: u32, frame: Option<u64>, reads: &mut Reads<'_>) {
        if let Some(frame) = frame {
            self.translate(mappings, frame, reads);
        }
        reads.lines.want(0, id);
        reads.lines.read(1, reads.counters);
    }

    /// Translates a frame of the guest: by the nested TLB, or by a walk of the host's tables.
    /// Returns whether the host maps it.
    fn translate(&mut self, mappings: &Mappings, frame: u64, reads: &mut Reads<'_>) -> bool {
        let at = Vpn(frame);
        let is_mapped = |tables: &Mappings, found: &Found| tables.ptes[found.id as usize].is_leaf();
        let found = match &mappings.backing {
            Some(backing) => backing.tables.find(0, at, 1),
            None => {
                let found = self.tables.find(0, at, 1).filter(|found| is_mapped(&self.tables, found));
                found.or_else(|| self.back(at))
            }
        };
        let tables = mappings.backing.as_ref().map_or(&*self.tables, |backing| &backing.tables);
        let Some(found) = found else { return false };
        let pte = tables.ptes[found.id as usize];
        if pte.is_leaf() {
            let head = Mappings::head(found.id, pte);
            let pte = tables.ptes[head as usize];
            // Guests write to pages and tables that their walks reach, as far as a host knows.
            if pte.used_by(Access::Write as u64) != pte && self.reached.used.last() != Some(&head) {
                self.reached.used.push(head);
            }
            if let Some(cache) = &mut self.nested_tlb
                && cache.access_one(EntryId { number: 0, key: head }).0
            {
                return true;
            }
        }
        let path = self.host.path(tables, found, &mut reads.counters.host_walk_cache_hits);
        path.top_down().enumerate().for_each(|(at, id)| reads.lines.want(at, HOST | id));
        reads.lines.read(path.len, reads.counters);
        pte.is_leaf()
    }

    /// Empties the host's walk caches and the nested TLB.
    pub(crate) fn flush_host(&mut self) {
        self.host.flush();
        if let Some(cache) = &mut self.nested_tlb {
            cache.flush();
        }
    }

    /// Takes what walks have found since the last call.
    pub(crate) fn reached(&mut self) -> Reached {
        std::mem::take(&mut self.reached)
    }

    /// Maps the page of the host that this frame is in; returns where that is.
    #[cold]
    fn back(&mut self, at: Vpn) -> Option<Found> {
        let first = at.0 >> self.order << self.order;
        let to = Mapped { frame: Pfn(first), size: self.backs_by, protection: Protection::ALL };
        self.tables.enter(0, Vpn(first), to, Access::Write);
        self.tables.find(0, at, 1)
    }
}

impl Machine {
    /// The machine whose page tables and walk caches are the host's.
    fn as_host(&self, host: &Host) -> Machine {
        let mut machine = self.clone();
        machine.page_table.bits = host.page_table_bits.clone();
        machine.walk_cache = host.walk_cache.clone();
        machine
    }
}
