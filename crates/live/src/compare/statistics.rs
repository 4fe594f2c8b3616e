//! What rounds of runs show about the difference between two policies.
//!
//! In each round every policy runs once, in a random order. If a policy does nothing, its time and
//! the reference's in a round could be exchanged, whatever the noise and however the machine drifts
//! from round to round: the logarithm of their ratio is then symmetric about zero, which is the
//! only assumption of Wilcoxon's signed-rank statistic. The ratio is estimated by the median of the
//! means of all pairs of rounds (Hodges and Lehmann); its interval comes from the exact
//! distribution of that statistic, so it is valid for any noise, even with heavy tails.

use serde::ser::{Serialize, SerializeStruct, Serializer};
use superpage_pages::Random;

/// The least difference that counts, as a share: for less nobody changes a service, and an
/// interval that ends so near to 1 would contain it in the next call. So equal policies, of which
/// an interval of [`LEVEL`] may exclude 1 in one of twenty calls, are found different in fewer.
pub(crate) const LEAST: f64 = 0.005;

/// The joint confidence level of the intervals of all policies that are compared.
pub const LEVEL: f64 = 0.95;

/// The order in which `of` policies run in a round: a random one, the same for the same seed and
/// round. The statistics require that orders are independent, even between adjacent seeds such as
/// 1, 2 and 3.
pub fn order(seed: u64, round: u64, of: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..of).collect();
    fastrand::Rng::with_seed(Random::new(Random::new(seed).next().wrapping_add(round)).next()).shuffle(&mut order);
    order
}

/// The median, mean, standard deviation and range of some values.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Spread {
    /// The middle value, or the mean of the two in the middle.
    pub median: f64,
    /// The mean.
    pub mean: f64,
    /// The standard deviation of the sample; `None` for a single value.
    pub stddev: Option<f64>,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// The spread of `values`; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Spread> {
        if values.is_empty() {
            return None;
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Some(Spread {
            median: median(values),
            mean,
            stddev: (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt()),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

/// The middle of these values, of which there is one at least.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { (sorted[half - 1] + sorted[half]) / 2.0 }
}

/// The 95 % interval of the median of all such values, whatever their distribution: from the `k`-th
/// value to the `k`-th from the end, with the greatest `k` for which the probability that fewer
/// than `k` lie on one side is low enough. `None` for fewer than six values.
pub(crate) fn median_interval(values: &[f64]) -> Option<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    // The chance that just `below` of them lie below the median, by its logarithm, since it may be
    // tiny.
    let (mut chance, mut sum, mut cut) = (-(count as f64) * std::f64::consts::LN_2, 0.0, 0);
    for below in 0..count / 2 {
        sum += chance.exp();
        if 2.0 * sum > 1.0 - LEVEL {
            break;
        }
        cut = below + 1;
        chance += ((count - below) as f64 / (below + 1) as f64).ln();
    }
    (cut > 0).then(|| (sorted[cut - 1], sorted[count - cut]))
}

/// How many comparisons are made together, and how often one of them may be wrong.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Family {
    /// How many comparisons there are.
    pub of: usize,
    /// The probability of an error that earlier looks at the same comparisons have used.
    pub spent: f64,
    /// What this look may use of it.
    pub allowed: f64,
}

/// Comparisons that are looked at once.
impl From<usize> for Family {
    fn from(of: usize) -> Family {
        Family { of, spent: 0.0, allowed: 1.0 - LEVEL }
    }
}

impl Family {
    /// How many of the `tails` of the statistic lie outside of the interval.
    fn cut(self, tails: &[f64]) -> usize {
        let allowed = self.allowed / (2.0 * self.of as f64);
        tails.iter().take_while(|tail| **tail <= allowed).count()
    }

    /// The probability of an error at a look after `rounds` rounds; none if those are too few.
    pub fn error(self, rounds: usize) -> Option<f64> {
        let tails = tails(rounds);
        let cut = self.cut(&tails);
        (cut > 0).then(|| 2.0 * self.of as f64 * tails[cut - 1])
    }
}

