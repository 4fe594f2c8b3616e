//! Kind `filling`: how full memory is when a page first finds none of the frames that a hash leaves
//! it free, and later (Gosakan et al., ASPLOS 2023).
//!
//! Memory of each size is filled with random pages until the first conflict. Then a program uses
//! pages at random, each as likely as the others, of which there are more than memory holds. There
//! is no TLB and no other kernel.

mod iceberg;

use crate::computed::{Computed, Shown};
use crate::coverage::Bytes;
use crate::running::Watch;
use iceberg::{BUCKET, CHOICES, Iceberg, Placed};
use serde::Deserialize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use superpage_pages::{ExactBytes, Random};

/// What is filled.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Filling {
    /// Sizes of memory, whose frames have 4 KB.
    memory: Vec<Bytes>,
    /// How much the program uses after the first conflict, percent of memory.
    footprints: Vec<f64>,
    /// Its random accesses, for each page of the footprint on average.
    rounds: u64,
    /// Seeds from 1 on, each of which chooses other hash functions and pages.
    seeds: u64,
}

/// The bytes of a frame.
const FRAME: u64 = 4096;
const LEAST: u64 = (CHOICES * BUCKET) as u64 * FRAME;
const MOST: u64 = 64 << 30;

impl Filling {
    /// What is wrong with it, in a sentence.
    pub(crate) fn check(&self) -> Result<(), String> {
        let problem = |what: &str| Err(format!("filling: expected {what}"));
        if self.memory.is_empty() || !self.memory.iter().all(|memory| (LEAST..=MOST).contains(&memory.bytes())) {
            return problem("one or more sizes of memory from 1536K to 64G");
        }
        if !self.footprints.iter().all(|percent| (100.0..=1000.0).contains(percent)) {
            return problem("footprints from 100 to 1000 percent of memory");
        }
        if !(1..=1000).contains(&self.seeds) || !(1..=1000).contains(&self.rounds) {
            return problem("1 to 1000 seeds, and 1 to 1000 rounds");
        }
        Ok(())
    }
}

/// The percent of frames in use when a page found none free for the first time.
fn until_first_conflict(memory: &mut Iceberg, seed: u64) -> f64 {
    let mut pages = Random::new(seed);
    while !matches!(memory.access(pages.next()), Placed::Evicted(_)) {}
    memory.used_percent()
}

/// What came of a program, in percent.
#[derive(Clone, Copy)]
struct Filled {
    /// Of the frames, those in use: at the end, or at the first conflict.
    used: f64,
    /// Of the second half of the accesses, those that found their page in memory.
    hits: f64,
}

/// A program that first uses all pages of its footprint in order, and then any at random, `rounds`
/// times as many.
fn overcommitted(memory: &mut Iceberg, pages: u64, rounds: u64, seed: u64) -> Filled {
    let mut random = Random::new(!seed);
    let accesses = pages * rounds;
    (0..pages).for_each(|page| _ = memory.access(page));
    let mut hits = 0;
    for access in 0..accesses {
        let hit = memory.access(random.below(pages)) == Placed::Hit;
        hits += u64::from(hit && access >= accesses / 2);
    }
    Filled { used: memory.used_percent(), hits: 100.0 * hits as f64 / (accesses - accesses / 2) as f64 }
}

/// One memory, with one seed.
#[derive(Clone, Copy)]
struct Job {
    memory: Bytes,
    seed: u64,
    /// The footprint in percent; `None`: to the first conflict.
    footprint: Option<f64>,
}

impl Job {
    fn run(&self, rounds: u64) -> Filled {
        let frames = self.memory.bytes() / FRAME;
        let mut memory = Iceberg::new(frames as usize / BUCKET, self.seed);
        match self.footprint {
            None => Filled { used: until_first_conflict(&mut memory, self.seed), hits: 0.0 },
            Some(percent) => {
                let pages = (frames as f64 * percent / 100.0) as u64;
                overcommitted(&mut memory, pages, rounds, self.seed)
            }
        }
    }
}

