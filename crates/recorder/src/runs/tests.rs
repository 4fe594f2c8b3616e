//! Run forming against a plain model.

use super::*;
use crate::left_out::LeftOut;
use crate::schedule::{Phase, Schedule};
use crate::touched::Touched;
use crate::wire::{EVENT, code};
use std::collections::{HashMap, HashSet};
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

/// A word as page, mark and kind, count; the events of these tests have no payload but that of
/// skips.
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

/// What a sampled recording must know of a gap, found in the plainest way.
#[derive(Default)]
struct Model {
    /// The accesses of this phase that count for its length.
    counted: u64,
    /// Whether a touched page was written.
    marks: HashMap<u64, bool>,
    /// When a page was last used in this gap, by loads and stores or by fetches: after so many that
    /// are counted.
    uses: HashMap<(u64, bool), u64>,
    totals: [u64; 2],
    /// What each window must begin with.
    recent: Vec<Vec<(u64, bool)>>,
    first_touches: usize,
}

impl Model {
    fn access(&mut self, page: u64, (fetch, write): (bool, bool), count: u64, gap: bool) {
        self.totals[usize::from(fetch)] += count;
        let news = match self.marks.insert(page, write || self.marks.get(&page) == Some(&true)) {
            None => true,
            Some(written) => write && !written,
        };
        self.first_touches += usize::from(news);
        // The first touches of a gap do not.
        self.counted += count - u64::from(gap && news);
        if gap {
            self.uses.insert((page, fetch), self.counted);
        }
    }

    fn window(&mut self) {
        let mut uses: Vec<_> = self.uses.drain().collect();
        uses.sort_unstable_by_key(|(page, time)| (*time, *page));
        self.recent.push(uses.into_iter().map(|(page, _)| page).collect());
    }

    fn forget(&mut self, page: u64) {
        self.marks.remove(&page);
        self.uses.retain(|(used, _), _| *used != page);
    }
}

/// Pages of which many share a place in a table.
fn some_page(numbers: &mut Numbers) -> u64 {
    1 + numbers.below(30) + 4096 * numbers.below(6)
}

