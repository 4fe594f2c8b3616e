//! Several traces as one stream: each is a thread, and all have the same memory.

use super::{Record, Records};
use crate::Error;

/// Traces that take turns: of as many records as each reads at a time, some thousand.
pub(super) struct Several {
    /// What is left, each with its number and its thread.
    traces: Vec<Trace>,
    next: usize,
}

struct Trace {
    records: Box<dyn Records>,
    number: u64,
    thread: u64,
}

/// The bits of a thread's number within its own trace.
const THREAD_BITS: u32 = 40;

impl Several {
    pub(super) fn new(traces: Vec<Box<dyn Records>>) -> Several {
        let trace = |(number, records)| Trace { records, number, thread: 0 };
        Several { traces: (0..).zip(traces).map(trace).collect(), next: 0 }
    }
}

impl Records for Several {
    fn read(&mut self, each: &mut dyn FnMut(Record)) -> Result<bool, Error> {
        if self.traces.is_empty() {
            return Ok(false);
        }
        let Trace { records, number, thread } = &mut self.traces[self.next];
        let named = |thread: u64| Record::Thread(*number << THREAD_BITS | thread & ((1 << THREAD_BITS) - 1));
        each(named(*thread));
        let mut accesses = true;
        let more = records.read(&mut |record| match record {
            Record::Thread(next) => {
                *thread = next;
                each(named(next));
            }
            Record::Event(_) | Record::Run(_) => accesses = false,
            record => each(record),
        })?;
        if !accesses {
            let problem = "is a stream with events or runs; only traces of accesses can be threads of one";
            return Err(Error::input(format!("trace {}", *number + 1), problem));
        }
        if more {
            self.next += 1;
        } else {
            self.traces.remove(self.next);
        }
        if self.next >= self.traces.len() {
            self.next = 0;
        }
        Ok(true)
    }
}
