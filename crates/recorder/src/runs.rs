//! Forming runs: from the accesses of one thread to words in its buffer.
//!
//! The rule is that of the event stream: loads and stores are one stream, instruction fetches another; a run ends when
//! its own stream goes to another page or when a page only read so far is first written, and stands where its first
//! access was. So a run takes its place in the buffer at its first access, and what follows only counts up there. A run
//! also ends at every event, and where a full buffer is handed over.

mod sampling;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst};

pub(crate) use sampling::Sampler;

use crate::wire::{self, COUNT_LIMIT, COUNT_SHIFT, EXECUTE, READ, STRADDLE, WRITE};

const PAGE: u64 = 4096;
const OFFSET: u64 = PAGE - 1;
/// No access is larger than this many bytes.
const LARGEST: u64 = 64;
/// The two streams.
const DATA: usize = 0;
const FETCHES: usize = 1;
/// A page address that no access has.
const NOWHERE: u64 = !0xffff;

/// Every time another thread needs all to hand over what they have, this goes up; see [`Runs::behind`].
pub(crate) static GATHERING: AtomicU64 = AtomicU64::new(0);

/// How to tell a store and its size from what QEMU passes with an access; found out at the start, so that the fast path
/// need not call QEMU.
#[derive(Clone, Copy, Default)]
pub(crate) struct AccessFormat {
    /// The bits of which one is set for a store.
    pub(crate) store: u32,
    /// Where the logarithm of the size begins.
    pub(crate) size_shift: u32,
    /// The bits of the logarithm of the size, after shifting.
    pub(crate) size_mask: u32,
}

/// The two open runs of a thread and the buffer that they stand in.
///
/// Only the thread itself uses this, but for [`Runs::interrupt`] and [`Runs::behind`], which are any thread's.
#[repr(C, align(256))]
pub(crate) struct Runs {
    // What the fast paths read, in one cache line.
    data_page: AtomicU64,
    data: Cell<*mut u64>,
    fetch_page: AtomicU64,
    fetch: Cell<*mut u64>,
    stops: Cell<u32>,
    format: Cell<AccessFormat>,
    next: Cell<*mut u64>,
    // The rest.
    start: Cell<*mut u64>,
    end: Cell<*mut u64>,
    /// The end of the buffer, but the start of everything where each run must be looked at for sampling.
    quick_end: Cell<*mut u64>,
    sink: Cell<Option<Sink>>,
    thread: Cell<u32>,
    recording: Cell<bool>,
    /// Accesses until the phase changes; overshoot is taken from the next phase.
    left: Cell<i64>,
    sampler: Cell<Option<Sampler>>,
    skipped: [Cell<u64>; 2],
    /// Where accesses are counted that are left out, and the accesses of closed streams (none).
    aside: [Cell<u64>; 2],
    seen: AtomicU64,
}

/// Takes what a thread hands over.
pub(crate) type Sink = fn(thread: u32, words: &[u64]);

// SAFETY: the atomic fields are for all threads; the others are touched only by the thread that the value belongs to,
// which is what the callers of `Runs::begin` promise.
unsafe impl Sync for Runs {}

impl Runs {
    /// A thread that has no buffer yet.
    pub(crate) const fn new() -> Runs {
        Runs {
            data_page: AtomicU64::new(NOWHERE),
            data: Cell::new(std::ptr::null_mut()),
            fetch_page: AtomicU64::new(NOWHERE),
            fetch: Cell::new(std::ptr::null_mut()),
            stops: Cell::new(0),
            format: Cell::new(AccessFormat { store: 0, size_shift: 0, size_mask: 0 }),
            next: Cell::new(std::ptr::null_mut()),
            start: Cell::new(std::ptr::null_mut()),
            end: Cell::new(std::ptr::null_mut()),
            quick_end: Cell::new(std::ptr::null_mut()),
            sink: Cell::new(None),
            thread: Cell::new(0),
            recording: Cell::new(true),
            left: Cell::new(i64::MAX),
            sampler: Cell::new(None),
            skipped: [const { Cell::new(0) }; 2],
            aside: [const { Cell::new(0) }; 2],
            seen: AtomicU64::new(0),
        }
    }

    /// Whether the thread has a buffer.
    pub(crate) fn begun(&self) -> bool {
        !self.start.get().is_null()
    }

