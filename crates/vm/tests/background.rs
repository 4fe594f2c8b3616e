//! Policies that do something in time of their own: `promote` on this crate's manager, and on a
//! system that is none.

mod contract;

use self::contract::CONTRACT;
use crate::machine::Machine;
use std::collections::BTreeMap;
use superpage_pages::{Extent, Hint, Ladder, Level, Pfn, Vpn};
use superpage_vm::{
    Background, Candidate, Compacted, Config, Costs, Definition, Event, FaultKind, Growth, How, Look, Made, Part,
    Place, Policy, Prefer, Refusal, Sample, Scanned, ScannedPart, SpaceId, System, Target, Time, Vm, Wants, Why,
};

pub(crate) const X86: &str = "4K 2M 1G";
pub(crate) const SECOND: Time = 1_000_000_000;

pub(crate) fn advance(machine: &mut Machine, seconds: u64, spent: Time) -> Option<Time> {
    let next = machine.vm.advance(&mut machine.pmap, &mut machine.disk, seconds * SECOND, spent);
    machine.vm.validate(&machine.pmap).unwrap();
    next
}

#[test]
fn promote_waits_for_what_is_full_and_settled() {
    let mut machine = Machine::new(X86, 8192, "promote:share=90%,age=3s");
    machine.anonymous(512, 3 * 512, Growth::Fixed);
    // Full, populated to the share, and below it.
    for (start, pages) in [(512, 512), (1024, 461), (1536, 460)] {
        (start..start + pages).for_each(|page| machine.put(page, page));
    }
    for second in 0..4 {
        advance(&mut machine, second, 0);
        assert_eq!(machine.level(512), Some(Level::BASE), "{second}");
    }
    (4..12).for_each(|second| assert!(advance(&mut machine, second, 0).is_some()));
    assert_eq!([512, 1024, 1536].map(|page| machine.level(page)), [Some(Level(1)), Some(Level(1)), Some(Level::BASE)]);
    let stats = machine.vm.stats();
    assert_eq!((stats.promotions[1], stats.promotions_by_copying, stats.untouched_pages), (2, 2, 51));
    assert!((1024..1024 + 461).all(|page| machine.get(page) == page) && machine.get(1535) == 0);
    machine.end();
}

#[test]
fn promote_keeps_to_its_budget_and_waits_where_no_extent_is_free() {
    let mut machine = Machine::new(X86, 1024, "promote:age=0s,cpu=0.01,burst=100ms,interval=1s");
    machine.anonymous(512, 1024, Growth::Fixed);
    (512..1024).for_each(|page| machine.put(page, page));
    // Nothing is left of the budget for ten seconds.
    let due = advance(&mut machine, 0, 200_000_000).unwrap();
    assert_eq!(due, 10 * SECOND);
    let taken = machine.vm.wire_page().unwrap();
    (10..30).for_each(|second| assert!(advance(&mut machine, second, 200_000_000).is_some()));
    assert_eq!(machine.level(512), Some(Level::BASE), "no extent is free");
    machine.vm.unwire_page(taken).unwrap();
    (30..60).for_each(|second| assert!(advance(&mut machine, second, 200_000_000).is_some()));
    assert_eq!(machine.level(512), Some(Level(1)));
    machine.end();
}

#[test]
fn policies_without_a_background_ask_for_no_time() {
    let mut machine = Machine::new(X86, 1024, "reservation");
    assert!(!machine.vm.has_background());
    assert_eq!(advance(&mut machine, 1, 0), None);
    machine.end();
}

/// Address spaces that are numbers, and what was asked of them.
struct Mock {
    ladder: Ladder,
    now: Time,
    spent: Time,
    /// By space and region: pages, and whether it is a superpage.
    regions: BTreeMap<(u32, u64), (u32, bool)>,
    busiest: u32,
    outcome: Result<(), Refusal>,
    promoted: Vec<(u32, u64)>,
    /// When spaces were scanned.
    scanned: Vec<Time>,
    /// What a scan of one of the spaces costs; of the others, nothing.
    costly: (u32, Time),
    /// As live Linux: it promotes by copying alone, and a scan says nothing of what is as it was.
    live: bool,
    seen: BTreeMap<(u32, u64), (u32, bool)>,
    compactions: u64,
}

