//! A mapping of a process: what is in it, in which folios, how contiguous it is, and why it is not
//! huge.

use super::contiguity::{Contiguity, Count};
use super::folios::Folios;
use super::reason::{Block, MappingFacts};
use procfs::process::{MMPermissions, MMapPath, MemoryMap, VmFlags};
use serde::Serialize;
use std::collections::BTreeMap;
use superpage_linux::Error;
use superpage_linux::pagemap::{Counted, Entry, Pagemap, aligned_frames, huge_page_bytes};
use superpage_linux::proc::refused;
use superpage_linux::rules::Rules;
use superpage_linux::scan;
use superpage_linux::why::{Part, Reason, Why};
use superpage_pages::PageSize;

/// The kind of memory that a mapping maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MappingKind {
    /// Private anonymous memory: heaps, stacks.
    Anonymous,
    /// Shared anonymous memory, and shared mappings of memory files and of files on tmpfs.
    SharedMemory,
    /// A file.
    File,
    /// Pages of a hugetlb pool.
    Hugetlb,
    /// Memory of the kernel or a device.
    Kernel,
}

/// A mapping. All counts except the address range are of the moment when its page table was read.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Mapping {
    /// Its first address.
    pub start: u64,
    /// The address after its last.
    pub end: u64,
    /// As in `/proc/PID/maps`: `rw-p`.
    pub permissions: String,
    /// The file, `[heap]` and the like; empty for other anonymous memory.
    pub name: String,
    /// The kind of memory.
    pub kind: MappingKind,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Bytes in memory, without zero pages.
    pub resident_bytes: u64,
    /// Its share of them: of a page that several processes map, its part of that page. Of a hugetlb
    /// pool, of which the kernel does not say that, among the processes of a
    /// [`Service`](super::Service).
    pub proportional_bytes: u64,
    /// What of it no other process maps.
    #[serde(skip)]
    pub(super) exclusive: Exclusive,
    /// What others may map too of a hugetlb pool.
    #[serde(skip)]
    pub(super) pooled: Pooled,
    /// Resident bytes divided by the size; 0 for an empty mapping, 1 for a full one.
    pub populated_share: f64,
    /// Bytes in swap space.
    pub swapped_bytes: u64,
    /// Bytes that map the zero page: read, never written.
    pub zero_bytes: u64,
    /// Resident bytes mapped by huge pages, including those of a hugetlb pool.
    pub huge_bytes: u64,
    /// Resident bytes in blocks that are not huge, but full and of this process alone, where
    /// nothing forbids it: what `superpage daemon` would make huge now.
    pub full_bytes: u64,
    /// Resident bytes by the size of the folio that they are in; `None` without the right to see
    /// it.
    pub folio_bytes: Option<BTreeMap<PageSize, u64>>,
    /// Resident bytes in groups of pages that are contiguous and aligned, see
    /// [`Contiguity::aligned_bytes`]; `None` without the right to see it.
    pub contiguous_bytes: Option<BTreeMap<PageSize, u64>>,
    /// `Some(true)` for `MADV_HUGEPAGE`, `Some(false)` for `MADV_NOHUGEPAGE`.
    pub advised: Option<bool>,
    /// Whether the kernel reports that large folios of some size are possible here; `None` for
    /// kernels that do not report it.
    pub eligible: Option<bool>,
    /// Why the rest of the resident bytes is not huge, most bytes first.
    pub reasons: Vec<Reason>,
}

/// Resident bytes that no other process maps; none of a hugetlb pool, whose pages tell it otherwise
/// ([`Pooled`]).
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Exclusive {
    pub(super) resident: u64,
    pub(super) huge: u64,
    /// The rest of it, by why it is not huge.
    pub(super) reasons: BTreeMap<Why, u64>,
}

/// Resident pages of a hugetlb pool that other processes may map too.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Pooled {
    /// Device and inode: also what is shared without a file has one.
    pub(super) file: ((i32, i32), u64),
    /// Bytes of a page, or of the part of one that a block is.
    pub(super) page: u64,
    /// Bytes of a page of the pool; 0 of what is in none.
    pub(super) size: u64,
    /// Where they are in the file.
    pub(super) offsets: Vec<u64>,
}

