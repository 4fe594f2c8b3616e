//! The page tables of x86-64, of four levels, as a [`Pmap`]: pages of 4 KB, 2 MB and 1 GB.
//!
//! Tables lie in frames that the manager provides. Those that a demotion will need are kept: one
//! for a page of 2 MB, 513 for one of 1 GB. Entries are the hardware's, which sets the accessed and
//! the dirty bit; three of the bits that it leaves to software hold the rights, since x86-64 cannot
//! express all of them.
//!
//! Other processors use the tables while they change. So a mapping is taken out by one exchange
//! before it is changed, and no bit that the hardware sets is lost; an access meanwhile faults, and
//! waits for the manager's lock. What was taken out is invalidated on all processors
//! ([`Machine`]).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use superpage_pages::{Access, PageRange, PageSize, Pfn, Protection, Vpn};
use superpage_vm::{Mapped, Pmap, SpaceId, Used};

const PRESENT: u64 = 1;
const WRITE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const LARGE: u64 = 1 << 7;
/// The position of the rights, in bits for software.
const RIGHTS: u32 = 9;
/// Also for software: the page is mapped, even if nobody may access it.
const MAPPED: u64 = 1 << 52;
const NO_EXECUTE: u64 = 1 << 63;
const FRAME: u64 = 0x000f_ffff_ffff_f000;

/// By level, the number of tables that it takes to demote one page of that level to base pages.
const OWED: [usize; 3] = [0, 1, 513];
/// The level of the root.
const ROOT: usize = 3;
/// With more than this many pages to invalidate, the whole TLB is flushed; Linux uses the same
/// number.
pub(crate) const MANY: usize = 33;

/// The memory of the tables, and the TLBs.
pub(crate) trait Machine {
    /// An entry of the table in a frame.
    fn read(&self, table: Pfn, index: usize) -> u64;
    /// Writes an entry.
    fn write(&mut self, table: Pfn, index: usize, entry: u64);
    /// Empties an entry, by one exchange, and returns what it was.
    fn take(&mut self, table: Pfn, index: usize) -> u64;
    /// Invalidates the entries of all TLBs for the pages, of any size and at most [`MANY`], and
    /// what is cached of tables. Returns when no processor uses them.
    fn invalidate(&mut self, space: SpaceId, stale: &[Vpn]);
    /// Invalidates the entry of this processor's TLB alone for the page. Others may use theirs.
    fn invalidate_here(&mut self, space: SpaceId, at: Vpn);
    /// As [`Machine::invalidate`], for all pages of the space.
    fn invalidate_all(&mut self, space: SpaceId);
    /// A space got this root, which is empty. Entries made there by other means belong to the
    /// kernel, and stay.
    fn new_root(&mut self, _root: Pfn) {}
}

/// The page tables of all spaces.
pub(crate) struct Tables<M> {
    pub(crate) machine: M,
    roots: Vec<Option<Pfn>>,
    /// The entries in use of each table.
    entries: BTreeMap<Pfn, usize>,
    /// Unused frames for tables.
    spare: Vec<Pfn>,
    /// How many of these are reserved for demotions.
    owed: usize,
    /// The change in progress: its space, the pages it has made stale, and tables that became
    /// empty.
    change: Option<(SpaceId, Vec<Vpn>, Vec<Pfn>)>,
}

fn level(size: PageSize) -> usize {
    match size {
        PageSize::KB4 => 0,
        PageSize::MB2 => 1,
        PageSize::GB1 => 2,
        _ => panic!("{size} is not a page size of x86-64"),
    }
}

/// The base pages of a page of a level.
fn pages(level: usize) -> u64 {
    1 << (9 * level)
}

fn index(at: Vpn, level: usize) -> usize {
    (at.0 >> (9 * level) & 511) as usize
}

fn leaf(frame: Pfn, level: usize, protection: Protection, used: u64) -> u64 {
    let set = |condition: bool, bits: u64| if condition { bits } else { 0 };
    frame.0 << 12
        | set(protection != Protection::NONE, PRESENT | USER)
        | set(protection.contains(Protection::WRITE), WRITE)
        | set(!protection.contains(Protection::EXECUTE), NO_EXECUTE)
        | set(level > 0, LARGE)
        | u64::from(protection.bits()) << RIGHTS
        | used & (ACCESSED | DIRTY)
        | MAPPED
}

fn frame(entry: u64) -> Pfn {
    Pfn((entry & FRAME) >> 12)
}

fn protection(entry: u64) -> Protection {
    Protection::from_bits((entry >> RIGHTS & 7) as u8)
}

fn used(entry: u64) -> Used {
    Used { referenced: entry & ACCESSED > 0, modified: entry & DIRTY > 0 }
}

impl<M: Machine> Tables<M> {
    /// No space, no table.
    pub(crate) fn new(machine: M) -> Tables<M> {
        Tables { machine, roots: Vec::new(), entries: BTreeMap::new(), spare: Vec::new(), owed: 0, change: None }
    }

