//! The model at work: what the kernel touches, put into the stream.

use super::calls::Calls;
use super::{
    Caching, Clears, Flushes, Handlers, KernelCounts, KernelModel, LINE, PAGE, PROCESS, Path, Reclaims, Vsids,
};
use crate::Setup;
use crate::simulation::{Problem, Simulation};
use crate::stream::{Asked, inward};
use std::collections::BTreeMap;
use superpage_mmu::{Block, Flush, Handler, Mmu, Request, Touch, Upkeep};
use superpage_pages::{Access, Counts, Mapped, PageRange, Pfn, Protection, Vpn};
use superpage_trace::{Event, ProcessId};
use superpage_vm::Vm;

/// The lines of a page.
const LINES: u64 = PAGE / LINE;

/// Pages that the idle task keeps cleared at most, and that it clears at most each time.
const MOST_CLEARED: u64 = 128;

/// The smallest block: 128 KB.
const SMALLEST_BLOCK: u64 = 32;

/// A call copies no more bytes than these.
const MOST_COPIED: u64 = 1 << 30;

/// The kernel of a simulation, where it has a model.
pub(crate) struct Footprint {
    model: KernelModel,
    /// Its address space.
    space: u32,
    /// The pages of memory; the kernel's own are the last.
    memory: u64,
    /// The first page of its text, of its data, and of the structures of processes, in its space.
    text: u64,
    data: u64,
    processes: u64,
    devices: u64,
    /// The lines where the code and the data of each path begin.
    places: BTreeMap<String, (u64, u64)>,
    counts: KernelCounts,
    /// Pages that are cleared and that no fault has taken.
    cleared: u64,
    /// Where the next page is that the idle task clears, and the next page of a file that a call
    /// copies.
    hand: u64,
    file: u64,
    /// Bytes that faults have zeroed and copied, line by line.
    zeroed: u64,
    copied: u64,
    /// The cycles of the disk that the idle task has run for.
    waited: u64,
    /// The calls that processes are in.
    calls: Calls,
}

impl Footprint {
    /// That of this setup, if it has a model; its memory is mapped.
    pub(crate) fn new(setup: &Setup, vm: &mut Vm, mmu: &mut Mmu) -> Option<Footprint> {
        let model = setup.kernel.clone()?;
        let space = vm.create_space().0;
        let memory = setup.frames + model.pages();
        let text = model.memory.first_page + setup.frames;
        let data = text + model.memory.text.div_ceil(PAGE);
        let processes = data + model.memory.data.div_ceil(PAGE);
        let devices = model.device_page(memory);
        let mut places = BTreeMap::new();
        let mut at = (0, 0);
        for (name, path) in &model.paths {
            places.insert(name.clone(), at);
            at = (at.0 + path.code, at.1 + path.data);
        }
        let footprint = Footprint {
            model,
            space,
            memory,
            text,
            data,
            processes,
            devices,
            places,
            counts: KernelCounts::default(),
            cleared: 0,
            hand: 0,
            file: 0,
            zeroed: 0,
            copied: 0,
            waited: 0,
            calls: Calls::default(),
        };
        mmu.set_upkeep(footprint.upkeep(setup));
        // The stream begins when the kernel has its memory.
        let saved = mmu.save_counts();
        footprint.map(setup, mmu);
        mmu.restore_counts(saved);
        Some(footprint)
    }

    fn upkeep(&self, setup: &Setup) -> Upkeep {
        let (memory, switches) = (&self.model.memory, &self.model.switches);
        let has_blocks = setup.machine.groups.as_ref().is_some_and(|groups| groups.blocks > 0);
        let mut blocks = Vec::new();
        if has_blocks && switches.blocks.is_on() {
            blocks.push(Block { space: self.space, pages: memory.first_page..memory.first_page + self.memory });
        }
        if has_blocks && switches.device_blocks.is_on() {
            blocks.push(Block { space: self.space, pages: self.devices..self.devices + memory.device_pages });
        }
        let (touches, translated) = (self.handler(0), switches.handlers == Handlers::C);
        Upkeep {
            kernel: Some(self.space),
            scatter: switches.scatter,
            by_process: switches.vsids == Vsids::Process,
            table: switches.table.is_on(),
            cached_tables: switches.tables == Caching::Cached,
            reclaims_on_demand: switches.reclaim == Reclaims::Demand,
            flush: match switches.flush {
                Flushes::Eager => Flush::Eager,
                Flushes::Lazy => Flush::Lazy { cutoff: switches.cutoff },
            },
            blocks,
            handler: setup.machine.groups.is_some().then_some(Handler { touches, translated }),
        }
    }

