//! Builds runs from single accesses, by the rules of [`Run`].

use crate::event::{Batch, Event, Run, TRACE_PAGE_SHIFT};
use superpage_pages::Access;

/// No page: page numbers have at most 52 bits.
const NONE: u64 = u64::MAX;

/// A run that is still growing. Its place in the batch is reserved; its counts are written there when it is closed.
#[derive(Clone, Copy, Debug)]
struct Open {
    page: u64,
    references: u32,
    instructions: u32,
    index: usize,
}

impl Open {
    const CLOSED: Open = Open { page: NONE, references: 0, instructions: 0, index: 0 };

    #[inline]
    fn close(&mut self, batch: &mut Batch) {
        if self.page != NONE {
            let run = &mut batch.runs[self.index];
            run.references = self.references;
            run.instructions = self.instructions;
            self.page = NONE;
        }
    }
}

/// Builds runs from accesses in program order.
///
/// Data accesses and instruction fetches are two streams. Of the first, at most a run of loads and one of stores are
/// open, on one page; of the second, one run. An access that crosses pages counts on each of them. The counts of an
/// open run reach the batch only when it is closed: before a batch is passed on, [`RunBuilder::close`] must be called,
/// which ends all runs early. That is harmless: the first access of the second half goes to the page that its stream
/// used last.
///
/// In a stream with fetches data runs have 0 instructions. In one without, each data run gets the instructions since
/// the previous one, as counted by [`RunBuilder::instructions`].
///
/// ```
/// use superpage_trace::{Batch, RunBuilder};
/// let (mut builder, mut batch) = (RunBuilder::new(), Batch::default());
/// builder.read(&mut batch, 0x1000, 8);
/// builder.read(&mut batch, 0x1ffc, 8); // crosses into page 2
/// builder.write(&mut batch, 0x2000, 1);
/// builder.read(&mut batch, 0x2100, 4);
/// builder.close(&mut batch);
/// let runs: Vec<_> = batch.runs.iter().map(|run| (run.page(), run.access(), run.references)).collect();
/// use superpage_pages::Access::{Read, Write};
/// assert_eq!(runs, [(1, Read, 2), (2, Read, 1), (2, Write, 1), (2, Read, 1)]);
/// ```
#[derive(Clone, Debug)]
pub struct RunBuilder {
    /// The loads and the stores of one page.
    data: [Open; 2],
    fetch: Open,
    /// Instructions passed since the last data run was opened.
    passed: u64,
}

impl Default for RunBuilder {
    fn default() -> RunBuilder {
        RunBuilder::new()
    }
}

impl RunBuilder {
    /// A builder with no open run.
    pub const fn new() -> RunBuilder {
        RunBuilder { data: [Open::CLOSED; 2], fetch: Open::CLOSED, passed: 0 }
    }

    /// A load of `bytes` bytes (0 counts as 1) from `address`. Costs a few instructions if the page stays the same.
    #[inline]
    pub fn read(&mut self, batch: &mut Batch, address: u64, bytes: u64) {
        self.data_access(batch, address, bytes, false);
    }

    /// A store of `bytes` bytes (0 counts as 1) to `address`. Costs a few instructions if the page stays the same.
    #[inline]
    pub fn write(&mut self, batch: &mut Batch, address: u64, bytes: u64) {
        self.data_access(batch, address, bytes, true);
    }

    /// The fetch of one instruction of `bytes` bytes at `address`. If it crosses into another page it is a reference to
    /// both and an instruction of the first.
    #[inline]
    pub fn fetch(&mut self, batch: &mut Batch, address: u64, bytes: u64) {
        let (first, last) = pages(address, bytes);
        self.fetch_page(batch, first, 1);
        for page in first + 1..=last {
            self.fetch_page(batch, page, 0);
        }
    }

    /// Counts `count` instructions in a stream without fetches. They go to the next data run or, if
    /// none follows in the batch, to the last.
    #[inline]
    pub fn instructions(&mut self, count: u64) {
        self.passed += count;
    }

