//! The counters of a population map, in the way of figure 3 of Navarro et al.: a root of the
//! largest size, two sizes below it, and base pages at the leaves.

use super::*;
use superpage_pages::PageSize;

const OBJECT: ObjectId = ObjectId(0);

/// A ladder with R = 4 at every level, as a figure has room for.
fn population() -> Population {
    let sizes = [12, 14, 16, 18].map(|shift| PageSize::from_shift(shift).unwrap());
    Population::new(&Ladder::new(&sizes).unwrap())
}

fn populate(map: &mut Population, pages: impl IntoIterator<Item = u64>) -> Filled {
    let mut filled = Filled { full: 0, saturated: 0 };
    for page in pages {
        let mut walk = map.walk(OBJECT, page);
        assert!(!walk.populated);
        filled = map.populate(&mut walk);
        map.set_single(walk.slots[1], (page % map.pages(1)) as u32, page as u32 + 1000);
        assert!(map.walk(OBJECT, page).populated);
    }
    filled
}

/// (somepop, fullpop) of the nodes on the path to a page, from the root, as far as they exist.
fn counts(map: &Population, page: u64) -> Vec<(u32, u32)> {
    let walk = map.walk(OBJECT, page);
    let counts = |level: u8| (map.some(level, walk.slots[level as usize]), map.full(level, walk.slots[level as usize]));
    (walk.lowest..=map.top).rev().map(counts).collect()
}

#[test]
fn counts_go_up_only_at_the_first_page_and_at_full_population() {
    let mut map = population();
    assert_eq!(counts(&map, 0), []);
    populate(&mut map, [0]);
    assert_eq!(counts(&map, 0), [(1, 0), (1, 0), (1, 1)]);
    populate(&mut map, [1, 2]);
    assert_eq!(counts(&map, 0), [(1, 0), (1, 0), (3, 3)], "neither the first nor the last: no propagation");
    assert_eq!(populate(&mut map, [3]).full, 1);
    assert_eq!(counts(&map, 0), [(1, 0), (1, 1), (4, 4)]);
    // A second child of the same parent; a second one of the root, whose path stops where nothing
    // is populated.
    populate(&mut map, [5, 16]);
    assert_eq!(counts(&map, 5), [(2, 0), (2, 1), (1, 1)]);
    assert_eq!(counts(&map, 20), [(2, 0), (1, 0)], "an absent child is one with both counters zero");
    let filled = populate(&mut map, [4, 6, 7].into_iter().chain(8..13));
    assert_eq!((filled.full, filled.saturated), (0, 0b100), "its parent has no empty child left");
    assert_eq!(populate(&mut map, 13..16).full, 2);
    assert_eq!(counts(&map, 0), [(2, 1), (4, 4), (4, 4)]);
    assert_eq!(populate(&mut map, 17..64).full, 3);
    assert_eq!(counts(&map, 63), [(4, 4), (4, 4), (4, 4)]);
}

#[test]
fn a_region_populated_at_once_is_as_if_its_pages_were_one_by_one() {
    for (level, at) in [(1, 6), (1, 3), (2, 17), (2, 47), (3, 70), (3, 127)] {
        // Beside it nothing, one page, or all of its region but it.
        let pages = 1 << (2 * level);
        let region = at / pages * pages..(at / pages + 1) * pages;
        for beside in [0..0, 200..201, 0..256] {
            let (mut at_once, mut singly) = (population(), population());
            for map in [&mut at_once, &mut singly] {
                populate(map, beside.clone().filter(|page| !region.contains(page)));
            }
            let mut walk = at_once.walk(OBJECT, at);
            at_once.populate_region(&mut walk, level as u8);
            populate(&mut singly, region.clone());
            assert!(walk.populated && walk.lowest == 1);
            assert_eq!(walk.slots, at_once.walk(OBJECT, at).slots);
            let runs = [&at_once, &singly].map(|map| {
                let mut runs = Vec::new();
                map.runs(OBJECT, 0, 256, &mut runs);
                runs
            });
            assert_eq!(runs[0], runs[1], "{region:?}");
            for page in (0..256).filter(|page| at_once.walk(OBJECT, *page).lowest <= 3) {
                assert_eq!(counts(&at_once, page), counts(&singly, page), "{page} with {region:?}");
            }
            for map in [&mut at_once, &mut singly] {
                let node = map.walk(OBJECT, at).slots[1];
                assert_eq!(map.clear_bits(node, 0, 4), 4);
            }
        }
    }
}

#[test]
fn the_first_node_without_population_gives_the_size_that_overlaps_nothing() {
    let mut map = population();
    assert_eq!(map.walk(OBJECT, 0).lowest, 4, "nothing yet: the largest size is free");
    populate(&mut map, [0]);
    let free = |map: &Population, page| map.walk(OBJECT, page).lowest - 1;
    assert_eq!([1, 4, 16, 64].map(|page| free(&map, page)), [0, 1, 2, 3]);
}

