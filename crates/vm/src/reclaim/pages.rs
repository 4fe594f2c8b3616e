//! What the page daemon keeps of each frame: its page list, the activity of its page, whether the page is dirty; and
//! the page that is in it.
//!
//! A frame whose page is populated is on one list, *active*, *inactive*, *cache*, *unswappable* or *busy*, each in approximate
//! LRU order (Navarro et al., section 5.1; the last two are FreeBSD's). A frame that counts as free but still holds a page is on the cache list too. Links are
//! frame numbers, so that every operation is O(1). Kept only where the policy reclaims pages.
//!
//! A fault at random would miss the cache for the state of its frame. So frames first arrive in a short journal, and are
//! linked when it is full, or when anything but a fault needs the lists: then the misses overlap.

use crate::object::population::NONE;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// The page lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum List {
    /// Used of late.
    Active,
    /// Not used for long; still mapped where it was.
    Inactive,
    /// Clean and unmapped.
    Cache,
    /// Dirty, with no free slot in swap space when it was to be evicted, or with no swap space at all. The daemon tries
    /// it again when there is a slot.
    Unswappable,
    /// Its contents are being read.
    Busy,
}

/// All lists, in the order of their numbers.
const EVERY: [List; LISTS] = [List::Active, List::Inactive, List::Cache, List::Unswappable, List::Busy];

/// How many page lists there are.
const LISTS: usize = 5;

/// How many of the last faults protect what they mapped from the daemon: as much as one instruction can need at once,
/// such as a memory-to-memory move across page boundaries. Fewer if memory is small.
const LATEST: usize = 8;

/// The initial activity of a page, what a reference adds, and the maximum: FreeBSD's values.
const ACTIVITY: u8 = 5;
const ADVANCE: u8 = 3;
const MOST: u8 = 64;

/// What is kept of a frame, side by side because a random fault misses the cache for it: the previous and the next
/// frame on its list, and its state. All 0 in a frame without a page, so that what is kept of memory that is never used
/// is never touched.
type Kept = [u32; 3];

const PREV: usize = 0;
const NEXT: usize = 1;
const STATE: usize = 2;

/// The state, by byte: the number of the frame's list from 1, or 0 for none; its activity; whether contents differ from
/// the backing store, whatever the mappings' dirty bits say; whether it was found referenced when last sampled.
const LIST: usize = 0;
const ACTIVE: usize = 1;
const DIRTY: usize = 2;
const RECENT: usize = 3;

/// How many frames arrive before they are linked: as many misses of the cache as a processor has under way at once, a few
/// times over, and few enough for a search.
const ARRIVED: usize = 64;

/// A journal of the frames of pages that were just populated, in order: on lists, which count them, but not linked yet. All
/// is 0 in what is kept of them.
#[derive(Clone, Copy)]
struct Arrived {
    frames: [u32; ARRIVED],
    /// A bit for each that is on the unswappable list; the others are on the active one.
    stranded: u64,
    count: usize,
}

impl Arrived {
    const NONE: Arrived = Arrived { frames: [0; ARRIVED], stranded: 0, count: 0 };

    #[inline]
    fn push(&mut self, frame: u32) {
        self.frames[self.count] = frame;
        self.count += 1;
    }

    /// The list of the frame at a position.
    fn list(stranded: u64, position: usize) -> List {
        if stranded >> position & 1 == 0 { List::Active } else { List::Unswappable }
    }

    /// The list of a frame, if it is one of them.
    fn find(&self, frame: u32) -> Option<List> {
        let position = self.frames[..self.count].iter().position(|arrived| *arrived == frame)?;
        Some(Arrived::list(self.stranded, position))
    }

    /// Marks the frame as unswappable if it is the last one. Returns whether it is.
    #[inline]
    fn strand(&mut self, frame: u32) -> bool {
        let last = self.frames[..self.count].last() == Some(&frame);
        if last {
            self.stranded |= 1 << (self.count - 1);
        }
        last
    }
}

/// The state of a frame whose page was just populated.
const fn fresh(list: List) -> u32 {
    u32::from_le_bytes([list as u8 + 1, ACTIVITY, 0, 0])
}

#[derive(Clone, Copy)]
struct Ends {
    head: u32,
    tail: u32,
    count: u32,
}

/// The page lists: links, activity and dirtiness of each frame, and the node of the population map that leads to its
/// page.
pub(crate) struct Pages {
    kept: Vec<Kept>,
    ends: [Ends; LISTS],
    arrived: Arrived,
    /// The frames that the last faults mapped, and how many faults there were.
    latest: [u32; LATEST],
    served: usize,
    /// Counts events that may make more pages contribute to contiguity.
    changes: u64,
    /// By level from 1 up: for each extent of that size the node that owns it.
    extents: Vec<Vec<u32>>,
    /// For a frame of a page that was placed singly, one more than the lowest node of its population map. Allocated at
    /// the first such page.
    singles: Vec<u32>,
}

