//! Trident (Ram et al., MICRO 2021): 4 KB, 2 MB and 1 GB (here all sizes up to that). A first touch
//! takes the largest page that lies in its mapping and is free; with `fault=huge` up to 2 MB.
//! khugepaged, as Linux's, then collapses regions of 1 GB in which at most `max-none` entries are
//! empty, and regions of 2 MB by Linux's limits; it looks at up to `pages` entries for each size
//! every `interval`. Smart compaction: where no 1 GB is free, the one with the most free frames is
//! emptied, tried up to `retries` times for a region. If that fails it sleeps for `alloc-sleep`.
//!
//! Defaults are those of the artifact's kernel; its scripts set `pages=2097152`. `zero`, the
//! extents of 1 GB zeroed ahead in each `interval`, is 0: in what was read of the artifact there is
//! none. Assumed: that each size has its own `pages`, and that faults do not compact.
//!
//! Not modelled: at once 2 MB for the region for which no 1 GB was free; virtual machines
//! (Trident-pv); files; regions with pages in swap space or shared since a fork.

use super::khugepaged::Khugepaged;
use super::promote::{MS, huge, parameter as own};
use super::thp;
use crate::{Answers, Background, Definition, Made, Need, Parameter, Placing, Reserve, System, Time, Values, Wants};
use superpage_pages::{Level, PageSize};

pub(super) static POLICY: Definition = Definition {
    name: "trident",
    paper: "Ram et al., MICRO 2021; its artifact",
    help: "pages of all sizes up to 1 GB at first touches, and by a khugepaged with smart compaction",
    parameters: &[
        thp::ENABLED,
        own("fault", Values::Words(&["giant", "huge"]), "giant", "the largest page at a fault: 1 GB, or 2 MB"),
        own("pages", Values::Count(1, 1 << 30), "524288", "entries looked at in a wake-up (pages_to_scan)"),
        own("interval", Values::TimeFrom(MS), "10s", "between two wake-ups (scan_sleep_millisecs)"),
        own("alloc-sleep", Values::TimeFrom(MS), "10s", "until the next one if no extent could be had"),
        own("max-none", Values::Count(0, 1 << 20), "262143", "entries of 1 GB that may be empty (max_ptes_none)"),
        own("retries", Values::Count(0, 64), "5", "tries of smart compaction for a region; 0: none"),
        Parameter { needs: &[Need::Zeroing], ..own("zero", Values::Count(0, 1024), "0", "1 GB extents zeroed ahead") },
    ],
    needs: &[Need::Faults, Need::Copying],
    make: |given| {
        let thp = thp::answers(given);
        let size = if given.word("fault") == "giant" { Reserve::Preferred } else { Reserve::Huge };
        let number = |name| given.number(name).expect("it has a default");
        let times = ["interval", "alloc-sleep"].map(|name| given.time(name).as_nanos() as Time);
        let khugepaged = |most, retries| Khugepaged::new(number("pages"), times, most, retries);
        let giant = khugepaged([number("max-none") as u32, 0, 0], number("retries"));
        let trident = Trident { giant, huge: khugepaged([511, 64, 256], 0), zero: number("zero") };
        Made::with(Answers { place: Placing { size, ..thp.place }, ..thp }, trident)
    },
};

#[derive(Debug)]
struct Trident {
    giant: Khugepaged,
    huge: Khugepaged,
    zero: u64,
}

impl Background for Trident {
    fn next(&self) -> Option<Time> {
        Some(self.giant.next.min(self.huge.next))
    }

    fn tick(&mut self, now: Time, system: &mut dyn System) {
        let (ladder, huge) = (*system.ladder(), huge(system.ladder()));
        let giant = ladder.levels().rev().find(|level| ladder.size(*level) <= PageSize::GB1);
        let giant = giant.filter(|giant| *giant > huge).unwrap_or(Level::BASE);
        if self.giant.next <= now {
            self.giant.wake(giant, now, system);
            if giant > Level::BASE {
                system.zero_ahead(giant, self.zero);
            }
        }
        if self.huge.next <= now {
            self.huge.wake(huge, now, system);
        }
    }

    fn wants(&self) -> Wants {
        Wants { accessed: true, ..Wants::default() }
    }
}
