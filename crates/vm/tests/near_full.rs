//! Memory and swap space nearly full, with pages shared by fork: an access goes through after two
//! faults at most, or it is said that memory is out; whether the daemon runs before the access is
//! tried again or after it.

use crate::machine::Machine;
use superpage_pages::{Access, Vpn};
use superpage_vm::{FaultError, Growth, Pmap, SpaceId};

const PAGES: u64 = 140;

/// Policies that reclaim, with each answer of what becomes of cache pages; in some every first
/// write traps.
const POLICIES: [&str; 9] = [
    "base:reclaim=lru",
    "reservation",
    "reservation:cache=held",
    "reservation:cache=free,wake=memory",
    "reservation:hash=late",
    "freebsd",
    "talluri-hill",
    "thp",
    "thp:cache=held,demote-on-write=on",
];

/// When the daemon runs that is wanted.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Daemon {
    BeforeRetry,
    AfterAccess,
}

/// Machines that differ in memory and swap space, with several processes that share their memory
/// after fork.
struct Crowd {
    machine: Machine,
    spaces: Vec<SpaceId>,
    /// What each page of each process holds.
    values: Vec<[u64; PAGES as usize]>,
    daemon: Daemon,
    state: u64,
    /// The most faults of an access that went through.
    most: u32,
    out_of_memory: u32,
}

impl Crowd {
    fn new(frames: u64, swap_pages: u64, policy: &str, daemon: Daemon) -> Crowd {
        let mut machine = Machine::with_swap("8K 64K", frames, policy, swap_pages);
        machine.anonymous(0, PAGES, Growth::Fixed);
        let spaces = vec![machine.space];
        Crowd { machine, spaces, values: vec![[0; PAGES as usize]], daemon, state: 1, most: 0, out_of_memory: 0 }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.state = self.state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.state >> 33) % below
    }

    fn run_daemon(&mut self) -> bool {
        self.machine.vm.run_daemon(&mut self.machine.pmap, &mut self.machine.disk)
    }

    /// Until it sleeps: a run that takes nothing out of use ends it, and many in a row would mean
    /// that it never does.
    fn answer_daemon(&mut self) {
        let mut runs = 0;
        while self.machine.vm.daemon_wanted() && self.run_daemon() {
            runs += 1;
            assert!(runs < 4, "the daemon runs again and again");
        }
    }

    /// One access to the end: whether it went through.
    fn access(&mut self, process: usize, page: u64, access: Access) -> bool {
        let (space, at) = (self.spaces[process], Vpn(page));
        let (mut faults, mut made_room) = (0, false);
        while !self.machine.pmap.access(space, at, access) {
            faults += 1;
            assert!(faults <= 2, "{access:?} of page {page} faults again and again");
            match self.machine.fault(space, page, access) {
                Ok(_) => {}
                Err(FaultError::OutOfMemory(_)) => {
                    assert!(!made_room, "the daemon said that it made room");
                    made_room = self.run_daemon();
                    if !made_room {
                        self.out_of_memory += 1;
                        let stats = self.machine.vm.stats();
                        assert_eq!(self.machine.vm.buddy().free_frames(), 0);
                        assert_eq!(stats.resident_pages, self.machine.vm.buddy().frames(), "all frames are in use");
                        assert_eq!(stats.unswappable_pages, stats.resident_pages, "none of them can go");
                        return false;
                    }
                    continue;
                }
                Err(error) => panic!("{error}"),
            }
            if self.daemon == Daemon::BeforeRetry {
                self.answer_daemon();
            }
        }
        self.most = self.most.max(faults);
        let frame = self.machine.pmap.lookup(space, at).expect("it went through").frame.0 as usize;
        let value = &mut self.values[process][page as usize];
        let held = &mut self.machine.disk.memory[frame];
        assert_eq!(*held, *value, "page {page} of process {process}");
        if access == Access::Write {
            *value = value.wrapping_mul(3) + 1 + process as u64;
            *held = *value;
        }
        if self.daemon == Daemon::AfterAccess {
            self.answer_daemon();
        }
        true
    }

    fn fork(&mut self, process: usize) {
        let child = self.machine.vm.fork(&mut self.machine.pmap, self.spaces[process]).unwrap();
        self.spaces.push(child);
        self.values.push(self.values[process]);
    }

    /// As a kernel would: a process that finds no memory ends, as long as there is another one.
    fn churn(&mut self, accesses: u64) {
        for _ in 0..accesses {
            if self.spaces.len() < 3 && self.random(8) == 0 {
                self.fork(0);
            }
            let process = self.random(self.spaces.len() as u64) as usize;
            let (page, kind) = (self.random(PAGES), [Access::Read, Access::Write][self.random(2) as usize]);
            let through = self.access(process, page, kind);
            self.machine.vm.validate(&self.machine.pmap).unwrap();
            if !through && self.spaces.len() > 1 && self.random(4) == 0 {
                self.machine.vm.exit(&mut self.machine.pmap, self.spaces.swap_remove(process)).unwrap();
                self.values.swap_remove(process);
            }
        }
    }

    /// Ends all: the most faults of an access, how often memory was out, pages read back.
    fn end(mut self) -> [u64; 3] {
        let seen = [u64::from(self.most), u64::from(self.out_of_memory), self.machine.vm.stats().page_ins];
        self.machine.space = self.spaces.remove(0);
        for space in self.spaces {
            self.machine.vm.exit(&mut self.machine.pmap, space).unwrap();
        }
        self.machine.end();
        seen
    }
}