impl System for Mock {
    fn ladder(&self) -> &Ladder {
        &self.ladder
    }

    fn now(&self) -> Time {
        self.now
    }

    fn spent(&self) -> Time {
        self.spent
    }

    fn spaces(&mut self) -> Vec<SpaceId> {
        let mut spaces: Vec<SpaceId> = self.regions.keys().map(|(space, _)| SpaceId(*space)).collect();
        spaces.dedup();
        spaces
    }

    fn scan_part(&mut self, space: SpaceId, _: Level, part: Part, see: &mut dyn FnMut(Sample)) -> ScannedPart {
        self.scanned.push(self.now);
        self.spent += if space.0 == self.costly.0 { self.costly.1 } else { 0 };
        let mut regions = self.regions.range((space.0, part.from)..(space.0 + 1, 0));
        for ((_, region), (populated, superpage)) in regions.by_ref().take(part.most as usize) {
            see(Sample { region: *region, populated: *populated, superpage: *superpage });
        }
        ScannedPart { scanned: Scanned::Seen, next: regions.next().map(|((_, region), _)| *region) }
    }

    fn scan_if_changed(&mut self, space: SpaceId, level: Level, see: &mut dyn FnMut(Sample)) -> Scanned {
        if self.live && self.seen == self.regions {
            return Scanned::Unchanged;
        }
        self.seen = self.regions.clone();
        self.scan(space, level, see)
    }

    fn look(&mut self, space: SpaceId, _: Level, region: u64) -> Look {
        let (populated, superpage) = self.regions[&(space.0, region)];
        Look { populated, superpage, ..Look::default() }
    }

    fn rate(&self, space: SpaceId) -> f64 {
        f64::from(u8::from(space.0 == self.busiest))
    }

    fn promote(&mut self, space: SpaceId, _: Level, regions: &[Candidate], how: How) -> Vec<Result<(), Refusal>> {
        let mut outcomes = Vec::new();
        for candidate in regions {
            if self.live && how == How::InPlace {
                outcomes.push(Err(Why::Otherwise.into()));
                continue;
            }
            let region = self.regions.get_mut(&(space.0, candidate.region));
            let Some(region) = region.filter(|region| region.0 >= candidate.least) else {
                outcomes.push(Err(Why::NotPopulated.into()));
                continue;
            };
            if self.outcome.is_ok() {
                *region = (512, true);
            }
            self.spent += 1_000_000;
            self.promoted.push((space.0, candidate.region));
            outcomes.push(self.outcome);
        }
        outcomes
    }

    fn demote(&mut self, _: SpaceId, _: Level, _: u64) -> bool {
        false
    }

    /// What is moved out of one extent goes into another that was free.
    fn compact(&mut self, _: Level, _: Option<Extent>) -> Option<Compacted> {
        self.compactions += 1;
        assert!(self.compactions < 1000, "it goes round for ever");
        Some(Compacted { free: true, moved: 1, failed: 0 })
    }

    fn free_extents(&mut self, _: Level) -> Option<u64> {
        Some(0)
    }
}

/// A machine whose policy is of these tests.
fn machine_of(definition: &'static superpage_vm::Definition, regions: &str) -> Machine {
    let mut machine = Machine::new(X86, 4096, "base");
    let policy = Policy::of(definition, [("regions", regions)], &Target::MANAGER).unwrap();
    let ladder = *machine.vm.ladder();
    machine.vm = Vm::new(Config { ladder, frames: 4096, policy, swap_pages: 4096 }).unwrap();
    machine.space = machine.vm.create_space();
    machine
}

