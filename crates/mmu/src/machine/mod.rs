//! Machine files: everything that the simulator knows of a machine, as data.
//!
//! A file is TOML, with one table for each part of the machine. Each table says where its values
//! come from (`source`), and may say which of its keys nobody has published (`assumed`, a list of
//! keys; `"all"` stands for every one). Nothing about a specific machine is in the code. An
//! *overlay* is a file of differences that applies to any machine: see [`overlay`].

mod alike;
mod error;
mod groups;
mod joins;
mod limits;
mod names;
mod overlay;
mod range;
mod set;
mod shadow;
mod sources;
mod tlb;

use serde::{Deserialize, Deserializer};
use superpage_pages::{Ladder, PageSize, parse_bytes};

pub use error::MachineError;
pub use groups::{Groups, Search};
pub use joins::{JoinKind, Joins, UseBit};
pub(crate) use limits::{ENTRY_BYTES, JOINED_PAGES, MAX_WAYS, SEARCHED_WAYS, SHADOW_LINES, STREAM_LINE_SHIFT};
pub use limits::{MAX_LINE_LEVELS, MAX_TLB_LEVELS, MAX_WALK_LEVELS};
pub use names::{Index, Replacement, TableKind};
use names::{MACHINES, OVER_RADIX, OVERLAYS};
pub(crate) use range::LINE_CACHE_BYTES;
pub use shadow::Shadow;
pub use tlb::{Serves, TlbSpec, Ways};

/// A machine: hardware, and the costs of operating-system work on it.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Machine {
    /// The name, as on the command line.
    pub name: String,
    /// What it is, in one sentence.
    pub description: String,
    /// The processor clock.
    pub clock: Clock,
    /// Physical memory, and the latency behind all caches.
    pub memory: Memory,
    /// The page sizes.
    pub pages: Pages,
    /// Address spaces in the TLBs.
    pub spaces: Spaces,
    /// The page table's shape and its use bits.
    pub page_table: PageTable,
    /// The host that the machine is a guest of, if it matters.
    #[serde(default)]
    pub host: Option<Host>,
    /// How many holes a perforated page may have, where page tables have these.
    #[serde(default)]
    pub perforated: Option<Perforated>,
    /// The sizes of a clustered page table, where there is one.
    #[serde(default)]
    pub clustered: Option<Clustered>,
    /// The hash table of groups, with segments and blocks, where there is one.
    #[serde(default)]
    pub groups: Option<Groups>,
    /// A TLB of ranges beside the last level, where there is one.
    #[serde(default)]
    pub range_tlb: Option<RangeTlbSpec>,
    /// Shadow addresses that the memory controller maps, where it does.
    #[serde(default)]
    pub shadow: Option<Shadow>,
    /// The TLBs, any number.
    pub tlb: Vec<TlbSpec>,
    /// The cost of a walk or a refill besides its memory references.
    pub walk: Walk,
    /// Caches for entries of upper page-table levels.
    #[serde(default)]
    pub walk_cache: Vec<WalkCacheSpec>,
    /// Caches that page-table lines go through, nearest first.
    #[serde(default)]
    pub line_cache: Vec<LineCacheSpec>,
    /// The first-level cache for fetches, if it is not `line_cache`'s, before the second level of
    /// those. Only streams with lines use it.
    #[serde(default)]
    pub instruction_cache: Option<LineCacheSpec>,
    /// The costs of operating-system work.
    pub costs: Costs,
    /// The backing store.
    pub disk: Disk,
    /// Keys whose values nobody has published, with those values; collected when the file is read.
    #[serde(skip)]
    assumed: Vec<(String, String)>,
}

/// The processor clock.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Clock {
    /// Cycles per second.
    pub hertz: u64,
    /// Cores. With one, background work takes the program's time. Left out: any number.
    #[serde(default)]
    pub cores: Option<u32>,
    /// Hardware threads of a core, which run at the same time and share its TLBs and caches, if the
    /// stream runs on cores.
    #[serde(default = "one_thread")]
    pub threads_per_core: u32,
}

fn one_thread() -> u32 {
    1
}

