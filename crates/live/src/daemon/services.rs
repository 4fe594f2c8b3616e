//! The promoters of a daemon: one for each table of a service, and one for all other processes.
//!
//! They run one after the other on one thread. Each is charged all that the process uses, so that
//! together they keep to one share of a core. While one waits for as much time as its last call
//! took, the others wait too, in turns: else one with short calls would use up what another has to
//! save.
//!
//! A process belongs to the first service that selects it. Processes are listed once for all
//! services, however many.

use super::config::Part;
use crate::promote::{Counters, Listing, Promoter};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use superpage_linux::Error;
use superpage_linux::cpu::thread_cpu;

/// The counters of a service; without a name where the configuration has no tables of services.
pub type Counted = (Option<String>, Counters);

/// Promoters, with the labels of their services.
#[derive(Debug)]
pub(super) struct Services {
    parts: Vec<(String, Promoter)>,
    /// Whether logs and metrics name services.
    named: bool,
    /// The regions, and the bytes added by them, of services that are served no longer.
    pub(super) past: (u64, u64),
    /// Whose turn it is.
    turn: usize,
    /// Until when the list of processes is used.
    listed: Option<Instant>,
}

/// What takes turns.
trait Turns {
    /// How many there are.
    fn number(&self) -> usize;
    /// How much one has done so far.
    fn done(&self, at: usize) -> u64;
    /// Whether one has something to do, and waits for processor time.
    fn lacks_time(&self, at: usize) -> bool;
    /// Does what is due of one. Returns for how long nothing is.
    fn step_of(&mut self, at: usize) -> Duration;
}

impl Turns for Services {
    fn number(&self) -> usize {
        self.parts.len()
    }

    fn done(&self, at: usize) -> u64 {
        self.parts[at].1.attempts()
    }

    fn lacks_time(&self, at: usize) -> bool {
        !self.parts[at].1.is_idle() && self.parts[at].1.lacks_time()
    }

    fn step_of(&mut self, at: usize) -> Duration {
        if self.parts[at].1.is_idle() { Duration::MAX } else { self.parts[at].1.step() }
    }
}

/// Does what is due, of the one whose turn it is alone while it saves up time. Returns for how long
/// nothing is due, and whose turn is next. A step in which it finds that what it has saved is short
/// by the time for that look is no turn: else who needs much at once would lose it each time.
fn step_from(all: &mut impl Turns, turn: usize) -> (Duration, usize) {
    let (number, before) = (all.number(), all.done(turn));
    let rest = all.step_of(turn);
    if all.done(turn) == before && all.lacks_time(turn) {
        return (rest, turn);
    }
    let others = (1..number).map(|at| (turn + at) % number);
    let rest = others.clone().map(|at| all.step_of(at)).fold(rest, Duration::min);
    let next = { others }.find(|at| all.lacks_time(*at)).unwrap_or((turn + 1) % number);
    (rest, next)
}

/// How many regions are promoted until all `own` of one service are, if services take turns: of
/// each of `all`, which include it, as many as its own, or all that it has.
pub fn in_turns(own: u64, all: impl IntoIterator<Item = u64>) -> u64 {
    all.into_iter().map(|regions| regions.min(own)).sum()
}

/// Which part of the share of a core lists of processes may take.
const LISTING: f64 = 0.2;

impl Services {
    /// # Errors
    /// As for [`Promoter::new`].
    pub(super) fn new(parts: Vec<Part>) -> Result<Services, Error> {
        let named = parts.len() > 1 || parts.iter().any(|part| part.is_service);
        let promoter = |part: Part| {
            let mut promoter = Promoter::new(part.options, part.target)?;
            promoter.count_the_process();
            Ok((part.label, promoter))
        };
        Ok(Services {
            parts: parts.into_iter().map(promoter).collect::<Result<_, Error>>()?,
            named,
            past: (0, 0),
            turn: 0,
            listed: None,
        })
    }

