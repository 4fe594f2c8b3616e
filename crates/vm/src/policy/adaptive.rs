//! Reservations, windows that double, and whole superpages of 2 MB (the largest size up to that)
//! before they are full, where that is known to cost little memory. How full a region will be is
//! learnt from the regions around it: of `control` regions one is left to the program, and shows
//! what the others would hold. A region is filled ahead and promoted when what all regions filled
//! so far are expected to hold in vain stays below `bloat` of what is populated. So regions of
//! dense memory are filled at their first touch, those of sparse memory when they are nearly full.
//! Faults compact memory for an extent in spaces of which the share `ahead` is dense. Where nothing
//! is reserved a region is promoted by copying while it holds little, or once it has not changed
//! for `age`. So long a region waits too that has lost pages. What turns out to be sparse is given
//! back.
//!
//! The parts are others': reservations are Navarro et al.'s (OSDI 2002, section 4), filling ahead
//! is Talluri and Hill's and Quicksilver's. The controls, and that the limit is the memory expected
//! to stay unused, are this project's. Live, where it does not see faults, it looks at all each
//! `scan`.

use super::parameter::SWITCH;
use super::promote::{MS, huge, parameter as own};
use super::reservation;
use crate::{
    Answers, Background, Candidate, Definition, Event, Events, Given, How, Made, Need, Placing, Populating, Prefer,
    Reserve, Sample, Scanned, Scarce, SpaceId, System, Time, Values, Wants, Why,
};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use superpage_pages::{Level, PageSize};

pub(super) static POLICY: Definition = Definition {
    name: "adaptive",
    paper: "",
    help: "reservations, filled ahead and promoted where the regions around show that little would stay unused",
    parameters: &[
        own("bloat", Values::Share, "0.05", "share of populated memory that is expected to stay unused, at most"),
        own("control", Values::Count(2, 1 << 20), "8", "one region of so many is left to the program, to learn from"),
        own("interval", Values::TimeFrom(MS), "1ms", "between two looks at regions that had faults"),
        own("scan", Values::TimeFrom(MS), "1s", "between two looks at all regions"),
        own("age", Values::Time, "10s", "time without a change after which a region with nothing reserved is copied"),
        own("ahead", Values::Share, "0.5", "share of a space's regions that must be full for faults to compact memory"),
        own("give-back", Values::Words(SWITCH), "on", "regions that turn out to be sparse are given back"),
    ],
    needs: &[Need::Copying],
    make: |given| {
        let place = Placing { size: Reserve::PreferredAnd(PageSize::KB64), ..reservation::ANSWERS.place };
        let populate = Populating { around: 64, ..reservation::ANSWERS.populate };
        Made::with(Answers { place, populate, ..reservation::ANSWERS }, Adaptive::new(given))
    },
};

/// Regions that are near each other: what is known of one is expected of the others. 128 MB of 2 MB
/// each.
const GROUP: u64 = 64;

/// So few regions say nothing about the rest of a space.
const FEW: u64 = 4;

#[derive(Default, Debug)]
struct Adaptive {
    bloat: f64,
    control: u64,
    interval: Time,
    scan: Time,
    age: Time,
    ahead: f64,
    /// The spaces in which faults compact.
    dense: BTreeSet<SpaceId>,
    give_back: bool,
    /// The size that is promoted, and its base pages. Not known before the first call.
    level: Option<(Level, u64)>,
    /// The target reports faults.
    sees_faults: bool,
    next_look: Time,
    next_scan: Time,
    /// The regions that hold a page.
    regions: BTreeMap<At, Region>,
    /// Those that had faults since the last look.
    faulted: BTreeSet<At>,
    /// Those that would be promoted, but no free extent was available; until when they wait, and
    /// how often in a row.
    waiting: BTreeSet<At>,
    pause: (Time, u32),
}

/// A region: its space and its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct At {
    space: SpaceId,
    number: u64,
}

/// What is known of a region.
#[derive(Clone, Copy, Debug, Default)]
struct Region {
    populated: u64,
    /// The faults so far, and the number of them at which it is looked at next.
    faults: (u32, u32),
    /// Since when it holds so many pages, and whether it has held more: what a program takes back
    /// it is about to use otherwise.
    since: Time,
    lost: bool,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    /// The program alone has populated it.
    #[default]
    Own,
    /// So it has, and it is a superpage.
    Full,
    /// The policy has populated the rest of it, and it is a superpage.
    Filled,
    /// It cannot be promoted, or was given back.
    Over,
}

impl Adaptive {
    fn new(given: &Given) -> Adaptive {
        let time = |name| given.time(name).as_nanos() as Time;
        Adaptive {
            bloat: given.share("bloat"),
            control: given.number("control").expect("it has a default"),
            interval: time("interval").max(1),
            scan: time("scan"),
            age: time("age"),
            ahead: given.share("ahead"),
            give_back: given.is_on("give-back"),
            ..Adaptive::default()
        }
    }

