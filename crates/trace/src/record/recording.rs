//! The collector: starts the program and merges what its processes send into one order.

use super::Command;
use super::buffers::{Buffers, Owner};
use super::code::{Code, PLUGIN};
use super::connection::{Connection, Message};
use super::decode::{Names, Word, decode};
use super::folder::Folder;
use super::program::{self, Obstacle, Program};
use super::wire::{self, FIRST};
use crate::{Batch, Error, Event, Info, ProcessId, Source};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Error numbers of the system.
const ENOENT: i32 = 2;
const EACCES: i32 = 13;

/// How long a program is given to exit before it is killed.
const GRACE: Duration = Duration::from_secs(2);
/// How often an idle recording checks whether it was stopped or its program has ended.
const LOOK: Duration = Duration::from_millis(50);

/// A running program as a source of events.
///
/// Its stream ends when the program and all that it started, as far as they could be followed, have
/// ended. Dropping it kills them.
pub struct Recording {
    info: Info,
    child: Child,
    status: Option<ExitStatus>,
    listener: UnixListener,
    folder: Folder,
    _code: Code,
    connections: Vec<Connection>,
    next: usize,
    names: Names,
    buffers: Buffers,
    /// The tokens of the processes in the stream that have not ended.
    living: BTreeSet<u64>,
    /// Those of them that have closed their connection and will open another.
    returning: HashSet<u64>,
    notes: Vec<String>,
    stop: Stop,
    stopped_at: Option<Instant>,
    killed: bool,
    /// When the program had ended while a process was still to reconnect.
    silent_since: Option<Instant>,
    words: Vec<u64>,
    /// The process and the thread at which the stream is.
    current: Option<(ProcessId, u32)>,
    ended: bool,
}

/// A handle that stops a recording from any thread.
#[derive(Clone, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks the program to end (`SIGTERM`), and kills it if it has not after two seconds. The
    /// recording then soon comes to its end, and what was recorded is a complete stream. Somebody
    /// must still read it.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How a recording ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The exit status of the program.
    pub status: ExitStatus,
    /// What the user should know: what could not be followed or was lost. Each note is also in the
    /// stream.
    pub notes: Vec<String>,
}

/// Finds the program that a command names, and its emulator.
fn find(command: &Command) -> Result<(Program, PathBuf), Error> {
    let Some(name) = command.words.first() else {
        return Err(Error::input("record", "no program was named, expected a command with its arguments"));
    };
    let shown = name.to_string_lossy().into_owned();
    let path = std::env::var_os("PATH");
    let file = program::search(name, path.as_deref())
        .ok_or_else(|| Error::input(&shown, "no such program in any folder of PATH; give its path or install it"))?;
    // A relative path is one from where the program will run.
    let file = match &command.folder {
        Some(folder) if file.is_relative() => {
            std::path::absolute(folder.join(&file)).map_err(|source| Error::Io { path: folder.clone(), source })?
        }
        _ => file,
    };
    let program = program::resolve(&file, &command.words).map_err(|obstacle| {
        Error::input(
            &shown,
            match obstacle {
                Obstacle::System(ENOENT) if file.exists() => {
                    "the interpreter in its first line does not exist".to_owned()
                }
                Obstacle::System(ENOENT) => "no such file".to_owned(),
                Obstacle::System(EACCES) => "is not an executable file".to_owned(),
                Obstacle::System(number) => {
                    return Error::Io { path: file.clone(), source: std::io::Error::from_raw_os_error(number) };
                }
                Obstacle::Unreadable => "cannot be read, which the emulator needs".to_owned(),
                Obstacle::Format => "is neither an ELF program nor a script with #! in its first line".to_owned(),
                Obstacle::Machine(machine) => {
                    format!("is a program for ELF machine {machine}; the recorder knows 64-bit x86, ARM and RISC-V")
                }
            },
        )
    })?;
    let emulator = program::search(program.emulator.as_ref(), path.as_deref()).ok_or_else(|| {
        let problem = "not installed: recording needs QEMU's user-mode emulator with plugins \
                       (Debian, Ubuntu: apt install qemu-user)";
        Error::Missing { what: program.emulator.into(), problem: problem.into() }
    })?;
    Ok((program, emulator))
}

