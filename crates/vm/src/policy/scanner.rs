//! The decision of the policy `promote`: which of the regions that scans found are candidates for
//! promotion, and when.
//!
//! The caller (a kernel thread, the live tool) reports in a sweep how far each region of one
//! address space is populated. A region is a candidate if it is populated at least to a share and
//! is not a superpage. It may be promoted once it is settled: its population has not changed for an
//! age, so that memory that is still growing, or about to be freed, is left alone. Candidates are
//! promoted the most populated first, among equals the most accessed first, then those of the
//! fewest physical pieces, which cost the least to merge.
//!
//! Only candidates have a history: 48 bytes each, in one array in address order. A candidate that a
//! sweep does not report again is forgotten. Times are plain numbers that never decrease, in the
//! caller's unit.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};

/// After this many refusals the wait no longer doubles.
const MOST_DOUBLINGS: u8 = 16;

/// What a sweep reports of one region: an aligned extent of the superpage size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// The number of the region: its address divided by its size.
    pub region: u64,
    /// The number of its base pages that are populated.
    pub populated: u32,
    /// Whether it is a superpage already.
    pub superpage: bool,
}

/// A region that is a candidate for promotion, and what its place among others depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The number of the region: its address divided by its size.
    pub region: u64,
    /// The number of its base pages that are populated.
    pub populated: u32,
    /// How much it was accessed, in any unit, as last reported; 0 if never reported.
    pub accessed: u32,
    /// The number of physically contiguous pieces that it consists of, as last reported; `u32::MAX`
    /// if never reported.
    pub pieces: u32,
    /// The time since which its population has not changed.
    pub since: u64,
    /// With fewer populated pages than this, it is not promoted any more.
    pub least: u32,
}

impl From<Sample> for Candidate {
    /// A region of which nothing more is known.
    fn from(sample: Sample) -> Candidate {
        Candidate {
            region: sample.region,
            populated: sample.populated,
            accessed: 0,
            pieces: u32::MAX,
            since: 0,
            least: 1,
        }
    }
}

impl Candidate {
    /// The order of promotion: the lesser region comes first.
    pub fn order(&self, other: &Candidate) -> Ordering {
        let key = |candidate: &Candidate| {
            (Reverse(candidate.populated), Reverse(candidate.accessed), candidate.pieces, candidate.region)
        };
        key(self).cmp(&key(other))
    }
}

/// What the last sweep found, in regions; each is counted once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Census {
    /// Regions that are superpages already.
    pub superpages: u64,
    /// Regions populated below the share.
    pub sparse: u64,
    /// Regions populated at least to the share, settled or not.
    pub candidates: u64,
}

/// The share of population is not above 0 and at most 1, or regions have no pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a region needs at least one page, and the share of population lies above 0 and is at most 1")]
pub struct ScannerError;

/// What is kept of a candidate: a region populated at least to the share that is not a superpage.
#[derive(Clone, Copy, Debug)]
struct History {
    candidate: Candidate,
    /// It was refused, and may not be promoted before this time.
    after: u64,
    refusals: u8,
}

/// The candidates of one address space, for regions of one size, with their history.
///
/// ```
/// use superpage_vm::{Sample, Scanner};
///
/// let mut scanner = Scanner::new(512, 1.0, 10).unwrap();
/// for now in [0, 5, 12] {
///     let full = Sample { region: 7, populated: 512, superpage: false };
///     scanner.sweep(now, &[full, Sample { region: 8, populated: 511, ..full }]);
/// }
/// assert!(scanner.due(9).is_empty());
/// assert_eq!(scanner.due(12).iter().map(|candidate| candidate.region).collect::<Vec<_>>(), [7]);
/// ```
#[derive(Clone, Debug)]
pub struct Scanner {
    pages: u32,
    least: u32,
    age: u64,
    /// In ascending order of regions.
    candidates: Vec<History>,
    census: Census,
    swept: u64,
}

impl Scanner {
    /// No history, for regions of `pages` base pages, which may be promoted when populated at least
    /// to `share` for `age`.
    ///
    /// # Errors
    /// [`ScannerError`]: the share or the number of pages is out of range.
    pub fn new(pages: u32, share: f64, age: u64) -> Result<Scanner, ScannerError> {
        if pages == 0 || !(share > 0.0 && share <= 1.0) {
            return Err(ScannerError);
        }
        let exact = share * f64::from(pages);
        let whole = exact as u32;
        let least = if f64::from(whole) < exact { whole + 1 } else { whole };
        Ok(Scanner { pages, least, age, candidates: Vec::new(), census: Census::default(), swept: 0 })
    }