    /// Of the regions with these numbers: how many the program alone populates, and their populated
    /// pages.
    fn own(&self, space: SpaceId, numbers: RangeInclusive<u64>, but: Option<u64>) -> (u64, u64) {
        let at = |number: &u64| At { space, number: *number };
        let all = self.regions.range(at(numbers.start())..=at(numbers.end()));
        let own = all.filter(|(at, region)| Some(at.number) != but && region.state != State::Filled);
        own.fold((0, 0), |(count, sum), (_, region)| (count + 1, sum + region.populated))
    }

    /// The share of their pages that the regions near one hold which the program populates itself,
    /// but for that one; 0 if there are none.
    fn density(&self, at: At, pages: u64) -> f64 {
        let first = at.number / GROUP * GROUP;
        let (count, populated) = self.own(at.space, first..=first + (GROUP - 1), Some(at.number));
        if count == 0 { 0.0 } else { populated as f64 / (count * pages) as f64 }
    }

    /// The pages that are populated in vain, as far as can be expected, and all that are populated.
    fn unused(&self, pages: u64) -> (f64, f64) {
        let (mut unused, mut populated) = (0.0, 0.0);
        let mut group = None;
        for (at, region) in &self.regions {
            populated += region.populated as f64;
            if region.state == State::Filled {
                let key = At { number: at.number / GROUP, ..*at };
                let density = match group {
                    Some((known, density)) if known == key => density,
                    _ => self.density(*at, pages),
                };
                group = Some((key, density));
                unused += (1.0 - density) * pages as f64;
            }
        }
        (unused, populated)
    }

    /// Looks at one region.
    fn see(&mut self, now: Time, at: At, sample: Option<Sample>, pages: u64) {
        let Some(sample) = sample else {
            self.regions.remove(&at);
            return;
        };
        let region = self.regions.entry(at).or_default();
        let populated = if sample.superpage { pages } else { u64::from(sample.populated) };
        if populated != region.populated {
            region.lost |= populated < region.populated;
            (region.populated, region.since) = (populated, now);
        }
        region.state = match (region.state, sample.superpage) {
            (State::Own, true) => State::Full,
            (State::Full | State::Filled, false) => State::Own,
            (state, _) => state,
        };
    }

    /// Looks at all regions: those that are known where it sees faults, else those of all spaces
    /// that have changed.
    fn look_at_all(&mut self, now: Time, level: Level, system: &mut dyn System) {
        if self.sees_faults {
            self.faulted.extend(self.regions.keys());
            return;
        }
        let (spaces, pages) = (system.spaces(), system.ladder().pages(level));
        self.regions.retain(|at, _| spaces.binary_search(&at.space).is_ok());
        for space in spaces {
            let mut samples = Vec::new();
            match system.scan_if_changed(space, level, &mut |sample| samples.push(sample)) {
                Scanned::Unchanged => {
                    // Some may have settled since.
                    let own = self.regions.range(At { space, number: 0 }..=At { space, number: u64::MAX });
                    self.faulted.extend(own.filter(|(_, region)| region.state == State::Own).map(|(at, _)| *at));
                    continue;
                }
                Scanned::Closed => samples.clear(),
                _ => {}
            }
            let there: BTreeSet<u64> = samples.iter().map(|sample| sample.region).collect();
            self.regions.retain(|at, _| at.space != space || there.contains(&at.number));
            for sample in samples {
                let at = At { space, number: sample.region };
                self.see(now, at, Some(sample), pages);
                self.faulted.insert(at);
            }
        }
    }

    /// Promotes the region if that is expected to cost little memory.
    fn consider(&mut self, at: At, level: Level, budget: &mut f64, system: &mut dyn System) {
        let At { space, number } = at;
        let pages = system.ladder().pages(level);
        let Some(region) = self.regions.get(&at).copied().filter(|region| region.state == State::Own) else { return };
        let holes = (pages - region.populated.min(pages)) as f64;
        let expected = holes.min((1.0 - self.density(at, pages)) * pages as f64);
        let control = number.is_multiple_of(self.control) && holes > 0.0;
        let settled = system.now().saturating_sub(region.since) >= self.age;
        if control || expected > *budget || region.lost && !settled {
            return;
        }
        if system.memory().is_some_and(|memory| (memory.free as f64) < memory.aim as f64 + holes) {
            return;
        }
        let sample = Sample { region: number, populated: region.populated as u32, superpage: false };
        let candidate = Candidate { least: sample.populated.max(1), ..sample.into() };
        let few = 8 * region.populated <= pages;
        let how = if settled || few { How::Either } else { How::InPlace };
        let mut outcome = system.promote(space, level, &[candidate], how).remove(0);
        if settled
            && outcome.is_err_and(|refusal| refusal.why == Why::NoExtent)
            && system.compact(level, None).is_some_and(|done| done.free)
        {
            outcome = system.promote(space, level, &[candidate], how).remove(0);
        }
        let known = self.regions.get_mut(&at).expect("it was found there");
        match outcome {
            Ok(()) => {
                known.lost = false;
                (known.state, known.populated) = (if holes > 0.0 { State::Filled } else { State::Full }, pages);
                *budget -= if holes > 0.0 { expected } else { 0.0 };
                self.pause.1 = 0;
            }
            Err(refusal) if refusal.why == Why::NoExtent || refusal.until > system.now() => {
                self.waiting.insert(at);
                let pause = (10 * MS.as_nanos() as Time) << self.pause.1.min(12);
                self.pause = (system.now().saturating_add(pause).max(refusal.until), self.pause.1 + 1);
            }
            Err(refusal) if refusal.why.is_over() || refusal.why == Why::Otherwise => {}
            Err(_) => known.state = State::Over,
        }
    }

