//! The event stream: the trace file format, the recorder, importers of foreign traces, and built-in
//! workloads.
//!
//! Everything here is a [`Source`] of [`Event`]s and [`Run`]s, or stores them. Nothing here knows
//! what a TLB or a policy is.

mod check;
mod cores;
mod error;
mod event;
pub mod export;
pub mod file;
pub mod import;
pub mod record;
mod row;
mod run_builder;
mod sample;
#[path = "../plugin/schedule.rs"]
mod schedule;
mod threads;
mod window;
pub mod workload;

pub use check::{Counts, check_stream};
pub use cores::{Cores, OnCores};
pub use error::Error;
pub use event::{
    Backing, Batch, CALL_BYTES, Event, Growth, Info, PAGES_LIMIT, ProcessId, Run, Sampling, Source, TRACE_LINE_SHIFT,
    TRACE_PAGE_SHIFT,
};
pub use file::{Summary, info};
pub use run_builder::RunBuilder;
pub use sample::Sample;
pub use schedule::Phase;
pub use threads::Threads;
pub use window::{MEASURED, Window};
