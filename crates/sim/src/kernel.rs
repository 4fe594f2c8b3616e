//! The kernel of a simulation: how it handles traps, events of the stream, and a lack of memory.

use crate::BackgroundOn;
use crate::cost::Effort;
use crate::hardware::Hardware;
use crate::host::Host;
use crate::simulation::{Hold, Problem, Simulation};
use crate::stream::{Asked, inward, outward};
use std::sync::atomic::{AtomicBool, Ordering};
use superpage_pages::{Access, Counts, PageRange, Protection, Vpn};
use superpage_trace::{Event, ProcessId};
use superpage_vm::{Backing, FaultError, Growth, Hash, Map};

impl Simulation {
    /// Handles a trap until the access succeeds, as a processor would retry it.
    pub(crate) fn trap(&mut self, asked: Asked<'_>) -> Result<(), Problem> {
        let request = asked.requests[0];
        let (page, access) = (request.page(), request.access());
        asked.place.into_iter().for_each(|place| self.reach(place));
        self.fault_footprint();
        self.begin_fault();
        self.wait_for_background();
        // A fault maps the page. A mapping may first have to be made or its rights widened: it
        // takes at most four steps.
        let mut steps = 0;
        while steps < 4 {
            steps += 1;
            let (hardware, address) =
                (&mut Hardware::new(&mut self.mmu, &self.setup.machine.pages.sizes), self.processes.space.page(page));
            match self.vm.fault(hardware, &mut self.disk, address, access) {
                Ok(fault) => {
                    if self.footprint.is_some() {
                        self.filled(fault.frame.0, fault.source.map(|source| source.0), fault.zeroed);
                        self.wait_for_disk();
                    }
                    self.back_guest()?;
                    self.end_fault(&fault);
                    if asked.retry(&mut self.mmu).is_ok() {
                        self.note_writes(&[request]);
                        self.daemon();
                        return Ok(());
                    }
                }
                Err(FaultError::Unmapped(_)) => {
                    self.counted.unmapped_accesses += 1;
                    let map = Map::anonymous(page, 1).protection(rights(access));
                    self.vm
                        .map(
                            &mut Hardware::new(&mut self.mmu, &self.setup.machine.pages.sizes),
                            self.processes.space,
                            map,
                        )
                        .map_err(Problem::run)?;
                }
                Err(FaultError::Protection(..)) => {
                    self.counted.widened_rights += 1;
                    let held = self
                        .mmu
                        .lookup(self.processes.space.0, page)
                        .map_or(Protection::NONE, |mapped| mapped.protection);
                    // A page of the static pool has one right.
                    let range = self.vm.pool_page(self.processes.space, page).unwrap_or(page.pages(1));
                    let mut hardware = Hardware::new(&mut self.mmu, &self.setup.machine.pages.sizes);
                    self.vm
                        .protect(&mut hardware, self.processes.space, range, held | rights(access))
                        .map_err(Problem::run)?;
                }
                Err(FaultError::OutOfMemory(_)) if self.run_daemon() => steps -= 1,
                Err(FaultError::OutOfMemory(at)) => return Err(self.out_of_memory(at)),
                Err(error @ FaultError::NoPoolPage(_)) => return Err(Problem::Process(error.to_string())),
                Err(error) => return Err(Problem::Run(error.to_string())),
            }
        }
        Err(Problem::Run(format!("page {:#x} traps again and again: this is a bug in superpage", page.0)))
    }

    /// Runs the page daemon if it has work: it is a thread of its own, which nobody waits for.
    #[inline]
    pub(crate) fn daemon(&mut self) {
        if self.vm.daemon_wanted() {
            let (_, work) = self.daemon_work();
            self.work.beside.add(&work);
        }
    }

    /// Runs the page daemon for a request that waits for a frame; returns whether that freed a
    /// page.
    pub(crate) fn run_daemon(&mut self) -> bool {
        self.daemon_work().0
    }

    fn daemon_work(&mut self) -> (bool, Effort) {
        self.note_peak();
        let before = self.effort();
        let room =
            self.vm.run_daemon(&mut Hardware::new(&mut self.mmu, &self.setup.machine.pages.sizes), &mut self.disk);
        let work = self.effort().since(&before);
        self.work.daemon.add(&work);
        (room, work)
    }

