//! The range TLB once more: a list of stretches of pages, found page by page in what is mapped.

use crate::check;
use crate::joins::Mapped;
use crate::machines::ranged;
use crate::reach::SIBLING;
use proptest::prelude::*;
use superpage_mmu::Machine;

#[derive(Debug)]
pub(crate) struct Ranges {
    most: usize,
    /// Space, first page and last one; the one used longest ago first.
    held: Vec<(u32, u64, u64)>,
}

impl Ranges {
    /// That of a machine, if it has one.
    pub(crate) fn new(machine: &Machine) -> Option<Ranges> {
        machine.range_tlb.as_ref().map(|ranges| Ranges { most: ranges.entries, held: Vec::new() })
    }

    pub(crate) fn hit(&mut self, space: u32, page: u64) -> bool {
        let has = |held: &(u32, u64, u64)| held.0 == space && held.1 <= page && page <= held.2;
        assert!(self.held.iter().filter(|held| has(held)).count() < 2, "two entries have the page");
        let Some(at) = self.held.iter().position(has) else { return false };
        let used = self.held.remove(at);
        self.held.push(used);
        true
    }

    /// Loads the longest range with this page, if it has two pages; `pages` tells how many a
    /// mapping has.
    pub(crate) fn fill(&mut self, mapped: &Mapped, space: u32, page: u64, pages: impl Fn(u64) -> u64) {
        let at = |page: u64| {
            let (key, mapping) = mapped.range(..=(space % SIBLING, page)).next_back()?;
            let there = key.0 == space % SIBLING && page < key.1 + pages(key.1);
            there.then_some((key.1, mapping.frame.wrapping_sub(key.1), mapping.protection))
        };
        let asked = at(page).unwrap();
        let alike = |page: u64| at(page).filter(|other| (other.1, other.2) == (asked.1, asked.2));
        let (mut first, mut last) = (page, page);
        while let Some((start, ..)) = alike(first) {
            if start == 0 {
                first = 0;
                break;
            }
            first = start - 1;
        }
        first = if alike(first).is_some() { first } else { first + 1 };
        while let Some((start, ..)) = alike(last) {
            last = start + pages(start);
        }
        last -= 1;
        if first < last {
            self.forget(space, first, last - first + 1);
            if self.held.len() == self.most {
                self.held.remove(0);
            }
            self.held.push((space, first, last));
        }
    }

    /// Drops what has any of these pages; returns how many.
    pub(crate) fn forget(&mut self, space: u32, first: u64, pages: u64) -> u64 {
        let before = self.held.len();
        self.held.retain(|held| held.0 != space || held.2 < first || first + pages <= held.1);
        (before - self.held.len()) as u64
    }

    /// Whether one has any of these pages.
    pub(crate) fn meet(&self, space: u32, from: u64, to: u64) -> bool {
        self.held.iter().any(|held| held.0 == space && held.1 < to && from <= held.2)
    }

    pub(crate) fn flush(&mut self, sibling: u32) {
        self.held.retain(|held| held.0 / SIBLING != sibling);
    }

    pub(crate) fn len(&self) -> u64 {
        self.held.len() as u64
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Machines with a range TLB, alone and with one that has none.
    #[test]
    fn ranges_are_those_of_the_naive_model(
        which in 0..ranged().len(),
        together: bool,
        seed: u64,
        steps in prop::collection::vec(0u8..20, 1..120),
    ) {
        let mut machines = vec![ranged().remove(which)];
        if together && machines[0].shares_mappings(&machines[0]) {
            let mut other = machines[0].clone();
            other.range_tlb = None;
            machines.push(other);
        }
        check(&machines, seed, &steps);
    }
}
