//! Elastic Translations (Psomadakis et al., MICRO 2024; the authors' `etutils`: `leshy_greedy.rs`,
//! `online_leshy.rs`): sizes by the misses in the TLBs. From the largest size down, a block is
//! chosen where misses fell on a share `target` of its entries and no larger one that holds it was
//! chosen; an entry is what one entry of a page table maps there: of 64 KB and 2 MB a base page, of
//! 32 MB one of 2 MB. The blocks with the most misses come first, of these those with the most
//! entries: what is populated is promoted, and faults take an extent of that size from then on.
//! Where a block cannot be promoted, smaller ones in it are chosen.
//!
//! The rule is that of the greedy profiler, which the authors run over a recorded profile; here it
//! is applied to each `interval` and, as by the online profiler, to the one before at 95 %. As that
//! one, it stops once it has promoted `most` base pages: twice what a khugepaged with default
//! settings scans meanwhile.
//!
//! Assumed: `target`, which the authors pass on the command line; misses are compared in steps of
//! 100 (theirs: equal if less than 100 apart, which is no order); all misses are counted, at no
//! cost, where hardware takes samples.
//!
//! Not modelled: a block that the online profiler leaves out because it stayed without effect; the
//! latency of misses, the authors' last criterion; contiguity that the allocator of the same
//! authors (CoalaPaging) leaves.

use super::promote::{MS, parameter};
use super::thp;
use crate::{
    Address, Answers, Background, Candidate, Definition, Events, How, Made, Need, Place, Placing, Prefer, Reserve,
    Sample, SpaceId, System, Time, Values, Why,
};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;
use superpage_pages::{Ladder, Level, MAX_LEVELS, Vpn};

pub(super) static POLICY: Definition = Definition {
    name: "leshy",
    paper: "Psomadakis et al., Elastic Translations, MICRO 2024; etutils",
    help: "base pages, and of each size the blocks in which enough entries had misses in the TLBs",
    parameters: &[
        parameter("target", Values::Share, "0.5", "share of a block's entries that must have had misses"),
        parameter("interval", Values::TimeFrom(MS), "2s", "between two choices"),
        parameter("most", Values::Count(1, 1 << 40), "1638", "base pages in the blocks promoted at a choice"),
    ],
    needs: &[Need::Misses, Need::Copying],
    make: |given| {
        let (target, most) = (given.share("target"), given.number("most").expect("it has a default"));
        let interval = given.time("interval").as_nanos() as Time;
        let answers = Answers { place: Placing { frames: Place::BasePage, ..thp::ANSWERS.place }, ..thp::ANSWERS };
        Made::with(answers, Leshy { target, most, interval, ..Leshy::default() })
    },
};

#[derive(Debug, Default)]
struct Leshy {
    target: f64,
    most: u64,
    interval: Time,
    next: Time,
    /// The misses of this interval and of the one before, by page.
    misses: [BTreeMap<Address, u64>; 2],
}

/// An aligned block of a level: its misses, and the entries that had some.
#[derive(Debug)]
struct Block {
    level: Level,
    space: SpaceId,
    region: u64,
    misses: u64,
    entries: u64,
}

/// The blocks of a level in which misses fell on a share of the entries.
fn blocks(pages: &BTreeMap<Address, u64>, ladder: &Ladder, level: Level, target: f64) -> Vec<Block> {
    let size = ladder.pages(level);
    // What an entry of the table maps whose entries such a block takes. A table is a base page, an
    // entry 8 bytes.
    let ratio = ladder.base().bytes() / 8;
    let entry = core::iter::successors(Some(1u64), |entry| entry.checked_mul(ratio)).take_while(|entry| *entry < size);
    let entry = entry.last().unwrap_or(1);
    let mut found: Vec<Block> = Vec::new();
    let mut seen = None;
    for (&Address { space, at: Vpn(page) }, &misses) in pages {
        let (region, here) = (page / size, Some((space, page / entry)));
        let fresh = u64::from(seen != here);
        seen = here;
        match found.last_mut().filter(|block| (block.space, block.region) == (space, region)) {
            Some(block) => (block.misses, block.entries) = (block.misses + misses, block.entries + fresh),
            None => found.push(Block { level, space, region, misses, entries: 1 }),
        }
    }
    found.retain(|block| block.entries as f64 >= target * (size / entry) as f64);
    found
}

