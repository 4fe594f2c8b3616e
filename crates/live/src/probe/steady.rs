//! Timing on a shared machine: the shortest of many short repeats, in rounds that must agree.

/// A quantity measured in rounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Steady {
    /// The least of all: what others do on the machine only adds.
    pub(crate) value: f64,
    /// How the rounds agree: the least over the median of the rounds' least, from 0 to 1.
    pub(crate) agreement: f64,
}

/// Rounds that agree less than so are measured again.
const AGREE: f64 = 0.95;

impl Steady {
    /// Measures in `rounds` of `repeats` each, and in up to twice as many rounds more while they do
    /// not agree.
    pub(crate) fn measure(rounds: usize, repeats: usize, mut measure: impl FnMut() -> f64) -> Steady {
        let mut least = Vec::with_capacity(rounds);
        let mut steady = Steady { value: f64::INFINITY, agreement: 0.0 };
        while least.len() < rounds || steady.agreement < AGREE && least.len() < 3 * rounds {
            least.push((0..repeats).map(|_| measure()).fold(f64::INFINITY, f64::min));
            steady = Steady::of(&least);
        }
        steady
    }

    /// What the least values of rounds come to.
    pub(crate) fn of(least: &[f64]) -> Steady {
        let mut sorted = least.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (value, median) = (sorted[0], sorted[sorted.len() / 2]);
        Steady { value, agreement: if median > 0.0 { value / median } else { 1.0 } }
    }

    /// The same in another unit.
    pub(crate) fn times(self, factor: f64) -> Steady {
        Steady { value: self.value * factor, ..self }
    }

    /// How far the median of rounds is above the least.
    pub(crate) fn spread(&self) -> f64 {
        if self.value > 0.0 { self.value / self.agreement - self.value } else { 0.0 }
    }

    /// The amount by which this is more than `other`. Its agreement is its share of the sum of it
    /// and both spreads: under one half, rounds spread by more than the difference.
    pub(crate) fn beyond(&self, other: &Steady) -> Steady {
        let value = self.value - other.value;
        let agreement = if value > 0.0 { value / (value + self.spread() + other.spread()) } else { 0.0 };
        Steady { value, agreement }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_that_agree_are_enough_and_others_are_repeated() {
        let mut calls = 0;
        let calm = Steady::measure(3, 4, || {
            calls += 1;
            10.0
        });
        assert_eq!((calm.value, calm.agreement, calls), (10.0, 1.0, 12));
        let mut calls = 0;
        let wild = Steady::measure(3, 1, || {
            calls += 1;
            10.0 + f64::from(calls)
        });
        assert_eq!((wild.value, calls), (11.0, 9));
        assert!(wild.agreement < 0.8);
    }

    #[test]
    fn a_difference_agrees_by_how_little_both_spread() {
        let (with, without) = (Steady::of(&[130.0, 140.0, 150.0]), Steady::of(&[100.0, 110.0, 120.0]));
        let more = with.beyond(&without);
        assert!((more.value - 30.0).abs() < 1e-9 && (more.agreement - 0.6).abs() < 1e-9, "{more:?}");
        assert_eq!(without.beyond(&with), Steady { value: -30.0, agreement: 0.0 });
    }
}
