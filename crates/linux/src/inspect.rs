//! Looking at memory as it is: where the pages of a process lie and how large they are, and what the system has free.

mod contiguity;
mod pagemap;

pub use contiguity::{Contiguity, contiguity};
