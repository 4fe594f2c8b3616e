//! Random sequences of all operations, over several processes, ladders and policies, with little memory: the state is
//! valid and every page holds what was written to it after each of them.

use crate::common::{Op, Setting, World, plain, setting, setting_of};
use crate::tutorial::hot::HOT;
use proptest::prelude::*;
use proptest::{collection, option};
use superpage_pages::Random;
use superpage_vm::{Definition, Need, Stats, Target};

fn settings() -> impl Strategy<Value = Setting> {
    any::<(u8, u128, u16)>().prop_map(|(ladder, answers, frames)| setting(ladder, answers, frames))
}

/// Plain operations, those of scenarios among them; where a test fails, each of them may turn out to be needless.
fn operations() -> impl Strategy<Value = Vec<Op>> {
    let all = collection::vec(any::<Op>(), 1..80).prop_map(plain);
    let each = all.prop_flat_map(|ops| ops.into_iter().map(|op| option::weighted(0.999, Just(op))).collect::<Vec<_>>());
    each.prop_map(|ops| ops.into_iter().flatten().collect())
}

/// Does these operations in this world; the state is valid after each, and every page holds what was written to it.
fn run(mut world: World, ops: impl IntoIterator<Item = Op>) -> Stats {
    ops.into_iter().for_each(|op| world.step(op));
    let stats = world.vm.stats();
    world.end();
    stats
}

/// The whole test of a policy: in 20 worlds, with what `parameters` leave open drawn, every state is valid, each page
/// holds what was written to it, misses are told, no frame is lost, and the same again gives the same counts.
pub(crate) fn check(definition: &'static Definition, parameters: &str) {
    let mut done = 0;
    for case in 0..20 {
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

/// A write to a page of a privately mapped file begins to read it, and the process does not wait; the file is then
/// written, and the process writes after all: its copy is of the file as it was.
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

/// A file is mapped and read twice while memory is short, and memory is short once more: some of its extents are mapped at once
/// while pages of them are cache pages. `daemon.rs` has the same in words.
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

/// Between a fault of a write and the write itself the background makes a superpage of the region, which may not be written
/// until all of it is dirty: the write faults again, and goes through if the background leaves it alone.
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
