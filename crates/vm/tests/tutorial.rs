//! The policy of `docs/policies.md`, as it stands there, on this crate's manager.

use crate::machine::Machine;
use superpage_pages::Level;
use superpage_vm::{Config, Growth, Target};

// Begin of the page's example.
use superpage_vm::{Answers, Background, Definition, How, Made, Need, Parameter, Policy, Ripe, System, Time, Values};

/// Base pages; once per interval, regions most of which was accessed since the last scan become superpages.
static HOT: Definition = Definition {
    name: "hot",
    paper: "",
    help: "base pages, and superpages where most was accessed recently",
    parameters: &[
        Parameter {
            name: "share",
            values: Values::Share,
            default: "0.5",
            help: "of a region's pages, accessed in an interval",
            needs: &[],
        },
        Parameter { name: "interval", values: Values::Time, default: "1s", help: "between two scans", needs: &[] },
    ],
    needs: &[Need::Copying],
    make: |given| {
        let interval = given.time("interval").as_nanos() as Time;
        Made::with(Answers::BASE, Hot { share: given.share("share"), interval, next: 0 })
    },
};

#[derive(Debug)]
struct Hot {
    share: f64,
    interval: Time,
    next: Time,
}

impl Background for Hot {
    fn next(&self) -> Option<Time> {
        Some(self.next)
    }

    fn tick(&mut self, now: Time, system: &mut dyn System) {
        self.next = now + self.interval;
        let level = Level(1);
        let least = self.share * system.ladder().pages(level) as f64;
        for space in system.spaces() {
            let mut seen = Vec::new();
            system.look(space, level, &mut |sample| seen.push(sample));
            let mut hot: Vec<Ripe> = Vec::new();
            for sample in seen.into_iter().filter(|sample| !sample.superpage) {
                // If accesses are not known, populated pages count instead.
                let accessed = system.accessed(space, level, sample.region).unwrap_or(sample.populated);
                if f64::from(accessed) >= least {
                    hot.push(Ripe::from(sample));
                }
            }
            system.promote(space, level, &hot, How::Either);
        }
    }
}
// End of the page's example.

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
    let text = include_str!("tutorial.rs");
    let (_, rest) = text.split_once("// Begin of the page's example.\n").unwrap();
    let (example, _) = rest.split_once("// End of the page's example.\n").unwrap();
    assert!(example.lines().count() <= 65, "{} lines", example.lines().count());
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/policies.md");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains(example), "docs/policies.md and tests/tutorial.rs differ");
}
