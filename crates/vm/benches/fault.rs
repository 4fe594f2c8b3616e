//! What faults, promotions and preemptions cost, and what metadata takes, beside the figures of
//! DESIGN.md. Page tables do nothing here, so that the memory manager alone is measured.
//!
//! Times are nanoseconds of one thread; each is the least of several rounds. For faults that find
//! their reservation, the median of batches of 2048 stands beside it, which a machine that does
//! other work at once disturbs little, but which leaves out what seldom happens, such as a larger
//! array. Run without `--bench`, as `cargo test --all-targets` does, all of it does a small part of
//! the work and only shows that it works.

use std::time::Instant;
use superpage_pages::{Access, Ladder, PageSize, Protection, Random, Vpn};
use superpage_vm::{Config, Map, Mapped, NoMemory, Pmap, Policy, SoftPmap, SpaceId, Used, Vm};

/// Page tables that keep nothing: for runs in which the manager never reads them.
struct Blind;

impl Pmap for Blind {
    fn enter(&mut self, _: SpaceId, _: Vpn, _: Mapped, _: Access) {}
    fn remove(&mut self, _: SpaceId, _: Vpn, _: PageSize) -> Used {
        Used::default()
    }
    fn protect(&mut self, _: SpaceId, _: Vpn, _: PageSize, _: Protection) {}
    fn promote(&mut self, _: SpaceId, _: Vpn, _: PageSize, _: PageSize) {}
    fn demote(&mut self, _: SpaceId, _: Vpn, _: PageSize, _: PageSize) {}
    fn lookup(&self, _: SpaceId, _: Vpn) -> Option<Mapped> {
        None
    }
    fn used(&self, _: SpaceId, _: Vpn, _: PageSize) -> Used {
        Used::default()
    }
    fn clear_referenced(&mut self, _: SpaceId, _: Vpn, _: PageSize) -> bool {
        false
    }
    fn clear_modified(&mut self, _: SpaceId, _: Vpn, _: PageSize) -> bool {
        false
    }
    fn destroy(&mut self, _: SpaceId) {}
}

fn ladder(sizes: &str) -> Ladder {
    let sizes: Vec<PageSize> = sizes.split('/').map(|size| size.parse().unwrap()).collect();
    Ladder::new(&sizes).unwrap()
}

const MODERN: &str = "4K/2M/1G";
const ARM: &str = "4K/64K/2M/1G";
const ALPHA: &str = "8K/64K/512K/4M";

/// A process with one anonymous mapping of `pages` pages, in a memory of `frames`.
fn process(sizes: &str, policy: &str, pages: u64, frames: u64) -> (Vm, SpaceId, Vpn) {
    let config = Config { ladder: ladder(sizes), frames, policy: policy.parse::<Policy>().unwrap(), swap_pages: 0 };
    let mut vm = Vm::new(config).unwrap();
    let space = vm.create_space();
    let start = Vpn(1 << 30);
    vm.map(&mut Blind, space, Map::anonymous(start, pages)).unwrap();
    (vm, space, start)
}

fn touch(vm: &mut Vm, space: SpaceId, pages: &[Vpn]) -> f64 {
    let begin = Instant::now();
    for &page in pages {
        let _ = vm.fault(&mut Blind, &mut NoMemory, space.page(page), Access::Write).unwrap();
    }
    begin.elapsed().as_nanos() as f64 / pages.len() as f64
}

/// The same, with the median of batches.
fn touch_in_batches(vm: &mut Vm, space: SpaceId, pages: &[Vpn], batches: &mut Vec<f64>) -> f64 {
    let begin = Instant::now();
    batches.extend(pages.chunks(2048).map(|batch| touch(vm, space, batch)));
    begin.elapsed().as_nanos() as f64 / pages.len() as f64
}

fn least(rounds: u32, mut round: impl FnMut() -> f64) -> f64 {
    (0..rounds).map(|_| round()).fold(f64::INFINITY, f64::min)
}

fn shuffled(mut pages: Vec<Vpn>) -> Vec<Vpn> {
    let mut random = Random::new(1);
    for i in (1..pages.len()).rev() {
        pages.swap(i, random.below(i as u64 + 1) as usize);
    }
    pages
}

fn row(what: &str, ours: String, figure: &str) {
    println!("{what:<100} {ours:>9}   {figure}");
}

/// What a policy keeps for the page daemon, in words.
fn lists(reclaim: &str) -> &'static str {
    if reclaim == "none" { "without page lists" } else { "with page lists" }
}

/// Bytes of memory in the bench: 4 GiB, or a little when only tested.
fn memory() -> u64 {
    if std::env::args().any(|argument| argument == "--bench") { 4 << 30 } else { 64 << 20 }
}

