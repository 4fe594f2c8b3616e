//! Superpages at the fault, as in HP-UX (Subramanian et al., USENIX 1998) and IRIX (Ganapathy and
//! Schimmel, USENIX 1998): a fault takes the largest size that lies in the mapping, at most
//! `ceiling`, or `hinted-ceiling` where the program asks for superpages, if `keep` of memory stays
//! free; a smaller one if none is free. With `coalesce=on` a daemon compacts extents of the largest
//! size that faults wanted in vain, until `watermark` of them are free.
//!
//! Ceilings are HP-UX's `vps_ceiling` and `vps_chatr_ceiling` (docs.hp.com, KCParms). `keep`,
//! `watermark`, `batch` and `interval` are assumed: the values of such limits in both systems are
//! not known.
//!
//! Not modelled: superpages of code and files; a hint that names a size (IRIX' policy modules,
//! HP-UX' `chatr`): there is only `MADV_HUGEPAGE`; a limit and a watermark for each size (IRIX).

use super::parameter::SWITCH;
use super::promote::{MS, parameter as own};
use super::thp;
use crate::{
    Answers, Background, Definition, Demoting, Event, Given, Made, Need, Placing, Prefer, Reserve, System, Time,
    Values, Wants,
};
use superpage_pages::Level;

pub(super) static POLICY: Definition = Definition {
    name: "eager",
    paper: "Subramanian et al., USENIX 1998 (HP-UX); Ganapathy and Schimmel, USENIX 1998 (IRIX)",
    help: "HP-UX, IRIX: the largest superpage up to a ceiling at the fault, while enough memory is free",
    parameters: &[
        own("ceiling", Values::Bytes, "16K", "the largest size (vps_ceiling)"),
        own("hinted-ceiling", Values::Bytes, "64M", "where the program asks for superpages (vps_chatr_ceiling)"),
        own("keep", Values::Share, "0.05", "share of memory that stays free when a superpage is taken"),
        own("coalesce", Values::Words(SWITCH), "off", "compact extents that faults wanted in vain"),
        own("watermark", Values::Count(1, 1 << 20), "1", "extents of that size that are to be free"),
        own("batch", Values::Count(1, 1024), "1", "extents that are compacted in one call"),
        own("interval", Values::TimeFrom(MS), "1s", "between two calls"),
    ],
    needs: &[Need::Faults],
    make: |given| {
        let eager = Eager::new(given);
        let [size, hinted] = eager.ceilings.map(Reserve::UpTo);
        let place = Placing { size, hinted: Some(hinted), ..thp::ANSWERS.place };
        let demote = Demoting { deferred: false, ..thp::ANSWERS.demote };
        Made::with(Answers { place, demote, ..thp::ANSWERS }, eager)
    },
};

#[derive(Debug)]
struct Eager {
    /// In bytes: without a hint, and with one.
    ceilings: [u64; 2],
    keep: f64,
    watermark: u64,
    /// The most extents that are compacted in a call.
    batch: u64,
    interval: Time,
    next: Time,
    /// The largest size that a fault wanted in vain since enough were free.
    wanted: Level,
}

impl Eager {
    fn new(given: &Given) -> Eager {
        let number = |name| given.number(name).expect("it has a default");
        Eager {
            ceilings: ["ceiling", "hinted-ceiling"].map(number),
            keep: given.share("keep"),
            watermark: number("watermark"),
            batch: if given.is_on("coalesce") { number("batch") } else { 0 },
            interval: given.time("interval").as_nanos() as Time,
            next: 0,
            wanted: Level::BASE,
        }
    }

    /// Compacts, until enough extents are free or it fails.
    fn coalesce(&mut self, system: &mut dyn System) {
        for _ in 0..self.batch {
            if system.free_extents(self.wanted).is_none_or(|free| free >= self.watermark) {
                self.wanted = Level::BASE;
            }
            if self.wanted == Level::BASE || !system.compact(self.wanted, None).is_some_and(|done| done.free) {
                break;
            }
        }
    }
}

impl Background for Eager {
    fn next(&self) -> Option<Time> {
        Some(self.next)
    }

    fn wants(&self) -> Wants {
        Wants { starved: self.batch > 0, ..Wants::default() }
    }

    fn notify(&mut self, event: Event) {
        if let Event::Starved { level, .. } = event {
            self.wanted = self.wanted.max(level);
        }
    }

    fn tick(&mut self, now: Time, system: &mut dyn System) {
        self.next = now.saturating_add(self.interval);
        self.coalesce(system);
        let Some(memory) = system.memory() else { return };
        let (ladder, kept) = (*system.ladder(), (self.keep * memory.total as f64) as u64);
        let fits = |level: &Level| memory.free >= kept + ladder.pages(*level);
        let most = ladder.levels().rev().find(fits).unwrap_or(Level::BASE);
        let [size, hinted] = self.ceilings.map(|ceiling| Some(Reserve::UpTo(ceiling.min(ladder.size(most).bytes()))));
        for space in system.spaces() {
            system.prefer(space, None, Prefer { size, hinted, ..Prefer::default() });
        }
    }
}
