//! Mixes: several workloads as the processes of one machine, at once in time slices or one after
//! the other.
//!
//! Processes and threads get new numbers, so that workloads share none; files keep their
//! numbers, as those of built-in workloads name the same file everywhere.
//!
//! Workloads that run one after the other each begin with a mark of their name. Of workloads that
//! run at once, an idle one yields the rest of its turn, and the machine is idle only when no other
//! is left.

use crate::{Batch, Error, Event, Info, ProcessId, Run, Source};
use std::collections::HashMap;
use superpage_pages::Access;

/// Data references in a time slice unless another number is given: about 10 ms of the Alpha that
/// Navarro had in 2002.
pub(super) const SLICE: u64 = 1_000_000;

/// Several sources as one.
pub(super) struct Mix {
    info: Info,
    members: Vec<Member>,
    /// Whether they run one after the other, each to its end.
    in_turn: bool,
    /// Whose turn it is.
    turn: usize,
    /// Data references in a turn; a turn ends with the run that fills it.
    slice: u64,
    /// What is left of the turn; `None` before its first event.
    left: Option<u64>,
    processes: u32,
    threads: u32,
}

/// One source of a mix, and how far it has been taken.
struct Member {
    source: Box<dyn Source>,
    batch: Batch,
    run: usize,
    event: usize,
    /// The new numbers of its processes and threads.
    processes: HashMap<ProcessId, ProcessId>,
    threads: HashMap<u32, u32>,
    /// Where it is in its own stream: the switch last seen, in the new numbers.
    current: Option<(ProcessId, u32)>,
    /// The line, or a page's first, that each of its threads fetches instructions from.
    fetching: HashMap<(ProcessId, u32), u64>,
}

impl Mix {
    /// The mix of `sources` one after the other; the source itself if there is but one.
    pub(super) fn in_turn(text: &str, sources: Vec<Box<dyn Source>>) -> Box<dyn Source> {
        Mix::of(text, sources, true, u64::MAX)
    }

    /// The mix of `sources` in turns of `slice` data references; the source itself if there is but
    /// one.
    pub(super) fn at_once(text: &str, sources: Vec<Box<dyn Source>>, slice: u64) -> Box<dyn Source> {
        Mix::of(text, sources, false, slice)
    }

    fn of(text: &str, mut sources: Vec<Box<dyn Source>>, in_turn: bool, slice: u64) -> Box<dyn Source> {
        if sources.len() == 1 {
            return sources.remove(0);
        }
        let info = Info {
            workload: text.into(),
            fetches: sources.iter().any(|source| source.info().fetches),
            calls: sources.iter().any(|source| source.info().calls),
            lines: sources.iter().any(|source| source.info().lines),
            runs: sources.iter().map(|source| source.info().runs).sum(),
            memory: sources.iter().map(|source| source.info().memory).sum(),
            ..Info::default()
        };
        let members = sources.into_iter().map(Member::new).collect();
        Box::new(Mix { info, members, in_turn, turn: 0, slice, left: None, processes: 0, threads: 0 })
    }
}

impl Source for Mix {
    fn info(&self) -> &Info {
        &self.info
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        while batch.runs.len() < Batch::RUNS && !self.members.is_empty() {
            let others = self.members.len() > 1;
            let member = &mut self.members[self.turn];
            if !member.ready()? {
                self.members.remove(self.turn);
                self.turn = if self.turn == self.members.len() { 0 } else { self.turn };
                self.left = None;
                continue;
            }
            let left = match &mut self.left {
                Some(left) => left,
                none => {
                    if self.in_turn {
                        batch.event(Event::Mark(member.source.info().workload.clone()));
                    }
                    member.resume(batch);
                    none.insert(self.slice)
                }
            };
            let give_up = others && !self.in_turn;
            if member.take_events(batch, &mut self.processes, &mut self.threads, give_up) {
                *left = 0;
            } else {
                member.take_runs(batch, left);
            }
            if *left == 0 && others {
                self.turn = (self.turn + 1) % self.members.len();
                self.left = None;
            } else if *left == 0 {
                *left = self.slice;
            }
        }
        Ok(!batch.runs.is_empty() || !batch.events.is_empty())
    }
}

impl Member {
    fn new(source: Box<dyn Source>) -> Member {
        Member {
            source,
            batch: Batch::default(),
            run: 0,
            event: 0,
            processes: HashMap::new(),
            threads: HashMap::new(),
            current: None,
            fetching: HashMap::new(),
        }
    }

    /// Reads the next batch of the source if necessary; returns `false` at the source's end.
    fn ready(&mut self) -> Result<bool, Error> {
        if self.run == self.batch.runs.len() && self.event == self.batch.events.len() {
            (self.run, self.event) = (0, 0);
            return self.source.fill(&mut self.batch);
        }
        Ok(true)
    }

    /// Adds the switch to this member where its turn begins. Its instructions are then fetched
    /// again from the page where they stopped: one fetch, since the run that counted the others
    /// lies before the switch.
    fn resume(&self, batch: &mut Batch) {
        let Some((process, thread)) = self.current else { return };
        batch.event(Event::Switch { process, thread });
        if let Some(line) = self.fetching.get(&(process, thread)) {
            batch.run(Run::on_line(*line, Access::Execute, 1, 1));
        }
    }

    /// Takes the events before the next run. With `give_up`, idle time is dropped and ends the
    /// turn: then this returns `true`.
    fn take_events(&mut self, batch: &mut Batch, processes: &mut u32, threads: &mut u32, give_up: bool) -> bool {
        while let Some((_, event)) = self.batch.events.get(self.event).filter(|(at, _)| *at as usize == self.run) {
            let mut event = event.clone();
            self.event += 1;
            match &mut event {
                Event::Switch { process, thread } => {
                    *process = new_process(&mut self.processes, *process, processes);
                    *thread = *self.threads.entry(*thread).or_insert_with(|| {
                        *threads += 1;
                        *threads - 1
                    });
                    self.current = Some((*process, *thread));
                }
                Event::Idle { .. } if give_up => return true,
                Event::Fork { child } => *child = new_process(&mut self.processes, *child, processes),
                Event::Exec | Event::Exit => {
                    let ended = self.current.map(|(process, _)| process);
                    self.fetching.retain(|(process, _), _| Some(*process) != ended);
                }
                _ => {}
            }
            batch.event(event);
        }
        false
    }

    /// Takes runs up to the next event, the end of the slice, or a full batch.
    fn take_runs(&mut self, batch: &mut Batch, left: &mut u64) {
        let end = self.batch.events.get(self.event).map_or(self.batch.runs.len(), |(at, _)| *at as usize);
        let room = Batch::RUNS.saturating_sub(batch.runs.len()).min(end - self.run);
        let mut taken = 0;
        for run in &self.batch.runs[self.run..self.run + room] {
            taken += 1;
            if run.access() == Access::Execute {
                if let Some(current) = self.current {
                    self.fetching.insert(current, run.line());
                }
            } else {
                *left = left.saturating_sub(u64::from(run.references));
                if *left == 0 {
                    break;
                }
            }
        }
        batch.runs.extend_from_slice(&self.batch.runs[self.run..self.run + taken]);
        self.run += taken;
    }
}

/// The new number of a process, the next free one if it has none.
fn new_process(known: &mut HashMap<ProcessId, ProcessId>, process: ProcessId, next: &mut u32) -> ProcessId {
    *known.entry(process).or_insert_with(|| {
        *next += 1;
        ProcessId(*next - 1)
    })
}
