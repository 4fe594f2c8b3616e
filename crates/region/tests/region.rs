//! A region is memory: what is written is read back, whatever the pager does meanwhile, and what
//! the pager says is so.
#![cfg(target_os = "linux")]

use std::sync::atomic::{AtomicU64, Ordering};
use superpage_region::{Builder, Error, Region};

const PAGE: usize = 4096;
const BLOCK: usize = 2 << 20;

/// The region, or `None` after a message where this system has none to offer.
fn region(builder: Builder) -> Option<Region> {
    match builder.build() {
        Ok(region) => Some(region),
        Err(error @ (Error::Rights(_) | Error::UserModeOnly | Error::Kernel(_) | Error::BasePage(_))) => {
            superpage_testing::skip!("system", "{error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A field of /proc/self/smaps, in bytes, summed over the mappings that lie in the region.
fn smaps(region: &Region, field: &str) -> usize {
    let low = region.as_ptr().as_ptr().addr();
    let high = low + region.len();
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut inside, mut sum) = (false, 0);
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap();
        if let Some((start, end)) = first.split_once('-')
            && let (Ok(start), Ok(end)) = (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16))
        {
            inside = start >= low && end <= high;
        } else if inside && first.strip_suffix(':') == Some(field) {
            sum += words.next().unwrap().parse::<usize>().unwrap() * 1024;
        }
    }
    sum
}

fn words(region: &Region) -> &[AtomicU64] {
    let start = region.as_ptr().cast::<AtomicU64>().as_ptr();
    // SAFETY: the region is that long, aligned, initialized, and only used through these atomics.
    unsafe { std::slice::from_raw_parts(start, region.len() / 8) }
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn a_full_block_becomes_one_page_in_place() {
    let Some(region) = region(Region::builder().bytes(4 * BLOCK)) else { return };
    let words = words(&region);
    assert_eq!(words[0].load(Ordering::Relaxed), 0);
    let first = region.stats();
    assert_eq!((first.manager.resident_pages, first.held_bytes()), (1, BLOCK as u64));
    for page in 0..1024 {
        assert_eq!(words[page * PAGE / 8].load(Ordering::Relaxed), 0);
        words[page * PAGE / 8].store(page as u64, Ordering::Relaxed);
    }
    let stats = region.stats();
    assert_eq!(stats.manager.resident_pages, 1024);
    assert_eq!(stats.promoted_bytes(), 2 * BLOCK as u64);
    assert_eq!(smaps(&region, "Rss"), 2 * BLOCK);
    if stats.small_blocks == 0 {
        // In place: the reservation was a huge page before it was full.
        assert_eq!(first.huge_blocks, 1, "{first:?}");
        assert_eq!(stats.huge_bytes, stats.promoted_bytes());
        assert_eq!(smaps(&region, "ShmemPmdMapped") as u64, stats.promoted_bytes());
    } else {
        superpage_testing::skip!("system", "this system has no huge pages for memory files");
    }
    for page in 0..1024 {
        assert_eq!(words[page * PAGE / 8].load(Ordering::Relaxed), page as u64);
    }
    region.validate().unwrap();
    println!("{stats:?}");
}

/// Two threads write and read words at random, each its own, and each page is also used by the
/// other. Of 64 accesses, 63 are in a quarter of the region that moves on and on.
fn churn(region: &Region, accesses: usize) {
    let words = words(region);
    std::thread::scope(|scope| {
        for thread in 0..2_usize {
            scope.spawn(move || {
                let mut model = vec![0_u64; words.len() / 2];
                let mut state = 0x9e37_79b9_7f4a_7c15 + thread as u64;
                for access in 0..accesses / 2 {
                    let value = random(&mut state);
                    let far = value >> 32 & 63 == 0;
                    let within = if far { model.len() } else { model.len() / 4 };
                    let hot = if far { 0 } else { model.len() / 8 * (access / 100_000) };
                    let at = (hot + (value & 0xffff_ffff) as usize % within) % model.len();
                    let word = &words[2 * at + thread];
                    assert_eq!(word.load(Ordering::Relaxed), model[at], "word {at} of thread {thread}");
                    if value >> 62 != 0 {
                        word.store(value, Ordering::Relaxed);
                        model[at] = value;
                    }
                }
                for (at, value) in model.iter().enumerate().step_by(PAGE / 16) {
                    assert_eq!(words[2 * at + thread].load(Ordering::Relaxed), *value);
                }
            });
        }
    });
}

#[test]
fn contents_are_right_without_a_limit() {
    let Some(region) = region(Region::builder().bytes(32 << 20)) else { return };
    churn(&region, 1_000_000);
    region.validate().unwrap();
    let stats = region.stats();
    assert_eq!((stats.promoted_bytes(), stats.refused), (32 << 20, 0));
    println!("{stats:?}");
}

#[test]
fn sparse_use_needs_no_more_memory_than_is_touched() {
    // One page in eight: reservations are preempted down to single pages, and every frame is used.
    let (bytes, limit) = (128 << 20, 16 << 20);
    let Some(region) = region(Region::builder().bytes(bytes).limit(limit)) else { return };
    let words = words(&region);
    for page in (0..bytes / PAGE).step_by(8) {
        words[page * PAGE / 8].store(page as u64 + 1, Ordering::Relaxed);
    }
    for page in (0..bytes / PAGE).step_by(8) {
        assert_eq!(words[page * PAGE / 8].load(Ordering::Relaxed), page as u64 + 1);
        assert_eq!(words[page * PAGE / 8 + 511].load(Ordering::Relaxed), 0);
    }
    let (stats, touched) = (region.stats(), limit);
    assert_eq!((stats.resident_bytes(), stats.held_bytes()), (touched as u64, limit as u64));
    assert_eq!(smaps(&region, "Rss"), touched);
    region.validate().unwrap();

    // The limit is hard. Memory given back can be used again, by whole blocks or not.
    let full = region.populate(PAGE..2 * PAGE);
    assert!(matches!(full, Err(Error::OutOfMemory(1))), "{full:?}");
    region.discard(0..bytes / 2).unwrap();
    region.populate(bytes / 2..bytes / 2 + limit / 4).unwrap();
    region.validate().unwrap();
    region.discard(0..bytes).unwrap();
    region.trim();
    assert_eq!(region.stats().held_bytes(), 0);
    assert_eq!(words[8 * PAGE / 8].load(Ordering::Relaxed), 0);
    region.validate().unwrap();
}

#[test]
fn a_discarded_page_takes_its_huge_page_apart_and_the_rest_stays() {
    let Some(region) = region(Region::builder().bytes(2 * BLOCK)) else { return };
    let words = words(&region);
    for (at, word) in words.iter().enumerate() {
        word.store(at as u64, Ordering::Relaxed);
    }
    assert_eq!(region.promoted_bytes(), 2 * BLOCK as u64);
    region.discard(17 * PAGE..18 * PAGE).unwrap();
    assert_eq!(region.promoted_bytes(), BLOCK as u64);
    region.validate().unwrap();
    for (at, word) in words.iter().enumerate() {
        let gone = at / 512 == 17;
        assert_eq!(word.load(Ordering::Relaxed), if gone { 0 } else { at as u64 });
    }
    // Touching the page again made the block whole.
    let stats = region.stats();
    assert_eq!((stats.promoted_bytes(), stats.huge_bytes >> 21), (2 * BLOCK as u64, 2 - stats.small_blocks));
    region.validate().unwrap();
}

#[test]
fn system_calls_may_use_the_memory() {
    let Some(mut region) = region(Region::builder().bytes(BLOCK)) else { return };
    let mut zeroes = std::fs::File::open("/proc/self/maps").unwrap();
    let read = std::io::Read::read(&mut zeroes, &mut region.as_mut_slice()[100_000..200_000]).unwrap();
    assert!(read > 0);
    let text = &region.as_mut_slice()[100_000..100_000 + read];
    assert!(std::str::from_utf8(text).unwrap().contains('-'));
}

/// Runs a test of this file again, alone in a process of its own; there, gives `None`.
fn alone(test: &str) -> Option<std::process::Output> {
    const CHILD: &str = "SUPERPAGE_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return None;
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    Some(child.args(["--exact", test]).env(CHILD, "1").output().unwrap())
}

#[test]
fn memory_that_runs_out_ends_the_access_with_sigbus() {
    use std::os::unix::process::ExitStatusExt;
    if region(Region::builder().bytes(BLOCK)).is_none() {
        return;
    }
    if let Some(output) = alone("memory_that_runs_out_ends_the_access_with_sigbus") {
        assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{output:?}");
        return;
    }
    let region = Region::builder().bytes(2 * BLOCK).limit(BLOCK).build().unwrap();
    // Two threads, which may both wait for the page that cannot be had.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| words(&region).chunks(512).for_each(|page| page[0].store(1, Ordering::Relaxed)));
        }
    });
}

