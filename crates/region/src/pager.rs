//! The pager: the thread that resolves the faults of a region, and makes all other calls of the
//! manager.
//!
//! It alone owns the manager, the tables and the memory; other threads send it requests. At a
//! fault, the manager decides and has the page filled through the window; then the mapping is
//! entered into the kernel's tables and the waiting threads are woken.

use super::contents::Contents;
use super::memory::{BASE, BLOCK, collapse, zap};
use super::tables::{Present, Tables};
use super::uffd::{Message, Uffd};
use super::{Error, RegionStats};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use std::collections::BTreeSet;
use std::io;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;
use superpage_pages::{Access, Extent, Level, Vpn};
use superpage_vm::{FaultError, SpaceId, Vm};

/// A request to the pager.
pub(crate) enum Request {
    /// Populate base pages, by number in the region.
    Populate(usize, usize, Sender<Result<(), Error>>),
    /// Discard the contents of base pages, by number in the region.
    Discard(usize, usize, Sender<()>),
    /// Return memory that is not in use to the system.
    Trim(Sender<()>),
    /// Return the counters.
    Stats(Sender<RegionStats>),
    /// Check all structures.
    Validate(Sender<Result<(), String>>),
    /// Stop.
    Stop,
}

/// The state of the pager: the manager with its address space, page tables, memory and
/// `userfaultfd`.
pub(crate) struct Pager {
    pub(crate) vm: Vm,
    pub(crate) space: SpaceId,
    pub(crate) tables: Tables,
    pub(crate) contents: Contents,
    pub(crate) uffd: Uffd,
    /// The first page of the region.
    pub(crate) first: Vpn,
    /// The pages whose users get `SIGBUS`.
    pub(crate) refused: BTreeSet<Vpn>,
    /// The counters kept here; the others are added on request.
    pub(crate) stats: RegionStats,
}

impl Pager {
    /// Serves faults and requests until it is told to stop. `bell` is readable when there are
    /// requests.
    pub(crate) fn run(mut self, requests: &Receiver<Request>, bell: &OwnedFd) -> io::Result<()> {
        loop {
            let mut ready = [PollFd::new(&self.uffd, PollFlags::IN), PollFd::new(bell, PollFlags::IN)];
            match rustix::event::poll(&mut ready, None) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            let (fault, rung) = (!ready[0].revents().is_empty(), !ready[1].revents().is_empty());
            if rung {
                rustix::io::read(bell, &mut [0; 8])?;
                while let Ok(request) = requests.try_recv() {
                    match request {
                        Request::Stop => return Ok(()),
                        other => self.answer(other)?,
                    }
                }
            }
            if fault {
                self.serve()?;
            }
        }
    }

    /// Resolves the faults that wait, at most a batch of them.
    fn serve(&mut self) -> io::Result<()> {
        let mut messages = Vec::new();
        self.uffd.read(|message| messages.push(message))?;
        for Message { address, write } in messages {
            self.message(address, if write { Access::Write } else { Access::Read })?;
        }
        Ok(())
    }

    /// Answers a request. It is no error if nobody waits for the answer any more.
    fn answer(&mut self, request: Request) -> io::Result<()> {
        match request {
            Request::Populate(from, to, answer) => {
                let _ = answer.send(self.populate(from, to)?);
            }
            Request::Discard(from, to, answer) => {
                self.discard(from, to);
                let _ = answer.send(());
            }
            Request::Trim(answer) => {
                self.trim();
                let _ = answer.send(());
            }
            Request::Stats(answer) => {
                let _ = answer.send(self.report());
            }
            Request::Validate(answer) => {
                let valid = self.tables.validate().and_then(|()| self.contents.memory.validate(self.tables.mapped()));
                let _ = answer.send(valid.and_then(|()| self.vm.validate(&self.tables)));
            }
            Request::Stop => unreachable!("the loop takes it"),
        }
        Ok(())
    }

