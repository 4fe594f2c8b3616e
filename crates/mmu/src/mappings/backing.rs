//! The memory of a guest whose host has a memory manager: the host's tables, which map the guest's
//! frames.
//!
//! A TLB holds translations from pages of the guest to frames of the host, so none is larger than
//! the guest's page or the host's page there (Bhargava et al., Accelerating two-dimensional page
//! walks for virtualized systems, ASPLOS 2008, section 5). A base page of the guest is always one
//! translation. A larger one is in *pieces*: the size of each follows from what the host maps there
//! now.

use super::Mappings;
use crate::mappings::pte::Pte;
use superpage_pages::{PageRange, Vpn};

/// The host's mappings of the guest's memory.
#[derive(Clone, Debug)]
pub(crate) struct Backing {
    /// The host's tables, as those of space 0, by the guest's frames.
    pub(crate) tables: Mappings,
    /// Frames of the guest that its kernel has mapped, or that an access found without a page of
    /// the host, since these were last asked for.
    pub(crate) touched: Vec<PageRange>,
}

impl Backing {
    /// Nothing is backed yet.
    pub(crate) fn new(tables: Mappings) -> Backing {
        Backing { tables, touched: Vec::new() }
    }
}

impl Mappings {
    /// The page-table entry of the mapping with this head as TLBs see it at one of its pages: of
    /// the size of the translation. Where the host has no page, a base page: the walk will say so.
    #[inline(always)]
    pub(crate) fn translated(&self, page: Vpn, head: u32) -> Pte {
        let pte = self.ptes[head as usize];
        match &self.backing {
            Some(backing) if pte.size_level() > 0 => {
                let host = backing.tables.mapping(0, Vpn(self.frame_of(head, page)));
                pte.with_size_level(host.map_or(0, |host| host.pte.size_level().min(pte.size_level())))
            }
            _ => pte,
        }
    }
}
