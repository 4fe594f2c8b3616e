//! Files and memory of the kernel itself, as a stream requires them.

use super::Kernel;
use crate::disk::Disk;
use crate::error::Problem;
use crate::hardware::{Cause, Doing, Hardware};
use crate::stream::outward;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use superpage_pages::{PageRange, Pfn};
use superpage_trace::{Event, ProcessId};
use superpage_vm::{Backed, Error, Fault, FaultError};

/// The open files and the kernel frames of one simulation.
#[derive(Default)]
pub(super) struct Held {
    /// How often each process has each file open.
    opens: BTreeMap<ProcessId, BTreeMap<u32, u64>>,
    /// The length of each file, in pages of the stream.
    lengths: BTreeMap<u32, u64>,
    /// The kernel's frames, the oldest first.
    frames: VecDeque<Pfn>,
    /// What they stand for, in pages of the stream.
    wired: u64,
}

impl Held {
    /// Extends the file to at least this length, in pages of the stream, of which a base page holds
    /// 2^`shift`.
    pub(super) fn reach(&mut self, disk: &mut Disk, file: u32, pages: u64, shift: u32) {
        let length = self.lengths.entry(file).or_default();
        *length = pages.max(*length);
        disk.place(file, length.div_ceil(1 << shift));
    }
}

impl Kernel {
    /// Handles an event that concerns files or the kernel's own memory.
    pub(crate) fn file_event(&mut self, hardware: &mut Hardware, event: &Event) -> Result<(), Problem> {
        let process = self.processes.current.unwrap_or(ProcessId(0));
        // Pages that are written back lose the right to be written.
        hardware.doing = Doing::Call(Cause::Protect);
        match *event {
            Event::Open { file, file_pages } => {
                self.held.reach(&mut self.disk, file, file_pages, self.shift);
                self.open(process, file, 1).map_err(Problem::run)
            }
            Event::Close { file } => self.close(process, file, 1).map_err(Problem::run),
            Event::Read { file, start, pages } => self.read(hardware, file, start..start + pages),
            Event::Write { file, start, pages } => self.write(hardware, file, start..start + pages),
            Event::Sync { file } => {
                let written = self.vm.sync(hardware, &mut self.disk, file);
                self.disk.settle();
                match written {
                    // No page of it was ever in memory.
                    Err(Error::NotOpen(_)) => Ok(()),
                    other => other.map_err(Problem::run),
                }
            }
            Event::Remove { file } => {
                self.vm.remove_file(file).map_err(Problem::run)?;
                self.disk.forget(file);
                self.held.lengths.remove(&file);
                for files in self.held.opens.values_mut() {
                    files.remove(&file);
                }
                Ok(())
            }
            Event::Wire { pages } => self.wire(hardware, pages),
            Event::Unwire { pages } => {
                self.held.wired = self.held.wired.saturating_sub(pages);
                self.unwire().map_err(Problem::run)
            }
            _ => unreachable!("{event:?} is none of files"),
        }
    }

    fn open(&mut self, process: ProcessId, file: u32, times: u64) -> Result<(), Error> {
        let pages = self.held.lengths.get(&file).map_or(0, |length| length.div_ceil(1 << self.shift));
        for _ in 0..times {
            self.vm.open(file, pages)?;
            *self.held.opens.entry(process).or_default().entry(file).or_default() += 1;
        }
        Ok(())
    }

    fn close(&mut self, process: ProcessId, file: u32, times: u64) -> Result<(), Error> {
        let Some(opens) = self.held.opens.get_mut(&process).and_then(|files| files.get_mut(&file)) else {
            return Err(Error::NotOpen(file));
        };
        for _ in 0..times.min(*opens) {
            *opens -= 1;
            self.vm.close(file)?;
        }
        Ok(())
    }

    /// Gives a forked child the files that its parent has open.
    pub(super) fn inherit(&mut self, parent: ProcessId, child: ProcessId) -> Result<(), Error> {
        let files = self.held.opens.get(&parent).cloned().unwrap_or_default();
        files.into_iter().try_for_each(|(file, times)| self.open(child, file, times))
    }

