//! Which extent a fault or the kernel gets: of the preferred size or smaller, free or taken from a
//! reservation.

use crate::frame::{Allocated, Frames};
use crate::object::PageOf;
use crate::policy::{Answers, Scarce};
use crate::queue::pages::List;
use superpage_pages::{Extent, Level};

impl Frames {
    /// Allocates an extent. For each size from the preferred one down it tries, in the order of
    /// section 4.8, the buddy allocator, the reservation list of that size, and those of larger
    /// sizes. Also returns how many reservations were preempted. `page`: the number of the page
    /// that it is for, whose colour a base page should have; `None` for the kernel's own.
    pub(super) fn allocate(&mut self, answers: &Answers, preferred: Level, page: Option<u64>) -> Option<Allocated> {
        let mut preempted = 0;
        if preferred > Level::BASE {
            self.stats.contiguity_requests += 1;
        }
        for level in (0..=preferred.0).rev() {
            if level > 0 && !answers.place.size.allows(&self.ladder, Level(level)) {
                continue;
            }
            loop {
                // What is filled as a whole is best full of zeroes.
                let ready = if level > 0 && answers.takes_extents() { self.zeroed.find(Level(level)) } else { None };
                let extent = match ready {
                    Some(extent) if self.buddy.allocate_at(extent) => Some(extent),
                    _ => match page {
                        Some(page) if level == 0 && self.buddy.colours() > 0 => self.allocate_coloured(page),
                        _ => self.buddy.allocate(Level(level)),
                    },
                };
                if let Some(extent) = extent {
                    let zeroed = self.zeroed.claim(&self.ladder, extent);
                    return Some(Allocated { extent, preempted, zeroed });
                }
                if level == 0 && self.split_oldest() {
                    continue;
                }
                if level == 0
                    && let Some(frame) = self.free_held()
                {
                    // Its frame may be reserved now, with other cache pages that can stay.
                    while let Some(node) = self.covering(frame) {
                        self.preempt(answers, node);
                        preempted += 1;
                    }
                    continue;
                }
                if level > 0 && answers.scarce.then != Scarce::Preempt {
                    break;
                }
                // One piece of the reservation has the extent. If that is more than one level down,
                // the pieces are at the head of the same list now, and the next of them is broken
                // in turn.
                let Some(node) = self.victim(answers, level) else { break };
                self.preempt(answers, node);
                preempted += 1;
            }
            if level == preferred.0 && level > 0 {
                self.stats.contiguity_failed += 1;
                self.wanted[level as usize] += 1;
                self.wants = true;
            }
        }
        self.starved = true;
        None
    }

    /// Allocates a base page of the colour of this page, or else any. A frame of the colour is not
    /// worth a cache page or a reservation.
    fn allocate_coloured(&mut self, page: u64) -> Option<Extent> {
        let extent = self.buddy.allocate_coloured(page).or_else(|| self.buddy.allocate(Level::BASE))?;
        // One that is taken because there is no other may have it too: the oldest cache page's.
        let same = (extent.start.0 ^ page) & (self.buddy.colours() - 1) == 0;
        let stats = &mut self.stats;
        *if same { &mut stats.coloured_pages } else { &mut stats.uncoloured_pages } += 1;
        Some(extent)
    }

    /// Frees the oldest cache page that holds its frame, if there is one, and returns the frame.
    fn free_held(&mut self) -> Option<u32> {
        let oldest = self.pages.as_ref().and_then(|pages| pages.head(List::Cache))?;
        let PageOf { object, index } = self.page_of(oldest)?;
        let before = self.stats.resident_pages;
        self.split_at(oldest);
        self.unpopulate(object, index, index + 1);
        debug_assert!(self.stats.resident_pages < before, "a cache page that holds its frame is populated");
        Some(oldest)
    }
}
