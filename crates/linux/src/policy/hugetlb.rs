//! A static pool of huge pages.

use superpage_vm::{Answers, Definition, Made, Need, Parameter, Values};

pub(super) static POLICY: Definition = Definition {
    name: "hugetlb",
    paper: "Linux, Documentation/admin-guide/mm/hugetlbpage.rst; glibc.malloc.hugetlb=2",
    help: "hugetlb pages for the C library's allocator",
    parameters: &[Parameter {
        name: "pool",
        values: Values::Bytes,
        default: "",
        help: "set aside before the command starts; otherwise pages are taken as it runs",
        needs: &[],
    }],
    needs: &[Need::Settings],
    make: |_| Made::answers(Answers::BASE),
};
