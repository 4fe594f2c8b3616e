//! Structures that are derived from the mappings: clusters, ranges, perforated pages, shadow
//! superpages. Each is a file that implements [`Notifier`] and a name in the list below. Most
//! machines have none, and requests that hit never come here.

use super::clusters::Clusters;
use super::perforation::Perforation;
use super::ranges::Ranges;
use super::shadow::Shadow;
use super::{Invalidate, Mappings, SpacePages, Work};
use std::ops::Range;

/// A change of mappings: its pages, and their frames if nothing was mapped there before.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) space: u32,
    pub(crate) pages: Range<u64>,
    pub(crate) frames: Option<Range<u64>>,
}

/// What a change of mappings causes: work, and changes of the mappings of further pages, which the
/// caller must shoot down.
#[must_use]
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) work: Work,
    pub(crate) shot: Vec<SpacePages>,
}

impl std::ops::AddAssign for Effects {
    fn add_assign(&mut self, more: Effects) {
        self.work += more.work;
        self.shot.extend(more.shot);
    }
}

/// A structure that is derived from the mappings.
pub(super) trait Notifier {
    /// Whether the machine has it; if not, nothing else is called.
    fn is_kept(_: &Mappings) -> bool;

    /// Called after a change, which took this `work` so far. The mapped pages among those changed
    /// are contiguous, or are one mapping.
    fn after(_: &mut Mappings, _: &Change, work: Work, _: &mut impl Invalidate) -> Effects;

    /// This space has ended: nothing is mapped there.
    fn ended(_: &mut Mappings, _space: u32) {}

    /// Checks it against what is mapped.
    fn validate(_: &Mappings) -> Result<(), String>;
}

/// From the list of notifiers, generates what calls each.
macro_rules! notifiers {
    ($($notifier:ident)+) => {
        impl Mappings {
            /// Whether there is a notifier: on most machines there is none.
            #[inline(always)]
            pub(crate) fn has_notifiers(&self) -> bool {
                false $(|| $notifier::is_kept(self))+
            }

            /// Call it after a change, which took this `work`. Returns the work of the change and
            /// all notifiers.
            #[inline(never)]
            pub(crate) fn after(&mut self, change: &Change, work: Work, caches: &mut impl Invalidate) -> Effects {
                let mut all = Effects { work, shot: Vec::new() };
                $(if $notifier::is_kept(self) {
                    let effects = $notifier::after(self, change, all.work, caches);
                    all.work = effects.work;
                    all.shot.extend(effects.shot);
                })+
                all
            }

            /// A space has ended.
            pub(super) fn ended(&mut self, space: u32) {
                $(if $notifier::is_kept(self) { $notifier::ended(self, space); })+
            }

            /// Checks all notifiers.
            pub(super) fn validate_notifiers(&self) -> Result<(), String> {
                $(if $notifier::is_kept(self) { $notifier::validate(self)?; })+
                Ok(())
            }
        }
    };
}

notifiers! { Clusters Ranges Perforation Shadow }
