//! When a sampled recording keeps accesses. This file is compiled into the plugin and into
//! `superpage-trace`, which samples whole streams in the same way.
//!
//! The time of a thread is its number of accesses. It is divided into periods, and the thread
//! begins at a random point of the first. Each period contains one window, at a random position. So
//! every access is equally likely to be in a window, and the positions of windows are independent
//! of whatever the program repeats: they represent the whole without bias, and their differences
//! show how well. The first half of a window is for warming: TLBs recover from what the gap before
//! it has changed.
//!
//! A program's beginning is unlike the rest, and one window of the first period would say little
//! about it. So the thread with which a recording begins has a beginning: the length of a window is
//! measured completely, and the periods after it double until they are as long as the others. Each
//! window stands for its period. Since the start of these is fixed, each is divided into halves of
//! windows, of which a random one is measured; the half before it is for warming.
//!
//! A TLB under LRU holds what was used last, whatever was before, and how many pages an entry
//! covers is up to the kernel and the machine. So all pages used in a gap are put before the window
//! that ends it, one access per page, the least recent first; as many fewer count as left out.

/// The part of a sampled stream that accesses belong to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(unreachable_pub, reason = "the plugin is not a library; superpage-trace is")]
pub enum Phase {
    /// Between windows: only first touches and first writes of pages are kept.
    Gap,
    /// The first half of a window.
    Warming,
    /// The second half of a window, which stands for the whole.
    Measured,
}

/// A phase that was drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stage {
    pub(crate) phase: Phase,
    /// Its accesses, at least 1.
    pub(crate) length: u64,
    /// The accesses that its window stands for, if that is not a period of the sampling.
    pub(crate) period: Option<u64>,
}

/// The phases of one thread, drawn one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Schedule {
    /// The state of the generator.
    random: u64,
    on: u64,
    /// The period of this phase's window.
    period: u64,
    /// The period of windows after the beginning.
    longest: u64,
    phase: Phase,
    /// Accesses of the last window's period that follow it.
    rest: u64,
    /// Accesses for which the next window warms up.
    warming: u64,
    /// Whether this is the thread with which a recording begins.
    beginning: bool,
    /// Accesses of the thread's first period that precede its start.
    before: u64,
}

