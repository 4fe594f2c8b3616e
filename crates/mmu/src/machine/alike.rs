//! Machines that are alike but for something known not to matter: that is taken out, and all the
//! rest compared, so that a key which is added and forgotten here keeps machines apart.

use super::TableKind;
use super::{Machine, Shadow};

impl Machine {
    /// Whether all counts are the same on both, whatever runs: they differ in names, sources and
    /// costs at most.
    pub(crate) fn counts_like(&self, other: &Machine) -> bool {
        let mut with_our_costs = other.clone();
        with_our_costs.take_costs(self);
        with_our_costs == *self
    }

    /// Whether the same kernel maps the same in page tables of this machine and of another, and one
    /// look-up of a request serves both: they have pages of the same sizes, tables of the same
    /// format, and no TLB whose entries depend on use bits, which the look-up sets, or host with a
    /// memory manager, whose use bits their walks set. Otherwise TLBs, walkers and costs may
    /// differ.
    pub fn shares_mappings(&self, other: &Machine) -> bool {
        let looks = |machine: &Machine| machine.compared_use_bits() != 0 || machine.has_managed_host();
        let mut with_ours = other.clone();
        with_ours.take_costs(self);
        with_ours.take_translation(self);
        with_ours == *self && !looks(self) && !looks(other)
    }

    /// Whether requests may be served after new mappings are made
    /// ([`Mmu::defer`](crate::Mmu::defer)). Perforated pages and hosts have table formats of their
    /// own. What is named without being looked at is known not to matter, and a key that is added
    /// must be named.
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

    /// With what translates on a machine: of pages the sizes stay, of page tables their format, and
    /// what perforated pages, clusters and shadow superpages change of mappings. How much memory
    /// there is a kernel is told.
    fn take_translation(&mut self, of: &Machine) {
        let of = of.clone();
        let line_bytes = self.memory.line_bytes;
        (self.spaces, self.memory, self.host, self.groups) = (of.spaces, of.memory, of.host, of.groups);
        (self.tlb, self.range_tlb, self.walk_cache) = (of.tlb, of.range_tlb, of.walk_cache);
        (self.line_cache, self.instruction_cache) = (of.line_cache, of.instruction_cache);
        (self.pages.source, self.pages.assumed) = (of.pages.source, of.pages.assumed);
        let table = &mut self.page_table;
        (table.referenced, table.dirty) = (of.page_table.referenced, of.page_table.dirty);
        (table.source, table.assumed) = (of.page_table.source, of.page_table.assumed);
        if let (Some(ours), Some(of)) = (&mut self.perforated, of.perforated) {
            (ours.source, ours.assumed) = (of.source, of.assumed);
        }
        if let (Some(ours), Some(of)) = (&mut self.clustered, of.clustered) {
            (ours.source, ours.assumed) = (of.source, of.assumed);
        }
        if let (Some(ours), Some(of)) = (&mut self.shadow, of.shadow) {
            *ours = Shadow { size: ours.size, ..of };
            self.memory.line_bytes = line_bytes;
        }
    }

    /// With the names, sources and costs of a machine, part by part.
    fn take_costs(&mut self, of: &Machine) {
        let Machine { name, description, clock, memory, walk, costs, disk, assumed, .. } = of.clone();
        (self.name, self.description, self.assumed) = (name, description, assumed);
        (self.clock, self.walk, self.costs, self.disk) = (clock, walk, costs, disk);
        (self.memory.latency_cycles, self.memory.overlap) = (memory.latency_cycles, memory.overlap);
        (self.memory.source, self.memory.assumed) = (memory.source, memory.assumed);
        for (tlb, of) in self.tlb.iter_mut().zip(&of.tlb) {
            (tlb.hit_cycles, tlb.source, tlb.assumed) = (of.hit_cycles, of.source.clone(), of.assumed.clone());
        }
        let caches = |machine: &Machine| {
            machine.line_cache.iter().chain(&machine.instruction_cache).cloned().collect::<Vec<_>>()
        };
        for (cache, of) in self.line_cache.iter_mut().chain(&mut self.instruction_cache).zip(caches(of)) {
            (cache.hit_cycles, cache.source, cache.assumed) = (of.hit_cycles, of.source.clone(), of.assumed.clone());
        }
    }
}