#[test]
fn a_region_works_without_huge_pages() {
    if let Some(output) = alone("a_region_works_without_huge_pages") {
        assert!(output.status.success(), "{output:?}");
        return;
    }
    // SAFETY: this only forbids huge pages to this process, which is there for this test.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) }, 0);
    let builder = Region::builder().bytes(4 * BLOCK).limit(3 * BLOCK).swap_dir(std::env::temp_dir());
    let Some(region) = region(builder) else { return };
    churn(&region, 100_000);
    region.validate().unwrap();
    let stats = region.stats();
    assert_eq!((stats.huge_blocks, stats.huge_bytes), (0, 0));
    assert!(stats.small_blocks > 0 && stats.held_bytes() <= 3 * BLOCK as u64, "{stats:?}");
    assert_eq!(smaps(&region, "ShmemPmdMapped"), 0);
}

#[test]
fn what_cannot_be_is_refused_with_the_way_out() {
    let refused = |builder: Builder| builder.build().unwrap_err().to_string();
    assert!(refused(Region::builder()).contains("from one base page"));
    assert!(refused(Region::builder().bytes(BLOCK).limit(1 << 20)).contains("from 2 MB"));
    let nowhere = Region::builder().bytes(BLOCK).swap_dir("/nonexistent");
    assert!(refused(nowhere).contains("swap directory"));
    let Some(region) = region(Region::builder().bytes(BLOCK)) else { return };
    let outside = region.discard(0..BLOCK + PAGE).unwrap_err().to_string();
    assert!(outside.contains("0..2101248") && outside.contains("2097152"), "{outside}");
    assert!(matches!(region.populate(1..PAGE), Err(Error::Range { .. })));
}

