//! Romer et al. (ISCA 1995): base pages at faults, and superpages by copying once misses have paid
//! for them. `rule=online`, their approx-online, charges a miss to each region around the page in
//! which the TLBs hold another page, and promotes a region when its charge reaches what that costs.
//! Each size is charged apart, so superpages grow step by step. `rule=asap` promotes a region as
//! soon as all of its pages are populated. The handler of misses is four times as dear (Navarro et
//! al., OSDI 2002, section 3.2).
//!
//! Only the abstract was at hand. Readings: a promotion costs a copy of each page and a shootdown,
//! divided by the penalty of a miss; missing pages are filled with zeroes; after a promotion or a
//! refusal the charge begins at 0; asap counts at faults, so its misses cost no more. Assumed:
//! `penalty`, `handler`, and 16 `misses` if costs are not known.
//!
//! Not modelled: remapping in place of copying, as a memory controller does (`System` has no such
//! call; what lies in one extent is not copied); the memory of the counters; under asap, another
//! try where no extent was free.

use super::charges::{Charges, HANDLER};
use super::promote::parameter;
use crate::{
    Address, Answers, Background, Candidate, Costs, Definition, Event, Events, How, Made, Need, Refusal, Sample,
    SpaceId, System, Time, Values, Wants, Why,
};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;
use superpage_pages::{Ladder, Level, Vpn};

pub(super) static POLICY: Definition = Definition {
    name: "romer",
    paper: "Romer et al., Reducing TLB and memory overhead using online superpage promotion, ISCA 1995",
    help: "base pages, and superpages by copying once misses have paid for them",
    parameters: &[
        parameter("rule", Values::Words(&["online", "asap"]), "online", "promote when misses paid, or when full"),
        parameter("misses", Values::Count(1, 1 << 20), "", "that pay for a base page; not given: copy over penalty"),
        parameter("penalty", Values::TimeFrom(Duration::from_nanos(1)), "100ns", "what a miss costs"),
        HANDLER,
    ],
    needs: &[Need::Misses, Need::Copying],
    make: |given| {
        let (misses, penalty) = (given.number("misses"), given.time("penalty").as_nanos() as Time);
        let (asap, handler) = (given.word("rule") == "asap", given.number("handler").expect("it has a default"));
        Made::with(Answers::BASE, Romer { asap, handler, misses, penalty, ..Romer::default() })
    },
};

#[derive(Debug, Default)]
struct Romer {
    asap: bool,
    handler: u64,
    misses: Option<u64>,
    penalty: Time,
    /// The sizes, and what promotion to each costs in misses.
    prices: Option<(Ladder, Vec<u64>)>,
    charges: Charges,
    now: Time,
}

impl Romer {
    fn begin(&mut self, ladder: Ladder, costs: Option<Costs>) {
        let price = |level| match (self.misses, costs) {
            (None, Some(costs)) => (ladder.pages(level) * costs.copy + costs.shootdown).div_ceil(self.penalty).max(1),
            (misses, _) => ladder.pages(level) * misses.unwrap_or(16),
        };
        self.charges = Charges::default();
        self.prices = Some((ladder, ladder.levels().map(price).collect()));
    }
}

impl Background for Romer {
    fn next(&self) -> Option<Time> {
        (self.prices.is_none() || !self.charges.ready.is_empty()).then_some(self.now)
    }

    fn tick(&mut self, now: Time, system: &mut dyn System) {
        self.now = now;
        let ladder = *system.ladder();
        if self.prices.is_none() {
            self.begin(ladder, None);
        }
        for (space, first, number) in self.charges.take() {
            for level in ladder.levels().skip(first.index()) {
                let region = number * ladder.pages(first) / ladder.pages(level);
                let least = if self.asap { ladder.pages(level) as u32 } else { 1 };
                let sample = Sample { region, populated: least, superpage: false };
                let done = system.promote(space, level, &[Candidate { least, ..sample.into() }], How::Either).remove(0);
                // Under asap this may have filled a larger region. Page tables may lack a size
                // between.
                if !self.asap || !matches!(done, Ok(()) | Err(Refusal { why: Why::TooSmall, .. })) {
                    break;
                }
            }
        }
    }

    fn events(&self) -> Events {
        Events { faulted: self.asap, gone: true, ..Events::default() }
    }

    fn wants(&self) -> Wants {
        Wants { start: true, miss: !self.asap, unmapped: !self.asap, ..Wants::default() }
    }

    fn miss_cycles(&self) -> u64 {
        self.handler
    }

    fn faulted(&mut self, space: SpaceId, at: Vpn, mapped: Level) {
        if let Some((ladder, _)) = &self.prices
            && mapped < ladder.largest()
        {
            self.charges.ready.insert((space, mapped.up(), at.0 / ladder.pages(mapped.up())));
        }
    }

    fn notify(&mut self, event: Event) {
        match (event, &self.prices) {
            (Event::Start { ladder, costs }, _) => self.begin(ladder, costs),
            (Event::Miss { at: Address { space, at }, neighbour: Some(least), .. }, Some((ladder, prices))) => {
                for level in ladder.levels().skip(least.index()) {
                    self.charges.charge((space, level, at.0 / ladder.pages(level)), prices[level.index()]);
                }
            }
            (Event::Unmapped { space, range }, Some((ladder, _))) => self.charges.unmapped(ladder, space, range),
            _ => {}
        }
    }

    fn gone(&mut self, space: SpaceId) {
        self.charges.gone(space);
    }

    fn validate(&self) -> Result<(), String> {
        self.charges.validate(self.prices.as_ref().map_or(&[], |(_, prices)| prices))
    }
}
