//! A machine with one process, for tests of one behaviour each.

mod disk;

use disk::Disk;
use std::ops::Deref;
use superpage_pages::{Access, Ladder, Level, PageSize, Pfn, Protection, Vpn};
use superpage_vm::{Config, Fault, FaultError, Growth, Map, NoContents, Pmap, SoftPmap, SpaceId, Vm};

/// The page sizes of the Alpha 21264 (Navarro et al., section 6.1): every ratio is 8.
pub(crate) const ALPHA: &str = "8K 64K 512K 4M";

pub(crate) struct Machine {
    pub(crate) vm: Vm,
    pub(crate) pmap: SoftPmap,
    pub(crate) space: SpaceId,
    pub(crate) disk: Disk,
}

/// A fault whose frames have been filled: unlike the fault itself, it may be dropped.
#[derive(Debug)]
pub(crate) struct Resolved(Fault);

impl Deref for Resolved {
    type Target = Fault;

    fn deref(&self) -> &Fault {
        &self.0
    }
}

impl Machine {
    pub(crate) fn new(sizes: &str, frames: u64, policy: &str) -> Machine {
        Machine::with_swap(sizes, frames, policy, 0)
    }

    /// With so many pages of swap space.
    pub(crate) fn with_swap(sizes: &str, frames: u64, policy: &str, swap_pages: u64) -> Machine {
        let sizes: Vec<PageSize> = sizes.split(' ').map(|size| size.parse().unwrap()).collect();
        let ladder = Ladder::new(&sizes).unwrap();
        let mut vm = Vm::new(Config { ladder, frames, policy: policy.parse().unwrap(), swap_pages }).unwrap();
        let space = vm.create_space();
        Machine { vm, pmap: SoftPmap::new(ladder), space, disk: Disk::new(frames) }
    }

    pub(crate) fn alpha(frames: u64) -> Machine {
        Machine::new(ALPHA, frames, "reservation")
    }

    fn map(&mut self, map: Map) {
        self.vm.map(&mut self.pmap, self.space, map).unwrap();
    }

    pub(crate) fn anonymous(&mut self, start: u64, pages: u64, growth: Growth) {
        self.map(Map::anonymous(Vpn(start), pages).growth(growth));
    }

    pub(crate) fn file(&mut self, start: u64, pages: u64, shared: bool, offset: u64) {
        self.map(Map::file(Vpn(start), pages, 1, 4096, offset).shared(shared));
    }

    pub(crate) fn protect(&mut self, start: u64, pages: u64, protection: Protection) {
        self.vm.protect(&mut self.pmap, self.space, Vpn(start).pages(pages), protection).unwrap();
    }

    pub(crate) fn unmap(&mut self, start: u64, pages: u64) {
        self.vm.unmap(&mut self.pmap, self.space, Vpn(start).pages(pages)).unwrap();
    }

    pub(crate) fn try_touch(&mut self, page: u64, access: Access) -> Result<Option<Fault>, FaultError> {
        if self.pmap.access(self.space, Vpn(page), access) {
            return Ok(None);
        }
        let fault = self.fault(self.space, page, access);
        self.vm.validate(&self.pmap).unwrap();
        let fault = fault?;
        assert!(self.pmap.access(self.space, Vpn(page), access));
        Ok(Some(fault))
    }