impl Schedule {
    /// Windows of `on` accesses, at least 1, one in each `period`, at least `on`. Threads of one
    /// recording have the same `seed` and different `stream`s.
    pub(crate) fn new(on: u64, period: u64, seed: u64, stream: u64) -> Schedule {
        let random = seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93);
        let mut schedule = Schedule {
            random,
            on,
            period,
            longest: period,
            phase: Phase::Measured,
            rest: 0,
            warming: 0,
            beginning: false,
            before: 0,
        };
        // Similar seeds must not give similar sequences.
        schedule.random = schedule.draw();
        schedule.before = schedule.below(period);
        schedule
    }

    /// The same, for the thread with which a recording begins.
    pub(crate) fn with_beginning(self) -> Schedule {
        let half = self.on - self.on / 2;
        // At least three halves, so that not all of a period is its window.
        let longest = self.longest.saturating_add(half / 2) / half * half;
        Schedule {
            period: 0,
            longest: longest.max(3 * half),
            phase: Phase::Measured,
            beginning: true,
            before: 0,
            ..self
        }
    }

    /// Draws the next phase.
    pub(crate) fn next(&mut self) -> Stage {
        let half = self.on - self.on / 2;
        loop {
            let length;
            (self.phase, length) = match self.phase {
                Phase::Gap => (Phase::Warming, self.warming),
                Phase::Warming => (Phase::Measured, half),
                // Nothing was left out before the beginning, so there is nothing to warm.
                Phase::Measured if self.period == 0 => {
                    self.period = self.on;
                    (Phase::Measured, self.on)
                }
                Phase::Measured if self.beginning => {
                    self.period = (self.period / half * half).saturating_mul(2).min(self.longest);
                    let place = self.below(self.period / half) * half;
                    let before = self.rest + place;
                    self.rest = self.period - half - place;
                    self.warming = before.min(self.on / 2);
                    (Phase::Gap, before - self.warming)
                }
                Phase::Measured => {
                    let space = self.period - self.on;
                    let place = self.below(space + 1);
                    let gap = self.rest + place;
                    self.rest = space - place;
                    self.warming = self.on / 2;
                    (Phase::Gap, gap)
                }
            };
            let missed = length.min(self.before);
            self.before -= missed;
            if length > missed {
                let period = self.beginning.then_some(self.period);
                return Stage { phase: self.phase, length: length - missed, period };
            }
        }
    }

    /// A number below `limit`: SplitMix64, as `superpage_pages::Random`; the plugin is built with
    /// nothing but itself.
    fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(limit)) >> 64) as u64
    }

    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_access_has_the_same_chance_to_be_measured() {
        let (on, period, seeds) = (20, 100, 40_000);
        let mut measured = vec![0u32; 250];
        for seed in 0..seeds {
            let (mut schedule, mut at) = (Schedule::new(on, period, seed, 1), 0);
            while at < measured.len() {
                let Stage { phase, length, .. } = schedule.next();
                let end = measured.len().min(at + length as usize);
                if phase == Phase::Measured {
                    measured[at..end].iter_mut().for_each(|count| *count += 1);
                }
                at = end;
            }
        }
        // A tenth of them: 4000, give or take six times the root of 3600.
        let (least, most) = (measured.iter().min().expect("some"), measured.iter().max().expect("some"));
        assert!(*least > 3640 && *most < 4360, "{least} to {most}");
    }

    #[test]
    fn each_period_holds_one_window_whose_halves_follow_each_other() {
        let mut schedule = Schedule::new(20, 100, 7, 0);
        let mut phases: Vec<(Phase, u64)> =
            (0..3000).map(|_| schedule.next()).map(|one| (one.phase, one.length)).collect();
        let first = phases.iter().position(|(phase, _)| *phase == Phase::Gap).expect("a gap");
        phases.drain(..=first);
        for window in phases.chunks_exact(3) {
            let [warming, measured, (Phase::Gap, gap)] = window else { continue };
            assert_eq!((*warming, *measured), ((Phase::Warming, 10), (Phase::Measured, 10)));
            assert!(*gap <= 160);
        }
        let all: u64 = phases.iter().map(|(_, length)| length).sum();
        let windows = phases.iter().filter(|(phase, _)| *phase == Phase::Measured).count() as u64;
        assert!(all.abs_diff(windows * 100) <= 200, "{windows} windows in {all} accesses");
    }

    #[test]
    fn a_period_without_gaps_is_all_windows() {
        let mut schedule = Schedule::new(10, 10, 3, 0);
        assert!((0..100).all(|_| schedule.next().phase != Phase::Gap));
    }

    /// What is measured, times the accesses that its window stands for over those measured in one,
    /// is all of the stream.
    #[test]
    fn a_beginning_is_measured_whole_and_then_in_periods_that_double() {
        let (on, period, seeds) = (20, 100, 40_000);
        let mut stands = vec![0.0; 350];
        for seed in 0..seeds {
            let (mut schedule, mut at, mut periods) =
                (Schedule::new(on, period, seed, 1).with_beginning(), 0, Vec::new());
            while at < stands.len() {
                let Stage { phase, length, period: own } = schedule.next();
                let period = own.unwrap_or(period);
                let end = stands.len().min(at + length as usize);
                if phase == Phase::Measured {
                    let measured = if period == on { on } else { on / 2 };
                    stands[at..end].iter_mut().for_each(|sum| *sum += period as f64 / measured as f64);
                    periods.push(period);
                }
                at += length as usize;
            }
            assert!([20, 40, 80, 100].starts_with(&periods[..periods.len().min(4)]), "{periods:?}");
        }
        assert!(stands[..20].iter().all(|sum| *sum == seeds as f64));
        let (least, most) =
            stands.iter().fold((f64::MAX, 0.0), |(least, most): (f64, f64), sum| (least.min(*sum), most.max(*sum)));
        assert!(least > 0.91 * seeds as f64 && most < 1.09 * seeds as f64, "{least} to {most}");
    }
}
