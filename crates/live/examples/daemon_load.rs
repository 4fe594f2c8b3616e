//! Many processes for a daemon to watch: `daemon_load [IDLE] [BUSY]`, 200 that sleep and 20 that
//! work, unless told otherwise.
//!
//! An idle one has 4 MB of memory and sleeps. A busy one has 16 MB, reads it at random, and maps,
//! fills and unmaps 1 MB, 2 % of the time. Prints their numbers and ends, with them, when its input
//! ends.

use std::io::Read;
use std::time::{Duration, Instant};

/// Memory of so many bytes, each page written.
fn memory(bytes: usize) -> *mut u8 {
    let (rights, how) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping where the kernel chooses touches nothing that exists.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, how, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED, "out of memory");
    let start = start.cast::<u8>();
    for page in (0..bytes).step_by(4096) {
        // SAFETY: within the mapping, which is ours.
        unsafe { start.add(page).write_volatile(1) };
    }
    start
}

fn busy(seed: u64) -> ! {
    const BYTES: usize = 16 << 20;
    let start = memory(BYTES);
    let mut random = fastrand::Rng::with_seed(seed);
    loop {
        let until = Instant::now() + Duration::from_micros(400);
        while Instant::now() < until {
            for _ in 0..100 {
                // SAFETY: within the mapping, which is ours.
                unsafe { start.add(random.usize(..BYTES)).read_volatile() };
            }
        }
        if random.u32(..100) == 0 {
            let more = memory(1 << 20);
            // SAFETY: the mapping was made just now, and nothing refers to it.
            unsafe { libc::munmap(more.cast(), 1 << 20) };
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn main() {
    let argument = |n, default| std::env::args().nth(n).map_or(default, |text| text.parse().expect("a number"));
    let (idle, workers): (u64, u64) = (argument(1, 200), argument(2, 20));
    let mut pids = Vec::new();
    for i in 0..idle + workers {
        // SAFETY: this process has one thread, so the child may do all that it could do.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "cannot fork");
        if pid == 0 {
            // SAFETY: the request takes numbers: this child ends with its parent.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            if i >= idle {
                busy(i);
            }
            memory(4 << 20);
            loop {
                std::thread::park();
            }
        }
        pids.push(pid.to_string());
    }
    println!("{}", pids.join(" "));
    let mut input = Vec::new();
    std::io::stdin().read_to_end(&mut input).expect("an input that can be read to its end");
}
