//! Estimates from a sample against the exact counts of the whole stream.

use std::collections::HashSet;
use std::sync::atomic::AtomicBool;
use superpage_pages::Access;
use superpage_sim::{Conditions, Row, plan, run};
use superpage_trace::{Batch, Error, Event, Info, Run, Sampling, Source, workload};

/// Leaves out accesses of another source as the recorder does: in gaps only first touches and first writes stay.
struct Sampled {
    inner: Box<dyn Source>,
    info: Info,
    whole: Batch,
    touched: HashSet<(u64, bool)>,
    recording: bool,
    left: i64,
    skipped: [u64; 2],
}

impl Sampled {
    fn new(text: &str, on: u64, period: u64) -> Sampled {
        let inner = workload::parse(text).unwrap();
        let info = Info { sampling: Some(Sampling { on, period }), ..inner.info().clone() };
        let (whole, touched) = (Batch::default(), HashSet::new());
        Sampled { inner, info, whole, touched, recording: true, left: on as i64, skipped: [0; 2] }
    }

    fn turn(&mut self, batch: &mut Batch) {
        let Some(Sampling { on, period }) = self.info.sampling else { return };
        while self.left <= 0 {
            let [references, instructions] = std::mem::take(&mut self.skipped);
            batch.event(Event::Skipped { references, instructions });
            self.recording = !self.recording;
            self.left += if self.recording { on } else { period - on } as i64;
        }
    }

    fn take(&mut self, run: Run, batch: &mut Batch) {
        self.turn(batch);
        let count = u64::from(run.references);
        self.left -= count as i64;
        let first = self.touched.insert((run.page(), run.access() == Access::Write));
        if self.recording {
            batch.run(run);
        } else {
            let kept = u32::from(first);
            if first {
                batch.run(Run::new(run.page(), run.access(), 1, u32::from(run.instructions > 0)));
            }
            let stream = usize::from(run.access() == Access::Execute);
            self.skipped[stream] += count - u64::from(kept);
            if stream == 0 {
                self.skipped[1] += u64::from(run.instructions.saturating_sub(kept));
            }
        }
    }
}

impl Source for Sampled {
    fn info(&self) -> &Info {
        &self.info
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        let mut whole = std::mem::take(&mut self.whole);
        let more = self.inner.fill(&mut whole)?;
        let mut events = whole.events.iter().peekable();
        for (i, run) in whole.runs.iter().enumerate() {
            while let Some((_, event)) = events.next_if(|(position, _)| *position as usize <= i) {
                batch.event(event.clone());
            }
            self.take(*run, batch);
        }
        events.for_each(|(_, event)| batch.event(event.clone()));
        self.whole = whole;
        if !more && self.skipped != [0; 2] {
            let [references, instructions] = std::mem::take(&mut self.skipped);
            batch.event(Event::Skipped { references, instructions });
            return Ok(true);
        }
        Ok(more)
    }
}

fn rows(machine: &str, source: &mut dyn Source) -> Vec<Row> {
    let setups = plan(&[machine.into()], &["reservation".into()], &Conditions::default()).unwrap();
    run(&setups, source, &AtomicBool::new(false), &|_| {}).unwrap()
}

#[test]
fn estimates_lie_near_the_exact_counts_and_what_the_kernel_does_is_exact() {
    for text in ["tree:nodes=20K,operations=20K", "zipf:bytes=64M,references=8M", "chase:bytes=32M,references=8M"] {
        for machine in ["alpha-21264", "skylake-sp"] {
            let exact = rows(machine, workload::parse(text).unwrap().as_mut());
            let sampled = rows(machine, &mut Sampled::new(text, 100_000, 1_000_000));
            for (exact, estimate) in exact.iter().zip(&sampled) {
                let name = format!("{text} {machine} {}", exact.policy);
                assert_eq!(exact.faults, estimate.faults, "{name}");
                assert_eq!(exact.pages, estimate.pages, "{name}");
                assert_eq!(exact.promotions, estimate.promotions, "{name}");
                assert_eq!(exact.references, estimate.references, "{name}");
                assert_eq!((exact.sampled.is_none(), estimate.sampled.is_some()), (true, true));
                // A tenth of the whole, or of the references, is what so few windows can tell.
                let off = exact.tlb_misses.abs_diff(estimate.tlb_misses) as f64;
                let bound = (0.1 * exact.tlb_misses as f64).max(0.002 * exact.references as f64);
                assert!(off <= bound, "{name}: {} exact, {} estimated", exact.tlb_misses, estimate.tlb_misses);
                let time = estimate.cycles as f64 / exact.cycles as f64;
                assert!((0.9..1.1).contains(&time), "{name}: {time}");
            }
        }
    }
}

#[test]
fn a_sample_of_everything_is_exact() {
    let text = "zipf:bytes=4M,references=100K";
    let exact = rows("zen4", workload::parse(text).unwrap().as_mut());
    let sampled = rows("zen4", &mut Sampled::new(text, 1_000_000_000, 1_000_000_000));
    assert_eq!(exact, sampled);
}
