//! HawkEye (Panwar et al., ASPLOS 2019), variant G. Every `scan` it looks for 1 s which pages of
//! regions of 2 MB (the largest size up to that) are accessed; a moving average of their number
//! puts each region in a bin. Every `interval` it promotes `rate` regions: the top bin first, round
//! robin over processes, of each the most recent in the bin. Every second it zeroes `zero` pages
//! ahead of faults. Every `recover`, with less than 15 % of memory free, huge pages lose pages of
//! zeroes until 30 % is. Defaults: the released code (mm/ohp.c, mm/huge_memory.c, modules);
//! `bins=10`, `scan=30s`: the paper. Faults take base pages, as in the code. Assumed: equal bins in
//! the paper; no second promotion after giving back. Where accesses are not known, populated pages
//! count. Not modelled: PMU; that the first three scans of a process fill no bin; the bound of 5 %
//! of a core; frames zeroed ahead for more than base pages; that the code takes the oldest of a bin
//! first; that faults look for base pages that are zeroed.

use super::promote::{MS, SECOND, huge, parameter as own};
use super::thp;
use crate::{
    Answers, Background, Definition, Events, Given, How, Made, Need, Parameter, Place, Placing, Refusal, Sample,
    SpaceId, System, Time, Values, Wants, Why,
};
use alloc::{collections::BTreeMap, vec::Vec};
use core::cmp::Reverse;
use superpage_pages::Level;

pub(super) static POLICY: Definition = Definition {
    name: "hawkeye",
    paper: "Panwar et al., ASPLOS 2019; the released code",
    help: "superpages where most is accessed, zeroing ahead, and zeroes given back where memory is short",
    parameters: &[
        own("bins", Values::Words(&["12", "10"]), "12", "bins of regions: by powers of two, or of equal width"),
        own("scan", Values::TimeFrom(MS), "5s", "from one look at accesses to the next"),
        own("rate", Values::Count(1, 1 << 20), "8", "regions promoted in a wake-up"),
        own("interval", Values::TimeFrom(MS), "10s", "between two wake-ups"),
        Parameter {
            needs: &[Need::Zeroing],
            ..own("zero", Values::Count(0, 1 << 30), "10240", "pages zeroed ahead in a second")
        },
        own("recover", Values::TimeFrom(MS), "2m", "from one look at free memory to the next"),
    ],
    needs: &[Need::Copying],
    make: |given| {
        let place = Placing { frames: Place::BasePage, ..thp::ANSWERS.place };
        let (given, regions) = (given.clone(), BTreeMap::new());
        let hawkeye = Hawkeye { given, due: [0; 4], cleared: false, regions, last_turn: SpaceId(0) };
        Made::with(Answers { place, ..thp::ANSWERS }, hawkeye)
    },
};

#[derive(Debug)]
struct Hawkeye {
    given: Given,
    /// When it looks at accesses, promotes, zeroes, gives back.
    due: [Time; 4],
    /// Reference bits were cleared, and are read next.
    cleared: bool,
    regions: BTreeMap<(SpaceId, u64), Region>,
    last_turn: SpaceId,
}

/// The bin (0: none), since when the region is there, the average, and whether it is not promoted
/// any more: it gave pages back, or was refused for good.
type Region = (u64, Time, f64, bool);
const GIVEN_UP: Region = (0, 0, 0.0, true);
/// The most time of a call, live, after which the rest of the huge pages is left for the next.
const MOST: Time = 50 * 1_000_000;

impl Hawkeye {
    fn look(&mut self, now: Time, level: Level, system: &mut dyn System) {
        let (old, pages) = (core::mem::take(&mut self.regions), system.ladder().pages(level));
        for space in system.spaces() {
            let mut seen = Vec::new();
            system.scan(space, level, &mut |sample| seen.push(sample));
            for Sample { region, populated, .. } in seen.into_iter().filter(|sample| !sample.superpage) {
                let (bin, since, mut average, given_back) = old.get(&(space, region)).copied().unwrap_or_default();
                let accessed = system.accessed(space, level, region).unwrap_or(populated);
                average += if self.cleared { 0.6 * (f64::from(accessed) - average) } else { 0.0 };
                let now_in = match self.given.word("bins") {
                    _ if given_back => 0,
                    "10" => (10 * average as u64).div_ceil(pages),
                    _ => (average as u64).next_power_of_two().ilog2().saturating_sub(1).into(),
                };
                self.regions
                    .insert((space, region), (now_in, if now_in == bin { since } else { now }, average, given_back));
            }
        }
        self.cleared = !self.cleared;
    }

    fn promote(&mut self, now: Time, level: Level, system: &mut dyn System) {
        for _ in 0..self.given.number("rate").expect("it has a default") {
            let all = self.regions.iter().rev();
            let first = all.max_by_key(|(at, of)| (of.0, at.0 > self.last_turn, Reverse(at.0), of.1));
            let Some((&(space, region), _)) = first.filter(|(_, of)| of.0 > 0) else { return };
            let candidate = Sample { region, populated: 0, superpage: false }.into();
            match system.promote(space, level, &[candidate], How::Either).remove(0) {
                Err(Refusal { why, until }) if why == Why::NoExtent || until > now => return,
                // What is refused for good would come first again and again.
                Err(Refusal { why, .. }) if !why.is_over() => self.regions.insert((space, region), GIVEN_UP),
                _ => self.regions.remove(&(space, region)),
            };
            self.last_turn = space;
        }
    }

    fn give_back(&mut self, level: Level, system: &mut dyn System) {
        let began = system.spent();
        let free = |system: &mut dyn System| system.memory().map_or(100, |of| 100 * of.available / of.total.max(1));
        for space in if free(system) < 15 { system.spaces() } else { Vec::new() } {
            let mut seen = Vec::new();
            system.scan(space, level, &mut |sample| seen.push(sample));
            for Sample { region, .. } in seen.into_iter().filter(|sample| sample.superpage) {
                let done = level == Level::BASE || free(system) >= 30 || system.spent() - began > MOST;
                if done {
                    return;
                }
                // Once, whatever it gave back: live a split is all that can be had, and it is not
                // known what a page holds.
                if self.regions.contains_key(&(space, region)) {
                    continue;
                }
                if system.shrink(space, level, region) > 0 || !system.look(space, level, region).superpage {
                    self.regions.insert((space, region), GIVEN_UP);
                }
            }
        }
    }
}

impl Background for Hawkeye {
    fn next(&self) -> Option<Time> {
        self.due.into_iter().min()
    }

    fn tick(&mut self, now: Time, system: &mut dyn System) {
        let (level, due) = (huge(system.ladder()), self.due);
        let time = |name| self.given.time(name).as_nanos() as Time;
        let periods = [if self.cleared { time("scan") } else { SECOND }, time("interval"), SECOND, time("recover")];
        for work in (0..4).filter(|work| due[*work] <= now) {
            match work {
                0 => self.look(now, level, system),
                1 => self.promote(now, level, system),
                2 => _ = system.zero_ahead(Level::BASE, self.given.number("zero").unwrap_or(0)),
                _ => self.give_back(level, system),
            }
            self.due[work] = now.saturating_add(periods[work]);
        }
    }

    fn wants(&self) -> Wants {
        Wants { accessed: true, contents: true, ..Wants::default() }
    }

    fn events(&self) -> Events {
        Events { gone: true, ..Events::default() }
    }

    fn gone(&mut self, space: SpaceId) {
        self.regions.retain(|at, _| at.0 != space);
    }
}
