//! Observes the effect of a policy while a command runs.

use crate::inspect::Reach;
use crate::sample::Walk;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use superpage_linux::Error;
use superpage_linux::tree::descendants;

/// A thread that looks at what the policy comes to, ever more rarely: each time that the command
/// has run a quarter longer.
pub(crate) struct Watch {
    /// Set when the command has ended: a look that goes on is given up.
    over: Arc<AtomicBool>,
    /// Dropped to begin.
    waits: Option<Sender<()>>,
    thread: Option<JoinHandle<Option<Reach>>>,
}

impl Watch {
    /// When the first look is; most programs have read their libraries then.
    const FIRST: Duration = Duration::from_millis(100);
    /// The most that looking may take of a processor's time, beyond what is free.
    const SHARE: f64 = 0.003;
    const FREE: Duration = Duration::from_millis(100);
    /// How long a look waits that the budget does not allow yet.
    const AGAIN: Duration = Duration::from_secs(1);

    /// Starts the thread, which waits for [`begin`](Watch::begin).
    ///
    /// # Errors
    /// [`Error::System`]: no thread can be started.
    pub(crate) fn start() -> Result<Watch, Error> {
        let over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&over);
        let (waits, begun) = channel::<()>();
        let thread = std::thread::Builder::new().name("watch".into()).spawn(move || {
            // It ends with an error: when the other end is dropped.
            let _ = begun.recv();
            Watch::looks(&|| flag.load(Ordering::Relaxed))
        });
        Ok(Watch { over, waits: Some(waits), thread: Some(thread.map_err(Error::thread)?) })
    }

    /// Begins to look.
    pub(crate) fn begin(&mut self) {
        self.waits = None;
    }

    /// Stops sampling. Returns the last sample near the peak of memory.
    pub(crate) fn finish(mut self) -> Option<Reach> {
        self.end()
    }

    fn end(&mut self) -> Option<Reach> {
        let thread = self.thread.take()?;
        self.over.store(true, Ordering::Relaxed);
        self.waits = None;
        thread.thread().unpark();
        thread.join().expect("looking does not panic")
    }

    fn looks(over: &dyn Fn() -> bool) -> Option<Reach> {
        // A first guess is as good as none: what takes longer is given up.
        let (began, mut walk) = (Instant::now(), Walk::new(0.0, 0.0));
        let (mut best, mut next): (Option<Reach>, _) = (None, Watch::FIRST);
        while !over() {
            let now = began.elapsed();
            if now < next {
                std::thread::park_timeout(next - now);
                continue;
            }
            let allowed = Watch::FREE + now.mul_f64(Watch::SHARE);
            let look = |go_on: &dyn Fn() -> bool| Reach::read(&descendants(std::process::id() as i32), go_on);
            match walk.look(1, Some(allowed), over, look) {
                Some(seen) => {
                    if best.as_ref().is_none_or(|best| seen.resident as f64 >= 0.9 * best.resident as f64) {
                        best = Some(seen);
                    }
                    next = began.elapsed() + now / 4;
                }
                None => next = began.elapsed() + Watch::AGAIN,
            }
        }
        best
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
    }
}
