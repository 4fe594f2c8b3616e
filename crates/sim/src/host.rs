//! The kernel of a host, where it has a policy of its own (`--host-policy`): a second memory
//! manager, whose one process is the guest.
//!
//! The guest's memory is one anonymous object of the host, mapped at the guest's frame numbers, and
//! its page tables are another. The guest's kernel fills a frame before it maps it, and a table
//! before it uses it, so that is when the host's kernel first sees an access there. What a guest
//! has touched it never gives back: nothing tells the host which of its frames are free.

use crate::cost::Effort;
use crate::error::Problem;
use crate::setup::{BackgroundOn, HostSetup, Setup, TimeScale};
use superpage_mmu::{Machine, Mmu};
use superpage_pages::{Access, Counts, Mapped, PageRange, PageSize, Protection, Vpn};
use superpage_vm::{Config, Contiguity, FaultError, Map, NoMemory, Pmap, SpaceId, Used, Vm};

/// The most base pages of the guest's page tables.
const MOST_TABLES: u64 = 1 << 26;

/// What a host has done so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostCounts {
    pub(crate) faults: u64,
    pub(crate) promotions: u64,
    pub(crate) demotions: u64,
    pub(crate) shootdowns: u64,
    pub(crate) bytes_zeroed: u64,
    pub(crate) bytes_copied: u64,
    /// Mapped pages of each size.
    pub(crate) pages: Vec<(PageSize, u64)>,
}

/// The kernel of a host.
pub(crate) struct Host {
    vm: Vm,
    space: SpaceId,
    /// The page sizes of the machine.
    sizes: Vec<PageSize>,
    /// How many of the guest's page tables are backed.
    tables: u64,
    /// The work of the policy's background, and the modelled time from which it can be called
    /// again, in nanoseconds.
    background: Effort,
    background_free: u64,
}

/// The host's page tables as [`Pmap`]; there is one space.
struct Tables<'a> {
    mmu: &'a mut Mmu,
    sizes: &'a [PageSize],
}

impl Pmap for Tables<'_> {
    fn enter(&mut self, _: SpaceId, at: Vpn, to: Mapped, access: Access) {
        self.mmu.host_enter(at, to, access);
    }

    fn remove(&mut self, _: SpaceId, at: Vpn, size: PageSize) -> Used {
        self.mmu.host_remove(at, size)
    }

    fn protect(&mut self, _: SpaceId, at: Vpn, size: PageSize, protection: Protection) {
        self.mmu.host_protect(at, size, protection);
    }

    fn promote(&mut self, _: SpaceId, at: Vpn, from: PageSize, to: PageSize) {
        self.mmu.host_promote(at, from, to);
    }

    fn demote(&mut self, _: SpaceId, at: Vpn, from: PageSize, to: PageSize) {
        self.mmu.host_demote(at, from, to);
    }

    fn contiguity(&self, size: PageSize) -> Contiguity {
        if self.sizes.contains(&size) { Contiguity::Whole } else { Contiguity::Parts }
    }

    fn lookup(&self, _: SpaceId, at: Vpn) -> Option<Mapped> {
        self.mmu.host_lookup(at)
    }

    fn used(&self, _: SpaceId, at: Vpn, size: PageSize) -> Used {
        self.mmu.host_used(at, size)
    }

    fn clear_referenced(&mut self, _: SpaceId, at: Vpn, size: PageSize) -> bool {
        self.mmu.host_clear_referenced(at, size)
    }

    fn clear_modified(&mut self, _: SpaceId, at: Vpn, size: PageSize) -> bool {
        self.mmu.host_clear_modified(at, size)
    }

    fn flush(&mut self, _: SpaceId) {
        self.mmu.host_flush();
    }

    fn destroy(&mut self, _: SpaceId) {
        self.mmu.host_destroy();
    }
}

impl Host {
    /// The host of this setup, if it has a policy of its own, with nothing backed yet.
    pub(crate) fn new(setup: &Setup, mmu: &mut Mmu) -> Result<Option<Host>, superpage_vm::Error> {
        let Some(HostSetup { policy, ladder, frames, .. }) = setup.host.clone() else { return Ok(None) };
        let mut vm = Vm::new(Config { ladder, frames, policy, swap_pages: 0 })?;
        vm.make_pool()?;
        let (space, sizes) = (vm.create_space(), setup.machine.pages.sizes.clone());
        for memory in [Vpn(0).pages(setup.frames), mmu.guest_tables().start.pages(MOST_TABLES)] {
            let map = Map::anonymous(memory.start, memory.pages).protection(Protection::ALL);
            vm.map(&mut Tables { mmu, sizes: &sizes }, space, map)?;
        }
        Ok(Some(Host { vm, space, sizes, tables: 0, background: Effort::default(), background_free: 0 }))
    }

