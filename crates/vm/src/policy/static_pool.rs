//! What a policy says of its static pool.

use superpage_pages::{Ladder, Level, PageSize};

/// A static pool of large pages: what is set aside, and for which mappings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StaticPool {
    /// The size of its pages; `None`: the largest superpage of at most 2 MB.
    pub size: Option<PageSize>,
    /// Bytes that are set aside, rounded up to a page; `None`: nothing, and nine tenths of memory
    /// may be surplus.
    pub bytes: Option<u64>,
    /// Bytes that surplus pages may take, rounded up to a page; `None`: none beside a pool.
    pub surplus: Option<u64>,
    /// Whether it is made by [`Vm::make_pool`](crate::Vm::make_pool), and not at once.
    pub late: bool,
    /// Whether private anonymous mappings use it.
    pub private: bool,
    /// Whether shared ones do.
    pub shared: bool,
    /// Whether mappings reserve pages when they are made.
    pub reserves: bool,
    /// Whether a mapping fails for which too few pages are left; otherwise it has base pages.
    pub kills: bool,
}

impl StaticPool {
    /// The level of its pages; `None` if these sizes have none.
    pub(crate) fn level(&self, ladder: &Ladder) -> Option<Level> {
        let of = |size: PageSize| ladder.level(size).filter(|level| *level > Level::BASE);
        match self.size {
            Some(size) => of(size),
            None => ladder.levels().skip(1).rev().find(|level| ladder.size(*level) <= PageSize::MB2),
        }
    }
}
