//! Ingens (Kwon et al., OSDI 2016): faults take base pages, and a thread promotes what is used
//! densely: regions of 2 MB (the largest size up to that) populated at least to `util`, the fullest
//! first, every `interval`. Defaults are those of the released code (mode 1, 90 %, `scan_sleep`
//! 4000 ms), where that is all. In the paper faults take huge pages while memory is not fragmented:
//! `aggressive` does so while the share of free memory that lies outside free huge pages (the
//! paper's FMFI) is below it.
//!
//! Not modelled: the order by frequency of access (mode 2) and fairness among processes, both off
//! in the released code; same-page merging.

use super::promote::{MS, huge, parameter as own};
use super::thp;
use super::thp::simulated;
use crate::{
    Answers, Background, Candidate, Definition, Given, Hints, How, Made, Need, Place, Placing, Prefer, Reserve, System,
    Time, Values, Why,
};
use alloc::vec::Vec;
use superpage_pages::Level;

pub(super) static POLICY: Definition = Definition {
    name: "ingens",
    paper: "Kwon et al., OSDI 2016; the released code",
    help: "base pages, and superpages where most of a region is populated",
    parameters: &[
        own("util", Values::Share, "0.9", "share of a region's pages that must be populated"),
        own("interval", Values::TimeFrom(MS), "4s", "between two scans"),
        simulated(own(
            "aggressive",
            Values::Share,
            "",
            "faults take huge pages while free memory is fragmented less than this (the paper: 0.5)",
        )),
    ],
    needs: &[Need::Copying],
    make: |given| {
        let thp = thp::ANSWERS;
        let place = Placing { frames: Place::BasePage, hints: Hints::OptOut, ..thp.place };
        Made::with(Answers { place, ..thp }, Ingens::new(given))
    },
};

#[derive(Debug)]
struct Ingens {
    util: f64,
    interval: Time,
    aggressive: Option<f64>,
    next: Time,
}

impl Ingens {
    fn new(given: &Given) -> Ingens {
        let interval = (given.time("interval").as_nanos() as Time).max(1);
        Ingens { util: given.share("util"), interval, aggressive: given.find_share("aggressive"), next: 0 }
    }

    /// What faults are to do now: huge pages while memory is not fragmented.
    fn prefer(&self, system: &mut dyn System, level: Level) -> Option<Prefer> {
        let (memory, ladder) = (system.memory()?, *system.ladder());
        let huge = memory.free_extents(&ladder, level) * ladder.pages(level);
        let fragmented = 1.0 - huge as f64 / memory.free.max(1) as f64;
        let place = (fragmented < self.aggressive?).then_some(Place::Extent);
        Some(Prefer { place, size: place.map(|_| Reserve::Huge), ..Prefer::default() })
    }
}

impl Background for Ingens {
    fn next(&self) -> Option<Time> {
        Some(self.next)
    }

    fn tick(&mut self, now: Time, system: &mut dyn System) {
        self.next = now.saturating_add(self.interval);
        let level = huge(system.ladder());
        let prefer = self.prefer(system, level);
        let least = self.util * system.ladder().pages(level) as f64;
        for space in system.spaces().into_iter().filter(|_| level > Level::BASE) {
            prefer.map(|prefer| system.prefer(space, None, prefer));
            let mut dense: Vec<Candidate> = Vec::new();
            system.scan(space, level, &mut |sample| {
                if !sample.superpage && f64::from(sample.populated) >= least {
                    dense.push(Candidate { least: sample.populated, ..sample.into() });
                }
            });
            dense.sort_unstable_by(Candidate::order);
            if system.promote(space, level, &dense, How::Either).contains(&Err(Why::NoExtent.into())) {
                break;
            }
        }
    }
}
