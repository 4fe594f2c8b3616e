//! How pages grow old (Navarro et al., section 5.1: approximate LRU, as in FreeBSD 4). The daemon
//! samples each active page in turn. A page starts with an activity of 5; a reference adds 3, up to
//! 64; a round that finds none takes 1 away, and at 0 the page is inactive. What nobody maps is
//! inactive at once.

use crate::machine::Machine;
use superpage_pages::{Access, Extent, Vpn};
use superpage_vm::Growth;

/// 64 frames: the daemon wakes with fewer than 4 available and samples active pages until 40 are
/// inactive or available.
const FRAMES: u64 = 64;
/// The pages that are watched: too many for the rest to be 40.
const WATCHED: u64 = 40;
/// Where they are mapped.
const START: u64 = 512;
/// A file that is read and closed: its pages are inactive.
const SUPPLY: u32 = 9;

/// A memory in which as many pages can go at once as the daemon wants, so that it samples each
/// active page once a run.
struct Watch {
    machine: Machine,
    next: u64,
}

impl Watch {
    fn new() -> Watch {
        Watch { machine: Machine::with_swap("8K", FRAMES, "base:cache=free,close=inactive", 1000), next: 0 }
    }

    fn with_superpages(speculate: &str) -> Watch {
        let policy = format!("reservation:cache=free,wake=memory,speculate={speculate}");
        Watch { machine: Machine::with_swap("8K 64K", FRAMES, &policy, 1000), next: 0 }
    }

    /// Lets the daemon sample each page once, as long as they are all active.
    fn round(&mut self) {
        let (vm, machine) = (self.machine.vm.stats(), &mut self.machine);
        machine.vm.open(SUPPLY, 1 << 20).unwrap();
        while !machine.vm.daemon_wanted() {
            let _ = machine.read_file(SUPPLY, self.next).unwrap();
            self.next += 1;
        }
        machine.vm.close(SUPPLY).unwrap();
        machine.daemon();
        let now = machine.vm.stats();
        assert!(now.evictions > vm.evictions && now.resident_pages == FRAMES - 16, "the supply was enough");
    }

    fn active(&self) -> u64 {
        self.machine.vm.stats().active_pages
    }

    /// How many rounds it takes until some of the pages are inactive, if nobody uses them.
    fn rounds(&mut self) -> u64 {
        let inactive = |_: &u64| {
            self.round();
            self.active() < WATCHED
        };
        (1..200).find(inactive).expect("pages that nobody uses grow old")
    }

    /// Uses each page once.
    fn reference(machine: &mut Machine) {
        (START..START + WATCHED).for_each(|page| assert!(machine.pmap.access(machine.space, Vpn(page), Access::Read)));
    }

    fn end(mut self) {
        self.machine.vm.remove_file(SUPPLY).unwrap();
        self.machine.end();
    }
}

/// Pages that were touched once and sampled once.
fn touched(mut watch: Watch) -> Watch {
    watch.machine.anonymous(START, WATCHED, Growth::Fixed);
    (START..START + WATCHED).for_each(|page| watch.machine.put(page, page));
    watch.round();
    assert_eq!(watch.active(), WATCHED);
    watch
}

#[test]
fn a_page_has_five_looks_and_three_for_each_reference() {
    for references in 0..4 {
        let mut watch = touched(Watch::new());
        for _ in 0..references {
            Watch::reference(&mut watch.machine);
            watch.round();
        }
        assert_eq!(watch.rounds(), 5 + 3 * (1 + references), "{references} references after the first");
        watch.end();
    }
}

#[test]
fn activity_has_a_limit() {
    for references in [19, 20, 60] {
        let mut watch = touched(Watch::new());
        for _ in 0..references {
            Watch::reference(&mut watch.machine);
            watch.round();
        }
        assert_eq!(watch.rounds(), 64.min(8 + 3 * references));
        watch.end();
    }
}

#[test]
fn what_is_used_between_any_two_looks_stays_active() {
    let mut watch = touched(Watch::new());
    for _ in 0..100 {
        Watch::reference(&mut watch.machine);
        watch.round();
        assert_eq!(watch.active(), WATCHED);
    }
    watch.end();
}

