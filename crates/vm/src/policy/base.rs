//! `base`: the baseline that every comparison names.

use super::{
    Accessed, Answers, Cache, Close, Definition, Demote, Demoting, Dirty, Fit, Hash, Hints, Lists, Made, PastEnd,
    Pieces, Place, Placing, Populating, Promote, Promoting, Reclaim, Reclaiming, Reserve, Resident, Scarce, Shortage,
    Stacks, Unmovable, Wake, Wired, ZeroPage,
};

pub(super) static POLICY: Definition = Definition {
    name: "base",
    paper: "FreeBSD 4.3, the unmodified system of Navarro et al., OSDI 2002, section 6.3",
    help: "only base pages",
    parameters: &[],
    needs: &[],
    make: |_| Made::answers(ANSWERS),
};

/// Nothing is reserved; answers that only concern reservations are those of the paper.
pub(super) const ANSWERS: Answers = Answers {
    place: Placing {
        frames: Place::BasePage,
        size: Reserve::Preferred,
        hinted: None,
        growing_limit: true,
        past_end: PastEnd::Growing,
        hints: Hints::Ignored,
        stacks: Stacks::Any,
        colours: 0,
        fit: Fit::First,
        pool: None,
        zero_page: ZeroPage::Off,
    },
    populate: Populating { threshold: 8, around: 1, resident: Resident::Page },
    promote: Promoting { when: Promote::Never, dirty: Dirty::Files, accessed: Accessed::Any, text: false },
    scarce: Shortage { then: Scarce::Preempt, pieces: Pieces::Keep, lists: Lists::BySize, wake: Wake::Memory },
    demote: Demoting {
        steps: Demote::Stepwise,
        on_unmap: true,
        on_evict: true,
        on_move: false,
        on_write: false,
        speculate: 0,
        deferred: false,
        underused: None,
    },
    reclaim: Reclaiming {
        pages: Reclaim::Lru,
        cache: Cache::Held,
        close: Close::Keep,
        wired: Wired::Scatter,
        unmovable: Unmovable::Anywhere,
        aim: 2,
        hash: Hash::Off,
    },
};
