//! Speculative demotion (Navarro et al., section 4.6): with memory short, referenced superpages are
//! demoted with a probability, so that unused base pages are found; those used whole are made
//! again.

use crate::machine::Machine;
use superpage_pages::Level;
use superpage_vm::Growth;

const REGIONS: u64 = 65;

/// A memory full of superpages of 8 pages, each used.
fn full(speculate: &str) -> Machine {
    let policy = format!("reservation:wake=memory,speculate={speculate}");
    let mut machine = Machine::with_swap("8K 64K", 8 * REGIONS, &policy, 4000);
    machine.anonymous(0, 1 << 20, Growth::Fixed);
    (0..8 * REGIONS).for_each(|page| machine.put(page, page));
    assert_eq!(machine.vm.stats().mapped[..2], [0, REGIONS]);
    machine
}

/// Superpages among these regions.
fn superpages(machine: &Machine, regions: std::ops::Range<u64>) -> usize {
    regions.filter(|region| machine.level(8 * region) == Some(Level(1))).count()
}

/// Writes to new pages until the daemon is wanted, and runs it.
fn press(machine: &mut Machine, fresh: &mut u64) {
    while !machine.vm.daemon_wanted() {
        machine.put(*fresh, *fresh);
        *fresh += 1;
    }
    machine.daemon();
}

#[test]
fn referenced_superpages_are_demoted_with_the_policy_s_probability() {
    let demoted = ["0/4", "1/4", "2/4", "3/4", "4/4"].map(|speculate| {
        let mut machine = full(speculate);
        assert!(machine.daemon());
        // Memory was short by 24 pages: the first three superpages went.
        let stats = machine.vm.stats();
        assert_eq!(stats.evictions, 24, "{speculate}");
        let left = superpages(&machine, 0..REGIONS) as u64;
        assert_eq!((stats.demotions[1], stats.repromotions), (REGIONS - left, 0), "{speculate}");
        machine.end();
        stats.speculative_demotions
    });
    assert_eq!((demoted[0], demoted[4]), (0, REGIONS));
    // Three standard deviations of 65 throws are 10 to 12.
    for (demoted, mean) in demoted[1..4].iter().zip([16, 32, 49]) {
        assert!(demoted.abs_diff(mean) < 12, "{demoted} of {REGIONS}, not about {mean}");
    }
}

#[test]
fn what_is_used_whole_is_made_a_superpage_again() {
    let mut machine = full("4/4");
    let mut fresh = 8 * REGIONS;
    press(&mut machine, &mut fresh);
    assert_eq!(superpages(&machine, 0..REGIONS), 0);
    // Ten regions are used whole, of ten others seven pages. Once they are superpages again, they
    // are demoted as before.
    let mut again = std::collections::BTreeSet::new();
    for _ in 0..10 {
        (160..240).for_each(|page| assert_eq!(machine.get(page), page));
        (240..320).filter(|page| page % 8 != 5).for_each(|page| assert_eq!(machine.get(page), page));
        press(&mut machine, &mut fresh);
        again.extend((0..REGIONS).filter(|region| machine.level(8 * region) == Some(Level(1))));
    }
    assert_eq!(again, (20..30).collect());
    assert!(machine.vm.stats().repromotions >= 10);
    machine.end();
}

#[test]
fn unused_base_pages_of_superpages_in_use_are_found_and_go() {
    for (speculate, found) in [("0/4", false), ("4/4", true)] {
        let mut machine = full(speculate);
        let mut fresh = 8 * REGIONS;
        press(&mut machine, &mut fresh);
        // One page of each superpage is in use.
        let hot: Vec<u64> = (10..REGIONS).map(|region| 8 * region + 2).collect();
        for _ in 0..20 {
            hot.iter().for_each(|page| assert_eq!(machine.get(*page), *page));
            press(&mut machine, &mut fresh);
        }
        assert!(hot.iter().all(|page| machine.frame(*page).is_some()), "{speculate}: what is used stays");
        let cold = machine.mapped(80..8 * REGIONS).len() - hot.len();
        if found {
            assert!(cold < 7 * hot.len() / 4, "{cold} pages that nobody uses are left");
        } else {
            assert!(cold > 6 * hot.len(), "only {cold} are left");
            assert!(superpages(&machine, 10..REGIONS) > hot.len() * 6 / 7);
        }
        machine.end();
    }
}
