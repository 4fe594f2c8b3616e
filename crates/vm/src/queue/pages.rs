//! What the page daemon keeps of each frame: its page list, the activity of its page, whether the
//! page is dirty; and the page that is in it.
//!
//! A frame whose page is populated is on one list, *active*, *inactive*, *cache*, *unswappable* or
//! *busy*, each in approximate LRU order (Navarro et al., section 5.1; the last two are FreeBSD's).
//! A frame that counts as free but still holds a page is on the cache list too. Kept only where the
//! policy reclaims pages.
//!
//! A fault at random would miss the cache for the state of its frame. So frames first arrive where
//! there is none (`arrived.rs`), and get it when that is full, or when anything but a fault needs
//! the lists: then the misses overlap.
//!
//! Lists are journals (`journal.rs`), and the state of a frame is two bytes. A frame that leaves
//! the middle of a list leaves a stale entry behind. Its state says so, and since entries are in
//! the order of time, the first ones of a frame are the stale ones. They are dropped when they come
//! to the head, and all at once when there are as many as a quarter of the frames: every operation
//! is O(1), amortised.

#[cfg(test)]
mod tests;
mod validate;

use crate::object::population::NONE;
use crate::queue::arrived::Arrived;
use crate::queue::journal::{Cursor, Journal};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// The page lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum List {
    /// Used of late.
    Active,
    /// Not used for long; still mapped where it was.
    Inactive,
    /// Clean and unmapped.
    Cache,
    /// Dirty, with no free slot in swap space when it was to be evicted, or with no swap space at
    /// all. The daemon tries it again when there is a slot.
    Unswappable,
    /// Its contents are being read. Its order means nothing, so that it has no journal.
    Busy,
}

/// All lists, in the order of their numbers.
const EVERY: [List; LISTS] = [List::Active, List::Inactive, List::Cache, List::Unswappable, List::Busy];

/// How many page lists there are, and how many of them, the first ones, have a journal.
const LISTS: usize = 5;
const QUEUES: usize = 4;

/// How many of the last faults protect what they mapped from the daemon: as much as one instruction
/// can need at once, such as a memory-to-memory move across page boundaries. Fewer if memory is
/// small.
const LATEST: usize = 8;

/// The initial activity of a page, what a reference adds, and the maximum: FreeBSD's values.
const ACTIVITY: u8 = 5;
const ADVANCE: u8 = 3;
const MOST: u8 = 64;

/// What is kept of a frame. From the lowest bit: the number of its list from 1, or 0 for none; its
/// activity; whether contents differ from the backing store, whatever the mappings' dirty bits say;
/// whether it was found referenced when last sampled; and for each list with a journal, whether
/// that has stale entries of the frame. All but the last are 0 in a frame without a page.
type State = u16;

const LIST: State = 7;
const ACTIVE: u32 = 3;
const ACTIVE_MASK: State = 0x7f << ACTIVE;
const DIRTY: State = 1 << 10;
const RECENT: State = 1 << 11;
const STALE: u32 = 12;
const STALE_MASK: State = State::MAX << STALE;

/// The state of a frame whose page was just populated.
const fn fresh(list: List) -> State {
    (list as State + 1) | ((ACTIVITY as State) << ACTIVE)
}

/// The list of a frame with this state.
#[inline]
fn list_of(state: State) -> Option<List> {
    (state & LIST).checked_sub(1).map(|number| EVERY[number as usize])
}

/// The page lists: state of each frame, and the node of the population map that leads to its page.
pub(crate) struct Pages {
    states: Vec<State>,
    journal: Journal<QUEUES>,
    arrived: Arrived,
    /// With those that have arrived.
    counts: [u32; LISTS],
    /// Stale entries of each journal, and of all.
    stale: [u32; QUEUES],
    stale_all: u32,
    /// For frames with more than one stale entry in a journal: how many more.
    more: HashMap<(u32, u8), u32, FxBuildHasher>,
    /// The frames that the last faults mapped, and how many faults there were.
    latest: [u32; LATEST],
    served: usize,
    /// Counts events that may make more pages contribute to contiguity.
    changes: u64,
    /// By level from 1 up: for each extent of that size the node that owns it.
    extents: Vec<Vec<u32>>,
    /// For a frame of a page that was placed singly, one more than the lowest node of its
    /// population map. Allocated at the first such page.
    singles: Vec<u32>,
}

