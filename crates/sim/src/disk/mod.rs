//! The simulated memory's contents and its backing store: one disk for files and swap space, and
//! its cost.

mod arm;
mod contents;

use self::arm::{Arm, Way};
use self::contents::Contents;
use crate::words::words;
use hashbrown::HashSet;
use rustc_hash::FxBuildHasher;
use superpage_mmu::Machine;
use superpage_pages::{Pfn, Vpn};
use superpage_trace::ProcessId;
use superpage_vm::{Backed, Filled, Memory, NoContents, Page};

words! {
    /// Whether the files of a run have been read before it begins.
    #[derive(Default)]
    pub enum Files {
        /// Yes, as after the warm-up run of Navarro et al., section 6.3: the first read of each of
        /// their pages takes no time. A page that was in memory since then and is read again takes
        /// time.
        #[default]
        Warm = "warm",
        /// No: every read takes time.
        Cold = "cold",
    }
}

/// The disk: it serves one request at a time, and nothing else runs meanwhile.
pub(crate) struct Disk {
    files: Files,
    /// Bytes of a base page.
    page: u64,
    /// Which requests the transfers become.
    arm: Arm,
    /// Bytes transferred.
    bytes: u64,
    /// Pages of files that have been in memory, if that matters.
    known: HashSet<(u32, u64), FxBuildHasher>,
    /// The contents of pages, if the policy uses digests, or asks which pages hold zeroes.
    pub(crate) contents: Option<Contents>,
}

impl Disk {
    pub(crate) fn new(files: Files, page: u64, swap_pages: u64, contents: bool) -> Disk {
        let contents = contents.then(Contents::default);
        Disk { files, page, arm: Arm::new(page, swap_pages), bytes: 0, known: HashSet::default(), contents }
    }

    /// From here on the process writes to these pages, if any, what they already hold.
    pub(crate) fn rewrite(&mut self, process: Option<ProcessId>, start: Vpn, pages: u64) {
        if let (Some(contents), Some(process)) = (&mut self.contents, process) {
            contents.rewrite(process, start, pages);
        }
    }

    /// The process ends.
    pub(crate) fn end(&mut self, process: ProcessId) {
        if let Some(contents) = &mut self.contents {
            contents.end(process);
        }
    }

    /// Notes that a page of a file is in memory; returns whether that is for the first time and
    /// files are warm, so that creating or reading it costs nothing.
    pub(crate) fn note_first_use(&mut self, page: Backed) -> bool {
        match page {
            Backed::File { file, page } => self.files == Files::Warm && self.known.insert((file, page)),
            Backed::Swap { .. } => false,
        }
    }

    /// A file is deleted.
    pub(crate) fn forget(&mut self, file: u32) {
        self.known.retain(|(known, _)| *known != file);
        self.arm.forget(file);
        if let Some(contents) = &mut self.contents {
            contents.forget(file);
        }
    }

    /// A file has at least `pages` pages from here on.
    pub(crate) fn place(&mut self, file: u32, pages: u64) {
        self.arm.place(file, pages);
    }

    fn transfer(&mut self, way: Way, place: Backed) {
        self.bytes += self.page;
        self.arm.transfer(way, place);
    }

    /// Does what waits to be written; to be called before a row is made, and where a program waits
    /// for it.
    pub(crate) fn settle(&mut self) {
        self.arm.settle();
    }

    /// The bytes transferred, and the requests: changes whenever the disk takes time.
    #[inline]
    pub(crate) fn transfers(&self) -> u64 {
        self.bytes + self.arm.requests()
    }

    /// The number of requests: what is read or written in one go, without a seek.
    pub(crate) fn requests(&self) -> u64 {
        self.arm.requests()
    }

    /// The time that all transfers took, in cycles of the machine.
    pub(crate) fn cycles(&self, machine: &Machine) -> u64 {
        let rate = u128::from(machine.disk.bytes_per_second);
        let moves = u128::from(self.bytes) * u128::from(machine.clock.hertz) / rate;
        self.arm.cycles(machine) + moves as u64
    }
}