    fn message(&mut self, address: u64, access: Access) -> io::Result<()> {
        let at = self.tables.vpn(address);
        let begun = Instant::now();
        let apart = |pager: &Pager| pager.stats.collapse_nanoseconds + pager.contents.reservation_nanoseconds;
        let before = apart(self);
        self.stats.messages += 1;
        if let Err(error) = self.fault(at, access) {
            self.refuse(at, &error)?;
        }
        self.stats.message_nanoseconds += begun.elapsed().as_nanos() as u64 - (apart(self) - before);
        if self.vm.daemon_wanted() {
            self.run_daemon();
        }
        Ok(())
    }

    /// Resolves a fault: after success, the access can be retried.
    fn fault(&mut self, at: Vpn, access: Access) -> Result<(), Error> {
        let failed = |source| Error::System { what: "get the contents of a page of the region", source };
        loop {
            match self.vm.fault(&mut self.tables, &mut self.contents, self.space.page(at), access) {
                Ok(_) => break,
                Err(FaultError::OutOfMemory(_)) if self.run_daemon() => {}
                Err(FaultError::OutOfMemory(_)) => return Err(Error::OutOfMemory(self.tables.index(at))),
                Err(FaultError::Contents(_)) => {
                    // The system is out of memory, or the swap file fails.
                    let why = self.contents.failed.take();
                    return Err(failed(why.unwrap_or_else(|| io::Error::other("for an unknown reason"))));
                }
                Err(other) => panic!("the region is one mapping for reading and writing: {other}"),
            }
        }
        // A failure beside the page is left to the faults of those who need it.
        self.contents.failed = None;
        self.resume(at).map_err(|source| {
            self.tables.entered.clear();
            failed(source)
        })
    }

    /// Runs the manager's page daemon once; returns whether it made progress.
    fn run_daemon(&mut self) -> bool {
        let begun = Instant::now();
        let progress = self.vm.run_daemon(&mut self.tables, &mut self.contents);
        for start in std::mem::take(&mut self.tables.promoted) {
            let mapping = self.tables.mapping(start);
            // Regions in use are mapped as one page now; others when they are used.
            if let Some(mapping) = mapping.filter(|mapping| mapping.start == start && mapping.level == self.largest())
                && matches!(mapping.present, Present::Part | Present::All)
            {
                self.assemble(start);
            }
        }
        self.stats.daemon_nanoseconds += begun.elapsed().as_nanos() as u64;
        progress
    }

    fn largest(&self) -> Level {
        self.tables.ladder().largest()
    }

    /// Enters new mappings, and the mapping that holds `at`, into the kernel's tables.
    fn resume(&mut self, at: Vpn) -> io::Result<()> {
        self.tables.promoted.clear();
        let mapping = self.tables.mapping(at).expect("a resolved fault has a mapping");
        let start = self.tables.address(mapping.start).addr() as u64;
        let bytes = self.tables.ladder().size(mapping.level).bytes();
        let largest = mapping.level == self.largest();
        let page = self.tables.address(at).addr() as u64;
        let mut served = false;
        if largest {
            // The waiting threads continue at once; the rest is done while they run. This is also
            // done if everything should be mapped: the kernel removes a huge mapping of a memory
            // file when the program's own calls (mlock, mprotect, madvise) cut through it.
            let mapped = self.uffd.resume(page, BASE as u64)?;
            served = true;
            let huge = mapping.present == Present::Huge;
            if huge && mapped {
                self.tables.set_present(mapping.start, Present::Part);
            }
            if huge || self.assemble(mapping.start) {
                self.tables.entered.clear();
                return self.uffd.wake(start, bytes);
            }
        }
        let mut entered = std::mem::take(&mut self.tables.entered);
        entered.sort_unstable();
        for run in entered.chunk_by(|page, next| *page + 1 == *next) {
            let first = self.tables.address(run[0]).addr() as u64;
            // Of a page that had no memory when it was touched, and has now.
            self.forgive(run[0], run[0] + run.len() as u64);
            // What cannot be mapped at once, for example across such a cut, will fault by itself.
            let all = self.uffd.resume(first, (run.len() * BASE) as u64).is_ok();
            served |= all && run.contains(&at);
            for page in run {
                let mapping = self.tables.mapping(*page).expect("what was entered is mapped");
                self.tables.set_present(mapping.start, if all { mapping.present } else { Present::Part });
            }
        }
        entered.clear();
        self.tables.entered = entered;
        if !served {
            self.uffd.resume(page, BASE as u64)?;
        }
        let all = self.tables.mapping(at).is_some_and(|mapping| mapping.present == Present::All)
            || self.uffd.resume(start, bytes).is_ok();
        self.tables.set_present(mapping.start, if all { Present::All } else { Present::Part });
        Ok(())
    }

