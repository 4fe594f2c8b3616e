//! A simulation over time: its state at moments.

use crate::by_size;
use crate::simulation::Simulation;
use crate::sources::active;
use crate::stream::{Asked, Place};
use crate::{Every, Sources};
use serde::{Deserialize, Serialize};
use superpage_keys::Keys;
use superpage_pages::{Level, PageSize};

/// The most samples of a run: some 5 KB each, and as much again where they are written.
const MOST: usize = 100_000;

/// The state of a simulation at a moment of modelled time. Counts are those since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Keys)]
#[key(from = Sources<'_>)]
pub struct Sample {
    /// The modelled time, idle time included.
    #[key(state, "s", estimated, from = it.run.seconds(it.member))]
    pub seconds: f64,
    /// Instructions so far.
    #[key(count, of_stream, from = it.run.passed())]
    pub instructions: u64,
    /// What the stream said just before: the text of a mark, or which process has ended; `end` is
    /// the end of the run. `None` where it was only time for a sample, or a process is about to
    /// end.
    #[key(state)]
    pub event: Option<String>,
    /// Frames that hold pages of objects.
    #[key(state, "bytes", from = it.bytes(it.stats.resident_pages))]
    pub resident_bytes: u64,
    /// What programs have touched and still have.
    #[key(state, "bytes", of_stream, from = it.bytes(it.run.averages.touched))]
    pub touched_bytes: u64,
    /// Frames that hold nothing.
    #[key(state, "bytes", from = it.bytes(it.run.vm.buddy().plain_frames()))]
    pub free_bytes: u64,
    /// Clean pages that are kept but count as available.
    #[key(state, "bytes", from = it.bytes(it.stats.cache_pages))]
    pub cache_bytes: u64,
    /// Pages that have not been referenced for a while.
    #[key(state, "bytes", from = it.bytes(it.stats.inactive_pages))]
    pub inactive_bytes: u64,
    /// All other pages of objects.
    #[key(state, "bytes", from = it.bytes(active(&it.stats)))]
    pub active_bytes: u64,
    /// The kernel's own frames.
    #[key(state, "bytes", from = it.bytes(it.stats.wired_frames))]
    pub wired_bytes: u64,
    /// The contiguity that is available: the metric of Navarro et al., section 6.5, from 0 to 1.
    #[key(ratio, from = it.run.contiguity())]
    pub contiguity: f64,
    /// Mapped pages of each size, ascending by size.
    #[key(state, "pages", from = it.by_size(it.stats.mapped))]
    #[serde(with = "by_size")]
    pub pages: Vec<(PageSize, u64)>,
    /// Free extents of each size, each counted at the largest size that it has, ascending by size.
    #[key(state, "extents", from = it.run.free_extents())]
    #[serde(with = "by_size")]
    pub free_extents: Vec<(PageSize, u64)>,
    /// Page faults.
    #[key(count, from = it.stats.faults)]
    pub faults: u64,
    /// Misses in the last TLB level; `None` of a sampled stream, whose estimates do not grow as
    /// counts do.
    #[key(count, from = it.whole.sampled.is_none().then_some(it.whole.data_misses + it.whole.instruction_misses))]
    pub tlb_misses: Option<u64>,
    /// Page-table walks, or refills by software.
    #[key(count, "cycles", from = it.whole.sampled.is_none().then_some(it.whole.walk_cycles))]
    pub walk_cycles: Option<u64>,
    /// Superpages made.
    #[key(count, from = it.stats.promotions.iter().sum())]
    pub promotions: u64,
    /// Superpages demoted.
    #[key(count, from = it.stats.demotions.iter().sum())]
    pub demotions: u64,
}

impl Simulation {
    /// Instructions of the stream so far, with those that a sample left out.
    pub(crate) fn passed(&self) -> u64 {
        self.counted.instructions + self.counted.skipped[1]
    }

    fn free_extents(&self) -> Vec<(PageSize, u64)> {
        let (ladder, buddy) = (&self.setup.ladder, self.vm.buddy());
        // What a size has within larger extents is theirs.
        let larger = |level: Level| match level.index() + 1 < ladder.len() {
            true => {
                let next = Level(level.0 + 1);
                buddy.free_extents(next) * (ladder.pages(next) / ladder.pages(level))
            }
            false => 0,
        };
        let extents = ladder.levels().map(|level| buddy.free_extents(level).saturating_sub(larger(level)));
        ladder.sizes().iter().copied().zip(extents).collect()
    }

    /// Up to which request those from `at` on are made before somebody looks at the state. Does
    /// before what is due.
    #[inline]
    pub(crate) fn next_look(&mut self, asked: Asked<'_>, at: usize) -> usize {
        let end = asked.requests.len();
        match asked.place {
            Some(place) if at < end && (self.looks_at_time || self.record.watch.every.is_some()) => {
                self.look_before(place.later(at), end)
            }
            _ => end,
        }
    }

    fn look_before(&mut self, place: Place<'_>, end: usize) -> usize {
        let end = if self.looks_at_time { self.look_at_time(place, end) } else { end };
        if !matches!(self.record.watch.every, Some(Every::Instructions(_))) {
            return end;
        }
        let before = self.passed();
        loop {
            let due = (self.record.due as u64).saturating_sub(before);
            match place.request_after(due, usize::MAX, &mut self.ahead) {
                Some(stop) if stop <= place.request => {
                    self.reach_instructions(place, before + self.ahead.instructions);
                    self.sample_if_due();
                }
                stop => return stop.unwrap_or(end).min(end),
            }
        }
    }

    /// Keeps the state if it is time to.
    #[inline]
    pub(crate) fn sample_if_due(&mut self) {
        if let Some(every) = self.record.watch.every {
            self.sample_at(every);
        }
    }

    /// Modelled time until the next sample, in seconds, if samples go by time.
    pub(crate) fn until_sample(&self) -> Option<f64> {
        match self.record.watch.every {
            Some(Every::Seconds(_)) => Some(self.record.due - self.seconds(self.only())),
            _ => None,
        }
    }

    fn sample_at(&mut self, every: Every) {
        let (now, step) = self.at_moment(|simulation| match every {
            Every::Seconds(step) => (simulation.seconds(simulation.only()), step),
            Every::Instructions(step) => (simulation.passed() as f64, step as f64),
        });
        if now >= self.record.due {
            self.record.due = ((now / step).floor() + 1.0) * step;
            self.sample(None);
        }
    }

    /// Keeps the state after this event, if states are kept.
    pub(crate) fn sample(&mut self, event: Option<String>) {
        if self.record.watch.every.is_some() {
            if self.record.samples.len() >= MOST {
                let problem = format!("{MOST} samples were taken, which is the most: give a longer step (--every)");
                self.outcome.failed.get_or_insert(problem);
                return;
            }
            let sample = self.at_moment(|simulation| simulation.with_sources(simulation.only(), Sample::of));
            self.record.samples.push(Sample { event, ..sample });
        }
    }

    /// With the instructions of the stretch that are over: they are counted when it ends.
    fn at_moment<T>(&mut self, look: impl Fn(&Simulation) -> T) -> T {
        let within = self.averages.at.saturating_sub(self.passed());
        self.counted.instructions += within;
        let seen = look(self);
        self.counted.instructions -= within;
        seen
    }
}
