//! The cores of a machine, or of each of several: every core has TLBs, walk caches and line caches
//! of its own, and all have one set of mappings. A line cache that several cores share is with the
//! one of them that ran last: it is moved to the next one.
//!
//! A core may run several *hardware threads*, also known as siblings, which share all that it has.
//! An entry of a TLB or a walk cache is of the hardware thread that loaded it: operating systems
//! number address spaces for each by itself, so that a number may name two spaces, and processors
//! tag entries by hardware thread (Marr et al., Hyper-Threading Technology Architecture and
//! Microarchitecture, Intel Technology Journal 6 (1), 2002; AMD, Zen, Hot Chips 2016). So siblings
//! compete for the ways, and neither hits what the other loaded.
//!
//! One core at a time takes requests ([`Mmu::go_to`]). A change of a mapping is announced to all.
//! Those that run its space at that time are interrupted, except the one that makes the change. One
//! that has run it before, and now runs another, is not: it drops what it holds of the space when
//! it comes back to it, if mappings have changed meanwhile, as Linux does by numbers and
//! generations of spaces (arch/x86/mm/tlb.c, `switch_mm_irqs_off`). What has changed leaves its
//! TLBs at once, as nothing reads it before, and all the rest then, with its walk caches.

use crate::machine::{Machine, TableKind};
use crate::mappings::Mappings;
use crate::mmu::Mmu;
use crate::tlb::first::FirstLevel;
use std::collections::BTreeMap;
use std::ops::Range;

/// Which core takes requests, and what each runs.
#[derive(Clone, Debug)]
pub(crate) struct Cores {
    /// The first levels of a core that has done nothing, if there can be several.
    fresh: Vec<FirstLevel>,
    /// By how many cores line caches are shared: each number above 1 that occurs.
    shares: Vec<u32>,
    /// For each such number, and each group of so many cores, the core that has what they share.
    holders: BTreeMap<(u32, usize), usize>,
    /// The first levels of one core; those of a core are side by side.
    first_levels: usize,
    current: usize,
    /// The hardware threads of each core, those of a core side by side below, and the current one.
    siblings: usize,
    sibling: usize,
    /// The space that each hardware thread runs.
    spaces: Vec<u32>,
    /// How often mappings of each space have changed.
    changes: Vec<u64>,
    /// The changes of each space when each hardware thread left it; `NEVER` if it has not.
    seen: Vec<Vec<u64>>,
}

/// No number of changes.
const NEVER: u64 = u64::MAX;

/// The number of no space: of a core that runs nothing yet, or whose space has ended.
const NO_SPACE: u32 = u32::MAX;

impl Cores {
    /// One core with so many first levels, which runs space 0.
    pub(crate) fn new(first_levels: usize) -> Cores {
        Cores {
            fresh: Vec::new(),
            shares: Vec::new(),
            holders: BTreeMap::new(),
            first_levels,
            current: 0,
            siblings: 1,
            sibling: 0,
            spaces: vec![0],
            changes: Vec::new(),
            seen: vec![Vec::new()],
        }
    }

    /// Adds a core, which runs nothing; returns its first levels.
    fn add(&mut self) -> Vec<FirstLevel> {
        assert!(!self.fresh.is_empty(), "a machine with one core");
        self.make_room(self.spaces.len() + self.siblings);
        self.fresh.clone()
    }

    /// For so many hardware threads, of which new ones run nothing.
    fn make_room(&mut self, threads: usize) {
        self.spaces.resize(threads, NO_SPACE);
        self.seen.resize(threads, Vec::new());
    }

    /// The current hardware thread, of all.
    fn thread(&self) -> usize {
        self.current * self.siblings + self.sibling
    }

    /// Where the first levels of the current core are in the list of all.
    #[inline(always)]
    pub(crate) fn here(&self) -> Range<usize> {
        let first = self.current * self.first_levels;
        first..first + self.first_levels
    }

    /// Where this first level of each core is.
    pub(crate) fn each(&self, first_level: usize) -> impl Iterator<Item = usize> + use<> {
        let step = self.first_levels;
        (0..self.spaces.len() / self.siblings).map(move |core| core * step + first_level)
    }