    /// Ends the open runs and adds an event after them.
    pub fn event(&mut self, batch: &mut Batch, event: Event) {
        self.close(batch);
        batch.event(event);
    }

    /// Ends the open runs, so that `batch` is complete. Call it before a batch is passed on.
    pub fn close(&mut self, batch: &mut Batch) {
        let open = self.data.iter_mut().filter(|run| run.page != NONE);
        if let Some(last) = open.max_by_key(|run| run.index) {
            let room = u64::from(u32::MAX - last.instructions);
            let taken = self.passed.min(room);
            last.instructions += taken as u32;
            self.passed -= taken;
        }
        self.data.iter_mut().for_each(|run| run.close(batch));
        self.fetch.close(batch);
    }

    #[inline]
    fn data_access(&mut self, batch: &mut Batch, address: u64, bytes: u64, write: bool) {
        let (first, last) = pages(address, bytes);
        self.data_page(batch, first, write);
        for page in first + 1..=last {
            self.data_page(batch, page, write);
        }
    }

    #[inline]
    fn data_page(&mut self, batch: &mut Batch, page: u64, write: bool) {
        let run = &mut self.data[usize::from(write)];
        if run.page == page && run.references < u32::MAX {
            run.references += 1;
        } else {
            self.open_data(batch, page, write);
        }
    }

    #[inline(never)]
    fn open_data(&mut self, batch: &mut Batch, page: u64, write: bool) {
        let [run, other] = [usize::from(write), usize::from(!write)];
        self.data[run].close(batch);
        // The first store may trap and change what is mapped, so loads after it begin anew.
        if write || self.data[other].page != page {
            self.data[other].close(batch);
        }
        let instructions = self.passed.min(u64::from(u32::MAX)) as u32;
        self.passed -= u64::from(instructions);
        self.data[run] = Open { page, references: 1, instructions, index: batch.runs.len() };
        batch.run(Run::new(page, if write { Access::Write } else { Access::Read }, 1, instructions));
    }

    #[inline]
    fn fetch_page(&mut self, batch: &mut Batch, page: u64, instructions: u32) {
        let fetch = &mut self.fetch;
        if fetch.page == page && fetch.references < u32::MAX {
            fetch.references += 1;
            fetch.instructions += instructions;
        } else {
            self.open_fetch(batch, page, instructions);
        }
    }

    #[inline(never)]
    fn open_fetch(&mut self, batch: &mut Batch, page: u64, instructions: u32) {
        self.fetch.close(batch);
        self.fetch = Open { page, references: 1, instructions, index: batch.runs.len() };
        batch.run(Run::new(page, Access::Execute, 1, instructions));
    }
}