/// What all mappings of a process share.
pub(super) struct ProcessFacts<'a> {
    pub(super) pid: u32,
    pub(super) pagemap: &'a Pagemap,
    pub(super) rules: &'a Rules,
    /// The process disabled huge pages for itself.
    pub(super) disabled: bool,
    /// File systems in memory: device -> the rule of its mount, if that has one.
    pub(super) tmpfs: &'a BTreeMap<(i32, i32), Option<String>>,
    /// Whether other rules than these are in force for now.
    pub(super) temporary: bool,
    /// Whether to go on looking.
    pub(super) go_on: &'a dyn Fn() -> bool,
}

impl Mapping {
    /// Reads a mapping. See [`Pagemap::blocks`] and [`Folios`] for the cost.
    pub(super) fn read(map: &MemoryMap, around: &ProcessFacts, folios: Option<&mut Folios>) -> Result<Mapping, Error> {
        let (start, end) = map.address;
        let mut facts = facts(map, around.rules, around.disabled, around.tmpfs);
        let MappingFacts { kind, advised, eligible, .. } = facts;
        // The kernel goes by those in force.
        facts.eligible = eligible.filter(|_| !around.temporary);
        let base = around.pagemap.base();
        let page_bytes = map.extension.map.get("KernelPageSize").copied().unwrap_or(base);
        let hugetlb = PageSize::from_bytes(page_bytes).filter(|_| kind == MappingKind::Hugetlb);
        let mut tally = Tally::new(&facts, start..end, around.pagemap, hugetlb, folios);
        let counted = Some(Counted::of([map], &(start..end)));
        let blocks = around.pagemap.blocks(start..end, counted, |page, block| {
            tally.block(page, block);
            (around.go_on)()
        });
        blocks.map_err(|error| refused(around.pid, error))?;
        let tally = tally.finish();

        let size_bytes = end - start;
        let mapping = Mapping {
            start,
            end,
            permissions: map.perms.as_str(),
            name: name(&map.pathname),
            kind,
            size_bytes,
            resident_bytes: tally.resident,
            proportional_bytes: match kind {
                MappingKind::Hugetlb => tally.resident,
                _ => map.extension.map.get("Pss").map_or(tally.resident, |bytes| (*bytes).min(tally.resident)),
            },
            pooled: Pooled {
                file: (map.dev, map.inode),
                page: page_bytes.min(around.pagemap.huge()),
                size: if kind == MappingKind::Hugetlb { page_bytes } else { 0 },
                offsets: tally.pooled.iter().map(|address| address - start + map.offset).collect(),
            },
            populated_share: tally.resident as f64 / size_bytes as f64,
            exclusive: exclusive(map, tally.exclusive),
            swapped_bytes: tally.swapped,
            zero_bytes: tally.zero,
            huge_bytes: tally.huge,
            full_bytes: tally.full,
            folio_bytes: tally.folios,
            contiguous_bytes: tally.contiguity.map(|found| found.aligned_bytes),
            advised,
            eligible,
            reasons: tally.reasons,
        };
        debug_assert_eq!(mapping.validate(), Ok(()));
        Ok(mapping)
    }

    /// Checks that the parts add up: folios contain all resident bytes, and each byte is huge or
    /// has a reason.
    ///
    /// # Errors
    /// A sentence that says what is inconsistent.
    pub fn validate(&self) -> Result<(), String> {
        let at = format!("{:#x}-{:#x}", self.start, self.end);
        let reasons: u64 = self.reasons.iter().map(|reason| reason.bytes).sum();
        if self.huge_bytes + reasons != self.resident_bytes {
            let (huge, resident) = (self.huge_bytes, self.resident_bytes);
            return Err(format!("{at}: {huge} huge bytes and {reasons} with a reason, {resident} resident"));
        }
        if self.resident_bytes + self.swapped_bytes + self.zero_bytes > self.size_bytes {
            return Err(format!("{at}: more pages than addresses"));
        }
        if let Some(folios) = &self.folio_bytes {
            let bytes: u64 = folios.values().sum();
            if bytes != self.resident_bytes {
                return Err(format!("{at}: {bytes} bytes in folios, {} resident", self.resident_bytes));
            }
        }
        match self.contiguous_bytes.iter().flat_map(BTreeMap::values).find(|bytes| **bytes > self.resident_bytes) {
            Some(bytes) => Err(format!("{at}: {bytes} bytes contiguous, {} resident", self.resident_bytes)),
            None => Ok(()),
        }
    }

