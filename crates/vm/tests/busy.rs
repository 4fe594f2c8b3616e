//! Busy pages: a store that takes its time, and those who wait for it or need not.

use crate::machine::{ALPHA, Machine};
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::thread;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use superpage_pages::{Access, Ladder, PageSize, Pfn, Vpn};
use superpage_vm::{
    Backed, Config, Error, FaultError, FaultKind, Filled, Growth, Map, Memory, NoContents, Page, Pmap, SoftPmap,
    SpaceId, Vm,
};

/// The frame that a fault waits for.
fn busy(machine: &mut Machine, page: u64, access: Access) -> Pfn {
    match machine.fault(machine.space, page, access) {
        Err(FaultError::Busy(frame)) => frame,
        other => panic!("{other:?}"),
    }
}

/// A machine of which a file's page 3, mapped at 512, is being read, and into which frame.
fn reading(policy: &str) -> (Machine, Pfn) {
    let mut machine = Machine::with_swap(ALPHA, 256, policy, 4096);
    machine.disk.stored.insert((Some(1), 3), 77);
    machine.file(512, 64, true, 0);
    machine.anonymous(0, 64, Growth::Fixed);
    machine.disk.slow = true;
    let frame = busy(&mut machine, 515, Access::Read);
    (machine, frame)
}

#[test]
fn while_a_page_is_read_all_others_can_be_had() {
    let (mut machine, frame) = reading("reservation");
    // Whoever needs it waits for the same frame, which is neither mapped nor asked of the store
    // again.
    assert_eq!(busy(&mut machine, 515, Access::Write), frame);
    assert_eq!((machine.frame(515), machine.disk.reading.len()), (None, 1));
    assert_eq!(machine.write(5).kind, FaultKind::Zero);
    machine.disk.slow = false;
    assert_eq!(machine.read(516).kind, FaultKind::File);
    machine.squeeze();
    machine.vm.validate(&machine.pmap).unwrap();
    assert_eq!(machine.vm.busy_frames().collect::<Vec<_>>(), [frame], "it is not evicted, however short memory is");
    machine.read_done(frame, Ok(()));
    assert_eq!((machine.read(515).frame, machine.get(515)), (frame, 77));
    assert_eq!(machine.vm.read_done(frame, Ok(())), Err(Error::NotBusy(frame)));
    machine.end();
}

#[test]
fn what_cannot_be_read_is_asked_for_again() {
    for policy in ["reservation", "base", "reservation:reclaim=none"] {
        let (mut machine, frame) = reading(policy);
        machine.read_done(frame, Err(NoContents));
        machine.vm.validate(&machine.pmap).unwrap();
        assert_eq!(machine.vm.stats().resident_pages, 0);
        let frame = busy(&mut machine, 515, Access::Read);
        machine.read_done(frame, Ok(()));
        assert_eq!(machine.get(515), 77);
        machine.end();
    }
}

#[test]
fn nothing_takes_a_busy_page_away() {
    let mut machine = Machine::with_swap(ALPHA, 256, "reservation", 4096);
    machine.anonymous(0, 8, Growth::Up);
    (0..8).for_each(|page| machine.put(page, 10 + page));
    machine.squeeze();
    machine.disk.slow = true;
    let page = (0..8).find(|page| machine.frame(*page).is_none()).expect("something was evicted");
    let space = machine.space;
    let frame = busy(&mut machine, page, Access::Write);
    let refused = Err(Error::Busy(frame));
    let (vm, pmap) = (&mut machine.vm, &mut machine.pmap);
    assert_eq!(vm.unmap(pmap, space, Vpn(page).pages(1)), refused);
    assert_eq!(vm.discard(pmap, space, Vpn(0).pages(8)), refused);
    assert_eq!(vm.remap(pmap, space, Vpn(0).pages(8), Vpn(64).pages(8)), refused);
    assert_eq!(vm.grow(pmap, space, Vpn(0), 0), refused);
    assert_eq!(vm.exec(pmap, space), refused);
    assert_eq!(vm.exit(pmap, space), refused);
    // A child may come meanwhile, and waits like its parent.
    let child = vm.fork(pmap, space).unwrap();
    machine.space = child;
    assert_eq!(busy(&mut machine, page, Access::Write), frame);
    machine.read_done(frame, Ok(()));
    machine.disk.slow = false;
    machine.put(page, 1000);
    machine.space = space;
    assert_eq!(machine.get(page), 10 + page);
    machine.vm.exit(&mut machine.pmap, child).unwrap();
    machine.end();
}

