//! Several cores: each holds what a core alone would hold that takes the same requests and sees
//! the same changes, and nothing that is stale.

use proptest::prelude::*;
use superpage_mmu::{Counters, Machine, Mmu, Request, UseBit};
use superpage_pages::{Access, Counts, Mapped, PageSize, Pfn, Protection, Vpn};

const MACHINES: [&str; 6] = ["zen5", "skylake-sp", "harpertown", "neoverse-v2", "zen5+fractured", "zen5+skewed"];

/// What happens, in each case to the space with the number in front.
#[derive(Clone, Debug)]
enum Step {
    /// Another core takes requests.
    GoTo(usize),
    Switch(u32),
    Access(Vec<(u64, bool)>),
    Promote(u32, u64),
    Demote(u32, u64),
    Protect(u32, u64),
    Remove(u32, u64),
}

/// Regions of 2 MB, in each of which 12 pages are used.
const REGIONS: u64 = 40;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let page = || (0..REGIONS, 0..12u64).prop_map(|(region, page)| region << 9 | page);
    let step = prop_oneof![
        4 => (0..3usize).prop_map(Step::GoTo),
        1 => (0..2u32).prop_map(Step::Switch),
        8 => prop::collection::vec((page(), any::<bool>()), 1..150).prop_map(Step::Access),
        1 => (0..2u32, 0..REGIONS).prop_map(|(space, region)| Step::Promote(space, region)),
        1 => (0..2u32, 0..REGIONS).prop_map(|(space, region)| Step::Demote(space, region)),
        1 => (0..2u32, page()).prop_map(|(space, page)| Step::Protect(space, page)),
        1 => (0..2u32, page()).prop_map(|(space, page)| Step::Remove(space, page)),
    ];
    prop::collection::vec(step, 1..80)
}

/// Three cores in one, and three machines of one core each.
struct Both {
    cores: Mmu,
    alone: Vec<Mmu>,
    at: usize,
    /// What each core runs, if it has begun.
    spaces: [Option<u32>; 3],
    /// Changes of each space, and those that each core has seen when it left it.
    changes: [u64; 2],
    seen: [[Option<u64>; 2]; 3],
    interrupts: u64,
    late_flushes: u64,
}

impl Both {
    fn each(&mut self) -> impl Iterator<Item = &mut Mmu> {
        self.alone.iter_mut().chain([&mut self.cores])
    }

    /// A change that is announced, unless the last one was for the same pages: then a core alone
    /// has no shootdown either.
    fn changed(&mut self, space: u32, before: u64) {
        let alone = self.alone[self.at].counters(0).shootdowns;
        assert!(self.cores.counters(0).shootdowns - before <= 1 && alone > 0);
        if self.cores.counters(0).shootdowns > before {
            let runs = |core: &usize| *core != self.at && self.spaces[*core] == Some(space);
            self.changes[space as usize] += 1;
            self.interrupts += (0..3).filter(runs).count() as u64;
        }
    }

    fn mapped(&self, space: u32, page: u64) -> Option<Mapped> {
        self.cores.lookup(space, Vpn(page))
    }

    fn step(&mut self, step: Step) {
        let shot = self.cores.counters(0).shootdowns;
        match step {
            Step::GoTo(core) => {
                self.cores.go_to(core, 0);
                self.at = core;
                if self.spaces[core].is_none() {
                    self.spaces[core] = Some(0);
                    self.cores.switch(0);
                }
            }
            Step::Switch(space) => {
                let Some(left) = self.spaces[self.at].replace(space).filter(|left| *left != space) else { return };
                self.seen[self.at][left as usize] = Some(self.changes[left as usize]);
                let stale = self.seen[self.at][space as usize].is_some_and(|seen| seen != self.changes[space as usize]);
                self.late_flushes += u64::from(stale);
                self.cores.switch(space);
                self.alone[self.at].switch(space);
            }
            Step::Access(accesses) => {
                let kind = |write: bool| if write { Access::Write } else { Access::Read };
                let requests: Vec<Request> =
                    accesses.iter().map(|(page, write)| Request::new(Vpn(*page), kind(*write))).collect();
                self.run(&requests);
            }
            Step::Promote(space, region) => {
                let first = region << 9;
                let whole = (first..first + 512).all(|page| {
                    let rights =
                        |mapped: &Mapped| mapped.size == PageSize::KB4 && mapped.protection == Protection::READ_WRITE;
                    self.mapped(space, page).as_ref().is_some_and(rights)
                });
                if !whole {
                    return self.fill(space, first);
                }
                self.each().for_each(|mmu| mmu.promote(space, Vpn(first), PageSize::KB4, PageSize::MB2));
                self.changed(space, shot);
            }
            Step::Demote(space, region) => {
                if self.mapped(space, region << 9).is_some_and(|mapped| mapped.size == PageSize::MB2) {
                    self.each().for_each(|mmu| mmu.demote(space, Vpn(region << 9), PageSize::MB2, PageSize::KB4));
                    self.changed(space, shot);
                }
            }
            Step::Protect(space, page) => {
                if let Some(Mapped { size: size @ PageSize::KB4, protection, .. }) = self.mapped(space, page) {
                    let other = if protection == Protection::READ { Protection::READ_WRITE } else { Protection::READ };
                    self.each().for_each(|mmu| mmu.protect(space, Vpn(page), size, other));
                    self.changed(space, shot);
                }
            }
            Step::Remove(space, page) => {
                if let Some(Mapped { size, .. }) = self.mapped(space, page) {
                    let first = Vpn(page & !((size.bytes() >> 12) - 1));
                    self.each().for_each(|mmu| _ = mmu.remove(space, first, size));
                    self.changed(space, shot);
                }
            }
        }
    }