    /// Mappings of a space change: returns how many other hardware threads run it, each of which is
    /// interrupted, as each is a processor to the operating system.
    pub(crate) fn change(&mut self, space: u32) -> u64 {
        if self.fresh.is_empty() {
            return 0;
        }
        *of_space(&mut self.changes, space, 0) += 1;
        let here = self.thread();
        self.spaces.iter().enumerate().filter(|(thread, runs)| *thread != here && **runs == space).count() as u64
    }

    /// All threads of a space end but the one that runs here.
    pub(crate) fn leave_alone(&mut self, space: u32) {
        let here = self.thread();
        let others = self.spaces.iter_mut().enumerate().filter(|(thread, _)| *thread != here);
        others.filter(|(_, runs)| **runs == space).for_each(|(_, runs)| *runs = NO_SPACE);
    }

    /// A space has ended, and its number may be another's next; returns what the current hardware
    /// thread runs.
    fn end(&mut self, space: u32) -> u32 {
        self.spaces.iter_mut().filter(|runs| **runs == space).for_each(|runs| *runs = NO_SPACE);
        let of_space = self.seen.iter_mut().filter_map(|seen| seen.get_mut(space as usize));
        of_space.for_each(|seen| *seen = NEVER);
        self.changes.get_mut(space as usize).into_iter().for_each(|changes| *changes = 0);
        self.spaces[self.thread()]
    }

    /// The current hardware thread goes to another space; returns whether mappings of that have
    /// changed since it left it.
    pub(crate) fn switch(&mut self, space: u32) -> bool {
        let thread = self.thread();
        let left = std::mem::replace(&mut self.spaces[thread], space);
        if self.fresh.is_empty() {
            return false;
        }
        let seen = &mut self.seen[thread];
        if left != NO_SPACE {
            *of_space(seen, left, NEVER) = *of_space(&mut self.changes, left, 0);
        }
        let before = *of_space(seen, space, NEVER);
        before != NEVER && before != *of_space(&mut self.changes, space, 0)
    }
}

/// The number of a space in a list that grows with them, at first `first`.
fn of_space(numbers: &mut Vec<u64>, space: u32, first: u64) -> &mut u64 {
    let at = space as usize;
    if numbers.len() <= at {
        numbers.resize(at + 1, first);
    }
    &mut numbers[at]
}

impl Mmu {
    /// As [`Mmu::of`], with any number of cores that take turns ([`Mmu::go_to`]). Counts of a
    /// machine are those of all cores together, entries that are held those of the current one. The
    /// machines have the same number of hardware threads a core.
    ///
    /// # Panics
    /// As [`Mmu::of`], [`Mmu::refuses_cores`] refuses a machine, or they differ in
    /// [`Clock::threads_per_core`](crate::machine::Clock::threads_per_core).
    pub fn on_cores(machines: &[&Machine]) -> Mmu {
        let refused = machines.iter().find_map(|machine| Mmu::refuses_cores(machine));
        assert_eq!(refused, None, "several cores");
        let mut mmu = Mmu::of(machines);
        let threads = machines[0].clock.threads_per_core;
        assert!(machines.iter().all(|machine| machine.clock.threads_per_core == threads), "hardware threads a core");
        if threads > 1 {
            mmu.first_levels.get_mut().iter_mut().for_each(|first_level| first_level.share(threads));
            mmu.cores.siblings = threads as usize;
            mmu.cores.make_room(threads as usize);
        }
        mmu.cores.fresh = mmu.first_levels.get_mut().clone();
        let shares = machines.iter().flat_map(|machine| &machine.line_cache).map(|cache| cache.shared_by);
        mmu.cores.shares = shares.filter(|cores| *cores > 1).collect();
        mmu.cores.shares.sort_unstable();
        mmu.cores.shares.dedup();
        mmu.cores.holders = mmu.cores.shares.iter().map(|cores| ((*cores, 0), 0)).collect();
        mmu
    }

