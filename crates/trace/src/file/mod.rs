//! The trace file: blocks of columns, compressed with zstd, each with a checksum, and an index at
//! the end.
//!
//! `docs/trace-format.md` describes the bytes. [`Writer`] writes a file, [`Reader`] is the
//! [`Source`](crate::Source) that reads one, [`info`] summarizes one.

mod block;
mod bytes;
mod events;
mod frame;
mod header;
mod layout;
mod pool;
mod reader;
mod sink;
mod summary;
mod totals;
mod writer;

pub use block::BLOCK_RUNS;
pub use events::NOTE_BYTES;
pub(crate) use events::{KIND_NAMES, kind_name};
pub use header::VERSION;
pub(crate) use reader::open_file;
pub use reader::{Lost, Reader};
pub(crate) use sink::Sink;
pub use summary::{Summary, info};
pub use totals::Totals;
pub use writer::Writer;