/// A move onto other pages, to a shorter length, unmaps two parts, each of which leaves the other.
/// Together they are the last mappings of an object of which a child reads a page. The move is
/// refused before the first of them is unmapped.
#[test]
fn a_move_that_is_refused_has_unmapped_nothing() {
    let mut machine = Machine::with_swap(ALPHA, 256, "reservation", 4096);
    let parent = machine.space;
    machine.anonymous(0, 8, Growth::Fixed);
    machine.anonymous(64, 24, Growth::Fixed);
    (0..8).chain(64..88).for_each(|page| machine.put(page, 10 + page));
    machine.vm.remap(&mut machine.pmap, parent, Vpn(0).pages(8), Vpn(56).pages(8)).unwrap();
    let child = machine.vm.fork(&mut machine.pmap, parent).unwrap();
    // Page 84 is the child's alone from now on, but still in the object that the parent maps from
    // 64 up to 80.
    machine.unmap(80, 8);
    machine.squeeze();
    machine.disk.slow = true;
    machine.space = child;
    let frame = busy(&mut machine, 84, Access::Write);
    machine.space = parent;
    let before = (machine.vm.stats(), machine.vm.metadata_bytes(), machine.pmap.mappings());
    let remap =
        |machine: &mut Machine| machine.vm.remap(&mut machine.pmap, parent, Vpn(56).pages(16), Vpn(72).pages(8));
    assert_eq!(remap(&mut machine), Err(Error::Busy(frame)));
    assert_eq!((machine.vm.stats(), machine.vm.metadata_bytes(), machine.pmap.mappings()), before);
    machine.read_done(frame, Ok(()));
    machine.disk.slow = false;
    (56..64).for_each(|page| assert_eq!(machine.get(page), 10 + page - 56));
    (64..80).for_each(|page| assert_eq!(machine.get(page), 10 + page));
    remap(&mut machine).unwrap();
    (72..80).for_each(|page| assert_eq!(machine.get(page), 10 + page - 72));
    machine.vm.exit(&mut machine.pmap, child).unwrap();
    machine.end();
}

#[test]
fn what_is_stored_of_a_page_is_read_by_one_at_a_time() {
    let mut machine = Machine::with_swap(ALPHA, 256, "reservation", 4096);
    machine.anonymous(0, 1, Growth::Fixed);
    machine.put(0, 5);
    let parent = machine.space;
    let child = machine.vm.fork(&mut machine.pmap, parent).unwrap();
    machine.squeeze();
    machine.disk.slow = true;
    // The child reads a copy of its own. The parent, who would write the page and have it written
    // out, waits.
    machine.space = child;
    let frame = busy(&mut machine, 0, Access::Write);
    machine.space = parent;
    assert_eq!(busy(&mut machine, 0, Access::Write), frame);
    assert_eq!(machine.vm.exit(&mut machine.pmap, parent), Err(Error::Busy(frame)));
    machine.read_done(frame, Ok(()));
    machine.disk.slow = false;
    machine.put(0, 6);
    machine.space = child;
    assert_eq!(machine.get(0), 5);
    machine.vm.exit(&mut machine.pmap, parent).unwrap();
    machine.end();
}