/// Physical memory.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Memory {
    /// Bytes of memory, unless the command line says otherwise.
    #[serde(deserialize_with = "bytes")]
    pub size: u64,
    /// Cycles of a page-table reference that misses in all line caches.
    pub latency_cycles: u64,
    /// Bytes per cache line.
    pub line_bytes: u64,
    /// How many of the program's misses in the first line cache overlap on average: their cycles
    /// are divided by it. Only streams with lines use it.
    #[serde(default = "one")]
    pub overlap: f64,
    /// How many streams of lines next to each other a prefetcher follows; 0 without one. Only
    /// streams with lines use it.
    #[serde(default)]
    pub streams: usize,
}

/// The size of a perforated page, if it is on this ladder: the pages of one table of the lowest
/// level, which translates `bits` bits of the page number.
pub(crate) fn perforated_size(ladder: &Ladder, bits: u32) -> Option<PageSize> {
    ladder.sizes().iter().copied().find(|size| size.shift() - ladder.base().shift() == bits)
}

fn yes() -> bool {
    true
}

/// Nothing overlaps.
fn one() -> f64 {
    1.0
}

/// The page sizes.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Pages {
    /// All sizes, ascending, the base page first.
    pub sizes: Vec<PageSize>,
}

/// Address spaces in the TLBs.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Spaces {
    /// Bits of an address space number in a TLB entry. With 0 every switch flushes the TLBs;
    /// otherwise they are flushed when all numbers have been assigned.
    pub number_bits: u32,
}

/// Who sets a use bit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SetBy {
    /// The walker, at no cost.
    Hardware,
    /// The operating system, by a trap at the first use.
    Trap,
}

/// The page table.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PageTable {
    /// How superpages are represented.
    pub kind: TableKind,
    /// The page-number bits that each level translates, from the lowest level up.
    pub bits: Vec<u8>,
    /// Who sets the reference bit.
    pub referenced: SetBy,
    /// Who sets the dirty bit.
    pub dirty: SetBy,
    /// Whether a kernel that clears the reference bit of a page drops the page from the TLBs too,
    /// which is a shootdown. If not, entries stay, and the next access sets the bit all the same:
    /// real ones do at the next walk. Where entries join pages by their use bits it does in any
    /// case.
    #[serde(default = "yes")]
    pub flush_referenced: bool,
}

/// A host, whose pages limit the size of the translations in its guest's TLBs.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Host {
    /// The size of the host's pages that back the guest's memory; by default, or if it says `base`,
    /// base pages. A larger page of the guest then takes one TLB entry for each such page of it
    /// that is used; its walks still end where the guest's tables do.
    #[serde(default, deserialize_with = "size_or_base")]
    pub backs_by: Option<PageSize>,
    /// Whether a memory manager of the host maps the guest's memory, in place of `backs_by`: each
    /// page of the guest by the size that this maps it by now
    /// ([`Mmu::host_enter`](crate::Mmu::host_enter)). The host must have page tables. Machine files
    /// do not say it.
    #[serde(skip)]
    pub managed: bool,
    /// The page-number bits that each level of the host's page table translates, from the lowest
    /// level up, if walks go through these tables too (the guest's kind of page table is `nested`).
    #[serde(default)]
    pub page_table_bits: Vec<u8>,
    /// Entries of the nested TLB, which holds translations of the guest's memory: fully
    /// associative, with LRU replacement; 0 if there is none.
    #[serde(default)]
    pub nested_tlb: usize,
    /// Walk caches for the host's tables.
    #[serde(default)]
    pub walk_cache: Vec<WalkCacheSpec>,
}

/// Perforated pages: the operating system's rule for them.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Perforated {
    /// The most pages of a region, in percent, rounded down to whole pages, that may be away from
    /// their places, or absent, for the region to be a perforated page.
    pub most_holes_percent: u32,
}

/// A clustered page table: a hash table of nodes, each for a block of base pages (Talluri, Hill and
/// Khalidi, SOSP 1995).
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Clustered {
    /// The base pages of a block, a power of two: the paper's subblock factor. With 1 it is a
    /// hashed page table.
    pub pages: u64,
    /// The buckets of the hash table, a power of two.
    pub buckets: u64,
    /// Whether a node has a single mapping also for base pages that lie in one aligned block of
    /// frames, each at its place, with the same rights: a partial subblock, with a valid bit for
    /// each.
    #[serde(default)]
    pub partial_subblock: bool,
}

/// A range TLB beside the last level of TLBs, whose hit cycles it has: fully associative, with LRU
/// (Karakostas et al., ISCA 2015).
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RangeTlbSpec {
    /// The number of entries.
    pub entries: usize,
}