    /// What is entered at a miss while this process runs.
    fn handler(&self, process: u32) -> Vec<Touch> {
        self.touches(self.model.handler(), process, process)
    }

    /// Maps all memory and the devices in the kernel's space: by the largest pages where blocks are
    /// on and the machine has none.
    fn map(&self, setup: &Setup, mmu: &mut Mmu) {
        let memory = &self.model.memory;
        let sizes = &setup.machine.pages.sizes;
        let base = sizes[0].bytes();
        let large = |on: bool| if on && setup.machine.groups.is_none() { sizes.len() } else { 1 };
        let ranges = [
            (memory.first_page, 0, self.memory, large(self.model.switches.blocks.is_on())),
            (self.devices, self.memory, memory.device_pages, large(self.model.switches.device_blocks.is_on())),
        ];
        for (first, frame, pages, sizes_in_use) in ranges {
            let mut at = 0;
            while at < pages {
                let fits = |bytes: u64| {
                    let step = bytes / base;
                    (first + at).is_multiple_of(step) && (frame + at).is_multiple_of(step) && at + step <= pages
                };
                let size = sizes[..sizes_in_use].iter().rev().find(|size| fits(size.bytes())).unwrap_or(&sizes[0]);
                let to = Mapped { frame: Pfn(frame + at), size: *size, protection: Protection::ALL };
                mmu.enter(self.space, Vpn(first + at), to, Access::Write);
                at += size.bytes() / base;
            }
        }
    }

    fn path(&self, name: &str) -> (Path, (u64, u64)) {
        let name = if self.model.paths.contains_key(name) { name } else { "other" };
        (self.model.paths[name], self.places[name])
    }

    /// The accesses of a path of the kernel for these processes, the current one and another one:
    /// code, data and structures in turn.
    fn touches(&self, name: &str, process: u32, other: u32) -> Vec<Touch> {
        let (path, (code, data)) = self.path(name);
        let line = |first: u64, line: u64, access: Access| Touch {
            page: Vpn(first + line / LINES),
            line: (line % LINES) as u32,
            access,
        };
        // Loads and stores in turn.
        let kind = |number: u64| if number.is_multiple_of(2) { Access::Read } else { Access::Write };
        let structures =
            |process: u32| self.processes + u64::from(process) % self.model.memory.processes * (PROCESS / PAGE);
        let own = (0..path.process).map(|at| line(structures(process), at, kind(at)));
        let others = (0..path.other_process).map(|at| line(structures(other), at, kind(at)));
        let shared = (0..path.data).map(|at| line(self.data, data + at, kind(at)));
        let devices = (0..path.device).map(|at| line(self.devices + at, 0, kind(at)));
        let data: Vec<Touch> = own.chain(others).chain(shared).chain(devices).collect();
        let fetches = (0..path.code).map(|at| line(self.text, code + at, Access::Execute));
        let (each, mut data) = (data.len().div_ceil(path.code.max(1) as usize), data.into_iter());
        let mut all = Vec::new();
        for fetch in fetches {
            all.push(fetch);
            all.extend(data.by_ref().take(each));
        }
        all.extend(data);
        all
    }
}

impl Simulation {
    /// The kernel runs these accesses of its own.
    fn kernel_touches(&mut self, touches: &[Touch]) {
        let requests: Vec<Request> = touches.iter().map(|touch| Request::new(touch.page, touch.access)).collect();
        let lines: Vec<u32> = touches.iter().map(|touch| touch.line).collect();
        let space = self.mmu.enter_kernel();
        let trap = self.mmu.run_lines(&requests, &lines);
        debug_assert_eq!(trap, None, "the kernel's memory is mapped");
        self.mmu.leave_kernel(space);
    }

    /// The kernel runs a path; `other` is a second process that it concerns.
    fn run_path(&mut self, name: &str, other: Option<ProcessId>) {
        let process = self.processes.current.map_or(0, |process| process.0);
        let Some(footprint) = &mut self.footprint else { return };
        let touches = footprint.touches(name, process, other.map_or(process, |other| other.0));
        let path = footprint.path(name).0;
        let preloaded = path.preloaded && footprint.model.switches.preloads.is_on();
        footprint.counts.instructions += path.instructions;
        if preloaded {
            // An instruction for each line.
            footprint.counts.instructions += path.data + path.process + path.other_process;
        }
        self.mmu.preload(preloaded);
        self.kernel_touches(&touches);
        self.mmu.preload(false);
        self.look();
    }

