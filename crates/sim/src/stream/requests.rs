//! The runs of a piece as requests to machines with one size of base page.

use super::recent::Recent;
use super::stretch::{Mark, PrefixSums, Role, Stretch};
use super::touched::{Owner, Touched};
use std::collections::BTreeSet;
use std::ops::Range;
use superpage_mmu::{Mmu, Request, Trap, UsedBefore};
use superpage_pages::{Access, Vpn};
use superpage_trace::{Batch, Cores, Event, Info, ProcessId, Run, Sampling, TRACE_LINE_SHIFT, TRACE_PAGE_SHIFT};

/// The runs of a batch as requests to the hardware, in the stretches between marks. All simulations
/// whose machines have the same base page share it.
#[derive(Default)]
pub(crate) struct Requests {
    base_shift: u32,
    requests: Vec<Request>,
    /// For each request the place of its line in the base page, if lines are asked for.
    lines: Vec<u32>,
    /// The requests that touched a page for the first time.
    touches: Vec<FirstTouch>,
    /// The blocks of runs of all stretches.
    blocks: Vec<Block>,
    /// For each stretch, the touched pages at the end of its requests, by owner.
    owned: Vec<(Owner, u64)>,
    /// For each stretch, its requests for pages that may have stayed in the TLBs ([`Recent`]), by
    /// number.
    stayed: Vec<UsedBefore>,
    /// For each stretch, where its part of each of these lists ends.
    ends: Vec<Ends>,
}

/// Where the part of a stretch ends in each list of [`Requests`].
#[derive(Clone, Copy, Default)]
struct Ends {
    requests: usize,
    touches: usize,
    blocks: usize,
    owned: usize,
    stayed: usize,
}

/// Runs in a block: finding the run of a request examines at most this many, beyond adding up
/// instructions.
const BLOCK: usize = 64;

/// The state before the first run of a block.
#[derive(Clone, Copy)]
struct Block {
    /// The requests that the stretch made before it.
    request: usize,
    last: Last,
}

/// A request that touched a page for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FirstTouch {
    /// Its number in its stretch.
    pub(crate) request: usize,
    /// The instructions of the stretch before it.
    pub(crate) instructions: u64,
}

/// What is carried over from one batch to the next, for machines with one size of base page.
pub(crate) struct Carried {
    /// The bits that a page number of the stream loses on them.
    shift: u32,
    /// Whether each run makes a request, for its line.
    lines: bool,
    last: Last,
    touched: Touched,
    /// Of each core.
    recent: Vec<Recent>,
    windows_in_period: u64,
    /// The cores of the stream, and the current one.
    cores: u32,
    core: usize,
}

impl Carried {
    /// For machines whose base page has `base_shift` bits, at least those of a trace page.
    pub(crate) fn new(base_shift: u32, lines: bool, info: &Info) -> Carried {
        let shift = base_shift - TRACE_PAGE_SHIFT;
        let windows_in_period = info.sampling.map_or(0, Sampling::windows_in_period);
        let recent = vec![Recent::new(windows_in_period)];
        let (touched, last) = (Touched::new(shift), [NOWHERE; 2]);
        Carried { shift, lines, last, touched, recent, windows_in_period, cores: info.cores, core: 0 }
    }

    /// The stream goes on with this thread.
    fn switch(&mut self, thread: u32) {
        self.core = Cores::of(self.cores, thread) as usize;
        let new = || Recent::new(self.windows_in_period);
        self.recent.resize_with(self.recent.len().max(self.core + 1), new);
    }
}

/// For each stream (data, fetches), its current page and, as a bit set, the kinds of access that
/// were requested there and would find the page as they left it.
type Last = [(Vpn, u8); 2];

/// A stream without a current page.
const NOWHERE: (Vpn, u8) = (Vpn(0), 0);

impl Requests {
    /// For machines whose base page has `base_shift` bits.
    pub(crate) fn new(base_shift: u32) -> Requests {
        Requests { base_shift, ..Requests::default() }
    }

    /// The number of bits of the base page.
    pub(crate) fn base_shift(&self) -> u32 {
        self.base_shift
    }

