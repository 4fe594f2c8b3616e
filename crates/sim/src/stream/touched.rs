//! The pages that the programs of a stream have touched and still have.
//!
//! They depend only on the stream and the size of the base page, so they are counted once for all
//! simulations that share these, when the stream is prepared for them: no policy can change them. A
//! page counts from its first access, in memory or in swap space, until it is unmapped, discarded
//! or its process ends; what a fork shares counts once, and twice after a write. A page of a file
//! counts from its first use, through a mapping or by the kernel, until the file is removed; a page
//! of shared memory while a mapping reaches it.

use super::pages::{inward, outward};
use hashbrown::HashMap;
use rangemap::RangeSet;
use rustc_hash::FxBuildHasher;
use std::collections::BTreeMap;
use std::ops::Range;
use superpage_pages::{Access, PageRange, Vpn};
use superpage_trace::{Backing, Event, Growth, ProcessId};

/// The owner of a touched page: the process that touched it first, or `None` for a file or shared
/// memory.
pub(crate) type Owner = Option<ProcessId>;

/// Pages per leaf, as a power of two: few, since a program that touches memory sparsely has a leaf
/// for each page.
const LEAF_BITS: u32 = 6;
const LEAF: u64 = 1 << LEAF_BITS;
/// Leaves that are found without a search: those of 256 MB in pages of 4 KB.
const RECENT: usize = 1024;

/// The state of a page in a process: untouched.
const UNTOUCHED: u32 = 0;
/// It has a page of its own.
const OWN: u32 = 1;
/// It reaches the page of a file or of shared memory, and may write there.
const THROUGH: u32 = 2;
/// It has read the page of a file, which its first write will copy.
const BEHIND: u32 = 3;
/// From here on: the page is shared with other processes since a fork, and a write copies it.
const FORKED: u32 = 4;

struct Leaf {
    pages: [u32; LEAF as usize],
    /// How many are not [`UNTOUCHED`].
    live: u32,
}

/// A page that processes share since a fork.
#[derive(Clone, Copy)]
struct Forked {
    sharers: u32,
    owner: ProcessId,
}

/// An object that mappings share: a file, or shared anonymous memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Object {
    File(u32),
    Memory(u32),
}

#[derive(Default)]
struct Shared {
    /// As ranges, since the kernel reads and writes files of any length.
    ranges: RangeSet<u64>,
    /// How many they are.
    pages: u64,
    /// Mappings of it.
    windows: u64,
}

impl Shared {
    /// How many of these pages are touched.
    fn within(&self, range: &Range<u64>) -> u64 {
        self.ranges.overlapping(range).map(|held| held.end.min(range.end) - held.start.max(range.start)).sum()
    }

    /// Adds pages, and returns how many were not there.
    fn insert(&mut self, range: Range<u64>) -> u64 {
        let fresh = range.end - range.start - self.within(&range);
        if fresh > 0 {
            self.ranges.insert(range);
            self.pages += fresh;
        }
        fresh
    }

    /// Removes pages, and returns how many were there.
    fn remove(&mut self, range: Range<u64>) -> u64 {
        let gone = self.within(&range);
        if gone > 0 {
            self.ranges.remove(range);
            self.pages -= gone;
        }
        gone
    }
}

/// A mapping.
#[derive(Clone, Copy)]
struct Window {
    end: u64,
    /// What it shares, and the page of that at its start.
    object: Option<(Object, u64)>,
    /// A write copies.
    private: bool,
    grows_up: bool,
}

#[derive(Default)]
struct Space {
    numbers: HashMap<u64, u32, FxBuildHasher>,
    leaves: Vec<Leaf>,
    vacant: Vec<u32>,
    windows: BTreeMap<u64, Window>,
}

impl Space {
    fn leaf(&mut self, number: u64) -> u32 {
        *self.numbers.entry(number).or_insert_with(|| {
            let fresh = Leaf { pages: [UNTOUCHED; LEAF as usize], live: 0 };
            match self.vacant.pop() {
                Some(vacant) => {
                    self.leaves[vacant as usize] = fresh;
                    vacant
                }
                None => {
                    self.leaves.push(fresh);
                    self.leaves.len() as u32 - 1
                }
            }
        })
    }

