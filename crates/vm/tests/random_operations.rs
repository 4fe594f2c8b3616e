//! Random sequences of all operations, over several processes, ladders and policies, with little
//! memory: the state is valid and every page holds what was written to it after each of them.

use crate::common::{COLLAPSED, Op, PROGRAM, Setting, World, plain, setting, setting_of};
use crate::tutorial::hot::HOT;
use proptest::prelude::*;
use proptest::{collection, option};
use superpage_pages::Random;
use superpage_vm::{Definition, Need, Stats, Target};

fn settings() -> impl Strategy<Value = Setting> {
    any::<(u8, u128, u16)>().prop_map(|(ladder, answers, frames)| setting(ladder, answers, frames))
}

/// Plain operations, those of scenarios among them; where a test fails, each of them may turn out
/// to be needless.
fn operations() -> impl Strategy<Value = Vec<Op>> {
    let all = collection::vec(any::<Op>(), 1..80).prop_map(plain);
    let each = all.prop_flat_map(|ops| ops.into_iter().map(|op| option::weighted(0.999, Just(op))).collect::<Vec<_>>());
    each.prop_map(|ops| ops.into_iter().flatten().collect())
}

/// Does these operations in this world; the state is valid after each, and every page holds what
/// was written to it.
fn run(mut world: World, ops: impl IntoIterator<Item = Op>) -> Stats {
    ops.into_iter().for_each(|op| world.step(op));
    let stats = world.vm.stats();
    world.end();
    stats
}

/// The whole test of a policy: in ten worlds, with what `parameters` leave open drawn, every state
/// is valid, each page holds what was written to it, misses are told, no frame is lost, and the
/// same again gives the same counts.
pub(crate) fn check(definition: &'static Definition, parameters: &str) {
    let mut done = 0;
    for case in 0..10 {
        let mut random = Random::new(case);
        let (ladder, frames) = (random.next() as u8, random.next() as u16);
        let answers = u128::from(random.next()) << 64 | u128::from(random.next());
        let op = |random: &mut Random| -> Op { std::array::from_fn(|byte| (random.next() >> (8 * byte)) as u8) };
        let ops: Vec<Op> = plain((0..60).map(|_| op(&mut random)));
        let setting = setting_of(definition, parameters, ladder, answers, frames);
        let world = || World::with(setting.clone(), definition).missing();
        let stats = run(world(), ops.clone());
        assert_eq!(stats, run(world(), ops.clone()), "{setting:?}");
        done += stats.promotions_by_copying + stats.reserved_released;
        run(world().slow(), ops);
    }
    let copies = definition.needs.contains(&Need::Copying);
    assert!(done > 0 || !copies, "{} promoted and released nothing in any world", definition.name);
}

#[test]
fn every_policy_with_a_background_passes_the_check_of_policies() {
    check(&HOT, "share=0.3");
    let policies = Target::MANAGER
        .policies()
        .filter(|policy| policy.name.parse::<superpage_vm::Policy>().unwrap().background().is_some());
    policies.for_each(|policy| check(policy, ""));
    // Policies of which some values have one.
    let of = |name: &str| Target::MANAGER.policies().find(|policy| policy.name == name).unwrap();
    let those = [
        ("thp", "defrag=defer,khugepaged=on,interval=1ms"),
        ("thp", "khugepaged=on,interval=1ms,text=on"),
        ("thp", "deferred-split=on,underused=on,max-none=1"),
        ("mthp", "defrag=defer+madvise,deferred-split=on"),
        ("mthp", "khugepaged=on,interval=1ms,max-none=511"),
    ];
    for (name, parameters) in those {
        check(of(name), parameters);
    }
}

#[test]
fn every_state_with_a_static_pool_is_valid() {
    let pool = "hugetlb".parse::<superpage_vm::Policy>().unwrap().definition();
    for fixed in ["", "use=all", "use=all,without=kill", "use=all,noreserve=on,surplus=64K"] {
        check(pool, fixed);
    }
    // All that can become of a fault or a mapping does.
    let mut reached = Stats::default();
    for case in 0..150 {
        let mut random = Random::new(1000 + case);
        let (ladder, frames) = (1 + (case % 8) as u8, random.next() as u16);
        let op = |random: &mut Random| -> Op { std::array::from_fn(|byte| (random.next() >> (8 * byte)) as u8) };
        let ops: Vec<Op> = plain((0..60).map(|_| op(&mut random)));
        let stats = run(World::of(setting_of(pool, "use=all", ladder, u128::from(random.next()), frames)), ops);
        reached.faults_pool += stats.faults_pool;
        reached.faults_no_pool += stats.faults_no_pool;
        reached.faults_copy += if stats.faults_pool > 0 { stats.faults_copy } else { 0 };
        reached.pool_fallbacks += stats.pool_fallbacks;
    }
    let Stats { faults_pool, faults_no_pool, faults_copy, pool_fallbacks, .. } = reached;
    let all = [faults_pool, faults_no_pool, faults_copy, pool_fallbacks];
    assert!(all.iter().all(|count| *count > 20), "{all:?}");
}