#[test]
fn an_inactive_page_that_is_used_again_is_as_active_as_a_new_one() {
    let mut watch = touched(Watch::new());
    // One more page, of a file that is mapped, but it is read past the mapping: no reference bit
    // tells.
    watch.machine.file(4096, 1, true, 0);
    watch.machine.vm.open(1, 1).unwrap();
    for _ in 0..3 {
        let _ = watch.machine.read_file(1, 0).unwrap();
        assert_eq!(watch.active(), WATCHED + 1);
        let rounds = (1..).find(|_| {
            Watch::reference(&mut watch.machine);
            watch.round();
            watch.active() == WATCHED
        });
        assert_eq!(rounds, Some(5));
    }
    watch.machine.vm.close(1).unwrap();
    watch.end();
}

#[test]
fn what_nobody_maps_is_inactive_at_the_first_look() {
    let mut watch = Watch::new();
    watch.machine.vm.open(1, WATCHED).unwrap();
    (0..WATCHED).for_each(|page| {
        let _ = watch.machine.read_file(1, page).unwrap();
    });
    assert_eq!(watch.active(), WATCHED);
    assert_eq!(watch.rounds(), 1);
    watch.machine.vm.close(1).unwrap();
    watch.end();
}

#[test]
fn the_pages_of_a_superpage_grow_old_together() {
    for references in [0, 2] {
        let mut watch = touched(Watch::with_superpages("0/4"));
        for _ in 0..references {
            // One page of each is used: that is all a reference bit tells.
            (START + 3..START + WATCHED).step_by(8).for_each(|page| {
                assert!(watch.machine.pmap.access(watch.machine.space, Vpn(page), Access::Read));
            });
            watch.round();
        }
        assert_eq!(watch.rounds(), 8 + 3 * references);
        assert_eq!(watch.active() % 8, 0, "none is inactive in part");
        watch.end();
    }
}

/// Section 4.6: what a superpage's reference bit said is not known of its parts.
#[test]
fn a_demoted_superpage_is_made_again_only_if_each_page_was_seen_in_use() {
    for (used, level) in [(8, 1), (7, 0), (1, 0)] {
        let mut watch = touched(Watch::with_superpages("4/4"));
        assert_eq!(watch.machine.vm.stats().speculative_demotions, WATCHED / 8);
        (0..WATCHED).filter(|page| page % 8 < used).for_each(|page| {
            assert!(watch.machine.pmap.access(watch.machine.space, Vpn(START + page), Access::Read));
        });
        watch.round();
        let levels: Vec<_> = (0..WATCHED).map(|page| watch.machine.level(START + page).unwrap().0).collect();
        assert_eq!(levels, [level; WATCHED as usize], "{used} of 8 pages are used");
        assert_eq!(watch.machine.vm.stats().repromotions, u64::from(level) * WATCHED / 8);
        watch.end();
    }
}

#[test]
fn one_run_finds_enough_however_active_pages_were() {
    let mut watch = touched(Watch::new());
    for _ in 0..60 {
        Watch::reference(&mut watch.machine);
        watch.round();
    }
    // The kernel takes all free frames but three: what is inactive is not enough for the 16 that
    // the daemon aims at.
    let mut machine = watch.machine;
    let free: Vec<Extent> = machine.vm.buddy().iter().collect();
    free.into_iter().skip(3).for_each(|extent| machine.vm.wire(extent).unwrap());
    assert!(machine.vm.stats().inactive_pages < 13 && machine.vm.daemon_wanted());
    assert!(machine.daemon());
    assert_eq!(machine.vm.buddy().free_frames(), 16);
}

#[test]
fn what_was_used_least_goes_first_where_all_were_used_of_late() {
    let mut watch = touched(Watch::new());
    let often = START..START + 20;
    for _ in 0..3 {
        often.clone().for_each(|page| assert!(watch.machine.pmap.access(watch.machine.space, Vpn(page), Access::Read)));
        watch.round();
    }
    // Memory is full of pages that were all just used, so that the daemon must let many rounds pass
    // at once.
    Watch::reference(&mut watch.machine);
    watch.machine.anonymous(4096, 64, Growth::Fixed);
    let mut fresh = 4096..4096 + 64;
    while !watch.machine.vm.daemon_wanted() {
        let page = fresh.next().expect("memory is full before that");
        watch.machine.put(page, page);
    }
    assert!(watch.machine.daemon());
    assert_eq!(watch.machine.mapped(often.clone()).len(), 20, "the oldest, and the most used");
    assert!(watch.machine.mapped(START + 20..START + WATCHED).len() < 20);
    watch.end();
}
