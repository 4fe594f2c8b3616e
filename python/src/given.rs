//! Machines as users give them: names, or the text of files that Python made of dicts.

use crate::failed;
use pyo3::prelude::*;
use superpage_mmu::{Machine, MachineError};
use superpage_sim::Error;

/// The machine, and the text of one file that says the same. `given` is a name, or a pair of a name
/// with parts such as `dict1.toml` and a dict of the texts of these.
pub(crate) fn machine(given: &Bound<'_, PyAny>) -> PyResult<(Machine, String)> {
    if let Ok(name) = given.extract::<String>() {
        return superpage_sim::machine_with_text(&name).map_err(failed);
    }
    let (name, texts) = given.extract::<(String, std::collections::HashMap<String, String>)>()?;
    let read = |path: &str| match texts.get(path) {
        Some(text) => Ok(text.clone()),
        None => superpage_output::read_text(path.as_ref()).map_err(|error| MachineError::unread(path, error)),
    };
    Machine::with_text(&name, read).map_err(|error| failed(Error::Usage(error.to_string())))
}