#[test]
fn a_scan_keeps_its_contract_on_the_manager_and_on_a_system_that_is_none() {
    let mut system = mock(&[(1, 7, 512), (1, 9, 3), (1, 10, 512)]);
    contract::kept(&mut system, SpaceId(1), Level(1), 3);
    let mut machine = machine_of(&CONTRACT, "4");
    // Two entries, of which a protected one lies between, and one where base pages are asked for.
    machine.anonymous(512, 5 * 512, Growth::Fixed);
    machine.anonymous(8 * 512, 512, Growth::Fixed);
    machine.anonymous(9 * 512, 512, Growth::Fixed);
    machine.vm.advise(&mut machine.pmap, machine.space, Vpn(9 * 512).pages(512), Hint::Base).unwrap();
    for (start, pages) in [(512, 512), (1024, 1), (3 * 512 - 1, 2), (5 * 512, 7), (8 * 512, 100), (9 * 512, 9)] {
        (start..start + pages).for_each(|page| machine.put(page, page));
    }
    (1..4).for_each(|second| _ = advance(&mut machine, second, 0));
    // The pages of five regions count in each of its scans: twice whole, and in parts.
    assert_eq!(machine.vm.stats().background_scanned, 3 * 6 * (512 + 2 + 1 + 7 + 100));
    machine.end();
}

#[test]
fn a_look_tells_pages_that_are_shared_swapped_reserved_and_not_touched() {
    let look = |machine: &mut Machine, region| {
        let space = machine.space;
        machine.vm.as_system(&mut machine.pmap, &mut machine.disk, |system| system.look(space, Level(1), region))
    };
    let mut machine = Machine::new(X86, 4096, "reservation:around=4");
    machine.anonymous(512, 512, Growth::Fixed);
    (512..517).for_each(|page| machine.put(page, page));
    let found = look(&mut machine, 1);
    let populated = machine.vm.stats().resident_pages as u32;
    assert_eq!((found.populated, found.reserved, found.shared, found.swapped), (populated, 512 - populated, 0, 0));
    assert_eq!(found.untouched, Some(machine.vm.stats().untouched_pages as u32));
    assert_eq!((found.accessed, found.superpage), (Some(8), false));
    let child = machine.vm.fork(&mut machine.pmap, machine.space).unwrap();
    machine.put(512, 512);
    let found = look(&mut machine, 1);
    assert_eq!((found.populated, found.shared), (1, populated - 1));
    machine.vm.exit(&mut machine.pmap, child).unwrap();
    assert_eq!(look(&mut machine, 1).shared, 0);
    machine.end();
}

/// Two mappings in a region: the extent that is reserved for the first reaches past its end, where
/// the second is.
#[test]
fn what_is_reserved_for_every_mapping_of_a_region_is_given_back() {
    let mut machine = Machine::new("4K 64K 2M", 4096, "reservation");
    machine.anonymous(512, 512, Growth::Fixed);
    machine.put(512, 1);
    machine.unmap(640, 64);
    machine.anonymous(640, 64, Growth::Fixed);
    machine.put(640, 2);
    let (space, level) = (machine.space, Level(2));
    let left = machine.vm.as_system(&mut machine.pmap, &mut machine.disk, |system| {
        assert!(system.look(space, level, 1).reserved > 400);
        system.release(space, level, 1);
        system.look(space, level, 1).reserved
    });
    assert_eq!((left, machine.get(512), machine.get(640)), (0, 1, 2));
    machine.end();
}

