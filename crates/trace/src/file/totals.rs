//! The totals of a whole trace, which its footer contains.

use super::bytes::{Bytes, Damage, put_number};
use super::events::{KIND_NAMES, KINDS, KINDS_1, KINDS_2, KINDS_4, KINDS_6, kind};
use super::header::THREADED;
use crate::event::{Batch, Event, ProcessId, Run};
use crate::threads::Threads;
use hashbrown::HashSet;
use serde::Serialize;
use std::collections::BTreeMap;
use superpage_pages::Access;

/// Sums over a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Runs.
    pub runs: u64,
    /// Runs of reads.
    pub read_runs: u64,
    /// Runs of writes.
    pub write_runs: u64,
    /// Runs of instruction fetches.
    pub execute_runs: u64,
    /// Data references: loads and stores.
    pub references: u64,
    /// Instruction fetches as references, an instruction that crosses pages counting on each.
    pub fetches: u64,
    /// Instructions.
    pub instructions: u64,
    /// Data references that sampling left out.
    pub skipped_references: u64,
    /// Instructions that sampling left out.
    pub skipped_instructions: u64,
    /// Pages of 4 KB with at least one reference; the same number in two processes counts twice.
    pub pages: u64,
    /// Processes.
    pub processes: u64,
    /// The most threads that one program has had ([`Threads`]); `None` where the file is older than
    /// version 8 and was not read whole.
    pub threads: Option<u64>,
    /// Events of each kind, by name; kinds that do not occur are left out.
    pub events: BTreeMap<&'static str, u64>,
}

impl Totals {
    /// The share of data references that the trace contains: 1 unless it is sampled.
    pub fn sampled_share(&self) -> f64 {
        match self.references + self.skipped_references {
            0 => 1.0,
            all => self.references as f64 / all as f64,
        }
    }

    fn numbers(&mut self) -> [&mut u64; 11] {
        [
            &mut self.runs,
            &mut self.read_runs,
            &mut self.write_runs,
            &mut self.execute_runs,
            &mut self.references,
            &mut self.fetches,
            &mut self.instructions,
            &mut self.skipped_references,
            &mut self.skipped_instructions,
            &mut self.pages,
            &mut self.processes,
        ]
    }

    /// Adds the totals: the numbers in the order of their declaration, then a count for each kind
    /// of event of that version.
    pub(crate) fn put(&self, out: &mut Vec<u8>, version: u32) {
        self.clone().numbers().into_iter().for_each(|number| put_number(out, *number));
        if version >= THREADED {
            put_number(out, self.threads.unwrap_or(0));
        }
        KIND_NAMES[..kinds(version)]
            .iter()
            .for_each(|name| put_number(out, self.events.get(name).copied().unwrap_or(0)));
    }

    /// Takes totals from a file of that version.
    pub(crate) fn get(bytes: &mut Bytes, version: u32) -> Result<Totals, Damage> {
        let mut totals = Totals::default();
        for number in totals.numbers() {
            *number = bytes.number()?;
        }
        totals.threads = if version >= THREADED { Some(bytes.number()?) } else { None };
        for name in &KIND_NAMES[..kinds(version)] {
            match bytes.number()? {
                0 => {}
                count => drop(totals.events.insert(name, count)),
            }
        }
        Ok(totals)
    }
}

/// How many kinds of events a version of the format knows.
fn kinds(version: u32) -> usize {
    match version {
        1 => KINDS_1,
        2 => KINDS_2,
        3 | 4 => KINDS_4,
        5 | 6 => KINDS_6,
        _ => KINDS,
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Totals { references, fetches, instructions, runs, pages, processes, threads, .. } = self;
        write!(f, "{references} references and {fetches} fetches in {runs} runs, {instructions} instructions, ")?;
        write!(f, "{pages} pages touched, {processes} {}", if *processes == 1 { "process" } else { "processes" })?;
        match threads {
            Some(threads) if *threads > 1 => write!(f, ", up to {threads} threads in one"),
            _ => Ok(()),
        }
    }
}

