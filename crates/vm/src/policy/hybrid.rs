//! The hybrid that Navarro et al. suggest (OSDI 2002, section 3.2): reservations, and relocation
//! "whenever reservations fail to provide enough contiguity and a large number of TLB misses is
//! observed". Faults do as under `reservation`. Misses are counted by region of each size; a region
//! that had `misses` for each of its base pages is promoted by copying, unless it is a superpage,
//! lies in one extent, or has frames reserved, which may still fill.
//!
//! Nothing of it was built: `misses` and `share` are assumed (all pages, as for promotion in the
//! paper), and so is `handler` (see `charges.rs`). After a promotion or a refusal the count begins
//! at 0.
//!
//! Not modelled: the other way that the section names, relocation in the background that restores
//! contiguity (IRIX).

use super::charges::{Charges, HANDLER};
use super::promote::parameter;
use super::reservation;
use crate::{
    Background, Candidate, Definition, Event, Events, How, Made, Need, Sample, SpaceId, System, Time, Values, Wants,
};
use alloc::string::String;
use alloc::vec::Vec;
use superpage_pages::{Ladder, Level, Vpn};

pub(super) static POLICY: Definition = Definition {
    name: "hybrid",
    paper: "Navarro et al., Practical, transparent operating system support for superpages, OSDI 2002, section 3.2",
    help: "reservations, and superpages by copying where they failed and misses are many",
    parameters: &[
        parameter(
            "misses",
            Values::Count(1, 1 << 20),
            "16",
            "for each base page of a region, to promote it by copying",
        ),
        parameter("share", Values::Share, "1", "share of its pages that must be populated then"),
        HANDLER,
    ],
    needs: &[Need::Faults, Need::Misses, Need::Copying],
    make: |given| {
        let number = |name| given.number(name).expect("it has a default");
        let (misses, share, handler) = (number("misses"), given.share("share"), number("handler"));
        Made::with(reservation::ANSWERS, Hybrid { misses, share, handler, ..Hybrid::default() })
    },
};

#[derive(Debug, Default)]
struct Hybrid {
    misses: u64,
    share: f64,
    handler: u64,
    /// The sizes, and by level how many misses are many. Not known before the first call.
    many: Option<(Ladder, Vec<u64>)>,
    charges: Charges,
    now: Time,
}

impl Background for Hybrid {
    fn next(&self) -> Option<Time> {
        (self.many.is_none() || !self.charges.ready.is_empty()).then_some(self.now)
    }

    fn tick(&mut self, now: Time, system: &mut dyn System) {
        self.now = now;
        let ladder = *system.ladder();
        let many = || (ladder, ladder.levels().map(|level| ladder.pages(level) * self.misses).collect());
        self.many.get_or_insert_with(many);
        for (space, level, region) in self.charges.take() {
            let look = system.look(space, level, region);
            let enough = f64::from(look.populated) >= self.share * ladder.pages(level) as f64;
            if enough && !look.superpage && look.reserved == 0 {
                let sample = Sample { region, populated: look.populated, superpage: false };
                let candidate = Candidate { least: look.populated, ..sample.into() };
                system.promote(space, level, &[candidate], How::ByCopying);
            }
        }
    }

    fn events(&self) -> Events {
        Events { missed: true, gone: true, ..Events::default() }
    }

    fn wants(&self) -> Wants {
        Wants { unmapped: true, ..Wants::default() }
    }

    fn miss_cycles(&self) -> u64 {
        self.handler
    }

    fn missed(&mut self, space: SpaceId, at: Vpn, mapped: Level) {
        let Some((ladder, many)) = &self.many else { return };
        for level in ladder.levels().skip(mapped.index() + 1) {
            self.charges.charge((space, level, at.0 / ladder.pages(level)), many[level.index()]);
        }
    }

    fn notify(&mut self, event: Event) {
        if let (Event::Unmapped { space, range }, Some((ladder, _))) = (event, &self.many) {
            self.charges.unmapped(ladder, space, range);
        }
    }

    fn gone(&mut self, space: SpaceId) {
        self.charges.gone(space);
    }

    fn validate(&self) -> Result<(), String> {
        self.charges.validate(self.many.as_ref().map_or(&[], |(_, many)| many))
    }
}
