//! Machines by name, or from a user's own file.

use crate::Error;
use superpage_mmu::Machine;

/// The names of the built-in machines.
pub fn machines() -> impl Iterator<Item = &'static str> {
    Machine::names()
}

/// The machine of a name, or that of the file if `name` is a path that ends in `.toml`.
///
/// # Errors
/// A sentence that lists the names that there are, or says what in the file is wrong.
pub fn machine(name: &str) -> Result<Machine, Error> {
    if name.ends_with(".toml") {
        let text = std::fs::read_to_string(name).map_err(|error| Error::Usage(format!("machine {name}: {error}")))?;
        return Machine::parse(&text, name).map_err(|error| Error::Usage(error.to_string()));
    }
    Machine::builtin(name).map_err(|error| Error::Usage(error.to_string()))
}
