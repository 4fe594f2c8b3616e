//! The interface as programs in C and C++ see it. One file a question.

mod build;
mod champsim;
mod page;
mod scenario;

#[test]
fn every_file_is_listed() {
    superpage_testing::every_file_is_listed(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"), include_str!("main.rs"));
}
