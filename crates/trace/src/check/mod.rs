//! The rules of a stream: what every source must guarantee, and every consumer may assume.

mod events;
mod files;
mod space;

use crate::{Batch, Error, Event, Info, ProcessId, Run, Source};
use events::Sums;
pub(crate) use events::{Rules, ranges};
use files::Files;
use space::Space;
use std::collections::{HashMap, HashSet};
use superpage_pages::Access;

/// What a stream contained.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Runs, of data and of instructions.
    pub runs: u64,
    /// Events.
    pub events: u64,
    /// Loads and stores.
    pub references: u64,
    /// Instruction fetches.
    pub fetches: u64,
    /// Instructions of all runs together.
    pub instructions: u64,
}

/// Reads `source` to its end and checks every rule; returns counts of what it contained.
///
/// The rules are those of [`Run`] and [`Event`]:
/// - a [`Event::Switch`] comes before anything but notes, marks and idle time, and a process that
///   has exited does nothing more;
/// - every range ends within [`PAGES_LIMIT`](crate::PAGES_LIMIT), and what is mapped or moved is
///   not empty;
/// - a batch is not empty, and the positions of its events ascend and lie within it;
/// - every run has at least one reference, and its page is mapped with the right that it needs;
/// - while a stream (data, instructions) stays on a page, with no event but notes between, there is
///   one run of each kind, and one more of reads after the run of writes, unless the first has a
///   count too large to merge the second; at the end of a batch a run may be cut in two;
/// - a system call occurs only where [`Info::calls`] says so, its path is a name and its buffer
///   ends below 2^64;
/// - instruction fetches occur only where [`Info::fetches`] says so, and data runs of a process
///   that fetches carry no instructions;
/// - a [`Event::Grow`] names a mapping that grows up, and a forked process is new;
/// - a process closes, reads and writes only files that it has open, reads end within the file, no
///   file is written out that was never opened or mapped, none is removed while it is open, and no
///   more is unwired than was wired.
///
/// # Errors
/// The source's own, and [`Error::Input`] with the place and the rule that was broken. The cost is
/// about 20 ns per run.
pub fn check_stream(source: &mut dyn Source) -> Result<Counts, Error> {
    let mut checker = Checker::new(source.info());
    let mut batch = Batch::default();
    while source.fill(&mut batch)? {
        checker.batch(&batch)?;
    }
    Ok(checker.counts)
}

/// The state that [`check_stream`] keeps between batches.
struct Checker {
    workload: String,
    fetches: bool,
    calls: bool,
    counts: Counts,
    spaces: HashMap<ProcessId, Space>,
    exited: HashSet<ProcessId>,
    files: Files,
    sums: Sums,
    fetched: HashSet<ProcessId>,
    current: Option<ProcessId>,
    /// For each kind, the run that the next one could continue.
    last: [Option<Run>; 3],
}

impl Checker {
    fn new(info: &Info) -> Checker {
        Checker {
            workload: info.workload.clone(),
            fetches: info.fetches,
            calls: info.calls,
            counts: Counts::default(),
            spaces: HashMap::new(),
            exited: HashSet::new(),
            files: Files::default(),
            sums: Sums::default(),
            fetched: HashSet::new(),
            current: None,
            last: [None; 3],
        }
    }

    fn broken(&self, rule: impl std::fmt::Display) -> Error {
        let Counts { runs, events, .. } = self.counts;
        Error::input(format!("{}: after {runs} runs and {events} events", self.workload), rule.to_string())
    }

    fn batch(&mut self, batch: &Batch) -> Result<(), Error> {
        if batch.runs.is_empty() && batch.events.is_empty() {
            return Err(self.broken("an empty batch, expected runs or events"));
        }
        self.last = [None; 3];
        let mut at = 0;
        for (place, event) in &batch.events {
            let place = *place as usize;
            if place < at || place > batch.runs.len() {
                return Err(self.broken(format!("the event {event:?} stands at {place}, expected {at} or later")));
            }
            self.runs(&batch.runs[at..place])?;
            at = place;
            self.event(event)?;
            self.counts.events += 1;
        }
        self.runs(&batch.runs[at..])
    }

