//! Which base pages one entry holds, once more: as sets of pages, from the definitions.

use crate::naive::Mapping;
use std::collections::BTreeMap;
use superpage_mmu::{JoinKind, Joins, UseBit};
use superpage_pages::PageSize;

/// What is mapped, by space and first page.
pub(crate) type Mapped = BTreeMap<(u32, u64), Mapping>;

/// The pages that may be in one entry with this one, which is mapped: none if it has one of its
/// own.
pub(crate) fn together(joins: &Joins, base: PageSize, mapped: &Mapped, space: u32, page: u64) -> Vec<u64> {
    let n = joins.pages as u64;
    let block = page - page % n;
    let at = |page: u64| mapped.get(&(space, page)).copied().filter(|mapping| mapping.size == base);
    let asked = at(page).expect("it is mapped");
    let alike = |a: Mapping, b: Mapping| {
        a.protection == b.protection
            && joins.alike.iter().all(|bit| match bit {
                UseBit::Referenced => a.referenced == b.referenced,
                UseBit::Dirty => a.dirty == b.dirty,
            })
    };
    // The pages whose frames differ from that of the page asked for by as much as they do
    // themselves.
    let beside = |other: u64| {
        at(other).filter(|m| alike(*m, asked) && m.frame.wrapping_sub(other) == asked.frame.wrapping_sub(page))
    };
    match joins.kind {
        JoinKind::CompleteSubblock => (block..block + n).filter(|page| at(*page).is_some()).collect(),
        JoinKind::PartialSubblock if asked.frame % n == page % n => {
            (block..block + n).filter(|page| beside(*page).is_some()).collect()
        }
        JoinKind::Coalesced if asked.frame % n == page % n && (block..block + n).all(|page| beside(page).is_some()) => {
            (block..block + n).collect()
        }
        JoinKind::Runs => {
            let all = (block..block + n).filter(|other| {
                let (low, high) = (page.min(*other), page.max(*other));
                (low..=high).all(|between| beside(between).is_some())
            });
            let all: Vec<u64> = all.collect();
            if all.len() > 1 { all } else { Vec::new() }
        }
        _ => Vec::new(),
    }
}

/// Whether an entry of this kind stays when one of its pages changes.
pub(crate) fn has_valid_bits(joins: &Joins) -> bool {
    matches!(joins.kind, JoinKind::PartialSubblock | JoinKind::CompleteSubblock)
}
