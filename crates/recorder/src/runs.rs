//! Builds runs: from the accesses of one thread to words in its buffer.
//!
//! The rule is that of the event stream: loads and stores are one stream, instruction fetches
//! another. While the first stays on a page, its stores there are one run, its loads before them
//! another, and its loads after the first of them a third; all end when a load or a store goes to
//! another page (here and below: or line, in the recorder of lines). A run gets its place in the
//! buffer at its first access, and later accesses only increment its count there. A run also ends
//! at every event, and when a full buffer is sent.

mod sampling;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst};

pub(crate) use sampling::{Gaps, Sampler};

use crate::UNIT;
use crate::schedule::Schedule;
use crate::wire::{self, EXECUTE, READ, STRADDLE, WRITE};

/// The position of the count in a run's word, and its limit there.
const COUNT_SHIFT: u32 = UNIT.count_shift;
const COUNT_LIMIT: u64 = UNIT.count_limit();
/// The bytes of a page, or of a line in the recorder of lines.
pub(crate) const PAGE: u64 = UNIT.bytes();
const OFFSET: u64 = PAGE - 1;
/// No access is larger than this many bytes.
pub(crate) const LARGEST: u64 = 64;
/// The indices of the kinds of access. Those of loads and stores are QEMU's numbers
/// (`qemu_plugin_mem_rw`), of which the sum stands for an atomic access that does both, and 0 for
/// neither.
const FETCHES: usize = 0;
pub(crate) const LOADS: usize = 1;
pub(crate) const STORES: usize = 2;
/// One access, as it is added to the word of its run.
pub(crate) const ONE: u64 = 1 << COUNT_SHIFT;
/// A page address that no access has, for a run that has ended or that another thread has
/// interrupted.
pub(crate) const NOWHERE: u64 = !0xffff;
/// Another one, for a run that ended because the program went to another page.
const LEFT: u64 = NOWHERE - 0x1_0000;

/// Incremented whenever a thread needs all others to send what they have; see [`Runs::behind`].
pub(crate) static GATHERING: AtomicU64 = AtomicU64::new(0);

/// How to extract the kind and the size from what QEMU passes with an access; determined at the
/// start, so that the fast path need not call QEMU.
#[derive(Clone, Copy, Default)]
pub(crate) struct AccessFormat {
    /// The position of the two bits of which the first is set for a load and the second for a
    /// store.
    pub(crate) kind_shift: u32,
    /// The position of the logarithm of the size.
    pub(crate) size_shift: u32,
    /// The bits of the logarithm of the size, after shifting.
    pub(crate) size_mask: u32,
}

impl AccessFormat {
    /// [`LOADS`], [`STORES`], their sum, or 0.
    #[inline(always)]
    pub(crate) fn kind(self, info: u32) -> usize {
        (info >> (self.kind_shift & 31) & 3) as usize
    }

    /// Its bytes.
    #[inline(always)]
    pub(crate) fn size(self, info: u32) -> u64 {
        1 << (info >> self.size_shift & self.size_mask)
    }
}

/// A run that is still growing: its page's address and its word in the buffer or, if it has ended
/// or is left out, a word elsewhere.
struct Open {
    page: AtomicU64,
    word: Cell<*mut u64>,
}

impl Open {
    const fn new() -> Open {
        Open { page: AtomicU64::new(NOWHERE), word: Cell::new(std::ptr::null_mut()) }
    }
}

