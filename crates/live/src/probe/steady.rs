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
}
