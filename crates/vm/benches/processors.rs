//! What one lock around the manager costs on several processors: threads fault in anonymous memory
//! and give it back, through one `Mutex`, each in a space of its own or all in one; and how much of
//! a fault the frame allocator and the lock are.
//!
//! Page tables are the [`SoftPmap`], under the lock as they must be. The manager fills nothing, or
//! zeroes real memory. Figures are the best of many short rounds, since two threads need two idle
//! processors: look at the load. Run without `--bench`, all of it does a small part of the work.

use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Instant;
use superpage_pages::{Access, Extent, Ladder, Level, Pfn, Vpn};
use superpage_vm::{Backed, Buddy, Config, Filled, Map, Memory, NoContents, Page, SoftPmap, SpaceId, Vm};

/// The pages that a thread uses.
const PAGES: u64 = 16_384;
/// The pages that it gives back in one call: 2 MB.
const PIECE: u64 = 512;
const THREADS: u64 = 2;
const FRAMES: u64 = 2 * THREADS * PAGES;

/// Real frames; none if the manager fills nothing.
struct Frames(Vec<[u8; 4096]>);

impl Memory for Frames {
    fn zero(&mut self, first: Pfn, frames: u64, _: Page) -> Result<(), NoContents> {
        if let Some(all) = self.0.get_mut(first.0 as usize..(first.0 + frames) as usize) {
            all.fill([0; 4096]);
        }
        Ok(())
    }

    fn copy(&mut self, _: Pfn, _: Pfn, _: Page) {}

    fn read(&mut self, _: Backed, _: Pfn, _: Page) -> Result<Filled, NoContents> {
        Err(NoContents)
    }

    fn write(&mut self, _: Backed, _: Pfn) {}

    fn digest(&mut self, _: Pfn) -> u128 {
        0
    }
}

struct Kernel {
    vm: Vm,
    pmap: SoftPmap,
    memory: Frames,
}

/// What one thread does, through the lock.
fn fault_and_give_back(kernel: &Mutex<Kernel>, space: SpaceId, start: Vpn) {
    for page in 0..PAGES {
        let Kernel { vm, pmap, memory } = &mut *kernel.lock().unwrap();
        let _ = vm.fault(pmap, memory, space.page(start + page), Access::Write).unwrap();
    }
    for piece in (0..PAGES).step_by(PIECE as usize) {
        let Kernel { vm, pmap, .. } = &mut *kernel.lock().unwrap();
        vm.discard(pmap, space, (start + piece).pages(PIECE)).unwrap();
    }
}

/// Faults per second of so many threads together, in millions: the best of some rounds.
fn faults(policy: &str, threads: u64, common: bool, zeroes: bool, rounds: u32) -> f64 {
    let (ladder, pages) = (Ladder::X86_64, threads * PAGES);
    let config = Config { ladder, frames: FRAMES, policy: policy.parse().unwrap(), swap_pages: 0 };
    let (mut vm, mut pmap) = (Vm::new(config).unwrap(), SoftPmap::new(ladder));
    let spaces: Vec<SpaceId> = (0..if common { 1 } else { threads }).map(|_| vm.create_space()).collect();
    for space in &spaces {
        vm.map(&mut pmap, *space, Map::anonymous(Vpn(0), pages)).unwrap();
    }
    let memory = Frames(vec![[1; 4096]; if zeroes { FRAMES as usize } else { 0 }]);
    let kernel = Mutex::new(Kernel { vm, pmap, memory });
    let round = || {
        let barrier = Barrier::new(threads as usize);
        let run = |thread: u64| {
            let space = spaces[thread as usize % spaces.len()];
            barrier.wait();
            let begin = Instant::now();
            fault_and_give_back(&kernel, space, Vpn(thread * PAGES));
            (begin, Instant::now())
        };
        let times: Vec<(Instant, Instant)> = thread::scope(|scope| {
            let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
            handles.into_iter().map(|handle| handle.join().unwrap()).collect()
        });
        let begin = times.iter().map(|(begin, _)| *begin).min().expect("a thread");
        let end = times.iter().map(|(_, end)| *end).max().expect("a thread");
        pages as f64 / (end - begin).as_secs_f64() / 1e6
    };
    (0..rounds).map(|_| round()).fold(0.0, f64::max)
}

/// Nanoseconds that the buddy allocator takes for a frame, to allocate and to free.
fn allocator(rounds: u32) -> f64 {
    let mut buddy = Buddy::new(Ladder::X86_64, FRAMES).unwrap();
    let mut round = || {
        let begin = Instant::now();
        let frames: Vec<Extent> = (0..PAGES).map(|_| buddy.allocate(Level::BASE).unwrap()).collect();
        frames.into_iter().for_each(|frame| buddy.free(frame));
        begin.elapsed().as_nanos() as f64 / PAGES as f64
    };
    (0..rounds).map(|_| round()).fold(f64::INFINITY, f64::min)
}

/// Nanoseconds to lock and unlock, by one thread alone.
fn lock(rounds: u32) -> f64 {
    let count = Mutex::new(0);
    let round = || {
        let begin = Instant::now();
        (0..PAGES).for_each(|_| *count.lock().unwrap() += 1);
        begin.elapsed().as_nanos() as f64 / PAGES as f64
    };
    (0..rounds).map(|_| round()).fold(f64::INFINITY, f64::min)
}

fn main() {
    let bench = std::env::args().any(|argument| argument == "--bench");
    let rounds = if bench { 60 } else { 1 };
    println!(
        "{:<70} {:>9} {:>9} {:>6}",
        "million faults a second of all threads, each with its give-back", "1", "2", ""
    );
    for (zeroes, contents) in [(false, "fills nothing"), (true, "zeroes under the lock")] {
        for policy in ["base", "reservation"] {
            for (common, spaces) in [(false, "a space each"), (true, "one space")] {
                let [one, two] = [1, THREADS].map(|threads| faults(policy, threads, common, zeroes, rounds));
                let what = format!("{policy}, {contents}, {spaces}");
                println!("{what:<70} {one:>9.2} {two:>9.2} {:>4.2} x", two / one);
            }
        }
    }
    println!("{:<70} {:>6.1} ns", "the frame allocator's part: a frame allocated and freed", allocator(rounds));
    println!("{:<70} {:>6.1} ns", "the lock's part, if nobody else wants it", lock(rounds));
}
