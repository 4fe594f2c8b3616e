//! The manager on real page tables: those of x86-64, in bytes of a memory that programs read
//! through them, by way of a TLB that forgets nothing until it is told to. Each byte that is read
//! is held against what was written last.

#[path = "../../../kernel/src/tables.rs"]
pub(crate) mod tables;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use superpage_pages::{Access, Ladder, Level, Pfn, Protection, Random, Vpn};
use superpage_vm::{Backed, Config, FaultError, Filled, How, Map, Memory, NoContents, Page, Pmap, Region, SpaceId, Vm};
use tables::{MANY, Machine, Tables};

const PAGE: usize = 4096;

/// What memory holds where nobody has written.
const JUNK: u8 = 0xa5;

/// An entry of the TLB: of the leaf entry that it was filled from.
#[derive(Clone, Copy)]
struct Entry {
    bits: u64,
    dirty: bool,
}

#[derive(Default)]
struct Physical {
    /// `None`: all zeroes.
    frames: HashMap<u64, Option<Box<[u8; PAGE]>>>,
    swap: HashMap<u32, [u8; PAGE]>,
    /// By space, level and page.
    tlb: HashMap<(SpaceId, usize, u64), Entry>,
    invalidated: usize,
    flushed: usize,
}

impl Physical {
    fn frame(&mut self, frame: Pfn) -> &mut [u8; PAGE] {
        let junk = || Some(Box::new([JUNK; PAGE]));
        self.frames.entry(frame.0).or_insert_with(junk).get_or_insert_with(|| Box::new([0; PAGE]))
    }

    fn word(&mut self, table: Pfn, index: usize) -> u64 {
        u64::from_le_bytes(self.frame(table)[index * 8..][..8].try_into().unwrap())
    }

    fn set_word(&mut self, table: Pfn, index: usize, word: u64) {
        self.frame(table)[index * 8..][..8].copy_from_slice(&word.to_le_bytes());
    }

    /// What the processor does: the frame of a page, by the TLB or by the tables from `root` on.
    /// `None`: it faults.
    fn translate(&mut self, root: Option<Pfn>, space: SpaceId, at: Vpn, access: Access) -> Option<Pfn> {
        let allows = |bits: u64| match access {
            Access::Read => true,
            Access::Write => bits & 2 > 0,
            Access::Execute => bits >> 63 == 0,
        };
        let within =
            |bits: u64, level: usize| Pfn(((bits & 0x000f_ffff_ffff_f000) >> 12) + (at.0 & ((1 << (9 * level)) - 1)));
        for level in 0..3 {
            let key = (space, level, at.0 >> (9 * level));
            let Some(entry) = self.tlb.get(&key) else { continue };
            if allows(entry.bits) && (access != Access::Write || entry.dirty) {
                return Some(within(entry.bits, level));
            }
            // It walks for the dirty bit, and an entry that would fault is forgotten.
            self.tlb.remove(&key);
        }
        let (mut table, mut level) = (root?, 3);
        loop {
            let index = (at.0 >> (9 * level) & 511) as usize;
            let bits = self.word(table, index);
            if bits & 1 == 0 {
                return None;
            }
            if level > 0 && bits & 0x80 == 0 {
                (table, level) = (within(bits, 0), level - 1);
                continue;
            }
            if !allows(bits) {
                return None;
            }
            let dirty = access == Access::Write;
            let bits = bits | 0x20 | if dirty { 0x40 } else { 0 };
            self.set_word(table, index, bits);
            self.tlb.insert((space, level, at.0 >> (9 * level)), Entry { bits, dirty: bits & 0x40 > 0 });
            return Some(within(bits, level));
        }
    }
}

#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Physical>>);

impl Machine for Shared {
    fn read(&self, table: Pfn, index: usize) -> u64 {
        self.0.borrow_mut().word(table, index)
    }

    fn write(&mut self, table: Pfn, index: usize, entry: u64) {
        self.0.borrow_mut().set_word(table, index, entry);
    }

    fn take(&mut self, table: Pfn, index: usize) -> u64 {
        let mut physical = self.0.borrow_mut();
        let entry = physical.word(table, index);
        physical.set_word(table, index, 0);
        entry
    }

    fn invalidate(&mut self, space: SpaceId, stale: &[Vpn]) {
        assert!(stale.len() <= MANY);
        let mut physical = self.0.borrow_mut();
        physical.invalidated += stale.len();
        for at in stale {
            for level in 0..3 {
                physical.tlb.remove(&(space, level, at.0 >> (9 * level)));
            }
        }
    }

