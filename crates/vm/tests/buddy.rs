//! The buddy allocator against a plain set of frames.

use proptest::prelude::*;
use std::ops::Range;
use superpage_pages::{Extent, Ladder, Level, PageSize, Pfn};
use superpage_vm::{Buddy, BuddyError};

/// The ladder of base pages of 4K and of superpages of `1 << order` base pages for each of
/// `orders`.
fn ladder(orders: &[u32]) -> Ladder {
    let sizes: Vec<_> = [0].iter().chain(orders).map(|order| PageSize::from_shift(12 + order).unwrap()).collect();
    Ladder::new(&sizes).unwrap()
}

fn extent(start: u64, level: u8) -> Extent {
    Extent { start: Pfn(start), level: Level(level) }
}

/// What each frame is, with every fact about extents worked out from that by looking at each.
struct Plain {
    ladder: Ladder,
    free: Vec<bool>,
    /// Whether it holds a cache page.
    marked: Vec<bool>,
    /// When the free extent in which it lies became so.
    since: Vec<u64>,
    now: u64,
}

impl Plain {
    fn new(ladder: Ladder, frames: u64) -> Plain {
        let frames = frames as usize;
        Plain { ladder, free: vec![true; frames], marked: vec![false; frames], since: vec![0; frames], now: 0 }
    }

    fn members(&self, extent: Extent) -> Range<usize> {
        let start = extent.start.0 as usize;
        start..start + self.ladder.pages(extent.level) as usize
    }

    fn is_free(&self, extent: Extent) -> bool {
        self.free.get(self.members(extent)).is_some_and(|frames| frames.iter().all(|free| *free))
    }

    fn is_taken(&self, extent: Extent) -> bool {
        self.free.get(self.members(extent)).is_some_and(|frames| frames.iter().all(|free| !free))
    }

    fn free_extents(&self, level: Level) -> Vec<Extent> {
        let pages = self.ladder.pages(level);
        let all = (0..self.free.len() as u64 / pages).map(|i| Extent { start: Pfn(i * pages), level });
        all.filter(|extent| self.is_free(*extent)).collect()
    }

    fn maximal(&self, level: Level) -> Vec<Extent> {
        let mut extents = self.free_extents(level);
        if level < self.ladder.largest() {
            extents.retain(|e| !self.is_free(Extent::around(&self.ladder, e.start, level.up())));
        }
        extents
    }

    fn take(&mut self, extent: Extent) {
        assert!(self.is_free(extent));
        let members = self.members(extent);
        self.free[members].fill(false);
    }

    fn give(&mut self, extent: Extent) {
        let members = self.members(extent);
        self.free[members].fill(true);
        self.renew(extent.start);
    }

    fn is_marked(&self, extent: Extent) -> bool {
        self.marked[self.members(extent)].contains(&true)
    }

    /// The maximal free extent around a free frame.
    fn around(&self, frame: Pfn) -> Extent {
        let extents = self.ladder.levels().rev().map(|level| Extent::around(&self.ladder, frame, level));
        extents.into_iter().find(|extent| self.is_free(*extent)).unwrap()
    }

    /// The maximal free extent around a free frame became so now.
    fn renew(&mut self, frame: Pfn) {
        self.now += 1;
        let whole = self.members(self.around(frame));
        self.since[whole].fill(self.now);
    }

    fn mark(&mut self, frame: u64) {
        let free = self.free[frame as usize];
        if free && !self.is_marked(self.around(Pfn(frame))) {
            self.renew(Pfn(frame));
        }
        self.marked[frame as usize] = true;
    }

    /// Of these extents the lowest that is not marked, or else the oldest, and the lowest of that
    /// age.
    fn prefer(&self, extents: Vec<Extent>) -> Option<Extent> {
        let age = |extent: &Extent| if self.is_marked(*extent) { self.since[extent.start.0 as usize] } else { 0 };
        extents.into_iter().min_by_key(|extent| (age(extent), extent.start))
    }