/// Computes [`Totals`] as a trace is read or written. Memory: about 16 bytes per touched page.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    totals: Totals,
    events: [u64; KINDS],
    pages: HashSet<(u32, u64)>,
    processes: HashSet<u32>,
    process: u32,
    threads: Threads,
}

/// The runs of one kind of access, and their references.
#[derive(Clone, Copy, Default)]
pub(crate) struct RunSum {
    pub(crate) runs: u64,
    pub(crate) references: u64,
}

impl Counter {
    /// Counts runs, but not their pages: by the number of the kind of access, and the instructions
    /// of all.
    pub(crate) fn runs(&mut self, sums: [RunSum; 3], instructions: u64) {
        let totals = &mut self.totals;
        let [reads, writes, executes] = [Access::Read, Access::Write, Access::Execute].map(|kind| sums[kind as usize]);
        let runs = reads.runs + writes.runs + executes.runs;
        if runs > 0 {
            self.threads.access();
        }
        totals.runs += runs;
        totals.read_runs += reads.runs;
        totals.write_runs += writes.runs;
        totals.execute_runs += executes.runs;
        totals.references += reads.references + writes.references;
        totals.fetches += executes.references;
        totals.instructions += instructions;
    }

    /// Counts a page of the current process, once.
    pub(crate) fn page(&mut self, page: u64) {
        self.pages.insert((self.process, page));
    }

    /// Counts an event; returns `true` if the current process changes.
    pub(crate) fn event(&mut self, event: &Event) -> bool {
        self.events[kind(event)] += 1;
        self.threads.event(event);
        match *event {
            Event::Switch { process: ProcessId(process), .. } => {
                self.processes.insert(process);
                std::mem::replace(&mut self.process, process) != process
            }
            Event::Fork { child } => {
                self.processes.insert(child.0);
                false
            }
            Event::Skipped { references, instructions } => {
                self.totals.skipped_references = self.totals.skipped_references.saturating_add(references);
                self.totals.skipped_instructions = self.totals.skipped_instructions.saturating_add(instructions);
                false
            }
            _ => false,
        }
    }

    /// Counts runs, their pages, and events.
    pub(crate) fn batch(&mut self, batch: &Batch) {
        let mut next = 0;
        for &(place, ref event) in &batch.events {
            self.runs_and_pages(&batch.runs[next..place as usize]);
            next = place as usize;
            self.event(event);
        }
        self.runs_and_pages(&batch.runs[next..]);
    }

    fn runs_and_pages(&mut self, runs: &[Run]) {
        let (mut sums, mut instructions) = ([RunSum::default(); 3], 0);
        for run in runs {
            let sum = &mut sums[run.access() as usize];
            sum.runs += 1;
            sum.references += u64::from(run.references);
            instructions += u64::from(run.instructions);
            self.page(run.page());
        }
        self.runs(sums, instructions);
    }

    /// The totals so far.
    pub(crate) fn totals(&self) -> Totals {
        let events = KIND_NAMES.into_iter().zip(self.events).filter(|&(_, count)| count > 0).collect();
        let (pages, processes) = (self.pages.len() as u64, self.processes.len() as u64);
        Totals { pages, processes, threads: Some(self.threads.most()), events, ..self.totals.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_footer_counts_the_kinds_that_its_version_knew() {
        let mut counter = Counter::default();
        counter.event(&Event::Exec);
        counter.event(&Event::Advise { start: 1, pages: 2, hint: superpage_pages::Hint::Huge });
        counter.event(&Event::Call { path: "null".into(), at: 0, bytes: 0 });
        let totals = counter.totals();
        let counts = [(1, 12, 1), (2, 23, 1), (3, 24, 1), (4, 24, 1), (5, 25, 2), (6, 25, 2), (7, 26, 3), (8, 27, 3)];
        for (version, kinds, known) in counts {
            let mut out = Vec::new();
            totals.put(&mut out, version);
            assert_eq!(out.len(), totals.clone().numbers().len() + kinds, "version {version}");
            let mut bytes = Bytes(&out);
            assert_eq!(Totals::get(&mut bytes, version).unwrap().events.len(), known);
            bytes.end().unwrap();
        }
    }
}