/// The first and the last page of an access; an access that would wrap around the address space is cut at its end.
#[inline]
fn pages(address: u64, bytes: u64) -> (u64, u64) {
    let end = address.saturating_add(bytes.saturating_sub(1));
    (address >> TRACE_PAGE_SHIFT, end >> TRACE_PAGE_SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The rules again, stated as plainly as possible: (page, kind, references, instructions) of each run.
    fn brute_force(accesses: &[(Access, u64, u64)]) -> Vec<(u64, Access, u32, u32)> {
        let mut runs: Vec<(u64, Access, u32, u32)> = Vec::new();
        // By kind, the run that is open.
        let mut open: [Option<usize>; 3] = [None; 3];
        for &(access, address, bytes) in accesses {
            let last = (address + bytes.max(1) - 1) / 4096;
            for page in address / 4096..=last {
                let instruction = u32::from(access == Access::Execute && page == address / 4096);
                let stream = if access == Access::Execute { 2..3 } else { 0..2 };
                for left in &mut open[stream] {
                    left.take_if(|index| runs[*index].0 != page);
                }
                if access == Access::Write && open[1].is_none() {
                    open[0] = None;
                }
                match open[access as usize].map(|index| &mut runs[index]) {
                    Some(run) => {
                        run.2 += 1;
                        run.3 += instruction;
                    }
                    None => {
                        open[access as usize] = Some(runs.len());
                        runs.push((page, access, 1, instruction));
                    }
                }
            }
        }
        runs
    }

    fn drive(accesses: &[(Access, u64, u64)]) -> Batch {
        let (mut builder, mut batch) = (RunBuilder::new(), Batch::default());
        for &(access, address, bytes) in accesses {
            match access {
                Access::Read => builder.read(&mut batch, address, bytes),
                Access::Write => builder.write(&mut batch, address, bytes),
                Access::Execute => builder.fetch(&mut batch, address, bytes),
            }
        }
        builder.close(&mut batch);
        batch
    }

    fn accesses() -> impl Strategy<Value = Vec<(Access, u64, u64)>> {
        let access = prop_oneof![Just(Access::Read), Just(Access::Write), Just(Access::Execute)];
        prop::collection::vec((access, 0u64..0x5000, 0u64..40), 0..200)
    }

    proptest! {
        #[test]
        fn agrees_with_the_rules(accesses in accesses()) {
            let batch = drive(&accesses);
            let runs: Vec<_> =
                batch.runs.iter().map(|r| (r.page(), r.access(), r.references, r.instructions)).collect();
            prop_assert_eq!(runs, brute_force(&accesses));
        }
    }

    #[test]
    fn a_page_has_a_run_of_stores_and_one_of_loads_while_data_stay_on_it() {
        let (read, write) = (Access::Read, Access::Write);
        let batch = drive(&[(write, 0, 4), (read, 8, 4), (write, 16, 4), (read, 24, 4), (read, 4096, 4)]);
        let expected = [(0, write, 2), (0, read, 2), (1, read, 1)];
        assert_eq!(batch.runs, expected.map(|(page, access, references)| Run::new(page, access, references, 0)));
        let batch = drive(&[(read, 0, 4), (read, 8, 4), (write, 16, 4), (read, 24, 4), (write, 0, 1), (read, 0, 1)]);
        let expected = [(0, read, 2), (0, write, 2), (0, read, 2)];
        assert_eq!(batch.runs, expected.map(|(page, access, references)| Run::new(page, access, references, 0)));
    }

    #[test]
    fn instructions_go_to_the_next_run_and_the_rest_to_the_last() {
        let (mut builder, mut batch) = (RunBuilder::new(), Batch::default());
        builder.instructions(5);
        builder.read(&mut batch, 0, 1);
        builder.instructions(2);
        builder.read(&mut batch, 0x1000, 1);
        builder.instructions(3);
        builder.event(&mut batch, Event::Exit);
        assert_eq!(batch.runs, [Run::new(0, Access::Read, 1, 5), Run::new(1, Access::Read, 1, 5)]);
        assert_eq!(batch.events, [(2, Event::Exit)]);
    }

    #[test]
    fn the_end_of_the_address_space_is_no_overflow() {
        let batch = drive(&[(Access::Read, u64::MAX - 1, 64)]);
        assert_eq!(batch.runs, [Run::new(u64::MAX >> 12, Access::Read, 1, 0)]);
    }

    #[test]
    fn an_event_ends_runs() {
        let (mut builder, mut batch) = (RunBuilder::new(), Batch::default());
        builder.fetch(&mut batch, 0x5000, 4);
        builder.read(&mut batch, 0, 1);
        builder.event(&mut batch, Event::Exec);
        builder.read(&mut batch, 0, 1);
        builder.fetch(&mut batch, 0x5004, 4);
        builder.close(&mut batch);
        assert_eq!(batch.events, [(2, Event::Exec)]);
        let pages: Vec<_> = batch.runs.iter().map(|run| run.page()).collect();
        assert_eq!(pages, [5, 0, 0, 5]);
    }
}
