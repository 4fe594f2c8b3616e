//! The instruments on a live Linux: comparing policies on a command, running a command under one, a daemon, looking into memory, and
//! probing what the machine does with pages of several sizes.
//!
//! What the kernel offers, and what changes anything, is `superpage-linux`'s; here is what is measured by it, and how that is shown. What is
//! changed for the whole system is put back, also after an abort.
//!
//! The crate is empty on other systems.
#![cfg(target_os = "linux")]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod compare;
pub mod daemon;
pub mod inspect;
pub mod probe;
pub mod run;
pub mod sample;
mod session;
mod watch;
