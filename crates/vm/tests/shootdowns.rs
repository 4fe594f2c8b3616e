//! Two processors run threads of one address space, as in `kernel/`, under a scheduler that tries
//! interleavings: its page tables, its lock and its shootdowns are those files of the kernel. A TLB
//! here forgets nothing until it must, a walk is interrupted between any two levels, and an access
//! between its translation and the word. Each word is held against what was written last.
//!
//! The model can fail: it finds what is wrong with kernels that shoot nothing down, that do not
//! wait for the answer, or whose processors do not answer while they wait for the lock.

#[path = "../../../kernel/src/shootdown.rs"]
mod shootdown;

/// What `shootdown.rs` synchronizes by.
mod sync {
    pub(crate) use shuttle::hint::spin_loop;
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
}

use crate::x86_64::tables;
use shootdown::{Hardware, Lock, PROCESSORS, Processors, Running};
use shuttle::{current, thread};
use std::collections::{HashMap, VecDeque};
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex, MutexGuard, atomic};
use superpage_pages::{Access, Ladder, PageSize, Pfn, Random, Vpn};
use superpage_vm::{
    Backed, Config, Error, FaultError, Filled, Map, Memory, NoContents, Page, Pmap, SpaceId, Stats, Vm,
};
use sync::{AtomicBool, Ordering};
use tables::{Machine, Tables};

const FRAMES: u64 = 20;
/// Pages side by side, and those that are 1 GB away, which have tables of their own.
const NEAR: u64 = 6;
const PAGES: u64 = 8;
const STEPS: u64 = 24;

fn at(page: u64) -> Vpn {
    Vpn(if page < NEAR { page } else { (1 << 18) + page - NEAR })
}

/// What the kernel does wrong.
#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    /// Only the processor that changes a mapping invalidates it.
    NoShootdown,
    /// Others are interrupted, and may use the mapping until that interrupt comes.
    NoWait,
    /// A processor that waits for the lock answers nobody.
    NoAnswer,
}

/// A leaf entry as a TLB has it.
#[derive(Clone, Copy)]
struct Entry {
    bits: u64,
    dirty: bool,
}

/// Memory, and the parts of processors that the kernel cannot see.
#[derive(Default)]
struct Physical {
    frames: Vec<[u64; 512]>,
    swap: HashMap<u32, u64>,
    /// Reads of swap space that were begun.
    reads: VecDeque<(u32, Pfn)>,
    roots: [Option<Pfn>; PROCESSORS],
    /// By level and page.
    tlbs: [HashMap<(usize, u64), Entry>; PROCESSORS],
    /// What to invalidate at the next interrupt, under [`Wrong::NoWait`].
    late: [Vec<Option<Vec<Vpn>>>; PROCESSORS],
    /// What each page holds; `None` while its mapping is being replaced.
    written: [Option<u64>; PAGES as usize],
    writes: u64,
}

impl Physical {
    fn word(&mut self, frame: Pfn, index: usize) -> &mut u64 {
        &mut self.frames.get_mut(frame.0 as usize).expect("a walk left memory")[index]
    }

    fn invalidate(&mut self, processor: usize, stale: Option<&[Vpn]>) {
        let tlb = &mut self.tlbs[processor];
        match stale {
            Some(pages) => pages.iter().for_each(|at| {
                (0..3).for_each(|level| _ = tlb.remove(&(level, at.0 >> (9 * level))));
            }),
            None => tlb.clear(),
        }
    }
}

fn index(at: Vpn, level: usize) -> usize {
    (at.0 >> (9 * level) & 511) as usize
}

/// The frame in an entry.
fn frame(bits: u64) -> Pfn {
    Pfn((bits & 0x000f_ffff_ffff_f000) >> 12)
}

/// What the processors share. Nobody else is scheduled while `physical` is locked.
struct Board {
    physical: Mutex<Physical>,
    pending: [AtomicBool; PROCESSORS],
}

#[derive(Clone)]
struct Shared(Arc<Board>);