    /// Closes all files of a process that ends.
    pub(super) fn close_all(&mut self, process: ProcessId) -> Result<(), Error> {
        let files = self.held.opens.get(&process).cloned().unwrap_or_default();
        files.into_iter().try_for_each(|(file, times)| self.close(process, file, times))?;
        self.held.opens.remove(&process);
        Ok(())
    }

    /// The kernel reads these pages of the stream of a file.
    fn read(&mut self, hardware: &mut Hardware, file: u32, read: Range<u64>) -> Result<(), Problem> {
        let pages = read.end - read.start;
        let PageRange { start: first, pages: count } = outward(self.shift, read.start, pages);
        for page in first.0..first.0 + count {
            self.read_page(hardware, file, page)?;
        }
        self.work.copied_bytes += pages << superpage_trace::TRACE_PAGE_SHIFT;
        Ok(())
    }

    fn write(&mut self, hardware: &mut Hardware, file: u32, written: Range<u64>) -> Result<(), Problem> {
        let Range { start, end } = written;
        let PageRange { start: first, pages: count } = outward(self.shift, start, end - start);
        let length = self.held.lengths.get(&file).copied().unwrap_or(0);
        for page in first.0..first.0 + count {
            let (low, high) = (page << self.shift, (page + 1) << self.shift);
            // The part of a page that is not overwritten must be read first.
            if low < start && low < length || high > end && end < length.min(high) {
                self.read_page(hardware, file, page)?;
            }
            let frame = self.file_page(hardware, |kernel, _| kernel.vm.write(&mut kernel.disk, file, page))?;
            self.disk.note_first_use(Backed::File { file, page });
            if let Some(contents) = &mut self.disk.contents {
                contents.change(frame);
            }
            self.daemon(hardware);
        }
        self.held.reach(&mut self.disk, file, end, self.shift);
        self.work.copied_bytes += (end - start) << superpage_trace::TRACE_PAGE_SHIFT;
        Ok(())
    }

    fn read_page(&mut self, hardware: &mut Hardware, file: u32, page: u64) -> Result<(), Problem> {
        self.file_page(hardware, |kernel, hardware| kernel.vm.read(hardware, &mut kernel.disk, file, page))?;
        self.daemon(hardware);
        Ok(())
    }

    /// Accesses one page of an open file and returns its frame; if no frame is free, the daemon is
    /// run.
    fn file_page(
        &mut self,
        hardware: &mut Hardware,
        work: impl Fn(&mut Kernel, &Hardware) -> Result<Fault, FaultError>,
    ) -> Result<Pfn, Problem> {
        loop {
            match work(self, hardware) {
                Ok(fault) => return Ok(fault.frame),
                Err(FaultError::OutOfMemory(_)) if self.run_daemon(hardware) => {}
                Err(FaultError::OutOfMemory(at)) => return Err(self.out_of_memory(hardware.setup(), at)),
                Err(error) => return Err(Problem::Run(error.to_string())),
            }
        }
    }

    fn wire(&mut self, hardware: &mut Hardware, pages: u64) -> Result<(), Problem> {
        let wanted = (self.held.wired + pages).div_ceil(1 << self.shift);
        while (self.held.frames.len() as u64) < wanted {
            match self.vm.wire_page() {
                Ok(frame) => self.held.frames.push_back(frame),
                Err(Error::NoFrame) if self.run_daemon(hardware) => {}
                Err(error @ Error::NoFrame) => {
                    self.unwire().map_err(Problem::run)?;
                    return Err(Problem::Process(error.to_string()));
                }
                Err(error) => return Err(Problem::run(error)),
            }
        }
        self.held.wired += pages;
        Ok(())
    }

    /// Frees the oldest frames beyond those that are still needed.
    fn unwire(&mut self) -> Result<(), Error> {
        let wanted = self.held.wired.div_ceil(1 << self.shift);
        while self.held.frames.len() as u64 > wanted
            && let Some(frame) = self.held.frames.pop_front()
        {
            self.vm.unwire_page(frame)?;
        }
        Ok(())
    }
}