    /// The root for CR3 of a space; nothing is mapped in a space that has none.
    pub(crate) fn root(&self, space: SpaceId) -> Option<Pfn> {
        self.roots.get(space.0 as usize).copied().flatten()
    }

    /// The frames that it holds: tables, and frames for tables.
    pub(crate) fn frames(&self) -> usize {
        self.entries.len() + self.spare.len()
    }

    /// The entry that maps a page, or the one where a table is missing: its table, level and value.
    /// `None` without a root.
    fn walk(&self, space: SpaceId, at: Vpn) -> Option<(Pfn, usize, u64)> {
        let (mut table, mut level) = (self.root(space)?, ROOT);
        loop {
            let entry = self.machine.read(table, index(at, level));
            if level == 0 || entry == 0 || entry & LARGE > 0 {
                return Some((table, level, entry));
            }
            (table, level) = (frame(entry), level - 1);
        }
    }

    /// The mapping of this size at a page.
    fn exact(&self, space: SpaceId, at: Vpn, size: PageSize) -> (Pfn, u64) {
        match self.walk(space, at) {
            Some((table, found, entry)) if entry != 0 && found == level(size) => (table, entry),
            other => panic!("no page of {size} is mapped at {at:?}, but {other:?}"),
        }
    }

    /// Takes out the mapping of this size at a page; returns its table and what its entry was.
    fn take(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> (Pfn, u64) {
        let (table, _) = self.exact(space, at, size);
        *self.entries.get_mut(&table).expect("a table") -= 1;
        (table, self.machine.take(table, index(at, level(size))))
    }

    fn set(&mut self, table: Pfn, index: usize, entry: u64) {
        let before = self.machine.read(table, index);
        self.machine.write(table, index, entry);
        let entries = self.entries.get_mut(&table).expect("a table");
        *entries = *entries + usize::from(entry != 0) - usize::from(before != 0);
    }

    fn new_table(&mut self) -> Pfn {
        let table = self.spare.pop().expect("the manager has given as many as were lacking");
        (0..512).for_each(|index| self.machine.write(table, index, 0));
        self.entries.insert(table, 0);
        table
    }

    fn free_table(&mut self, table: Pfn) {
        self.entries.remove(&table);
        match &mut self.change {
            Some((_, _, emptied)) => emptied.push(table),
            None => self.spare.push(table),
        }
    }

    fn invalidate(&mut self, space: SpaceId, at: Vpn) {
        match &mut self.change {
            Some((_, stale, _)) => stale.push(at),
            None => self.machine.invalidate(space, &[at]),
        }
    }
}

impl<M: Machine> Pmap for Tables<M> {
    fn tables_lacking(&self, space: SpaceId, at: Vpn, size: PageSize) -> u64 {
        let to = level(size);
        let from = match self.walk(space, at) {
            Some((_, found, entry)) if entry != 0 && found >= to => return 0,
            walked => walked.map_or(ROOT + 1, |(_, level, _)| level),
        };
        // If smaller pages are to be replaced by a larger one, its tables exist.
        (from.saturating_sub(to) + OWED[to] + self.owed).saturating_sub(self.spare.len()) as u64
    }

    fn give_table(&mut self, frame: Pfn) {
        self.spare.push(frame);
    }

    fn take_table(&mut self) -> Option<Pfn> {
        if self.spare.len() > self.owed { self.spare.pop() } else { None }
    }

    fn begin_gather(&mut self, space: SpaceId, _: Range<Vpn>) {
        assert!(self.change.is_none(), "changes do not nest");
        self.change = Some((space, Vec::new(), Vec::new()));
    }

    fn flush_gathered(&mut self, space: SpaceId) {
        let (_, stale, emptied) = self.change.take().expect("a change was begun");
        match stale.len() {
            0 => {}
            1..=MANY => self.machine.invalidate(space, &stale),
            _ => self.machine.invalidate_all(space),
        }
        self.spare.extend(emptied);
    }

    fn enter(&mut self, space: SpaceId, at: Vpn, to: Mapped, access: Access) {
        let lowest = level(to.size);
        if self.root(space).is_none() {
            let (root, number) = (self.new_table(), space.0 as usize);
            self.roots.resize(self.roots.len().max(number + 1), None);
            self.roots[number] = Some(root);
            self.machine.new_root(root);
        }
        let (mut table, mut level, entry) = self.walk(space, at).expect("it has a root");
        assert_eq!(entry, 0, "{at:?} is mapped");
        while level > lowest {
            let below = self.new_table();
            self.set(table, index(at, level), below.0 << 12 | PRESENT | WRITE | USER);
            (table, level) = (below, level - 1);
        }
        let used = if access == Access::Write { ACCESSED | DIRTY } else { ACCESSED };
        self.set(table, index(at, lowest), leaf(to.frame, lowest, to.protection, used));
        self.owed += OWED[lowest];
    }

