//! The promoters of a daemon: one for each table of a service, and one for all other processes.
//!
//! They run one after the other on one thread. Each is charged all that the process uses, so that together they keep to
//! one share of a core. While one waits for as much time as its last call took, the others wait too, in turns: else
//! one with short calls would use up what another has to save.
//!
//! A process belongs to the first service that selects it: a promoter skips what the services before it select.

use super::config::Part;
use crate::promote::{Counters, Promoter};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use superpage_linux::Error;

/// The counters of a service; without a name where the configuration has no tables of services.
pub type Counted = (Option<String>, Counters);

/// Promoters, with the labels of their services.
#[derive(Debug)]
pub(super) struct Services {
    parts: Vec<(String, Promoter)>,
    /// Whether services are told apart.
    named: bool,
    /// Whose turn it is.
    turn: usize,
    /// The processes that each selects, and when they were listed.
    selected: Option<(Instant, Vec<BTreeSet<i32>>)>,
}

/// For how long a list of processes is used.
const LISTED: Duration = Duration::from_millis(200);

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
            turn: 0,
            selected: None,
        })
    }

    /// Replaces the configuration. A service that has the label of one before keeps what is known of its processes, and
    /// its counters.
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
        (self.named, self.turn, self.selected) = (named, 0, None);
        Ok(())
    }

    /// Does what is due: first of the one whose turn it is, and only that while it saves up time. Returns for how long
    /// nothing is due.
    pub(super) fn step(&mut self) -> Duration {
        let (services, turn) = (self.parts.len(), self.turn);
        let runs = self.parts[turn].1.is_due();
        let rest = self.step_of(turn);
        if !runs && self.parts[turn].1.lacks_time() {
            return rest;
        }
        let others = (1..services).map(|at| (turn + at) % services);
        let rest = others.clone().map(|at| self.step_of(at)).fold(rest, Duration::min);
        self.turn = { others }.find(|at| self.parts[*at].1.lacks_time()).unwrap_or((turn + 1) % services);
        rest
    }

    /// Does what is due of one.
    fn step_of(&mut self, at: usize) -> Duration {
        if at > 0 && self.parts[at].1.is_due() {
            if self.selected.as_ref().is_none_or(|(when, _)| when.elapsed() >= LISTED) {
                let members = self.parts.iter().map(|(_, promoter)| promoter.target().members());
                self.selected = Some((Instant::now(), members.collect()));
            }
            let before = self.selected.iter().flat_map(|(_, members)| &members[..at]).flatten().copied();
            let others = before.collect();
            self.parts[at].1.leave(others);
        }
        self.parts[at].1.step()
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
