//! `superpages.simulate`.

use crate::accesses::{self, Accesses};
use crate::observe::Callbacks;
use crate::policy::{GivenPolicy, check_names};
use crate::replacement::GivenReplacement;
use crate::rows::Rows;
use crate::{failed, given, limits, of_trace, work};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use superpage_pages::{PageSize, parse_bytes};
use superpage_sim::{Conditions, MappingMisses, Setup, Watch, check_memory, plan_policies, rows, run_parts};
use superpage_trace::{Cores, Source, file::Reader, workload};

/// What is simulated.
#[derive(FromPyObject)]
pub(crate) enum What<'py> {
    #[pyo3(transparent)]
    Workload(String),
    #[pyo3(transparent)]
    Trace(Trace),
    #[pyo3(transparent)]
    Accesses(Accesses<'py>),
}

/// The path of a trace, in a tuple of its own.
#[derive(FromPyObject)]
pub(crate) struct Trace(PathBuf, bool);

/// The conditions of all simulations of a call, in the words of the command's flags.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Words {
    sizes: Option<Vec<String>>,
    memory: Option<String>,
    swap: Option<String>,
    files: String,
    digest: String,
    background: Option<String>,
    time_scale: u32,
    fragment: String,
    seed: u64,
    host_policies: Vec<String>,
    kernels: Vec<String>,
    parts: bool,
    contiguity: bool,
    lines: bool,
    every: Option<String>,
    cores: Option<u32>,
    quantum: u64,
    migrate: bool,
}

fn word<T: std::str::FromStr>(key: &str, text: &str) -> PyResult<T>
where
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error| PyValueError::new_err(format!("{key}: {error}")))
}

fn bytes(key: &str, text: Option<&String>) -> PyResult<Option<u64>> {
    let read = |text: &String| parse_bytes(text).map_err(|error| PyValueError::new_err(format!("{key}: {error}")));
    text.map(read).transpose()
}

impl Words {
    fn conditions(&self) -> PyResult<Conditions> {
        let sizes = |sizes: &Vec<String>| sizes.iter().map(|size| word::<PageSize>("sizes", size)).collect();
        Ok(Conditions {
            sizes: self.sizes.as_ref().map(sizes).transpose()?,
            memory: bytes("memory", self.memory.as_ref())?,
            swap: bytes("swap", self.swap.as_ref())?,
            fragment: word("fragment", &self.fragment)?,
            seed: self.seed,
            files: word("files", &self.files)?,
            digest: word("digest", &self.digest)?,
            background: self.background.as_ref().map(|text| word("background", text)).transpose()?,
            time_scale: word("time_scale", &self.time_scale.to_string())?,
            host_policies: self.host_policies.clone(),
            kernels: self.kernels.clone(),
        })
    }
}

fn open(what: &What<'_>, lines: bool) -> PyResult<Box<dyn Source>> {
    match what {
        What::Workload(text) if lines => workload::parse_lines(text).map_err(of_trace),
        What::Workload(text) => workload::parse(text).map_err(of_trace),
        What::Trace(Trace(path, up_to_cut)) => {
            let reader = if *up_to_cut { Reader::open_up_to_cut(path) } else { Reader::open(path) };
            Ok(Box::new(reader.map_err(of_trace)?))
        }
        What::Accesses(accesses) => accesses::source(accesses, lines),
    }
}

/// What is run over each stream.
struct Planned {
    setups: Vec<Setup>,
    /// The objects of policies and the classes of replacements are there as long as these.
    policies: Vec<GivenPolicy>,
    replacements: Vec<GivenReplacement>,
    watch: Watch,
}

