//! Policies written in Python: an object with `tick`, and answers, behind the same trait as a
//! policy in Rust.

use crate::failed;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::fmt;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use superpage_pages::{Level, Vpn};
use superpage_sim::SIMULATOR;
use superpage_vm::{
    Answers, Background, Candidate, Definition, Events, Given, How, Made, Policy, Refusal, Sample, Scanned, SpaceId,
    Time,
};

scoped_tls_hkt::scoped_thread_local! {
    /// What the policy that is called now, on this thread, may see and do.
    static mut SYSTEM: for<'a> &'a mut (dyn superpage_vm::System + 'a)
}

/// The Python side of policies, by the address of their definitions: for as long as the call takes
/// that brought them.
static OBJECTS: LazyLock<Mutex<Objects>> = LazyLock::new(Mutex::default);

/// The answers of a policy, and its object, by the address of its definition.
type Objects = HashMap<usize, (Answers, Py<PyAny>)>;

fn objects() -> MutexGuard<'static, Objects> {
    OBJECTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(definition: &'static Definition) -> usize {
    std::ptr::from_ref(definition).addr()
}

/// A policy as users give it: one of superpage's by name with parameters, or an object.
pub(crate) struct GivenPolicy {
    /// What rows call it.
    pub(crate) name: String,
    pub(crate) policy: Policy,
    /// Of an object: its definition, which is forgotten at the end.
    definition: Option<&'static Definition>,
}

impl GivenPolicy {
    /// Reads `given`: a text, or a tuple of a name, the text of the policy with the same answers,
    /// and the object.
    pub(crate) fn read(given: &Bound<'_, PyAny>) -> PyResult<GivenPolicy> {
        if let Ok(text) = given.extract::<String>() {
            let (name, policy) = superpage_sim::named(&text).map_err(failed)?;
            return Ok(GivenPolicy { name, policy, definition: None });
        }
        let (name, answers, object) = given.extract::<(String, String, Py<PyAny>)>()?;
        let like = superpage_sim::policy(&answers).map_err(failed)?;
        // A definition lives as long as the process: it is a few words, and the object is
        // forgotten.
        let definition: &'static Definition = Box::leak(Box::new(Definition {
            name: Box::leak(name.clone().into_boxed_str()),
            paper: "",
            help: "a policy in Python",
            parameters: &[],
            needs: &[],
            make,
        }));
        objects().insert(key(definition), (like.answers, object));
        let mut policy =
            Policy::of(definition, [], &SIMULATOR).map_err(|error| PyValueError::new_err(error.to_string()))?;
        policy.sizes = like.sizes;
        Ok(GivenPolicy { name, policy, definition: Some(definition) })
    }

    /// Whether simulations call into Python.
    pub(crate) fn is_object(&self) -> bool {
        self.definition.is_some()
    }
}

impl Drop for GivenPolicy {
    fn drop(&mut self) {
        if let Some(definition) = self.definition {
            // Dropped without the lock: it may run code of Python.
            let gone = objects().remove(&key(definition));
            drop(gone);
        }
    }
}

/// Makes a policy of the object of its definition, with a copy of it as background: each simulation
/// has its own.
fn make(given: &Given) -> Made {
    Python::attach(|py| {
        let object = objects().get(&key(given.definition())).map(|(answers, object)| (*answers, object.clone_ref(py)));
        // Only what was read with `GivenPolicy::read`, and is still there, is simulated.
        let (answers, object) = object.expect("the policy's object is there as long as it runs");
        Made::with(answers, Object::new(object.bind(py)))
    })
}

/// A policy's object as a background.
struct Object {
    /// The object, or why there is none.
    object: Result<Py<PyAny>, String>,
    events: Events,
    /// Nanoseconds between calls of an object that does not say when it is to be called next.
    interval: Option<Time>,
    next: Option<Time>,
    failed: Option<String>,
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object").field("next", &self.next).field("failed", &self.failed).finish_non_exhaustive()
    }
}

