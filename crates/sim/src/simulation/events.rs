//! What a simulation does at events of the stream.

use super::Simulation;
use crate::error::Problem;
use crate::kernel_model::{Copied, touch};
use crate::stream::Asked;
use std::sync::atomic::{AtomicBool, Ordering};
use superpage_pages::Protection;
use superpage_trace::{Backing, Event, Growth};
use superpage_vm::{Error, Hash};

impl Simulation {
    /// Handles a failure: a process that cannot continue is killed and the run continues; otherwise
    /// the run ends.
    pub(super) fn give_up(&mut self, problem: Problem) {
        match (problem, self.kernel.processes.current) {
            (Problem::Process(reason), Some(process)) => {
                self.noted.outcome.reasons.push(format!("process {} was ended: {reason}", process.0));
                self.noted.outcome.failed = self.kernel.exit(&mut self.hardware).err().map(|error| error.to_string());
                let processes = &mut self.kernel.processes;
                processes.ended.insert(process);
                // The rest of the stream that concerns it is left out.
                (processes.current, processes.dead) = (Some(process), true);
            }
            (Problem::Process(reason) | Problem::Run(reason), _) => self.noted.outcome.failed = Some(reason),
        }
    }

    /// Handles an event: anything in the stream but accesses.
    pub(super) fn event(&mut self, event: &Event, stop: &AtomicBool) -> Result<(), Problem> {
        self.kernel.wait_for_disk(&mut self.hardware);
        if !self.kernel.processes.dead {
            let (model, instructions) = (self.kernel.model(&mut self.hardware), self.clock.counted.instructions);
            let copied = model.and_then(|(model, mut at)| model.event(event, &mut at, instructions));
            copied.map_or(Ok(()), |copied| self.copy(copied))?;
        }
        let (hardware, kernel) = (&mut self.hardware, &mut self.kernel);
        match *event {
            Event::Switch { process, thread } => {
                self.clock
                    .counted
                    .cores
                    .switch(thread)
                    .into_iter()
                    .for_each(|(core, sibling)| hardware.go_to(core, sibling));
                kernel.switch(hardware, process);
            }
            Event::Migrate { thread, to } => self.clock.counted.cores.migrate(thread, to),
            Event::Exit if kernel.processes.dead => {
                (kernel.processes.dead, kernel.processes.current) = (false, None);
            }
            // The children of a process that was killed do not exist either.
            Event::Fork { child } if kernel.processes.dead => _ = kernel.processes.ended.insert(child),
            Event::Mark(ref name) => self.mark(name),
            Event::Idle { microseconds } => self.idle(microseconds, stop),
            Event::Note(_) | Event::Phase { .. } | Event::Call { .. } => {}
            _ if kernel.processes.dead => {}
            Event::Skipped { references, instructions } => {
                self.clock.counted.skipped[0] += references;
                self.clock.counted.skipped[1] += instructions;
                self.clock.counted.cores.skip(references, instructions);
            }
            Event::Exit => kernel.exit(hardware).map_err(Problem::run)?,
            Event::Rewrite { start, pages } => kernel.rewrite(start, pages),
            Event::Map { .. }
            | Event::Unmap { .. }
            | Event::Protect { .. }
            | Event::Discard { .. }
            | Event::Advise { .. }
            | Event::Grow { .. }
            | Event::Remap { .. }
            | Event::Fork { .. }
            | Event::Exec => self.change_memory(event)?,
            Event::Open { .. }
            | Event::Close { .. }
            | Event::Read { .. }
            | Event::Write { .. }
            | Event::Sync { .. }
            | Event::Remove { .. }
            | Event::Wire { .. }
            | Event::Unwire { .. } => {
                kernel.note_peak();
                kernel.file_event(hardware, event)?;
            }
        }
        self.kernel.daemon(&mut self.hardware);
        Ok(())
    }

    /// The kernel copies from or to the program's buffer.
    fn copy(&mut self, copied: Copied) -> Result<(), Problem> {
        let to_program = copied.to_program;
        for (own, request, line) in copied.lines() {
            if to_program {
                touch(&mut self.hardware.mmu, &[own]);
            }
            self.requests(Asked::of(&[request], &[line]), &|| false).map_err(|(_, problem)| problem)?;
            if !to_program {
                touch(&mut self.hardware.mmu, &[own]);
            }
        }
        Ok(())
    }

    /// The idle loop, which may compute digests; the background is called, and states are kept,
    /// when that is due. `stop` ends it and the run early.
    fn idle(&mut self, microseconds: u64, stop: &AtomicBool) {
        let mut left = microseconds;
        while self.noted.outcome.failed.is_none() {
            let scale = self.hardware.setup().time_scale;
            let wait = self.background_due().map(|due| scale.seconds(due.saturating_sub(self.policy_time())));
            let Some(wait) = wait.into_iter().chain(self.until_sample()).reduce(f64::min) else { break };
            let wait = ((wait * 1e6).ceil() as u64).max(1);
            if wait > left {
                break;
            }
            self.clock.counted.idle_microseconds += wait;
            left -= wait;
            self.run_due();
            if stop.load(Ordering::Relaxed) {
                self.noted.outcome.stopped = true;
                return;
            }
        }
        self.clock.counted.idle_microseconds += left;
        if self.hardware.setup().policy.answers.reclaim.hash == Hash::Idle {
            self.kernel.hash(&self.hardware, microseconds);
        }
    }

    /// Handles an event that concerns the current process's address space, as far as a static pool
    /// lets it.
    fn change_memory(&mut self, event: &Event) -> Result<(), Problem> {
        let (hardware, kernel) = (&mut self.hardware, &mut self.kernel);
        kernel.note_peak();
        kernel.wait_for_background(|kernel| self.clock.elapsed(hardware, kernel));
        match kernel.memory_event(hardware, event) {
            Err(Error::PoolPage(_)) => {
                kernel.work.pool_refusals += 1;
                match *event {
                    Event::Remap { from, from_pages, to, to_pages } => {
                        self.copy_remapped((from, from_pages), (to, to_pages))
                    }
                    _ => Ok(()),
                }
            }
            Err(error @ Error::PoolShort { .. }) => Err(Problem::Process(error.to_string())),
            done => done.map_err(Problem::run),
        }
    }

    /// What `realloc` does where a mapping of the pool cannot move or grow: the program gets a new
    /// one. Its copying is not in the stream, and is left out.
    fn copy_remapped(&mut self, from: (u64, u64), to: (u64, u64)) -> Result<(), Problem> {
        let in_place = from.0 == to.0;
        let kept = if in_place { from.1.min(to.1) } else { 0 };
        if to.1 > kept {
            self.change_memory(&Event::Map {
                start: to.0 + kept,
                pages: to.1 - kept,
                protection: Protection::READ_WRITE,
                shared: false,
                backing: Backing::Anonymous,
                growth: Growth::Fixed,
            })?;
        }
        if in_place { Ok(()) } else { self.change_memory(&Event::Unmap { start: from.0, pages: from.1 }) }
    }
}
