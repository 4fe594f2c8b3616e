//! The policy of `docs/policy-tutorial.md`, as it stands there: the tests of three crates run it.

use superpage_pages::Level;
use superpage_vm::{
    Answers, Background, Candidate, Definition, How, Made, Need, Parameter, System, Time, Values, Wants,
};

/// Base pages; once per interval, regions most of which was accessed since the last scan become
/// superpages.
pub(crate) static HOT: Definition = Definition {
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

    fn wants(&self) -> Wants {
        Wants { accessed: true, ..Wants::default() }
    }

    fn tick(&mut self, now: Time, system: &mut dyn System) {
        self.next = now + self.interval;
        let level = Level(1);
        if system.ladder().largest() < level {
            return;
        }
        let least = self.share * system.ladder().pages(level) as f64;
        for space in system.spaces() {
            let mut seen = Vec::new();
            system.scan(space, level, &mut |sample| seen.push(sample));
            let mut hot: Vec<Candidate> = Vec::new();
            for sample in seen.into_iter().filter(|sample| !sample.superpage) {
                // If accesses are not known, populated pages count instead.
                let accessed = system.accessed(space, level, sample.region).unwrap_or(sample.populated);
                if f64::from(accessed) >= least {
                    hot.push(Candidate { least: sample.populated, ..sample.into() });
                }
            }
            system.promote(space, level, &hot, How::Either);
        }
    }
}
