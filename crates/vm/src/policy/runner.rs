//! Runs a background within a budget of processor time.

use super::budget::Budget;
use crate::{Background, Event, Events, Refusal, SpaceId, System, Time, Wants, Why};
use alloc::boxed::Box;
use alloc::string::String;
use core::time::Duration;
use superpage_pages::{Level, Vpn};

/// A background that is called only while it has processor time left: a share of one core, of which
/// some may be saved up. What one call used beyond that is waited for before the next, and as much
/// as the last call used, scans too, is saved up before it. A call itself is not cut off: a target
/// may refuse promotions in it ([`Why::Budget`](crate::Why::Budget)).
#[derive(Debug)]
pub struct Runner {
    background: Box<dyn Background>,
    budget: Budget,
    /// The part of the time spent that has been charged.
    charged: Time,
    /// Until when nothing is left.
    rest: Time,
}

impl Runner {
    /// Runs `background` with `share` of one core, above 0, of which up to `burst` may be saved up.
    pub fn new(background: Box<dyn Background>, share: f64, burst: Duration) -> Runner {
        Runner { background, budget: Budget::new(share, burst), charged: 0, rest: 0 }
    }

    /// Takes from the budget what was used since the last call, and returns it. On a machine whose
    /// clock stands still while it works, that is known only later.
    fn charge(&mut self, system: &dyn System) -> Duration {
        let used = Duration::from_nanos(system.spent().saturating_sub(self.charged));
        self.charged = system.spent();
        self.budget.spend(used);
        used
    }
}

impl Background for Runner {
    fn next(&self) -> Option<Time> {
        self.background.next().map(|next| next.max(self.rest))
    }

    fn tick(&mut self, now: Time, system: &mut dyn System) {
        self.charge(system);
        let mut at = now;
        if self.budget.wait(Duration::from_nanos(now)).is_zero() {
            self.background.tick(now, system);
            let used = self.charge(system);
            if !used.is_zero() {
                self.budget.expect(used);
            }
            at = system.now().max(now);
        }
        let wait = self.budget.wait(Duration::from_nanos(at));
        let wait = Time::try_from(wait.as_nanos()).unwrap_or(Time::MAX);
        self.rest = at.saturating_add(wait).max(now.saturating_add(1));
    }

    fn events(&self) -> Events {
        self.background.events()
    }

    fn faulted(&mut self, space: SpaceId, at: Vpn, mapped: Level) {
        self.background.faulted(space, at, mapped);
    }

    fn missed(&mut self, space: SpaceId, at: Vpn, mapped: Level) {
        self.background.missed(space, at, mapped);
    }

    fn miss_cycles(&self) -> u64 {
        self.background.miss_cycles()
    }

    fn wants(&self) -> Wants {
        self.background.wants()
    }

    fn notify(&mut self, event: Event) {
        self.background.notify(event);
    }

    fn gone(&mut self, space: SpaceId) {
        self.background.gone(space);
    }

    fn waits(&self, now: Time) -> Option<Refusal> {
        let due = self.background.next().is_some_and(|next| next <= now);
        let rests = due && now < self.rest;
        if rests { Some(Refusal { why: Why::Budget, until: self.rest }) } else { self.background.waits(now) }
    }

    fn failed(&self) -> Option<String> {
        self.background.failed()
    }

    fn result(&self) -> Result<Option<String>, String> {
        self.background.result()
    }

    fn validate(&self) -> Result<(), String> {
        self.background.validate()
    }
}
