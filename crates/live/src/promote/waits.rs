//! For how long promotion waits, by reason.
//!
//! A reason counts while at least one process that has candidates waits for it; processor time also
//! where only a look is due. Each is at most the elapsed time; reasons may overlap.

use std::collections::BTreeMap;
use std::time::Duration;
use superpage_vm::Why;

/// The reasons, by the names that metrics have.
pub(super) const REASONS: [&str; 5] = ["cpu", "slowdown", "pressure", "headroom", "no_huge_page"];

/// The name of a reason to wait; `None` for one that is none.
fn name(why: Why) -> Option<&'static str> {
    Some(match why {
        Why::Budget => "cpu",
        Why::Slowed => "slowdown",
        Why::Pressure => "pressure",
        Why::NoHeadroom | Why::GroupLimit => "headroom",
        Why::NoExtent => "no_huge_page",
        _ => return None,
    })
}

/// The reason to wait of this name; none if it is none of [`REASONS`].
pub(crate) fn reason(named: &str) -> Option<Why> {
    Why::ALL.iter().copied().find(|why| name(*why) == Some(named))
}

/// Until when promotion waits, by reason, as it was after the last step. Times are since the
/// promoter began.
#[derive(Debug, Default)]
pub(super) struct Waits {
    since: Duration,
    until: BTreeMap<&'static str, Duration>,
}

impl Waits {
    /// Adds what has passed of these waits.
    pub(super) fn count(&mut self, now: Duration, waited: &mut BTreeMap<&'static str, Duration>) {
        for (reason, until) in &self.until {
            *waited.entry(reason).or_default() += now.min(*until).saturating_sub(self.since);
        }
        self.since = now;
    }

    /// Replaces the waits by these.
    pub(super) fn replace(&mut self, waits: impl IntoIterator<Item = (Why, Duration)>) {
        self.until.clear();
        for (why, until) in waits {
            if let Some(reason) = name(why) {
                let longest = self.until.entry(reason).or_default();
                *longest = until.max(*longest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_counts_once_and_no_longer_than_it_holds() {
        let seconds = Duration::from_secs;
        let (mut waits, mut waited) = (Waits::default(), BTreeMap::new());
        waits.count(seconds(1), &mut waited);
        assert!(waited.is_empty());
        let both =
            [(Why::Slowed, seconds(2)), (Why::Slowed, seconds(4)), (Why::Budget, seconds(9)), (Why::Gone, seconds(9))];
        waits.replace(both);
        waits.count(seconds(3), &mut waited);
        waits.count(seconds(6), &mut waited);
        assert_eq!(waited, BTreeMap::from([("slowdown", seconds(3)), ("cpu", seconds(5))]));
        waits.replace([(Why::GroupLimit, seconds(20))]);
        waits.count(seconds(7), &mut waited);
        assert_eq!((waited["cpu"], waited["headroom"]), (seconds(5), seconds(1)));
    }

    #[test]
    fn every_reason_has_its_name() {
        let names: std::collections::BTreeSet<_> = Why::ALL.iter().filter_map(|why| name(*why)).collect();
        assert_eq!(names, REASONS.into());
    }
}