/// An exception as Python prints it.
fn traceback(error: &PyErr, py: Python<'_>) -> String {
    let lines = error.traceback(py).and_then(|traceback| traceback.format().ok()).unwrap_or_default();
    format!("{lines}{}", error.value(py).get_type().name().map_or_else(|_| String::new(), |name| format!("{name}: ")))
        + &error.value(py).to_string()
}

impl Object {
    fn new(object: &Bound<'_, PyAny>) -> Object {
        let py = object.py();
        let made = || {
            let own = py.import("copy")?.call_method1("deepcopy", (object,))?;
            let has = |name: &str| own.hasattr(name);
            let events = Events { faulted: has("faulted")?, missed: has("missed")?, gone: has("gone")? };
            let interval = own.getattr("interval")?;
            let wrong =
                |said| PyValueError::new_err(format!("interval: expected seconds above 0, or None, not {said}"));
            let seconds = interval.extract::<Option<f64>>().map_err(|_| wrong(interval.to_string()))?;
            let interval = match seconds {
                Some(seconds) if seconds.is_finite() && seconds > 0.0 => Some(((seconds * 1e9) as Time).max(1)),
                Some(seconds) => return Err(wrong(seconds.to_string())),
                None => None,
            };
            // What has only the method of the class that it is made from is never called.
            let inherited = py.import("superpages")?.getattr("Policy")?.getattr("tick")?;
            let ticks = !own.get_type().getattr("tick")?.is(&inherited);
            Ok((own.unbind(), events, interval, ticks.then_some(0)))
        };
        match made() {
            Ok((object, events, interval, next)) => Object { object: Ok(object), events, interval, next, failed: None },
            Err(error) => {
                let problem = traceback(&error, py);
                let (object, failed) = (Err(problem.clone()), Some(problem));
                // Whoever calls it asks afterwards whether it has failed.
                Object { object, events: Events::default(), interval: None, next: Some(0), failed }
            }
        }
    }

    /// Calls a method, which may return the time at which the object is to be called next.
    fn call(&mut self, method: &str, arguments: impl for<'py> FnOnce(Python<'py>) -> PyResult<Arguments<'py>>) {
        let Ok(object) = &self.object else { return };
        if self.failed.is_some() {
            return;
        }
        Python::attach(|py| {
            let call = || {
                let answer = object.bind(py).call_method1(method, arguments(py)?)?;
                let wrong = |_| {
                    let (said, kind) = (answer.repr()?, answer.get_type().name()?);
                    let problem =
                        format!("{method}: expected None or a time in whole nanoseconds, not {said} ({kind})");
                    Err(PyTypeError::new_err(problem))
                };
                answer.extract::<Option<Time>>().or_else(wrong)
            };
            match call() {
                Ok(Some(time)) => self.next = Some(time),
                Ok(None) => {}
                Err(error) => (self.failed, self.next) = (Some(traceback(&error, py)), Some(0)),
            }
        });
    }

    fn event(&mut self, method: &str, (SpaceId(space), Vpn(page), Level(level)): (SpaceId, Vpn, Level)) {
        self.call(method, |py| (space, page, level).into_pyobject(py));
    }
}

type Arguments<'py> = Bound<'py, pyo3::types::PyTuple>;

impl Background for Object {
    fn next(&self) -> Option<Time> {
        self.next
    }

    fn tick(&mut self, now: Time, system: &mut dyn superpage_vm::System) {
        self.next = self.interval.map(|interval| now.saturating_add(interval));
        SYSTEM.set(system, || self.call("tick", |py| (now, System).into_pyobject(py)));
    }

    fn events(&self) -> Events {
        self.events
    }

    fn faulted(&mut self, space: SpaceId, at: Vpn, mapped: Level) {
        self.event("faulted", (space, at, mapped));
    }

    fn missed(&mut self, space: SpaceId, at: Vpn, mapped: Level) {
        self.event("missed", (space, at, mapped));
    }

    fn gone(&mut self, SpaceId(space): SpaceId) {
        self.call("gone", |py| (space,).into_pyobject(py));
    }

