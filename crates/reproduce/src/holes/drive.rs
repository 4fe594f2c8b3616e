//! A stream on a machine whose memory is laid out, without a kernel: the pages of a region are mapped at its first touch.

use super::layout::{Layout, Sizes};
use crate::streams::Outcome;
use std::sync::atomic::{AtomicBool, Ordering};
use superpage_mmu::{Contents, Counters, Machine, Mmu, Request, Trap};
use superpage_pages::{Access, Vpn};
use superpage_trace::{Batch, Event, Phase, Source, TRACE_PAGE_SHIFT};

/// What was counted. Of a sampled stream these are estimates: each window counts by the accesses that it stands for.
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
    /// Translation, and instructions at what the machine file says.
    pub(crate) cycles: f64,
    /// The same if the data of each request came from memory, one after the other.
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
    /// The process that runs: each has a space.
    space: u32,
    accesses: u64,
    /// What is being counted: the counts when that began, and the instructions and accesses since. The accesses that it
    /// stands for, if the stream is sampled.
    window: Option<(Counters, u64, u64, Option<u64>)>,
    counted: Counted,
}

impl<'a> Drive<'a> {
    /// Nothing is mapped yet.
    ///
    /// # Errors
    /// The machine has no superpage of the size of a region, base pages of another size than traces, or shadow superpages.
    pub(crate) fn new(machine: &'a Machine, layout: Layout) -> Result<Drive<'a>, String> {
        if machine.shadow.is_some() {
            return Err(format!(
                "{}: [shadow] needs streams with lines, which kind \"holes\" has not; leave +shadow out",
                machine.name
            ));
        }
        let sizes = Sizes::of(machine).filter(|sizes| sizes.base.shift() == TRACE_PAGE_SHIFT);
        let sizes = sizes.ok_or_else(|| {
            format!(
                "{}: expected base pages of 4K and superpages of what a table of the lowest level maps",
                machine.name
            )
        })?;
        let (mmu, requests, counted) = (Mmu::new(machine), Vec::new(), Counted::default());
        Ok(Drive { machine, layout, sizes, mmu, requests, space: 0, accesses: 0, window: None, counted })
    }

    /// Runs a stream to its end. Of a sampled stream the measured halves of windows count; of others all from the first piece
    /// that begins after `warm` accesses.
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
                self.translate(&batch, done..*at as usize);
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
            self.translate(&batch, done..batch.runs.len());
        }
        self.end();
        self.counted.entries = self.entries();
        Ok(self.counted)
    }

    fn translate(&mut self, batch: &Batch, runs: std::ops::Range<usize>) {
        let runs = &batch.runs[runs];
        self.requests.clear();
        self.requests.extend(runs.iter().map(|run| Request::new(Vpn(run.page()), run.access())));
        let mut done = 0;
        while let Some((index, trap)) = self.mmu.run(&self.requests[done..]) {
            assert_eq!(trap, Trap::Absent, "all pages have all rights");
            let request = self.requests[done + index];
            self.layout.map(self.sizes, &mut self.mmu, self.space, request.page());
            self.mmu.retry(request).expect("the page was mapped");
            done += index + 1;
        }
        let accesses: u64 = runs.iter().map(|run| u64::from(run.references)).sum();
        self.accesses += accesses;
        if let Some((_, instructions, counted, _)) = &mut self.window {
            *instructions += runs.iter().map(|run| u64::from(run.instructions)).sum::<u64>();
            *counted += accesses;
        }
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
            let walked = counters.walk_memory_references();
            [requests, counters.tlb_misses(), counters.level_hits(1), walked, translation]
        };
        let (now, before) = (counts(&self.mmu.counters(0)), counts(&before));
        let [requests, misses, second, walked, translation] =
            std::array::from_fn(|index| weight * (now[index] - before[index]) as f64);
        let (counted, instructions) = (&mut self.counted, weight * instructions as f64);
        counted.instructions += instructions;
        counted.requests += requests;
        counted.misses += misses;
        counted.second += second;
        counted.walked += walked;
        let cycles = translation + instructions * self.machine.costs.cycles_per_instruction;
        counted.cycles += cycles;
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
    /// To a page of the region with no hole in the eighth of the region that it is in, if there is one.
    pub(crate) filtered: Option<u64>,
    /// To another that is no hole.
    pub(crate) page: Option<u64>,
    /// To a hole.
    pub(crate) hole: Option<u64>,
    /// The pages that can be translated without a walk once some page of each fragment that is no hole has been.
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
        let Drive { mut mmu, sizes, .. } = Drive::new(&machine, layout)?;
        let region = (0..u64::MAX).find(|region| layout.is_broken(*region) || layout.share == 0).unwrap_or(0);
        let first = region * sizes.pages;
        layout.map(sizes, &mut mmu, 0, Vpn(first));
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