#[test]
fn reserved_frames_and_pages_of_zeroes_are_given_back() {
    let mut machine = Machine::new(X86, 4096, "reservation:threshold=3/8");
    machine.anonymous(512, 1024, Growth::Fixed);
    // Full after a quarter of it, the rest zeroes; and a reservation with five pages.
    (512..512 + 200).for_each(|page| machine.put(page, page));
    (1024..1029).for_each(|page| machine.put(page, page));
    assert_eq!(machine.level(512), Some(Level(1)));
    let free = machine.vm.buddy().free_frames();
    let space = machine.space;
    let given = |machine: &mut Machine, region| {
        let given = machine.vm.as_system(&mut machine.pmap, &mut machine.disk, |system| {
            let zeroes = system.zeroes(space, Level(1), region);
            let given = (system.shrink(space, Level(1), region), system.release(space, Level(1), region));
            assert_eq!(zeroes, Some(given.0), "known before, and nothing had changed");
            given
        });
        machine.vm.validate(&machine.pmap).unwrap();
        given
    };
    // Page 1024 holds what was put there, so nothing of it is zeroes; what is reserved goes.
    assert_eq!(given(&mut machine, 2), (0, 512 - 5));
    assert_eq!(given(&mut machine, 1), (512 - 200, 512 - 200));
    assert_eq!((given(&mut machine, 1), given(&mut machine, 2), given(&mut machine, 77)), ((0, 0), (0, 0), (0, 0)));
    assert_eq!(machine.vm.buddy().free_frames(), free + 507 + 312);
    let stats = machine.vm.stats();
    assert_eq!((stats.reserved_released, stats.zeroes_given_back, stats.mapped[1]), (507 + 312, 312, 0));
    for page in 512..1024 {
        assert_eq!(machine.get(page), if page < 712 { page } else { 0 });
    }
    assert!((1024..1029).all(|page| machine.get(page) == page));
    // Others share it: nothing is given back.
    let child = machine.vm.fork(&mut machine.pmap, machine.space).unwrap();
    assert_eq!(given(&mut machine, 1).0, 0);
    machine.vm.exit(&mut machine.pmap, child).unwrap();
    machine.end();
}

#[test]
fn faults_do_what_is_preferred_there() {
    let mut machine = Machine::new(X86, 8192, "thp:place=base");
    let space = machine.space;
    machine.anonymous(512, 6 * 512, Growth::Fixed);
    let prefer = |machine: &mut Machine, range, prefer| {
        let done =
            machine.vm.as_system(&mut machine.pmap, &mut machine.disk, |system| system.prefer(space, range, prefer));
        machine.vm.validate(&machine.pmap).unwrap();
        done
    };
    let (extents, zeroed) = (Prefer { place: Some(Place::Extent), ..Prefer::default() }, true);
    assert!(prefer(&mut machine, Some(Vpn(1024).pages(1024)), extents));
    assert!(prefer(&mut machine, Some(Vpn(2048).pages(512)), Prefer { only_zeroed: zeroed, ..extents }));
    (1..6).for_each(|region| machine.put(region * 512 + 3, region));
    let huge = |machine: &Machine| (1..7).map(|region| machine.level(region * 512 + 3)).collect::<Vec<_>>();
    let (base, whole) = (Some(Level::BASE), Some(Level(1)));
    assert_eq!(huge(&machine), [base, whole, whole, base, base, None]);
    // Of the whole space, and of what it maps later.
    assert!(prefer(&mut machine, None, Prefer { only_zeroed: zeroed, ..extents }));
    assert_eq!(machine.vm.zero_ahead(&mut machine.disk, Level(1), 1), 1);
    machine.anonymous(20 * 512, 512, Growth::Fixed);
    machine.put(6 * 512 + 3, 6);
    machine.put(20 * 512 + 3, 7);
    assert_eq!((machine.level(6 * 512), machine.level(20 * 512)), (whole, None), "one was zeroed");
    assert!(prefer(&mut machine, None, Prefer::default()));
    machine.anonymous(30 * 512, 512, Growth::Fixed);
    machine.put(30 * 512, 8);
    assert_eq!(machine.level(30 * 512), base);
    assert_eq!(machine.get(20 * 512 + 3), 7);
    let unknown =
        machine.vm.as_system(&mut machine.pmap, &mut machine.disk, |system| system.prefer(SpaceId(9), None, extents));
    assert!(!unknown);
    machine.end();
}

