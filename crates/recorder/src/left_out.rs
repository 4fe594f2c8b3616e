//! What a thread does between the windows of a sampled recording: only counted, but for the first
//! touches and first writes of pages, and with the time at which each page was last used.
//!
//! Nearly all accesses are between windows, so this is as short as can be: a small table holds the
//! pages that the thread used last of those that are known to [`Touched`]; an access to one of them
//! advances the clock and notes its time there. All else is for [`Runs`](crate::runs::Runs): pages
//! that are not in the table, and, at the first block that begins after it, whatever is due. Within
//! windows the table is empty.
//!
//! All of it is the thread's own, so threads need not wait for each other's memory, and each window
//! begins with what its thread used. The clock counts loads, stores and fetches.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use crate::UNIT;
use crate::leaves::ALL_PAGES;
use crate::runs::{LARGEST, LOADS, NOWHERE, PAGE, STORES};
use crate::stamps::Stamps;
use crate::touched::Touched;

/// Pages in the table of data, by the low bits of their numbers.
const PAGES: usize = 4096;
/// Pages in the table of code.
const CODE_PAGES: usize = 256;
/// Before the first time of any clock: no address is as large.
const NEVER: u64 = 1 << 63;
/// The place of the time in an entry of data.
const USED: usize = LOADS | STORES;

/// A page of the table: nothing, its address if loads from it are only counted, its address if
/// stores to it are, and when it was last used, which no address follows by less than a page. So
/// the kind of an access is the place of what it is compared with, and those of accesses that do
/// both or nothing are found nowhere.
struct DataPage([AtomicU64; 4]);

struct CodePage {
    page: AtomicU64,
    used: AtomicU64,
}

/// What one thread leaves out. Other threads only call [`LeftOut::interrupt`], [`LeftOut::forget`]
/// and [`LeftOut::restrict`].
#[repr(C, align(64))]
pub(crate) struct LeftOut {
    data: [DataPage; PAGES],
    code: [CodePage; CODE_PAGES],
    clock: Cell<u64>,
    /// The time up to which accesses were collected.
    since: Cell<u64>,
    /// Fetches since then.
    fetches: Cell<u64>,
    /// The time at which something is due; 0 if another thread requests that.
    due: AtomicU64,
    /// The changes of [`Touched`] that the table takes into account.
    changes: Cell<u64>,
    /// When pages that have left the table were last used.
    stamps: Stamps,
}

// SAFETY: the atomic fields are for all threads; the others are touched only by the thread that the
// value belongs to.
unsafe impl Sync for LeftOut {}

impl LeftOut {
    /// A thread that has not begun: something is due at its first block.
    pub(crate) const fn new() -> LeftOut {
        LeftOut {
            data: [const { DataPage([const { AtomicU64::new(0) }; 4]) }; PAGES],
            code: [const { CodePage { page: AtomicU64::new(0), used: AtomicU64::new(0) } }; CODE_PAGES],
            clock: Cell::new(0),
            since: Cell::new(0),
            fetches: Cell::new(0),
            due: AtomicU64::new(0),
            changes: Cell::new(0),
            stamps: Stamps::new(),
        }
    }

