//! All tests of the crate's public interface as one program, which is linked once. One file a
//! question.

mod script;

mod advise;
mod background;
mod contiguity;
mod cores;
mod files;
mod grid;
mod hints;
mod host;
mod hugetlb;
mod idle;
mod kept;
mod kernel_model;
mod latency;
mod lines;
mod linux;
mod misses;
mod navarro02;
mod page_tables;
mod parts;
mod pressure;
mod rows;
mod sampling;
mod series;
mod shadow;
mod snapshot;
mod together;
mod touched;
mod tutorial;

#[test]
fn every_file_is_listed() {
    superpage_testing::every_file_is_listed(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"), include_str!("main.rs"));
}
