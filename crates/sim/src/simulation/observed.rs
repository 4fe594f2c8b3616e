//! What an observer sees of a simulation.

use super::Simulation;
use crate::Seen;
use crate::error::Problem;
use crate::observe::Observed;
use std::sync::atomic::AtomicBool;
use superpage_trace::Event;

impl Simulation {
    /// Handles an event, before the eyes of an observer if there is one. What concerns a process
    /// that was killed does not happen.
    pub(super) fn observed_event(&mut self, event: &Event, stop: &AtomicBool) -> Result<(), Problem> {
        let space = self.kernel.processes.space;
        if !self.kernel.processes.dead {
            self.hardware.unseen.push(space, || Seen::Stream(event.clone()));
        }
        let before = self.hardware.unseen.len();
        let handled = self.event(event, stop);
        if matches!(event, Event::Remap { .. }) {
            self.hardware.unseen.forget_entered(before);
        }
        self.show();
        handled
    }

    /// Shows an observer what has happened since the last call.
    #[inline]
    pub(super) fn show(&mut self) {
        if self.hardware.unseen.len() > 0 {
            self.show_all();
        }
    }

    #[cold]
    fn show_all(&mut self) {
        let seconds = self.at_moment(Simulation::seconds);
        let unseen = self.hardware.unseen.take();
        if let Some(Observed(observer)) = &self.hardware.setup().observed {
            unseen.iter().for_each(|(space, seen)| observer.see(seconds, *space, seen));
        }
    }
}