fn each(mut work: impl FnMut(&str, Daemon)) {
    for policy in POLICIES {
        [Daemon::BeforeRetry, Daemon::AfterAccess].into_iter().for_each(|daemon| work(policy, daemon));
    }
}

#[test]
fn an_access_takes_two_faults_at_most_or_memory_is_out() {
    each(|policy, daemon| {
        let mut all = [0; 3];
        for frames in [1, 2, 3, 8, 17, 40, 64, 90, 128] {
            for swap_pages in [0, 1, 2, 5, 20, 60, 300] {
                let mut crowd = Crowd::new(frames, swap_pages, policy, daemon);
                crowd.churn(100);
                let seen = crowd.end();
                all = [all[0].max(seen[0]), all[1] + seen[1], all[2] + seen[2]];
            }
        }
        assert!(all[0] == 2 && all[1] > 100 && all[2] > 20, "{policy}: {all:?}");
    });
}

#[test]
fn both_sides_of_a_fork_write_all_with_a_little_swap_space() {
    each(|policy, daemon| {
        let mut all = [0; 2];
        for swap_pages in 15..25 {
            let mut crowd = Crowd::new(128, swap_pages, policy, daemon);
            (0..PAGES).for_each(|page| assert!(crowd.access(0, page, Access::Write)));
            crowd.fork(0);
            for round in 0..2 {
                for page in 0..PAGES {
                    crowd.access(1 - round, page, Access::Write);
                    crowd.access(round, PAGES - 1 - page, Access::Read);
                }
            }
            crowd.machine.vm.validate(&crowd.machine.pmap).unwrap();
            let [_, out_of_memory, page_ins] = crowd.end();
            all = [all[0] + out_of_memory, all[1] + page_ins];
        }
        assert!(all[0] > 0 && all[1] > 0, "{policy}: {all:?}");
    });
}

/// Memory of dirty pages, all referenced, with so much swap space.
fn full(frames: u64, swap_pages: u64) -> Machine {
    let mut machine = Machine::with_swap("8K 64K", frames, "reservation", swap_pages);
    machine.anonymous(0, 2 * frames, Growth::Fixed);
    (0..frames + swap_pages).for_each(|page| machine.put(page, page));
    machine
}

/// How many pages a run of the daemon samples, and whether it made room.
fn sampled(machine: &mut Machine) -> (u64, bool) {
    let before = machine.vm.stats().daemon_scanned;
    let room = machine.vm.run_daemon(&mut machine.pmap, &mut machine.disk);
    (machine.vm.stats().daemon_scanned - before, room)
}

