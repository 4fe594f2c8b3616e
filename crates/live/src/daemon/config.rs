//! The configuration of the daemon, a TOML file: `packaging/superpage.toml` is one, with each key
//! explained.

use super::wrong::Read;
use crate::promote::{Options, Promoter, Target};
use crate::target::{LINUX, OF_COMMAND};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
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
    /// Which processes, but for those of a service.
    pub processes: Processes,
    /// Services with their own parameters: the first that selects a process has it.
    pub services: Vec<Service>,
    /// The policy, and what is kept to.
    pub options: Options,
    /// Where the metrics go.
    pub metrics: MetricsConfig,
}

/// A service that differs from the rest in its policy, or is counted apart.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Service {
    /// Its name in metrics and the log.
    pub label: String,
    /// Its processes.
    pub processes: Processes,
    /// Its policy, where that differs from the daemon's.
    pub policy: Option<String>,
}

/// What one promoter does.
#[derive(Debug)]
pub(super) struct Part {
    /// The name of the service, or that of all other processes.
    pub(super) label: String,
    /// Whether it is a service's.
    pub(super) is_service: bool,
    pub(super) options: Options,
    pub(super) target: Target,
}

/// The most services: each has a promoter, and its lines of metrics.
const SERVICES: usize = 256;

/// The label of the processes that are no service's.
const OTHERS: &str = "processes";

/// A file. The policy is a text, or the parameters of `promote` are a table.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Text {
    policy: Option<Spanned<String>>,
    promote: BTreeMap<Spanned<String>, Spanned<Value>>,
    processes: Option<Spanned<Processes>>,
    service: Vec<Spanned<ServiceText>>,
    metrics: MetricsConfig,
}

/// A table `[[service]]` of a file.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ServiceText {
    label: Option<String>,
    #[serde(deserialize_with = "groups")]
    cgroups: Vec<PathBuf>,
    #[serde(deserialize_with = "names")]
    names: Vec<String>,
    #[serde(deserialize_with = "names")]
    except: Vec<String>,
    policy: Option<Spanned<String>>,
}

/// Names that processes can have.
fn names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    if names.iter().any(|name| name.is_empty() || name.contains('\0')) {
        Err(D::Error::custom(
            "a name that is empty, or has a NUL, selects nothing: remove it, or give a name as ps shows it",
        ))
    } else {
        Ok(names)
    }
}

/// Control groups that exist, and units of systemd.
fn groups<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PathBuf>, D::Error> {
    let groups = Vec::<PathBuf>::deserialize(from)?;
    if groups.iter().any(|group| group.as_os_str().is_empty()) {
        return Err(D::Error::custom(
            "a control group without a name selects nothing: remove it, or give its path or the name of a unit",
        ));
    }
    for group in groups.iter().filter(|group| !cgroup::is_unit(group)) {
        cgroup::find(group).map_err(D::Error::custom)?;
    }
    Ok(groups)
}

/// The path of a file.
fn file<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    let path = PathBuf::deserialize(from)?;
    if path.as_os_str().is_empty() {
        Err(D::Error::custom("an empty path names no file: give the path of a file *.prom, or remove the key"))
    } else {
        Ok(Some(path))
    }
}

impl ServiceText {
    /// The name in metrics: the label that is given, or what selects its first processes.
    fn label(&self) -> Option<String> {
        let first = || self.cgroups.first().map(|path| path.display().to_string());
        self.label.clone().or_else(first).or_else(|| self.names.first().cloned())
    }
}

