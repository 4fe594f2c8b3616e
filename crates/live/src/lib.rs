//! The instruments on a live Linux: comparing policies on a command, running a command under one, a
//! daemon, inspecting memory, and probing what the machine does with pages of several sizes; and
//! what they apply: [policies](policy), [starting](launch) a command under one, and the
//! [promoter](promote), live processes as the [`System`](superpage_vm::System) of a policy's
//! background.
//!
//! Interfaces of the kernel, and everything that changes something, are in `superpage-linux`; this
//! crate decides and measures with them and presents the results. System-wide changes are restored,
//! also after an abort. It never writes a setting or touches another process's memory itself,
//! simulates nothing, and prints nothing: the command does.
//!
//! The crate is empty on other systems.
#![cfg(target_os = "linux")]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod compare;
pub mod daemon;
pub mod inspect;
pub mod launch;
pub mod policy;
pub mod probe;
pub mod promote;
pub mod run;
pub mod sample;
mod session;
pub mod split;
mod target;
mod watch;

pub use policy::Policy;