    /// Prepares `batch`. With lines every run makes a request. Without, while a stream stays on a
    /// page, only the first run of each kind, and the first run of reads after the writes, can miss
    /// or fault, as in [`superpage_trace::Run`], and the others make no request; after an event
    /// every run does. (If the page daemon evicts a page during a run, that is not modelled: a run
    /// is one moment.)
    pub(crate) fn prepare(
        &mut self,
        (batch, sums): (&Batch, &PrefixSums),
        stretches: &[Stretch],
        carried: &mut Carried,
    ) {
        self.requests.clear();
        self.lines.clear();
        self.touches.clear();
        self.blocks.clear();
        self.owned.clear();
        self.stayed.clear();
        self.ends.clear();
        for stretch in stretches {
            let (touched, runs) = (self.touches.len(), &batch.runs[stretch.start..stretch.end]);
            let first = self.requests.len();
            self.extend(runs, carried);
            self.look_back(first, stretch.role, carried);
            let (mut run, mut instructions) = (stretch.start, 0);
            for touch in &mut self.touches[touched..] {
                // It was the number of its run.
                let next = stretch.start + touch.instructions as usize;
                instructions += sums.instructions(&batch.runs, run..next);
                (run, touch.instructions) = (next, instructions);
            }
            self.owned.extend(carried.touched.owned());
            self.ends.push(Ends {
                requests: self.requests.len(),
                touches: self.touches.len(),
                blocks: self.blocks.len(),
                owned: self.owned.len(),
                stayed: self.stayed.len(),
            });
            if let Some(Mark::Event(index)) = stretch.mark {
                let event = &batch.events[index].1;
                carried.touched.event(event);
                if let Event::Switch { thread, .. } = *event {
                    carried.switch(thread);
                }
                if !matches!(event, Event::Note(_) | Event::Skipped { .. } | Event::Phase { .. }) {
                    carried.last = [NOWHERE; 2];
                }
            }
        }
    }

    /// Notes which pages the requests from the `first` on are for, and which of these pages may
    /// have stayed in the TLBs.
    fn look_back(&mut self, first: usize, role: Role, carried: &mut Carried) {
        let (process, requests, recent) =
            (carried.touched.process(), &self.requests[first..], &mut carried.recent[carried.core]);
        match role {
            Role::Other => {}
            Role::Window => recent.add(process, requests),
            Role::Recent => {
                recent.end_gap();
                let of = |(index, request): (usize, &Request)| recent.stayed((process, request.page().0), index);
                let stayed = (0..).zip(requests).filter_map(of);
                self.stayed.extend(stayed);
            }
        }
    }

    /// The part of stretch number `index` in the list that ends `at` there.
    fn part(&self, index: usize, at: fn(&Ends) -> usize) -> Range<usize> {
        index.checked_sub(1).map_or(0, |before| at(&self.ends[before]))..at(&self.ends[index])
    }

    /// The requests of stretch number `index` for pages that may have stayed in the TLBs, by
    /// number.
    fn stayed(&self, index: usize) -> &[UsedBefore] {
        &self.stayed[self.part(index, |ends| ends.stayed)]
    }

    fn extend(&mut self, runs: &[Run], carried: &mut Carried) {
        if carried.lines {
            return self.extend_lines(runs, carried);
        }
        let (first, mut made) = (self.requests.len(), 0);
        self.requests.resize(first + runs.len(), Request::new(Vpn(0), Access::Read));
        let room = &mut self.requests[first..];
        // Without branches that depend on the stream: which runs make requests is hard to predict.
        for (number, block) in runs.chunks(BLOCK).enumerate() {
            self.blocks.push(Block { request: made, last: carried.last });
            let (end, mut rest) = (number * BLOCK + block.len(), block.iter());
            while let Some(run) = rest.next() {
                let (request, makes) = next(&mut carried.last, carried.shift, run);
                room[made] = request;
                // One that is left out touches nothing that was not touched before.
                if carried.touched.access(request.page().0, request.access()) {
                    self.touches.push(FirstTouch { request: made, instructions: (end - rest.len() - 1) as u64 });
                }
                made += usize::from(makes);
            }
        }
        self.requests.truncate(first + made);
    }

    /// As `extend`, with lines: each run makes a request.
    #[inline(never)]
    fn extend_lines(&mut self, runs: &[Run], carried: &mut Carried) {
        let in_page = (1 << (self.base_shift - TRACE_LINE_SHIFT)) - 1;
        for (number, run) in runs.iter().enumerate() {
            if number % BLOCK == 0 {
                self.blocks.push(Block { request: number, last: carried.last });
            }
            let request = Request::new(Vpn(run.page() >> carried.shift), run.access());
            if carried.touched.access(request.page().0, request.access()) {
                self.touches.push(FirstTouch { request: number, instructions: number as u64 });
            }
            self.requests.push(request);
            self.lines.push((run.line() & in_page) as u32);
        }
    }