    /// Faults compact memory for an extent in spaces whose regions are known to fill.
    fn judge(&mut self, space: SpaceId, pages: u64, system: &mut dyn System) {
        let (count, populated) = self.own(space, 0..=u64::MAX, None);
        let dense = count >= FEW && populated as f64 >= self.ahead * (count * pages) as f64;
        if dense != self.dense.contains(&space) {
            let scarce = dense.then_some(Scarce::Compact);
            system.prefer(space, None, Prefer { scarce, ..Prefer::default() });
            if dense {
                self.dense.insert(space)
            } else {
                self.dense.remove(&space)
            };
        }
    }

    /// Gives back regions that were filled and turned out to be sparse, until the rest is within
    /// the limit.
    fn give_back(&mut self, level: Level, pages: u64, system: &mut dyn System) {
        let filled = self.regions.iter().filter(|(_, region)| region.state == State::Filled);
        let mut filled: Vec<_> = filled.map(|(at, _)| (self.density(*at, pages), *at)).collect();
        filled.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let (mut unused, populated) = self.unused(pages);
        for (density, at) in filled {
            // Twice: what is at the limit is not filled and given back in turn.
            if unused <= 2.0 * self.bloat * populated {
                break;
            }
            system.shrink(at.space, level, at.number);
            let known = self.regions.get_mut(&at).expect("it was found there");
            known.state = State::Over;
            unused -= (1.0 - density) * pages as f64;
        }
    }
}

impl Background for Adaptive {
    fn next(&self) -> Option<Time> {
        let look = (!self.faulted.is_empty()).then_some(self.next_look);
        let waiting = (!self.waiting.is_empty()).then_some(self.pause.0);
        [look, waiting, Some(self.next_scan)].into_iter().flatten().min()
    }

    fn tick(&mut self, now: Time, system: &mut dyn System) {
        let level = huge(system.ladder());
        if level == Level::BASE {
            (self.next_look, self.next_scan) = (Time::MAX, Time::MAX);
            return;
        }
        let pages = system.ladder().pages(level);
        self.level = Some((level, pages));
        if self.next_scan <= now {
            self.look_at_all(now, level, system);
            self.next_scan = now.saturating_add(self.scan);
            if self.give_back {
                self.give_back(level, pages, system);
            }
        }
        let mut ready = core::mem::take(&mut self.faulted);
        let sees_faults = self.sees_faults;
        for at in ready.iter().filter(|_| sees_faults) {
            let sample = system.population(at.space, level, at.number);
            self.see(now, *at, sample, pages);
        }
        if self.pause.0 <= now {
            ready.append(&mut self.waiting);
        }
        let spaces: BTreeSet<SpaceId> = ready.iter().map(|at| at.space).collect();
        spaces.into_iter().for_each(|space| self.judge(space, pages, system));
        let (unused, populated) = self.unused(pages);
        let mut budget = (self.bloat * populated - unused).max(0.0);
        for at in ready {
            if self.pause.0 > now && self.pause.1 > 0 {
                self.waiting.insert(at);
                continue;
            }
            self.consider(at, level, &mut budget, system);
        }
        self.next_look = system.now().max(now).saturating_add(self.interval);
    }

    fn events(&self) -> Events {
        Events { gone: true, ..Events::default() }
    }

    fn wants(&self) -> Wants {
        Wants { fault: true, contents: true, ..Wants::default() }
    }

    fn notify(&mut self, event: Event) {
        let (Event::Fault { at, mapped, .. }, Some((level, pages))) = (event, self.level) else { return };
        self.sees_faults = true;
        let key = At { space: at.space, number: at.at.0 / pages };
        let region = self.regions.entry(key).or_default();
        if mapped >= level {
            region.populated = pages;
            region.state = if region.state == State::Own { State::Full } else { region.state };
            return;
        }
        region.faults.0 += 1;
        // Each time it had half as many faults more than at the last look.
        if region.faults.0 >= region.faults.1 {
            region.faults.1 = region.faults.0 + region.faults.0 / 2 + 1;
            self.faulted.insert(key);
        }
    }

    fn gone(&mut self, space: SpaceId) {
        self.regions.retain(|at, _| at.space != space);
        self.faulted.retain(|at| at.space != space);
        self.waiting.retain(|at| at.space != space);
        self.dense.remove(&space);
    }

    fn validate(&self) -> Result<(), String> {
        let Some((_, pages)) = self.level else { return Ok(()) };
        match self.regions.iter().find(|(_, region)| region.populated > pages) {
            Some((at, region)) => Err(format!("region {at:?} holds {} of {pages} pages", region.populated)),
            None => Ok(()),
        }
    }
}
