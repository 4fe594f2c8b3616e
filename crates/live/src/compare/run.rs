//! One run of the command under a policy.

use super::Stop;
use super::constant::Constant;
use super::counters::Available;
use super::did;
use super::row::Run;
use super::served::{Load, Loader, Looks, Measured, Server, last_lines};
use crate::policy::Plan;
use crate::sample;
use crate::session::{self, Running, Seen, Session};
use std::process::Command;
use std::time::{Duration, Instant};
use superpage_linux::Error;
use superpage_linux::settings::Settings;

/// How often the flag to stop is looked at while the command runs.
const LOOK: Duration = Duration::from_millis(100);
/// How often the settings of the system are looked at meanwhile, besides at its start and end.
const SETTINGS: Duration = Duration::from_secs(1);
/// What is left behind by the command may go on for this long at least, or else as long as the
/// command took; and a server may take as long to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long what is to end at once has to do so.
const GRACE: Duration = Duration::from_secs(2);

/// A server that ends well within this time of its load may have gone into the background.
const START: Duration = Duration::from_secs(1);

/// What became of a run.
pub(super) enum Outcome {
    /// It was measured.
    Done(Box<Done>),
    /// It was stopped; no process of the command lives any more.
    Stopped,
}

/// A run that was measured, and what was seen on the way.
pub(super) struct Done {
    pub(super) run: Run,
    /// How many processes that the command left behind had to be ended.
    pub(super) left: usize,
    /// What there is to say of the command's code.
    pub(super) code: Vec<String>,
    /// What the policy did.
    pub(super) seen: did::Seen,
}

/// A run that is to be done.
pub(super) struct Task<'a> {
    pub(super) command: Command,
    /// If the command is a server: how it is used.
    pub(super) serves: Option<(&'a Server, &'a mut Loader)>,
    pub(super) plan: Plan,
    pub(super) looks: sample::Plan,
    /// Each of its processes is looked at when it ends, which takes time.
    pub(super) traced: bool,
    pub(super) constant: &'a Constant,
    pub(super) stop: &'a Stop<'a>,
}

/// How the command, or the load of a server, ended.
struct End {
    wall: f64,
    code: u8,
    /// How many processes that the command left behind had to be ended.
    left: usize,
    /// What the load of a server came to.
    load: Option<Load>,
}

/// Runs a command under a policy, and waits for all that it starts; a server until its load has
/// ended.
pub(super) fn run(task: Task, settings: &mut Settings, available: &Available) -> Result<Outcome, Error> {
    let Task { command, serves, plan, looks, traced, constant, stop } = task;
    let mut differed = constant.differs();
    let task = session::Task { command, way: None, looks: Some(looks), at_ends: traced, reach: false };
    let session = Session::apply(plan, settings, None, task)?;
    let mut in_force = constant.in_force();
    let counters = available.open().map_err(Error::system("open hardware counters"))?;
    let mut running = session.start()?;
    let mut looked = running.started;
    let mut look = |running: &Running| {
        if looked.elapsed() >= SETTINGS {
            in_force.look(running.has_ended_brief());
            looked = Instant::now();
        }
        !stop.is_set()
    };
    let served = serves.is_some();
    let ended = match serves {
        Some((server, loader)) => serve(&mut running, server, loader, &mut look),
        None => until_ended(&mut running, &mut look),
    };
    // A server is looked at while it has what it had at the end of its load.
    let most = |end: &End| end.load.as_ref().and_then(Load::most_bytes);
    let early = match &ended {
        Ok(Some(end)) if served => Some(running.seen(most(end).unwrap_or(0))),
        _ => None,
    };
    let counts = counters.read().map_err(Error::system("read hardware counters"));
    let stopped = stop.is_set();
    let killed = if served { end_server(&mut running, stopped)? } else { 0 };
    if stopped {
        // A signal may have reached the server, or the load, before this process.
        return Ok(Outcome::Stopped);
    }
    let (Some(End { wall, code, left, load }), counts) = (ended?, counts?) else { return Ok(Outcome::Stopped) };
    let left = left + killed;
    let usage = running.tree.usage();
    in_force.look(running.has_ended_brief());
    // It counts the moment before the exec too, when the command was a copy of this process: some
    // MB are the least.
    let Seen { memory, reach, work } = early.unwrap_or_else(|| running.seen(usage.peak_process_bytes));
    let (_, placed) = running.put_back(false);
    if settings.mark() > 0 {
        let sentence = "the comparison ends: the next run would be measured under settings that were not put back";
        return Err(Error::Unable(sentence.to_string()));
    }
    differed = differed.or(in_force.differed);
    let run = Run {
        wall,
        user: usage.user.as_secs_f64(),
        system: usage.system.as_secs_f64(),
        minor_faults: usage.minor_faults,
        major_faults: usage.major_faults,
        memory: memory.expect("it was looked at"),
        counts,
        code,
        warmed: 0,
        free_blocks: None,
        differed,
        load,
    };
    let code_bytes = placed.code.iter().map(|placement| placement.huge_bytes).sum();
    let code: Vec<String> = placed.code.iter().map(ToString::to_string).chain(placed.notes).collect();
    let seen = did::Seen { reach, work, code_bytes, code: code.first().cloned() };
    Ok(Outcome::Done(Box::new(Done { run, left, code, seen })))
}

