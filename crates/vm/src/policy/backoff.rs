//! When compaction that has failed is tried again.

/// After this many failures in a row, direct compaction waits no longer for the next try (Linux:
/// `COMPACT_MAX_DEFER_SHIFT`).
const MOST_FAILURES: u32 = 6;

/// Compaction, direct or in a thread, that has failed is put off, as in Linux: for twice as many
/// requests after each failure.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
    skipped: u32,
}

impl Backoff {
    /// Whether this request goes without compaction.
    pub(crate) fn skips(&mut self) -> bool {
        self.skipped += 1;
        let skips = self.failures > 0 && self.skipped < 1 << self.failures;
        self.skipped = if skips { self.skipped } else { 0 };
        skips
    }

    /// A compaction ended, with an extent that is free or without.
    pub(crate) fn ended(&mut self, free: bool) {
        self.failures = if free { 0 } else { (self.failures + 1).min(MOST_FAILURES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn after_failures_fewer_and_fewer_requests_compact() {
        let mut backoff = Backoff::default();
        let mut tried = Vec::new();
        for request in 1..260 {
            if !backoff.skips() {
                tried.push(request);
                backoff.ended(false);
            }
        }
        assert_eq!(tried, [1, 3, 7, 15, 31, 63, 127, 191, 255]);
        backoff.ended(true);
        assert!(!backoff.skips() && !backoff.skips());
    }
}
