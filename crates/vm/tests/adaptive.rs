//! The policy `adaptive`: what is filled ahead, what is left to the program to learn from, and what
//! is given back.

use crate::machine::Machine;
use superpage_pages::{Level, Vpn};
use superpage_vm::Growth;

const MS: u64 = 1_000_000;
const PAGES: u64 = 512;

struct Run {
    machine: Machine,
    now: u64,
}

impl Run {
    fn new(policy: &str, frames: u64, regions: u64) -> Run {
        let mut machine = Machine::new("4K 2M", frames, policy);
        machine.anonymous(0, regions * PAGES, Growth::Fixed);
        let mut run = Run { machine, now: 0 };
        run.wait(0);
        run
    }

    fn wait(&mut self, milliseconds: u64) {
        self.now += milliseconds;
        self.machine.vm.advance(&mut self.machine.pmap, &mut self.machine.disk, self.now * MS, 0);
        if self.now.is_multiple_of(97) || milliseconds != 1 {
            self.machine.vm.validate(&self.machine.pmap).unwrap();
        }
    }

    /// Touches a page, and lets the policy act.
    fn touch(&mut self, page: u64) {
        self.machine.put(page, page + 1);
        self.wait(1);
    }

    fn huge(&self, region: u64) -> bool {
        self.machine.level(region * PAGES) == Some(Level(1))
    }
}

#[test]
fn where_regions_fill_the_next_are_filled_at_their_first_touch() {
    let mut run = Run::new("adaptive", 1 << 15, 24);
    // The first is a control, and nothing else is known: the program fills it, in order.
    (0..PAGES).for_each(|page| run.touch(page));
    assert!(run.huge(0));
    for region in 1..8 {
        run.touch(region * PAGES + 7);
        assert!(run.huge(region), "region {region}");
    }
    // The next control is left to the program, though its neighbours are full.
    run.touch(8 * PAGES + 7);
    assert!(!run.huge(8));
    let stats = run.machine.vm.stats();
    assert_eq!((stats.resident_pages, stats.promotions[1]), (8 * PAGES + 1, 8));
    // Filled in place: nothing was copied.
    assert_eq!(stats.bytes_copied, 0);
    run.machine.end();
}

#[test]
fn where_regions_stay_sparse_nothing_is_filled() {
    let mut run = Run::new("adaptive", 1 << 15, 24);
    for round in 0..100 {
        (0..24).for_each(|region| run.touch(region * PAGES + round * 5));
    }
    let stats = run.machine.vm.stats();
    assert_eq!((stats.resident_pages, stats.promotions[1]), (24 * 100, 0));
    run.machine.end();
}

#[test]
fn what_is_filled_stays_within_the_limit_of_what_the_controls_show() {
    // Each fifth page is never touched, all others are in an order of their own: 20 % of a region
    // that is filled is unused.
    let mut run = Run::new("adaptive:bloat=10%", 1 << 15, 24);
    let order = (0..PAGES).map(|at| at * 181 % PAGES).filter(|page| page % 5 != 0);
    for page in order {
        (0..24).for_each(|region| run.touch(region * PAGES + page));
    }
    let huge = (0..24).filter(|region| run.huge(*region)).count() as f64;
    let controls = (0..24).step_by(8).filter(|region| run.huge(*region)).count();
    let unused = huge * 0.2 * PAGES as f64;
    let populated = run.machine.vm.stats().resident_pages as f64;
    assert!(huge > 4.0 && unused <= 0.1 * populated && controls == 0, "{huge} superpages, {unused} of {populated}");
    run.machine.end();
}

#[test]
fn what_turns_out_to_be_sparse_is_given_back() {
    for (give_back, rest) in [("on", 0), ("off", 7)] {
        let mut run = Run::new(&format!("adaptive:give-back={give_back},bloat=1%"), 1 << 15, 64);
        (0..PAGES).for_each(|page| run.touch(page));
        // Filled, since the first region is full.
        (17..24).for_each(|region| run.touch(region * PAGES + 7));
        let filled = |run: &Run| (17..24).filter(|region| run.huge(*region)).count();
        assert_eq!(filled(&run), 7);
        // What was full is unmapped, and all that the program touches from now on is sparse.
        run.machine.unmap(0, PAGES);
        (25..64).for_each(|region| run.touch(region * PAGES + 7));
        run.wait(2000);
        run.wait(2000);
        assert!(if rest == 0 { filled(&run) <= 2 } else { filled(&run) == 7 }, "{give_back}: {}", filled(&run));
        // Contents stay.
        assert!((17..24).all(|region| run.machine.get(region * PAGES + 7) == region * PAGES + 8));
        run.machine.unmap(PAGES, 63 * PAGES);
    }
}

#[test]
fn where_nothing_is_reserved_a_settled_region_is_copied() {
    for (age, copied) in [("1s", true), ("1h", false)] {
        let mut run = Run::new(&format!("adaptive:age={age},place=base,compact=off"), 1 << 13, 2);
        (0..2 * PAGES).rev().for_each(|page| run.touch(page));
        run.wait(2000);
        run.wait(2000);
        assert_eq!((0..2).all(|region| run.huge(region)), copied, "{age}");
        run.machine.end();
    }
}

/// Deletions in a store: pages are discarded one after the other, in all regions.
#[test]
fn what_a_program_takes_back_is_not_filled_again_while_it_goes_on() {
    let mut run = Run::new("adaptive:give-back=off", 1 << 15, 16);
    (0..9 * PAGES).for_each(|page| run.touch(page));
    let promoted = |run: &Run| run.machine.vm.stats().promotions[1];
    let before = promoted(&run);
    assert!(before >= 8);
    for page in (3..PAGES).step_by(32) {
        for region in 1..8 {
            let range = Vpn(region * PAGES + page).pages(1);
            run.machine.vm.discard(&mut run.machine.pmap, run.machine.space, range).unwrap();
        }
        run.wait(1000);
    }
    assert_eq!((promoted(&run), run.machine.vm.stats().resident_pages), (before, 9 * PAGES - 7 * 16));
    // Once nothing has changed for `age`, the rest is filled.
    (0..11).for_each(|_| run.wait(1000));
    assert!(promoted(&run) > before);
    run.machine.end();
}
