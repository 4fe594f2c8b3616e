//! Preemption: a reservation loses its extent where that is wanted for something else (Navarro et
//! al., section 4.8).

use crate::frame::Frames;
use crate::object::population::NodeId;
use crate::policy::{Answers, Lists};

impl Frames {
    /// The reservation to be preempted for an extent of a level.
    pub(super) fn victim(&self, answers: &Answers, level: u8) -> Option<NodeId> {
        let mut lists = level..self.ladder.largest().0;
        match answers.scarce.lists {
            Lists::BySize => lists.find_map(|list| self.reservations.head(list)),
            Lists::One => lists
                .filter_map(|list| Some((self.reservations.age(list)?, self.reservations.head(list)?)))
                .min_by_key(|(age, _)| *age)
                .map(|(_, node)| node),
        }
    }

    /// Breaks the extent of a reservation, for another.
    pub(super) fn preempt(&mut self, answers: &Answers, node: NodeId) {
        self.stats.reservations_preempted += 1;
        self.break_extent(answers.scarce.pieces, node.level, node.slot);
    }
}