fn faults(sizes: &str, reclaim: &str, rounds: u32) {
    let base = ladder(sizes).base().bytes();
    let pages = memory() / base;
    let largest = ladder(sizes).pages(ladder(sizes).largest()).min(pages);
    for (order, random) in [("in order", false), ("at random over all", true)] {
        for (promote, how) in [("never", "no promotion"), ("full", "promotion")] {
            let policy = format!("reservation:promote={promote},reclaim={reclaim}");
            let mut batches = Vec::new();
            let ours = least(rounds, || {
                let (mut vm, space, start) = process(sizes, &policy, pages, pages);
                let (heads, rest): (Vec<Vpn>, Vec<Vpn>) =
                    (0..pages).map(|page| start + page).partition(|page| (*page - start).is_multiple_of(largest));
                touch(&mut vm, space, &heads);
                touch_in_batches(&mut vm, space, &if random { shuffled(rest) } else { rest }, &mut batches)
            });
            batches.sort_by(f64::total_cmp);
            let median = batches[batches.len() / 2];
            row(
                &format!("{sizes} {}: fault that finds its reservation, {order}, {how}", lists(reclaim)),
                format!("{ours:.1} ns"),
                &format!(
                    "median {median:.1} ns; {}",
                    if random && reclaim == "lru" { "at most 120 ns" } else { "60 ns" }
                ),
            );
        }
    }
    let extents = 512.min(pages / 16);
    let ours = least(rounds.max(5), || {
        // The largest size but one, so that a large memory has many.
        let size = ladder(sizes);
        let level = size.largest().down();
        let policy = format!("reservation:reclaim={reclaim}");
        let sizes: Vec<String> = size.sizes()[..=level.index()].iter().map(PageSize::to_string).collect();
        let (mut vm, space, start) = process(&sizes.join("/"), &policy, pages, pages);
        let heads: Vec<Vpn> =
            (0..extents.min(pages / size.pages(level))).map(|i| start + i * size.pages(level)).collect();
        touch(&mut vm, space, &heads)
    });
    row(&format!("{sizes} {}: fault that makes a reservation", lists(reclaim)), format!("{ours:.1} ns"), "-");
}

/// A fault that populates all of an extent of 2 MB, and maps it as one page or as base pages.
fn extents(policy: &str, how: &str, rounds: u32) {
    let (pages, size) = (memory() / 4096, 512);
    let ours = least(rounds.max(5), || {
        let (mut vm, space, start) = process(MODERN, policy, pages, pages);
        let heads: Vec<Vpn> = (0..pages / size).map(|extent| start + extent * size).collect();
        let cost = touch(&mut vm, space, &heads);
        assert_eq!(vm.stats().resident_pages, pages);
        cost
    });
    row(&format!("{MODERN} {policy}: fault that populates 2 MB and maps {how}"), format!("{ours:.0} ns"), "-");
}

/// The last fault of a region, which promotes it, less the fault before it: by size.
fn promotions(sizes: &str, rounds: u32) {
    let ladder = ladder(sizes);
    let pages = memory() / ladder.base().bytes();
    for level in ladder.levels().skip(1).filter(|level| ladder.pages(*level) <= pages) {
        let size = ladder.pages(level);
        let ours = least(rounds, || {
            let count = (pages / size).min(64);
            let (mut vm, space, start) = process(sizes, "reservation", size * count, pages);
            let mut total = 0.0;
            for region in 0..count {
                for page in 0..size - 1 {
                    let _ = vm
                        .fault(&mut Blind, &mut NoMemory, space.page(start + (region * size + page)), Access::Write)
                        .unwrap();
                }
                let begin = Instant::now();
                let _ = vm
                    .fault(&mut Blind, &mut NoMemory, space.page(start + (region * size + size - 1)), Access::Write)
                    .unwrap();
                total += begin.elapsed().as_nanos() as f64;
            }
            assert!(vm.stats().promotions[level.index()] >= count);
            total / count as f64
        });
        let what = format!("{sizes}: fault that completes {} (promotes {} times)", ladder.size(level), level.0);
        row(&what, format!("{ours:.0} ns"), "O(number of sizes)");
    }
}

/// A run of the page daemon that can give nothing: memory is full of pages that were written, and
/// there is no swap space.
fn futile_run(megabytes: u64, rounds: u32) {
    let frames = megabytes << 8;
    let ours = least(rounds, || {
        let (ladder, policy) = (Ladder::X86_64, "reservation".parse().unwrap());
        let mut pmap = SoftPmap::new(ladder);
        let mut vm = Vm::new(Config { ladder, frames, policy, swap_pages: 0 }).unwrap();
        let space = vm.create_space();
        vm.map(&mut pmap, space, Map::anonymous(Vpn(0), frames)).unwrap();
        for page in 0..frames {
            let _ = vm.fault(&mut pmap, &mut NoMemory, space.page(Vpn(page)), Access::Write).unwrap();
        }
        let begin = Instant::now();
        assert!(!vm.run_daemon(&mut pmap, &mut NoMemory));
        begin.elapsed().as_nanos() as f64
    });
    row(
        &format!("{megabytes} MB written, no swap space: daemon run that gives nothing"),
        format!("{ours:.0} ns"),
        "O(1)",
    );
}

