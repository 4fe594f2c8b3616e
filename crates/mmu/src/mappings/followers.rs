//! Structures that are derived from the mappings: clusters, ranges, perforated pages, shadow
//! superpages. Each is a file that implements [`Follower`] and a name in the list below. Most
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

/// The work of followers after a change, and further pages whose mappings they changed: the caller
/// must shoot them down.
#[must_use]
#[derive(Debug, Default)]
pub(crate) struct Followed {
    pub(crate) work: Work,
    pub(crate) shot: Vec<SpacePages>,
}

impl std::ops::AddAssign for Followed {
    fn add_assign(&mut self, more: Followed) {
        self.work += more.work;
        self.shot.extend(more.shot);
    }
}

/// A structure that is derived from the mappings.
pub(super) trait Follower {
    /// Whether the machine has it; if not, nothing else is called.
    fn is_kept(_: &Mappings) -> bool;

    /// Called after a change, which took this `work` so far. The mapped pages among those changed
    /// are contiguous, or are one mapping.
    fn after(_: &mut Mappings, _: &Change, work: Work, _: &mut impl Invalidate) -> Followed;

    /// This space has ended: nothing is mapped there.
    fn ended(_: &mut Mappings, _space: u32) {}

    /// Checks it against what is mapped.
    fn validate(_: &Mappings) -> Result<(), String>;
}

/// From the list of followers, generates what calls each.
macro_rules! followers {
    ($($follower:ident)+) => {
        impl Mappings {
            /// Whether there is a follower: on most machines there is none.
            #[inline(always)]
            pub(crate) fn are_followed(&self) -> bool {
                false $(|| $follower::is_kept(self))+
            }

            /// Call it after a change, which took this `work`. Returns the work of the change and
            /// all followers.
            #[inline(never)]
            pub(crate) fn after(&mut self, change: &Change, work: Work, caches: &mut impl Invalidate) -> Followed {
                let mut all = Followed { work, shot: Vec::new() };
                $(if $follower::is_kept(self) {
                    let followed = $follower::after(self, change, all.work, caches);
                    all.work = followed.work;
                    all.shot.extend(followed.shot);
                })+
                all
            }

            /// A space has ended.
            pub(super) fn ended(&mut self, space: u32) {
                $(if $follower::is_kept(self) { $follower::ended(self, space); })+
            }

            /// Checks all followers.
            pub(super) fn validate_followers(&self) -> Result<(), String> {
                $(if $follower::is_kept(self) { $follower::validate(self)?; })+
                Ok(())
            }
        }
    };
}

followers! { Clusters Ranges Perforation Shadow }
