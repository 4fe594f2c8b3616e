//! DAMON's `ethp`, transparent huge pages by access (damonitor.github.io, damon_evaluation): faults
//! take base pages; each `interval` a region of 2 MB (the largest size up to that) becomes a
//! superpage if at least `rate` of its pages were accessed in it, and a superpage that was not
//! accessed for `age` is demoted. `rate` and `age` are those of the evaluation, `interval` is the
//! time over which DAMON adds up samples.
//!
//! Linux' `MADV_NOHUGEPAGE`, which the rule sets, splits nothing that is mapped: `cold=keep`. That
//! the rule means a demotion is assumed.
//!
//! Not modelled: DAMON's sampling, one page of each of 10 to 1000 regions every 5 ms, and how it
//! splits and merges regions. Here the reference bits of all pages are read once in an interval, so
//! more pages count as accessed, and the cost grows with memory. Huge pages at faults in memory
//! that is hot; the time until khugepaged comes.

use super::promote::{MS, huge, parameter as own};
use super::thp;
use crate::{
    Answers, Background, Candidate, Definition, Events, How, Made, Need, Place, Placing, SpaceId, System, Time, Values,
};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use superpage_pages::Level;

pub(super) static POLICY: Definition = Definition {
    name: "ethp",
    paper: "DAMON's evaluation, damonitor.github.io",
    help: "DAMON: base pages, superpages where enough is accessed, and base pages again where nothing is",
    parameters: &[
        own("rate", Values::Share, "0.05", "share of a region's pages that must be accessed in an interval"),
        own("age", Values::Time, "7s", "time without an access after which a superpage is cold"),
        own("interval", Values::TimeFrom(MS), "100ms", "between two looks at all reference bits"),
        own("cold", Values::Words(&["demote", "keep"]), "demote", "what happens to a cold superpage"),
    ],
    needs: &[Need::Copying, Need::Accesses],
    make: |given| {
        let (thp, time) = (thp::ANSWERS, |name| given.time(name).as_nanos() as Time);
        let place = Placing { frames: Place::BasePage, ..thp.place };
        let (age, interval) = ((given.word("cold") == "demote").then(|| time("age")), time("interval"));
        let ethp = Ethp { rate: given.share("rate"), age, interval, next: 0, used: BTreeMap::new() };
        Made::with(Answers { place, ..thp }, ethp)
    },
};

#[derive(Debug)]
struct Ethp {
    rate: f64,
    /// `None`: cold superpages stay.
    age: Option<Time>,
    interval: Time,
    next: Time,
    /// Superpages, and when they were last seen accessed, or first seen.
    used: BTreeMap<(SpaceId, u64), Time>,
}

impl Background for Ethp {
    fn next(&self) -> Option<Time> {
        Some(self.next)
    }

    fn events(&self) -> Events {
        Events { gone: true, ..Events::default() }
    }

    fn gone(&mut self, space: SpaceId) {
        self.used.retain(|(of, _), _| *of != space);
    }

    fn tick(&mut self, now: Time, system: &mut dyn System) {
        self.next = now.saturating_add(self.interval);
        let level = huge(system.ladder());
        let least = self.rate * system.ladder().pages(level) as f64;
        // What is no superpage any more is forgotten.
        let before = core::mem::take(&mut self.used);
        for space in system.spaces().into_iter().filter(|_| level > Level::BASE) {
            let (mut seen, mut hot) = (Vec::new(), Vec::new());
            system.scan(space, level, &mut |sample| seen.push(sample));
            for sample in seen {
                let accessed = system.accessed(space, level, sample.region).unwrap_or(0);
                if !sample.superpage {
                    hot.extend((f64::from(accessed) >= least).then(|| Candidate { accessed, ..sample.into() }));
                    continue;
                }
                let known = before.get(&(space, sample.region)).filter(|_| accessed == 0);
                let since = known.copied().unwrap_or(now);
                let cold = self.age.is_some_and(|age| now.saturating_sub(since) >= age && accessed == 0);
                if !cold || !system.demote(space, level, sample.region) {
                    self.used.insert((space, sample.region), since);
                }
            }
            system.promote(space, level, &hot, How::Either);
        }
    }

    fn validate(&self) -> Result<(), String> {
        let past = self.used.values().all(|since| *since <= self.next);
        past.then_some(()).ok_or_else(|| "an access lies in the future".to_string())
    }
}