    /// The least population of a region that may be promoted, in base pages.
    pub fn least(&self) -> u32 {
        self.least
    }

    /// What the last sweep found.
    pub fn census(&self) -> Census {
        self.census
    }

    /// The number of candidates: regions with a history.
    pub fn candidates(&self) -> usize {
        self.candidates.len()
    }

    /// Takes a sweep, which reports the whole address space at `now`, in ascending order of
    /// regions; those without any page may be left out. Candidates that are not reported are
    /// forgotten. O(candidates and regions reported).
    ///
    /// # Panics
    /// If the regions do not ascend, or one has more pages than a region has.
    pub fn sweep(&mut self, now: u64, samples: &[Sample]) {
        debug_assert!(now >= self.swept, "time never decreases");
        assert!(samples.is_sorted_by(|one, next| one.region < next.region), "regions of a sweep ascend");
        let mut next = Vec::with_capacity(self.candidates.len());
        let mut old = self.candidates.iter().peekable();
        self.census = Census::default();
        for &sample in samples {
            assert!(sample.populated <= self.pages, "a region has {} pages", self.pages);
            if sample.superpage {
                self.census.superpages += 1;
            } else if sample.populated < self.least {
                self.census.sparse += u64::from(sample.populated > 0);
            } else {
                self.census.candidates += 1;
                while old.next_if(|old| old.candidate.region < sample.region).is_some() {}
                let same = |old: &&History| {
                    (old.candidate.region, old.candidate.populated) == (sample.region, sample.populated)
                };
                let fresh = Candidate { since: now, least: self.least, ..sample.into() };
                let fresh = History { candidate: fresh, after: 0, refusals: 0 };
                next.push(*old.peek().copied().filter(same).unwrap_or(&fresh));
            }
        }
        (self.candidates, self.swept) = (next, now);
    }

    /// The candidates to promote at `now`, in order. The populations are those of the last sweep:
    /// if they may have changed since, sweep again. O(candidates), plus a sort of those returned.
    pub fn due(&self, now: u64) -> Vec<Candidate> {
        let ready = self.candidates.iter().filter(|history| self.ready(history) <= now);
        let mut due: Vec<Candidate> = ready.map(|history| history.candidate).collect();
        due.sort_unstable_by(Candidate::order);
        due
    }

    /// The earliest time at which a candidate may be promoted if nothing changes. O(candidates).
    pub fn next_due(&self) -> Option<u64> {
        self.candidates.iter().map(|history| self.ready(history)).min()
    }

    /// Forgets the history of a region that was promoted, or is no longer a candidate. Others are
    /// not affected.
    pub fn forget(&mut self, region: u64) {
        if let Ok(at) = self.find(region) {
            self.candidates.remove(at);
        }
    }

    /// Postpones a region that was refused at `now`: it may be promoted after twice its age, and
    /// after each further refusal twice as long, provided its population does not change.
    pub fn put_off(&mut self, region: u64, now: u64) {
        if let Ok(at) = self.find(region) {
            let history = &mut self.candidates[at];
            history.refusals = (history.refusals + 1).min(MOST_DOUBLINGS);
            history.after = now.saturating_add(self.age.max(1).saturating_mul(1 << history.refusals));
        }
    }

    /// Sets how much a region was accessed and the number of its contiguous pieces, where either is
    /// known.
    pub fn rank(&mut self, region: u64, accessed: Option<u32>, pieces: Option<u32>) {
        if let Ok(at) = self.find(region) {
            let candidate = &mut self.candidates[at].candidate;
            candidate.accessed = accessed.unwrap_or(candidate.accessed);
            candidate.pieces = pieces.unwrap_or(candidate.pieces);
        }
    }

    /// Forgets everything, when the address space is replaced.
    pub fn clear(&mut self) {
        self.candidates.clear();
        self.census = Census::default();
    }

