//! The CPU time that the promoter may use: a bucket that fills at its share of one core.

use std::time::Duration;

/// CPU time saved up, in seconds; less than none when more was used than was there.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    rate: f64,
    depth: f64,
    have: f64,
    /// What has to be there before anything is done: about what it will use.
    need: f64,
    at: Duration,
}

impl Budget {
    /// Full, at time zero. It fills at `rate` seconds a second and holds `depth`.
    pub(super) fn new(rate: f64, depth: Duration) -> Budget {
        Budget { rate, depth: depth.as_secs_f64(), have: depth.as_secs_f64(), need: 0.0, at: Duration::ZERO }
    }

    /// Takes what was used. More than there was is owed, and waited for.
    pub(super) fn spend(&mut self, used: Duration) {
        self.have -= used.as_secs_f64();
    }

    /// What is done next will use about so much. More than can be saved up cannot be waited for.
    pub(super) fn expect(&mut self, cost: Duration) {
        self.need = cost.as_secs_f64().min(self.depth);
    }

    /// How long nothing may be done; zero if something may.
    pub(super) fn wait(&mut self, now: Duration) -> Duration {
        let gained = now.saturating_sub(self.at).as_secs_f64() * self.rate;
        self.have = (self.have + gained).min(self.depth);
        self.at = now;
        Duration::from_secs_f64((self.need - self.have).max(0.0) / self.rate)
    }

    /// Nothing is saved up.
    pub(super) fn empty(&mut self) {
        self.have = self.have.min(0.0);
    }

    /// What is left is kept, under another rate and depth.
    pub(super) fn change(&mut self, rate: f64, depth: Duration) {
        self.rate = rate;
        self.depth = depth.as_secs_f64();
        self.have = self.have.min(self.depth);
        self.need = self.need.min(self.depth);
    }
}

/// The CPU time of this thread so far.
pub(super) fn thread_cpu() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or_default()
}

/// The CPU time of all threads of a process so far; `None` when it has ended. Well under a microsecond, and as exact as the
/// scheduler's tick for threads that run now.
pub(super) fn process_cpu(pid: i32) -> Option<Duration> {
    // The number of a process in the clock's name, as `clock_getcpuclockid` builds it.
    clock((!pid << 3) | 2)
}

fn clock(id: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the time that it is given, which is ours.
    let done = unsafe { libc::clock_gettime(id, &mut time) };
    (done == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_is_expected_is_saved_up_before() {
        let mut budget = Budget::new(0.01, 100 * MS);
        budget.empty();
        budget.expect(5 * MS);
        assert!(budget.wait(499 * MS) > Duration::ZERO);
        assert_eq!(budget.wait(501 * MS), Duration::ZERO);
        // Never more than can be saved up.
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
    fn over_time_no_more_than_the_rate_is_used() {
        let mut budget = Budget::new(0.01, 100 * MS);
        let (mut now, mut used) = (Duration::ZERO, Duration::ZERO);
        let mut random = fastrand::Rng::with_seed(7);
        while now < Duration::from_secs(1000) {
            let wait = budget.wait(now);
            if wait.is_zero() {
                let work = random.u32(1..8) * MS;
                budget.spend(work);
                used += work;
                now += work;
            }
            now += wait.max(MS * random.u32(0..50));
        }
        assert!(used <= now.mul_f64(0.01) + 108 * MS, "{used:?} in {now:?}");
        assert!(used >= now.mul_f64(0.0099), "{used:?} in {now:?}");
    }

    #[test]
    fn clocks_of_processes() {
        let before = thread_cpu();
        let mut random = fastrand::Rng::with_seed(1);
        while thread_cpu() < before + MS {
            std::hint::black_box(random.u64(..));
        }
        assert!(process_cpu(std::process::id() as i32).unwrap() >= MS);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        child.wait().unwrap();
        assert_eq!(process_cpu(pid), None);
    }
}
