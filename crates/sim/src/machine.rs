//! Machines by name, or from a user's own file.

use crate::Error;
use superpage_mmu::{Machine, MachineError};

/// The names of the built-in machines.
pub fn machines() -> impl Iterator<Item = &'static str> {
    Machine::names()
}

/// The names of the built-in overlays.
pub fn overlays() -> impl Iterator<Item = &'static str> {
    Machine::overlays()
}

/// The machine of a name, with overlays as in `zen5+fractured`; a part that ends in `.toml` is the path of a file.
///
/// # Errors
/// The name is unknown (the message lists all), or something in a file is wrong (it says what).
pub fn machine(name: &str) -> Result<Machine, Error> {
    let read =
        |path: &str| superpage_output::read_text(path.as_ref()).map_err(|error| MachineError::unread(path, error));
    Machine::named(name, read).map_err(|error| Error::Usage(error.to_string()))
}
