//! Sampling a whole stream.

use superpage_pages::{Access, Protection};
use superpage_trace::{
    Backing, Batch, Error, Event, Growth, Info, Phase, ProcessId, Run, Sample, Sampling, Source, check_stream, workload,
};

/// A loop on one page of code that goes over pages of data: what a recorder makes of it, run by
/// run.
struct Loop {
    info: Info,
    left: u32,
}

impl Source for Loop {
    fn info(&self) -> &Info {
        &self.info
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        if self.left == 0 {
            return Ok(false);
        }
        batch.event(Event::Switch { process: ProcessId(0), thread: 0 });
        let map = |start, pages, protection| Event::Map {
            start,
            pages,
            protection,
            shared: false,
            backing: Backing::Anonymous,
            growth: Growth::Fixed,
        };
        if self.left == 100 {
            batch.event(map(1, 1, Protection::READ_EXECUTE));
            batch.event(map(1000, 1000, Protection::READ_WRITE));
        }
        self.left -= 1;
        // All fetches of the loop stand at its first.
        batch.run(Run::new(1, Access::Execute, 9000, 9000));
        (0..1000).for_each(|page| batch.run(Run::new(1000 + page, Access::Read, 1, 0)));
        if self.left == 0 {
            batch.event(Event::Exit);
        }
        Ok(true)
    }
}

fn looping() -> Box<dyn Source> {
    Box::new(Loop { info: Info { fetches: true, ..Info::default() }, left: 100 })
}

/// References, fetches and windows of each phase, and what was left out.
fn phases(sample: &mut Sample) -> ([[u64; 3]; 3], [u64; 2]) {
    let (mut batch, mut sums, mut skipped, mut phase) = (Batch::default(), [[0; 3]; 3], [0; 2], Phase::Gap);
    while sample.fill(&mut batch).unwrap() {
        let mut events = batch.events.iter().peekable();
        for at in 0..=batch.runs.len() {
            while let Some((_, event)) = events.next_if(|(place, _)| *place as usize == at) {
                match event {
                    Event::Phase { phase: next, .. } => {
                        phase = *next;
                        sums[phase as usize][2] += 1;
                    }
                    Event::Skipped { references, instructions } => {
                        skipped[0] += references;
                        skipped[1] += instructions;
                    }
                    _ => {}
                }
            }
            let Some(run) = batch.runs.get(at) else { continue };
            sums[phase as usize][usize::from(run.access() == Access::Execute)] += u64::from(run.references);
        }
    }
    (sums, skipped)
}

#[test]
fn runs_are_cut_at_the_edges_of_windows() {
    let sampling = Sampling { on: 2000, period: 10_000, seed: Some(5) };
    let ([gap, warming, measured], skipped) = phases(&mut Sample::new(looping(), sampling));
    // One of ten accesses is a read, and that in every phase: no fetches of a window are counted
    // before it. The first window is measured whole, and so counts twice. Each other one begins
    // with the pages that were used in the gap, at most all of the loop.
    let windows = measured[2];
    assert!((98..=103).contains(&windows), "{windows}");
    for ([references, fetches, _], windows, recent) in [(measured, windows + 1, 0), (warming, windows - 1, 1000)] {
        let reads = windows * 98..=windows * (102 + recent);
        assert!(reads.contains(&references), "{references} reads in {windows}");
        assert!(fetches.abs_diff(windows * 900) <= windows * 12, "{fetches} fetches in {windows}");
    }
    assert!(warming[0] > windows * 500, "{} reads to warm {windows} windows", warming[0]);
    assert_eq!(gap[0] + warming[0] + measured[0] + skipped[0], 100_000);
    assert_eq!(gap[1] + warming[1] + measured[1] + skipped[1], 900_000);
}

