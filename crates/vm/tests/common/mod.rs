//! A small world for property tests and the fuzzer: a memory manager, page tables in software, and beside them what
//! programs may rely on, that each page holds what was last written to it. Operations are read from bytes, so that any
//! sequence of bytes is a sequence of operations; the whole state is validated after every one.

mod contents;
mod refused;
mod scenario;
mod setting;
mod watch;

use contents::Contents;
use refused::{Before, must_be_refused};
use scenario::*;
pub(crate) use scenario::{Op, plain};
pub(crate) use setting::{Setting, setting};
use std::collections::{BTreeMap, HashMap, HashSet};
use superpage_pages::{Access, Extent, Hint, Level, PageRange, Pfn, Protection, Vpn};
use superpage_vm::{
    Backing, Buddy, Error, Fault, FaultError, FaultKind, Growth, How, Map, NoContents, Pmap, Region, SoftPmap, SpaceId,
    Vm,
};

/// Sizes in pages: all operations lie below this page.
const PAGES: u64 = 1024;

/// A long file that is only read, to press on memory.
const STREAM: u32 = 8;
const STREAM_PAGES: u64 = 1 << 16;

/// Where the contents of a page are.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// In a cell: of this process alone, or of all who share it.
    Cell { cell: usize, shared: bool },
    /// In a file: for all who map it, or for this process until its first write.
    File { file: u32, page: u64, shared: bool },
    /// In a cell of this process alone, copied from a file.
    Copied { cell: usize, file: u32, page: u64 },
}

/// A mapped page.
#[derive(Clone, Copy, Debug)]
struct Slot {
    source: Source,
    protection: Protection,
    /// Whether it belongs to a heap.
    up: bool,
    hint: Hint,
    /// Of a page of a file, what its file held when a read of it began on which this process then did not wait: its own
    /// copy, where the read was for one, is of that time.
    begun: Option<u32>,
}

/// The number of the file that an operation works on, from its last byte: below that of the long one.
fn file_number(more: u8) -> u32 {
    let bits = u32::from(more & FILE);
    bits & 1 | bits >> 1 & 6
}

/// See the module.
pub(crate) struct World {
    /// The memory manager under test.
    pub(crate) vm: Vm,
    /// Its page tables.
    pub(crate) pmap: SoftPmap,
    spaces: Vec<SpaceId>,
    slots: HashMap<SpaceId, BTreeMap<u64, Slot>>,
    cells: Vec<u32>,
    /// Shared cells that somebody has given up: lost if nobody else had them.
    discarded: HashSet<usize>,
    files: HashMap<(u32, u64), u32>,
    /// What memory, files and swap space hold.
    contents: Contents,
    /// Whether pages of files are lost with their last mapping: then every write goes to the file at once.
    through: bool,
    /// Whether the daemon comes when it is called, and not only when memory is full.
    daemon_comes: bool,
    /// Whether a process ends that finds no memory.
    ends: bool,
    /// Where the long file is read next.
    streamed: u64,
    opens: HashMap<u32, u32>,
    wired: Vec<Extent>,
    kernel: Vec<Pfn>,
    written: u32,
    /// In nanoseconds.
    now: u64,
}

impl World {
    /// A world with one process; see `setting` for what it starts from.
    pub(crate) fn new(ladder: u8, answers: u128, frames: u16) -> World {
        World::of(setting(ladder, answers, frames))
    }

    /// A world that starts from this.
    pub(crate) fn of(setting: Setting) -> World {
        let (config, mapped) = (setting.config(), setting.mapped());
        let Setting { daemon_comes, ends, .. } = setting;
        let frames = config.frames;
        let through = config.policy.answers.reclaim.pages == superpage_vm::Reclaim::Nothing;
        let vm = Vm::new(config).unwrap();
        let mut world = World {
            vm,
            pmap: SoftPmap::new(mapped),
            spaces: Vec::new(),
            slots: HashMap::new(),
            cells: Vec::new(),
            discarded: HashSet::new(),
            files: HashMap::new(),
            contents: Contents::new(frames),
            through,
            daemon_comes,
            ends,
            streamed: 0,
            opens: HashMap::new(),
            wired: Vec::new(),
            kernel: Vec::new(),
            written: 0,
            now: 0,
        };
        world.create();
        world
    }