/// The fixed cost of a walk.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Walk {
    /// Cycles besides the memory references: starting a hardware walk, or entering and leaving the
    /// software that refills.
    pub refill_cycles: u64,
}

/// A page-walk cache: fully associative, with LRU replacement.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct WalkCacheSpec {
    /// The level whose entries it holds, at least 2: one that points to a table of the lowest level
    /// is at level 2.
    pub level: usize,
    /// The number of entries. If a TLB holds them (`in`): the entries of a separate cache, used
    /// where an overlay makes the TLB unable to hold them; with 0 such an overlay is refused.
    #[serde(default)]
    pub entries: usize,
    /// The name of the TLB that holds them among its translations; for level 2 only
    /// ([`Machine::within`]).
    #[serde(default, rename = "in")]
    pub within: Option<String>,
}

/// A cache through which walks read page-table lines.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LineCacheSpec {
    /// Its name in reports.
    pub name: String,
    /// Bytes.
    #[serde(deserialize_with = "bytes")]
    pub size: u64,
    /// The ways of a set.
    pub ways: usize,
    /// Which line of a set is replaced.
    pub replacement: Replacement,
    /// Cycles of a reference that hits here.
    pub hit_cycles: u64,
    /// How many cores, one after the other, have it in common.
    #[serde(default = "by_one")]
    pub shared_by: u32,
}

fn by_one() -> u32 {
    1
}

impl LineCacheSpec {
    /// The number of sets, given the bytes of a line.
    pub fn sets(&self, line_bytes: u64) -> usize {
        (self.size / line_bytes) as usize / self.ways.max(1)
    }
}

/// The costs of operating-system work, in cycles.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Costs {
    /// An instruction without TLB misses (a fraction, not a whole number of cycles).
    pub cycles_per_instruction: f64,
    /// A page fault: trap, finding the mapping, allocating, returning; without zeroing, copying or
    /// writing page-table entries.
    pub fault: u64,
    /// Zeroing 1 KB that is in no cache: memory that a kernel zeroes was free for long, or is
    /// larger than what a cache keeps.
    pub zero_per_kb: u64,
    /// Copying 1 KB, neither end of which is in a cache.
    pub copy_per_kb: u64,
    /// Writing one page-table entry.
    pub pte_write: u64,
    /// Reading or checking one page-table entry in a promotion or demotion.
    pub pte_traversal: u64,
    /// The fixed part of a promotion.
    pub promotion: u64,
    /// The fixed part of a demotion.
    pub demotion: u64,
    /// Preempting a reservation.
    pub preemption: u64,
    /// Announcing one change of a mapping to the TLBs of the core that makes it.
    pub shootdown: u64,
    /// Announcing it to other cores, however many: what the core waits for them, or for an
    /// instruction that reaches all (Arm's TLBI, AMD's INVLPGB).
    #[serde(default)]
    pub shootdown_send: u64,
    /// The interrupt of each other core that runs the space; 0 where an instruction reaches them.
    #[serde(default)]
    pub shootdown_receive: u64,
    /// Switching to another address space.
    pub switch: u64,
    /// A trap that only sets use bits, where the machine does that by a trap; without writing
    /// page-table entries.
    pub use_trap: u64,
    /// Looking at one page in the page daemon or for the background of a policy; without page-table
    /// entries that are written.
    pub daemon_page: u64,
    /// Computing a digest of 1 KB with a fast hash.
    pub hash_per_kb: u64,
    /// Computing the SHA-1 digest of 1 KB.
    pub sha1_per_kb: u64,
}

/// The backing store: one disk for files and swap space, which serves one request at a time.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Disk {
    /// The mean time until the first byte of a request that is not sequential to the one before: to
    /// seek any distance, and to turn.
    pub seek_microseconds: u64,
    /// The mean time until the first byte of a request next to the one before. From there the time
    /// grows with the square root of the distance (Ruemmler and Wilkes, IEEE Computer 1994, for
    /// short seeks). Without it all distances are alike.
    #[serde(default)]
    pub near_seek_microseconds: Option<u64>,
    /// The bytes of the whole disk, for distances.
    #[serde(default)]
    pub capacity_bytes: Option<u64>,
    /// Bytes per second from there on.
    pub bytes_per_second: u64,
}

