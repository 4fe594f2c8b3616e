//! Protection of a part of a superpage demotes only what holds the edges of the part (Navarro et
//! al., section 4.6).

use crate::machine::{ALPHA, Machine};
use superpage_pages::{Level, Protection};
use superpage_vm::Growth;

fn machine(policy: &str) -> Machine {
    let mut machine = Machine::new(ALPHA, 1024, policy);
    machine.anonymous(512, 512, Growth::Fixed);
    machine.write_all(512..1024);
    assert_eq!(machine.level(512), Some(Level(3)));
    machine
}

#[test]
fn one_page_demotes_only_the_superpages_around_it() {
    let mut machine = machine("reservation");
    machine.protect(512 + 100, 1, Protection::READ);
    machine.vm.validate(&machine.pmap).unwrap();
    let stats = machine.vm.stats();
    assert_eq!(stats.demotions[..4], [0, 1, 1, 1]);
    assert_eq!(stats.mapped[..4], [8, 7, 7, 0]);
    machine.end();
}

#[test]
fn an_aligned_part_is_demoted_no_further_than_its_size() {
    let mut machine = machine("reservation");
    machine.protect(512 + 64, 64, Protection::READ);
    machine.vm.validate(&machine.pmap).unwrap();
    assert_eq!(machine.vm.stats().mapped[..4], [0, 0, 8, 0]);
    machine.protect(512, 512, Protection::READ);
    assert_eq!(machine.vm.stats().demotions[..4], [0, 0, 0, 1], "whole superpages change their rights as they are");
    machine.end();
}

#[test]
fn all_the_way_if_the_policy_says_so() {
    let mut machine = machine("reservation:stepwise=off");
    machine.protect(512 + 64, 64, Protection::READ);
    assert_eq!(machine.vm.stats().mapped[..4], [512, 0, 0, 0]);
    machine.end();
}

#[test]
fn once_uniform_again_the_next_fault_promotes() {
    let mut machine = machine("reservation");
    machine.protect(512 + 100, 1, Protection::READ);
    machine.protect(512 + 100, 1, Protection::READ_WRITE);
    assert_eq!(machine.level(512 + 100), Some(Level(0)), "only a fault promotes");
    machine.vm.discard(&mut machine.pmap, machine.space, superpage_pages::Vpn(1000).pages(1)).unwrap();
    assert_eq!(machine.write(1000).mapped, Level(3), "what lies apart is promoted on the way");
    assert_eq!(machine.vm.stats().mapped[..4], [0, 0, 0, 1]);
    machine.end();
}