    fn failed(&self) -> Option<String> {
        self.failed.clone()
    }

    fn result(&self) -> Result<Option<String>, String> {
        let (Ok(object), None) = (&self.object, &self.failed) else { return Ok(None) };
        Python::attach(|py| {
            let said = py.import("superpages._policy").and_then(|module| module.call_method1("result", (object,)));
            said.and_then(|said| said.extract()).map_err(|error| traceback(&error, py))
        })
    }
}

/// A region of an address space that holds a page.
#[pyclass(frozen, get_all, eq, hash, module = "superpages")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Region {
    /// Its number: its address divided by the size of its level.
    number: u64,
    /// The number of its base pages that are populated.
    populated: u32,
    /// Whether it is a superpage already.
    superpage: bool,
}

#[pymethods]
impl Region {
    fn __repr__(&self) -> String {
        let Region { number, populated, superpage } = self;
        let superpage = if *superpage { "True" } else { "False" };
        format!("Region(number={number}, populated={populated}, superpage={superpage})")
    }
}

/// A region, or its number.
enum Place<'py> {
    Region(Bound<'py, Region>),
    Number(u64),
}

impl<'py> FromPyObject<'_, 'py> for Place<'py> {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Place<'py>> {
        if let Ok(region) = given.cast::<Region>() {
            return Ok(Place::Region(region.to_owned()));
        }
        let wrong = |_| PyTypeError::new_err(format!("expected a region of a scan, or its number, not {}", *given));
        given.extract().map(Place::Number).map_err(wrong)
    }
}

impl Place<'_> {
    fn number(&self) -> u64 {
        match self {
            Place::Region(region) => region.get().number,
            Place::Number(number) => *number,
        }
    }
}

/// What a policy may see and do, while it is called.
#[pyclass(frozen, module = "superpages")]
pub(crate) struct System;

/// Calls `with` with the system of the policy that is called now on this thread.
fn system<T>(with: impl FnOnce(&mut dyn superpage_vm::System) -> PyResult<T>) -> PyResult<T> {
    if SYSTEM.is_set() {
        SYSTEM.with(|system| with(system))
    } else {
        Err(PyRuntimeError::new_err("a system is there only during a call of tick; keep none of it for later"))
    }
}

/// The level, if the machine has it.
fn level(system: &dyn superpage_vm::System, level: u8) -> PyResult<Level> {
    let levels = system.ladder().len();
    if usize::from(level) < levels {
        Ok(Level(level))
    } else {
        Err(PyValueError::new_err(format!("level {level}: expected 0 to {}", levels - 1)))
    }
}

#[pymethods]
impl System {
    /// The sizes in use in bytes, by level: base pages first.
    #[getter]
    fn sizes(&self) -> PyResult<Vec<u64>> {
        system(|system| Ok(system.ladder().sizes().iter().map(|size| size.bytes()).collect()))
    }

    /// The current time in nanoseconds.
    #[getter]
    fn now(&self) -> PyResult<Time> {
        system(|system| Ok(system.now()))
    }

    /// Modelled processor time that the policy has used in all calls before, in nanoseconds.
    #[getter]
    fn spent(&self) -> PyResult<Time> {
        system(|system| Ok(system.spent()))
    }

    /// The address spaces, in ascending order.
    fn spaces(&self) -> PyResult<Vec<u32>> {
        system(|system| Ok(system.spaces().into_iter().map(|SpaceId(space)| space).collect()))
    }

    /// The regions of a level that hold a page, in ascending order; none of a space that has ended.
    fn scan(&self, space: u32, level: u8) -> PyResult<Vec<Region>> {
        system(|system| {
            let level = self::level(system, level)?;
            let mut seen = Vec::new();
            let mut see = |Sample { region: number, populated, superpage }: Sample| {
                seen.push(Region { number, populated, superpage });
            };
            match system.scan(SpaceId(space), level, &mut see) {
                Scanned::Seen | Scanned::NewProgram | Scanned::Unchanged | Scanned::Gone | Scanned::Closed => Ok(seen),
            }
        })
    }

