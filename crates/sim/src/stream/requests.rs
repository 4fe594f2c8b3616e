//! The runs of a piece as requests to machines with one size of base page.

use super::carried::{Carried, Last, next};
use super::stretch::{Mark, PrefixSums, Role, Stretch};
use super::touched::Owner;
use std::collections::BTreeSet;
use std::ops::Range;
use superpage_mmu::{Mmu, Request, Trap, UsedBefore};
use superpage_pages::{Access, Vpn};
use superpage_trace::{Batch, ProcessId, Run, TRACE_LINE_SHIFT, TRACE_PAGE_SHIFT};

/// The runs of a batch as requests to the hardware, in the stretches between marks. All simulations
/// whose machines have the same base page share it.
#[derive(Default)]
pub(crate) struct Requests {
    base_shift: u32,
    /// Those of all stretches, and behind them some of earlier batches: each is written once.
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
        self.lines.clear();
        self.touches.clear();
        self.blocks.clear();
        self.owned.clear();
        self.stayed.clear();
        self.ends.clear();
        let room = self.requests.len().max(batch.runs.len());
        self.requests.resize(room, Request::new(Vpn(0), Access::Read));
        let mut end = 0;
        for stretch in stretches {
            let (touched, runs) = (self.touches.len(), &batch.runs[stretch.start..stretch.end]);
            let first = end;
            if stretch.role == Role::Window {
                carried.recent().begin();
            }
            end += self.extend(first, (runs, stretch.role), carried);
            if stretch.role == Role::Recent {
                self.look_back(first..end, carried);
            }
            let (mut run, mut instructions) = (stretch.start, 0);
            for touch in &mut self.touches[touched..] {
                // It was the number of its run.
                let next = stretch.start + touch.instructions as usize;
                instructions += sums.instructions(&batch.runs, run..next);
                (run, touch.instructions) = (next, instructions);
            }
            self.owned.extend(carried.touched.owned());
            self.ends.push(Ends {
                requests: end,
                touches: self.touches.len(),
                blocks: self.blocks.len(),
                owned: self.owned.len(),
                stayed: self.stayed.len(),
            });
            if let Some(Mark::Event(index)) = stretch.mark {
                carried.event(&batch.events[index].1);
            }
        }
    }

    /// Notes which of the requests of `part`, which follow a gap, are for pages that may have
    /// stayed in the TLBs.
    fn look_back(&mut self, part: Range<usize>, carried: &mut Carried) {
        let (process, recent) = (carried.touched.process(), carried.recent());
        recent.end_gap();
        let of = |(index, request): (usize, &Request)| recent.stayed((process, request.page().0), index);
        self.stayed.extend((0..).zip(&self.requests[part]).filter_map(of));
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

    /// Prepares the requests of these runs, which begin at `first`; returns how many they are.
    fn extend(&mut self, first: usize, (runs, role): (&[Run], Role), carried: &mut Carried) -> usize {
        if carried.lines {
            self.extend_lines(first, (runs, role), carried);
            return runs.len();
        }
        let room = &mut self.requests[first..][..runs.len()];
        let (mut last, shift, mut made) = (carried.last, carried.shift, 0);
        // Without branches on which runs make requests: that is hard to predict.
        for (block, first) in runs.chunks(BLOCK).zip((0..).step_by(BLOCK)) {
            self.blocks.push(Block { request: made, last });
            for (run, number) in block.iter().zip(first..) {
                let (request, makes) = next(&mut last, shift, run);
                room[made] = request;
                // One that is left out touches nothing that was not touched before.
                if carried.note(request, makes, role) {
                    self.touches.push(FirstTouch { request: made, instructions: number });
                }
                made += usize::from(makes);
            }
        }
        carried.last = last;
        made
    }

    /// As `extend`, with lines: each run makes a request.
    #[inline(never)]
    fn extend_lines(&mut self, first: usize, (runs, role): (&[Run], Role), carried: &mut Carried) {
        let in_page = (1 << (self.base_shift - TRACE_LINE_SHIFT)) - 1;
        for (number, (run, room)) in runs.iter().zip(&mut self.requests[first..]).enumerate() {
            if number % BLOCK == 0 {
                self.blocks.push(Block { request: number, last: carried.last });
            }
            let request = Request::new(Vpn(run.page() >> carried.shift), run.access());
            if carried.note(request, true, role) {
                self.touches.push(FirstTouch { request: number, instructions: number as u64 });
            }
            *room = request;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::carried::{NO_PAGE, NOWHERE};
    use crate::stream::recent::Recent;
    use crate::stream::stretch::Done;
    use crate::stream::touched::Touched;
    use superpage_mmu::{Machine, Mmu};
    use superpage_pages::{Mapped, Pfn, Protection};
    use superpage_trace::{Backing, Event, Growth, Info, RunBuilder};

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
            let mut last = NOWHERE;
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

    /// Of processes that share memory and take turns, with pages that share slots: requests, first
    /// touches and pages that may have stayed are as if each run were looked at by itself.
    #[test]
    fn what_was_requested_before_touches_nothing_new() {
        let mut luck = 1u64;
        let mut random = |below: u64| {
            luck = luck.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (luck >> 33) % below
        };
        for (shift, lines) in [(0, false), (2, false), (0, true)] {
            let base_shift = TRACE_PAGE_SHIFT + shift;
            let (mut requests, mut carried) =
                (Requests::new(base_shift), Carried::new(base_shift, lines, &Info::default()));
            let (mut touched, mut recent) = (Touched::new(shift), Recent::new(0));
            // Of each stream the page, and the kinds of access since it came there.
            let mut streams = [(NO_PAGE, Vec::new()), (NO_PAGE, Vec::new())];
            for _ in 0..60 {
                let (mut batch, mut stretches) = (Batch::default(), Vec::new());
                for index in 0..random(8) as usize {
                    let start = batch.runs.len();
                    for _ in 0..random(300) {
                        let page = random(12) + random(2) * 1024;
                        let access = [Access::Read, Access::Write, Access::Execute][random(3) as usize];
                        batch.run(Run::new(page, access, 1, 1));
                    }
                    let (pages, file) = (1 + random(8), Backing::File { file: 1, offset: 0, file_pages: 9 });
                    batch.event(match random(6) {
                        0 => Event::Discard { start: random(12), pages },
                        1 => Event::Switch { process: ProcessId(random(2) as u32), thread: 0 },
                        2 => Event::Fork { child: ProcessId(random(2) as u32) },
                        3 => Event::Map {
                            start: random(12),
                            pages,
                            protection: Protection::READ_WRITE,
                            shared: random(2) == 0,
                            backing: if random(2) == 0 { file } else { Backing::Anonymous },
                            growth: Growth::Fixed,
                        },
                        _ => Event::Skipped { references: 1, instructions: 1 },
                    });
                    let role = [Role::Other, Role::Recent, Role::Window, Role::Window][random(4) as usize];
                    let (end, mark) = (batch.runs.len(), Some(Mark::Event(index)));
                    stretches.push(Stretch { start, end, done: Done::default(), mark, role });
                }
                let mut sums = PrefixSums::default();
                sums.count(&batch.runs);
                requests.prepare((&batch, &sums), &stretches, &mut carried);
                for (index, stretch) in stretches.iter().enumerate() {
                    let (mut made, mut touches, mut stayed) = (Vec::new(), Vec::new(), Vec::new());
                    if stretch.role == Role::Window {
                        recent.begin();
                    }
                    let runs = &batch.runs[stretch.start..stretch.end];
                    for run in runs {
                        let (page, access) = (run.page() >> shift, run.access());
                        let (current, kinds) = &mut streams[usize::from(access == Access::Execute)];
                        if std::mem::replace(current, page) != page
                            || access == Access::Write && !kinds.contains(&access)
                        {
                            kinds.clear();
                        }
                        let makes = lines || !kinds.contains(&access);
                        kinds.push(access);
                        if touched.access(page, access) {
                            touches.push(made.len());
                        }
                        if makes {
                            made.push(Request::new(Vpn(page), access));
                            if stretch.role == Role::Window {
                                recent.add(touched.process(), made[made.len() - 1]);
                            }
                        }
                    }
                    if stretch.role == Role::Recent {
                        recent.end_gap();
                        let of = |(index, request): (usize, &Request)| {
                            recent.stayed((touched.process(), request.page().0), index)
                        };
                        stayed.extend(made.iter().enumerate().filter_map(of));
                    }
                    let event = &batch.events[index].1;
                    touched.event(event);
                    if !matches!(event, Event::Skipped { .. }) {
                        streams = [(NO_PAGE, Vec::new()), (NO_PAGE, Vec::new())];
                    }
                    assert_eq!(requests.stretch(index, runs).requests, made);
                    let found = requests.touches(index).iter().map(|touch| touch.request);
                    assert_eq!(found.collect::<Vec<_>>(), touches);
                    let all = |stayed: &[UsedBefore]| -> Vec<_> {
                        stayed.iter().map(|used| (used.index, used.written, used.always)).collect()
                    };
                    assert_eq!(all(requests.stayed(index)), all(&stayed));
                }
            }
        }
    }
}