#[test]
fn every_state_with_collapsed_text_is_valid() {
    let thp = "thp".parse::<superpage_vm::Policy>().unwrap().definition();
    let mut collapsed = 0;
    for case in 0..80 {
        let mut random = Random::new(2000 + case);
        let (ladder, frames, answers) = (random.next() as u8, random.next() as u16, u128::from(random.next()));
        let mut op = |number: u32| -> Op {
            let [what, who, place, length, flags, more, ..] = random.next().to_le_bytes();
            match number % 2 {
                0 => [PROGRAM, who, place, length, flags | COLLAPSED, more],
                _ => [what, who, place, length, flags, more],
            }
        };
        let ops = plain((0..20).map(&mut op));
        let world = || World::of(setting_of(thp, "text=on,promote=full", ladder, answers, frames));
        collapsed += run(world(), ops.clone()).promotions_by_copying;
        run(world().slow(), ops);
    }
    assert!(collapsed > 100, "{collapsed}");
}

proptest! {
    #[test]
    fn every_state_is_valid(setting in settings(), ops in operations()) {
        run(World::of(setting), ops);
    }

    #[test]
    fn every_state_is_valid_where_reads_take_their_time(setting in settings(), ops in operations()) {
        run(World::of(setting).slow(), ops);
    }
}

/// The policy of these tests, which prefers, gives back and compacts too, with these answers.
const GIVING: [&str; 6] = [
    "place=base",
    "place=reservation,promote=full,compact=on,demote-on-unmap=off",
    "place=extent,promote=full,compact=on,hints=opt-out,cache=free",
    "place=reservation,promote=full,cache=held,around=8,hash=late,demote-on-write=on",
    "place=reservation,promote=full,hash=idle,cache=available,wired=cluster,threshold=4/8",
    "place=extent,promote=full,reclaim=none",
];

proptest! {
    // Where much memory is populated, a background that looks at all of it each time takes seconds.
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 8, ..ProptestConfig::default() })]

    #[test]
    fn every_state_is_valid_where_a_background_gives_back_and_compacts(
        setting in settings(), answers in 0..GIVING.len(), seed in 1..1000_u32, slow in any::<bool>(), ops in operations(),
    ) {
        let policy = format!("watch:more=on,batch=4,interval=1ms,seed={seed},{}", GIVING[answers]);
        let world = World::of(Setting { policy, ..setting });
        run(if slow { world.slow() } else { world }, ops);
    }
}

// Cases to keep: what proptest prints, as it is.

/// A write to a page of a privately mapped file begins to read it, and the process does not wait;
/// the file is then written, and the process writes after all: its copy is of the file as it was.
#[test]
fn a_private_copy_is_of_the_time_when_its_read_began() {
    let map = [0, 26, 48, 9, 16, 195];
    let write = [33, 26, 48, 7, 0, 192];
    let open_and_write_file = [[17, 245, 75, 7, 0, 193], [20, 245, 75, 7, 0, 193]];
    let write_again = [92, 7, 42, 23, 198, 190];
    let setting = Setting {
        ladder: "4K",
        lacks: "",
        policy: "base:place=extent,demote-on-write=on,hash=read,hints=opt-out".into(),
        frames: 164,
        swap_pages: 0,
        daemon_comes: true,
        ends: false,
    };
    run(World::of(setting).slow(), [map, write].into_iter().chain(open_and_write_file).chain([write_again]));
}

/// A page is being read beside an extent that is compacted. `compact.rs` has the same in words.
#[test]
fn an_extent_is_compacted_beside_a_page_that_is_being_read() {
    let setting = Setting {
        ladder: "4K 8K 16K 32K 64K 128K 256K 512K 1M 2M 4M 8M 16M 32M 64M 128M 256M 512M 1G",
        lacks: "16M",
        policy: format!("watch:more=on,batch=4,interval=1ms,seed=56,{}", GIVING[3]),
        frames: 2091,
        swap_pages: 5,
        daemon_comes: true,
        ends: false,
    };
    let ops: [Op; 9] = [
        [176, 172, 156, 0, 72, 70],
        [195, 68, 170, 216, 5, 131],
        [0, 254, 153, 9, 16, 203],
        [5, 254, 153, 9, 228, 192],
        [35, 254, 153, 9, 0, 192],
        [33, 254, 153, 7, 16, 192],
        [0, 75, 96, 6, 24, 195],
        [32, 75, 96, 6, 0, 192],
        [32, 75, 96, 6, 0, 192],
    ];
    run(World::of(setting).slow(), ops);
}

