//! How many threads the programs of a stream have.

use crate::event::{Event, ProcessId};
use hashbrown::{HashMap, HashSet};

/// The most threads that one program of a stream has had, from its start or `exec` to its end or
/// the next `exec`. A thread counts from its first access on, and also after its end. Cost: nothing
/// for accesses of a thread that goes on.
#[derive(Clone, Debug, Default)]
pub struct Threads {
    programs: HashMap<ProcessId, HashSet<u32>>,
    current: Option<(ProcessId, u32)>,
    /// The process that made the last access.
    last: Option<ProcessId>,
    /// Whether the current one is among those of its program.
    counted: bool,
    most: u64,
    turns: u64,
}

impl Threads {
    /// The current thread makes an access.
    pub fn access(&mut self) {
        if let (false, Some((process, thread))) = (self.counted, self.current) {
            let threads = self.programs.entry(process).or_default();
            threads.insert(thread);
            self.most = self.most.max(threads.len() as u64);
            self.counted = true;
            self.last = Some(process);
        }
    }

    /// An event of the stream.
    pub fn event(&mut self, event: &Event) {
        match *event {
            Event::Switch { process, thread } => {
                // Back to one that has run before, from one that lives on.
                let runs = |process: &ProcessId| self.programs.contains_key(process);
                let back = self.last.is_some_and(|last| last != process && runs(&last)) && runs(&process);
                self.turns += u64::from(back);
                (self.current, self.counted) = (Some((process, thread)), false);
            }
            Event::Exec | Event::Exit => {
                self.current.and_then(|(process, _)| self.programs.remove(&process));
                self.counted = false;
            }
            _ => {}
        }
    }

    /// How often a process went on from where it was, after another that has not ended.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// The number so far.
    pub fn most(&self) -> u64 {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_those_of_one_program_that_have_made_an_access() {
        let switch = |process, thread| Event::Switch { process: ProcessId(process), thread };
        let mut threads = Threads::default();
        let mut go = |event: Event, accesses: bool| {
            threads.event(&event);
            if accesses {
                threads.access();
            }
            threads.most()
        };
        assert_eq!(go(switch(0, 0), true), 1);
        assert_eq!(go(switch(0, 1), false), 1, "none yet");
        assert_eq!(go(switch(1, 2), true), 1, "of another process");
        assert_eq!(go(switch(0, 1), true), 2);
        assert_eq!(go(switch(0, 0), true), 2);
        assert_eq!(go(Event::Exec, true), 2);
        assert_eq!(go(switch(0, 3), true), 2, "those of the program before are gone");
        // How the end of a killed process is recorded.
        assert_eq!((go(switch(0, 4), false), go(Event::Exit, false)), (2, 2));
        assert_eq!((go(switch(0, 5), true), go(switch(0, 6), true), go(switch(0, 7), true)), (2, 2, 3));
    }

    #[test]
    fn processes_take_turns_while_both_live() {
        let mut threads = Threads::default();
        let mut go = |process: u32, ends: bool| {
            threads.event(&Event::Switch { process: ProcessId(process), thread: process });
            threads.access();
            if ends {
                threads.event(&Event::Exit);
            }
            threads.turns()
        };
        // A shell, what it starts, and the shell again when that has ended.
        assert_eq!((go(0, false), go(1, true), go(0, false)), (0, 0, 0));
        // Two that work together.
        assert_eq!((go(2, false), go(0, false), go(2, false), go(2, false)), (0, 1, 2, 2));
    }
}