    /// The same with a slow store that fails now and then: half of what is read comes later, when somebody waits for it, or of
    /// itself.
    pub(crate) fn slow(mut self) -> World {
        self.contents.slow();
        self
    }

    /// The read into a frame is over; now and then it has failed, and what was read is asked for again.
    fn finish(&mut self, frame: Pfn) {
        self.contents.finish(frame);
        let read = if self.contents.choose(16) == 0 { Err(NoContents) } else { Ok(()) };
        self.vm.read_done(frame, read).unwrap();
    }

    /// Does something that may be refused, and then has changed nothing.
    fn attempt<T>(&mut self, what: impl FnOnce(&mut World) -> Result<T, Error>) -> Result<T, Error> {
        let before = Before::of(self);
        let done = what(self);
        if let Err(error) = &done {
            before.unchanged(self, error);
        }
        done
    }

    /// The same, where it must wait for reads that are under way.
    fn wait<T>(&mut self, what: impl Fn(&mut World) -> Result<T, Error>) -> Result<T, Error> {
        loop {
            match self.attempt(&what) {
                Err(Error::Busy(frame)) => self.finish(frame),
                done => return done,
            }
        }
    }

    fn create(&mut self) {
        let space = self.vm.create_space();
        self.spaces.push(space);
        self.slots.insert(space, BTreeMap::new());
    }

    fn exec(&mut self, space: SpaceId) {
        self.wait(|world| world.vm.exec(&mut world.pmap, space)).unwrap();
        self.slots(space).clear();
    }

    fn cell(&mut self) -> usize {
        self.cells.push(0);
        self.cells.len() - 1
    }

    fn slots(&mut self, space: SpaceId) -> &mut BTreeMap<u64, Slot> {
        self.slots.get_mut(&space).unwrap()
    }

    fn forget(&mut self, space: SpaceId, start: u64, end: u64) {
        self.slots(space).retain(|page, _| !(start..end).contains(page));
    }

    /// Does one plain operation and checks everything.
    pub(crate) fn step(&mut self, op: Op) {
        self.apply(op);
        self.check(op);
        if self.answer_daemon() {
            self.check(op);
        }
    }

    /// The daemon comes if it is called, in half of the worlds.
    pub(crate) fn answer_daemon(&mut self) -> bool {
        // Time passes too, for policies that go by it.
        self.now += 400_000_000;
        self.vm.advance(&mut self.pmap, &mut self.contents, self.now, 0);
        let comes = self.daemon_comes && self.vm.daemon_wanted();
        if comes {
            self.vm.run_daemon(&mut self.pmap, &mut self.contents);
        }
        comes
    }

