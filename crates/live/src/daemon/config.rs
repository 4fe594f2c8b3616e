//! The configuration of the daemon, a TOML file: `packaging/superpage.toml` is one, with each key explained.

use crate::policy::{LINUX, OF_COMMAND};
use crate::promote::{Options, Target};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use superpage_linux::Error;
use superpage_linux::cgroup;
use superpage_linux::proc::State;
use toml::{Spanned, Value};

/// The configuration: which processes, how, and where the metrics go.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Config {
    /// Which processes.
    pub processes: Processes,
    /// The policy, and what is kept to.
    pub options: Options,
    /// Where the metrics go.
    pub metrics: MetricsConfig,
}

/// A file. The policy is a text, or the parameters of `promote` are a table.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Text {
    policy: Option<Spanned<String>>,
    promote: BTreeMap<Spanned<String>, Spanned<Value>>,
    processes: Processes,
    metrics: MetricsConfig,
}

impl Text {
    /// The policy; or what is wrong, and where.
    fn options(&self) -> Result<Options, (Range<usize>, String)> {
        let mut options = Options::default();
        if let Some(policy) = &self.policy {
            let wrong = |error: &dyn std::fmt::Display| (policy.span(), error.to_string());
            options = options.changed(policy.as_ref()).map_err(|error| wrong(&error))?;
            if !self.promote.is_empty() {
                return Err(wrong(&"the parameters are in the policy, or in the table [promote]: not in both"));
            }
        }
        let mut all = Vec::new();
        for (key, value) in &self.promote {
            let text = match value.as_ref() {
                Value::String(text) => text.clone(),
                Value::Boolean(on) => if *on { "on" } else { "off" }.to_string(),
                other => other.to_string(),
            };
            let pair = format!("{}={text}", key.as_ref());
            // By itself, so that what is wrong with it is told with its place; what contradicts another one is
            // found below.
            superpage_vm::Policy::parse(&format!("promote:{pair}"), &LINUX)
                .map_err(|error| (key.span(), error.to_string()))?;
            all.push(pair);
        }
        if !all.is_empty() {
            options =
                options.changed(&format!("promote:{}", all.join(","))).map_err(|error| (0..0, error.to_string()))?;
        }
        Ok(options)
    }
}

/// The processes to promote in: the union of all parts.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Processes {
    /// Every process of the system except `init`.
    pub all: bool,
    /// These processes.
    pub pids: Vec<i32>,
    /// Those in these control groups and the groups below; also units of systemd, by name or path,
    /// whenever they run.
    pub cgroups: Vec<PathBuf>,
    /// Those of these names.
    pub names: Vec<String>,
    /// But none of these names.
    pub except: Vec<String>,
}

/// The destinations of metrics: none, unless one of these is given.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// Served over HTTP, as `/metrics`, at this address and port.
    pub listen: Option<SocketAddr>,
    /// Written to this file, for the textfile collector of the node exporter.
    pub file: Option<PathBuf>,
}

