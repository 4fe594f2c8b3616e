//! What a fault takes: a page, or an extent around it. It is one value until it is mapped
//! ([`Taken`]): a fault that fails undoes it.

use crate::frame::{Frames, Populated};
use crate::object::population::Walk;
use crate::object::{ObjectId, PageOf};
use crate::policy::Answers;
use crate::{Backed, Fault, FaultKind, Filled};
use superpage_pages::{Extent, Level, Pfn};

/// Where the contents of a page that is being populated come from.
#[derive(Clone, Copy)]
pub(crate) enum Content {
    Zero,
    /// Nowhere: the caller overwrites all of it at once.
    Overwritten,
    /// The backing store of this object.
    Read {
        from: Backed,
        of: ObjectId,
    },
    /// This frame, which holds it as a cache page.
    Cached(u32),
    /// This frame, which holds the page or held it last.
    Copy(u32),
}

impl Content {
    /// For a page that was never populated, of an object with this file or none.
    pub(crate) fn new(of: ObjectId, file: Option<u32>, index: u64) -> Content {
        file.map_or(Content::Zero, |file| Content::Read { from: Backed::File { file, page: index }, of })
    }

    /// The frame that is copied to fill the frame `to`, if one is.
    pub(crate) fn source(self, to: Pfn) -> Option<Pfn> {
        match self {
            Content::Cached(frame) | Content::Copy(frame) => Some(Pfn(u64::from(frame))).filter(|from| *from != to),
            _ => None,
        }
    }
}

/// A page, or an extent around it, that was populated and does not have its contents yet.
#[must_use = "what was taken is filled, or undone"]
pub(crate) struct Taken {
    /// The page, and where it is.
    pub(crate) walk: Walk,
    pub(crate) populated: Populated,
    /// The level that was asked for.
    wanted: Level,
    /// All that was populated.
    pub(crate) frames: Extent,
    pub(crate) content: Content,
}

/// What was taken, with its contents or waiting for them.
pub(crate) struct Provided {
    pub(crate) taken: Taken,
    pub(crate) kind: FaultKind,
    pub(crate) filled: Filled,
}

impl Taken {
    /// Whether it holds zeroes and is to hold zeroes.
    pub(crate) fn is_zeroed(&self) -> bool {
        self.populated.zeroed && self.frames.level == self.populated.allocated && matches!(self.content, Content::Zero)
    }

    /// Frees it, as if it had never been asked for.
    pub(crate) fn undo(self, frames: &mut Frames) {
        let (PageOf { object, index }, pages) = (self.walk.page, frames.ladder.pages(self.frames.level));
        frames.unpopulate(object, index & !(pages - 1), (index | (pages - 1)) + 1);
    }

    /// The fault that took it, once it is filled.
    pub(crate) fn fault(&self, kind: FaultKind, mapped: Level) -> Fault {
        let Taken { walk, populated, wanted, frames, content } = self;
        Fault {
            source: content.source(frames.start),
            reserved: populated.reserved,
            wanted: *wanted,
            allocated: (!populated.reserved).then_some(populated.allocated),
            preempted: populated.preempted,
            ..Fault::new(kind, Pfn(u64::from(walk.frame)), mapped)
        }
    }
}

impl Frames {
    /// Populates the page of a walk to have this content: alone, or with all of an extent of at
    /// most the `wanted` size if the policy takes extents. `page`: as for [`Frames::populate`].
    /// `None`, and nothing populated, if no frame is left.
    #[inline]
    pub(crate) fn take(
        &mut self,
        answers: &Answers,
        (mut walk, content): (Walk, Content),
        wanted: Level,
        page: u64,
    ) -> Option<Taken> {
        let populated = match content {
            Content::Cached(frame) => self.reactivate(answers, &mut walk, wanted, frame),
            _ => self.populate(answers, &mut walk, wanted, page),
        }?;
        let level = if answers.takes_extents() { populated.allocated } else { Level::BASE };
        let frames = Extent::around(&self.ladder, Pfn(u64::from(walk.frame)), level);
        Some(Taken { walk, populated, wanted, frames, content })
    }

    /// Populates a page whose frame is reserved, though nobody touches it.
    pub(crate) fn take_untouched(
        &mut self,
        answers: &Answers,
        PageOf { object, index }: PageOf,
        content: Content,
    ) -> Taken {
        let walk = self.population.walk(object, index);
        let peak = self.stats.peak_touched_pages;
        let taken = self.take(answers, (walk, content), Level::BASE, index).expect("the frame is reserved");
        self.note_untouched(taken.walk.frame..taken.walk.frame + 1, peak);
        taken
    }
}