    fn invalidate_here(&mut self, space: SpaceId, at: Vpn) {
        self.invalidate(space, &[at]);
    }

    fn invalidate_all(&mut self, space: SpaceId) {
        let mut physical = self.0.borrow_mut();
        physical.flushed += 1;
        physical.tlb.retain(|(of, _, _), _| *of != space);
    }
}

impl Memory for Shared {
    fn zero(&mut self, first: Pfn, frames: u64, _: Page) -> Result<(), NoContents> {
        let mut physical = self.0.borrow_mut();
        (first.0..first.0 + frames).for_each(|frame| drop(physical.frames.insert(frame, None)));
        Ok(())
    }

    fn copy(&mut self, from: Pfn, to: Pfn, _: Page) {
        let mut physical = self.0.borrow_mut();
        let contents = *physical.frame(from);
        *physical.frame(to) = contents;
    }

    fn read(&mut self, from: Backed, to: Pfn, _: Page) -> Result<Filled, NoContents> {
        let Backed::Swap { slot } = from else { return Err(NoContents) };
        let mut physical = self.0.borrow_mut();
        let contents = physical.swap[&slot];
        *physical.frame(to) = contents;
        Ok(Filled::Now)
    }

    fn write(&mut self, to: Backed, frame: Pfn) {
        let Backed::Swap { slot } = to else { panic!("there are no files here") };
        let mut physical = self.0.borrow_mut();
        let contents = *physical.frame(frame);
        physical.swap.insert(slot, contents);
    }

    fn digest(&mut self, _: Pfn) -> u128 {
        panic!("no policy here asks for digests")
    }
}

type Program = HashMap<u64, (Protection, Option<Box<[u8; PAGE]>>)>;

struct Kernel {
    vm: Vm,
    pmap: Tables<Shared>,
    memory: Shared,
    /// What programs rely on: the rights of each mapped page, and what it holds; no bytes are all
    /// zeroes.
    programs: HashMap<SpaceId, Program>,
}

impl Kernel {
    fn new(frames: u64, policy: &str, swap_pages: u64) -> Kernel {
        let (ladder, policy) = (Ladder::X86_64, policy.parse().unwrap());
        let vm = Vm::new(Config { ladder, frames, policy, swap_pages }).unwrap();
        let memory = Shared::default();
        Kernel { vm, pmap: Tables::new(memory.clone()), memory, programs: HashMap::new() }
    }

    fn begin(&mut self) -> SpaceId {
        let space = self.vm.create_space();
        self.programs.insert(space, HashMap::new());
        space
    }

    fn check(&self) {
        self.vm.validate(&self.pmap).unwrap();
        assert_eq!(self.vm.stats().table_frames, self.pmap.frames() as u64);
    }

    fn map(&mut self, space: SpaceId, start: u64, pages: u64) {
        self.vm.map(&mut self.pmap, space, Map::anonymous(Vpn(start), pages)).unwrap();
        let program = self.programs.get_mut(&space).unwrap();
        program.extend((start..start + pages).map(|page| (page, (Protection::READ_WRITE, None))));
    }

    fn unmap(&mut self, space: SpaceId, start: u64, pages: u64) {
        self.vm.unmap(&mut self.pmap, space, Vpn(start).pages(pages)).unwrap();
        self.programs.get_mut(&space).unwrap().retain(|page, _| !(start..start + pages).contains(page));
    }

    fn exit(&mut self, space: SpaceId) {
        self.vm.exit(&mut self.pmap, space).unwrap();
        self.programs.remove(&space);
    }

    /// An access of a program: the frame, after as many faults as it takes; or it is told that it
    /// may not.
    fn access(&mut self, space: SpaceId, at: u64, access: Access) -> Result<Pfn, FaultError> {
        for _ in 0..64 {
            let root = self.pmap.root(space);
            if let Some(frame) = self.memory.0.borrow_mut().translate(root, space, Vpn(at), access) {
                return Ok(frame);
            }
            match self.vm.fault(&mut self.pmap, &mut self.memory, space.page(Vpn(at)), access) {
                Ok(_) => {}
                Err(FaultError::OutOfMemory(_)) => {
                    assert!(self.vm.run_daemon(&mut self.pmap, &mut self.memory), "memory is full for ever");
                }
                Err(error) => return Err(error),
            }
        }
        panic!("64 faults at {at} of {space:?}");
    }

