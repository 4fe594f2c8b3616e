//! The programs of experiment files, and the jobs to run for them.

use crate::running::Outcome;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

/// Why an item that has parameters for long runs only has no result.
pub(crate) static ONLY_LONG: LazyLock<Outcome> =
    LazyLock::new(|| Outcome::Missing("takes minutes: runs with --long only".into()));

/// A program of an item. In its texts `{programs}` stands for the folder of this project's own
/// programs, and `{NAME}` for a parameter.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Program {
    /// What `sh` runs, in a new folder.
    command: String,
    /// What `sh` runs there once before.
    prepare: Option<String>,
    /// Programs that must be installed, each with the Debian package that contains it.
    #[serde(default)]
    needs: BTreeMap<String, String>,
    /// Input files copied into the folder, from `inputs` next to the experiment's file.
    #[serde(default)]
    inputs: Vec<String>,
    /// Values of the parameters. Without them, and with `long`, it takes minutes, and runs with
    /// `--long` only.
    set: Option<BTreeMap<String, String>>,
    /// Values of the parameters for a long run.
    long: Option<BTreeMap<String, String>>,
}

/// A command to run, with all parameters substituted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Job {
    pub(crate) command: String,
    pub(crate) prepare: Option<String>,
    pub(crate) needs: BTreeMap<String, String>,
    /// Names and texts.
    pub(crate) inputs: Vec<(String, String)>,
}

/// The placeholder for the folder of our own programs.
const PROGRAMS: &str = "{programs}";

impl Program {
    /// Checks what the syntax alone does not ensure.
    pub(crate) fn check(&self, inputs: &BTreeMap<String, String>) -> Result<(), String> {
        if self.command.trim().is_empty() {
            return Err("its command is empty".into());
        }
        if let Some(missing) = self.inputs.iter().find(|name| !inputs.contains_key(*name)) {
            return Err(format!("there is no input {missing} in the folder inputs next to the file"));
        }
        let names =
            |set: &Option<BTreeMap<String, String>>| set.as_ref().map(|set| set.keys().cloned().collect::<Vec<_>>());
        match (names(&self.set), names(&self.long)) {
            (Some(set), Some(long)) if set != long => Err("set and long do not name the same parameters".into()),
            _ => Ok(()),
        }
    }

    /// The job; `None` if that needs `--long`.
    pub(crate) fn job(&self, long: bool, inputs: &BTreeMap<String, String>) -> Option<Job> {
        let set = match (&self.set, &self.long) {
            (_, Some(set)) if long => Some(set),
            (None, Some(_)) => return None,
            (set, _) => set.as_ref(),
        };
        let fill = |text: &String| {
            let values = set.into_iter().flatten();
            values.fold(text.clone(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
        };
        Some(Job {
            command: fill(&self.command),
            prepare: self.prepare.as_ref().map(fill),
            needs: self.needs.clone(),
            inputs: self.inputs.iter().map(|name| (name.clone(), fill(&inputs[name]))).collect(),
        })
    }
}

impl Job {
    /// The text with the folder of our own programs substituted, as a word of `sh`.
    pub(crate) fn placed(text: &str, programs: &Path) -> String {
        let folder = programs.to_string_lossy();
        text.replace(PROGRAMS, &shlex::try_quote(&folder).expect("a path has no zero"))
    }

    /// What is missing to run it, and how to install it: a sentence without a full stop.
    pub(crate) fn missing(&self, programs: &Path) -> Option<String> {
        let own = self.command.split_whitespace().find_map(|word| word.strip_prefix(PROGRAMS)?.strip_prefix('/'));
        if let Some(path) = own.map(|name| programs.join(name)).filter(|path| !path.exists()) {
            return Some(format!(
                "there is no program {}: build it with cargo build --release --examples -p superpage-live, or name its \
                 folder with --programs",
                path.display()
            ));
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let there = |program: &String| std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
        let missing: Vec<(&String, &String)> = self.needs.iter().filter(|(program, _)| !there(program)).collect();
        let (programs, packages): (Vec<&str>, Vec<&str>) =
            missing.iter().map(|(program, package)| (program.as_str(), package.as_str())).unzip();
        let are = if programs.len() == 1 { "is" } else { "are" };
        (!missing.is_empty())
            .then(|| format!("{} {are} not installed: apt install {}", programs.join(", "), packages.join(" ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(text: &str) -> Program {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn parameters_are_put_into_the_command_and_the_inputs() {
        let inputs = BTreeMap::from([("a.txt".to_string(), "n = {N}, {M}".to_string())]);
        let program = program("command = \"p {N}\"\ninputs = [\"a.txt\"]\nset = { N = \"5\" }\nlong = { N = \"50\" }");
        program.check(&inputs).unwrap();
        let short = program.job(false, &inputs).unwrap();
        assert_eq!((short.command.as_str(), short.inputs[0].1.as_str()), ("p 5", "n = 5, {M}"));
        assert_eq!(program.job(true, &inputs).unwrap().command, "p 50");
    }

    #[test]
    fn what_has_parameters_for_long_runs_only_waits_for_them() {
        let program = program("command = \"p {N}\"\nlong = { N = \"50\" }");
        assert!(program.job(false, &BTreeMap::new()).is_none());
        assert_eq!(program.job(true, &BTreeMap::new()).unwrap().command, "p 50");
    }

    #[test]
    fn what_is_missing_is_said_with_the_way_to_have_it() {
        let inputs = BTreeMap::new();
        let job = |text: &str| program(text).job(false, &inputs).unwrap();
        let nowhere = Path::new("/nowhere");
        let own = job("command = \"{programs}/ptrees\"").missing(nowhere).unwrap();
        assert!(own.contains("no program /nowhere/ptrees") && own.contains("--examples"), "{own}");
        let other = job("command = \"frobnicate\"\nneeds = { frobnicate = \"frob\", sh = \"dash\" }").missing(nowhere);
        assert_eq!(other.unwrap(), "frobnicate is not installed: apt install frob");
        assert_eq!(job("command = \"true\"\nneeds = { sh = \"dash\" }").missing(nowhere), None);
        let problem = program("command = \"p\"\ninputs = [\"a\"]").check(&inputs).unwrap_err();
        assert!(problem.contains("no input a"), "{problem}");
    }
}
