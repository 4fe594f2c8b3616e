//! The memory manager of `superpage-vm` for kernels, hypervisors and simulators in C and C++:
//! `include/superpage.h`, which is the documentation of each function, and `docs/capi.md`.
//!
//! Everything but `border` is safe code. The border turns pointers into references, keeps a second
//! call out while one is in progress, and lets no panic cross.

mod border;
mod error;
mod manager;
mod tables;
mod types;