    /// Does one plain operation; contents are checked where they are accessed.
    pub(crate) fn apply(&mut self, op: Op) {
        let [what, who, place, length, flags, more] = op;
        let space = self.spaces[who as usize % self.spaces.len()];
        let start = (u64::from(place) * 4 + u64::from(flags & 3)) % PAGES;
        let pages = match more >> 6 {
            0 => 1,
            1 => u64::from(length % 16) + 1,
            2 => u64::from(length) + 1,
            _ => 1 << (length % 10),
        };
        // Aligned ranges are where superpages can be.
        let start = if more & ALIGNED == ALIGNED { start & !(pages - 1) } else { start };
        let protection = Protection::from_bits(if flags & 4 != 0 { flags >> 5 } else { 3 });
        match what % KINDS {
            MAP..=3 => self.map(space, Vpn(start).pages(pages), protection, op),
            UNMAP => {
                self.wait(|world| world.vm.unmap(&mut world.pmap, space, Vpn(start).pages(pages))).unwrap();
                self.forget(space, start, start + pages);
            }
            PROTECT | 6 => {
                self.vm.protect(&mut self.pmap, space, Vpn(start).pages(pages), protection).unwrap();
                self.slots(space).range_mut(start..start + pages).for_each(|(_, slot)| slot.protection = protection);
            }
            ADVISE => {
                let hint = [Hint::None, Hint::None, Hint::Huge, Hint::Base][flags as usize >> 6];
                self.vm.advise(&mut self.pmap, space, Vpn(start).pages(pages), hint).unwrap();
                self.slots(space).range_mut(start..start + pages).for_each(|(_, slot)| slot.hint = hint);
            }
            DISCARD => self.discard(space, start, pages),
            GROW => self.grow(space, start, pages),
            REMAP => self.remap(space, start, pages, op),
            FORK | 11 if self.spaces.len() < 5 => {
                let child = self.vm.fork(&mut self.pmap, space).unwrap();
                self.spaces.push(child);
                let mut slots = self.slots[&space].clone();
                for slot in slots.values_mut() {
                    if let Source::Cell { cell, shared: false } | Source::Copied { cell, .. } = &mut slot.source {
                        self.cells.push(self.cells[*cell]);
                        *cell = self.cells.len() - 1;
                    }
                }
                self.slots.insert(child, slots);
            }
            CREATE if self.spaces.len() < 5 => self.create(),
            EXIT | 14 if self.spaces.len() > 1 => {
                self.wait(|world| world.vm.exit(&mut world.pmap, space)).unwrap();
                self.spaces.retain(|other| *other != space);
                self.slots.remove(&space);
            }
            EXEC if length < 64 => self.exec(space),
            WIRE => {
                let level = Level(length % self.vm.ladder().len() as u8);
                let extent = Extent { start: Pfn(start).align_down(self.vm.ladder().pages(level)), level };
                if self.wired.len() < 2 && self.attempt(|world| world.vm.wire(extent)).is_ok() {
                    self.wired.push(extent);
                }
            }
            OPEN..=REMOVE => self.file(file_number(more), what % KINDS, start % 200, pages),
            WIRE_PAGE => match self.attempt(|world| world.vm.wire_page()) {
                Ok(frame) if self.kernel.len() < 40 => self.kernel.push(frame),
                Ok(frame) => self.vm.unwire_page(frame).unwrap(),
                Err(_) => assert_eq!(self.vm.buddy().free_frames(), 0),
            },
            UNWIRE_PAGE if !self.kernel.is_empty() => {
                let frame = self.kernel.swap_remove(length as usize % self.kernel.len());
                self.vm.unwire_page(frame).unwrap();
                assert!(self.attempt(|world| world.vm.unwire_page(frame)).is_err());
            }
            DAEMON => {
                self.vm.run_daemon(&mut self.pmap, &mut self.contents);
            }
            IDLE => {
                let level = Level(flags % self.vm.ladder().len() as u8);
                self.vm.zero_ahead(&mut self.contents, level, u64::from(more % 4));
                self.vm.idle(&self.pmap, &mut self.contents, u64::from(length));
            }
            READ_AND_WRITE => {
                // What is read whole and written in part.
                if (start..start + pages).all(|page| self.access(space, page, Access::Read, false)) {
                    self.access(space, start + u64::from(length) % pages, Access::Write, false);
                }
            }
            COLLAPSE | 30 => {
                let ladder = self.vm.ladder();
                let level = ladder.levels().rev().find(|level| ladder.pages(*level) <= pages).unwrap();
                let start = Vpn(start).align_down(ladder.pages(level));
                let how = [How::Either, How::Either, How::ByCopying, How::InPlace][more as usize % 4];
                let (before, region) = (Before::of(self), Region { space, start, level });
                if let Err(why) = self.vm.promote_region(&mut self.pmap, &mut self.contents, region, how) {
                    before.not_promoted(self, why);
                }
            }
            REFUSED => must_be_refused(self, space, Vpn(start).pages(pages)),
            PRESS => {
                self.press(u64::from(length % 4) + 1, [1, 1, 7, 64][more as usize % 4]);
                if flags & GONE != 0 {
                    self.wait(|world| world.vm.remove_file(STREAM)).unwrap();
                }
            }
            kind => {
                let access = [Access::Read, Access::Write, Access::Write, Access::Execute][kind as usize % 4];
                for page in start..start + pages {
                    let page = if more & 1 != 0 { start + (page - start) * 7 % pages } else { page };
                    if !self.access(space, page, access, flags & SAME == SAME) {
                        if self.ends {
                            self.exec(space);
                        }
                        break;
                    }
                    self.answer_daemon();
                }
            }
        }
    }

