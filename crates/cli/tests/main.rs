//! All tests of the crate's public interface as one program, which is linked once. One file a
//! question. Tests of different files take turns: what one changes or measures of the system is not
//! another's.

mod bridges;
mod command;
mod compare;
mod compare_ends;
mod daemon;
mod docs;
mod files;
mod hints;
mod inspect;
mod pages;
mod print;
mod probe;
mod record;
mod reproduce;
mod reproduce_live;
mod run;
mod run_elsewhere;
mod served;
mod split;
mod sweep;
mod width;

#[test]
fn every_file_is_listed() {
    superpage_testing::every_file_is_listed(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"), include_str!("main.rs"));
}