pub(super) fn file(command: &Command) -> Option<PathBuf> {
    program::search(command.words.first()?, std::env::var_os("PATH").as_deref())
}

pub(super) fn check(command: &Command) -> Result<(), Error> {
    if PLUGIN.is_empty() {
        let problem = "this build has no recorder: it was made for another system than the one that built it, or not \
                       for Linux with glibc";
        return Err(Error::input("record", problem));
    }
    find(command).map(|_| ())
}

/// Starts a program. It waits until its recording is read.
///
/// # Errors
/// Those of [`Command::check`], and [`Error::Io`] if the plugin or a socket cannot be made in the
/// folder for temporary files, or QEMU cannot be started.
pub fn start(command: &Command) -> Result<Recording, Error> {
    command.check()?;
    let (program, emulator) = find(command)?;
    let io = |path: &Path| {
        let path = path.to_path_buf();
        move |source| Error::Io { path, source }
    };
    // Buffers belong in memory; if there is no such folder, they go into a temporary one.
    let temporary = std::env::temp_dir();
    let folder =
        Folder::create(Path::new("/dev/shm")).or_else(|_| Folder::create(&temporary)).map_err(io(&temporary))?;
    let code = Code::create(folder.path(), command.lines).map_err(io(folder.path()))?;
    let [plugin, spare] = code.names();
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).map_err(io(&socket))?;
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600)).map_err(io(&socket))?;
    listener.set_nonblocking(true).map_err(io(&socket))?;

    let mut specification = OsString::from("file=");
    specification.push(doubled(&plugin));
    specification.push(",plugin=");
    specification.push(doubled(&plugin));
    specification.push(",spare=");
    specification.push(doubled(&spare));
    specification.push(",socket=");
    specification.push(doubled(&socket));
    specification.push(format!(",token={FIRST:x}"));
    specification.push(if command.calls { ",calls=1" } else { "" });
    // A sample of everything is not a sample.
    if let Some(sampling) = command.sampling.filter(|sampling| sampling.on < sampling.period) {
        let seed = sampling.seed.unwrap_or(0);
        specification.push(format!(",on={},period={},seed={seed}", sampling.on, sampling.period));
    }
    let mut process = std::process::Command::new(&emulator);
    process.args(program::emulation(&program, &specification));
    if let Some(folder) = &command.folder {
        process.current_dir(folder);
    }
    if let Some(path) = &command.output {
        process.stdout(std::fs::File::create(path).map_err(io(path))?);
    } else if command.output_to_stderr {
        let stderr = std::io::stderr().as_fd().try_clone_to_owned().map_err(io(&emulator))?;
        process.stdout(stderr);
    }
    let child = code.start(&mut process).map_err(io(&emulator))?;

    let mut names = Names::default();
    names.add_process(FIRST);
    Ok(Recording {
        info: command.info(),
        child,
        status: None,
        listener,
        folder,
        _code: code,
        connections: Vec::new(),
        next: 0,
        names,
        buffers: Buffers::default(),
        living: BTreeSet::from([FIRST]),
        returning: HashSet::new(),
        notes: Vec::new(),
        stop: Stop(Arc::new(AtomicBool::new(false))),
        stopped_at: None,
        killed: false,
        silent_since: None,
        words: Vec::new(),
        current: None,
        ended: false,
    })
}

/// The path with commas doubled, as QEMU's options require.
fn doubled(path: &Path) -> OsString {
    let mut bytes = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        bytes.push(*byte);
        if *byte == b',' {
            bytes.push(b',');
        }
    }
    OsString::from_vec(bytes)
}

impl Recording {
    /// A handle that stops the recording.
    pub fn stopper(&self) -> Stop {
        self.stop.clone()
    }

