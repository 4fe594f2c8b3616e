//! The instruments on a live Linux: comparing policies on a command, running a command under one, a daemon, inspecting
//! memory, and probing what the machine does with pages of several sizes.
//!
//! Interfaces of the kernel, and everything that changes something, are in `superpage-linux`; this crate measures with
//! them and presents the results. System-wide changes are restored, also after an abort. It never writes a setting or touches another
//! process's memory itself, simulates nothing, and prints nothing: the command does.
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
