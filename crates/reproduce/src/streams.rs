//! What must be run for a set of experiments: each stream once, with all policies that any of them
//! needs.

use crate::experiment::{Experiment, Item, Kind, Run};
use crate::running::{Options, Outcome, Ran, Watch};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use superpage_mmu::{Machine, MachineError, TableKind};
use superpage_pages::parse_bytes;
use superpage_sim::{Conditions, Digest, Files, Fragment, Limit, Setup, TimeScale};
use superpage_trace::{Source, workload};

/// A stream on a machine: the subject of one pass.
#[derive(Clone, PartialEq, Debug)]
struct Stream {
    what: What,
    machine: String,
    inputs: BTreeMap<String, String>,
    replication: bool,
    memory: Option<String>,
    digest: Option<String>,
    files: Option<String>,
    time_scale: Option<u32>,
    fragment: Option<String>,
    kernel: Option<String>,
    sample_seconds: Option<f64>,
    lines: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum What {
    Workload(String),
    Trace(String),
}

/// A stream with the policies that are to run over it, and the result of each.
struct Pass {
    stream: Stream,
    points: Vec<(String, Outcome)>,
    /// Whether an experiment asks how contiguous mapped memory is.
    contiguity: bool,
}

/// All passes of a set of experiments.
pub(crate) struct Passes {
    passes: Vec<Pass>,
    long: bool,
}

impl Passes {
    /// What the experiments need; nothing has run yet.
    pub(crate) fn of(experiments: &[Experiment], long: bool) -> Passes {
        let mut passes = Passes { passes: Vec::new(), long };
        for experiment in experiments.iter().filter(|experiment| matches!(experiment.kind, Kind::Grid | Kind::Sequence))
        {
            let contiguity = experiment.reads("contiguous_percent");
            for item in &experiment.items {
                for run in experiment.runs.values() {
                    let Some(stream) = stream(experiment.lines, item, run, long) else { continue };
                    let at = passes.passes.iter().position(|pass| pass.stream == stream).unwrap_or_else(|| {
                        passes.passes.push(Pass { stream, points: Vec::new(), contiguity: false });
                        passes.passes.len() - 1
                    });
                    let Pass { points, contiguity: asked, .. } = &mut passes.passes[at];
                    *asked |= contiguity;
                    if !points.iter().any(|(policy, _)| *policy == run.policy) {
                        points.push((run.policy.clone(), Outcome::Interrupted));
                    }
                }
            }
        }
        passes
    }

    /// Runs all of them, one stream after the other, until `stop` is set.
    pub(crate) fn run(&mut self, options: &Options, stop: &AtomicBool, watch: &dyn Watch) {
        let of = self.passes.len();
        for (index, pass) in self.passes.iter_mut().enumerate() {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let (What::Workload(name) | What::Trace(name)) = &pass.stream.what;
            watch.stream(name, index + 1, of);
            if let Err(outcome) = pass.run(&options.corpus, stop, watch) {
                pass.points.iter_mut().for_each(|point| point.1 = outcome.clone());
            }
        }
    }

    /// What could not be run, one sentence each.
    pub(crate) fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for pass in &self.passes {
            let (What::Workload(name) | What::Trace(name)) = &pass.stream.what;
            for (policy, outcome) in &pass.points {
                if let Outcome::Failed(problem) = outcome {
                    failures.push(format!("{name} under {policy}: {problem}"));
                }
            }
            // What concerns the stream, and not one policy, is reported once.
            let same = |point: &(String, Outcome)| match &point.1 {
                Outcome::Failed(problem) => Some(problem.clone()),
                _ => None,
            };
            let first = pass.points.first().and_then(same);
            if pass.points.len() > 1 && first.is_some() && pass.points.iter().all(|point| same(point) == first) {
                failures.truncate(failures.len() - pass.points.len());
                failures.push(format!("{name}: {}", first.unwrap_or_default()));
            }
        }
        failures
    }

    /// The result of a run of an item; `None` if the item does not run.
    pub(crate) fn outcome(&self, lines: bool, item: &Item, run: &Run) -> Option<&Outcome> {
        let stream = stream(lines, item, run, self.long)?;
        let pass = self.passes.iter().find(|pass| pass.stream == stream)?;
        pass.points.iter().find(|(policy, _)| *policy == run.policy).map(|(_, outcome)| outcome)
    }
}

impl What {
    /// The stream of an item, if it has one.
    pub(crate) fn of(item: &Item, long: bool) -> Option<What> {
        What::choose(&item.workload, &item.long, long).or_else(|| item.trace.clone().map(What::Trace))
    }

    fn choose(short: &Option<String>, longer: &Option<String>, long: bool) -> Option<What> {
        longer.clone().filter(|_| long).or_else(|| short.clone()).map(What::Workload)
    }
}

/// The stream of a run of an item, if it has one; `lines`: with lines.
fn stream(lines: bool, item: &Item, run: &Run, long: bool) -> Option<Stream> {
    let what = What::of(item, long).and_then(|own| What::choose(&run.workload, &run.long, long).or(Some(own)))?;
    Some(Stream {
        what,
        machine: run.machine.clone(),
        inputs: run.inputs.clone(),
        replication: run.replication,
        memory: item.memory.clone(),
        digest: item.digest.clone(),
        files: item.files.clone(),
        time_scale: item.time_scale,
        fragment: run.fragment.clone(),
        kernel: run.kernel.clone(),
        sample_seconds: item.sample_seconds,
        lines,
    })
}

