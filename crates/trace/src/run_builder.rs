//! Builds runs from single accesses, by the rules of [`Run`].

use crate::event::{Batch, Event, Run, TRACE_LINE_SHIFT, TRACE_PAGE_SHIFT};
use superpage_pages::Access;

/// Neither page nor line: their numbers have at most 58 bits.
const NONE: u64 = u64::MAX;

/// A run that is still growing. Its place in the batch is reserved; its counts are written there
/// when it is closed.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// The number of its page or line.
    unit: u64,
    references: u32,
    instructions: u32,
    index: usize,
}

impl Open {
    const CLOSED: Open = Open { unit: NONE, references: 0, instructions: 0, index: 0 };

    #[inline]
    fn close(&mut self, batch: &mut Batch) {
        if self.unit != NONE {
            let run = &mut batch.runs[self.index];
            run.references = self.references;
            run.instructions = self.instructions;
            self.unit = NONE;
        }
    }
}

/// Builds runs from accesses in program order: of pages or, after [`RunBuilder::of_lines`], of
/// lines, for which all that follows is the same.
///
/// Data accesses and instruction fetches are two streams. Of the first, at most a run of loads and
/// one of stores are open, on one page; of the second, one run. An access that crosses pages counts
/// on each of them. The counts of an open run reach the batch only when it is closed: before a
/// batch is passed on, [`RunBuilder::close`] must be called, which ends all runs early. That is
/// harmless: the first access of the second half goes to the page that its stream used last.
///
/// In a stream with fetches data runs have 0 instructions. In one without, each data run gets the
/// instructions since the previous one, as counted by [`RunBuilder::instructions`].
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
    /// The bits of a byte's place in a page or line.
    shift: u32,
}

impl Default for RunBuilder {
    fn default() -> RunBuilder {
        RunBuilder::new()
    }
}

impl RunBuilder {
    /// A builder with no open run.
    pub const fn new() -> RunBuilder {
        RunBuilder { data: [Open::CLOSED; 2], fetch: Open::CLOSED, passed: 0, shift: TRACE_PAGE_SHIFT }
    }

    /// A builder of runs of lines.
    pub const fn of_lines() -> RunBuilder {
        RunBuilder { shift: TRACE_LINE_SHIFT, ..RunBuilder::new() }
    }

    /// The first and the last page or line of an access; an access that would wrap around the
    /// address space is cut at its end.
    #[inline]
    fn units(&self, address: u64, bytes: u64) -> (u64, u64) {
        let end = address.saturating_add(bytes.saturating_sub(1));
        (address >> self.shift, end >> self.shift)
    }

    #[inline]
    fn run(&self, unit: u64, access: Access, references: u32, instructions: u32) -> Run {
        Run::on_line(unit << (self.shift - TRACE_LINE_SHIFT), access, references, instructions)
    }

    /// A load of `bytes` bytes (0 counts as 1) from `address`. Costs a few instructions if the page
    /// stays the same.
    #[inline]
    pub fn read(&mut self, batch: &mut Batch, address: u64, bytes: u64) {
        self.data_access(batch, address, bytes, false);
    }

    /// A store of `bytes` bytes (0 counts as 1) to `address`. Costs a few instructions if the page
    /// stays the same.
    #[inline]
    pub fn write(&mut self, batch: &mut Batch, address: u64, bytes: u64) {
        self.data_access(batch, address, bytes, true);
    }

    /// The fetch of one instruction of `bytes` bytes at `address`. If it crosses into another page
    /// it is a reference to both and an instruction of the first.
    #[inline]
    pub fn fetch(&mut self, batch: &mut Batch, address: u64, bytes: u64) {
        let (first, last) = self.units(address, bytes);
        self.fetch_unit(batch, first, 1);
        for unit in first + 1..=last {
            self.fetch_unit(batch, unit, 0);
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
        let open = self.data.iter_mut().filter(|run| run.unit != NONE);
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
        let (first, last) = self.units(address, bytes);
        self.data_unit(batch, first, write);
        for unit in first + 1..=last {
            self.data_unit(batch, unit, write);
        }
    }

    #[inline]
    fn data_unit(&mut self, batch: &mut Batch, unit: u64, write: bool) {
        let run = &mut self.data[usize::from(write)];
        if run.unit == unit && run.references < u32::MAX {
            run.references += 1;
        } else {
            self.open_data(batch, unit, write);
        }
    }

    #[inline(never)]
    fn open_data(&mut self, batch: &mut Batch, unit: u64, write: bool) {
        let [run, other] = [usize::from(write), usize::from(!write)];
        self.data[run].close(batch);
        // The first store may trap and change what is mapped, so loads after it begin a run.
        if write || self.data[other].unit != unit {
            self.data[other].close(batch);
        }
        let instructions = self.passed.min(u64::from(u32::MAX)) as u32;
        self.passed -= u64::from(instructions);
        self.data[run] = Open { unit, references: 1, instructions, index: batch.runs.len() };
        batch.run(self.run(unit, if write { Access::Write } else { Access::Read }, 1, instructions));
    }

    #[inline]
    fn fetch_unit(&mut self, batch: &mut Batch, unit: u64, instructions: u32) {
        let fetch = &mut self.fetch;
        if fetch.unit == unit && fetch.references < u32::MAX {
            fetch.references += 1;
            fetch.instructions += instructions;
        } else {
            self.open_fetch(batch, unit, instructions);
        }
    }

    #[inline(never)]
    fn open_fetch(&mut self, batch: &mut Batch, unit: u64, instructions: u32) {
        self.fetch.close(batch);
        self.fetch = Open { unit, references: 1, instructions, index: batch.runs.len() };
        batch.run(self.run(unit, Access::Execute, 1, instructions));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The rules again, stated as plainly as possible: (page, kind, references, instructions) of
    /// each run.
    fn brute_force(accesses: &[(Access, u64, u64)], bytes_of: u64) -> Vec<(u64, Access, u32, u32)> {
        let mut runs: Vec<(u64, Access, u32, u32)> = Vec::new();
        // By kind, the run that is open.
        let mut open: [Option<usize>; 3] = [None; 3];
        for &(access, address, bytes) in accesses {
            let last = (address + bytes.max(1) - 1) / bytes_of;
            for page in address / bytes_of..=last {
                let instruction = u32::from(access == Access::Execute && page == address / bytes_of);
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
        drive_with(RunBuilder::new(), accesses)
    }

    fn drive_with(mut builder: RunBuilder, accesses: &[(Access, u64, u64)]) -> Batch {
        let mut batch = Batch::default();
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
            prop_assert_eq!(runs, brute_force(&accesses, 4096));
            let batch = drive_with(RunBuilder::of_lines(), &accesses);
            let runs: Vec<_> =
                batch.runs.iter().map(|r| (r.line(), r.access(), r.references, r.instructions)).collect();
            prop_assert_eq!(runs, brute_force(&accesses, 64));
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