impl Text {
    /// The services, whose policies are tried with these options; or what is wrong, and where.
    fn services(&self, options: &Options) -> Result<Vec<Service>, (Range<usize>, String)> {
        let mut services: Vec<Service> = Vec::new();
        for table in &self.service {
            let (text, wrong) = (table.as_ref(), |problem: &str| (table.span(), problem.to_string()));
            if services.len() == SERVICES {
                return Err(wrong(&format!(
                    "at most {SERVICES} services: put those with the same policy into one table"
                )));
            }
            if text.cgroups.is_empty() && text.names.is_empty() {
                return Err(wrong("which processes? Give the service cgroups or names"));
            }
            let label = text.label().unwrap_or_default();
            if label.is_empty() {
                return Err(wrong("its label is empty: give a name for the metrics, or remove the key"));
            }
            if label == OTHERS {
                return Err(wrong("its label is that of the table [processes] in the metrics: give another one"));
            }
            if services.iter().any(|service| service.label == label) {
                return Err(wrong(&format!("two services are {label} in the metrics: give this one another label")));
            }
            if let Some(policy) = &text.policy {
                options.of_service(policy.as_ref()).map_err(|error| (policy.span(), error.to_string()))?;
            }
            let ServiceText { cgroups, names, except, .. } = text;
            let (cgroups, names, except) = (cgroups.clone(), names.clone(), except.clone());
            let processes = Processes { cgroups, names, except, ..Processes::default() };
            processes.selects_some().map_err(wrong)?;
            if let Some(first) = processes.all_of(&services) {
                return Err(wrong(&format!(
                    "it selects nothing: service {first} and those before this one have all of its names and control \
                     groups; remove it, or put it before them"
                )));
            }
            let policy = text.policy.as_ref().map(|policy| policy.as_ref().clone());
            services.push(Service { label, processes, policy });
        }
        Ok(services)
    }

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
            // By itself, so that an error in it is shown with its place; what contradicts
            // another one is found below.
            superpage_vm::Policy::parse(&format!("promote:{pair}"), &LINUX)
                .map_err(|error| (key.span(), error.to_string()))?;
            all.push(pair);
        }
        if !all.is_empty() {
            options = options.changed(&format!("promote:{}", all.join(","))).map_err(|error| {
                // Two of them contradict each other, or one a default: at the one that the error
                // names first.
                let problem = error.to_string();
                let named = |key: &&Spanned<String>| problem.find(key.as_ref().as_str()).unwrap_or(usize::MAX);
                let at = self.promote.keys().min_by_key(named).map_or(0..0, Spanned::span);
                (at, problem)
            })?;
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
    #[serde(deserialize_with = "groups")]
    pub cgroups: Vec<PathBuf>,
    /// Those of these names.
    #[serde(deserialize_with = "names")]
    pub names: Vec<String>,
    /// But none of these names.
    #[serde(deserialize_with = "names")]
    pub except: Vec<String>,
}

/// The destinations of metrics: none, unless one of these is given.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// Served over HTTP, as `/metrics`, at this address and port.
    pub listen: Option<SocketAddr>,
    /// Written to this file, for the textfile collector of the node exporter.
    #[serde(deserialize_with = "file")]
    pub file: Option<PathBuf>,
}

impl Processes {
    /// Whether none is selected.
    fn is_empty(&self) -> bool {
        *self == (Processes { except: self.except.clone(), ..Processes::default() })
    }

