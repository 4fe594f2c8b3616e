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

    /// Called before a change of mappings. If frames are given, they will be mapped once more.
    fn before(_: &mut Mappings, _: &Change, _: &mut impl Invalidate) -> Followed {
        Followed::default()
    }

    /// All mappings of this space will be removed.
    fn before_end(_: &mut Mappings, _space: u32, _: &mut impl Invalidate) -> Followed {
        Followed::default()
    }

    /// Called after a change, which took this `work` so far. The mapped pages among those changed
    /// are contiguous, or are one mapping.
    fn after(_: &mut Mappings, _: &Change, work: Work, _: &mut impl Invalidate) -> Followed {
        Followed { work, shot: Vec::new() }
    }

    /// The work of changing use bits of these pages, given the work so far.
    fn bits(_: &Mappings, _space: u32, _pages: &Range<u64>, work: Work) -> Work {
        work
    }

    /// Whether it has work to do before the next access.
    fn waits(_: &Mappings) -> bool {
        false
    }

    /// Does that work.
    fn settle(_: &mut Mappings, _: &mut impl Invalidate) -> Followed {
        Followed::default()
    }

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

            /// Call it before a change of mappings.
            #[inline(never)]
            pub(crate) fn before(&mut self, change: &Change, caches: &mut impl Invalidate) -> Followed {
                let mut all = Followed::default();
                $(if $follower::is_kept(self) { all += $follower::before(self, change, caches); })+
                all
            }

            /// Call it before all mappings of a space are removed.
            pub(crate) fn before_end(&mut self, space: u32, caches: &mut impl Invalidate) -> Followed {
                let mut all = Followed::default();
                $(if $follower::is_kept(self) { all += $follower::before_end(self, space, caches); })+
                all
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

            /// The work of changing use bits of these pages.
            pub(crate) fn work_of_bits(&self, space: u32, pages: &Range<u64>, work: Work) -> Work {
                $(let work = if $follower::is_kept(self) { $follower::bits(self, space, pages, work) } else { work };)+
                work
            }

            /// Whether [`Mappings::settle`] has something to do.
            #[inline]
            pub(crate) fn waits(&self) -> bool {
                false $(|| $follower::is_kept(self) && $follower::waits(self))+
            }

            /// Does the work that changes since the last access have left. A kernel often makes
            /// several changes at once, and the next one undoes what would follow from one alone.
            #[cold]
            pub(crate) fn settle(&mut self, caches: &mut impl Invalidate) -> Followed {
                let mut all = Followed::default();
                $(if $follower::is_kept(self) { all += $follower::settle(self, caches); })+
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