    /// Checks the state and the counts.
    pub(crate) fn check(&self, op: Op) {
        if let Err(error) = self.vm.validate(&self.pmap) {
            panic!("after {op:?} under {:?}: {error}", self.vm.answers());
        }
        let stats = self.vm.stats();
        let kinds = [
            stats.faults_zero,
            stats.faults_file,
            stats.faults_swap,
            stats.faults_cached,
            stats.faults_resident,
            stats.faults_copy,
            stats.faults_rights,
            stats.faults_spurious,
        ];
        assert_eq!(stats.faults, kinds.iter().sum::<u64>());
        assert_eq!(self.pmap.mappings() as u64, self.vm.stats().mapped.iter().sum::<u64>());
        assert_eq!(self.vm.leaked_frames(), 0);
    }

    /// Reads or writes a page of a file without a mapping; the daemon makes room if need be. `None` if the file is not
    /// open, or if memory is full.
    fn access_file(&mut self, file: u32, page: u64, writing: bool) -> Option<Fault> {
        let access = |world: &mut World| {
            loop {
                let before = Before::of(world);
                let done = match writing {
                    true => world.vm.write(&mut world.contents, file, page),
                    false => world.vm.read(&world.pmap, &mut world.contents, file, page),
                };
                if let Err(error) = done {
                    before.unresolved(world, error);
                }
                match done {
                    Err(FaultError::Busy(frame)) => world.finish(frame),
                    Err(FaultError::Contents(_)) => {}
                    done => return done,
                }
            }
        };
        let mut done = access(self);
        if let Err(FaultError::OutOfMemory(_)) = done {
            assert_eq!(self.vm.buddy().free_frames(), 0);
            let mut made_room = self.vm.run_daemon(&mut self.pmap, &mut self.contents);
            while !made_room && let Some((frame, ..)) = self.contents.reading.first().copied() {
                self.finish(frame);
                made_room = self.vm.run_daemon(&mut self.pmap, &mut self.contents);
            }
            done = access(self);
            assert!(!made_room || done.is_ok(), "the daemon said that it made room");
        }
        let fault = done.ok()?;
        Some(fault)
    }

    /// Presses on memory: a file that does not fit is read until the daemon has run so often, or has twice filled memory.
    fn press(&mut self, runs: u64, stride: u64) {
        self.vm.open(STREAM, STREAM_PAGES).unwrap();
        let until = self.vm.stats().daemon_runs + runs;
        for _ in 0..2 * self.contents.memory.len() {
            let page = self.streamed % STREAM_PAGES;
            self.streamed += stride;
            let Some(fault) = self.access_file(STREAM, page, false) else { break };
            assert_eq!(self.contents.memory[fault.frame.0 as usize], 0, "page {page} of the long file was read");
            self.answer_daemon();
            if self.vm.stats().daemon_runs >= until {
                break;
            }
        }
        self.vm.close(STREAM).unwrap();
    }

    /// Opens, closes, reads, writes, writes out or removes a file.
    fn file(&mut self, file: u32, what: u8, start: u64, pages: u64) {
        let open = self.opens.entry(file).or_default();
        match what {
            OPEN => {
                self.vm.open(file, 200).unwrap();
                *open += 1;
            }
            CLOSE if *open > 0 => {
                self.vm.close(file).unwrap();
                *open -= 1;
            }
            CLOSE => assert!(self.attempt(|world| world.vm.close(file)).is_err()),
            READ_FILE | WRITE_FILE => {
                let open = *open > 0;
                for page in start..(start + pages).min(200) {
                    let Some(fault) = self.access_file(file, page, what == WRITE_FILE) else {
                        assert!(!open || self.vm.buddy().free_frames() == 0);
                        return;
                    };
                    assert!(open);
                    let frame = fault.frame.0 as usize;
                    if what == READ_FILE {
                        let expected = self.files.get(&(file, page)).copied().unwrap_or(0);
                        assert_eq!(self.contents.memory[frame], expected, "page {page} of file {file} was read");
                    } else {
                        self.written += 1;
                        self.contents.memory[frame] = self.written;
                        self.write_file(file, page, self.written);
                    }
                }
            }
            SYNC => {
                let sync = |world: &mut World| world.vm.sync(&mut world.pmap, &mut world.contents, file);
                let _ = self.attempt(sync);
                if self.attempt(sync).is_ok() && !self.through {
                    let mut written = self.files.iter().filter(|((of, _), _)| *of == file);
                    assert!(written.all(|(page, contents)| self.contents.disk.get(page).unwrap_or(&0) == contents));
                }
            }
            _ => {
                let mut all = self.slots.values().flat_map(|slots| slots.values());
                let of = |source: Source| match source {
                    Source::File { file, .. } | Source::Copied { file, .. } => Some(file),
                    Source::Cell { .. } => None,
                };
                // While it is mapped, it goes on living: what it then holds is for those who map it.
                if !all.any(|slot| of(slot.source) == Some(file)) {
                    self.wait(|world| world.vm.remove_file(file)).unwrap();
                    self.opens.remove(&file);
                    self.files.retain(|(of, _), _| *of != file);
                    let disk = self.contents.disk.iter().filter(|((of, _), _)| *of == file);
                    self.files.extend(disk.map(|(page, contents)| (*page, *contents)));
                }
            }
        }
    }

