//! Questions to the page table of a process about a range, answered as a number.

use super::{Counted, Entry, Pagemap, base_page_bytes};
use crate::Error;
use crate::proc::{maps, refused};
use std::ops::Range;

/// How many bytes of a range of a process are mapped by huge pages.
pub fn huge_bytes(pid: u32, range: Range<u64>) -> Result<u64, Error> {
    let pagemap = open(pid)?;
    let counted = if pagemap.scans() { None } else { Some(Counted::of(&maps::smaps(pid, &|| true)?, &range)) };
    let mut pages = 0;
    let count = |_, block: &[Entry]| {
        pages += block.iter().filter(|entry| entry.resident() && entry.huge()).count() as u64;
        true
    };
    pagemap.blocks(range, counted, count).map_err(|error| refused(pid, error))?;
    Ok(pages * pagemap.base())
}

/// Whether any page of a range of a file mapping is a private copy.
pub fn private_copies(pid: u32, range: Range<u64>) -> Result<bool, Error> {
    let mut copies = false;
    let copy = |entry: &Entry| (entry.resident() && entry.anonymous()) || entry.swapped();
    let blocks = open(pid)?.blocks(range, None, |_, block| {
        copies |= block.iter().any(copy);
        !copies
    });
    match blocks {
        Err(error) if !copies => Err(refused(pid, error)),
        _ => Ok(copies),
    }
}

/// The page of an address, if that is in a file mapping and not a private copy yet: a write through
/// `ptrace` makes one.
pub fn page_of_file(pid: u32, address: u64) -> Result<Option<u64>, Error> {
    let page = address / base_page_bytes() * base_page_bytes();
    Ok((!private_copies(pid, page..page + base_page_bytes())?).then_some(page))
}

/// The page table of a process.
pub fn open(pid: u32) -> Result<Pagemap, Error> {
    Pagemap::open(pid).map_err(|error| refused(pid, error))
}
