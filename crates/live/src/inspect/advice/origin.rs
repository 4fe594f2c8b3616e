//! How processes were started.

use super::super::mapping::Mapping;
use super::super::process::Process;
use super::super::reach::{Library, library};
use std::collections::BTreeSet;
use superpage_linux::{proc, program};

/// How processes were started: what holds for all.
#[derive(Default)]
pub(super) struct Origin {
    /// The systemd service that it is of.
    pub(super) unit: Option<String>,
    /// `NAME=VALUE`.
    pub(super) environment: Vec<String>,
    pub(super) arguments: Vec<String>,
    pub(super) folder: String,
    pub(super) code_at_start: CodeAtStart,
}

/// What a process had at its start, before it ran.
#[derive(Default)]
pub(super) struct CodeAtStart {
    /// The files of its code; `None` if that is not known.
    pub(super) code: Option<BTreeSet<String>>,
    /// The C library of GNU, linked statically.
    pub(super) static_gnu: bool,
}

impl CodeAtStart {
    pub(super) fn of(process: &Process) -> CodeAtStart {
        let names: BTreeSet<&str> = process.mappings.iter().map(|mapping| mapping.name.as_str()).collect();
        let code = program::loaded_at_start(process.pid, &names);
        let is_static = library(names.iter().map(ToString::to_string)) == Library::Static;
        CodeAtStart {
            code: code.map(|files| files.into_iter().map(String::from).collect()),
            static_gnu: is_static && program::is_static_gnu(process.pid),
        }
    }

    pub(super) fn had(&self, mapping: &Mapping) -> bool {
        self.code.as_ref().is_none_or(|files| files.contains(&mapping.name))
    }
}

impl Origin {
    pub(super) fn of(pid: u32) -> Origin {
        let texts = |pid: u32, name: &str| words(&proc::read(format!("/proc/{pid}/{name}")).unwrap_or_default());
        let mut arguments = texts(pid, "cmdline");
        // A process of PostgreSQL shows what it does; the options are those of the one that started
        // it.
        if arguments.first().is_some_and(|first| first.starts_with("postgres: "))
            && let Some(stat) = proc::stat(pid as i32)
        {
            arguments = texts(stat.ppid as u32, "cmdline");
        }
        Origin {
            unit: proc::read(format!("/proc/{pid}/cgroup")).ok().and_then(|text| unit(&text)),
            environment: texts(pid, "environ"),
            arguments,
            folder: std::fs::read_link(format!("/proc/{pid}/cwd")).map_or(String::new(), |at| at.display().to_string()),
            code_at_start: CodeAtStart::default(),
        }
    }

    /// What also holds for others; nothing, if they are of another service.
    pub(super) fn and(mut self, other: Origin) -> Origin {
        if self.unit != other.unit {
            return Origin::default();
        }
        self.environment.retain(|variable| other.environment.contains(variable));
        if self.arguments != other.arguments {
            self.arguments.clear();
        }
        if self.folder != other.folder {
            self.folder.clear();
        }
        self
    }

    fn variable(&self, name: &str) -> Option<&str> {
        self.environment.iter().find_map(|text| text.strip_prefix(name)?.strip_prefix('='))
    }

    /// The variable that sets an option of an allocator, with what it has now; `None` if that is
    /// set.
    pub(super) fn with(&self, name: &str, option: &str, between: char) -> Option<String> {
        let now = self.variable(name).filter(|now| is_plain(now));
        let key = option.split(['=', ':']).next().unwrap_or(option);
        match now {
            Some(now) if now.split(between).any(|known| known.starts_with(key)) => None,
            Some(now) if key != option => Some(format!("{name}={now}{between}{option}")),
            _ => Some(format!("{name}={option}")),
        }
    }
}

/// The words of a text in which each ends with a zero byte. Any may be empty.
pub(super) fn words(text: &str) -> Vec<String> {
    text.split_terminator('\0').map(String::from).collect()
}

/// Whether a shell takes it as it is.
pub(super) fn is_plain(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:@/=,+".contains(c))
}

/// The systemd service in the text of `/proc/PID/cgroup`, if it has a name that needs no quotes.
pub(super) fn unit(text: &str) -> Option<String> {
    let unit = text.lines().filter_map(|line| line.rsplit('/').next()).find(|name| name.ends_with(".service"))?;
    is_plain(unit).then(|| unit.to_string())
}