#[test]
fn contents_are_right_under_half_the_memory() {
    let (bytes, limit) = (8 << 20, 4 << 20);
    let directory = std::env::temp_dir();
    let Some(region) = region(Region::builder().bytes(bytes).limit(limit).swap_dir(directory)) else { return };
    churn(&region, 400_000);
    region.validate().unwrap();
    let stats = region.stats();
    println!("{stats:?}");
    assert!(stats.pages_out > 0 && stats.pages_in > 0 && stats.refused == 0, "{stats:?}");
    assert!(stats.resident_bytes() <= limit as u64 && stats.held_bytes() <= limit as u64);
    assert!(smaps(&region, "Rss") <= limit);
    assert_eq!(smaps(&region, "ShmemPmdMapped") as u64, stats.huge_bytes);
}

#[test]
fn what_is_written_twice_the_limit_long_comes_back() {
    let (bytes, limit) = (32 << 20, 16 << 20);
    let directory = std::env::temp_dir();
    let Some(region) = region(Region::builder().bytes(bytes).limit(limit).swap_dir(directory)) else { return };
    let words = words(&region);
    for (at, word) in words.iter().enumerate() {
        word.store(at as u64, Ordering::Relaxed);
    }
    let written = region.stats();
    for _ in 0..2 {
        for (at, word) in words.iter().enumerate() {
            assert_eq!(word.load(Ordering::Relaxed), at as u64);
        }
    }
    region.validate().unwrap();
    let stats = region.stats();
    // Under pressure what was promoted is demoted again to see which parts are in use.
    assert!(written.manager.promotions[2] > 0, "{written:?}");
    assert_eq!(smaps(&region, "ShmemPmdMapped") as u64, stats.huge_bytes);
    // What was only read is not written again.
    assert!(stats.pages_in >= 2 * (bytes - limit) as u64 / PAGE as u64, "{stats:?}");
    assert!(stats.pages_out < 2 * (bytes / PAGE) as u64, "{stats:?}");
    println!("{written:?}\n{stats:?}");

    // Blocks given back lose no page that is elsewhere.
    region.discard(bytes / 4..bytes).unwrap();
    region.trim();
    for (at, word) in words.iter().enumerate() {
        assert_eq!(word.load(Ordering::Relaxed), if at < bytes / 4 / 8 { at as u64 } else { 0 });
    }
    region.validate().unwrap();
}