    /// The number that the thread's chunks carry.
    pub(crate) fn thread(&self) -> u32 {
        self.thread.get()
    }

    /// Gives the thread its buffer, of which the last record stays free as the end mark. `self` must not move any more.
    ///
    /// # Safety
    /// `buffer` must be valid for `words` words, for nobody else's use, until [`Runs::end`].
    pub(crate) unsafe fn begin(
        &self,
        buffer: *mut u64,
        words: usize,
        thread: u32,
        format: AccessFormat,
        sampler: Option<Sampler>,
        sink: Sink,
    ) {
        self.start.set(buffer);
        self.next.set(buffer);
        // SAFETY: inside the buffer by the caller's word.
        self.end.set(unsafe { buffer.add(words - 1) });
        self.quick_end.set(if sampler.is_none() { self.end.get() } else { std::ptr::null_mut() });
        self.thread.set(thread);
        self.format.set(format);
        self.sampler.set(sampler);
        self.sink.set(Some(sink));
        self.recording.set(true);
        self.left.set(sampler.map_or(i64::MAX, |sampler| sampler.on));
        self.skipped.iter().for_each(|count| count.set(0));
        self.seen.store(GATHERING.load(SeqCst), Release);
        self.data.set(self.aside[DATA].as_ptr());
        self.fetch.set(self.aside[FETCHES].as_ptr());
        self.close();
    }

    /// Takes the buffer away again; returns where it was.
    pub(crate) fn end(&self) -> *mut u64 {
        self.close();
        let buffer = self.start.get();
        self.start.set(std::ptr::null_mut());
        self.next.set(std::ptr::null_mut());
        self.end.set(std::ptr::null_mut());
        self.quick_end.set(std::ptr::null_mut());
        buffer
    }

    /// A load or store at `address`, described by `info` in the thread's [`AccessFormat`].
    #[inline(always)]
    pub(crate) fn data(&self, info: u32, address: u64) {
        let offset = address.wrapping_sub(self.data_page.load(Relaxed));
        if offset <= PAGE - LARGEST && info & self.stops.get() == 0 {
            self.add(&self.data, 1, DATA);
        } else {
            self.data_elsewhere(info, address);
        }
    }

    /// Counts up the open run of a stream.
    #[inline(always)]
    fn add(&self, open: &Cell<*mut u64>, number: u64, stream: usize) {
        // SAFETY: once the thread has begun, the streams' pointers point into the buffer or to `aside`.
        let full = unsafe {
            let (sum, full) = (*open.get()).overflowing_add(number << COUNT_SHIFT);
            *open.get() = sum;
            full
        };
        if full {
            self.overflow(open, stream);
        }
    }

    /// The count of a stream's run has just begun at 0 again: the run goes on in a word of its own.
    #[cold]
    #[inline(never)]
    fn overflow(&self, open: &Cell<*mut u64>, stream: usize) {
        if open.get() == self.aside[stream].as_ptr() {
            self.spend(COUNT_LIMIT, stream);
            return;
        }
        self.spend(COUNT_LIMIT - 1, stream);
        // SAFETY: as in `add`, and not `aside`, so a word of the buffer.
        let full = unsafe { &mut *open.get() };
        let rest = (*full & !STRADDLE) + (1 << COUNT_SHIFT);
        *full |= (COUNT_LIMIT - 1) << COUNT_SHIFT;
        open.set(self.aside[stream].as_ptr());
        open.set(self.push(rest));
    }

    /// Instructions fetched from one page: `block` is the page's address plus their number, below 4096.
    #[inline(always)]
    pub(crate) fn fetches(&self, block: u64) {
        if !self.more_fetches(block) {
            self.begin_fetches(block, 0);
        }
    }

    /// As [`Runs::fetches`] where they belong to the open run; else does nothing and returns `false`. This works also for
    /// a thread that has not begun.
    #[inline(always)]
    pub(crate) fn more_fetches(&self, block: u64) -> bool {
        let number = block ^ self.fetch_page.load(Relaxed);
        let same = number < PAGE;
        if same {
            self.add(&self.fetch, number, FETCHES);
        }
        same
    }

