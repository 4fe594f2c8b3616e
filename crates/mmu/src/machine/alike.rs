//! Machines that differ in what things cost, and in nothing that is counted.

use super::Machine;

impl Machine {
    /// Whether all counts are the same on both, whatever runs: they differ in names, sources and costs at most.
    pub(crate) fn counts_like(&self, other: &Machine) -> bool {
        let mut with_our_costs = other.clone();
        with_our_costs.take_costs(self);
        with_our_costs == *self
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
