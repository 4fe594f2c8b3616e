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

/// The machine of a name, with overlays as in `zen5+fractured` and values as in
/// `zen5:costs.fault=900`; a part that ends in `.toml` is the path of a file.
///
/// # Errors
/// The name is unknown (the message lists all), or something in a file is wrong (it says what).
pub fn machine(name: &str) -> Result<Machine, Error> {
    machine_with_text(name).map(|(machine, _)| machine)
}

/// Like [`machine`], with the text of one file that says the same ([`Machine::with_text`]).
///
/// # Errors
/// As for [`machine`].
pub fn machine_with_text(name: &str) -> Result<(Machine, String), Error> {
    let read =
        |path: &str| superpage_output::read_text(path.as_ref()).map_err(|error| MachineError::unread(path, error));
    Machine::with_text(name, read).map_err(|error| Error::Usage(error.to_string()))
}

/// The name of a machine in which values are set, each as `KEY=VALUE`, after those that its name
/// sets already.
pub fn with_values(name: &str, values: &[String]) -> String {
    match (values.is_empty(), name.contains('=')) {
        (true, _) => name.into(),
        (false, set) => format!("{name}{}{}", if set { ',' } else { ':' }, values.join(",")),
    }
}