/// The open runs of a thread and the buffer that they are in.
///
/// Only the thread itself uses this, except for [`Runs::interrupt`] and [`Runs::behind`], which any
/// thread may call.
#[repr(C, align(256))]
pub(crate) struct Runs {
    // What the fast paths read, in two cache lines.
    /// By kind; the first and the last are never open, so that accesses that do both or nothing
    /// take the slow path.
    data: [Open; 4],
    fetch: Open,
    format: Cell<AccessFormat>,
    next: Cell<*mut u64>,
    // The rest.
    start: Cell<*mut u64>,
    end: Cell<*mut u64>,
    /// The end of the buffer, or null if each run must be checked for sampling.
    quick_end: Cell<*mut u64>,
    sink: Cell<Option<Sink>>,
    thread: Cell<u32>,
    recording: Cell<bool>,
    /// Accesses until the phase changes; overshoot is taken from the next phase.
    left: Cell<i64>,
    schedule: Cell<Option<Schedule>>,
    gaps: Cell<Option<Gaps>>,
    /// Data references and instructions.
    skipped: [Cell<u64>; 2],
    /// The word of runs that have ended: 0.
    ended: Cell<u64>,
    seen: AtomicU64,
}

/// Receives what a thread sends. Returns where it goes on: a buffer of the same length.
pub(crate) type Sink = fn(runs: &Runs, words: &[u64]) -> *mut u64;

/// How a thread's accesses are gathered.
pub(crate) struct Gathering {
    /// How QEMU describes them.
    pub(crate) format: AccessFormat,
    /// Which of them are recorded; all without one.
    pub(crate) sampler: Option<Sampler>,
    pub(crate) sink: Sink,
}

// SAFETY: the atomic fields are for all threads; the others are touched only by the thread that the
// value belongs to, which is what the callers of `Runs::begin` promise.
unsafe impl Sync for Runs {}