/// A ratio of times, and an interval for the true one. JSON has null for the ends of an interval
/// that is none.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ratio {
    /// The estimate: below 1, the policy is faster than the reference.
    pub estimate: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
    /// The joint confidence level of the intervals of the whole family, from 0 to 1. With few
    /// rounds it is less than [`LEVEL`], in the worst case 0.
    pub level: f64,
    /// Whether there were rounds enough for the level that is required.
    pub sure: bool,
}

impl Ratio {
    /// The ratio of `times` to those of the `reference`, round by round, as one of a `family` of
    /// such comparisons. `None` without rounds.
    pub fn of(times: &[f64], reference: &[f64], family: impl Into<Family>) -> Option<Ratio> {
        let family = family.into();
        let logs: Vec<f64> = times.iter().zip(reference).map(|(time, other)| (time / other).ln()).collect();
        let rounds = logs.len();
        if rounds == 0 {
            return None;
        }
        let mut means = Vec::with_capacity(rounds * (rounds + 1) / 2);
        for (i, a) in logs.iter().enumerate() {
            means.extend(logs[i..].iter().map(|b| (a + b) / 2.0));
        }
        means.sort_by(f64::total_cmp);
        // As many means are cut off at each end as the level allows; where even one is too many,
        // none is.
        let tails = tails(rounds);
        let sure = family.cut(&tails) > 0;
        let cut = family.cut(&tails).max(1);
        Some(Ratio {
            estimate: median(&means).exp(),
            low: means[cut - 1].exp(),
            high: means[means.len() - cut].exp(),
            level: (1.0 - family.spent - 2.0 * family.of as f64 * tails[cut - 1]).max(0.0),
            sure,
        })
    }

    /// The interval; `None` if it holds the true ratio with no probability that is known, as after
    /// one round.
    pub fn interval(&self) -> Option<(f64, f64)> {
        (self.level > 0.0).then_some((self.low, self.high))
    }

    /// Whether the policy differs from the reference: the interval has the required level, and
    /// excludes what differs from 1 by less than half a percent.
    pub fn differs(&self) -> bool {
        self.sure && (self.high < 1.0 - LEAST || self.low > 1.0 + LEAST)
    }

    /// Half the width of the interval, as a share of the reference's time: a larger true difference
    /// would usually have been seen.
    pub(crate) fn resolution(&self) -> f64 {
        (self.high / self.low).sqrt() - 1.0
    }
}

impl Serialize for Ratio {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (low, high) = self.interval().unzip();
        let mut ratio = serializer.serialize_struct("Ratio", 4)?;
        ratio.serialize_field("estimate", &self.estimate)?;
        ratio.serialize_field("low", &low)?;
        ratio.serialize_field("high", &high)?;
        ratio.serialize_field("level", &self.level)?;
        ratio.end()
    }
}

/// The least number of rounds at which the intervals of `family` comparisons reach [`LEVEL`].
pub fn rounds_needed(family: usize) -> usize {
    (1..).find(|rounds| 2.0 * family as f64 * 0.5f64.powi(*rounds) <= 1.0 - LEVEL).expect("the power falls") as usize
}

