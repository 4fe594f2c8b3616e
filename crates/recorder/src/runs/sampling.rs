//! Leaves accesses out: in each period some are kept, and of the rest the first touches and first
//! writes of pages.
//!
//! The phases are those of [`Schedule`]. One ends where the first block of code begins after its
//! accesses are used up, and cuts all open runs, so that the runs of a phase contain exactly its
//! own accesses. What is left out is only counted, by [`LeftOut`], and reported together.

use super::{OFFSET, ONE, PAGE, Runs, STORES, in_wire};
use crate::UNIT;
use crate::left_out::LeftOut;
use crate::schedule::{Phase, Schedule, Stage};
use crate::touched::Touched;
use crate::wire::{EXECUTE, READ, code};

/// Decides which accesses of each period are kept.
#[derive(Clone, Copy)]
pub(crate) struct Sampler {
    /// When accesses are kept.
    pub(crate) schedule: Schedule,
    pub(crate) gaps: Gaps,
}

/// What is known while accesses are left out.
#[derive(Clone, Copy)]
pub(crate) struct Gaps {
    /// The pages that were touched, for the first touches that are kept at all times.
    pub(crate) touched: &'static Touched,
    /// What the thread itself leaves out.
    pub(crate) left_out: &'static LeftOut,
}

impl Runs {
    /// A load or store of a sampled recording that [`LeftOut::counts`] does not count; otherwise
    /// like [`Runs::data_of`].
    pub(crate) fn data_sampled(&self, info: u32, address: u64) {
        let format = self.format.get();
        let kind = format.kind(info);
        if self.recording.get() {
            return self.data_of(kind, info, address, ONE);
        }
        let Some(Gaps { left_out, .. }) = self.gaps.get() else { return };
        let within = PAGE.saturating_sub(format.size(info));
        if !left_out.counts_within(kind, address, within) {
            self.each_touch(info, address, |page, kind| self.leave_out(page, kind));
        }
    }

    /// Fetches of a sampled recording that [`LeftOut::counts_fetches`] does not count; otherwise
    /// like [`Runs::fetches`].
    pub(crate) fn fetches_sampled(&self, block: u64) {
        if self.attend() { self.fetches(block) } else { self.leave_out_fetches(block, 0) }
    }

    /// The same, if the first is the end of an instruction that began on the previous page.
    pub(crate) fn straddling_fetches_sampled(&self, block: u64) {
        if self.attend() {
            self.straddling_fetches(block)
        } else {
            self.leave_out_fetches(block, crate::wire::STRADDLE)
        }
    }

    /// Does what is due where a block begins, and changes the phase when its accesses are used up.
    /// Returns whether accesses are recorded now.
    fn attend(&self) -> bool {
        let Some(Gaps { touched, left_out }) = self.gaps.get() else { return true };
        if self.recording.get() {
            if self.left.get() <= self.in_runs() as i64 {
                self.close();
                self.begin_phase();
            }
        } else if left_out.is_due() {
            self.look_up();
            left_out.look_for_changes(touched);
            self.collect();
            if self.left.get() <= 0 {
                self.begin_phase();
            } else {
                left_out.expect(touched, self.left.get() as u64);
            }
        }
        self.recording.get()
    }

    /// One access in a gap.
    pub(super) fn leave_out(&self, page: u64, kind: usize) {
        let Some(Gaps { touched, left_out }) = self.gaps.get() else { return };
        let index = page / PAGE;
        let news = touched.mark(index, kind == STORES);
        if news {
            self.push(UNIT.run(page, in_wire(kind)) + ONE);
        }
        left_out.take_up(touched, page, kind == STORES || touched.is_written(index), u64::from(!news));
    }

    /// Fetches in a gap.
    pub(super) fn leave_out_fetches(&self, block: u64, straddle: u64) {
        let Some(Gaps { touched, left_out }) = self.gaps.get() else { return };
        let (page, number) = (block & !OFFSET, block & OFFSET);
        let news = touched.mark(page / PAGE, false);
        if news {
            self.push(UNIT.run(page, EXECUTE | straddle) + ONE);
        }
        // Half an instruction does not count as one.
        let kept = u64::from(news || straddle != 0);
        left_out.take_up_fetches(touched, page, number - kept);
    }

    /// Marks the page of a new run that stays in the stream.
    pub(super) fn mark(&self, page: u64, kind: usize) {
        if let Some(Gaps { touched, .. }) = self.gaps.get() {
            touched.mark(page / PAGE, kind == STORES);
        }
    }

    /// Collects what was left out.
    fn collect(&self) {
        if let Some(Gaps { left_out, .. }) = self.gaps.get() {
            for (skipped, more) in self.skipped.iter().zip(left_out.collect()) {
                skipped.update(|skipped| skipped + more);
                self.spend(more);
            }
        }
    }

    /// Begins the next phase or, if a block was longer than that, the one after it.
    pub(super) fn begin_phase(&self) {
        let (Some(mut schedule), Some(gaps)) = (self.schedule.get(), self.gaps.get()) else { return };
        let gap = !self.recording.get();
        let mut now = Stage { phase: Phase::Gap, length: 0, period: None };
        while self.left.get() <= 0 {
            now = schedule.next();
            self.left.update(|left| left + now.length as i64);
        }
        self.schedule.set(Some(schedule));
        let mut recent = Vec::new();
        if gap && now.phase != Phase::Gap {
            // Each replaces one of those that were left out.
            recent = gaps.left_out.recent(gaps.touched);
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
        let tell = |phase: Phase| self.event(code::PHASE, &[[phase as u64, now.period.unwrap_or(0)]]);
        if !recent.is_empty() {
            tell(Phase::Warming);
        }
        for (page, fetch) in recent {
            self.push(UNIT.run(page * PAGE, if fetch { EXECUTE } else { READ }) + ONE);
        }
        // What follows continues none of these.
        tell(now.phase);
        if now.phase == Phase::Gap {
            gaps.left_out.expect(gaps.touched, self.left.get() as u64);
        }
    }

    /// Reports how many accesses were left out since the last report.
    pub(crate) fn tell_skipped(&self) {
        self.close();
        self.collect();
        let skipped = [self.skipped[0].take(), self.skipped[1].take()];
        if skipped != [0; 2] {
            self.event(code::SKIPPED, &[skipped]);
        }
    }
}