    /// Writes some bytes of a page, or reads all of it; both as the program may.
    fn use_page(&mut self, space: SpaceId, at: u64, write: Option<(usize, u8)>) {
        let access = if write.is_some() { Access::Write } else { Access::Read };
        let known = self.programs[&space].get(&at).map(|(rights, _)| *rights);
        let frame = match (self.access(space, at, access), known) {
            (Ok(frame), Some(rights)) if rights.allows(access) => frame,
            (Err(FaultError::Unmapped(_)), None) => return,
            (Err(FaultError::Protection(..)), Some(rights)) if !rights.allows(access) => return,
            (found, known) => panic!("{access:?} of {at}: {found:?} with {known:?}"),
        };
        let mut physical = self.memory.0.borrow_mut();
        let bytes = physical.frame(frame);
        let (_, expected) = self.programs.get_mut(&space).unwrap().get_mut(&at).unwrap();
        if let Some((offset, byte)) = write {
            bytes[offset..].iter_mut().step_by(97).for_each(|place| *place = byte);
            let expected = expected.get_or_insert_with(|| Box::new([0; PAGE]));
            expected[offset..].iter_mut().step_by(97).for_each(|place| *place = byte);
        }
        let expected: &[u8] = expected.as_deref().map_or(&[0; PAGE], |bytes| bytes);
        assert!(bytes[..] == *expected, "page {at} of {space:?} in {frame:?} does not hold what was written");
    }
}

#[test]
fn programs_read_what_they_wrote_whatever_the_kernel_does_meanwhile() {
    const POLICIES: [&str; 9] = [
        "base",
        "reservation",
        "reservation:threshold=4/8",
        "reservation:accessed=all",
        "reservation:demote-on-unmap=on,stepwise=off",
        "freebsd",
        "talluri-hill",
        "thp",
        "thp:promote=never",
    ];
    for (seed, policy) in POLICIES.into_iter().enumerate() {
        let (mut random, mut kernel) = (Random::new(2002 + seed as u64), Kernel::new(4096, policy, 20_000));
        let mut spaces = vec![kernel.begin()];
        // Far apart, so that each has tables of its own up to the root's.
        let areas = [0, 1 << 20, 1 << 27, (1 << 35) - 4096];
        kernel.map(spaces[0], 0, 3000);
        let (mut promotions, mut tables) = (0, 0);
        for step in 0..400 {
            let space = spaces[random.below(spaces.len() as u64) as usize];
            let area = areas[random.below(4) as usize];
            let (start, pages) = (area + random.below(3000), 1 + random.below(1000));
            match random.below(40) {
                0 => kernel.map(space, area + random.below(3) * 512, 512 * (1 + random.below(3))),
                1 => kernel.map(space, start, pages),
                2 => kernel.unmap(space, start, pages),
                3 => {
                    let rights = [Protection::READ, Protection::READ_WRITE, Protection::NONE][random.below(3) as usize];
                    kernel.vm.protect(&mut kernel.pmap, space, Vpn(start).pages(pages), rights).unwrap();
                    let program = kernel.programs.get_mut(&space).unwrap();
                    let inside = |page: &u64| (start..start + pages).contains(page);
                    program.iter_mut().filter(|(page, _)| inside(page)).for_each(|(_, page)| page.0 = rights);
                }
                4 => {
                    kernel.vm.discard(&mut kernel.pmap, space, Vpn(start).pages(pages)).unwrap();
                    let program = kernel.programs.get_mut(&space).unwrap();
                    let inside = |page: &u64| (start..start + pages).contains(page);
                    program.iter_mut().filter(|(page, _)| inside(page)).for_each(|(_, page)| page.1 = None);
                }
                5 if spaces.len() < 4 => {
                    let child = kernel.vm.fork(&mut kernel.pmap, space).unwrap();
                    let copy = kernel.programs[&space].clone();
                    kernel.programs.insert(child, copy);
                    spaces.push(child);
                }
                6 if spaces.len() > 1 => {
                    spaces.retain(|other| *other != space);
                    kernel.exit(space);
                }
                7 => {
                    // One of 1024 pages moves to another area, by whole superpages or not.
                    let (from, to) = (area, areas[random.below(4) as usize] + 1536 + random.below(2) * 100);
                    let whole = (from..from + 512).all(|page| kernel.programs[&space].contains_key(&page));
                    if whole && from != to {
                        let moved = Vpn(from).pages(512);
                        kernel.vm.remap(&mut kernel.pmap, space, moved, Vpn(to).pages(512)).unwrap();
                        let program = kernel.programs.get_mut(&space).unwrap();
                        for page in 0..512 {
                            let contents = program.remove(&(from + page)).unwrap();
                            program.insert(to + page, contents);
                        }
                    }
                }
                8..15 => {
                    (0..pages).for_each(|page| kernel.use_page(space, start + page, Some((page as usize, step as u8))))
                }
                15..20 => (0..512).for_each(|page| kernel.use_page(space, area + page, Some((7, step as u8)))),
                20..25 => (0..pages).for_each(|page| kernel.use_page(space, start + page, None)),
                _ => (0..50).for_each(|_| {
                    let write = (random.below(2) > 0).then(|| (random.below(PAGE as u64) as usize, step as u8));
                    kernel.use_page(space, start + random.below(600), write);
                }),
            }
            if kernel.vm.daemon_wanted() {
                kernel.vm.run_daemon(&mut kernel.pmap, &mut kernel.memory);
            }
            kernel.check();
            tables = tables.max(kernel.pmap.frames());
            promotions = kernel.vm.stats().promotions.iter().sum();
        }
        assert_eq!(promotions > 0, !["base", "thp:promote=never"].contains(&policy), "{policy}");
        assert!(kernel.vm.stats().page_ins > 100 && tables > 20, "{policy}: {tables} tables");
        let all: Vec<SpaceId> = kernel.programs.keys().copied().collect();
        for space in all {
            let pages: Vec<u64> = kernel.programs[&space].keys().copied().collect();
            pages.into_iter().for_each(|page| kernel.use_page(space, page, None));
            kernel.exit(space);
        }
        kernel.check();
        assert_eq!((kernel.pmap.frames(), kernel.vm.kernel_frames()), (0, 0), "{policy}");
        assert_eq!(kernel.vm.buddy().free_frames(), 4096, "{policy}");
    }
}

