//! What every target promises of its scans: a policy that checks it, whatever it runs on.

use superpage_pages::Level;
use superpage_vm::{
    Answers, Background, Definition, Made, Need, Parameter, Part, Sample, Scanned, ScannedPart, SpaceId, System, Time,
    Values,
};

/// Looks and changes nothing, and panics if a promise is not kept.
pub(crate) static CONTRACT: Definition = Definition {
    name: "contract",
    paper: "",
    help: "looks at all and changes nothing",
    parameters: &[Parameter {
        name: "regions",
        values: Values::Count(1, 1 << 20),
        default: "1",
        help: "that are expected in each space, at least",
        needs: &[],
    }],
    needs: &[Need::Copying],
    make: |given| Made::with(Answers::BASE, Contract { regions: given.number("regions").unwrap() as usize, next: 0 }),
};

#[derive(Debug)]
struct Contract {
    regions: usize,
    next: Time,
}

impl Background for Contract {
    fn next(&self) -> Option<Time> {
        Some(self.next)
    }

    fn tick(&mut self, now: Time, system: &mut dyn System) {
        self.next = now + 1_000_000;
        for space in system.spaces() {
            kept(system, space, Level(1), self.regions);
        }
    }
}

/// A scan reports all there is each time, whole or in parts, and what a look says agrees with it.
pub(crate) fn kept(system: &mut dyn System, space: SpaceId, level: Level, least: usize) {
    let scan = |system: &mut dyn System, part| {
        let mut seen: Vec<Sample> = Vec::new();
        let ScannedPart { scanned, next } = system.scan_part(space, level, part, &mut |sample| seen.push(sample));
        assert!(matches!(scanned, Scanned::Seen | Scanned::NewProgram), "{scanned:?}");
        (seen, next)
    };
    let (all, next) = scan(system, Part::ALL);
    assert_eq!(next, None);
    assert!(all.len() >= least, "{} regions", all.len());
    assert!(all.windows(2).all(|pair| pair[0].region < pair[1].region));
    assert_eq!(scan(system, Part::ALL).0, all, "nothing has changed, and all is reported again");
    for most in [1, 2, all.len() as u64, all.len() as u64 + 1] {
        let (mut parts, mut from) = (Vec::new(), Some(0));
        while let Some(start) = from {
            let (part, next) = scan(system, Part { from: start, most });
            assert!(part.len() as u64 <= most && part.iter().all(|sample| sample.region >= start));
            assert!(next.is_none_or(|next| next > start && part.len() as u64 == most));
            parts.extend(part);
            from = next;
        }
        assert_eq!(parts, all, "in parts of {most}");
    }
    for sample in &all {
        let look = system.look(space, level, sample.region);
        assert_eq!(look, system.look(space, level, sample.region), "a look clears nothing");
        assert_eq!(look.superpage, sample.superpage);
        assert!(look.populated + look.shared >= sample.populated, "{look:?} {sample:?}");
        assert!(look.untouched.unwrap_or(0) <= look.populated);
    }
    if let Some(memory) = system.memory() {
        assert!(memory.low <= memory.aim, "{memory:?}");
        assert_eq!(system.free_extents(level).is_some(), system.memory().is_some());
    }
}