/// The stores that fill a page are one run, longer than a window: each period has its window all
/// the same.
#[test]
fn a_long_run_is_cut_at_the_edges_of_windows() {
    let sampling = Sampling { on: 1000, period: 10_000, seed: Some(5) };
    let fill = || Box::new(Fill { info: Info::default(), left: 1000 });
    let ([gap, warming, measured], skipped) = phases(&mut Sample::new(fill(), sampling));
    let (references, windows) = (1000 * u64::from(FILLED), measured[2]);
    assert!(windows.abs_diff(references / 10_000) <= 5, "{windows} windows");
    assert!(measured[0].abs_diff((windows + 1) * 500) <= windows * 64, "{} measured in {windows}", measured[0]);
    assert_eq!(gap[0] + warming[0] + measured[0] + skipped[0], references);
}

/// Accesses to each page that is filled.
const FILLED: u32 = 4096;

/// Fills pages one after the other.
struct Fill {
    info: Info,
    left: u64,
}

impl Source for Fill {
    fn info(&self) -> &Info {
        &self.info
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        batch.event(Event::Switch { process: ProcessId(0), thread: 0 });
        (0..self.left).for_each(|page| batch.run(Run::new(1000 + page, Access::Write, FILLED, 0)));
        Ok(std::mem::take(&mut self.left) > 0)
    }
}

#[test]
fn a_sample_keeps_to_the_rules_and_loses_nothing() {
    for text in ["matrix:n=60", "tree:nodes=2000,operations=2000", "zipf:bytes=4M,references=200K"] {
        let whole = check_stream(workload::parse(text).unwrap().as_mut()).unwrap();
        let sampling = |seed| Sampling { on: 1000, period: 10_000, seed: Some(seed) };
        let sample = |seed| Sample::new(workload::parse(text).unwrap(), sampling(seed));
        let kept = check_stream(&mut sample(1)).unwrap();
        let (_, skipped) = phases(&mut sample(1));
        assert_eq!(kept.references + skipped[0], whole.references, "{text}");
        assert_eq!(kept.instructions + skipped[1], whole.instructions, "{text}");
        assert!(kept.references < whole.references / 2, "{text}");
        // The places of windows come from the seed and from nothing else.
        assert_eq!(check_stream(&mut sample(1)).unwrap(), kept);
        assert_ne!(phases(&mut sample(2)), phases(&mut sample(1)));
    }
}

/// Two threads in turns, each on pages of its own from its number times 1000 on.
struct Turns {
    info: Info,
    left: u32,
}

impl Source for Turns {
    fn info(&self) -> &Info {
        &self.info
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        let thread = self.left % 2;
        batch.event(Event::Switch { process: ProcessId(0), thread });
        for number in 0..500 {
            batch.run(Run::new(1000 * u64::from(1 + thread) + number * 7 % 50, Access::Read, 1, 0));
        }
        if self.left == 0 {
            batch.event(Event::Exit);
        }
        Ok(true)
    }
}

/// Each of a sample's threads has its own windows, which begin with what it used, and reports by
/// itself what it left out.
#[test]
fn threads_are_sampled_apart() {
    let sampling = Sampling { on: 100, period: 4000, seed: Some(2) };
    let mut sample = Sample::new(Box::new(Turns { info: Info::default(), left: 400 }), sampling);
    let (mut batch, mut thread, mut accesses, mut windows) = (Batch::default(), 0, [0u64; 2], [0; 2]);
    while sample.fill(&mut batch).unwrap() {
        let mut events = batch.events.iter().peekable();
        for at in 0..=batch.runs.len() {
            while let Some((_, event)) = events.next_if(|(place, _)| *place as usize == at) {
                match event {
                    Event::Switch { thread: other, .. } => thread = *other as usize,
                    Event::Skipped { references, .. } => accesses[thread] += references,
                    Event::Phase { phase: Phase::Measured, .. } => windows[thread] += 1,
                    _ => {}
                }
            }
            let Some(run) = batch.runs.get(at) else { continue };
            assert_eq!(run.page() / 1000, 1 + thread as u64, "a page of the other thread");
            accesses[thread] += u64::from(run.references);
        }
    }
    assert_eq!(accesses, [100_000; 2]);
    assert!(windows.iter().all(|windows| (23..=32).contains(windows)), "{windows:?}");
}
