//! Memory controllers that map shadow addresses to frames.

use super::{Machine, bytes};
use super::{SEARCHED_WAYS, SHADOW_LINES};
use serde::Deserialize;
use superpage_pages::MAX_LEVELS;

/// A memory controller that maps a range of physical addresses without memory behind them to
/// frames, by base pages, so that superpages may have frames that lie anywhere (Swanson, Stoller
/// and Carter, ISCA 1998). Its TLB has LRU replacement.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Shadow {
    /// Bytes of the range, of which superpages of each size have an equal part.
    #[serde(deserialize_with = "bytes")]
    pub size: u64,
    /// Entries of the controller's TLB, each for a base page.
    pub entries: usize,
    /// The ways of a set of it.
    pub ways: usize,
    /// Cycles that the look-up adds to an access to a shadow address. If it misses, a reference to
    /// memory comes on top.
    pub hit_cycles: u64,
    /// Cycles of writing an entry of the controller's table.
    pub table_write_cycles: u64,
    /// Cycles of flushing the lines of 1 KB from the caches, whether they are there or not.
    pub flush_per_kb: u64,
}

impl Machine {
    /// The first frame of the shadow range, behind all memory that there can be, and the number of
    /// its frames.
    pub(crate) fn shadow_frames(&self) -> Option<(u64, u64)> {
        let base = self.pages.sizes[0].bytes();
        self.shadow.as_ref().map(|shadow| (SHADOW_LINES * self.memory.line_bytes / base, shadow.size / base))
    }

    pub(crate) fn check_shadow(&self) -> Result<(), String> {
        let Some(Shadow { size, entries, ways, .. }) = self.shadow else { return Ok(()) };
        let most = SHADOW_LINES * self.memory.line_bytes / 2;
        if size > most {
            return Err(format!("size is at most {} GB, not {size} bytes", most >> 30));
        }
        if !entries.is_multiple_of(ways) {
            return Err(format!("{entries} entries are not a whole number of sets of {ways} ways"));
        }
        if ways > SEARCHED_WAYS {
            return Err(format!("at most {SEARCHED_WAYS} ways, not {ways}"));
        }
        if !(2..=MAX_LEVELS).contains(&self.pages.sizes.len()) {
            return Err("there is no page size above the base page".into());
        }
        if self.host.is_some() || self.perforated.is_some() || self.clustered.is_some() || self.range_tlb.is_some() {
            return Err("it is for machines without [host], [perforated], [clustered] and [range-tlb]".into());
        }
        Ok(())
    }
}