impl Processes {
    /// Leaves out the processes named by number that do not exist: their numbers may be given to others. Logs
    /// each, if others are left.
    ///
    /// # Errors
    /// [`Error::Usage`]: none is left; one is a thread of the kernel.
    pub fn leave_out_gone(&mut self) -> Result<(), Error> {
        let (gone, there): (Vec<i32>, Vec<i32>) =
            self.pids.iter().partition(|pid| matches!(State::of(**pid), State::Gone | State::Zombie));
        let none = !self.all && self.cgroups.is_empty() && self.names.is_empty() && there.is_empty();
        for pid in gone {
            if none {
                let sentence = format!("there is no process {pid}: see ps for the numbers of those that run");
                return Err(Error::Usage(sentence));
            }
            tracing::warn!("there is no process {pid}: it is left out");
        }
        self.pids = there;
        for pid in &self.pids {
            match State::of(*pid) {
                State::Gone | State::Zombie | State::Runs | State::Headless(_) => {}
                State::Kernel => {
                    let sentence = format!("process {pid} is a thread of the kernel: it has no memory to promote");
                    return Err(Error::Usage(sentence));
                }
            }
        }
        Ok(())
    }
}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// It cannot be read, others may write to it, or it is invalid; the message names the
    /// file and the line.
    pub fn read(path: &Path) -> Result<Config, Error> {
        let text = superpage_output::read_own_text(path)
            .map_err(|error| Error::Usage(format!("cannot read {}: {error}", path.display())))?;
        let wrong = |span: Option<Range<usize>>, problem: &str| {
            let line = span.map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            Error::Usage(format!("{}:{line}: {problem}", path.display()))
        };
        let read: Text = toml::from_str(&text).map_err(|error| wrong(error.span(), error.message()))?;
        let options = read.options().map_err(|(span, problem)| wrong(Some(span), &problem))?;
        Ok(Config { processes: read.processes, options, metrics: read.metrics })
    }

    /// Checks that it selects processes.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn validate(&self) -> Result<(), Error> {
        if self.processes == (Processes { except: self.processes.except.clone(), ..Processes::default() }) {
            let sentence = "which processes? Give --pid, --name, --cgroup or --all, or a --config that does in its \
                            table [processes]";
            return Err(Error::Usage(sentence.to_string()));
        }
        if self.options.of_command != Options::default().of_command {
            let sentence = "is of a command that is run or compared: a daemon has none, and keeps to cpu";
            return Err(Error::Usage(format!("{OF_COMMAND} {sentence}")));
        }
        if let Some(pid) = self.processes.pids.iter().find(|pid| **pid < 1) {
            return Err(Error::Usage(format!("{pid} is no process: their numbers are above 0")));
        }
        Ok(())
    }

    /// The processes, with the folders of the control groups found; units of systemd may start
    /// later.
    ///
    /// # Errors
    /// A control group that is no unit's does not exist.
    pub fn target(&self) -> Result<Target, Error> {
        let Processes { all, pids, cgroups, names, except } = self.processes.clone();
        let folder = |path: PathBuf| if cgroup::is_unit(&path) { Ok(path) } else { cgroup::find(&path) };
        let cgroups = cgroups.into_iter().map(folder).collect::<Result<_, Error>>()?;
        Ok(Target { all, cgroups, names, except, ..Target::pids(pids) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packaged_configuration_is_the_defaults() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/superpage.toml");
        let config = Config::read(&path).unwrap();
        let slowdown = format!("promote:slowdown={}", crate::promote::SLOWDOWN);
        assert_eq!(config.options, Options::default().changed(&slowdown).unwrap());
        let error = config.validate().unwrap_err();
        assert!(error.to_string().starts_with("which processes?"), "it opts nobody in: {error}");
        // Every parameter is there to be changed.
        let text = std::fs::read_to_string(path).unwrap();
        let names = LINUX.accepted(Options::default().policy().definition()).map(|parameter| parameter.name);
        for key in names.filter(|name| *name != OF_COMMAND) {
            assert!(text.lines().any(|line| line.starts_with(&format!("{key} = "))), "{key} is not in the file");
        }
    }

    #[test]
    fn a_bad_file_is_told_by_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.toml");
        let error = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Config::read(&path).unwrap_err()
        };
        for (text, part) in [
            ("[promote]\nshore = 1\n", "bad.toml:2: policy promote has no parameter `shore`"),
            ("[promote]\nshare = 2\n", "at most 1"),
            (
                "[promote]\nage = \"long\"\n",
                "bad.toml:2: policy promote: age is a time of at most 365 days, such as 100us, 250ms",
            ),
            ("[promote\n", "bad.toml:1"),
            ("policy = \"thp\"\n", "bad.toml:1: policy thp has no background work"),
            ("\npolicy = \"promote\"\n[promote]\nshare = 1\n", "bad.toml:2: the parameters are in"),
            ("[metrics]\nlisten = \"here\"\n", "bad.toml:2"),
        ] {
            let error = error(text);
            assert!(error.to_string().contains(part) && error.status() == 2, "{error}");
        }
        assert_eq!(Config::default().validate().unwrap_err().status(), 2);
        let options = "promote:of-command=1%".parse().unwrap();
        let processes = Processes { all: true, ..Processes::default() };
        let error = Config { processes, options, ..Config::default() }.validate().unwrap_err();
        assert!(error.to_string().starts_with("of-command is of a command"), "{error}");
    }
}