impl Memory for Disk {
    #[inline]
    fn zero(&mut self, first: Pfn, frames: u64, _: Page) -> Result<(), NoContents> {
        if let Some(contents) = &mut self.contents {
            (0..frames).for_each(|frame| contents.zero(first + frame));
        }
        Ok(())
    }

    fn copy(&mut self, from: Pfn, to: Pfn, _: Page) {
        if let Some(contents) = &mut self.contents {
            contents.copy(from, to);
        }
    }

    fn read(&mut self, from: Backed, to: Pfn, _: Page) -> Result<Filled, NoContents> {
        if let Some(contents) = &mut self.contents {
            contents.load(from, to);
        }
        if !self.note_first_use(from) {
            self.transfer(Way::In, from);
        }
        Ok(Filled::Now)
    }

    fn read_private(&mut self, from: Backed, to: Pfn, page: Page) -> Result<Filled, NoContents> {
        let Backed::File { file, page: index } = from else { return self.read(from, to, page) };
        if let Some(contents) = &mut self.contents {
            contents.load(from, to);
        }
        // The page of the file itself comes into no frame, and is as warm as it was.
        if self.files == Files::Cold || self.known.contains(&(file, index)) {
            self.transfer(Way::In, from);
        }
        Ok(Filled::Now)
    }

    fn write(&mut self, to: Backed, frame: Pfn) {
        if let Some(contents) = &mut self.contents {
            contents.save(to, frame);
        }
        self.transfer(Way::Out, to);
    }

    fn is_zero(&mut self, frame: Pfn) -> bool {
        self.contents.as_ref().is_some_and(|contents| contents.digest(frame) == 0)
    }

    fn digest(&mut self, frame: Pfn) -> u128 {
        self.contents.as_ref().map_or(0, |contents| contents.digest(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Pfn = Pfn(0);
    const PAGE: Page = Page::File { file: 1, page: 0 };

    fn file(page: u64) -> Backed {
        Backed::File { file: 1, page }
    }

    #[test]
    fn a_request_costs_its_seek_and_each_byte_its_share_of_the_rate() {
        let machine = Machine::builtin("alpha-21264").unwrap();
        let mut disk = Disk::new(Files::Cold, 8192, 0, false);
        disk.write(file(0), AT);
        disk.write(file(1), AT);
        disk.settle();
        let cycles = |seconds: f64| (seconds * machine.clock.hertz as f64) as u64;
        let (seek, rate) = (machine.disk.seek_microseconds as f64 / 1e6, machine.disk.bytes_per_second as f64);
        assert_eq!(disk.cycles(&machine), cycles(seek) + cycles(16384.0 / rate));
    }

    #[test]
    fn warm_files_cost_nothing_at_first_and_something_after_eviction() {
        let mut disk = Disk::new(Files::Warm, 4096, 0, false);
        disk.read(file(0), AT, PAGE).unwrap();
        assert_eq!(disk.requests(), 0);
        disk.read(file(0), AT, PAGE).unwrap();
        assert_eq!(disk.requests(), 1);
        disk.forget(1);
        disk.place(2, 64);
        // Copies leave a page as warm as it is.
        disk.read_private(file(0), AT, PAGE).unwrap();
        disk.read_private(file(0), AT, PAGE).unwrap();
        disk.read(file(0), AT, PAGE).unwrap();
        assert_eq!(disk.requests(), 1, "another file has the number");
        disk.read_private(file(0), AT, PAGE).unwrap();
        assert_eq!(disk.requests(), 2, "it has been in memory since");
        disk.read(Backed::Swap { slot: 0 }, AT, PAGE).unwrap();
        assert_eq!(disk.requests(), 3, "swap always costs");
    }
}
