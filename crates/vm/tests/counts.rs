//! What each policy does in the same small worlds, in numbers: `counts.txt`. The other tests say
//! that what it does is right; this one says that it does the same as before. Where a change is
//! meant to change it, `SUPERPAGE_WRITE=1 cargo test -p superpage-vm --test all counts::` writes
//! the file.

use crate::common::{Op, Setting, World, plain, scenario, setting_of};
use std::fmt::Write as _;
use superpage_pages::Random;
use superpage_vm::{Definition, Policy, Stats, Target};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/counts.txt");
/// Worlds of a policy; in every other one its parameters have their defaults.
const WORLDS: u64 = 9;
const OPERATIONS: u32 = 36;

/// A world of the policy with answers of its own, under memory that fits this ladder.
fn setting(definition: &Definition, case: u64, random: &mut Random) -> Setting {
    let ladder = [6, 5, 2][case as usize % 3];
    let setting = setting_of(definition, "", ladder, u128::from(random.next()), 4 + 8 * (random.next() as u16 % 64));
    let (name, drawn) = setting.policy.split_once(':').expect("a colon follows the name");
    let own = |pair: &&str| {
        case.is_multiple_of(2) && Policy::keys().iter().all(|key| !pair.starts_with(&format!("{}=", key.name)))
    };
    let pairs: Vec<&str> = drawn.split(',').filter(own).collect();
    Setting { policy: format!("{name}:{}", pairs.join(",")), lacks: "", daemon_comes: true, ..setting }
}

/// The sums of what was counted in all worlds of a policy.
fn counts(definition: &'static Definition) -> Vec<(&'static str, u64)> {
    let mut sums: Vec<(&str, u64)> = Vec::new();
    for case in 0..WORLDS {
        let mut random = Random::new(3000 + case);
        let setting = setting(definition, case, &mut random);
        let mut op = |number: u32| -> Op {
            let [what, who, place, length, flags, more, ..] = random.next().to_le_bytes();
            // Scenarios fill whole regions, and set them under pressure.
            if number.is_multiple_of(3) {
                scenario([what, who, place, length, flags, more])
            } else {
                [what, who, place, length, flags, more]
            }
        };
        let mut world = World::of(setting).missing();
        for op in plain((0..OPERATIONS).map(&mut op)) {
            world.apply(op);
            world.answer_daemon();
        }
        let of_world =
            counted(&world.vm.stats(), world.vm.refusals().map(|(_, count)| count).sum(), world.pmap.shootdowns());
        if sums.is_empty() {
            sums.extend(of_world);
        } else {
            sums.iter_mut().zip(of_world).for_each(|(sum, (_, count))| sum.1 += count);
        }
    }
    sums
}

fn counted(stats: &Stats, refused: u64, shootdowns: u64) -> [(&'static str, u64); 18] {
    [
        ("faults", stats.faults),
        ("promoted", stats.promotions.iter().sum()),
        ("at-fault", stats.promotions_at_fault),
        ("by-copying", stats.promotions_by_copying),
        ("demoted", stats.demotions.iter().sum()),
        ("refused", refused),
        ("reserved", stats.reserved_found),
        ("preempted", stats.reservations_preempted),
        ("released", stats.reserved_released + stats.zeroes_given_back),
        ("compacted", stats.compactions + stats.compactions_failed),
        ("moved", stats.pages_moved),
        ("zeroed", stats.bytes_zeroed >> 12),
        ("copied", stats.bytes_copied >> 12),
        ("evicted", stats.evictions + stats.superpages_evicted),
        ("written", stats.page_outs),
        ("scanned", stats.background_scanned),
        ("resident", stats.resident_pages),
        ("shootdowns", shootdowns),
    ]
}

#[test]
fn every_policy_does_what_it_did() {
    let mut text = String::new();
    for definition in Target::MANAGER.policies() {
        let counts = counts(definition);
        if text.is_empty() {
            write!(text, "{:<12}", "policy").unwrap();
            counts.iter().for_each(|(name, _)| write!(text, " {name:>10}").unwrap());
            text.push('\n');
        }
        write!(text, "{:<12}", definition.name).unwrap();
        counts.iter().for_each(|(_, count)| write!(text, " {count:>10}").unwrap());
        text.push('\n');
    }
    if std::env::var_os("SUPERPAGE_WRITE").is_some() {
        std::fs::write(FILE, &text).unwrap();
    }
    let before = std::fs::read_to_string(FILE).unwrap();
    for (now, before) in text.lines().zip(before.lines()) {
        assert_eq!(now, before, "see the head of counts.rs");
    }
    assert_eq!(text.lines().count(), before.lines().count(), "a policy came or went: see the head of counts.rs");
}
