//! All tests of the crate's public interface as one program, which is linked once. One file a
//! question.

mod streams;

mod champsim;
mod drmemtrace;
mod export;
mod file;
mod import;
mod lmbench;
mod navarro;
mod programs;
mod record;
mod sample;
mod tables;
mod workload;

#[test]
fn every_file_is_listed() {
    superpage_testing::every_file_is_listed(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"), include_str!("main.rs"));
}
