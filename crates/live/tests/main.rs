//! All tests of the crate's public interface as one program, which is linked once. One file a
//! question. Tests of different files take turns: what one changes or measures of the system is not
//! another's.

mod compare;
mod contiguity;
mod inspect;
mod promote;
mod settings;
// `mod ptrees;` is a program of its own, as the example that it tests is.

#[test]
fn every_file_is_listed() {
    superpage_testing::every_file_is_listed(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"), include_str!("main.rs"));
}
