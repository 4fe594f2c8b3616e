//! How fast a process may be promoted: less if that slows it.
//!
//! The kernel collapses a region under locks that page faults and mappings of the process need too.
//! So the cost of each batch is measured by the process's own progress: the CPU time that it used
//! meanwhile, against what it used per second just before. What it lost, divided by the allowed
//! slowdown, is the time for which it is then left alone; that doubles with each batch in a row
//! that cost it more than half of the batch's time.

use std::time::Duration;
use superpage_vm::Why;

/// A pause of promotion that is shorter is none that anybody decided on: it passes while the
/// promoter sleeps.
pub(super) const NAP: Duration = Duration::from_millis(100);

/// The longest pause.
const LONGEST: Duration = Duration::from_secs(60);

/// A window shorter than this, a few ticks of the scheduler, says nothing about a process's speed.
const SHORTEST_WINDOW: Duration = Duration::from_millis(20);

/// The progress of a process beside its promotions. Times are since the promoter began.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// CPU seconds per second, outside of our calls.
    rate: f64,
    /// The end of that measurement, and the CPU time then.
    seen: Option<(Duration, Duration)>,
    /// CPU seconds lost to recent batches, older ones counting half as much with each new one. CPU
    /// clocks have ticks, so a single batch may show too much or less than nothing; the sum does
    /// not.
    lost: f64,
    doublings: u32,
    /// Until when the process is left alone, and why.
    until: (Duration, Why),
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { rate: 0.0, seen: None, lost: 0.0, doublings: 0, until: (Duration::ZERO, Why::Slowed) }
    }
}

impl Pace {
    /// Records the CPU time of the process while no batch is running.
    pub(super) fn measure(&mut self, now: Duration, cpu: Duration) {
        if let Some((then, before)) = self.seen {
            let window = now.saturating_sub(then);
            if window < SHORTEST_WINDOW {
                return;
            }
            self.rate = cpu.saturating_sub(before).as_secs_f64() / window.as_secs_f64();
        }
        self.seen = Some((now, cpu));
    }

    /// Recent CPU seconds per second.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// A batch went on between two times, at which the process had used so much; it may slow the
    /// process by the share `slowdown`. Returns the pause, which may be none.
    pub(super) fn batch(&mut self, from: (Duration, Duration), to: (Duration, Duration), slowdown: f64) -> Duration {
        let took = to.0.saturating_sub(from.0).as_secs_f64();
        let lost = self.rate * took - to.1.saturating_sub(from.1).as_secs_f64();
        self.lost = self.lost / 2.0 + lost;
        self.seen = Some(to);
        let stalled = lost > took / 2.0;
        self.doublings = if stalled { (self.doublings + 1).min(10) } else { 0 };
        let pause = self.lost.max(0.0) / slowdown * f64::from(1_u32 << self.doublings.saturating_sub(1));
        let pause = Duration::from_secs_f64(pause.min(LONGEST.as_secs_f64()));
        self.until = (to.0 + pause, Why::Slowed);
        pause
    }

    /// Leaves the process alone for a while, whatever it did, for a reason.
    pub(super) fn pause(&mut self, until: Duration, why: Why) {
        self.until = self.until.max((until, why));
    }

    /// Until when the process is left alone, and why.
    pub(super) fn until(&self) -> (Duration, Why) {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_process_that_goes_on_is_not_left_alone() {
        let mut pace = Pace::default();
        pace.measure(ms(0), ms(0));
        pace.measure(ms(100), ms(100));
        assert_eq!(pace.batch((ms(100), ms(100)), (ms(110), ms(110)), 0.02), ms(0));
        assert_eq!(pace.until().0, ms(110));
        let mut idle = Pace::default();
        idle.measure(ms(0), ms(5));
        idle.measure(ms(100), ms(5));
        assert_eq!(idle.batch((ms(100), ms(5)), (ms(110), ms(5)), 0.02), ms(0));
    }

    #[test]
    fn what_is_lost_is_spread_thin_and_stalls_in_a_row_double_it() {
        let mut pace = Pace::default();
        pace.measure(ms(0), ms(0));
        pace.measure(ms(1000), ms(1000));
        let mut now = ms(1000);
        let mut pauses = Vec::new();
        for _ in 0..4 {
            let after = now + ms(10);
            assert!(pace.batch((now, ms(1000)), (after, ms(1000)), 0.1) > ms(0));
            pauses.push((pace.until().0 - after).as_millis());
            now = pace.until().0;
        }
        // 10 ms lost over 0.1, then 15 ms twice, 17.5 ms four times, 18.75 ms eight times that.
        assert_eq!(pauses, [100, 300, 700, 1500]);
        for _ in 0..20 {
            pace.batch((now, ms(0)), (now + ms(100), ms(0)), 0.1);
        }
        assert_eq!(pace.until().0, now + ms(100) + LONGEST);
    }
}