impl Shared {
    fn physical(&self) -> MutexGuard<'_, Physical> {
        self.0.physical.try_lock().expect("one step at a time")
    }
}

impl Hardware for Shared {
    const SPINS: usize = 3;

    fn here(&self) -> usize {
        current::me().into()
    }

    fn interrupt_others(&self) {
        let here = self.here();
        let others = self.0.pending.iter().enumerate().filter(|(processor, _)| *processor != here);
        others.for_each(|(_, pending)| pending.store(true, Ordering::SeqCst));
    }

    /// The handler runs before the next instruction of the program; until then the kernel answers.
    fn wait_for_interrupt(&self) {
        while !self.0.pending[self.here()].load(Ordering::SeqCst) {
            thread::yield_now();
        }
    }

    fn invalidate(&self, stale: Option<&[Vpn]>) {
        self.physical().invalidate(self.here(), stale);
    }
}

/// The tables in memory, and the TLBs.
struct Mmu {
    shared: Shared,
    processors: Arc<Processors<Shared>>,
    running: Running,
    wrong: Wrong,
}

impl Mmu {
    fn shoot_down(&self, space: SpaceId, stale: Option<&[Vpn]>) {
        let here = self.shared.here();
        match self.wrong {
            Wrong::Nothing | Wrong::NoAnswer => self.processors.shoot_down(&self.running, space, stale),
            Wrong::NoShootdown => self.shared.invalidate(stale),
            Wrong::NoWait => {
                self.shared.invalidate(stale);
                self.shared.physical().late[1 - here].push(stale.map(<[Vpn]>::to_vec));
                self.shared.interrupt_others();
            }
        }
    }
}

impl Machine for Mmu {
    fn read(&self, table: Pfn, index: usize) -> u64 {
        *self.shared.physical().word(table, index)
    }

    fn write(&mut self, table: Pfn, index: usize, entry: u64) {
        *self.shared.physical().word(table, index) = entry;
        if entry > 0 {
            thread::yield_now();
        }
    }

    fn take(&mut self, table: Pfn, index: usize) -> u64 {
        let entry = std::mem::take(self.shared.physical().word(table, index));
        thread::yield_now();
        entry
    }

    fn invalidate(&mut self, space: SpaceId, stale: &[Vpn]) {
        self.shoot_down(space, Some(stale));
    }

    fn invalidate_here(&mut self, _: SpaceId, at: Vpn) {
        self.shared.invalidate(Some(&[at]));
    }

    fn invalidate_all(&mut self, space: SpaceId) {
        self.shoot_down(space, None);
    }
}

impl Memory for Shared {
    fn zero(&mut self, first: Pfn, frames: u64, _: Page) -> Result<(), NoContents> {
        for frame in first.0..first.0 + frames {
            self.physical().frames[frame as usize].fill(0);
            thread::yield_now();
        }
        Ok(())
    }

    fn copy(&mut self, from: Pfn, to: Pfn, _: Page) {
        let mut physical = self.physical();
        physical.frames[to.0 as usize] = physical.frames[from.0 as usize];
        drop(physical);
        thread::yield_now();
    }

    fn read(&mut self, from: Backed, to: Pfn, _: Page) -> Result<Filled, NoContents> {
        let Backed::Swap { slot } = from else { return Err(NoContents) };
        self.physical().reads.push_back((slot, to));
        Ok(Filled::Later)
    }

    fn write(&mut self, to: Backed, frame: Pfn) {
        let Backed::Swap { slot } = to else { panic!("there are no files") };
        let mut physical = self.physical();
        let word = *physical.word(frame, 0);
        physical.swap.insert(slot, word);
        drop(physical);
        thread::yield_now();
    }

    fn digest(&mut self, _: Pfn) -> u128 {
        panic!("the policy asks for no digests")
    }
}

struct Kernel {
    vm: Vm,
    tables: Tables<Mmu>,
}

