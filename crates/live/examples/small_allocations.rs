//! Small allocations and a random chase: the program for which huge pages are praised, and that
//! cannot ask for them itself.
//!
//! `small_allocations [COUNT] [BYTES] [STEPS] [PAUSE]`: allocates COUNT (4 M) objects of BYTES (64)
//! from the C library, links them in one random cycle, waits PAUSE (0) seconds, in which a promoter
//! may work, and then follows STEPS (20 M) links. Prints seconds of the clock and of the CPU, and
//! resident memory, as one line of `name=value`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::time::{Duration, Instant};

/// The fields of /proc/self/smaps_rollup that matter, in KB.
fn memory(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|rest| rest.trim_start_matches(':').split_whitespace().next()).map_or(0, |kb| kb.parse().unwrap_or(0))
}

/// When something began: by the clock, and by this process's CPU time.
struct Began(Instant, f64);

impl Began {
    fn now() -> Began {
        Began(Instant::now(), cpu())
    }

    /// Seconds since then, of the clock and of the CPU.
    fn seconds(&self) -> (f64, f64) {
        (self.0.elapsed().as_secs_f64(), cpu() - self.1)
    }
}

fn cpu() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the time that it is given, which is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn argument(n: usize, default: usize) -> usize {
    std::env::args().nth(n).map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{text:?} is no number: small_allocations [COUNT] [BYTES] [STEPS] [PAUSE]"))
    })
}

fn main() {
    let (count, bytes, steps, pause) =
        (argument(1, 4_000_000), argument(2, 64), argument(3, 20_000_000), argument(4, 0));
    assert!(count > 0 && bytes >= size_of::<usize>(), "an object holds at least a link");
    let mut random = fastrand::Rng::with_seed(1);

    let began = Began::now();
    let layout = Layout::from_size_align(bytes, align_of::<usize>()).expect("a size that is no more than memory");
    let mut objects: Vec<*mut usize> = Vec::with_capacity(count);
    for _ in 0..count {
        // SAFETY: the size is not zero.
        let object = unsafe { System.alloc(layout) }.cast::<usize>();
        assert!(!object.is_null(), "out of memory");
        // SAFETY: the object holds at least a word, and is aligned for it.
        unsafe { object.write(0) };
        objects.push(object);
    }
    let build = began.seconds();
    random.shuffle(&mut objects);
    for (i, object) in objects.iter().enumerate() {
        // SAFETY: as above.
        unsafe { object.write(objects[(i + 1) % count] as usize) };
    }
    let first = objects[0];
    drop(objects);

    let before = memory("Rss");
    std::thread::sleep(Duration::from_secs(pause as u64));
    let began = Began::now();
    let mut at = first;
    for _ in 0..steps {
        // SAFETY: each object holds the address of another, and none is ever freed.
        at = unsafe { at.read() } as *mut usize;
    }
    std::hint::black_box(at);
    let chase = began.seconds();
    println!(
        "build_s={:.3} build_cpu_s={:.3} chase_s={:.3} chase_cpu_s={:.3} rss_before_kb={before} rss_kb={} huge_kb={}",
        build.0,
        build.1,
        chase.0,
        chase.1,
        memory("Rss"),
        memory("AnonHugePages"),
    );
}
