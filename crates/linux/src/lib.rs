//! Linux's interfaces for pages of several sizes, one module each: processes and their page tables,
//! the kernel's settings and the journal that restores them, promotion by `process_madvise`,
//! splitting, control groups and the headroom that they leave, signals, process trees, placing
//! code.
//!
//! It decides and measures nothing and prints nothing except what could not be restored; policies,
//! the promoter and the instruments are in `superpage-live`. Each module changes only what it
//! states, and changes to the whole system are restored, also after an abort.
//!
//! The crate is empty on other systems.
#![cfg(target_os = "linux")]
#![deny(unsafe_op_in_unsafe_fn)]

/// `eprintln!`, without the panic of the standard one if standard error cannot be written: a
/// message must not prevent the work that it reports.
macro_rules! eprintln {
    ($($sentence:tt)*) => { superpage_output::tell(format_args!($($sentence)*)) };
}

pub mod cgroup;
pub mod collapse;
pub mod cpu;
mod error;
pub mod headroom;
pub mod layout;
pub mod lock;
pub mod memory;
pub mod pagemap;
pub mod proc;
pub mod program;
pub mod rules;
pub mod scan;
pub mod settings;
pub mod signals;
pub mod split;
pub mod text;
pub mod tree;
pub mod why;

pub use error::Error;

/// Parses arbitrary bytes as `/proc` and the journal of settings, for the fuzzer.
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