    /// With its proportional share of all that is counted: what it maps alone counts whole, and of
    /// what it shares, each kind has the same part. Which folios are shared is not known.
    pub(super) fn proportional(&self) -> Mapping {
        let Mapping { resident_bytes, proportional_bytes, exclusive, .. } = self;
        // What has changed between the two looks counts as the rest does.
        let none = Exclusive::default();
        let exclusive = if exclusive.resident > *proportional_bytes { &none } else { exclusive };
        let ratio = |part: u64, of: u64| if of == 0 { 1.0 } else { (part as f64 / of as f64).min(1.0) };
        let (all, shared) = (
            ratio(*proportional_bytes, *resident_bytes),
            ratio(proportional_bytes.saturating_sub(exclusive.resident), resident_bytes - exclusive.resident),
        );
        let scaled = |bytes: u64, alone: u64| alone + ((bytes - alone) as f64 * shared).round() as u64;
        let by_size = |sizes: &Option<BTreeMap<PageSize, u64>>| {
            let sizes = sizes.as_ref()?.iter();
            Some(sizes.map(|(size, bytes)| (*size, (*bytes as f64 * all).round() as u64)).collect())
        };
        let reason = |reason: &Reason| {
            let bytes = scaled(reason.bytes, exclusive.reasons.get(&reason.why).copied().unwrap_or(0));
            // Rounded up, so that no bytes are in no block.
            let blocks = (reason.blocks as f64 * ratio(bytes, reason.bytes)).ceil() as u64;
            Reason { bytes, blocks, ..reason.clone() }
        };
        let full = match self.kind {
            MappingKind::Anonymous => self.full_bytes,
            _ => scaled(self.full_bytes, 0),
        };
        Mapping {
            resident_bytes: *proportional_bytes,
            huge_bytes: scaled(self.huge_bytes, exclusive.huge),
            full_bytes: full,
            folio_bytes: by_size(&self.folio_bytes),
            contiguous_bytes: by_size(&self.contiguous_bytes),
            reasons: self.reasons.iter().map(reason).collect(),
            ..self.clone()
        }
    }

    /// Whether it maps code of a file.
    pub(super) fn is_code(&self) -> bool {
        self.kind == MappingKind::File && self.permissions.contains('x')
    }

    /// The share of resident bytes in contiguous aligned groups of a size; `None` if nothing is
    /// resident or visible.
    pub fn contiguous_share(&self, size: PageSize) -> Option<f64> {
        let bytes = self.contiguous_bytes.as_ref()?.get(&size).copied().unwrap_or(0);
        (self.resident_bytes > 0).then(|| bytes as f64 / self.resident_bytes as f64)
    }
}

/// Counts the blocks of a mapping.
struct Tally<'a> {
    facts: &'a MappingFacts<'a>,
    range: std::ops::Range<u64>,
    base: u64,
    block: u64,
    /// The size of its pages, if they are of a hugetlb pool.
    hugetlb: Option<PageSize>,
    flags: Option<&'a mut Folios>,
    count: Count,
    sum: Sum,
    /// What each reason holds for.
    whys: BTreeMap<Why, Part>,
}

/// What was counted, in bytes.
#[derive(Default)]
struct Sum {
    resident: u64,
    swapped: u64,
    zero: u64,
    huge: u64,
    full: u64,
    exclusive: Exclusive,
    /// Addresses of pages of a hugetlb pool, or of blocks of them, that other processes may map
    /// too.
    pooled: Vec<u64>,
    folios: Option<BTreeMap<PageSize, u64>>,
    contiguity: Option<Contiguity>,
    reasons: Vec<Reason>,
}

