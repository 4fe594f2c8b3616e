//! A policy that wants to know everything and does everything that a background can: what the
//! manager tells it must be true, and what it does must leave every state valid.

use std::collections::BTreeMap;
use superpage_pages::{Extent, Level, Pfn, Random, Vpn};
use superpage_vm::{
    Answers, Background, Candidate, Definition, Events, How, Made, Need, Parameter, Place, Prefer, Reserve, Sample,
    Scarce, SpaceId, System, Time, Values,
};

/// How many events it remembers.
const MOST: usize = 64;

/// The policy.
pub(crate) static WATCH: Definition = Definition {
    name: "watch",
    paper: "",
    help: "base pages, and any region that missed or faulted promoted or demoted",
    parameters: &[
        Parameter { name: "interval", values: Values::Time, default: "400ms", help: "between two calls", needs: &[] },
        Parameter { name: "batch", values: Values::Count(1, 8), default: "2", help: "regions in one call", needs: &[] },
        Parameter {
            name: "seed",
            values: Values::Count(1, 1 << 32),
            default: "1",
            help: "draws what it does",
            needs: &[],
        },
        Parameter {
            name: "more",
            values: Values::Words(&["on", "off"]),
            default: "off",
            help: "whether it prefers and gives back too",
            needs: &[],
        },
    ],
    needs: &[Need::Faults, Need::Copying, Need::FaultEvents, Need::Misses, Need::Zeroing, Need::Contents],
    make: |given| {
        Made::with(
            Answers::BASE,
            Watch {
                interval: given.time("interval").as_nanos() as Time,
                batch: given.number("batch").unwrap() as usize,
                random: Random::new(given.number("seed").unwrap()),
                more: given.is_on("more"),
                next: 0,
                seen: BTreeMap::new(),
            },
        )
    },
};

#[derive(Debug)]
struct Watch {
    interval: Time,
    batch: usize,
    random: Random,
    more: bool,
    next: Time,
    /// Pages that faulted or missed, and the level that maps them then.
    seen: BTreeMap<(SpaceId, Vpn), Level>,
}

impl Watch {
    fn more(&mut self, system: &mut dyn System, (space, at, level, region): (SpaceId, Vpn, Level, u64)) {
        let pages = system.ladder().pages(level);
        let free = system.memory().unwrap().free;
        match self.random.next() % 4 {
            3 => {
                let frame = Pfn(self.random.next() % 1024).align_down(pages);
                let target = (!self.random.next().is_multiple_of(4)).then_some(Extent { start: frame, level });
                let extents = system.free_extents(level).unwrap();
                let compacted = system.compact(level, target).unwrap();
                assert!(!compacted.free || system.free_extents(level).unwrap() > 0 && compacted.failed == 0);
                assert!(system.free_extents(level).unwrap() >= extents || compacted.moved > 0);
            }
            0 => {
                let freed = system.release(space, level, region);
                assert_eq!(system.memory().unwrap().free, free + freed);
                assert_eq!(system.look(space, level, region).reserved, 0);
            }
            1 => {
                let before = system.look(space, level, region);
                let zeroes = system.zeroes(space, level, region);
                let freed = system.shrink(space, level, region);
                assert_eq!(zeroes, Some(freed));
                let after = system.look(space, level, region);
                assert_eq!(u64::from(before.populated - after.populated), freed);
                assert_eq!((after.shared, after.swapped), (before.shared, before.swapped));
            }
            _ => {
                let places = [None, Some(Place::BasePage), Some(Place::Reservation), Some(Place::Extent)];
                let sizes = [None, Some(Reserve::Preferred), Some(Reserve::Smallest), Some(Reserve::Largest)];
                let prefer = Prefer {
                    place: places[self.random.next() as usize % 4],
                    size: sizes[self.random.next() as usize % 4],
                    only_zeroed: self.random.next().is_multiple_of(4),
                    scarce: [None, Some(Scarce::Compact), Some(Scarce::Preempt)][self.random.next() as usize % 3],
                    ..Prefer::default()
                };
                let range = at.align_down(pages).pages(pages);
                assert!(system.prefer(space, (!self.random.next().is_multiple_of(4)).then_some(range), prefer));
            }
        }
    }

    fn see(&mut self, space: SpaceId, at: Vpn, mapped: Level) {
        if self.seen.len() < MOST {
            self.seen.insert((space, at), mapped);
        }
    }
}

impl Background for Watch {
    fn next(&self) -> Option<Time> {
        Some(self.next)
    }

    fn tick(&mut self, now: Time, system: &mut dyn System) {
        assert!(now >= self.next && system.now() >= now);
        self.next = now + self.interval;
        let (ladder, spaces) = (*system.ladder(), system.spaces());
        for _ in 0..self.batch {
            let Some(((space, at), mapped)) = self.seen.pop_first() else { break };
            assert!(spaces.contains(&space), "{space:?} has ended, which nobody said");
            let level = ladder.levels().nth(self.random.next() as usize % ladder.len()).unwrap();
            let region = at.0 / ladder.pages(level);
            let mut fullest = 0;
            system.scan(space, level, &mut |sample| fullest = fullest.max(sample.populated));
            assert!(u64::from(fullest) <= ladder.pages(level));
            let populated = system.look(space, level, region).populated;
            if self.more && self.random.next().is_multiple_of(2) {
                self.more(system, (space, at, level, region));
                continue;
            }
            match self.random.next() % 5 {
                0 => drop(system.accessed(space, level, region)),
                1 => drop(system.demote(space, mapped, at.0 / ladder.pages(mapped))),
                2 => drop((system.free_extents(level), system.zero_ahead(level, 2))),
                how => {
                    let how = [How::Either, How::ByCopying][how as usize - 3];
                    let candidate = Candidate::from(Sample { region, populated, superpage: false });
                    assert_eq!(system.promote(space, level, &[candidate], how).len(), 1);
                }
            }
        }
    }

    fn events(&self) -> Events {
        Events { faulted: true, missed: true, gone: true }
    }

    fn faulted(&mut self, space: SpaceId, at: Vpn, mapped: Level) {
        self.see(space, at, mapped);
    }

    fn missed(&mut self, space: SpaceId, at: Vpn, mapped: Level) {
        self.see(space, at, mapped);
    }

    fn gone(&mut self, space: SpaceId) {
        self.seen.retain(|(of, _), _| *of != space);
    }
}
