//! Linux's transparent huge pages with `enabled` at `always`: at the first touch of an aligned 2 MB (the largest size
//! up to that) of anonymous memory that lies wholly in its mapping, all of it is allocated, zeroed and mapped at once;
//! otherwise a base page. Not modelled: khugepaged, which collapses base pages later; compaction at a fault; huge pages
//! of files; the shared huge page of zeroes.

use super::{
    Answers, Cache, Definition, Demote, Demoting, Dirty, Made, Need, Parameter, PastEnd, Place, Placing, Promote,
    Promoting, Reclaiming, Reserve, SWITCH, Scarce, Shortage, Values, base,
};

pub(super) static POLICY: Definition = Definition {
    name: "thp",
    paper: "Linux 6.8, Documentation/admin-guide/mm/transhuge.rst; mm/huge_memory.c",
    help: "Linux: all of an aligned 2 MB at its first touch (live: a setting of the whole system)",
    parameters: &[Parameter {
        name: "malloc",
        values: Values::Words(SWITCH),
        default: "off",
        help: "only where the C library's allocator asks for them, for the command alone",
        needs: &[Need::Settings],
    }],
    needs: &[],
    make: |_| Made::answers(ANSWERS),
};

pub(super) const ANSWERS: Answers = Answers {
    place: Placing { frames: Place::Extent, size: Reserve::Huge, growing_limit: false, past_end: PastEnd::Never },
    promote: Promoting { when: Promote::FullPopulation, dirty: Dirty::Nowhere },
    scarce: Shortage { then: Scarce::Smaller, ..base::ANSWERS.scarce },
    demote: Demoting { steps: Demote::ToBase, on_unmap: false, ..base::ANSWERS.demote },
    reclaim: Reclaiming { cache: Cache::Free, ..base::ANSWERS.reclaim },
    ..base::ANSWERS
};
