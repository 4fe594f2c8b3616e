//! What `observe=` sees of simulations.

use pyo3::prelude::*;
use pyo3::types::PyString;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use superpage_sim::{Observer, Seen, Setup};
use superpage_trace::{Backing, Growth, TRACE_PAGE_SHIFT};
use superpage_vm::{FaultKind, SpaceId};

/// Something that happened in a simulation.
#[pyclass(frozen, get_all, module = "superpages")]
pub(crate) struct Event {
    kind: &'static str,
    workload: Py<PyString>,
    machine: Py<PyString>,
    policy: Py<PyString>,
    seconds: f64,
    space: u32,
    address: u64,
    bytes: u64,
    detail: Py<PyAny>,
}

#[pymethods]
impl Event {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let Event { kind, seconds, space, address, bytes, .. } = self;
        let detail = self.detail.bind(py).repr()?;
        Ok(format!(
            "Event(kind={kind:?}, seconds={seconds}, space={space}, address={address:#x}, bytes={bytes}, detail={detail})"
        ))
    }
}

/// The functions that are called, by kinds of events.
pub(crate) struct Callbacks {
    of: HashMap<String, Py<PyAny>>,
    /// Ends the simulations after an exception.
    stop: Arc<AtomicBool>,
    /// The first exception. Held while one is called: simulations run at once, and each event is
    /// over before the next. Taken before the interpreter's lock, always.
    failed: Mutex<Option<PyErr>>,
}

impl Callbacks {
    pub(crate) fn new(of: HashMap<String, Py<PyAny>>, stop: Arc<AtomicBool>) -> Arc<Callbacks> {
        Arc::new(Callbacks { of, stop, failed: Mutex::new(None) })
    }

    /// The exception that a function has raised.
    pub(crate) fn failed(&self) -> PyResult<()> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }

    /// These setups with somebody who looks on for these functions, over a workload of this name.
    pub(crate) fn look_on(self: &Arc<Callbacks>, setups: &[Setup], workload: &str) -> Vec<Setup> {
        let text = |text: &str| Python::attach(|py| PyString::new(py, text).unbind());
        let looks = |setup: &Setup| {
            let policy = match setup.host_policy() {
                Some(host) => format!("{} on {host}", setup.policy()),
                None => setup.policy().to_owned(),
            };
            let (workload, machine, policy) = (text(workload), text(setup.machine()), text(&policy));
            setup.clone().observed(Arc::new(Sight { workload, machine, policy, callbacks: Arc::clone(self) }))
        };
        setups.iter().map(looks).collect()
    }
}

/// What looks on in one simulation.
struct Sight {
    workload: Py<PyString>,
    machine: Py<PyString>,
    policy: Py<PyString>,
    callbacks: Arc<Callbacks>,
}

impl fmt::Debug for Sight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sight").finish_non_exhaustive()
    }
}

impl Observer for Sight {
    fn see(&self, seconds: f64, SpaceId(space): SpaceId, seen: &Seen) {
        let Some(Told { kind, address, bytes, detail }) = told(seen) else { return };
        let Some(function) = self.callbacks.of.get(kind) else { return };
        let mut failed = self.callbacks.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.is_some() {
            return;
        }
        let call = |py: Python<'_>| {
            let [workload, machine, policy] =
                [&self.workload, &self.machine, &self.policy].map(|text| text.clone_ref(py));
            let detail = detail.into_python(py)?;
            let event = Event { kind, workload, machine, policy, seconds, space, address, bytes, detail };
            function.call1(py, (event,)).map(drop)
        };
        if let Err(error) = Python::attach(call) {
            *failed = Some(error);
            self.callbacks.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// What an event says of itself.
struct Told<'a> {
    kind: &'static str,
    address: u64,
    bytes: u64,
    detail: Detail<'a>,
}

/// What else there is to say.
enum Detail<'a> {
    None,
    Text(&'a str),
    Number(u64),
    Sample(&'a superpage_sim::Sample),
}

impl Detail<'_> {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(match self {
            Detail::None => py.None(),
            Detail::Text(text) => PyString::new(py, text).into_any().unbind(),
            Detail::Number(number) => number.into_pyobject(py)?.into_any().unbind(),
            Detail::Sample(sample) => {
                let text = serde_json::to_string(sample).expect("a sample is a struct of plain values");
                py.import("json")?.call_method1("loads", (text,))?.unbind()
            }
        })
    }
}

/// What to say of what was seen; nothing of events that change no address space.
fn told(seen: &Seen) -> Option<Told<'_>> {
    let (kind, address, bytes, detail) = match seen {
        Seen::Stream(event) => return of_stream(event),
        Seen::Fault { address, kind, mapped } => ("fault", *address, mapped.bytes(), Detail::Text(fault_kind(*kind))),
        Seen::Promoted { address, size, in_place } => {
            ("promote", *address, size.bytes(), Detail::Text(if *in_place { "in-place" } else { "whole" }))
        }
        Seen::Demoted { address, size, to } => ("demote", *address, size.bytes(), Detail::Number(to.bytes())),
        Seen::Sample(sample) => ("sample", 0, 0, Detail::Sample(sample)),
        _ => return None,
    };
    Some(Told { kind, address, bytes, detail })
}

fn of_stream(event: &superpage_trace::Event) -> Option<Told<'_>> {
    use superpage_trace::Event::{Discard, Exec, Exit, Fork, Grow, Map, Mark, Protect, Remap, Unmap};
    let nowhere = |kind, detail| Some(Told { kind, address: 0, bytes: 0, detail });
    let (kind, start, pages, detail) = match event {
        Map { start, pages, growth, backing, .. } => {
            let of = match (growth, backing) {
                (Growth::Up, _) => "heap",
                (Growth::Down, _) => "stack",
                (Growth::Fixed, Backing::File { .. }) => "file",
                (Growth::Fixed, Backing::Anonymous) => "anonymous",
            };
            ("map", start, pages, Detail::Text(of))
        }
        Unmap { start, pages } => ("unmap", start, pages, Detail::None),
        Protect { start, pages, .. } => ("protect", start, pages, Detail::None),
        Discard { start, pages } => ("discard", start, pages, Detail::None),
        Grow { start, pages } => ("grow", start, pages, Detail::None),
        Remap { from, to, to_pages, .. } => ("remap", to, to_pages, Detail::Number(from << TRACE_PAGE_SHIFT)),
        Fork { child } => return nowhere("fork", Detail::Number(child.0.into())),
        Exec => return nowhere("exec", Detail::None),
        Exit => return nowhere("exit", Detail::None),
        Mark(text) => return nowhere("mark", Detail::Text(text)),
        _ => return None,
    };
    Some(Told { kind, address: start << TRACE_PAGE_SHIFT, bytes: pages << TRACE_PAGE_SHIFT, detail })
}

fn fault_kind(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Zero => "zero",
        FaultKind::ZeroPage => "zero-page",
        FaultKind::File => "file",
        FaultKind::Swap => "swap",
        FaultKind::Cached => "cached",
        FaultKind::Resident => "resident",
        FaultKind::Copy => "copy",
        FaultKind::Rights => "rights",
        FaultKind::Spurious => "spurious",
    }
}