    /// The touched pages when `done` requests of stretch number `index` have been made, without
    /// those of processes that were killed without the stream's knowledge. (What such a process has
    /// shared since a fork counts as its own if it touched it first.)
    pub(crate) fn touched(&self, index: usize, done: usize, ended: &BTreeSet<ProcessId>) -> u64 {
        let owned = &self.owned[self.part(index, |ends| ends.owned)];
        let lives = |owner: &Owner| owner.is_none_or(|process| !ended.contains(&process));
        let at_end: u64 = owned.iter().filter(|(owner, _)| lives(owner)).map(|(_, pages)| pages).sum();
        let touches = self.touches(index);
        let later = touches.len() - touches.partition_point(|touch| touch.request < done);
        at_end - later as u64
    }

    /// The requests of stretch number `index` that touched a page for the first time, in their
    /// order.
    pub(crate) fn touches(&self, index: usize) -> &[FirstTouch] {
        &self.touches[self.part(index, |ends| ends.touches)]
    }

    /// The blocks of stretch number `index`.
    fn blocks(&self, index: usize) -> &[Block] {
        &self.blocks[self.part(index, |ends| ends.blocks)]
    }

    /// Which of `runs`, those of stretch number `index`, made its request number `request`.
    pub(crate) fn run_of(&self, index: usize, runs: &[Run], request: usize) -> usize {
        if !self.lines.is_empty() {
            return request;
        }
        let blocks = self.blocks(index);
        let number = blocks.partition_point(|block| block.request <= request) - 1;
        let (Block { request: before, mut last }, shift) = (blocks[number], self.base_shift - TRACE_PAGE_SHIFT);
        let mut makers = (number * BLOCK..runs.len()).filter(|run| next(&mut last, shift, &runs[*run]).1);
        makers.nth(request - before).expect("each request was made by a run")
    }

    /// The requests of stretch number `index`, which are those of these runs.
    pub(crate) fn stretch<'a>(&'a self, index: usize, runs: &'a [Run]) -> Asked<'a> {
        let part = self.part(index, |ends| ends.requests);
        let place = Some(Place { of: self, index, runs, request: 0 });
        Asked { requests: &self.requests[part.clone()], lines: self.lines.get(part).unwrap_or_default(), place }
    }
}

/// Some requests and, in a stream with lines that are asked for, the line of each.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) requests: &'a [Request],
    lines: &'a [u32],
    /// Where the first of them is, if they are the stream's.
    pub(crate) place: Option<Place<'a>>,
}

/// A request in a stretch.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    of: &'a Requests,
    index: usize,
    runs: &'a [Run],
    /// Its number there.
    pub(crate) request: usize,
}

/// How far the runs of a stretch have been gone through.
#[derive(Clone, Copy, Default)]
pub(crate) struct Along {
    run: usize,
    /// The requests of these runs, and their instructions.
    request: usize,
    pub(crate) instructions: u64,
    last: Option<Last>,
}