#[test]
fn what_is_not_read_yet_has_no_digest() {
    for hash in ["read", "idle"] {
        let policy = format!("reservation:hash={hash},dirty=all,demote-on-write=off");
        let mut machine = Machine::with_swap(ALPHA, 256, &policy, 4096);
        machine.anonymous(0, 8, Growth::Fixed);
        machine.put(0, 5);
        machine.squeeze();
        machine.disk.slow = true;
        let frame = busy(&mut machine, 0, Access::Write);
        machine.disk.slow = false;
        // Others fault, and the idle loop runs, while the frame holds anything.
        machine.put(1, 1);
        machine.vm.idle(&machine.pmap, &mut machine.disk, u64::MAX);
        machine.read_done(frame, Ok(()));
        // What it held then is written to it: that is a change.
        machine.put(0, u64::MAX);
        machine.squeeze();
        assert_eq!(machine.get(0), u64::MAX, "hash={hash}");
        machine.end();
    }
}

#[test]
fn what_somebody_reads_is_not_prepopulated_for_another() {
    let mut machine = Machine::with_swap(ALPHA, 256, "talluri-hill", 4096);
    machine.file(0, 8, true, 0);
    machine.file(64, 8, false, 0);
    machine.disk.slow = true;
    let frame = busy(&mut machine, 64 + 5, Access::Write);
    machine.disk.slow = false;
    (0..4).for_each(|page| _ = machine.read(page));
    assert_eq!(machine.frame(5), None, "half of the file's eight pages are populated, and the fifth is being read");
    machine.read_done(frame, Ok(()));
    machine.end();
}

#[test]
fn a_read_in_one_part_of_a_heap_keeps_no_other_part() {
    let mut machine = Machine::with_swap(ALPHA, 256, "reservation", 4096);
    machine.anonymous(0, 64, Growth::Fixed);
    (0..64).for_each(|page| machine.put(page, page));
    machine.squeeze();
    machine.disk.slow = true;
    let frame = busy(&mut machine, 9, Access::Read);
    let (space, vm, pmap) = (machine.space, &mut machine.vm, &mut machine.pmap);
    vm.discard(pmap, space, Vpn(16).pages(8)).unwrap();
    vm.unmap(pmap, space, Vpn(32).pages(32)).unwrap();
    assert_eq!(vm.unmap(pmap, space, Vpn(8).pages(8)), Err(Error::Busy(frame)));
    vm.validate(pmap).unwrap();
    machine.read_done(frame, Ok(()));
    machine.disk.slow = false;
    assert_eq!((machine.get(9), machine.get(17), machine.get(24)), (9, 0, 24));
    machine.end();
}

#[test]
fn a_memory_of_busy_pages_has_room_when_a_read_is_done() {
    let mut machine = Machine::with_swap("8K", 8, "base", 256);
    machine.anonymous(0, 16, Growth::Fixed);
    (0..16).for_each(|page| machine.put(page, page));
    machine.squeeze();
    machine.disk.slow = true;
    let mut frames = Vec::new();
    let full = loop {
        let page = frames.len() as u64;
        match machine.fault(machine.space, page, Access::Read) {
            Err(FaultError::Busy(frame)) => frames.push(frame),
            Err(FaultError::OutOfMemory(_)) if machine.daemon() => {}
            other => break other,
        }
    };
    assert_eq!((full, frames.len()), (Err(FaultError::OutOfMemory(Vpn(8))), 8));
    machine.read_done(frames[0], Ok(()));
    machine.disk.slow = false;
    assert_eq!(machine.get(8), 8);
    frames[1..].iter().for_each(|frame| machine.read_done(*frame, Ok(())));
    (0..16).for_each(|page| assert_eq!(machine.get(page), page));
    machine.end();
}

#[test]
fn a_file_that_is_closed_while_it_is_read_goes_afterwards() {
    let mut machine = Machine::new(ALPHA, 256, "reservation:reclaim=none");
    machine.disk.slow = true;
    machine.vm.open(1, 8).unwrap();
    let Err(FaultError::Busy(frame)) = machine.read_file(1, 2) else { panic!("the store is slow") };
    assert_eq!(machine.read_file(1, 2), Err(FaultError::Busy(frame)));
    assert_eq!(machine.write_file(1, 2), Err(FaultError::Busy(frame)));
    assert_eq!(machine.vm.remove_file(1), Err(Error::Busy(frame)));
    machine.vm.close(1).unwrap();
    machine.vm.validate(&machine.pmap).unwrap();
    assert_eq!(machine.vm.stats().resident_pages, 1);
    machine.read_done(frame, Ok(()));
    assert_eq!(machine.vm.stats().resident_pages, 0);
    machine.end();
}

