//! A server under a policy, and a load that is put on it: what is measured is the server, and what
//! the load says.
//!
//! The load is no descendant of this process, so that neither its memory, nor its processor time,
//! nor its TLB misses are counted as the server's: a shell that has left this process's tree starts
//! it ([`Loader`]).

mod output;

use crate::sample::proportional;
pub(super) use output::Measured;

use super::statistics::Spread;
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use serde::Serialize;
use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use superpage_linux::Error;
use superpage_output::foreign;

/// A server and how it is used. The command that is compared is the load.
#[derive(Clone, Debug)]
pub struct Server {
    /// The program and its arguments: it serves until SIGTERM ends it.
    pub command: Vec<OsString>,
    /// A command for `sh -c` that succeeds once the server is ready.
    pub ready: String,
    /// How long that may take.
    pub patience: Duration,
    /// The text before the throughput in the load's output, where the load is none of those known.
    pub after: Option<String>,
    /// How long the server is held under the load at least: the load is repeated until then.
    pub hold: Duration,
}

impl Server {
    /// The unit of systemd that it names in place of a command, if it does.
    pub(super) fn unit(&self) -> Option<Cow<'_, str>> {
        let [unit] = &self.command[..] else { return None };
        Some(unit.to_string_lossy()).filter(|unit| unit.ends_with(".service") && !unit.contains('/'))
    }

    /// Makes the command of a server ready: it says what it says in `log`.
    pub(super) fn prepare(command: &mut Command, log: &Path) -> Result<(), Error> {
        // At its end, wherever that is: it may be cut.
        let file = File::create(log).and_then(|_| OpenOptions::new().append(true).open(log));
        let file = file.and_then(|file| Ok((file.try_clone()?, file)));
        let (out, err) = file.map_err(Error::system("make a file for what the server says"))?;
        command.stdout(out).stderr(err);
        Ok(())
    }
}

/// What a load came to.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Load {
    /// How many requests a second it says, if it does.
    pub requests_per_second: Option<f64>,
    /// Its median, 99th and 99.9th percentile of the time of a request, in seconds.
    pub latencies: [Option<f64>; 3],
    /// How long it took, all its times together.
    pub seconds: f64,
    /// How many tests it had, each with a throughput.
    #[serde(skip)]
    pub tests: usize,
    /// What it says of its throughput, if that is none.
    #[serde(skip)]
    pub odd: Option<f64>,
    /// The memory of the server over time: seconds since the load began, and bytes, where what
    /// processes share counts once.
    pub memory: Vec<(f64, u64)>,
}

impl Load {
    /// What a load that was repeated came to: each time counts as many requests, and of percentiles
    /// the median counts.
    pub(super) fn new(times: &[Measured], seconds: f64, memory: Vec<(f64, u64)>) -> Load {
        // Where one time has none, all have none.
        let all = |value: &dyn Fn(&Measured) -> Option<f64>| times.iter().map(value).collect::<Option<Vec<f64>>>();
        let mean = |rates: Vec<f64>| rates.len() as f64 / rates.iter().map(|rate| 1.0 / rate).sum::<f64>();
        let median = |place: usize| Some(Spread::of(&all(&|time| time.latencies[place])?)?.median);
        Load {
            requests_per_second: all(&|time| time.throughput).map(mean),
            latencies: [0, 1, 2].map(median),
            seconds,
            tests: times.iter().map(|time| time.tests).max().unwrap_or(0),
            odd: times.iter().find_map(|time| time.odd),
            memory,
        }
    }

    /// The most memory that a look found.
    pub(super) fn most_bytes(&self) -> Option<u64> {
        self.memory.iter().map(|(_, bytes)| *bytes).max()
    }

    /// The memory at the last look.
    pub(super) fn end_bytes(&self) -> Option<u64> {
        self.memory.last().map(|(_, bytes)| *bytes)
    }
}

/// Looks at the memory of a server while it serves. A look walks page tables, which may delay the
/// server: so there is one a second at most, and looks take a hundredth of the time together.
pub(super) struct Looks {
    begun: Instant,
    next: Duration,
    members: Vec<i32>,
    seen: Vec<(f64, u64)>,
}

impl Looks {
    pub(super) fn begin() -> Looks {
        Looks { begun: Instant::now(), next: Duration::ZERO, members: Vec::new(), seen: Vec::new() }
    }