    /// What `allocate_coloured` is to find: the first frame of the colour in the lowest maximal
    /// extent that has one and no mark, of the smallest size.
    fn first_of_colour(&self, colours: u64, page: u64) -> Option<Extent> {
        let extents = self.ladder.levels().flat_map(|level| self.maximal(level));
        let plain = extents.into_iter().filter(|extent| !self.is_marked(*extent));
        let mut frames = plain.flat_map(|extent| self.members(extent));
        let frame = frames.find(|frame| colours > 1 && *frame as u64 % colours == page % colours)?;
        Some(Extent { start: Pfn(frame as u64), level: Level::BASE })
    }

    /// What `allocate` is to find: the preferred maximal extent of the smallest size that has one,
    /// and of that the preferred piece of each size down.
    fn best_fit(&self, level: Level) -> Option<Extent> {
        let sizes = self.ladder.levels().skip(level.index());
        let mut found = sizes.filter_map(|level| self.prefer(self.maximal(level))).next()?;
        while found.level > level {
            found = self.prefer(pieces(&self.ladder, found, found.level.down()))?;
        }
        Some(found)
    }

    fn compare(&self, buddy: &Buddy) {
        buddy.validate().unwrap();
        let count = |of: &dyn Fn(usize) -> bool| (0..self.free.len()).filter(|frame| of(*frame)).count() as u64;
        assert_eq!(buddy.free_frames(), count(&|frame| self.free[frame]));
        assert_eq!(buddy.plain_frames(), count(&|frame| self.free[frame] && !self.marked[frame]));
        assert_eq!(buddy.cached_frames(), count(&|frame| self.marked[frame]));
        assert!((0..).zip(&self.marked).all(|(frame, marked)| buddy.is_cached(Pfn(frame)) == *marked));
        let mut all = Vec::new();
        for level in self.ladder.levels() {
            let maximal = self.maximal(level);
            assert_eq!(buddy.maximal(level), maximal.len() as u64);
            assert_eq!(buddy.free_extents(level), self.free_extents(level).len() as u64);
            for extent in &maximal {
                let marked = self.members(*extent).filter(|frame| self.marked[*frame]);
                assert!(buddy.cached_in(*extent).eq(marked.map(|frame| Pfn(frame as u64))), "{extent:?}");
            }
            all.extend(maximal);
        }
        assert!(buddy.iter().eq(all));
    }
}

/// One operation; numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    /// Allocate at this level.
    Allocate(u8),
    /// Allocate a base page of the colour of this page.
    AllocateColoured(u64),
    /// Allocate the extent around this frame at this level.
    AllocateAt(u64, u8),
    /// Free one of the allocations, in pieces of this level if they are smaller.
    Free(usize, u8, Contents),
    /// Free only one piece, of this level, of one of the allocations.
    FreePiece(usize, u8, u64, Contents),
    /// Free the extent around this frame if wholly taken, whatever allocations it lies in or
    /// consists of.
    FreeAround(u64, u8, Contents),
    /// Mark this frame as holding a cache page.
    Mark(u64),
    /// Forget that this frame does.
    Forget(u64),
}

/// What the owner of an extent says of its contents at the end.
#[derive(Clone, Copy, Debug)]
enum Contents {
    /// Nothing: the marks that there are stay.
    Unsaid,
    /// Every frame holds a cache page.
    Cached,
}

fn step(cached: bool) -> impl Strategy<Value = Step> {
    let level = 0u8..5;
    let contents = prop::bool::weighted(if cached { 0.5 } else { 0.0 })
        .prop_map(|cached| if cached { Contents::Cached } else { Contents::Unsaid });
    let marks = if cached { 3 } else { 0 };
    prop_oneof![
        4 => level.clone().prop_map(Step::Allocate),
        4 => any::<u64>().prop_map(Step::AllocateColoured),
        2 => (any::<u64>(), level.clone()).prop_map(|(at, level)| Step::AllocateAt(at, level)),
        4 => (any::<usize>(), level.clone(), contents.clone())
            .prop_map(|(which, level, contents)| Step::Free(which, level, contents)),
        2 => (any::<usize>(), level.clone(), any::<u64>(), contents.clone())
            .prop_map(|(which, level, i, contents)| Step::FreePiece(which, level, i, contents)),
        1 => (any::<u64>(), level, contents).prop_map(|(at, level, contents)| Step::FreeAround(at, level, contents)),
        marks => prop_oneof![any::<u64>().prop_map(Step::Mark), any::<u64>().prop_map(Step::Forget)],
    ]
}

