//! The promotion adversary of Navarro et al., section 6.6: one access to each page, then all is
//! freed. Each page's entry is promoted three times and demoted three times.

use crate::machine::{ALPHA, Machine};
use superpage_pages::Level;
use superpage_vm::Growth;

fn touch(policy: &str) -> superpage_vm::Stats {
    let mut machine = Machine::new(ALPHA, 1024, policy);
    machine.anonymous(512, 512, Growth::Fixed);
    for page in 0..512u64 {
        let reached = machine.write(512 + page).mapped;
        let (pages, never) = (page + 1, policy.contains("never"));
        let right = if never { 0 } else { (1..4).filter(|level| pages.is_multiple_of(8 << (3 * (level - 1)))).count() };
        assert_eq!(reached, Level(right as u8), "page {page} completes what is aligned to its end");
    }
    machine.unmap(512, 512);
    machine.vm.validate(&machine.pmap).unwrap();
    let stats = machine.vm.stats();
    machine.end();
    stats
}

#[test]
fn three_promotions_and_three_demotions_pass_over_every_page() {
    let stats = touch("reservation");
    assert_eq!(stats.promotions[..4], [0, 64, 8, 1]);
    assert_eq!(stats.demotions[..4], [0, 64, 8, 1]);
    assert_eq!(stats.mapped_at_peak[..4], [0, 0, 0, 1]);
    assert_eq!((stats.faults_zero, stats.reserved_found, stats.reservations_made), (512, 511, 1));
    assert_eq!(stats.bytes_zeroed, 4 << 20);
}

#[test]
fn each_mechanism_can_be_switched_off() {
    let stats = touch("reservation:demote-on-unmap=off");
    assert_eq!((&stats.promotions[..4], &stats.demotions[..4]), (&[0, 64, 8, 1][..], &[0; 4][..]));
    let stats = touch("reservation:stepwise=off");
    assert_eq!(stats.demotions[..4], [0, 0, 0, 1], "to base pages at once");
    let stats = touch("reservation:promote=never");
    assert_eq!((&stats.promotions[..4], stats.mapped_at_peak[0]), (&[0; 4][..], 512));
}
