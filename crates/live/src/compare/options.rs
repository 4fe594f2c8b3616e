//! What is compared, and the commands that follow from it.

use super::served::Server;
use crate::Policy;
use rustix::process::Signal;
use std::borrow::Cow;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use superpage_linux::Error;
use superpage_output::quoted;

/// Where the command's output goes. Its input is `/dev/null` in any case.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Output {
    /// Nowhere.
    #[default]
    Null,
    /// To this process's own standard output and standard error.
    Inherit,
    /// Both to standard error, if standard output is for results only.
    Stderr,
}

/// A command that is run under a policy in place of the one that is compared: what a program's own
/// options are worth.
#[derive(Clone, PartialEq, Debug)]
pub struct With {
    /// How the row is named; else by its policy and number.
    pub name: Option<String>,
    /// The policy.
    pub policy: Policy,
    /// The program and its arguments; words like `NAME=VALUE` before it are set in its environment.
    pub command: Vec<OsString>,
}

/// Into whose memory the policies of a comparison may reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reaches {
    /// The command's alone: what changes a setting of the whole system while the command runs is
    /// left out.
    OnlyMine,
    /// The command's alone while other programs with much memory run, else everybody's.
    #[default]
    Considerate,
    /// Everybody's.
    System,
}

/// What free memory is like when runs begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MemoryState {
    /// As it is.
    #[default]
    AsItIs,
    /// Without a free block of a huge page's size, as on a machine that has run for long.
    Fragmented,
}

/// The options of a comparison.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program and its arguments; the load, where a server is compared.
    pub command: Vec<OsString>,
    /// The server that is started under each policy, if it is one that is compared. The command is
    /// then no part of what is measured.
    pub server: Option<Server>,
    /// Pass the command, its words joined by spaces, to `sh -c`.
    pub shell: bool,
    /// The policy that the others are compared with; it always runs.
    pub reference: Policy,
    /// The policies. One that is named several times runs as often, and is distinguished by a
    /// number.
    pub policies: Vec<Policy>,
    /// More rows, with their own commands.
    pub with: Vec<With>,
    /// Which policies may run.
    pub reach: Reaches,
    /// Wait while another process has the settings, or measures under them.
    pub waits: bool,
    /// The number of measured rounds, at most.
    pub runs: usize,
    /// Run policies that lose no more, and end once every row has a verdict.
    pub adaptive: bool,
    /// How long it may take from the first run on.
    pub time_limit: Option<Duration>,
    /// The number of warm-up runs of each policy, which are not measured.
    pub warmup: usize,
    /// A command for `sh -c` before each run.
    pub prepare: Option<String>,
    /// A command for `sh -c` after each run.
    pub conclude: Option<String>,
    /// Continue if the command's exit status is not 0.
    pub ignore_failure: bool,
    /// Do not touch memory before each run.
    pub cold_host: bool,
    /// What free memory is like before each run.
    pub memory_state: MemoryState,
    /// Where the command's output goes.
    pub output: Output,
    /// The seed of the order within rounds.
    pub seed: u64,
}

impl Options {
    /// Ten rounds of the command under [`Policy::NAMES`] and with the system as it is, after one
    /// run of each to warm up.
    pub fn new(command: impl IntoIterator<Item = impl Into<OsString>>) -> Options {
        let named = |name: &str| name.parse().expect("it is one of ours");
        Options {
            command: command.into_iter().map(Into::into).collect(),
            server: None,
            shell: false,
            reference: named("now"),
            policies: Policy::NAMES.map(named).into(),
            with: Vec::new(),
            reach: Reaches::default(),
            waits: true,
            runs: 10,
            adaptive: false,
            time_limit: None,
            warmup: 1,
            prepare: None,
            conclude: None,
            ignore_failure: false,
            cold_host: false,
            memory_state: MemoryState::default(),
            output: Output::Null,
            seed: 1,
        }
    }

    /// The command, quoted for a shell; of a server both.
    pub(crate) fn command_line(&self) -> String {
        self.line_with(None)
    }

    /// These options for a row that has this command.
    pub(super) fn line_with(&self, own: Option<&[OsString]>) -> String {
        let load = if self.shell {
            self.command.join(OsString::from(" ").as_os_str()).to_string_lossy().into_owned()
        } else {
            quoted_words(self.command.iter().map(|word| word.to_string_lossy()))
        };
        match (own.map(line), &self.server) {
            (own, Some(server)) => format!("{} under {load}", own.unwrap_or_else(|| line(&server.command))),
            (Some(own), None) => own,
            (None, None) => load,
        }
    }

