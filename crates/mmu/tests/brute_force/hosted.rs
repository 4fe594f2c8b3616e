//! Guests whose host has a memory manager: whatever that maps, promotes, demotes and unmaps
//! meanwhile, both models agree.

use crate::Pair;
use crate::machines::nested;
use crate::naive::Mapping;
use proptest::prelude::*;
use superpage_mmu::Machine;
use superpage_pages::{Access, Mapped, PageSize, Pfn, Protection, Used, Vpn};

/// The machines of two-dimensional walks, each with such a host: with pages of several entries,
/// many sizes, all caches and none.
fn machines() -> Vec<Machine> {
    let mut machines = nested();
    machines.push(Machine::builtin("zen5+tailored+nested").unwrap());
    for machine in &mut machines {
        machine.name.push_str(" managed");
        machine.host.as_mut().unwrap().managed = true;
    }
    machines
}

impl Pair {
    fn is_managed(&self) -> bool {
        self.machine.host.as_ref().is_some_and(|host| host.managed)
    }

    /// The host backs what the guest has touched, by pages of any sizes. Of much it leaves some
    /// out, which accesses find then.
    pub(crate) fn back(&mut self) {
        if !self.is_managed() {
            return;
        }
        let mut touched = self.mmu.only().take_touched();
        let tables = self.mmu.only().guest_tables();
        assert_eq!(tables.pages, self.naive.ever);
        touched.push(tables);
        for range in touched {
            let (mut at, end) = (range.start.0, range.start.0 + range.pages);
            while at < end {
                at = match self.naive.tables().mapping(0, at) {
                    Some((first, mapping)) => first + self.pages(mapping.size),
                    None => self.back_around(at, end - at),
                }
            }
        }
    }

    /// Backs this frame, or as much around it as one page has; returns the frame after it.
    fn back_around(&mut self, at: u64, wanted: u64) -> u64 {
        let is_free = |pair: &mut Pair, first: u64, pages: u64| {
            let tables = pair.naive.tables();
            tables.mapping(0, first).is_none() && tables.mappings.range((0, first)..(0, first + pages)).next().is_none()
        };
        let least = if wanted > 512 { 512 } else { 1 };
        let sizes: Vec<PageSize> =
            self.machine.pages.sizes.iter().copied().filter(|size| self.pages(*size) >= least).collect();
        let mut size = sizes[self.random(sizes.len() as u64) as usize];
        let mut first = at / self.pages(size) * self.pages(size);
        if !is_free(self, first, self.pages(size)) {
            (size, first) = (sizes[0], at / self.pages(sizes[0]) * self.pages(sizes[0]));
        }
        if is_free(self, first, self.pages(size)) {
            let to = Mapped { frame: Pfn(first), size, protection: Protection::ALL };
            self.naive.host_enter(first, to);
            self.mmu.only().host_enter(Vpn(first), to, Access::Write);
        }
        first + self.pages(size)
    }

    /// Any mapping of the host.
    fn any_of_host(&mut self) -> Option<(u64, Mapping)> {
        let count = self.naive.tables().mappings.len() as u64;
        let nth = self.random(count.max(1)) as usize;
        self.naive.tables().mappings.iter().nth(nth).map(|((_, at), mapping)| (*at, *mapping))
    }

    fn step_of_host(&mut self, choice: u8) {
        let Some((at, mapping)) = self.any_of_host() else { return };
        let (sizes, size) = (self.machine.pages.sizes.clone(), mapping.size);
        match choice {
            0..4 => {
                let larger: Vec<PageSize> = sizes.into_iter().filter(|to| *to > size).collect();
                let Some(to) = larger.first().copied().filter(|to| self.pages(*to) / self.pages(size) <= 512) else {
                    return;
                };
                let at = at / self.pages(to) * self.pages(to);
                let parts = (at..at + self.pages(to)).step_by(self.pages(size) as usize);
                for part in parts {
                    // Fills the region first, where the host has nothing.
                    let (pages, tables) = (self.pages(size), self.naive.tables());
                    match tables.mapping(0, part) {
                        Some((_, other)) if other.size == size => (),
                        None if tables.mappings.range((0, part)..(0, part + pages)).next().is_none() => {
                            let to = Mapped { frame: Pfn(part), size, protection: Protection::ALL };
                            self.naive.host_enter(part, to);
                            self.mmu.only().host_enter(Vpn(part), to, Access::Write);
                        }
                        _ => return,
                    }
                }
                self.naive.host_promote(at, size, to);
                self.mmu.only().host_promote(Vpn(at), size, to);
            }
            4..6 => {
                let smaller: Vec<PageSize> =
                    sizes.into_iter().filter(|to| *to < size && self.pages(size) / self.pages(*to) <= 512).collect();
                if smaller.is_empty() {
                    return;
                }
                let to = smaller[self.random(smaller.len() as u64) as usize];
                self.naive.host_demote(at, size, to);
                self.mmu.only().host_demote(Vpn(at), size, to);
            }
            6 => {
                let expected = self.naive.host_remove(at);
                let used = Used { referenced: expected.referenced, modified: expected.dirty };
                assert_eq!(self.mmu.only().host_remove(Vpn(at), size), used);
            }
            _ => {
                let used = Used { referenced: mapping.referenced, modified: mapping.dirty };
                let mmu = self.mmu.only();
                assert_eq!(mmu.host_used(Vpn(at), size), used);
                assert_eq!(mmu.host_clear_referenced(Vpn(at), size), self.naive.host_clear(at, false));
                assert_eq!(mmu.host_clear_modified(Vpn(at), size), self.naive.host_clear(at, true));
            }
        }
    }
}

/// Runs these steps of the guest, with steps of the host in between.
fn check(machine: &Machine, seed: u64, steps: &[(u8, u8)]) -> Pair {
    let mut pair = Pair::new(std::slice::from_ref(machine), seed);
    for (guest, host) in steps {
        pair.step(*guest);
        pair.compare();
        pair.back();
        if *host < 8 {
            pair.step_of_host(*host);
            pair.compare();
        }
        let shootdowns = pair.naive.host.as_ref().unwrap().shootdowns;
        assert_eq!(pair.mmu.only().host_counters().shootdowns, shootdowns);
    }
    pair
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn counts_are_those_of_the_naive_model_while_the_host_changes(
        which in 0..machines().len(),
        seed: u64,
        steps in prop::collection::vec((0u8..20, 0u8..12), 1..60),
    ) {
        check(&machines()[which], seed, &steps);
    }
}

#[test]
fn each_machine_agrees_for_long() {
    for (number, machine) in machines().iter().enumerate() {
        println!("{}", machine.name);
        let mut steps = vec![(11, 11), (11, 11), (8, 11), (9, 2), (0, 0), (0, 4), (12, 11), (13, 11), (0, 1)];
        let mut state = number as u64 + 1;
        for _ in 0..90 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            steps.push(((state >> 33) as u8 % 20, (state >> 45) as u8 % 12));
        }
        let mut pair = check(machine, 42, &steps);
        let (counters, host) = (pair.mmu.counters(), pair.mmu.only().host_counters());
        assert!(counters.tlb_misses() > 1000 && counters.level_hits(0) > 1000, "{counters:?}");
        assert!(host.shootdowns > 10 && host.pte_traversals > 100, "{host:?}");
    }
}