#[derive(Clone)]
struct World {
    shared: Shared,
    processors: Arc<Processors<Shared>>,
    lock: Arc<Lock>,
    /// Of who holds the lock.
    kernel: Arc<Mutex<Kernel>>,
    space: SpaceId,
    wrong: Wrong,
}

impl World {
    fn new(wrong: Wrong) -> World {
        let physical = Physical { frames: vec![[u64::MAX; 512]; FRAMES as usize], ..Physical::default() };
        let pending = [const { AtomicBool::new(false) }; PROCESSORS];
        let shared = Shared(Arc::new(Board { physical: Mutex::new(physical), pending }));
        let processors = Arc::new(Processors::new(shared.clone()));
        let ladder = Ladder::of([PageSize::KB4, PageSize::MB2]);
        let policy = "base".parse().unwrap();
        let mut vm = Vm::new(Config { ladder, frames: FRAMES, policy, swap_pages: 64 }).unwrap();
        let space = vm.create_space();
        let running = Running::default();
        let mmu = Mmu { shared: shared.clone(), processors: processors.clone(), running, wrong };
        let mut tables = Tables::new(mmu);
        vm.map(&mut tables, space, Map::anonymous(at(0), NEAR)).unwrap();
        vm.map(&mut tables, space, Map::anonymous(at(NEAR), PAGES - NEAR)).unwrap();
        shared.physical().written = [Some(0); PAGES as usize];
        let kernel = Arc::new(Mutex::new(Kernel { vm, tables }));
        World { shared, processors, lock: Arc::new(Lock::new()), kernel, space, wrong }
    }

    /// Calls `call` with the kernel, under its lock.
    fn kernel<R>(&self, call: impl FnOnce(&mut Kernel) -> R) -> R {
        if self.wrong == Wrong::NoAnswer {
            let taken = (0..100_000).any(|_| {
                thread::yield_now();
                self.lock.try_lock()
            });
            assert!(taken, "the holder of the lock waits for a processor that waits for it");
        } else {
            self.processors.lock(&self.lock);
        }
        let mut kernel = self.kernel.try_lock().expect("one processor holds the lock");
        let result = call(&mut kernel);
        if self.wrong == Wrong::Nothing {
            kernel.vm.validate(&kernel.tables).unwrap();
        }
        drop(kernel);
        self.processors.unlock(&self.lock);
        result
    }

    /// Takes an interrupt that is pending: between two instructions of a program.
    fn interrupt(&self) {
        let here = self.shared.here();
        if self.shared.0.pending[here].swap(false, Ordering::SeqCst) {
            let mut physical = self.shared.physical();
            let late = std::mem::take(&mut physical.late[here]);
            late.iter().for_each(|stale| physical.invalidate(here, stale.as_deref()));
            drop(physical);
            self.processors.interrupted();
        }
    }

    /// The frame of a page, by the TLB or by the tables. `None`: it faults.
    fn translate(&self, at: Vpn, write: bool) -> Option<Pfn> {
        let here = self.shared.here();
        let mut physical = self.shared.physical();
        if let Some(entry) = physical.tlbs[here].get(&(0, at.0))
            && (!write || entry.dirty && entry.bits & 2 > 0)
        {
            return Some(frame(entry.bits));
        }
        physical.tlbs[here].remove(&(0, at.0));
        let (mut table, mut level) = (physical.roots[here]?, 3);
        drop(physical);
        loop {
            thread::yield_now();
            let mut physical = self.shared.physical();
            let entry = physical.word(table, index(at, level));
            if *entry & 1 == 0 || level == 0 && write && *entry & 2 == 0 {
                return None;
            }
            if level == 0 {
                *entry |= 0x20 | if write { 0x40 } else { 0 };
                let bits = *entry;
                physical.tlbs[here].insert((0, at.0), Entry { bits, dirty: bits & 0x40 > 0 });
                return Some(frame(bits));
            }
            (table, level) = (frame(*entry), level - 1);
        }
    }

