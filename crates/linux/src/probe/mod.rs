//! Microbenchmarks that find out, by timing alone, what this machine and its kernel do with pages of several sizes.
//!
//! Each question is a file. Each answer is a [`Finding`], with the measured points, how repeats agree, and, where the points
//! do not tell, why not. Times are the shortest of many short repeats, on one processor.

mod chase;
mod finding;
mod fracture;
mod memory;
mod pin;
mod steady;

pub use finding::{Finding, Series, Value};
pub use fracture::host_fractured;
