//! A policy that is told of each miss.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use superpage_pages::{Level, Vpn};
use superpage_sim::{Conditions, Row, Setup, plan, run};
use superpage_trace::workload;
use superpage_vm::{
    Answers, Background, Candidate, Definition, Events, How, Made, Need, Parameter, Policy, Sample, SpaceId, System,
    Target, Time, Values,
};

/// Base pages; a region with so many misses is promoted, as Romer et al. do online (ISCA 1995, section 3), without their charges.
static MISSED: Definition = Definition {
    name: "missed",
    paper: "",
    help: "",
    parameters: &[Parameter {
        name: "misses",
        values: Values::Count(1, u64::MAX),
        default: "100",
        help: "in a region that make it a superpage",
        needs: &[],
    }],
    needs: &[Need::Misses, Need::Copying],
    make: |given| {
        Made::with(Answers::BASE, Missed { limit: given.number("misses").unwrap(), now: 0, ..Missed::default() })
    },
};

/// All misses told, in all runs.
static TOLD: AtomicU64 = AtomicU64::new(0);

#[derive(Debug, Default)]
struct Missed {
    limit: u64,
    now: Time,
    counts: std::collections::BTreeMap<(SpaceId, u64), u64>,
    ready: Vec<(SpaceId, u64)>,
}

impl Background for Missed {
    fn next(&self) -> Option<Time> {
        (!self.ready.is_empty()).then_some(self.now)
    }

    fn tick(&mut self, now: Time, system: &mut dyn System) {
        self.now = now;
        for (space, region) in std::mem::take(&mut self.ready) {
            system.promote(
                space,
                Level(1),
                &[Candidate::from(Sample { region, populated: 512, superpage: false })],
                How::Either,
            );
        }
    }

    fn events(&self) -> Events {
        Events { missed: true, ..Events::default() }
    }

    fn missed(&mut self, space: SpaceId, at: Vpn, mapped: Level) {
        TOLD.fetch_add(1, Ordering::Relaxed);
        if mapped == Level::BASE {
            let count = self.counts.entry((space, at.0 >> 9)).or_default();
            *count += 1;
            if *count == self.limit {
                self.ready.push((space, at.0 >> 9));
            }
        }
    }
}

fn row(policy: &str, misses: &str) -> Row {
    let setups = plan(&["zen5".into()], &["base".into()], &Conditions::default()).unwrap();
    let own = |setup: Setup| match policy {
        "missed" => setup.with_policy(Policy::of(&MISSED, [("misses", misses)], &Target::MANAGER).unwrap()),
        _ => setup,
    };
    let setups: Vec<Setup> = setups.into_iter().map(own).collect();
    let mut source = workload::parse("random:bytes=64M,references=200K").unwrap();
    run(&setups, source.as_mut(), &AtomicBool::new(false), &|_| {}).unwrap().remove(0)
}

#[test]
fn each_miss_is_told_once_and_nothing_else_changes() {
    let never = u64::MAX.to_string();
    let (base, told) = (row("base", ""), row("missed", &never));
    assert_eq!(TOLD.swap(0, Ordering::Relaxed), told.tlb_misses);
    assert!(base.tlb_misses > 100_000);
    let counts = |row: &Row| (row.references, row.faults, row.tlb_misses, row.walk_memory_references, row.cycles);
    assert_eq!(counts(&base), counts(&told));
    let promoted = row("missed", "1000");
    assert_eq!(TOLD.load(Ordering::Relaxed), promoted.tlb_misses);
    assert!(promoted.promotions > 10 && promoted.tlb_misses < base.tlb_misses, "{promoted:?}");
}