    /// Waits for the program's end and returns its status. If the stream was not read to its end
    /// and the program still runs, it is stopped as by [`Stop::stop`], and the rest of its stream
    /// is lost.
    ///
    /// # Errors
    /// [`Error::Io`] if the system refuses to wait.
    pub fn finish(mut self) -> Result<Outcome, Error> {
        if !self.ended {
            self.stop.stop();
            let mut lost = Batch::default();
            while self.fill(&mut lost)? {}
        }
        let status = match self.status {
            Some(status) => status,
            None => self.child.wait().map_err(|source| self.io(source))?,
        };
        self.status = Some(status);
        Ok(Outcome { status, notes: std::mem::take(&mut self.notes) })
    }

    fn io(&self, source: std::io::Error) -> Error {
        let path = self.folder.path().to_path_buf();
        if source.kind() == std::io::ErrorKind::NotFound && !path.exists() {
            let problem = format!(
                "the recorded program, or another, removed {}, through which the recorder hears of it; record again without that",
                path.display()
            );
            return Error::Run { what: self.info.workload.clone(), problem };
        }
        Error::Io { path, source }
    }

    fn confused(&self, problem: String) -> Error {
        let problem = format!("what came from the recorder's plugin is damaged: {problem}; record again");
        Error::Run { what: self.info.workload.clone(), problem }
    }