impl Planned {
    fn new(
        machines: &[Bound<'_, PyAny>],
        replacements: Vec<GivenReplacement>,
        policies: &[Bound<'_, PyAny>],
        words: &Words,
    ) -> PyResult<Planned> {
        let machine = |given: &Bound<'_, PyAny>| {
            replacements.iter().try_fold(given::machine(given)?.0, |machine, given| given.placed(machine))
        };
        let machines = machines.iter().map(machine).collect::<PyResult<Vec<_>>>()?;
        let policies = policies.iter().map(GivenPolicy::read).collect::<PyResult<Vec<_>>>()?;
        check_names(&policies)?;
        let named: Vec<_> = policies.iter().map(|policy| (policy.name.clone(), policy.policy.clone())).collect();
        let setups = plan_policies(&machines, &named, &words.conditions()?).map_err(failed)?;
        let every = words.every.as_ref().map(|every| word("every", every)).transpose()?;
        let cores = words.cores.map(|number| Cores { number, quantum: words.quantum, migrate: words.migrate });
        Ok(Planned {
            setups,
            policies,
            replacements,
            watch: Watch { contiguity: words.contiguity, lines: words.lines, every, cores },
        })
    }
}

/// Simulates streams, one after the other, each in one pass over all machines and policies.
#[pyfunction]
#[pyo3(signature = (streams, machines, policies, words, threads = None, progress = None, observe = HashMap::new(), replacements = Vec::new()))]
#[allow(clippy::too_many_arguments, reason = "the keywords of Python")]
pub(crate) fn simulate(
    py: Python<'_>,
    streams: Vec<What<'_>>,
    machines: Vec<Bound<'_, PyAny>>,
    policies: Vec<Bound<'_, PyAny>>,
    words: Words,
    threads: Option<usize>,
    progress: Option<Bound<'_, PyAny>>,
    observe: HashMap<String, Py<PyAny>>,
    replacements: Vec<(String, String, Py<PyAny>)>,
) -> PyResult<Rows> {
    let replacements = replacements.into_iter().map(GivenReplacement::new).collect();
    let Planned { setups, policies, replacements, watch } = Planned::new(&machines, replacements, &policies, &words)?;
    let limits = limits();
    let mut sources = Vec::new();
    for what in &streams {
        let source = open(what, words.lines)?;
        check_memory(&setups, &watch, &limits).map_err(failed)?;
        sources.push(source);
    }
    let observed = !observe.is_empty();
    let called = observed || !replacements.is_empty() || policies.iter().any(GivenPolicy::is_object);
    let run = |ticket: &work::Ticket| {
        replacements.iter().for_each(|replacement| replacement.stops(&ticket.stop));
        let callbacks = Callbacks::new(observe, Arc::clone(&ticket.stop));
        work::with_threads(threads, called.then_some(ticket), || {
            let mut all = Vec::new();
            let (mut before, of) = (0, sources.iter().map(|source| source.info().runs).sum());
            for mut source in sources {
                let done = AtomicU64::new(0);
                let progress = |progress: superpage_sim::Progress| {
                    done.store(progress.runs, Ordering::Relaxed);
                    ticket.progress(before + progress.runs, of);
                };
                let looked_on = observed.then(|| callbacks.look_on(&setups, &source.info().workload));
                let setups = looked_on.as_ref().unwrap_or(&setups);
                let runs = run_parts(setups, source.as_mut(), &ticket.stop, &progress, &watch).map_err(failed)?;
                callbacks.failed()?;
                replacements.iter().try_for_each(GivenReplacement::failed)?;
                all.extend(rows(runs, words.parts));
                before += done.into_inner();
            }
            Ok(Rows::from(all))
        })?
    };
    work::run(py, progress.as_ref(), run)?
}

/// The start and end of a mapping, its misses, and its pages that missed.
type MissesOf = (u64, u64, u64, u64);

/// The misses of a stream by mapping, on one machine under one policy.
#[pyfunction]
#[pyo3(signature = (stream, machine, policy, words, progress = None))]
#[allow(clippy::too_many_arguments, reason = "the keywords of Python")]
pub(crate) fn misses(
    py: Python<'_>,
    stream: What<'_>,
    machine: Bound<'_, PyAny>,
    policy: Bound<'_, PyAny>,
    words: Words,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<(Rows, Vec<MissesOf>)> {
    let Planned { setups, policies, watch, .. } = Planned::new(&[machine], Vec::new(), &[policy], &words)?;
    let setup = setups.iter().find(|setup| setup.policy() == policies[0].name).expect("it was planned");
    let mut source = open(&stream, words.lines)?;
    check_memory(std::slice::from_ref(setup), &watch, &limits()).map_err(failed)?;
    let called = policies[0].is_object();
    let run = |ticket: &work::Ticket| {
        work::with_threads(called.then_some(1), called.then_some(ticket), || {
            let progress = |progress: superpage_sim::Progress| ticket.progress(progress.runs, progress.of);
            superpage_sim::misses(setup, source.as_mut(), &ticket.stop, &progress, &watch).map_err(failed)
        })?
    };
    let (row, misses) = work::run(py, progress.as_ref(), run)??;
    let of = |of: MappingMisses| (of.mapping.start, of.mapping.end, of.misses, of.pages);
    Ok((Rows::from(vec![row]), misses.into_iter().map(of).collect()))
}
