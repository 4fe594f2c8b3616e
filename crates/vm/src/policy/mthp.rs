//! Linux's folios of several sizes for anonymous memory, one or more of `hugepages-*kB/enabled` at `always`, or at
//! `madvise`, as for `thp`. At a first
//! touch, the largest enabled size is taken whose aligned range lies wholly in its mapping, has nothing populated, and
//! for which an extent is free; the extent is zeroed and mapped at once. Otherwise a base page is taken. If the machine
//! has no page of a size, its folios are base pages, contiguous and aligned. `defrag` as for `thp`, for the largest
//! size that fits. Not modelled: khugepaged; compaction for a smaller size after the largest failed; folios of files,
//! and of swap space.

use super::{Answers, Definition, Parameter, Placing, Reserve, Values, thp};

pub(super) static POLICY: Definition = Definition {
    name: "mthp",
    paper: "Linux 6.8, Documentation/admin-guide/mm/transhuge.rst; mm/memory.c: alloc_anon_folio",
    help: "Linux: the largest folio of these sizes that fits at a first touch (live: a setting of the whole system)",
    parameters: &[
        Parameter { name: "size", values: Values::PageSizes, default: "64K", help: "of the folios", needs: &[] },
        thp::ENABLED,
        thp::DEFRAG,
    ],
    needs: &[],
    make: |given| {
        let (size, answers) = (Reserve::Among(given.sizes("size")), thp::answers(given));
        thp::made(given, Answers { place: Placing { size, ..answers.place }, ..answers }, None)
    },
};
