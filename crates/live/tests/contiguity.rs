//! The contiguity of memory whose placement is known.
#![cfg(target_os = "linux")]

use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags};
use std::ffi::c_void;
use superpage_live::inspect::{Contiguity, contiguity};
use superpage_pages::PageSize;

const BASE: usize = 4096;
const HUGE: usize = 2 << 20;

/// Why a test cannot run here.
fn skipped() -> bool {
    let why = if !rustix::process::geteuid().is_root() {
        "needs root"
    } else if rustix::param::page_size() != BASE {
        "needs base pages of 4 KB"
    } else {
        return false;
    };
    superpage_testing::skip!("system", "{why}");
    true
}

/// Addresses of so many bytes at a multiple of 2 MB, with nothing mapped that can be used.
fn reserve(bytes: usize) -> *mut u8 {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping where the kernel likes.
    let at =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes + HUGE, ProtFlags::empty(), flags) }.unwrap();
    at.cast::<u8>().map_addr(|addr| addr.next_multiple_of(HUGE))
}

fn map(at: *mut u8, bytes: usize, advice: Advice) {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    let all = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: `at` is a reservation of ours, in which nothing lives.
    unsafe {
        rustix::mm::mmap_anonymous(at.cast(), bytes, all, flags).unwrap();
        rustix::mm::madvise(at.cast(), bytes, advice).unwrap();
    }
}

fn touch(at: *mut u8, pages: impl Iterator<Item = usize>) {
    for page in pages {
        // SAFETY: the page is in a mapping of ours.
        unsafe { at.add(page * BASE).write(1) };
    }
}

fn of(at: *const u8, bytes: usize) -> Contiguity {
    let found = contiguity(std::process::id(), at.addr() as u64..(at.addr() + bytes) as u64).unwrap();
    found.validate().unwrap();
    found
}

fn aligned(found: &Contiguity, size: &str) -> usize {
    found.aligned_bytes[&size.parse::<PageSize>().unwrap()] as usize
}

/// Makes what is populated there huge; `false` where the kernel has no huge page now.
fn collapse(at: *mut u8) -> bool {
    // SAFETY: advice on a mapping of ours; its contents stay.
    unsafe { libc::madvise(at.cast::<c_void>(), HUGE, 25) == 0 }
}

#[test]
fn a_huge_page_is_contiguous_at_every_size_until_it_is_moved_off() {
    let _turn = superpage_testing::turn_of("contiguity");
    if skipped() {
        return;
    }
    let at = reserve(4 * HUGE);
    map(at, HUGE, Advice::LinuxHugepage);
    touch(at, 0..512);
    if !collapse(at) {
        superpage_testing::skip!("system", "the kernel gives no huge page now");
        return;
    }
    let found = of(at, HUGE);
    assert_eq!(found.resident_bytes, HUGE as u64);
    for size in ["8K", "16K", "32K", "64K", "2M"] {
        assert_eq!(aligned(&found, size), HUGE, "{size}");
    }
    assert_eq!(found.runs.iter().collect::<Vec<_>>(), [(&512, &1)]);
    // Half of it: nothing outside the range counts.
    assert_eq!(aligned(&of(at, HUGE / 2), "2M"), 0);
    assert_eq!(aligned(&of(at, HUGE / 2), "1M"), HUGE / 2);

    // The same frames 4 KB further: as contiguous as before, and aligned at no size.
    let other = at.wrapping_add(2 * HUGE + BASE);
    // SAFETY: from a mapping of ours to addresses of our reservation, in which nothing lives.
    let moved = unsafe { rustix::mm::mremap_fixed(at.cast(), HUGE, HUGE, MremapFlags::MAYMOVE, other.cast()) };
    moved.unwrap();
    let found = of(other, HUGE);
    assert_eq!(found.runs.iter().collect::<Vec<_>>(), [(&512, &1)]);
    for size in ["8K", "16K", "64K", "2M"] {
        assert_eq!((aligned(&found, size), found.share(size.parse().unwrap())), (0, Some(0.0)), "{size}");
    }
}

#[test]
fn holes_and_zeroes_count_as_they_are() {
    let _turn = superpage_testing::turn_of("contiguity");
    if skipped() {
        return;
    }
    let at = reserve(2 * HUGE);
    map(at, 2 * HUGE, Advice::LinuxNoHugepage);
    assert_eq!(of(at, 2 * HUGE), Contiguity::default());
    assert_eq!(of(at, 2 * HUGE).share(PageSize::KB4), None);
    touch(at, (0..512).step_by(2));
    let found = of(at, 2 * HUGE);
    assert_eq!((found.resident_bytes, found.runs.get(&1)), (256 * BASE as u64, Some(&256)));
    assert_eq!(aligned(&found, "8K"), 0);
    // Reads of what was never written show the page of zeroes, which is nobody's memory.
    // SAFETY: in a mapping of ours.
    let read: u8 = (0..512).map(|page| unsafe { at.add(HUGE + page * BASE).read_volatile() }).sum();
    assert_eq!((read, of(at, 2 * HUGE)), (0, found));
    // A huge page of which one base page is given up: 511 pages in two runs, and all groups but
    // those around it.
    touch(at, 0..512);
    // SAFETY: advice on a mapping of ours.
    unsafe { rustix::mm::madvise(at.cast(), HUGE, Advice::LinuxHugepage).unwrap() };
    if !collapse(at) {
        superpage_testing::skip!("system", "the kernel gives no huge page now");
        return;
    }
    // SAFETY: the page is ours and holds nothing that is needed.
    unsafe { rustix::mm::madvise(at.add(100 * BASE).cast(), BASE, Advice::LinuxDontNeed).unwrap() };
    let found = of(at, HUGE);
    assert_eq!(found.runs.iter().collect::<Vec<_>>(), [(&100, &1), (&411, &1)]);
    assert_eq!((aligned(&found, "8K"), aligned(&found, "64K"), aligned(&found, "2M")), (HUGE - 8192, HUGE - 65536, 0));
}

#[test]
fn a_large_reservation_costs_nothing() {
    let _turn = superpage_testing::turn_of("contiguity");
    if skipped() {
        return;
    }
    const TERABYTE: usize = 1 << 40;
    let at = reserve(TERABYTE);
    map(at, TERABYTE / 2, Advice::LinuxNoHugepage);
    touch(at, (0..100).map(|i| i * (TERABYTE / 2 / BASE / 100)));
    let found = of(at, TERABYTE);
    assert_eq!((found.resident_bytes, found.runs[&1]), (100 * BASE as u64, 100));
}

#[test]
fn who_is_not_there_and_what_is_no_range_is_said() {
    let _turn = superpage_testing::turn_of("contiguity");
    let error = contiguity(u32::MAX >> 1, 0..4096).unwrap_err();
    assert_eq!((error.status(), error.to_string().contains("no process")), (2, true), "{error}");
    let error = contiguity(std::process::id(), 1..2).unwrap_err();
    assert_eq!(error.status(), 2, "{error}");
}
