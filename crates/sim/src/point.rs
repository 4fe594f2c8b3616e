//! One point of a grid: a machine with a kernel on it, driven by the stream.

use crate::cost;
use crate::estimate::Windows;
use crate::hardware::Hardware;
use crate::piece::{Mark, Phase, Piece};
use crate::row::Row;
use crate::{Conditions, Error};
use std::collections::BTreeMap;
use superpage_mmu::{Machine, Mmu, Request, Trap};
use superpage_pages::{Access, Extent, Ladder, Level, Pfn, Protection, Vpn, format_bytes};
use superpage_trace::{Event, Info, ProcessId};
use superpage_vm::{Backing, Config, FaultError, Growth, Map, Policy, SpaceId, Vm};

/// What a point is made of; checked, and not yet begun.
#[derive(Clone, Debug)]
pub struct Setup {
    pub(crate) machine: Machine,
    pub(crate) ladder: Ladder,
    /// The policy as it was asked for.
    pub(crate) name: String,
    pub(crate) policy: Policy,
    pub(crate) frames: u64,
    fragment: f64,
}

impl Setup {
    pub(crate) fn new(
        machine: Machine,
        ladder: Ladder,
        name: &str,
        policy: Policy,
        conditions: &Conditions,
    ) -> Result<Setup, Error> {
        // A run of the stream stays on one trace page, and so on one page here only if that is no smaller.
        if ladder.base().shift() < superpage_trace::TRACE_PAGE_SHIFT {
            return Err(Error::Usage(format!(
                "machine {}: its base page of {} is smaller than the 4K pages of event streams: give it one of at least 4K",
                machine.name,
                ladder.base()
            )));
        }
        let memory = conditions.memory.unwrap_or(machine.memory.size);
        // The smallest superpage in use, or the base page if there is none.
        let least = ladder.sizes()[usize::from(ladder.len() > 1)];
        if memory < least.bytes() {
            let mut text = String::new();
            format_bytes(memory, &mut text).expect("a string takes everything");
            let kind = if ladder.len() > 1 { "superpage" } else { "base page" };
            return Err(Error::Usage(format!(
                "memory of {text} is less than one {kind} of {least} on {}: give at least that with --memory",
                machine.name
            )));
        }
        let frames = memory >> ladder.base().shift();
        Ok(Setup { machine, ladder, name: name.into(), policy, frames, fragment: conditions.fragment })
    }
}

/// A machine with a kernel on it, in the middle of a stream.
pub(crate) struct Point {
    setup: Setup,
    vm: Vm,
    mmu: Mmu,
    /// The address space of each process that is alive.
    spaces: BTreeMap<ProcessId, SpaceId>,
    process: Option<ProcessId>,
    space: SpaceId,
    /// Bits that a page number of the stream loses here.
    shift: u32,
    references: u64,
    instructions: u64,
    unmapped_accesses: u64,
    widened_rights: u64,
    windows: Windows,
    /// Why the run could not go on.
    failed: Option<String>,
}

impl Point {
    pub(crate) fn new(setup: &Setup, first: Phase) -> Result<Point, Error> {
        let cannot = |error: superpage_vm::Error| Error::Usage(format!("machine {}: {error}", setup.machine.name));
        let config = Config { ladder: setup.ladder, frames: setup.frames, policy: setup.policy.clone() };
        let mut vm = Vm::new(config).map_err(cannot)?;
        fragment(&mut vm, &setup.ladder, setup.frames, setup.fragment).map_err(cannot)?;
        Ok(Point {
            vm,
            mmu: Mmu::new(&setup.machine),
            spaces: BTreeMap::new(),
            process: None,
            space: SpaceId(0),
            shift: setup.ladder.base().shift() - superpage_trace::TRACE_PAGE_SHIFT,
            references: 0,
            instructions: 0,
            unmapped_accesses: 0,
            widened_rights: 0,
            windows: Windows::new(first),
            failed: None,
            setup: setup.clone(),
        })
    }

    pub(crate) fn base_shift(&self) -> u32 {
        self.setup.ladder.base().shift()
    }

    /// Goes through one piece of the stream.
    pub(crate) fn step(&mut self, piece: &Piece) {
        let requests = piece.requests(self.base_shift());
        for (index, stretch) in piece.stretches.iter().enumerate() {
            if self.failed.is_some() {
                return;
            }
            let mut done = self.requests(requests.stretch(index));
            self.references += stretch.references;
            self.instructions += stretch.instructions;
            self.windows.accesses(stretch.accesses);
            match stretch.mark {
                Some(Mark::Event(event)) => done = done.and_then(|()| self.event(&piece.batch.events[event].1)),
                Some(Mark::Phase(phase)) => self.windows.turn(phase, &self.setup.machine, self.mmu.counters()),
                None => {}
            }
            if let Err(problem) = done {
                self.failed = Some(problem);
            }
        }
    }

    fn requests(&mut self, mut requests: &[Request]) -> Result<(), String> {
        while let Some((index, trap)) = self.mmu.run(requests) {
            self.trap(requests[index], trap)?;
            requests = &requests[index + 1..];
        }
        Ok(())
    }

