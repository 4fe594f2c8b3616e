//! The processor time that promotion is charged.

use std::time::Duration;
use superpage_linux::cpu::{process_cpu, thread_cpu};

/// The CPU time that is charged to the background.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// Whether all of this process counts, and not only the working thread.
    pub(super) whole: bool,
    /// Whether the processes are a command's, whose use earns time.
    pub(super) earns: bool,
    /// Time that was earned and not used yet: what is used of it is not charged.
    pub(super) credit: Duration,
    /// What was charged up to the time of `mark`.
    pub(super) used: Duration,
    pub(super) mark: Duration,
    /// The part of it spent in scans.
    pub(super) scan_time: Duration,
}

impl Clock {
    pub(super) fn read(&self) -> Duration {
        if self.whole { process_cpu(std::process::id() as i32).unwrap_or_default() } else { thread_cpu() }
    }

    /// Begins a unit of work; returns what this process has used otherwise, if all of it counts.
    pub(super) fn begin(&mut self) -> Duration {
        let now = self.read();
        let other = if self.whole { now.saturating_sub(self.mark) } else { Duration::ZERO };
        self.used += other;
        self.mark = now;
        other
    }

    /// Ends a unit of work; returns what it used.
    pub(super) fn end(&mut self) -> Duration {
        let now = self.read();
        let used = now.saturating_sub(self.mark);
        let free = used.min(self.credit);
        self.credit -= free;
        self.used += used - free;
        self.mark = now;
        used
    }

    pub(super) fn spent(&self) -> Duration {
        self.used + self.read().saturating_sub(self.mark).saturating_sub(self.credit)
    }
}