    /// A page of a file has new contents.
    fn write_file(&mut self, file: u32, page: u64, contents: u32) {
        self.files.insert((file, page), contents);
        if self.through {
            self.contents.disk.insert((file, page), contents);
        }
    }

    fn map(&mut self, space: SpaceId, range: PageRange, protection: Protection, op: Op) {
        let PageRange { start: Vpn(start), pages } = range;
        let [_, who, _, length, flags, more] = op;
        let shared = flags & SHARED != 0;
        let growth = [Growth::Fixed, Growth::Up, Growth::Down, Growth::Fixed][(more >> 4 & 3) as usize];
        let file = flags & OF_FILE != 0;
        // Half of them aligned as the file is, in its first part, which is not past its end.
        let offset = if more & AS_FILE != 0 { start % 128 } else { u64::from(length % 32) };
        let backing = match file {
            true => Backing::File { file: file_number(more), pages: 200, offset },
            false => Backing::Anonymous,
        };
        let map = Map::anonymous(Vpn(start), pages).protection(protection).shared(shared);
        // A quarter of them with a hint.
        let hint = [Hint::Huge, Hint::Base][who as usize >> 5 & 1];
        let hint = if who >> 6 == 3 { hint } else { Hint::None };
        let map = map.backing(backing).growth(growth).hint(hint);
        self.wait(|world| world.vm.map(&mut world.pmap, space, map)).unwrap();
        for page in start..start + pages {
            let source = match backing {
                Backing::Anonymous => Source::Cell { cell: self.cell(), shared },
                Backing::File { file, offset, .. } => Source::File { file, page: offset + page - start, shared },
            };
            let up = growth == Growth::Up && !file;
            self.slots(space).insert(page, Slot { source, protection, up, hint, begun: None });
        }
    }

    fn discard(&mut self, space: SpaceId, start: u64, pages: u64) {
        self.wait(|world| world.vm.discard(&mut world.pmap, space, Vpn(start).pages(pages))).unwrap();
        for page in start..start + pages {
            let Some(slot) = self.slots(space).get(&page).copied() else { continue };
            if let Source::Cell { cell, shared: true } = slot.source {
                self.discarded.insert(cell);
            }
            let source = match slot.source {
                Source::Cell { shared: false, .. } => Source::Cell { cell: self.cell(), shared: false },
                Source::Copied { file, page, .. } => Source::File { file, page, shared: false },
                // Whether what is shared is lost depends on whether anybody else has it: see `access`.
                source => source,
            };
            self.slots(space).insert(page, Slot { source, begun: None, ..slot });
        }
    }

    fn grow(&mut self, space: SpaceId, start: u64, pages: u64) {
        let Some(slot) = self.slots(space).get(&start).filter(|slot| slot.up).copied() else {
            let nothing = !self.slots(space).contains_key(&start);
            let refused = |world: &mut World| world.vm.grow(&mut world.pmap, space, Vpn(start), pages);
            assert!(!nothing || self.attempt(refused).is_err());
            return;
        };
        let pages = pages % 200;
        // Only where a mapping starts, which protection may have moved, can it grow from.
        let grow = |world: &mut World| world.vm.grow(&mut world.pmap, space, Vpn(start), pages);
        if self.wait(grow).is_err() {
            return;
        }
        let old = (start..).find(|page| !self.slots[&space].get(page).is_some_and(|slot| slot.up)).unwrap();
        let end = start + pages;
        let last = if old > start { self.slots[&space][&(old - 1)] } else { slot };
        self.forget(space, end.min(old), end.max(old));
        // Of what is new the program has asked nothing yet.
        let last = Slot { hint: Hint::None, begun: None, ..last };
        (old..end).for_each(|page| self.extend(space, page, last, 0));
    }