impl Pages {
    /// For `frames` frames; `orders` are the orders of the levels from 1 up.
    pub(crate) fn new(frames: u64, orders: &[u32]) -> Pages {
        let frames = frames as usize;
        Pages {
            kept: vec![[0; 3]; frames],
            ends: [Ends { head: NONE, tail: NONE, count: 0 }; LISTS],
            arrived: Arrived::NONE,
            latest: [NONE; LATEST],
            served: 0,
            changes: 0,
            extents: orders.iter().map(|order| vec![NONE; frames >> order]).collect(),
            singles: Vec::new(),
        }
    }

    /// The list that a frame is on.
    pub(crate) fn list(&self, frame: u32) -> Option<List> {
        self.state(frame, LIST).checked_sub(1).map(|number| EVERY[number as usize])
    }

    /// Changes whenever a page has become inactive, has left the active list, or has become clean.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// The first frame of a list, which must be [settled](Pages::settle) if pages arrive there.
    pub(crate) fn head(&self, list: List) -> Option<u32> {
        debug_assert!(self.arrived.count == 0 || !matches!(list, List::Active | List::Unswappable));
        Some(self.ends[list as usize].head).filter(|frame| *frame != NONE)
    }

    /// The frame that follows on the same list, settled as well.
    pub(crate) fn next(&self, frame: u32) -> Option<u32> {
        Some(self.kept[frame as usize][NEXT]).filter(|frame| *frame != NONE)
    }

    /// The number of frames on a list.
    pub(crate) fn count(&self, list: List) -> u64 {
        u64::from(self.ends[list as usize].count)
    }

    /// The same for frames side by side.
    pub(crate) fn add_run(&mut self, frames: Range<u32>) {
        self.settle();
        let active = &mut self.ends[List::Active as usize];
        active.count += frames.end - frames.start;
        frames.for_each(|frame| self.arrive(frame, List::Active));
    }

