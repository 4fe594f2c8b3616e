//! When the time is looked at, for the background of a policy and for samples by time: after traps,
//! after events, and at requests that the stream alone decides. How the stream is cut into blocks
//! changes nothing.

use super::Simulation;
use crate::Every;
use crate::host::Host;
use crate::stream::{Along, Asked, Place};

/// The time is looked at before each request whose number in the stream is a multiple of this.
const REQUESTS: u64 = 64;

/// It is also looked at before the first request after this many instructions: a run may have
/// millions.
const INSTRUCTIONS: u64 = 1 << 16;

/// Where the next look is.
#[derive(Default)]
pub(super) struct Looks {
    /// Requests of the stream before the current stretch.
    before: u64,
    /// The next look is before this request of the stream, or before the first one after these
    /// instructions.
    request: u64,
    instructions: u64,
    /// There is none before this request, as far as the current stretch is known.
    next: u64,
    /// The time for which that was found, in seconds.
    due: f64,
    /// Whether somebody goes by the time.
    pub(super) at_time: bool,
    /// How far the runs of the current stretch were gone through to find where samples are.
    ahead: Along,
}

impl Looks {
    pub(super) fn new(at_time: bool) -> Looks {
        Looks { at_time, ..Looks::default() }
    }

    /// A stretch begins.
    pub(super) fn begin(&mut self) {
        self.ahead = Along::default();
    }

    /// A stretch of `requests` requests ends.
    pub(super) fn end(&mut self, requests: usize) {
        self.before += requests as u64;
    }
}

impl Simulation {
    /// When a background of a policy is due next, on the policy's clock.
    pub(super) fn background_due(&self) -> Option<u64> {
        let host = self.kernel.host.as_ref().and_then(Host::due);
        self.kernel.work.due(&self.kernel.vm).into_iter().chain(host).min()
    }

    /// When the next background or sample is due, in seconds.
    fn due(&self) -> f64 {
        let scale = self.hardware.setup().time_scale;
        let due = self.background_due().map_or(f64::INFINITY, |due| scale.seconds(due));
        if let Some(Every::Seconds(_)) = self.noted.watch.every { due.min(self.record.due) } else { due }
    }

    /// Up to which request those from `at` on are made before somebody looks at the state. Does
    /// before what is due.
    #[inline]
    pub(super) fn next_look(&mut self, asked: Asked<'_>, at: usize) -> usize {
        let end = asked.requests.len();
        match asked.place {
            Some(place) if at < end && (self.looks.at_time || self.noted.watch.every.is_some()) => {
                self.look_before(place.later(at), end)
            }
            _ => end,
        }
    }

    fn look_before(&mut self, place: Place<'_>, end: usize) -> usize {
        let end = if self.looks.at_time { self.look_at_time(place, end) } else { end };
        if !matches!(self.noted.watch.every, Some(Every::Instructions(_))) {
            return end;
        }
        let before = self.clock.passed();
        loop {
            let due = (self.record.due as u64).saturating_sub(before);
            match place.request_after(due, usize::MAX, &mut self.looks.ahead) {
                Some(stop) if stop <= place.request => {
                    let instructions = before + self.looks.ahead.instructions;
                    self.clock.averages.reach_instructions(&self.kernel.vm, place, instructions);
                    self.sample_if_due();
                }
                stop => return stop.unwrap_or(end).min(end),
            }
        }
    }

    /// Looks at the time before the request at `place`, if there is a look, and returns up to which
    /// request those from it on are made before the next; at most `end`.
    fn look_at_time(&mut self, place: Place<'_>, end: usize) -> usize {
        let at = self.looks.before + place.request as u64;
        // What happened at a trap or an event may have changed what is due.
        let changed = self.due() != self.looks.due;
        if at >= self.looks.next || changed {
            let passed = self.clock.passed();
            let instructions = passed + place.instructions(&mut self.clock.averages.along);
            if at >= self.looks.request || instructions >= self.looks.instructions || changed {
                self.clock.averages.reach_instructions(&self.kernel.vm, place, instructions);
                self.run_due();
                self.looks.due = self.due();
                let (requests, more) = self.well_before(self.looks.due);
                self.looks.request = ((at + requests) / REQUESTS).max(at / REQUESTS + 1) * REQUESTS;
                self.looks.instructions = ((instructions + more) / INSTRUCTIONS + 1) * INSTRUCTIONS;
            }
            let most = end.min((self.looks.request - self.looks.before) as usize);
            let after = place.request_after(self.looks.instructions - passed, most, &mut { self.clock.averages.along });
            self.looks.next = self.looks.before + after.unwrap_or(most) as u64;
        }
        end.min((self.looks.next - self.looks.before) as usize)
    }

    /// How many requests, and how many instructions, take less than the time until then: looks
    /// among them are left out.
    fn well_before(&self, due: f64) -> (u64, u64) {
        let machine = &self.hardware.setup().machine;
        let left = ((due - self.seconds()) * machine.clock.hertz as f64).clamp(0.0, 1e18);
        // A request seldom waits for memory twice, and in a guest not ten times.
        let references = if machine.host.is_some() { 10 } else { 2 };
        let each = references * machine.memory.latency_cycles.max(512);
        ((left / each as f64) as u64, (left / 2.0 / machine.costs.cycles_per_instruction.max(1e-3)) as u64)
    }
}