impl<'a> Place<'a> {
    /// The place `requests` requests later.
    pub(crate) fn later(self, requests: usize) -> Place<'a> {
        Place { request: self.request + requests, ..self }
    }

    /// The touches of the stretch.
    pub(crate) fn touches(&self) -> &'a [FirstTouch] {
        self.of.touches(self.index)
    }

    /// Goes on to the first run before which the stretch has `instructions`, and returns the
    /// number of requests before it; `None` if the stretch ends before, or has `most` requests.
    /// `along` is where the last call for the stretch ended.
    pub(crate) fn request_after(&self, instructions: u64, most: usize, along: &mut Along) -> Option<usize> {
        while along.instructions < instructions {
            let run = self.runs.get(along.run).filter(|_| along.request < most)?;
            self.pass(run, along);
        }
        Some(along.request)
    }

    /// Goes on by a run.
    fn pass(&self, run: &Run, along: &mut Along) {
        let last = along.last.get_or_insert_with(|| self.of.blocks(self.index)[0].last);
        let makes = next(last, self.of.base_shift - TRACE_PAGE_SHIFT, run).1 || !self.of.lines.is_empty();
        along.run += 1;
        along.request += usize::from(makes);
        along.instructions += u64::from(run.instructions);
    }

    /// Skips to the block of the run that makes the request, if it is a later one.
    fn pass_blocks(&self, along: &mut Along) {
        let blocks = self.of.blocks(self.index);
        let next = along.run / BLOCK + 1;
        if blocks.get(next).is_none_or(|block| block.request > self.request) {
            return;
        }
        let number = next + blocks[next..].partition_point(|block| block.request <= self.request) - 1;
        let (run, Block { request, last }) = (number * BLOCK, &blocks[number]);
        let passed: u64 = self.runs[along.run..run].iter().map(|run| u64::from(run.instructions)).sum();
        *along = Along { run, request: *request, instructions: along.instructions + passed, last: Some(*last) };
    }

    /// The instructions of the stretch before the request. `along` is where the last call for the
    /// stretch ended, of an earlier request: O(runs) for all of them.
    pub(crate) fn instructions(&self, along: &mut Along) -> u64 {
        self.pass_blocks(along);
        for run in &self.runs[along.run..] {
            let mut then = *along;
            self.pass(run, &mut then);
            // This run makes it.
            if then.request > self.request {
                break;
            }
            *along = then;
        }
        along.instructions
    }
}

impl<'a> Asked<'a> {
    /// Requests with their lines.
    pub(crate) fn of(requests: &'a [Request], lines: &'a [u32]) -> Asked<'a> {
        Asked { requests, lines, place: None }
    }

    /// The requests of a range.
    pub(crate) fn part(&self, range: Range<usize>) -> Asked<'a> {
        let place = self.place.map(|place| place.later(range.start));
        Asked { requests: &self.requests[range.clone()], lines: self.lines.get(range).unwrap_or_default(), place }
    }

    /// Makes them, until one traps.
    #[inline]
    pub(crate) fn run(&self, mmu: &mut Mmu) -> Option<(usize, Trap)> {
        if !self.lines.is_empty() {
            return mmu.run_lines(self.requests, self.lines);
        }
        match self.stayed() {
            stayed if stayed.is_empty() => mmu.run(self.requests),
            stayed => mmu.recall(self.requests, &stayed),
        }
    }

    /// Those requests for pages that may have stayed in the TLBs, if a window begins with them.
    fn stayed(&self) -> Vec<UsedBefore> {
        let (all, from) = self.place.map_or((&[][..], 0), |place| (place.of.stayed(place.index), place.request));
        let before = |number: usize| all.partition_point(|stayed| stayed.index < number);
        let of = &all[before(from)..before(from + self.requests.len())];
        of.iter().map(|stayed| UsedBefore { index: stayed.index - from, ..*stayed }).collect()
    }

    /// Makes the first of them again, after a trap.
    pub(crate) fn retry(&self, mmu: &mut Mmu) -> Result<(), Trap> {
        match self.lines.first() {
            None => mmu.retry(self.requests[0]),
            Some(line) => mmu.retry_line(self.requests[0], *line),
        }
    }
}

