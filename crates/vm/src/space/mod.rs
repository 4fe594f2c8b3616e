//! Address spaces: sorted map entries, each a range of virtual pages that maps part of a memory
//! object.

mod copy_on_write;
mod neighbours;
mod reach;
pub(crate) mod reverse;
mod spaces;

pub(crate) use self::spaces::Spaces;

use crate::SpaceId;
use crate::object::{Growth, ObjectId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cell::Cell;
use core::ops::Range;
use superpage_pages::{Hint, Level, Protection, Vpn};

/// Whether a map entry is of the static pool, and whether its pages are reserved there until it
/// touches them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pooled {
    Not,
    Unreserved,
    Reserved,
}

/// A range of virtual pages with one object, one protection, one hint and one way to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) object: ObjectId,
    /// The index in the object of the page at `start`.
    pub(crate) offset: u64,
    pub(crate) protection: Protection,
    /// Whether writes are seen by others that map the object.
    pub(crate) shared: bool,
    /// Whether the object must not be changed through this entry: a write first puts a
    /// copy-on-write object in front of it.
    pub(crate) copy: bool,
    pub(crate) growth: Growth,
    pub(crate) hint: Hint,
    /// The number of what the policy's background prefers there, 0 for nothing.
    pub(crate) prefer: u16,
    /// If it is of the static pool, it begins and ends where pages of that do.
    pub(crate) pooled: Pooled,
}

impl Entry {
    /// The index in the object of a page of the entry.
    pub(crate) fn index(&self, at: u64) -> u64 {
        at - self.start + self.offset
    }

    /// The virtual page of an index.
    pub(crate) fn page(&self, index: u64) -> Vpn {
        Vpn(index - self.offset + self.start)
    }

    /// The index after the last page.
    pub(crate) fn offset_end(&self) -> u64 {
        self.index(self.end)
    }

    /// The part of the entry from `low` up to `high`, where they overlap.
    pub(crate) fn within(&self, low: u64, high: u64) -> Entry {
        let (start, end) = (self.start.max(low), self.end.min(high));
        Entry { start, end, offset: self.index(start), ..*self }
    }

    /// Whether it is of the static pool.
    pub(crate) fn is_pooled(&self) -> bool {
        self.pooled != Pooled::Not
    }

    /// Whether the aligned region of `pages` pages around a page of the entry lies in it.
    pub(crate) fn holds_region(&self, at: Vpn, pages: u64) -> bool {
        let start = at.align_down(pages).0;
        start >= self.start && start + pages <= self.end
    }

    /// Whether it does and is aligned in the object too, as what a superpage maps must be: an
    /// object may be mapped where the two differ (Navarro et al., section 5.3).
    pub(crate) fn holds_extent(&self, at: Vpn, pages: u64) -> bool {
        (self.start ^ self.offset) & (pages - 1) == 0 && self.holds_region(at, pages)
    }

    /// The rights of a mapping of pages that the entry must not write.
    pub(crate) fn rights_without_write(&self) -> Protection {
        self.protection & !Protection::WRITE
    }

    /// The rights of a mapping of a page of `object`, which is the entry's or one behind it.
    pub(crate) fn rights(&self, object: ObjectId) -> Protection {
        let writable = object == self.object && !self.copy;
        if writable { self.protection } else { self.rights_without_write() }
    }

    /// Whether `next` continues this entry in every respect.
    fn continues_in(&self, next: &Entry) -> bool {
        *next == Entry { start: self.end, end: next.end, offset: self.offset_end(), ..*self }
    }
}

/// An object as a map entry of a space shows it: its pages in the entry's range are mapped there.
#[derive(Clone, Copy)]
pub(crate) struct Window<'a> {
    pub(crate) space: SpaceId,
    pub(crate) entry: &'a Entry,
    /// The entry's object, or one behind it.
    pub(crate) object: ObjectId,
}

/// The map entries of an address space.
#[derive(Default)]
pub(crate) struct Space {
    entries: BTreeMap<u64, Entry>,
    /// The entries by object, first index and start: from a page of an object to the entries that
    /// map it.
    by_object: BTreeSet<(ObjectId, u64, u64)>,
    /// The entry found last: faults are local.
    recent: Cell<Option<Entry>>,
    /// The preference of entries to come.
    pub(crate) prefer: u16,
    /// Whether it may have entries that share since a fork, and how many entries had been dropped
    /// when that was last looked at.
    pub(crate) forked: Option<u64>,
    /// The leaves that map the zero page, by their first page.
    pub(crate) zero_leaves: BTreeMap<u64, Level>,
}

impl Space {
    /// The entry that holds a page. O(log entries), O(1) for that of the last call.
    #[inline]
    pub(crate) fn find(&self, at: u64) -> Option<Entry> {
        if let Some(entry) = self.recent.get()
            && (entry.start..entry.end).contains(&at)
        {
            return Some(entry);
        }
        self.search(at)
    }

    fn search(&self, at: u64) -> Option<Entry> {
        let found = self.entries.range(..=at).next_back().map(|(_, entry)| *entry).filter(|entry| at < entry.end);
        if found.is_some() {
            self.recent.set(found);
        }
        found
    }