#[test]
fn what_is_left_out_is_that_of_a_plain_model() {
    static TOUCHED: Touched = Touched::new();
    let gaps = Gaps { touched: &TOUCHED, left_out: LeftOut::leaked() };
    let runs = begun(5, 1 << 20, Some(Sampler { schedule: Schedule::new(400, 20_000, 3, 0), gaps }));
    let (mut numbers, mut model, mut length) = (Numbers(3), Model::default(), runs.left.get() as u64);
    for step in 0..150_000 {
        let (page, number) = (some_page(&mut numbers), 1 + numbers.below(20));
        let (gap, phases) = (!runs.recording.get(), runs.schedule.get());
        runs.sampled_block(page * PAGE + number);
        // Each phase ends at the first block after it.
        let turned = phases != runs.schedule.get();
        assert_eq!(turned, model.counted >= length, "{} of {length}", model.counted);
        if turned {
            (model.counted, length) = (0, runs.left.get() as u64);
            if gap && runs.recording.get() {
                model.window();
            }
        }
        model.access(page, (true, false), number, !runs.recording.get());
        for _ in 0..numbers.below(4) {
            let (page, offset, size) = (some_page(&mut numbers), numbers.below(PAGE), numbers.below(6));
            let rw = [1, 1, 2, 3][numbers.below(4) as usize];
            runs.data((size as u32) << 4 | rw << 16, page * PAGE + offset);
            let pages = if offset + (1 << size) > PAGE { page..page + 2 } else { page..page + 1 };
            for write in [false, true].into_iter().filter(|write| rw >> u32::from(*write) & 1 != 0) {
                pages.clone().for_each(|page| model.access(page, (false, write), 1, !runs.recording.get()));
            }
        }
        if step % 1000 == 999 {
            TOUCHED.forget(page, 1);
            gaps.left_out.forget(page, 1);
            model.forget(page);
            runs.event(code::UNMAP, &[[page, 1]]);
            let denied = some_page(&mut numbers);
            for may in [false, true] {
                TOUCHED.restrict(denied, 1, may, true);
                gaps.left_out.restrict(denied, 1, may, true);
                runs.event(code::PROTECT, &[[denied, 1]]);
            }
            model.uses.remove(&(denied, false));
        }
    }
    runs.tell_skipped();
    runs.hand_over();
    let chunk = taken(5).remove(0);
    let (mut totals, mut recent, mut windows) = ([0; 2], None, Vec::new());
    let (mut phase, mut touches) = (Phase::Gap as u64, HashSet::new());
    let mut words = chunk.iter().copied();
    while let Some(word) = words.next() {
        let (page, kind, count) = shown(&[word])[0];
        if kind == EVENT {
            let payload: Vec<u64> = words.by_ref().take((word >> wire::PAYLOAD_SHIFT) as usize).collect();
            match page {
                code::SKIPPED => (totals[0], totals[1]) = (totals[0] + payload[0], totals[1] + payload[1]),
                code::PHASE => {
                    windows.extend(recent.take());
                    if phase == Phase::Gap as u64 && payload[0] == Phase::Warming as u64 {
                        recent = Some(Vec::new());
                    }
                    phase = payload[0];
                }
                _ => assert!(recent.is_none()),
            }
            continue;
        }
        totals[usize::from(kind & 3 == EXECUTE)] += count;
        match &mut recent {
            Some(recent) => recent.push((page, kind & 3 == EXECUTE)),
            None if kind & 3 == WRITE => drop(touches.insert((page, true))),
            None => drop(touches.insert((page, false))),
        }
    }
    assert_eq!(totals, model.totals);
    assert!(windows.len() > 50 && windows.len() == model.recent.len(), "{} windows", windows.len());
    assert_eq!(windows, model.recent);
    for (page, written) in &model.marks {
        assert!(!written || touches.contains(&(*page, true)), "{page}");
    }
    // Those of a window are runs anyway.
    let kept = chunk.len();
    assert!(kept < model.first_touches + windows.len() * 3000, "{kept} words for {} touches", model.first_touches);
}

/// Two threads of a process: a window begins with what its own thread used, and what is unmapped
/// after that is in no window of either.
#[test]
fn a_window_begins_with_the_pages_of_its_own_thread() {
    static TOUCHED: Touched = Touched::new();
    let own = [LeftOut::leaked(), LeftOut::leaked()];
    let threads: Vec<Box<Runs>> = (0..)
        .zip(own)
        .map(|(number, left_out)| {
            let schedule = Schedule::new(10, 2000, 4, u64::from(number));
            begun(20 + number, 1 << 16, Some(Sampler { schedule, gaps: Gaps { touched: &TOUCHED, left_out } }))
        })
        .collect();
    for step in 0..10_000 {
        for (thread, runs) in (1..).zip(&threads) {
            runs.sampled_block(100 * PAGE + 3);
            // Page 50 is used by both.
            let page = if step % 10 == 0 { 50 } else { 1000 * thread + step % 7 };
            runs.data(1 << 16, page * PAGE);
        }
    }
    for (thread, runs) in (1..).zip(&threads) {
        runs.hand_over();
        let mut words = taken(runs.thread()).concat().into_iter();
        let mut pages = HashSet::new();
        while let Some(word) = words.next() {
            match shown(&[word])[0] {
                (_, kind, _) if kind & 3 == EVENT => drop(words.nth((word >> wire::PAYLOAD_SHIFT) as usize - 1)),
                (page, ..) => drop(pages.insert(page)),
            }
        }
        // Page 50 is news to one of them, and in windows of both.
        let expected = (0..7).map(|page| 1000 * thread + page).chain([50, 100]);
        assert_eq!(pages, expected.collect(), "of thread {thread}");
    }
    TOUCHED.forget(50, 1);
    own.iter().for_each(|left_out| left_out.forget(50, 1));
    for left_out in own {
        let recent = left_out.recent(&TOUCHED);
        assert!(recent.contains(&(100, true)) && !recent.contains(&(50, false)), "{recent:?}");
    }
}