    /// Why a machine cannot have several cores, if it cannot.
    pub fn refuses_cores(machine: &Machine) -> Option<&'static str> {
        if machine.page_table.kind == TableKind::Groups {
            Some("software refills its TLBs from a hash table, which is modelled for one core")
        } else if machine.has_managed_host() {
            Some("a memory manager of the host maps its memory, which is modelled for one core")
        } else if machine.shadow.is_some() {
            Some("its shadow superpages are modelled for one core")
        } else if machine.compared_use_bits() != 0 {
            Some("its TLBs join pages by their use bits, which is modelled for one core")
        } else {
            None
        }
    }

    /// What follows happens on this core, in its hardware thread with this number: requests,
    /// switches of spaces, and changes of mappings, which interrupt others. A new core runs no
    /// space: switch to one. Panics if there is one core alone, or it has no such hardware thread.
    pub fn go_to(&mut self, core: usize, sibling: usize) {
        assert!(sibling < self.cores.siblings, "a core has {} hardware threads", self.cores.siblings);
        while core * self.cores.siblings >= self.cores.spaces.len() {
            let mut added = self.cores.add();
            let first_levels = self.first_levels.get_mut();
            added.iter_mut().for_each(|first_level| first_level.defers = first_levels[0].defers);
            first_levels.append(&mut added);
        }
        if (core, sibling) != (self.cores.current, self.cores.sibling) {
            if core != self.cores.current && !self.cores.shares.is_empty() {
                self.catch_up();
                self.move_shared(core);
            }
            (self.cores.current, self.cores.sibling) = (core, sibling);
            let (first_levels, mappings, _) = self.here();
            first_levels.iter_mut().for_each(|first_level| first_level.go_to(mappings, sibling as u32));
            let space = self.cores.spaces[self.cores.thread()];
            if space != self.space {
                self.space = space;
                self.mappings.clear_index_cache();
            }
        }
    }

    /// A space has ended.
    pub(crate) fn end_on_cores(&mut self, space: u32) {
        if !self.cores.fresh.is_empty() {
            self.space = self.cores.end(space);
        }
    }

    /// Moves what a core shares with others to it.
    fn move_shared(&mut self, core: usize) {
        let Cores { shares, holders, first_levels, .. } = &mut self.cores;
        let of_core = |core: usize| core * *first_levels..(core + 1) * *first_levels;
        for cores in shares {
            let holder = holders.insert((*cores, core / *cores as usize), core);
            let Some(holder) = holder.filter(|holder| *holder != core) else { continue };
            let pair = self.first_levels.get_mut().get_disjoint_mut([of_core(holder), of_core(core)]);
            let [from, to] = pair.expect("two cores");
            for (from, to) in from.iter_mut().zip(to) {
                from.walkers().zip(to.walkers()).for_each(|(from, to)| from.swap_shared(to, *cores));
            }
        }
    }

    /// The first levels of the current core, the mappings, and its space.
    #[inline(always)]
    pub(crate) fn here(&mut self) -> (&mut [FirstLevel], &mut Mappings, u32) {
        let here = self.cores.here();
        (&mut self.first_levels.get_mut()[here], &mut self.mappings, self.space)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_that_run_a_space_are_interrupted_and_others_notice_when_they_come_back() {
        let mut mmu = Mmu::on_cores(&[&Machine::builtin("zen5").unwrap()]);
        for core in [0, 1, 2] {
            mmu.go_to(core, 0);
            mmu.switch(0);
        }
        let cores = &mut mmu.cores;
        assert_eq!((cores.change(0), cores.change(1)), (2, 0));
        assert!(!cores.switch(1), "a core that was never there holds nothing");
        assert_eq!((cores.change(0), cores.change(1)), (2, 0));
        assert!(cores.switch(0), "space 0 has changed");
        assert!(!cores.switch(1), "nothing of space 1 has changed but by itself");
        assert_eq!((cores.here(), cores.each(0).collect::<Vec<_>>()), (2..3, vec![0, 1, 2]));
    }

    #[test]
    fn one_core_notices_nothing() {
        let mut cores = Cores::new(1);
        assert_eq!(cores.change(0), 0);
        assert!(!cores.switch(5) && !cores.switch(0));
        assert_eq!(cores.changes, [], "and keeps nothing");
    }
}
