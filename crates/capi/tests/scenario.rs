//! A kernel in C: page tables and contents of its own, and every way to call the manager wrongly.

use crate::build::{built, printed, root};

#[test]
fn a_kernel_in_c_keeps_its_contents_and_its_page_tables() {
    let folder = tempfile::tempdir().unwrap();
    let source = root("crates/capi/tests/kernel.c");
    if let Some(program) = built("cc", "-std=c99", &source, folder.path()) {
        for policy in ["base", "reservation", "thp", "eager", "promote", "hugetlb:pool=4M"] {
            assert_eq!(printed(&program, &[policy]), "ok\n", "{policy}");
        }
    }
}

#[test]
fn what_is_wrong_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let source = root("crates/capi/tests/wrong.c");
    if let Some(program) = built("cc", "-std=c99", &source, folder.path()) {
        assert_eq!(printed(&program, &[]), "ok\n");
    }
}