const FRAMES: u64 = 16;
const PAGES: u64 = 12;

/// What frames and slots hold, and the reads that a thread of the store does.
struct Contents {
    frames: Vec<u64>,
    slots: HashMap<u32, u64>,
    asked: VecDeque<(u32, Pfn)>,
}

impl Memory for Contents {
    fn zero(&mut self, first: Pfn, frames: u64, _: Page) -> Result<(), NoContents> {
        self.frames[first.0 as usize..(first.0 + frames) as usize].fill(0);
        Ok(())
    }

    fn copy(&mut self, from: Pfn, to: Pfn, _: Page) {
        self.frames[to.0 as usize] = self.frames[from.0 as usize];
    }

    fn read(&mut self, from: Backed, to: Pfn, _: Page) -> Result<Filled, NoContents> {
        let Backed::Swap { slot } = from else { return Err(NoContents) };
        self.frames[to.0 as usize] = u64::MAX;
        self.asked.push_back((slot, to));
        Ok(Filled::Later)
    }

    fn write(&mut self, to: Backed, frame: Pfn) {
        let Backed::Swap { slot } = to else { panic!("there are no files") };
        self.slots.insert(slot, self.frames[frame.0 as usize]);
    }

    fn digest(&mut self, frame: Pfn) -> u128 {
        self.frames[frame.0 as usize].into()
    }
}

struct State {
    vm: Vm,
    pmap: SoftPmap,
    contents: Contents,
    /// The programs that wait for a read.
    waiting: usize,
    /// The programs that are not over.
    running: usize,
}

/// A kernel of several processors: one lock, one thread of the store.
struct Kernel {
    state: Mutex<State>,
    /// Something was asked of the store, or a program is over.
    asked: Condvar,
    /// A read is done.
    done: Condvar,
}

impl Kernel {
    /// An access of a program to a page, with what it finds and leaves there. Counts the faults
    /// that end while another waits.
    fn access(&self, space: SpaceId, page: u64, write: Option<u64>, beside: &AtomicUsize) -> u64 {
        let access = if write.is_some() { Access::Write } else { Access::Read };
        let mut guard = self.state.lock().unwrap();
        loop {
            let State { vm, pmap, contents, waiting, .. } = &mut *guard;
            if pmap.access(space, Vpn(page), access) {
                let frame = pmap.lookup(space, Vpn(page)).expect("it can be accessed").frame;
                let held = &mut contents.frames[frame.0 as usize];
                return write.map_or(*held, |value| std::mem::replace(held, value));
            }
            match vm.fault(pmap, contents, space.page(Vpn(page)), access) {
                Ok(_) => _ = beside.fetch_add(usize::from(*waiting > 0), Relaxed),
                Err(FaultError::Busy(_)) => {
                    *waiting += 1;
                    self.asked.notify_all();
                    guard = self.done.wait(guard).unwrap();
                    guard.waiting -= 1;
                }
                Err(FaultError::OutOfMemory(_)) => assert!(vm.run_daemon(pmap, contents), "swap space is large enough"),
                Err(other) => panic!("{other}"),
            }
            guard.vm.validate(&guard.pmap).unwrap();
        }
    }

    fn exit(&self, space: SpaceId) {
        let mut guard = self.state.lock().unwrap();
        loop {
            let State { vm, pmap, .. } = &mut *guard;
            match vm.exit(pmap, space) {
                Err(Error::Busy(_)) => guard = self.done.wait(guard).unwrap(),
                other => break other.unwrap(),
            }
        }
        guard.running -= 1;
        self.asked.notify_all();
    }

