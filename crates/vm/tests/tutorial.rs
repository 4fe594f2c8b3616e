//! The policy of `docs/policy-tutorial.md` on this crate's manager.

pub(crate) mod hot;

use self::hot::HOT;
use crate::machine::Machine;
use superpage_pages::Level;
use superpage_vm::{Config, Growth, Policy, Target, Time};

const SECOND: Time = 1_000_000_000;

#[test]
fn the_policy_of_the_page_promotes_what_is_used() {
    let policy = Policy::of(&HOT, [("share", "0.75")], &Target::MANAGER).unwrap();
    let mut machine = Machine::new("4K 2M", 4096, "base");
    let ladder = *machine.vm.ladder();
    machine.vm = superpage_vm::Vm::new(Config { ladder, frames: 4096, policy, swap_pages: 0 }).unwrap();
    machine.space = machine.vm.create_space();
    machine.anonymous(512, 1024, Growth::Fixed);
    (512..512 + 400).for_each(|page| machine.put(page, page));
    (1024..1024 + 300).for_each(|page| machine.put(page, page));
    for second in 1..4 {
        let next = machine.vm.advance(&mut machine.pmap, &mut machine.disk, second * SECOND, 0);
        assert_eq!(next, Some((second + 1) * SECOND));
        machine.vm.validate(&machine.pmap).unwrap();
    }
    assert_eq!([512, 1024].map(|page| machine.level(page)), [Some(Level(1)), Some(Level::BASE)]);
    assert!((512..912).all(|page| machine.get(page) == page));
    machine.end();
}

#[test]
fn the_page_has_the_example_as_it_is() {
    let (_, example) = include_str!("tutorial/hot.rs").split_once("\n\n").unwrap();
    assert!(example.lines().count() <= 66, "{} lines", example.lines().count());
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/policy-tutorial.md");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains(example), "docs/policy-tutorial.md and tests/tutorial/hot.rs differ");
}