    /// The command, ready to be started.
    pub(super) fn start(&self) -> Result<Command, Error> {
        start(&self.command, self.shell, self.output)
    }

    /// What is measured, ready to be started: the row's `own` command, the server, or the command.
    /// A server says what it says in `log`.
    pub(super) fn measured(&self, own: Option<&[OsString]>, log: Option<&Path>) -> Result<Command, Error> {
        let Some(words) = own.or(self.server.as_ref().map(|server| &server.command[..])) else { return self.start() };
        let sets: Vec<(&str, &str)> = words.iter().map_while(|word| assignment(word.to_str()?)).collect();
        if sets.len() == words.len() {
            return Err(Error::Usage(format!("{} is no command: name one after the variables", line(words))));
        }
        let mut command = start(&words[sets.len()..], false, self.output)?;
        command.envs(sets);
        log.map_or(Ok(()), |log| Server::prepare(&mut command, log))?;
        Ok(command)
    }
}

/// A program and its arguments, or words that are joined for a shell, ready to be started. It gets
/// SIGTERM where this process dies, since nobody else would end it.
pub(super) fn start(words: &[OsString], shell: bool, output: Output) -> Result<Command, Error> {
    let mut command = match (shell, words) {
        (false, [program, arguments @ ..]) => {
            let mut command = Command::new(program);
            command.args(arguments);
            command
        }
        _ => {
            let mut command = Command::new("sh");
            command.arg("-c").arg(words.join(OsString::from(" ").as_os_str()));
            command
        }
    };
    let death = || rustix::process::set_parent_process_death_signal(Some(Signal::TERM)).map_err(Into::into);
    // SAFETY: the closure runs between fork and exec, where it makes one system call and allocates
    // nothing.
    unsafe { command.pre_exec(death) };
    // A program that is measured is not the one that a service manager waits for.
    command.stdin(Stdio::null()).env_remove("NOTIFY_SOCKET");
    match output {
        Output::Null => _ = command.stdout(Stdio::null()).stderr(Stdio::null()),
        Output::Inherit => {}
        Output::Stderr => {
            let stderr = std::io::stderr().as_fd().try_clone_to_owned();
            command.stdout(stderr.map_err(Error::system("share standard error with the command"))?);
        }
    }
    Ok(command)
}

/// A command and the variables before it, quoted for a shell.
pub(super) fn line(words: &[OsString]) -> String {
    let words: Vec<Cow<'_, str>> = words.iter().map(|word| word.to_string_lossy()).collect();
    let (sets, rest) = words.split_at(words.iter().take_while(|word| assignment(word).is_some()).count());
    let sets = sets.iter().filter_map(|word| assignment(word));
    let sets: String = sets.map(|(name, value)| format!("{name}={} ", quoted(value))).collect();
    sets + &quoted_words(rest.iter().cloned())
}

fn quoted_words<'a>(words: impl Iterator<Item = Cow<'a, str>>) -> String {
    words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")
}

/// A word that sets a variable, as before a command of a shell: its name and value.
fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let named = !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    named.then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_a_shell_would_want_it() {
        let line = |words: &[&str]| Options::new(words).command_line();
        assert_eq!(line(&["gcc", "-O2", "a.c"]), "gcc -O2 a.c");
        assert_eq!(line(&["echo", "it's", ""]), r"echo 'it'\''s' ''");
        assert_eq!(line(&["sh", "-c", "a\nb 'ü'"]), r"sh -c $'a\nb \'ü\''");
        assert_eq!(Options { shell: true, ..Options::new(["a", "|", "b"]) }.command_line(), "a | b");
    }

    #[test]
    fn variables_stand_before_a_command_as_in_a_shell() {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(line(&words(&["A=x y", "B=", "prog", "C=1 2"])), "A='x y' B='' prog 'C=1 2'");
        let options = Options { server: None, ..Options::new(["true"]) };
        let command = options.measured(Some(&words(&["A=1", "prog", "B=2"])), None).unwrap();
        assert_eq!(
            (
                command.get_program(),
                command.get_args().count(),
                command.get_envs().filter(|(_, value)| value.is_some()).count()
            ),
            ("prog".as_ref(), 1, 1)
        );
        assert!(matches!(options.measured(Some(&words(&["A=1"])), None), Err(Error::Usage(_))));
    }
}