    fn runs(&mut self, runs: &[Run]) -> Result<(), Error> {
        if runs.is_empty() {
            return Ok(());
        }
        let process = self.current.ok_or_else(|| self.broken("a run of no process, expected a switch before it"))?;
        for run in runs {
            self.run(process, *run)?;
            self.counts.runs += 1;
        }
        Ok(())
    }

    fn run(&mut self, process: ProcessId, run: Run) -> Result<(), Error> {
        let fetch = run.access() == Access::Execute;
        if run.references == 0 {
            return Err(self.broken(format!("the run {run:?} has no reference, expected at least one")));
        }
        for left in &mut self.last[if fetch { 2..3 } else { 0..2 }] {
            left.take_if(|last| last.line() != run.line());
        }
        if let Some(last) = self.last[run.access() as usize] {
            let full = last.references.checked_add(run.references).is_none()
                || last.instructions.checked_add(run.instructions).is_none();
            if !full {
                return Err(self.broken(format!("the run {run:?} belongs to one before it, {last:?}")));
            }
        }
        self.last[run.access() as usize] = Some(run);
        if run.access() == Access::Write {
            self.last[Access::Read as usize] = None;
        }
        let space = self.spaces.get_mut(&process).expect("a process that was switched to");
        match space.protection(run.page()) {
            Some(protection) if protection.allows(run.access()) => {}
            Some(protection) => return Err(self.broken(format!("the run {run:?} on a page mapped {protection}"))),
            None => return Err(self.broken(format!("the run {run:?} on a page that is not mapped"))),
        }
        self.counts.instructions += u64::from(run.instructions);
        if fetch {
            if !self.fetches {
                return Err(self.broken(format!("the run {run:?} in a stream said to hold no instruction fetches")));
            }
            self.counts.fetches += u64::from(run.references);
            self.fetched.insert(process);
        } else {
            if run.instructions != 0 && self.fetches && self.fetched.contains(&process) {
                return Err(self.broken(format!("the run {run:?} counts instructions that fetches count already")));
            }
            self.counts.references += u64::from(run.references);
        }
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Result<(), Error> {
        if matches!(event, Event::Note(_)) {
            return Ok(());
        }
        let rule = events::ranges(event).and_then(|()| self.sums.event(event));
        rule.map_err(|rule| self.broken(rule))?;
        self.last = [None; 3];
        if let Event::Switch { process, .. } = event {
            if self.exited.contains(process) {
                return Err(self.broken(format!("a switch to {process:?}, which has exited")));
            }
            self.spaces.entry(*process).or_default();
            self.current = Some(*process);
            return Ok(());
        }
        if matches!(event, Event::Mark(_) | Event::Idle { .. } | Event::Migrate { .. }) {
            return Ok(());
        }
        let process = self.current.ok_or_else(|| self.broken(format!("{event:?}, expected a switch before it")))?;
        self.files.event(process, event).map_err(|rule| self.broken(rule))?;
        let space = self.spaces.get_mut(&process).expect("a process that was switched to");
        match event {
            Event::Map { start, pages, protection, growth, .. } => space.map(*start, *pages, *protection, *growth),
            Event::Unmap { start, pages } => space.unmap(*start, *pages),
            Event::Protect { start, pages, protection } => space.protect(*start, *pages, *protection),
            Event::Grow { start, pages } => {
                if !space.grow(*start, *pages) {
                    return Err(self.broken(format!("{event:?} names no mapping that grows up")));
                }
            }
            Event::Remap { from, from_pages, to, to_pages } => space.remap(*from, *from_pages, *to, *to_pages),
            Event::Fork { child } => {
                let copy = space.clone();
                if self.exited.contains(child) || self.spaces.insert(*child, copy).is_some() {
                    return Err(self.broken(format!("{event:?}, expected a process that is new")));
                }
                if self.fetched.contains(&process) {
                    self.fetched.insert(*child);
                }
            }
            Event::Exec => *space = Space::default(),
            Event::Exit => {
                self.spaces.remove(&process);
                self.exited.insert(process);
                self.current = None;
            }
            Event::Call { .. } if !self.calls => {
                return Err(self.broken(format!("{event:?} in a stream said to hold no system calls")));
            }
            // These do not change what is mapped.
            Event::Advise { .. } | Event::Call { .. } | Event::Migrate { .. } => {}
            Event::Discard { .. } | Event::Skipped { .. } | Event::Note(_) | Event::Switch { .. } => {}
            Event::Open { .. } | Event::Close { .. } | Event::Read { .. } | Event::Write { .. } => {}
            Event::Sync { .. } | Event::Remove { .. } | Event::Wire { .. } | Event::Unwire { .. } => {}
            Event::Idle { .. } | Event::Mark(_) | Event::Rewrite { .. } | Event::Phase { .. } => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Backing, Growth};
    use superpage_pages::Protection;

    /// A stream of one batch for each list of runs, with events before them.
    struct Given {
        info: Info,
        batches: std::vec::IntoIter<(Vec<Event>, Vec<Run>)>,
    }

    impl Source for Given {
        fn info(&self) -> &Info {
            &self.info
        }

        fn fill(&mut self, batch: &mut Batch) -> Result<bool, Error> {
            batch.clear();
            let Some((events, runs)) = self.batches.next() else { return Ok(false) };
            batch.events = events.into_iter().map(|event| (0, event)).collect();
            batch.runs = runs;
            Ok(true)
        }
    }

    fn check(fetches: bool, batches: Vec<(Vec<Event>, Vec<Run>)>) -> Result<Counts, String> {
        let calls = fetches;
        let info = Info { workload: "given".into(), fetches, calls, ..Info::default() };
        let mut source = Given { info, batches: batches.into_iter() };
        check_stream(&mut source).map_err(|error| error.to_string())
    }

    fn switch(process: u32) -> Event {
        Event::Switch { process: ProcessId(process), thread: 0 }
    }

    fn map(start: u64, pages: u64, protection: Protection, growth: Growth) -> Event {
        Event::Map { start, pages, protection, shared: false, backing: Backing::Anonymous, growth }
    }

    fn begin() -> Vec<Event> {
        vec![switch(0), map(10, 10, Protection::READ_WRITE, Growth::Up), map(30, 1, Protection::ALL, Growth::Fixed)]
    }

    fn open() -> Event {
        Event::Open { file: 1, file_pages: 10 }
    }

    const READ: Access = Access::Read;
    const WRITE: Access = Access::Write;
    const EXECUTE: Access = Access::Execute;

    #[test]
    fn a_stream_by_the_rules_is_counted() {
        let runs = vec![
            Run::new(30, EXECUTE, 9, 9),
            Run::new(10, READ, 1, 0),
            Run::new(10, WRITE, 5, 0),
            Run::new(10, READ, 1, 0),
            Run::new(30, WRITE, 1, 0),
            Run::new(30, READ, u32::MAX, 0),
            Run::new(30, READ, 2, 0),
        ];
        let call = Event::Call { path: "pipe-read".into(), at: 10 << 12, bytes: 1 };
        let events = vec![call, Event::Grow { start: 10, pages: 12 }, Event::Fork { child: ProcessId(1) }];
        let more = vec![Run::new(21, WRITE, 1, 0)];
        let child = vec![switch(1), Event::Unmap { start: 11, pages: 2 }];
        let last = vec![Run::new(10, READ, 1, 0), Run::new(13, WRITE, 1, 0)];
        let counts = check(true, vec![(begin(), runs), (events, more), (child, last), (vec![Event::Exit], vec![])]);
        let references = 1 + 5 + 1 + 1 + u64::from(u32::MAX) + 2 + 3;
        assert_eq!(counts, Ok(Counts { runs: 10, events: 9, references, fetches: 9, instructions: 9 }));
    }

    #[test]
    fn a_broken_rule_is_named() {
        let run = |page, access, references| vec![Run::new(page, access, references, 0)];
        let with = |event: Event| [begin(), vec![event]].concat();
        let unmapped = "not mapped";
        for (says, events, runs) in [
            ("expected a switch", vec![], run(10, READ, 1)),
            ("expected a switch", vec![Event::Exit], vec![]),
            ("no reference", begin(), run(10, READ, 0)),
            ("belongs to", begin(), run(10, READ, 1).repeat(2)),
            ("belongs to", begin(), [run(10, WRITE, 1), run(10, READ, 1), run(10, WRITE, 1)].concat()),
            (unmapped, begin(), run(20, READ, 1)),
            (unmapped, with(Event::Unmap { start: 0, pages: 100 }), run(10, READ, 1)),
            (unmapped, with(Event::Unmap { start: 15, pages: 1 }), run(15, READ, 1)),
            (unmapped, with(Event::Grow { start: 10, pages: 3 }), run(13, READ, 1)),
            (unmapped, with(Event::Remap { from: 10, from_pages: 10, to: 50, to_pages: 10 }), run(10, READ, 1)),
            (unmapped, with(Event::Exec), run(10, READ, 1)),
            (
                "mapped r--",
                with(Event::Protect { start: 0, pages: 12, protection: Protection::READ }),
                run(11, WRITE, 1),
            ),
            ("no system calls", with(Event::Call { path: "null".into(), at: 0, bytes: 0 }), vec![]),
            ("no instruction fetches", begin(), run(30, EXECUTE, 1)),
            ("grows up", with(Event::Grow { start: 30, pages: 2 }), vec![]),
            ("a process that is new", with(Event::Fork { child: ProcessId(0) }), vec![]),
            ("has exited", [with(Event::Exit), vec![switch(0)]].concat(), vec![]),
            ("an empty batch", vec![], vec![]),
            ("has open", with(Event::Close { file: 1 }), vec![]),
            ("has open", [begin(), vec![open(), Event::Close { file: 1 }, Event::Close { file: 1 }]].concat(), vec![]),
            ("has open", with(Event::Write { file: 1, start: 0, pages: 1 }), vec![]),
            ("has open", [begin(), vec![open(), switch(1), Event::Close { file: 1 }]].concat(), vec![]),
            ("past the end", [begin(), vec![open(), Event::Read { file: 1, start: 9, pages: 2 }]].concat(), vec![]),
            ("opened or mapped", with(Event::Sync { file: 1 }), vec![]),
            ("opened or mapped", with(Event::Remove { file: 1 }), vec![]),
            ("nobody has open", [begin(), vec![open(), switch(1), Event::Remove { file: 1 }]].concat(), vec![]),
            ("the 3 pages", [begin(), vec![Event::Wire { pages: 3 }, Event::Unwire { pages: 4 }]].concat(), vec![]),
            ("up to page 2^52", with(Event::Rewrite { start: u64::MAX, pages: 1 }), vec![]),
            ("at least one page", with(map(0, 0, Protection::READ, Growth::Fixed)), vec![]),
            ("of idle time", vec![Event::Idle { microseconds: 1 << 50 }, Event::Idle { microseconds: 1 }], vec![]),
            ("left out", with(Event::Skipped { references: u64::MAX, instructions: 5 }), vec![]),
        ] {
            let found = check(false, vec![(events, runs)]).unwrap_err();
            assert!(found.contains(says), "{found}, expected {says}");
        }
        let counted_twice = vec![Run::new(30, EXECUTE, 1, 1), Run::new(10, READ, 1, 1)];
        assert!(check(true, vec![(begin(), counted_twice)]).unwrap_err().contains("fetches count already"));
    }

    #[test]
    fn files_are_open_as_often_as_they_were_opened() {
        let (close, read) = (Event::Close { file: 1 }, |start, pages| Event::Read { file: 1, start, pages });
        let write = Event::Write { file: 1, start: 10, pages: 5 };
        let first = [begin(), vec![open(), open(), read(0, 10), write, read(8, 7), close.clone()]].concat();
        let forked =
            vec![Event::Fork { child: ProcessId(1) }, Event::Exec, close.clone(), switch(1), close, Event::Exit];
        let last =
            vec![switch(0), Event::Sync { file: 1 }, Event::Remove { file: 1 }, open(), read(0, 10), Event::Exit];
        let between = vec![Event::Mark("the rest".into()), Event::Idle { microseconds: 5 }];
        let wired = vec![switch(2), Event::Wire { pages: 3 }, Event::Unwire { pages: 1 }, Event::Unwire { pages: 2 }];
        let batches = [first, forked, last, between, wired].map(|events| (events, vec![]));
        assert_eq!(check(false, batches.into()).map(|counts| counts.events), Ok(8 + 6 + 6 + 2 + 4 + 1));
    }

    #[test]
    fn a_mapping_keeps_its_rights_where_it_moves() {
        let moved = Event::Remap { from: 10, from_pages: 10, to: 50, to_pages: 12 };
        let runs = vec![Run::new(50, WRITE, 1, 0), Run::new(61, WRITE, 1, 0)];
        assert!(check(false, vec![([begin(), vec![moved]].concat(), runs)]).is_ok());
    }
}