    /// Checks that the history is in order and holds only candidates.
    ///
    /// # Errors
    /// A sentence that says which invariant does not hold.
    pub fn validate(&self) -> Result<(), String> {
        if self.least == 0 || self.least > self.pages {
            return Err(format!("the threshold for a region of {} pages cannot be {}", self.pages, self.least));
        }
        if let Some(pair) = self.candidates.windows(2).find(|pair| pair[0].candidate.region >= pair[1].candidate.region)
        {
            return Err(format!("region {} comes before {}", pair[0].candidate.region, pair[1].candidate.region));
        }
        for &History { candidate: Candidate { region, populated, since, .. }, after, refusals } in &self.candidates {
            if !(self.least..=self.pages).contains(&populated) {
                return Err(format!("region {region} has {populated} pages, not {} to {}", self.least, self.pages));
            }
            if since > self.swept {
                return Err(format!(
                    "region {region} is as it is since {since}, after the last sweep at {}",
                    self.swept
                ));
            }
            if (after != 0) != (refusals != 0) {
                return Err(format!("region {region} was refused {refusals} times and waits until {after}"));
            }
        }
        if self.candidates.len() as u64 > self.census.candidates {
            return Err(format!("{} regions are kept, of {} seen", self.candidates.len(), self.census.candidates));
        }
        Ok(())
    }

    fn ready(&self, history: &History) -> u64 {
        history.candidate.since.saturating_add(self.age).max(history.after)
    }

