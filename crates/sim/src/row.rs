//! A result row: what one policy on one machine did for one workload.

use crate::{ContiguousPercent, Digest, Files, Fragment, KernelCounts, Setup};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use superpage_mmu::{Counters, Remaps};
use superpage_pages::PageSize;

/// The version of superpage.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// One simulation of the grid, with the keys of the JSON that the command prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The workload, or the command line that was traced.
    pub workload: String,
    /// The machine's name.
    pub machine: String,
    /// The policy with its parameters.
    pub policy: String,
    /// The policy of the host, if it has one of its own ([`Conditions::host_policies`](crate::Conditions::host_policies)). All keys but those
    /// that begin with `host` and the sum of cycles are of the guest alone.
    pub host_policy: Option<String>,
    /// The model of the kernel, if there is one ([`Conditions::kernels`](crate::Conditions::kernels)).
    pub kernel: Option<String>,
    /// Loads and stores.
    pub references: u64,
    /// Instructions, as far as the stream contains them.
    pub instructions: u64,
    /// The most threads that one program of the stream has had. They take turns on one simulated core, in the order of the stream, which for
    /// a recording is that of the recorder's buffers: with more than one, misses are those of this interleaving.
    pub threads: u64,
    /// Page faults: traps for which the kernel had to map something or change rights.
    pub faults: u64,
    /// Instruction fetches that missed in the last TLB level.
    pub itlb_misses: u64,
    /// Loads and stores that missed in the last TLB level.
    pub dtlb_misses: u64,
    /// Both: misses in the last level, that is, walks or refills.
    pub tlb_misses: u64,
    /// Loads and stores that missed in the first TLB level: all of them hit in a later one or are in `dtlb_misses`.
    pub first_level_dtlb_misses: u64,
    /// The same for instruction fetches.
    pub first_level_itlb_misses: u64,
    /// Loads and stores that hit in the second TLB level; 0 if there is none.
    pub second_level_dtlb_hits: u64,
    /// The same for instruction fetches.
    pub second_level_itlb_hits: u64,
    /// Misses saved against `base`, in percent of its misses; `None` if `base` has none.
    pub tlb_miss_reduction_percent: Option<f64>,
    /// Page-table walks.
    pub walks: u64,
    /// Memory references that these walks made.
    pub walk_memory_references: u64,
    /// Modelled time, in cycles: the sum of the eleven that follow, up to `host_cycles`.
    pub cycles: u64,
    /// The program's instructions, at the machine's rate without TLB misses.
    pub program_cycles: u64,
    /// Hits in TLB levels behind the first.
    pub tlb_hit_cycles: u64,
    /// Page-table walks, or refills by software.
    pub walk_cycles: u64,
    /// The program's own misses in the first line caches, each as long as where it is served takes, divided by how many overlap
    /// (`memory.overlap` of the machine); 0 without lines.
    pub data_cycles: u64,
    /// The kernel's part of faults, traps that set use bits, page-table entries written, shootdowns and switches.
    pub fault_cycles: u64,
    /// Zeroing of pages.
    pub zero_cycles: u64,
    /// Copying of pages, and of what programs read from and write to files.
    pub copy_cycles: u64,
    /// Promotions, demotions, preemptions and traversals of replicated entries, outside the daemon, and what shadow superpages cost.
    pub promotion_cycles: u64,
    /// The page daemon with all that it does, and digests.
    pub background_cycles: u64,
    /// The disk's time, in which nothing else runs.
    pub io_cycles: u64,
    /// All work of the host's kernel: faults, zeroing, copying, promotions, its background; 0 unless it has a policy of its own. A fault
    /// of the host costs what one of the machine does.
    pub host_cycles: u64,
    /// The same in seconds, at the machine's clock.
    pub seconds: f64,
    /// Time in which the stream says that nothing runs; not in `cycles`.
    pub idle_seconds: f64,
    /// Cycles of `base` divided by cycles of this row. Without `caches` it is a bound: nothing overlaps a walk, and the program's own cache
    /// misses cost nothing.
    pub speedup: Option<f64>,
    /// The most memory that programs had touched and still had at one time, in whole base pages, in memory or in swap
    /// space: from the first access to a page until it is unmapped, discarded or its process ends. What a fork shares
    /// counts once until it is written; a page of a file counts from its first use until the file is removed. It
    /// depends only on the stream and the base page, so every policy has the same, as long as it runs to the end.
    pub peak_touched_bytes: u64,
    /// Frames that held pages of objects, at their own peak.
    pub peak_resident_bytes: u64,
    /// What page tables took at their own peak, of all address spaces together: nodes of the radix format with 8 bytes for
    /// each entry that they have room for, of the linear one with whole base pages. A process has its root from its first
    /// access, and other tables while they have an entry. They take no frames of the simulated machine.
    pub page_table_bytes: u64,
    /// How much more was resident, at its peak, than was touched, at its own; negative if memory was too small for what
    /// was touched.
    pub bloat_percent: f64,
    /// Mapped pages of each size when most memory was touched (the last such moment between two events), ascending by size.
    #[serde(serialize_with = "serialize_pages", deserialize_with = "by_size")]
    pub pages: Vec<(PageSize, u64)>,
    /// How much of mapped memory lay in contiguous groups at that moment; only if [`Watch`](crate::Watch) asks for it, and not of a
    /// part.
    pub contiguous_percent: Option<ContiguousPercent>,
    /// What missed in the machine's line caches; only if [`Watch`](crate::Watch) asks for lines.
    pub caches: Option<Caches>,
    /// What superpages over scattered frames took, on a machine whose memory controller maps these (`+shadow`).
    pub shadow: Option<ShadowCounts>,
    /// What a kernel with a model has done; its instructions are in `fault_cycles`, what it and the programs miss in
    /// `walk_cycles` and `data_cycles`.
    pub kernel_counts: Option<KernelCounts>,
    /// Superpages made: by promotion, or at once by the fault that populated all of them.
    pub promotions: u64,
    /// Those of them that a fault made at once, which costs no promotion.
    pub superpages_at_fault: u64,
    /// `promotions` by size, ascending.
    #[serde(serialize_with = "serialize_pages", deserialize_with = "by_size")]
    pub promotions_by_size: Vec<(PageSize, u64)>,
    /// Superpages demoted.
    pub demotions: u64,
    /// Reservations made.
    pub reservations_made: u64,
    /// Reservations preempted.
    pub reservations_preempted: u64,
    /// Pages read from backing store.
    pub page_ins: u64,
    /// Pages written to backing store.
    pub page_outs: u64,
    /// Requests to the disk: what is read or written in one go, without a seek. The first read of
    /// a page of a warm file does not count.
    pub io_requests: u64,
    /// The time that they took, in which nothing else runs: part of `cycles`.
    pub io_seconds: f64,
    /// Bytes zeroed by the kernel.
    pub bytes_zeroed: u64,
    /// Bytes copied by the kernel.
    pub bytes_copied: u64,
    /// Bytes read from backing store.
    pub bytes_read: u64,
    /// Bytes written to backing store.
    pub bytes_written: u64,
    /// Digests computed of pages.
    pub pages_hashed: u64,
    /// Pages of dirty superpages that were not written because their digests had not changed.
    pub pages_spared: u64,
    /// Pages that the page daemon evicted.
    pub evictions: u64,
    /// Cache pages that were reactivated with their contents.
    pub cache_reactivated: u64,
    /// Runs of the page daemon.
    pub daemon_runs: u64,
    /// The daemon's work: part of `cycles`.
    pub daemon_cycles: u64,
    /// The work of promotions, demotions, preemptions and traversals of replicated entries: part of `cycles`.
    pub superpage_cycles: u64,
    /// Allocations for which the preferred size is more than a base page.
    pub contiguity_requests: u64,
    /// Those that got a smaller extent.
    pub contiguity_failed: u64,
    /// Those that got it.
    pub contiguity_satisfied: u64,
    /// Base pages that got a frame of their colour, under a policy that colours pages.
    pub coloured_pages: u64,
    /// Those for which no such frame was free.
    pub uncoloured_pages: u64,
    /// Pages on the active list when the run ends, before its memory is freed; all that are resident, under a policy
    /// without page lists.
    pub active_bytes: u64,
    /// Pages on the inactive list then.
    pub inactive_bytes: u64,
    /// Clean pages then that are kept but count as available.
    pub cache_bytes: u64,
    /// Pages in swap space then.
    pub swap_used_bytes: u64,
    /// Contiguity that is left when the run ends, before its memory is freed: the metric of Navarro et al.,
    /// section 6.5, from 0 to 1.
    pub contiguity: f64,
    /// Frames without an owner after all processes have ended: always 0, unless the kernel has a bug.
    pub frames_leaked: u64,
    /// Faults of the host: pages of the guest's memory, and of its page tables, that it had not mapped.
    pub host_faults: u64,
    /// Superpages that the host made, by promotion or at once by a fault.
    pub host_promotions: u64,
    /// Superpages that the host demoted.
    pub host_demotions: u64,
    /// Changes of the host's mappings that flushed what its guest has in TLBs and walk caches.
    pub host_shootdowns: u64,
    /// Bytes zeroed by the host.
    pub host_bytes_zeroed: u64,
    /// Bytes copied by the host.
    pub host_bytes_copied: u64,
    /// Pages of each size by which the host maps the guest's memory when the run ends, ascending by size; empty unless it has a policy of
    /// its own.
    #[serde(serialize_with = "serialize_pages", deserialize_with = "by_size")]
    pub host_pages: Vec<(PageSize, u64)>,
    /// Frames of the host without an owner after the guest has ended: always 0, unless the kernel has a bug.
    pub host_frames_leaked: u64,
    /// Page-table entries that promotions and demotions read.
    pub pte_traversals: u64,
    /// Changes announced to the TLBs: once for a page of any size, once for an address space that ends.
    pub shootdowns: u64,
    /// Accesses outside all mappings of the stream, for which a page was mapped nevertheless.
    pub unmapped_accesses: u64,
    /// Accesses for which rights were widened, because two mappings of the stream share a page of this machine.
    pub widened_rights: u64,
    /// Set if the stream was sampled: then misses, walks, their references and cycles are estimates for the whole stream,
    /// and what the kernel did (faults, promotions, pages, bytes) is exact unless [`Sampled::kernel_exact`] says otherwise.
    pub sampled: Option<Sampled>,
    /// Whether the stream was seen to its end.
    pub complete: bool,
    /// Why the run ended early, if it did: out of memory, for example.
    pub error: Option<String>,
    /// Memory of the machine, in bytes.
    pub memory_bytes: u64,
    /// Its swap space, in bytes.
    pub swap_bytes: u64,
    /// Whether files had been read before: `warm` or `cold`.
    pub files: Files,
    /// The hash function whose cost is charged for digests: `fast` or `sha-1`.
    pub hash: Digest,
    /// The requested fragmentation of memory before the run: a share of the extents of each size, or `SIZE:SHARE`.
    pub fragment: Fragment,
    /// Its result: for each superpage size of the machine of which there is an extent, the share of its extents that
    /// hold an immovable page. Empty if memory was not fragmented.
    #[serde(serialize_with = "serialize_shares", deserialize_with = "by_size")]
    pub fragmented: Vec<(PageSize, f64)>,
    /// The immovable pages, in bytes.
    pub immovable_bytes: u64,
    /// The seed of the positions of immovable pages.
    pub seed: u64,
    /// The digest of a trace file, as `superpage trace info` prints it; `None` for other streams (a workload with its
    /// parameters is in `workload`).
    pub trace_digest: Option<String>,
    /// The version of superpage.
    pub version: Cow<'static, str>,
    /// Values of the machine file that nobody has published and on which `cycles` depends.
    pub assumed: Vec<String>,
}