    /// A page that a longer mapping added, `ahead` pages after the end of its old one.
    fn extend(&mut self, space: SpaceId, at: u64, last: Slot, ahead: u64) {
        let source = match last.source {
            Source::Cell { shared, .. } => Source::Cell { cell: self.cell(), shared },
            Source::File { file, page, shared } => Source::File { file, page: page + ahead, shared },
            Source::Copied { file, page, .. } => Source::File { file, page: page + ahead, shared: false },
        };
        self.slots(space).insert(at, Slot { source, begun: None, ..last });
    }

    fn remap(&mut self, space: SpaceId, from: u64, from_pages: u64, op: Op) {
        let [_, _, _, length, flags, more] = op;
        let to = if more & IN_PLACE != 0 { from } else { (u64::from(length) * 8 + u64::from(flags >> 3)) % PAGES };
        let to_pages = match flags & (QUARTER | FOURFOLD) {
            _ if more & 8 != 0 => from_pages,
            QUARTER => from_pages.div_ceil(4),
            FOURFOLD => 4 * from_pages,
            _ => u64::from(more) + 1,
        };
        let (from_range, to_range) = (Vpn(from).pages(from_pages), Vpn(to).pages(to_pages));
        let remap = |world: &mut World| world.vm.remap(&mut world.pmap, space, from_range, to_range);
        if self.wait(remap).is_err() {
            return;
        }
        let moving = from_pages.min(to_pages);
        let moved: Vec<(u64, Slot)> = self.slots(space).range(from..from + moving).map(|(p, s)| (*p, *s)).collect();
        self.forget(space, from, from + from_pages);
        self.forget(space, to, to + to_pages);
        self.slots(space).extend(moved.iter().map(|(page, slot)| (page - from + to, *slot)));
        if let Some(last) = self.slots[&space].get(&(to + moving - 1)).copied() {
            (moving..to_pages).for_each(|page| self.extend(space, to + page, last, page + 1 - moving));
        }
    }

