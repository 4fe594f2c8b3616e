//! A promoter that runs on a thread while commands run.

use super::{Counters, Promoter};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use superpage_linux::Error;
use superpage_linux::why::Why;

/// A thread that promotes the memory of this process's descendants. Dropping it ends the thread.
#[derive(Debug)]
pub struct Promoting {
    /// The thread begins when this is dropped.
    gate: Option<Sender<()>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Work>>,
}

/// What a promoter did, and the most that it had to do at any time: at the end of the command
/// nothing of that is left.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Work {
    /// The sums at the end.
    pub counters: Counters,
    /// The addresses of all regions that became huge pages.
    pub places: BTreeSet<u64>,
    /// The most regions at once that it had made huge, or that were candidates, without those that
    /// it found to be shared or given back.
    pub candidates: u64,
    /// The most regions at once that were left alone, by reason ([`Counters::kept_regions`]).
    pub kept: BTreeMap<&'static str, u64>,
    /// The most bytes at once that were resident in regions populated below the share.
    pub sparse: u64,
    /// All reasons for which processes were left alone at some time.
    pub excluded: BTreeSet<&'static str>,
}

impl Promoting {
    /// Starts the thread, which waits for [`begin`](Promoting::begin).
    pub(crate) fn start(mut promoter: Promoter) -> Result<Promoting, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (gate, begun) = channel();
        let thread = thread::Builder::new().name("promoter".into()).spawn(move || {
            // Returns an error once the gate is dropped.
            let _ = begun.recv();
            let mut work = Work::default();
            while !stopped.load(Ordering::Relaxed) {
                let rest = promoter.step();
                let now = promoter.counters();
                work.candidates = work.candidates.max(now.candidate_regions + now.promoted_regions);
                for (why, regions) in &now.kept_regions {
                    let most = work.kept.entry(why).or_default();
                    *most = (*regions).max(*most);
                }
                work.sparse = work.sparse.max(now.left.get(Why::NotPopulated.name()).copied().unwrap_or(0));
                work.excluded.extend(now.excluded.keys());
                // Woken at the end; a wake-up that precedes the sleep ends it at once.
                thread::park_timeout(rest);
            }
            let counters = promoter.counters();
            // They were candidates before they were checked.
            let candidates = work.candidates.saturating_sub(work.kept.values().sum()).max(counters.promoted_regions);
            Work { counters, places: promoter.places().clone(), candidates, ..work }
        });
        Ok(Promoting { gate: Some(gate), stop, thread: Some(thread.map_err(Error::thread)?) })
    }

    /// Promotes from now on.
    pub fn begin(&mut self) {
        self.gate = None;
    }

    /// Stops the promoter after the current batch: takes as long as one call of the background may:
    /// milliseconds, or what it may save up.
    pub fn finish(mut self) -> Work {
        self.end().expect("it was not ended before")
    }

    fn end(&mut self) -> Option<Work> {
        let thread = self.thread.take()?;
        self.stop.store(true, Ordering::Relaxed);
        self.gate = None;
        thread.thread().unpark();
        Some(thread.join().expect("promoting does not panic"))
    }
}

impl Drop for Promoting {
    fn drop(&mut self) {
        self.end();
    }
}
