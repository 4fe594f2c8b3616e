//! A stream on a machine whose memory is laid out, without a kernel: the pages of a region are
//! mapped at its first touch.

use super::layout::{Frames, Layout, Sizes};
use crate::running::Outcome;
use std::sync::atomic::{AtomicBool, Ordering};
use superpage_mmu::{Contents, Counters, Machine, Mmu, Request, Trap};
use superpage_pages::{Access, Vpn};
use superpage_trace::{Batch, Event, Phase, Source, TRACE_LINE_SHIFT, TRACE_PAGE_SHIFT};

/// What was counted. Of a sampled stream these are estimates: each window counts by the accesses
/// that it stands for.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) instructions: f64,
    /// Accesses that may miss in a TLB: one for each run.
    pub(crate) requests: f64,
    /// Those that no TLB served.
    pub(crate) misses: f64,
    /// Those that the second level served.
    pub(crate) second: f64,
    /// Page-table entries and words of bitmaps that walks read.
    pub(crate) walked: f64,
    /// Translation, instructions at what the machine file says, and with lines what misses in the
    /// first caches wait.
    pub(crate) cycles: f64,
    /// `cycles` without these waits, but if the data of each request came from memory, one after
    /// the other.
    pub(crate) uncached: f64,
    /// Entries of the second level at the end.
    pub(crate) entries: Entries,
}

/// Entries of the second-level TLB by what they hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Entries {
    pub(crate) superpages: u64,
    pub(crate) perforated: u64,
    pub(crate) bitmaps: u64,
    /// Base pages, holes among them, and several in one entry.
    pub(crate) base: u64,
}

/// A run of a stream.
pub(crate) struct Drive<'a> {
    machine: &'a Machine,
    layout: Layout,
    sizes: Sizes,
    mmu: Mmu,
    requests: Vec<Request>,
    /// With lines, the place of each request's line in its page.
    lines: Option<Vec<u32>>,
    /// The pages of the regions that are mapped.
    mapped: u64,
    /// The process that runs: each has a space.
    space: u32,
    accesses: u64,
    /// What is being counted: the counts when that began, and the instructions and accesses since.
    /// The accesses that it stands for, if the stream is sampled.
    window: Option<(Counters, u64, u64, Option<u64>)>,
    counted: Counted,
}

