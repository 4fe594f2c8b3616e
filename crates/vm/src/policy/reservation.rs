//! `reservation`: the system of Navarro et al., as proposed.

use crate::{
    Answers, Cache, Close, Definition, Demoting, Made, Need, Place, Placing, Promote, Promoting, Reclaiming, Shortage,
    Wake, Wired,
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
    place: Placing { frames: Place::Reservation, ..Answers::BASE.place },
    promote: Promoting { when: Promote::FullPopulation, ..Answers::BASE.promote },
    scarce: Shortage { wake: Wake::Contiguity, ..Answers::BASE.scarce },
    demote: Demoting { on_write: true, speculate: 4, ..Answers::BASE.demote },
    reclaim: Reclaiming {
        cache: Cache::Available,
        close: Close::Inactive,
        wired: Wired::Cluster,
        ..Answers::BASE.reclaim
    },
    ..Answers::BASE
};