impl Pages {
    /// For `frames` frames; `orders` are the orders of the levels from 1 up.
    pub(crate) fn new(frames: u64, orders: &[u32]) -> Pages {
        let frames = frames as usize;
        Pages {
            states: vec![0; frames],
            journal: Journal::new(),
            arrived: Arrived::NONE,
            counts: [0; LISTS],
            stale: [0; QUEUES],
            stale_all: 0,
            more: HashMap::default(),
            latest: [NONE; LATEST],
            served: 0,
            changes: 0,
            extents: orders.iter().map(|order| vec![NONE; frames >> order]).collect(),
            singles: Vec::new(),
        }
    }

    /// The list that a frame is on.
    #[inline]
    pub(crate) fn list(&self, frame: u32) -> Option<List> {
        list_of(self.state(frame))
    }

    /// Changes whenever a page has become inactive, has left the active list, or has become clean.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// The first frame of a list, which must be [settled](Pages::settle) if pages arrive there.
    #[inline]
    pub(crate) fn head(&self, list: List) -> Option<u32> {
        debug_assert!(self.arrived.is_empty() || !matches!(list, List::Active | List::Unswappable));
        self.journal.first(list as usize)
    }

    /// The number of frames on a list.
    #[inline]
    pub(crate) fn count(&self, list: List) -> u64 {
        u64::from(self.counts[list as usize])
    }

    /// Where a list begins, for [`Pages::read`]. O(frames on it) if any left its middle, else O(1).
    pub(crate) fn start(&mut self, list: List) -> Cursor {
        self.settle();
        self.drop_stale(list);
        self.journal.start(list as usize)
    }

    /// The next frame of a list while frames leave it. It may return frames again from the head on,
    /// but passes none.
    pub(crate) fn read(&self, list: List, cursor: &mut Cursor) -> Option<u32> {
        loop {
            let frame = self.journal.read(list as usize, cursor)?;
            if self.list(frame) == Some(list) {
                return Some(frame);
            }
        }
    }

