//! How much of mapped memory lies in groups of base pages that a TLB could join: aligned, with
//! frames that are contiguous and as aligned, and with the same rights.

use serde::{Deserialize, Serialize};
use superpage_keys::Keys;
use superpage_mmu::Mmu;
use superpage_pages::{Mapped, Vpn};

/// The sizes of the groups: what AMD's processors join (16 KB since Zen 4, 32 KB before).
const GROUPS: [u64; 2] = [16 << 10, 32 << 10];

/// Shares of mapped base pages, in percent, that lie in such a group, all of which is mapped. Pages
/// of superpages do. Each mapping counts, so a page that two processes map counts twice. `None`
/// where nothing of the kind is mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, Keys)]
pub struct ContiguousPercent {
    /// Of the pages of anonymous memory and of private copies, in groups of 16 KB.
    #[key(ratio, "%", column = "16K anon")]
    pub anonymous_16k: Option<f64>,
    /// The same in groups of 32 KB.
    #[key(ratio, "%", column = "32K anon")]
    pub anonymous_32k: Option<f64>,
    /// Of the pages of files, in groups of 16 KB.
    #[key(ratio, "%", column = "16K file")]
    pub file_16k: Option<f64>,
    /// The same in groups of 32 KB.
    #[key(ratio, "%", column = "32K file")]
    pub file_32k: Option<f64>,
}

/// Counts of base pages that are mapped: anonymous ones, and those of files.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Joinable {
    mapped: [u64; 2],
    /// Those in groups, by the size of these.
    grouped: [[u64; 2]; GROUPS.len()],
}

impl Joinable {
    /// Counts in all address spaces; `is_file` is called with a space and a page that is mapped
    /// there.
    /// O(pages mapped).
    pub(crate) fn count(mmu: &Mmu, base_shift: u32, is_file: impl Fn(u32, Vpn) -> bool) -> Joinable {
        let mut counted = Joinable::default();
        for (space, first, mapping) in mmu.mappings() {
            let (pages, kind) = (mapping.size.bytes() >> base_shift, usize::from(is_file(space, first)));
            counted.mapped[kind] += pages;
            for (bytes, grouped) in GROUPS.iter().zip(&mut counted.grouped) {
                let group = (bytes >> base_shift).max(1);
                grouped[kind] +=
                    if pages >= group || is_whole(mmu, space, first.align_down(group), group) { pages } else { 0 };
            }
        }
        counted
    }

    pub(crate) fn percent(&self) -> ContiguousPercent {
        let share = |group: usize, kind: usize| {
            let (part, all) = (self.grouped[group][kind], self.mapped[kind]);
            (all > 0).then(|| 100.0 * part as f64 / all as f64)
        };
        ContiguousPercent {
            anonymous_16k: share(0, 0),
            anonymous_32k: share(1, 0),
            file_16k: share(0, 1),
            file_32k: share(1, 1),
        }
    }
}

/// Whether a TLB could join the group of `pages` pages from `first`.
fn is_whole(mmu: &Mmu, space: u32, first: Vpn, pages: u64) -> bool {
    let page = |offset: u64| mmu.lookup(space, first + offset);
    let Some(Mapped { frame, protection, .. }) = page(0) else { return false };
    let fits = |mapped: Mapped, offset| mapped.frame.0 == frame.0 + offset && mapped.protection == protection;
    frame.0.is_multiple_of(pages) && (1..pages).all(|offset| page(offset).is_some_and(|mapped| fits(mapped, offset)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use superpage_mmu::Machine;
    use superpage_pages::{Access, PageSize, Pfn, Protection, Random};

    /// Base pages and superpages at random places, some of them at places that join, against a
    /// count over a map of base pages.
    #[test]
    fn counts_are_those_of_a_naive_count() {
        let mut random = Random::new(1);
        let mut below = |n: u64| random.next() % n;
        let mut seen = [0; 2];
        for name in ["zen5", "neoverse-v2", "alpha-21264"] {
            let machine = Machine::builtin(name).unwrap();
            let (base, next) = (machine.pages.sizes[0], machine.pages.sizes[1]);
            let large = next.bytes() / base.bytes();
            for _ in 0..20 {
                let mut mmu = Mmu::new(&machine);
                let mut naive: BTreeMap<(u32, u64), (u64, Protection)> = BTreeMap::new();
                let mut enter = |space: u32, page: u64, frame: u64, size: PageSize, protection| {
                    let pages = size.bytes() / base.bytes();
                    if (page..page + pages).any(|page| naive.contains_key(&(space, page))) {
                        return;
                    }
                    mmu.enter(space, Vpn(page), Mapped { frame: Pfn(frame), size, protection }, Access::Read);
                    naive.extend((0..pages).map(|i| ((space, page + i), (frame + i, protection))));
                };
                for _ in 0..below(3) {
                    enter(below(2) as u32, below(2) * large, below(9) * large, next, Protection::READ);
                }
                for _ in 0..300 {
                    let (space, page) = (below(2) as u32, below(2 * large));
                    // Mostly at one distance from their pages, which is often a multiple of a
                    // group.
                    let frame = page + [0, 0, 0, 8, 4, 1][below(6) as usize];
                    let rights = if below(20) == 0 { Protection::READ_WRITE } else { Protection::READ };
                    enter(space, page, frame, base, rights);
                }
                let is_file = |space: u32, page: u64| space == 1 && page / large == 1;
                let mut expected = Joinable::default();
                for (&(space, page), &(frame, rights)) in &naive {
                    let kind = usize::from(is_file(space, page));
                    expected.mapped[kind] += 1;
                    for (index, bytes) in [16384, 32768].into_iter().enumerate() {
                        let group = bytes / base.bytes();
                        let whole = (0..group).all(|place| {
                            let there = naive.get(&(space, page - page % group + place));
                            there == Some(&((frame - frame % group) + place, rights))
                        });
                        expected.grouped[index][kind] += u64::from(whole && frame % group == page % group);
                    }
                }
                let counted = Joinable::count(&mmu, base.shift(), |space, at| is_file(space, at.0));
                assert_eq!(counted, expected, "{name}");
                seen[0] += expected.grouped[1][0];
                seen[1] += expected.mapped[0] - expected.grouped[0][0];
            }
        }
        assert!(seen[0] > 1000 && seen[1] > 1000, "{seen:?}");
    }
}
