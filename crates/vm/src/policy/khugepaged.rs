//! Linux's khugepaged: every `interval` it looks at `pages` page-table entries, round robin over
//! all processes from where it stopped, and collapses regions of 2 MB (the largest size up to that)
//! in which few enough entries are empty, in swap space or shared, and a page was accessed. Where
//! no extent is free it compacts (`khugepaged-defrag`); if that fails too it sleeps for
//! `alloc-sleep`. Faults take huge pages as under `thp`, unless `fault=off`. The thread is that of
//! `thp:khugepaged=on`.
//!
//! With `text=on`, of every policy, it collapses programs' text too, whoever has it in memory and
//! whether or not it was accessed: at most `max-none` pages of a region are read for it, and the
//! next access of each program maps it huge. Most distributions build kernels without that
//! (`CONFIG_READ_ONLY_THP_FOR_FS`), so it is off.
//!
//! Not modelled: regions with pages in swap space or shared since a fork, which Linux collapses
//! within the limits and the manager refuses; shared memory; files that are opened for writing,
//! which keep their huge pages here.

use super::parameter::SWITCH;
use super::promote::{MS, parameter as own};
use super::thp;
use super::thp::simulated;
use crate::{
    Answers, Candidate, Definition, Given, How, Look, Need, Parameter, Part, Place, Placing, Refusal, Sample, Sizes,
    SpaceId, System, Time, Values, Why,
};
use alloc::vec::Vec;
use superpage_pages::{Hint, Level};

pub(super) static POLICY: Definition = Definition {
    name: "khugepaged",
    paper: "Linux 6.8, mm/khugepaged.c; Documentation/admin-guide/mm/transhuge.rst",
    help: "Linux: huge pages at first touches, and regions that are collapsed later, a few every 10 s",
    parameters: &[
        thp::ENABLED,
        thp::DEFRAG,
        simulated(own("fault", Values::Words(SWITCH), "on", "faults take huge pages too")),
        PAGES,
        INTERVAL,
        ALLOC_SLEEP,
        MAX_NONE,
        MAX_SWAP,
        MAX_SHARED,
        COMPACT,
    ],
    needs: &[Need::Copying],
    make: |given| {
        let thp = thp::answers(given);
        let frames = if given.is_on("fault") { thp.place.frames } else { Place::BasePage };
        let answers = Answers { place: Placing { frames, ..thp.place }, ..thp };
        thp::made(given, answers, Some(Khugepaged::of(given)))
    },
};

pub(super) const PAGES: Parameter =
    own("pages", Values::Count(1, 1 << 30), "4096", "entries looked at in a wake-up (pages_to_scan)");
pub(super) const INTERVAL: Parameter =
    own("interval", Values::TimeFrom(MS), "10s", "between two wake-ups (scan_sleep_millisecs)");
pub(super) const ALLOC_SLEEP: Parameter =
    own("alloc-sleep", Values::Time, "60s", "until the next one if no extent was free (alloc_sleep_millisecs)");
pub(super) const MAX_NONE: Parameter =
    own("max-none", Values::Count(0, 1 << 20), "511", "entries of a region that may be empty (max_ptes_none)");
pub(super) const MAX_SWAP: Parameter =
    own("max-swap", Values::Count(0, 1 << 20), "64", "entries that may be in swap space (max_ptes_swap)");
pub(super) const MAX_SHARED: Parameter =
    own("max-shared", Values::Count(0, 1 << 20), "256", "entries that may be shared (max_ptes_shared)");
/// Live, what is asked to be collapsed (`MADV_COLLAPSE`) is always compacted for.
pub(super) const COMPACT: Parameter =
    simulated(own("khugepaged-defrag", Values::Words(SWITCH), "on", "khugepaged compacts where no extent is free"));

/// `HPAGE_PMD_NR - 1` on x86: the default of `max-none`.
pub(super) const MOST_NONE: u32 = 511;

#[derive(Debug)]
pub(super) struct Khugepaged {
    pages: u64,
    interval: Time,
    alloc_sleep: Time,
    pub(super) next: Time,
    /// The most entries of a region that may be empty, in swap space, shared.
    most: [u32; 3],
    /// The sizes of folios, in memory without advice and with; `None`: regions as a whole.
    sizes: Option<[Sizes; 2]>,
    /// How often an extent is compacted for a region, at most.
    compactions: u64,
    /// Where the next scan begins.
    cursor: (SpaceId, u64),
    /// Regions that a wake-up has still to look at, since it had to wait; 0: the next call is
    /// a wake-up.
    left: u64,
}

/// An aligned block of a level, by its number.
#[derive(Clone, Copy)]
struct Block {
    space: SpaceId,
    level: Level,
    region: u64,
}

impl Khugepaged {
    /// With the parameters above as they were given.
    pub(super) fn of(given: &Given) -> Khugepaged {
        let number = |name| given.number(name).expect("it has a default");
        let times = ["interval", "alloc-sleep"].map(|name| (given.time(name).as_nanos() as Time).max(1));
        let most = ["max-none", "max-swap", "max-shared"].map(|name| number(name) as u32);
        Khugepaged::new(number("pages"), times, most, u64::from(given.is_on("khugepaged-defrag")))
    }

