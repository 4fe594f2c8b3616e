//! TLBs in which one entry holds several base pages.

use serde::Deserialize;

/// How a TLB joins base pages: of an aligned block of these, one entry may hold several.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Joins {
    /// Which pages of a block one entry may hold.
    pub kind: JoinKind,
    /// The base pages of a block: a power of two from 2 to 32.
    pub pages: usize,
    /// Use bits that pages of one entry must have alike, besides their rights. If a bit of a page
    /// changes, its entry is dropped and the page is loaded again.
    #[serde(default)]
    pub alike: Vec<UseBit>,
    /// Whether a miss loads all pages that the entry may hold (the default), not only the one asked
    /// for. Entries without valid bits have no choice.
    #[serde(default = "yes")]
    pub prefetch: bool,
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
    /// Pages that lie at their places in one aligned block of frames, with equal rights (Talluri
    /// and Hill, ASPLOS 1994).
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
