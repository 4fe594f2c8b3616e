//! Linux's folios of several sizes for anonymous memory: those of `size` follow `enabled` as `thp`
//! does (Linux: `inherit`), those of `always` may be had everywhere but where the program asks for
//! base pages, those of `madvise` where it asks for huge ones; each stands for a file
//! `hugepages-*kB/enabled`. At a first touch, the largest of these is taken whose aligned range
//! lies wholly in its mapping, has nothing populated, and for which an extent is free; the extent
//! is zeroed and mapped at once. Otherwise a base page is taken. If the machine has no page of a
//! size, its folios are base pages, contiguous and aligned. `defrag` as for `thp`, for the largest
//! size that fits.
//!
//! With `khugepaged=on` a thread collapses base pages later (mm/khugepaged.c of linux-next, June
//! 2026; N. Pache's series, v19): regions of 2 MB, by the limits of the policy `khugepaged`, if 2
//! MB is one of the sizes; else, from the beginning of the region on, the largest of the sizes that
//! is occupied: by a page where `max-none` is 511, wholly at any other value, so that what was
//! collapsed is no reason to collapse more. A page in swap space or a shared one forbids it.
//!
//! Not modelled: compaction for a smaller size after the largest failed; folios of files, and of
//! swap space; collapse into folios of a size that the machine has no page of. Assumed: that
//! khugepaged sleeps where no extent of a smaller size is free, as it does for 2 MB.

use super::khugepaged::{self, Khugepaged};
use super::parameter::SWITCH;
use super::promote::parameter as own;
use super::thp;
use super::thp::simulated;
use crate::{Answers, Definition, Hints, Parameter, Placing, Reserve, Sizes, Values};

pub(super) static POLICY: Definition = Definition {
    name: "mthp",
    paper: "Linux 6.8, Documentation/admin-guide/mm/transhuge.rst; mm/memory.c: alloc_anon_folio",
    help: "Linux: the largest folio of these sizes that fits at a first touch (live: a setting of the whole system)",
    parameters: &[
        Parameter { name: "size", values: Values::PageSizes, default: "64K", help: "of the folios", needs: &[] },
        simulated(own("always", Values::PageSizes, "", "of folios wherever the program does not ask for base pages")),
        simulated(own("madvise", Values::PageSizes, "", "of folios where the program asks for huge pages (madvise)")),
        thp::ENABLED,
        thp::DEFRAG,
        simulated(own("khugepaged", Values::Words(SWITCH), "off", "what is occupied is collapsed later")),
        simulated(khugepaged::PAGES),
        simulated(khugepaged::INTERVAL),
        simulated(khugepaged::ALLOC_SLEEP),
        simulated(khugepaged::MAX_NONE),
        simulated(khugepaged::MAX_SWAP),
        simulated(khugepaged::MAX_SHARED),
        khugepaged::COMPACT,
    ],
    needs: &[],
    make: |given| {
        let [always, madvise] = ["always", "madvise"].map(|name| given.find_sizes(name).unwrap_or_default());
        let (inherit, answers) = (given.sizes("size"), thp::answers(given));
        let all = |lists: &[Sizes]| Sizes::from_iter(lists.iter().flat_map(|list| list.iter()));
        let opt_in = answers.place.hints == Hints::OptIn;
        let (elsewhere, advised) = if opt_in {
            (always, all(&[inherit, always, madvise]))
        } else {
            (all(&[inherit, always]), all(&[inherit, always, madvise]))
        };
        // With sizes for memory without advice, it is these that say what may be had there.
        let place = if opt_in && always == Sizes::default() {
            Placing { size: Reserve::Among(advised), ..answers.place }
        } else {
            let hinted = (elsewhere != advised).then_some(Reserve::Among(advised));
            Placing { size: Reserve::Among(elsewhere), hinted, hints: Hints::OptOut, ..answers.place }
        };
        let khugepaged = given.is_on("khugepaged").then(|| Khugepaged::of(given).into_sizes([elsewhere, advised]));
        thp::made(given, Answers { place, ..answers }, khugepaged)
    },
};
