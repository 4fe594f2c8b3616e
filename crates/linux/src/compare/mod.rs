//! One command under several policies.

pub mod counters;
pub mod statistics;