#[test]
fn scattered_pages_under_a_limit_are_one_mapping() {
    // More pages, no two together, than vm.max_map_count is by default (65530).
    let (bytes, limit, step) = (2 << 30, 512 << 20, 4);
    let Some(region) = region(Region::builder().bytes(bytes).limit(limit)) else { return };
    let words = words(&region);
    for page in (0..bytes / PAGE).step_by(step) {
        words[page * PAGE / 8].store(page as u64 + 1, Ordering::Relaxed);
    }
    let (low, high) = (region.as_ptr().as_ptr().addr(), region.as_ptr().as_ptr().addr() + bytes);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let starts = maps.lines().filter_map(|line| usize::from_str_radix(line.split('-').next()?, 16).ok());
    assert_eq!(starts.filter(|start| (low..high).contains(start)).count(), 1);
    let stats = region.stats();
    assert_eq!((stats.resident_bytes(), stats.held_bytes(), stats.refused), (limit as u64, limit as u64, 0));
    // A huge page that was taken apart had left the page tables; where memory is sought, the kernel
    // unmaps some more.
    let all_mapped = || {
        for page in (0..bytes / PAGE).step_by(step) {
            assert_eq!(words[page * PAGE / 8].load(Ordering::Relaxed), page as u64 + 1);
        }
        let mapped = smaps(&region, "Rss");
        assert!(mapped <= limit, "{mapped} bytes are mapped where {limit} may be resident");
        mapped == limit
    };
    assert!((0..10).any(|_| all_mapped()), "what is touched does not stay mapped");
    region.validate().unwrap();
}

