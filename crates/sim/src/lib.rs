//! A simulated machine with a kernel on it.
