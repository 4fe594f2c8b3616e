//! Counters of the memory manager.

use crate::FaultKind;
use superpage_pages::MAX_LEVELS;

/// Counts since the start, except those marked *now*, which also decrease. Arrays are indexed by
/// level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Faults resolved: the sum of the nine kinds that follow.
    pub faults: u64,
    /// Faults that populated a page of zeroes.
    pub faults_zero: u64,
    /// Faults that mapped the zero page, and took no memory.
    pub faults_zero_page: u64,
    /// Faults that populated a page from a file.
    pub faults_file: u64,
    /// Faults that populated a page from swap space.
    pub faults_swap: u64,
    /// Faults on a cache page, which was populated again with its contents.
    pub faults_cached: u64,
    /// Faults on a page that was populated already and was only mapped here.
    pub faults_resident: u64,
    /// Faults that copied a page at its first write (copy-on-write).
    pub faults_copy: u64,
    /// Faults that only gave a mapping more rights.
    pub faults_rights: u64,
    /// Faults on a page that was already mapped with enough rights.
    pub faults_spurious: u64,
    /// Faults that found no frame left and failed; not in `faults`.
    pub faults_out_of_memory: u64,
    /// Superpages made, by level: by promotion, or by the fault that populated all of one at once.
    pub promotions: [u64; MAX_LEVELS],
    /// Those of them that a fault made at once: one page-table entry written, no promotion.
    pub promotions_at_fault: u64,
    /// Those of them whose pages were copied into an extent.
    pub promotions_by_copying: u64,
    /// Superpages demoted, by level; with huge zero leaves that were split.
    pub demotions: [u64; MAX_LEVELS],
    /// Extents allocated by faults, by level: base pages, and reservations above them.
    pub allocations: [u64; MAX_LEVELS],
    /// Base pages that were allocated by colour and got a frame of theirs (page colouring).
    pub coloured_pages: u64,
    /// Those for which no frame of theirs was free.
    pub uncoloured_pages: u64,
    /// Faults whose page found its frame reserved.
    pub reserved_found: u64,
    /// Reservations made at a fault: the allocations above the base page.
    pub reservations_made: u64,
    /// Reservations preempted.
    pub reservations_preempted: u64,
    /// Frames of reservations that the background of the policy freed.
    pub reserved_released: u64,
    /// Zero-filled pages that were given back: by the background, and of underused huge pages by
    /// the page daemon.
    pub zeroes_given_back: u64,
    /// Compactions of an extent, direct and by the background.
    pub compactions: u64,
    /// Those after which the extent was not free.
    pub compactions_failed: u64,
    /// Base pages that compactions copied elsewhere; `bytes_copied` has their bytes too.
    pub pages_moved: u64,
    /// Base pages that stayed where an extent was to be compacted.
    pub pages_not_moved: u64,
    /// Unpopulated pieces of broken reservations, freed to the buddy allocator.
    pub pieces_freed: u64,
    /// Partially populated pieces of broken reservations that stayed reserved.
    pub pieces_kept: u64,
    /// Bytes of zeroes written.
    pub bytes_zeroed: u64,
    /// Bytes copied.
    pub bytes_copied: u64,
    /// Bytes read from files and swap space.
    pub bytes_read: u64,
    /// Bytes written to files and swap space.
    pub bytes_written: u64,
    /// Pages read in from swap space and from files.
    pub page_ins: u64,
    /// Pages written to files and swap space.
    pub page_outs: u64,
    /// Pages of dirty superpages that were not written because their digest had not changed.
    pub pages_spared: u64,
    /// Digests computed, before and at writing.
    pub pages_hashed: u64,
    /// Cache pages that were reactivated with their contents.
    pub cache_reactivated: u64,
    /// Superpages demoted at their first write.
    pub demotions_on_write: u64,
    /// Page-sized reads and writes of files that found the page populated.
    pub file_hits: u64,
    /// Pages that the daemon evicted.
    pub evictions: u64,
    /// Superpages that it evicted whole.
    pub superpages_evicted: u64,
    /// Runs of the page daemon.
    pub daemon_runs: u64,
    /// Pages whose reference bits the daemon sampled.
    pub daemon_scanned: u64,
    /// Pages, of whatever size, that the background of the policy looked at in scans and for
    /// reference bits.
    pub background_scanned: u64,
    /// Superpages demoted to find out which parts are in use.
    pub speculative_demotions: u64,
    /// Superpages that the daemon promoted again because all their parts are in use.
    pub repromotions: u64,
    /// Requests for more than a base page.
    pub contiguity_requests: u64,
    /// Those that got a smaller extent.
    pub contiguity_failed: u64,
    /// Extents whose contiguity the daemon has restored.
    pub contiguity_restored: u64,
    /// Base pages that a fault populated next to its own, now. Whether programs have accessed them
    /// since is not known here, since such accesses do not fault.
    pub untouched_pages: u64,
    /// Base pages populated by a fault on themselves, now.
    pub touched_pages: u64,
    /// The most of these at any time.
    pub peak_touched_pages: u64,
    /// Frames whose pages are populated, now; reserved frames without a page do not count.
    pub resident_pages: u64,
    /// The most of these at any time.
    pub peak_resident_pages: u64,
    /// Base pages that map the zero page, now. They are in `mapped` too.
    pub zero_page_mapped: u64,
    /// Mappings in page tables, by level, now.
    pub mapped: [u64; MAX_LEVELS],
    /// `mapped` when the number of touched pages was last at its peak.
    pub mapped_at_peak: [u64; MAX_LEVELS],
    /// Frames on the active list, including those that `unswappable_pages` counts, now; 0 if the
    /// policy reclaims nothing, since there are then no lists.
    pub active_pages: u64,
    /// Frames on the inactive list, now.
    pub inactive_pages: u64,
    /// Frames that hold a cache page, now; whether they count as free is the policy's choice.
    pub cache_pages: u64,
    /// Frames of dirty pages for which swap space has no slot, now: the daemon skips them until it
    /// has one.
    pub unswappable_pages: u64,
    /// Pages in swap space, now.
    pub swap_used_pages: u64,
    /// Frames in use for page tables ([`crate::Pmap::give_table`]), now.
    pub table_frames: u64,
    /// Frames of pages that were unmapped out of a huge page that is split later, now.
    pub deferred_pages: u64,
    /// The most of these at any time.
    pub peak_deferred_pages: u64,
    /// Huge pages of those that were split, since memory was short or one of their pages was
    /// evicted or compacted.
    pub deferred_splits: u64,
    /// Frames wired, now.
    pub wired_frames: u64,
    /// Frames of somebody else, now ([`Vm::hold`](crate::Vm::hold)).
    pub foreign_frames: u64,
    /// Faults that took a page of the static pool.
    pub faults_pool: u64,
    /// Faults that found no page of the pool left and failed; not in `faults`.
    pub faults_no_pool: u64,
    /// Mappings that have base pages since the pool had too few pages left.
    pub pool_fallbacks: u64,
    /// Frames of the static pool, in use or not, with surplus pages, now.
    pub pool_frames: u64,
    /// Those of them that hold no page, now.
    pub pool_free_frames: u64,
    /// Those of these that are reserved for mappings, now.
    pub pool_reserved_frames: u64,
    /// Frames of surplus pages, now.
    pub pool_surplus_frames: u64,
    /// Copy-on-write objects that took over the pages of the object behind them.
    pub collapses: u64,
}

