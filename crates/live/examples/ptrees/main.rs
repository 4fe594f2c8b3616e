//! Vertical data mining with predicate trees, the third program of Piehl's thesis (section 3.6),
//! written anew: ratings lie in trees of bits, movies are compared by counts over these, and
//! ratings that were withheld are predicted by what their users thought of similar movies.
//!
//! `cargo run --release -p superpage-live --example ptrees -- [--style objects|buffer] [--memory
//! SIZE] [--targets N] [--neighbours N] [--seed N]`
//!
//! With `objects` every tree is an allocation of its own, the greater part of them 2,224 bytes;
//! with `buffer` there is one allocation for the trees of all movies and one for those of all
//! users. The checksum is the same.

#[cfg(target_os = "linux")]
mod predict;
#[cfg(target_os = "linux")]
mod program;
#[cfg(target_os = "linux")]
mod ratings;
#[cfg(target_os = "linux")]
mod store;
#[cfg(target_os = "linux")]
mod tree;

#[cfg(target_os = "linux")]
fn main() {
    program::main();
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("what its memory is backed by is compared on Linux only");
}
