//! The native half of the Python package `superpages`: the calls of the command line, for
//! `superpage/__init__.py`, which holds what users call and its documentation. What a simulation, a
//! sweep or a recording does is the crates'.
#![forbid(unsafe_code)]

mod accesses;
mod given;
mod observe;
mod policy;
mod record;
mod replacement;
mod reproduce;
mod rows;
mod simulate;
mod sweep;
mod trace;
mod work;

use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use superpage_sim::{Error, Limit};

/// What the command says with status 2 is a `ValueError`, what it says with status 1 an `OSError`
/// or `RuntimeError`.
fn failed(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Usage(_) => PyValueError::new_err(text),
        Error::Output { .. } => PyOSError::new_err(text),
        Error::Trace(error) => of_trace(error),
        _ => PyRuntimeError::new_err(text),
    }
}

/// The same of an error of a trace or a workload.
fn of_trace(error: superpage_trace::Error) -> PyErr {
    let text = error.to_string();
    match error {
        superpage_trace::Error::Io { path, source } => match source.raw_os_error() {
            // Python makes it a `FileNotFoundError`, or what else it is.
            Some(number) => PyOSError::new_err((number, reason(&source), path.into_os_string())),
            None if source.kind() == std::io::ErrorKind::NotFound => PyFileNotFoundError::new_err(text),
            None => PyOSError::new_err(text),
        },
        superpage_trace::Error::Missing { .. } => PyFileNotFoundError::new_err(text),
        _ => PyValueError::new_err(text),
    }
}

/// The system's reason without its number, which Python adds.
fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// What is left of this process's memory limits, where the system reports them. Simulations look at
/// it too, from the first call on.
fn limits() -> Vec<Limit> {
    superpage_sim::watch_memory(limits);
    #[cfg(target_os = "linux")]
    {
        let left = superpage_linux::memory::left().into_iter();
        left.map(|left| Limit { bytes: left.bytes, of: left.of, counts_untouched: left.counts_untouched }).collect()
    }
    #[cfg(not(target_os = "linux"))]
    Vec::new()
}

#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::observe::Event;
    #[pymodule_export]
    use crate::policy::{Region, System};
    #[pymodule_export]
    use crate::record::record;
    #[pymodule_export]
    use crate::reproduce::{experiments, reproduce};
    #[pymodule_export]
    use crate::rows::Rows;
    #[pymodule_export]
    use crate::simulate::{misses, simulate};
    #[pymodule_export]
    use crate::sweep::{Folder, Plan};
    #[pymodule_export]
    use crate::trace::{trace_info, write_trace};
    use pyo3::prelude::*;
    use superpage_trace::workload;

    /// The version of superpage.
    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "Python's name")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    /// The version of what this module offers to the package's Python files, which import no other:
    /// superpages/_built.py.
    #[pymodule_export]
    const INTERFACE: u32 = 5;

    /// The names of the built-in machines.
    #[pyfunction]
    fn machines() -> Vec<&'static str> {
        superpage_sim::machines().collect()
    }

    /// The names of the overlays.
    #[pyfunction]
    fn overlays() -> Vec<&'static str> {
        superpage_sim::overlays().collect()
    }

    /// The policies, each with its line of help.
    #[pyfunction]
    fn policies() -> Vec<(&'static str, &'static str)> {
        superpage_sim::SIMULATOR.policies().map(|definition| (definition.name, definition.help)).collect()
    }

    /// What `superpage sim --help` says of policies and their parameters.
    #[pyfunction]
    fn policy_help() -> String {
        superpage_sim::policy_help()
    }

    /// Parameters with their defaults.
    type Parameters = Vec<(String, String)>;

    /// The built-in workloads, each with its line of help, and its parameters with their defaults.
    #[pyfunction]
    fn workloads() -> Vec<(&'static str, &'static str, Parameters)> {
        let parameters = |kind: &workload::Kind| {
            let each = |parameter: &workload::Parameter| (parameter.name.to_string(), parameter.default.to_string());
            kind.parameters.iter().map(each).collect()
        };
        workload::all().iter().map(|kind| (kind.name, kind.help, parameters(kind))).collect()
    }

    /// The text of the file of a machine, with overlays and values.
    #[pyfunction]
    fn machine_text(machine: &Bound<'_, PyAny>) -> PyResult<String> {
        crate::given::machine(machine).map(|(_, text)| text)
    }
}
