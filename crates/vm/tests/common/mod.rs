//! A small world for property tests and the fuzzer: a memory manager, page tables in software, and
//! beside them what programs may rely on, that each page holds what was last written to it.
//! Operations are read from bytes, so that any sequence of bytes is a sequence of operations; the
//! whole state is validated after every one.

mod access;
mod contents;
mod files;
mod mappings;
mod refused;
mod scenario;
mod setting;
mod watch;

use contents::Contents;
use refused::{Before, must_be_refused};
use scenario::*;
pub(crate) use scenario::{COLLAPSED, Op, PROGRAM, plain, scenario};
pub(crate) use setting::{Setting, setting, setting_of};
use std::collections::{BTreeMap, HashMap, HashSet};
use superpage_pages::{Access, Extent, Hint, Level, Pfn, Protection, Vpn};
use superpage_vm::{Buddy, Definition, Error, How, NoContents, Region, SoftPmap, SpaceId, Vm};

/// Sizes in pages: all operations lie below this page.
const PAGES: u64 = 1024;

/// A long file that is only read, to press on memory.
const STREAM: u32 = 8;

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
    /// Of a page of a file, what its file held when a read of it began on which this process then
    /// did not wait: its own copy, where the read was for one, is of that time.
    begun: Option<u32>,
}

/// Whether a call was refused since it would cut a page of the static pool, or ask something of
/// one.
fn cuts_pool(done: Result<(), Error>) -> bool {
    match done {
        Ok(()) => false,
        Err(Error::PoolPage(_)) => true,
        Err(error) => panic!("{error}"),
    }
}

/// The number of the file that an operation works on, from its last byte: below that of the long
/// one.
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
    /// Whether pages of files are lost with their last mapping: then every write goes to the file
    /// at once.
    through: bool,
    /// Whether the daemon comes when it is called, and not only when memory is full.
    daemon_comes: bool,
    /// Whether a process ends that finds no memory.
    ends: bool,
    /// Whether each access that goes through is a miss in the TLBs.
    misses: bool,
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
        World::with(setting, &watch::WATCH)
    }

    /// The same, where the policy of the setting may be this one.
    pub(crate) fn with(setting: Setting, own: &'static Definition) -> World {
        let (config, mapped) = (setting.config(setting.policy(own)), setting.mapped());
        let Setting { daemon_comes, ends, .. } = setting;
        let frames = config.frames;
        let through = config.policy.answers.reclaim.pages == superpage_vm::Reclaim::Nothing;
        let mut vm = Vm::new(config).unwrap();
        vm.make_pool().unwrap();
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
            misses: false,
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

    /// The same with a slow store that fails now and then: half of what is read comes later, when
    /// somebody waits for it, or of itself.
    pub(crate) fn slow(mut self) -> World {
        self.contents.slow();
        self
    }

    /// The same with TLBs that miss at each access, and hold a neighbour of most pages.
    pub(crate) fn missing(mut self) -> World {
        self.misses = true;
        self
    }

    /// The read into a frame is over; now and then it has failed, and what was read is asked for
    /// again.
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
                let unmap = |world: &mut World| world.vm.unmap(&mut world.pmap, space, Vpn(start).pages(pages));
                if cuts_pool(self.wait(unmap)) {
                    return;
                }
                self.forget(space, start, start + pages);
            }
            PROTECT | 6 => {
                let range = Vpn(start).pages(pages);
                if cuts_pool(self.attempt(|world| world.vm.protect(&mut world.pmap, space, range, protection))) {
                    return;
                }
                self.slots(space).range_mut(start..start + pages).for_each(|(_, slot)| slot.protection = protection);
            }
            ADVISE => {
                let hint = [Hint::None, Hint::None, Hint::Huge, Hint::Base][flags as usize >> 6];
                let range = Vpn(start).pages(pages);
                if cuts_pool(self.attempt(|world| world.vm.advise(&mut world.pmap, space, range, hint))) {
                    return;
                }
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
            // Somebody else's pages, and an allocator that has run for long.
            UNWIRE_PAGE => {
                let few = self.vm.stats().foreign_frames < 20;
                for frame in start..start + u64::from(length % 8).min(pages) {
                    if few && self.attempt(|world| world.vm.hold(Pfn(frame))).is_ok() && more % 8 == 7 {
                        self.vm.scatter(frame).unwrap();
                    }
                }
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
            stats.faults_zero_page,
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

    /// Ends all processes: every frame but the wired ones and somebody else's must be free again,
    /// and as contiguous as at the start.
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
        assert!(self.vm.pool().chain(self.vm.zero_page()).all(|extent| fresh.allocate_at(extent)));
        let held: Vec<Pfn> = self.vm.held().collect();
        assert!(held.iter().all(|frame| fresh.allocate_at(Extent { start: *frame, level: Level::BASE })));
        assert!(self.vm.buddy().iter().eq(fresh.iter()), "the buddy allocator has not coalesced what was freed");
        assert_eq!((self.vm.leaked_frames(), self.pmap.mappings()), (0, 0));
    }
}