    /// As [`Runs::fetches`], where the first is the end of an instruction that began on the page before.
    pub(crate) fn straddling_fetches(&self, block: u64) {
        self.begin_fetches(block, STRADDLE);
    }

    /// A new run, in most cases: written so that nothing is left to do but the writing.
    #[inline(never)]
    fn data_elsewhere(&self, info: u32, address: u64) {
        let slot = self.next.get();
        let page = address & !OFFSET;
        let usual = slot < self.quick_end.get()
            && address & OFFSET <= PAGE - LARGEST
            && self.data_page.load(Relaxed) != NOWHERE
            && self.seen.load(Relaxed) == GATHERING.load(Relaxed);
        if !usual {
            return self.data_left_out(info, address);
        }
        let format = self.format.get();
        let kind = if info & format.store != 0 { WRITE } else { READ };
        // SAFETY: `slot` is before the end, so it and the end mark after it are in the buffer.
        unsafe {
            slot.write(wire::run(page, kind) + (1 << COUNT_SHIFT));
            self.next.set(slot.add(1));
            slot.add(1).write(0);
        }
        self.data.set(slot);
        self.stops.set(format.store & !info);
        self.data_page.store(page, Relaxed);
    }

    #[cold]
    #[inline(never)]
    fn data_anywhere(&self, info: u32, address: u64) {
        let store = info & self.format.get().store != 0;
        let size = 1 << (info >> self.format.get().size_shift & self.format.get().size_mask);
        let (first, last) = (address & !OFFSET, address.wrapping_add(size - 1) & !OFFSET);
        self.data_touch(first, store);
        if last != first {
            self.data_touch(last, store);
        }
    }

    fn data_touch(&self, page: u64, store: bool) {
        self.look_up();
        let open = self.data_page.load(Relaxed);
        let same = page == open || open == NOWHERE && self.resumes(&self.data, page, DATA);
        if same && !(store && self.stops.get() != 0) {
            self.data_page.store(page, Relaxed);
            return self.add(&self.data, 1, DATA);
        }
        self.close_data();
        self.turn();
        self.stops.set(if store { 0 } else { self.format.get().store });
        let kind = if store { WRITE } else { READ };
        let number = page / PAGE;
        if self.keep(number, store) {
            let slot = self.push(wire::run(page, kind) + (1 << COUNT_SHIFT));
            if self.recording.get() {
                self.data.set(slot);
            }
        } else {
            self.set_aside(DATA, 1);
        }
        if let (false, Some(sampler)) = (self.recording.get(), &self.sampler.get())
            && sampler.touched.known(number).1
        {
            self.stops.set(0);
        }
        self.data_page.store(page, Relaxed);
    }

    /// As `data_elsewhere`, for fetches.
    #[inline(never)]
    fn begin_fetches(&self, block: u64, straddle: u64) {
        let slot = self.next.get();
        let usual = slot < self.quick_end.get()
            && self.fetch_page.load(Relaxed) != NOWHERE
            && self.seen.load(Relaxed) == GATHERING.load(Relaxed);
        if !usual {
            return self.fetches_left_out(block, straddle);
        }
        // SAFETY: `slot` is before the end, so it and the end mark after it are in the buffer.
        unsafe {
            slot.write(wire::run(block, EXECUTE | straddle) + ((block & OFFSET) << COUNT_SHIFT));
            self.next.set(slot.add(1));
            slot.add(1).write(0);
        }
        self.fetch.set(slot);
        self.fetch_page.store(block & !OFFSET, Relaxed);
    }

    #[cold]
    #[inline(never)]
    fn begin_fetches_anywhere(&self, block: u64, straddle: u64) {
        let (page, mut number) = (block & !OFFSET, block & OFFSET);
        self.look_up();
        let interrupted = self.fetch_page.load(Relaxed) == NOWHERE;
        if interrupted && straddle == 0 && self.resumes(&self.fetch, page, FETCHES) {
            self.fetch_page.store(page, Relaxed);
            return self.add(&self.fetch, number, FETCHES);
        }
        self.close_fetches();
        self.turn();
        let index = page / PAGE;
        let kept = self.keep(index, false);
        if kept {
            let count = if self.recording.get() { number } else { 1 };
            let slot = self.push(wire::run(page, EXECUTE | straddle) + (count << COUNT_SHIFT));
            number -= count;
            if self.recording.get() {
                self.fetch.set(slot);
            }
        }
        if !self.recording.get() {
            // The half of an instruction is no instruction.
            let half = u64::from(!kept && straddle != 0);
            self.set_aside(FETCHES, number - half);
        }
        self.fetch_page.store(page, Relaxed);
    }