    /// A program's access: the hardware's, or the fault and then the hardware's. A write may write the `same` as was there.
    /// `false` if memory is full.
    fn access(&mut self, space: SpaceId, page: u64, access: Access, same: bool) -> bool {
        let at = Vpn(page);
        let slot = self.slots[&space].get(&page).copied();
        let allowed = slot.is_some_and(|slot| slot.protection.allows(access));
        assert_eq!(self.vm.hint(space, at), slot.map(|slot| slot.hint), "the hint of page {page:#x} of {space:?}");
        let promotions = |vm: &Vm| vm.stats().promotions.iter().sum::<u64>();
        // The daemon may have to make room, once.
        let (mut steps, mut daemon) = (0, false);
        while !self.pmap.access(space, at, access) {
            if self.vm.wants_misses() {
                self.vm.missed(&self.pmap, space, at);
            }
            // Now and then a read is over that nobody waits for.
            if self.contents.choose(4) == 0
                && let Some((frame, ..)) = self.contents.reading.last().copied()
            {
                self.finish(frame);
            }
            steps += 1;
            assert!(steps < 3, "the access faults again and again");
            let (promoted, before) = (promotions(&self.vm), Before::of(self));
            let done = self.vm.fault(&mut self.pmap, &mut self.contents, space.page(at), access);
            if let Err(error) = done {
                before.unresolved(self, error);
            }
            match done {
                Ok(fault) => {
                    let slot = slot.expect("only what is mapped can fault in");
                    if !self.vm.answers().place.hints.allow(slot.hint) {
                        assert_eq!(promotions(&self.vm), promoted, "a superpage is made against the program's hint");
                        assert_eq!(fault.allocated.unwrap_or(Level::BASE), Level::BASE);
                    }
                    match (fault.kind, slot.source) {
                        (FaultKind::Zero, Source::Cell { cell, shared: true }) => {
                            assert!(
                                self.cells[cell] == 0 || self.discarded.contains(&cell),
                                "shared contents are lost"
                            );
                            self.cells[cell] = 0;
                        }
                        (FaultKind::File, source @ Source::Cell { .. }) => panic!("{source:?} was read from a file"),
                        _ => {}
                    }
                    let mapped = self.pmap.lookup(space, at).expect("a resolved fault has mapped the page");
                    assert_eq!(mapped.frame, fault.frame);
                    // A kernel may also let it run before the program.
                    if page.is_multiple_of(2) {
                        self.answer_daemon();
                    }
                }
                Err(FaultError::Busy(frame)) => {
                    assert!(allowed);
                    // Somebody else may have to wait for it, or nobody.
                    if self.contents.choose(2) == 0 {
                        let begun =
                            self.contents.reading.iter().find(|(into, ..)| *into == frame).map(|(.., then)| *then);
                        self.slots(space).entry(page).and_modify(|slot| slot.begun = begun);
                        return true;
                    }
                    self.finish(frame);
                    (steps, daemon) = (0, false);
                }
                Err(FaultError::Unmapped(_)) => {
                    assert!(slot.is_none());
                    return true;
                }
                Err(FaultError::Protection(..)) => {
                    assert!(slot.is_some() && !allowed);
                    return true;
                }
                Err(FaultError::OutOfMemory(_)) => {
                    assert!(allowed && self.vm.buddy().free_frames() == 0);
                    assert!(!daemon, "the daemon said that it made room");
                    daemon = self.vm.run_daemon(&mut self.pmap, &mut self.contents);
                    let reading = self.contents.reading.first().copied();
                    match reading.filter(|_| !daemon) {
                        // What it was read into is busy no more, and may go.
                        Some((frame, ..)) => {
                            self.finish(frame);
                            steps = 0;
                        }
                        None if !daemon => return false,
                        None => {}
                    }
                }
                // The store has failed, which it does not do twice.
                Err(FaultError::Contents(_)) => {
                    assert!(allowed);
                    steps = 0;
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(allowed, "an access went through that the mapping does not allow");
        let frame = self.pmap.lookup(space, at).unwrap().frame.0 as usize;
        let source = slot.unwrap().source;
        // What was given up may be populated again, with zeroes, by a fault on a page beside it.
        if let Source::Cell { cell, shared: true } = source
            && self.discarded.contains(&cell)
            && self.contents.memory[frame] == 0
        {
            self.cells[cell] = 0;
        }
        let expected = match source {
            Source::Cell { cell, .. } | Source::Copied { cell, .. } => self.cells[cell],
            Source::File { file, page, shared } => {
                let begun = slot.unwrap().begun.filter(|begun| !shared && *begun == self.contents.memory[frame]);
                begun.or_else(|| self.files.get(&(file, page)).copied()).unwrap_or(0)
            }
        };
        assert_eq!(self.contents.memory[frame], expected, "the contents of page {page:#x} of {space:?}, {source:?}");
        if access == Access::Write {
            let contents = if same { expected } else { self.written + 1 };
            self.written = self.written.max(contents);
            self.contents.memory[frame] = contents;
            match source {
                Source::Cell { cell, .. } | Source::Copied { cell, .. } => self.cells[cell] = contents,
                Source::File { file, page, shared: true } => self.write_file(file, page, contents),
                Source::File { file, page: of, shared: false } => {
                    let cell = self.cell();
                    self.cells[cell] = contents;
                    self.slots(space).get_mut(&page).unwrap().source = Source::Copied { cell, file, page: of };
                }
            }
        }
        true
    }

    /// Ends all processes: every frame but the wired ones must be free again, and as contiguous as at the start.
    pub(crate) fn end(mut self) {
        for space in std::mem::take(&mut self.spaces) {
            self.wait(|world| world.vm.exit(&mut world.pmap, space)).unwrap();
            self.slots.remove(&space);
            self.vm.validate(&self.pmap).unwrap();
        }
        (0..=STREAM).for_each(|file| self.wait(|world| world.vm.remove_file(file)).unwrap());
        assert_eq!((self.contents.reading.len(), self.vm.busy_frames().count()), (0, 0));
        self.kernel.iter().for_each(|frame| self.vm.unwire_page(*frame).unwrap());
        self.vm.validate(&self.pmap).unwrap();
        let mut fresh = Buddy::new(*self.vm.ladder(), self.contents.memory.len() as u64).unwrap();
        assert!(self.wired.iter().all(|extent| fresh.allocate_at(*extent)));
        assert!(self.vm.buddy().iter().eq(fresh.iter()), "the buddy allocator has not coalesced what was freed");
        assert_eq!((self.vm.leaked_frames(), self.pmap.mappings()), (0, 0));
    }
}
