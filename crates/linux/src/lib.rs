//! The live side on Linux: what pages of several sizes do for real programs, and giving them to programs that do not ask.
//!
//! Its modules look at running programs and at the kernel, and change only what they say. What is changed for the whole system is put back, also after an abort.
//!
//! The crate is empty on other systems.
#![cfg(target_os = "linux")]
#![deny(unsafe_op_in_unsafe_fn)]

/// `eprintln!` as elsewhere, but for the panic of the standard one where standard error cannot be written: what is told is no
/// reason to leave undone what it tells of.
macro_rules! eprintln {
    ($($sentence:tt)*) => { superpage_report::tell(format_args!($($sentence)*)) };
}

pub mod compare;
pub mod daemon;
mod error;
pub mod inspect;
pub mod launch;
mod lock;
mod maps;
pub mod memory;
mod pagemap;
pub mod policy;
pub mod probe;
pub mod promote;
pub mod run;
pub mod scan;
pub mod settings;
pub mod signals;
pub mod text;
mod told;
pub mod tree;

pub use error::Error;
pub use policy::Policy;

/// What is read of `/proc`, of the journal of settings and of the daemon's configuration, on any bytes: for the fuzzer.
#[cfg(fuzzing)]
#[doc(hidden)]
pub fn read_anything(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    promote::read_stat(&text);
    settings::read_journal(&text);
    if let Ok(maps) = told::mappings(bytes) {
        let ends = |map: &procfs::process::MemoryMap| map.address;
        let kept = maps::newest(maps.0, ends, |map, end| map.address.1 = end);
        assert!(kept.windows(2).all(|pair| pair[0].address.1 <= pair[1].address.0));
    }
}