impl Stats {
    /// Frames that hold nobody's page.
    pub(crate) fn unknown_frames(&self) -> u64 {
        self.wired_frames + self.foreign_frames + self.pool_free_frames + self.deferred_pages
    }

    /// Bytes zeroed and copied.
    pub(crate) fn filled(&self) -> [u64; 2] {
        [self.bytes_zeroed, self.bytes_copied]
    }

    /// Counts a fault that was resolved.
    #[inline]
    pub(crate) fn count_fault(&mut self, kind: FaultKind) {
        self.faults += 1;
        *match kind {
            FaultKind::Zero => &mut self.faults_zero,
            FaultKind::ZeroPage => &mut self.faults_zero_page,
            FaultKind::File => &mut self.faults_file,
            FaultKind::Swap => &mut self.faults_swap,
            FaultKind::Cached => &mut self.faults_cached,
            FaultKind::Resident => &mut self.faults_resident,
            FaultKind::Copy => &mut self.faults_copy,
            FaultKind::Rights => &mut self.faults_rights,
            FaultKind::Spurious => &mut self.faults_spurious,
        } += 1;
    }

    /// Counts a page populated by an access.
    pub(crate) fn populated(&mut self) {
        self.touched_pages += 1;
        self.peak_touched_pages = self.peak_touched_pages.max(self.touched_pages);
        self.resident_pages += 1;
        self.peak_resident_pages = self.peak_resident_pages.max(self.resident_pages);
    }

    /// Counts freed frames of populated pages.
    pub(crate) fn released(&mut self, pages: u64) {
        self.touched_pages -= pages;
        self.resident_pages -= pages;
    }

    /// Takes a snapshot of the mappings if touched pages are at their peak: before anything is
    /// removed, and for the report.
    pub(crate) fn note_peak(&mut self) {
        if self.touched_pages == self.peak_touched_pages {
            self.mapped_at_peak = self.mapped;
        }
    }
}
