//! How often regions were not promoted, by reason.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use superpage_pages::Counts;
use superpage_report::Keys;
use superpage_vm::Why;

/// A count for each reason; an object of those that are not 0, by the reason's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusals([u64; Why::ALL.len()]);

impl Refusals {
    /// Those that a manager counted.
    pub(crate) fn of(counted: impl Iterator<Item = (Why, u64)>) -> Refusals {
        counted.fold(Refusals::default(), |Refusals(mut counts), (why, count)| {
            counts[why as usize] = count;
            Refusals(counts)
        })
    }

    /// How often regions were refused for this reason.
    pub fn count(&self, why: Why) -> u64 {
        self.0[why as usize]
    }
}

impl Default for Refusals {
    fn default() -> Refusals {
        Refusals([0; Why::ALL.len()])
    }
}

impl Counts for Refusals {
    fn plus(&self, other: &Refusals) -> Refusals {
        Refusals(self.0.plus(&other.0))
    }

    fn since(&self, before: &Refusals) -> Refusals {
        Refusals(self.0.since(&before.0))
    }
}

impl Keys for Refusals {}

impl Serialize for Refusals {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let counted = Why::ALL.iter().map(|why| (why.name(), self.count(*why)));
        serializer.collect_map(counted.filter(|(_, count)| *count > 0))
    }
}

impl<'de> Deserialize<'de> for Refusals {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Refusals, D::Error> {
        let counted = BTreeMap::<String, u64>::deserialize(deserializer)?;
        let named = |name: &String| Why::ALL.iter().find(|why| why.name() == name).copied();
        let reasons = counted.iter().map(|(name, count)| {
            named(name)
                .map(|why| (why, *count))
                .ok_or_else(|| D::Error::custom(format!("unknown reason of a refusal: {name}")))
        });
        Ok(Refusals::of(reasons.collect::<Result<Vec<_>, _>>()?.into_iter()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let counted = Refusals::of([(Why::Busy, 3), (Why::NoExtent, 1)].into_iter());
        for (refusals, text) in [(counted, r#"{"busy":3,"no-extent":1}"#), (Refusals::default(), "{}")] {
            assert_eq!(serde_json::to_string(&refusals).unwrap(), text);
            assert_eq!(serde_json::from_str::<Refusals>(text).unwrap(), refusals);
        }
        assert!(serde_json::from_str::<Refusals>(r#"{"bored":1}"#).is_err());
    }
}
