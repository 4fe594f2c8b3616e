//! The strata of a sample: threads that are estimated together.
//!
//! The windows of a thread are drawn apart from those of all others, one in each of its periods. So
//! each thread is a stratum with a ratio of its own, and how threads differ is no error (Cochran,
//! Sampling Techniques, 3rd edition, section 6.10, the separate ratio estimate). From few windows
//! such a ratio is biased, so threads with few are one stratum together (section 6.11). There it
//! also varies which of them have a window at all: see [`Stratum::neighbours`].

use super::{WeightedSum, WindowSums};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The fewest windows of a stratum, if there are as many.
const LEAST_WINDOWS: u64 = 10;

/// Threads that are estimated together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Stratum {
    /// Their numbers.
    pub(super) threads: Vec<u32>,
    /// The sum of their windows.
    pub(super) measured: WeightedSum,
    /// Their share of all accesses, without the windows that were measured completely.
    pub(super) share: f64,
    /// How many windows each thread has.
    pub(super) windows: Vec<usize>,
}

impl Stratum {
    /// The strata of threads with these windows, and these accesses in all.
    pub(super) fn of(sums: &BTreeMap<u32, WindowSums>, accesses: &BTreeMap<u32, u64>) -> Vec<Stratum> {
        let sums_of = |thread: &u32| sums.get(thread).copied().unwrap_or_default();
        let unknown = |thread: &u32| accesses[thread].saturating_sub(sums_of(thread).known.accesses) as f64;
        let all: f64 = accesses.keys().map(unknown).sum();
        let mut threads: Vec<u32> = accesses.keys().copied().collect();
        threads.sort_by_key(|thread| sums_of(thread).others);
        let (mut strata, mut windows): (Vec<Stratum>, u64) = (Vec::new(), LEAST_WINDOWS);
        for thread in threads {
            let sum = sums_of(&thread);
            if windows >= LEAST_WINDOWS && (strata.is_empty() || sum.others >= LEAST_WINDOWS) {
                strata.push(Stratum::default());
                windows = 0;
            }
            let Some(stratum) = strata.last_mut() else { continue };
            windows += sum.others;
            stratum.threads.push(thread);
            stratum.windows.push(sum.others as usize);
            stratum.measured = stratum.measured.plus(&sum.measured);
            stratum.share += if all > 0.0 { unknown(&thread) / all } else { 1.0 };
        }
        strata
    }

    /// Pairs of which half the squared differences, summed, are the variance of the sum of what
    /// windows say, given what each says, by thread, and what all say on average. Of one thread
    /// these are neighbours, as each period has a window. Where there are several, each of them
    /// also begins and ends somewhere in a period, and may miss the window there: before its first
    /// and after its last window is one that says what all do.
    pub(super) fn neighbours(&self, said: &[f64], average: f64) -> Vec<f64> {
        let mut line = Vec::new();
        let mut rest = said;
        for windows in &self.windows {
            let (own, others) = rest.split_at(*windows);
            rest = others;
            if self.threads.len() > 1 && !own.is_empty() {
                line.extend([&[average], own].concat());
            } else {
                line.extend(own);
            }
        }
        line.extend((self.threads.len() > 1).then_some(average));
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::WindowCounts;

    /// Threads with so many windows of 10 accesses, and accesses.
    fn strata(threads: &[(u32, u64, u64)]) -> Vec<Stratum> {
        let sums = |windows: u64| WindowSums {
            measured: WeightedSum { accesses: 10.0 * windows as f64, ..WeightedSum::default() },
            known: WindowCounts { accesses: 5, ..WindowCounts::default() },
            others: windows,
        };
        let windows = threads.iter().filter(|(_, windows, _)| *windows > 0);
        let sums = windows.map(|(thread, windows, _)| (*thread, sums(*windows))).collect();
        Stratum::of(&sums, &threads.iter().map(|(thread, _, accesses)| (*thread, *accesses)).collect())
    }

    #[test]
    fn a_thread_of_many_windows_is_a_stratum_and_those_of_few_are_one() {
        let threads = |strata: Vec<Stratum>| strata.into_iter().map(|one| one.threads).collect::<Vec<_>>();
        assert_eq!(threads(strata(&[(0, 50, 505)])), [[0]]);
        assert_eq!(
            threads(strata(&[(0, 2, 25), (1, 50, 505), (2, 9, 105), (3, 10, 105)])),
            [vec![0, 2], vec![3], vec![1]]
        );
        // With too few even together, the next one is with them; one without windows too.
        assert_eq!(threads(strata(&[(0, 2, 25), (1, 50, 505), (2, 0, 45), (3, 40, 105)])), [vec![2, 0, 3], vec![1]]);
        assert_eq!(threads(strata(&[(0, 2, 25), (1, 3, 505)])), [[0, 1]]);
        assert!(strata(&[]).is_empty());
        let two = strata(&[(0, 20, 205), (1, 30, 605)]);
        let of = |one: &Stratum| (one.share, one.measured.accesses, one.windows.clone());
        assert_eq!(two.iter().map(of).collect::<Vec<_>>(), [(0.25, 200.0, vec![20]), (0.75, 300.0, vec![30])]);
    }

    #[test]
    fn neighbours_are_those_of_one_thread_and_before_and_after_threads_of_few_is_the_average() {
        let one = Stratum { threads: vec![4], windows: vec![3], ..Stratum::default() };
        assert_eq!(one.neighbours(&[1.0, 2.0, 6.0], 3.0), [1.0, 2.0, 6.0]);
        let some = Stratum { threads: vec![4, 5, 6], windows: vec![2, 0, 1], ..Stratum::default() };
        assert_eq!(some.neighbours(&[1.0, 2.0, 6.0], 3.0), [3.0, 1.0, 2.0, 3.0, 6.0, 3.0]);
    }
}