/// The chance that the signed-rank statistic of `rounds` rounds is at most 0, 1, 2, ..., up to a
/// half.
fn tails(rounds: usize) -> Vec<f64> {
    // Rank r is in the sum or not, each with probability 1/2; sums above a half of all are not
    // needed.
    let most = rounds * (rounds + 1) / 4;
    let mut chance = vec![0.0; most + 1];
    chance[0] = 1.0;
    for rank in 1..=rounds {
        for sum in (0..=most).rev() {
            let with = if sum >= rank { chance[sum - rank] } else { 0.0 };
            chance[sum] = (chance[sum] + with) / 2.0;
        }
    }
    chance.into_iter().scan(0.0, |below, chance| (*below += chance, Some(*below)).1).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use fastrand::Rng;

    /// Times of one round, in the order of the policies: a machine that slows down and speeds up
    /// over runs, noise with heavy tails, and now and then a run that takes half as long again.
    pub(in crate::compare) struct Machine {
        rng: Rng,
        run: u64,
        walk: f64,
    }

    impl Machine {
        pub(in crate::compare) fn new(seed: u64) -> Machine {
            Machine { rng: Rng::with_seed(seed), run: 0, walk: 0.0 }
        }

        pub(in crate::compare) fn round(&mut self, order: &[usize], speeds: &[f64]) -> Vec<f64> {
            let mut times = vec![0.0; speeds.len()];
            for policy in order {
                self.run += 1;
                self.walk += 0.01 * (self.rng.f64() - 0.5);
                let drift = 0.002 * self.run as f64 + self.walk;
                let tail = 0.01 * (self.rng.f64().powf(-0.5) - 1.0); // Pareto, with no variance
                let stall = if self.rng.u8(..) < 12 { 0.5 } else { 0.0 };
                times[*policy] = speeds[*policy] * (1.0 + drift + tail + stall);
            }
            times
        }
    }

    /// The ratios of each policy but the first to the first, over `rounds` rounds.
    fn compare(seed: u64, rounds: u64, speeds: &[f64]) -> Vec<Ratio> {
        let mut machine = Machine::new(!seed);
        let table: Vec<Vec<f64>> =
            (0..rounds).map(|round| machine.round(&order(seed, round, speeds.len()), speeds)).collect();
        let column = |policy: usize| table.iter().map(|times| times[policy]).collect::<Vec<f64>>();
        let ratio = |policy| Ratio::of(&column(policy), &column(0), speeds.len() - 1).unwrap();
        (1..speeds.len()).map(ratio).collect()
    }

    #[test]
    fn orders_have_nothing_to_do_with_each_other() {
        const SEEDS: u64 = 10_000;
        let first = |seed, round| if order(seed, round, 2)[0] == 0 { 1 } else { -1 };
        // A sum of fair signs is within four times its deviation in all but 1 of 16 000 cases.
        let fair = |sum: i64| sum.abs() < 4 * SEEDS.isqrt() as i64;
        for round in 0..10 {
            assert!(fair((0..SEEDS).map(|seed| first(seed, round)).sum()), "round {round}");
            assert!(fair((0..SEEDS).map(|seed| first(seed, round) * first(seed + 1, round)).sum()), "round {round}");
            for before in 0..round {
                let together: i64 = (0..SEEDS).map(|seed| first(seed, round) * first(seed, before)).sum();
                assert!(fair(together), "rounds {before} and {round}: {together}");
            }
        }
    }

    #[test]
    fn identical_policies_are_told_apart_in_no_more_than_one_of_twenty_tries() {
        for policies in [2, 3, 5] {
            let tries = (0..20_000).map(|seed| compare(seed, 10, &vec![1.0; policies]));
            let (mut wrong, mut excluded) = (0, 0);
            for ratios in tries {
                wrong += usize::from(ratios.iter().any(Ratio::differs));
                excluded += usize::from(ratios.iter().any(|ratio| ratio.high < 1.0 || ratio.low > 1.0));
            }
            assert!(wrong <= 1000, "{policies} identical policies were found different in {wrong} of 20 000 tries");
            // And it is no empty promise: an interval that always contains 1 would pass the line
            // above.
            assert!((200..=1000).contains(&excluded), "1 is excluded in {excluded} of 20 000");
        }
    }

    #[test]
    fn intervals_hold_the_true_ratios_together() {
        let speeds = [1.0, 0.94, 1.2, 0.999, 0.5];
        let holds = |ratios: Vec<Ratio>| {
            ratios.iter().zip(&speeds[1..]).all(|(ratio, speed)| ratio.low <= *speed && *speed <= ratio.high)
        };
        let held = (0..2000).filter(|seed| holds(compare(*seed, 10, &speeds))).count();
        assert!(held >= 1900, "{held} of 2000");
    }

    #[test]
    fn a_difference_beyond_the_noise_is_found() {
        let found = (0..2000).filter(|seed| compare(*seed, 20, &[1.0, 0.9])[0].differs()).count();
        assert!(found >= 1880, "{found} of 2000");
    }

    #[test]
    fn the_exact_distribution_is_that_of_the_tables() {
        // Of 10 rounds: P(T <= 8) = 0.0244, P(T <= 9) = 0.0322 (Hollander and Wolfe, table A.4).
        let tails = tails(10);
        assert_eq!(tails[0], 1.0 / 1024.0);
        assert_eq!(tails[8], 25.0 / 1024.0);
        assert_eq!(tails[9], 33.0 / 1024.0);
        assert_eq!(tails.len(), 28);
    }

    #[test]
    fn intervals_of_medians_are_those_of_the_tables() {
        let values = |count: usize| (1..=count).map(|value| value as f64).collect::<Vec<f64>>();
        assert_eq!(median_interval(&values(5)), None);
        assert_eq!(median_interval(&values(6)), Some((1.0, 6.0)));
        // Hollander and Wolfe, table A.2: of 10 values from the second to the ninth (97.9 %), of 20
        // from the 6th to the 15th.
        assert_eq!(median_interval(&values(10)), Some((2.0, 9.0)));
        assert_eq!(median_interval(&values(20)), Some((6.0, 15.0)));
        let (low, high) = median_interval(&values(4000)).unwrap();
        assert!(low > 1900.0 && low < 1945.0 && low + high == 4001.0, "{low} to {high}");
    }

    #[test]
    fn few_rounds_say_how_sure_they_are() {
        let one = Ratio::of(&[1.0], &[2.0], 1).unwrap();
        assert_eq!((one.estimate, one.level, one.interval()), (0.5, 0.0, None));
        assert_eq!(serde_json::to_string(&one).unwrap(), r#"{"estimate":0.5,"low":null,"high":null,"level":0.0}"#);
        let five = Ratio::of(&[1.0; 5], &[2.0; 5], 1).unwrap();
        assert!((five.level - 0.9375).abs() < 1e-12 && !five.differs());
        let six = Ratio::of(&[1.0; 6], &[2.0; 6], 1).unwrap();
        assert!(six.level >= LEVEL && six.differs());
        assert_eq!([1, 2, 4].map(rounds_needed), [6, 7, 8]);
        assert!(Ratio::of(&[], &[], 1).is_none());
    }

    #[test]
    fn ratios_do_not_depend_on_the_scale_and_turn_over() {
        let (a, b) = ([1.0, 1.1, 0.9, 1.3, 1.0, 1.05, 0.97], [1.2, 1.1, 1.0, 1.25, 1.1, 1.2, 1.0]);
        let there = Ratio::of(&a, &b, 1).unwrap();
        let back = Ratio::of(&b, &a, 1).unwrap();
        assert!((there.estimate * back.estimate - 1.0).abs() < 1e-12);
        assert!((there.low * back.high - 1.0).abs() < 1e-12);
        let scaled = Ratio::of(&a.map(|time| time * 1000.0), &b.map(|time| time * 1000.0), 1).unwrap();
        assert!((there.high - scaled.high).abs() < 1e-12);
    }

    #[test]
    fn orders_are_random_and_repeatable() {
        assert_eq!(order(7, 3, 5), order(7, 3, 5));
        let mut first = [0; 3];
        (0..3000).for_each(|round| first[order(1, round, 3)[0]] += 1);
        assert!(first.iter().all(|count| (900..1100).contains(count)), "{first:?}");
    }

    #[test]
    fn a_spread_of_one_value_has_no_deviation() {
        assert_eq!(Spread::of(&[]), None);
        let one = Spread::of(&[2.0]).unwrap();
        assert_eq!((one.median, one.stddev), (2.0, None));
        let four = Spread::of(&[4.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!((four.median, four.mean, four.min, four.max), (2.5, 2.5, 1.0, 4.0));
        assert!((four.stddev.unwrap() - (5.0f64 / 3.0).sqrt()).abs() < 1e-12);
    }
}