    /// Whether the open run of a stream is one of this page, though another thread's interrupt has hidden that.
    fn resumes(&self, open: &Cell<*mut u64>, page: u64, stream: usize) -> bool {
        let word = open.get();
        // SAFETY: as in `add`.
        word != self.aside[stream].as_ptr() && unsafe { (*word ^ wire::run(page, 0)) & wire::PAGE_BITS } == 0
    }

    /// Adds a word; the runs that are open stay so unless the buffer was full.
    fn push(&self, word: u64) -> *mut u64 {
        if self.next.get() == self.end.get() {
            self.hand_over();
        }
        let slot = self.next.get();
        // SAFETY: `next` is before `end`, which is itself inside the buffer.
        unsafe {
            slot.write(word);
            self.next.set(slot.add(1));
            slot.add(1).write(0);
        }
        slot
    }

    /// Adds an event after all accesses so far. The payload must be shorter than the buffer.
    pub(crate) fn event(&self, code: u64, payload: &[[u64; 2]]) {
        self.close();
        // SAFETY: both point into the same buffer.
        let room = unsafe { self.end.get().offset_from(self.next.get()) } as usize;
        let length = 2 * payload.len();
        if room < length + 1 {
            self.hand_over();
        }
        let head = self.push(0);
        for word in payload.as_flattened() {
            self.push(*word);
        }
        // Last, so that a process killed here leaves no half event.
        // SAFETY: the slot is in the buffer, as there was room for all.
        unsafe { head.write(wire::event(code, length)) };
    }

    /// Ends both runs.
    pub(crate) fn close(&self) {
        self.close_data();
        self.close_fetches();
    }

    fn close_data(&self) {
        // SAFETY: `data` always points into the buffer or to `aside`.
        self.spend(unsafe { *self.data.get() } >> COUNT_SHIFT, DATA);
        self.data_page.store(NOWHERE, Relaxed);
        self.set_aside(DATA, 0);
        self.data.set(self.aside[DATA].as_ptr());
    }

    fn close_fetches(&self) {
        // SAFETY: `fetch` always points into the buffer or to `aside`.
        self.spend(unsafe { *self.fetch.get() } >> COUNT_SHIFT, FETCHES);
        self.fetch_page.store(NOWHERE, Relaxed);
        self.set_aside(FETCHES, 0);
        self.fetch.set(self.aside[FETCHES].as_ptr());
    }

    fn set_aside(&self, stream: usize, count: u64) {
        self.aside[stream].set(count << COUNT_SHIFT);
    }

    fn spend(&self, count: u64, stream: usize) {
        self.left.update(|left| left - count as i64);
        if !self.recording.get() {
            self.skipped[stream].update(|skipped| skipped + count);
        }
    }

    /// Ends both runs and gives what is in the buffer to the sink.
    pub(crate) fn hand_over(&self) {
        self.close();
        let start = self.start.get();
        // SAFETY: `start..next` is the written part of the buffer.
        let words = unsafe { std::slice::from_raw_parts(start, self.next.get().offset_from(start) as usize) };
        if let (Some(sink), false) = (self.sink.get(), words.is_empty()) {
            sink(self.thread.get(), words);
        }
        self.next.set(start);
        // SAFETY: the buffer holds at least the end mark.
        unsafe { start.write(0) };
    }

    /// Whether another thread waits for this one to hand over.
    pub(crate) fn behind(&self) -> bool {
        self.seen.load(Acquire) < GATHERING.load(SeqCst)
    }

    /// Makes the thread notice the gathering at its next access. For other threads' use.
    pub(crate) fn interrupt(&self) {
        self.data_page.store(NOWHERE, Relaxed);
        self.fetch_page.store(NOWHERE, Relaxed);
    }

    /// Hands over if another thread waits for it.
    fn look_up(&self) {
        let gathering = GATHERING.load(Acquire);
        if self.seen.load(Relaxed) != gathering {
            self.hand_over();
            self.seen.store(gathering, Release);
        }
    }
}
