//! A result row: what one policy on one machine did for one workload.

use crate::by_size;
use crate::hardware::Cause;
use crate::latency::{FaultTimes, Latencies};
use crate::sources::{Sources, active, bloat};
use crate::{
    BackgroundOn, ContiguousPercent, Digest, FaultLatency, Files, KernelCounts, PolicyResult, Refusals, Sample,
    Sampled, Setup, TimeScale,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;
use superpage_keys::{Counts, Keys};
use superpage_mmu::{Counters, LineCounts};
use superpage_pages::{Counts, PageSize};
use superpage_report::{Keys, Stored};

/// The version of superpage.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// One simulation of the grid, with the keys of the JSON that the command prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Counts, Keys)]
#[key(from = Sources<'_>)]
pub struct Row {
    /// The workload, or the command line that was traced.
    #[key(condition, group = "What was run", from = it.clock.info.workload.clone())]
    pub workload: String,
    /// The machine's name.
    #[key(condition, from = it.machine.name.clone())]
    pub machine: String,
    /// The policy with its parameters.
    #[key(condition, from = it.member.setup.name.clone())]
    pub policy: String,
    /// The policy of the host, if it has one of its own
    /// ([`Conditions::host_policies`](crate::Conditions::host_policies)). All keys but those that
    /// begin with `host` and the sum of cycles are of the guest alone.
    #[key(condition, from = it.member.setup.host.as_ref().map(|host| host.name.clone()))]
    pub host_policy: Option<String>,
    /// The model of the kernel, if there is one
    /// ([`Conditions::kernels`](crate::Conditions::kernels)).
    #[key(condition, from = it.member.setup.kernel.as_ref().map(|kernel| kernel.text.clone()))]
    pub kernel: Option<String>,
    /// Loads and stores.
    #[key(count, of_stream, group = "Accesses and misses", from = it.whole.references)]
    pub references: u64,
    /// Instructions, as far as the stream contains them.
    #[key(count, of_stream, from = it.whole.instructions)]
    pub instructions: u64,
    /// The most threads that one program of the stream has had. Unless it runs on `cores`, they
    /// take turns on one simulated core, in the order of the stream, which for a recording is that
    /// of the recorder's buffers: with more than one, misses are those of this interleaving.
    #[key(state, of_stream, from = it.clock.counted.threads.most())]
    pub threads: u64,
    /// The cores on which the threads of the stream ran, each with its own TLBs; 0 if they took
    /// turns on one in the order of the stream.
    #[key(state, of_stream, from = it.clock.counted.cores.used())]
    #[serde(default)]
    pub cores: u64,
    /// Cores on which two threads or more made over a tenth of all instructions each, while another
    /// core made less than half of what the busiest did.
    #[key(state, of_stream, from = it.clock.counted.cores.crowded())]
    #[serde(default)]
    pub crowded_cores: u64,
    /// Times that a thread went on on another core.
    #[key(count, of_stream, from = it.clock.counted.cores.migrations())]
    #[serde(default)]
    pub migrations: u64,
    /// Page faults: traps for which the kernel had to map something or change rights.
    #[key(count, wide = "faults", from = it.stats.faults)]
    pub faults: u64,
    /// Instruction fetches that missed in the last TLB level.
    #[key(count, estimated, from = it.whole.instruction_misses)]
    pub itlb_misses: u64,
    /// Loads and stores that missed in the last TLB level.
    #[key(count, estimated, from = it.whole.data_misses)]
    pub dtlb_misses: u64,
    /// Both: misses in the last level, that is, walks or refills.
    #[key(count, estimated, from = it.whole.misses())]
    pub tlb_misses: u64,
    /// Loads and stores that missed in the first TLB level: all of them hit in a later one or are
    /// in `dtlb_misses`.
    #[key(count, estimated, from = it.whole.first_misses[0])]
    pub first_level_dtlb_misses: u64,
    /// The same for instruction fetches.
    #[key(count, estimated, from = it.whole.first_misses[1])]
    pub first_level_itlb_misses: u64,
    /// Loads and stores that hit in the second TLB level; 0 if there is none.
    #[key(count, estimated, from = it.whole.second_hits[0])]
    pub second_level_dtlb_hits: u64,
    /// The same for instruction fetches.
    #[key(count, estimated, from = it.whole.second_hits[1])]
    pub second_level_itlb_hits: u64,
    /// Misses saved against `base`, in percent of its misses; `None` if `base` has none.
    #[key(ratio, "%", estimated)]
    pub tlb_miss_reduction_percent: Option<f64>,
    /// Page-table walks: always `tlb_misses`.
    #[key(count, estimated, from = it.whole.misses())]
    pub walks: u64,
    /// Memory references that these walks made.
    #[key(count, estimated, from = it.whole.walk_references)]
    pub walk_memory_references: u64,
    /// `tlb_misses` per 1000 instructions; `None` without instructions.
    #[key(ratio, estimated)]
    pub mpki: Option<f64>,
    /// `walk_memory_references` per 1000 instructions.
    #[key(ratio, estimated)]
    pub walk_mpki: Option<f64>,
    /// Modelled time of the program, in cycles: the sum of the eleven that follow, up to
    /// `host_cycles`.
    #[key(count, "cycles", estimated, group = "Modelled time", from = it.cycles)]
    pub cycles: u64,
    /// The program's instructions, at the machine's rate without TLB misses.
    #[key(count, "cycles", from = it.whole.program_cycles(it.machine))]
    pub program_cycles: u64,
    /// Hits in TLB levels behind the first.
    #[key(count, "cycles", estimated, from = it.whole.tlb_hit_cycles)]
    pub tlb_hit_cycles: u64,
    /// Page-table walks, or refills by software.
    #[key(count, "cycles", estimated, from = it.whole.walk_cycles)]
    pub walk_cycles: u64,
    /// The program's own misses in the first line caches, each as long as where it is served takes,
    /// divided by how many overlap (`memory.overlap` of the machine); 0 without lines.
    #[key(count, "cycles", estimated, from = it.whole.data_cycles)]
    pub data_cycles: u64,
    /// The kernel's part of faults, traps that set use bits, page-table entries written, shootdowns
    /// and switches.
    #[key(count, "cycles", from = it.spent.fault + it.kernel.model_cycles(it.hardware))]
    pub fault_cycles: u64,
    /// Zeroing of pages.
    #[key(count, "cycles", from = it.spent.zero)]
    pub zero_cycles: u64,
    /// Copying of pages, and of what programs read from and write to files.
    #[key(count, "cycles", from = it.spent.copy)]
    pub copy_cycles: u64,
    /// Promotions, demotions, preemptions and traversals of replicated entries, outside the daemon,
    /// and what shadow superpages cost.
    #[key(count, "cycles", from = it.spent.promotion)]
    pub promotion_cycles: u64,
    /// The page daemon and the policy's background with all that they do, and digests: each page
    /// that they look at, of whatever size, costs `daemon-page` of the machine, also in a scan for
    /// populated ones. Where these run on another core, what the program pays for them: shootdowns
    /// that concern the address space that runs, waits of faults and of changes of mappings while
    /// the background promotes or demotes a region, what the background does at each miss, and runs
    /// of the daemon that a request for a frame waits for.
    #[key(count, "cycles", from = it.spent.background + it.daemon.total() + it.kernel.work.waited - it.kernel.moved_cycles(it.member))]
    pub background_cycles: u64,
    /// The disk's time, in which nothing else runs.
    #[key(count, "cycles", from = it.kernel.disk.cycles(it.machine))]
    pub io_cycles: u64,
    /// All work of the host's kernel: faults, zeroing, copying, promotions, its background; 0
    /// unless it has a policy of its own. A fault of the host costs what one of the machine does.
    /// Where backgrounds run on another core, only shootdowns of the host's are here.
    #[key(count, "cycles", from = it.kernel.host_cycles(it.hardware, it.member))]
    pub host_cycles: u64,
    /// What another core does: the page daemon and the policy's background, and that of a host,
    /// without what the program pays for them; 0 where they run on the program's core. Not in
    /// `cycles`.
    #[key(count, "cycles", wide = "other core", from = it.kernel.moved_cycles(it.member) + it.kernel.host_moved_cycles(it.member))]
    pub other_core_cycles: u64,
    /// `cycles` in seconds, at the machine's clock.
    #[key(count, "s", estimated, from = it.seconds(it.cycles))]
    pub seconds: f64,
    /// `seconds` in the share of all instructions that the core with most of them makes: the time
    /// that the stream takes where all cores run at one rate. Waits of one for another are not in
    /// it.
    #[key(count, "s", estimated, from = it.seconds(it.cycles) * it.clock.counted.cores.busiest())]
    #[serde(default)]
    pub elapsed_seconds: f64,
    /// The median latency of page faults in modelled time, from the trap to its return: what the
    /// kernel does for it, and waits for. Right to three digits. Walks, and calls that copy from
    /// and to files, are not in it.
    #[key(state, "cycles", wide = "fault p50")]
    pub fault_p50: u64,
    /// The 99th percentile.
    #[key(state, "cycles")]
    pub fault_p99: u64,
    /// The 99.9th percentile.
    #[key(state, "cycles", wide = "p99.9")]
    pub fault_p999: u64,
    /// The longest.
    #[key(state, "cycles", wide = "longest")]
    pub fault_max: u64,
    /// The same by kind of fault.
    #[key(state)]
    pub fault_latency: FaultLatency,
    /// Time in which the stream says that nothing runs; not in `cycles`.
    #[key(count, "s", from = it.clock.counted.idle_microseconds as f64 / 1e6)]
    pub idle_seconds: f64,
    /// Cycles of `base` divided by cycles of this row. Without `caches` it is a bound: nothing
    /// overlaps a walk, and the program's own cache misses cost nothing.
    #[key(ratio, estimated)]
    pub speedup: Option<f64>,
    /// The most memory that programs had touched and still had at one time, in whole base pages, in
    /// memory or in swap space: from the first access to a page until it is unmapped, discarded or
    /// its process ends. What a fork shares counts once until it is written; a page of a file
    /// counts from its first use until the file is removed. It depends only on the stream and the
    /// base page, so every policy has the same, as long as it runs to the end.
    #[key(state, "bytes", of_stream, group = "Memory", from = it.bytes(it.noted.touched.peak))]
    pub peak_touched_bytes: u64,
    /// Frames that held pages of objects, at their own peak.
    #[key(state, "bytes", column = "resident", from = it.bytes(it.stats.peak_resident_pages))]
    pub peak_resident_bytes: u64,
    /// What page tables took at their own peak, of all address spaces together: nodes of the radix
    /// format with 8 bytes for each entry that they have room for, of the linear one with whole
    /// base pages. A process has its root from its first access, and other tables while they have
    /// an entry. They take no frames of the simulated machine.
    #[key(state, "bytes", wide = "tables", from = it.noted.page_table_bytes(&it.hardware.mmu))]
    pub page_table_bytes: u64,
    /// How much more was resident, at its peak, than was touched, at its own; negative if memory
    /// was too small for what was touched.
    #[key(ratio, "%", from = bloat(it.noted.touched.peak, it.stats.peak_resident_pages))]
    pub bloat_percent: f64,
    /// Mapped pages of each size when most memory was touched (the last such moment between two
    /// events), ascending by size. Those that map the zero page are among them: TLBs hold them as
    /// any other.
    #[key(state, "pages", from = it.by_size(it.noted.touched.mapped_at_peak))]
    #[serde(with = "by_size")]
    pub pages: Vec<(PageSize, u64)>,
    /// How much of mapped memory lay in contiguous groups at that moment; only if
    /// [`Watch`](crate::Watch) asks for it, and not of a part.
    #[key(ratio, "%", from = it.noted.contiguous_percent())]
    pub contiguous_percent: Option<ContiguousPercent>,
    /// What missed in the machine's line caches; only if [`Watch`](crate::Watch) asks for lines.
    #[key(count, group = "Where there are lines, shadow superpages or a model of the kernel",
        from = it.noted.watch.lines.then(|| Caches::of(&it.counters)))]
    pub caches: Option<Caches>,
    /// What superpages over scattered frames took, on a machine whose memory controller maps these
    /// (`+shadow`).
    #[key(count, from = it.machine.shadow.as_ref().map(|_| ShadowCounts::of(&it.counters)))]
    pub shadow: Option<ShadowCounts>,
    /// What a kernel with a model has done; its instructions are in `fault_cycles`, what it and the
    /// programs miss in `walk_cycles` and `data_cycles`.
    #[key(count, from = it.kernel.modelled.as_ref().map(|model| model.counts(&it.hardware.mmu)))]
    pub kernel_counts: Option<KernelCounts>,
    /// Superpages made: by promotion, or at once by the fault that populated all of them.
    #[key(count, group = "The work of the kernel", wide = "promoted", from = it.stats.promotions.iter().sum())]
    pub promotions: u64,
    /// Those of them that a fault made at once, which costs no promotion.
    #[key(count, from = it.stats.promotions_at_fault)]
    pub superpages_at_fault: u64,
    /// `promotions` by size, ascending.
    #[key(count, from = it.by_size(it.stats.promotions).split_off(1))]
    #[serde(with = "by_size")]
    pub promotions_by_size: Vec<(PageSize, u64)>,
    /// Superpages demoted.
    #[key(count, from = it.stats.demotions.iter().sum())]
    pub demotions: u64,
    /// Reservations made.
    #[key(count, from = it.stats.reservations_made)]
    pub reservations_made: u64,
    /// Reservations preempted.
    #[key(count, wide = "preempted", from = it.stats.reservations_preempted)]
    pub reservations_preempted: u64,
    /// Frames of reservations that the policy's background freed.
    #[key(count, "pages", from = it.stats.reserved_released)]
    pub reserved_released: u64,
    /// The static pool, without surplus pages that were given back; 0 if the policy has none.
    #[key(state, "bytes", from = it.bytes(it.stats.pool_frames))]
    pub pool_bytes: u64,
    /// Faults that took a page of the pool.
    #[key(count, from = it.stats.faults_pool)]
    pub pool_faults: u64,
    /// Mappings that have base pages since the pool had too few pages left.
    #[key(count, from = it.stats.pool_fallbacks)]
    pub pool_fallbacks: u64,
    /// Calls of the program that were refused since they would have cut a page of the pool.
    #[key(count, from = it.kernel.work.pool_refusals)]
    pub pool_refusals: u64,
    /// Faults that mapped the zero page, and took no memory.
    #[key(count, from = it.stats.faults_zero_page)]
    pub zero_page_faults: u64,
    /// Pages of zeroes that the background gave back.
    #[key(count, "pages", from = it.stats.zeroes_given_back)]
    pub zeroes_given_back: u64,
    /// Compactions of an extent, at faults and by the background.
    #[key(count, from = it.stats.compactions)]
    pub compactions: u64,
    /// Those after which the extent was not free.
    #[key(count, from = it.stats.compactions_failed)]
    pub compactions_failed: u64,
    /// Base pages that compactions copied elsewhere.
    #[key(count, "pages", from = it.stats.pages_moved)]
    pub pages_moved: u64,
    /// Huge pages split that had lost pages, since memory was short or one of their pages was
    /// evicted or compacted.
    #[key(count, from = it.stats.deferred_splits)]
    pub deferred_splits: u64,
    /// The most frames that such huge pages kept for pages that were unmapped out of them; not in
    /// `peak_resident_bytes`.
    #[key(state, "bytes", from = it.bytes(it.stats.peak_deferred_pages))]
    pub peak_deferred_bytes: u64,
    /// Pages read from backing store.
    #[key(count, "pages", wide = "paged in", from = it.stats.page_ins)]
    pub page_ins: u64,
    /// Pages written to backing store.
    #[key(count, "pages", wide = "paged out", from = it.stats.page_outs)]
    pub page_outs: u64,
    /// Requests to the disk: what is read or written in one go, without a seek. The first read of
    /// a page of a warm file does not count.
    #[key(count, from = it.kernel.disk.requests())]
    pub io_requests: u64,
    /// The time that they took, in which nothing else runs: part of `cycles`.
    #[key(count, "s", column = "disk time", from = it.seconds(it.kernel.disk.cycles(it.machine)))]
    pub io_seconds: f64,
    /// Bytes zeroed by the kernel.
    #[key(count, "bytes", from = it.stats.bytes_zeroed)]
    pub bytes_zeroed: u64,
    /// Bytes copied by the kernel.
    #[key(count, "bytes", from = it.stats.bytes_copied + it.kernel.work.copied_bytes)]
    pub bytes_copied: u64,
    /// Bytes read from backing store.
    #[key(count, "bytes", from = it.stats.bytes_read)]
    pub bytes_read: u64,
    /// Bytes written to backing store.
    #[key(count, "bytes", from = it.stats.bytes_written)]
    pub bytes_written: u64,
    /// Digests computed of pages.
    #[key(count, "pages", from = it.stats.pages_hashed)]
    pub pages_hashed: u64,
    /// Pages of dirty superpages that were not written because their digests had not changed.
    #[key(count, "pages", from = it.stats.pages_spared)]
    pub pages_spared: u64,
    /// Pages that the page daemon evicted.
    #[key(count, "pages", from = it.stats.evictions)]
    pub evictions: u64,
    /// Superpages that it evicted whole.
    #[key(count, "superpages", from = it.stats.superpages_evicted)]
    pub superpages_evicted: u64,
    /// Cache pages that were reactivated with their contents.
    #[key(count, "pages", from = it.stats.cache_reactivated)]
    pub cache_reactivated: u64,
    /// Runs of the page daemon.
    #[key(count, from = it.stats.daemon_runs)]
    pub daemon_runs: u64,
    /// Calls of the background of the policy while programs had memory; `None` if it has none that
    /// is called.
    #[key(count, from = it.kernel.background_runs())]
    pub background_runs: Option<u64>,
    /// The work of the daemon and of the background: part of `cycles`, or of `other_core_cycles`.
    #[key(count, "cycles", from = it.daemon.total())]
    pub daemon_cycles: u64,
    /// The work of promotions, demotions, preemptions and traversals of replicated entries: part of
    /// `cycles`, or of `other_core_cycles`.
    #[key(count, "cycles", from = it.member.kernel_cycles(&it.effort).promotion)]
    pub superpage_cycles: u64,
    /// How often the background could not promote a region, by reason ([`Why`](superpage_vm::Why));
    /// reasons that never applied are left out.
    #[key(count, from = Refusals::of(it.kernel.vm.refusals()))]
    pub refusals: Refusals,
    /// Allocations for which the preferred size is more than a base page.
    #[key(count, from = it.stats.contiguity_requests)]
    pub contiguity_requests: u64,
    /// Those that got a smaller extent.
    #[key(count, from = it.stats.contiguity_failed)]
    pub contiguity_failed: u64,
    /// Those that got it.
    #[key(count, from = it.stats.contiguity_requests - it.stats.contiguity_failed)]
    pub contiguity_satisfied: u64,
    /// Base pages that got a frame of their colour, under a policy that colours pages.
    #[key(count, "pages", from = it.stats.coloured_pages)]
    pub coloured_pages: u64,
    /// Those for which no such frame was free.
    #[key(count, "pages", from = it.stats.uncoloured_pages)]
    pub uncoloured_pages: u64,
    /// What programs had touched and still had when the run ended.
    #[key(state, "bytes", of_stream, group = "Memory over time, and at the end", from = it.bytes(it.noted.touched.now))]
    pub end_touched_bytes: u64,
    /// Frames that held pages of objects then, before the run's memory was freed.
    #[key(state, "bytes", from = it.bytes(it.stats.resident_pages))]
    pub end_resident_bytes: u64,
    /// How much more was resident than touched on average, over the instructions of the stream: the
    /// average of the one over that of the other. `None` if nothing was touched for an instruction.
    #[key(ratio, "%", from = it.clock.averages.integrals.bloat_percent())]
    pub mean_bloat_percent: Option<f64>,
    /// The share of mapped memory that superpages mapped, on average in the same way.
    #[key(ratio, "%", from = it.clock.averages.integrals.huge_percent())]
    pub mean_huge_percent: Option<f64>,
    /// The state over time; only if [`Watch`](crate::Watch) asks for it, and not of a part.
    #[key(state)]
    pub series: Option<Vec<Sample>>,
    /// What the policy says that it has found out, if it says anything: one in Python returns it
    /// from `result()`.
    #[key(state)]
    #[serde(default)]
    pub policy_result: Option<PolicyResult>,
    /// Pages on the active list when the run ends, before its memory is freed; all that are
    /// resident, under a policy without page lists.
    #[key(state, "bytes", from = it.bytes(active(&it.stats)))]
    pub active_bytes: u64,
    /// Pages on the inactive list then.
    #[key(state, "bytes", from = it.bytes(it.stats.inactive_pages))]
    pub inactive_bytes: u64,
    /// Clean pages then that are kept but count as available.
    #[key(state, "bytes", from = it.bytes(it.stats.cache_pages))]
    pub cache_bytes: u64,
    /// Pages in swap space then.
    #[key(state, "bytes", from = it.bytes(it.stats.swap_used_pages))]
    pub swap_used_bytes: u64,
    /// Contiguity that is left when the run ends, before its memory is freed: the metric of Navarro
    /// et al., section 6.5, from 0 to 1.
    #[key(state, from = it.contiguity())]
    pub contiguity: f64,
    /// Frames without an owner after all processes have ended: always 0, unless the kernel has a
    /// bug.
    #[key(count, "frames")]
    pub frames_leaked: u64,
    /// Faults of the host: pages of the guest's memory, and of its page tables, that it had not
    /// mapped.
    #[key(count, group = "The host", from = it.host.faults)]
    pub host_faults: u64,
    /// Superpages that the host made, by promotion or at once by a fault.
    #[key(count, from = it.host.promotions)]
    pub host_promotions: u64,
    /// Superpages that the host demoted.
    #[key(count, from = it.host.demotions)]
    pub host_demotions: u64,
    /// Changes of the host's mappings that flushed what its guest has in TLBs and walk caches.
    #[key(count, from = it.host.shootdowns)]
    pub host_shootdowns: u64,
    /// Bytes zeroed by the host.
    #[key(count, "bytes", from = it.host.bytes_zeroed)]
    pub host_bytes_zeroed: u64,
    /// Bytes copied by the host.
    #[key(count, "bytes", from = it.host.bytes_copied)]
    pub host_bytes_copied: u64,
    /// Pages of each size by which the host maps the guest's memory when the run ends, ascending by
    /// size; empty unless it has a policy of its own.
    #[key(state, "pages", from = it.host.pages.clone())]
    #[serde(with = "by_size")]
    pub host_pages: Vec<(PageSize, u64)>,
    /// Frames of the host without an owner after the guest has ended: always 0, unless the kernel
    /// has a bug.
    #[key(count, "frames")]
    pub host_frames_leaked: u64,
    /// Page-table entries that promotions and demotions read.
    #[key(count, group = "The rest", from = it.counters.pte_traversals)]
    pub pte_traversals: u64,
    /// Changes announced to the TLBs: once for a page of any size, once for an address space that
    /// ends; where threads have `cores`, once for all pages that one call changes.
    #[key(count, from = it.counters.shootdowns)]
    pub shootdowns: u64,
    /// Shootdowns that interrupted other cores: each that ran the address space then.
    #[key(count, from = it.counters.shootdowns_sent)]
    #[serde(default)]
    pub shootdowns_sent: u64,
    /// Those of them for memory that a program unmaps, moves or maps something else over. These six
    /// sum up to `shootdowns_sent`; each costs the sender `shootdown` and `shootdown-send` of the
    /// machine.
    #[key(count, from = it.hardware.sent[Cause::Unmap])]
    #[serde(default)]
    pub sent_for_unmap: u64,
    /// Those for rights that a program changes, pages that it discards, advice, and pages that it
    /// has written back.
    #[key(count, from = it.hardware.sent[Cause::Protect])]
    #[serde(default)]
    pub sent_for_protect: u64,
    /// Those for forks, which take the right to write from what both share, and for faults that
    /// give a page another frame or other rights, as by its first write.
    #[key(count, from = it.hardware.sent[Cause::CopyOnWrite])]
    #[serde(default)]
    pub sent_for_copy_on_write: u64,
    /// Those for promotions, in place or by copying.
    #[key(count, from = it.hardware.sent[Cause::Promotion])]
    #[serde(default)]
    pub sent_for_promotion: u64,
    /// Those for demotions, but for those within a call of the program.
    #[key(count, from = it.hardware.sent[Cause::Demotion])]
    #[serde(default)]
    pub sent_for_demotion: u64,
    /// Those for what the kernel does by itself: pages that it moves, evicts, gives back or looks
    /// at.
    #[key(count, from = it.hardware.sent[Cause::Migration])]
    #[serde(default)]
    pub sent_for_migration: u64,
    /// The cores that shootdowns interrupted, each time. On machines whose `shootdown-receive` is 0
    /// an instruction reaches them, and no interrupt.
    #[key(count, column = "interrupts", from = it.counters.shootdowns_received)]
    #[serde(default)]
    pub shootdowns_received: u64,
    /// Times that a core came back to an address space whose mappings had changed meanwhile, and so
    /// dropped all that it held of it.
    #[key(count, from = it.counters.late_flushes)]
    #[serde(default)]
    pub late_flushes: u64,
    /// Accesses outside all mappings of the stream, for which a page was mapped nevertheless.
    #[key(count, from = it.kernel.work.unmapped_accesses)]
    pub unmapped_accesses: u64,
    /// Accesses for which rights were widened, because two mappings of the stream share a page of
    /// this machine.
    #[key(count, from = it.kernel.work.widened_rights)]
    pub widened_rights: u64,
    /// Set if the stream was sampled: then misses, walks, their references and cycles are estimates
    /// for the whole stream, and what the kernel did (faults, promotions, pages, bytes) is exact
    /// unless [`Sampled::kernel_exact`] says otherwise.
    #[key(state, group = "How sure it is", from = it.sampled())]
    pub sampled: Option<Sampled>,
    /// Whether the stream was seen to its end, or to where `--max` cuts it off.
    #[key(state, from = it.noted.outcome.error().is_none())]
    pub complete: bool,
    /// Why the run ended early, if it did: out of memory, for example.
    #[key(state, from = it.noted.outcome.error())]
    pub error: Option<String>,
    /// Memory of the machine, in bytes.
    #[key(condition, "bytes", group = "Conditions", from = it.bytes(it.member.setup.frames))]
    pub memory_bytes: u64,
    /// The cores that the threads of the stream could have; 0: they took turns on one.
    #[key(condition, from = it.noted.watch.cores.map_or(0, |cores| cores.number.into()))]
    #[serde(default)]
    pub most_cores: u64,
    /// The instructions of a thread before another one of its core runs; 0 without `most_cores`.
    #[key(condition, from = it.noted.watch.cores.map_or(0, |cores| cores.quantum))]
    #[serde(default)]
    pub quantum: u64,
    /// Whether a core with nothing to run takes a thread that waits for another core.
    #[key(condition, from = it.noted.watch.cores.is_some_and(|cores| cores.migrate))]
    #[serde(default)]
    pub migrate: bool,
    /// Its swap space, in bytes.
    #[key(condition, "bytes", from = it.bytes(it.member.setup.swap_pages))]
    pub swap_bytes: u64,
    /// Whether files had been read before: `warm` or `cold`.
    #[key(condition, from = it.member.setup.files)]
    pub files: Files,
    /// The hash function whose cost is charged for digests: `fast` or `sha-1`.
    #[key(condition, from = it.member.setup.digest)]
    pub hash: Digest,
    /// Where the policy's background and the page daemon ran: on another `core`, or on the
    /// `program`'s.
    #[key(condition, from = it.member.setup.background)]
    pub background: BackgroundOn,
    /// How many times as fast as modelled time the clock of the policy's background went.
    #[key(condition, from = it.member.setup.time_scale)]
    pub time_scale: TimeScale,
    /// Memory before the run, as it was asked for: `fresh`, a share of extents with an immovable
    /// page, `frag-50`, `aged`, a file.
    #[key(condition, from = it.member.setup.fragment.name())]
    pub memory_state: String,
    /// The requested fragmentation of memory before the run: the share of extents with an immovable
    /// page, or with what `memory_state` says; 0 for `aged` and a file.
    #[key(condition, from = it.member.setup.fragment.share)]
    pub fragment: f64,
    /// The size of these extents; `None`: each superpage size.
    #[key(condition, from = it.member.setup.fragment.size)]
    pub fragment_size: Option<PageSize>,
    /// Its result: for each superpage size of the machine of which there is an extent, the share of
    /// its extents that hold an immovable page, or in another state of memory any. Empty if memory
    /// was fresh.
    #[key(state, from = it.kernel.fragmented.shares())]
    #[serde(with = "by_size")]
    pub fragmented: Vec<(PageSize, f64)>,
    /// The immovable pages, in bytes.
    #[key(state, "bytes", from = it.bytes(it.kernel.fragmented.pages))]
    pub immovable_bytes: u64,
    /// The pages that somebody else had before the run and that can be moved, in bytes. They are in
    /// no other key but `fragmented`.
    #[key(state, "bytes", from = it.bytes(it.kernel.fragmented.movable))]
    pub movable_bytes: u64,
    /// The seed of the positions of immovable pages.
    #[key(condition, from = it.member.setup.seed)]
    pub seed: u64,
    /// The digest of a trace file, as `superpage trace info` prints it; `None` for other streams (a
    /// workload with its parameters is in `workload`).
    #[key(condition)]
    pub trace_digest: Option<String>,
    /// The version of superpage.
    #[key(condition, from = VERSION.into())]
    pub version: Cow<'static, str>,
    /// Values of the machine file that nobody has published and on which `cycles` depends.
    #[key(condition, from = it.member.setup.assumed(it.noted.watch.lines))]
    pub assumed: Vec<String>,
    /// In a sweep, the values of those axes that no other key has: whole numbers, numbers, or text;
    /// each is a key, and a column of its own.
    #[key(flattened)]
    #[serde(flatten)]
    pub axes: Map<String, Value>,
}

