//! Reservations of one superpage size, the smallest of the ladder. Once half of one is populated
//! (the share is assumed), the rest is prepopulated and it is promoted. Reservations are preempted.

use super::reservation;
use crate::{Answers, Definition, Made, Need, Placing, Populating, Reserve};

pub(super) static POLICY: Definition = Definition {
    name: "talluri-hill",
    paper: "Talluri and Hill, Surpassing the TLB performance of superpages with less operating system support, ASPLOS 1994",
    help: "Talluri and Hill: one superpage size, promotion at half population, preemption",
    parameters: &[],
    needs: &[Need::Faults],
    make: |_| Made::answers(ANSWERS),
};

const ANSWERS: Answers = Answers {
    place: Placing { size: Reserve::Smallest, ..reservation::ANSWERS.place },
    populate: Populating { threshold: 4, ..Answers::BASE.populate },
    promote: reservation::ANSWERS.promote,
    ..Answers::BASE
};