/// The request for `run`, and whether the run issues it: whether it is the first of its kind since
/// its stream came to its page.
#[inline(always)]
fn next(last: &mut Last, shift: u32, run: &Run) -> (Request, bool) {
    let (page, access) = (Vpn(run.page() >> shift), run.access());
    let (at, kinds) = &mut last[usize::from(access == Access::Execute)];
    let before = if *at == page { *kinds } else { 0 };
    let known = before >> access as u8 & 1 != 0;
    // The first write may change the mapping.
    let kept = if access == Access::Write && !known { 0 } else { before };
    (*at, *kinds) = (page, kept | 1 << access as u8);
    (Request::new(page, access), !known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::stretch::Done;
    use superpage_mmu::{Machine, Mmu};
    use superpage_pages::{Mapped, Pfn, Protection};
    use superpage_trace::RunBuilder;

    /// Alternating stores and loads, two pages of 4 KB at a time: leaving requests out changes no
    /// count but theirs.
    #[test]
    fn requests_that_are_left_out_can_neither_miss_nor_fill() {
        for name in ["golden-cove", "harpertown", "alpha-21264"] {
            let machine = Machine::builtin(name).unwrap();
            let shift = machine.pages.sizes[0].shift();
            let (mut builder, mut batch) = (RunBuilder::new(), Batch::default());
            for step in 0..4000u64 {
                let address = (step * 7 / 5 % 300) << TRACE_PAGE_SHIFT;
                builder.write(&mut batch, address, 8);
                builder.read(&mut batch, address + 4096, 8);
                builder.read(&mut batch, address + (step % 3) * 4096, 8);
            }
            builder.close(&mut batch);
            let (mut requests, mut carried) = (Requests::new(shift), Carried::new(shift, false, &Info::default()));
            let all = batch.runs.len();
            let mut sums = PrefixSums::default();
            sums.count(&batch.runs);
            requests.prepare(
                (&batch, &sums),
                &[Stretch { start: 0, end: all, done: Done::default(), mark: None, role: Role::Other }],
                &mut carried,
            );
            let each = batch.runs.iter().map(|run| Request::new(Vpn(run.page() >> carried.shift), run.access()));
            let each: Vec<Request> = each.collect();
            let made = requests.stretch(0, &batch.runs).requests;
            assert!(shift == TRACE_PAGE_SHIFT || made.len() < all);
            let counted = [&each, made].map(|requests| {
                let mut mmu = Mmu::new(&machine);
                let (size, rights) = (machine.pages.sizes[0], Protection::READ_WRITE);
                (0..400).for_each(|page| {
                    mmu.enter(0, Vpn(page), Mapped { frame: Pfn(page), size, protection: rights }, Access::Read)
                });
                assert_eq!(mmu.run(requests), None);
                let (counters, kinds) = (mmu.counters(0), [Access::Read, Access::Write]);
                (kinds.map(|kind| counters.misses(0, kind)), counters.walks, counters.use_bits, mmu.held(0))
            });
            assert_eq!(counted[0], counted[1], "{name}");
        }
    }

    /// In steps of any size, the run of a request and the instructions before it are those found
    /// run by run.
    #[test]
    fn a_request_is_found_from_its_block() {
        let mut luck = 1u64;
        let mut random = |below: u64| {
            luck = luck.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (luck >> 33) % below
        };
        // Now and then it stays on a page for long, so that blocks make no request.
        let mut batch = Batch::default();
        let mut builder = RunBuilder::new();
        for _ in 0..60 {
            let (page, stays) = (random(50) << TRACE_PAGE_SHIFT, random(2) * random(200));
            for step in 0..=stays {
                builder.read(&mut batch, page + ((step % 2) << 30), 8);
                builder.fetch(&mut batch, (7 + step % 3) << 30, 4);
                builder.instructions(step % 4);
            }
        }
        builder.close(&mut batch);
        let ends = [0, 1, 64, 128, 193, 193, 1000.min(batch.runs.len() - 1), batch.runs.len()];
        let stretch = |pair: &[usize]| Stretch {
            start: pair[0],
            end: pair[1],
            done: Done::default(),
            mark: None,
            role: Role::Other,
        };
        let stretches: Vec<Stretch> = [&[0], &ends[..]].concat().windows(2).map(stretch).collect();
        let mut sums = PrefixSums::default();
        sums.count(&batch.runs);
        for lines in [false, true] {
            let (mut requests, mut carried) = (Requests::new(14), Carried::new(14, lines, &Info::default()));
            requests.prepare((&batch, &sums), &stretches, &mut carried);
            let mut last = [NOWHERE; 2];
            for (index, stretch) in stretches.iter().enumerate() {
                let runs = &batch.runs[stretch.start..stretch.end];
                let makers = runs.iter().enumerate().filter(|(_, run)| next(&mut last, 2, run).1 || lines);
                let makers: Vec<usize> = makers.map(|(number, _)| number).collect();
                let asked = requests.stretch(index, runs);
                assert_eq!(asked.requests.len(), makers.len());
                for step in [1, 3, 70] {
                    let mut along = Along::default();
                    for request in (0..=makers.len()).step_by(step) {
                        let run = makers.get(request).copied().unwrap_or(runs.len());
                        let before: u64 = runs[..run].iter().map(|run| u64::from(run.instructions)).sum();
                        let place = asked.place.unwrap().later(request);
                        assert_eq!(place.instructions(&mut along), before, "{index} {request} {step} {lines}");
                        assert!(run == runs.len() || requests.run_of(index, runs, request) == run);
                    }
                }
            }
        }
    }
}