    /// Gives the frames that have arrived their states, and puts them at the tails of their lists.
    /// The states are loaded first, all at once: at random each is a miss of the cache.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if !self.arrived.is_empty() {
            self.settle_arrived();
        }
    }

    fn settle_arrived(&mut self) {
        let arrived = core::mem::replace(&mut self.arrived, Arrived::NONE);
        let loaded = arrived.iter().fold(0, |any, (frame, _)| any | self.states[frame as usize]);
        let listed = core::hint::black_box(loaded) & !STALE_MASK;
        debug_assert_eq!(listed, 0, "none of them was on a list");
        for (frame, list) in arrived.iter() {
            self.states[frame as usize] |= fresh(list);
            self.journal.push(list as usize, frame);
        }
    }

    /// Adds the frame of a page that was just populated to the tail of the active list.
    #[inline]
    pub(crate) fn add(&mut self, frame: u32) {
        debug_assert_eq!(self.list(frame), None);
        if self.arrived.is_full() {
            self.settle();
        }
        self.arrived.push(frame);
        self.counts[List::Active as usize] += 1;
    }

    /// As the above, for frames side by side: one step, and the setting of their states.
    pub(crate) fn add_run(&mut self, frames: Range<u32>) {
        self.settle();
        for state in &mut self.states[frames.start as usize..frames.end as usize] {
            debug_assert_eq!(list_of(*state), None);
            *state |= fresh(List::Active);
        }
        self.counts[List::Active as usize] += frames.end - frames.start;
        self.journal.push_run(List::Active as usize, frames);
    }

    /// Removes a frame whose page is gone.
    pub(crate) fn remove(&mut self, frame: u32) {
        self.unlink(frame);
        self.states[frame as usize] &= STALE_MASK;
    }

    /// Puts a frame at the tail of a list, from whatever list it is on.
    pub(crate) fn put(&mut self, frame: u32, list: List) {
        self.unlink(frame);
        self.changes += u64::from(list == List::Inactive);
        self.counts[list as usize] += 1;
        self.states[frame as usize] |= list as State + 1;
        if list != List::Busy {
            self.journal.push(list as usize, frame);
        }
    }

    /// Puts frames side by side, whose pages were just populated and have no place to be written
    /// to, where the daemon does not look, if they are active: no more pages contribute to
    /// contiguity than before. One step and the setting of their states for each run that was
    /// added, if nothing was added since.
    #[inline(always)]
    pub(crate) fn strand(&mut self, frames: Range<u32>) {
        if frames.end - frames.start == 1 && self.arrived.strand(frames.start) {
            self.counts[List::Active as usize] -= 1;
            self.counts[List::Unswappable as usize] += 1;
        } else {
            self.settle();
            self.strand_all(frames);
        }
    }

    #[cold]
    fn strand_all(&mut self, frames: Range<u32>) {
        // From the tail on, so the last active ones first.
        let is_active = |state: &State| list_of(*state) == Some(List::Active);
        let states = &self.states[frames.start as usize..frames.end as usize];
        let Some(last) = states.iter().rposition(is_active) else { return };
        let first = states[..last].iter().rposition(|state| !is_active(state)).map_or(0, |before| before + 1);
        let part = frames.start + first as u32..frames.start + last as u32 + 1;
        let rest = self.journal.pop_last_run(List::Active as usize, part.clone());
        self.counts[List::Active as usize] -= (part.len() - rest.len()) as u32;
        rest.for_each(|frame| self.leave(frame, List::Active));
        self.strand_all(frames.start..part.start);
        for state in &mut self.states[part.start as usize..part.end as usize] {
            *state = *state & !LIST | (List::Unswappable as State + 1);
        }
        self.counts[List::Unswappable as usize] += part.len() as u32;
        self.journal.push_run(List::Unswappable as usize, part);
    }

    /// Moves all that is kept of a page from one frame to another, which has none. It goes to the
    /// tail of its list.
    pub(crate) fn transfer(&mut self, from: u32, to: u32) {
        self.settle();
        let state = self.states[from as usize];
        let Some(list) = list_of(state) else { return };
        self.remove(from);
        self.put(to, list);
        self.states[to as usize] |= state & (ACTIVE_MASK | DIRTY | RECENT);
        self.latest.iter_mut().filter(|latest| **latest == from).for_each(|latest| *latest = to);
    }

    /// Puts a frame that is used again at the tail of the active list.
    pub(crate) fn activate(&mut self, frame: u32) {
        self.settle();
        self.set_activity(frame, self.activity(frame).max(ACTIVITY));
        self.put(frame, List::Active);
    }

    /// Records that a fault mapped the frame.
    #[inline]
    pub(crate) fn serve(&mut self, frame: u32) {
        self.latest[self.served % LATEST] = frame;
        self.served = self.served.wrapping_add(1);
    }

    /// The frames that the last faults mapped, oldest first: at least one and at most an eighth of
    /// memory.
    pub(crate) fn latest(&self) -> impl Iterator<Item = u32> + '_ {
        let most = (self.states.len() / 8).clamp(1, LATEST);
        let turns = (1..=most).rev().map(|ago| self.served.wrapping_sub(ago) % LATEST);
        turns.map(|turn| self.latest[turn]).filter(|frame| *frame != NONE)
    }

    /// For each activity, the number of active pages that have it, without those that the last
    /// faults mapped. O(active pages).
    pub(crate) fn activities(&mut self) -> [u32; MOST as usize + 1] {
        self.settle();
        self.drop_stale(List::Active);
        let mut counts = [0; MOST as usize + 1];
        for frame in self.journal.iter(List::Active as usize) {
            counts[self.activity(frame) as usize] += 1;
        }
        // Each once, though one may have been mapped by several faults.
        let mut latest = [NONE; LATEST];
        for (place, frame) in self.latest().enumerate() {
            if self.list(frame) == Some(List::Active) && !latest.contains(&frame) {
                counts[self.activity(frame) as usize] -= 1;
            }
            latest[place] = frame;
        }
        counts
    }

    /// Whether one of the last faults mapped the frame.
    pub(crate) fn is_latest(&self, frame: u32) -> bool {
        self.latest().any(|latest| latest == frame)
    }

    /// Applies `rounds` rounds without a reference to the first `pages` pages of the active list.
    pub(crate) fn pass(&mut self, pages: u64, rounds: u8) {
        self.settle();
        self.drop_stale(List::Active);
        let Pages { journal, states, .. } = self;
        for frame in journal.iter(List::Active as usize).take(pages as usize) {
            let state = &mut states[frame as usize];
            let activity = (*state & ACTIVE_MASK).saturating_sub(State::from(rounds) << ACTIVE);
            *state = *state & !(ACTIVE_MASK | RECENT) | activity;
        }
    }

    /// Records whether the page was found referenced in `rounds` rounds over the list; `alone`: it
    /// itself, and not only a superpage that it was part of. Returns its new activity.
    pub(crate) fn sampled(&mut self, frame: u32, referenced: bool, alone: bool, rounds: u8) -> u8 {
        self.settle();
        let activity = if referenced {
            (self.activity(frame) + ADVANCE).min(MOST)
        } else {
            self.activity(frame).saturating_sub(rounds)
        };
        self.set_activity(frame, activity);
        self.set_flag(frame, RECENT, referenced && alone);
        activity
    }

    /// Whether the page was found referenced when it was last sampled.
    pub(crate) fn recent(&self, frame: u32) -> bool {
        self.state(frame) & RECENT != 0
    }

    /// Whether contents differ from the backing store, apart from what the mappings' dirty bits
    /// say.
    pub(crate) fn dirty(&self, frame: u32) -> bool {
        // What just arrived is clean: this spares the miss for its state.
        self.arrived.last() != Some(frame) && self.state(frame) & DIRTY != 0
    }

    pub(crate) fn set_dirty(&mut self, frame: u32, dirty: bool) {
        self.settle();
        self.changes += u64::from(!dirty);
        self.set_flag(frame, DIRTY, dirty);
    }

    /// The node that owns the extent of this level that starts at the frame; `NONE` if none does.
    pub(crate) fn extent(&self, level: u8, frame: u32, order: u32) -> u32 {
        self.extents[level as usize - 1].get((frame >> order) as usize).copied().unwrap_or(NONE)
    }

    /// Records that a node got an extent, or lost it (`NONE`).
    pub(crate) fn set_extent(&mut self, level: u8, first: u32, order: u32, slot: u32) {
        self.extents[level as usize - 1][(first >> order) as usize] = slot;
    }

    /// The lowest node of a page that was placed singly, in this frame.
    pub(crate) fn single(&self, frame: u32) -> u32 {
        self.singles.get(frame as usize).map_or(NONE, |slot| slot.wrapping_sub(1))
    }

    /// Records the lowest node of a page that was placed singly.
    pub(crate) fn set_single(&mut self, frame: u32, slot: u32) {
        if self.singles.is_empty() {
            self.singles = vec![0; self.states.len()];
        }
        self.singles[frame as usize] = slot + 1;
    }

    /// Bytes held.
    pub(crate) fn metadata_bytes(&self) -> usize {
        self.states.capacity() * size_of::<State>()
            + self.journal.metadata_bytes()
            + self.more.allocation_size()
            + self.extents.iter().map(|extents| extents.capacity() * 4).sum::<usize>()
            + self.singles.capacity() * 4
    }

    #[inline]
    fn state(&self, frame: u32) -> State {
        let state = self.states[frame as usize];
        if state & LIST != 0 || self.arrived.is_empty() {
            return state;
        }
        state | self.arrived.find(frame).map_or(0, fresh)
    }

    #[inline]
    fn activity(&self, frame: u32) -> u8 {
        ((self.state(frame) & ACTIVE_MASK) >> ACTIVE) as u8
    }

    #[inline]
    fn set_activity(&mut self, frame: u32, activity: u8) {
        let state = &mut self.states[frame as usize];
        *state = (*state & !ACTIVE_MASK) | (State::from(activity) << ACTIVE);
    }

    #[inline]
    fn set_flag(&mut self, frame: u32, flag: State, value: bool) {
        let state = &mut self.states[frame as usize];
        *state = if value { *state | flag } else { *state & !flag };
    }

    fn unlink(&mut self, frame: u32) {
        self.settle();
        let Some(list) = self.list(frame) else { return };
        self.changes += u64::from(list == List::Active);
        self.leave(frame, list);
        self.states[frame as usize] &= !LIST;
    }

    /// Takes a frame from the journal of its list.
    #[inline]
    fn leave(&mut self, frame: u32, list: List) {
        let number = list as usize;
        self.counts[number] -= 1;
        if list == List::Busy {
            return;
        }
        if self.journal.last(number) == Some(frame) {
            self.journal.pop_last(number);
        } else if self.journal.first(number) == Some(frame) {
            self.journal.pop_first(number);
            self.drop_stale_head(list);
        } else {
            self.leave_stale(frame, list);
        }
    }

    /// Records that the entry of a frame, in the middle of a journal, is stale.
    fn leave_stale(&mut self, frame: u32, list: List) {
        let (state, mark) = (&mut self.states[frame as usize], 1 << (STALE + list as u32));
        if *state & mark != 0 {
            *self.more.entry((frame, list as u8)).or_insert(0) += 1;
        }
        *state |= mark;
        self.stale[list as usize] += 1;
        self.stale_all += 1;
        // So that journals and table stay small compared with the states.
        let most = self.states.len() / 4 + LATEST;
        if self.stale_all as usize > most || self.more.len() > most / 16 + LATEST {
            EVERY.into_iter().take(QUEUES).for_each(|list| self.drop_stale(list));
        }
    }

    /// Drops stale entries from the head of a list.
    #[inline]
    fn drop_stale_head(&mut self, list: List) {
        while self.stale[list as usize] > 0
            && let Some(frame) = self.head(list)
            && self.forget_stale(frame, list)
        {
            self.journal.pop_first(list as usize);
        }
    }

    /// Drops all stale entries of a list. O(entries) if there are any.
    fn drop_stale(&mut self, list: List) {
        if self.stale[list as usize] > 0 {
            let mut journal = core::mem::replace(&mut self.journal, Journal::new());
            journal.retain(list as usize, |frame| !self.forget_stale(frame, list));
            self.journal = journal;
        }
    }

    /// Whether the first entry of a frame in the journal of a list is stale; then it is about to be
    /// dropped.
    fn forget_stale(&mut self, frame: u32, list: List) -> bool {
        let (state, mark) = (&mut self.states[frame as usize], 1 << (STALE + list as u32));
        if *state & mark == 0 {
            return false;
        }
        self.stale[list as usize] -= 1;
        self.stale_all -= 1;
        let key = (frame, list as u8);
        match self.more.get_mut(&key) {
            None => *state &= !mark,
            Some(1) => drop(self.more.remove(&key)),
            Some(more) => *more -= 1,
        }
        true
    }
}