#[test]
fn a_forked_child_has_an_empty_handle() {
    if let Some(output) = alone("a_forked_child_has_an_empty_handle") {
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let Some(region) = region(Region::builder().bytes(2 * BLOCK)) else { return };
    words(&region)[0].store(7, Ordering::Relaxed);
    // SAFETY: the child uses this thread alone and ends without any destructor but the region's.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let stats = region.stats();
        let forked = |done: Result<(), Error>| matches!(done, Err(Error::Forked));
        let right = stats == superpage_region::RegionStats::default()
            && forked(region.discard(0..PAGE))
            && forked(region.populate(0..PAGE))
            && region.validate().is_err();
        region.trim();
        drop(region);
        // SAFETY: ends the child.
        unsafe { libc::_exit(if right { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(words(&region)[0].load(Ordering::Relaxed), 7);
    region.validate().unwrap();
}

#[test]
fn faults_of_user_mode_alone_must_be_asked_for() {
    if let Some(output) = alone("faults_of_user_mode_alone_must_be_asked_for") {
        print!("{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{output:?}");
        return;
    }
    // SAFETY: gives up the rights of this process, which is there for this test.
    let nobody = unsafe { libc::setresgid(65534, 65534, 65534) == 0 && libc::setresuid(65534, 65534, 65534) == 0 };
    let everybody =
        std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").is_ok_and(|text| text.trim() == "1");
    if !nobody || everybody || std::fs::File::open("/dev/userfaultfd").is_ok() {
        superpage_testing::skip!(
            "system",
            "needs root, to give its rights up, and a system that gives userfaultfd to root alone"
        );
        return;
    }
    let refused = Region::builder().bytes(BLOCK).build().unwrap_err();
    assert!(matches!(refused, Error::UserModeOnly) && refused.to_string().contains("EFAULT"), "{refused}");
    let mut region = Region::builder().bytes(BLOCK).user_mode_only().build().unwrap();
    assert!(region.stats().user_mode_only);
    let mut maps = std::fs::File::open("/proc/self/maps").unwrap();
    let absent = std::io::Read::read(&mut maps, &mut region.as_mut_slice()[..PAGE]).unwrap_err();
    assert_eq!(absent.raw_os_error(), Some(libc::EFAULT));
    region.populate(0..PAGE).unwrap();
    assert!(std::io::Read::read(&mut maps, &mut region.as_mut_slice()[..PAGE]).unwrap() > 0);
}

#[test]
fn a_mapping_that_the_program_cuts_goes_on() {
    let directory = std::env::temp_dir();
    let Some(region) = region(Region::builder().bytes(4 * BLOCK).limit(2 * BLOCK).swap_dir(directory)) else { return };
    let words = words(&region);
    for (at, word) in words.iter().enumerate().take(BLOCK / 8) {
        word.store(at as u64, Ordering::Relaxed);
    }
    // Neither cut lies at 2 MB or 64 KB: the kernel takes the huge mapping out, and calls over the
    // whole fail from now on.
    let inside = region.as_ptr().as_ptr().wrapping_add(5 * PAGE);
    // SAFETY: the advice changes no memory.
    assert_eq!(unsafe { libc::madvise(inside.cast(), 9 * PAGE, libc::MADV_DONTDUMP) }, 0);
    let whole = || words.iter().enumerate().take(BLOCK / 8).all(|(at, word)| word.load(Ordering::Relaxed) == at as u64);
    assert!(whole());
    // The daemon looks for what is used, takes the block out of the page tables and to the swap
    // file, and it comes back.
    for round in 0..3 {
        for word in words[BLOCK / 8..].iter().step_by(PAGE / 8) {
            word.store(round, Ordering::Relaxed);
        }
        assert!(whole());
    }
    region.validate().unwrap();
    assert_eq!(region.stats().refused, 0);
}

#[test]
fn a_policy_that_would_do_nothing_is_refused() {
    let build = |policy: &str| Region::builder().bytes(4 * BLOCK).policy(policy.parse().unwrap()).build();
    for (policy, why) in [
        ("thp", "private memory"),
        ("mthp:size=64K", "private memory"),
        ("base:place=extent", "private memory"),
        ("promote", "background work"),
        ("reservation:hints=opt-in", "no such call"),
    ] {
        let error = build(policy).unwrap_err().to_string();
        let name = policy.split(':').next().unwrap();
        assert!(
            error.starts_with(&format!("policy {name} does nothing for a region: ")) && error.contains(why),
            "{error}"
        );
    }
    for (policy, promoted) in [("reservation", true), ("freebsd", true), ("talluri-hill", false), ("base", false)] {
        let Some(region) = region(Region::builder().bytes(4 * BLOCK).policy(policy.parse().unwrap())) else { return };
        region.populate(0..4 * BLOCK).unwrap();
        let mapped = region.stats().manager.mapped;
        assert_eq!((mapped[2] > 0, mapped[1] > 0), (promoted, policy == "talluri-hill"), "{policy}");
        region.validate().unwrap();
    }
}

#[test]
fn a_large_populate_lets_others_fault_in_between() {
    const HALF: usize = 128 << 20;
    let Some(region) = region(Region::builder().bytes(2 * HALF)) else { return };
    let done = std::sync::atomic::AtomicBool::new(false);
    let mut between = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            region.populate(0..HALF).unwrap();
            done.store(true, Ordering::Release);
        });
        while smaps(&region, "Rss") == 0 {}
        for page in 0..HALF / PAGE {
            words(&region)[(HALF + page * PAGE) / 8].store(1, Ordering::Relaxed);
            if done.load(Ordering::Acquire) {
                break;
            }
            between += 1;
        }
    });
    assert!(between >= 8, "{between} pages touched while others were populated");
    region.validate().unwrap();
}

