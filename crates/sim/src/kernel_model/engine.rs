//! The model at work: what the kernel touches, put into the stream.

use super::calls::Calls;
use super::{
    Caching, Clears, Flushes, Handlers, KernelCounts, KernelModel, LINE, PAGE, PROCESS, Path, Reclaims, Vsids,
};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use superpage_mmu::{Block, Flush, Handler, Machine, Mmu, Request, Touch, Upkeep};
use superpage_pages::{Access, Counts, Mapped, Pfn, Protection, Vpn};
use superpage_trace::{Event, ProcessId};
use superpage_vm::{SpaceId, Vm};

/// The lines of a page.
const LINES: u64 = PAGE / LINE;

/// Pages that the idle task keeps cleared at most, and that it clears at most each time.
const MOST_CLEARED: u64 = 128;

/// The smallest block: 128 KB.
const SMALLEST_BLOCK: u64 = 32;

/// A call copies no more bytes than these.
const MOST_COPIED: u64 = 1 << 30;

/// The kernel of a simulation, where it has a model.
pub(crate) struct ModelledKernel {
    model: KernelModel,
    machine: Arc<Machine>,
    /// Whether the stream has calls, which then copy all that calls copy.
    has_calls: bool,
    /// Its address space.
    space: u32,
    /// The pages of memory for programs.
    frames: u64,
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

impl ModelledKernel {
    /// The kernel of a model on a machine with `frames` frames for programs. Maps the kernel's
    /// memory.
    pub(crate) fn new(
        model: &KernelModel,
        (machine, frames): (&Arc<Machine>, u64),
        has_calls: bool,
        vm: &mut Vm,
        mmu: &mut Mmu,
    ) -> ModelledKernel {
        let (model, machine) = (model.clone(), Arc::clone(machine));
        let space = vm.create_space().0;
        let memory = frames + model.pages();
        let text = model.memory.first_page + frames;
        let data = text + model.memory.text.div_ceil(PAGE);
        let processes = data + model.memory.data.div_ceil(PAGE);
        let devices = model.device_page(memory);
        let mut places = BTreeMap::new();
        let mut at = (0, 0);
        for (name, path) in &model.paths {
            places.insert(name.clone(), at);
            at = (at.0 + path.code, at.1 + path.data);
        }
        let modelled = ModelledKernel {
            model,
            machine,
            has_calls,
            space,
            frames,
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
        mmu.set_upkeep(modelled.upkeep());
        // The stream begins when the kernel has its memory.
        let saved = mmu.save_counts();
        modelled.map(mmu);
        mmu.restore_counts(saved);
        modelled
    }

    fn upkeep(&self) -> Upkeep {
        let (memory, switches) = (&self.model.memory, &self.model.switches);
        let has_blocks = self.machine.groups.as_ref().is_some_and(|groups| groups.blocks > 0);
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
            handler: self.machine.groups.is_some().then_some(Handler { touches, translated }),
        }
    }

    /// What is entered at a miss while this process runs.
    fn handler(&self, process: u32) -> Vec<Touch> {
        self.touches(self.model.handler(), process, process)
    }

