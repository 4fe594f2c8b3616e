//! Values of machines that a reader changes, to test the reason of a row: `superpage reproduce
//! --set costs.fault=900 --lines`.
//!
//! Rows computed with changed values are no reproduction: they are shown, with the verdict that
//! they would have.

use crate::experiment::{Changed, Experiment, Kind, Run};
use crate::measure::{Measure, split};
use crate::{Done, streams};
use std::collections::{BTreeMap, BTreeSet};
use superpage_sim::Error;

/// The experiments with values set in their machines, `KEY=VALUE` each as of `superpage sim --set`,
/// and with lines. A machine without a key stays as it is, and so do the rows of its runs; an
/// experiment in which an option would change nothing runs without it. For each option that any
/// runs without, a sentence says which.
///
/// # Errors
/// An option would change nothing in any of the experiments, or a value is not valid where a
/// machine has its key.
pub fn with_settings(
    experiments: Vec<Experiment>,
    set: &[String],
    lines: bool,
) -> Result<(Vec<Experiment>, Vec<String>), Error> {
    let changed = experiments.into_iter().map(|experiment| experiment.with(set, lines));
    let changed = changed.collect::<Result<Vec<(Experiment, Vec<Lack>)>, Error>>()?;
    let options = set.iter().map(|setting| format!("--set {setting}")).chain(lines.then(|| "--lines".to_string()));
    let mut notes = Vec::new();
    for option in options {
        let without = |(experiment, lacks): &(Experiment, Vec<Lack>)| {
            let lack = lacks.iter().find(|lack| lack.option == option)?;
            Some((experiment.full_name(), lack.problem.clone()))
        };
        let without: Vec<(String, String)> = changed.iter().filter_map(without).collect();
        match without.first() {
            Some((_, problem)) if without.len() == changed.len() => return Err(Error::Usage(problem.clone())),
            Some(_) => {
                let names: Vec<String> = without.into_iter().map(|(name, _)| name).collect();
                notes.push(format!("{option} would change nothing in {}: run without it", names.join(", ")));
            }
            None => {}
        }
    }
    Ok((changed.into_iter().map(|(experiment, _)| experiment).collect(), notes))
}

/// An option that would change nothing in an experiment.
struct Lack {
    option: String,
    /// Why, in a sentence that names the experiment.
    problem: String,
}

impl Experiment {
    /// The experiment with those of these options that change something in it, and the others.
    fn with(mut self, set: &[String], lines: bool) -> Result<(Experiment, Vec<Lack>), Error> {
        let name = self.full_name();
        let no_machine = match self.kind {
            Kind::Live => Some("it runs real programs; --set and --lines are for simulated machines"),
            Kind::Coverage | Kind::Operations | Kind::Filling => {
                Some("it simulates no machine, so --set and --lines change nothing; leave it out")
            }
            Kind::Grid | Kind::Sequence | Kind::Holes => None,
        };
        let no_stream = self.kind == Kind::Holes && !self.items.iter().any(|item| item.runs());
        let no_lines = no_machine.or(if self.lines {
            Some("it has lines already; leave out --lines")
        } else {
            no_stream.then_some("it runs no stream, so --lines changes nothing; leave it out")
        });
        let (mut taken, none) = (BTreeSet::new(), BTreeMap::new());
        let mut problems = BTreeMap::new();
        for run in self.runs.values_mut().filter(|_| no_machine.is_none()) {
            run.set = set_values(&mut run.machine, &run.inputs, set, &mut problems)?;
            taken.extend(run.set.iter().cloned());
        }
        for machine in self.sweep.iter_mut().flat_map(|sweep| sweep.machines()) {
            taken.extend(set_values(machine, &none, set, &mut problems)?);
        }
        let mut lacks = Vec::new();
        for setting in set.iter().filter(|setting| !taken.contains(*setting)) {
            let problem = match no_machine {
                Some(problem) => format!("{name}: {problem}"),
                None => {
                    let problem = problems.remove(setting).unwrap_or_default();
                    format!("--set {setting}: no machine of {name} has this: {problem}")
                }
            };
            lacks.push(Lack { option: format!("--set {setting}"), problem });
        }
        if let Some(problem) = no_lines.filter(|_| lines) {
            lacks.push(Lack { option: "--lines".into(), problem: format!("{name}: {problem}") });
        }
        let lines = lines && no_lines.is_none();
        self.lines |= lines;
        let set = set.iter().filter(|setting| taken.contains(*setting)).cloned().collect();
        self.changed = Changed { set, lines };
        Ok((self, lacks))
    }

    /// The options that changed what a measure reads, or, without a measure, anything of the
    /// experiment.
    pub(crate) fn settings_of(&self, measure: Option<&Measure>) -> Option<String> {
        let Some(measure) = measure.filter(|_| self.kind != Kind::Holes) else { return self.settings_of_all() };
        let mut runs: Vec<&Run> = Vec::new();
        measure.names(&mut |name| runs.extend(self.runs.get(split(name).1.split('.').next().unwrap_or_default())));
        let lines = self.changed.lines && !runs.is_empty();
        options(self.changed.set.iter().filter(|setting| runs.iter().any(|run| run.set.contains(setting))), lines)
    }

    /// All options that changed something of the experiment.
    pub(crate) fn settings_of_all(&self) -> Option<String> {
        options(self.changed.set.iter(), self.changed.lines)
    }
}

/// Sets those values in a machine, by its name, whose keys it has, and returns them. `problems`
/// gets why it has not another.
fn set_values(
    machine: &mut String,
    inputs: &BTreeMap<String, String>,
    set: &[String],
    problems: &mut BTreeMap<String, String>,
) -> Result<Vec<String>, Error> {
    let mut own: Vec<String> = Vec::new();
    for setting in set {
        let key = setting.split_once('=').map(|(key, _)| key);
        let key = key.ok_or_else(|| Error::Usage(format!("--set {setting}: expected KEY=VALUE")))?;
        match streams::check_key(machine, inputs, key) {
            Ok(()) => own.push(setting.clone()),
            Err(problem) => _ = problems.entry(setting.clone()).or_insert(problem),
        }
    }
    *machine = superpage_sim::with_values(machine, &own);
    streams::machine(machine, inputs).map_err(Error::Usage)?;
    Ok(own)
}

/// Settings as one gives them to the command.
fn options<'a>(set: impl Iterator<Item = &'a String>, lines: bool) -> Option<String> {
    let plain = |c: char| c.is_alphanumeric() || ".=-_+".contains(c);
    let quote = |setting: &String| shlex::try_quote(setting).map_or_else(|_| setting.clone(), Into::into);
    let word = |setting: &String| if setting.chars().all(plain) { setting.clone() } else { quote(setting) };
    let set = set.map(|setting| format!("--set {}", word(setting)));
    let all: Vec<String> = set.chain(lines.then(|| "--lines".to_string())).collect();
    Some(all.join(" ")).filter(|all| !all.is_empty())
}

/// What a reader of results with changed values must know.
pub(crate) fn notes(done: &[Done]) -> impl Iterator<Item = String> {
    let note = |done: &Done| {
        let (name, settings) = (done.experiment.full_name(), done.experiment.settings_of_all()?);
        Some(format!("{name}: rows computed with {settings} are shown, with the verdict that they would have"))
    };
    done.iter().filter_map(note)
}
