//! The buddy allocator beside two others that do the same work in the same run: 4 GiB of 4K frames,
//! ladder 4K/2M/1G.
//!
//! Times are nanoseconds of one thread and hold the cost of the loop around (a random number and
//! the array of held frames, for churn). Those of a pair are the least of many rounds; those of
//! churn, where each round finds memory as the last one left it, the median. Lists that take what
//! was freed last get the frame of a replacement straight back: it is cheap, and it never repairs
//! contiguity. Run without `--bench`, as `cargo test --all-targets` does, all of it does a
//! hundredth of the work and only shows that it works.

mod array;

use array::ArrayBuddy;
use buddy_system_allocator::FrameAllocator;
use std::hint::black_box;
use std::time::Instant;
use superpage_pages::{Extent, Ladder, Level, PageSize, Pfn, Random};
use superpage_vm::Buddy;

const FRAMES: u32 = 1 << 20;
/// Orders of the ladder 4K/2M/1G, in frames.
const ORDERS: [u32; 3] = [0, 9, 18];
const LARGEST: u32 = 18;
const BASE: usize = 0;
const SUPERPAGE: usize = 1;

/// One allocator under test; sizes are named by their level in 4K/2M/1G.
trait Frames {
    const NAME: &'static str;
    fn all_free() -> Self;
    fn allocate(&mut self, level: usize) -> Option<u32>;
    fn free(&mut self, start: u32, level: usize);
    /// The bytes of its own that it needs for 4 GiB, if they can be known.
    fn metadata_bytes(&self) -> Option<usize>;
}

impl Frames for Buddy {
    const NAME: &'static str = "superpage-vm";

    fn all_free() -> Buddy {
        let sizes = ORDERS.map(|order| PageSize::from_shift(PageSize::KB4.shift() + order).unwrap());
        Buddy::new(Ladder::new(&sizes).unwrap(), FRAMES.into()).unwrap()
    }

    fn allocate(&mut self, level: usize) -> Option<u32> {
        Buddy::allocate(self, Level(level as u8)).map(|extent| extent.start.0 as u32)
    }

    fn free(&mut self, start: u32, level: usize) {
        Buddy::free(self, Extent { start: Pfn(start.into()), level: Level(level as u8) });
    }

    fn metadata_bytes(&self) -> Option<usize> {
        Some(Buddy::metadata_bytes(self))
    }
}

impl Frames for ArrayBuddy {
    const NAME: &'static str = "array buddy";

    fn all_free() -> ArrayBuddy {
        ArrayBuddy::new(FRAMES, LARGEST)
    }

    fn allocate(&mut self, level: usize) -> Option<u32> {
        ArrayBuddy::allocate(self, ORDERS[level])
    }

    fn free(&mut self, start: u32, level: usize) {
        ArrayBuddy::free(self, start, ORDERS[level]);
    }

    fn metadata_bytes(&self) -> Option<usize> {
        Some(ArrayBuddy::metadata_bytes(self))
    }
}

impl Frames for FrameAllocator<{ LARGEST as usize + 1 }> {
    const NAME: &'static str = "buddy_system_allocator";

    fn all_free() -> Self {
        let mut frames = FrameAllocator::new();
        frames.add_frame(0, FRAMES as usize);
        frames
    }

    fn allocate(&mut self, level: usize) -> Option<u32> {
        self.alloc(1 << ORDERS[level]).map(|start| start as u32)
    }

    fn free(&mut self, start: u32, level: usize) {
        self.dealloc(start as usize, 1 << ORDERS[level]);
    }

    /// Its trees grow and shrink with the number of free blocks.
    fn metadata_bytes(&self) -> Option<usize> {
        None
    }
}

/// How much work to do.
struct Effort {
    rounds: usize,
    pairs: usize,
    replacements: usize,
}

/// All of memory taken as extents of `level`, then a random share of them, `freed` of each four,
/// given back. Returns what is held.
fn random_holes<F: Frames>(level: usize, freed: usize, random: &mut Random) -> (F, Vec<u32>) {
    let mut frames = F::all_free();
    let mut held: Vec<u32> = std::iter::from_fn(|| frames.allocate(level)).collect();
    for _ in 0..held.len() * freed / 4 {
        let which = random.below(held.len() as u64) as usize;
        frames.free(held.swap_remove(which), level);
    }
    (frames, held)
}

/// The times of all rounds, ascending, in nanoseconds for each of `pairs`.
fn times(effort: &Effort, mut round: impl FnMut(usize)) -> Vec<f64> {
    let time = |_| {
        let start = Instant::now();
        round(effort.pairs);
        start.elapsed().as_secs_f64() * 1e9 / effort.pairs as f64
    };
    let mut times: Vec<f64> = (0..effort.rounds).map(time).collect();
    times.sort_by(f64::total_cmp);
    times
}

/// Allocates and frees one extent of `level`, over and over.
fn pair<F: Frames>(frames: &mut F, level: usize, effort: &Effort) -> f64 {
    let times = times(effort, |pairs| {
        for _ in 0..pairs {
            let start = black_box(frames.allocate(level).expect("half of memory is free"));
            frames.free(start, level);
        }
    });
    times[0]
}

/// Allocates many extents of `level`, then frees them in an order drawn beforehand.
fn batch<F: Frames>(frames: &mut F, level: usize, random: &mut Random, effort: &Effort) -> f64 {
    const BATCH: usize = 500;
    let mut order: Vec<usize> = (0..BATCH).collect();
    (1..BATCH).for_each(|i| order.swap(i, random.below(i as u64 + 1) as usize));
    let mut taken = [0; BATCH];
    let times = times(effort, |pairs| {
        for _ in 0..pairs / BATCH {
            taken.fill_with(|| frames.allocate(level).expect("half of memory is free"));
            order.iter().for_each(|i| frames.free(taken[*i], level));
        }
    });
    times[0]
}