impl Runs {
    /// A thread without a buffer.
    pub(crate) const fn new() -> Runs {
        Runs {
            data: [const { Open::new() }; 4],
            fetch: Open::new(),
            format: Cell::new(AccessFormat { kind_shift: 0, size_shift: 0, size_mask: 0 }),
            next: Cell::new(std::ptr::null_mut()),
            start: Cell::new(std::ptr::null_mut()),
            end: Cell::new(std::ptr::null_mut()),
            quick_end: Cell::new(std::ptr::null_mut()),
            sink: Cell::new(None),
            thread: Cell::new(0),
            recording: Cell::new(true),
            left: Cell::new(i64::MAX),
            schedule: Cell::new(None),
            gaps: Cell::new(None),
            skipped: [const { Cell::new(0) }; 2],
            ended: Cell::new(0),
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

    /// Sets the thread's buffer, whose last word stays free as the end mark. `self` must not move
    /// from now on.
    ///
    /// # Safety
    /// `buffer` must be valid, for nobody else's use, until [`Runs::end`].
    pub(crate) unsafe fn begin(&self, buffer: *mut [u64], thread: u32, gathering: Gathering) {
        let Gathering { format, sampler, sink } = gathering;
        self.start.set(buffer.cast());
        self.next.set(buffer.cast());
        // SAFETY: inside the buffer, as the caller guarantees.
        self.end.set(unsafe { buffer.cast::<u64>().add(buffer.len() - 1) });
        self.quick_end.set(if sampler.is_none() { self.end.get() } else { std::ptr::null_mut() });
        self.thread.set(thread);
        self.format.set(format);
        self.schedule.set(sampler.map(|sampler| sampler.schedule));
        self.gaps.set(sampler.map(|sampler| sampler.gaps));
        self.sink.set(Some(sink));
        self.recording.set(true);
        self.left.set(if sampler.is_none() { i64::MAX } else { 0 });
        self.skipped.iter().for_each(|count| count.set(0));
        self.seen.store(GATHERING.load(SeqCst), Release);
        [FETCHES, LOADS, STORES].into_iter().for_each(|kind| self.open(kind).word.set(self.ended.as_ptr()));
        self.close();
        self.gaps.get().into_iter().for_each(|gaps| gaps.left_out.begin());
        self.begin_phase();
    }

    /// Fetches of a block in a sampled recording.
    #[cfg(test)]
    pub(crate) fn sampled_block(&self, block: u64) {
        if self.gaps.get().is_some_and(|gaps| !gaps.left_out.counts_fetches(block)) {
            self.fetches_sampled(block);
        }
    }

    /// The open run of a kind.
    #[inline(always)]
    fn open(&self, kind: usize) -> &Open {
        if kind == FETCHES { &self.fetch } else { &self.data[kind] }
    }

    /// Removes the buffer.
    pub(crate) fn end(&self) {
        self.close();
        self.gaps.get().into_iter().for_each(|gaps| gaps.left_out.interrupt());
        self.start.set(std::ptr::null_mut());
        self.next.set(std::ptr::null_mut());
        self.end.set(std::ptr::null_mut());
        self.quick_end.set(std::ptr::null_mut());
    }

    /// A load or store at `address`, described by `info` in the thread's [`AccessFormat`].
    #[cfg(test)]
    pub(crate) fn data(&self, info: u32, address: u64) {
        let kind = self.format.get().kind(info);
        match self.gaps.get() {
            None => self.data_of(kind, info, address, ONE),
            Some(gaps) if gaps.left_out.counts(kind, address) => {}
            Some(_) => self.data_sampled(info, address),
        }
    }

    /// A load or store at `address`, described by `info`, of which `kind` was extracted. `one` is
    /// [`ONE`].
    #[inline(always)]
    pub(crate) fn data_of(&self, kind: usize, info: u32, address: u64, one: u64) {
        let open = &self.data[kind & (LOADS | STORES)];
        if address.wrapping_sub(open.page.load(Relaxed)) <= self.within(info) {
            // Only loads and stores are ever open here, so `info` says one of them.
            self.add(open, one);
        } else {
            self.data_elsewhere(kind, info, address);
        }
    }

    /// How far behind the start of a page an access may begin that lies on it completely: the
    /// largest or, where lines are no larger than that, this one.
    #[inline(always)]
    fn within(&self, info: u32) -> u64 {
        if PAGE > LARGEST {
            return PAGE - LARGEST;
        }
        PAGE - self.format.get().size(info)
    }

    /// Adds a number, shifted by [`COUNT_SHIFT`], to the count of an open run.
    #[inline(always)]
    fn add(&self, open: &Open, shifted: u64) {
        // SAFETY: once the thread has begun, the words of runs are in the buffer or `ended`.
        let full = unsafe {
            let (sum, full) = (*open.word.get()).overflowing_add(shifted);
            *open.word.get() = sum;
            full
        };
        if full {
            self.overflow(open);
        }
    }

    /// The count of a run has just wrapped to 0: the run continues in another word.
    #[cold]
    #[inline(never)]
    fn overflow(&self, open: &Open) {
        self.spend(COUNT_LIMIT - 1);
        // SAFETY: as in `add`, and no run that has ended grows, so a word of the buffer.
        let full = unsafe { &mut *open.word.get() };
        let rest = (*full & !STRADDLE) + (1 << COUNT_SHIFT);
        *full |= (COUNT_LIMIT - 1) << COUNT_SHIFT;
        open.word.set(self.ended.as_ptr());
        open.word.set(self.push(rest));
    }

    /// Instructions fetched from one page: `block` is the page's address plus their number, below
    /// the bytes of a page.
    #[inline(always)]
    pub(crate) fn fetches(&self, block: u64) {
        if !self.usual_fetches(block) {
            self.begin_fetches_anywhere(block, 0);
        }
    }

    /// Like [`Runs::fetches`] if nothing is due that makes it longer; otherwise does nothing and
    /// returns `false`, as it does for a thread that has not begun.
    #[inline(always)]
    pub(crate) fn usual_fetches(&self, block: u64) -> bool {
        let number = block ^ self.fetch.page.load(Relaxed);
        if number < PAGE {
            self.add(&self.fetch, number << COUNT_SHIFT);
            return true;
        }
        self.begin_fetches(block, 0)
    }

    /// Like [`Runs::fetches`], if the first is the end of an instruction that began on the previous
    /// page.
    pub(crate) fn straddling_fetches(&self, block: u64) {
        if !self.begin_fetches(block, STRADDLE) {
            self.begin_fetches_anywhere(block, STRADDLE);
        }
    }

    /// Usually begins a new run.
    ///
    /// Nothing here looks for a gathering: until the thread is interrupted, which closes the page,
    /// it may go on.
    #[inline(never)]
    fn data_elsewhere(&self, kind: usize, info: u32, address: u64) {
        let slot = self.next.get();
        let page = address & !OFFSET;
        let (kind, another) = (kind & (LOADS | STORES), !kind & (LOADS | STORES));
        let (open, other) = (&self.data[kind], &self.data[another]);
        let elsewhere = other.page.load(Relaxed);
        let usual = slot < self.quick_end.get()
            && address & OFFSET <= self.within(info)
            && open.page.load(Relaxed) != NOWHERE
            && elsewhere != NOWHERE;
        if !usual {
            return self.data_anywhere(info, address);
        }
        // SAFETY: `slot` is before the end, so it and the end mark after it are in the buffer.
        unsafe {
            slot.write(UNIT.run(page, in_wire(kind)) + ONE);
            self.next.set(slot.add(1));
            slot.add(1).write(0);
        }
        open.word.set(slot);
        open.page.store(page, Relaxed);
        if kind == STORES || elsewhere != page {
            other.word.set(self.ended.as_ptr());
            other.page.store(LEFT, Relaxed);
        }
    }

    #[cold]
    #[inline(never)]
    fn data_anywhere(&self, info: u32, address: u64) {
        self.each_touch(info, address, |page, kind| self.data_touch(page, kind));
    }

    /// Takes an access apart: one touch of each page, of each kind.
    #[inline(always)]
    fn each_touch(&self, info: u32, address: u64, touch: impl Fn(u64, usize)) {
        let format = self.format.get();
        let (first, last) = (address & !OFFSET, address.wrapping_add(format.size(info) - 1) & !OFFSET);
        // An access without a kind counts as a load; one with both loads first.
        let kinds = match format.kind(info) {
            STORES => STORES..=STORES,
            both if both == LOADS | STORES => LOADS..=STORES,
            _ => LOADS..=LOADS,
        };
        for kind in kinds {
            touch(first, kind);
            if last != first {
                touch(last, kind);
            }
        }
    }

    fn data_touch(&self, page: u64, kind: usize) {
        self.look_up();
        let open = &self.data[kind];
        if self.is_on(kind, page) {
            open.page.store(page, Relaxed);
            return self.add(open, ONE);
        }
        let other = kind ^ (LOADS | STORES);
        self.end_run(kind);
        if kind == STORES || !self.is_on(other, page) {
            self.end_run(other);
        }
        self.mark(page, kind);
        open.word.set(self.push(UNIT.run(page, in_wire(kind)) + ONE));
        open.page.store(page, Relaxed);
        let other_open = &self.data[other];
        if other_open.page.load(Relaxed) == NOWHERE && other_open.word.get() == self.ended.as_ptr() {
            // Nothing is open there that an interrupt could hide.
            other_open.page.store(LEFT, Relaxed);
        }
    }

    /// Like `data_elsewhere`, for fetches; returns `false` if that is not usual.
    #[inline(always)]
    fn begin_fetches(&self, block: u64, straddle: u64) -> bool {
        let slot = self.next.get();
        if slot >= self.quick_end.get() || self.fetch.page.load(Relaxed) == NOWHERE {
            return false;
        }
        // SAFETY: `slot` is before the end, so it and the end mark after it are in the buffer.
        unsafe {
            slot.write(UNIT.run(block, EXECUTE | straddle) + ((block & OFFSET) << COUNT_SHIFT));
            self.next.set(slot.add(1));
            slot.add(1).write(0);
        }
        self.fetch.word.set(slot);
        self.fetch.page.store(block & !OFFSET, Relaxed);
        true
    }

    #[cold]
    #[inline(never)]
    fn begin_fetches_anywhere(&self, block: u64, straddle: u64) {
        let (page, number) = (block & !OFFSET, block & OFFSET);
        self.look_up();
        let interrupted = self.fetch.page.load(Relaxed) == NOWHERE;
        if interrupted && straddle == 0 && self.is_on(FETCHES, page) {
            self.fetch.page.store(page, Relaxed);
            return self.add(&self.fetch, number << COUNT_SHIFT);
        }
        self.end_run(FETCHES);
        self.mark(page, FETCHES);
        self.fetch.word.set(self.push(UNIT.run(page, EXECUTE | straddle) + (number << COUNT_SHIFT)));
        self.fetch.page.store(page, Relaxed);
    }

    /// Whether the open run of a kind is on this page, even if another thread's interrupt has
    /// hidden that.
    fn is_on(&self, kind: usize, page: u64) -> bool {
        let open = self.open(kind);
        let (at, word) = (open.page.load(Relaxed), open.word.get());
        // SAFETY: as in `add`.
        let same = |word: *mut u64| unsafe { (*word ^ UNIT.run(page, 0)) & UNIT.number_bits() } == 0;
        at == page || at == NOWHERE && word != self.ended.as_ptr() && same(word)
    }

    /// Adds a word; open runs stay open unless the buffer was full.
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
        if let Some(Gaps { touched, left_out }) = self.gaps.get() {
            left_out.look_for_changes(touched);
        }
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

    /// Ends all runs.
    pub(crate) fn close(&self) {
        [FETCHES, LOADS, STORES].into_iter().for_each(|kind| self.end_run(kind));
    }

    fn end_run(&self, kind: usize) {
        let open = self.open(kind);
        // SAFETY: as in `add`.
        self.spend(unsafe { *open.word.get() } >> COUNT_SHIFT);
        open.page.store(NOWHERE, Relaxed);
        open.word.set(self.ended.as_ptr());
    }

    /// The accesses of the open runs.
    fn in_runs(&self) -> u64 {
        // SAFETY: as in `add`.
        [FETCHES, LOADS, STORES].into_iter().map(|kind| unsafe { *self.open(kind).word.get() } >> COUNT_SHIFT).sum()
    }

    fn spend(&self, count: u64) {
        self.left.update(|left| left - count as i64);
    }

    /// Ends all runs and passes the contents of the buffer to the sink.
    pub(crate) fn hand_over(&self) {
        self.close();
        let start = self.start.get();
        // SAFETY: `start..next` is the written part of the buffer.
        let words = unsafe { std::slice::from_raw_parts(start, self.next.get().offset_from(start) as usize) };
        if let (Some(sink), false) = (self.sink.get(), words.is_empty()) {
            let next = sink(self, words);
            // SAFETY: both point into the old buffer, and the new one is as long.
            self.end.set(unsafe { next.offset(self.end.get().offset_from(start)) });
            self.start.set(next);
            self.quick_end.set(if self.gaps.get().is_none() { self.end.get() } else { std::ptr::null_mut() });
        }
        let start = self.start.get();
        self.next.set(start);
        // SAFETY: the buffer holds at least the end mark.
        unsafe { start.write(0) };
    }

    /// Whether another thread waits for this one to hand over.
    pub(crate) fn behind(&self) -> bool {
        self.seen.load(Acquire) < GATHERING.load(SeqCst)
    }

    /// Makes the thread notice the gathering at its next access. Called by other threads.
    pub(crate) fn interrupt(&self) {
        [FETCHES, LOADS, STORES].into_iter().for_each(|kind| self.open(kind).page.store(NOWHERE, Relaxed));
    }

    /// Sends what the thread has if another one waits for it, with what it left out if that one
    /// ends the process.
    fn look_up(&self) {
        let gathering = GATHERING.load(Acquire);
        if self.seen.load(Relaxed) != gathering {
            if crate::process::is_ending() {
                self.tell_skipped();
            }
            self.hand_over();
            self.seen.store(gathering, Release);
        }
    }
}

/// The kind as it stands in a run's word.
#[inline(always)]
const fn in_wire(kind: usize) -> u64 {
    if kind == STORES { WRITE } else { READ }
}