    /// Checks that `except` leaves something of the names, if nothing else is selected.
    fn selects_some(&self) -> Result<(), &'static str> {
        let by_name = !self.names.is_empty()
            && *self == Processes { names: self.names.clone(), except: self.except.clone(), ..Processes::default() };
        if by_name && self.names.iter().all(|name| self.except.contains(name)) {
            Err("except has all of names, so nothing is selected: remove a name from one of the two")
        } else {
            Ok(())
        }
    }

    /// The label of the first of these services that has some of the same names or control groups,
    /// if together they have them all.
    fn all_of<'a>(&self, services: &'a [Service]) -> Option<&'a str> {
        let has_name = |service: &&Service, name: &String| {
            service.processes.names.contains(name) && !service.processes.except.contains(name)
        };
        let has_group = |service: &&Service, group: &PathBuf| {
            let Processes { cgroups, except, .. } = &service.processes;
            cgroups.contains(group) && except.iter().all(|name| self.except.contains(name))
        };
        let own: Vec<&String> = self.names.iter().filter(|name| !self.except.contains(name)).collect();
        let names = own.iter().all(|name| services.iter().any(|service| has_name(&service, name)));
        let groups = self.cgroups.iter().all(|group| services.iter().any(|service| has_group(&service, group)));
        let first = services.iter().find(|service| {
            own.iter().any(|name| has_name(service, name)) || self.cgroups.iter().any(|group| has_group(service, group))
        });
        first.filter(|_| names && groups).map(|service| service.label.as_str())
    }

    /// With the folders of the control groups found; units of systemd may start later.
    fn target(&self) -> Result<Target, Error> {
        let Processes { all, pids, cgroups, names, except } = self.clone();
        let folder = |path: PathBuf| if cgroup::is_unit(&path) { Ok(path) } else { cgroup::find(&path) };
        let cgroups = cgroups.into_iter().map(folder).collect::<Result<_, Error>>()?;
        Ok(Target { all, cgroups, names, except, ..Target::pids(pids) })
    }

    /// Leaves out the processes named by number that do not exist: their numbers may be given to
    /// others. Logs each, if others are left.
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
        let file = Read { path, text: &text };
        let wrong = |(span, problem): (Range<usize>, String)| file.wrong(span, &problem);
        let read: Text = toml::from_str(&text).map_err(|error| file.no_configuration(&error))?;
        let options = read.options().map_err(wrong)?;
        let services = read.services(&options).map_err(wrong)?;
        let processes = match read.processes {
            Some(table) => {
                table.as_ref().selects_some().map_err(|problem| file.wrong(table.span(), problem))?;
                table.into_inner()
            }
            None => Processes::default(),
        };
        Ok(Config { processes, services, options, metrics: read.metrics })
    }

    /// Checks that it selects processes.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn validate(&self) -> Result<(), Error> {
        if self.processes.is_empty() && self.services.is_empty() {
            let sentence = "which processes? Give --pid, --name, --cgroup or --all, or a --config that does in its \
                            table [processes] or in tables [[service]]";
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

    /// What each promoter does, in their order: the services, then all other processes, if any are
    /// selected.
    ///
    /// # Errors
    /// A control group that is no unit's does not exist; the policy of a service contradicts the
    /// daemon's.
    pub(super) fn parts(&self) -> Result<Vec<Part>, Error> {
        let mut parts = Vec::new();
        for Service { label, processes, policy } in &self.services {
            let options =
                policy.as_deref().map_or_else(|| Ok(self.options.clone()), |text| self.options.of_service(text));
            parts.push(Part { label: label.clone(), is_service: true, options: options?, target: processes.target()? });
        }
        if parts.is_empty() || !self.processes.is_empty() {
            let (options, target) = (self.options.clone(), self.processes.target()?);
            parts.push(Part { label: OTHERS.into(), is_service: false, options, target });
        }
        Ok(parts)
    }

    /// A promoter for each part that only looks, with its name where there are services.
    ///
    /// # Errors
    /// As for [`Promoter::observer`], and those of the control groups.
    pub fn observers(&self) -> Result<Vec<(Option<String>, Promoter)>, Error> {
        let parts = self.parts()?;
        let observer = |part: Part| {
            let label = (!self.services.is_empty()).then_some(part.label);
            Ok((label, Promoter::observer(part.options, part.target)?))
        };
        parts.into_iter().map(observer).collect()
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
    fn services_come_before_all_other_processes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("services.toml");
        let parts = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let config = Config::read(&path).unwrap();
            config.validate().unwrap();
            let parts = |part: Part| (part.label, part.is_service, part.options.to_string());
            config.parts().unwrap().into_iter().map(parts).collect::<Vec<_>>()
        };
        let services = "[promote]\nage = \"3s\"\n\
                        [[service]]\ncgroups = [\"a.service\"]\npolicy = \"promote:share=0.5\"\n\
                        [[service]]\nlabel = \"db\"\nnames = [\"postgres\"]\npolicy = \"ingens\"\n";
        let own = [
            ("a.service".to_string(), true, "promote:share=0.5,age=3s".to_string()),
            ("db".into(), true, "ingens".into()),
        ];
        assert_eq!(parts(services), own);
        let rest = ("processes".to_string(), false, "promote:age=3s".to_string());
        assert_eq!(
            parts(&format!("{services}[processes]\nall = true\n")),
            [&own[..], std::slice::from_ref(&rest)].concat()
        );
        assert_eq!(parts("[processes]\nall = true\n[promote]\nage = \"3s\"\n"), [rest]);
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
            ("\n[[service]]\npolicy = \"promote\"\n", "bad.toml:2: which processes?"),
            ("[[service]]\nnames = [\"a\"]\npolicy = \"promote:cpu=1%\"\n", "bad.toml:3: cpu is of the daemon"),
            ("[[service]]\nnames = [\"a\"]\npolicy = \"promote:idle=1ms\"\n", "bad.toml:3: policy promote: idle=1ms"),
            ("[[service]]\nnames = [\"a\"]\n[[service]]\nnames = [\"a\"]\n", "bad.toml:3: two services are a"),
            ("[[service]]\nall = true\n", "bad.toml:2: unknown field `all`"),
            (
                &(0..257).map(|at| format!("[[service]]\nnames = [\"{at}\"]\n")).collect::<String>(),
                "bad.toml:513: at most 256",
            ),
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
