//! Looking at memory as it is: where the pages of a process lie and how large they are, why it has no huge pages where it has
//! none, and what the system has free.

mod contiguity;
mod folios;
mod mapping;
mod pagemap;
mod process;
mod reason;
mod rules;
mod system;

pub use contiguity::{Contiguity, contiguity};
pub use mapping::{Kind, Mapping};
pub use process::Process;
pub use reason::{Reason, Why};
pub use rules::Rules;
pub use system::{Pool, System, Zone};

/// Bytes of a base page of this system.
pub fn base_page_bytes() -> u64 {
    rustix::param::page_size() as u64
}
