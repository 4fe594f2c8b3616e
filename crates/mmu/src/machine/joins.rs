//! TLBs in which one entry holds several base pages.

use super::Machine;
use crate::reach::joint::{Joining, MOST_PAGES};
use crate::record::{DIRTY, REFERENCED};
use serde::Deserialize;

/// How a TLB joins base pages: of an aligned block of these, one entry may hold several.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Joins {
    /// Which pages of a block one entry may hold.
    pub kind: JoinKind,
    /// The base pages of a block: a power of two from 2 to 32.
    pub pages: usize,
    /// Use bits that pages of one entry must have alike, besides their rights. A page whose bit changes is dropped with its
    /// entry, and loaded anew.
    #[serde(default)]
    pub alike: Vec<UseBit>,
    /// Whether a miss loads all pages that the entry may hold (the default), not only the one asked for. Entries
    /// without valid bits have no choice.
    #[serde(default = "yes")]
    pub prefetch: bool,
    /// Where the values come from.
    pub source: String,
}

fn yes() -> bool {
    true
}

/// Which pages of a block one entry may hold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JoinKind {
    /// All of them, if their frames are contiguous and as aligned, and their rights the same.
    Coalesced,
    /// A run of them with contiguous frames and the same rights (Pham et al., CoLT, MICRO 2012).
    Runs,
    /// Those that are in one aligned block of frames, each at its place there, and have the same rights (Talluri and Hill,
    /// ASPLOS 1994).
    PartialSubblock,
    /// Any (Talluri and Hill, ASPLOS 1994).
    CompleteSubblock,
}

/// A use bit of a page-table entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UseBit {
    /// The page was accessed.
    Referenced,
    /// The page was written.
    Dirty,
}

impl Joins {
    pub(crate) fn joining(&self) -> Joining {
        let alike = self.alike.iter().fold(0, |bits, bit| {
            bits | match bit {
                UseBit::Referenced => REFERENCED,
                UseBit::Dirty => DIRTY,
            }
        });
        Joining { order: self.pages.ilog2(), alike, prefetches: self.prefetch }
    }

    /// What is wrong with it, in a TLB of this machine whose page table has been checked.
    pub(super) fn refuses(&self, machine: &Machine, inclusive: bool) -> Option<String> {
        let Joins { pages, kind, .. } = self;
        let line = (machine.memory.line_bytes / crate::lines::ENTRY_BYTES) as usize;
        let table = 1 << machine.page_table.bits.first().copied().unwrap_or_default();
        let gathered = *kind == JoinKind::Coalesced || *kind == JoinKind::Runs;
        let held = [(line, "one line of the page table holds"), (table, "a page table of the lowest level holds")];
        let most =
            held.into_iter().filter(|(most, _)| gathered || *most == table).chain([(MOST_PAGES, "a block may have")]);
        let (most, what) = most.min_by_key(|(most, _)| *most).unwrap_or((MOST_PAGES, ""));
        if !pages.is_power_of_two() || !(2..=most).contains(pages) {
            return Some(format!("joins.pages must be a power of two from 2 to {most}, which {what}; it is {pages}"));
        }
        if machine.host.is_some() {
            return Some("joins is for a machine without [host], whose pages decide what an entry holds".into());
        }
        if (*kind == JoinKind::Coalesced || *kind == JoinKind::Runs) && !self.prefetch {
            return Some(
                "joins.prefetch is for subblocks; coalesced entries and runs always hold all that they can".into(),
            );
        }
        if *kind == JoinKind::CompleteSubblock && !self.alike.is_empty() {
            return Some(
                "joins.alike has no meaning with complete-subblock, whose pages have bits of their own".into(),
            );
        }
        inclusive.then(|| "joins is for TLBs that neither include others nor are included".into())
    }
}