impl Pass {
    fn run(&mut self, corpus: &Path, stop: &AtomicBool, watch: &dyn Watch) -> Result<(), Outcome> {
        let mut source = self.stream.what.open(corpus, self.stream.lines)?;
        let (mut setups, mut wanted) = (Vec::new(), Vec::new());
        // `base` comes first, as the baseline of speedups.
        setups.push(self.stream.setup("base").map_err(Outcome::Failed)?);
        for (policy, outcome) in self.points.iter_mut() {
            match self.stream.setup(policy) {
                _ if policy == "base" => wanted.push((0, outcome)),
                Ok(setup) => {
                    setups.push(setup);
                    wanted.push((setups.len() - 1, outcome));
                }
                Err(problem) => *outcome = Outcome::Failed(problem),
            }
        }
        let limits: Vec<Limit> = superpage_linux::memory::left()
            .into_iter()
            .map(|left| Limit { bytes: left.bytes, of: left.of, counts_untouched: left.counts_untouched })
            .collect();
        let samples = superpage_sim::Watch {
            every: self.stream.sample_seconds.map(superpage_sim::Every::Seconds),
            contiguity: self.contiguity,
            lines: self.stream.lines,
            cores: None,
        };
        superpage_sim::check_memory(&setups, &samples, &limits).map_err(|error| Outcome::Failed(error.to_string()))?;
        let progress = |progress| watch.progress(progress);
        let runs = superpage_sim::run_parts(&setups, source.as_mut(), stop, &progress, &samples);
        let runs = runs.map_err(|error| Outcome::Failed(error.to_string()))?;
        for (index, outcome) in wanted {
            let run = &runs[index];
            *outcome = match &run.row.error {
                Some(error) if !run.row.complete => Outcome::Failed(error.clone()),
                None if !run.row.complete => Outcome::Interrupted,
                _ => Outcome::Done(Box::new(Ran(run.clone()))),
            };
        }
        Ok(())
    }
}

impl What {
    /// With lines; a trace of pages is refused later, where they are asked for.
    pub(crate) fn open(&self, corpus: &Path, lines: bool) -> Result<Box<dyn Source>, Outcome> {
        let parse = if lines { workload::parse_lines } else { workload::parse };
        match self {
            What::Workload(text) => parse(text).map_err(|error| Outcome::Failed(error.to_string())),
            What::Trace(name) => {
                let path = corpus.join(name);
                if !path.exists() {
                    // Those of a paper are not shipped.
                    let makes =
                        name.split_once('/').map_or("make corpus".into(), |(of, _)| format!("corpus/record {of}"));
                    return Err(Outcome::Missing(format!(
                        "there is no trace {}: make it with `{makes}`, or name the folder of the corpus with --corpus",
                        path.display()
                    )));
                }
                match superpage_trace::file::Reader::open(&path) {
                    Ok(reader) => Ok(Box::new(reader)),
                    Err(error) => Err(Outcome::Failed(error.to_string())),
                }
            }
        }
    }
}

impl Stream {
    fn setup(&self, policy: &str) -> Result<Setup, String> {
        let text = |error: superpage_sim::Error| error.to_string();
        let mut machine = machine(&self.machine, &self.inputs)?;
        if !self.replication {
            without_replication(&mut machine);
        }
        let memory = self.memory.as_deref().map(parse_bytes).transpose().map_err(|error| error.to_string())?;
        let digest = self.digest.as_deref().map_or(Ok(Digest::default()), str::parse)?;
        let files = self.files.as_deref().map_or(Ok(Files::default()), str::parse)?;
        let fragment = self.fragment.as_deref().map_or(Ok(Fragment::default()), str::parse)?;
        let time_scale = self.time_scale.map_or(Ok(TimeScale::default()), |scale| scale.to_string().parse())?;
        let kernels = self.kernel.iter().cloned().collect();
        let conditions = Conditions { memory, digest, files, fragment, time_scale, kernels, ..Conditions::default() };
        let setups = superpage_sim::plan_machines(&[machine], &[policy.to_string()], &conditions).map_err(text)?;
        Ok(setups.into_iter().next_back().expect("a plan has at least base"))
    }
}

/// The machine of a name, parts of which may be these inputs of an experiment, by their paths.
pub(crate) fn machine(name: &str, inputs: &BTreeMap<String, String>) -> Result<Machine, String> {
    Machine::named(name, |path| read(path, inputs)).map_err(|error| error.to_string())
}

/// Checks that such a machine has a key; the error says which it has.
pub(crate) fn check_key(name: &str, inputs: &BTreeMap<String, String>, key: &str) -> Result<(), String> {
    Machine::check_key(name, key, |path| read(path, inputs)).map_err(|error| error.to_string())
}

fn read(path: &str, inputs: &BTreeMap<String, String>) -> Result<String, MachineError> {
    match inputs.get(path) {
        Some(text) => Ok(text.clone()),
        None => superpage_output::read_text(path.as_ref()).map_err(|error| MachineError::unread(path, error)),
    }
}

/// Gives the machine a page table in which a page of any size is one entry: a level of the tree for
/// each size. Page-number bits that the first levels do not translate are translated by further
/// ones of 10 bits.
pub(crate) fn without_replication(machine: &mut Machine) {
    let sizes = &machine.pages.sizes;
    let mut bits: Vec<u8> = sizes.windows(2).map(|pair| (pair[1].shift() - pair[0].shift()) as u8).collect();
    bits.push(10);
    while bits.len() < 3 {
        bits.push(10);
    }
    machine.page_table.kind = TableKind::Radix;
    machine.page_table.bits = bits;
    machine.name += " without replication";
}