/// Waits for the command and all that it starts, as long as `look` says so; `None` if it does not.
fn until_ended(running: &mut Running, look: &mut dyn FnMut(&Running) -> bool) -> Result<Option<End>, Error> {
    let (started, mut ended) = (running.started, None);
    loop {
        if !look(running) {
            running.tree.end(GRACE)?;
            return Ok(None);
        }
        let Some(end) = ended else {
            ended = running.wait(Some(LOOK))?;
            continue;
        };
        let of = |wall: Duration, left| End { wall: wall.as_secs_f64(), code: end.code(), left, load: None };
        if running.wait_all(Some(Duration::ZERO))? {
            return Ok(Some(of(end.wall, 0)));
        }
        // The command has ended, and something that it started has not: it belongs to the run,
        // unless it stays for good.
        if running.wait_all(Some(LOOK))? {
            return Ok(Some(of(started.elapsed(), 0)));
        }
        if started.elapsed() > end.wall + end.wall.max(PATIENCE) {
            let left = running.tree.members().len();
            running.tree.end(GRACE)?;
            return Ok(Some(of(end.wall, left)));
        }
    }
}

/// Waits until the server is ready, and puts the load on it, as long as `look` says so; `None` if
/// it does not. The server runs on.
fn serve(
    running: &mut Running,
    server: &Server,
    loader: &mut Loader,
    look: &mut dyn FnMut(&Running) -> bool,
) -> Result<Option<End>, Error> {
    let log = loader.log();
    let gone = |running: &mut Running, when: &str, starts: bool| {
        match running.wait(Some(Duration::ZERO))? {
        None => Ok(()),
        Some(end) if starts && end.code() == 0 && !running.tree.members().is_empty() => Err(Error::Unable(
            "the server went into the background, as its command ended with status 0 and left processes behind: have \
             it stay in the foreground, as by redis-server --daemonize no, postgres without pg_ctl, nginx -g 'daemon off;'"
                .into(),
        )),
        Some(end) => {
            let (code, said) = (end.code(), last_lines(&log));
            Err(Error::Unable(format!("the server ended with status {code} {when}; {said}")))
        }
    }
    };
    loop {
        gone(running, "before it was ready", true)?;
        let check = loader.ready()?;
        let ready = loop {
            if !look(running) {
                check.end();
                return Ok(None);
            }
            check.bound();
            if let Some(status) = check.wait(LOOK)? {
                break status == 0;
            }
            if running.started.elapsed() > server.patience {
                check.end();
                break false;
            }
        };
        if ready {
            break;
        }
        if running.started.elapsed() > server.patience {
            let (ready, seconds, said) = (&server.ready, server.patience.as_secs(), last_lines(&log));
            let why = last_lines(&loader.ready_output());
            return Err(Error::Unable(format!(
                "the server was not ready within {seconds} s (--ready-within gives it more); {said}; {ready} did \
                 not succeed; {why}"
            )));
        }
        running.wait(Some(LOOK))?;
    }
    // What answers may be another server, whose port this one did not get.
    gone(running, "although something answers that is ready: another server may run there", true)?;
    let (mut memory, mut times) = (Looks::begin(), Vec::new());
    let code = loop {
        let load = loader.load()?;
        let code = loop {
            if !look(running) {
                load.end();
                return Ok(None);
            }
            memory.look(|| running.tree.members());
            load.bound();
            if let Some(code) = load.wait(LOOK)? {
                // A load that failed may have met a server that is about to end.
                if code != 0 {
                    running.wait(Some(LOOK))?;
                }
                gone(running, "under its load", memory.elapsed() < START)?;
                break code;
            }
            if let Err(error) = gone(running, "under its load", memory.elapsed() < START) {
                load.end();
                return Err(error);
            }
        };
        let said = std::fs::read(loader.output()).unwrap_or_default();
        times.push(Measured::read(&String::from_utf8_lossy(&said), server.after.as_deref()));
        if code != 0 || memory.elapsed() >= server.hold {
            break code;
        }
    };
    let seconds = memory.elapsed().as_secs_f64();
    let load = Load::new(&times, seconds, memory.finish(&running.tree.members()));
    let wall = load.requests_per_second.map_or(seconds / times.len() as f64, |rate| 1.0 / rate);
    Ok(Some(End { wall, code, left: 0, load: Some(load) }))
}

/// Asks the server to end, and all that it has started, as systemd asks a whole control group: a
/// script around a server may pass no signal on. Returns how many processes did not end.
fn end_server(running: &mut Running, at_once: bool) -> Result<usize, Error> {
    running.tree.end(if at_once { GRACE } else { PATIENCE })
}