    /// Maps the pages of a region that are absent.
    fn fill(&mut self, space: u32, first: u64) {
        for page in first..first + 512 {
            if self.mapped(space, page).is_none() {
                self.enter(space, page);
            }
        }
    }

    fn enter(&mut self, space: u32, page: u64) {
        let frame = Pfn(u64::from(space) << 20 | page);
        let to = Mapped { frame, size: PageSize::KB4, protection: Protection::READ_WRITE };
        self.each().for_each(|mmu| mmu.enter(space, Vpn(page), to, Access::Read));
    }

    fn run(&mut self, requests: &[Request]) {
        let (mut done, at) = (0, self.at);
        while done < requests.len() {
            let trap = self.cores.run(&requests[done..]);
            assert_eq!(trap, self.alone[at].run(&requests[done..]));
            let Some((index, _)) = trap else { break };
            let request = requests[done + index];
            let (space, page) = (self.cores.space(), request.page());
            let shot = self.cores.counters(0).shootdowns;
            if self.mapped(space, page.0).is_some() {
                self.each().for_each(|mmu| mmu.protect(space, page, PageSize::KB4, Protection::READ_WRITE));
                self.changed(space, shot);
            } else {
                self.enter(space, page.0);
            }
            self.cores.retry(request).unwrap();
            self.alone[at].retry(request).unwrap();
            done += index + 1;
        }
    }