    /// Accepts all new connections and admits those whose process is known.
    fn accept(&mut self) -> Result<(), Error> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(true).map_err(|source| self.io(source))?;
                    self.connections.push(Connection::new(stream));
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.io(error)),
            }
        }
    }

    fn admit(&mut self) {
        for at in 0..self.connections.len() {
            let Some(token) = self.connections[at].token else { continue };
            let taken = self.connections.iter().any(|other| other.admitted && other.token == Some(token));
            if !self.connections[at].admitted && !taken && self.names.process(token).is_some() {
                self.connections[at].admitted = true;
                self.returning.remove(&token);
            }
        }
    }

    /// Waits for input on a connection that may be read, for a new one, or for a moment.
    fn wait(&mut self) -> Result<(), Error> {
        let readable: Vec<usize> = (0..self.connections.len())
            .filter(|at| self.connections[*at].admitted || self.connections[*at].token.is_none())
            .collect();
        let mut set: Vec<PollFd<'_>> = vec![PollFd::new(&self.listener, PollFlags::IN)];
        set.extend(readable.iter().map(|at| PollFd::new(&self.connections[*at].stream, PollFlags::IN)));
        let timeout = LOOK.try_into().expect("a short time");
        let waited = poll(&mut set, Some(&timeout));
        let ready: Vec<usize> = set[1..]
            .iter()
            .zip(&readable)
            .filter(|(entry, _)| !entry.revents().is_empty())
            .map(|(_, at)| *at)
            .collect();
        match waited {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(self.io(error.into())),
        }
        let called = !set[0].revents().is_empty();
        drop(set);
        if called {
            self.accept()?;
        }
        for at in ready {
            let read = self.connections[at].read();
            read.map_err(|source| self.io(source))?;
        }
        Ok(())
    }

    /// Adds whole chunks that have been read to the batch, from one connection after the other.
    fn use_chunks(&mut self, batch: &mut Batch) -> Result<(), Error> {
        for _ in 0..self.connections.len() {
            self.next = (self.next + 1) % self.connections.len();
            while self.connections[self.next].admitted && batch.runs.len() < Batch::RUNS {
                // This thread's next chunk begins a batch, and so needs no switch.
                let connection = &self.connections[self.next];
                let thread = connection.next_thread().and_then(|thread| connection.threads.get(&thread));
                let goes_on = thread.is_some_and(|thread| self.current.is_some_and(|(_, current)| *thread == current));
                if goes_on && !batch.runs.is_empty() {
                    return Ok(());
                }
                let message = self.connections[self.next].message(&mut self.words);
                let Some(message) = message.map_err(|problem| self.confused(problem))? else { break };
                let Some(thread) = self.take(self.next, message)? else { continue };
                let words = std::mem::take(&mut self.words);
                let used = self.tell(self.next, thread, &words, batch);
                self.words = words;
                if used < self.words.len() {
                    return Err(self.confused("a chunk contains something that is neither a run nor an event".into()));
                }
            }
        }
        Ok(())
    }

    /// Puts the words of a message into `self.words` and returns their thread, if it has any.
    fn take(&mut self, at: usize, message: Message) -> Result<Option<u32>, Error> {
        let token = self.connections[at].token.filter(|token| self.living.contains(token));
        match (message, token) {
            (Message::Chunk { thread, slot: None }, Some(token)) => self.buffers.count(Owner { token, thread }),
            (Message::Chunk { thread, slot: Some(slot) }, Some(token)) => {
                let taken = self.buffers.take(self.folder.path(), Owner { token, thread }, slot, &mut self.words);
                taken.map_err(|source| self.io(source))?;
            }
            (Message::ThreadEnds { thread }, Some(token)) => {
                self.buffers.remove(self.folder.path(), Owner { token, thread });
                return Ok(None);
            }
            // What arrives after the end of a process is dropped.
            (_, None) => return Ok(None),
        }
        let Message::Chunk { thread, .. } = message else { return Ok(None) };
        Ok(Some(thread))
    }

    /// Adds words of one thread to the batch.
    fn tell(&mut self, at: usize, thread: u32, words: &[u64], batch: &mut Batch) -> usize {
        let connection = &mut self.connections[at];
        let Some(token) = connection.token else { return words.len() };
        let Some(process) = self.names.process(token).filter(|_| self.living.contains(&token)) else {
            // What arrives after the end of a process is dropped.
            return words.len();
        };
        let names = &mut self.names;
        let number = *connection.threads.entry(thread).or_insert_with(|| names.add_thread());
        switch(&mut self.current, (process, number), batch);
        let mut heard = Vec::new();
        let unit = if self.info.lines { wire::LINES } else { wire::PAGES };
        let used = decode(words, unit, names, batch, &mut heard);
        for word in heard {
            match word {
                Word::Executed => {
                    connection.threads.clear();
                    // Those of the program before have ended, and numbers continue.
                    for ended in Buffers::threads(self.folder.path(), token) {
                        if ended < thread {
                            self.buffers.remove(self.folder.path(), Owner { token, thread: ended });
                        }
                    }
                }
                Word::Forked(token) => {
                    self.living.insert(token);
                }
                Word::Exited => {
                    self.living.remove(&token);
                }
                Word::Reconnects => {
                    self.returning.insert(token);
                    connection.closed = true;
                }
                Word::Note(text) => {
                    if !self.notes.contains(&text) {
                        self.notes.push(text);
                    }
                }
            }
        }
        used
    }

    /// Closes connections that have nothing more to send, and ends their processes.
    fn retire(&mut self, batch: &mut Batch) {
        let mut at = 0;
        while at < self.connections.len() {
            let waits = self.connections[at].token.is_some() && !self.connections[at].admitted;
            if !self.connections[at].closed || waits || batch.runs.len() >= Batch::RUNS {
                at += 1;
                continue;
            }
            let token = self.connections[at].token.filter(|_| self.connections[at].admitted);
            if let Some(token) = token.filter(|token| !self.returning.contains(token)) {
                if self.living.contains(&token) {
                    self.salvage(at, token, batch);
                    self.exit(token, batch);
                }
                for thread in Buffers::threads(self.folder.path(), token) {
                    self.buffers.remove(self.folder.path(), Owner { token, thread });
                }
            }
            self.connections.swap_remove(at);
        }
        self.next = 0;
    }

    /// Ends a process that could not report its end.
    fn exit(&mut self, token: u64, batch: &mut Batch) {
        if let (Some(process), true) = (self.names.process(token), self.living.remove(&token)) {
            switch(&mut self.current, (process, self.names.add_thread()), batch);
            batch.event(Event::Exit);
        }
    }

    /// Recovers what a killed process left in its buffers.
    fn salvage(&mut self, at: usize, token: u64, batch: &mut Batch) {
        for thread in Buffers::threads(self.folder.path(), token) {
            for words in self.buffers.leftovers(self.folder.path(), Owner { token, thread }) {
                if self.living.contains(&token) {
                    self.tell(at, thread, &words, batch);
                }
            }
        }
    }

    /// Ends the program if that was requested.
    fn heed_stop(&mut self) {
        if !self.stop.0.load(Ordering::Relaxed) {
            return;
        }
        let signal = match self.stopped_at {
            None => Signal::TERM,
            Some(since) if since.elapsed() > GRACE && !self.killed => {
                self.killed = true;
                Signal::KILL
            }
            Some(_) => return,
        };
        self.stopped_at.get_or_insert_with(Instant::now);
        self.signal_all(signal);
    }

    fn signal_all(&mut self, signal: Signal) {
        let peers = self.connections.iter().filter(|connection| !connection.closed);
        let peers: Vec<Pid> = peers
            .filter_map(|connection| rustix::net::sockopt::socket_peercred(&connection.stream).ok())
            .map(|credentials| credentials.pid)
            .collect();
        for peer in peers {
            let _ = kill_process(peer, signal);
        }
        if self.status.is_none() {
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// Whether the program and everything that could still send something have ended.
    fn over(&mut self) -> Result<bool, Error> {
        if self.status.is_none() {
            self.status = self.child.try_wait().map_err(|source| self.io(source))?;
        }
        if self.status.is_none() {
            return Ok(false);
        }
        // A connection made before the last one was closed waits to be accepted.
        self.accept()?;
        if !self.returning.is_empty() && self.silent_since.get_or_insert_with(Instant::now).elapsed() < GRACE {
            return Ok(false);
        }
        Ok(self.connections.iter().all(|connection| connection.token.is_some() && !connection.admitted))
    }

    fn end(&mut self, batch: &mut Batch) -> Result<(), Error> {
        self.ended = true;
        if self.names.no_threads() {
            let problem = "the emulator ended before the program began; its own message says why";
            return Err(Error::input(&self.info.workload, problem));
        }
        if !self.connections.is_empty() {
            let text = format!("{} processes were not recorded, as their parents were killed", self.connections.len());
            batch.event(Event::Note(text.clone()));
            self.notes.push(text);
        }
        while let Some(token) = self.living.first().copied() {
            self.exit(token, batch);
        }
        Ok(())
    }
}

/// Switches to a thread of a process. If the stream is there already, a switch is only added if the
/// batch has runs: the first run of a chunk could otherwise merge with one of the chunk before.
fn switch(current: &mut Option<(ProcessId, u32)>, to: (ProcessId, u32), batch: &mut Batch) {
    if current.replace(to) != Some(to) || !batch.runs.is_empty() {
        batch.event(Event::Switch { process: to.0, thread: to.1 });
    }
}

impl Source for Recording {
    fn info(&self) -> &Info {
        &self.info
    }

    /// Waits for the program. At its end this takes up to 50 ms longer than necessary.
    fn fill(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        while !self.ended {
            self.heed_stop();
            for at in 0..self.connections.len() {
                let greeted = self.connections[at].greet(&mut self.words);
                greeted.map_err(|problem| self.confused(problem))?;
            }
            self.admit();
            if !self.connections.is_empty() {
                self.use_chunks(batch)?;
                self.retire(batch);
            }
            if !batch.runs.is_empty() || !batch.events.is_empty() {
                return Ok(true);
            }
            if self.over()? {
                self.end(batch)?;
                return Ok(!batch.events.is_empty());
            }
            self.wait()?;
        }
        Ok(false)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if !self.ended {
            self.signal_all(Signal::KILL);
        }
        if self.status.is_none() {
            let _ = self.child.wait();
        }
    }
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recording").field("info", &self.info).field("status", &self.status).finish_non_exhaustive()
    }
}
