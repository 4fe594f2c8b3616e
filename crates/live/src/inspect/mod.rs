//! Inspects memory as it is: where the pages of a process are and how large they are, why it has no
//! huge pages where it has none, and what the system has free.

mod advice;
mod contiguity;
mod expectation;
mod folios;
mod mapping;
mod pool;
mod process;
mod reach;
mod reason;
mod service;
mod shared;
mod system;

pub use contiguity::{Contiguity, contiguity};
pub use expectation::Expectation;
pub use mapping::{Mapping, MappingKind};
pub use process::{Note, Process};
pub use reach::{Library, Reach};
pub use reason::NotHuge;
pub use service::Service;
pub use system::{Pool, System, Zone};
pub(crate) use system::{free_blocks, pools};