    /// How many base pages of a region were accessed since the last call for it; None if that is
    /// not known.
    fn accessed(&self, space: u32, level: u8, region: Place<'_>) -> PyResult<Option<u32>> {
        system(|system| {
            let level = self::level(system, level)?;
            Ok(system.accessed(SpaceId(space), level, region.number()))
        })
    }

    /// The number of physically contiguous pieces of a region; None if that is not known.
    fn pieces(&self, space: u32, level: u8, region: Place<'_>) -> PyResult<Option<u32>> {
        system(|system| {
            let level = self::level(system, level)?;
            Ok(system.pieces(SpaceId(space), level, region.number()))
        })
    }

    /// The number of free extents of a level; None if that is not known.
    fn free_extents(&self, level: u8) -> PyResult<Option<u64>> {
        system(|system| {
            let level = self::level(system, level)?;
            Ok(system.free_extents(level))
        })
    }

    /// The populated base pages of a region as it is now; None if other address spaces share pages
    /// of it.
    fn check(&self, space: u32, level: u8, region: Place<'_>) -> PyResult<Option<u32>> {
        system(|system| {
            let level = self::level(system, level)?;
            let look = system.look(SpaceId(space), level, region.number());
            Ok((look.shared == 0).then_some(look.populated))
        })
    }

    /// Promotes regions, in place, by copying, or either; returns for each `promoted`, or why it
    /// was not: `no-extent`, `not-populated`, ...
    #[pyo3(signature = (space, level, regions, how = "either"))]
    fn promote(&self, space: u32, level: u8, regions: Vec<Place<'_>>, how: &str) -> PyResult<Vec<&'static str>> {
        let how = match how {
            "either" => How::Either,
            "in-place" => How::InPlace,
            "by-copying" => How::ByCopying,
            _ => return Err(PyValueError::new_err(format!("how: expected either, in-place or by-copying, not {how}"))),
        };
        system(|system| {
            let level = match self::level(system, level)? {
                Level::BASE => return Err(PyValueError::new_err("level 0: base pages cannot be promoted to")),
                level => level,
            };
            let candidate = |place: &Place| match place {
                Place::Region(region) => {
                    let Region { number, populated, superpage } = region.get();
                    Candidate::from(Sample { region: *number, populated: *populated, superpage: *superpage })
                }
                Place::Number(region) => Candidate::from(Sample { region: *region, populated: 0, superpage: false }),
            };
            let candidates: Vec<Candidate> = regions.iter().map(candidate).collect();
            let outcomes = system.promote(SpaceId(space), level, &candidates, how).into_iter();
            Ok(outcomes.map(|outcome| outcome.map_or_else(|Refusal { why, .. }| why.name(), |()| "promoted")).collect())
        })
    }

    /// Demotes the superpage of exactly this level at the start of a region; returns whether there
    /// was one.
    fn demote(&self, space: u32, level: u8, region: Place<'_>) -> PyResult<bool> {
        system(|system| {
            let level = self::level(system, level)?;
            Ok(system.demote(SpaceId(space), level, region.number()))
        })
    }

    /// Zeroes up to so many free extents of a level ahead of faults; returns how many, or None
    /// where that cannot be had.
    fn zero_ahead(&self, level: u8, most: u64) -> PyResult<Option<u64>> {
        system(|system| {
            let level = self::level(system, level)?;
            Ok(system.zero_ahead(level, most))
        })
    }
}

/// Two policies of one call must be told apart in rows.
pub(crate) fn check_names(policies: &[GivenPolicy]) -> PyResult<()> {
    let objects = policies.iter().enumerate().filter(|(_, policy)| policy.is_object());
    for (place, GivenPolicy { name, .. }) in objects {
        if policies.iter().enumerate().any(|(other, policy)| other != place && policy.name == *name) {
            return Err(PyTypeError::new_err(format!("two policies are called {name}: give each its own `name`")));
        }
    }
    Ok(())
}