/// Misses in line caches of a stream with lines. Of a run of accesses to one line only the first
/// counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Counts, Keys)]
#[key(from = Counters)]
pub struct Caches {
    /// Loads and stores that missed in the nearest cache.
    #[key(count, column = "L1D misses", from = behind(&it.program_lines[0]) + behind(&it.program_lines[2]))]
    pub l1d_misses: u64,
    /// Those of them that were prefetched, and so waited for nothing.
    #[key(count, wide = "prefetched", from = behind(&it.program_lines[2]))]
    pub l1d_prefetched: u64,
    /// Fetches that missed in the nearest cache.
    #[key(count, wide = "L1I misses", from = behind(&it.program_lines[1]))]
    pub l1i_misses: u64,
    /// Loads, stores and fetches that no cache served.
    #[key(count, column = "from memory", from = it.program_lines.iter().map(|lines| lines.misses).sum())]
    pub memory_accesses: u64,
    /// References of walks that missed in the nearest cache.
    #[key(count, wide = "walks' L1D misses", from = it.line_hits[1..].iter().sum::<u64>() + it.line_misses)]
    pub walk_l1d_misses: u64,
    /// References of walks that no cache served.
    #[key(count, wide = "from memory", from = it.line_misses)]
    pub walk_memory_accesses: u64,
}