/// Values by memory: `MEMORY.first`, the percent of frames in use at the first conflict, the mean
/// of all seeds, and `MEMORY.least`, their least; `MEMORY.used@FOOTPRINT`, the mean at the end of a
/// program of that footprint; `MEMORY.lost@FOOTPRINT`, how many percentage points fewer accesses
/// found their page in memory than with all frames for any page (of pages that are equally likely
/// that is the quotient of memory and footprint, whatever is evicted). A curve `first` over bytes
/// of memory.
pub(crate) fn compute(filling: &Filling, stop: &AtomicBool, watch: &dyn Watch) -> Computed {
    let mut found = Computed::default();
    let parts = || std::iter::once(None).chain(filling.footprints.iter().copied().map(Some));
    let jobs: Vec<Job> = (filling.memory.iter().copied())
        .flat_map(|memory| parts().map(move |footprint| (memory, footprint)))
        .flat_map(|(memory, footprint)| (1..=filling.seeds).map(move |seed| Job { memory, seed, footprint }))
        .collect();
    let results = run(&jobs, filling.rounds, stop, watch);
    let results: Option<Vec<Filled>> = results.into_iter().collect();
    let Some(results) = results else { return found };
    let mut results = results.chunks(filling.seeds as usize);
    for memory in &filling.memory {
        let (name, key_of) = (superpage_report::bytes(memory.bytes()), ExactBytes(memory.bytes()));
        for (footprint, results) in parts().zip(results.by_ref()) {
            let mean = |of: fn(&Filled) -> f64| results.iter().map(of).sum::<f64>() / results.len() as f64;
            let (used, hits) = (mean(|result| result.used), mean(|result| result.hits));
            let least = results.iter().map(|result| result.used).fold(f64::INFINITY, f64::min);
            let mut note = |key: &str, quantity: String, value: f64| {
                found.values.insert(format!("{key_of}.{key}"), value);
                found.shown.push(Shown {
                    item: format!("{name} of memory"),
                    quantity,
                    value,
                    reason: "the paper's tables were not at hand, only what its abstract says of them".into(),
                });
            };
            match footprint {
                None => {
                    note("first", "first conflict, % of frames in use, mean".into(), used);
                    note("least", "first conflict, % of frames in use, least".into(), least);
                    found.point("first", memory.bytes() as f64, used, "");
                }
                Some(percent) => {
                    let of = format!("a program of {percent} % of memory");
                    note(&format!("used@{percent}"), format!("{of}: % of frames in use"), used);
                    let lost = 10_000.0 / percent - hits;
                    note(&format!("lost@{percent}"), format!("{of}: fewer hits than with any frame, points"), lost);
                }
            }
        }
    }
    found
}

/// The results in the order of the jobs, on all threads; `None` for what was not run.
fn run(jobs: &[Job], rounds: u64, stop: &AtomicBool, watch: &dyn Watch) -> Vec<Option<Filled>> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(vec![None; jobs.len()]));
    let threads = superpage_sim::threads();
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(index).filter(|_| !stop.load(Ordering::Relaxed)) else { return };
            watch.stream(&format!("filling {}", superpage_report::bytes(job.memory.bytes())), index + 1, jobs.len());
            let result = job.run(rounds);
            results.lock().expect("no thread panics")[index] = Some(result);
        }
    };
    std::thread::scope(|scope| (0..threads.min(jobs.len())).for_each(|_| _ = scope.spawn(work)));
    results.into_inner().expect("no thread panics")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_nearly_full_at_the_first_conflict_and_fuller_later() {
        for seed in 1..4 {
            let mut memory = Iceberg::new(1024, seed);
            let first = until_first_conflict(&mut memory, seed);
            memory.validate();
            let Filled { used: later, hits } = overcommitted(&mut memory, 1024 * BUCKET as u64 * 11 / 10, 3, seed);
            memory.validate();
            assert!((90.0..100.0).contains(&first) && first < later && later <= 100.0, "{first} {later}");
            // Of equally likely pages, those are found that are in memory.
            assert!((hits - later / 1.1).abs() < 1.0, "{hits} {later}");
        }
    }
}