    /// How long it has been.
    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Looks, if it is time to.
    pub(super) fn look(&mut self, members: impl FnOnce() -> Vec<i32>) {
        let now = self.elapsed();
        if now >= self.next {
            let (living, bytes) = proportional(&members());
            // Of another user's processes this one may see nothing.
            self.seen.extend((!living.is_empty()).then_some((now.as_secs_f64(), bytes)));
            self.members = living;
            self.next = now + (100 * (self.elapsed() - now)).max(Duration::from_secs(1));
        }
    }

    /// Looks once more, unless processes have ended since the last look: what they shared is not
    /// seen through others.
    pub(super) fn finish(mut self, members: &[i32]) -> Vec<(f64, u64)> {
        let (before, seconds) = (std::mem::take(&mut self.members), self.elapsed().as_secs_f64());
        let (living, bytes) = proportional(members);
        if !living.is_empty() && before.iter().all(|member| living.contains(member)) {
            self.seen.push((seconds, bytes));
        }
        self.seen
    }
}

/// The most that is kept of what a program says, in bytes.
const MOST_SAID: u64 = 64 << 20;

/// Reads what to do, a word, starts it in a new session, and says which process that is and
/// how it ended; until nobody asks any more, also where the process that asks is killed: nothing is
/// asked while something runs, so a `read` that returns then has met the end of the pipe, and all
/// that was started is ended. Its arguments are the folder for outputs, the command that says
/// whether the server is ready, and the load.
const SCRIPT: &str = r#"folder=$1 ready=$2
shift 2
exec 3<&0
(
    # Nobody may read its answers any more, and the folder goes all the same.
    trap : PIPE
    while read -r what; do
        # What it says goes to the file's end, wherever that is: it may be cut.
        rm -f "$folder/$what"
        case $what in
        ready) exec setsid sh -c "$ready" ;;
        *) exec setsid "$@" ;;
        esac >>"$folder/$what" 2>&1 </dev/null 3<&- &
        started=$!
        echo "$started"
        {
            read -r what
            # From here on it ends only when all is done: what is ended may ignore SIGTERM.
            trap '' TERM
            # The shell of Debian takes no `--` after `-TERM`.
            kill -s TERM -- "-$started" || kill -TERM "$started"
            sleep 2
            kill -s KILL -- "-$started"
        } <&3 &
        watch=$!
        wait "$started"
        status=$?
        kill "$watch"
        # Else it may take the first letter of what is asked next.
        wait "$watch"
        echo "$status"
    done
    rm -rf "$folder"
) <&3 2>/dev/null &"#;

/// What starts loads outside of this process's tree.
pub(super) struct Loader {
    asks: ChildStdin,
    answers: Receiver<String>,
    /// Where outputs go.
    folder: tempfile::TempDir,
}

/// A load that runs, or a look whether the server is ready.
pub(super) struct Running<'a> {
    loader: &'a Loader,
    /// The process, and the group of all that it starts.
    process: Pid,
}

impl Loader {
    /// Starts it, before there is a tree.
    pub(super) fn start(server: &Server, load: &Command) -> Result<Loader, Error> {
        let private = Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().prefix("superpage-").permissions(private).tempdir();
        let folder = folder.map_err(Error::system("make a folder for the load's output"))?;
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT, "sh"]).arg(folder.path()).arg(&server.ready);
        shell.arg(load.get_program()).args(load.get_args()).stdin(Stdio::piped()).stdout(Stdio::piped());
        shell.env_remove("NOTIFY_SOCKET");
        // Another group than this process's: a signal to that whole group, as `timeout` sends it,
        // must leave the shell alive to end the load.
        let mut shell = shell.process_group(0).spawn().map_err(Error::system("run sh"))?;
        let (asks, answers) = (shell.stdin.take().expect("it is piped"), shell.stdout.take().expect("it is piped"));
        // What works on is no child of this process any more.
        shell.wait().map_err(Error::system("run sh"))?;
        let (lines, received) = channel();
        let read = move || {
            BufReader::new(answers).lines().map_while(Result::ok).all(|line| lines.send(line).is_ok());
        };
        std::thread::Builder::new().name("load".into()).spawn(read).map_err(Error::thread)?;
        Ok(Loader { asks, answers: received, folder })
    }

    /// Looks whether the server is ready.
    pub(super) fn ready(&mut self) -> Result<Running<'_>, Error> {
        self.ask("ready")
    }

    /// Starts the load.
    pub(super) fn load(&mut self) -> Result<Running<'_>, Error> {
        self.ask("load")
    }

    /// A file for what the server says.
    pub(super) fn log(&self) -> PathBuf {
        self.folder.path().join("server")
    }

    /// Cuts the files of what the server and the load say where they are longer than can be of use:
    /// a program that says something without end must not fill the disk.
    pub(super) fn bound(&self) {
        for file in [self.log(), self.output()] {
            if std::fs::metadata(&file).is_ok_and(|file| file.len() > MOST_SAID) {
                let cut = OpenOptions::new().append(true).open(&file).and_then(|mut file| {
                    file.set_len(0)?;
                    file.write_all(b"[what was said before is left out]\n")
                });
                // It is tried again at the next look.
                let _ = cut;
            }
        }
    }

    /// The file of what the last load said.
    pub(super) fn output(&self) -> PathBuf {
        self.folder.path().join("load")
    }

    /// The file of what was said last by the command that looks whether the server is ready.
    pub(super) fn ready_output(&self) -> PathBuf {
        self.folder.path().join("ready")
    }

    fn ask(&mut self, what: &str) -> Result<Running<'_>, Error> {
        writeln!(self.asks, "{what}").map_err(Error::system("ask the shell that starts the load"))?;
        let process = self.answers.recv().ok().and_then(|line| Pid::from_raw(line.parse().ok()?)).ok_or_else(gone)?;
        Ok(Running { process, loader: self })
    }
}