/// Misses in line caches of a stream with lines. Of a run of accesses to one line only the first counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caches {
    /// Loads and stores that missed in the nearest cache.
    pub l1d_misses: u64,
    /// Those of them that were prefetched, and so waited for nothing.
    pub l1d_prefetched: u64,
    /// Fetches that missed in the nearest cache.
    pub l1i_misses: u64,
    /// Loads, stores and fetches that no cache served.
    pub memory_accesses: u64,
    /// References of walks that missed in the nearest cache.
    pub walk_l1d_misses: u64,
    /// References of walks that no cache served.
    pub walk_memory_accesses: u64,
}

impl Caches {
    pub(crate) fn of(counters: &Counters) -> Caches {
        let [data, fetches, ahead] = &counters.program_lines;
        let behind = |hits: &[u64]| hits[1..].iter().sum::<u64>();
        Caches {
            l1d_misses: behind(&data.hits) + data.misses + behind(&ahead.hits) + ahead.misses,
            l1d_prefetched: behind(&ahead.hits) + ahead.misses,
            l1i_misses: behind(&fetches.hits) + fetches.misses,
            memory_accesses: data.misses + fetches.misses + ahead.misses,
            walk_l1d_misses: behind(&counters.line_hits) + counters.line_misses,
            walk_memory_accesses: counters.line_misses,
        }
    }

