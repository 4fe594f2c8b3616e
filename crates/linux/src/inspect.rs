//! Looking at memory as it is: where the pages of a process lie and how large they are, why it has no huge pages where it has
//! none, and what the system has free.

mod contiguity;
mod folios;
mod mapping;
mod pagemap;
mod process;
mod reason;
mod rules;
mod system;

pub use contiguity::{Contiguity, contiguity};
pub use mapping::{Kind, Mapping};
pub use process::Process;
pub use reason::{Reason, Why};
pub use rules::Rules;
pub use system::{Pool, System, Zone};

/// Bytes of a base page of this system.
pub fn base_page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// How many bytes of a range of a process huge pages map.
pub(crate) fn huge_bytes(pid: u32, range: std::ops::Range<u64>) -> Result<u64, crate::Error> {
    let pagemap = pagemap::Pagemap::open(pid)?;
    let mut pages = 0;
    pagemap.blocks(range, |_, block| {
        pages += block.iter().filter(|entry| entry.resident() && entry.huge()).count() as u64
    })?;
    Ok(pages * pagemap.base())
}

/// Whether any page of a range of a mapping of a file is a private copy.
pub(crate) fn private_copies(pid: u32, range: std::ops::Range<u64>) -> Result<bool, crate::Error> {
    let mut copies = false;
    let copy = |entry: &pagemap::Entry| (entry.resident() && entry.anonymous()) || entry.swapped();
    pagemap::Pagemap::open(pid)?.blocks(range, |_, block| copies |= block.iter().any(copy))?;
    Ok(copies)
}

/// The page of an address, if that is in a mapping of a file and no private copy yet: a write through `ptrace` makes one.
pub(crate) fn page_of_file(pid: u32, address: u64) -> Result<Option<u64>, crate::Error> {
    let page = address / base_page_bytes() * base_page_bytes();
    Ok((!private_copies(pid, page..page + base_page_bytes())?).then_some(page))
}
