//! Fault-around: which pages are populated beside those that are touched, exactly as a naive model
//! says, and what limits it.

use crate::machine::{ALPHA, Machine};
use superpage_pages::Level;
use superpage_vm::Growth;

const ARM: &str = "4K 64K 2M";

/// The rule, page by page: `reserved` gives the reservation of a page as its first page and its
/// size.
struct Model {
    populated: Vec<bool>,
    around: usize,
    touched: usize,
    reserved: fn(usize) -> (usize, usize),
}

impl Model {
    fn all(&self, low: usize, pages: usize) -> bool {
        self.populated.get(low..low + pages).is_some_and(|pages| pages.iter().all(|page| *page))
    }

    fn touch(&mut self, page: usize) {
        (self.populated[page], self.touched) = (true, self.touched + 1);
        let (first, size) = (self.reserved)(page);
        let mut pages = 2;
        while pages <= self.around.min(size) {
            let low = page / pages * pages;
            assert!(low >= first && low + pages <= first + size);
            let evidence = pages.max(4);
            let after = page == low + pages - 1 && self.all(low + pages, evidence);
            if after || page == low && low >= evidence && self.all(low - evidence, evidence) {
                self.populated[low..low + pages].fill(true);
            }
            pages *= 2;
        }
    }
}

fn random(state: &mut u64, below: usize) -> usize {
    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    (*state >> 33) as usize % below
}

/// Touches pages in an order, or those of them that are not populated, and compares after each
/// touch. The number of faults.
fn compare(
    sizes: &str,
    around: usize,
    reserved: fn(usize) -> (usize, usize),
    order: impl Iterator<Item = usize>,
) -> usize {
    const PAGES: usize = 1044;
    let mut machine = Machine::new(sizes, 4096, &format!("reservation:around={around}"));
    machine.anonymous(0, PAGES as u64, Growth::Fixed);
    let mut model = Model { populated: vec![false; PAGES], around, touched: 0, reserved };
    let mut faults = 0;
    for page in order {
        assert_eq!(machine.frame(page as u64).is_some(), model.populated[page], "page {page} of {sizes}, {around}");
        if !model.populated[page] {
            machine.write(page as u64);
            model.touch(page);
            faults += 1;
            let stats = machine.vm.stats();
            let populated = model.populated.iter().filter(|page| **page).count();
            let counts = (stats.resident_pages, stats.touched_pages, stats.untouched_pages, stats.faults);
            assert_eq!(counts, (populated as u64, faults, populated as u64 - faults, faults), "{sizes}, {around}");
        }
    }
    let mapped: Vec<bool> = (0..PAGES as u64).map(|page| machine.frame(page).is_some()).collect();
    assert_eq!(mapped, model.populated);
    // What is full is promoted, wherever it was populated from.
    for start in (0..PAGES).filter(|page| page % (reserved)(*page).1 == 0) {
        let (_, size) = reserved(start);
        let whole = size > 1 && model.all(start, size);
        let largest = machine.vm.ladder().levels().find(|level| machine.vm.ladder().pages(*level) == size as u64);
        assert_eq!(machine.level(start as u64) == largest, whole || size == 1 && model.populated[start]);
    }
    let faults = faults as usize;
    machine.end();
    faults
}

/// The reservations of 1044 pages in 4K 64K 2M: 2 MB twice, 64 KB, and base pages at the end.
fn arm(page: usize) -> (usize, usize) {
    let size = [512, 16, 1].into_iter().find(|size| (page / size + 1) * size <= 1044).unwrap();
    (page / size * size, size)
}

/// The same in 8K 64K 512K 4M.
fn alpha(page: usize) -> (usize, usize) {
    let size = [512, 64, 8, 1].into_iter().find(|size| (page / size + 1) * size <= 1044).unwrap();
    (page / size * size, size)
}

#[test]
fn windows_are_those_of_the_naive_model() {
    let mut state = 1;
    for (sizes, reserved) in [(ARM, arm as fn(usize) -> _), (ALPHA, alpha as fn(usize) -> _)] {
        for around in [1, 2, 8, 64, 512] {
            let mut shuffled: Vec<usize> = (0..1044).collect();
            (1..1044).rev().for_each(|page| shuffled.swap(page, random(&mut state, page + 1)));
            let runs = (0..30).flat_map(|_| {
                let (from, pages) = (random(&mut state, 1000), random(&mut state, 40));
                (from..(from + pages).min(1044)).collect::<Vec<_>>()
            });
            let runs: Vec<usize> = runs.collect();
            compare(sizes, around, reserved, shuffled.into_iter());
            compare(sizes, around, reserved, runs.into_iter());
            compare(sizes, around, reserved, (0..1044).rev());
            let faults = compare(sizes, around, reserved, 0..1044);
            assert!(around > 1 || faults == 1044);
            // In order: 0, 1, 2, 3, 4, 8, ... up to the window, which then goes on into the second
            // 2 MB.
            if (sizes, around) == (ARM, 64) {
                assert_eq!(faults, 8 + 2 * 512 / 64 - 1 + 1 + 4);
            }
        }
    }
}

#[test]
fn sparse_touches_populate_nothing_beside() {
    for step in [2, 3, 8, 17] {
        compare(ARM, 512, arm, (0..1044).step_by(step).take_while(|page| *page < 1024));
    }
    let mut machine = Machine::new(ARM, 4096, "reservation:around=512");
    machine.anonymous(0, 1024, Growth::Fixed);
    machine.write_all((0..1024).step_by(2));
    assert_eq!(machine.vm.stats().untouched_pages, 0);
    machine.end();
}

#[test]
fn where_memory_would_be_short_nothing_is_populated_ahead() {
    // The daemon of 1024 frames aims at 36: windows become smaller before it, and end there.
    let mut machine = Machine::with_swap(ARM, 1024, "reservation:around=64", 1024);
    machine.anonymous(0, 1024, Growth::Fixed);
    let mut left = Vec::new();
    for page in 0..1024 {
        if machine.frame(page).is_none() {
            let before = machine.vm.stats();
            machine.access(page, superpage_pages::Access::Write).unwrap();
            let after = machine.vm.stats();
            if after.untouched_pages > before.untouched_pages {
                left.push(1024 - after.resident_pages);
            }
        }
        machine.vm.validate(&machine.pmap).unwrap();
    }
    assert_eq!(left.last(), Some(&36), "{left:?}");
    assert_eq!(machine.vm.stats().evictions, 0);
    machine.end();
}

#[test]
fn what_has_contents_elsewhere_is_not_read_ahead() {
    let mut machine = Machine::with_swap(ARM, 1024, "reservation:around=64", 1 << 14);
    machine.anonymous(0, 512, Growth::Fixed);
    (0..64).for_each(|page| machine.put(page, page + 1));
    machine.squeeze();
    let before = machine.vm.stats();
    (0..64).for_each(|page| assert_eq!(machine.get(page), page + 1));
    let after = machine.vm.stats();
    assert_eq!(after.faults - before.faults, 64);
    // What was never populated is, once the window has nothing else in it.
    machine.write(64);
    assert_eq!((machine.frame(127).is_some(), machine.level(64)), (true, Some(Level(1))));
    machine.end();
}