    /// Backs what the guest has touched since the last call, and its new page tables.
    pub(crate) fn back(&mut self, mmu: &mut Mmu) -> Result<(), Problem> {
        for range in mmu.take_touched() {
            self.touch(mmu, range)?;
        }
        let PageRange { start, pages } = mmu.guest_tables();
        let new = (start + self.tables).pages(pages - self.tables);
        self.tables = pages;
        self.touch(mmu, new)
    }

    fn touch(&mut self, mmu: &mut Mmu, PageRange { start, pages }: PageRange) -> Result<(), Problem> {
        let (mut at, end, base) = (start.0, start.0 + pages, self.sizes[0].bytes());
        while at < end {
            match mmu.host_lookup(Vpn(at)) {
                Some(Mapped { size, .. }) => at = (at + 1).next_multiple_of(size.bytes() / base),
                None => self.fault(mmu, Vpn(at))?,
            }
        }
        Ok(())
    }

    fn fault(&mut self, mmu: &mut Mmu, at: Vpn) -> Result<(), Problem> {
        let tables = &mut Tables { mmu, sizes: &self.sizes };
        loop {
            match self.vm.fault(tables, &mut NoMemory, self.space.page(at), Access::Write) {
                Ok(_) => break,
                Err(FaultError::OutOfMemory(_)) if self.vm.run_daemon(tables, &mut NoMemory) => {}
                Err(error) => return Err(Problem::Run(format!("the host of the guest: {error}"))),
            }
        }
        if self.vm.daemon_wanted() {
            self.vm.run_daemon(tables, &mut NoMemory);
        }
        Ok(())
    }

    /// Whether its policy has a background.
    pub(crate) fn has_background(&self) -> bool {
        self.vm.has_background()
    }

    /// When its background is to be called next, in nanoseconds.
    pub(crate) fn due(&self) -> Option<u64> {
        self.vm.due().map(|due| due.max(self.background_free))
    }

    /// Calls the background, if it is due, at this modelled time on this machine.
    pub(crate) fn advance(
        &mut self,
        mmu: &mut Mmu,
        machine: &Machine,
        (on, scale): (BackgroundOn, TimeScale),
        now: u64,
    ) {
        // An estimate of a sampled stream may go back; time does not.
        if self.due().is_none_or(|due| now < due) {
            return;
        }
        self.background_free = now;
        let before = self.effort(mmu);
        let time =
            |work: &Effort| scale.nanoseconds(work.on(machine, 0, false).total() as f64 / machine.clock.hertz as f64);
        let spent = time(&self.background);
        self.vm.advance(&mut Tables { mmu, sizes: &self.sizes }, &mut NoMemory, now, spent);
        let work = self.effort(mmu).since(&before);
        self.background.add(&work);
        if on == BackgroundOn::Core {
            self.background_free += time(&work);
        }
    }

    fn effort(&self, mmu: &Mmu) -> Effort {
        Effort::new(&mmu.host_counters(), &self.vm.stats(), 0, 0)
    }

    /// The cycles of all its work on this machine; `digest` is the cost of one digest.
    pub(crate) fn cycles(&self, mmu: &Mmu, machine: &Machine, digest: u64) -> u64 {
        self.effort(mmu).on(machine, digest, false).total()
    }

    /// The cycles of the background's work without shootdowns, which interrupt the guest.
    pub(crate) fn background_cycles(&self, machine: &Machine) -> u64 {
        self.background.on(machine, 0, false).total() - self.background.interrupts(machine)
    }

    /// The counts so far.
    pub(crate) fn counts(&self, mmu: &Mmu) -> HostCounts {
        let stats = self.vm.stats();
        HostCounts {
            faults: stats.faults,
            promotions: stats.promotions.iter().sum(),
            demotions: stats.demotions.iter().sum(),
            shootdowns: mmu.host_counters().shootdowns,
            bytes_zeroed: stats.bytes_zeroed,
            bytes_copied: stats.bytes_copied,
            pages: self.vm.ladder().sizes().iter().copied().zip(stats.mapped).collect(),
        }
    }

    /// Ends the guest; returns how many frames of the host have no owner then.
    pub(crate) fn end(&mut self, mmu: &mut Mmu) -> Result<u64, superpage_vm::Error> {
        self.vm.exit(&mut Tables { mmu, sizes: &self.sizes }, self.space)?;
        Ok(self.vm.leaked_frames())
    }
}
