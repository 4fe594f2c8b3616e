//! Ranges: pages in a row, of any sizes, whose frames are contiguous too, with the same rights.
//! Each is as long as can be. Karakostas et al., Redundant memory mappings for fast access to large
//! memories, ISCA 2015.
//!
//! The operating system's rule is modelled here: its range table has every range of two base pages
//! or more. It is updated with every change of a mapping, so no range has a page that is not mapped
//! as it says.

use super::notifiers::{Change, Effects, Notifier};
use super::{Invalidate, Mapping, Mappings, Work};
use std::collections::BTreeMap;
use std::ops::Range;
use superpage_pages::{Mapped, Vpn};

/// Pages up to `end`, exclusive, with the frame of the first and their rights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    end: u64,
    frame: u64,
    rights: u32,
}

impl Run {
    /// The part of a run that starts at `first`, from `from` up to `end`.
    fn part(self, first: u64, from: u64, end: u64) -> Run {
        Run { end, frame: self.frame + (from - first), ..self }
    }
}

/// All ranges, and pages that are none, by space and first page.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges(BTreeMap<(u32, u64), Run>);

impl Ranges {
    /// The run with this page, and its first page.
    fn of(&self, space: u32, page: u64) -> Option<(u64, Run)> {
        let (&(_, first), run) = self.0.range((space, 0)..=(space, page)).next_back()?;
        (page < run.end).then_some((first, *run))
    }

    /// Takes these pages out.
    fn cut(&mut self, space: u32, pages: &Range<u64>) {
        let mut next = pages.start;
        if let Some((first, run)) = self.of(space, pages.start) {
            next = first;
            if first < pages.start {
                self.0.insert((space, first), Run { end: pages.start, ..run });
                next = pages.start;
                if pages.end < run.end {
                    self.0.insert((space, pages.end), run.part(first, pages.end, run.end));
                }
            }
        }
        while let Some((&(_, first), &run)) = self.0.range((space, next)..(space, pages.end)).next() {
            self.0.remove(&(space, first));
            if pages.end < run.end {
                self.0.insert((space, pages.end), run.part(first, pages.end, run.end));
            }
        }
    }

    /// Adds a run of pages that are in none, and joins it with the runs that it continues.
    fn add(&mut self, space: u32, first: u64, run: Run) {
        let (mut start, mut joined) = (first, run);
        if let Some((before, left)) = first.checked_sub(1).and_then(|page| self.of(space, page))
            && (left.frame + (first - before), left.rights) == (run.frame, run.rights)
        {
            (start, joined.frame) = (before, left.frame);
        }
        if let Some(right) = self.0.get(&(space, run.end)).copied()
            && (run.frame + (run.end - first), run.rights) == (right.frame, right.rights)
        {
            self.0.remove(&(space, run.end));
            joined.end = right.end;
        }
        self.0.insert((space, start), joined);
    }
}

impl Mappings {
    /// Keeps ranges from now on; nothing is mapped yet.
    pub(crate) fn keep_ranges(&mut self) {
        self.ranges = Some(Box::default());
    }

    /// The range that this page is in.
    pub(crate) fn range(&self, space: u32, page: Vpn) -> Option<Range<u64>> {
        let (first, run) = self.ranges.as_ref()?.of(space, page.0)?;
        (run.end - first > 1).then_some(first..run.end)
    }
}

impl Notifier for Ranges {
    #[inline(always)]
    fn is_kept(mappings: &Mappings) -> bool {
        mappings.ranges.is_some()
    }

    fn after(
        mappings: &mut Mappings,
        Change { space, pages, .. }: &Change,
        work: Work,
        _: &mut impl Invalidate,
    ) -> Effects {
        if let Some(mut ranges) = mappings.ranges.take() {
            ranges.cut(*space, pages);
            if let Some(Mapping { head, pte, .. }) = mappings.mapping(*space, Vpn(pages.start)) {
                let frame = mappings.frame_of(head, Vpn(pages.start));
                ranges.add(*space, pages.start, Run { end: pages.end, frame, rights: pte.attributes(0) });
            }
            mappings.ranges = Some(ranges);
        }
        Effects { work, shot: Vec::new() }
    }

    fn ended(mappings: &mut Mappings, space: u32) {
        if let Some(ranges) = &mut mappings.ranges {
            ranges.cut(space, &(0..u64::MAX));
        }
    }

    /// Checks that the runs are those of the mappings, each as long as can be.
    fn validate(mappings: &Mappings) -> Result<(), String> {
        let Some(ranges) = &mappings.ranges else { return Ok(()) };
        let run = |(space, first, mapped): (u32, Vpn, Mapped)| {
            let end = first.0 + (mapped.size.bytes() >> mappings.ladder.base().shift());
            (space, first.0, Run { end, frame: mapped.frame.0, rights: mapped.protection.bits().into() })
        };
        let mut all: Vec<(u32, u64, Run)> = mappings.all().map(run).collect();
        all.sort_by_key(|(space, first, _)| (*space, *first));
        let mut expected = Ranges::default();
        all.into_iter().for_each(|(space, first, run)| expected.add(space, first, run));
        match ranges.0.iter().find(|(key, run)| expected.0.get(key) != Some(run)) {
            Some(range) => Err(format!("the range {range:?} is not what is mapped")),
            None if ranges.0.len() != expected.0.len() => Err("a range that is mapped is missing".into()),
            None => Ok(()),
        }
    }
}
