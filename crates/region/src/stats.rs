//! The counters of a region.

/// Counts since the region was made, except those marked *now*, which also decrease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RegionStats {
    /// The manager's counters: faults by kind, promotions, demotions, preempted reservations,
    /// mappings now.
    pub manager: superpage_vm::Stats,
    /// Fault messages that the pager handled. More than the manager's faults if several threads
    /// waited for the same page or window.
    pub messages: u64,
    /// Nanoseconds spent on them, without `collapse_nanoseconds` and `reservation_nanoseconds`.
    /// Waking a thread can cost the pager its processor: then it holds what that thread does
    /// meanwhile.
    pub message_nanoseconds: u64,
    /// Calls of `MADV_COLLAPSE` on the region: promotions to 2 MB in hardware, the first ones and
    /// those after sampling.
    pub collapses: u64,
    /// Nanoseconds that they took.
    pub collapse_nanoseconds: u64,
    /// Those of them that failed; the block is then mapped by base pages until the next fault
    /// there.
    pub collapses_refused: u64,
    /// Reservations of 2 MB made: each is a huge page of the memory file from the start, if the
    /// kernel has one.
    pub reservations: u64,
    /// Nanoseconds that they took.
    pub reservation_nanoseconds: u64,
    /// Base pages of physical memory that the region holds, populated or reserved in a huge page,
    /// now.
    pub held_pages: u64,
    /// Blocks of 2 MB whose physical memory is one huge page, now.
    pub huge_blocks: u64,
    /// Blocks with memory for which the kernel had no huge page, now: nothing in them is mapped
    /// larger than a base page until it has. If they persist, check that
    /// `/sys/kernel/mm/transparent_hugepage/shmem_enabled` is not `deny`, that huge pages are not
    /// disabled for the process (`PR_SET_THP_DISABLE`), and that memory is not too fragmented.
    pub small_blocks: u64,
    /// Bytes mapped by 2 MB pages in hardware, now.
    pub huge_bytes: u64,
    /// Base pages written to the swap file.
    pub pages_out: u64,
    /// Base pages read from it.
    pub pages_in: u64,
    /// Nanoseconds spent in the page daemon.
    pub daemon_nanoseconds: u64,
    /// Faults that ended with `SIGBUS`: no frame was left, or contents were lost.
    pub refused: u64,
    /// Whether system calls that touch an absent page of the region fail (`EFAULT`), for lack of
    /// privilege.
    pub user_mode_only: bool,
}

impl RegionStats {
    /// Bytes of physical memory that the region holds, now, whether in use or not.
    pub fn held_bytes(&self) -> u64 {
        self.held_pages << 12
    }

    /// Bytes of pages that are populated, now.
    pub fn resident_bytes(&self) -> u64 {
        self.manager.resident_pages << 12
    }

    /// Bytes that the manager maps by 2 MB pages, now.
    pub fn promoted_bytes(&self) -> u64 {
        self.manager.mapped[2] << 21
    }
}