    /// Removes the states of the pages from `low` up to `high`.
    fn take(&mut self, low: u64, high: u64, mut taken: impl FnMut(u64, u32)) {
        if low >= high {
            return;
        }
        let (first, last) = (low >> LEAF_BITS, (high - 1) >> LEAF_BITS);
        let found: Vec<u64> = if last - first < self.numbers.len() as u64 {
            (first..=last).filter(|number| self.numbers.contains_key(number)).collect()
        } else {
            self.numbers.keys().copied().filter(|number| (first..=last).contains(number)).collect()
        };
        for number in found {
            let start = number << LEAF_BITS;
            let within = low.max(start)..high.min(start + LEAF);
            let index = self.numbers[&number];
            let leaf = &mut self.leaves[index as usize];
            for page in within {
                let known = std::mem::replace(&mut leaf.pages[(page - start) as usize], UNTOUCHED);
                if known != UNTOUCHED {
                    leaf.live -= 1;
                    taken(page, known);
                }
            }
            if leaf.live == 0 {
                self.numbers.remove(&number);
                self.vacant.push(index);
            }
        }
    }

    fn set(&mut self, page: u64, known: u32) {
        let index = self.leaf(page >> LEAF_BITS);
        let leaf = &mut self.leaves[index as usize];
        let old = std::mem::replace(&mut leaf.pages[(page % LEAF) as usize], known);
        leaf.live += u32::from(old == UNTOUCHED);
    }

    /// The mapping that holds a page, and its start.
    fn find(&self, page: u64) -> Option<(u64, Window)> {
        let found = self.windows.range(..=page).next_back().map(|(start, window)| (*start, *window));
        found.filter(|(_, window)| page < window.end)
    }

    /// The mappings that overlap a range, whole.
    fn overlapping(&self, low: u64, high: u64) -> Vec<(u64, Window)> {
        let first = self.windows.range(..low).next_back().filter(|(_, window)| window.end > low);
        first.into_iter().chain(self.windows.range(low..high)).map(|(start, window)| (*start, *window)).collect()
    }
}

/// The touched pages of all processes and files, and the owner of each.
pub(crate) struct Touched {
    /// The bits that a page number of the stream loses here.
    shift: u32,
    spaces: Vec<Space>,
    numbers: BTreeMap<ProcessId, usize>,
    vacant: Vec<usize>,
    process: ProcessId,
    /// The space of the current process.
    current: usize,
    /// What is known of leaves of the current process, by number.
    recent: Box<[Quiet; RECENT]>,
    forked: Vec<Forked>,
    free: Vec<u32>,
    shared: HashMap<Object, Shared, FxBuildHasher>,
    made: u32,
    owned: BTreeMap<Owner, u64>,
}

/// The pages of one leaf that an access leaves as they are.
#[derive(Clone, Copy)]
struct Quiet {
    number: u64,
    /// Bit sets of the pages that [0] a read or fetch, [1] a write leaves as they are. As long as
    /// the leaf is here a page stays in them: only its process's own writes change its state, into
    /// one that both leave as it is.
    by: [u64; 2],
}

const NOWHERE: Quiet = Quiet { number: u64::MAX, by: [0; 2] };

impl Touched {
    pub(crate) fn new(shift: u32) -> Touched {
        let process = ProcessId(0);
        Touched {
            shift,
            spaces: vec![Space::default()],
            numbers: BTreeMap::from([(process, 0)]),
            vacant: Vec::new(),
            process,
            current: 0,
            recent: Box::new([NOWHERE; RECENT]),
            forked: Vec::new(),
            free: Vec::new(),
            shared: HashMap::default(),
            made: 0,
            owned: BTreeMap::new(),
        }
    }

    /// The current process.
    pub(crate) fn process(&self) -> ProcessId {
        self.process
    }

