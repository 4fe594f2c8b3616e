//! A promoter at work on a thread while commands run.

use crate::Error;
use crate::promote::{Counters, Options, Promoter, Target};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// A thread that promotes the memory of this process's descendants. Dropping it ends the thread.
#[derive(Debug)]
pub struct Promoting {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Counters>>,
}

impl Promoting {
    pub(super) fn start(options: &Options) -> Result<Promoting, Error> {
        let target = Target::tree(std::process::id() as i32);
        let mut promoter = Promoter::new(options.clone(), target)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new().name("promoter".into()).spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let rest = promoter.step();
                // Woken at the end; a wake-up that comes before the sleep ends it at once.
                thread::park_timeout(rest);
            }
            promoter.counters()
        });
        Ok(Promoting { stop, thread: Some(thread.map_err(Error::system("start a thread"))?) })
    }

    /// Ends the promoting, after the batch that is going on, and tells what was done: milliseconds.
    pub fn finish(mut self) -> Counters {
        self.end().expect("it was not ended before")
    }

    fn end(&mut self) -> Option<Counters> {
        let thread = self.thread.take()?;
        self.stop.store(true, Ordering::Relaxed);
        thread.thread().unpark();
        Some(thread.join().expect("promoting does not panic"))
    }
}

impl Drop for Promoting {
    fn drop(&mut self) {
        self.end();
    }
}
