//! Policies that are told of each miss.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use superpage_pages::{Level, Vpn};
use superpage_sim::{Conditions, Row, Setup, plan, run};
use superpage_trace::workload;
use superpage_vm::{
    Answers, Background, Candidate, Definition, Event, Events, How, Made, Need, Parameter, Policy, Sample, SpaceId,
    System, Target, Time, Values, Wants,
};

/// Base pages; a region with so many misses is promoted, as Romer et al. do online (ISCA 1995,
/// section 3), without their charges.
const MISSED: Definition = Definition {
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

/// Base pages; a region is charged for a miss if the TLBs hold another page of it, as Romer et al.
/// do (ISCA 1995, section 3), by a handler that takes 90 cycles more.
static CHARGED: Definition = Definition {
    name: "charged",
    parameters: &[],
    needs: &[Need::Misses],
    make: |_| Made::with(Answers::BASE, Charged),
    ..MISSED
};

/// Misses for which a region of 2 MB was charged.
static CHARGES: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
struct Charged;

impl Background for Charged {
    fn next(&self) -> Option<Time> {
        None
    }

    fn tick(&mut self, _: Time, _: &mut dyn System) {}

    fn wants(&self) -> Wants {
        Wants { miss: true, neighbour: true, ..Wants::default() }
    }

    fn notify(&mut self, event: Event) {
        if let Event::Miss { mapped: Level::BASE, neighbour: Some(Level(1)), .. } = event {
            CHARGES.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn miss_cycles(&self) -> u64 {
        90
    }
}

const RANDOM: &str = "random:bytes=64M,references=200K";

fn row(policy: &str, misses: &str) -> Row {
    row_of(policy, misses, RANDOM)
}

fn row_of(policy: &str, misses: &str, workload: &str) -> Row {
    let setups = plan(&["zen5".into()], &["base".into()], &Conditions::default()).unwrap();
    let own = |setup: Setup| match policy {
        "missed" => setup.with_policy(Policy::of(&MISSED, [("misses", misses)], &Target::MANAGER).unwrap()),
        "charged" => setup.with_policy(Policy::of(&CHARGED, [], &Target::MANAGER).unwrap()),
        _ => setup,
    };
    let setups: Vec<Setup> = setups.into_iter().map(own).collect();
    let mut source = workload::parse(workload).unwrap();
    run(&setups, source.as_mut(), &AtomicBool::new(false), &|_| {}).unwrap().remove(0)
}

/// Nearly all misses are charged where 32 regions are used at once, and none where each page is of
/// another region.
#[test]
fn a_region_is_charged_if_the_tlbs_hold_another_page_of_it() {
    for (workload, least, most) in [(RANDOM, 0.99, 1.0), ("stride:step=2M,touches=500,rounds=20", 0.0, 0.0)] {
        CHARGES.store(0, Ordering::Relaxed);
        let (base, charged) = (row_of("base", "", workload), row_of("charged", "", workload));
        let share = CHARGES.load(Ordering::Relaxed) as f64 / charged.tlb_misses as f64;
        assert!(base.tlb_misses > 5000 && (least..=most).contains(&share), "{workload}: {share}");
        assert_eq!((charged.tlb_misses, charged.walk_cycles), (base.tlb_misses, base.walk_cycles));
        assert_eq!(charged.background_cycles, 90 * charged.tlb_misses);
        assert_eq!(charged.cycles, base.cycles + charged.background_cycles);
    }
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
