//! The promoters of a daemon: one for each service with parameters of its own, and one for all other processes.
//!
//! They run one after the other on one thread. Each is charged all that the process uses, so that together they keep to
//! one share of a core. A process belongs to the first service that selects it: a promoter leaves out what those before
//! it had at their last look. It scans no process in the interval in which it first sees it, so a process that two
//! select is known to both promoters before either works on it.

use super::config::Part;
use crate::promote::{Counters, Promoter};
use std::time::Duration;
use superpage_linux::Error;

/// The counters of a service; without a name where the configuration has no tables of services.
pub type Counted = (Option<String>, Counters);

/// Promoters, with the labels of their services.
#[derive(Debug)]
pub(super) struct Services {
    parts: Vec<(String, Promoter)>,
    /// Whether services are told apart.
    named: bool,
    /// Who is called first.
    turn: usize,
}

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
        Ok(Services { parts: parts.into_iter().map(promoter).collect::<Result<_, Error>>()?, named, turn: 0 })
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
        self.named = named;
        Ok(())
    }

    /// Does what is due, with another service first each time. Returns for how long nothing is due.
    pub(super) fn step(&mut self) -> Duration {
        let services = self.parts.len();
        self.turn = (self.turn + 1) % services;
        let mut rest = Duration::MAX;
        for at in (0..services).map(|at| (at + self.turn) % services) {
            let (before, from) = self.parts.split_at_mut(at);
            let promoter = &mut from[0].1;
            if promoter.is_due() {
                promoter.leave(before.iter().flat_map(|(_, promoter)| promoter.processes()).collect());
            }
            rest = rest.min(promoter.step());
        }
        rest
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