    /// Makes one 2 MB page of what is mapped there, in place, in the kernel's tables. Returns
    /// `false` if the kernel cannot.
    fn assemble(&mut self, start: Vpn) -> bool {
        let begun = Instant::now();
        let collapsed = collapse(self.tables.address(start), BLOCK * BASE);
        self.stats.collapses += 1;
        self.stats.collapse_nanoseconds += begun.elapsed().as_nanos() as u64;
        match collapsed {
            Ok(()) => {
                self.tables.set_present(start, Present::Huge);
                self.contents.memory.collapsed(self.tables.index(start) / BLOCK);
            }
            Err(_) => self.stats.collapses_refused += 1,
        }
        collapsed.is_ok()
    }

    /// Gives up on a page: whoever waits for it gets `SIGBUS`.
    fn refuse(&mut self, at: Vpn, error: &Error) -> io::Result<()> {
        self.stats.refused += 1;
        self.refused.insert(at);
        let refused = self.uffd.poison(self.tables.address(at).addr() as u64);
        refused.map_err(|_| io::Error::other(format!("{error}, and this kernel has no way to tell the program")))
    }

    /// Reports faults on these pages again.
    fn forgive(&mut self, from: Vpn, to: Vpn) {
        let refused: Vec<Vpn> = self.refused.range(from..to).copied().collect();
        for at in refused {
            self.refused.remove(&at);
            let cleared = zap(self.tables.address(at), BASE);
            cleared.expect("the kernel unmaps a page of the region");
        }
    }

    fn discard(&mut self, from: usize, to: usize) {
        let (start, end) = (self.first + from as u64, self.first + to as u64);
        self.vm.discard(&mut self.tables, self.space, start.pages(end - start)).expect("the range lies in the region");
        self.forgive(start, end);
    }

    /// Populates pages, and resolves the faults of others in between. The outer error is that of
    /// such a fault.
    fn populate(&mut self, from: usize, to: usize) -> io::Result<Result<(), Error>> {
        self.forgive(self.first + from as u64, self.first + to as u64);
        for page in from..to {
            if page % BLOCK == 0 && page > from {
                self.serve()?;
            }
            let at = self.first + page as u64;
            if self.tables.mapping(at).is_none()
                && let Err(error) = self.fault(at, Access::Write)
            {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    fn trim(&mut self) {
        // Free frames may hold cache pages, whose contents are still useful.
        let buddy = self.vm.buddy();
        let free = |frame| buddy.is_free(Extent { start: frame, level: Level::BASE }) && !buddy.is_cached(frame);
        // Memory that cannot be freed stays.
        let _ = self.contents.memory.trim(|frame| !free(frame));
    }

    fn report(&self) -> RegionStats {
        let (huge_blocks, small_blocks) = self.contents.memory.count_blocks();
        RegionStats {
            manager: self.vm.stats(),
            held_pages: self.contents.memory.held(),
            huge_blocks,
            small_blocks,
            huge_bytes: self.tables.huge() << 21,
            pages_out: self.contents.swap.pages_out,
            pages_in: self.contents.swap.pages_in,
            reservations: self.contents.reservations,
            reservation_nanoseconds: self.contents.reservation_nanoseconds,
            user_mode_only: self.uffd.user_mode_only(),
            ..self.stats
        }
    }
}