/// Remembers what it is told.
#[derive(Debug, Default)]
struct Ear(Wants);

static TOLD: std::sync::Mutex<Vec<Event>> = std::sync::Mutex::new(Vec::new());

impl Background for Ear {
    fn next(&self) -> Option<Time> {
        None
    }

    fn tick(&mut self, _: Time, _: &mut dyn System) {}

    fn wants(&self) -> Wants {
        self.0
    }

    fn notify(&mut self, event: Event) {
        TOLD.lock().unwrap().push(event);
    }
}

static EAR: Definition = Definition {
    name: "ear",
    make: |_| {
        let answers: Policy = "thp".parse().unwrap();
        let wants = Wants {
            start: true,
            fault: true,
            miss: true,
            neighbour: true,
            starved: true,
            mapped: true,
            unmapped: true,
            accessed: false,
            contents: false,
        };
        Made::with(answers.answers, Ear(wants))
    },
    ..CONTRACT
};

#[test]
fn what_is_wanted_is_told_in_order() {
    let mut machine = machine_of(&EAR, "1");
    let (space, costs) = (machine.space, Costs { fault: 7, ..Costs::default() });
    machine.vm.started(Some(costs));
    machine.anonymous(512, 1024, Growth::Fixed);
    machine.put(512, 1);
    assert!(machine.vm.wants_misses());
    machine.vm.missed(&machine.pmap, space, Vpn(600), Some(3));
    machine.vm.missed(&machine.pmap, space, Vpn(5000), None);
    // No extent is free any more.
    for extent in 0..8 {
        _ = machine.vm.wire(Extent { start: Pfn(extent * 512 + 5), level: Level::BASE });
    }
    machine.put(1024, 2);
    machine.vm.missed(&machine.pmap, space, Vpn(1024), Some(9));
    machine.vm.missed(&machine.pmap, space, Vpn(1024), Some(19));
    machine.unmap(512, 1024);
    let at = |page| space.page(Vpn(page));
    let (range, base, huge) = (Vpn(512).pages(1024), Level::BASE, Level(1));
    let unmapped = Event::Unmapped { space, range };
    let told = std::mem::take(&mut *TOLD.lock().unwrap());
    let expected = [
        Event::Start { ladder: *machine.vm.ladder(), costs: Some(costs) },
        unmapped,
        Event::Mapped { space, range },
        Event::Fault { at: at(512), kind: FaultKind::Zero, wanted: huge, mapped: huge },
        Event::Miss { at: at(600), mapped: huge, neighbour: Some(Level(2)) },
        Event::Fault { at: at(1024), kind: FaultKind::Zero, wanted: huge, mapped: base },
        Event::Starved { level: huge, hint: Hint::None },
        Event::Miss { at: at(1024), mapped: base, neighbour: Some(huge) },
        Event::Miss { at: at(1024), mapped: base, neighbour: None },
        unmapped,
    ];
    assert_eq!(told, expected);
}

#[test]
fn what_memory_is_like_agrees_with_the_allocator() {
    let mut machine = Machine::new("4K 64K 2M", 4096, "base");
    machine.anonymous(512, 1024, Growth::Fixed);
    (512..812).for_each(|page| machine.put(page, page));
    let memory = machine.vm.as_system(&mut machine.pmap, &mut machine.disk, |system| system.memory()).unwrap();
    let (buddy, ladder) = (machine.vm.buddy(), machine.vm.ladder());
    assert_eq!(memory.total, 4096);
    for level in ladder.levels() {
        let naive = buddy.iter().filter(|extent| extent.level >= level);
        let naive = naive.map(|extent| ladder.pages(extent.level) / ladder.pages(level)).sum::<u64>();
        assert_eq!(memory.free_extents(ladder, level), naive);
        assert_eq!(memory.extents[level.index()], buddy.iter().filter(|extent| extent.level == level).count() as u64);
    }
    assert_eq!((memory.free, memory.available), (buddy.free_frames(), buddy.free_frames()));
    assert_eq!(memory.total, 4096);
    // Where the daemon says that it is wanted, and how far it goes then.
    assert!(memory.low > 0 && memory.low < memory.aim);
    let free = memory.free;
    machine.anonymous(8192, free, Growth::Fixed);
    let mut page = 8192;
    while !machine.vm.daemon_wanted() {
        machine.put(page, page);
        page += 1;
    }
    let short = machine.vm.memory_state();
    assert!(short.available < short.low && short.available + 2 >= short.low, "{short:?}");
    machine.end();
}

