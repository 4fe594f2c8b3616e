//! Cache pages in the buddy allocator, by examples. `buddy.rs` has the comparison with a plain
//! model.

use superpage_pages::{Extent, Ladder, Level, PageSize, Pfn};
use superpage_vm::Buddy;

/// The ladder of base pages of 4K and of superpages of `1 << order` base pages for each of
/// `orders`.
fn ladder(orders: &[u32]) -> Ladder {
    let sizes: Vec<_> = [0].iter().chain(orders).map(|order| PageSize::from_shift(12 + order).unwrap()).collect();
    Ladder::new(&sizes).unwrap()
}

fn extent(start: u64, level: u8) -> Extent {
    Extent { start: Pfn(start), level: Level(level) }
}

#[test]
fn extents_with_cache_pages_are_taken_last_and_oldest_first() {
    let mut buddy = Buddy::new(ladder(&[3]), 32).unwrap();
    while buddy.allocate(Level(1)).is_some() {}
    buddy.free_cached(extent(16, 1));
    buddy.free_cached(extent(0, 1));
    buddy.free(extent(24, 1));
    assert_eq!((buddy.free_frames(), buddy.plain_frames(), buddy.cached_frames()), (24, 8, 16));
    let taken: Vec<u64> = std::iter::from_fn(|| buddy.allocate(Level(1))).map(|extent| extent.start.0).collect();
    assert_eq!(taken, [24, 16, 0]);
    // The contents are there until their owner drops them.
    assert_eq!((buddy.plain_frames(), buddy.cached_frames()), (0, 16));
    assert!(buddy.cached_in(extent(16, 1)).eq((16..24).map(Pfn)));
    // Base pages of an old extent go before a whole one of later; then the pieces that are left,
    // before a new one.
    buddy.free(extent(0, 1));
    buddy.free(extent(16, 1));
    let first = buddy.allocate(Level(0)).unwrap();
    buddy.free_cached(extent(24, 1));
    let rest: Vec<u64> = (0..8).map(|_| buddy.allocate(Level(0)).unwrap().start.0).collect();
    assert_eq!((first.start.0, rest), (0, vec![1, 2, 3, 4, 5, 6, 7, 16]));
    buddy.validate().unwrap();
}

#[test]
fn pieces_without_cache_pages_are_taken_first() {
    let mut buddy = Buddy::new(ladder(&[3, 6]), 64).unwrap();
    for frame in [0, 8, 9, 63] {
        buddy.mark_cached(Pfn(frame));
    }
    let starts = |buddy: &mut Buddy, level, n| (0..n).map(|_| buddy.allocate(Level(level)).unwrap().start.0).collect();
    let plain: Vec<u64> = starts(&mut buddy, 1, 5);
    assert_eq!(plain, [16, 24, 32, 40, 48]);
    // The three that are left are as old as each other.
    let base: Vec<u64> = starts(&mut buddy, 0, 9);
    assert_eq!(base, [1, 2, 3, 4, 5, 6, 7, 0, 10]);
    buddy.forget_cached(Pfn(63));
    assert_eq!(buddy.allocate(Level(1)), Some(extent(56, 1)));
    assert!(buddy.cached_in(extent(0, 2)).eq([0, 8, 9].map(Pfn)));
}

#[test]
fn a_whole_with_a_cache_page_is_as_new_as_its_newest_part() {
    let mut buddy = Buddy::new(ladder(&[3, 4]), 32).unwrap();
    while buddy.allocate(Level(0)).is_some() {}
    buddy.free_cached(extent(0, 1));
    buddy.free_cached(extent(16, 1));
    buddy.free(extent(24, 1));
    buddy.free(extent(8, 1));
    assert_eq!(buddy.maximal(Level(2)), 2);
    assert_eq!([buddy.allocate(Level(2)), buddy.allocate(Level(2))], [16, 0].map(|start| Some(extent(start, 2))));
}

#[test]
fn the_order_of_age_is_a_part_of_equality() {
    let freed = |starts: [u64; 2]| {
        let mut buddy = Buddy::new(ladder(&[3]), 32).unwrap();
        while buddy.allocate(Level(1)).is_some() {}
        starts.into_iter().for_each(|start| buddy.free_cached(extent(start, 1)));
        buddy
    };
    assert_eq!(freed([0, 16]), freed([0, 16]));
    assert_ne!(freed([0, 16]), freed([16, 0]));
}

#[test]
fn what_is_no_frame_holds_no_cache_page() {
    let mut buddy = Buddy::new(ladder(&[3]), 20).unwrap();
    for round in 0..2 {
        for frame in [20, 1 << 40, u64::MAX] {
            buddy.forget_cached(Pfn(frame));
            assert!(!buddy.is_cached(Pfn(frame)));
        }
        assert_eq!([extent(16, 1), extent(4, 1), extent(0, 2)].map(|wrong| buddy.cached_in(wrong).count()), [0; 3]);
        buddy.mark_cached(Pfn(19));
        assert_eq!((buddy.cached_frames(), buddy.plain_frames()), (1, 19), "round {round}");
    }
}

#[test]
#[should_panic(expected = "there are 20 frames")]
fn marking_what_is_no_frame_panics() {
    Buddy::new(ladder(&[3]), 20).unwrap().mark_cached(Pfn(20));
}

#[test]
fn freeing_what_is_free_with_a_cache_page_panics() {
    let mut buddy = Buddy::new(ladder(&[3, 6]), 64).unwrap();
    while buddy.allocate(Level(0)).is_some() {}
    buddy.free_cached(extent(8, 1));
    for again in [extent(8, 1), extent(9, 0), extent(0, 2)] {
        for free in [Buddy::free, Buddy::free_cached] {
            let mut buddy = buddy.clone();
            let result = std::panic::catch_unwind(move || free(&mut buddy, again));
            let message = *result.unwrap_err().downcast::<String>().unwrap();
            assert!(message.contains("free already, or a part of it is"), "{message}");
        }
    }
}