    /// Replaces the configuration. A service that has the label of one before keeps what is known
    /// of its processes, and its counters.
    ///
    /// # Errors
    /// As for [`Promoter::new`]; then nothing has changed.
    pub(super) fn reconfigure(&mut self, parts: Vec<Part>) -> Result<(), Error> {
        let named = parts.len() > 1 || parts.iter().any(|part| part.is_service);
        let is_there = |label: &String| self.parts.iter().any(|(there, _)| there == label);
        let mut new = Vec::new();
        for part in parts.iter().filter(|part| !is_there(&part.label)) {
            let mut promoter = Promoter::new(part.options.clone(), part.target.clone())?;
            promoter.join_the_process();
            new.push((part.label.clone(), promoter));
        }
        let mut known = std::mem::take(&mut self.parts);
        for Part { label, options, target, .. } in parts {
            if let Some(at) = known.iter().position(|(there, _)| *there == label) {
                let (_, mut promoter) = known.remove(at);
                promoter.reconfigure(options, target);
                self.parts.push((label, promoter));
            } else if let Some(at) = new.iter().position(|(there, _)| *there == label) {
                self.parts.push(new.remove(at));
            }
        }
        for (label, promoter) in known {
            let Counters { promoted_regions: regions, grown_bytes, .. } = promoter.counters();
            tracing::info!(service = self.named.then_some(label), regions, grown_bytes, "served no longer");
            self.past = (self.past.0 + regions, self.past.1 + grown_bytes);
        }
        (self.named, self.turn, self.listed) = (named, 0, None);
        Ok(())
    }

    /// Does what is due: first of the one whose turn it is, and only that while it saves up time.
    /// Returns for how long nothing is due.
    pub(super) fn step(&mut self) -> Duration {
        if self.listed.is_none_or(|until| until <= Instant::now()) {
            self.list();
        }
        let rest;
        (rest, self.turn) = step_from(self, self.turn);
        rest.min(self.listed.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now())))
    }

    /// Lists the processes of each, once for all: each shortest interval, and the more seldom the
    /// more there are, so that it stays within a part of the share of a core.
    fn list(&mut self) {
        let before = thread_cpu();
        let (mut listing, mut taken) = (Listing::default(), BTreeSet::new());
        self.parts.iter_mut().for_each(|(_, promoter)| promoter.list(&mut listing, &mut taken));
        let used = thread_cpu().saturating_sub(before).as_secs_f64();
        let cpu = self.parts[0].1.options().cpu;
        let rest = Duration::try_from_secs_f64(used / (cpu * LISTING)).unwrap_or(Duration::MAX);
        let interval = self.parts.iter().map(|(_, promoter)| promoter.options().interval).min().unwrap_or_default();
        self.listed = Instant::now().checked_add(rest.max(interval));
    }

    /// The counters of each.
    pub(super) fn counters(&self) -> Vec<Counted> {
        self.iter().map(|(service, promoter)| (service.map(String::from), promoter.counters())).collect()
    }

    /// The promoters, with the names of their services.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Option<&str>, &Promoter)> {
        self.parts.iter().map(|(label, promoter)| (self.named.then_some(label.as_str()), promoter))
    }

    /// Whether all processes that were named have ended, and no others were.
    pub(super) fn is_over(&self) -> bool {
        self.parts.iter().all(|(_, promoter)| promoter.target().is_over())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Services that always have something to promote, and are charged what any of them uses.
    struct Busy {
        /// The time of a call of each, which is saved up before it.
        calls: [u64; 3],
        saved: u64,
        looks: u64,
        ran: [u64; 3],
    }

    impl Turns for Busy {
        fn number(&self) -> usize {
            self.calls.len()
        }

        fn done(&self, at: usize) -> u64 {
            self.ran[at]
        }

        fn lacks_time(&self, at: usize) -> bool {
            self.saved < self.calls[at]
        }

        fn step_of(&mut self, at: usize) -> Duration {
            // A look takes some too, so that what was enough before it is not any more.
            let enough = self.saved >= self.calls[at];
            self.saved -= u64::from(enough && self.looks.is_multiple_of(2));
            self.looks += u64::from(enough);
            if self.saved >= self.calls[at] {
                self.saved -= self.calls[at];
                self.ran[at] += 1;
            }
            Duration::ZERO
        }
    }

    #[test]
    fn short_calls_starve_no_service_of_long_ones() {
        for calls in [[1, 100, 1], [100, 1, 1], [7, 1, 100]] {
            let (mut services, mut turn) = (Busy { calls, saved: 0, looks: 0, ran: [0; 3] }, 0);
            for _ in 0..20 * calls.iter().sum::<u64>() {
                services.saved += 1;
                (_, turn) = step_from(&mut services, turn);
            }
            let (least, most) = (services.ran.iter().min().unwrap(), services.ran.iter().max().unwrap());
            assert!(*least >= 19 && most - least <= 1, "calls of {calls:?}: {:?}", services.ran);
        }
    }

    #[test]
    fn who_has_less_to_promote_is_done_first() {
        let all = [10, 100, 0, 40];
        assert_eq!(all.map(|own| in_turns(own, all)), [30, 150, 0, 90]);
        assert_eq!(in_turns(151, [151]), 151);
    }
}
