//! Values of machines that a reader changes, to test the reason of a row: `superpage reproduce --set costs.fault=900 --lines`.
//!
//! Rows computed with changed values are no reproduction: they are shown, with the verdict that they would have.

use crate::experiment::{Experiment, Kind, Run, split};
use crate::measure::Measure;
use crate::{Done, streams};
use std::collections::{BTreeMap, BTreeSet};
use superpage_sim::Error;

/// What a reader changed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Changed {
    /// Values set in machines, `KEY=VALUE` each.
    set: Vec<String>,
    /// Whether lines were asked for, of an experiment without.
    lines: bool,
}

impl Experiment {
    /// The experiment with values set in its machines, `KEY=VALUE` each as of `superpage sim --set`, and with lines. A machine without a
    /// key stays as it is, and so do the rows of its runs.
    ///
    /// # Errors
    /// None of its machines has a key, a value is not valid there, or what is asked for would change nothing: the experiment simulates
    /// no machines, or has lines already.
    pub fn with(mut self, set: &[String], lines: bool) -> Result<Experiment, Error> {
        let refuse = |problem: &str| Err(Error::Usage(format!("{}: {problem}", self.full_name())));
        if set.is_empty() && !lines {
            return Ok(self);
        }
        match self.kind {
            Kind::Live => return refuse("it runs real programs; --set and --lines are for simulated machines"),
            Kind::Coverage | Kind::Operations | Kind::Filling => {
                return refuse("it simulates no machine, so --set and --lines change nothing; leave it out");
            }
            Kind::Holes if lines => return refuse("it has no lines: --lines is for experiments with a kernel"),
            Kind::Grid | Kind::Sequence if lines && self.lines => {
                return refuse("it has lines already; leave out --lines");
            }
            Kind::Grid | Kind::Sequence | Kind::Holes => {}
        }
        let (mut taken, none) = (BTreeSet::new(), BTreeMap::new());
        let mut problems = BTreeMap::new();
        for run in self.runs.values_mut() {
            run.set = set_values(&mut run.machine, &run.inputs, set, &mut problems)?;
            taken.extend(run.set.iter().cloned());
        }
        for machine in self.sweep.iter_mut().flat_map(|sweep| sweep.machines()) {
            taken.extend(set_values(machine, &none, set, &mut problems)?);
        }
        if let Some(setting) = set.iter().find(|setting| !taken.contains(*setting)) {
            let (name, problem) = (self.full_name(), problems.remove(setting).unwrap_or_default());
            return Err(Error::Usage(format!("--set {setting}: no machine of {name} has this: {problem}")));
        }
        self.lines |= lines;
        self.changed = Changed { set: set.to_vec(), lines };
        Ok(self)
    }

    /// The options that changed what a measure reads, or, without a measure, anything of the experiment.
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

/// Sets those values in a machine, by its name, whose keys it has, and returns them. `problems` gets why it has not another.
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
