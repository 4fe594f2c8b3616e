//! The files of workloads: their numbers, and where they are mapped.

use super::program::{Out, PAGE};
use crate::{Backing, Event, Growth};
use superpage_pages::Protection;

/// The number of files that a workload may have.
pub(super) const MOST_FILES: u64 = 1 << 20;

/// The number of the file `index` among those that the workload of that name works on: 2^20 numbers
/// for each workload, behind those of the programs. So the same file has one number in all
/// processes of a mix, and no two workloads share one.
pub(super) fn data_file(workload: &str, index: u64) -> u32 {
    assert!(index < MOST_FILES, "a workload with more files than it may number");
    (super::file(workload) + 1) << MOST_FILES.ilog2() | index as u32
}

/// The addresses that a mapping of `bytes` of a file takes up where the program names none, and
/// their alignment: the next power of two, at least a page of 8 KB. So it is aligned to every
/// superpage no larger than the mapping, whatever the sizes of a machine (Navarro et al., section
/// 5.3), and room that is free again fits the next mapping.
pub(super) fn room(bytes: u64) -> u64 {
    bytes.next_power_of_two().max(8 << 10)
}

/// Opens a file of `pages` pages and maps all of it at an address, in bytes.
pub(super) fn open_and_map(out: &mut Out, file: u32, file_pages: u64, start: u64, protection: Protection) {
    out.event(Event::Open { file, file_pages });
    let backing = Backing::File { file, file_pages, offset: 0 };
    let (start, growth) = (start / PAGE, Growth::Fixed);
    out.event(Event::Map { start, pages: file_pages, protection, shared: true, backing, growth });
}

/// Unmaps all of a file of `pages` pages and closes it once.
pub(super) fn unmap_and_close(out: &mut Out, file: u32, file_pages: u64, start: u64) {
    out.event(Event::Unmap { start: start / PAGE, pages: file_pages });
    out.event(Event::Close { file });
}
