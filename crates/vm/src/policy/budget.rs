//! The processor time that a background may use: a token bucket that fills at a share of one core.

use core::time::Duration;

/// Processor time saved up, in seconds; negative if more was used than was available.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    rate: f64,
    depth: f64,
    have: f64,
    /// How much must be available before anything is done: about what it will use.
    need: f64,
    /// Until when it was filled; not before it is first looked at.
    at: Option<Duration>,
}

impl Budget {
    /// A full bucket. It fills at `rate` seconds per second from when it is first looked at, and
    /// holds `depth`.
    pub(crate) fn new(rate: f64, depth: Duration) -> Budget {
        Budget { rate, depth: depth.as_secs_f64(), have: depth.as_secs_f64(), need: 0.0, at: None }
    }

    /// Subtracts what was used. An overdraft is owed: it has to be waited for.
    pub(crate) fn spend(&mut self, used: Duration) {
        self.have -= used.as_secs_f64();
    }

    /// Sets what the next step is expected to use. More than the bucket holds is never waited for.
    pub(crate) fn expect(&mut self, cost: Duration) {
        self.need = cost.as_secs_f64().min(self.depth);
    }

    /// How long to wait before anything may be done; zero if something may be done now,
    /// [`Duration::MAX`] at most.
    pub(crate) fn wait(&mut self, now: Duration) -> Duration {
        let gained = now.saturating_sub(self.at.unwrap_or(now)).as_secs_f64() * self.rate;
        self.have = (self.have + gained).min(self.depth);
        self.at = Some(now);
        Duration::try_from_secs_f64((self.need - self.have).max(0.0) / self.rate).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_is_expected_is_saved_up_before() {
        let mut budget = Budget::new(0.01, 100 * MS);
        assert_eq!(budget.wait(Duration::ZERO), Duration::ZERO);
        budget.spend(100 * MS);
        budget.expect(5 * MS);
        assert!(budget.wait(499 * MS) > Duration::ZERO);
        assert_eq!(budget.wait(501 * MS), Duration::ZERO);
        // Never more than the bucket holds.
        budget.expect(1000 * MS);
        assert!(budget.wait(501 * MS) < Duration::from_secs(10));
        assert_eq!(budget.wait(Duration::from_secs(11)), Duration::ZERO);
    }

    #[test]
    fn what_is_owed_is_waited_for() {
        let mut budget = Budget::new(0.01, 100 * MS);
        assert_eq!(budget.wait(Duration::ZERO), Duration::ZERO);
        budget.spend(130 * MS);
        let wait = budget.wait(Duration::ZERO);
        assert!((wait.as_secs_f64() - 3.0).abs() < 1e-6);
        assert!(budget.wait(2999 * MS) > Duration::ZERO);
        assert_eq!(budget.wait(3001 * MS), Duration::ZERO);
    }

    #[test]
    fn nothing_is_saved_up_before_it_is_looked_at() {
        let mut budget = Budget::new(0.01, 100 * MS);
        budget.spend(110 * MS);
        assert_eq!(budget.wait(3_600_000 * MS), 1000 * MS);
    }

    #[test]
    fn a_wait_of_more_than_a_duration_holds_is_the_longest() {
        let mut budget = Budget::new(1e-25, MS);
        budget.spend(2 * MS);
        assert_eq!(budget.wait(MS), Duration::MAX);
    }

    #[test]
    fn over_time_no_more_than_the_rate_is_used() {
        let mut budget = Budget::new(0.01, 100 * MS);
        let (mut now, mut used) = (Duration::ZERO, Duration::ZERO);
        let mut state = 7_u64;
        let mut random = |of: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((state >> 33) % of) as u32
        };
        while now < Duration::from_secs(1000) {
            let wait = budget.wait(now);
            if wait.is_zero() {
                let work = (random(7) + 1) * MS;
                budget.spend(work);
                used += work;
                now += work;
            }
            now += wait.max(MS * random(50));
        }
        assert!(used <= now.mul_f64(0.01) + 108 * MS, "{used:?} in {now:?}");
        assert!(used >= now.mul_f64(0.0099), "{used:?} in {now:?}");
    }
}