fn size_or_base<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PageSize>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text == "base" {
        return Ok(None);
    }
    let wrong = |error| serde::de::Error::custom(format!("\"{text}\": {error}; expected a size of page, or \"base\""));
    text.parse().map(Some).map_err(wrong)
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_bytes(&text).map_err(|error| serde::de::Error::custom(format!("\"{text}\": {error}")))
}

/// How errors name the source of a machine that is not built in.
const FILE: &str = "machine file ";

fn of_file(path: &str) -> String {
    format!("{FILE}{path}")
}

impl Machine {
    /// The names of the built-in machines, oldest first.
    pub fn names() -> impl Iterator<Item = &'static str> {
        MACHINES.iter().map(|(name, _)| *name)
    }

    /// The names of the built-in overlays.
    pub fn overlays() -> impl Iterator<Item = &'static str> {
        OVERLAYS.iter().map(|(name, _)| *name)
    }

    /// The built-in machine of this name, with overlays as in `zen5+fractured`.
    ///
    /// # Errors
    /// No such machine or overlay is built in, or the result is not a valid machine.
    pub fn builtin(name: &str) -> Result<Machine, MachineError> {
        Machine::named(name, |path| Err(MachineError::unread(path, "this takes built-in names alone")))
    }

    /// The machine of a name with any number of overlays: `zen5`, `zen5+fractured`,
    /// `./mine.toml+./my-tlb.toml`. A part that ends in `.toml` is the path of a file, whose text
    /// `read` returns; such a path must not contain `+`. After a colon values may be set:
    /// `zen5:tlb.L2 DTLB.entries=512,costs.fault=900`.
    ///
    /// # Errors
    /// A part is unknown or cannot be read, or the result is not a valid machine.
    pub fn named(name: &str, read: impl Fn(&str) -> Result<String, MachineError>) -> Result<Machine, MachineError> {
        Machine::with_text(name, read).map(|(machine, _)| machine)
    }

    /// As [`Machine::named`], with the text of an equivalent single file without comments: machines
    /// with equal texts are equal.
    ///
    /// # Errors
    /// As for [`Machine::named`].
    pub fn with_text(
        name: &str,
        read: impl Fn(&str) -> Result<String, MachineError>,
    ) -> Result<(Machine, String), MachineError> {
        let text = |part: &str, what: &str, known: &[(&'static str, &'static str)]| {
            if part.ends_with(".toml") {
                return Ok((of_file(part), read(part)?));
            }
            match known.iter().find(|(name, _)| *name == part) {
                Some((name, text)) => Ok((format!("built-in {what} {name}"), text.to_string())),
                None => Err(MachineError::unknown(what, part, known)),
            }
        };
        let (name, values) = set::split(name);
        let mut parts = name.split('+');
        let (origin, machine) = text(parts.next().unwrap_or_default(), "machine", MACHINES)?;
        let overlays: Vec<(String, String)> =
            parts.map(|part| text(part, "overlay", OVERLAYS)).collect::<Result<_, _>>()?;
        let (mut machine, mut file, origin) = Machine::overlaid(&machine, &origin, &overlays)?;
        if let Some(values) = values {
            set::set(&mut file, values).map_err(|problem| MachineError::of(&origin, "set", &problem))?;
            machine = Machine::read(&file, sources::machine_of_tables(&file), &format!("{origin} with {values}"))?;
        }
        Ok((machine, file.to_string()))
    }

    /// Checks that the machine of a name has this key, so that its name can set a value of it
    /// ([`Machine::named`]).
    ///
    /// # Errors
    /// The machine has no such key (the message lists those that it has), or it is not a valid
    /// machine.
    pub fn check_key(
        name: &str,
        key: &str,
        read: impl Fn(&str) -> Result<String, MachineError>,
    ) -> Result<(), MachineError> {
        let (machine, text) = Machine::with_text(name, read)?;
        let mut file = error::table(&text, &machine.name)?;
        let problem = |problem: String| MachineError::of(&machine.name, "set", &format!("{key}: {problem}"));
        set::one(&mut file, key, toml::Value::Integer(0)).map_err(problem)
    }

    /// Parses a machine file; `origin` names it in errors.
    ///
    /// # Errors
    /// The file is not a valid machine.
    pub fn parse(text: &str, origin: &str) -> Result<Machine, MachineError> {
        Machine::overlaid(text, &of_file(origin), &[]).map(|(machine, ..)| machine)
    }

    /// Parses a machine file and applies overlays to it in order, each given as origin and text:
    /// the machine, the file with them, and its name in errors.
    fn overlaid(
        text: &str,
        origin: &str,
        overlays: &[(String, String)],
    ) -> Result<(Machine, toml::Table, String), MachineError> {
        let mut file = error::table(text, origin)?;
        // By itself first: errors can name a line in it.
        let mut machine = Machine::read(&file, sources::machine_of_text(text), origin)?;
        let mut origin = origin.to_string();
        for (patch, text) in overlays {
            let patched = error::table(text, patch)?;
            overlay::lay(&mut file, &patched).map_err(|problem| MachineError::of(patch, "overlay", &problem))?;
            origin = format!("{origin} with {}", patch.strip_prefix(FILE).unwrap_or(patch));
            let kind = file.get("page-table").and_then(|table| table.get("kind")).and_then(toml::Value::as_str);
            if machine.page_table.kind == TableKind::Linear && kind.is_some_and(|kind| OVER_RADIX.contains(&kind)) {
                let what = "this overlay is for machines with radix tables, and this one's is linear";
                return Err(MachineError::of(&origin, "page-table.kind", what));
            }
            machine = Machine::read(&file, sources::machine_of_tables(&file), &origin)?;
        }
        Ok((machine, file, origin))
    }

    /// A machine from its file's table, and from the same parsed into types.
    fn read(
        file: &toml::Table,
        typed: Result<Machine, toml::de::Error>,
        origin: &str,
    ) -> Result<Machine, MachineError> {
        // Ranges before types, whose errors do not say which numbers are expected.
        if let Some((key, problem)) = range::outside(file) {
            return Err(MachineError::of(origin, &key, &problem));
        }
        let mut machine = typed.map_err(|error| match error.span() {
            Some(_) => MachineError::syntax(origin, &error),
            None => MachineError::types(origin, file, &error),
        })?;
        // A guest with perforated pages, whose overlays may come in any order.
        let hosted = machine.host.as_ref().is_some_and(|host| !host.page_table_bits.is_empty());
        if machine.page_table.kind == TableKind::Perforated && hosted {
            machine.page_table.kind = TableKind::Nested;
        }
        sources::check(file, origin)?;
        machine.assumed = sources::assumed(file, origin)?;
        machine.check(origin)?;
        Ok(machine)
    }

    /// The values that nobody has published: key (such as `tlb.L2.replacement`) and value, in the
    /// order of the file.
    pub fn assumed(&self) -> &[(String, String)] {
        &self.assumed
    }

    /// The page sizes as a ladder.
    pub fn ladder(&self) -> Ladder {
        Ladder::new(&self.pages.sizes).expect("a machine's sizes were checked when its file was read")
    }

    /// The size of perforated pages, if there are any.
    pub(crate) fn perforated_size(&self) -> Option<PageSize> {
        self.perforated.as_ref().and_then(|_| perforated_size(&self.ladder(), self.page_table.bits[0].into()))
    }

    /// Whether a page whose reference bit is cleared leaves the TLBs.
    pub(crate) fn flushes_referenced(&self) -> bool {
        self.page_table.flush_referenced || self.compared_use_bits() != 0
    }

    /// Whether a memory manager of the host decides by which sizes the guest's memory is mapped.
    pub(crate) fn has_managed_host(&self) -> bool {
        self.host.as_ref().is_some_and(|host| host.managed)
    }

    /// The number of TLB levels.
    pub fn tlb_levels(&self) -> usize {
        self.tlb.iter().map(|tlb| tlb.level).max().unwrap_or(0)
    }

    /// Whether a TLB must include others.
    pub(crate) fn has_inclusive(&self) -> bool {
        self.tlb.iter().any(|tlb| self.enclosed_by(tlb) != 0)
    }

    /// The nearer TLBs that an inclusive one must include, as a bit set of their positions in the
    /// file.
    pub(crate) fn enclosed_by(&self, outer: &TlbSpec) -> u32 {
        if !outer.inclusive {
            return 0;
        }
        let enclosed = |inner: &TlbSpec| {
            inner.level < outer.level && (0..3).all(|a| outer.serves.covers(a) || !inner.serves.covers(a))
        };
        self.tlb.iter().enumerate().map(|(index, inner)| (enclosed(inner) as u32) << index).sum()
    }
}
