//! Quicksilver (Zhu et al., ATC 2020): FreeBSD's reservations, filled early. With `mode=sync` a
//! fault populates the rest of one of which the share `populate` is populated, in eighths. With
//! `mode=async` a thread does so each second for up to `budget` reservations of 2 MB (else the
//! largest size), the last populated first, and promotes them in place. In both the thread evicts
//! reservations whose population has not changed for `inactive`, the longest first: what is free in
//! them is released, and what is populated relocated, about `migrate` pages a second. So are pages
//! that others left before the run, while no extent of 2 MB is free.
//!
//! Defaults are those of the released code (vm_reserv.c): 64 of 512 pages (`pop_threshold` 63,
//! `sync_popthreshold` 31, which acts at 64), `pop_budget` 2, `inactive_thre` 10 s,
//! `migrate_budget` 2560. That both parts run is the paper's: in the code they are off
//! (`enable_prezero`, `enable_compact`) until its scripts switch them on. Its Async-256 is
//! `populate=50%,budget=200000,inactive=5s,migrate=262144`.
//!
//! Not modelled: times finer than a second; that just the evicted reservation becomes a free extent
//! (the extent with the most free frames is compacted); reservations of files.

use super::freebsd;
use super::parameter::SWITCH;
use super::promote::{SECOND, parameter as own};
use crate::{
    Answers, Background, Candidate, Definition, Events, Given, How, Made, Need, Populating, Sample, SpaceId, System,
    Time, Values,
};
use alloc::{collections::BTreeMap, vec::Vec};
use core::cmp::Reverse;
use superpage_pages::{Level, PageSize};

pub(super) static POLICY: Definition = Definition {
    name: "quicksilver",
    paper: "Zhu et al., ATC 2020; the released code",
    help: "FreeBSD's reservations, of which the rest is populated early, and which are evicted while inactive",
    parameters: &[
        own("mode", Values::Words(&["sync", "async"]), "async", "who populates the rest: faults, or a thread"),
        own("populate", Values::Share, "12.5%", "share of a reservation that must be populated for that"),
        own("budget", Values::Count(1, 1 << 30), "2", "reservations that the thread fills in a second"),
        own("evict", Values::Words(SWITCH), "on", "inactive reservations are evicted"),
        own("inactive", Values::Time, "10s", "time without a change after which a reservation is inactive"),
        own("migrate", Values::Count(1, 1 << 30), "2560", "pages of evicted reservations in a second"),
    ],
    needs: &[Need::Faults],
    make: |given| {
        let eighths = (8.0 * given.share("populate")) as u8;
        let threshold = if given.word("mode") == "sync" { eighths.max(1) } else { 8 };
        let populate = Populating { threshold, ..freebsd::ANSWERS.populate };
        let quicksilver = Quicksilver { given: given.clone(), next: 0, regions: BTreeMap::new() };
        Made::with(Answers { populate, ..freebsd::ANSWERS }, quicksilver)
    },
};

#[derive(Debug)]
struct Quicksilver {
    given: Given,
    next: Time,
    /// No superpages: the pages populated, since when they are so many, and whether nothing is
    /// reserved.
    regions: BTreeMap<(SpaceId, u64), (u32, Time, bool)>,
}

impl Quicksilver {
    fn number(&self, name: &str) -> u64 {
        self.given.number(name).expect("it has a default")
    }

    /// Fills and promotes what was populated last.
    fn fill(&mut self, level: Level, system: &mut dyn System) {
        let pages = system.ladder().pages(level) as u32;
        let least = ((self.given.share("populate") * f64::from(pages)) as u32).max(1);
        let reserved =
            self.regions.iter().filter(|(_, (populated, _, bare))| !bare && (least..pages).contains(populated));
        let mut ready: Vec<_> = reserved.map(|(at, (_, since, _))| (Reverse(*since), *at)).collect();
        ready.sort_unstable();
        let mut left = self.number("budget");
        for (_, (space, region)) in ready {
            if left == 0 {
                break;
            }
            let sample = Sample { region, populated: least, superpage: false };
            let candidate = Candidate { least, ..sample.into() };
            left -= u64::from(system.promote(space, level, &[candidate], How::InPlace)[0].is_ok());
        }
    }

    /// Evicts what has not changed for the longest time.
    fn evict(&mut self, now: Time, level: Level, system: &mut dyn System) {
        let (inactive, migrate) = (self.given.time("inactive").as_nanos() as Time, self.number("migrate"));
        let old =
            self.regions.iter_mut().filter(|(_, (_, since, bare))| !bare && since.saturating_add(inactive) <= now);
        let mut old: Vec<_> = old.collect();
        old.sort_by_key(|(_, (_, since, _))| *since);
        let mut evicted = 0;
        for ((space, region), (populated, _, bare)) in old {
            if evicted >= migrate {
                break;
            }
            *bare = true;
            if system.release(*space, level, *region) > 0 {
                evicted += u64::from(*populated);
                system.compact(level, None);
            }
        }
        // What nobody here has reserved is older than all that is: it is moved while it is in the
        // way.
        let mut free = (now >= inactive).then(|| system.free_extents(level)).flatten().filter(|free| *free == 0);
        while let Some(before) = free
            && evicted < migrate
        {
            match system.compact(level, None) {
                Some(compacted) if compacted.free && compacted.moved > 0 => evicted += compacted.moved,
                _ => break,
            }
            // Where what moves takes what was free, it would go round for ever.
            free = system.free_extents(level).filter(|now| *now > before);
        }
    }
}

impl Background for Quicksilver {
    fn next(&self) -> Option<Time> {
        Some(self.next)
    }

    fn tick(&mut self, now: Time, system: &mut dyn System) {
        self.next = now.saturating_add(SECOND);
        let level = system.ladder().level(PageSize::MB2).unwrap_or(system.ladder().largest());
        let old = core::mem::take(&mut self.regions);
        for space in system.spaces() {
            let mut see = |Sample { region, populated, superpage }| {
                let known = old.get(&(space, region)).filter(|known| known.0 == populated);
                let known = known.copied().unwrap_or((populated, now, false));
                let _ = superpage || self.regions.insert((space, region), known).is_some();
            };
            system.scan(space, level, &mut see);
        }
        if self.given.word("mode") == "async" {
            self.fill(level, system);
        }
        if self.given.is_on("evict") {
            self.evict(now, level, system);
        }
    }

    fn events(&self) -> Events {
        Events { gone: true, ..Events::default() }
    }

    fn gone(&mut self, space: SpaceId) {
        self.regions.retain(|at, _| at.0 != space);
    }
}