    fn since(self, before: &Caches) -> Caches {
        Caches {
            l1d_misses: self.l1d_misses - before.l1d_misses,
            l1d_prefetched: self.l1d_prefetched - before.l1d_prefetched,
            l1i_misses: self.l1i_misses - before.l1i_misses,
            memory_accesses: self.memory_accesses - before.memory_accesses,
            walk_l1d_misses: self.walk_l1d_misses - before.walk_l1d_misses,
            walk_memory_accesses: self.walk_memory_accesses - before.walk_memory_accesses,
        }
    }
}

/// What shadow superpages took. To the kernel they are base pages, so its own counts have none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShadowCounts {
    /// Made of base pages, or of smaller ones. A split is no promotion, though smaller ones remain.
    pub promotions: u64,
    /// Split, since a page of them changed or was mapped elsewhere too.
    pub demotions: u64,
    /// Entries of the controller's table that were written.
    pub table_writes: u64,
    /// Base pages whose lines were flushed from the caches: each time that their physical address changed.
    pub flushed_pages: u64,
    /// Lines that a cache held of these.
    pub flushed_lines: u64,
    /// Accesses to memory whose mapping the controller's TLB held, prefetched or not.
    pub mtlb_hits: u64,
    /// Those whose mapping was read from memory.
    pub mtlb_misses: u64,
}

