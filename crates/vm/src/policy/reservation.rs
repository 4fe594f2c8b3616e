//! `reservation`: the system of Navarro et al., as proposed.

use super::{
    Answers, Cache, Close, Definition, Demoting, Made, Need, Place, Placing, Promote, Promoting, Reclaiming, Shortage,
    Wake, Wired, base,
};

pub(super) static POLICY: Definition = Definition {
    name: "reservation",
    paper: "Navarro et al., Practical, transparent operating system support for superpages, OSDI 2002, sections 4 and 5",
    help: "reservations, promoted in steps when full (Navarro et al., OSDI 2002)",
    parameters: &[],
    needs: &[Need::Faults],
    make: |_| Made::answers(ANSWERS),
};

pub(super) const ANSWERS: Answers = Answers {
    place: Placing { frames: Place::Reservation, ..base::ANSWERS.place },
    promote: Promoting { when: Promote::FullPopulation, ..base::ANSWERS.promote },
    scarce: Shortage { wake: Wake::Contiguity, ..base::ANSWERS.scarce },
    demote: Demoting { on_write: true, speculate: 4, ..base::ANSWERS.demote },
    reclaim: Reclaiming {
        cache: Cache::Available,
        close: Close::Inactive,
        wired: Wired::Cluster,
        ..base::ANSWERS.reclaim
    },
    ..base::ANSWERS
};
