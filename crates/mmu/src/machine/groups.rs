//! Machines whose page table is a hash table of groups, and which have segments and blocks: the
//! PowerPC.

use super::TableKind;
use super::{Machine, bytes};
use serde::Deserialize;

/// The bits of a page number: 16 segments, each with 16 bits of page index.
const ADDRESS_BITS: u32 = 20;

/// Who looks for a page in the hash table at a TLB miss.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Search {
    /// The processor. Software is entered where the page is in neither group (the 604).
    Hardware,
    /// Software, which is entered at each TLB miss and may have no hash table at all (the 603).
    Software,
}

/// A page table of groups of entries, found by a hash of a virtual segment identifier (VSID) and
/// the page index: a page is in its primary or its secondary group. Dougan, Mackerras and Yodaiken,
/// OSDI 1999, section 3. The operating system also keeps a tree (`page-table.bits`) of all
/// mappings.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Groups {
    /// The groups of 8 entries of 8 bytes, a power of two.
    pub groups: u64,
    /// Who searches them.
    pub search: Search,
    /// Cycles of each entry that the processor looks at, besides its line; where software searches
    /// there is no such value.
    #[serde(default)]
    pub entry_cycles: Option<u64>,
    /// Cycles of each entry that software looks at, besides its line: to search for a page, to find
    /// a free entry, and to flush a page.
    pub software_entry_cycles: u64,
    /// Cycles to enter software and to leave it: at each miss of a TLB where software searches,
    /// else where the hardware has found nothing.
    pub enter_cycles: u64,
    /// Block address translation: registers for data, and as many for instructions, each of which
    /// maps a block without any TLB; 0 without.
    #[serde(default)]
    pub blocks: usize,
    /// The largest block.
    #[serde(default = "largest", deserialize_with = "bytes")]
    pub block_size: u64,
}

fn largest() -> u64 {
    256 << 20
}

impl Groups {
    /// Cycles of each entry that a search for a TLB miss looks at, whoever searches.
    pub(crate) fn search_entry_cycles(&self) -> u64 {
        self.entry_cycles.unwrap_or(self.software_entry_cycles)
    }
}

impl Machine {
    pub(crate) fn check_groups(&self) -> Result<(), (&'static str, String)> {
        if (self.page_table.kind == TableKind::Groups) != self.groups.is_some() {
            let what = if self.groups.is_some() {
                "a machine with a hash table of groups, [groups], does not have other page tables beside it"
            } else {
                "\"groups\" goes with a table [groups]"
            };
            return Err(("page-table.kind", what.into()));
        }
        let Some(Groups { groups, block_size, search, entry_cycles, .. }) = &self.groups else { return Ok(()) };
        if (*search == Search::Hardware) != entry_cycles.is_some() {
            let what = match search {
                Search::Hardware => "a processor that searches (search = \"hardware\") has its cycles for each entry",
                Search::Software => {
                    "software searches here (search = \"software\"): its cycles are software-entry-cycles"
                }
            };
            return Err(("groups.entry-cycles", what.into()));
        }
        if !groups.is_power_of_two() {
            return Err(("groups.groups", format!("expected a power of two, not {groups}")));
        }
        if !block_size.is_power_of_two() || !(128 << 10..=256 << 20).contains(block_size) {
            let what = format!("expected a power of two from 128K to 256M, not {block_size} bytes");
            return Err(("groups.block-size", what));
        }
        if self.page_table.bits.len() != 3 {
            let what =
                "a machine with groups has a tree of two levels, written as three of which nobody reads the root";
            return Err(("page-table.bits", what.into()));
        }
        let bits: u32 = self.page_table.bits.iter().map(|bits| u32::from(*bits)).sum();
        if bits != ADDRESS_BITS {
            let what = format!(
                "expected {ADDRESS_BITS} bits of page number, of 16 segments with 65536 pages each, not {bits}"
            );
            return Err(("page-table.bits", what));
        }
        if self.pages.sizes.len() > 1 {
            return Err(("pages.sizes", "a machine with a hash table of groups does not have superpages".into()));
        }
        if !self.walk_cache.is_empty() {
            return Err((
                "walk-cache",
                "a machine with a hash table of groups does not have walk caches: remove them, walk-cache = []".into(),
            ));
        }
        let beside = self.host.is_some() || self.range_tlb.is_some() || self.shadow.is_some();
        if beside || self.tlb_levels() != 1 || self.tlb.iter().any(|tlb| tlb.joined(self).is_some()) {
            let what = "a machine with a hash table of groups has one level of TLBs whose entries hold a page each, and no [host], [range-tlb], [shadow]";
            return Err(("groups", what.into()));
        }
        Ok(())
    }
}
