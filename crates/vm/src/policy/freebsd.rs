//! What the design of Navarro et al. became in production. Reservations of 2 MB, on arm64 also of
//! 64 KB (Solomon 2024), smaller superpages made inside them, one queue of partially populated
//! ones; a broken reservation frees all its unused frames at once. Cache pages, the
//! contiguity-aware daemon, and speculative and stepwise demotion were dropped.

use super::reservation;
use crate::{
    Answers, Cache, Definition, Demote, Demoting, Lists, Made, Need, PastEnd, Pieces, Placing, Populating, Reclaiming,
    Reserve, Resident, Scarce, Shortage, Wired,
};

pub(super) static POLICY: Definition = Definition {
    name: "freebsd",
    paper: "vm_reserv.c of FreeBSD, versions 10 to 14",
    help: "what that design became in FreeBSD: reservations of 2 MB and 64 KB, one queue, no cache pages, a plain daemon",
    parameters: &[],
    needs: &[Need::Faults],
    make: |_| Made::answers(ANSWERS),
};

pub(super) const ANSWERS: Answers = Answers {
    place: Placing {
        size: Reserve::Tables,
        growing_limit: false,
        past_end: PastEnd::Anonymous,
        ..reservation::ANSWERS.place
    },
    populate: Populating { resident: Resident::Extent, ..Answers::BASE.populate },
    promote: reservation::ANSWERS.promote,
    scarce: Shortage { then: Scarce::Smaller, pieces: Pieces::Free, lists: Lists::One, ..Answers::BASE.scarce },
    demote: Demoting { steps: Demote::ToBase, on_unmap: false, on_write: true, ..Answers::BASE.demote },
    reclaim: Reclaiming { cache: Cache::Free, wired: Wired::Cluster, ..Answers::BASE.reclaim },
};