impl<'a> Drive<'a> {
    /// Nothing is mapped yet. `lines`: the stream has lines, and data caches hold them.
    ///
    /// # Errors
    /// The machine has no superpage of the size of a region, base pages of another size than
    /// traces, or shadow superpages; or lines and no caches for them.
    pub(crate) fn new(machine: &'a Machine, layout: Layout, lines: bool) -> Result<Drive<'a>, String> {
        if machine.shadow.is_some() {
            return Err(format!("{}: kind \"holes\" has no shadow superpages; leave +shadow out", machine.name));
        }
        // As much again for the frames of holes.
        let memory = (2 * Frames::MOST_PAGES) << TRACE_PAGE_SHIFT;
        if let Some(problem) = Mmu::refuses_lines(machine, memory).filter(|_| lines) {
            return Err(format!("machine {}: {problem}", machine.name));
        }
        let sizes = Sizes::of(machine).filter(|sizes| sizes.base.shift() == TRACE_PAGE_SHIFT);
        let sizes = sizes.ok_or_else(|| {
            format!(
                "{}: expected base pages of 4K and superpages of what a table of the lowest level maps",
                machine.name
            )
        })?;
        let (mmu, requests, counted) = (Mmu::new(machine), Vec::new(), Counted::default());
        let lines = lines.then(Vec::new);
        Ok(Drive {
            machine,
            layout,
            sizes,
            mmu,
            requests,
            lines,
            mapped: 0,
            space: 0,
            accesses: 0,
            window: None,
            counted,
        })
    }

    /// Runs a stream to its end. Of a sampled stream the measured halves of windows count; of
    /// others all from the first piece that begins after `warm` accesses.
    pub(crate) fn run(mut self, source: &mut dyn Source, warm: u64, stop: &AtomicBool) -> Result<Counted, Outcome> {
        let (mut batch, sampling) = (Batch::default(), source.info().sampling);
        while source.fill(&mut batch).map_err(|error| Outcome::Failed(error.to_string()))? {
            if stop.load(Ordering::Relaxed) {
                return Err(Outcome::Interrupted);
            }
            if sampling.is_none() && self.window.is_none() && self.accesses >= warm {
                self.begin(None);
            }
            let mut done = 0;
            for (at, event) in &batch.events {
                self.translate(&batch, done..*at as usize)?;
                done = *at as usize;
                match event {
                    Event::Switch { process, .. } => {
                        self.space = process.0;
                        self.mmu.switch(process.0);
                    }
                    Event::Phase { phase, period } => {
                        self.end();
                        if *phase == Phase::Measured {
                            self.begin(period.or(sampling.map(|sampling| sampling.period)));
                        }
                    }
                    _ => {}
                }
            }
            self.translate(&batch, done..batch.runs.len())?;
        }
        self.end();
        self.counted.entries = self.entries();
        Ok(self.counted)
    }

    fn translate(&mut self, batch: &Batch, runs: std::ops::Range<usize>) -> Result<(), Outcome> {
        let runs = &batch.runs[runs];
        self.requests.clear();
        self.requests.extend(runs.iter().map(|run| Request::new(Vpn(run.page()), run.access())));
        if let Some(lines) = &mut self.lines {
            let in_page = (1 << (TRACE_PAGE_SHIFT - TRACE_LINE_SHIFT)) - 1;
            lines.clear();
            lines.extend(runs.iter().map(|run| (run.line() & in_page) as u32));
        }
        let mut done = 0;
        while let Some((index, trap)) = match &self.lines {
            None => self.mmu.run(&self.requests[done..]),
            Some(lines) => self.mmu.run_lines(&self.requests[done..], &lines[done..]),
        } {
            assert_eq!(trap, Trap::Absent, "all pages have all rights");
            let at = done + index;
            let request = self.requests[at];
            self.map(request.page())?;
            let again = match &self.lines {
                None => self.mmu.retry(request),
                Some(lines) => self.mmu.retry_line(request, lines[at]),
            };
            again.expect("the page was mapped");
            done = at + 1;
        }
        let accesses: u64 = runs.iter().map(|run| u64::from(run.references)).sum();
        self.accesses += accesses;
        if let Some((_, instructions, counted, _)) = &mut self.window {
            *instructions += runs.iter().map(|run| u64::from(run.instructions)).sum::<u64>();
            *counted += accesses;
        }
        Ok(())
    }

    /// Maps the region of a page.
    fn map(&mut self, page: Vpn) -> Result<(), Outcome> {
        let region = page.0 / self.sizes.pages;
        let frames = match self.lines {
            None => Frames::by_page(region * self.sizes.pages),
            Some(_) if self.mapped + self.sizes.pages > Frames::MOST_PAGES => {
                let most = Frames::MOST_PAGES >> (30 - TRACE_PAGE_SHIFT);
                return Err(Outcome::Failed(format!("with lines a stream of kind \"holes\" has at most {most} GB")));
            }
            Some(_) => Frames::in_order(self.mapped),
        };
        self.mapped += self.sizes.pages;
        self.layout.map(self.sizes, &mut self.mmu, (self.space, region), frames);
        Ok(())
    }

    fn begin(&mut self, period: Option<u64>) {
        self.window = Some((self.mmu.counters(0), 0, 0, period));
    }

    /// Adds what was counted in the window, by its weight.
    fn end(&mut self) {
        let Some((before, instructions, accesses, period)) = self.window.take() else { return };
        let weight = period.map_or(1.0, |period| period as f64 / accesses.max(1) as f64);
        let counts = |counters: &Counters| {
            let requests = counters.references.iter().sum::<u64>();
            let translation = self.machine.translation_cycles(counters).total();
            let (walked, waited) = (counters.walk_memory_references(), self.machine.line_cycles(counters));
            [requests, counters.tlb_misses(), counters.level_hits(1), walked, translation, waited]
        };
        let (now, before) = (counts(&self.mmu.counters(0)), counts(&before));
        let [requests, misses, second, walked, translation, waited] =
            std::array::from_fn(|index| weight * (now[index] - before[index]) as f64);
        let (counted, instructions) = (&mut self.counted, weight * instructions as f64);
        counted.instructions += instructions;
        counted.requests += requests;
        counted.misses += misses;
        counted.second += second;
        counted.walked += walked;
        let cycles = translation + instructions * self.machine.costs.cycles_per_instruction;
        counted.cycles += cycles + waited;
        counted.uncached += cycles + requests * self.machine.memory.latency_cycles as f64;
    }

    fn entries(&self) -> Entries {
        let mut entries = Entries::default();
        for held in self.mmu.held(0).iter().filter(|held| self.machine.tlb[held.tlb].level == 2) {
            *match held.contents {
                Contents::Perforated => &mut entries.perforated,
                Contents::Bitmap => &mut entries.bitmaps,
                _ if held.size == self.sizes.base => &mut entries.base,
                _ => &mut entries.superpages,
            } += held.entries;
        }
        entries
    }
}

/// References of walks, and what a perforated page covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Walks {
    /// To a page of the region with no hole in the eighth of the region that it is in, if there is
    /// one.
    pub(crate) filtered: Option<u64>,
    /// To another that is no hole.
    pub(crate) page: Option<u64>,
    /// To a hole.
    pub(crate) hole: Option<u64>,
    /// The pages that can be translated without a walk once some page of each fragment that is no
    /// hole has been.
    pub(crate) covered: u64,
}