    /// The touched pages of each owner that has any.
    pub(crate) fn owned(&self) -> impl Iterator<Item = (Owner, u64)> + '_ {
        self.owned.iter().map(|(owner, pages)| (*owner, *pages)).filter(|(_, pages)| *pages > 0)
    }

    /// Records an access of the current process to a base page; returns whether there is one more
    /// touched page.
    #[inline(always)]
    pub(crate) fn access(&mut self, page: u64, access: Access) -> bool {
        let (number, write) = (page >> LEAF_BITS, access == Access::Write);
        let quiet = &self.recent[number as usize % RECENT];
        if quiet.number == number && quiet.by[usize::from(write)] >> (page % LEAF) & 1 != 0 {
            return false;
        }
        self.note(page, write)
    }

    #[inline(never)]
    fn note(&mut self, page: u64, write: bool) -> bool {
        let number = page >> LEAF_BITS;
        let leaf = self.spaces[self.current].leaf(number);
        let more = self.touch(leaf, page, write);
        let known = self.spaces[self.current].leaves[leaf as usize].pages[(page % LEAF) as usize];
        let quiet = &mut self.recent[number as usize % RECENT];
        if quiet.number != number {
            *quiet = Quiet { number, ..NOWHERE };
        }
        // All states but that of an untouched page are left alone by a read; by a write, that of a
        // page of its own.
        quiet.by[0] |= 1 << (page % LEAF);
        quiet.by[1] |= u64::from(known == OWN || known == THROUGH) << (page % LEAF);
        more
    }

    /// Records an access to a page of this leaf.
    fn touch(&mut self, leaf: u32, page: u64, write: bool) -> bool {
        let space = &mut self.spaces[self.current];
        let known = space.leaves[leaf as usize].pages[(page % LEAF) as usize];
        let (known, more, owner) = match known {
            UNTOUCHED => match space.find(page).and_then(|(start, window)| Some((start, window.object?, window))) {
                Some((start, (object, offset), Window { private, .. })) if !private || !write => {
                    let shared = self.shared.entry(object).or_default();
                    let at = page - start + offset;
                    let more = shared.insert(at..at + 1) > 0;
                    (if private { BEHIND } else { THROUGH }, more, None)
                }
                _ => (OWN, true, Some(self.process)),
            },
            BEHIND if write => (OWN, true, Some(self.process)),
            FORKED.. if write => {
                let gone = release(&mut self.forked, &mut self.free, &mut self.owned, known - FORKED);
                *self.owned.entry(Some(self.process)).or_default() += 1;
                space.set(page, OWN);
                return !gone;
            }
            _ => return false,
        };
        space.set(page, known);
        if more {
            *self.owned.entry(owner).or_default() += 1;
        }
        more
    }

    /// Applies the effect of an event on touched pages.
    pub(crate) fn event(&mut self, event: &Event) {
        let shift = self.shift;
        match *event {
            Event::Switch { process, .. } => self.switch(process),
            Event::Map { start, pages, shared, backing, growth, .. } => {
                let PageRange { start, pages } = outward(shift, start, pages);
                let object = match backing {
                    Backing::File { file, offset, .. } => Some((Object::File(file), offset >> shift)),
                    Backing::Anonymous if shared => {
                        self.made += 1;
                        Some((Object::Memory(self.made), 0))
                    }
                    Backing::Anonymous => None,
                };
                let window = Window { end: start.0 + pages, object, private: !shared, grows_up: growth == Growth::Up };
                self.unmap(start.0, start.0 + pages);
                self.put(start.0, window);
            }
            Event::Unmap { start, pages } => {
                let PageRange { start: first, pages: count } = inward(shift, start, pages);
                self.unmap(first.0, first.0 + count);
            }
            Event::Discard { start, pages } => {
                let PageRange { start: first, pages: count } = inward(shift, start, pages);
                self.discard(first.0, first.0 + count);
            }
            Event::Grow { start, pages } => {
                let PageRange { start: first, pages: count } = outward(shift, start, pages);
                self.grow(first.0, first.0 + count);
            }
            Event::Remap { from, from_pages, to, to_pages } => {
                let (from, to) = (outward(shift, from, from_pages), outward(shift, to, to_pages));
                self.remap(from, to);
            }
            Event::Fork { child } => self.fork(child),
            Event::Exec => self.unmap(0, u64::MAX),
            Event::Exit => self.exit(self.process),
            Event::Read { file, start, pages } | Event::Write { file, start, pages } => {
                let PageRange { start: first, pages: count } = outward(shift, start, pages);
                let held = self.shared.entry(Object::File(file)).or_default();
                if count > 0 {
                    *self.owned.entry(None).or_default() += held.insert(first.0..first.0 + count);
                }
            }
            Event::Remove { file } => {
                if let Some(held) = self.shared.get_mut(&Object::File(file)) {
                    *self.owned.entry(None).or_default() -= std::mem::take(&mut held.pages);
                    held.ranges.clear();
                }
            }
            _ => {}
        }
    }

    fn switch(&mut self, process: ProcessId) {
        if process == self.process {
            return;
        }
        self.process = process;
        self.recent.fill(NOWHERE);
        self.current = self.space(process);
    }

    /// The space of a process, a new one if it has none.
    fn space(&mut self, process: ProcessId) -> usize {
        *self.numbers.entry(process).or_insert_with(|| {
            self.vacant.pop().unwrap_or_else(|| {
                self.spaces.push(Space::default());
                self.spaces.len() - 1
            })
        })
    }

    fn put(&mut self, start: u64, window: Window) {
        if let Some((object, _)) = window.object {
            self.shared.entry(object).or_default().windows += 1;
        }
        self.spaces[self.current].windows.insert(start, window);
    }

    /// Forgets the pages of a range, and its mappings.
    fn unmap(&mut self, low: u64, high: u64) {
        self.discard(low, high);
        for (start, window) in self.spaces[self.current].overlapping(low, high) {
            self.spaces[self.current].windows.remove(&start);
            for (from, to) in [(start, low.max(start)), (high.min(window.end), window.end)] {
                if from < to {
                    let object = window.object.map(|(object, offset)| (object, offset + (from - start)));
                    self.put(from, Window { end: to, object, ..window });
                }
            }
            if let Some((object, _)) = window.object {
                self.close(object);
            }
        }
    }

    /// Removes a mapping of the object.
    fn close(&mut self, object: Object) {
        let Some(shared) = self.shared.get_mut(&object) else { return };
        shared.windows -= 1;
        if shared.windows == 0 && matches!(object, Object::Memory(_)) {
            *self.owned.entry(None).or_default() -= shared.pages;
            self.shared.remove(&object);
        }
    }

    /// Forgets the pages of a range. Those of shared memory only if no other mapping reaches them.
    fn discard(&mut self, low: u64, high: u64) {
        // Pages of the stream may be less than one here.
        if low >= high {
            return;
        }
        self.recent.fill(NOWHERE);
        let space = &mut self.spaces[self.current];
        let process = self.process;
        space.take(low, high, |_, known| match known {
            OWN => *self.owned.entry(Some(process)).or_default() -= 1,
            FORKED.. => _ = release(&mut self.forked, &mut self.free, &mut self.owned, known - FORKED),
            _ => {}
        });
        for (start, window) in space.overlapping(low, high) {
            let Some((object @ Object::Memory(_), offset)) = window.object else { continue };
            let gone = low.max(start) - start + offset..high.min(window.end) - start + offset;
            let gone = self.unreached(object, gone, (low, high));
            let Some(shared) = self.shared.get_mut(&object) else { continue };
            let gone: u64 = gone.into_iter().map(|pages| shared.remove(pages)).sum();
            *self.owned.entry(None).or_default() -= gone;
        }
    }

    /// Those of an object's pages that no mapping reaches, where a range of the current process's
    /// addresses does not count.
    fn unreached(&self, object: Object, pages: Range<u64>, (low, high): (u64, u64)) -> RangeSet<u64> {
        let mut left = RangeSet::from([pages]);
        // The youngest first: of processes that end in the order in which they began, it still maps
        // all, and is the only one looked at.
        for (number, space) in self.spaces.iter().enumerate().rev() {
            for (start, window) in &space.windows {
                let Some((_, offset)) = window.object.filter(|(known, _)| *known == object) else { continue };
                let but = if number == self.current { low..high } else { window.end..window.end };
                for (from, to) in [(*start, window.end.min(but.start)), ((*start).max(but.end), window.end)] {
                    if from < to {
                        left.remove(from - start + offset..to - start + offset);
                    }
                }
            }
            if left.is_empty() {
                break;
            }
        }
        left
    }

    /// Sets the end of the growing mapping that starts at `start`.
    fn grow(&mut self, start: u64, end: u64) {
        let windows = &self.spaces[self.current].windows;
        let Some(mut last) = windows.get(&start).map(|window| (start, *window)) else { return };
        while let Some(next) = windows.get(&last.1.end).filter(|next| next.grows_up) {
            last = (last.1.end, *next);
        }
        if end > last.1.end {
            self.unmap(last.1.end, end);
            self.spaces[self.current].windows.insert(last.0, Window { end, ..last.1 });
        } else {
            self.unmap(end, last.1.end);
        }
    }

    fn remap(&mut self, old: PageRange, new: PageRange) {
        let (PageRange { start: Vpn(from), pages: from_pages }, PageRange { start: Vpn(to), pages: to_pages }) =
            (old, new);
        let (end, to_end) = (from + from_pages, to + to_pages);
        // Like the kernel: what it cannot move stays, and what is touched there is mapped then.
        if self.spaces[self.current].find(from).is_none() || from != to && from < to_end && to < end {
            return;
        }
        let moving = from_pages.min(to_pages);
        self.unmap(from + moving, end);
        if from != to {
            self.unmap(to, to_end);
            self.recent.fill(NOWHERE);
            let space = &mut self.spaces[self.current];
            let mut moved = Vec::new();
            space.take(from, from + moving, |page, known| moved.push((page - from + to, known)));
            moved.into_iter().for_each(|(page, known)| space.set(page, known));
            for (start, window) in space.overlapping(from, from + moving) {
                // Its ends stay where they are if they lie outside.
                let (low, high) = (start.max(from), window.end.min(from + moving));
                let at = |page: u64| window.object.map(|(object, offset)| (object, offset + (page - start)));
                let parts = [(start, low, start), (low, high, low - from + to), (high, window.end, high)];
                self.spaces[self.current].windows.remove(&start);
                for (first, after, place) in parts {
                    if first < after {
                        self.put(place, Window { end: place + (after - first), object: at(first), ..window });
                    }
                }
                if let Some((object, _)) = window.object {
                    self.close(object);
                }
            }
        } else {
            self.unmap(to + moving, to_end);
        }
        let last = self.spaces[self.current].find(to + moving - 1);
        if let Some((start, window)) = last.filter(|_| to_pages > from_pages) {
            self.spaces[self.current].windows.insert(start, Window { end: to_end, ..window });
        }
    }

    /// Forks the current process: its own pages are shared from now on.
    fn fork(&mut self, child: ProcessId) {
        if child == self.process {
            return;
        }
        self.exit(child);
        self.recent.fill(NOWHERE);
        let copy = self.space(child);
        let parent = &mut self.spaces[self.current];
        for leaf in &mut parent.leaves {
            for known in leaf.pages.iter_mut().filter(|known| **known == OWN || **known >= FORKED) {
                if *known == OWN {
                    let page = Forked { sharers: 1, owner: self.process };
                    let number = self.free.pop().unwrap_or_else(|| {
                        self.forked.push(page);
                        self.forked.len() as u32 - 1
                    });
                    self.forked[number as usize] = page;
                    *known = FORKED + number;
                }
                self.forked[(*known - FORKED) as usize].sharers += 1;
            }
        }
        let leaves = parent.leaves.iter().map(|leaf| Leaf { pages: leaf.pages, live: leaf.live }).collect();
        let (numbers, vacant, windows) = (parent.numbers.clone(), parent.vacant.clone(), parent.windows.clone());
        for (object, _) in windows.values().filter_map(|window| window.object) {
            self.shared.entry(object).or_default().windows += 1;
        }
        self.spaces[copy] = Space { numbers, leaves, vacant, windows };
    }

    /// Ends a process, if there is one with this number.
    fn exit(&mut self, process: ProcessId) {
        let Some(space) = self.numbers.get(&process).copied() else { return };
        let (current, before) = (self.current, self.process);
        (self.current, self.process) = (space, process);
        self.unmap(0, u64::MAX);
        self.spaces[space] = Space::default();
        (self.current, self.process) = (current, before);
        // The current one keeps its space: the stream may still continue with it.
        if process != before {
            self.numbers.remove(&process);
            self.vacant.push(space);
        }
        self.owned.retain(|_, pages| *pages > 0);
    }
}

/// One process fewer shares a page; returns whether it was the last one, and the page is gone.
fn release(forked: &mut [Forked], free: &mut Vec<u32>, owned: &mut BTreeMap<Owner, u64>, number: u32) -> bool {
    let page = &mut forked[number as usize];
    page.sharers -= 1;
    if page.sharers > 0 {
        return false;
    }
    free.push(number);
    *owned.entry(Some(page.owner)).or_default() -= 1;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_reads_files_of_any_length() {
        let mut touched = Touched::new(0);
        touched.event(&Event::Switch { process: ProcessId(0), thread: 0 });
        let read = |start, pages| Event::Read { file: 1, start, pages };
        for (event, owned) in [
            (read(0, 1 << 50), vec![(None, 1 << 50)]),
            (read(1 << 49, 1 << 50), vec![(None, 3 << 49)]),
            (read(5, 0), vec![(None, 3 << 49)]),
            (Event::Remove { file: 1 }, vec![]),
            (read(7, 2), vec![(None, 2)]),
        ] {
            touched.event(&event);
            assert_eq!(touched.owned().collect::<Vec<_>>(), owned, "{event:?}");
        }
    }
}
