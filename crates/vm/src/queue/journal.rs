//! Queues of frames as journals: numbers in the order in which they were appended, in chunks of one
//! arena.
//!
//! A queue that links its frames writes to three of them for each move, each perhaps a miss of the
//! cache. A journal is only appended to and read from its head, in order, so that neither misses.
//! What leaves the middle of a queue stays behind as a stale entry, which the owner recognises and
//! skips.

use crate::object::population::{NONE, reserve_some};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

/// The entries of a chunk, which takes 512 bytes.
const ROOM: usize = 125;

/// The fewest frames side by side that are kept as one run: a chunk, and what it leaves empty of
/// the one before it, must not take more than their entries.
pub(super) const RUN: u32 = 256;

/// Marks a chunk that is a run.
const RUNS: u32 = 1 << 31;

/// Entries of one queue that follow each other, or a run: frames side by side, of which only the
/// first is noted.
#[derive(Clone, Copy)]
struct Chunk {
    prev: u32,
    /// The next chunk of the queue; of an unused chunk, the next unused one.
    next: u32,
    /// How many frames there are, and [`RUNS`] if they are a run.
    len: u32,
    frames: [u32; ROOM],
}

impl Chunk {
    fn len(&self) -> u32 {
        self.len & !RUNS
    }

    fn is_run(&self) -> bool {
        self.len & RUNS != 0
    }

    #[inline]
    fn get(&self, at: u32) -> u32 {
        if self.is_run() { self.frames[0] + at } else { self.frames[at as usize] }
    }
}

/// The chunks of a queue. The entries of the first begin at `at`; no chunk in use is empty.
#[derive(Clone, Copy)]
struct Ends {
    head: u32,
    tail: u32,
    at: u32,
}

impl Ends {
    const EMPTY: Ends = Ends { head: NONE, tail: NONE, at: 0 };
}

/// Where a reader of a queue is.
#[derive(Clone, Copy)]
pub(crate) struct Cursor {
    chunk: u32,
    at: u32,
    freed: u64,
}

/// A number of queues.
pub(super) struct Journal<const QUEUES: usize> {
    arena: Vec<Chunk>,
    vacant: u32,
    queues: [Ends; QUEUES],
    /// Counts chunks that were freed: a cursor may have been in any of them.
    freed: u64,
}

impl<const QUEUES: usize> Journal<QUEUES> {
    pub(super) fn new() -> Journal<QUEUES> {
        Journal { arena: Vec::new(), vacant: NONE, queues: [Ends::EMPTY; QUEUES], freed: 0 }
    }

    /// The entry at the head of a queue.
    #[inline]
    pub(super) fn first(&self, queue: usize) -> Option<u32> {
        let Ends { head, at, .. } = self.queues[queue];
        (head != NONE).then(|| self.arena[head as usize].get(at))
    }

    /// The entry at the tail.
    #[inline]
    pub(super) fn last(&self, queue: usize) -> Option<u32> {
        let chunk = self.arena.get(self.queues[queue].tail as usize)?;
        Some(chunk.get(chunk.len() - 1))
    }

    /// Appends an entry.
    #[inline]
    pub(super) fn push(&mut self, queue: usize, frame: u32) {
        let tail = self.queues[queue].tail;
        if let Some(chunk) = self.arena.get_mut(tail as usize)
            // A run has more, or its mark.
            && chunk.len < ROOM as u32
        {
            chunk.frames[chunk.len as usize] = frame;
            chunk.len += 1;
        } else {
            self.push_chunk(queue, frame, 1);
        }
    }

    /// Appends frames side by side. O(1) if there are [`RUN`] of them, else O(frames).
    pub(super) fn push_run(&mut self, queue: usize, frames: Range<u32>) {
        let len = frames.end - frames.start;
        if len >= RUN {
            self.push_chunk(queue, frames.start, len | RUNS);
        } else {
            frames.for_each(|frame| self.push(queue, frame));
        }
    }

    fn push_chunk(&mut self, queue: usize, first: u32, len: u32) {
        let prev = self.queues[queue].tail;
        let slot = match self.vacant {
            NONE => {
                reserve_some(&mut self.arena, 1);
                self.arena.push(Chunk { prev, next: NONE, len, frames: [first; ROOM] });
                self.arena.len() as u32 - 1
            }
            slot => {
                let chunk = &mut self.arena[slot as usize];
                self.vacant = chunk.next;
                (chunk.prev, chunk.next, chunk.len, chunk.frames[0]) = (prev, NONE, len, first);
                slot
            }
        };
        self.queues[queue].tail = slot;
        match prev {
            NONE => (self.queues[queue].head, self.queues[queue].at) = (slot, 0),
            prev => self.arena[prev as usize].next = slot,
        }
    }

    /// Removes the entry at the head of a queue, which must not be empty.
    #[inline]
    pub(super) fn pop_first(&mut self, queue: usize) {
        let ends = &mut self.queues[queue];
        ends.at += 1;
        if ends.at == self.arena[ends.head as usize].len() {
            self.free_first(queue);
        }
    }

    /// Removes the entry at the tail of a queue, which must not be empty.
    #[inline]
    pub(super) fn pop_last(&mut self, queue: usize) {
        let Ends { head, tail, at } = self.queues[queue];
        let chunk = &mut self.arena[tail as usize];
        chunk.len -= 1;
        if chunk.len() == if tail == head { at } else { 0 } {
            self.free_last(queue);
        }
    }