impl Walks {
    /// Of one region of a layout, its first that is broken, without walk caches.
    pub(crate) fn of(machine: &Machine, layout: Layout) -> Result<Walks, String> {
        let mut machine = machine.clone();
        machine.walk_cache.clear();
        if let Some(host) = &mut machine.host {
            (host.nested_tlb, host.walk_cache) = (0, Vec::new());
        }
        let Drive { mut mmu, sizes, .. } = Drive::new(&machine, layout, false)?;
        let region = (0..u64::MAX).find(|region| layout.is_broken(*region) || layout.share == 0).unwrap_or(0);
        let first = region * sizes.pages;
        layout.map(sizes, &mut mmu, (0, region), Frames::by_page(first));
        let holes = layout.holes(region, sizes.pages);
        let walk = |mmu: &mut Mmu, place: u64| {
            let before = mmu.counters(0).walk_memory_references();
            mmu.run(&[Request::new(Vpn(first + place), Access::Read)]);
            mmu.counters(0).walk_memory_references() - before
        };
        let near = |place: u64| {
            holes
                .chunks(holes.len() / 8)
                .nth((place * 8 / sizes.pages) as usize)
                .into_iter()
                .flatten()
                .any(|hole| *hole)
        };
        let fresh = |place: u64| walk(&mut mmu.clone(), place);
        let is_hole = |place: &u64| holes[*place as usize];
        let all = || 0..sizes.pages;
        let filtered = all().find(|place| !near(*place)).map(fresh);
        let page = all().find(|place| near(*place) && !is_hole(place)).map(fresh);
        let hole = all().find(is_hole).map(fresh);
        for fragment in 0..16 {
            let pages = sizes.pages / 16;
            if let Some(place) = (fragment * pages..(fragment + 1) * pages).find(|place| !is_hole(place)) {
                walk(&mut mmu, place);
            }
        }
        let covered = all().filter(|place| walk(&mut mmu.clone(), *place) == 0).count() as u64;
        Ok(Walks { filtered, page, hole, covered })
    }
}
