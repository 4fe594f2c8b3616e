//! The counters of the hardware.

use crate::machine::SetBy;
use crate::machine::{MAX_LINE_LEVELS, MAX_TLB_LEVELS, MAX_WALK_LEVELS};
use superpage_keys::Counts;
use superpage_pages::{Access, Counts as _};

/// Counts since the start, all exact. Arrays by access are indexed by `Access as usize`: read,
/// write, execute.
///
/// Every counted request hits in exactly one TLB level or is walked, so the counts of the first
/// level follow from the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Counts)]
pub struct Counters {
    /// Requests.
    pub references: [u64; 3],
    /// Hits in the second TLB level (index 1) and below; index 0 is unused, see [`Counters::hits`].
    pub(crate) lower_hits: [[u64; 3]; MAX_TLB_LEVELS],
    /// Requests that no TLB could serve: misses in the last level, so walks (or software refills).
    pub walks: [u64; 3],
    /// Walks shortened by the walk cache for entries of level n, at index n - 1.
    pub walk_cache_hits: [u64; MAX_WALK_LEVELS],
    /// As `walk_cache_hits`, in walks of a host's tables.
    pub host_walk_cache_hits: [u64; MAX_WALK_LEVELS],
    /// Walk references served by the line cache of this level, nearest first.
    pub line_hits: [u64; MAX_LINE_LEVELS],
    /// Walk references that no line cache could serve.
    pub line_misses: u64,
    /// In a stream with lines, the program's accesses: loads and stores that were not prefetched,
    /// fetches, and loads and stores that were. A run of accesses counts as one.
    pub program_lines: [LineCounts; 3],
    /// Mappings whose use bits an access set (by hardware, or by a trap: the machine says which).
    pub use_bits: UseBits,
    /// The page-table entries of these mappings. An operating system that emulates the bits writes
    /// all of them, hardware writes one.
    pub use_bit_entries: UseBits,
    /// Page-table entries written by the operating system.
    pub pte_writes: u64,
    /// Page-table entries that promotions and demotions went through (Navarro et al., section 6.6).
    pub pte_traversals: u64,
    /// Times that a change was announced to the TLBs: once for a mapping of any size, together with
    /// the parts that it is split into or joined from before anything is translated again; and once
    /// for all of a space that ends.
    pub shootdowns: u64,
    /// Shootdowns of pages of the current space, which interrupt its program.
    pub shootdowns_running: u64,
    /// Shootdowns that interrupted other cores: those that ran the space.
    pub shootdowns_sent: u64,
    /// The cores that they interrupted, each time.
    pub shootdowns_received: u64,
    /// Times that a core came back to a space whose mappings had changed meanwhile, and dropped all
    /// that it held of it.
    pub late_flushes: u64,
    /// TLB entries dropped by shootdowns.
    pub shootdown_entries: u64,
    /// Switches to another address space.
    pub switches: u64,
    /// Times that all TLBs and walk caches were emptied: at a switch, or because address space
    /// numbers ran out.
    pub flushes: u64,
    /// The work for shadow superpages, on a machine that has them.
    pub remaps: Remaps,
    /// The events of the hash table of groups, on a machine that has one.
    pub groups: GroupCounts,
}

/// Use bits that accesses set, counted by mapping or by page-table entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Counts)]
pub struct UseBits {
    /// Clean mappings that became dirty by a write.
    pub dirty: u64,
    /// Unreferenced mappings that became referenced.
    pub referenced: u64,
    /// Mappings in both counts that one access made dirty and referenced, with one trap.
    pub both: u64,
}

impl UseBits {
    /// The traps by which a machine sets them, given who sets each bit.
    pub(crate) fn by_trap(self, referenced: SetBy, dirty: SetBy) -> u64 {
        match (referenced, dirty) {
            (SetBy::Trap, SetBy::Trap) => self.referenced + self.dirty - self.both,
            (SetBy::Trap, SetBy::Hardware) => self.referenced,
            (SetBy::Hardware, SetBy::Trap) => self.dirty,
            (SetBy::Hardware, SetBy::Hardware) => 0,
        }
    }
}