impl<'a> Tally<'a> {
    fn new(
        facts: &'a MappingFacts<'a>,
        range: std::ops::Range<u64>,
        pagemap: &Pagemap,
        hugetlb: Option<PageSize>,
        flags: Option<&'a mut Folios>,
    ) -> Tally<'a> {
        let (base, block) = (pagemap.base(), pagemap.huge());
        // The size of hugetlb pages is known to all.
        let folios = (flags.is_some() || hugetlb.is_some()).then(BTreeMap::new);
        let (count, whys) = (Count::new(base, block), BTreeMap::new());
        Tally { facts, range, base, block, hugetlb, flags, count, sum: Sum { folios, ..Sum::default() }, whys }
    }

    fn block(&mut self, page: u64, entries: &[Entry]) {
        self.count.block(page, entries);
        let address = page * self.base;
        let mut block = Block {
            pages: entries.len() as u64,
            inside: address >= self.range.start && address + self.block <= self.range.end,
            ..Block::default()
        };
        let (mut huge, mut exclusive, mut exclusive_huge) = (0, 0, 0);
        for (index, entry) in entries.iter().enumerate() {
            block.swapped += u64::from(entry.swapped());
            self.sum.zero += self.base * u64::from(entry.zero());
            if !entry.resident() {
                continue;
            }
            block.resident += 1;
            block.anonymous += u64::from(entry.anonymous());
            block.exclusive += u64::from(entry.anonymous() && entry.exclusive());
            let given_back = self.flags.as_mut().is_some_and(|flags| flags.given_back(*entry));
            block.given_back += u64::from(given_back);
            huge += u64::from(entry.huge() || self.hugetlb.is_some());
            let alone = entry.exclusive() && self.hugetlb.is_none();
            exclusive += u64::from(alone);
            exclusive_huge += u64::from(alone && entry.huge());
            let at = address + index as u64 * self.base;
            let begins = |size: PageSize| at.is_multiple_of(size.bytes().min(self.block));
            self.sum.pooled.extend((!entry.exclusive() && self.hugetlb.is_some_and(begins)).then_some(at));
            if let Some(folios) = &mut self.sum.folios {
                let size = self.hugetlb.or_else(|| {
                    let order = self.flags.as_mut().map_or(0, |flags| flags.order(*entry));
                    PageSize::from_bytes(self.base << order)
                });
                *folios.entry(size.expect("a power of two")).or_default() += self.base;
            }
        }
        block.one_folio = aligned_frames(entries).is_some()
            && self.flags.as_mut().is_some_and(|flags| 1 << flags.order(entries[0]) == block.pages);
        self.sum.resident += block.resident * self.base;
        self.sum.swapped += block.swapped * self.base;
        self.sum.huge += huge * self.base;
        self.sum.exclusive.resident += exclusive * self.base;
        self.sum.exclusive.huge += exclusive_huge * self.base;
        if huge < block.resident {
            let why = self.facts.why(&block);
            let promoted =
                matches!(why, Why::NotAdvised | Why::Never | Why::NotEligible | Why::MappedByPages | Why::NotCollapsed);
            let alone = block.anonymous == block.exclusive;
            let denied = self.facts.word == Some("deny");
            self.sum.full += if promoted && alone && !denied && block.is_full() { block.pages * self.base } else { 0 };
            let part = self.whys.entry(why).or_default();
            part.bytes += (block.resident - huge) * self.base;
            part.blocks += 1;
            *self.sum.exclusive.reasons.entry(why).or_default() += (exclusive - exclusive_huge) * self.base;
        }
    }

    fn finish(mut self) -> Sum {
        for (why, part) in self.whys {
            let text = self.facts.text(why, part, self.block, self.base);
            self.sum.reasons.push(Reason { why, bytes: part.bytes, blocks: part.blocks, text });
        }
        self.sum.reasons.sort_by_key(|reason| std::cmp::Reverse(reason.bytes));
        self.sum.contiguity = self.count.finish();
        self.sum
    }
}

/// What was counted as exclusive, where the kernel's sums agree: of a huge page, the page table
/// says it of the first of its pages only, and another process may map some of the others.
fn exclusive(map: &MemoryMap, counted: Exclusive) -> Exclusive {
    let bytes = |key: &str| map.extension.map.get(key).copied().unwrap_or(0);
    let private = bytes("Private_Clean") + bytes("Private_Dirty");
    if 32 * private.abs_diff(counted.resident) > private.max(counted.resident) { Exclusive::default() } else { counted }
}