    /// The modelled time so far in cycles, idle time included.
    pub(crate) fn clock(&self) -> u64 {
        let (member, hertz) = (self.only(), self.setup.machine.clock.hertz);
        let idle = u128::from(self.counted.idle_microseconds) * u128::from(hertz) / 1_000_000;
        self.cycles(member, &self.whole(member, &member.translated(&self.mmu))) + idle as u64
    }

    /// A fault or a change of mappings waits while a background on another core promotes or demotes
    /// a region: of whichever process, since who holds what is not modelled.
    #[inline]
    fn wait_for_background(&mut self) {
        let Some(Hold { from, until, each }) = self.work.hold else { return };
        let now = self.clock();
        if now >= until {
            self.work.hold = None;
        } else if now >= from {
            self.work.waited += each - (now - from) % each;
        }
    }

    /// Calls the policy's background if it is due. The clock is the machine's modelled time.
    #[inline]
    pub(crate) fn background(&mut self) {
        if self.vm.has_background() {
            self.run_background();
        }
        if self.host.as_ref().is_some_and(Host::has_background) {
            self.run_host_background();
        }
    }

    /// Modelled time on the policy's clock.
    fn policy_time(&self) -> u64 {
        self.setup.time_scale.nanoseconds(self.seconds(self.only()))
    }

    /// Calls of the policy's background while programs had memory, if it is ever called.
    pub(crate) fn background_runs(&self) -> Option<u64> {
        let runs = self.work.background_runs;
        (runs > 0 || self.vm.due().is_some()).then_some(runs)
    }

    /// Whether a policy has a clock: then the kernel does other things at other times.
    pub(crate) fn goes_by_time(&self) -> bool {
        self.vm.has_background() || self.host.as_ref().is_some_and(Host::has_background)
    }

    /// The same of the host's policy.
    fn run_host_background(&mut self) {
        let (now, scale) = (self.policy_time(), self.setup.time_scale);
        if let Some(host) = &mut self.host {
            host.advance(&mut self.mmu, &self.setup.machine, (self.setup.background, scale), now);
        }
    }

    /// The host maps what the guest has touched, if it has a policy of its own.
    #[inline]
    pub(crate) fn back_guest(&mut self) -> Result<(), Problem> {
        match &mut self.host {
            Some(host) => host.back(&mut self.mmu),
            None => Ok(()),
        }
    }

    fn run_background(&mut self) {
        // An estimate of a sampled stream may go back; time does not.
        let (now, scale) = (self.policy_time(), self.setup.time_scale);
        if now < self.work.background_free || self.vm.due().is_none_or(|due| now < due) {
            return;
        }
        self.work.background_free = now;
        self.work.background_runs += u64::from(self.vm.stats().resident_pages > 0);
        self.note_peak();
        let before = self.effort();
        let hertz = self.setup.machine.clock.hertz as f64;
        let spent = scale.nanoseconds(self.only().kernel(&self.work.background).total() as f64 / hertz);
        self.vm.advance(
            &mut Hardware::gathering(&mut self.mmu, &self.setup.machine.pages.sizes),
            &mut self.disk,
            now,
            spent,
        );
        let work = self.effort().since(&before);
        self.work.background.add(&work);
        self.work.daemon.add(&work);
        self.work.beside.add(&work);
        if self.setup.background == BackgroundOn::Core {
            let (cost, holds) = (self.only().kernel(&work), work.holds());
            self.work.background_free += scale.nanoseconds(cost.total() as f64 / hertz);
            if let Some(each @ 1..) = cost.locked().checked_div(holds) {
                // It looks first.
                let until = self.clock() + cost.total();
                self.work.hold = Some(Hold { from: until - holds * each, until, each });
            }
        }
        if let Some(problem) = self.vm.background_failed() {
            self.outcome.failed.get_or_insert(format!("policy {}: {problem}", self.setup.name));
        }
    }

    /// The message for a process that runs out of memory: whether memory, or also swap space, is
    /// full.
    pub(crate) fn out_of_memory(&self, at: Vpn) -> Problem {
        let (used, swap) = (self.vm.stats().swap_used_pages, self.setup.swap_pages);
        let size = |pages: u64| superpage_report::bytes(pages << self.setup.ladder.base().shift());
        let memory = size(self.setup.frames);
        Problem::Process(match used >= swap {
            true if swap > 0 => format!(
                "page {:#x} finds the memory of {memory} and the swap space of {} full; give more with --memory or --swap",
                at.0,
                size(swap)
            ),
            _ => FaultError::OutOfMemory(at).to_string(),
        })
    }

