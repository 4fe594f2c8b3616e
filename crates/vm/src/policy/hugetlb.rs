//! Linux's static pool of huge pages, hugetlb: pages of one size are set aside, when the machine
//! starts (`at=boot`) or when memory has been in use (`at=late`: where memory is fragmented before
//! the run, after that), and mappings that ask for them get those and no others. A mapping reserves
//! its pages when it is made; a fault takes a whole page. They are never swapped, reclaimed, moved
//! or broken. Where too few are left, `surplus` pages come from free memory and go back when they
//! are freed; then the mapping has base pages (`without=fallback`: what glibc's malloc and
//! `get_hugepage_region` do), or the program is killed (`without=kill`: `mmap` fails and the
//! program ends; a fault on a page that is not reserved is a SIGBUS).
//!
//! Who uses it (Piehl, section 1.9: segments of `shmget`, files of hugetlbfs, mappings):
//! `use=mapping` is private anonymous memory, so `MAP_HUGETLB`, and malloc's requests of a page or
//! more (`glibc.malloc.hugetlb=2`); `use=segment` is shared anonymous memory, so `SHM_HUGETLB` and
//! hugetlbfs. Of each such mapping that is made writable and cannot grow the pages that lie whole
//! in it are of the pool, and its ends are base pages.
//!
//! Not modelled: lengths rounded up to a page, as the kernel and glibc do (Piehl, chapter 5: three
//! pages and a byte take four), since streams have fixed addresses; malloc's heap (glibc 2.35 and
//! later make it of mappings too); pools of several sizes at once and `demote`; reclaim and
//! compaction when a pool grows late; control groups; a parent that takes a page from its child at
//! a write after a fork: here the one that writes is killed; the reservation of a segment, which is
//! that of the process that made it, and ends with it.

use super::parameter::SWITCH;
use super::promote::parameter;
use super::thp;
use crate::{Answers, Definition, Demoting, Made, Parameter, Placing, StaticPool, Values};

pub(super) static POLICY: Definition = Definition {
    name: "hugetlb",
    paper: "Linux, Documentation/admin-guide/mm/hugetlbpage.rst; Piehl, NDSU 2012, section 1.9; glibc.malloc.hugetlb=2",
    help: "Linux: a static pool of huge pages, reserved by mappings (live: for the C library's allocator)",
    parameters: &[
        parameter(
            "pool",
            Values::Bytes,
            "",
            "set aside before the command starts; otherwise pages are taken as it runs",
        ),
        own("size", Values::PageSize, "", "of its pages; otherwise the largest up to 2M"),
        own(
            "at",
            Values::Words(&["boot", "late"]),
            "boot",
            "when the pool is made: before memory is fragmented, or after",
        ),
        own("surplus", Values::Bytes, "", "pages beyond the pool, taken while memory has them free"),
        own(
            "use",
            Values::Words(&["mapping", "segment", "all"]),
            "mapping",
            "private anonymous memory, shared, or both",
        ),
        own("noreserve", Values::Words(SWITCH), "off", "no pages are reserved when a mapping is made (MAP_NORESERVE)"),
        own(
            "without",
            Values::Words(&["fallback", "kill"]),
            "fallback",
            "where too few are left for a mapping: base pages, or the program ends",
        ),
    ],
    needs: &[],
    make: |given| {
        let uses = given.word("use");
        let pool = StaticPool {
            size: given.find_size("size"),
            bytes: given.number("pool"),
            surplus: given.number("surplus"),
            late: given.word("at") == "late",
            private: uses != "segment",
            shared: uses != "mapping",
            reserves: !given.is_on("noreserve"),
            kills: given.word("without") == "kill",
        };
        let base = Answers::BASE;
        let place = Placing { pool: Some(pool), ..base.place };
        Made::answers(Answers {
            place,
            demote: Demoting { on_unmap: false, ..base.demote },
            reclaim: thp::ANSWERS.reclaim,
            ..base
        })
    },
};

const fn own(name: &'static str, values: Values, default: &'static str, help: &'static str) -> Parameter {
    thp::simulated(parameter(name, values, default, help))
}
