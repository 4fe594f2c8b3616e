//! One command under one policy, from applying the policy to restoring settings: what `run` and
//! `compare` have in common.
//!
//! A [`Session`] applies the policy and prepares the command. [`Session::start`] starts it, places
//! its code, passes signals on, and starts the policy's background and the sampler.
//! [`Running::put_back`] ends all of that; dropping at any point does too, in the order in which
//! nothing is lost: the sampler, the command, system-wide settings, and last the signals that were
//! blocked meanwhile.

use crate::Policy;
use crate::inspect::Reach;
use crate::launch::Arrangement;
use crate::policy::Plan;
use crate::promote::{Promoting, Work};
use crate::sample::{self, Memory, Sampler};
use crate::watch::Watch;
use std::process::Command;
use std::time::{Duration, Instant};
use superpage_linux::Error;
use superpage_linux::settings::{Settings, System};
use superpage_linux::signals::{Passing, Signals};
use superpage_linux::text::{self, Placed, Way};
use superpage_linux::tree::{Ended, Tree};

/// Programs map the memory that they share when they start: for this long it matters how shared
/// memory is aligned.
const MAPS: Duration = Duration::from_secs(10);
/// How often a command looks meanwhile whether another has put back what both need: in between,
/// memory is not aligned.
const LOOK: Duration = Duration::from_millis(10);

/// The settings of this system, locked if any of the policies changes some. While another process
/// holds the lock this waits, and a signal should end the waiting: so signals are to be held back,
/// or handlers that only set a flag to be set up, after it. What the policies need is to be looked
/// at after it too, since the other process puts its settings back meanwhile. Policies that are
/// `measured` and change none share the lock with others that measure, so that nobody else changes
/// settings meanwhile. Nobody waits for what matters only while a command maps its memory, unless
/// it is measured.
pub(crate) fn settings<'a>(policies: impl IntoIterator<Item = &'a Policy>, measured: bool, waits: bool) -> Settings {
    let system = System::live();
    let plans: Vec<Plan> = policies.into_iter().filter_map(|policy| Plan::new(policy, &system).ok()).collect();
    let brief = plans.iter().any(Plan::is_briefly_global);
    let waits = waits && (measured || plans.iter().any(Plan::is_global));
    let alone = plans.iter().any(Plan::is_global) || brief;
    let mut settings = Settings::new(system, waits);
    // Without the right to the lock, each policy that needs it says so, unless everything is as it
    // should be.
    let _ = match alone {
        true => settings.lock(),
        false if measured => settings.share(),
        false => Ok(()),
    };
    settings
}

/// What is started, and how it is watched.
pub(crate) struct Task {
    /// The command.
    pub(crate) command: Command,
    /// How its code is placed, also where the policy does not.
    pub(crate) way: Option<Way>,
    /// The looks at the memory of the command and its descendants, if any.
    pub(crate) looks: Option<sample::Plan>,
    /// Each process is looked at when it ends too, which takes time.
    pub(crate) at_ends: bool,
    /// What the policy comes to is looked at now and then.
    pub(crate) reach: bool,
}

/// A policy in force, and a command that is ready to be started under it. Fields are dropped in
/// their order: the signals last.
pub(crate) struct Session<'s> {
    task: Task,
    /// Where processes are looked at when they end: it is there before the command.
    sampler: Option<Sampler>,
    arrangement: Arrangement<'s>,
    signals: Option<Signals>,
}

impl<'s> Session<'s> {
    /// Applies the policy of `plan`, and makes the command ready. `signals` that are held back are
    /// passed on to the command, and held back until all is put back.
    ///
    /// # Errors
    /// Those of [`Plan::arrange`] and [`text::prepare`].
    pub(crate) fn apply(
        plan: Plan,
        settings: &'s mut Settings,
        signals: Option<Signals>,
        mut task: Task,
    ) -> Result<Session<'s>, Error> {
        task.way = task.way.or(plan.policy.live().way);
        let arrangement = plan.arrange(settings)?;
        arrangement.prepare(&mut task.command);
        signals.iter().for_each(|signals| signals.prepare(&mut task.command));
        if task.way.is_some() {
            text::prepare(&mut task.command)?;
        }
        let looks = task.looks.clone().filter(|_| task.at_ends);
        let mut sampler = looks.map(Sampler::start).transpose()?;
        sampler.iter_mut().for_each(Sampler::begin);
        Ok(Session { task, sampler, arrangement, signals })
    }

    /// A signal that has come and would have ended this process: then there is to be no command.
    pub(crate) fn ending(&self) -> Option<i32> {
        self.signals.as_ref()?.ending()
    }

    /// Starts the command. What is watched costs nothing before that, unless its processes are
    /// looked at when they end.
    ///
    /// # Errors
    /// [`Error::Exec`] when the command cannot be started; [`Error::System`], as where a thread
    /// cannot be. Nothing of it lives then.
    pub(crate) fn start(self) -> Result<Running<'s>, Error> {
        // What fails below drops these from the last to the first: a signal that waits ends this
        // process, and must not before the settings are put back.
        let signals = self.signals;
        let arrangement = self.arrangement;
        let Session { mut task, sampler, .. } = self;
        // All threads are there before the command: where one cannot be had, it is not started.
        // They wait for it.
        let mut passing = signals.as_ref().map(Signals::pass_on).transpose()?;
        let mut promoting = arrangement.promoter()?;
        let waiting = sampler.is_none().then(|| task.looks.take()).flatten();
        let waiting = waiting.map(Sampler::start).transpose()?;
        let mut watch = task.reach.then(Watch::start).transpose()?;
        let started = Instant::now();
        let tree = match &sampler {
            Some(sampler) => Tree::spawn_traced(&mut task.command, sampler.at_ends())?,
            None => Tree::spawn(&mut task.command)?,
        };
        // Within the time of the command: it is what the policy costs.
        let placed = task.way.map(|way| text::place(tree.pid() as u32, way, None)).unwrap_or_default();
        passing.as_mut().map_or(Ok(()), |passing| passing.begin(tree.pid(), tree.pidfd()))?;
        promoting.iter_mut().for_each(Promoting::begin);
        let mut sampler = sampler.or(waiting);
        sampler.iter_mut().for_each(Sampler::begin);
        watch.iter_mut().for_each(Watch::begin);
        Ok(Running { watch, sampler, promoting, placed, started, tree, passing, arrangement, _signals: signals })
    }

    /// Puts back what was set, without having started the command. Returns what was done for the
    /// whole system, as sentences.
    pub(crate) fn put_back(self) -> Vec<String> {
        self.arrangement.notes().to_vec()
    }
}

