//! The mappings with which a program begins: its segments, the dynamic linker, the stack.

use std::ffi::{c_int, c_ulong, c_void};
use std::os::unix::fs::MetadataExt;

use crate::mappings::{Heap, Mapping, file_device};
use crate::process::Session;
use crate::runs::Runs;
use crate::wire::{GROWS_DOWN, SHARED};

const PAGE: u64 = 4096;
/// QEMU's page flags: readable, writable, executable, and writable except for translated code on
/// it.
const PAGE_RIGHTS: u64 = 7;
const PAGE_WRITABLE: u64 = 2;
const PAGE_WRITE_ORIGINAL: u64 = 16;

/// Where the heap is moved if it has no room to grow: far below the programs and libraries that
/// QEMU places from 256 GB up. Linux leaves a random gap before the heap as well.
const ROOMY: u64 = 0x20_0000_0000;
/// Room that is enough for a heap.
const ROOM: u64 = 1 << 36;

struct Region {
    start: u64,
    end: u64,
    rights: u64,
}

extern "C" fn add(regions: *mut c_void, start: u64, end: u64, marks: c_ulong) -> c_int {
    let writable = if marks & PAGE_WRITE_ORIGINAL != 0 { PAGE_WRITABLE } else { 0 };
    // SAFETY: `tell` passes its vector through QEMU.
    unsafe { (*regions.cast::<Vec<Region>>()).push(Region { start, end, rights: marks & PAGE_RIGHTS | writable }) };
    0
}

/// Reports the mappings of a program that was just loaded, and returns its heap, which is moved if
/// it lacks room. `None` if this QEMU does not list them.
pub(crate) fn tell(session: &Session, runs: &Runs) -> Option<Heap> {
    let walk = session.api.walk_regions?;
    let mut regions: Vec<Region> = Vec::new();
    // SAFETY: QEMU calls `add` with the vector, which outlives the call.
    unsafe { walk((&raw mut regions).cast(), add) };
    // SAFETY: 0 asks for the break and changes nothing.
    let asked = session.api.break_at.map_or(0, |brk| unsafe { brk(0) } as u64);
    let mut heap = Heap::at(asked);
    let next = regions.iter().map(|region| region.start).filter(|start| *start >= asked).min();
    let free = !regions.iter().any(|region| region.end > ROOMY && region.start < ROOMY + ROOM);
    if let (Some(set), true, true) = (session.api.set_break, next.is_some_and(|next| next - asked < ROOM), free) {
        // SAFETY: called before the program's first instruction; the range is not mapped.
        unsafe { set(ROOMY) };
        heap = Heap::at(ROOMY);
    }
    let files = host_files(session.api.guest_base);
    let mut below: Option<(u64, u64, u64)> = None;
    for region in &regions {
        // The stack is what QEMU put above a guard page.
        let guard = below.is_some_and(|(start, end, rights)| {
            end == region.start && end - start == PAGE && rights == 0 && region.rights & PAGE_WRITABLE != 0
        });
        below = Some((region.start, region.end, region.rights));
        let mut start = region.start;
        while start < region.end {
            let host = files.iter().find(|host| (host.start..host.end).contains(&start));
            let end = host.map_or(region.end, |host| host.end.min(region.end));
            let mut mapping = Mapping::anonymous(start / PAGE, (end - start) / PAGE, region.rights);
            if let Some(host) = host {
                mapping.flags |= host.shared;
                if host.file.1 != 0 {
                    mapping.set_file(host.file, host.length, (host.offset + (start - host.start)) / PAGE);
                }
            }
            if guard {
                mapping.flags |= GROWS_DOWN;
            }
            mapping.tell(runs);
            start = end;
        }
    }
    Some(heap)
}

/// A mapping of the emulator's process, by the guest's addresses.
struct Host {
    start: u64,
    end: u64,
    offset: u64,
    shared: u64,
    /// Device and inode.
    file: (u64, u64),
    length: u64,
}

/// The mappings of this process as the system lists them, shifted to guest addresses.
fn host_files(guest_base: u64) -> Vec<Host> {
    let list = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    list.lines().filter_map(|line| host(line, guest_base)).collect()
}

fn host(line: &str, guest_base: u64) -> Option<Host> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let offset = words.next()?;
    let (major, minor) = words.next()?.split_once(':')?;
    let inode = words.next()?.parse().ok()?;
    let path = words.next();
    let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let mut device = file_device(hex(major)?, hex(minor)?);
    let mut length = 0;
    // A file system may report another device number for its files than it does here.
    if let Some(metadata) = path.and_then(|path| std::fs::metadata(path).ok()).filter(|file| file.ino() == inode) {
        (device, length) = (metadata.dev(), metadata.size());
    }
    Some(Host {
        start: hex(start)?.wrapping_sub(guest_base),
        end: hex(end)?.wrapping_sub(guest_base),
        offset: hex(offset)?,
        shared: if rights.ends_with('s') { SHARED } else { 0 },
        file: (device, inode),
        length,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_list_is_read() {
        let line = "400000a000-400000b000 r--s 00009000 fe:01 247026                         /no/such/file";
        let host = host(line, 0x4000000000).expect("a mapping");
        assert_eq!((host.start, host.end, host.offset, host.shared), (0xa000, 0xb000, 0x9000, SHARED));
        assert_eq!((host.file, host.length), ((0xfe01, 247026), 0));
    }
}
