//! Machines that run the same, together and each alone: whatever happens, both have the same
//! results, counts and TLBs.

use superpage_mmu::{Counters, Held, Machine, Mmu, Request, Trap};
use superpage_pages::{Access, Mapped, PageSize, Protection, Used, Vpn};

/// One [`Mmu`] of several machines, whose requests may wait across traps, and one of each, whose
/// requests do not. If there is one machine, it alone.
pub(crate) struct Together {
    all: Mmu,
    alone: Vec<Mmu>,
}

/// Does the same to all, and compares what they return.
macro_rules! both {
    ($self:expr, $mmu:ident => $call:expr) => {{
        let Together { all, alone } = &mut *$self;
        let result = {
            let $mmu = all;
            $call
        };
        for (number, $mmu) in alone.iter_mut().enumerate() {
            assert_eq!(result, $call, "alone, machine {number}");
        }
        result
    }};
}

impl Together {
    pub(crate) fn new(machines: &[Machine]) -> Together {
        let mut all = Mmu::of(&machines.iter().collect::<Vec<_>>());
        all.defer();
        let alone = if machines.len() > 1 { machines.iter().map(Mmu::new).collect() } else { Vec::new() };
        Together { all, alone }
    }

    pub(crate) fn enter(&mut self, space: u32, at: Vpn, to: Mapped, access: Access) {
        both!(self, mmu => mmu.enter(space, at, to, access));
    }

    pub(crate) fn enter_untouched(&mut self, space: u32, at: Vpn, to: Mapped) {
        both!(self, mmu => mmu.enter_untouched(space, at, to));
    }

    pub(crate) fn remove(&mut self, space: u32, at: Vpn, size: PageSize) -> Used {
        both!(self, mmu => mmu.remove(space, at, size))
    }

    pub(crate) fn protect(&mut self, space: u32, at: Vpn, size: PageSize, protection: Protection) {
        both!(self, mmu => mmu.protect(space, at, size, protection));
    }

    pub(crate) fn promote(&mut self, space: u32, at: Vpn, from: PageSize, to: PageSize) {
        both!(self, mmu => mmu.promote(space, at, from, to));
    }

    pub(crate) fn demote(&mut self, space: u32, at: Vpn, from: PageSize, to: PageSize) {
        both!(self, mmu => mmu.demote(space, at, from, to));
    }

    pub(crate) fn used(&mut self, space: u32, at: Vpn, size: PageSize) -> Used {
        both!(self, mmu => mmu.used(space, at, size))
    }

    pub(crate) fn clear_referenced(&mut self, space: u32, at: Vpn, size: PageSize) -> bool {
        both!(self, mmu => mmu.clear_referenced(space, at, size))
    }

    pub(crate) fn clear_modified(&mut self, space: u32, at: Vpn, size: PageSize) -> bool {
        both!(self, mmu => mmu.clear_modified(space, at, size))
    }

    pub(crate) fn switch(&mut self, space: u32) {
        both!(self, mmu => mmu.switch(space));
    }

    pub(crate) fn flush(&mut self, space: u32) {
        both!(self, mmu => mmu.flush(space));
    }

    pub(crate) fn destroy(&mut self, space: u32) {
        both!(self, mmu => mmu.destroy(space));
    }

    pub(crate) fn run(&mut self, requests: &[Request]) -> Option<(usize, Trap)> {
        both!(self, mmu => mmu.run(requests))
    }

    pub(crate) fn retry(&mut self, request: Request) -> Result<(), Trap> {
        both!(self, mmu => mmu.retry(request))
    }

    pub(crate) fn lookup(&mut self, space: u32, at: Vpn) -> Option<Mapped> {
        both!(self, mmu => mmu.lookup(space, at))
    }

    /// The one machine.
    pub(crate) fn only(&mut self) -> &mut Mmu {
        assert!(self.alone.is_empty());
        &mut self.all
    }

    pub(crate) fn counters(&self) -> Counters {
        self.all.counters(0)
    }

    pub(crate) fn held_around(&self, page: Vpn) -> Option<u32> {
        self.all.held_around(0, page)
    }

    pub(crate) fn ranges_held(&self) -> u64 {
        self.all.ranges_held(0)
    }

    pub(crate) fn peak_page_table_bytes(&self) -> u64 {
        self.all.peak_page_table_bytes()
    }

    pub(crate) fn restart_page_table_peak(&mut self) {
        both!(self, mmu => mmu.restart_page_table_peak());
    }

    pub(crate) fn held(&self) -> Vec<Held> {
        self.all.held(0)
    }

    /// Checks all, and that each has the counts and the entries that it has alone.
    pub(crate) fn validate(&self) -> Result<(), String> {
        for (number, alone) in self.alone.iter().enumerate() {
            assert_eq!(self.all.counters(number), alone.counters(0), "machine {number}");
            assert_eq!(self.all.faulting(number), alone.faulting(0), "machine {number}");
            assert_eq!(self.all.held(number), alone.held(0), "machine {number}");
            assert_eq!(self.all.peak_page_table_bytes(), alone.peak_page_table_bytes(), "machine {number}");
        }
        self.all.validate()
    }
}