/// What the nearest cache did not serve.
fn behind(lines: &LineCounts) -> u64 {
    lines.hits[1..].iter().sum::<u64>() + lines.misses
}

/// What shadow superpages took. To the kernel they are base pages, so its own counts have none of
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Counts, Keys)]
#[key(from = Counters)]
pub struct ShadowCounts {
    /// Made of base pages, or of smaller ones. A split is no promotion, though smaller ones remain.
    #[key(count, wide = "shadow superpages", from = it.remaps.promotions)]
    pub promotions: u64,
    /// Split, since a page of them changed or was mapped elsewhere too.
    #[key(count, wide = "split", from = it.remaps.demotions)]
    pub demotions: u64,
    /// Entries of the controller's table that were written.
    #[key(count, from = it.remaps.table_writes)]
    pub table_writes: u64,
    /// Base pages whose lines were flushed from the caches: each time that their physical address
    /// changed.
    #[key(count, from = it.remaps.flushed_pages)]
    pub flushed_pages: u64,
    /// Lines that a cache held of these.
    #[key(count, wide = "lines flushed", from = it.remaps.flushed_lines)]
    pub flushed_lines: u64,
    /// Accesses to memory whose mapping the controller's TLB held, prefetched or not.
    #[key(count, wide = "MTLB hits", from = it.remaps.hits.iter().sum())]
    pub mtlb_hits: u64,
    /// Those whose mapping was read from memory.
    #[key(count, column = "MTLB misses", from = it.remaps.misses.iter().sum())]
    pub mtlb_misses: u64,
}

