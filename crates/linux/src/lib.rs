//! What Linux offers for pages of several sizes, one module an interface: what it shows of processes and their page tables, its
//! settings and the journal that puts them back, promotion by `process_madvise`, signals, process trees, starting commands,
//! placing code; and live processes as the [`System`](superpage_vm::System) of a policy's background ([`promote`]).
//!
//! It measures nothing and prints nothing but what could not be put back; the instruments are `superpage-live`'s. Each module changes
//! only what it says, and what is changed for the whole system is put back, also after an abort.
//!
//! The crate is empty on other systems.
#![cfg(target_os = "linux")]
#![deny(unsafe_op_in_unsafe_fn)]

/// `eprintln!` as elsewhere, but for the panic of the standard one where standard error cannot be written: what is told is no
/// reason to leave undone what it tells of.
macro_rules! eprintln {
    ($($sentence:tt)*) => { superpage_output::tell(format_args!($($sentence)*)) };
}

pub mod collapse;
mod error;
pub mod launch;
pub mod lock;
pub mod memory;
pub mod pagemap;
pub mod policy;
pub mod proc;
pub mod promote;
pub mod rules;
pub mod scan;
pub mod settings;
pub mod signals;
pub mod text;
pub mod tree;
pub mod why;

pub use error::Error;
pub use policy::Policy;

/// What is read of `/proc` and of the journal of settings, on any bytes: for the fuzzer.
#[cfg(fuzzing)]
#[doc(hidden)]
pub fn read_anything(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = proc::parse_stat(bytes);
    settings::read_journal(&text);
    if let Ok(maps) = proc::mappings(bytes) {
        let ends = |map: &procfs::process::MemoryMap| map.address;
        let kept = proc::maps::newest(maps.0, ends, |map, end| map.address.1 = end);
        assert!(kept.windows(2).all(|pair| pair[0].address.1 <= pair[1].address.0));
    }
}
