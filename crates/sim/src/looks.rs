//! When the time is looked at, for the background of a policy and for samples by time: after traps, after events, and
//! at requests that the stream alone decides. So how it is cut into blocks changes nothing.

use crate::requests::Place;
use crate::simulation::Simulation;

/// Before each so manieth request of the stream.
const REQUESTS: u64 = 64;

/// And before the first request after each so many instructions: a run may have millions.
const INSTRUCTIONS: u64 = 1 << 16;

/// Where the next look is.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// Requests of the stream before the current stretch.
    before: u64,
    /// The first request before which there may be a look, of the whole stream.
    next: u64,
    /// From so many instructions on there is one.
    instructions: u64,
}

impl Looks {
    /// A stretch with so many requests is over.
    pub(crate) fn end(&mut self, requests: usize) {
        self.before += requests as u64;
    }
}

impl Simulation {
    /// Looks at the time before the request at `place`, if there is a look, and returns up to which request those
    /// from it on are made before the next; at most `end`.
    pub(crate) fn look_at_time(&mut self, place: Place<'_>, end: usize) -> usize {
        let at = self.looks.before + place.request as u64;
        if at >= self.looks.next {
            let passed = self.passed();
            let instructions = passed + place.instructions(&mut self.along);
            if at.is_multiple_of(REQUESTS) || instructions >= self.looks.instructions {
                self.looks.instructions = (instructions / INSTRUCTIONS + 1) * INSTRUCTIONS;
                self.reach_instructions(place, instructions);
                self.run_due();
            }
            let most = end.min(place.request + (REQUESTS - at % REQUESTS) as usize);
            let next = place.request_after(self.looks.instructions - passed, most, &mut { self.along });
            self.looks.next = self.looks.before + next.unwrap_or(most) as u64;
        }
        end.min((self.looks.next - self.looks.before) as usize)
    }
}
