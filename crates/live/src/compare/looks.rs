//! Rounds that adapt: policies that lose are run no more, and the comparison ends once every row
//! has a verdict.
//!
//! Who looks often finds a difference some time where there is none. So all looks together have the
//! error of one: after the share `t` of the most rounds no more than `(1 - LEVEL) ln(1 + (e-1)t)`
//! of it has been used, which is the function of Lan and DeMets (Discrete sequential boundaries
//! for clinical trials, Biometrika 70, 1983) that comes near Pocock's boundary: much of it is for
//! the first looks, which save most. Each look uses what the function has let in since the last,
//! and the sum of the errors of all looks holds however they depend on each other (Boole). When a
//! comparison ends by the clock or by a signal that has nothing to do with who is faster: the time
//! of a round stays the same if policies exchange theirs. The look at its end has all that is left.

use super::row::{Row, Verdict};
use super::statistics::{Family, LEVEL, Ratio};
use std::f64::consts::E;

/// The looks at a comparison of `of` policies with a reference over at most `most` rounds.
#[derive(Debug)]
pub(super) struct Looks {
    of: usize,
    most: usize,
    next: usize,
    spent: f64,
    /// After how many rounds the last look was, and what those before it had spent.
    before: (usize, f64),
}

impl Looks {
    pub(super) fn new(of: usize, most: usize) -> Looks {
        Looks { of, most, next: 0, spent: 0.0, before: (0, 0.0) }
    }

    /// The look after `rounds` rounds, if there is one: the first as soon as it can find anything,
    /// others after a third more rounds each, since close ones would share the error and see the
    /// same.
    pub(super) fn due(&mut self, rounds: usize) -> Option<Family> {
        let share = rounds as f64 / self.most as f64;
        let allowed = (1.0 - LEVEL) * (1.0 + (E - 1.0) * share).ln() - self.spent;
        let family = Family { of: self.of, spent: self.spent, allowed };
        let error =
            (self.of > 0 && (self.next..self.most).contains(&rounds)).then(|| family.error(rounds)).flatten()?;
        self.before = (rounds, self.spent);
        self.spent += error;
        self.next = rounds + rounds / 3;
        Some(family)
    }

    /// The look when the comparison has ended after `rounds` rounds: it has all that is left, and
    /// what the last look used if that saw the same rounds.
    pub(super) fn last(&self, rounds: usize) -> Family {
        let spent = if self.before.0 == rounds { self.before.1 } else { self.spent };
        Family { spent, allowed: 1.0 - LEVEL - spent, of: self.of }
    }
}

/// The rows that are run no more, with the reason: surely slower than the reference, the first row,
/// and than the best.
pub(super) fn losers(rows: &[Row]) -> Vec<(usize, String)> {
    let Some((reference, others)) = rows.split_first() else { return Vec::new() };
    let counts = |row: &&Row| {
        matches!(row.verdict, Some(Verdict::Faster | Verdict::Slower | Verdict::Same | Verdict::TooFewRuns))
    };
    let ratio = |row: &Row| row.time_ratio.expect("every row but the first has one");
    let running = || others.iter().filter(counts).filter(|row| row.dropped.is_none());
    let best = running().min_by(|a, b| ratio(a).estimate.total_cmp(&ratio(b).estimate));
    let best = best.filter(|best| ratio(best).estimate < 1.0);
    let above = |Ratio { low, .. }| best.is_none_or(|best| low > ratio(best).high);
    let loses = |row: &Row| row.dropped.is_none() && row.verdict == Some(Verdict::Slower) && above(ratio(row));
    let why = best.map_or(String::new(), |best| format!(" and than {}", best.policy));
    let lost = others.iter().enumerate().filter(|(_, row)| loses(row));
    lost.map(|(index, _)| (index + 1, format!("surely slower than {}{why}", reference.policy))).collect()
}