/// A command that was started. It is ended when this is dropped.
pub(crate) struct Running<'s> {
    watch: Option<Watch>,
    sampler: Option<Sampler>,
    promoting: Option<Promoting>,
    /// What became of the command's code.
    pub(crate) placed: Placed,
    /// When the command was started.
    pub(crate) started: Instant,
    /// The command and all that it has started.
    pub(crate) tree: Tree,
    passing: Option<Passing>,
    arrangement: Arrangement<'s>,
    _signals: Option<Signals>,
}

/// What was seen of a command.
pub(crate) struct Seen {
    /// Its memory, if that was looked at.
    pub(crate) memory: Option<Memory>,
    /// What the policy came to, if that was looked at.
    pub(crate) reach: Option<Reach>,
    /// What the promoter of the policy did, if it has one.
    pub(crate) work: Option<Work>,
}

impl Running<'_> {
    /// Waits for the command as [`Tree::wait`] does. What matters only while it maps its memory is
    /// restored meanwhile.
    ///
    /// # Errors
    /// Those of [`Tree::wait`].
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> Result<Option<Ended>, Error> {
        self.wait_for(timeout, Tree::wait)
    }

    /// Waits for the command and its descendants as [`Tree::wait_all`] does, otherwise like
    /// [`wait`](Running::wait).
    ///
    /// # Errors
    /// Those of [`Tree::wait_all`].
    pub(crate) fn wait_all(&mut self, timeout: Option<Duration>) -> Result<bool, Error> {
        let all = |tree: &mut Tree, timeout| Ok(tree.wait_all(timeout)?.then_some(()));
        Ok(self.wait_for(timeout, all)?.is_some())
    }

    fn wait_for<T>(
        &mut self,
        timeout: Option<Duration>,
        wait: impl Fn(&mut Tree, Option<Duration>) -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        let maps = MAPS.saturating_sub(self.started.elapsed());
        let first = timeout.unwrap_or(maps).min(maps);
        let deadline = Instant::now() + first;
        let done = loop {
            let rest = deadline.saturating_duration_since(Instant::now());
            let look = if self.arrangement.is_pending() { rest.min(LOOK) } else { rest };
            let done = wait(&mut self.tree, Some(look))?;
            if done.is_some() || look == rest {
                break done;
            }
            self.arrangement.take_over();
        };
        if done.is_some() || timeout == Some(first) {
            return Ok(done);
        }
        self.arrangement.end_brief();
        wait(&mut self.tree, timeout.map(|timeout| timeout - first))
    }

    /// Whether the settings of the system are as before the policy, since they matter only while
    /// the command maps its memory.
    pub(crate) fn has_ended_brief(&self) -> bool {
        self.arrangement.has_ended_brief()
    }

    /// Ends the watching, and what the policy does next to the command. `most` is a lower bound of
    /// the peak of its memory, in bytes, that is known otherwise.
    pub(crate) fn seen(&mut self, most: u64) -> Seen {
        let work = self.promoting.take().map(Promoting::finish);
        let (memory, asked) = self.sampler.take().map(|sampler| sampler.finish_thorough(most)).unzip();
        let reach = self.watch.take().and_then(Watch::finish).or(asked.flatten());
        Seen { memory, reach, work }
    }

    /// Puts back what was set for the whole system; what the command has left behind runs on if
    /// `leave`, else it is ended. Returns what was done for the whole system, as sentences, and
    /// what became of the code.
    pub(crate) fn put_back(self, leave: bool) -> (Vec<String>, Placed) {
        // Dropped after all else.
        let _signals = self._signals;
        let Running { watch, sampler, promoting, placed, tree, passing, arrangement, .. } = self;
        drop((watch, sampler, promoting));
        if leave {
            tree.leave()
        } else {
            drop(tree)
        }
        let notes = arrangement.notes().to_vec();
        drop(arrangement);
        drop(passing);
        (notes, placed)
    }
}