    /// Looks at what is in the TLBs and in the hash table.
    fn look(&mut self) {
        let Some(footprint) = &mut self.footprint else { return };
        let counts = &mut footprint.counts;
        let (kernel, all) = self.mmu.held_by_kernel(0);
        counts.looks += 1;
        counts.kernel_entries += kernel;
        counts.tlb_entries += all;
        counts.sampled_most_kernel_entries = counts.sampled_most_kernel_entries.max(kernel);
        let [valid, live, _] = self.mmu.groups_in_use(0).unwrap_or_default();
        counts.valid_entries += valid;
        counts.live_entries += live;
    }

    /// A fault or trap of the current process begins.
    #[inline]
    pub(crate) fn fault_footprint(&mut self) {
        if self.footprint.is_some() {
            self.run_path("fault", None);
        }
    }

    /// A fault has filled a frame, and has zeroed or copied so many bytes for it.
    pub(crate) fn filled(&mut self, frame: u64, source: Option<u64>, zeroed: u64) {
        let Some(footprint) = &mut self.footprint else { return };
        let (first, loops) = (footprint.model.memory.first_page, footprint.model.loops);
        let line = |frame: u64, at: u64, access: Access| Touch { page: Vpn(first + frame), line: at as u32, access };
        if let Some(source) = source {
            footprint.copied += PAGE;
            footprint.counts.instructions += LINES * loops.copy_per_line;
            let copy = (0..LINES).flat_map(|at| [line(source, at, Access::Read), line(frame, at, Access::Write)]);
            self.kernel_touches(&copy.collect::<Vec<_>>());
        } else if zeroed > 0 {
            footprint.zeroed += zeroed;
            // Of a superpage all pages, which are aligned to their number.
            let pages = zeroed.div_ceil(PAGE);
            let begin = if pages.is_power_of_two() { frame & !(pages - 1) } else { frame };
            for frame in begin..begin + pages {
                let Some(footprint) = &mut self.footprint else { return };
                if footprint.cleared > 0 {
                    footprint.cleared -= 1;
                    footprint.counts.taken_pages += 1;
                    continue;
                }
                footprint.counts.instructions += LINES * loops.clear_per_line;
                let clear: Vec<Touch> = (0..LINES).map(|at| line(frame, at, Access::Write)).collect();
                self.kernel_touches(&clear);
            }
        }
    }

    /// What the kernel runs and flushes for an event, before it is handled.
    pub(crate) fn event_footprint(&mut self, event: &Event) -> Result<(), Problem> {
        if self.footprint.is_none() || self.processes.dead {
            return Ok(());
        }
        let space = self.processes.space.0;
        let flush = |simulation: &mut Simulation, range: PageRange| {
            let pages = range.start.0..range.start.0 + range.pages;
            simulation.mmu.drop_blocks(space, pages.clone());
            simulation.mmu.flush_range(space, pages);
        };
        match *event {
            Event::Switch { process, .. } => {
                if self.processes.current != Some(process) {
                    let (current, done) = (self.processes.current, self.counted.instructions);
                    self.footprint.iter_mut().for_each(|footprint| footprint.calls.switch(current, process, done));
                    self.run_path("switch", Some(process));
                    // The handler uses the kernel stack of the process that runs.
                    if let Some(footprint) = &self.footprint {
                        self.mmu.set_handler_touches(footprint.handler(process.0));
                    }
                }
            }
            Event::Call { ref path, at, bytes } => {
                let done = self.counted.instructions;
                let Some(footprint) = &mut self.footprint else { return Ok(()) };
                match footprint.calls.goes_on(path, at, bytes, done) {
                    true => self.run_path(path, None),
                    false => self.call(path),
                }
                if path == "ioremap" {
                    self.map_device(Vpn((at / PAGE) >> self.shift));
                }
                if bytes > 0 {
                    self.copy(path, at, bytes)?;
                }
            }
            Event::Map { start, pages, .. } => {
                self.call("map");
                // What was mapped there goes.
                let range = inward(self.shift, start, pages);
                if range.pages > 0 && self.vm.maps_any(self.processes.space, range) {
                    flush(self, range);
                }
            }
            Event::Unmap { start, pages } => {
                self.call("unmap");
                flush(self, inward(self.shift, start, pages));
            }
            Event::Protect { start, pages, .. } => {
                self.call("protect");
                flush(self, inward(self.shift, start, pages));
            }
            Event::Discard { start, pages } => {
                self.call("unmap");
                flush(self, inward(self.shift, start, pages));
            }
            Event::Grow { .. } => self.call("grow"),
            Event::Remap { from, from_pages, .. } => {
                self.call("unmap");
                flush(self, inward(self.shift, from, from_pages));
            }
            Event::Fork { child } => {
                self.footprint.iter_mut().for_each(|footprint| footprint.counts.calls += 1);
                self.run_path("entry", None);
                self.run_path("fork", Some(child));
                self.mmu.flush_range(space, 0..u64::MAX);
            }
            Event::Exec => {
                self.mmu.drop_blocks(space, 0..u64::MAX);
                self.call("exec");
            }
            Event::Exit => self.call("exit"),
            Event::Open { .. } => self.call("open"),
            Event::Close { .. } => self.call("close"),
            // Where a stream has calls, there is one for each of these.
            Event::Read { .. } | Event::Write { .. } if self.info.calls => {}
            Event::Read { .. } => self.call("read"),
            Event::Write { .. } | Event::Sync { .. } => self.call("write"),
            Event::Remove { .. } | Event::Advise { .. } => self.call("other"),
            Event::Idle { microseconds } => {
                let hertz = self.setup.machine.clock.hertz;
                self.idle_task((microseconds as u128 * hertz as u128 / 1_000_000) as u64);
            }
            Event::Wire { .. }
            | Event::Unwire { .. }
            | Event::Mark(_)
            | Event::Note(_)
            | Event::Phase { .. }
            | Event::Rewrite { .. }
            | Event::Skipped { .. } => {}
        }
        Ok(())
    }