    fn store(&self) {
        let mut guard = self.state.lock().unwrap();
        loop {
            if let Some((slot, frame)) = guard.contents.asked.pop_front() {
                let value = guard.contents.slots[&slot];
                drop(guard);
                // The disk is at work, and the manager is for others.
                thread::yield_now();
                guard = self.state.lock().unwrap();
                assert_eq!(guard.contents.slots[&slot], value, "slot {slot} is written while it is read");
                guard.contents.frames[frame.0 as usize] = value;
                guard.vm.read_done(frame, Ok(())).unwrap();
                self.done.notify_all();
            } else if guard.running == 0 {
                return;
            } else {
                guard = self.asked.wait(guard).unwrap();
            }
        }
    }
}

#[test]
fn whoever_waits_for_the_store_keeps_nobody_else_waiting_and_all_contents_are_right() {
    let beside = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = beside.clone();
    let run = move || {
        let ladder = Ladder::of([PageSize::KB4, PageSize::from_shift(14).unwrap()]);
        let policy = "reservation".parse().unwrap();
        let mut vm = Vm::new(Config { ladder, frames: FRAMES, policy, swap_pages: 64 }).unwrap();
        let mut pmap = SoftPmap::new(ladder);
        let spaces: Vec<SpaceId> = (0..2).map(|_| vm.create_space()).collect();
        for space in &spaces {
            vm.map(&mut pmap, *space, Map::anonymous(Vpn(0), PAGES)).unwrap();
        }
        let contents =
            Contents { frames: vec![u64::MAX; FRAMES as usize], slots: HashMap::new(), asked: VecDeque::new() };
        let state = State { vm, pmap, contents, waiting: 0, running: spaces.len() };
        let kernel = Arc::new(Kernel { state: Mutex::new(state), asked: Condvar::new(), done: Condvar::new() });
        let store = thread::spawn({
            let kernel = kernel.clone();
            move || kernel.store()
        });
        let programs = spaces.into_iter().map(|space| {
            let (kernel, beside) = (kernel.clone(), counted.clone());
            thread::spawn(move || {
                let mut expected = [0; PAGES as usize];
                // Together twice as many pages as there are frames, so that they come and go.
                for turn in 0..3 * PAGES {
                    let page = turn * 5 % PAGES;
                    let value = (u64::from(space.0) << 32) | (turn + 1);
                    let write = (turn % 3 != 2).then_some(value);
                    let found = kernel.access(space, page, write, &beside);
                    assert_eq!(found, expected[page as usize], "page {page} of {space:?}");
                    expected[page as usize] = write.unwrap_or(found);
                }
                kernel.exit(space);
            })
        });
        programs.collect::<Vec<_>>().into_iter().for_each(|program| program.join().unwrap());
        store.join().unwrap();
        let state = kernel.state.lock().unwrap();
        state.vm.validate(&state.pmap).unwrap();
        assert_eq!((state.vm.buddy().free_frames(), state.vm.stats().swap_used_pages), (FRAMES, 0));
        assert!(state.vm.stats().page_ins > 0);
    };
    shuttle::check_random(run, 100);
    assert!(beside.load(Relaxed) > 0, "no fault was ever resolved while another waited");
}

/// The daemon found nothing to evict while the only page that can go was being read, and waits
/// until something changes. The end of the read is such a change.
#[test]
fn the_daemon_is_wanted_again_when_a_read_is_done() {
    let mut machine = Machine::new("8K 64K", 64, "base");
    machine.anonymous(0, 61, Growth::Fixed);
    machine.write_all(0..61);
    machine.file(512, 1, true, 0);
    machine.disk.slow = true;
    let frame = busy(&mut machine, 512, Access::Read);
    assert!(machine.vm.daemon_wanted(), "two frames are left");
    assert!(!machine.daemon() && !machine.vm.daemon_wanted(), "without swap space, all others stay");
    machine.read_done(frame, Ok(()));
    assert!(machine.vm.daemon_wanted());
    machine.end();
}