    /// What the kernel does when the hardware cannot go on: until the access succeeds, as a processor would retry it.
    fn trap(&mut self, request: Request, trap: Trap) -> Result<(), String> {
        let (page, access) = (request.page(), request.access());
        if trap == Trap::Absent {
            self.windows.fault(access == Access::Execute);
        }
        let mut trap = Some(trap);
        // A fault maps the page, or first a mapping must be made or widened: three steps are the most that it can take.
        for _ in 0..4 {
            let Some(_) = trap else { return Ok(()) };
            match self.vm.fault(&mut Hardware(&mut self.mmu), self.space, page, access) {
                Ok(_) => trap = self.mmu.retry(request).err(),
                Err(FaultError::Unmapped(_)) => {
                    self.unmapped_accesses += 1;
                    let (backing, growth) = (Backing::Anonymous, Growth::Fixed);
                    let map = Map { start: page, pages: 1, protection: rights(access), shared: false, backing, growth };
                    self.vm.map(&mut Hardware(&mut self.mmu), self.space, map).map_err(text)?;
                }
                Err(FaultError::Protection(..)) => {
                    self.widened_rights += 1;
                    let held = self.mmu.lookup(self.space.0, page).map_or(Protection::NONE, |(_, _, held)| held);
                    let mut hardware = Hardware(&mut self.mmu);
                    self.vm.protect(&mut hardware, self.space, page, 1, held | rights(access)).map_err(text)?;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        Err(format!("page {:#x} traps again and again: a fault in superpage itself", page.0))
    }

    fn event(&mut self, event: &Event) -> Result<(), String> {
        let (hardware, shift) = (&mut Hardware(&mut self.mmu), self.shift);
        match *event {
            Event::Switch { process, .. } => {
                self.space = match self.spaces.get(&process) {
                    Some(space) => *space,
                    None => {
                        let space = self.vm.create_space();
                        self.spaces.insert(process, space);
                        space
                    }
                };
                self.process = Some(process);
                self.mmu.switch(self.space.0);
                Ok(())
            }
            Event::Map { start, pages, protection, shared, backing, growth } => {
                let (start, pages) = outward(shift, start, pages);
                let backing = match backing {
                    superpage_trace::Backing::Anonymous => Backing::Anonymous,
                    superpage_trace::Backing::File { file, file_pages, offset } => {
                        let (offset, end) = (offset >> shift, file_pages.div_ceil(1 << shift));
                        Backing::File { file, pages: end, offset }
                    }
                };
                let growth = match growth {
                    superpage_trace::Growth::Fixed => Growth::Fixed,
                    superpage_trace::Growth::Up => Growth::Up,
                    superpage_trace::Growth::Down => Growth::Down,
                };
                let map = Map { start, pages, protection, shared, backing, growth };
                self.vm.map(hardware, self.space, map).map_err(text)
            }
            Event::Unmap { start, pages } => match inward(shift, start, pages) {
                (_, 0) => Ok(()),
                (first, count) => self.vm.unmap(hardware, self.space, first, count).map_err(text),
            },
            Event::Protect { start, pages, protection } => match inward(shift, start, pages) {
                (_, 0) => Ok(()),
                (first, count) => self.vm.protect(hardware, self.space, first, count, protection).map_err(text),
            },
            Event::Discard { start, pages } => match inward(shift, start, pages) {
                (_, 0) => Ok(()),
                (first, count) => self.vm.discard(hardware, self.space, first, count).map_err(text),
            },
            Event::Grow { start, pages } => {
                let (first, count) = outward(shift, start, pages);
                self.vm.grow(hardware, self.space, first, count).map_err(text)
            }
            Event::Remap { from, from_pages, to, to_pages } => {
                let (from, to) = (outward(shift, from, from_pages), outward(shift, to, to_pages));
                match self.vm.remap(hardware, self.space, from, to) {
                    // Pages that the stream can tell apart and this machine cannot; what is touched there is mapped then.
                    Err(superpage_vm::Error::Overlap(_) | superpage_vm::Error::Unmapped(_)) => Ok(()),
                    other => other.map_err(text),
                }
            }
            Event::Fork { child } => {
                let space = self.vm.fork(hardware, self.space).map_err(text)?;
                self.spaces.insert(child, space);
                Ok(())
            }
            Event::Exec => self.vm.exec(hardware, self.space).map_err(text),
            Event::Exit => {
                self.vm.exit(hardware, self.space).map_err(text)?;
                if let Some(process) = self.process.take() {
                    self.spaces.remove(&process);
                }
                Ok(())
            }
            Event::Skipped { references, instructions } => {
                self.windows.skip(references, instructions);
                Ok(())
            }
            Event::Open { .. }
            | Event::Close { .. }
            | Event::Read { .. }
            | Event::Write { .. }
            | Event::Sync { .. }
            | Event::Remove { .. }
            | Event::Wire { .. }
            | Event::Unwire { .. }
            | Event::Idle { .. }
            | Event::Mark(_)
            | Event::Rewrite { .. } => Ok(()),
            Event::Note(_) => Ok(()),
        }
    }

    /// Ends all processes, checks that no frame is lost, and gives the row.
    pub(crate) fn finish(mut self, info: &Info, complete: bool) -> Row {
        let contiguity = contiguity(&self.vm, &self.setup.ladder, self.setup.frames);
        let spaces: Vec<SpaceId> = self.spaces.values().copied().collect();
        for space in spaces {
            if let Err(error) = self.vm.exit(&mut Hardware(&mut self.mmu), space) {
                self.failed.get_or_insert(error.to_string());
            }
        }
        let frames_leaked = self.vm.leaked_frames();
        let (stats, counters, machine) = (self.vm.stats(), self.mmu.counters(), &self.setup.machine);
        let base = self.setup.ladder.base().bytes();
        let whole = self.windows.whole(info, machine, counters, self.references, self.instructions);
        let cycles = cost::cycles(machine, &whole, counters, &stats);
        Row {
            workload: info.workload.clone(),
            machine: machine.name.clone(),
            policy: self.setup.name.clone(),
            references: whole.references,
            instructions: whole.instructions,
            faults: stats.faults,
            itlb_misses: whole.instruction_misses,
            dtlb_misses: whole.data_misses,
            tlb_misses: whole.data_misses + whole.instruction_misses,
            tlb_miss_reduction_percent: None,
            walks: whole.data_misses + whole.instruction_misses,
            walk_memory_references: whole.walk_references,
            cycles,
            seconds: cycles as f64 / machine.clock.hertz as f64,
            speedup: None,
            peak_touched_bytes: stats.peak_touched_pages * base,
            peak_resident_bytes: stats.peak_resident_pages * base,
            bloat_percent: match stats.peak_touched_pages {
                0 => 0.0,
                touched => 100.0 * (stats.peak_resident_pages as f64 / touched as f64 - 1.0),
            },
            pages: self.setup.ladder.sizes().iter().copied().zip(stats.mapped_at_peak).collect(),
            promotions: stats.promotions.iter().sum(),
            demotions: stats.demotions.iter().sum(),
            reservations_made: stats.reservations_made,
            reservations_preempted: stats.reservations_preempted,
            // Nothing is paged until there is a page daemon: these are counts, and they are zero.
            page_ins: 0,
            page_outs: 0,
            bytes_zeroed: stats.bytes_zeroed,
            bytes_copied: stats.bytes_copied,
            bytes_read: stats.bytes_read,
            bytes_written: 0,
            contiguity,
            frames_leaked,
            pte_traversals: counters.pte_traversals,
            shootdowns: counters.shootdowns,
            unmapped_accesses: self.unmapped_accesses,
            widened_rights: self.widened_rights,
            sampled: whole.sampled,
            complete: complete && self.failed.is_none(),
            error: self.failed.clone(),
            assumed: cost::assumed(machine),
        }
    }
}

/// Base pages of `1 << shift` pages of the stream: all that hold one of these.
fn outward(shift: u32, start: u64, pages: u64) -> (Vpn, u64) {
    let first = start >> shift;
    (Vpn(first), (start + pages).div_ceil(1 << shift) - first)
}

/// Base pages of `1 << shift` pages of the stream: only those that are wholly among these.
fn inward(shift: u32, start: u64, pages: u64) -> (Vpn, u64) {
    let first = start.div_ceil(1 << shift);
    (Vpn(first), ((start + pages) >> shift).saturating_sub(first))
}

fn text(error: superpage_vm::Error) -> String {
    error.to_string()
}

/// The least rights with which `access` is allowed.
fn rights(access: Access) -> Protection {
    match access {
        Access::Read => Protection::READ,
        Access::Write => Protection::READ_WRITE,
        Access::Execute => Protection::READ_EXECUTE,
    }
}

/// The contiguity that is left, from 0 to 1: each base page in a wholly free extent of a superpage size has as many points
/// as that size is levels up, against all pages free (Navarro et al., section 6.5).
fn contiguity(vm: &Vm, ladder: &Ladder, frames: u64) -> f64 {
    let points = |free: &dyn Fn(Level) -> u64| -> u64 {
        ladder.levels().skip(1).map(|level| free(level) * ladder.pages(level)).sum()
    };
    let full = points(&|level| frames / ladder.pages(level));
    if full == 0 { 0.0 } else { points(&|level| vm.buddy().free_extents(level)) as f64 / full as f64 }
}

/// Puts an immovable page into `share` of the largest extents: which, and where in each, is a fixed pseudo-random choice.
fn fragment(vm: &mut Vm, ladder: &Ladder, frames: u64, share: f64) -> Result<(), superpage_vm::Error> {
    let pages = ladder.pages(ladder.largest());
    let extents = frames / pages;
    let mut chosen = (share * extents as f64).round() as u64;
    let mut state = 0x5eed_u64;
    let mut random = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    for extent in 0..extents {
        // Selection sampling: just `chosen` of those that are left, each choice equally likely.
        if random() % (extents - extent) < chosen {
            chosen -= 1;
            vm.wire(Extent { start: Pfn(extent * pages + random() % pages), level: Level::BASE })?;
        }
    }
    Ok(())
}