impl Keys for Files {
    const STORED: Stored = Stored::Text;
}

impl Keys for BackgroundOn {
    const STORED: Stored = Stored::Text;
}

impl Keys for TimeScale {
    const STORED: Stored = Stored::Count;
}

impl Keys for Digest {
    const STORED: Stored = Stored::Text;
}

impl Row {
    /// A row that says only why there is none: nothing could be run of this setup over this
    /// workload.
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
            background: setup.background,
            time_scale: setup.time_scale,
            memory_state: setup.fragment.name(),
            fragment: setup.fragment.share,
            fragment_size: setup.fragment.size,
            seed: setup.seed,
            version: VERSION.into(),
            ..Row::default()
        }
    }

    /// The counts since `before`, an earlier state of this row, and the errors that follow those
    /// before it. Other values stay as they are.
    pub(crate) fn part(&self, before: &Row) -> Row {
        let mut part = self.since(before);
        if let (Some(all), Some(old)) = (&self.error, &before.error) {
            part.error = all.strip_prefix(old.as_str()).and_then(|new| new.strip_prefix("; ")).map(str::to_string);
        }
        part.complete = part.error.is_none();
        part.rated()
    }

    /// With these latencies of faults.
    pub(crate) fn timed(self, latencies: &Latencies) -> Row {
        let FaultTimes { p50, p99, p999, max, .. } = latencies.all();
        let fault_latency = latencies.by_kind();
        Row { fault_p50: p50, fault_p99: p99, fault_p999: p999, fault_max: max, fault_latency, ..self }
    }

    /// With the ratios of its counts.
    pub(crate) fn rated(mut self) -> Row {
        let per_thousand =
            |count: u64| (self.instructions > 0).then(|| 1000.0 * count as f64 / self.instructions as f64);
        (self.mpki, self.walk_mpki) = (per_thousand(self.tlb_misses), per_thousand(self.walk_memory_references));
        self
    }

    /// Whether this is what others of its machine and workload are compared with: the policy
    /// `base`, on a host with `base` if that has a policy.
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

    /// Sets the figures relative to `base`, the row of the policy `base` on the same machine and
    /// workload.
    pub fn compare(&mut self, base: &Row) {
        // What could not be run has missed nothing, and what ended early is compared with nothing
        // that did not.
        let both = self.cycles > 0 && base.cycles > 0 && self.complete == base.complete;
        self.tlb_miss_reduction_percent =
            (both && base.tlb_misses > 0).then(|| 100.0 * (1.0 - self.tlb_misses as f64 / base.tlb_misses as f64));
        self.speedup = both.then(|| base.cycles as f64 / self.cycles as f64);
    }
}