    fn call(&mut self, path: &str) {
        self.footprint.iter_mut().for_each(|footprint| footprint.counts.calls += 1);
        self.run_path("entry", None);
        self.run_path(path, None);
    }

    /// The current process has mapped a device, as the frame buffer: its mapping there gets a
    /// block, the process's only one, if it is aligned as blocks are (Dougan et al., section 5.1).
    fn map_device(&mut self, at: Vpn) {
        let Some(groups) = &self.setup.machine.groups else { return };
        let on = self.footprint.as_ref().is_some_and(|footprint| footprint.model.switches.program_blocks.is_on());
        let Some(range) = self.vm.shared_mapping(self.processes.space, at).filter(|_| on) else { return };
        let size = range.pages.next_power_of_two().max(SMALLEST_BLOCK);
        if range.start.0.is_multiple_of(size) && size * PAGE <= groups.block_size {
            let space = self.processes.space.0;
            self.mmu.drop_blocks(space, 0..u64::MAX);
            self.mmu.add_block(Block { space, pages: range.start.0..range.start.0 + range.pages });
        }
    }

    /// The kernel copies from or to the program's buffer, line by line; what is at its own end are
    /// pages of memory in turn, as of a pipe or a cached file.
    fn copy(&mut self, path: &str, at: u64, bytes: u64) -> Result<(), Problem> {
        let Some(footprint) = &mut self.footprint else { return Ok(()) };
        let (first, each) = (footprint.model.memory.first_page, footprint.model.loops.copy_per_line);
        let to_program = path.ends_with("read");
        let bytes = bytes.min(MOST_COPIED);
        // A pipe has one page, the last of the kernel's own; a file is anywhere in memory.
        let (begin, pages) = match path.starts_with("pipe") {
            true => (footprint.memory - 1, 1),
            false => (footprint.file % self.setup.frames, self.setup.frames),
        };
        if pages > 1 {
            footprint.file += bytes.div_ceil(PAGE);
        }
        footprint.counts.instructions += bytes.div_ceil(LINE) * each;
        let (mine, theirs) = if to_program { (Access::Read, Access::Write) } else { (Access::Write, Access::Read) };
        let lines_in_page = self.setup.ladder.base().bytes() / LINE;
        for (number, line) in (at / LINE..at.saturating_add(bytes).div_ceil(LINE)).enumerate() {
            let own = number as u64;
            let page = Vpn(first + if pages > 1 { (begin + own / LINES) % pages } else { begin });
            let touch = Touch { page, line: (own % LINES) as u32, access: mine };
            let request = Request::new(Vpn(line / lines_in_page), theirs);
            let place = (line % lines_in_page) as u32;
            if to_program {
                self.kernel_touches(&[touch]);
            }
            self.requests(Asked::of(&[request], &[place])).map_err(|(_, problem)| problem)?;
            if !to_program {
                self.kernel_touches(&[touch]);
            }
        }
        Ok(())
    }

