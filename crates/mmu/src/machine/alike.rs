//! Which machines may share a simulation. Keys that are known not to matter are made equal, and all
//! the rest is compared, so a key that is added and forgotten here keeps machines apart.

use super::TableKind;
use super::{Machine, Shadow};

impl Machine {
    /// Whether all counts are equal on both, whatever runs: they differ in names, sources and costs
    /// at most.
    pub(crate) fn counts_like(&self, other: &Machine) -> bool {
        let mut with_our_costs = other.clone();
        with_our_costs.take_costs(self);
        with_our_costs == *self
    }

    /// Whether a kernel makes equal mappings on both machines, so that one look-up of a request
    /// serves both: they have equal page sizes and table formats, no TLB whose entries depend on
    /// use bits, which the look-up sets, and no host with a memory manager, whose use bits their
    /// walks set. TLBs, walkers and costs may differ.
    pub fn shares_mappings(&self, other: &Machine) -> bool {
        let looks = |machine: &Machine| machine.compared_use_bits() != 0 || machine.has_managed_host();
        let mut with_ours = other.clone();
        with_ours.take_costs(self);
        with_ours.take_translation(self);
        with_ours == *self && !looks(self) && !looks(other)
    }

    /// Whether requests may be served after new mappings are made
    /// ([`Mmu::defer`](crate::Mmu::defer)). Machines with perforated pages or hosts are excluded by
    /// their table formats. Keys that are named but not used are known not to matter; a key that is
    /// added must be named.
    #[rustfmt::skip]
    pub(crate) fn may_defer(&self) -> bool {
        let Machine {
            page_table, tlb, range_tlb, shadow, perforated: _, clustered: _, groups: _, host: _, spaces: _, pages: _, memory: _,
            walk: _, walk_cache: _, line_cache: _, instruction_cache: _, costs: _, clock: _, disk: _, name: _, description: _,
            assumed: _,
        } = self;
        let tables = matches!(page_table.kind, TableKind::Radix | TableKind::Linear);
        let joins = tlb.iter().any(|tlb| tlb.joined(self).is_some());
        tables && !joins && range_tlb.is_none() && shadow.is_none()
    }

    /// Takes from `of` all that translates, except the page sizes, the format of page tables, and
    /// the keys of perforated pages, clusters and shadow superpages that affect mappings. The size
    /// of memory does not matter here: the kernel gets it separately.
    fn take_translation(&mut self, of: &Machine) {
        let of = of.clone();
        let line_bytes = self.memory.line_bytes;
        (self.spaces, self.memory, self.host, self.groups) = (of.spaces, of.memory, of.host, of.groups);
        (self.tlb, self.range_tlb, self.walk_cache) = (of.tlb, of.range_tlb, of.walk_cache);
        (self.line_cache, self.instruction_cache) = (of.line_cache, of.instruction_cache);
        let table = &mut self.page_table;
        (table.referenced, table.dirty) = (of.page_table.referenced, of.page_table.dirty);
        if let (Some(ours), Some(of)) = (&mut self.shadow, of.shadow) {
            *ours = Shadow { size: ours.size, ..of };
            self.memory.line_bytes = line_bytes;
        }
    }

    /// Takes the names and costs from `of`, part by part.
    fn take_costs(&mut self, of: &Machine) {
        let Machine { name, description, clock, memory, walk, costs, disk, assumed, .. } = of.clone();
        (self.name, self.description, self.assumed) = (name, description, assumed);
        (self.clock, self.walk, self.costs, self.disk) = (clock, walk, costs, disk);
        (self.memory.latency_cycles, self.memory.overlap) = (memory.latency_cycles, memory.overlap);
        for (tlb, of) in self.tlb.iter_mut().zip(&of.tlb) {
            tlb.hit_cycles = of.hit_cycles;
        }
        let caches = self.line_cache.iter_mut().chain(&mut self.instruction_cache);
        for (cache, of) in caches.zip(of.line_cache.iter().chain(&of.instruction_cache)) {
            cache.hit_cycles = of.hit_cycles;
        }
    }
}
