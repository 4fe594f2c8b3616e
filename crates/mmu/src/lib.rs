//! The hardware's half.