#[test]
fn a_run_that_can_give_nothing_looks_at_no_page_that_was_written() {
    for (frames, policy) in [(64, "base"), (512, "base"), (4096, "base"), (4096, "reservation"), (4096, "thp")] {
        let mut machine = Machine::with_swap("8K 64K", frames, policy, 0);
        machine.anonymous(0, 1 << 20, Growth::Fixed);
        (0..frames).for_each(|page| machine.put(page, page));
        for _ in 0..3 {
            let page = frames;
            let fault = machine.fault(machine.space, page, Access::Write);
            assert_eq!(fault, Err(FaultError::OutOfMemory(Vpn(page))));
            assert_eq!(sampled(&mut machine), (0, false), "of {frames} with {policy}");
        }
        assert_eq!(machine.vm.stats().unswappable_pages, frames);
        machine.end();
    }
}

#[test]
fn pages_that_were_read_first_are_looked_at_a_few_times_and_then_no_more() {
    for frames in [64, 512, 4096] {
        let mut machine = Machine::with_swap("8K 64K", frames, "base:reclaim=lru", 0);
        machine.anonymous(0, 1 << 20, Growth::Fixed);
        for page in 0..frames {
            assert_eq!(machine.get(page), 0);
            machine.put(page, page);
        }
        let (first, room) = sampled(&mut machine);
        assert!(!room && (1..=6 * frames).contains(&first), "{first} pages sampled of {frames}");
        // What the last faults mapped is left, until a fault finds no frame.
        assert!(machine.try_put(frames, 1).is_err());
        for _ in 0..3 {
            let fault = machine.fault(machine.space, frames, Access::Write);
            assert_eq!(fault, Err(FaultError::OutOfMemory(Vpn(frames))));
            assert_eq!(sampled(&mut machine), (0, false), "nothing has changed");
        }
        machine.end();
    }
}

#[test]
fn clean_pages_go_where_others_have_no_place_to_go() {
    let mut machine = Machine::with_swap("8K 64K", 512, "base:reclaim=lru", 0);
    machine.anonymous(0, 1 << 20, Growth::Fixed);
    machine.file(1 << 21, 100, false, 0);
    let file = (1 << 21)..(1 << 21) + 100;
    file.clone().for_each(|page| assert_eq!(machine.get(page), 0));
    (0..412).for_each(|page| machine.put(page, page));
    let before = machine.vm.stats().daemon_scanned;
    assert!(machine.try_put(412, 412).is_ok(), "a page of the file makes room");
    let sampled = machine.vm.stats().daemon_scanned - before;
    assert!((1..=600).contains(&sampled), "{sampled} pages sampled: those of the file, none of the others");
    assert!(machine.mapped(file).len() < 100);
    (0..413).for_each(|page| assert_eq!(machine.get(page), page));
    machine.end();
}

#[test]
fn a_slot_that_is_given_back_is_used_with_a_look_at_as_many_pages() {
    let mut machine = full(512, 40);
    assert!(machine.try_put(600, 1).is_err());
    assert_eq!(machine.vm.stats().unswappable_pages, 512);
    // Of what is unmapped three pages are in swap space, where the first have gone.
    let evicted: Vec<u64> = (0..552).filter(|page| machine.frame(*page).is_none()).take(3).collect();
    evicted.iter().for_each(|page| machine.unmap(*page, 1));
    assert!(machine.vm.daemon_wanted(), "memory is short, and three pages could go now");
    let (count, room) = sampled(&mut machine);
    assert!(room && count <= 12, "{count} pages sampled for three slots");
    assert_eq!(machine.vm.stats().unswappable_pages, 509);
    machine.end();
}

#[test]
fn what_the_last_faults_mapped_goes_last() {
    // Ten pages can go; the daemon aims at more, and takes the two that are not of the last eight.
    let mut machine = Machine::with_swap("8K 64K", 128, "base:reclaim=lru", 10);
    machine.anonymous(0, 400, Growth::Fixed);
    (0..138).for_each(|page| machine.put(page, page));
    assert!(machine.try_put(138, 138).is_err());
    machine.unmap(100, 9);
    machine.file(1024, 40, false, 0);
    (1024..1034).for_each(|page| assert_eq!(machine.get(page), 0));
    while machine.vm.daemon_wanted() && machine.daemon() {}
    let latest: Vec<u64> = (1026..1034).collect();
    assert_eq!(machine.mapped(1024..1034), latest);
    // A fault that finds no frame takes one of them, no more than it needs.
    let mut free = 200;
    while machine.vm.buddy().free_frames() > 0 {
        machine.write(free);
        free += 1;
    }
    machine.end();
}
