//! Averages over time: what is resident, touched and mapped, weighted by the instructions for which
//! it stays so.
//!
//! The kernel changes it at traps and at events, and both are at an instruction that is known,
//! within a piece of the stream too. What programs have touched changes at accesses that are known
//! before anything runs ([`Touch`]).

use crate::simulation::Simulation;
use crate::stream::{Place, Touch};
use superpage_pages::Level;

/// Sums over instructions, in base pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    resident: u128,
    touched: u128,
    mapped: u128,
    /// By superpages.
    huge: u128,
}

/// The sums so far, and where they end.
#[derive(Debug, Default)]
pub(crate) struct Averages {
    pub(crate) sums: Sums,
    /// Instructions up to here.
    pub(crate) at: u64,
    /// Pages that are touched, since that many instructions.
    pub(crate) touched: u64,
    touched_at: u64,
    /// The first touch of the current stretch that has not been passed.
    next: usize,
}

impl Sums {
    pub(crate) fn since(&self, before: &Sums) -> Sums {
        Sums {
            resident: self.resident - before.resident,
            touched: self.touched - before.touched,
            mapped: self.mapped - before.mapped,
            huge: self.huge - before.huge,
        }
    }

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
    /// A stretch begins, before which so many pages are touched.
    pub(crate) fn begin(&mut self, touched: u64) {
        (self.touched, self.next) = (touched, 0);
    }

    /// Passes the touches of the stretch that `passes` says, of which the stretch began after
    /// `before` instructions.
    fn touch(&mut self, touches: &[Touch], before: u64, passes: impl Fn(&Touch) -> bool) {
        let waiting = touches.get(self.next..).unwrap_or_default();
        for touch in waiting.iter().take_while(|touch| passes(touch)) {
            self.touch_at(before + touch.instructions);
            self.touched += 1;
            self.next += 1;
        }
    }

    fn touch_at(&mut self, now: u64) {
        self.sums.touched += u128::from(self.touched) * u128::from(now.saturating_sub(self.touched_at));
        self.touched_at = self.touched_at.max(now);
    }
}

impl Simulation {
    /// A trap at this place: all has stayed as it is until now.
    #[inline]
    pub(crate) fn reach(&mut self, place: Place<'_>) {
        let touches = place.touches();
        match touches.get(self.averages.next) {
            // Most faults are at a first touch.
            Some(touch) if touch.request == place.request => {
                self.pass(self.passed() + touch.instructions);
                self.averages.touched += 1;
                self.averages.next += 1;
            }
            _ => self.reach_later(place),
        }
    }

    /// The same where the next touch is not this request, or there is none.
    #[inline(never)]
    fn reach_later(&mut self, place: Place<'_>) {
        let (before, touches) = (self.passed(), place.touches());
        self.averages.touch(touches, before, |touch| touch.request < place.request);
        let known = touches.get(self.averages.next).filter(|touch| touch.request == place.request);
        let within = known.map_or_else(|| place.instructions(&mut self.along), |touch| touch.instructions);
        self.pass(before + within);
        self.averages.touch(touches, before, |touch| touch.request == place.request);
    }

    /// The requests before this place have been made, and so many instructions.
    pub(crate) fn reach_instructions(&mut self, place: Place<'_>, instructions: u64) {
        self.averages.touch(place.touches(), self.passed(), |touch| touch.request < place.request);
        self.pass(instructions);
    }

    /// The stretch at this place is over, or this request cannot be made.
    pub(crate) fn reach_end(&mut self, place: Place<'_>, before: u64) {
        self.averages.touch(place.touches(), before, |touch| touch.request < place.request);
        self.pass(self.passed());
    }

    /// All has stayed as it is up to this number of instructions.
    #[inline]
    pub(crate) fn pass(&mut self, now: u64) {
        let averages = &mut self.averages;
        let spent = u128::from(now.saturating_sub(averages.at));
        if spent == 0 {
            return;
        }
        let (stats, ladder) = (self.vm.counts(), &self.setup.ladder);
        let superpages = ladder.levels().skip(1).map(|level| stats.mapped[level.index()] << ladder.order(level));
        let (base, huge) = (stats.mapped[Level::BASE.index()], superpages.sum::<u64>());
        averages.sums.resident += u128::from(stats.resident_pages) * spent;
        averages.sums.mapped += u128::from(base + huge) * spent;
        averages.sums.huge += u128::from(huge) * spent;
        averages.touch_at(now);
        averages.at = now;
    }
}
