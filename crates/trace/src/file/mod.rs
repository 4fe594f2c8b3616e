//! The trace file: blocks of columns, compressed with zstd, each with its checksum, and an index behind them.
//!
//! `docs/traces.md` describes the bytes. [`Writer`] makes a file, [`Reader`] is the [`Source`](crate::Source) that reads
//! one, [`info`] tells what one holds.

mod block;
mod bytes;
mod events;
mod frame;
mod header;
mod layout;
mod reader;
mod sink;
mod summary;
mod totals;
mod writer;

pub use block::BLOCK_RUNS;
pub use events::NOTE_BYTES;
pub(crate) use events::kind_name;
pub use header::VERSION;
pub(crate) use reader::open_file;
pub use reader::{Lost, Reader};
pub(crate) use sink::Sink;
pub use summary::{Summary, info};
pub use totals::Totals;
pub use writer::Writer;
