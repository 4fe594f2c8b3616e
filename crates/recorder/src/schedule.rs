//! When a sampled recording keeps accesses. This file is compiled into the plugin and into `superpage-trace`, which samples
//! whole streams in the same way.
//!
//! The time of a thread is its accesses. It is divided into periods, and the thread begins at a random place of the first.
//! Each period holds one window, at a random place. So every access has the same chance to be in a window, and where the
//! windows lie has nothing to do with what the program repeats: what they hold stands for the whole without bias, and how
//! much they differ from each other says how well. The first half of a window is for warming: TLBs take on what the gap
//! before it has changed.

/// What part of a sampled stream accesses belong to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(unreachable_pub, reason = "the plugin is no library; superpage-trace is")]
pub enum Phase {
    /// Between windows: only first touches and first writes of pages are kept.
    Gap,
    /// The first half of a window.
    Warming,
    /// The second half of a window, which stands for the whole.
    Measured,
}

/// The phases of one thread, drawn one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// The state of the generator.
    random: u64,
    on: u64,
    period: u64,
    phase: Phase,
    /// Accesses of the last window's period that come after it.
    rest: u64,
    /// Accesses that the thread's first period has before the thread begins.
    before: u64,
}

impl Schedule {
    /// Windows of `on` accesses, at least 1, one in each `period`, at least `on`. Threads of one recording have the same
    /// `seed` and another `stream` each.
    pub(crate) fn new(on: u64, period: u64, seed: u64, stream: u64) -> Schedule {
        let random = seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93);
        let mut schedule = Schedule { random, on, period, phase: Phase::Measured, rest: 0, before: 0 };
        // Seeds that are close to each other have nothing else in common.
        schedule.random = schedule.draw();
        schedule.before = schedule.below(period);
        schedule
    }

    /// The phase that comes next, and how many accesses it has: at least 1.
    pub(crate) fn next(&mut self) -> (Phase, u64) {
        loop {
            let length;
            (self.phase, length) = match self.phase {
                Phase::Gap => (Phase::Warming, self.on / 2),
                Phase::Warming => (Phase::Measured, self.on - self.on / 2),
                Phase::Measured => {
                    let space = self.period - self.on;
                    let place = self.below(space + 1);
                    let gap = self.rest + place;
                    self.rest = space - place;
                    (Phase::Gap, gap)
                }
            };
            let missed = length.min(self.before);
            self.before -= missed;
            if length > missed {
                return (self.phase, length - missed);
            }
        }
    }

    /// A number below `limit`: SplitMix64, by Steele, Lea and Flood, 2014.
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
                let (phase, length) = schedule.next();
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
        let mut phases: Vec<(Phase, u64)> = (0..3000).map(|_| schedule.next()).collect();
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
        assert!((0..100).all(|_| schedule.next().0 != Phase::Gap));
    }
}
