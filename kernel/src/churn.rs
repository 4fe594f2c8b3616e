//! Two threads of one address space, a processor each: they write all of it, and then write and
//! read pages, replace mappings, and fork, in a memory that is too small, and compare each word
//! with what was written.
//!
//! Runs of pages belong to one thread and to the other by turns, so that they share tables and
//! superpages. Only its owner writes a page, and counts that in `TIMES`, before and after: a
//! sequence lock, so that the other thread too knows what it must read. None of this works without
//! shootdowns: a thread would write and read frames that have become another page's, and pages that
//! a child shares.

use crate::processors;
use crate::shootdown::PROCESSORS;
use crate::{Kernel, PAGE, START, STEP, Serial, boot, kernel, word};
use core::fmt::Write;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use superpage_pages::Random;
use superpage_vm::{Map, SpaceId};

/// The pages that the threads use: 40 MB.
const PAGES: u64 = 10_240;
/// The first of them, which they use most: stale entries of TLBs are met before they are lost.
const HOT: u64 = 512;
/// Pages in a row of one thread.
const RUN: u64 = 32;

/// By page, the number of its contents. Odd: they are being written.
static TIMES: [AtomicU32; PAGES as usize] = [const { AtomicU32::new(0) }; PAGES as usize];
const WRITING: u32 = 1;
/// They are zeroes.
const BLANK: u32 = 2;
const NEXT: u32 = 4;

/// By thread and page, the contents in its child. Odd: not known.
static FORKED: [[AtomicU32; PAGES as usize]; PROCESSORS] =
    [const { [const { AtomicU32::new(0) }; PAGES as usize] }; PROCESSORS];

static SPACE: AtomicU32 = AtomicU32::new(0);
static SECONDS: AtomicU64 = AtomicU64::new(0);
/// When both end, in nanoseconds.
static END: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);
static FORKS: AtomicU64 = AtomicU64::new(0);

fn time(page: u64) -> &'static AtomicU32 {
    &TIMES[page as usize]
}

fn words(page: u64) -> impl Iterator<Item = u64> {
    let start = (START + page).0 * PAGE as u64;
    (start..start + PAGE as u64).step_by(STEP as usize)
}

fn owner(page: u64) -> usize {
    (page / RUN) as usize % PROCESSORS
}

/// Writes the contents of this time.
fn fill(page: u64, time: u32) {
    for address in words(page) {
        // SAFETY: memory of the program, which page faults populate; the same below.
        unsafe { (address as *mut u64).write_volatile(word(address, u64::from(time))) };
    }
}

/// How many words of a page are not those of this time.
fn wrong(page: u64, time: u32) -> u64 {
    let expected = |address| if time & BLANK > 0 { 0 } else { word(address, u64::from(time)) };
    // SAFETY: see `fill`.
    words(page).map(|address| u64::from(unsafe { (address as *const u64).read_volatile() } != expected(address))).sum()
}

/// The contents after these.
fn next(time: u32) -> u32 {
    (time & !(WRITING | BLANK)).wrapping_add(NEXT)
}

/// Before the owner changes a page.
fn begin(page: u64) {
    time(page).fetch_or(WRITING, Ordering::AcqRel);
}

/// Once it has changed it; `blank`: [`BLANK`] or 0.
fn end(page: u64, blank: u32) {
    time(page).store(next(time(page).load(Ordering::Relaxed)) | blank, Ordering::Release);
}

fn write(page: u64) {
    begin(page);
    fill(page, next(time(page).load(Ordering::Relaxed)));
    end(page, 0);
}

/// Compares a page; returns how many words are wrong, which it cannot know if its owner writes
/// meanwhile.
fn read(page: u64) -> u64 {
    let before = time(page).load(Ordering::Acquire);
    if before & WRITING > 0 {
        return 0;
    }
    let wrong = wrong(page, before);
    fence(Ordering::Acquire);
    if time(page).load(Ordering::Relaxed) == before { wrong } else { 0 }
}

