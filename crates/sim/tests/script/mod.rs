//! Streams for tests: written down event by event, or with marks put into another.
#![allow(dead_code, reason = "each test file uses its part")]

use std::ops::Range;
use std::sync::atomic::AtomicBool;
use superpage_pages::{Access, Protection};
use superpage_sim::{Conditions, Row, plan, run};
use superpage_trace::{Backing, Batch, Error, Event, Growth, Info, ProcessId, Run, Source};

/// A stream of one batch.
#[derive(Clone)]
pub(crate) struct Script {
    info: Info,
    batch: Batch,
    done: bool,
}

impl Script {
    pub(crate) fn new() -> Script {
        let info = Info { workload: "script".into(), ..Info::default() };
        Script { info, batch: Batch::default(), done: false }
    }

    /// Two parts: a program `large` that touches 8 MB and exits, then one `small` of 64 KB.
    pub(crate) fn large_then_small() -> Script {
        let mut script = Script::new();
        for (process, name, pages) in [(0, "large", 2048), (1, "small", 16)] {
            script.event(Event::Mark(name.into()));
            script.process(process);
            script.map(0x400 * 64, pages);
            script.touch(0x400 * 64..0x400 * 64 + pages, Access::Write);
            script.event(Event::Exit);
        }
        script
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.batch.event(event);
    }

    /// What follows is done by this process.
    pub(crate) fn process(&mut self, process: u32) {
        self.event(Event::Switch { process: ProcessId(process), thread: process });
    }

    /// Maps anonymous memory.
    pub(crate) fn map(&mut self, start: u64, pages: u64) {
        let (protection, backing, growth) = (Protection::READ_WRITE, Backing::Anonymous, Growth::Fixed);
        self.event(Event::Map { start, pages, protection, shared: false, backing, growth });
    }

    /// Maps a file whole, shared.
    pub(crate) fn map_file(&mut self, start: u64, file: u32, pages: u64) {
        let backing = Backing::File { file, file_pages: pages, offset: 0 };
        let (protection, growth) = (Protection::READ_WRITE, Growth::Fixed);
        self.event(Event::Map { start, pages, protection, shared: true, backing, growth });
    }

    /// A run.
    pub(crate) fn run(&mut self, run: Run) {
        self.batch.run(run);
    }

    /// One access to each page.
    pub(crate) fn touch(&mut self, pages: Range<u64>, access: Access) {
        pages.for_each(|page| self.batch.run(Run::new(page, access, 1, 1)));
    }
}

impl Source for Script {
    fn info(&self) -> &Info {
        &self.info
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        if std::mem::replace(&mut self.done, true) {
            return Ok(false);
        }
        batch.clone_from(&self.batch);
        Ok(true)
    }
}

/// Another stream with a mark before every so many batches.
pub(crate) struct Marked {
    inner: Box<dyn Source>,
    every: usize,
    batches: usize,
}

impl Marked {
    pub(crate) fn new(inner: Box<dyn Source>, every: usize) -> Marked {
        Marked { inner, every, batches: 0 }
    }
}

impl Source for Marked {
    fn info(&self) -> &Info {
        self.inner.info()
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        let more = self.inner.fill(batch)?;
        if more && self.batches.is_multiple_of(self.every) {
            batch.events.insert(0, (0, Event::Mark(format!("from {}", self.batches))));
        }
        self.batches += 1;
        Ok(more)
    }
}

/// Streams one after the other, each a batch of its own.
pub(crate) struct Batches(pub(crate) Vec<Script>);

impl Source for Batches {
    fn info(&self) -> &Info {
        self.0[0].info()
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        for script in &mut self.0 {
            if script.fill(batch)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The rows of a script on one machine.
pub(crate) fn run_script(script: &mut Script, machine: &str, policies: &[&str], conditions: &Conditions) -> Vec<Row> {
    script.done = false;
    let policies: Vec<String> = policies.iter().map(ToString::to_string).collect();
    let setups = plan(&[machine.into()], &policies, conditions).unwrap();
    run(&setups, script, &AtomicBool::new(false), &|_| {}).unwrap()
}
