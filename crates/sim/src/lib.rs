//! A simulated machine with a kernel on it, driven by a trace; experiments as grids of machines,
//! policies and workloads; result rows, and reports of them.
//!
//! The two halves meet here: the trait `Pmap` of `superpage-vm` is implemented on the page tables
//! and TLBs of `superpage-mmu`. Two calls are enough: [`plan`] checks and lays out a grid, [`run`]
//! runs it over one stream. Nothing here decides what a kernel or a TLB does.
#![forbid(unsafe_code)]

mod advise;
mod approximate;
mod by_size;
mod certainty;
mod clock;
pub mod columns;
mod contiguity;
mod cost;
mod disk;
mod error;
mod estimate;
mod experiment;
mod faults;
mod fragment;
mod hardware;
mod host;
mod idle;
mod joinable;
mod kept;
mod kernel;
mod kernel_model;
mod latency;
mod machine;
mod misses;
mod noted;
mod notes;
mod observe;
mod one_kernel;
mod parquet_file;
mod parts;
mod pass;
mod plan;
mod policy;
mod policy_result;
mod predictions;
pub mod quantities;
mod refusals;
mod room;
mod row;
mod rows_page;
mod series;
mod setup;
mod simulation;
mod snapshot;
mod sources;
mod stream;
mod table;
mod watch;
mod words;
mod workers;
mod write;

pub use advise::{Advice, Hot, Layout, SHARES, advise};
pub use certainty::Certainty;
pub use disk::Files;
pub use error::Error;
pub use estimate::Sampled;
pub use experiment::{Progress, check_migration, check_setups, check_stream_lines, compare, run, run_parts};
pub use fragment::{Fragment, State};
pub use joinable::ContiguousPercent;
pub use kept::{Kept, keep};
pub use kernel_model::{KernelCounts, KernelModel, kernels};
pub use latency::{FaultLatency, FaultTimes};
pub use machine::{machine, machine_with_text, machines, overlays, with_values};
pub use misses::{MappingMisses, misses};
pub use observe::{Observer, Seen};
pub use one_kernel::groups;
pub use parquet_file::{RowFile, parquet};
pub use parts::{Part, Run, rows};
pub use plan::{plan, plan_machines, plan_on_host, plan_policies};
pub use policy::{SIMULATOR, expand, named, policies, policy, policy_help, policy_with_text};
pub use policy_result::PolicyResult;
pub use refusals::Refusals;
pub use room::{Limit, check_memory, watch_memory};
pub use row::Row;
pub use rows_page::rows_page;
pub use series::Sample;
pub use setup::{BackgroundOn, Conditions, Digest, Setup, TimeScale};
pub use snapshot::{Snapshot, SnapshotFile};
use sources::Sources;
pub use watch::{Every, Watch};
pub use workers::{threads, use_threads};
pub use write::{Format, write};