/// Replaces mappings of the thread by new ones.
fn replace(space: SpaceId, pages: Range<u64>) {
    pages.clone().for_each(begin);
    kernel(|Kernel { vm, tables, .. }| {
        let (start, count) = (START + pages.start, pages.end - pages.start);
        vm.unmap(tables, space, start.pages(count)).expect("a range of the program's");
        vm.map(tables, space, Map::anonymous(start, count)).expect("a range of the program's");
    });
    pages.for_each(|page| end(page, BLANK));
}

/// Forks, and reads and writes pages as the child while the other thread goes on; returns how many
/// words were wrong.
fn fork(thread: usize, space: SpaceId, random: &mut Random) -> u64 {
    let forked = |page: u64| &FORKED[thread][page as usize];
    let child = kernel(|kernel| {
        (0..PAGES).for_each(|page| forked(page).store(time(page).load(Ordering::Acquire), Ordering::Relaxed));
        let child = kernel.vm.fork(&mut kernel.tables, space).expect("the space is there");
        for page in 0..PAGES {
            let written = time(page).load(Ordering::Acquire) != forked(page).load(Ordering::Relaxed);
            forked(page).fetch_or(if written { WRITING } else { 0 }, Ordering::Relaxed);
        }
        kernel.run(Some(child));
        child
    });
    let mut all = 0;
    for step in 0..128 {
        let page = random.below(if step % 2 > 0 { HOT } else { PAGES });
        let before = forked(page).load(Ordering::Relaxed);
        if before & WRITING == 0 {
            all += wrong(page, before);
        }
        if random.below(3) == 0 {
            let new = next(before) ^ 1 << 15; // not the parent's next
            fill(page, new);
            all += wrong(page, new);
            forked(page).store(new, Ordering::Relaxed);
        }
    }
    kernel(|kernel| {
        kernel.run(Some(space));
        kernel.vm.exit(&mut kernel.tables, child).expect("the space is there");
    });
    FORKS.fetch_add(1, Ordering::Relaxed);
    all
}

fn thread(number: usize) {
    let space = SpaceId(SPACE.load(Ordering::Relaxed));
    kernel(|kernel| kernel.run(Some(space)));
    let (mut random, mut wrong) = (Random::new(number as u64), 0);
    (0..PAGES).filter(|page| owner(*page) == number).for_each(write);
    END.fetch_max(boot::nanoseconds() + SECONDS.load(Ordering::Relaxed) * 1_000_000_000, Ordering::Relaxed);
    while boot::nanoseconds() < END.load(Ordering::Relaxed) {
        let among = if random.below(4) > 0 { HOT } else { PAGES };
        let first = random.below(among);
        let pages = first..first + 1 + random.below(RUN - first % RUN);
        let own = owner(first) == number;
        match random.below(100) {
            0 => wrong += fork(number, space, &mut random),
            1..10 if own => replace(space, pages),
            10..50 if own => pages.for_each(write),
            _ => wrong += pages.map(read).sum::<u64>(),
        }
    }
    WRONG.fetch_add(wrong, Ordering::Relaxed);
    kernel(|kernel| kernel.run(None));
}

/// Runs the threads for some seconds in a space; returns how many words they found wrong.
pub(crate) fn on_both(space: SpaceId, seconds: u64) -> u64 {
    let before = kernel(|Kernel { vm, tables, faults }| {
        vm.unmap(tables, space, START.pages(2 * PAGES)).expect("a range of the program's");
        vm.map(tables, space, Map::anonymous(START, PAGES)).expect("a range of the program's");
        *faults
    });
    TIMES.iter().for_each(|time| time.store(BLANK, Ordering::Relaxed));
    SPACE.store(space.0, Ordering::Relaxed);
    SECONDS.store(seconds, Ordering::Relaxed);
    processors::run_on_both(thread);
    let (faults, forks) = (kernel(|kernel| kernel.faults), FORKS.swap(0, Ordering::Relaxed));
    let [sent, interrupted, spinning] = processors::ALL.counts();
    let _ = writeln!(
        Serial,
        "  on two processors: {} and {} faults, {forks} forks, {sent} shootdowns, answered {interrupted} in interrupts \
         and {spinning} while spinning",
        faults[0] - before[0],
        faults[1] - before[1],
    );
    assert_eq!(sent, interrupted + spinning, "each was answered, once");
    WRONG.swap(0, Ordering::Relaxed)
}