/// One of 1 GB, of which a page goes when no frame is free: the tables that it takes were kept.
#[test]
fn a_page_of_a_gigabyte_is_demoted_with_no_frame_free() {
    const GIGABYTE: u64 = 1 << 18;
    let mut kernel = Kernel::new(2 * GIGABYTE, "reservation", 0);
    let space = kernel.begin();
    kernel.map(space, GIGABYTE, GIGABYTE);
    for page in 0..GIGABYTE {
        kernel.access(space, GIGABYTE + page, Access::Write).unwrap();
    }
    assert_eq!(kernel.vm.stats().mapped[2], 1);
    // A root, a table of the third level, and the 513.
    assert_eq!(kernel.pmap.frames(), 515);
    let mut taken = Vec::new();
    while let Ok(frame) = kernel.vm.wire_page() {
        taken.push(frame);
    }
    assert_eq!(kernel.vm.buddy().free_frames(), 0);
    kernel.unmap(space, GIGABYTE + 1000, 1);
    kernel.check();
    assert_eq!(kernel.vm.stats().mapped[..3], [511, 511, 0]);
    kernel.unmap(space, GIGABYTE, GIGABYTE);
    assert_eq!(kernel.pmap.frames(), 1);
    taken.into_iter().for_each(|frame| kernel.vm.unwire_page(frame).unwrap());
    kernel.exit(space);
    kernel.check();
}

/// The same of one that was made by copying, where few of its tables were there.
#[test]
fn a_copied_superpage_has_the_tables_of_its_demotion() {
    const GIGABYTE: u64 = 1 << 18;
    for level in [Level(1), Level(2)] {
        for first in [0, 1] {
            let mut kernel = Kernel::new(3 * GIGABYTE, "base", 0);
            let space = kernel.begin();
            kernel.map(space, GIGABYTE, GIGABYTE);
            let pages = Ladder::X86_64.pages(level);
            let used: Vec<u64> = (first..pages).step_by(pages as usize / 7).map(|page| GIGABYTE + page).collect();
            used.iter().for_each(|page| kernel.use_page(space, *page, Some((3, *page as u8))));
            let (pmap, memory) = (&mut kernel.pmap, &mut kernel.memory);
            let promoted = kernel
                .vm
                .promote_region(pmap, memory, Region { space, start: Vpn(GIGABYTE), level }, How::Either)
                .unwrap();
            assert_eq!(promoted.copied, used.len() as u64);
            kernel.check();
            let mut taken = Vec::new();
            while let Ok(frame) = kernel.vm.wire_page() {
                taken.push(frame);
            }
            kernel.unmap(space, GIGABYTE + pages / 2 + 1, 1);
            used.iter().for_each(|page| kernel.use_page(space, *page, None));
            kernel.use_page(space, GIGABYTE + 5, None);
            kernel.check();
            taken.into_iter().for_each(|frame| kernel.vm.unwire_page(frame).unwrap());
            kernel.exit(space);
            kernel.check();
            assert_eq!(kernel.vm.buddy().free_frames(), 3 * GIGABYTE);
        }
    }
}

