//! Runs a program under policies with `superpage_live::compare`.

use super::program::Job;
use super::{Measured, Outcome, RUNS};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use superpage_live::Policy;
use superpage_live::compare::counters::{Available, Event};
use superpage_live::compare::{Options, Reaches, compare};

/// Runs the job in a temporary folder, which is removed afterwards: once to warm up, then the
/// measured runs, in turns.
pub(super) fn measure(
    job: &Job,
    policies: &[String],
    programs: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<Measured, Outcome> {
    let folder = tempfile::Builder::new().prefix("superpage").tempdir();
    let folder = folder.map_err(|error| Outcome::Failed(format!("cannot make a folder to run it in: {error}")))?;
    let path = folder.path();
    for (name, text) in &job.inputs {
        let file = path.join(name);
        fs::write(&file, text)
            .map_err(|error| Outcome::Failed(format!("cannot write its input {}: {error}", file.display())))?;
    }
    if let Some(prepare) = &job.prepare {
        let mut command = Command::new("sh");
        command.arg("-c").arg(Job::placed(prepare, programs)).current_dir(path).stdin(Stdio::null());
        let status = command.stdout(Stdio::null()).status();
        match status {
            Ok(status) if status.success() => {}
            Ok(status) => return Err(Outcome::Failed(format!("its preparation ended with {status}: {prepare}"))),
            Err(error) => return Err(Outcome::Failed(format!("cannot run sh: {error}"))),
        }
    }

    // The kernel may support a policy that we do not, or the other way round: each is left out by
    // itself.
    let mut rows: BTreeMap<String, Result<serde_json::Value, Outcome>> = BTreeMap::new();
    let mut known = Vec::new();
    for policy in policies {
        match policy.parse::<Policy>() {
            Ok(policy) => known.push(policy),
            Err(error) => _ = rows.insert(policy.clone(), Err(Outcome::Missing(error.to_string()))),
        }
    }
    let command = Job::placed(&job.command, programs);
    let script = ["sh", "-c", "cd \"$0\" && eval \"$1\"", &path.to_string_lossy(), &command];
    let base = "base".parse().expect("it is a policy");
    // They are those of the experiment, whatever else runs.
    let reach = Reaches::System;
    let options = Options { reference: base, policies: known, reach, runs: RUNS, ..Options::new(script) };
    let found = compare(&options, stop, &mut ()).map_err(|error| Outcome::Failed(error.to_string()))?;
    if found.ended_early() {
        return Err(Outcome::Interrupted);
    }
    for row in &found.rows {
        rows.insert(row.policy.clone(), Ok(serde_json::to_value(row).expect("a row is a struct of plain values")));
    }
    for policy in policies.iter().filter(|policy| !rows.contains_key(*policy)).cloned().collect::<Vec<_>>() {
        let why = found.notes.iter().find(|note| note.starts_with(&format!("{policy} is left out")));
        let why = why.cloned().unwrap_or_else(|| format!("{policy} did not run"));
        rows.insert(policy, Err(Outcome::Missing(why)));
    }
    let counters = Available::among(&Event::HARDWARE).note();
    let uncounted = Outcome::Missing(counters.unwrap_or_else(|| "this was not counted".into()));
    Ok(Measured { rows, uncounted, notes: found.notes })
}