    /// An instruction of a program: reads a page, or writes it.
    fn access(&self, page: u64, write: bool) {
        loop {
            self.interrupt();
            let Some(frame) = self.translate(at(page), write) else {
                self.fault(page, write);
                continue;
            };
            thread::yield_now();
            let mut physical = self.shared.physical();
            if write {
                physical.writes += 1;
                let value = physical.writes;
                *physical.word(frame, 0) = value;
                physical.written[page as usize] = physical.written[page as usize].map(|_| value);
            } else if let Some(written) = physical.written[page as usize] {
                assert_eq!(*physical.word(frame, 0), written, "page {page} does not hold what was written");
            }
            return;
        }
    }

    /// The page-fault handler. It reads from swap space without the lock; whoever else needs that
    /// page tries again meanwhile.
    fn fault(&self, page: u64, write: bool) {
        let access = if write { Access::Write } else { Access::Read };
        let ended = self.kernel(|Kernel { vm, tables }| {
            let ended = fault(vm, tables, &mut self.shared.clone(), (self.space, at(page), access));
            // Its first fault gave the space a root.
            let (here, root) = (self.shared.here(), tables.root(self.space));
            let mut physical = self.shared.physical();
            if physical.roots[here] != root {
                physical.roots[here] = root;
                physical.invalidate(here, None);
            }
            ended
        });
        if ended.is_err() {
            self.read();
        }
    }

    /// Does a read of swap space that was begun, if there is one.
    fn read(&self) {
        let read = self.shared.physical().reads.pop_front();
        if let Some((slot, frame)) = read {
            thread::yield_now();
            let mut physical = self.shared.physical();
            *physical.word(frame, 0) = physical.swap[&slot];
            drop(physical);
            self.kernel(|kernel| kernel.vm.read_done(frame, Ok(())).unwrap());
        }
        thread::yield_now();
    }

    /// Replaces the mappings of some pages by new ones, unless one of them is being read.
    fn replace(&self, first: u64, pages: u64) {
        self.kernel(|Kernel { vm, tables }| {
            let range = first as usize..(first + pages) as usize;
            let before = std::mem::take(&mut self.shared.physical().written);
            let mut meanwhile = before;
            meanwhile[range.clone()].fill(None);
            self.shared.physical().written = meanwhile;
            match vm.unmap(tables, self.space, at(first).pages(pages)) {
                Ok(()) => {
                    vm.map(tables, self.space, Map::anonymous(at(first), pages)).unwrap();
                    self.shared.physical().written[range].fill(Some(0));
                }
                Err(Error::Busy(_)) => self.shared.physical().written = before,
                Err(other) => panic!("{other}"),
            }
        });
    }

    /// Forks. While the other thread goes on, the child has the pages of that time.
    fn fork(&self) {
        let (child, had) = self.kernel(|Kernel { vm, tables }| {
            let child = vm.fork(tables, self.space).unwrap();
            (child, self.shared.physical().written)
        });
        for page in 0..PAGES {
            self.interrupt();
            self.kernel(|Kernel { vm, tables }| {
                if fault(vm, tables, &mut self.shared.clone(), (child, at(page), Access::Read)).is_ok() {
                    let mapped = tables.lookup(child, at(page)).expect("a fault maps");
                    let found = *self.shared.physical().word(mapped.frame, 0);
                    assert_eq!(
                        Some(found),
                        had[page as usize],
                        "page {page} of the child does not hold what was written"
                    );
                }
            });
        }
        while self.kernel(|Kernel { vm, tables }| vm.exit(tables, child)).is_err() {
            self.read();
            self.interrupt();
        }
    }

    /// What each thread does.
    fn program(&self) {
        self.run(Some(self.space));
        let mut random = Random::new(self.shared.here() as u64);
        for _ in 0..STEPS {
            let page = random.below(PAGES);
            match random.below(16) {
                0 => self.fork(),
                1 => self.replace(NEAR, PAGES - NEAR),
                2 | 3 => self.replace(page, 1),
                4..10 => self.access(page, true),
                _ => self.access(page, false),
            }
        }
        self.run(None);
    }

