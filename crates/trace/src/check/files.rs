//! Checks the events that concern files and the kernel's own memory.

use crate::{Backing, Event, ProcessId};
use std::collections::{BTreeMap, HashMap};

/// The files of a stream, who has them open, and how many pages are wired.
#[derive(Default)]
pub(super) struct Files {
    /// The pages of each file that has been named and not removed.
    lengths: HashMap<u32, u64>,
    /// How many times each process has each file open; never 0.
    opens: BTreeMap<(ProcessId, u32), u64>,
    /// How many times each file is open in all; never 0.
    open: HashMap<u32, u64>,
    wired: u64,
}

impl Files {
    /// Checks an event of `process` and updates the state; an error is the rule that it breaks.
    pub(super) fn event(&mut self, process: ProcessId, event: &Event) -> Result<(), String> {
        match *event {
            Event::Map { backing: Backing::File { file, file_pages, .. }, .. } => self.lengthen(file, file_pages),
            Event::Open { file, file_pages } => {
                self.lengthen(file, file_pages);
                self.open(process, file, 1);
            }
            Event::Close { file } => {
                self.opened(process, event, file)?;
                self.close(process, file, 1);
            }
            Event::Read { file, start, pages } => {
                self.opened(process, event, file)?;
                let length = self.lengths[&file];
                if end(event, start, pages)? > length {
                    return Err(format!("{event:?} reads past the end, expected one within the file's {length} pages"));
                }
            }
            Event::Write { file, start, pages } => {
                self.opened(process, event, file)?;
                self.lengthen(file, end(event, start, pages)?);
            }
            Event::Sync { file } if !self.lengths.contains_key(&file) => return Err(unknown(event)),
            Event::Remove { file } => {
                if self.open.contains_key(&file) {
                    return Err(format!("{event:?}, expected a file that nobody has open"));
                }
                self.lengths.remove(&file).ok_or_else(|| unknown(event))?;
            }
            Event::Wire { pages } => {
                let sum = self.wired.checked_add(pages);
                self.wired = sum.ok_or_else(|| format!("{event:?} wires more pages in all than a number holds"))?;
            }
            Event::Unwire { pages } => {
                let (left, wired) = (self.wired.checked_sub(pages), self.wired);
                self.wired = left.ok_or_else(|| format!("{event:?}, expected at most the {wired} pages wired"))?;
            }
            Event::Rewrite { start, pages } => drop(end(event, start, pages)?),
            Event::Fork { child } => {
                let of = self.of(process);
                of.into_iter().for_each(|(file, times)| self.open(child, file, times));
            }
            Event::Exit => {
                let of = self.of(process);
                of.into_iter().for_each(|(file, times)| self.close(process, file, times));
            }
            _ => {}
        }
        Ok(())
    }

    fn lengthen(&mut self, file: u32, pages: u64) {
        let length = self.lengths.entry(file).or_default();
        *length = pages.max(*length);
    }

    /// The files that a process has open, each with how many times.
    fn of(&self, process: ProcessId) -> Vec<(u32, u64)> {
        let range = (process, 0)..=(process, u32::MAX);
        self.opens.range(range).map(|((_, file), times)| (*file, *times)).collect()
    }

    fn opened(&self, process: ProcessId, event: &Event, file: u32) -> Result<(), String> {
        let open = self.opens.contains_key(&(process, file));
        if open { Ok(()) } else { Err(format!("{event:?}, expected a file that process {} has open", process.0)) }
    }

    fn open(&mut self, process: ProcessId, file: u32, times: u64) {
        *self.opens.entry((process, file)).or_default() += times;
        *self.open.entry(file).or_default() += times;
    }

    /// Removes `times` opens, which must exist.
    fn close(&mut self, process: ProcessId, file: u32, times: u64) {
        let own = self.opens.get_mut(&(process, file)).expect("a file that the process has open");
        *own -= times;
        if *own == 0 {
            self.opens.remove(&(process, file));
        }
        let all = self.open.get_mut(&file).expect("a file that is open");
        *all -= times;
        if *all == 0 {
            self.open.remove(&file);
        }
    }
}

fn end(event: &Event, start: u64, pages: u64) -> Result<u64, String> {
    start.checked_add(pages).ok_or_else(|| format!("{event:?} ends beyond what a number holds"))
}

fn unknown(event: &Event) -> String {
    format!("{event:?}, expected a file that was opened or mapped before")
}
