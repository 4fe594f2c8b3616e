//! Leaves accesses out: in each period some are kept, and of the rest the first touches and first writes of pages.
//!
//! The phases are those of [`Schedule`]. A phase ends where the next run begins, and cuts all open runs, so that the
//! runs of a phase contain exactly its own accesses. While accesses are left out, those to known pages are only
//! counted, and reported together.

use std::sync::atomic::Ordering::Relaxed;

use super::{COUNT_SHIFT, FETCHES, LARGEST, LOADS, NOWHERE, OFFSET, ONE, PAGE, Runs, STORES};
use crate::UNIT;
use crate::schedule::{Phase, Schedule, Stage};
use crate::touched::Touched;
use crate::wire::{EXECUTE, READ, code};

/// Decides which accesses of each period are kept.
#[derive(Clone, Copy)]
pub(crate) struct Sampler {
    /// When accesses are kept.
    pub(crate) schedule: Schedule,
    /// The pages that were touched, for the first touches that are kept at all times.
    pub(crate) touched: &'static Touched,
}

impl Runs {
    /// Usually a run that need not be recorded: it is only counted.
    #[inline(never)]
    pub(super) fn data_left_out(&self, kind: usize, info: u32, address: u64) {
        let (open, page) = (&self.data[kind], address & !OFFSET);
        let before = open.page.load(Relaxed);
        if address & OFFSET <= PAGE - LARGEST && before != NOWHERE && self.leave_out(before, page, kind) {
            // If nothing is recorded, loads and stores may be on two pages.
            open.page.store(page, Relaxed);
            self.add(open, ONE);
        } else {
            self.data_anywhere(info, address);
        }
    }

    /// Like `data_left_out`, for fetches.
    #[inline(never)]
    pub(super) fn fetches_left_out(&self, block: u64, straddle: u64) {
        let (page, number) = (block & !OFFSET, block & OFFSET);
        let before = self.fetch.page.load(Relaxed);
        if straddle == 0 && before != NOWHERE && self.leave_out(before, page, FETCHES) {
            self.fetch.page.store(page, Relaxed);
            self.add(&self.fetch, number << COUNT_SHIFT);
        } else {
            self.begin_fetches_anywhere(block, straddle);
        }
    }

    /// While accesses are left out and nothing else is due: whether the page was touched and, for stores, written before.
    /// Then an access to it is only counted, together with those before, and the pages before and now are stamped.
    #[inline(always)]
    fn leave_out(&self, before: u64, page: u64, kind: usize) -> bool {
        let Some(touched) = self.leaving_out.get() else { return false };
        // One by one: a wide load would wait until the store to one of them is done.
        let open: u64 = self.aside[..=STORES].iter().map(|aside| aside.load(Relaxed) >> COUNT_SHIFT).sum();
        let due = self.left.get() <= open as i64;
        let (before, page) = (before / PAGE, page / PAGE);
        let Some(leaf) = touched.leaf(page).filter(|leaf| !due && leaf.is_known(page, kind == STORES)) else {
            return false;
        };
        let [earlier, now] = self.clock.tick(touched);
        if let Some(leaf) = touched.leaf(before) {
            leaf.stamp(before, kind == FETCHES, earlier);
        }
        leaf.stamp(page, kind == FETCHES, now);
        true
    }

    /// Stamps the page of the open run of a kind as used just now.
    fn stamp(&self, kind: usize) {
        if let Some(sampler) = self.sampler.get() {
            self.stamp_page(sampler.touched, self.open(kind).page.load(Relaxed) / PAGE, kind);
        }
    }

    /// Stamps a page as used just now by a kind of access; one that was never touched is ignored.
    fn stamp_page(&self, touched: &Touched, page: u64, kind: usize) {
        let [_, now] = self.clock.tick(touched);
        if let Some(leaf) = touched.leaf(page) {
            leaf.stamp(page, kind == FETCHES, now);
        }
    }

    /// Whether a new run of a kind stays in the stream.
    pub(super) fn keep(&self, page: u64, kind: usize) -> bool {
        let Some(sampler) = self.sampler.get() else { return true };
        let news = sampler.touched.mark(page, kind == STORES);
        if !self.recording.get() {
            self.stamp_page(sampler.touched, page, kind);
        }
        news || self.recording.get()
    }

    /// Changes the phase when its accesses are used up.
    pub(super) fn turn(&self) {
        if self.sampler.get().is_none() {
            return;
        }
        // One stream may stay on a page for long while the other reaches this.
        if self.left.get() <= self.in_runs() as i64 {
            if !self.recording.get() {
                [FETCHES, LOADS, STORES].into_iter().for_each(|kind| self.stamp(kind));
            }
            self.close();
            self.begin_phase();
        }
    }

    /// Begins the next phase or, if a run was longer than that, the one after it.
    pub(super) fn begin_phase(&self) {
        let Some(mut sampler) = self.sampler.get() else { return };
        let gap = !self.recording.get();
        let mut now = Stage { phase: Phase::Gap, length: 0, period: None };
        while self.left.get() <= 0 {
            now = sampler.schedule.next();
            self.left.update(|left| left + now.length as i64);
        }
        self.sampler.set(Some(sampler));
        let mut recent = Vec::new();
        if gap && now.phase != Phase::Gap {
            // Each replaces one of those that were left out.
            recent = sampler.touched.recent();
            for (stream, skipped) in self.skipped.iter().enumerate() {
                let all = recent.iter().filter(|(_, fetch)| usize::from(*fetch) == stream).count() as u64;
                let mut over = all.saturating_sub(skipped.get());
                skipped.update(|skipped| skipped.saturating_sub(all));
                recent.retain(|(_, fetch)| {
                    let less = usize::from(*fetch) == stream && over > 0;
                    over -= u64::from(less);
                    !less
                });
            }
        }
        self.tell_skipped();
        self.recording.set(now.phase != Phase::Gap);
        self.leaving_out.set((now.phase == Phase::Gap).then_some(sampler.touched));
        let tell = |phase: Phase| self.event(code::PHASE, &[[phase as u64, now.period.unwrap_or(0)]]);
        if !recent.is_empty() {
            tell(Phase::Warming);
        }
        for (page, fetch) in recent {
            self.push(UNIT.run(page * PAGE, if fetch { EXECUTE } else { READ }) + ONE);
        }
        // What follows continues none of these.
        tell(now.phase);
    }

    /// Reports how many accesses were left out since the last report.
    pub(crate) fn tell_skipped(&self) {
        self.close();
        let skipped = [self.skipped[0].take(), self.skipped[1].take()];
        if skipped != [0; 2] {
            self.event(code::SKIPPED, &[skipped]);
        }
    }
}
