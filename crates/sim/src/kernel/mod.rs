//! The kernel of a simulation: its memory manager, and what stands around that.

mod files;
mod memory;
mod processes;
mod work;

pub(crate) use self::processes::Processes;
pub(crate) use self::work::{Hold, Peak, Work};

use self::files::Held;
use crate::cost::Effort;
use crate::disk::Disk;
use crate::error::Problem;
use crate::fragment::{Fragmented, fragment};
use crate::hardware::{Cause, Doing, Hardware, Member};
use crate::host::Host;
use crate::kernel_model::{At, ModelledKernel};
use crate::misses::MissesByRegion;
use crate::observe::Seen;
use crate::stream::inward;
use crate::{BackgroundOn, Setup};
use superpage_mmu::{Mmu, Request};
use superpage_pages::{Access, Counts, Mapped, PageRange, Protection, Vpn};
use superpage_trace::{Info, ProcessId};
use superpage_vm::{Config, Costs, Error, Fault, FaultError, FaultKind, Hash, Map, Need, Vm};

/// The kernel of a simulation.
pub(crate) struct Kernel {
    pub(crate) vm: Vm,
    pub(crate) disk: Disk,
    held: Held,
    pub(crate) processes: Processes,
    /// The kernel of the host, if it has a policy of its own.
    pub(crate) host: Option<Host>,
    /// What the kernel itself touches, if there is a model of it.
    pub(crate) modelled: Option<ModelledKernel>,
    pub(crate) fragmented: Fragmented,
    pub(crate) work: Work,
    /// TLB misses by region, if they are counted.
    pub(crate) misses: Option<MissesByRegion>,
    /// The most that was in use in the current part of the stream, if there is one.
    pub(crate) peak: Option<Peak>,
    /// The bits that a page number of the stream loses here.
    shift: u32,
}

impl Kernel {
    /// The kernel of a setup, with its memory in the state that the setup says.
    pub(crate) fn new(hardware: &mut Hardware, info: &Info) -> Result<Kernel, Error> {
        let setup = &hardware.members[0].setup;
        let Setup { ladder, frames, swap_pages, .. } = *setup;
        let needs = setup.policy.definition().needs;
        let wanted = setup.policy.background().is_some_and(|background| background.wants().contents);
        let answers = &setup.policy.answers;
        let read = answers.reclaim.hash != Hash::Off || answers.demote.underused.is_some();
        let contents = read || needs.contains(&Need::Contents) || wanted;
        let mut vm = Vm::new(Config { ladder, frames, policy: setup.policy.clone(), swap_pages })?;
        // The memory is the machine's, whatever sizes the policy uses.
        let physical = setup.machine.ladder();
        let fragmented = fragment(&mut vm, &physical, frames, &setup.fragment, setup.seed)?;
        vm.make_pool()?;
        let mmu = &mut hardware.mmu;
        let place = (&setup.machine, frames);
        let modelled = setup.kernel.as_ref().map(|model| ModelledKernel::new(model, place, info.calls, &mut vm, mmu));
        let host = Host::new(setup, mmu)?;
        vm.started(Some(costs(setup)));
        Ok(Kernel {
            vm,
            disk: Disk::new(setup.files, ladder.base().bytes(), swap_pages, contents),
            held: Held::default(),
            processes: Processes::new(),
            host,
            modelled,
            fragmented,
            work: Work::default(),
            misses: setup.miss_region.map(MissesByRegion::new),
            peak: None,
            shift: ladder.base().shift() - superpage_trace::TRACE_PAGE_SHIFT,
        })
    }

    /// Handles a fault of the current process until there is a page. A mapping may first have to be
    /// made or its rights widened.
    pub(crate) fn fault(&mut self, hardware: &mut Hardware, page: Vpn, access: Access) -> Result<Fault, Problem> {
        let space = self.processes.space;
        let (mut steps, before) = (0, hardware.unseen.len());
        while steps < 4 {
            steps += 1;
            hardware.doing = Doing::Fault(space, page);
            match self.vm.fault(hardware, &mut self.disk, space.page(page), access) {
                Ok(fault) => {
                    if hardware.unseen.wanted {
                        self.show_fault(hardware, page, &fault, before);
                    }
                    return Ok(fault);
                }
                Err(FaultError::Unmapped(_)) => {
                    self.work.unmapped_accesses += 1;
                    hardware.doing = Doing::Call(Cause::Unmap);
                    let map = Map::anonymous(page, 1).protection(rights(access));
                    self.map(hardware, map).map_err(Problem::run)?;
                }
                Err(FaultError::Protection(..)) => {
                    self.work.widened_rights += 1;
                    let held = hardware.mmu.lookup(space.0, page).map_or(Protection::NONE, |mapped| mapped.protection);
                    hardware.doing = Doing::Call(Cause::Protect);
                    // A page of the static pool has one right.
                    let range = self.vm.pool_page(space, page).unwrap_or(page.pages(1));
                    self.vm.protect(hardware, space, range, held | rights(access)).map_err(Problem::run)?;
                }
                Err(FaultError::OutOfMemory(_)) if self.run_daemon(hardware) => steps -= 1,
                Err(FaultError::OutOfMemory(at)) => return Err(self.out_of_memory(hardware.setup(), at)),
                Err(error @ FaultError::NoPoolPage(_)) => return Err(Problem::Process(error.to_string())),
                Err(error) => return Err(Problem::Run(error.to_string())),
            }
        }
        Err(Problem::traps_again(page))
    }