/// Up to `most` steps: without cache pages in every second case, for then other code does the work.
fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    any::<bool>().prop_flat_map(move |cached| prop::collection::vec(step(cached), 1..most))
}

/// Gives `extent` back to both.
fn give(buddy: &mut Buddy, plain: &mut Plain, extent: Extent, contents: Contents) {
    match contents {
        Contents::Unsaid => buddy.free(extent),
        Contents::Cached => {
            buddy.free_cached(extent);
            let members = plain.members(extent);
            plain.marked[members].fill(true);
        }
    }
    plain.give(extent);
}

/// The extents of `level`, or of its own if that is smaller, of which `whole` consists.
fn pieces(ladder: &Ladder, whole: Extent, level: Level) -> Vec<Extent> {
    let level = level.min(whole.level);
    let (all, one) = (ladder.pages(whole.level), ladder.pages(level));
    (0..all / one).map(|i| Extent { start: whole.start + i * one, level }).collect()
}

/// No colours in every second case, for then other code does the work, or up to 4096.
fn colours() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), (1u32..13).prop_map(|order| 1 << order)]
}

/// Carries out `steps` on both, compares after each, gives all back and compares with the
/// beginning.
fn run(ladder: Ladder, frames: u64, colours: u64, steps: Vec<Step>) {
    let mut buddy = Buddy::new(ladder, frames).unwrap().with_colours(colours).unwrap();
    let mut plain = Plain::new(ladder, frames);
    let whole = buddy.clone();
    let mut held: Vec<Extent> = Vec::new();
    plain.compare(&buddy);
    let in_ladder = |level: u8| Level(level % ladder.len() as u8);
    for step in steps {
        match step {
            Step::Allocate(level) => {
                let got = buddy.allocate(in_ladder(level));
                assert_eq!(got, plain.best_fit(in_ladder(level)));
                held.extend(got);
                got.into_iter().for_each(|extent| plain.take(extent));
            }
            Step::AllocateColoured(page) => {
                let got = buddy.allocate_coloured(page);
                assert_eq!(got, plain.first_of_colour(colours, page));
                held.extend(got);
                got.into_iter().for_each(|extent| plain.take(extent));
            }
            Step::AllocateAt(at, level) => {
                let wanted = Extent::around(&ladder, Pfn(at % frames), in_ladder(level));
                let free = plain.is_free(wanted);
                assert_eq!(buddy.is_free(wanted), free);
                assert_eq!(buddy.allocate_at(wanted), free);
                if free {
                    plain.take(wanted);
                    held.push(wanted);
                }
            }
            Step::Free(which, level, contents) if !held.is_empty() => {
                let whole = held.swap_remove(which % held.len());
                for piece in pieces(&ladder, whole, in_ladder(level)) {
                    give(&mut buddy, &mut plain, piece, contents);
                }
            }
            Step::FreePiece(which, level, i, contents) if !held.is_empty() => {
                let whole = held.swap_remove(which % held.len());
                let mut parts = pieces(&ladder, whole, in_ladder(level));
                let piece = parts.swap_remove((i % parts.len() as u64) as usize);
                held.extend(parts);
                give(&mut buddy, &mut plain, piece, contents);
            }
            Step::FreeAround(at, level, contents) => {
                let any = Extent::around(&ladder, Pfn(at % frames), in_ladder(level));
                if plain.is_taken(any) {
                    let apart = held.iter().flat_map(|whole| pieces(&ladder, *whole, Level::BASE));
                    held = apart.filter(|piece| !any.contains(&ladder, piece.start)).collect();
                    give(&mut buddy, &mut plain, any, contents);
                }
            }
            // Where memory may hold few frames with marks, one of them is forgotten rather than
            // any.
            Step::Forget(at) => {
                let near = (at % frames..frames).find(|frame| plain.marked[*frame as usize]).unwrap_or(at % frames);
                buddy.forget_cached(Pfn(near));
                plain.marked[near as usize] = false;
            }
            Step::Mark(at) => {
                buddy.mark_cached(Pfn(at % frames));
                plain.mark(at % frames);
            }
            Step::Free(..) | Step::FreePiece(..) => {}
        }
        plain.compare(&buddy);
    }
    for extent in held {
        buddy.free(extent);
    }
    assert_eq!(buddy == whole, buddy.cached_frames() == 0, "after the last free: {buddy:?}");
    (0..frames).for_each(|frame| buddy.forget_cached(Pfn(frame)));
    buddy.validate().unwrap();
    assert!(buddy == whole, "after the last free: {buddy:?}");
}