#[test]
fn runs_are_whole_however_the_tree_is_cut() {
    let mut map = population();
    populate(&mut map, (3..40).chain(62..70).chain([1000]));
    let mut runs = Vec::new();
    map.runs(OBJECT, 0, 1 << 40, &mut runs);
    assert_eq!(runs, [3..40, 62..70, 1000..1001]);
    runs.clear();
    map.runs(OBJECT, 10, 64, &mut runs);
    assert_eq!(runs, [10..40, 62..64]);
    assert_eq!(map.walk(OBJECT, 63).frame, 1063);
}

/// The map that section 4.9 describes, on the Alpha processor: base pages of 8 KB in regions of 64
/// KB, 512 KB and 4 MB, R = 8.
fn alpha() -> Population {
    let sizes = [13, 16, 19, 22].map(|shift| PageSize::from_shift(shift).unwrap());
    Population::new(&Ladder::new(&sizes).unwrap())
}

/// Figure 3 shows such a tree without numbers that the text repeats, so its regions are chosen
/// here: of 4 MB the first 64 KB are full, the second have three pages, the sixth one; the second
/// 512 KB are full; the last have their last page.
fn figure_3() -> Population {
    let mut map = alpha();
    populate(&mut map, (0..11).chain([40]).chain(64..128).chain([511]));
    map
}

#[test]
fn the_counters_of_figure_3_are_those_of_the_regions_below() {
    let map = figure_3();
    // The root: three regions of 512 KB with a page, one full. Then somepop and fullpop down the
    // path.
    assert_eq!(counts(&map, 0), [(3, 1), (3, 1), (8, 8)]);
    assert_eq!(counts(&map, 10), [(3, 1), (3, 1), (3, 3)]);
    assert_eq!(counts(&map, 40), [(3, 1), (3, 1), (1, 1)]);
    assert_eq!(counts(&map, 100), [(3, 1), (8, 8), (8, 8)]);
    assert_eq!(counts(&map, 511), [(3, 1), (1, 0), (1, 1)]);
    // No child stands for a region without a page: the path ends above it.
    assert_eq!(counts(&map, 20), [(3, 1), (3, 1)]);
    assert_eq!(counts(&map, 200), [(3, 1)]);
    assert_eq!(counts(&map, 512), []);
}

#[test]
fn the_four_uses_of_a_population_map() {
    let mut map = figure_3();
    // The first 512 KB are a reservation at frame 1024; so is the full region after them.
    for (page, frame) in [(0, 1024), (64, 4096)] {
        let slot = map.walk(OBJECT, page).slots[2];
        map.node_mut(2, slot).frame = frame;
    }
    // 1. Reserved frame lookup: populated or not, and where the path ends early.
    let found = |page| {
        let walk = map.walk(OBJECT, page);
        (walk.frame, walk.covered, walk.populated)
    };
    assert_eq!([0, 11, 20, 63].map(found), [(1024, 2, true), (1035, 2, false), (1044, 2, false), (1087, 2, false)]);
    assert_eq!((found(127), found(128)), ((4159, 2, true), (NONE, 0, false)));
    // 2. Overlap avoidance: the first node from the root that nothing is populated in.
    let largest = |page| map.walk(OBJECT, page).lowest - 1;
    assert_eq!([41, 20, 200, 504, 500, 512].map(largest), [0, 1, 2, 0, 1, 3]);
    // 3. Promotion decisions: the largest full region in an extent.
    let full = |page| map.full_level(&map.walk(OBJECT, page));
    assert_eq!([3, 9, 70, 511].map(full), [1, 0, 2, 0]);
    // 4. Preemption assistance: what of the first reservation is unpopulated, partially and fully
    //    populated.
    let slot = map.walk(OBJECT, 0).slots[2];
    let pieces: Vec<char> = (0..8)
        .map(|position| match map.child(2, slot, position) {
            NONE => 'e',
            child if map.is_full(1, child) => 'f',
            _ => 'p',
        })
        .collect();
    assert_eq!(pieces, ['f', 'p', 'e', 'e', 'e', 'p', 'e', 'e']);
    assert_eq!(map.largest_free(2, slot, 1), Some(1), "so it would yield 64 KB");
}

#[test]
fn pages_far_from_each_other_take_some_hundred_bytes() {
    let sizes = [12, 21, 30].map(|shift| PageSize::from_shift(shift).unwrap());
    for (stride, most) in [(1, 6), (512, 340), (512 * 512, 640)] {
        let mut map = Population::new(&Ladder::new(&sizes).unwrap());
        populate(&mut map, (0..20_000).map(|page| page * stride + page % stride));
        let each = map.metadata_bytes() / 20_000;
        assert!(each <= most, "{each} bytes a page with one in {stride}");
    }
}
