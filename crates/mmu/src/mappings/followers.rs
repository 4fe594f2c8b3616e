//! What follows from what is mapped: clusters, ranges, perforated pages, shadow superpages. Each is
//! a file that implements [`Follower`] and a name in the list below. Most machines have none of
//! them, and no request that hits comes here.

use super::clusters::Clusters;
use super::perforation::Perforation;
use super::ranges::Ranges;
use super::shadow::Shadow;
use super::{Invalidate, Mappings, SpacePages, Work};
use std::ops::Range;

/// A change of mappings: the pages, and their frames, if they are mapped where nothing was.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) space: u32,
    pub(crate) pages: Range<u64>,
    pub(crate) frames: Option<Range<u64>>,
}

/// What keeping up with a change costs, and the pages of spaces that it changes too: they are to be
/// shot down.
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

/// Something that is derived from what is mapped.
pub(super) trait Follower {
    /// Whether the machine has it: otherwise nothing else is called.
    fn is_kept(_: &Mappings) -> bool;

    /// These pages will change; of some only frames are given, which will be mapped once more.
    fn before(_: &mut Mappings, _: &Change, _: &mut impl Invalidate) -> Followed {
        Followed::default()
    }

    /// All mappings of this space will be removed.
    fn before_end(_: &mut Mappings, _space: u32, _: &mut impl Invalidate) -> Followed {
        Followed::default()
    }

    /// These pages have changed, which was so much work until here. The pages that are mapped are
    /// in a row, or it is one.
    fn after(_: &mut Mappings, _: &Change, work: Work, _: &mut impl Invalidate) -> Followed {
        Followed { work, shot: Vec::new() }
    }

    /// What a change of use bits of these pages costs, which was so much until here.
    fn bits(_: &Mappings, _space: u32, _pages: &Range<u64>, work: Work) -> Work {
        work
    }

    /// Whether something is left to be done before the next access.
    fn waits(_: &Mappings) -> bool {
        false
    }

    /// Does it.
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

            /// To be called before these pages change.
            #[inline(never)]
            pub(crate) fn before(&mut self, change: &Change, caches: &mut impl Invalidate) -> Followed {
                let mut all = Followed::default();
                $(if $follower::is_kept(self) { all += $follower::before(self, change, caches); })+
                all
            }

            /// To be called before all mappings of a space are removed.
            pub(crate) fn before_end(&mut self, space: u32, caches: &mut impl Invalidate) -> Followed {
                let mut all = Followed::default();
                $(if $follower::is_kept(self) { all += $follower::before_end(self, space, caches); })+
                all
            }

            /// To be called after these pages have changed, which was so much work. Returns what it
            /// costs in all.
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

            /// What a change of use bits of these pages costs.
            pub(crate) fn work_of_bits(&self, space: u32, pages: &Range<u64>, work: Work) -> Work {
                $(let work = if $follower::is_kept(self) { $follower::bits(self, space, pages, work) } else { work };)+
                work
            }

            /// Whether [`Mappings::settle`] has something to do.
            #[inline]
            pub(crate) fn waits(&self) -> bool {
                false $(|| $follower::is_kept(self) && $follower::waits(self))+
            }

            /// Does what changes since the last access have left to be done: a kernel's changes
            /// often come in rows, of which the next undoes what would follow from one.
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