    fn find(&self, region: u64) -> Result<usize, usize> {
        self.candidates.binary_search_by_key(&region, |history| history.candidate.region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::vec;
    use proptest::prelude::*;

    fn sample(region: u64, populated: u32) -> Sample {
        Sample { region, populated, superpage: false }
    }

    fn sweep(scanner: &mut Scanner, now: u64, samples: &[Sample]) {
        scanner.sweep(now, samples);
        scanner.validate().unwrap();
    }

    fn due(scanner: &Scanner, now: u64) -> Vec<u64> {
        scanner.due(now).iter().map(|candidate| candidate.region).collect()
    }

    #[test]
    fn the_share_rounds_up() {
        let least = |share| Scanner::new(512, share, 0).map(|scanner| scanner.least());
        assert_eq!([least(1.0), least(0.5), least(0.501), least(0.001)], [Ok(512), Ok(256), Ok(257), Ok(1)]);
        for share in [0.0, -1.0, 1.01, f64::NAN] {
            assert_eq!(least(share), Err(ScannerError));
        }
        assert_eq!(Scanner::new(0, 1.0, 0).err(), Some(ScannerError));
    }

    #[test]
    fn a_change_of_population_begins_a_new_age() {
        let mut scanner = Scanner::new(8, 0.5, 10).unwrap();
        sweep(&mut scanner, 0, &[sample(1, 8), sample(2, 5)]);
        sweep(&mut scanner, 6, &[sample(1, 8), sample(2, 6)]);
        assert_eq!((due(&scanner, 9), scanner.next_due()), (vec![], Some(10)));
        assert_eq!(due(&scanner, 10), [1]);
        assert_eq!(due(&scanner, 16), [1, 2]);
        // A region that one sweep did not report starts a new history.
        sweep(&mut scanner, 20, &[sample(2, 6)]);
        sweep(&mut scanner, 21, &[sample(1, 8), sample(2, 6)]);
        assert_eq!(due(&scanner, 21), [2]);
    }

    #[test]
    fn the_order_is_population_then_accesses_then_pieces() {
        let mut scanner = Scanner::new(8, 0.5, 0).unwrap();
        sweep(&mut scanner, 0, &[sample(1, 7), sample(2, 8), sample(3, 8), sample(4, 8), sample(5, 8)]);
        scanner.rank(4, Some(9), None);
        scanner.rank(5, None, Some(3));
        assert_eq!(due(&scanner, 0), [4, 5, 2, 3, 1]);
    }

    #[test]
    fn refusals_wait_longer_each_time_until_something_changes() {
        let mut scanner = Scanner::new(8, 1.0, 10).unwrap();
        sweep(&mut scanner, 0, &[sample(1, 8)]);
        scanner.put_off(1, 10);
        assert_eq!(scanner.next_due(), Some(30));
        scanner.put_off(1, 30);
        assert_eq!(scanner.next_due(), Some(70));
        for _ in 0..40 {
            scanner.put_off(1, 30);
        }
        assert_eq!(scanner.next_due(), Some(30 + (10 << 16)));
        sweep(&mut scanner, 40, &[sample(1, 7)]);
        sweep(&mut scanner, 41, &[sample(1, 8)]);
        assert_eq!(scanner.next_due(), Some(51));
        scanner.forget(1);
        assert_eq!((scanner.next_due(), scanner.candidates()), (None, 0));
    }

    #[test]
    fn a_sweep_counts_superpages_candidates_and_regions_populated_too_little() {
        let mut scanner = Scanner::new(8, 0.5, 0).unwrap();
        let superpage = Sample { superpage: true, ..sample(7, 8) };
        let seen = [sample(1, 0), sample(2, 1), sample(3, 3), sample(4, 4), sample(5, 8), sample(6, 2), superpage];
        sweep(&mut scanner, 0, &seen);
        assert_eq!(scanner.census(), Census { candidates: 2, superpages: 1, sparse: 3 });
    }

    /// The reference: every report of each region, evaluated naively.
    #[derive(Default)]
    struct Naive {
        sweeps: Vec<(u64, BTreeMap<u64, Sample>)>,
        refused: Vec<(usize, u64, u64)>,
        forgotten: Vec<(usize, u64)>,
    }

    impl Naive {
        fn due(&self, now: u64, least: u32, age: u64) -> Vec<u64> {
            let Some((_, last)) = self.sweeps.last() else { return Vec::new() };
            let is = |sample: &Sample| !sample.superpage && sample.populated >= least;
            let mut found: Vec<&Sample> = last.values().filter(|sample| is(sample)).collect();
            found.retain(|sample| {
                if self.forgotten.contains(&(self.sweeps.len(), sample.region)) {
                    return false;
                }
                let unchanged = |at: &usize| {
                    let known = self.sweeps[*at].1.get(&sample.region);
                    known.is_some_and(|known| is(known) && known.populated == sample.populated)
                        && !self.forgotten.contains(&(at + 1, sample.region))
                };
                let first =
                    (0..self.sweeps.len()).rev().take_while(|at| *at + 1 == self.sweeps.len() || unchanged(at)).last();
                let first = first.unwrap();
                let refusals: Vec<u64> = self
                    .refused
                    .iter()
                    .filter(|(sweep, region, _)| *sweep > first && *region == sample.region)
                    .map(|(_, _, when)| *when)
                    .collect();
                let after = refusals.last().map_or(0, |when| when + (age.max(1) << refusals.len()));
                now >= self.sweeps[first].0 + age && now >= after
            });
            found.sort_by_key(|sample| (Reverse(sample.populated), sample.region));
            found.iter().map(|sample| sample.region).collect()
        }
    }

    proptest! {
        #[test]
        fn what_is_due_is_as_in_a_plain_record_of_everything(
            age in 0u64..6,
            share in 0.1f64..=1.0,
            steps in prop::collection::vec(
                (0u64..4, 0u8..4, 0u64..12, prop::collection::btree_map(0u64..12, (0u32..=8, any::<bool>()), 0..12)), 1..40),
        ) {
            let mut scanner = Scanner::new(8, share, age).unwrap();
            let mut naive = Naive::default();
            let mut now = 0;
            for (later, what, region, seen) in steps {
                now += later;
                match what {
                    0 | 1 => {
                        let samples = seen.iter().map(|(region, (populated, superpage))| {
                            Sample { region: *region, populated: *populated, superpage: *superpage && *populated == 8 }
                        });
                        let samples: Vec<Sample> = samples.collect();
                        scanner.sweep(now, &samples);
                        naive.sweeps.push((now, samples.into_iter().map(|sample| (sample.region, sample)).collect()));
                    }
                    2 if !naive.sweeps.is_empty() => {
                        scanner.forget(region);
                        naive.forgotten.push((naive.sweeps.len(), region));
                    }
                    3 if scanner.due(now).iter().any(|candidate| candidate.region == region) => {
                        scanner.put_off(region, now);
                        naive.refused.push((naive.sweeps.len(), region, now));
                    }
                    _ => {}
                }
                scanner.validate().map_err(TestCaseError::fail)?;
                let found = scanner.due(now);
                prop_assert_eq!(found.iter().map(|candidate| candidate.region).collect::<Vec<_>>(), naive.due(now, scanner.least(), age));
                prop_assert!(found.is_empty() || scanner.next_due().is_some_and(|at| at <= now));
            }
        }
    }
}