    /// An access that goes through, after as many faults as it takes: the frame. Where memory is
    /// full the daemon runs, as long as it makes progress.
    pub(crate) fn access(&mut self, page: u64, access: Access) -> Result<Pfn, FaultError> {
        while !self.pmap.access(self.space, Vpn(page), access) {
            match self.fault(self.space, page, access) {
                Ok(_) => {}
                Err(FaultError::OutOfMemory(_)) if self.daemon() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.frame(page).expect("what was accessed is mapped"))
    }

    /// One fault of a process.
    pub(crate) fn fault(&mut self, space: SpaceId, page: u64, access: Access) -> Result<Fault, FaultError> {
        self.vm.fault(&mut self.pmap, &mut self.disk, space.page(Vpn(page)), access)
    }

    /// A read that the store has begun is over, well or not.
    pub(crate) fn read_done(&mut self, frame: Pfn, read: Result<(), NoContents>) {
        self.disk.finish(frame);
        self.vm.read_done(frame, read).unwrap();
    }

    /// Reads a page of an open file without a mapping.
    pub(crate) fn read_file(&mut self, file: u32, page: u64) -> Result<Fault, FaultError> {
        self.vm.read(&self.pmap, &mut self.disk, file, page)
    }

    /// Writes a page of an open file without a mapping.
    pub(crate) fn write_file(&mut self, file: u32, page: u64) -> Result<Fault, FaultError> {
        self.vm.write(&mut self.disk, file, page)
    }

    /// Writes a value to a page, if it can be had.
    pub(crate) fn try_put(&mut self, page: u64, value: u64) -> Result<(), FaultError> {
        let frame = self.access(page, Access::Write)?;
        self.disk.memory[frame.0 as usize] = value;
        Ok(())
    }

    /// Writes a value to a page.
    pub(crate) fn put(&mut self, page: u64, value: u64) {
        self.try_put(page, value).unwrap();
    }

    /// Reads the value of a page.
    pub(crate) fn get(&mut self, page: u64) -> u64 {
        let frame = self.access(page, Access::Read).unwrap();
        self.disk.memory[frame.0 as usize]
    }

    /// Runs the page daemon: whether it took a page out of use.
    pub(crate) fn daemon(&mut self) -> bool {
        let progress = self.vm.run_daemon(&mut self.pmap, &mut self.disk);
        self.vm.validate(&self.pmap).unwrap();
        progress
    }

    /// Writes the dirty pages of the file out.
    pub(crate) fn sync(&mut self) {
        self.vm.sync(&mut self.pmap, &mut self.disk, 1).unwrap();
        self.vm.validate(&self.pmap).unwrap();
    }

    /// The frame that a page is mapped to.
    pub(crate) fn frame(&self, page: u64) -> Option<Pfn> {
        self.pmap.lookup(self.space, Vpn(page)).map(|mapped| mapped.frame)
    }

    /// The mapped pages of these.
    pub(crate) fn mapped(&self, pages: impl Iterator<Item = u64>) -> Vec<u64> {
        pages.filter(|page| self.frame(*page).is_some()).collect()
    }

    /// Takes every page of all processes out of use that can go without swap space: a file is read
    /// that is several times as long as memory.
    pub(crate) fn squeeze_with_file(&mut self) {
        let pages = 8 * self.vm.buddy().frames();
        self.vm.open(u32::MAX, pages).unwrap();
        for page in 0..pages {
            while let Err(error) = self.read_file(u32::MAX, page) {
                assert!(self.daemon(), "{error}");
            }
        }
        self.vm.close(u32::MAX).unwrap();
        self.vm.remove_file(u32::MAX).unwrap();
    }

    /// Takes every page of all processes out of use: another one writes to several times as many as
    /// there are frames. Swap space must have room for all.
    pub(crate) fn squeeze(&mut self) {
        let (space, frames) = (self.space, self.vm.buddy().frames());
        self.space = self.vm.create_space();
        self.anonymous(1 << 30, 8 * frames, Growth::Fixed);
        (0..8 * frames).for_each(|page| self.put((1 << 30) + page, page));
        self.vm.exit(&mut self.pmap, self.space).unwrap();
        self.space = space;
    }

    /// A write that must fault.
    pub(crate) fn write(&mut self, page: u64) -> Resolved {
        Resolved(self.try_touch(page, Access::Write).unwrap().expect("the page is mapped already"))
    }

    /// A read that must fault.
    pub(crate) fn read(&mut self, page: u64) -> Resolved {
        Resolved(self.try_touch(page, Access::Read).unwrap().expect("the page is mapped already"))
    }

    pub(crate) fn write_all(&mut self, pages: impl Iterator<Item = u64>) {
        pages.for_each(|page| {
            self.write(page);
        });
    }

    /// The level of the page that maps a page.
    pub(crate) fn level(&self, page: u64) -> Option<Level> {
        let mapped = self.pmap.lookup(self.space, Vpn(page))?;
        self.vm.ladder().level(mapped.size)
    }

    /// How many reservations are on each list, from the base page's.
    pub(crate) fn lists(&self) -> Vec<usize> {
        self.vm.ladder().levels().map(|level| self.vm.reservations(level).count()).collect()
    }

    /// Ends the process; nothing may be left.
    pub(crate) fn end(self) {
        self.end_with(0);
    }

    /// The same where a static pool has so many pages of 2 MB.
    pub(crate) fn end_with(mut self, pool: u64) {
        self.vm.exit(&mut self.pmap, self.space).unwrap();
        self.vm.validate(&self.pmap).unwrap();
        self.vm.remove_file(1).unwrap();
        self.vm.validate(&self.pmap).unwrap();
        let zero_page: u64 = self.vm.zero_page().map(|extent| self.vm.ladder().pages(extent.level)).sum();
        assert_eq!(self.vm.buddy().free_frames() + 512 * pool + zero_page, self.vm.buddy().frames());
        assert_eq!((self.vm.leaked_frames(), self.pmap.mappings()), (0, 0));
    }
}
