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
    /// Time that was earned and not used: what is used then is not charged.
    pub(super) earned: Duration,
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
        let beside = if self.whole { now.saturating_sub(self.mark) } else { Duration::ZERO };
        self.used += beside;
        self.mark = now;
        beside
    }

    /// Ends a unit of work; returns what it used.
    pub(super) fn end(&mut self) -> Duration {
        let now = self.read();
        let used = now.saturating_sub(self.mark);
        let free = used.min(self.earned);
        self.earned -= free;
        self.used += used - free;
        self.mark = now;
        used
    }

    pub(super) fn spent(&self) -> Duration {
        self.used + self.read().saturating_sub(self.mark).saturating_sub(self.earned)
    }
}