fn promote(parameters: &str) -> Box<dyn Background> {
    Policy::parse(&format!("promote:{parameters}"), &Target::MANAGER).unwrap().background().unwrap()
}

fn mock(regions: &[(u32, u64, u32)]) -> Mock {
    let regions = regions.iter().map(|(space, region, pages)| ((*space, *region), (*pages, false))).collect();
    let outcome = Ok(());
    let ladder = Ladder::X86_64;
    let (promoted, scanned, seen) = (Vec::new(), Vec::new(), BTreeMap::new());
    Mock {
        ladder,
        now: 0,
        spent: 0,
        regions,
        busiest: 0,
        outcome,
        promoted,
        scanned,
        costly: (0, 0),
        live: false,
        compactions: 0,
        seen,
    }
}

/// Calls the background whenever it asks, up to a time.
fn run(background: &mut dyn Background, system: &mut Mock, seconds: u64) {
    while let Some(due) = background.next().filter(|due| *due <= seconds * SECOND) {
        system.now = system.now.max(due);
        background.tick(system.now, system);
        background.validate().unwrap();
    }
    system.now = seconds * SECOND;
}

#[test]
fn the_busiest_space_comes_first_and_in_it_the_fullest_region() {
    let mut background = promote("age=1s,interval=1s,share=50%,batch=2,cpu=1");
    let mut system = mock(&[(1, 7, 512), (2, 3, 300), (2, 4, 512), (2, 5, 400), (2, 6, 100)]);
    system.busiest = 2;
    run(&mut *background, &mut system, 10);
    assert_eq!(system.promoted, [(2, 4), (2, 5), (2, 3), (1, 7)]);
}

#[test]
fn adaptive_promotes_what_has_settled_where_a_scan_says_that_nothing_has_changed() {
    let mut background = Policy::parse("adaptive", &Target::MANAGER).unwrap().background().unwrap();
    let mut system = mock(&(0..16).map(|region| (1, region, 512)).collect::<Vec<_>>());
    system.live = true;
    run(&mut *background, &mut system, 9);
    assert_eq!(system.promoted, [], "it is not settled, and cannot be promoted in place");
    run(&mut *background, &mut system, 12);
    assert_eq!(system.promoted.len(), 16);
}

#[test]
fn quicksilver_compacts_no_longer_than_that_frees_anything() {
    let mut background =
        Policy::parse("quicksilver:migrate=1000000000", &Target::MANAGER).unwrap().background().unwrap();
    let mut system = mock(&[(1, 7, 5)]);
    run(&mut *background, &mut system, 20);
    assert!((1..100).contains(&system.compactions), "{}", system.compactions);
}

#[test]
fn what_is_refused_is_tried_ever_more_rarely() {
    let mut background = promote("age=1s,interval=1s,idle=1s,cpu=1");
    let mut system = mock(&[(1, 7, 512)]);
    system.outcome = Err(Why::Busy.into());
    run(&mut *background, &mut system, 100);
    // At 2 s, and 2, 4, 8, 16 and 32 s after that.
    assert_eq!(system.promoted.len(), 6);
    // Until then it is told to wait, which is nothing of the region: it is asked once, and tried
    // again after it.
    system.outcome = Err(Refusal { why: Why::Pressure, until: 1000 * SECOND });
    run(&mut *background, &mut system, 999);
    assert_eq!(system.promoted.len(), 7);
    system.outcome = Ok(());
    run(&mut *background, &mut system, 1001);
    assert_eq!(system.promoted.len(), 8);
}