impl ShadowCounts {
    pub(crate) fn of(counters: &Counters) -> ShadowCounts {
        let Remaps { promotions, demotions, table_writes, flushed_pages, flushed_lines, hits, misses } =
            counters.remaps;
        let (mtlb_hits, mtlb_misses) = (hits.iter().sum(), misses.iter().sum());
        ShadowCounts { promotions, demotions, table_writes, flushed_pages, flushed_lines, mtlb_hits, mtlb_misses }
    }

    fn since(self, before: &ShadowCounts) -> ShadowCounts {
        ShadowCounts {
            promotions: self.promotions - before.promotions,
            demotions: self.demotions - before.demotions,
            table_writes: self.table_writes - before.table_writes,
            flushed_pages: self.flushed_pages - before.flushed_pages,
            flushed_lines: self.flushed_lines - before.flushed_lines,
            mtlb_hits: self.mtlb_hits - before.mtlb_hits,
            mtlb_misses: self.mtlb_misses - before.mtlb_misses,
        }
    }
}

/// How the counts of a row were estimated from a sampled stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sampled {
    /// Recorded accesses of each period.
    pub on: u64,
    /// The period.
    pub period: u64,
    /// Recorded accesses as a share of all.
    pub share: f64,
    /// Windows that were measured: the second halves of those that were recorded.
    pub windows: u64,
    /// Data references that were recorded.
    pub recorded_references: u64,
    /// Misses that were counted, in windows, warming and gaps.
    pub recorded_tlb_misses: u64,
    /// Whether what the kernel did is exact. The stream has all mappings, first touches and first writes, and no policy
    /// depends on more until memory is short. What the page daemon then evicts, and what comes back, depends on
    /// references that were left out; then every other count is that of another run, and no error is given.
    pub kernel_exact: bool,
    /// Why none of the errors below is given although what the kernel did is exact: fewer than 30 windows, several threads, TLBs with
    /// replacement that is neither LRU nor random, or a trace that does not mark its windows or what was used last before them (before
    /// version 4 of the file format) or not all of it (before version 8) where TLBs may hold more.
    pub no_errors: Option<Cow<'static, str>>,
    /// Half the width of the 95 % confidence interval of `tlb_misses`.
    pub tlb_misses_error: Option<f64>,
    /// The same of `walk_memory_references`.
    pub walk_memory_references_error: Option<f64>,
    /// The same of `cycles`.
    pub cycles_error: Option<f64>,
    /// The same of `tlb_miss_reduction_percent`. Both rows have the same windows, and variation that they share is no
    /// error of their ratio.
    pub tlb_miss_reduction_percent_error: Option<f64>,
    /// The same of `speedup`.
    pub speedup_error: Option<f64>,
}

