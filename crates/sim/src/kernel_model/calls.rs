//! Which calls go on: a process that waits within a call, as a writer whose pipe is full, enters
//! the kernel once.

use std::collections::BTreeMap;
use superpage_trace::ProcessId;

/// A call that has copied something.
#[derive(Clone, PartialEq, Debug)]
struct Call {
    path: String,
    /// The byte behind what it has copied.
    end: u64,
    /// The instructions of all programs by then.
    instructions: u64,
}

/// The calls that processes are in.
#[derive(Default)]
pub(super) struct Calls {
    /// The last call of the current process.
    last: Option<Call>,
    /// Of processes that were switched from within a call: that call.
    waiting: BTreeMap<ProcessId, Call>,
    /// Where the current process may go on.
    resumed: Option<Call>,
}

impl Calls {
    /// Another process runs, after programs have run `instructions`.
    pub(super) fn switch(&mut self, from: Option<ProcessId>, to: ProcessId, instructions: u64) {
        if let (Some(from), Some(call)) = (from, self.last.take().filter(|call| call.instructions == instructions)) {
            self.waiting.insert(from, call);
        }
        self.resumed = self.waiting.remove(&to).map(|call| Call { instructions, ..call });
    }

    /// A call takes this path and copies these bytes, if any: whether it is another piece of one
    /// that waited.
    pub(super) fn goes_on(&mut self, path: &str, at: u64, bytes: u64, instructions: u64) -> bool {
        let begun = self.resumed.take().filter(|call| call.path == path && call.end == at && bytes > 0);
        self.last = (bytes > 0).then(|| Call { path: path.into(), end: at.saturating_add(bytes), instructions });
        begun.is_some_and(|call| call.instructions == instructions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_within_a_call_goes_on_with_it() {
        let (mut calls, [writer, reader]) = (Calls::default(), [0, 1].map(ProcessId));
        calls.switch(None, writer, 0);
        assert!(!calls.goes_on("pipe-write", 4096, 4096, 10));
        calls.switch(Some(writer), reader, 10);
        assert!(!calls.goes_on("pipe-read", 0, 4096, 10));
        calls.switch(Some(reader), writer, 15);
        assert!(calls.goes_on("pipe-write", 8192, 4096, 15));
        // It has run: this is another call.
        calls.switch(Some(writer), reader, 20);
        calls.switch(Some(reader), writer, 25);
        assert!(!calls.goes_on("pipe-write", 12288, 4096, 25));
        // And so are another path and another buffer.
        for (path, at) in [("write", 16384), ("pipe-write", 4096)] {
            assert!(!calls.goes_on("pipe-write", 12288, 4096, 30));
            calls.switch(Some(writer), reader, 30);
            calls.switch(Some(reader), writer, 31);
            assert!(!calls.goes_on(path, at, 4096, 31));
        }
    }
}