    pub(super) fn new(pages: u64, [interval, alloc_sleep]: [Time; 2], most: [u32; 3], compactions: u64) -> Khugepaged {
        let (sizes, cursor) = (None, (SpaceId(0), 0));
        Khugepaged { pages, interval, alloc_sleep, next: interval, most, sizes, compactions, cursor, left: 0 }
    }

    /// With folios of these sizes, in memory without advice and where the program asks for huge
    /// pages; see `mthp`.
    pub(super) fn into_sizes(self, sizes: [Sizes; 2]) -> Khugepaged {
        Khugepaged { sizes: Some(sizes), ..self }
    }

    /// Collapses a region if it qualifies.
    fn collapse(&self, system: &mut dyn System, space: SpaceId, level: Level, sample: Sample) -> Result<(), Refusal> {
        let block = Block { space, level, region: sample.region };
        let look = system.look(space, level, sample.region);
        let none = self.none(system, level, &look);
        let fits = [look.swapped, look.shared].iter().zip(&self.most[1..]).all(|(found, most)| found <= most);
        // Text need not have been accessed (`hpage_collapse_scan_file`).
        if sample.superpage || !fits || look.accessed == Some(0) && !look.text {
            return Ok(());
        }
        let Some(sizes) = self.sizes else {
            return if none <= self.most[0] { self.promote(system, block, &look) } else { Ok(()) };
        };
        let sizes = sizes[usize::from(look.hint == Some(Hint::Huge))];
        self.collapse_in(system, block, sizes, true)
    }

    /// Collapses a region into the largest of these sizes that are occupied. `whole`: it is the one
    /// with the limits.
    fn collapse_in(&self, system: &mut dyn System, block: Block, sizes: Sizes, whole: bool) -> Result<(), Refusal> {
        let Block { space, level, region } = block;
        if level == Level::BASE {
            return Ok(());
        }
        if sizes.contains(system.ladder().size(level)) {
            let look = system.look(space, level, region);
            let none = self.none(system, level, &look);
            // Below the whole region only two values mean anything (`collapse_max_ptes_none`).
            let occupied = match self.most[0] {
                most if whole => none <= most,
                MOST_NONE => look.populated > 0,
                _ => none == 0,
            };
            if occupied && look.populated > 0 && (whole || look.swapped + look.shared == 0) {
                return if look.superpage { Ok(()) } else { self.promote(system, block, &look) };
            }
        }
        let below = level.down();
        let parts = system.ladder().ratio(level);
        for region in region * parts..(region + 1) * parts {
            match self.collapse_in(system, Block { space, level: below, region }, sizes, false) {
                // What is refused for its own sake does not keep others from it.
                Err(Refusal { why, until }) if why != Why::NoExtent && until <= system.now() => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// The entries of a region that are empty.
    fn none(&self, system: &dyn System, level: Level, look: &Look) -> u32 {
        (system.ladder().pages(level) as u32).saturating_sub(look.populated + look.shared + look.swapped)
    }

    /// Promotes a region, with compaction where no extent is free.
    fn promote(&self, system: &mut dyn System, block: Block, look: &Look) -> Result<(), Refusal> {
        let Block { space, level, region } = block;
        let least = look.populated.max(1);
        let candidate = Candidate { least, ..Sample { region, populated: look.populated, superpage: false }.into() };
        let mut done = system.promote(space, level, &[candidate], How::Either).remove(0);
        for _ in 0..self.compactions {
            if done != Err(Why::NoExtent.into()) {
                break;
            }
            if system.compact(level, None).is_some_and(|compacted| compacted.free) {
                done = system.promote(space, level, &[candidate], How::Either).remove(0);
            }
        }
        done
    }

    /// One wake-up, for regions of this level, or the rest of one.
    pub(super) fn wake(&mut self, level: Level, now: Time, system: &mut dyn System) {
        self.next = now.saturating_add(self.interval);
        let mut spaces = system.spaces();
        let mut left = core::mem::take(&mut self.left);
        if left == 0 {
            left = (self.pages / system.ladder().pages(level)).max(1);
        }
        // From the space of the cursor on, whose beginning comes last.
        let first = spaces.partition_point(|space| *space < self.cursor.0);
        spaces.rotate_left(first);
        spaces.extend(spaces.first().copied());
        for space in spaces.into_iter().filter(|_| level > Level::BASE) {
            let from = if space == self.cursor.0 { self.cursor.1 } else { 0 };
            let mut seen = Vec::new();
            let part = Part { from, most: left };
            let next = system.scan_part(space, level, part, &mut |sample| seen.push(sample)).next;
            left -= seen.len() as u64;
            self.cursor = match (next, seen.last()) {
                (Some(next), _) => (space, next),
                // It stops where its budget ends: what is populated behind that meanwhile comes
                // next.
                (None, Some(last)) if left == 0 => (space, last.region + 1),
                (None, _) => (SpaceId(space.0.saturating_add(1)), 0),
            };
            for (done, sample) in seen.iter().enumerate() {
                let Err(Refusal { why, until }) = self.collapse(system, space, level, *sample) else { continue };
                let full = why == Why::NoExtent;
                if full || until > now {
                    // A refusal that is not about the region: try it again later. Without a free
                    // extent: go on behind it.
                    self.cursor = (space, sample.region + u64::from(full));
                    self.next = if full { now.saturating_add(self.alloc_sleep) } else { until };
                    self.left = if full { 0 } else { left + (seen.len() - done) as u64 };
                    return;
                }
            }
            if left == 0 {
                break;
            }
        }
    }
}
