//! EMD (Gangar, Panwar and Gopinath, ISMM 2025): faults take huge pages as under `thp`; while less
//! than `low` of memory is free, huge pages are broken and their pages of zeroes freed, those that
//! give back most first, until `high` is free. So the fewest huge pages are lost.
//!
//! Only the abstract was read. Assumed: the marks, which are those of HawkEye, its predecessor;
//! `interval` and `least`; that the pages of zeroes in each huge page are known, and one order of
//! all huge pages of all processes.
//!
//! Not modelled: how EMD finds the parts of an address space that give back much without looking at
//! all of it; fairness among processes; khugepaged, so that what was broken stays broken.

use super::promote::{MS, huge, parameter as own};
use super::thp;
use crate::{Background, Definition, Made, Need, System, Time, Values};
use alloc::vec::Vec;
use core::cmp::Reverse;
use superpage_pages::Level;

pub(super) static POLICY: Definition = Definition {
    name: "emd",
    paper: "Gangar et al., EMD: Fair and efficient dynamic memory de-bloating of transparent huge pages, ISMM 2025",
    help: "huge pages at first touches, and those with most pages of zeroes are broken when memory is short",
    parameters: &[
        thp::ENABLED,
        own("low", Values::Share, "0.15", "share of memory that is free, below which huge pages are broken"),
        own("high", Values::Share, "0.3", "share of memory that is to be free then"),
        own("least", Values::Count(1, 1 << 20), "1", "pages of zeroes in a huge page that is broken, at least"),
        own("interval", Values::TimeFrom(MS), "1s", "between two looks at memory"),
    ],
    needs: &[Need::Contents],
    make: |given| {
        let (low, high) = (given.share("low"), given.share("high"));
        let (least, interval) = (given.number("least").expect("it has a default"), given.time("interval"));
        let emd = Emd { low, high, least, interval: interval.as_nanos() as Time, next: 0 };
        Made::with(thp::answers(given), emd)
    },
};

#[derive(Debug)]
struct Emd {
    low: f64,
    high: f64,
    least: u64,
    interval: Time,
    next: Time,
}

impl Background for Emd {
    fn next(&self) -> Option<Time> {
        Some(self.next)
    }

    fn tick(&mut self, now: Time, system: &mut dyn System) {
        self.next = now.saturating_add(self.interval);
        let (level, memory) = (huge(system.ladder()), system.memory().unwrap_or_default());
        let mark = |share: f64| (share * memory.total as f64) as u64;
        if level == Level::BASE || memory.free >= mark(self.low) {
            return;
        }
        let mut found = Vec::new();
        for space in system.spaces() {
            let mut seen = Vec::new();
            system.scan(space, level, &mut |sample| seen.push(sample));
            for sample in seen.into_iter().filter(|sample| sample.superpage) {
                let zeroes = system.zeroes(space, level, sample.region).unwrap_or(0);
                found.extend((zeroes >= self.least).then_some((Reverse(zeroes), space, sample.region)));
            }
        }
        found.sort_unstable();
        let mut free = memory.free;
        for (_, space, region) in found {
            if free >= mark(self.high) {
                break;
            }
            free += system.shrink(space, level, region);
        }
    }
}