    fn enter_pages(&mut self, space: SpaceId, at: PageRange, to: Mapped, access: Access) {
        let (PageRange { start: at, pages }, mut entered) = (at, 0);
        while entered < pages {
            // The first one walks, and makes the table; those beside it are in the same table.
            self.enter(space, at + entered, Mapped { frame: to.frame + entered, ..to }, access);
            let (table, first) = self.exact(space, at + entered, to.size);
            let beside = (511 - index(at + entered, 0) as u64).min(pages - entered - 1);
            for page in 1..=beside {
                let next = index(at + entered + page, 0);
                assert_eq!(self.machine.read(table, next), 0, "{:?} is mapped", at + entered + page);
                self.machine.write(table, next, leaf(frame(first) + page, 0, to.protection, first));
            }
            *self.entries.get_mut(&table).expect("a table") += beside as usize;
            entered += 1 + beside;
        }
    }

    fn remove(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> Used {
        let (table, entry) = self.take(space, at, size);
        self.owed -= OWED[level(size)];
        // Free the tables that are empty now, except for the root.
        let (mut empty, mut above) = (table, level(size) + 1);
        while above <= ROOT && self.entries[&empty] == 0 {
            let mut parent = self.root(space).expect("it has mapped something");
            for level in (above + 1..=ROOT).rev() {
                parent = frame(self.machine.read(parent, index(at, level)));
            }
            self.set(parent, index(at, above), 0);
            self.free_table(empty);
            (empty, above) = (parent, above + 1);
        }
        self.invalidate(space, at);
        used(entry)
    }

    fn protect(&mut self, space: SpaceId, at: Vpn, size: PageSize, protection: Protection) {
        let (table, entry) = self.take(space, at, size);
        self.set(table, index(at, level(size)), leaf(frame(entry), level(size), protection, entry));
        self.invalidate(space, at);
    }

    fn promote(&mut self, space: SpaceId, at: Vpn, from: PageSize, to: PageSize) {
        let (from, to) = (level(from), level(to));
        assert_eq!(from + 1, to, "one level at a time");
        let mut parent = self.root(space).expect("it has mapped something");
        for level in (to + 1..=ROOT).rev() {
            parent = frame(self.machine.read(parent, index(at, level)));
        }
        // From here on, and once TLBs forget the smaller pages, nobody sets bits of these.
        let table = frame(self.machine.take(parent, index(at, to)));
        self.machine.invalidate_all(space);
        let first = self.machine.read(table, 0);
        let mut used = 0;
        for part in 0..512 {
            let entry = self.machine.read(table, part as usize);
            assert_eq!(frame(entry), frame(first) + part * pages(from), "the frames at {at:?} are not contiguous");
            assert_eq!(protection(entry), protection(first), "the rights at {at:?} differ");
            used |= entry;
        }
        self.machine.write(parent, index(at, to), leaf(frame(first), to, protection(first), used));
        self.owed = self.owed + OWED[to] - 512 * OWED[from];
        self.free_table(table);
    }

    fn demote(&mut self, space: SpaceId, at: Vpn, from: PageSize, to: PageSize) {
        let (table, entry) = self.take(space, at, from);
        let (from, to) = (level(from), level(to));
        let smaller = from - 1;
        let below = self.new_table();
        for part in 0..512 {
            let entry = leaf(frame(entry) + part * pages(smaller), smaller, protection(entry), entry);
            self.machine.write(below, part as usize, entry);
        }
        self.entries.insert(below, 512);
        self.set(table, index(at, from), below.0 << 12 | PRESENT | WRITE | USER);
        self.owed = self.owed + 512 * OWED[smaller] - OWED[from];
        self.invalidate(space, at);
        if smaller > to {
            let sizes = [PageSize::KB4, PageSize::MB2];
            (0..512).for_each(|part| self.demote(space, at + part * pages(smaller), sizes[smaller], sizes[to]));
        }
    }

    fn lookup(&self, space: SpaceId, at: Vpn) -> Option<Mapped> {
        let (_, level, entry) = self.walk(space, at).filter(|(_, _, entry)| *entry != 0)?;
        let size = [PageSize::KB4, PageSize::MB2, PageSize::GB1][level];
        Some(Mapped { frame: frame(entry) + at.0 % pages(level), size, protection: protection(entry) })
    }

    fn used(&self, space: SpaceId, at: Vpn, size: PageSize) -> Used {
        used(self.exact(space, at, size).1)
    }

    fn clear_referenced(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> bool {
        let (table, entry) = self.take(space, at, size);
        self.set(table, index(at, level(size)), entry & !ACCESSED);
        // As on Linux: what other processors read by way of their TLBs goes unseen, which is cheap
        // and costs at most a page-in.
        self.machine.invalidate_here(space, at);
        entry & ACCESSED > 0
    }

    fn clear_modified(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> bool {
        let (table, entry) = self.take(space, at, size);
        self.set(table, index(at, level(size)), entry & !DIRTY);
        self.invalidate(space, at);
        entry & DIRTY > 0
    }

    fn destroy(&mut self, space: SpaceId) {
        if let Some(root) = self.root(space) {
            assert_eq!(self.entries[&root], 0, "a space that is destroyed has nothing mapped");
            self.machine.invalidate_all(space);
            self.roots[space.0 as usize] = None;
            self.free_table(root);
        }
    }
}
