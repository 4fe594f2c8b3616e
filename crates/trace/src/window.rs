//! A piece of a whole stream, by instructions: what precedes it warms up what is measured.

use crate::event::{Batch, Event, Info, Source};

/// The name of the part of a [`Window`] that is measured.
pub const MEASURED: &str = "measured";

/// A stream that is not sampled, cut to a window: without the accesses and sleeps of its first
/// `skip` instructions, whose other events stay, it ends `most` instructions after `warmup` more.
/// Its only mark, [`MEASURED`], stands between the two, so the part of that name has the counts of
/// the window. All lengths are rounded up to the end of a run. A stream that ends within the
/// warm-up has no mark.
pub struct Window {
    source: Box<dyn Source>,
    info: Info,
    skip: u64,
    warmup: u64,
    most: Option<u64>,
    skipped: u64,
    seen: u64,
    /// What was seen when the window began.
    begun: Option<u64>,
}

impl Window {
    /// `most`: all that follows, if `None`. Without a warm-up there is no mark: the whole stream is
    /// measured.
    pub fn new(source: Box<dyn Source>, skip: u64, warmup: u64, most: Option<u64>) -> Window {
        let info = source.info();
        let info = Info { runs: info.runs.filter(|_| most.is_none() && skip == 0), ..info.clone() };
        let begun = (warmup == 0).then_some(0);
        Window { source, info, skip, warmup, most, skipped: 0, seen: 0, begun }
    }
}

impl Source for Window {
    fn info(&self) -> &Info {
        &self.info
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, crate::Error> {
        // A piece of nothing but marks is not the end.
        batch.clear();
        while batch.runs.is_empty() && batch.events.is_empty() {
            if self.info.cut || !self.source.fill(batch)? {
                batch.clear();
                return Ok(false);
            }
            batch.events.retain(|(_, event)| !matches!(event, Event::Mark(_)));
            let mut skipped = 0;
            while self.skipped < self.skip && skipped < batch.runs.len() {
                self.skipped += u64::from(batch.runs[skipped].instructions);
                skipped += 1;
            }
            batch.runs.drain(..skipped);
            batch.events.retain(|(before, event)| *before as usize >= skipped || !matches!(event, Event::Idle { .. }));
            batch.events.iter_mut().for_each(|(before, _)| *before = before.saturating_sub(skipped as u32));
        }
        for at in 0..batch.runs.len() {
            let measured = self.begun.map(|begun| self.seen - begun);
            if measured.zip(self.most).is_some_and(|(measured, most)| measured >= most) {
                batch.runs.truncate(at);
                batch.events.retain(|(before, _)| (*before as usize) < at);
                self.info.cut = true;
                break;
            }
            if self.begun.is_none() && self.seen >= self.warmup {
                let place = batch.events.partition_point(|(before, _)| (*before as usize) < at);
                batch.events.insert(place, (at as u32, Event::Mark(MEASURED.into())));
                self.begun = Some(self.seen);
            }
            self.seen += u64::from(batch.runs[at].instructions);
        }
        Ok(!(batch.runs.is_empty() && batch.events.is_empty()))
    }

    /// Of a file that was read whole.
    fn digest(&self) -> Option<String> {
        self.source.digest().filter(|_| !self.info.cut && self.skip == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload;

    /// The runs and instructions before the mark, and those after it.
    fn counts(text: &str, warmup: u64, most: Option<u64>) -> ([u64; 2], [u64; 2]) {
        counts_behind(text, 0, warmup, most)
    }

    fn counts_behind(text: &str, skip: u64, warmup: u64, most: Option<u64>) -> ([u64; 2], [u64; 2]) {
        let mut window = Window::new(workload::parse(text).unwrap(), skip, warmup, most);
        let (mut batch, mut all, mut part) = (Batch::default(), [[0; 2]; 2], usize::from(warmup == 0));
        while window.fill(&mut batch).unwrap() {
            let mut events = batch.events.iter().peekable();
            for (at, run) in batch.runs.iter().enumerate() {
                while let Some((_, event)) = events.next_if(|(before, _)| *before as usize <= at) {
                    part += usize::from(*event == Event::Mark(MEASURED.into()));
                    assert!(!matches!(event, Event::Mark(name) if name != MEASURED));
                }
                all[part][0] += 1;
                all[part][1] += u64::from(run.instructions);
            }
        }
        (all[0], all[1])
    }

    #[test]
    fn a_window_has_its_instructions_to_the_end_of_a_run() {
        // Several batches, each with a mark after its filling.
        let text = "gups:bytes=1M,updates=40K";
        let (none, whole) = counts(text, 0, None);
        assert!(none == [0, 0] && whole[0] > 3 * Batch::RUNS as u64, "{whole:?}");
        let longest = 10_000;
        for (warmup, most) in [(1, 1), (whole[1] / 3, whole[1] / 3), (whole[1] - 10, u64::MAX), (70_001, 65_536)] {
            let (before, inside) = counts(text, warmup, Some(most));
            assert!((warmup..warmup + longest).contains(&before[1]), "{warmup}: {before:?}");
            let end = before[1].saturating_add(most).min(whole[1]);
            assert!((end..end + longest).contains(&(before[1] + inside[1])), "{warmup} {most}: {before:?} {inside:?}");
        }
        for skip in [1, 50_000, whole[1] / 2] {
            let (before, inside) = counts_behind(text, skip, 10_000, None);
            let (skipped, _) = counts(text, skip, None);
            assert_eq!(skipped[0] + before[0] + inside[0], whole[0]);
            assert_eq!(skipped[1] + before[1] + inside[1], whole[1]);
            assert!((10_000..10_000 + longest).contains(&before[1]));
        }
        assert_eq!(counts_behind(text, whole[1] + 1, 0, None), ([0; 2], [0; 2]));
        let (before, inside) = counts(text, whole[1] / 2, None);
        assert_eq!([before[0] + inside[0], before[1] + inside[1]], whole);
        assert_eq!(counts(text, whole[1] + 1, None), (whole, [0, 0]));
    }
}
