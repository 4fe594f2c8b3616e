//! Averages over time: what is resident, touched and mapped, weighted by the instructions for which
//! it stays so.
//!
//! The kernel changes it at traps and at events, and both are at an instruction that is known,
//! within a piece of the stream too. What programs have touched changes at accesses that are known
//! before anything runs ([`FirstTouch`]).

use crate::stream::{Along, FirstTouch, Place};
use superpage_keys::Counts;
use superpage_pages::Level;
use superpage_vm::Vm;

/// Base pages, integrated over instructions.
#[derive(Clone, Copy, Debug, Default, Counts)]
pub(crate) struct Integrals {
    resident: u128,
    touched: u128,
    mapped: u128,
    /// By superpages.
    huge: u128,
}

/// The integrals so far, and where they end.
#[derive(Default)]
pub(crate) struct Averages {
    pub(crate) integrals: Integrals,
    /// Instructions up to here.
    pub(crate) at: u64,
    /// Pages that are touched, since that many instructions.
    pub(crate) touched: u64,
    touched_at: u64,
    /// The first touch of the current stretch that has not been passed.
    next: usize,
    /// Instructions before the current stretch.
    before: u64,
    /// How far its runs were gone through to find where traps are.
    pub(crate) along: Along,
}

impl Integrals {
    /// How much more was resident than touched on average, in percent; `None` if nothing was
    /// touched for an instruction.
    pub(crate) fn bloat_percent(&self) -> Option<f64> {
        (self.touched > 0).then(|| 100.0 * (self.resident as f64 / self.touched as f64 - 1.0))
    }

    /// The share of mapped memory that superpages mapped on average, in percent; `None` if nothing
    /// was mapped for an instruction.
    pub(crate) fn huge_percent(&self) -> Option<f64> {
        (self.mapped > 0).then(|| 100.0 * self.huge as f64 / self.mapped as f64)
    }
}

impl Averages {
    /// A stretch begins, before which `touched` pages are touched, and after `before` instructions.
    pub(crate) fn begin(&mut self, touched: u64, before: u64) {
        (self.touched, self.next, self.before, self.along) = (touched, 0, before, Along::default());
    }

    /// Passes the touches of the stretch that `passes` says.
    fn touch(&mut self, touches: &[FirstTouch], passes: impl Fn(&FirstTouch) -> bool) {
        let waiting = touches.get(self.next..).unwrap_or_default();
        for touch in waiting.iter().take_while(|touch| passes(touch)) {
            self.touch_at(self.before + touch.instructions);
            self.touched += 1;
            self.next += 1;
        }
    }

    fn touch_at(&mut self, now: u64) {
        self.integrals.touched += u128::from(self.touched) * u128::from(now.saturating_sub(self.touched_at));
        self.touched_at = self.touched_at.max(now);
    }

    /// A trap at this place: all has stayed as it is until now.
    #[inline]
    pub(crate) fn reach(&mut self, vm: &Vm, place: Place<'_>) {
        let touches = place.touches();
        match touches.get(self.next) {
            // Most faults are at a first touch.
            Some(touch) if touch.request == place.request => {
                self.pass(vm, self.before + touch.instructions);
                self.touched += 1;
                self.next += 1;
            }
            _ => self.reach_later(vm, place),
        }
    }

    /// As `reach`, where the next touch is not this request, or there is none.
    #[inline(never)]
    fn reach_later(&mut self, vm: &Vm, place: Place<'_>) {
        let (before, touches) = (self.before, place.touches());
        self.touch(touches, |touch| touch.request < place.request);
        let known = touches.get(self.next).filter(|touch| touch.request == place.request);
        let within = known.map_or_else(|| place.instructions(&mut self.along), |touch| touch.instructions);
        self.pass(vm, before + within);
        self.touch(touches, |touch| touch.request == place.request);
    }

    /// The requests before this place have been made, and `instructions` have run.
    pub(crate) fn reach_instructions(&mut self, vm: &Vm, place: Place<'_>, instructions: u64) {
        self.touch(place.touches(), |touch| touch.request < place.request);
        self.pass(vm, instructions);
    }

    /// The stretch at this place is over, or this request cannot be made, at this instruction.
    pub(crate) fn reach_end(&mut self, vm: &Vm, place: Place<'_>, now: u64) {
        self.touch(place.touches(), |touch| touch.request < place.request);
        self.pass(vm, now);
    }

    /// All has stayed as it is up to this number of instructions.
    #[inline]
    fn pass(&mut self, vm: &Vm, now: u64) {
        let spent = u128::from(now.saturating_sub(self.at));
        if spent == 0 {
            return;
        }
        let (stats, ladder) = (vm.counts(), vm.ladder());
        let superpages = ladder.levels().skip(1).map(|level| stats.mapped[level.index()] << ladder.order(level));
        let (base, huge) = (stats.mapped[Level::BASE.index()], superpages.sum::<u64>());
        self.integrals.resident += u128::from(stats.resident_pages) * spent;
        self.integrals.mapped += u128::from(base + huge) * spent;
        self.integrals.huge += u128::from(huge) * spent;
        self.touch_at(now);
        self.at = now;
    }
}
