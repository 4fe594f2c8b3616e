//! How fast a process may be promoted: less if that slows it.
//!
//! The kernel collapses a region under locks that page faults and mappings of the process need too.
//! So the cost of each batch is measured by the process's own progress: the CPU time that it used
//! meanwhile, against what it used per second just before. What it lost is a debt, of which its own
//! CPU time pays the share that is allowed; until all is paid, the process is left alone. So it
//! loses no more than that share of its progress, however much of a core it uses. What it loses
//! after a batch, because it waits for a core again, is not seen.

use std::time::Duration;
use superpage_vm::Why;

/// Shorter pauses are not counted as back-offs: the promoter sleeps longer than that anyway.
pub(super) const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause.
const LONGEST: Duration = Duration::from_secs(60);

/// A window shorter than this, a few ticks of the scheduler, says nothing about a process's speed.
const SHORTEST_WINDOW: Duration = Duration::from_millis(20);

/// No more CPU seconds than these are kept for later losses. CPU clocks have ticks, so a single
/// batch may seem to have cost too much, or less than nothing; the sum is right.
const TICK: f64 = 0.01;

/// A process that uses less of a core than this is left alone no longer than with it: nearly idle,
/// it would pay for minutes, and has next to nothing to lose.
const NEARLY_IDLE: f64 = 0.05;

/// What a process had used at a time, which is since the promoter began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub(super) at: Duration,
    pub(super) cpu: Duration,
}

/// Until when a process is left alone, and why.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Pause {
    pub(super) until: Duration,
    pub(super) why: Why,
}

/// The pace of promotion in a process.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// CPU seconds per second, outside of our calls.
    rate: f64,
    /// The end of that measurement.
    seen: Option<Progress>,
    /// CPU seconds lost to batches and not paid back yet, at the end of the last batch.
    debt: f64,
    /// The CPU time that had been used then.
    paid: Duration,
    pause: Pause,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            rate: 0.0,
            seen: None,
            debt: 0.0,
            paid: Duration::ZERO,
            pause: Pause { until: Duration::ZERO, why: Why::Slowed },
        }
    }
}

impl Pace {
    /// Records the CPU time of the process while no batch is running.
    pub(super) fn measure(&mut self, now: Progress) {
        if let Some(then) = self.seen {
            let window = now.at.saturating_sub(then.at);
            if window < SHORTEST_WINDOW {
                return;
            }
            self.rate = now.cpu.saturating_sub(then.cpu).as_secs_f64() / window.as_secs_f64();
        }
        self.seen = Some(now);
    }

    /// Recent CPU seconds per second.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// A batch went on from one to the other; it may slow the process by the share `slowdown`.
    /// Returns how long the pause is, which may be none.
    pub(super) fn batch(&mut self, from: Progress, to: Progress, slowdown: f64) -> Duration {
        let took = to.at.saturating_sub(from.at).as_secs_f64();
        let lost = self.rate * took - to.cpu.saturating_sub(from.cpu).as_secs_f64();
        self.seen = Some(to);
        let used = to.cpu.saturating_sub(std::mem::replace(&mut self.paid, to.cpu)).as_secs_f64();
        self.debt = (self.debt - used * slowdown).max(-TICK) + lost;
        let pause = self.debt.max(0.0) / (slowdown * self.rate.max(NEARLY_IDLE));
        let pause = Duration::from_secs_f64(pause.min(LONGEST.as_secs_f64()));
        self.pause = Pause { until: to.at + pause, why: Why::Slowed };
        pause
    }

    /// Leaves the process alone for a while, whatever it did, for a reason.
    pub(super) fn leave_alone(&mut self, pause: Pause) {
        self.pause = self.pause.max(pause);
    }

    /// The pause, which may be over.
    pub(super) fn pause(&self) -> Pause {
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn progress(at: u64, cpu: u64) -> Progress {
        Progress { at: ms(at), cpu: ms(cpu) }
    }

    #[test]
    fn a_process_that_goes_on_is_not_left_alone() {
        let mut pace = Pace::default();
        pace.measure(progress(0, 0));
        pace.measure(progress(100, 100));
        assert_eq!(pace.batch(progress(100, 100), progress(110, 110), 0.02), ms(0));
        assert_eq!(pace.pause().until, ms(110));
        let mut idle = Pace::default();
        idle.measure(progress(0, 5));
        idle.measure(progress(100, 5));
        assert_eq!(idle.batch(progress(100, 5), progress(110, 5), 0.02), ms(0));
    }

    #[test]
    fn what_is_lost_is_spread_thin_and_no_more() {
        let mut pace = Pace::default();
        pace.measure(progress(0, 0));
        pace.measure(progress(1000, 1000));
        let mut now = progress(1000, 1000);
        // A batch takes 10 ms. The first has a tick to spare, a free one a tenth of it.
        for (used, pause) in [(0, 0), (0, 100), (0, 100), (5, 45), (0, 100), (10, 0), (0, 90)] {
            let after = Progress { at: now.at + ms(10), cpu: now.cpu + ms(used) };
            let paused = pace.batch(now, after, 0.1);
            assert_eq!((paused.as_micros() + 500) / 1000, pause, "{used}");
            now = Progress { at: after.at + paused, cpu: after.cpu + paused };
            pace.measure(now);
        }
        for _ in 0..20 {
            pace.batch(now, Progress { at: now.at + ms(1000), ..now }, 0.01);
        }
        assert_eq!(pace.pause().until, now.at + ms(1000) + LONGEST);
    }

    #[test]
    fn a_process_with_part_of_a_core_loses_no_more_of_its_progress() {
        // Each stalls in batches of 10 ms, and goes on in between; the share that is lost.
        let lost = |rate: f64| {
            let mut pace = Pace::default();
            let at = |now, cpu| Progress { at: Duration::from_secs_f64(now), cpu: Duration::from_secs_f64(cpu) };
            let (mut now, mut cpu, mut stalled) = (1.0, rate, 0.0);
            pace.measure(progress(0, 0));
            while now < 1000.0 {
                let (from, to) = (at(now, cpu), at(now + 0.01, cpu));
                pace.measure(from);
                let paused = pace.batch(from, to, 0.02).as_secs_f64().max(0.03);
                (now, cpu, stalled) = (now + 0.01 + paused, cpu + rate * paused, stalled + 0.01 * rate);
            }
            stalled / (stalled + cpu)
        };
        for rate in [1.0, 0.3, 0.1] {
            assert!((0.019..0.021).contains(&lost(rate)), "{rate}: {}", lost(rate));
        }
    }
}
