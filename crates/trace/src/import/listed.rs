//! Streams of accesses that are listed in memory.

use super::regions::Touched;
use crate::{Batch, Error, Event, Info, ProcessId, RunBuilder, Source};
use std::ops::Range;
use superpage_pages::Access;

/// Accesses in an array, of which a [`Source`] is made. They are gone through twice: what they
/// touch must be mapped before the first. Takes the memory of the array, and next to none more.
pub struct Listed {
    info: Info,
    addresses: Vec<u64>,
    /// Whether each is a write; empty if all are reads.
    writes: Vec<bool>,
    /// Of each access.
    bytes: u64,
    instructions: u64,
    touched: Touched,
}

impl Listed {
    /// Accesses of a workload with this name, with `lines` for runs of lines: reads, or writes
    /// where `writes` says so, which is empty or as long; each of `bytes` bytes (0 counts as 1), by
    /// the last of so many instructions. Look at all of them ([`Listed::look`]) before
    /// [`Listed::finish`].
    ///
    /// # Panics
    /// The lengths differ.
    pub fn new(
        (name, lines): (&str, bool),
        addresses: Vec<u64>,
        writes: Vec<bool>,
        bytes: u64,
        instructions: u64,
    ) -> Listed {
        assert!(writes.is_empty() || writes.len() == addresses.len(), "as many writes as addresses");
        let info = Info { workload: name.into(), lines, ..Info::default() };
        Listed { info, addresses, writes, bytes, instructions, touched: Touched::default() }
    }

    /// Finds out what these accesses touch, by their places. Cost: some ns each.
    ///
    /// # Panics
    /// There are not as many.
    pub fn look(&mut self, places: Range<usize>) {
        for address in &self.addresses[places] {
            self.touched.access(Access::Read, *address, self.bytes);
        }
    }

    /// The stream: a mapping of each region of touched pages, as for an imported trace, and then
    /// the accesses.
    ///
    /// # Errors
    /// There are none.
    pub fn finish(self) -> Result<Box<dyn Source>, Error> {
        if self.touched.is_empty() {
            return Err(Error::input(self.info.workload, "has no access"));
        }
        let builder = if self.info.lines { RunBuilder::of_lines() } else { RunBuilder::new() };
        Ok(Box::new(Stream { listed: self, builder, next: None }))
    }
}

struct Stream {
    listed: Listed,
    builder: RunBuilder,
    /// The place of the next access; `None` if the mappings come next.
    next: Option<usize>,
}

impl Source for Stream {
    fn info(&self) -> &Info {
        &self.listed.info
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        let Stream { listed: Listed { addresses, writes, bytes, instructions, touched, .. }, builder, next } = self;
        batch.clear();
        let Some(next) = next else {
            batch.event(Event::Switch { process: ProcessId(0), thread: 0 });
            touched.events("list of accesses").into_iter().for_each(|event| batch.event(event));
            *next = Some(0);
            return Ok(true);
        };
        while *next < addresses.len() && batch.runs.len() < Batch::RUNS {
            builder.instructions(*instructions);
            if writes.get(*next).copied().unwrap_or(false) {
                builder.write(batch, addresses[*next], *bytes);
            } else {
                builder.read(batch, addresses[*next], *bytes);
            }
            *next += 1;
        }
        builder.close(batch);
        Ok(!batch.runs.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::Collected;

    /// The events and runs of a source.
    fn all(mut source: Box<dyn Source>) -> (Vec<String>, Vec<crate::Run>) {
        let (mut events, mut runs, mut batch) = (Vec::new(), Vec::new(), Batch::default());
        while source.fill(&mut batch).unwrap() {
            events.extend(batch.events.iter().map(|(_, event)| format!("{event:?}")));
            runs.extend_from_slice(&batch.runs);
        }
        (events, runs)
    }

    #[test]
    fn a_list_is_the_stream_that_the_same_accesses_are_one_by_one() {
        let count = 3 * Batch::RUNS as u64;
        let addresses: Vec<u64> = (0..count).map(|at| (at * 0x9e37_79b9 % 5000) << 10).collect();
        let writes: Vec<bool> = (0..count).map(|at| at % 7 < 3).collect();
        for lines in [false, true] {
            for writes in [writes.clone(), Vec::new()] {
                let mut collected = Collected::new("some", lines).unwrap();
                for (at, address) in addresses.iter().enumerate() {
                    let access = if writes.get(at) == Some(&true) { Access::Write } else { Access::Read };
                    collected.push(access, *address, 12, 3).unwrap();
                }
                let mut listed = Listed::new(("some", lines), addresses.clone(), writes, 12, 3);
                listed.look(0..100);
                listed.look(100..addresses.len());
                assert!(all(listed.finish().unwrap()) == all(collected.finish().unwrap()), "lines: {lines}");
            }
        }
    }

    #[test]
    fn no_access_is_refused() {
        let error = Listed::new(("none", false), Vec::new(), Vec::new(), 8, 1).finish().err().unwrap();
        assert!(error.to_string().contains("none: has no access"), "{error}");
    }
}