/// The same where swap space is full: the run that finds that out for each page, and the next.
fn full_swap(megabytes: u64, rounds: u32) {
    let frames = megabytes << 8;
    let (mut first, mut next) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..rounds {
        let (ladder, policy) = (Ladder::X86_64, "reservation".parse().unwrap());
        let mut pmap = SoftPmap::new(ladder);
        let mut vm = Vm::new(Config { ladder, frames, policy, swap_pages: 1 }).unwrap();
        let space = vm.create_space();
        vm.map(&mut pmap, space, Map::anonymous(Vpn(0), frames)).unwrap();
        for page in 0..frames {
            let _ = vm.fault(&mut pmap, &mut NoMemory, space.page(Vpn(page)), Access::Write).unwrap();
        }
        for least in [&mut first, &mut next] {
            let begin = Instant::now();
            vm.run_daemon(&mut pmap, &mut NoMemory);
            *least = least.min(begin.elapsed().as_nanos() as f64);
        }
        assert_eq!(vm.stats().swap_used_pages, 1);
    }
    for (which, ours) in [("that finds swap space full", first), ("after it, that gives nothing", next)] {
        let what = format!("{megabytes} MB written, one page of swap space: daemon run {which}");
        row(&what, format!("{ours:.0} ns"), if which.starts_with("after") { "O(1)" } else { "O(pages), once each" });
    }
}

/// Section 6.6's adversary: a memory of one largest extent, touched with a stride of that.
fn preemptions(sizes: &str, rounds: u32) {
    let ladder = ladder(sizes);
    let frames = ladder.pages(ladder.largest());
    let touches = frames.min(500);
    let mut ratio = 0.0;
    let ours = least(rounds, || {
        let (mut vm, space, start) = process(sizes, "reservation", touches * frames, frames);
        let pages: Vec<Vpn> = (0..touches).map(|touch| start + touch * frames).collect();
        let cost = touch(&mut vm, space, &pages);
        ratio = touches as f64 / vm.stats().reservations_preempted as f64;
        cost
    });
    row(&format!("{sizes}: fault under preemption, one every {ratio:.1}"), format!("{ours:.0} ns"), "O(sizes x R)");
}

fn metadata(sizes: &str, policy: &str) {
    let pages = memory() / ladder(sizes).base().bytes();
    for (what, every) in [("every page", 1), ("one page in 8", 8)] {
        let (mut vm, space, start) = process(sizes, policy, pages, pages);
        for page in (0..pages).step_by(every) {
            let _ = vm.fault(&mut Blind, &mut NoMemory, space.page(start + page), Access::Write).unwrap();
        }
        let bytes = vm.metadata_bytes();
        let share = bytes as f64 * 100.0 / memory() as f64;
        let name = format!("{sizes} {policy}: metadata of {} GiB, {what} touched", memory() >> 30);
        row(
            &name,
            format!("{} KB", bytes / 1024),
            &format!("{share:.3} %, at most {} %", if policy.ends_with("none") { 0.1 } else { 0.4 }),
        );
    }
}

fn main() {
    let rounds = if memory() > 1 << 30 { 5 } else { 1 };
    row("what", "ours".into(), "figure of DESIGN.md");
    for sizes in [MODERN, ARM, ALPHA] {
        ["none", "lru"].iter().for_each(|reclaim| faults(sizes, reclaim, rounds));
    }
    for reclaim in ["none", "lru"] {
        extents(&format!("thp:reclaim={reclaim}"), "it as one", rounds);
        extents(&format!("thp:promote=never,reclaim={reclaim}"), "base pages", rounds);
    }
    for sizes in [MODERN, ARM, ALPHA] {
        promotions(sizes, rounds.min(2));
    }
    for sizes in [MODERN, ALPHA] {
        preemptions(sizes, rounds);
    }
    [32, 128].iter().for_each(|megabytes| futile_run(*megabytes, rounds.min(2)));
    [32, 128].iter().for_each(|megabytes| full_swap(*megabytes, rounds.min(2)));
    for sizes in [MODERN, ARM, ALPHA] {
        metadata(sizes, "reservation:reclaim=none");
        metadata(sizes, "reservation");
    }
    metadata(MODERN, "base");
}