/// What is reserved in a region is released; another mapping lies in it behind the end of one whose
/// reservation goes on. `background.rs` has the same in words.
#[test]
fn what_is_reserved_in_a_region_of_two_mappings_is_released() {
    let setting = Setting {
        ladder: "4K 8K 16K 32K 64K 128K 256K 512K 1M 2M 4M 8M 16M 32M 64M 128M 256M 512M 1G",
        lacks: "",
        policy: format!("watch:more=on,batch=4,interval=1ms,seed=327,{}", GIVING[1]),
        frames: 1577,
        swap_pages: 4000,
        daemon_comes: true,
        ends: true,
    };
    let ops: [Op; 112] = [
        [0, 0, 224, 7, 0, 208],
        [33, 0, 224, 7, 0, 208],
        [8, 1, 224, 5, 0, 208],
        [9, 0, 224, 5, 128, 196],
        [9, 0, 224, 6, 128, 196],
        [32, 0, 224, 7, 0, 208],
        [204, 69, 223, 73, 1, 165],
        [0, 160, 46, 9, 0, 192],
        [33, 160, 46, 9, 0, 192],
        [0, 97, 43, 6, 24, 203],
        [32, 97, 43, 6, 0, 192],
        [26, 97, 43, 255, 0, 0],
        [33, 97, 43, 4, 24, 192],
        [21, 97, 43, 6, 0, 201],
        [33, 97, 43, 4, 0, 192],
        [33, 97, 43, 4, 24, 192],
        [32, 97, 43, 6, 0, 192],
        [28, 97, 43, 11, 91, 9],
        [101, 215, 244, 224, 143, 67],
        [207, 153, 238, 250, 19, 10],
        [107, 135, 65, 233, 249, 37],
        [209, 66, 146, 131, 155, 241],
        [115, 44, 145, 81, 197, 198],
        [13, 1, 0, 0, 0, 0],
        [13, 1, 0, 0, 0, 0],
        [13, 1, 0, 0, 0, 0],
        [13, 1, 0, 0, 0, 0],
        [15, 0, 0, 0, 0, 0],
        [0, 0, 224, 5, 0, 208],
        [33, 0, 224, 5, 0, 208],
        [10, 0, 0, 0, 0, 0],
        [33, 0, 224, 2, 0, 208],
        [10, 0, 0, 0, 0, 0],
        [33, 0, 224, 3, 0, 208],
        [28, 50, 226, 8, 67, 138],
        [4, 0, 228, 4, 0, 192],
        [13, 1, 0, 0, 0, 0],
        [13, 1, 0, 0, 0, 0],
        [8, 0, 224, 5, 0, 208],
        [32, 0, 224, 4, 0, 208],
        [32, 0, 224, 5, 0, 208],
        [161, 42, 149, 33, 211, 158],
        [74, 161, 115, 49, 1, 96],
        [20, 60, 35, 159, 169, 45],
        [15, 241, 32, 0, 0, 0],
        [21, 241, 32, 4, 0, 204],
        [0, 241, 32, 4, 24, 206],
        [32, 241, 32, 4, 0, 192],
        [26, 241, 32, 255, 0, 0],
        [33, 241, 32, 3, 24, 192],
        [21, 241, 32, 4, 0, 204],
        [33, 241, 32, 3, 0, 192],
        [21, 241, 32, 4, 0, 204],
        [33, 241, 32, 3, 24, 192],
        [32, 241, 32, 4, 0, 192],
        [28, 241, 32, 17, 137, 92],
        [94, 253, 75, 161, 58, 73],
        [18, 234, 138, 254, 237, 209],
        [21, 214, 254, 5, 0, 200],
        [0, 214, 254, 5, 24, 202],
        [32, 214, 254, 5, 0, 192],
        [26, 214, 254, 255, 0, 0],
        [33, 214, 254, 2, 24, 192],
        [21, 214, 254, 5, 0, 200],
        [33, 214, 254, 2, 0, 192],
        [21, 214, 254, 5, 0, 200],
        [33, 214, 254, 2, 24, 192],
        [32, 214, 254, 5, 0, 192],
        [28, 214, 254, 5, 41, 218],
        [199, 72, 65, 69, 174, 162],
        [103, 199, 46, 40, 161, 163],
        [48, 49, 80, 85, 230, 227],
        [49, 108, 96, 239, 13, 57],
        [16, 95, 156, 40, 79, 24],
        [76, 133, 234, 46, 133, 224],
        [63, 27, 9, 220, 80, 163],
        [8, 34, 24, 115, 75, 154],
        [158, 26, 175, 227, 181, 56],
        [64, 192, 3, 204, 240, 82],
        [214, 234, 130, 174, 228, 237],
        [83, 66, 2, 138, 9, 52],
        [15, 72, 140, 0, 0, 0],
        [0, 72, 140, 5, 0, 192],
        [33, 72, 140, 5, 0, 192],
        [28, 72, 140, 16, 130, 204],
        [28, 72, 140, 16, 130, 204],
        [32, 72, 140, 5, 0, 192],
        [26, 72, 140, 255, 0, 0],
        [33, 72, 140, 4, 24, 192],
        [28, 72, 140, 16, 130, 204],
        [28, 72, 140, 16, 130, 204],
        [32, 72, 140, 5, 0, 192],
        [154, 131, 33, 194, 134, 30],
        [31, 208, 175, 212, 245, 207],
        [13, 1, 0, 0, 0, 0],
        [13, 1, 0, 0, 0, 0],
        [13, 1, 0, 0, 0, 0],
        [13, 1, 0, 0, 0, 0],
        [15, 0, 0, 0, 0, 0],
        [0, 0, 96, 7, 0, 208],
        [33, 0, 96, 7, 0, 208],
        [10, 0, 0, 0, 0, 0],
        [33, 1, 96, 4, 0, 208],
        [10, 1, 0, 0, 0, 0],
        [33, 1, 96, 5, 0, 208],
        [28, 8, 126, 15, 126, 215],
        [8, 1, 96, 5, 0, 208],
        [13, 0, 0, 0, 0, 0],
        [13, 1, 0, 0, 0, 0],
        [9, 0, 96, 5, 128, 196],
        [9, 0, 96, 6, 128, 196],
        [32, 0, 96, 7, 0, 208],
    ];
    run(World::of(setting), ops);
}