    /// Has the processor run a space, or none.
    fn run(&self, space: Option<SpaceId>) {
        self.kernel(|Kernel { tables, .. }| {
            let here = self.shared.here();
            tables.machine.running.0[here] = space;
            let mut physical = self.shared.physical();
            physical.roots[here] = space.and_then(|space| tables.root(space));
            physical.invalidate(here, None);
        });
    }
}

/// A fault, under the lock; it fails only if the page is being read.
fn fault(
    vm: &mut Vm,
    tables: &mut Tables<Mmu>,
    memory: &mut Shared,
    (space, at, access): (SpaceId, Vpn, Access),
) -> Result<(), FaultError> {
    loop {
        match vm.fault(tables, memory, space.page(at), access) {
            Ok(_) => break,
            Err(FaultError::OutOfMemory(_)) if vm.run_daemon(tables, memory) => {}
            Err(FaultError::Busy(frame)) => return Err(FaultError::Busy(frame)),
            Err(other) => panic!("{other}"),
        }
    }
    if vm.daemon_wanted() {
        vm.run_daemon(tables, memory);
    }
    Ok(())
}

/// Runs both threads; returns the counts of the manager and of the requests.
fn run(wrong: Wrong) -> (Stats, [u64; 3]) {
    let world = World::new(wrong);
    let other = thread::spawn({
        let world = world.clone();
        move || world.program()
    });
    world.program();
    other.join().unwrap();
    let counts = world.processors.counts();
    assert_eq!(counts[0], counts[1] + counts[2], "each request is answered, once");
    let stats = world.kernel(|Kernel { vm, tables }| {
        let stats = vm.stats();
        let reads = std::mem::take(&mut world.shared.physical().reads);
        reads.into_iter().for_each(|(_, frame)| vm.read_done(frame, Ok(())).unwrap());
        vm.exit(tables, world.space).unwrap();
        assert_eq!((vm.buddy().free_frames(), vm.stats().swap_used_pages), (FRAMES, 0));
        stats
    });
    (stats, counts)
}

#[test]
fn no_thread_uses_a_frame_after_it_was_taken_away() {
    static TOTAL: [atomic::AtomicU64; 6] = [const { atomic::AtomicU64::new(0) }; 6];
    let run = || {
        let (stats, [sent, interrupted, spinning]) = run(Wrong::Nothing);
        let seen = [sent, interrupted, spinning, stats.page_ins, stats.page_outs, stats.bytes_copied];
        TOTAL.iter().zip(seen).for_each(|(total, seen)| _ = total.fetch_add(seen, atomic::Ordering::Relaxed));
    };
    shuttle::check_random(run, 500);
    let total = TOTAL.each_ref().map(|total| total.load(atomic::Ordering::Relaxed));
    assert!(total.iter().all(|count| *count > 0), "{total:?}");
}

/// What the scheduler finds in a kernel that does this wrong: the message of the panic.
fn found(wrong: Wrong) -> String {
    let found = catch_unwind(|| shuttle::check_random_with_seed(move || _ = run(wrong), 1, 2000));
    let panic = found.expect_err("it is wrong");
    panic.downcast::<String>().map_or_else(|other| other.downcast::<&str>().unwrap().to_string(), |text| *text)
}

/// A frame that is used too late held a page, or a table.
#[test]
fn a_kernel_without_shootdowns_or_that_does_not_wait_for_the_answer_is_found() {
    for wrong in [Wrong::NoShootdown, Wrong::NoWait] {
        let found = found(wrong);
        let damage = ["does not hold what was written", "a walk left memory", "a table", "is mapped"];
        assert!(damage.iter().any(|damage| found.contains(damage)), "{found}");
    }
}

#[test]
fn a_processor_that_waits_and_does_not_answer_is_found() {
    assert!(found(Wrong::NoAnswer).contains("waits for a processor that waits for it"));
}