    /// The disk has been used since the last call: the idle task ran meanwhile.
    #[inline]
    pub(crate) fn wait_for_disk(&mut self) {
        if self.footprint.is_some() {
            let cycles = self.disk.cycles(&self.setup.machine);
            let Some(footprint) = &mut self.footprint else { return };
            let more = cycles - std::mem::replace(&mut footprint.waited, cycles);
            if more > 0 {
                self.run_path("disk", None);
                self.idle_task(more);
            }
        }
    }

    /// The idle task for so many cycles. What it does to caches and tables stays; the time that it
    /// takes is nobody's.
    fn idle_task(&mut self, cycles: u64) {
        let Some(footprint) = &self.footprint else { return };
        let (saved, instructions) = (self.mmu.save_counts(), footprint.counts.instructions);
        self.idle_work(cycles);
        self.mmu.restore_counts(saved);
        self.footprint.iter_mut().for_each(|footprint| footprint.counts.instructions = instructions);
    }

    /// The idle task reclaims zombies and clears pages, as long as there is time and work.
    fn idle_work(&mut self, cycles: u64) {
        let Some(footprint) = &self.footprint else { return };
        let (switches, loops) = (footprint.model.switches.clone(), footprint.model.loops);
        let instruction = self.setup.machine.costs.cycles_per_instruction;
        let latency = self.setup.machine.memory.latency_cycles;
        let lines = LINE / self.setup.machine.memory.line_bytes.min(LINE);
        let mut left = cycles;
        if switches.idle == Caching::Cached {
            self.run_path("idle", None);
        }
        if let (Reclaims::Idle, Some([_, _, entries])) = (switches.reclaim, self.mmu.groups_in_use(0)) {
            let each = (loops.reclaim_per_entry as f64 * instruction) as u64 + 1 + latency / 4;
            let some = (left / each).min(entries);
            self.mmu.reclaim(some, switches.idle == Caching::Cached && switches.tables == Caching::Cached);
            left -= some * each;
        }
        if switches.clear == Clears::No {
            return;
        }
        let each = ((LINES * loops.clear_per_line) as f64 * instruction) as u64 + LINES * lines * latency;
        for _ in 0..(left / each.max(1)).min(MOST_CLEARED) {
            let Some(footprint) = &mut self.footprint else { return };
            if footprint.cleared >= MOST_CLEARED {
                return;
            }
            footprint.counts.cleared_pages += 1;
            footprint.cleared += u64::from(switches.list.is_on());
            footprint.hand += 1;
            let page = Vpn(footprint.model.memory.first_page + footprint.hand % self.setup.frames);
            if switches.clear == Clears::Cached {
                let clear: Vec<Touch> =
                    (0..LINES).map(|line| Touch { page, line: line as u32, access: Access::Write }).collect();
                self.kernel_touches(&clear);
            }
        }
    }

    /// The instructions of a kernel that has a model.
    fn kernel_instructions(&self) -> u64 {
        self.footprint.as_ref().map_or(0, |footprint| {
            let handled = self.mmu.counters(0).groups.entered;
            footprint.counts.instructions + handled * footprint.model.paths[footprint.model.handler()].instructions
        })
    }

    /// What the kernel has done so far, if it has a model.
    pub(crate) fn kernel_counts(&self) -> Option<KernelCounts> {
        let footprint = self.footprint.as_ref()?;
        let groups = self.mmu.counters(0).groups;
        let [valid_now, live_now, _] = self.mmu.groups_in_use(0).unwrap_or_default();
        let instructions = self.kernel_instructions();
        let most_valid_entries = self.mmu.most_groups_in_use(0).unwrap_or_default();
        let counts = footprint.counts.plus(&KernelCounts::of(&groups));
        Some(KernelCounts { instructions, valid_now, live_now, most_valid_entries, ..counts })
    }

    /// Bytes that the model has zeroed and copied line by line: they cost nothing else. Where the
    /// stream has calls, these copy all.
    pub(crate) fn filled_bytes(&self) -> (u64, u64) {
        let copied = |footprint: &Footprint| if self.info.calls { u64::MAX } else { footprint.copied };
        self.footprint.as_ref().map_or((0, 0), |footprint| (footprint.zeroed, copied(footprint)))
    }

    /// The cycles of the instructions of a kernel that has a model.
    pub(crate) fn kernel_cycles(&self) -> u64 {
        let instructions = self.kernel_instructions();
        (instructions as f64 * self.setup.machine.costs.cycles_per_instruction) as u64
    }
}
