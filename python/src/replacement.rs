//! Replacements written in Python: a class whose objects choose which entry of a set goes.

use pyo3::call::PyCallArgs;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use superpage_mmu::{CustomReplacement, CustomState, EntryUse, Machine};
use superpage_pages::Access;

/// The Python side of replacements, by the address of their definitions: for as long as the call
/// takes that brought them.
static CLASSES: LazyLock<Mutex<HashMap<usize, Arc<Class>>>> = LazyLock::new(Mutex::default);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(definition: &'static CustomReplacement) -> usize {
    std::ptr::from_ref(definition).addr()
}

/// A class whose objects are the states of structures, and what went wrong first.
struct Class {
    class: Py<PyAny>,
    failed: Mutex<Option<PyErr>>,
    /// Ends the simulations after an exception.
    stop: OnceLock<Arc<AtomicBool>>,
}

impl Class {
    /// What a call gives; after an exception, in this call or another, nothing.
    fn call<T>(&self, call: impl FnOnce(Python<'_>) -> PyResult<T>) -> Option<T> {
        if self.stop.get().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return None;
        }
        let failed = |error| {
            locked(&self.failed).get_or_insert(error);
            self.stop.get().inspect(|stop| stop.store(true, Ordering::Relaxed));
        };
        Python::attach(call).map_err(failed).ok()
    }
}

/// A class as users give it, with the name of a TLB. It can be used for as long as this is there.
pub(crate) struct GivenReplacement {
    tlb: String,
    definition: &'static CustomReplacement,
    class: Arc<Class>,
}

impl GivenReplacement {
    /// `given` is the name of a TLB, that of the class for rows, and the class.
    pub(crate) fn new((tlb, name, class): (String, String, Py<PyAny>)) -> GivenReplacement {
        // A definition lives as long as the process: it is a few words, and the class is forgotten.
        let definition: &'static CustomReplacement = Box::leak(Box::new(CustomReplacement { name, make }));
        let class = Arc::new(Class { class, failed: Mutex::default(), stop: OnceLock::new() });
        locked(&CLASSES).insert(key(definition), Arc::clone(&class));
        GivenReplacement { tlb, definition, class }
    }

    /// A machine with it in the TLBs of its name.
    pub(crate) fn placed(&self, machine: Machine) -> PyResult<Machine> {
        let wrong = |error| PyValueError::new_err(format!("replacements: {error}"));
        machine.with_replacement(&self.tlb, self.definition).map_err(wrong)
    }

    /// An exception ends what looks at `stop`.
    pub(crate) fn stops(&self, stop: &Arc<AtomicBool>) {
        self.class.stop.get_or_init(|| Arc::clone(stop));
    }

    /// The exception that ended the simulations.
    pub(crate) fn failed(&self) -> PyResult<()> {
        locked(&self.class.failed).take().map_or(Ok(()), Err)
    }
}

impl Drop for GivenReplacement {
    fn drop(&mut self) {
        // Dropped without the lock: it may run code of Python.
        let gone = locked(&CLASSES).remove(&key(self.definition));
        drop(gone);
    }
}

fn make(definition: &'static CustomReplacement, sets: usize, ways: usize) -> Box<dyn CustomState> {
    let class = locked(&CLASSES).get(&key(definition)).cloned();
    let class = class.expect("the class is there as long as it is used");
    let object = class.call(|py| class.class.call1(py, (sets, ways)));
    Box::new(State { class, object, ways })
}

/// The state of one structure: an object of the class, if it could be made.
struct State {
    class: Arc<Class>,
    object: Option<Py<PyAny>>,
    ways: usize,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("ways", &self.ways).finish_non_exhaustive()
    }
}

/// As Python sees an access.
fn word(access: Option<Access>) -> Option<&'static str> {
    access.map(|access| match access {
        Access::Read => "read",
        Access::Write => "write",
        Access::Execute => "execute",
    })
}

impl State {
    fn event(&self, method: &str, arguments: impl for<'py> PyCallArgs<'py>) {
        if let Some(object) = &self.object {
            self.class.call(|py| object.bind(py).call_method1(method, arguments).map(drop));
        }
    }
}

impl CustomState for State {
    fn touch(&mut self, set: usize, way: usize, EntryUse { page, access }: EntryUse) {
        self.event("touch", (set, way, page, word(access)));
    }

    fn fill(&mut self, set: usize, way: usize, EntryUse { page, access }: EntryUse) {
        self.event("fill", (set, way, page, word(access)));
    }

    fn victim(&mut self, set: usize, EntryUse { page, access }: EntryUse) -> usize {
        let chosen = self.object.as_ref().and_then(|object| {
            self.class.call(|py| {
                let said = object.bind(py).call_method1("victim", (set, page, word(access)))?;
                let way = said.extract::<usize>().ok().filter(|way| *way < self.ways);
                let wrong = || format!("victim: expected a way from 0 to {}, not {said}", self.ways - 1);
                let way = way.ok_or_else(|| PyValueError::new_err(wrong()))?;
                object.bind(py).call_method1("fill", (set, way, page, word(access)))?;
                Ok(way)
            })
        });
        // After an exception the simulation only ends.
        chosen.unwrap_or(0)
    }

    fn invalidate(&mut self, set: usize, way: usize) {
        self.event("invalidate", (set, way));
    }

    fn flush(&mut self) {
        self.event("flush", ());
    }

    fn copy(&self) -> Box<dyn CustomState> {
        let State { class, object, ways } = self;
        let object = object
            .as_ref()
            .and_then(|object| class.call(|py| Ok(py.import("copy")?.call_method1("deepcopy", (object,))?.unbind())));
        Box::new(State { class: Arc::clone(class), object, ways: *ways })
    }
}