/// 512 pages are written under page colours, and promoted in place.
#[test]
fn a_region_that_was_written_under_page_colours_is_promoted_in_place() {
    let setting = Setting {
        ladder: "4K 8K 16K 64K 256K 1M 4M 16M 64M 256M",
        lacks: "",
        policy: "reservation:demote-on-write=off,hash=late,colours=1024".into(),
        frames: 1071,
        swap_pages: 4000,
        daemon_comes: true,
        ends: true,
    };
    run(World::of(setting), [[0, 40, 254, 7, 0, 192], [33, 40, 254, 7, 0, 192], [29, 40, 254, 7, 0, 195]]);
}

/// A file is mapped and read twice while memory is short, and memory is short once more: some of
/// its extents are mapped at once while pages of them are cache pages. `daemon.rs` has the same in
/// words.
#[test]
fn extents_of_a_file_are_mapped_while_pages_of_them_are_cache_pages() {
    let setting = Setting {
        ladder: "4K 8K 32K 128K",
        lacks: "",
        policy: "freebsd:dirty=all,pieces=keep,hash=read,cache=held,close=inactive,around=128".into(),
        frames: 516,
        swap_pages: 4000,
        daemon_comes: true,
        ends: true,
    };
    let press = [[28, 241, 173, 5, 42, 28], [28, 208, 76, 24, 192, 38]];
    let map = [0, 155, 244, 9, 24, 202];
    let read_twice = [[32, 155, 244, 9, 0, 192]; 2];
    let press_again = [28, 74, 105, 8, 65, 172];
    run(World::of(setting), press.into_iter().chain([map]).chain(read_twice).chain([press_again]));
}

/// Between a fault of a write and the write itself the background makes a superpage of the region,
/// which may not be written until all of it is dirty: the write faults again, and goes through if
/// the background leaves it alone.
#[test]
fn a_superpage_is_made_between_the_fault_of_a_write_and_the_write() {
    let setting = Setting {
        ladder: "4K 8K 32K 128K",
        lacks: "",
        policy: "watch:batch=4,place=extent,dirty=all,demote-on-unmap=off,demote-on-write=on,hash=off,around=8".into(),
        frames: 67,
        swap_pages: 4000,
        daemon_comes: true,
        ends: false,
    };
    run(World::of(setting), [[0, 86, 178, 6, 0, 192], [33, 86, 178, 6, 0, 192]]);
}