/// Whether more rounds would change nothing: each row but the first has a verdict.
pub(super) fn decided(rows: &[Row]) -> bool {
    let open = |row: &Row| matches!(row.verdict, None | Some(Verdict::Same | Verdict::TooFewRuns));
    !rows.iter().skip(1).any(open)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::advice::tests::row;
    use crate::compare::statistics::order;
    use crate::compare::statistics::tests::Machine;

    /// The rows of a comparison of simulated policies, and after how many rounds it ended: at
    /// `most`, when the clock says so, or when all is decided.
    fn compare(seed: u64, most: usize, clock: usize, speeds: &[f64]) -> (Vec<Row>, usize) {
        let (mut machine, mut looks) = (Machine::new(!seed), Looks::new(speeds.len() - 1, most));
        let mut times: Vec<Vec<f64>> = vec![Vec::new(); speeds.len()];
        let mut lost: Vec<Option<(Family, String)>> = vec![None; speeds.len()];
        for round in 0..most.min(clock) {
            let mut order = order(seed, round as u64, speeds.len());
            order.retain(|policy| lost[*policy].is_none());
            let took = machine.round(&order, speeds);
            order.iter().for_each(|policy| times[*policy].push(took[*policy]));
            let due = looks.due(round + 1);
            let last = round + 1 == most.min(clock);
            let Some(family) = (if last { Some(looks.last(round + 1)) } else { due }) else { continue };
            let rows: Vec<Row> = (0..speeds.len())
                .map(|policy| {
                    let family = lost[policy].as_ref().map_or(family, |(family, _)| *family);
                    let base = (policy > 0).then_some((&times[0][..], family));
                    let mut row = row(&policy.to_string(), &times[policy], 1 << 20, base);
                    row.dropped = lost[policy].as_ref().map(|(_, why)| why.clone());
                    row.tell(String::new(), Some(true), None);
                    row
                })
                .collect();
            losers(&rows).into_iter().for_each(|(policy, why)| lost[policy] = Some((family, why)));
            if last || decided(&rows) {
                return (rows, round + 1);
            }
        }
        unreachable!("the last round returns")
    }

    /// In how many of `tries` comparisons any of the policies that equal the reference gets a
    /// verdict.
    fn wrong(tries: u64, (most, clock): (usize, usize), speeds: &[f64]) -> usize {
        let tells = |row: &Row| matches!(row.verdict, Some(Verdict::Faster | Verdict::Slower));
        let wrong = |seed: &u64| {
            compare(*seed, most, clock, speeds).0.iter().zip(speeds).any(|(row, speed)| *speed == 1.0 && tells(row))
        };
        (0..tries).filter(wrong).count()
    }

    #[test]
    fn many_looks_at_equal_policies_find_a_difference_in_no_more_than_one_of_twenty() {
        for (rounds, speeds) in [
            ((50, 50), &[1.0; 5][..]),
            ((1000, 37), &[1.0; 3]),
            // Others that lose, or are best, and end nothing.
            ((50, 50), &[1.0, 1.3, 1.0, 0.8]),
        ] {
            let wrong = wrong(2000, rounds, speeds);
            assert!(wrong <= 100, "{rounds:?} {speeds:?}: {wrong} of 2000");
        }
    }

    #[test]
    fn losers_are_dropped_and_a_decided_comparison_ends() {
        let (mut dropped, mut ended) = (0, 0);
        for seed in 0..500 {
            let (rows, rounds) = compare(seed, 50, 50, &[1.0, 1.5, 0.7]);
            let early = rows[1].times.len() < rows[0].times.len() || rounds < 50;
            dropped += usize::from(rows[1].verdict == Some(Verdict::Slower) && early);
            ended += usize::from(rounds < 20);
        }
        assert!(dropped > 475 && ended > 450, "{dropped} and {ended} of 500");
    }

    #[test]
    fn an_end_right_after_a_look_is_as_sure_as_that() {
        let mut looks = Looks::new(1, 8);
        assert!(looks.due(6).unwrap().error(6).is_some());
        assert!(looks.last(6).error(6).is_some());
        assert!(looks.last(7).spent > 0.0);
    }

    #[test]
    fn the_looks_never_use_more_than_there_is() {
        for (of, most) in [(1, 6), (1, 50), (5, 50), (20, 1000)] {
            let mut looks = Looks::new(of, most);
            let due: Vec<usize> = (1..=most).filter(|rounds| looks.due(*rounds).is_some()).collect();
            assert!(looks.spent < 1.0 - LEVEL && looks.last(most).allowed > 0.0, "{looks:?}");
            assert!(due.windows(2).all(|pair| pair[1] > pair[0] + 1), "{due:?}");
        }
        assert!(Looks::new(0, 50).due(20).is_none(), "nothing is compared");
    }
}