    /// The counts of translations are the sums of those alone, and each core holds what it would.
    fn check(&mut self) {
        let translations = |counters: &Counters| {
            let Counters { references, walks, walk_cache_hits, .. } = *counters;
            let hits = (0..3).map(|level| counters.level_hits(level)).collect::<Vec<_>>();
            (references, walks, walk_cache_hits, hits)
        };
        let mut sum = Counters::default();
        self.alone.iter().for_each(|mmu| sum.add(&mmu.counters(0)));
        let counters = self.cores.counters(0);
        assert_eq!(translations(&counters), translations(&sum));
        assert_eq!((counters.shootdowns_received, counters.late_flushes), (self.interrupts, self.late_flushes));
        assert_eq!(self.cores.misses(0), counters.tlb_misses());
        for (core, space) in self.spaces.into_iter().enumerate() {
            let Some(space) = space else { continue };
            self.cores.go_to(core, 0);
            assert_eq!(self.cores.space(), space);
            assert_eq!(self.cores.held(0), self.alone[core].held(0), "core {core}");
        }
        self.cores.go_to(self.at, 0);
        assert_eq!(self.cores.validate(), Ok(()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Until a core comes back to a space that has changed, and drops more than a core alone
    /// would, all counts are those of three machines.
    #[test]
    fn three_cores_are_three_machines_with_the_same_mappings(machine in 0..MACHINES.len(), steps in steps()) {
        let machine = Machine::builtin(MACHINES[machine]).unwrap();
        let mut both = Both {
            cores: Mmu::on_cores(&[&machine]),
            alone: (0..3).map(|_| Mmu::new(&machine)).collect(),
            at: 0,
            spaces: [Some(0), None, None],
            changes: [0; 2],
            seen: [[None; 2]; 3],
            interrupts: 0,
            late_flushes: 0,
        };
        for step in steps {
            both.step(step);
            if both.late_flushes > 0 {
                // What it dropped it misses again.
                prop_assert_eq!(both.cores.counters(0).late_flushes, both.late_flushes);
                prop_assert_eq!(both.cores.validate(), Ok(()));
                break;
            }
            both.check();
        }
    }
}

#[test]
fn machines_whose_cores_are_not_modelled_are_refused_with_the_reason() {
    let refused = |name: &str| Mmu::refuses_cores(&Machine::builtin(name).unwrap());
    for name in MACHINES.into_iter().chain(["zen5+colt", "zen5+range", "zen5+nested", "zen5+victima", "alpha-21264"]) {
        assert_eq!(refused(name), None, "{name}");
    }
    assert!(refused("ppc604").is_some_and(|why| why.contains("hash table")));
    assert!(refused("zen5+shadow").is_some_and(|why| why.contains("shadow")));
    let mut alike = Machine::builtin("zen5+coalescing").unwrap();
    let joins = alike.tlb.iter_mut().find_map(|tlb| tlb.joins.as_mut()).expect("it joins");
    joins.alike = vec![UseBit::Dirty];
    assert!(Mmu::refuses_cores(&alike).is_some_and(|why| why.contains("use bits")));
}

/// A core that runs another space is not interrupted; it drops what it held when it comes back.
#[test]
fn a_core_that_comes_back_to_a_changed_space_misses_again() {
    let machine = Machine::builtin("zen5").unwrap();
    let mut mmu = Mmu::on_cores(&[&machine]);
    let to = |page| Mapped { frame: Pfn(page), size: PageSize::KB4, protection: Protection::READ_WRITE };
    (0..8).for_each(|page| mmu.enter(0, Vpn(page), to(page), Access::Read));
    let read: Vec<Request> = (0..4).map(|page| Request::new(Vpn(page), Access::Read)).collect();
    for core in [0, 1] {
        mmu.go_to(core, 0);
        mmu.switch(0);
        assert_eq!(mmu.run(&read), None);
    }
    assert_eq!(mmu.misses(0), 8, "private TLBs");
    mmu.switch(1);
    mmu.go_to(0, 0);
    mmu.remove(0, Vpn(7), PageSize::KB4);
    assert_eq!(mmu.counters(0).shootdowns_received, 0);
    mmu.go_to(1, 0);
    mmu.switch(0);
    assert_eq!((mmu.counters(0).late_flushes, mmu.run(&read)), (1, None));
    assert_eq!(mmu.misses(0), 12);
    mmu.go_to(0, 0);
    assert_eq!(mmu.run(&read), None);
    assert_eq!(mmu.misses(0), 12, "core 0 has kept them");
    mmu.remove(0, Vpn(6), PageSize::KB4);
    assert_eq!(mmu.counters(0).shootdowns_received, 1, "core 1 runs the space");
}

/// Two cores that share a cache find the page-table lines there that either has read; others read
/// them from memory.
#[test]
fn a_shared_line_cache_is_one() {
    let mut machine = Machine::builtin("zen5").unwrap();
    machine.line_cache.last_mut().expect("an L3").shared_by = 2;
    let mut mmu = Mmu::on_cores(&[&machine]);
    let to = Mapped { frame: Pfn(5), size: PageSize::KB4, protection: Protection::READ_WRITE };
    mmu.enter(0, Vpn(5), to, Access::Read);
    let mut from_memory = |core| {
        let before = mmu.counters(0).line_misses;
        mmu.go_to(core, 0);
        mmu.switch(0);
        assert_eq!(mmu.run(&[Request::new(Vpn(5), Access::Read)]), None);
        mmu.counters(0).line_misses - before
    };
    let first = from_memory(0);
    assert!(first > 0);
    assert_eq!([from_memory(1), from_memory(2), from_memory(3), from_memory(0)], [0, first, 0, 0]);
    assert_eq!(mmu.validate(), Ok(()));
}

/// What one call changes has one shootdown; what does not change anything has none; and the next
/// call has its own.
#[test]
fn gathered_changes_are_announced_once() {
    let machine = Machine::builtin("zen5").unwrap();
    let mut mmu = Mmu::on_cores(&[&machine]);
    let to = |page| Mapped { frame: Pfn(page), size: PageSize::KB4, protection: Protection::READ_WRITE };
    (0..64).for_each(|page| mmu.enter(0, Vpn(page), to(page), Access::Read));
    mmu.go_to(1, 0);
    mmu.switch(0);
    let sums = |mmu: &Mmu| [mmu.shared().shootdowns, mmu.shared().shootdowns_received];
    mmu.begin_gather(0, 100..200);
    mmu.end_gather();
    assert_eq!(sums(&mmu), [0, 0], "nothing was mapped there");
    for pages in [0..32, 32..64] {
        mmu.begin_gather(0, 0..64);
        pages.for_each(|page| _ = mmu.remove(0, Vpn(page), PageSize::KB4));
        mmu.end_gather();
    }
    assert_eq!(sums(&mmu), [2, 2]);
}

/// The number of a space that has ended is another's then: no core runs it, or has left it.
#[test]
fn a_number_that_is_used_again_is_of_a_new_space() {
    let machine = Machine::builtin("zen5").unwrap();
    let mut mmu = Mmu::on_cores(&[&machine]);
    let to = Mapped { frame: Pfn(5), size: PageSize::KB4, protection: Protection::READ_WRITE };
    for core in [0, 1, 2] {
        mmu.go_to(core, 0);
        mmu.switch(3);
    }
    mmu.switch(4);
    mmu.go_to(1, 0);
    mmu.enter(3, Vpn(5), to, Access::Read);
    mmu.flush(3);
    mmu.remove(3, Vpn(5), PageSize::KB4);
    mmu.destroy(3);
    assert_eq!(mmu.shared().shootdowns_received, 0, "all its threads have ended");
    mmu.switch(3);
    mmu.enter(3, Vpn(5), to, Access::Read);
    mmu.remove(3, Vpn(5), PageSize::KB4);
    assert_eq!(mmu.shared().shootdowns_received, 0, "core 0 ran another of this number");
    mmu.go_to(2, 0);
    mmu.switch(3);
    assert_eq!(mmu.shared().late_flushes, 0);
}