    /// The same, made where it stays for good: it is large for the stack of a thread of the
    /// program.
    pub(crate) fn leaked() -> &'static LeftOut {
        let layout = std::alloc::Layout::new::<LeftOut>();
        // SAFETY: the layout has a size, and a value is all zeroes, as `new` makes it. Nobody frees
        // it.
        let made = unsafe { std::alloc::alloc_zeroed(layout).cast::<LeftOut>().as_ref() };
        made.unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
    }

    /// Begins a thread, of which nothing is known.
    pub(crate) fn begin(&self) {
        self.clock.set(self.clock.get().max(NEVER + 1));
        self.since.set(self.clock.get());
        self.fetches.set(0);
        self.empty();
        self.stamps.remove(0, ALL_PAGES, [true; 2]);
    }

    /// Counts a load or store of a page in the table, unless it may cross the end of the page;
    /// otherwise does nothing and returns `false`.
    #[inline(always)]
    pub(crate) fn counts(&self, kind: usize, address: u64) -> bool {
        self.counts_within(kind, address, PAGE - LARGEST)
    }

    /// The same for one that does not cross the end of its page if it begins at most `within`
    /// behind its start.
    #[inline(always)]
    pub(crate) fn counts_within(&self, kind: usize, address: u64, within: u64) -> bool {
        let DataPage(entry) = &self.data[(address >> UNIT.shift) as usize % PAGES];
        let counts = address.wrapping_sub(entry[kind % 4].load(Relaxed)) <= within;
        if counts {
            entry[USED].store(self.advance(1), Relaxed);
        }
        counts
    }

    /// Counts the fetches of a block, its page's address plus their number, if the page is in the
    /// table and nothing is due; otherwise does nothing and returns `false`.
    #[inline(always)]
    pub(crate) fn counts_fetches(&self, block: u64) -> bool {
        let entry = &self.code[(block >> UNIT.shift) as usize % CODE_PAGES];
        let number = block ^ entry.page.load(Relaxed);
        let counts = number < PAGE && !self.is_due();
        if counts {
            self.fetches.update(|fetches| fetches + number);
            entry.used.store(self.advance(number), Relaxed);
        }
        counts
    }

    /// Advances the clock, and returns its time.
    #[inline(always)]
    fn advance(&self, count: u64) -> u64 {
        let now = self.clock.get() + count;
        self.clock.set(now);
        now
    }

    /// Whether something is due.
    #[inline(always)]
    pub(crate) fn is_due(&self) -> bool {
        self.clock.get() >= self.due.load(Relaxed)
    }

    /// An access to a page that may be missing in the table, which has `count` of them to count:
    /// takes it up. The page has been touched and, if `written`, written before or now.
    pub(crate) fn take_up(&self, touched: &Touched, page: u64, written: bool, count: u64) {
        let DataPage(entry) = &self.data[(page >> UNIT.shift) as usize % PAGES];
        if entry[LOADS].load(Relaxed) != page {
            self.tell(touched, &entry[LOADS], &entry[USED], false);
            entry[LOADS].store(page, Relaxed);
            entry[STORES].store(NOWHERE, Relaxed);
        }
        if written {
            entry[STORES].store(page, Relaxed);
        }
        entry[USED].store(self.advance(count), Relaxed);
    }

    /// The same for fetches from a page.
    pub(crate) fn take_up_fetches(&self, touched: &Touched, page: u64, count: u64) {
        self.fetches.update(|fetches| fetches + count);
        let entry = &self.code[(page >> UNIT.shift) as usize % CODE_PAGES];
        if entry.page.load(Relaxed) != page {
            self.tell(touched, &entry.page, &entry.used, true);
            entry.page.store(page, Relaxed);
        }
        entry.used.store(self.advance(count), Relaxed);
    }

    /// Data references and instructions that were left out since they were last collected.
    pub(crate) fn collect(&self) -> [u64; 2] {
        let now = self.clock.get();
        let (all, fetches) = (now - self.since.replace(now), self.fetches.take());
        [all - fetches, fetches]
    }

    /// After [`LeftOut::collect`]: something is due after `left` accesses, or sooner.
    pub(crate) fn expect(&self, touched: &Touched, left: u64) {
        self.due.store(self.clock.get().saturating_add(left), SeqCst);
        // If a change came after this, so does the interrupt that follows it.
        if touched.changes() != self.changes.get() {
            self.interrupt();
        }
    }

    /// Empties the table if pages in it may not be known any more.
    pub(crate) fn look_for_changes(&self, touched: &Touched) {
        let changes = touched.changes();
        if self.changes.replace(changes) != changes {
            self.close(touched);
        }
    }

    /// Makes the thread look for what is due when it begins its next block. Called by any thread.
    pub(crate) fn interrupt(&self) {
        self.due.store(0, SeqCst);
    }

    /// The pages used since the last call, the most recent last; and whether by a fetch. Empties
    /// the table.
    pub(crate) fn recent(&self, touched: &Touched) -> Vec<(u64, bool)> {
        self.close(touched);
        self.stamps.recent()
    }

    /// Forgets when a range of pages was last used. Called by any thread, once [`Touched`] has
    /// forgotten it.
    pub(crate) fn forget(&self, start: u64, pages: u64) {
        self.stamps.remove(start, pages, [true; 2]);
    }

    /// The same for pages that may no longer be read, or executed.
    pub(crate) fn restrict(&self, start: u64, pages: u64, read: bool, execute: bool) {
        self.stamps.remove(start, pages, [!read, !execute]);
    }

    /// Empties the table.
    fn close(&self, touched: &Touched) {
        self.data.iter().for_each(|DataPage(entry)| self.tell(touched, &entry[LOADS], &entry[USED], false));
        self.code.iter().for_each(|entry| self.tell(touched, &entry.page, &entry.used, true));
        self.empty();
    }

    fn empty(&self) {
        for DataPage(entry) in &self.data {
            entry.iter().zip([NOWHERE, NOWHERE, NOWHERE, NEVER]).for_each(|(word, empty)| word.store(empty, Relaxed));
        }
        for CodePage { page, used } in &self.code {
            page.store(NOWHERE, Relaxed);
            used.store(NEVER, Relaxed);
        }
    }

    /// Notes of one page when it was last used, if it was and may be used still.
    fn tell(&self, touched: &Touched, page: &AtomicU64, used: &AtomicU64, fetch: bool) {
        let (page, now) = (page.load(Relaxed) >> UNIT.shift, used.load(Relaxed));
        if now > NEVER {
            used.store(NEVER, Relaxed);
            if touched.is_usable(page, fetch) {
                self.stamps.set(page, fetch, now);
            }
        }
    }
}
