//! Perforated pages once more: what one is follows from what is mapped.

use crate::joins::Mapped;
use std::collections::{BTreeMap, BTreeSet};
use superpage_mmu::{Machine, TlbSpec};
use superpage_pages::{PageSize, Protection};

/// A perforated page: its first frame, its rights, and the pages of it that are holes.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Region {
    pub(crate) first: u64,
    pub(crate) frame: u64,
    protection: Protection,
    pub(crate) holes: BTreeSet<u64>,
}

/// The pages of a region, on a machine that has perforated pages.
pub(crate) fn pages(machine: &Machine) -> Option<u64> {
    machine.perforated.as_ref().map(|_| 1 << machine.page_table.bits[0])
}

/// The perforated page that this page is in, if it is in one.
pub(crate) fn region(machine: &Machine, mapped: &Mapped, space: u32, page: u64) -> Option<Region> {
    let n = pages(machine)?;
    let most = n * u64::from(machine.perforated.as_ref()?.most_holes_percent) / 100;
    let first = page / n * n;
    let mut classes: BTreeMap<(u64, u8), BTreeSet<u64>> = BTreeMap::new();
    for ((_, page), mapping) in mapped.range((space, first)..(space, first + n)) {
        if mapping.size == machine.pages.sizes[0] && mapping.frame % n == page % n {
            classes.entry((mapping.frame - page % n, mapping.protection.bits())).or_default().insert(*page);
        }
    }
    let large = classes.into_iter().filter(|(_, pages)| pages.len() as u64 + most >= n);
    let ((frame, rights), those) = large.min_by_key(|(_, pages)| (n - pages.len() as u64, *pages.first().unwrap()))?;
    let holes = (first..first + n).filter(|page| !those.contains(page)).collect();
    Some(Region { first, frame, protection: Protection::from_bits(rights), holes })
}

impl Region {
    fn size(&self, machine: &Machine) -> u64 {
        pages(machine).unwrap()
    }

    /// Whether the filter says that there may be a hole at this page.
    pub(crate) fn may_be_hole(&self, machine: &Machine, page: u64) -> bool {
        let eighth = self.size(machine) / 8;
        self.holes.iter().any(|hole| hole / eighth == page / eighth)
    }

    /// The first page of the fragment of the bitmap that has this page's bit, and the number of its
    /// pages.
    pub(crate) fn fragment(&self, machine: &Machine, page: u64) -> (u64, u64) {
        let pages = self.size(machine) / 16;
        (page / pages * pages, pages)
    }

    /// What of it TLBs must forget now that it is this: all, or the fragments that have changed.
    pub(crate) fn forgotten(&self, machine: &Machine, now: Option<&Region>) -> (bool, BTreeSet<u64>) {
        let fragment = |page: &u64| self.fragment(machine, *page).0;
        match now.filter(|now| (now.frame, now.protection) == (self.frame, self.protection)) {
            Some(now) => (false, self.holes.symmetric_difference(&now.holes).map(fragment).collect()),
            None => (true, (self.first..self.first + self.size(machine)).map(|page| fragment(&page)).collect()),
        }
    }
}

/// Whether a TLB holds perforated pages: not if a host backs them in several pieces.
pub(crate) fn held_by(machine: &Machine, spec: &TlbSpec) -> bool {
    let base = machine.pages.sizes[0];
    if let Some(host) = &machine.host
        && host.backs_by.unwrap_or(base).bytes() / base.bytes() < pages(machine).unwrap_or(0)
    {
        return false;
    }
    let whole = |size: &PageSize| pages(machine) == Some(size.bytes() / base.bytes());
    spec.level > 1 && spec.sizes.contains(&base) && spec.sizes.iter().any(whole)
}