    /// Handles a failure: a process that cannot continue is killed and the run continues; otherwise
    /// the run ends.
    pub(crate) fn give_up(&mut self, problem: Problem) {
        match (problem, self.processes.current) {
            (Problem::Process(reason), Some(process)) => {
                self.outcome.reasons.push(format!("process {} was ended: {reason}", process.0));
                self.outcome.failed = self.exit().err().map(|error| error.to_string());
                self.processes.ended.insert(process);
                // The rest of the stream that concerns it is left out.
                (self.processes.current, self.processes.dead) = (Some(process), true);
            }
            (Problem::Process(reason) | Problem::Run(reason), _) => self.outcome.failed = Some(reason),
        }
    }

    /// Ends the current process.
    fn exit(&mut self) -> Result<(), superpage_vm::Error> {
        self.note_peak();
        self.mmu.drop_blocks(self.processes.space.0, 0..u64::MAX);
        self.vm.exit(&mut Hardware::new(&mut self.mmu, &self.setup.machine.pages.sizes), self.processes.space)?;
        if let Some(process) = self.processes.current.take() {
            self.close_all(process)?;
            self.disk.end(process);
            self.processes.spaces.remove(&process);
        }
        Ok(())
    }

    /// Handles an event: anything in the stream but accesses.
    pub(crate) fn event(&mut self, event: &Event, stop: &AtomicBool) -> Result<(), Problem> {
        if self.footprint.is_some() {
            self.wait_for_disk();
            self.event_footprint(event)?;
        }
        match *event {
            Event::Switch { process, .. } => self.switch(process),
            Event::Exit if self.processes.dead => (self.processes.dead, self.processes.current) = (false, None),
            // The children of a process that was killed do not exist either.
            Event::Fork { child } if self.processes.dead => drop(self.processes.ended.insert(child)),
            Event::Mark(ref name) => self.mark(name),
            Event::Idle { microseconds } => self.idle(microseconds, stop),
            Event::Note(_) | Event::Phase { .. } => {}
            Event::Call { .. } => {}
            _ if self.processes.dead => {}
            Event::Skipped { references, instructions } => {
                self.counted.skipped[0] += references;
                self.counted.skipped[1] += instructions;
            }
            Event::Exit => self.exit().map_err(Problem::run)?,
            Event::Rewrite { start, pages } => {
                let PageRange { start: first, pages: count } = inward(self.shift, start, pages);
                self.disk.rewrite(self.processes.current, first, count);
            }
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
                self.note_peak();
                self.file_event(event)?;
            }
        }
        self.daemon();
        Ok(())
    }

    /// The idle loop, which may compute digests; the background is called, and states are kept,
    /// when that is due. `stop` ends it and the run early.
    fn idle(&mut self, microseconds: u64, stop: &AtomicBool) {
        let mut left = microseconds;
        while self.outcome.failed.is_none() {
            let due = self.vm.due().map(|due| due.max(self.work.background_free));
            let until = due.into_iter().chain(self.host.as_ref().and_then(Host::due)).min();
            let wait = until.map(|until| self.setup.time_scale.seconds(until.saturating_sub(self.policy_time())));
            let Some(wait) = wait.into_iter().chain(self.until_sample()).reduce(f64::min) else { break };
            let wait = ((wait * 1e6).ceil() as u64).max(1);
            if wait > left {
                break;
            }
            self.counted.idle_microseconds += wait;
            left -= wait;
            self.run_due();
            if stop.load(Ordering::Relaxed) {
                self.outcome.stopped = true;
                return;
            }
        }
        self.counted.idle_microseconds += left;
        if self.setup.policy.answers.reclaim.hash != Hash::Idle {
            return;
        }
        let cycles = u128::from(microseconds) * u128::from(self.setup.machine.clock.hertz) / 1_000_000;
        let pages = cycles / u128::from(self.only().digest_cycles().max(1));
        self.counted.idle_hashed +=
            self.vm.idle(&Hardware::new(&mut self.mmu, &self.setup.machine.pages.sizes), &mut self.disk, pages as u64);
    }

    fn switch(&mut self, process: ProcessId) {
        self.processes.current = Some(process);
        self.processes.dead = self.processes.ended.contains(&process);
        if self.processes.dead {
            return;
        }
        self.processes.space = match self.processes.spaces.get(&process) {
            Some(space) => *space,
            None => {
                let space = self.vm.create_space();
                self.processes.spaces.insert(process, space);
                self.mmu.set_process(space.0, process.0);
                space
            }
        };
        self.mmu.switch(self.processes.space.0);
    }

    /// Handles an event that concerns the current process's address space, as far as a static pool
    /// lets it.
    fn change_memory(&mut self, event: &Event) -> Result<(), Problem> {
        match self.memory_event(event) {
            Err(superpage_vm::Error::PoolPage(_)) => {
                self.counted.pool_refusals += 1;
                match *event {
                    Event::Remap { from, from_pages, to, to_pages } => {
                        self.copy_remapped((from, from_pages), (to, to_pages))
                    }
                    _ => Ok(()),
                }
            }
            Err(error @ superpage_vm::Error::PoolShort { .. }) => Err(Problem::Process(error.to_string())),
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
                backing: superpage_trace::Backing::Anonymous,
                growth: superpage_trace::Growth::Fixed,
            })?;
        }
        if in_place { Ok(()) } else { self.change_memory(&Event::Unmap { start: from.0, pages: from.1 }) }
    }

    /// The same, as the manager does it.
    fn memory_event(&mut self, event: &Event) -> Result<(), superpage_vm::Error> {
        self.note_peak();
        self.wait_for_background();
        let (hardware, shift) = (&mut Hardware::new(&mut self.mmu, &self.setup.machine.pages.sizes), self.shift);
        match *event {
            Event::Map { start, pages, protection, shared, backing, growth } => {
                let PageRange { start, pages } = outward(shift, start, pages);
                let backing = match backing {
                    superpage_trace::Backing::Anonymous => Backing::Anonymous,
                    superpage_trace::Backing::File { file, file_pages, offset } => {
                        self.held.reach(&mut self.disk, file, file_pages, shift);
                        // A program may map an empty file, and find it longer when it touches it.
                        let (offset, end) = (offset >> shift, file_pages.div_ceil(1 << shift).max(1));
                        Backing::File { file, pages: end, offset }
                    }
                };
                let growth = match growth {
                    superpage_trace::Growth::Fixed => Growth::Fixed,
                    superpage_trace::Growth::Up => Growth::Up,
                    superpage_trace::Growth::Down => Growth::Down,
                };
                let map = Map::anonymous(start, pages).protection(protection).shared(shared);
                let map = map.backing(backing).growth(growth);
                self.vm.map(hardware, self.processes.space, map)
            }
            Event::Unmap { start, pages } => match inward(shift, start, pages) {
                PageRange { pages: 0, .. } => Ok(()),
                range => self.vm.unmap(hardware, self.processes.space, range),
            },
            Event::Protect { start, pages, protection } => match inward(shift, start, pages) {
                PageRange { pages: 0, .. } => Ok(()),
                range => self.vm.protect(hardware, self.processes.space, range, protection),
            },
            Event::Discard { start, pages } => match inward(shift, start, pages) {
                PageRange { pages: 0, .. } => Ok(()),
                range => self.vm.discard(hardware, self.processes.space, range),
            },
            Event::Advise { start, pages, hint } => match inward(shift, start, pages) {
                PageRange { pages: 0, .. } => Ok(()),
                range => self.vm.advise(hardware, self.processes.space, range, hint),
            },
            Event::Grow { start, pages } => {
                let PageRange { start, pages } = outward(shift, start, pages);
                self.vm.grow(hardware, self.processes.space, start, pages)
            }
            Event::Remap { from, from_pages, to, to_pages } => {
                let (from, to) = (outward(shift, from, from_pages), outward(shift, to, to_pages));
                match self.vm.remap(hardware, self.processes.space, from, to) {
                    // Pages that the stream distinguishes and this machine does not; if they are
                    // touched they are mapped then.
                    Err(superpage_vm::Error::Overlap(_) | superpage_vm::Error::Unmapped(_)) => Ok(()),
                    other => other,
                }
            }
            Event::Fork { child } => {
                let space = self.vm.fork(hardware, self.processes.space)?;
                self.processes.spaces.insert(child, space);
                self.mmu.set_process(space.0, child.0);
                self.processes.current.map_or(Ok(()), |parent| self.inherit(parent, child))
            }
            Event::Exec => self.vm.exec(hardware, self.processes.space),
            _ => unreachable!("{event:?} is none of address spaces"),
        }
    }
}

/// The least rights with which `access` is allowed.
fn rights(access: Access) -> Protection {
    match access {
        Access::Read => Protection::READ,
        Access::Write => Protection::READ_WRITE,
        Access::Execute => Protection::READ_EXECUTE,
    }
}
