//! Kind `live`: real programs, run under the policies of a live Linux and measured, each once for
//! all experiments.

#[cfg_attr(not(target_os = "linux"), path = "live/elsewhere.rs")]
mod measure;
pub(crate) mod program;

use crate::experiment::{Experiment, Item, Kind};
use crate::finding::Values;
use crate::measure::{Value, slug, split};
use crate::running::{Options, Outcome, Watch};
use program::Job;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use superpage_report::Point;

/// Measured runs of each program, as in the thesis; one warm-up run precedes them.
const RUNS: usize = 3;

/// The measurements of a program: for each policy a row of `superpage compare`, or why there is
/// none.
pub(crate) struct Measured {
    rows: BTreeMap<String, Result<serde_json::Value, Outcome>>,
    /// Why some counts are null.
    uncounted: Outcome,
    /// What a reader of the rows must know.
    notes: Vec<String>,
}

/// A program that is to run, under these policies, and its results.
struct Wanted {
    /// For people: the item and its command.
    label: String,
    job: Job,
    policies: Vec<String>,
    came: Result<Measured, Outcome>,
}

/// All programs of a set of experiments.
pub(crate) struct Jobs {
    wanted: Vec<Wanted>,
    long: bool,
}

impl Jobs {
    /// What the experiments need; nothing has run yet.
    pub(crate) fn of(experiments: &[Experiment], long: bool) -> Jobs {
        let mut jobs = Jobs { wanted: Vec::new(), long };
        for experiment in experiments.iter().filter(|experiment| experiment.kind == Kind::Live) {
            for (item, program) in experiment.items.iter().filter_map(|item| Some((item, item.live.as_ref()?))) {
                let Some(job) = program.job(long, &experiment.inputs) else { continue };
                let at = jobs.wanted.iter().position(|wanted| wanted.job == job).unwrap_or_else(|| {
                    let label = format!("{}: {}", item.name, job.command);
                    let came = Err(Outcome::Interrupted);
                    jobs.wanted.push(Wanted { label, job, policies: Vec::new(), came });
                    jobs.wanted.len() - 1
                });
                let policies = &mut jobs.wanted[at].policies;
                for run in experiment.runs.values().filter(|run| !policies.contains(&run.policy)).collect::<Vec<_>>() {
                    policies.push(run.policy.clone());
                }
            }
        }
        jobs
    }

    /// Runs all of them, one after the other, until `stop` is set.
    pub(crate) fn run(&mut self, options: &Options, stop: &Arc<AtomicBool>, watch: &dyn Watch) {
        let of = self.wanted.len();
        for (index, wanted) in self.wanted.iter_mut().enumerate() {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            watch.stream(&wanted.label, index + 1, of);
            wanted.came = wanted.job.missing(&options.programs).map_or_else(
                || measure::measure(&wanted.job, &wanted.policies, &options.programs, stop),
                |missing| Err(Outcome::Missing(missing)),
            );
        }
    }

    /// What could not be run, one sentence each; a problem of all programs is reported once.
    pub(crate) fn failures(&self) -> Vec<String> {
        let mut failures: Vec<(&str, Vec<&str>)> = Vec::new();
        for wanted in &self.wanted {
            let Err(Outcome::Failed(problem)) = &wanted.came else { continue };
            match failures.iter_mut().find(|(known, _)| known == problem) {
                Some((_, labels)) => labels.push(&wanted.label),
                None => failures.push((problem, vec![&wanted.label])),
            }
        }
        let sentence = |(problem, labels): (&str, Vec<&str>)| match labels[..] {
            [label] => format!("{label}: {problem}"),
            _ => format!("{} programs could not be run: {problem}", labels.len()),
        };
        failures.into_iter().map(sentence).collect()
    }

    /// What a reader of the values must know, one sentence each; and what is missing and how to
    /// install it.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        // What was found again for each program differs only in its evidence, in parentheses.
        let finding = |note: &str| note.split(" (").next().map(str::to_string);
        let mut add = |note: &String| {
            if notes.iter().all(|known| finding(known) != finding(note)) {
                notes.push(note.clone());
            }
        };
        for wanted in &self.wanted {
            match &wanted.came {
                Ok(measured) => measured.notes.iter().for_each(&mut add),
                Err(Outcome::Missing(missing)) => add(missing),
                Err(_) => {}
            }
        }
        notes
    }

    fn measured(&self, experiment: &Experiment, item: &Item) -> Result<&Measured, &Outcome> {
        let job = item.live.as_ref().and_then(|program| program.job(self.long, &experiment.inputs));
        match self.wanted.iter().find(|wanted| Some(&wanted.job) == job.as_ref()) {
            Some(wanted) => wanted.came.as_ref(),
            None => Err(&program::ONLY_LONG),
        }
    }
}

/// Finds the values of programs that ran: `thp.wall_seconds.median` is a key of the row of the run
/// `thp`.
pub(crate) struct Found<'a> {
    pub(crate) experiment: &'a Experiment,
    pub(crate) jobs: &'a Jobs,
}

impl Found<'_> {
    fn look(&self, item: Option<&Item>, name: &str) -> Option<Result<Value, &Outcome>> {
        let (named, rest) = split(name);
        let by_name = |named| self.experiment.items.iter().find(|item| slug(&item.name) == slug(named));
        let item = named.map_or(item, by_name)?;
        let (run, key) = rest.split_once('.')?;
        let policy = &self.experiment.runs.get(run)?.policy;
        let found = || {
            let measured = self.jobs.measured(self.experiment, item)?;
            let Some(row) = measured.rows.get(policy) else { return Ok(None) };
            let value = row.as_ref()?.pointer(&format!("/{}", key.replace('.', "/")));
            let Some(value) = value else { return Ok(None) };
            value.as_f64().map(Value::Number).ok_or(&measured.uncounted).map(Some)
        };
        found().transpose()
    }
}

impl Values for Found<'_> {
    fn value(&self, item: Option<&Item>, name: &str) -> Option<Value> {
        self.look(item, name)?.ok()
    }

    fn problem(&self, item: Option<&Item>, name: &str) -> Option<&Outcome> {
        self.look(item, name)?.err()
    }

    fn error(&self, _: Option<&Item>, _: &str) -> Option<&str> {
        None
    }

    fn curve(&self, _: &str) -> Vec<Point> {
        Vec::new()
    }
}