#[test]
fn a_sequential_fill_faults_once_a_window() {
    for (around, faults) in [(1, 2048), (16, 6 + 2048 / 16 - 1), (64, 8 + 2048 / 64 - 1)] {
        for descending in [false, true] {
            let policy = format!("reservation:around={around}").parse().unwrap();
            let Some(region) = region(Region::builder().bytes(4 * BLOCK).policy(policy)) else { return };
            let words = words(&region);
            for page in 0..2048 {
                let page = if descending { 2047 - page } else { page };
                assert_eq!(words[page * PAGE / 8].load(Ordering::Relaxed), 0);
                words[page * PAGE / 8 + 7].store(page as u64, Ordering::Relaxed);
            }
            let stats = region.stats();
            assert_eq!(stats.manager.faults_zero, faults, "around={around}: {stats:?}");
            assert_eq!((stats.manager.touched_pages, stats.manager.untouched_pages), (faults, 2048 - faults));
            assert_eq!((stats.manager.resident_pages, stats.promoted_bytes()), (2048, 4 * BLOCK as u64));
            assert!((0..2048).all(|page| words[page * PAGE / 8 + 7].load(Ordering::Relaxed) == page as u64));
            region.validate().unwrap();
        }
    }
    // By default too; but not where a page that nobody touched could take the frame of one that
    // somebody does.
    for (limit, swap, ahead) in [(4, false, true), (3, true, true), (3, false, false)] {
        let mut builder = Region::builder().bytes(4 * BLOCK).limit(limit * BLOCK);
        if swap {
            builder = builder.swap_dir(std::env::temp_dir());
        }
        let Some(region) = region(builder) else { return };
        (0..512).for_each(|page| words(&region)[page * PAGE / 8].store(1, Ordering::Relaxed));
        assert_eq!(region.stats().manager.untouched_pages > 0, ahead, "{limit} {swap}");
    }
}

/// What a program does to a region.
#[derive(Clone, Debug)]
enum Op {
    /// Write to so many pages from one on, every so many.
    Write(usize, usize, usize),
    /// Read them.
    Read(usize, usize, usize),
    Populate(usize, usize),
    Discard(usize, usize),
    Trim,
}

/// Pages of the region of the random operations: 4 MB and a piece.
const PAGES: usize = 1024 + 37;

fn op() -> impl proptest::strategy::Strategy<Value = Op> {
    use proptest::prelude::*;
    let run = || (0..PAGES, 1..200_usize);
    let stepped = || (0..PAGES, 1..200_usize, prop_oneof![3 => Just(1_usize), 1 => 2..9_usize]);
    prop_oneof![
        6 => stepped().prop_map(|(from, pages, step)| Op::Write(from, pages, step)),
        3 => stepped().prop_map(|(from, pages, step)| Op::Read(from, pages, step)),
        1 => run().prop_map(|(from, pages)| Op::Populate(from, pages)),
        2 => run().prop_map(|(from, pages)| Op::Discard(from, pages)),
        1 => Just(Op::Trim),
    ]
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(24))]
    /// Random operations under a limit and without one, with windows of several sizes: each page
    /// holds what was written, and all structures agree after each operation.
    #[test]
    fn every_state_is_valid(
        around in proptest::sample::select(vec![1, 2, 16, 64, 512]),
        limited: bool,
        ops in proptest::collection::vec(op(), 1..40),
    ) {
        let policy = format!("reservation:hash=read,around={around}").parse().unwrap();
        let mut builder = Region::builder().bytes(PAGES * PAGE).policy(policy);
        if limited {
            builder = builder.limit(BLOCK + 40 * PAGE).swap_dir(std::env::temp_dir());
        }
        let Some(region) = region(builder) else { return Ok(()) };
        let words = words(&region);
        let mut model = vec![0_u64; PAGES];
        for (count, op) in ops.into_iter().enumerate() {
            let pages = |from: usize, pages: usize, step| (from..PAGES).step_by(step).take(pages);
            match op {
                Op::Write(from, most, step) => for page in pages(from, most, step) {
                    let word = &words[page * PAGE / 8 + page % 512];
                    assert_eq!(word.load(Ordering::Relaxed), model[page], "page {page}");
                    model[page] = count as u64 + 1;
                    word.store(model[page], Ordering::Relaxed);
                },
                Op::Read(from, most, step) => for page in pages(from, most, step) {
                    assert_eq!(words[page * PAGE / 8 + page % 512].load(Ordering::Relaxed), model[page], "page {page}");
                },
                Op::Populate(from, most) => region.populate(from * PAGE..(from + most).min(PAGES) * PAGE).unwrap(),
                Op::Discard(from, most) => {
                    let to = (from + most).min(PAGES);
                    region.discard(from * PAGE..to * PAGE).unwrap();
                    model[from..to].fill(0);
                }
                Op::Trim => region.trim(),
            }
            region.validate().unwrap();
        }
        for (page, value) in model.iter().enumerate() {
            assert_eq!(words[page * PAGE / 8 + page % 512].load(Ordering::Relaxed), *value, "page {page}");
        }
        region.validate().unwrap();
        assert!(around > 1 || region.stats().manager.untouched_pages == 0);
    }
}
