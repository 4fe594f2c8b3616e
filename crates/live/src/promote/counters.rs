//! The counters of a promoter.

use super::pace::SHORTEST_PAUSE;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Sums since the promoter began; those marked *now* are of the last scan.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Counters {
    /// Bytes in a region.
    pub region_bytes: u64,
    /// Regions that became huge pages.
    pub promoted_regions: u64,
    /// Bytes by which promotion may have grown resident memory: pages of those regions that were
    /// not populated.
    pub grown_bytes: u64,
    /// Attempts that the kernel refused, or that were not made of memory that its program has given
    /// back, by the reason's name.
    pub refused: BTreeMap<&'static str, u64>,
    /// Regions left alone at the last check because their population had changed.
    pub changed: u64,
    /// Regions left alone at the last check because others share their pages.
    pub shared: u64,
    /// Regions left alone at the last check because too little memory would have been left to the
    /// programs.
    pub no_room: u64,
    /// Calls of [`collapse`](superpage_linux::collapse::collapse).
    pub calls: u64,
    /// Checks of a process that found it unchanged, without a scan.
    pub quiet_scans: u64,
    /// Scans of a process.
    pub scans: u64,
    /// Batches after which the process was left alone for 0.1 s or more because the batch had
    /// slowed it.
    pub backoffs: u64,
    /// The pauses after batches that slowed a process, shorter ones too.
    pub paused: Duration,
    /// For how long promotion waited, by reason: `cpu`, `slowdown`, `pressure`, `headroom`,
    /// `no_huge_page`. Each is at most the time that has passed; several may pass at once.
    pub waited: BTreeMap<&'static str, Duration>,
    /// Times that no free huge page was available.
    pub memory_backoffs: u64,
    /// Times that promotion waited because tasks waited for memory.
    pub pressure_backoffs: u64,
    /// Resident bytes in which nothing is promoted, now, by the reason's name
    /// ([`Why::name`](superpage_linux::why::Why::name)).
    pub left: BTreeMap<&'static str, u64>,
    /// Processes that are watched, now.
    pub watched: u64,
    /// Processes that are left alone, now, by the reason's name.
    pub excluded: BTreeMap<&'static str, u64>,
    /// Regions of watched processes that are huge, now.
    pub huge_regions: u64,
    /// Regions of watched processes that are populated to the share and not huge, and that no check
    /// has refused, now.
    pub candidate_regions: u64,
    /// Such regions that are left alone since others share their pages, or the program has given
    /// pages back, now, by the reason's name.
    pub kept_regions: BTreeMap<&'static str, u64>,
    /// Regions of watched processes that are populated below the share, now.
    pub sparse_regions: u64,
    /// CPU time of the promoter's thread in total.
    pub cpu: Duration,
    /// The part of it spent in checks and scans.
    pub scan_cpu: Duration,
    /// The part of it spent in promotions.
    pub promote_cpu: Duration,
    /// The part of that in calls of the kernel that made huge pages.
    pub collapse_cpu: Duration,
    /// The time for which the promoter has run.
    pub elapsed: Duration,
}

impl Counters {
    /// Bytes that became huge pages.
    pub fn promoted_bytes(&self) -> u64 {
        self.promoted_regions * self.region_bytes
    }

    /// The processor time that the kernel took to promote a region in the mean; `None` if none was
    /// promoted.
    pub fn region_cost(&self) -> Option<Duration> {
        u32::try_from(self.promoted_regions)
            .ok()
            .filter(|regions| *regions > 0)
            .map(|regions| self.collapse_cpu / regions)
    }

    /// The share of one core that was used; 0 before any time has passed.
    pub(crate) fn cpu_share(&self) -> f64 {
        let elapsed = self.elapsed.as_secs_f64();
        if elapsed > 0.0 { self.cpu.as_secs_f64() / elapsed } else { 0.0 }
    }

    /// Counts the pause of a process after a batch.
    pub(super) fn back_off(&mut self, pause: Duration) {
        self.backoffs += u64::from(pause >= SHORTEST_PAUSE);
        self.paused += pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_to_nothing_is_no_cost_of_a_region() {
        let [promote_cpu, collapse_cpu] = [3600, 1].map(Duration::from_secs);
        let counters = Counters { promoted_regions: 2, promote_cpu, collapse_cpu, ..Counters::default() };
        assert_eq!(counters.region_cost(), Some(Duration::from_millis(500)));
    }

    #[test]
    fn a_pause_of_microseconds_is_no_decision() {
        let mut counters = Counters::default();
        [3, 99_999, 100_000].map(Duration::from_micros).into_iter().for_each(|pause| counters.back_off(pause));
        assert_eq!((counters.backoffs, counters.paused), (1, Duration::from_micros(200_002)));
    }
}