impl Leshy {
    /// The misses of both intervals.
    fn pages(&self) -> BTreeMap<Address, u64> {
        let [now, before] = &self.misses;
        let mut pages: BTreeMap<_, _> =
            before.iter().map(|(page, misses)| (*page, (misses * 95).div_ceil(100))).collect();
        for (page, misses) in now {
            *pages.entry(*page).or_default() += misses;
        }
        pages
    }

    /// The blocks to make superpages of, but for those that were refused; those with the most
    /// misses first.
    fn choose(
        &self,
        pages: &BTreeMap<Address, u64>,
        ladder: &Ladder,
        refused: &BTreeSet<(Level, SpaceId, u64)>,
    ) -> Vec<Block> {
        let (mut chosen, mut covered) = (Vec::new(), BTreeSet::new());
        for level in ladder.levels().skip(1).rev() {
            for block in blocks(pages, ladder, level, self.target) {
                if refused.contains(&(level, block.space, block.region)) {
                    continue;
                }
                let first = block.region * ladder.pages(level);
                let mut larger = ladder.levels().skip(level.index() + 1);
                if !larger.any(|larger| covered.contains(&(larger, block.space, first / ladder.pages(larger)))) {
                    covered.insert((level, block.space, block.region));
                    chosen.push(block);
                }
            }
        }
        chosen.sort_by_key(|block| Reverse((block.misses / 100, block.entries)));
        chosen
    }
}

impl Background for Leshy {
    fn next(&self) -> Option<Time> {
        Some(self.next)
    }

    fn tick(&mut self, now: Time, system: &mut dyn System) {
        self.next = now.saturating_add(self.interval);
        let (ladder, pages) = (*system.ladder(), self.pages());
        let (mut promoted, mut refused) = (0, BTreeSet::new());
        // Again where something was refused, for the blocks inside: each time smaller ones.
        for _ in ladder.levels().skip(1) {
            let before = refused.len();
            let mut none_free = [false; MAX_LEVELS];
            for Block { level, space, region, .. } in self.choose(&pages, &ladder, &refused) {
                if promoted >= self.most {
                    break;
                }
                // What is a superpage, perhaps a larger one, would be taken apart.
                let superpage = system.population(space, level, region).is_some_and(|sample| sample.superpage);
                if superpage {
                    continue;
                }
                let candidate = Candidate::from(Sample { region, populated: 1, superpage: false });
                let made = if none_free[level.index()] {
                    Err(Why::NoExtent)
                } else {
                    system.promote(space, level, &[candidate], How::Either).remove(0).map_err(|no| no.why)
                };
                if let Err(why) = made {
                    none_free[level.index()] |= why == Why::NoExtent;
                    refused.insert((level, space, region));
                    continue;
                }
                let (size, of) = (ladder.size(level).bytes(), ladder.pages(level));
                let prefer =
                    Prefer { place: Some(Place::Extent), size: Some(Reserve::UpTo(size)), ..Prefer::default() };
                system.prefer(space, Some(Vpn(region * of).pages(of)), prefer);
                promoted += of;
            }
            if refused.len() == before || promoted >= self.most {
                break;
            }
        }
        self.misses[1] = core::mem::take(&mut self.misses[0]);
    }

    fn events(&self) -> Events {
        Events { missed: true, gone: true, ..Events::default() }
    }

    fn missed(&mut self, space: SpaceId, at: Vpn, _mapped: Level) {
        *self.misses[0].entry(space.page(at)).or_default() += 1;
    }

    fn gone(&mut self, space: SpaceId) {
        self.misses.iter_mut().for_each(|pages| pages.retain(|page, _| page.space != space));
    }
}