    /// Puts the frames that have arrived at the tails of their lists. What is kept of them is loaded first, all at once:
    /// at random each is a miss of the cache.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if self.arrived.count > 0 {
            self.settle_arrived();
        }
    }

    fn settle_arrived(&mut self) {
        let Arrived { frames, stranded, count } = core::mem::replace(&mut self.arrived, Arrived::NONE);
        let loaded = frames[..count].iter().fold(0, |any, frame| any | self.kept[*frame as usize][STATE]);
        let on_lists = core::hint::black_box(loaded);
        debug_assert_eq!(on_lists, 0, "none of them was on a list");
        for (position, frame) in frames[..count].iter().enumerate() {
            self.arrive(*frame, Arrived::list(stranded, position));
        }
    }

    /// Links the frame of a page that was just populated, which its list counts already.
    fn arrive(&mut self, frame: u32, list: List) {
        let prev = self.append(frame, list);
        self.kept[frame as usize] = [prev, NONE, fresh(list)];
    }

    /// Adds the frame of a page that was just populated to the tail of the active list.
    #[inline]
    pub(crate) fn add(&mut self, frame: u32) {
        debug_assert_eq!(self.list(frame), None);
        if self.arrived.count == ARRIVED {
            self.settle();
        }
        self.arrived.push(frame);
        self.ends[List::Active as usize].count += 1;
    }

    /// Removes a frame whose page is gone.
    pub(crate) fn remove(&mut self, frame: u32) {
        self.unlink(frame);
        self.kept[frame as usize][STATE] = 0;
    }

    /// Puts a frame at the tail of a list, from whatever list it is on.
    pub(crate) fn put(&mut self, frame: u32, list: List) {
        self.unlink(frame);
        self.link(frame, list);
    }

    /// Puts the frame of a page that was just populated, and has no place to be written to, where the daemon does not
    /// look: no more pages contribute to contiguity than before.
    pub(crate) fn strand(&mut self, frame: u32) {
        if self.arrived.strand(frame) {
            self.ends[List::Active as usize].count -= 1;
            self.ends[List::Unswappable as usize].count += 1;
        } else if self.list(frame) == Some(List::Active) {
            let changes = self.changes;
            self.put(frame, List::Unswappable);
            self.changes = changes;
        }
    }

    /// Puts a frame that is used again at the tail of the active list.
    pub(crate) fn activate(&mut self, frame: u32) {
        self.settle();
        self.set(frame, ACTIVE, self.state(frame, ACTIVE).max(ACTIVITY));
        self.put(frame, List::Active);
    }

    /// Records that a fault mapped the frame.
    #[inline]
    pub(crate) fn serve(&mut self, frame: u32) {
        self.latest[self.served % LATEST] = frame;
        self.served = self.served.wrapping_add(1);
    }

    /// The frames that the last faults mapped, oldest first: at least one and at most an eighth of memory.
    pub(crate) fn latest(&self) -> impl Iterator<Item = u32> + '_ {
        let most = (self.kept.len() / 8).clamp(1, LATEST);
        let turns = (1..=most).rev().map(|ago| self.served.wrapping_sub(ago) % LATEST);
        turns.map(|turn| self.latest[turn]).filter(|frame| *frame != NONE)
    }

    /// For each activity, the number of active pages that have it, without those that the last faults mapped.
    pub(crate) fn activities(&self) -> [u32; MOST as usize + 1] {
        let mut counts = [0; MOST as usize + 1];
        let active = core::iter::successors(self.head(List::Active), |frame| self.next(*frame));
        for frame in active.filter(|frame| !self.is_latest(*frame)) {
            counts[self.state(frame, ACTIVE) as usize] += 1;
        }
        counts
    }

    /// Whether one of the last faults mapped the frame.
    pub(crate) fn is_latest(&self, frame: u32) -> bool {
        self.latest().any(|latest| latest == frame)
    }

    /// Applies so many rounds without a reference to the first `pages` pages of the active list.
    pub(crate) fn pass(&mut self, pages: u64, rounds: u8) {
        let mut next = self.head(List::Active);
        for _ in 0..pages {
            let Some(frame) = next else { return };
            self.set(frame, ACTIVE, self.state(frame, ACTIVE).saturating_sub(rounds));
            self.set(frame, RECENT, 0);
            next = self.next(frame);
        }
    }

    /// Records whether the page was found referenced in so many rounds over the list; `alone`: it itself, and not only
    /// a superpage that it was part of. Returns its new activity.
    pub(crate) fn sampled(&mut self, frame: u32, referenced: bool, alone: bool, rounds: u8) -> u8 {
        let activity = match referenced {
            true => (self.state(frame, ACTIVE) + ADVANCE).min(MOST),
            false => self.state(frame, ACTIVE).saturating_sub(rounds),
        };
        self.set(frame, ACTIVE, activity);
        self.set(frame, RECENT, u8::from(referenced && alone));
        activity
    }

    /// Whether the page was found referenced when it was last sampled.
    pub(crate) fn recent(&self, frame: u32) -> bool {
        self.state(frame, RECENT) != 0
    }

    /// Whether contents differ from the backing store, apart from what the mappings' dirty bits say.
    pub(crate) fn dirty(&self, frame: u32) -> bool {
        self.state(frame, DIRTY) != 0
    }

    pub(crate) fn set_dirty(&mut self, frame: u32, dirty: bool) {
        self.settle();
        self.changes += u64::from(!dirty);
        self.set(frame, DIRTY, u8::from(dirty));
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
            self.singles = vec![0; self.kept.len()];
        }
        self.singles[frame as usize] = slot + 1;
    }

    /// Checks links and counts.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let mut seen = 0;
        for list in EVERY {
            let (mut prev, mut count) = (NONE, 0);
            let mut next = Some(self.ends[list as usize].head).filter(|frame| *frame != NONE);
            while let Some(frame) = next {
                let linked = self.kept[frame as usize][STATE].to_le_bytes()[LIST] == list as u8 + 1;
                if !linked || self.kept[frame as usize][PREV] != prev {
                    return Err(format!("frame {frame} on list {list:?} has the wrong back link or list"));
                }
                (prev, count, next) = (frame, count + 1, self.next(frame));
                if count > self.kept.len() {
                    return Err(format!("list {list:?} has a cycle"));
                }
            }
            let ends = self.ends[list as usize];
            for (position, frame) in self.arrived.frames[..self.arrived.count].iter().enumerate() {
                let other = Arrived::list(self.arrived.stranded, position);
                if self.kept[*frame as usize][STATE] != 0 || self.arrived.find(*frame) != Some(other) {
                    return Err(format!("frame {frame} has arrived twice, or is linked already"));
                }
                count += usize::from(other == list);
            }
            if ends.tail != prev || ends.count as usize != count {
                return Err(format!("list {list:?} has the wrong tail, or not {} frames", ends.count));
            }
            seen += count;
        }
        let listed = (0..self.kept.len() as u32).filter(|frame| self.list(*frame).is_some()).count();
        if listed == seen { Ok(()) } else { Err(format!("{listed} frames say that they are on lists, but {seen} are")) }
    }

    /// Bytes held.
    pub(crate) fn metadata_bytes(&self) -> usize {
        self.kept.capacity() * size_of::<Kept>()
            + self.extents.iter().map(|extents| extents.capacity() * 4).sum::<usize>()
            + self.singles.capacity() * 4
    }

    fn state(&self, frame: u32, byte: usize) -> u8 {
        let mut state = self.kept[frame as usize][STATE];
        if state == 0 && self.arrived.count > 0 {
            state = self.arrived.find(frame).map_or(0, fresh);
        }
        state.to_le_bytes()[byte]
    }

    fn set(&mut self, frame: u32, byte: usize, value: u8) {
        let state = &mut self.kept[frame as usize][STATE];
        let mut bytes = state.to_le_bytes();
        bytes[byte] = value;
        *state = u32::from_le_bytes(bytes);
    }

    fn link(&mut self, frame: u32, list: List) {
        self.changes += u64::from(list == List::Inactive);
        self.ends[list as usize].count += 1;
        let prev = self.append(frame, list);
        (self.kept[frame as usize][PREV], self.kept[frame as usize][NEXT]) = (prev, NONE);
        self.set(frame, LIST, list as u8 + 1);
    }

    /// Makes a frame the tail of a list, and returns the one before it.
    fn append(&mut self, frame: u32, list: List) -> u32 {
        let ends = &mut self.ends[list as usize];
        let tail = core::mem::replace(&mut ends.tail, frame);
        match tail {
            NONE => ends.head = frame,
            tail => self.kept[tail as usize][NEXT] = frame,
        }
        tail
    }

    fn unlink(&mut self, frame: u32) {
        self.settle();
        let Some(list) = self.list(frame) else { return };
        self.changes += u64::from(list == List::Active);
        let [prev, next, _] = self.kept[frame as usize];
        self.ends[list as usize].count -= 1;
        match prev {
            NONE => self.ends[list as usize].head = next,
            prev => self.kept[prev as usize][NEXT] = next,
        }
        match next {
            NONE => self.ends[list as usize].tail = prev,
            next => self.kept[next as usize][PREV] = prev,
        }
        self.set(frame, LIST, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use superpage_pages::Random;

    /// The lists as queues of frames.
    fn queues(pages: &mut Pages) -> Vec<Vec<u32>> {
        pages.settle();
        let queue = |list| core::iter::successors(pages.head(list), |frame| pages.next(*frame)).collect();
        EVERY.map(queue).into_iter().collect()
    }

    #[test]
    fn what_arrives_is_on_its_list_before_it_is_linked_and_in_order_after() {
        let (mut random, mut pages) = (Random::new(5), Pages::new(512, &[4]));
        let mut model: [VecDeque<u32>; LISTS] = Default::default();
        for step in 0..20_000 {
            let frame = random.below(512) as u32;
            let on = EVERY.into_iter().find(|list| model[*list as usize].contains(&frame));
            assert_eq!(pages.list(frame), on, "frame {frame} after {step} steps");
            let kind = random.below(40);
            if let Some(list) = on
                && kind >= 30
            {
                model[list as usize].retain(|other| *other != frame);
            }
            // Mostly arrivals, one by one or a run, with changes of all kinds between them.
            match (on, kind) {
                (None, 0) => {
                    let run = frame..(frame..512).find(|next| pages.list(*next).is_some()).unwrap_or(512);
                    pages.add_run(run.clone());
                    model[List::Active as usize].extend(run);
                }
                (None, kind) => {
                    pages.add(frame);
                    assert!(!pages.dirty(frame) && !pages.recent(frame));
                    let list = if kind < 10 { List::Unswappable } else { List::Active };
                    if list == List::Unswappable {
                        pages.strand(frame);
                    }
                    model[list as usize].push_back(frame);
                }
                (Some(_), 0..30) => {}
                (Some(_), 30) => {
                    pages.put(frame, List::Inactive);
                    model[List::Inactive as usize].push_back(frame);
                }
                (Some(_), 31) => {
                    pages.activate(frame);
                    model[List::Active as usize].push_back(frame);
                }
                (Some(_), _) => pages.remove(frame),
            }
            pages.validate().unwrap();
            for list in EVERY {
                assert_eq!(pages.count(list), model[list as usize].len() as u64);
            }
            if step % 100 == 0 {
                let expected: Vec<Vec<u32>> = model.iter().map(|queue| queue.iter().copied().collect()).collect();
                assert_eq!(queues(&mut pages), expected, "after {step} steps");
            }
        }
    }
}