/// Frees a random one of the held base pages and allocates one.
fn replace<F: Frames>(frames: &mut F, held: &mut [u32], random: &mut Random, times: usize) {
    for _ in 0..times {
        let which = random.below(held.len() as u64) as usize;
        frames.free(held[which], BASE);
        held[which] = frames.allocate(BASE).expect("one was just freed");
    }
}

/// The figures of one allocator, in the order of `ROWS`.
fn measure<F: Frames>(effort: &Effort) -> [String; ROWS.len()] {
    let mut random = Random::new(2002);

    let (mut frames, _held) = random_holes::<F>(BASE, 2, &mut random);
    let base = pair(&mut frames, BASE, effort);
    let base_batch = batch(&mut frames, BASE, &mut random, effort);

    let (mut frames, _held) = random_holes::<F>(SUPERPAGE, 2, &mut random);
    let superpage = pair(&mut frames, SUPERPAGE, effort);
    let superpage_batch = batch(&mut frames, SUPERPAGE, &mut random, effort);

    let mut frames = F::all_free();
    for _ in 0..FRAMES >> (1 + ORDERS[SUPERPAGE]) {
        frames.allocate(SUPERPAGE);
    }
    let split = pair(&mut frames, SUPERPAGE, effort);

    let (mut frames, mut held) = random_holes::<F>(BASE, 1, &mut random);
    let churn = times(effort, |pairs| replace(&mut frames, &mut held, &mut random, pairs))[effort.rounds / 2];

    let (mut frames, mut held) = random_holes::<F>(BASE, 2, &mut random);
    replace(&mut frames, &mut held, &mut random, effort.replacements);
    let metadata = frames.metadata_bytes().map_or("unknown".into(), |bytes| format!("{:.1} KB", bytes as f64 / 1e3));
    let blocks = std::iter::from_fn(|| frames.allocate(SUPERPAGE)).count();

    let times = [base, base_batch, superpage, superpage_batch, split, churn];
    let [base, base_batch, superpage, superpage_batch, split, churn] = times.map(|time| format!("{time:.1} ns"));
    [base, base_batch, superpage, superpage_batch, split, churn, blocks.to_string(), metadata]
}

/// An allocator of which every free frame holds a cache page: what the trait's `free` means is
/// `Buddy::free_cached`.
struct CachePages(Buddy);

impl Frames for CachePages {
    const NAME: &'static str = "cache pages";

    fn all_free() -> CachePages {
        CachePages(Buddy::all_free())
    }

    fn allocate(&mut self, level: usize) -> Option<u32> {
        Frames::allocate(&mut self.0, level)
    }

    fn free(&mut self, start: u32, level: usize) {
        self.0.free_cached(Extent { start: Pfn(start.into()), level: Level(level as u8) });
    }

    fn metadata_bytes(&self) -> Option<usize> {
        Some(self.0.metadata_bytes())
    }
}

/// Measures what cache pages cost, with a random half of memory free. Of each size: a pair where
/// only one frame is marked, and that one held; and a pair where all that is free is marked, so
/// that the oldest goes and comes back as the newest. Then the metadata of the latter.
fn print_cached(effort: &Effort) {
    let mut random = Random::new(2002);
    for (level, size) in [(BASE, "a base page"), (SUPERPAGE, "2M")] {
        let (mut plain, held) = random_holes::<Buddy>(level, 2, &mut random);
        plain.mark_cached(Pfn(held[0].into()));
        let (mut cached, _held) = random_holes::<CachePages>(level, 2, &mut random);
        let [plain, marked] = [pair(&mut plain, level, effort), pair(&mut cached, level, effort)];
        let metadata = cached.metadata_bytes().unwrap_or_default() as f64 / 1e3;
        println!("allocate + free {size} where one frame of others is marked: {plain:.1} ns");
        println!("allocate + free {size} where all that is free is marked: {marked:.1} ns, metadata {metadata:.1} KB");
    }
}

/// What is measured, and the figure of the design to beat.
const ROWS: [(&str, &str); 8] = [
    ("allocate + free a base page, random half free", "30 ns"),
    ("the same, 500 taken and freed in random order", "30 ns"),
    ("allocate + free 2M, random half free", "7 ns"),
    ("the same, 500 taken and freed in random order", "7 ns"),
    ("allocate + free 2M, each pair splits and coalesces 1G", ""),
    ("replace a random base page, 75 % full", "60 ns"),
    ("free 2M of 2048, random half and 8 M replacements", "950 or more"),
    ("metadata for 4 GiB", "166 KB"),
];

fn print(name: &str, cells: [&str; 4]) {
    println!("{name:<54} {:>14} {:>14} {:>23} {:>12}", cells[0], cells[1], cells[2], cells[3]);
}

fn main() {
    let scale = if std::env::args().any(|argument| argument == "--bench") { 1 } else { 100 };
    let effort = Effort { rounds: 50, pairs: 100_000 / scale, replacements: 8_000_000 / scale };
    type Trees = FrameAllocator<{ LARGEST as usize + 1 }>;
    let ours = measure::<Buddy>(&effort);
    let array = measure::<ArrayBuddy>(&effort);
    let trees = measure::<Trees>(&effort);
    print("4 GiB of 4K frames, 4K/2M/1G", [Buddy::NAME, ArrayBuddy::NAME, Trees::NAME, "to beat"]);
    for (i, (what, figure)) in ROWS.iter().enumerate() {
        print(what, [&ours[i], &array[i], &trees[i], figure]);
    }
    println!("\nCache pages:");
    print_cached(&effort);
}