impl Running<'_> {
    /// Waits until it has ended, at most so long; returns its exit status.
    pub(super) fn wait(&self, timeout: Duration) -> Result<Option<u8>, Error> {
        match self.loader.answers.recv_timeout(timeout) {
            Ok(line) => Ok(Some(line.parse().unwrap_or(1))),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
        }
    }

    /// As [`Loader::bound`].
    pub(super) fn bound(&self) {
        self.loader.bound();
    }

    /// Ends it with all that it has started, and waits for that: also what ignores SIGTERM, or
    /// outlives its first process.
    pub(super) fn end(self) {
        let mut ended = false;
        for signal in [Signal::TERM, Signal::KILL] {
            // It may not have a group yet.
            let _ = kill_process_group(self.process, signal).or_else(|_| kill_process(self.process, signal));
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(2) {
                ended |= !matches!(self.wait(Duration::from_millis(20)), Ok(None));
                if ended && test_kill_process_group(self.process).is_err() {
                    return;
                }
            }
        }
    }
}

fn gone() -> Error {
    Error::Unable("the shell that starts the load has ended".into())
}

/// The last lines of what a program has said, for people.
pub(super) fn last_lines(file: &Path) -> String {
    const LINES: usize = 5;
    const MOST: usize = 400;
    // With less room than that, in bytes, what was said is not whole.
    const LEAST: u64 = 64 << 10;
    let said = std::fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&said[said.len().saturating_sub(MOST)..]).into_owned();
    let lines: Vec<&str> = text.split(['\n', '\r', '\0']).map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    let full = file.parent().and_then(|folder| Some((folder, rustix::fs::statvfs(folder).ok()?)));
    match full.filter(|(_, room)| room.f_bavail * room.f_frsize < LEAST) {
        Some((folder, _)) => {
            format!("what it says was lost: the disk of {} is full (TMPDIR names another)", folder.display())
        }
        None if last.is_empty() => "it said nothing".into(),
        None => format!("its last words: {}", foreign(&last.join(" | "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_that_is_repeated_counts_as_a_whole() {
        let times: Vec<Measured> = [(100.0, 1.0), (300.0, 9.0), (100.0, 2.0)]
            .map(|(rate, median)| Measured::read(&format!("{rate} requests per second, p50={median} msec\n"), None))
            .into();
        let load = Load::new(&times, 3.0, vec![(0.0, 5), (1.0, 9), (2.0, 7)]);
        // 10, 3.3 and 10 ms a request.
        assert!((load.requests_per_second.unwrap() - 900.0 / 7.0).abs() < 1e-9, "{load:?}");
        assert_eq!((load.latencies, load.most_bytes(), load.end_bytes()), ([Some(2e-3), None, None], Some(9), Some(7)));
        let none = Load::new(&[times[0], Measured::default()], 3.0, Vec::new());
        assert_eq!((none.requests_per_second, none.latencies), (None, [None; 3]));
    }
}