/// The events of a hash table of groups (Dougan et al., OSDI 1999, section 7).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Counts)]
pub struct GroupCounts {
    /// Times that software was entered for a TLB miss.
    pub entered: u64,
    /// Times that the table was searched for a TLB miss.
    pub searches: u64,
    /// Searches that found the page: the hit rate of the table.
    pub found: u64,
    /// Entries that these searches looked at.
    pub looked: u64,
    /// Entries that software looked at for a place.
    pub looked_to_place: u64,
    /// Times that software read the tree.
    pub tree_walks: u64,
    /// Entries placed in the table.
    pub reloads: u64,
    /// Reloads that replaced another entry, live or a zombie.
    pub evicts: u64,
    /// Reloads that replaced a live entry.
    pub live_evicts: u64,
    /// Pages that software looked for to flush them.
    pub flushed: u64,
    /// Entries that it looked at for that.
    pub looked_to_flush: u64,
    /// Times that a space got other VSIDs.
    pub renewed: u64,
    /// Zombies that were reclaimed.
    pub reclaimed: u64,
    /// Accesses that block address translation served.
    pub blocks: u64,
}

/// The work of a memory controller that maps shadow addresses to frames, and of the operating
/// system for it. Accesses are those of a stream with lines that missed in all line caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Counts)]
pub struct Remaps {
    /// Shadow superpages made of base pages, or of smaller ones.
    pub promotions: u64,
    /// Shadow superpages split.
    pub demotions: u64,
    /// Entries of the controller's table written: one for each base page that gets a shadow
    /// address, loses it, or has a use bit of it cleared.
    pub table_writes: u64,
    /// Base pages whose lines were flushed from the caches, since their physical address changed.
    pub flushed_pages: u64,
    /// Lines of these pages that a cache held.
    pub flushed_lines: u64,
    /// Accesses to shadow addresses whose mapping the controller's TLB held: those that the program
    /// waited for, and prefetches.
    pub hits: [u64; 2],
    /// Accesses to shadow addresses whose mapping was read from memory, likewise.
    pub misses: [u64; 2],
}

/// Where a program's accesses to lines were served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Counts)]
pub struct LineCounts {
    /// By line cache, nearest first; hits in an instruction cache count at index 0.
    pub hits: [u64; MAX_LINE_LEVELS],
    /// In no cache.
    pub misses: u64,
}

impl Counters {
    /// Adds the counts of walked requests from another set of counters.
    pub(crate) fn add_walks(&mut self, walked: &Counters) {
        let add = |sums: &mut [u64], counts: &[u64]| sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        add(&mut self.references, &walked.references);
        add(&mut self.walks, &walked.walks);
        add(&mut self.walk_cache_hits, &walked.walk_cache_hits);
        add(&mut self.host_walk_cache_hits, &walked.host_walk_cache_hits);
        add(&mut self.line_hits, &walked.line_hits);
        self.line_misses += walked.line_misses;
        self.groups.add(&walked.groups);
        for (sum, more) in self.program_lines.iter_mut().zip(&walked.program_lines) {
            add(&mut sum.hits, &more.hits);
            sum.misses += more.misses;
        }
    }

    /// Hits in the TLB level (0 is the first) by this kind of access.
    pub fn hits(&self, level: usize, access: Access) -> u64 {
        match level {
            0 => {
                let lower: u64 = self.lower_hits.iter().map(|hits| hits[access as usize]).sum();
                self.references[access as usize] - lower - self.walks[access as usize]
            }
            level => self.lower_hits.get(level).map_or(0, |hits| hits[access as usize]),
        }
    }

    /// Misses in the TLB level (0 is the first) by this kind of access; requests served by an
    /// earlier level do not count.
    pub fn misses(&self, level: usize, access: Access) -> u64 {
        let later: u64 = self.lower_hits.iter().skip(level + 1).map(|hits| hits[access as usize]).sum();
        later + self.walks[access as usize]
    }

    /// Data requests that no TLB could serve.
    pub fn data_misses(&self) -> u64 {
        self.walks[Access::Read as usize] + self.walks[Access::Write as usize]
    }

    /// Instruction requests that no TLB could serve.
    pub fn instruction_misses(&self) -> u64 {
        self.walks[Access::Execute as usize]
    }

    /// All requests that no TLB could serve.
    pub fn tlb_misses(&self) -> u64 {
        self.walks.iter().sum()
    }

    /// Page-table entries that walks read from memory, through the caches for page-table lines.
    pub fn walk_memory_references(&self) -> u64 {
        self.line_hits.iter().sum::<u64>() + self.line_misses
    }

    /// Hits in the TLB level by all accesses.
    pub fn level_hits(&self, level: usize) -> u64 {
        [Access::Read, Access::Write, Access::Execute].map(|access| self.hits(level, access)).iter().sum()
    }
}