fn serialize_shares<S: Serializer>(shares: &[(PageSize, f64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(shares.iter().map(|(size, share)| (size.to_string(), share)))
}

fn serialize_pages<S: Serializer>(pages: &[(PageSize, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pages.iter().map(|(size, count)| (size.to_string(), count)))
}

/// What [`serialize_pages`] and [`serialize_shares`] write.
fn by_size<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<(PageSize, T)>, D::Error> {
    struct BySize<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for BySize<T> {
        type Value = Vec<(PageSize, T)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object whose keys are page sizes")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut pairs = Vec::new();
            while let Some(pair) = map.next_entry()? {
                pairs.push(pair);
            }
            Ok(pairs)
        }
    }
    deserializer.deserialize_map(BySize(PhantomData))
}

impl Row {
    /// A row that says only why there is none: nothing could be run of this setup over this workload.
    pub fn failed(setup: &Setup, workload: &str, error: String) -> Row {
        let base = setup.ladder.base();
        Row {
            workload: workload.into(),
            machine: setup.machine.name.clone(),
            policy: setup.name.clone(),
            host_policy: setup.host.as_ref().map(|host| host.name.clone()),
            kernel: setup.kernel.as_ref().map(|kernel| kernel.text.clone()),
            error: Some(error),
            memory_bytes: setup.frames << base.shift(),
            swap_bytes: setup.swap_pages << base.shift(),
            files: setup.files,
            hash: setup.digest,
            fragment: setup.fragment,
            seed: setup.seed,
            version: VERSION.into(),
            ..Row::default()
        }
    }

    /// The counts since `before`, an earlier state of this row. Other values stay as they are.
    pub(crate) fn since(mut self, before: &Row) -> Row {
        for (now, then) in self.counts().into_iter().zip(before.clone().counts()) {
            *now -= *then;
        }
        for (now, then) in self.promotions_by_size.iter_mut().zip(&before.promotions_by_size) {
            now.1 -= then.1;
        }
        if let (Some(now), Some(then)) = (&mut self.caches, &before.caches) {
            *now = now.since(then);
        }
        if let (Some(now), Some(then)) = (&mut self.shadow, &before.shadow) {
            *now = now.since(then);
        }
        if let (Some(now), Some(then)) = (&mut self.kernel_counts, &before.kernel_counts) {
            *now = now.clone().since(then);
        }
        self.seconds -= before.seconds;
        self.idle_seconds -= before.idle_seconds;
        self.io_seconds -= before.io_seconds;
        // The errors of the part are those that follow the errors before it.
        if let (Some(all), Some(old)) = (&self.error, &before.error) {
            self.error = all.strip_prefix(old.as_str()).and_then(|new| new.strip_prefix("; ")).map(str::to_string);
        }
        self.complete = self.error.is_none();
        self
    }

    /// All plain counts, which only grow during a run.
    fn counts(&mut self) -> [&mut u64; 60] {
        [
            &mut self.references,
            &mut self.instructions,
            &mut self.faults,
            &mut self.itlb_misses,
            &mut self.dtlb_misses,
            &mut self.tlb_misses,
            &mut self.walks,
            &mut self.walk_memory_references,
            &mut self.cycles,
            &mut self.first_level_dtlb_misses,
            &mut self.first_level_itlb_misses,
            &mut self.second_level_dtlb_hits,
            &mut self.second_level_itlb_hits,
            &mut self.program_cycles,
            &mut self.tlb_hit_cycles,
            &mut self.walk_cycles,
            &mut self.data_cycles,
            &mut self.fault_cycles,
            &mut self.zero_cycles,
            &mut self.copy_cycles,
            &mut self.promotion_cycles,
            &mut self.background_cycles,
            &mut self.io_cycles,
            &mut self.promotions,
            &mut self.superpages_at_fault,
            &mut self.demotions,
            &mut self.reservations_made,
            &mut self.reservations_preempted,
            &mut self.page_ins,
            &mut self.page_outs,
            &mut self.io_requests,
            &mut self.bytes_zeroed,
            &mut self.bytes_copied,
            &mut self.bytes_read,
            &mut self.bytes_written,
            &mut self.pages_hashed,
            &mut self.pages_spared,
            &mut self.evictions,
            &mut self.cache_reactivated,
            &mut self.daemon_runs,
            &mut self.daemon_cycles,
            &mut self.superpage_cycles,
            &mut self.contiguity_requests,
            &mut self.contiguity_failed,
            &mut self.contiguity_satisfied,
            &mut self.coloured_pages,
            &mut self.uncoloured_pages,
            &mut self.frames_leaked,
            &mut self.host_cycles,
            &mut self.host_faults,
            &mut self.host_promotions,
            &mut self.host_demotions,
            &mut self.host_shootdowns,
            &mut self.host_bytes_zeroed,
            &mut self.host_bytes_copied,
            &mut self.host_frames_leaked,
            &mut self.pte_traversals,
            &mut self.shootdowns,
            &mut self.unmapped_accesses,
            &mut self.widened_rights,
        ]
    }

    /// Whether this is what others of its machine and workload are compared with: the policy `base`, on a host with `base` if that has a
    /// policy.
    pub fn is_base(&self) -> bool {
        self.policy == "base" && self.host_policy.as_ref().is_none_or(|host| host == "base")
    }

    /// The policy, and that of the host if it has one: `thp on base`.
    pub fn policies(&self) -> String {
        match &self.host_policy {
            Some(host) => format!("{} on {host}", self.policy),
            None => self.policy.clone(),
        }
    }

    /// Sets the figures relative to `base`, the row of the policy `base` on the same machine and workload.
    pub fn compare(&mut self, base: &Row) {
        // What could not be run has missed nothing.
        self.tlb_miss_reduction_percent = (base.tlb_misses > 0 && self.cycles > 0)
            .then(|| 100.0 * (1.0 - self.tlb_misses as f64 / base.tlb_misses as f64));
        self.speedup = (self.cycles > 0).then(|| base.cycles as f64 / self.cycles as f64);
    }
}
