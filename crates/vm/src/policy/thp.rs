//! Linux's transparent huge pages: at the first touch of an aligned 2 MB (the largest size up to
//! that) of anonymous memory that lies wholly in its mapping, all of it is allocated, zeroed and
//! mapped at once; otherwise a base page. With `enabled` at `madvise` only if the program asks for
//! huge pages there, and never if it asks for base pages.
//!
//! `defrag` says what happens where no 2 MB is free, by what the program asks for:
//!
//! | `defrag` | elsewhere | where it asks for huge pages |
//! | --- | --- | --- |
//! | `always` | the fault compacts | the fault compacts |
//! | `defer` | kcompactd compacts afterwards | kcompactd compacts afterwards |
//! | `defer+madvise` | kcompactd compacts afterwards | the fault compacts |
//! | `madvise` | nothing | the fault compacts |
//! | `never` | nothing | nothing |
//!
//! With `khugepaged=on` a thread collapses base pages later, with the parameters of the policy of
//! that name.
//!
//! A huge page of which a part is unmapped keeps the frames until memory is short
//! (`deferred-split`, of every policy; here it is on). With `underused=on` (Linux 6.12) huge pages
//! with more than `max-none` pages of zeroes lose them then; at the default of 511 none does, as in
//! Linux. Where memory is short a huge page goes to swap space whole (`demote-on-evict=off`, since
//! 4.13), and comes back page by page. With `zero-page=huge`, also of every policy, reads of memory
//! that was never written map the huge page of zeroes, as in Linux; here it is off.
//!
//! Not modelled: eviction for a huge page, by the fault (`always`, `madvise`) or kswapd (`defer`);
//! further tries of a fault that is allowed to retry; large folios of files, which file systems
//! with them read ahead; huge pages at first touches in memory that a living parent or child
//! shares, which take base pages here.

use super::kcompactd::Kcompactd;
use super::khugepaged::{self, Khugepaged};
use super::parameter::SWITCH;
use super::promote::{huge, parameter as own};
use crate::{
    Answers, Background, Cache, Definition, Demote, Demoting, Dirty, Event, Fit, Given, Hints, Made, Need, Parameter,
    PastEnd, Place, Placing, Promote, Promoting, Reclaiming, Reserve, Scarce, Shortage, Stacks, System, Time, Values,
    Wants, ZeroPage,
};

/// One that only a system with settings has.
const fn live(name: &'static str, values: Values, default: &'static str, help: &'static str) -> Parameter {
    Parameter { needs: &[Need::Settings], ..own(name, values, default, help) }
}

pub(super) static POLICY: Definition = Definition {
    name: "thp",
    paper: "Linux 6.8, Documentation/admin-guide/mm/transhuge.rst; mm/huge_memory.c",
    help: "Linux: all of an aligned 2 MB at its first touch (live: a setting of the whole system)",
    parameters: &[
        ENABLED,
        DEFRAG,
        live(
            "malloc",
            Values::Words(SWITCH),
            "off",
            "only where the C library's allocator asks for them, for the command alone",
        ),
        live(
            "shared",
            Values::Words(SWITCH),
            "off",
            "shared memory too, all that is mapped at once (shmem_enabled=within_size)",
        ),
        simulated(own("khugepaged", Values::Words(SWITCH), "off", "regions are collapsed later, a few every 10 s")),
        simulated(khugepaged::PAGES),
        simulated(khugepaged::INTERVAL),
        simulated(khugepaged::ALLOC_SLEEP),
        simulated(khugepaged::MAX_NONE),
        simulated(khugepaged::MAX_SWAP),
        simulated(khugepaged::MAX_SHARED),
        khugepaged::COMPACT,
        Parameter {
            needs: &[Need::Faults, Need::Contents],
            ..own(
                "underused",
                Values::Words(SWITCH),
                "off",
                "huge pages with more than max-none pages of zeroes lose them if memory is short (shrink_underused)",
            )
        },
    ],
    needs: &[],
    make: |given| {
        let (answers, most) = (answers(given), given.number("max-none").expect("it has a default"));
        // As the kernel: at its default, all of a huge page but one may be empty, and nothing is
        // looked at.
        let underused = Some(most as u32).filter(|most| given.is_on("underused") && *most != khugepaged::MOST_NONE);
        let answers = Answers { demote: Demoting { underused, ..answers.demote }, ..answers };
        made(given, answers, given.is_on("khugepaged").then(|| Khugepaged::of(given)))
    },
};