    /// A fault was resolved, for an observer that has seen what was `before` it.
    #[cold]
    fn show_fault(&self, hardware: &mut Hardware, page: Vpn, fault: &Fault, before: usize) {
        if fault.kind == FaultKind::ZeroPage {
            hardware.unseen.forget_entered(before);
        }
        let (kind, mapped) = (fault.kind, hardware.setup().ladder.size(fault.mapped));
        let address = hardware.address(page);
        hardware.unseen.push(self.processes.space, || Seen::Fault { address, kind, mapped });
    }

    /// Runs the page daemon if it has work: a separate thread, for which no program waits.
    #[inline]
    pub(crate) fn daemon(&mut self, hardware: &mut Hardware) {
        if self.vm.daemon_wanted() {
            let (_, work) = self.daemon_work(hardware);
            self.work.movable.add(&work);
        }
    }

    /// Runs the page daemon for a request that waits for a frame; returns whether that freed a
    /// page.
    fn run_daemon(&mut self, hardware: &mut Hardware) -> bool {
        self.daemon_work(hardware).0
    }

    fn daemon_work(&mut self, hardware: &mut Hardware) -> (bool, Effort) {
        self.note_peak();
        hardware.doing = Doing::Own;
        let before = self.effort(hardware);
        let room = self.vm.run_daemon(hardware, &mut self.disk);
        let work = self.effort(hardware).since(&before);
        self.work.daemon.add(&work);
        (room, work)
    }

