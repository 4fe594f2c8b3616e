//! When the time is looked at, for the background of a policy and for samples by time: after traps,
//! after events, and at requests that the stream alone decides. How the stream is cut into blocks
//! changes nothing.

use crate::Every;
use crate::host::Host;
use crate::simulation::Simulation;
use crate::stream::Place;

/// The time is looked at before each request whose number in the stream is a multiple of this.
const REQUESTS: u64 = 64;

/// It is also looked at before the first request after this many instructions: a run may have
/// millions.
const INSTRUCTIONS: u64 = 1 << 16;

/// Where the next look is.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// Requests of the stream before the current stretch.
    before: u64,
    /// The next look is before this request of the stream, or before the first one after so many
    /// instructions.
    request: u64,
    instructions: u64,
    /// There is none before this request, as far as the current stretch is known.
    next: u64,
    /// The time for which that was found, in seconds.
    due: f64,
}

impl Looks {
    /// A stretch of so many requests ends.
    pub(crate) fn end(&mut self, requests: usize) {
        self.before += requests as u64;
    }
}

impl Simulation {
    /// When the next background or sample is due, in seconds.
    fn due(&self) -> f64 {
        let policy = self.vm.due().map(|due| due.max(self.work.background_free));
        let host = self.host.as_ref().and_then(Host::due);
        let due =
            policy.into_iter().chain(host).map(|due| self.setup.time_scale.seconds(due)).fold(f64::INFINITY, f64::min);
        if let Some(Every::Seconds(_)) = self.record.watch.every { due.min(self.record.due) } else { due }
    }

    /// Looks at the time before the request at `place`, if there is a look, and returns up to which
    /// request those from it on are made before the next; at most `end`.
    pub(crate) fn look_at_time(&mut self, place: Place<'_>, end: usize) -> usize {
        let at = self.looks.before + place.request as u64;
        // What happened at a trap or an event may have changed what is due.
        let changed = self.due() != self.looks.due;
        if at >= self.looks.next || changed {
            let passed = self.passed();
            let instructions = passed + place.instructions(&mut self.along);
            if at >= self.looks.request || instructions >= self.looks.instructions || changed {
                self.reach_instructions(place, instructions);
                self.run_due();
                self.looks.due = self.due();
                let (requests, more) = self.well_before(self.looks.due);
                self.looks.request = ((at + requests) / REQUESTS).max(at / REQUESTS + 1) * REQUESTS;
                self.looks.instructions = ((instructions + more) / INSTRUCTIONS + 1) * INSTRUCTIONS;
            }
            let most = end.min((self.looks.request - self.looks.before) as usize);
            let after = place.request_after(self.looks.instructions - passed, most, &mut { self.along });
            self.looks.next = self.looks.before + after.unwrap_or(most) as u64;
        }
        end.min((self.looks.next - self.looks.before) as usize)
    }

    /// How many requests, and how many instructions, take less than the time until then: looks
    /// among them are left out.
    fn well_before(&self, due: f64) -> (u64, u64) {
        let (member, machine) = (self.only(), &self.setup.machine);
        let left = ((due - self.seconds(member)) * machine.clock.hertz as f64).clamp(0.0, 1e18);
        // A request seldom waits for memory twice, and in a guest not ten times.
        let references = if machine.host.is_some() { 10 } else { 2 };
        let each = references * machine.memory.latency_cycles.max(512);
        ((left / each as f64) as u64, (left / 2.0 / machine.costs.cycles_per_instruction.max(1e-3)) as u64)
    }
}