    /// Removes what it can of some frames side by side, the last first, if they are the last
    /// entries of a queue. Returns those that are left. O(chunks).
    pub(super) fn pop_last_run(&mut self, queue: usize, mut frames: Range<u32>) -> Range<u32> {
        while !frames.is_empty() && self.last(queue) == Some(frames.end - 1) {
            let Ends { head, tail, at } = self.queues[queue];
            let chunk = &self.arena[tail as usize];
            if chunk.is_run() && tail != head && chunk.frames[0] >= frames.start {
                frames.end = chunk.frames[0];
                self.free_last(queue);
            } else if chunk.is_run() && tail == head && chunk.frames[0] + at >= frames.start {
                frames.end = chunk.frames[0] + at;
                self.free_last(queue);
            } else {
                frames.end -= 1;
                self.pop_last(queue);
            }
        }
        frames
    }

    #[cold]
    fn free_first(&mut self, queue: usize) {
        let slot = self.queues[queue].head;
        let next = self.arena[slot as usize].next;
        match next {
            NONE => self.queues[queue] = Ends::EMPTY,
            next => {
                self.arena[next as usize].prev = NONE;
                (self.queues[queue].head, self.queues[queue].at) = (next, 0);
            }
        }
        self.free(slot);
    }

    #[cold]
    fn free_last(&mut self, queue: usize) {
        let slot = self.queues[queue].tail;
        match self.arena[slot as usize].prev {
            NONE => self.queues[queue] = Ends::EMPTY,
            prev => {
                self.arena[prev as usize].next = NONE;
                self.queues[queue].tail = prev;
            }
        }
        self.free(slot);
    }

    fn free(&mut self, slot: u32) {
        self.arena[slot as usize].next = self.vacant;
        self.vacant = slot;
        self.freed += 1;
    }

    /// Where the queue begins.
    pub(super) fn start(&self, queue: usize) -> Cursor {
        Cursor { chunk: self.queues[queue].head, at: self.queues[queue].at, freed: self.freed }
    }

    /// The next entry of a reader; from the head again if a chunk was freed since the last one.
    #[inline]
    pub(super) fn read(&self, queue: usize, cursor: &mut Cursor) -> Option<u32> {
        if cursor.freed != self.freed {
            *cursor = self.start(queue);
        }
        let mut chunk = self.arena.get(cursor.chunk as usize)?;
        if cursor.at >= chunk.len() {
            // The last chunk stays current, since it may get more.
            let next = self.arena.get(chunk.next as usize)?;
            (cursor.chunk, cursor.at, chunk) = (chunk.next, 0, next);
        }
        cursor.at += 1;
        Some(chunk.get(cursor.at - 1))
    }

    /// All entries of a queue, from the head.
    pub(super) fn iter(&self, queue: usize) -> impl Iterator<Item = u32> + '_ {
        let mut cursor = self.start(queue);
        core::iter::from_fn(move || self.read(queue, &mut cursor))
    }

    /// Keeps those entries of a queue for which `keep` says so, called for each in order.
    /// O(entries).
    pub(super) fn retain(&mut self, queue: usize, mut keep: impl FnMut(u32) -> bool) {
        let Ends { mut head, mut at, .. } = core::mem::replace(&mut self.queues[queue], Ends::EMPTY);
        while head != NONE {
            // A copy: what is kept is appended to chunks that are free, and this is one of them
            // then.
            let chunk = self.arena[head as usize];
            self.free(head);
            if chunk.is_run() {
                let mut kept = chunk.frames[0] + at..chunk.frames[0] + at;
                let end = chunk.frames[0] + chunk.len();
                while kept.end < end {
                    kept.end += 1;
                    if !keep(kept.end - 1) {
                        self.push_run(queue, kept.start..kept.end - 1);
                        kept.start = kept.end;
                    }
                }
                self.push_run(queue, kept);
            } else {
                for &frame in &chunk.frames[at as usize..chunk.len as usize] {
                    if keep(frame) {
                        self.push(queue, frame);
                    }
                }
            }
            (head, at) = (chunk.next, 0);
        }
    }

    /// Checks links and lengths.
    pub(super) fn validate(&self) -> Result<(), String> {
        let mut used = 0;
        for (queue, ends) in self.queues.iter().enumerate() {
            let (mut prev, mut next, mut at) = (NONE, ends.head, ends.at);
            while next != NONE {
                let chunk = &self.arena[next as usize];
                let most = if chunk.is_run() { RUNS } else { ROOM as u32 };
                if chunk.prev != prev || at >= chunk.len() || chunk.len() > most {
                    return Err(format!("chunk {next} of queue {queue} has the wrong back link or length"));
                }
                (prev, next, at) = (next, chunk.next, 0);
                used += 1;
                if used > self.arena.len() {
                    return Err(format!("queue {queue} has a cycle"));
                }
            }
            if ends.tail != prev {
                return Err(format!("queue {queue} has the wrong tail"));
            }
        }
        let link = |slot: u32| (slot != NONE).then_some(slot);
        let vacant = core::iter::successors(link(self.vacant), |slot| link(self.arena[*slot as usize].next));
        let vacant = vacant.take(self.arena.len() + 1).count();
        if used + vacant == self.arena.len() {
            Ok(())
        } else {
            Err(format!("{used} chunks are used and {vacant} free, of {}", self.arena.len()))
        }
    }

    /// Bytes held.
    pub(super) fn metadata_bytes(&self) -> usize {
        self.arena.capacity() * size_of::<Chunk>()
    }
}