#[test]
fn a_share_of_a_core_is_all_that_is_used() {
    let mut background = promote("age=0s,interval=100ms,idle=100ms,cpu=0.01,burst=10ms,batch=1");
    let mut system = mock(&(0..1000).map(|region| (1, region, 512)).collect::<Vec<_>>());
    run(&mut *background, &mut system, 20);
    let promoted = system.promoted.len();
    assert!((190..=211).contains(&promoted), "{promoted} of 1 ms each in 20 s");
    // A free extent cannot be had: it asks once a second, then ever more rarely.
    system.outcome = Err(Why::NoExtent.into());
    run(&mut *background, &mut system, 150);
    assert!(system.promoted.len() - promoted <= 8, "{}", system.promoted.len() - promoted);
}

#[test]
fn a_space_that_uses_up_each_scan_keeps_none_behind_it_from_theirs() {
    let mut background = promote("burst=2ms,interval=100ms,idle=100ms,age=500ms");
    let mut system = mock(&[(1, 7, 100), (2, 3, 512), (3, 4, 512)]);
    system.costly = (1, 5_000_000);
    run(&mut *background, &mut system, 30);
    system.promoted.sort_unstable();
    assert_eq!(system.promoted, [(2, 3), (3, 4)]);
}

#[test]
fn times_of_any_length_are_waited_for() {
    let ever = "31536000s";
    for parameters in [
        "cpu=1e-25,burst=1ms,interval=1ms,age=1ms".to_string(),
        format!("interval={ever}"),
        format!("idle={ever},age={ever},burst={ever}"),
    ] {
        let mut background = promote(&parameters);
        let mut system = mock(&[(1, 7, 512), (1, 8, 100)]);
        system.costly = (1, 5_000_000);
        for _ in 0..20 {
            let due = background.next().unwrap();
            system.now = system.now.max(due);
            background.tick(system.now, &mut system);
            background.validate().unwrap();
            assert!(background.next().unwrap() >= system.now, "{parameters}");
        }
    }
}

#[test]
fn a_promotion_that_succeeds_ends_the_ever_longer_pauses() {
    let mut background = promote("age=0s,interval=100ms,idle=100ms,cpu=0.01,burst=10ms,batch=1");
    let mut system = mock(&(0..1000).map(|region| (1, region, 512)).collect::<Vec<_>>());
    let tries = |background: &mut dyn Background, system: &mut Mock, outcome, seconds: u64| {
        let (before, until) = (system.promoted.len(), system.now / SECOND + seconds);
        system.outcome = outcome;
        run(background, system, until);
        system.promoted.len() - before
    };
    // Pauses of 1, 2, 4 and 8 s; those after a promotion are as at first.
    for _ in 0..2 {
        let failed = tries(&mut *background, &mut system, Err(Why::NoExtent.into()), 20);
        assert!((4..=6).contains(&failed), "{failed}");
        assert!(tries(&mut *background, &mut system, Ok(()), 30) > 100);
    }
}

#[test]
fn a_space_with_a_stale_region_is_scanned_at_once() {
    let scans = |outcome| {
        let mut background = promote("age=1s,interval=1s,idle=100s,cpu=1");
        let mut system = mock(&[(1, 7, 512), (1, 8, 100)]);
        system.outcome = outcome;
        // It does not change, so the scans become rare: after 1, 2, 4, 8 s.
        run(&mut *background, &mut system, 1);
        system.scanned.clear();
        run(&mut *background, &mut system, 3);
        (system.promoted.len(), system.scanned.len())
    };
    let (later, stale) = (scans(Err(Why::Busy.into())), scans(Err(Why::Ineligible.into())));
    assert_eq!(later.0, stale.0);
    assert!(stale.1 > later.1, "{stale:?} promotions and scans, {later:?} where the region is only put off");
}