proptest! {
    #[test]
    fn ratio_eight(frames in 1u64..1200, colours in colours(), steps in steps(40)) {
        run(ladder(&[3, 6, 9]), frames, colours, steps);
    }

    #[test]
    fn ratio_two(frames in 1u64..70, colours in colours(), steps in steps(60)) {
        run(ladder(&[1, 2, 3, 4]), frames, colours, steps);
    }

    #[test]
    fn mixed_ratios(frames in 1u64..2600, colours in colours(), steps in steps(30)) {
        run(ladder(&[1, 8, 10]), frames, colours, steps);
    }

    #[test]
    fn ratio_of_several_words(frames in 1u64..3000, colours in colours(), steps in steps(30)) {
        run(ladder(&[9]), frames, colours, steps);
    }

    #[test]
    fn base_pages_only(frames in 1u64..300, colours in colours(), steps in steps(60)) {
        run(ladder(&[]), frames, colours, steps);
    }
}

#[test]
fn a_full_drain_and_refill_restores_the_initial_state() {
    for orders in [&[3, 6, 9][..], &[9, 18], &[4, 9, 18], &[1], &[]] {
        let ladder = ladder(orders);
        let frames = (1 << 18) + (1 << 17) + 777;
        let whole = Buddy::new(ladder, frames).unwrap();
        for level in ladder.levels() {
            let mut buddy = whole.clone();
            let taken: Vec<Extent> = std::iter::from_fn(|| buddy.allocate(level)).collect();
            assert_eq!(taken.len() as u64, frames / ladder.pages(level));
            let rest = frames % ladder.pages(level);
            assert_eq!((buddy.free_frames(), buddy.free_extents(level)), (rest, 0));
            buddy.validate().unwrap();
            // Odd ones first, so that everything coalesces late.
            for extent in taken.iter().skip(1).step_by(2).chain(taken.iter().step_by(2)) {
                buddy.free(*extent);
            }
            assert!(buddy == whole, "{ladder} at {level:?}: {buddy:?}");
        }
    }
}

#[test]
fn the_end_of_memory_is_given_as_smaller_extents() {
    let buddy = Buddy::new(ladder(&[3, 6]), 64 + 16 + 5).unwrap();
    let starts: Vec<(u64, u8)> = buddy.iter().map(|e| (e.start.0, e.level.0)).collect();
    assert_eq!(starts, [(80, 0), (81, 0), (82, 0), (83, 0), (84, 0), (64, 1), (72, 1), (0, 2)]);
    assert_eq!([0, 1, 2].map(|level| buddy.free_extents(Level(level))), [85, 10, 1]);
}

#[test]
fn with_next_fit_what_is_freed_is_taken_last() {
    let mut buddy = Buddy::new(ladder(&[3]), 24).unwrap().with_next_fit().unwrap();
    let base = |buddy: &mut Buddy| buddy.allocate(Level(0)).unwrap().start.0;
    assert_eq!([base(&mut buddy), base(&mut buddy), base(&mut buddy)], [0, 1, 2]);
    buddy.free(extent(0, 0));
    // The rest of the extent that was split, then what was freed, before the next one is split.
    assert_eq!([(); 7].map(|()| base(&mut buddy)), [3, 4, 5, 6, 7, 0, 8]);
    (0..8).for_each(|frame| buddy.free(extent(frame, 0)));
    assert_eq!(
        buddy.allocate(Level(1)),
        Some(extent(16, 1)),
        "the first extent is free again, and behind the last that was taken"
    );
    assert_eq!(buddy.allocate(Level(1)), Some(extent(0, 1)));
    buddy.validate().unwrap();
}