    /// Maps all memory and the devices in the kernel's space: by the largest pages where blocks are
    /// on and the machine has none.
    fn map(&self, mmu: &mut Mmu) {
        let memory = &self.model.memory;
        let sizes = &self.machine.pages.sizes;
        let base = sizes[0].bytes();
        let large = |on: bool| if on && self.machine.groups.is_none() { sizes.len() } else { 1 };
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

    /// The kernel runs a path; `other` is a second process that it concerns.
    fn run(&mut self, name: &str, at: &mut At<'_>, other: Option<ProcessId>) {
        let process = at.process.map_or(0, |process| process.0);
        let touches = self.touches(name, process, other.map_or(process, |other| other.0));
        let path = self.path(name).0;
        let preloaded = path.preloaded && self.model.switches.preloads.is_on();
        self.counts.instructions += path.instructions;
        if preloaded {
            // An instruction for each line.
            self.counts.instructions += path.data + path.process + path.other_process;
        }
        at.mmu.preload(preloaded);
        touch(at.mmu, &touches);
        at.mmu.preload(false);
        self.look(at.mmu);
    }

    /// Looks at what is in the TLBs and in the hash table.
    fn look(&mut self, mmu: &Mmu) {
        let counts = &mut self.counts;
        let (kernel, all) = mmu.held_by_kernel(0);
        counts.looks += 1;
        counts.kernel_entries += kernel;
        counts.tlb_entries += all;
        counts.sampled_most_kernel_entries = counts.sampled_most_kernel_entries.max(kernel);
        let [valid, live, _] = mmu.groups_in_use(0).unwrap_or_default();
        counts.valid_entries += valid;
        counts.live_entries += live;
    }

    /// A fault or trap of the current process begins.
    pub(crate) fn fault(&mut self, at: &mut At<'_>) {
        self.run("fault", at, None);
    }

    /// A fault has filled a frame, by a copy of `source` or with `zeroed` bytes of zeroes.
    pub(crate) fn filled(&mut self, mmu: &mut Mmu, frame: u64, source: Option<u64>, zeroed: u64) {
        let (first, loops) = (self.model.memory.first_page, self.model.loops);
        let line = |frame: u64, at: u64, access: Access| Touch { page: Vpn(first + frame), line: at as u32, access };
        if let Some(source) = source {
            self.copied += PAGE;
            self.counts.instructions += LINES * loops.copy_per_line;
            let copy = (0..LINES).flat_map(|at| [line(source, at, Access::Read), line(frame, at, Access::Write)]);
            touch(mmu, &copy.collect::<Vec<_>>());
        } else if zeroed > 0 {
            self.zeroed += zeroed;
            // Of a superpage all pages, which are aligned to their number.
            let pages = zeroed.div_ceil(PAGE);
            let begin = if pages.is_power_of_two() { frame & !(pages - 1) } else { frame };
            for frame in begin..begin + pages {
                if self.cleared > 0 {
                    self.cleared -= 1;
                    self.counts.taken_pages += 1;
                    continue;
                }
                self.counts.instructions += LINES * loops.clear_per_line;
                let clear: Vec<Touch> = (0..LINES).map(|at| line(frame, at, Access::Write)).collect();
                touch(mmu, &clear);
            }
        }
    }

    /// Runs and flushes what the kernel does for an event, before it is handled, after programs
    /// have run `instructions`; returns what a call copies then.
    pub(crate) fn event(&mut self, event: &Event, at: &mut At<'_>, instructions: u64) -> Option<Copied> {
        let space = at.space.0;
        // Pages of the stream are those of machines with a model.
        let flush = |mmu: &mut Mmu, start: u64, pages: u64| {
            mmu.drop_blocks(space, start..start + pages);
            mmu.flush_range(space, start..start + pages);
        };
        match *event {
            Event::Switch { process, .. } if at.process != Some(process) => {
                self.calls.switch(at.process, process, instructions);
                self.run("switch", at, Some(process));
                // The handler uses the kernel stack of the process that runs.
                at.mmu.set_handler_touches(self.handler(process.0));
            }
            Event::Call { ref path, at: start, bytes } => {
                if self.calls.goes_on(path, start, bytes, instructions) {
                    self.run(path, at, None)
                } else {
                    self.call(path, at)
                }
                if path == "ioremap" {
                    self.map_device(at, Vpn(start / PAGE));
                }
                return (bytes > 0).then(|| self.copy(path, start, bytes));
            }
            Event::Map { start, pages, .. } => {
                self.call("map", at);
                // What was mapped there goes.
                if pages > 0 && at.vm.maps_any(at.space, Vpn(start).pages(pages)) {
                    flush(at.mmu, start, pages);
                }
            }
            Event::Protect { start, pages, .. } => {
                self.call("protect", at);
                flush(at.mmu, start, pages);
            }
            Event::Unmap { start, pages }
            | Event::Discard { start, pages }
            | Event::Remap { from: start, from_pages: pages, .. } => {
                self.call("unmap", at);
                flush(at.mmu, start, pages);
            }
            Event::Grow { .. } => self.call("grow", at),
            Event::Fork { child } => {
                self.counts.calls += 1;
                self.run("entry", at, None);
                self.run("fork", at, Some(child));
                at.mmu.flush_range(space, 0..u64::MAX);
            }
            Event::Exec => {
                at.mmu.drop_blocks(space, 0..u64::MAX);
                self.call("exec", at);
            }
            Event::Exit => self.call("exit", at),
            Event::Open { .. } => self.call("open", at),
            Event::Close { .. } => self.call("close", at),
            // Where a stream has calls, there is one for each of these.
            Event::Read { .. } | Event::Write { .. } if self.has_calls => {}
            Event::Read { .. } => self.call("read", at),
            Event::Write { .. } | Event::Sync { .. } => self.call("write", at),
            Event::Remove { .. } | Event::Advise { .. } => self.call("other", at),
            Event::Idle { microseconds } => {
                let hertz = self.machine.clock.hertz;
                self.idle_task(at, (microseconds as u128 * hertz as u128 / 1_000_000) as u64);
            }
            Event::Switch { .. }
            | Event::Migrate { .. }
            | Event::Wire { .. }
            | Event::Unwire { .. }
            | Event::Mark(_)
            | Event::Note(_)
            | Event::Phase { .. }
            | Event::Rewrite { .. }
            | Event::Skipped { .. } => {}
        }
        None
    }

    fn call(&mut self, path: &str, at: &mut At<'_>) {
        self.counts.calls += 1;
        self.run("entry", at, None);
        self.run(path, at, None);
    }

    /// The current process has mapped a device, as the frame buffer: its mapping there gets a
    /// block, the process's only one, if it is aligned as blocks are (Dougan et al., section 5.1).
    fn map_device(&mut self, at: &mut At<'_>, page: Vpn) {
        let Some(groups) = &self.machine.groups else { return };
        let on = self.model.switches.program_blocks.is_on();
        let Some(range) = at.vm.shared_mapping(at.space, page).filter(|_| on) else { return };
        let size = range.pages.next_power_of_two().max(SMALLEST_BLOCK);
        if range.start.0.is_multiple_of(size) && size * PAGE <= groups.block_size {
            let space = at.space.0;
            at.mmu.drop_blocks(space, 0..u64::MAX);
            at.mmu.add_block(Block { space, pages: range.start.0..range.start.0 + range.pages });
        }
    }

    /// The kernel copies from or to the program's buffer, line by line; what is at its own end are
    /// pages of memory in turn, as of a pipe or a cached file.
    fn copy(&mut self, path: &str, at: u64, bytes: u64) -> Copied {
        let (memory, bytes) = (self.model.memory.first_page, bytes.min(MOST_COPIED));
        // A pipe has one page, the last of the kernel's own; a file is anywhere in memory.
        let (first, begin, pages) = if path.starts_with("pipe") {
            (memory + self.memory - 1, 0, 1)
        } else {
            (memory, self.file % self.frames, self.frames)
        };
        if pages > 1 {
            self.file += bytes.div_ceil(PAGE);
        }
        self.counts.instructions += bytes.div_ceil(LINE) * self.model.loops.copy_per_line;
        let lines = at / LINE..at.saturating_add(bytes).div_ceil(LINE);
        Copied { to_program: path.ends_with("read"), lines, first, begin, pages }
    }

    /// The disk has been in use for `cycles` so far: the idle task ran meanwhile.
    pub(crate) fn wait_for_disk(&mut self, at: &mut At<'_>, cycles: u64) {
        let more = cycles - std::mem::replace(&mut self.waited, cycles);
        if more > 0 {
            self.run("disk", at, None);
            self.idle_task(at, more);
        }
    }

    /// Runs the idle task for `cycles`. What it does to caches and tables stays; no program is
    /// charged its time.
    fn idle_task(&mut self, at: &mut At<'_>, cycles: u64) {
        let (saved, instructions) = (at.mmu.save_counts(), self.counts.instructions);
        self.idle_work(at, cycles);
        at.mmu.restore_counts(saved);
        self.counts.instructions = instructions;
    }

    /// The idle task reclaims zombies and clears pages, as long as there is time and work.
    fn idle_work(&mut self, at: &mut At<'_>, cycles: u64) {
        let (switches, loops) = (self.model.switches.clone(), self.model.loops);
        let instruction = self.machine.costs.cycles_per_instruction;
        let latency = self.machine.memory.latency_cycles;
        let lines = LINE / self.machine.memory.line_bytes.min(LINE);
        let mut left = cycles;
        if switches.idle == Caching::Cached {
            self.run("idle", at, None);
        }
        if let (Reclaims::Idle, Some([_, _, entries])) = (switches.reclaim, at.mmu.groups_in_use(0)) {
            let each = (loops.reclaim_per_entry as f64 * instruction) as u64 + 1 + latency / 4;
            let some = (left / each).min(entries);
            at.mmu.reclaim(some, switches.idle == Caching::Cached && switches.tables == Caching::Cached);
            left -= some * each;
        }
        if switches.clear == Clears::No {
            return;
        }
        let each = ((LINES * loops.clear_per_line) as f64 * instruction) as u64 + LINES * lines * latency;
        for _ in 0..(left / each.max(1)).min(MOST_CLEARED) {
            if self.cleared >= MOST_CLEARED {
                return;
            }
            self.counts.cleared_pages += 1;
            self.cleared += u64::from(switches.list.is_on());
            self.hand += 1;
            let page = Vpn(self.model.memory.first_page + self.hand % self.frames);
            if switches.clear == Clears::Cached {
                let clear: Vec<Touch> =
                    (0..LINES).map(|line| Touch { page, line: line as u32, access: Access::Write }).collect();
                touch(at.mmu, &clear);
            }
        }
    }

    /// The instructions so far.
    fn instructions(&self, mmu: &Mmu) -> u64 {
        let handled = mmu.counters(0).groups.entered;
        self.counts.instructions + handled * self.model.paths[self.model.handler()].instructions
    }

    /// Their cycles.
    pub(crate) fn cycles(&self, mmu: &Mmu) -> u64 {
        (self.instructions(mmu) as f64 * self.machine.costs.cycles_per_instruction) as u64
    }

    /// What the kernel has done so far.
    pub(crate) fn counts(&self, mmu: &Mmu) -> KernelCounts {
        let groups = mmu.counters(0).groups;
        let [valid_now, live_now, _] = mmu.groups_in_use(0).unwrap_or_default();
        let most_valid_entries = mmu.most_groups_in_use(0).unwrap_or_default();
        let (instructions, counts) = (self.instructions(mmu), self.counts.plus(&KernelCounts::of(&groups)));
        KernelCounts { instructions, valid_now, live_now, most_valid_entries, ..counts }
    }

    /// Bytes that the model has zeroed and copied line by line: they cost nothing else. Where the
    /// stream has calls, these copy all.
    pub(crate) fn filled_bytes(&self) -> (u64, u64) {
        (self.zeroed, if self.has_calls { u64::MAX } else { self.copied })
    }
}

/// Where the model runs: its hardware and memory manager, and the process that runs.
pub(crate) struct At<'a> {
    pub(crate) mmu: &'a mut Mmu,
    pub(crate) vm: &'a Vm,
    pub(crate) process: Option<ProcessId>,
    pub(crate) space: SpaceId,
}

/// What a call copies, line by line.
pub(crate) struct Copied {
    pub(crate) to_program: bool,
    /// The lines of the program's buffer.
    lines: Range<u64>,
    /// The kernel's buffer: `pages` pages from `first`, used cyclically from `begin`.
    first: u64,
    pages: u64,
    begin: u64,
}

impl Copied {
    /// For each copied line: the kernel's access, and the program's request with its line.
    pub(crate) fn lines(self) -> impl Iterator<Item = (Touch, Request, u32)> {
        let (mine, theirs) =
            if self.to_program { (Access::Read, Access::Write) } else { (Access::Write, Access::Read) };
        self.lines.enumerate().map(move |(number, line)| {
            let own = number as u64;
            let page = Vpn(self.first + (self.begin + own / LINES) % self.pages);
            let touch = Touch { page, line: (own % LINES) as u32, access: mine };
            (touch, Request::new(Vpn(line / LINES), theirs), (line % LINES) as u32)
        })
    }
}

/// Makes these accesses of the kernel.
pub(crate) fn touch(mmu: &mut Mmu, touches: &[Touch]) {
    let requests: Vec<Request> = touches.iter().map(|touch| Request::new(touch.page, touch.access)).collect();
    let lines: Vec<u32> = touches.iter().map(|touch| touch.line).collect();
    let space = mmu.enter_kernel();
    let trap = mmu.run_lines(&requests, &lines);
    debug_assert_eq!(trap, None, "the kernel's memory is mapped");
    mmu.leave_kernel(space);
}