    /// Calls the policy's background at this time, and returns what it did.
    pub(crate) fn advance(&mut self, hardware: &mut Hardware, now: u64) -> Effort {
        self.work.background_free = now;
        self.work.background_runs += u64::from(self.vm.stats().resident_pages > 0);
        self.note_peak();
        hardware.doing = Doing::Own;
        let before = self.effort(hardware);
        let (member, scale) = (hardware.only(), hardware.setup().time_scale);
        let spent =
            member.kernel_cycles(&self.work.background).total() as f64 / member.setup.machine.clock.hertz as f64;
        hardware.gathers = true;
        self.vm.advance(hardware, &mut self.disk, now, scale.nanoseconds(spent));
        hardware.gathers = false;
        let work = self.effort(hardware).since(&before);
        self.work.background.add(&work);
        self.work.daemon.add(&work);
        self.work.movable.add(&work);
        work
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

    /// The host maps what the guest has touched, if it has a policy of its own.
    #[inline]
    pub(crate) fn back_guest(&mut self, hardware: &mut Hardware) -> Result<(), Problem> {
        match &mut self.host {
            Some(host) => host.back(&mut hardware.mmu),
            None => Ok(()),
        }
    }

    /// These requests were made: the contents of the pages that they wrote have changed.
    #[inline]
    pub(crate) fn note_writes(&mut self, mmu: &Mmu, requests: &[Request]) {
        let Some(contents) = &mut self.disk.contents else { return };
        for request in requests.iter().filter(|request| request.access() == Access::Write) {
            let page = request.page();
            if let Some(Mapped { frame, .. }) = mmu.lookup(self.processes.space.0, page) {
                contents.write(self.processes.current, page, frame);
            }
        }
    }

    /// A fault or a change of mappings waits while a background on another core promotes or demotes
    /// a region: of whichever process, since who holds what is not modelled. `now` is the time in
    /// cycles.
    #[inline]
    pub(crate) fn wait_for_background(&mut self, now: impl FnOnce(&Kernel) -> u64) {
        let Some(Hold { from, until, each }) = self.work.hold else { return };
        let now = now(self);
        if now >= until {
            self.work.hold = None;
        } else if now >= from {
            self.work.waited += each - (now - from) % each;
        }
    }

    /// The message for a process that runs out of memory: whether memory, or also swap space, is
    /// full.
    fn out_of_memory(&self, setup: &Setup, at: Vpn) -> Problem {
        let (used, swap) = (self.vm.stats().swap_used_pages, setup.swap_pages);
        let size = |pages: u64| superpage_report::bytes(pages << setup.ladder.base().shift());
        let memory = size(setup.frames);
        Problem::Process(if used >= swap && swap > 0 {
            format!(
                "page {:#x} finds the memory of {memory} and the swap space of {} full; give more with --memory or --swap",
                at.0,
                size(swap)
            )
        } else {
            FaultError::OutOfMemory(at).to_string()
        })
    }

    /// Switches to a process, which may be new.
    pub(crate) fn switch(&mut self, hardware: &mut Hardware, process: ProcessId) {
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
                hardware.mmu.set_process(space.0, process.0);
                space
            }
        };
        hardware.mmu.switch(self.processes.space.0);
    }

    /// Ends the current process.
    pub(crate) fn exit(&mut self, hardware: &mut Hardware) -> Result<(), Error> {
        self.note_peak();
        hardware.doing = Doing::Call(Cause::Unmap);
        hardware.mmu.drop_blocks(self.processes.space.0, 0..u64::MAX);
        self.vm.exit(hardware, self.processes.space)?;
        if let Some(process) = self.processes.current.take() {
            self.close_all(process)?;
            self.disk.end(process);
            self.processes.spaces.remove(&process);
        }
        Ok(())
    }

    /// From here on the current process writes to these pages of the stream what they already hold.
    pub(crate) fn rewrite(&mut self, start: u64, pages: u64) {
        let PageRange { start, pages } = inward(self.shift, start, pages);
        self.disk.rewrite(self.processes.current, start, pages);
    }

    /// The idle loop computes digests for this time.
    pub(crate) fn hash(&mut self, hardware: &Hardware, microseconds: u64) {
        let cycles = u128::from(microseconds) * u128::from(hardware.setup().machine.clock.hertz) / 1_000_000;
        let pages = cycles / u128::from(hardware.only().digest_cycles().max(1));
        self.work.idle_hashed += self.vm.idle(hardware, &mut self.disk, pages as u64);
    }

    /// Called before mappings or pages are removed.
    pub(crate) fn note_peak(&mut self) {
        if let Some(peak) = &mut self.peak {
            peak.note(&self.vm);
        }
    }

    /// The model of what the kernel touches, if there is one, and where it runs.
    pub(crate) fn model<'a>(&'a mut self, hardware: &'a mut Hardware) -> Option<(&'a mut ModelledKernel, At<'a>)> {
        let Processes { current: process, space, .. } = self.processes;
        Some((self.modelled.as_mut()?, At { mmu: &mut hardware.mmu, vm: &self.vm, process, space }))
    }

    /// The disk has been used since the last call: the idle task ran meanwhile.
    #[inline]
    pub(crate) fn wait_for_disk(&mut self, hardware: &mut Hardware) {
        if self.modelled.is_some() {
            let cycles = self.disk.cycles(&hardware.setup().machine);
            self.model(hardware).into_iter().for_each(|(model, mut at)| model.wait_for_disk(&mut at, cycles));
        }
    }

    /// The kernel's work so far.
    pub(crate) fn effort(&self, hardware: &Hardware) -> Effort {
        let Work { copied_bytes, idle_hashed, .. } = self.work;
        let effort = Effort::new(&hardware.mmu.shared(), self.vm.counts(), copied_bytes, idle_hashed);
        self.modelled.as_ref().map_or(effort, |model| effort.without(model.filled_bytes()))
    }

    /// The cycles so far on a machine: of its work, and those that programs waited for it.
    pub(crate) fn cycles(&self, hardware: &Hardware, member: &Member) -> u64 {
        let all = member.kernel_cycles(&self.effort(hardware)).total()
            + self.model_cycles(hardware)
            + self.disk.cycles(&member.setup.machine)
            + self.host_cycles(hardware, member);
        all + self.work.waited - self.moved_cycles(member)
    }

    /// The cycles of the instructions of a kernel that has a model.
    pub(crate) fn model_cycles(&self, hardware: &Hardware) -> u64 {
        self.modelled.as_ref().map_or(0, |model| model.cycles(&hardware.mmu))
    }

    /// The part of the kernel's work that another core does.
    pub(crate) fn moved_cycles(&self, member: &Member) -> u64 {
        match member.setup.background {
            BackgroundOn::Core => {
                member.kernel_cycles(&self.work.movable).total() - self.work.movable.interrupts(&member.setup.machine)
            }
            BackgroundOn::Program => 0,
        }
    }

    /// The cycles that the host's kernel took, without what another core does.
    pub(crate) fn host_cycles(&self, hardware: &Hardware, member: &Member) -> u64 {
        let cycles = |host: &Host| host.cycles(&hardware.mmu, &member.setup.machine, member.digest_cycles());
        self.host.as_ref().map_or(0, cycles) - self.host_moved_cycles(member)
    }

    /// The part of the work of the host's kernel that another core does.
    pub(crate) fn host_moved_cycles(&self, member: &Member) -> u64 {
        let moved = |host: &Host| host.background_cycles(&member.setup.machine);
        match member.setup.background {
            BackgroundOn::Core => self.host.as_ref().map_or(0, moved),
            BackgroundOn::Program => 0,
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

/// What the kernel's work costs on the machine of a setup, as a policy may ask.
fn costs(Setup { machine, ladder, .. }: &Setup) -> Costs {
    let nanoseconds = |cycles: u64| (u128::from(cycles) * 1_000_000_000 / u128::from(machine.clock.hertz)) as u64;
    let (costs, page) = (&machine.costs, ladder.base().bytes());
    Costs {
        fault: nanoseconds(costs.fault),
        zero: nanoseconds(costs.zero_per_kb * page / 1024),
        copy: nanoseconds(costs.copy_per_kb * page / 1024),
        shootdown: nanoseconds(costs.shootdown),
    }
}