#[test]
fn one_extent_is_taken_out_of_the_middle() {
    let whole = Buddy::new(ladder(&[9, 18]), 1 << 20).unwrap();
    let mut buddy = whole.clone();
    assert!(buddy.allocate_at(extent(0x4_2345, 0)));
    assert!(!buddy.is_free(extent(0x4_2345, 0)) && buddy.is_free(extent(0x4_2344, 0)));
    assert_eq!([0, 1, 2].map(|level| buddy.maximal(Level(level))), [511, 511, 3]);
    assert!(!buddy.allocate_at(extent(0x4_2200, 1)) && buddy.allocate_at(extent(0x4_2400, 1)));
    buddy.free(extent(0x4_2400, 1));
    buddy.free(extent(0x4_2345, 0));
    assert_eq!(buddy, whole);
}

#[test]
fn what_is_no_extent_is_not_free_and_cannot_be_taken() {
    let mut buddy = Buddy::new(ladder(&[3]), 20).unwrap();
    for wrong in [extent(4, 1), extent(16, 1), extent(20, 0), extent(u64::MAX, 0), extent(0, 2), extent(1 << 63, 1)] {
        assert!(!buddy.is_free(wrong) && !buddy.allocate_at(wrong), "{wrong:?}");
    }
    assert_eq!(buddy.free_frames(), 20);
}

#[test]
fn memory_that_cannot_be_managed_is_an_error() {
    assert_eq!(Buddy::new(ladder(&[3]), 0), Err(BuddyError::NoFrames));
    let error = Buddy::new(ladder(&[3]), u64::MAX).unwrap_err();
    assert_eq!(error, BuddyError::TooManyFrames(u64::MAX));
    assert!(error.to_string().contains("less memory"));
}

#[test]
fn memory_of_less_than_one_superpage_still_has_base_pages() {
    let mut buddy = Buddy::new(ladder(&[9]), 3).unwrap();
    assert_eq!(buddy.allocate(Level(1)), None);
    assert_eq!(buddy.allocate(Level(0)), Some(extent(0, 0)));
}

#[test]
#[should_panic(expected = "free already, or a part of it is")]
fn freeing_a_frame_twice_panics() {
    let mut buddy = Buddy::new(ladder(&[3]), 64).unwrap();
    let taken = buddy.allocate(Level(0)).unwrap();
    buddy.free(taken);
    buddy.free(taken);
}

#[test]
#[should_panic(expected = "free already, or a part of it is")]
fn freeing_an_extent_with_a_free_frame_in_it_panics() {
    let mut buddy = Buddy::new(ladder(&[9]), 1024).unwrap();
    let taken = buddy.allocate(Level(1)).unwrap();
    buddy.free(extent(300, 0));
    buddy.free(taken);
}

#[test]
#[should_panic(expected = "not an extent of this memory")]
fn freeing_a_misaligned_extent_panics() {
    let mut buddy = Buddy::new(ladder(&[3]), 64).unwrap();
    while buddy.allocate(Level(1)).is_some() {}
    buddy.free(extent(4, 1));
}

#[test]
fn metadata_is_little_more_than_a_bit_a_frame() {
    let mut buddy = Buddy::new(ladder(&[9, 18]), 1 << 20).unwrap();
    assert!(buddy.metadata_bytes() < (1 << 17) + (1 << 12), "{}", buddy.metadata_bytes());
    // Three times that with cache pages.
    buddy.mark_cached(Pfn(0));
    assert!(buddy.metadata_bytes() < 3 * ((1 << 17) + (1 << 12)), "{}", buddy.metadata_bytes());
}