/// A parameter that a live Linux does not have: `thp` only sets what its kernel does.
pub(super) const fn simulated(parameter: Parameter) -> Parameter {
    Parameter { needs: &[Need::Faults], ..parameter }
}

/// As the file in Linux's sysfs.
pub(super) const ENABLED: Parameter = simulated(own(
    "enabled",
    Values::Words(&["always", "madvise"]),
    "always",
    "wherever the program does not ask for base pages, or only where it asks for huge ones (madvise)",
));

/// As the file in Linux's sysfs.
pub(super) const DEFRAG: Parameter = simulated(own(
    "defrag",
    Values::Words(&["always", "defer", "defer+madvise", "madvise", "never"]),
    "madvise",
    "where no huge page is free: a fault compacts, or a thread afterwards (defer); madvise: a fault where asked",
));

/// The policy with these answers, [`DEFRAG`] as it was given (`vma_thp_gfp_mask` in
/// mm/huge_memory.c), and this thread.
pub(super) fn made(given: &Given, answers: Answers, khugepaged: Option<Khugepaged>) -> Made {
    let (then, kcompactd) = match given.word("defrag") {
        "always" => (Scarce::Compact, None),
        "defer" => (Scarce::Smaller, Some(Kcompactd::for_all(true))),
        "defer+madvise" => (Scarce::CompactAdvised, Some(Kcompactd::for_all(false))),
        "madvise" => (Scarce::CompactAdvised, None),
        _ => (Scarce::Smaller, None),
    };
    let answers = Answers { scarce: Shortage { then, ..answers.scarce }, ..answers };
    match (kcompactd, khugepaged) {
        (None, None) => Made::answers(answers),
        (kcompactd, khugepaged) => Made::with(answers, Threads { kcompactd, khugepaged }),
    }
}

/// The threads of the kernel.
#[derive(Debug)]
struct Threads {
    kcompactd: Option<Kcompactd>,
    khugepaged: Option<Khugepaged>,
}

impl Background for Threads {
    fn next(&self) -> Option<Time> {
        let woken = self.kcompactd.as_ref().filter(|kcompactd| kcompactd.is_woken()).map(|_| 0);
        let due = self.khugepaged.as_ref().map(|khugepaged| khugepaged.next);
        woken.into_iter().chain(due).min()
    }

    fn wants(&self) -> Wants {
        Wants { starved: self.kcompactd.is_some(), accessed: self.khugepaged.is_some(), ..Wants::default() }
    }

    fn notify(&mut self, event: Event) {
        if let (Some(kcompactd), Event::Starved { level, hint }) = (&mut self.kcompactd, event) {
            kcompactd.starved(level, hint);
        }
    }

    fn tick(&mut self, now: Time, system: &mut dyn System) {
        if let Some(kcompactd) = &mut self.kcompactd {
            kcompactd.work(system);
        }
        if let Some(khugepaged) = &mut self.khugepaged
            && khugepaged.next <= now
        {
            khugepaged.wake(huge(system.ladder()), now, system);
        }
    }
}

/// The answers of Linux since 6.7, with [`ENABLED`] as it was given.
pub(super) fn answers(given: &Given) -> Answers {
    let hints = if given.word("enabled") == "madvise" { Hints::OptIn } else { Hints::OptOut };
    Answers {
        place: Placing { hints, stacks: Stacks::Base, ..ANSWERS.place },
        demote: Demoting { on_evict: false, ..ANSWERS.demote },
        ..ANSWERS
    }
}

pub(super) const ANSWERS: Answers = Answers {
    place: Placing {
        frames: Place::Extent,
        size: Reserve::Huge,
        hinted: None,
        growing_limit: false,
        past_end: PastEnd::Never,
        hints: Hints::OptOut,
        stacks: Stacks::Any,
        colours: 0,
        fit: Fit::First,
        pool: None,
        zero_page: ZeroPage::Off,
    },
    promote: Promoting { when: Promote::FullPopulation, dirty: Dirty::Nowhere, ..Answers::BASE.promote },
    scarce: Shortage { then: Scarce::Smaller, ..Answers::BASE.scarce },
    demote: Demoting { steps: Demote::ToBase, on_unmap: false, deferred: true, ..Answers::BASE.demote },
    reclaim: Reclaiming { cache: Cache::Free, ..Answers::BASE.reclaim },
    ..Answers::BASE
};
