//! Sweeps: a file names axes (workloads, machines, policies, memories, values of machine files),
//! their combinations are run, and their rows put into one table and drawn.
//!
//! The work is cut into *cells*: machines on which the same kernel does the same, over one stream.
//! A cell is named by a digest of all its inputs and kept in one file, whole or not at all, so a
//! sweep that was ended goes on where it was, and computers that share a folder share the work.
//! This crate decides what runs and in which order rows stand; what a run does is
//! `superpage-sim`'s.
#![forbid(unsafe_code)]

mod axis;
mod axis_keys;
mod cells;
mod damaged;
mod distributed;
mod estimate;
mod explore;
mod file;
mod files;
mod folder;
mod locks;
mod merge;
mod page;
mod pass;
mod picture;
mod plan;
mod pool;
mod run;
mod shard;

pub use distributed::RemoteCells;
pub use estimate::{Estimate, estimate};
pub use file::{Sweep, axes_help};
pub use plan::{CallerPolicy, Plan};
pub use run::{Done, Listener, Options, run};
pub use shard::Shard;