#[test]
fn what_one_call_takes_away_is_invalidated_once() {
    let mut kernel = Kernel::new(16_384, "base", 0);
    let space = kernel.begin();
    kernel.map(space, 0, 8024);
    (0..8024).for_each(|page| kernel.use_page(space, page, Some((0, 1))));
    let told = |kernel: &Kernel| (kernel.memory.0.borrow().invalidated, kernel.memory.0.borrow().flushed);
    assert_eq!(told(&kernel), (0, 0));
    let child = kernel.vm.fork(&mut kernel.pmap, space).unwrap();
    assert_eq!(told(&kernel), (0, 1));
    kernel.vm.protect(&mut kernel.pmap, space, Vpn(0).pages(20), Protection::NONE).unwrap();
    assert_eq!(told(&kernel), (20, 1));
    kernel.unmap(space, 20, 8004);
    assert_eq!(told(&kernel), (20, 2));
    kernel.vm.exit(&mut kernel.pmap, child).unwrap();
    kernel.exit(space);
    kernel.check();
    assert_eq!(kernel.vm.stats().mapped[Level::BASE.index()], 0);
}

/// To a place whose tables the move itself empties: those of the page alone, or the next level's
/// too.
#[test]
fn a_page_moves_to_where_its_own_table_was() {
    for by in [1, 512, 1 << 18, 1 << 27] {
        let mut kernel = Kernel::new(64, "base", 0);
        let space = kernel.begin();
        kernel.map(space, 4096, 1);
        kernel.use_page(space, 4096, Some((9, 1)));
        kernel.vm.remap(&mut kernel.pmap, space, Vpn(4096).pages(1), Vpn(4096 + by).pages(1)).unwrap();
        kernel.check();
        let moved = kernel.pmap.lookup(space, Vpn(4096 + by)).expect("it is mapped there");
        assert_eq!(kernel.memory.0.borrow_mut().frame(moved.frame)[9], 1);
        kernel.exit(space);
        kernel.check();
        assert_eq!(kernel.vm.buddy().free_frames(), 64);
    }
}

#[test]
fn a_fault_that_finds_no_frame_for_a_table_leaves_nothing_behind() {
    for policy in ["base", "reservation", "thp"] {
        let mut kernel = Kernel::new(1024, policy, 0);
        let space = kernel.begin();
        kernel.map(space, 0, 1024);
        let mut taken = Vec::new();
        while let Ok(frame) = kernel.vm.wire_page() {
            taken.push(frame);
        }
        let mut given_back = 0;
        loop {
            let fault = kernel.vm.fault(&mut kernel.pmap, &mut kernel.memory, space.page(Vpn(600)), Access::Write);
            kernel.check();
            match fault {
                Ok(_) => break,
                Err(FaultError::OutOfMemory(_)) => assert_eq!(kernel.vm.stats().resident_pages, 0),
                Err(error) => panic!("{policy}: {error}"),
            }
            kernel.vm.unwire_page(taken.pop().unwrap()).unwrap();
            given_back += 1;
        }
        // Four tables and the page.
        assert_eq!((given_back, kernel.vm.stats().resident_pages), (5, 1), "{policy}");
        taken.into_iter().for_each(|frame| kernel.vm.unwire_page(frame).unwrap());
        kernel.exit(space);
        kernel.check();
        assert_eq!(kernel.vm.buddy().free_frames(), 1024, "{policy}");
    }
}

/// An extent of 1 GB is free, but not the 513 tables that it would take.
#[test]
fn an_extent_whose_tables_cannot_be_had_is_not_taken() {
    const GIGABYTE: u64 = 1 << 18;
    let mut kernel = Kernel::new(GIGABYTE + 64, "mthp:size=1G", 0);
    let space = kernel.begin();
    kernel.map(space, GIGABYTE, GIGABYTE);
    kernel.use_page(space, GIGABYTE + 7, Some((1, 1)));
    kernel.check();
    let stats = kernel.vm.stats();
    assert_eq!((stats.resident_pages, &stats.mapped[..3], stats.faults_out_of_memory), (1, &[1, 0, 0][..], 0));
    kernel.exit(space);
    kernel.check();
    assert_eq!(kernel.vm.buddy().free_frames(), GIGABYTE + 64);
}
