//! Run forming against a plain model.

use super::*;
use crate::schedule::Schedule;
use crate::touched::Touched;
use crate::wire::{EVENT, code};
use std::sync::Mutex;

const FORMAT: AccessFormat = AccessFormat { kind_shift: 16, size_shift: 4, size_mask: 7 };
/// What the sink was given, by thread: each test has its own.
static TAKEN: Mutex<Vec<(u32, Vec<u64>)>> = Mutex::new(Vec::new());

fn keep(runs: &Runs, words: &[u64]) -> *mut u64 {
    TAKEN.lock().expect("a lock").push((runs.thread(), words.to_vec()));
    runs.start.get()
}

fn taken(thread: u32) -> Vec<Vec<u64>> {
    let all = TAKEN.lock().expect("a lock");
    all.iter().filter(|(other, _)| *other == thread).map(|(_, words)| words.clone()).collect()
}

fn begun(thread: u32, words: usize, sampler: Option<Sampler>) -> Box<Runs> {
    let runs = Box::new(Runs::new());
    let buffer = Box::leak(vec![0; words].into_boxed_slice());
    // SAFETY: the buffer is never freed, and the box does not move the value.
    unsafe { runs.begin(buffer, thread, Gathering { format: FORMAT, sampler, sink: keep }) };
    runs
}

/// A word as page, mark and kind, count; the events of these tests have no payload but that of skips.
fn shown(words: &[u64]) -> Vec<(u64, u64, u64)> {
    words.iter().map(|word| ((word & UNIT.number_bits()) >> 4, word & 7, word >> COUNT_SHIFT)).collect()
}

/// A small generator of numbers, always the same.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[test]
fn runs_are_those_of_a_plain_model() {
    let runs = begun(1, 1 << 16, None);
    let mut numbers = Numbers(7);
    let mut model: Vec<(u64, u64, u64)> = Vec::new();
    // Per kind: where its open run stands and its page.
    let mut open: [Option<(usize, u64)>; 3] = [None; 3];
    let mut access = |model: &mut Vec<(u64, u64, u64)>, page: u64, kind: u64, count: u64| {
        if kind != EXECUTE {
            for open in &mut open[..EXECUTE as usize] {
                open.take_if(|run| run.1 != page);
            }
        }
        if kind == WRITE && open[WRITE as usize].is_none() {
            open[READ as usize] = None;
        }
        match open[kind as usize] {
            Some((at, at_page)) if at_page == page => model[at].2 += count,
            _ => {
                open[kind as usize] = Some((model.len(), page));
                model.push((page, kind, count));
            }
        }
    };
    for _ in 0..20_000 {
        let page = 100 + numbers.below(3);
        if numbers.below(3) == 0 {
            let number = 1 + numbers.below(50);
            runs.fetches(page * PAGE + number);
            access(&mut model, page, EXECUTE, number);
        } else {
            let (offset, size) = (numbers.below(4096), numbers.below(6));
            let rw = [1, 1, 2, 3][numbers.below(4) as usize];
            runs.data((size as u32) << 4 | rw << 16, page * PAGE + offset);
            for kind in [READ, WRITE].into_iter().filter(|kind| rw >> kind & 1 != 0) {
                access(&mut model, page, kind, 1);
                if offset + (1 << size) > 4096 {
                    access(&mut model, page + 1, kind, 1);
                }
            }
        }
    }
    runs.hand_over();
    let [words] = &taken(1)[..] else { panic!("one chunk") };
    assert_eq!(shown(words), model);
}

#[test]
fn a_full_buffer_is_handed_over_and_loses_nothing() {
    let runs = begun(2, 16, None);
    for step in 0..1000 {
        runs.fetches((1 + step % 2) * PAGE + 3);
        runs.data(1 << 16, (1 + step % 5) * PAGE);
    }
    runs.hand_over();
    let chunks = taken(2);
    assert!(chunks.iter().all(|chunk| chunk.len() <= 15));
    let total = |kind| {
        let all = chunks.iter().flat_map(|chunk| shown(chunk));
        all.filter(|(_, other, _)| *other == kind).map(|(.., count)| count).sum::<u64>()
    };
    assert_eq!((total(READ), total(EXECUTE)), (1000, 3000));
}

#[test]
fn a_run_longer_than_a_word_can_count_goes_on_in_the_next() {
    let runs = begun(3, 16, None);
    for _ in 0..COUNT_LIMIT + 10 {
        runs.data(1 << 17, PAGE);
    }
    runs.hand_over();
    assert_eq!(shown(&taken(3)[0]), [(1, WRITE, COUNT_LIMIT - 1), (1, WRITE, 11)]);
}

#[test]
fn an_event_ends_runs_and_an_interrupt_does_not() {
    let runs = begun(4, 64, None);
    [1, 2, 1].into_iter().for_each(|rw| runs.data(rw << 16, PAGE));
    runs.interrupt();
    [1, 2].into_iter().for_each(|rw| runs.data(rw << 16, PAGE));
    runs.event(code::EXEC, &[]);
    runs.data(1 << 16, PAGE);
    runs.fetches(PAGE + 1);
    runs.straddling_fetches(2 * PAGE + 1);
    runs.hand_over();
    let expected = [
        (1, READ, 1),
        (1, WRITE, 2),
        (1, READ, 2),
        (code::EXEC, EVENT, 0),
        (1, READ, 1),
        (1, EXECUTE, 1),
        (2, EXECUTE | STRADDLE, 1),
    ];
    assert_eq!(shown(&taken(4)[0]), expected);
}

#[test]
fn sampling_keeps_first_touches_and_counts_the_rest() {
    static TOUCHED: Touched = Touched::new();
    let runs = begun(5, 1 << 16, Some(Sampler { schedule: Schedule::new(10, 20_000, 3, 0), touched: &TOUCHED }));
    let mut numbers = Numbers(3);
    let (mut pages, mut written) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
    const ACCESSES: u64 = 50_000;
    for _ in 0..ACCESSES {
        let (page, store) = (1 + numbers.below(2000), numbers.below(3) == 0);
        runs.data(if store { 1 << 17 } else { 1 << 16 }, page * PAGE);
        pages.insert(page);
        if store {
            written.insert(page);
        }
    }
    runs.tell_skipped();
    runs.hand_over();
    let chunk = taken(5).remove(0);
    let (mut kept, mut skipped, mut seen, mut seen_written) = (0, 0, pages.clone(), written.clone());
    let mut words = chunk.iter().copied();
    while let Some(word) = words.next() {
        let (page, kind, count) = shown(&[word])[0];
        if kind == EVENT {
            let first = words.next().expect("a payload");
            skipped += if page == code::SKIPPED { first } else { 0 };
            assert_eq!(words.next(), Some(0), "no instructions");
            continue;
        }
        kept += count;
        seen.remove(&page);
        if kind == WRITE {
            seen_written.remove(&page);
        }
    }
    assert_eq!(kept + skipped, ACCESSES);
    assert!(seen.is_empty() && seen_written.is_empty());
    // Three windows at most, each of which begins with the pages that were used in the gap before.
    assert!(kept < (pages.len() + written.len() + 3 * (pages.len() + 10)) as u64, "{kept} were kept");
}