/// What holds for a mapping as a whole. `disabled`: the process disabled huge pages for itself.
pub(super) fn facts<'a>(
    map: &MemoryMap,
    rules: &'a Rules,
    disabled: bool,
    tmpfs: &'a BTreeMap<(i32, i32), Option<String>>,
) -> MappingFacts<'a> {
    let (start, end) = map.address;
    let flags = map.extension.vm_flags;
    let (kind, mount_rule) = kind(map, tmpfs);
    let huge = huge_page_bytes();
    let huge_size = PageSize::from_bytes(huge).expect("a power of two");
    // `deny` and `force` rule the files of all mounts.
    let rule = mount_rule.filter(|_| rules.over_mounts().is_none());
    let advised = match () {
        () if flags.contains(VmFlags::NH) => Some(false),
        () if flags.contains(VmFlags::HG) => Some(true),
        () => None,
    };
    MappingFacts {
        kind,
        has_block: start.next_multiple_of(huge) + huge <= end,
        congruent: start % huge == map.offset % huge,
        disabled,
        advised,
        eligible: map.extension.map.get("THPeligible").map(|word| *word != 0),
        given_back: scan::gave_back(map),
        mounted: rule.is_some(),
        word: rule.or_else(|| MappingFacts::word(rules, kind, huge_size)),
    }
}

/// What a mapping shows, and the rule of its mount if it is on a file system in memory that has
/// one.
fn kind<'a>(map: &MemoryMap, tmpfs: &'a BTreeMap<(i32, i32), Option<String>>) -> (MappingKind, Option<&'a str>) {
    let flags = map.extension.vm_flags;
    if flags.contains(VmFlags::HT) {
        return (MappingKind::Hugetlb, None);
    }
    if flags.intersects(VmFlags::PF | VmFlags::IO | VmFlags::MM) {
        return (MappingKind::Kernel, None);
    }
    match &map.pathname {
        MMapPath::Vdso | MMapPath::Vvar | MMapPath::Vsyscall => return (MappingKind::Kernel, None),
        MMapPath::Other(name) if name.starts_with("vvar") || name == "uprobes" => return (MappingKind::Kernel, None),
        MMapPath::Vsys(_) => return (MappingKind::SharedMemory, None),
        _ => {}
    }
    // A private mapping of such memory is one of a file: what it writes are copies of single pages.
    if map.inode != 0 && !map.perms.contains(MMPermissions::SHARED) {
        return (MappingKind::File, None);
    }
    if let Some(rule) = tmpfs.get(&map.dev).filter(|_| map.inode != 0) {
        return (MappingKind::SharedMemory, rule.as_deref());
    }
    // Memory without a mount that all can see: shared anonymous memory and memory files.
    let nameless =
        |name: &str| ["/dev/zero", "/memfd:", "/SYSV", "/dev/shm/"].iter().any(|begin| name.starts_with(begin));
    match &map.pathname {
        MMapPath::Path(path) if map.dev.0 == 0 && path.to_str().is_some_and(nameless) => {
            (MappingKind::SharedMemory, None)
        }
        _ if map.inode != 0 => (MappingKind::File, None),
        MMapPath::Other(name) if name.starts_with("anon_shmem:") => (MappingKind::SharedMemory, None),
        _ => (MappingKind::Anonymous, None),
    }
}

pub(super) fn name(path: &MMapPath) -> String {
    match path {
        MMapPath::Path(path) => path.display().to_string(),
        MMapPath::Heap => "[heap]".into(),
        MMapPath::Stack => "[stack]".into(),
        MMapPath::TStack(thread) => format!("[stack:{thread}]"),
        MMapPath::Vdso => "[vdso]".into(),
        MMapPath::Vvar => "[vvar]".into(),
        MMapPath::Vsyscall => "[vsyscall]".into(),
        MMapPath::Rollup => "[rollup]".into(),
        MMapPath::Anonymous => String::new(),
        MMapPath::Vsys(key) => format!("/SYSV{key:08x}"),
        MMapPath::Other(name) => format!("[{name}]"),
    }
}
