//! Threads that run on other processors all the time, and say how long they were kept from it.

use rustix::thread::{CpuSet, sched_setaffinity};
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use superpage_linux::Error;

/// A thread that makes no turn for so long is not running. An interrupt is shorter, also under a
/// hypervisor; what a scheduler gives to others is longer.
const SOON: Duration = Duration::from_micros(100);
/// Turns after a call until what kept a thread meanwhile is in `longest`: the call may come between
/// the two stores of one turn.
const TURNS: u64 = 2;

/// Threads in user mode, each on one processor; dropped, they end.
pub(crate) struct Spinners {
    stop: Arc<AtomicBool>,
    threads: Vec<(Arc<Turns>, JoinHandle<()>)>,
}

/// Turns of a thread's loop. A pair of cache lines for each thread.
#[derive(Default)]
#[repr(align(128))]
struct Turns {
    made: AtomicU64,
    /// The longest that one took, in nanoseconds.
    longest: AtomicU64,
}

/// A call while all threads ran.
#[derive(Clone, Copy, Debug)]
pub(crate) struct During {
    /// How long it took, in nanoseconds.
    pub(crate) call: f64,
    /// The longest turn of a thread meanwhile, in nanoseconds; 0 without threads.
    pub(crate) longest: f64,
}

impl Spinners {
    /// A thread on each of these processors.
    ///
    /// # Errors
    /// A thread cannot be started, or cannot run there.
    pub(crate) fn on(processors: &[usize]) -> Result<Spinners, Error> {
        let mut spinners = Spinners { stop: Arc::default(), threads: Vec::new() };
        for &processor in processors {
            let (turns, stop) = (Arc::<Turns>::default(), spinners.stop.clone());
            let (its, (pinned, answer)) = (turns.clone(), channel());
            let thread = Builder::new().spawn(move || {
                let mut one = CpuSet::new();
                one.set(processor);
                let result = sched_setaffinity(None, &one);
                let runs = result.is_ok();
                if pinned.send(result).is_ok() && runs {
                    its.make_until(&stop);
                }
            });
            spinners.threads.push((turns, thread.map_err(Error::system("start a thread"))?));
            let result = answer.recv().expect("the thread sends its answer first");
            result.map_err(Error::system(format!("run a thread on processor {processor}")))?;
        }
        Ok(spinners)
    }

    /// Times the call once all threads are running, which `over` stops waiting for. `None` if they
    /// did not run before and after it.
    pub(crate) fn during(&self, over: &dyn Fn() -> bool, call: impl FnOnce()) -> Option<During> {
        while !self.run(1) {
            if over() {
                return None;
            }
        }
        for (turns, _) in &self.threads {
            turns.longest.store(0, Ordering::Relaxed);
        }
        let begun = Instant::now();
        call();
        let call = begun.elapsed().as_nanos() as f64;
        let ran = self.run(TURNS);
        let longest = self.threads.iter().map(|(turns, _)| turns.longest.load(Ordering::Relaxed)).max();
        ran.then_some(During { call, longest: longest.unwrap_or(0) as f64 })
    }

    /// Whether each makes so many turns more, soon.
    fn run(&self, turns: u64) -> bool {
        let made = |thread: &(Arc<Turns>, _)| thread.0.made.load(Ordering::Acquire);
        let due: Vec<u64> = self.threads.iter().map(|thread| made(thread) + turns).collect();
        let until = Instant::now() + SOON;
        self.threads.iter().zip(due).all(|(thread, due)| {
            while made(thread) < due {
                if Instant::now() > until {
                    return false;
                }
                spin_loop();
            }
            true
        })
    }
}

impl Turns {
    fn make_until(&self, stop: &AtomicBool) {
        let mut last = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            let turn = (now - last).as_nanos() as u64;
            if turn > self.longest.load(Ordering::Relaxed) {
                self.longest.store(turn, Ordering::Relaxed);
            }
            // After `longest`, for who waits for it.
            self.made.fetch_add(1, Ordering::Release);
            last = now;
        }
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for (_, thread) in self.threads.drain(..) {
            // It does not panic, and a failure would have nothing to say here.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::sched_getaffinity;

    /// However busy the machine is: the wait for the thread is bounded.
    #[test]
    fn a_thread_that_runs_is_seen_and_ends() {
        let allowed = sched_getaffinity(None).unwrap();
        let last = (0..CpuSet::MAX_CPU).rev().find(|cpu| allowed.is_set(*cpu)).unwrap();
        let spinners = Spinners::on(&[last]).unwrap();
        let until = Instant::now() + Duration::from_secs(5);
        let over = || Instant::now() > until;
        let pause = Duration::from_micros(50);
        let during = std::iter::repeat_with(|| spinners.during(&over, || std::thread::sleep(pause)));
        let seen = during.take_while(|_| !over()).flatten().next();
        assert!(seen.is_none_or(|seen| seen.call >= 50e3 && seen.longest > 0.0), "{seen:?}");
        let turns = spinners.threads[0].0.clone();
        drop(spinners);
        assert_eq!(Arc::strong_count(&turns), 1);
    }

    #[test]
    fn without_threads_a_call_is_timed_alone() {
        let spinners = Spinners::on(&[]).unwrap();
        let during = spinners.during(&|| false, || ()).unwrap();
        assert_eq!(during.longest, 0.0);
    }

    #[test]
    fn a_processor_that_is_not_there_is_an_error() {
        assert!(Spinners::on(&[CpuSet::MAX_CPU - 1]).is_err());
    }
}