    /// The entries that overlap the pages from `low` up to `high`, whole, ascending.
    pub(crate) fn overlapping(&self, low: u64, high: u64) -> Vec<Entry> {
        let first = self.entries.range(..low).next_back().map(|(_, entry)| *entry).filter(|entry| entry.end > low);
        first.into_iter().chain(self.entries.range(low..high).map(|(_, entry)| *entry)).collect()
    }

    /// Adds an entry where there is none, or replaces the one with the same start.
    pub(crate) fn put(&mut self, entry: Entry) {
        self.recent.set(None);
        if let Some(old) = self.entries.insert(entry.start, entry) {
            self.by_object.remove(&(old.object, old.offset, old.start));
        }
        self.by_object.insert((entry.object, entry.offset, entry.start));
    }

    /// Removes the entry with this start.
    pub(crate) fn take(&mut self, start: u64) -> Option<Entry> {
        self.recent.set(None);
        let taken = self.entries.remove(&start)?;
        self.by_object.remove(&(taken.object, taken.offset, taken.start));
        Some(taken)
    }

    /// The entries that hold the page of this index of an object: of an anonymous one at most one,
    /// in O(log entries); of a file one step more for each entry that begins at or before the page.
    pub(crate) fn holding(&self, object: ObjectId, index: u64, file: bool) -> impl Iterator<Item = Entry> + '_ {
        let before = self.by_object.range((object, 0, 0)..=(object, index, u64::MAX)).rev();
        before
            .take(if file { usize::MAX } else { 1 })
            .map(|(_, _, start)| self.entries[start])
            .filter(move |entry| index < entry.offset_end())
    }

    /// The first index that an entry maps of an anonymous object, and the one after the last;
    /// `None` if none maps it.
    pub(crate) fn ends(&self, object: ObjectId) -> Option<Range<u64>> {
        let mut all = self.by_object.range((object, 0, 0)..=(object, u64::MAX, u64::MAX));
        let (_, low, first) = all.next()?;
        let last = all.next_back().map_or(first, |(_, _, last)| last);
        Some(*low..self.entries[last].offset_end())
    }

    /// The parts of an anonymous object that entries map of its pages from `low` up to `high`, as
    /// ranges of indices, the last first. No page of such an object is mapped twice in one space.
    /// O(log entries) and one step for each.
    pub(crate) fn windows(&self, object: ObjectId, low: u64, high: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        let before = self.by_object.range((object, 0, 0)..(object, high, 0)).rev();
        let windows = before.map(|(_, offset, start)| *offset..self.entries[start].offset_end());
        windows.take_while(move |window| low < window.end)
    }

    /// Whether the index by object agrees with the entries.
    pub(crate) fn index_is_right(&self) -> bool {
        let keys = self.entries.values().map(|entry| (entry.object, entry.offset, entry.start));
        self.by_object.len() == self.entries.len() && keys.into_iter().all(|key| self.by_object.contains(&key))
    }

    /// Cuts the entry that holds `at` in two there and returns its object; `None` if an entry
    /// starts there or none is there.
    pub(crate) fn cut(&mut self, at: u64) -> Option<ObjectId> {
        let entry = self.find(at).filter(|entry| entry.start < at)?;
        self.put(entry.within(entry.start, at));
        self.put(entry.within(at, entry.end));
        Some(entry.object)
    }

    /// Joins the two entries that meet at `at` if the second continues the first, and returns their
    /// object.
    pub(crate) fn join(&mut self, at: u64) -> Option<ObjectId> {
        let second = *self.entries.get(&at)?;
        let first = *self.entries.range(..at).next_back()?.1;
        if !first.continues_in(&second) {
            return None;
        }
        self.take(at);
        self.put(Entry { end: second.end, ..first });
        Some(first.object)
    }

    /// All entries, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> + '_ {
        self.entries.values()
    }

    /// The lowest start of `pages` pages in a range that no entry overlaps, congruent to `residue`
    /// modulo `alignment`.
    pub(crate) fn gap(&self, within: Range<u64>, pages: u64, alignment: u64, residue: u64) -> Option<u64> {
        let Range { start: low, end: high } = within;
        let fit = |from: u64| {
            let ahead = residue.wrapping_sub(from) & (alignment - 1);
            from.checked_add(ahead)
        };
        if low >= high {
            return None;
        }
        let mut start = fit(low)?;
        for entry in self.overlapping(low, high) {
            if start.checked_add(pages)? <= entry.start {
                break;
            }
            start = start.max(fit(entry.end)?);
        }
        (start.checked_add(pages)? <= high).then_some(start)
    }

    /// Bytes held; an estimate, since the tree does not tell how full its nodes are.
    pub(crate) fn metadata_bytes(&self) -> usize {
        self.entries.len() * (size_of::<Entry>() + size_of::<u64>() + size_of::<(ObjectId, u64, u64)>())
            + self.zero_leaves.len() * size_of::<(u64, Level)>()
    }
}
