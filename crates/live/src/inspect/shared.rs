//! Shared memory that is populated and that no process shown has in its page table: a server's
//! buffers, whose processes have ended or have not used them yet.

use super::mapping::{Mapping, MappingKind};
use super::process::{LITTLE, Process};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use superpage_report::bytes;

/// A file of shared memory, as the processes have it.
#[derive(Default)]
struct Seen<'a> {
    /// Its largest mapping, and whose it is.
    mapped: Option<(u32, &'a Mapping)>,
    /// The sum of what each has in its page table, in proportion, and the most of one. Others may
    /// have some of it too, so that both are too little at most.
    sum: u64,
    most: u64,
}

/// What is populated and in the page table of no process shown.
#[derive(Default)]
pub(super) struct Unmapped {
    /// Bytes that are in no hugetlb pool.
    pub(super) bytes: u64,
    /// Bytes in hugetlb pools, by the size of their pages.
    pub(super) pooled: BTreeMap<u64, u64>,
    /// A sentence for each file of which that is so, or might be where this user may not know.
    pub(super) notes: Vec<String>,
}

/// What no process shown has in its page table.
pub(super) fn unmapped(processes: &[Process]) -> Unmapped {
    let shared = |it: &&Mapping| {
        let shared =
            it.kind == MappingKind::SharedMemory || it.kind == MappingKind::Hugetlb && it.permissions.ends_with('s');
        shared && it.pooled.file.1 != 0
    };
    let mut files: BTreeMap<_, Seen> = BTreeMap::new();
    for process in processes {
        let mut own: BTreeMap<_, u64> = BTreeMap::new();
        for mapping in process.mappings.iter().filter(shared) {
            let seen = files.entry(mapping.pooled.file).or_default();
            seen.sum += mapping.proportional_bytes;
            if seen.mapped.is_none_or(|(_, other)| other.size_bytes < mapping.size_bytes) {
                seen.mapped = Some((process.pid, mapping));
            }
            *own.entry(mapping.pooled.file).or_default() += mapping.resident_bytes;
        }
        for (file, resident) in own {
            let seen = files.entry(file).or_default();
            seen.most = seen.most.max(resident);
        }
    }
    let mut found = Unmapped::default();
    for Seen { mapped, sum: all, most } in files.into_values() {
        let Some((pid, mapping)) = mapped else { continue };
        let seen = all.max(most);
        let Some((unmapped, text)) = note(mapping, seen, populated(pid, mapping)) else { continue };
        found.notes.push(text);
        match mapping.kind {
            MappingKind::Hugetlb => *found.pooled.entry(mapping.pooled.size).or_default() += unmapped,
            _ => found.bytes += unmapped,
        }
    }
    found
}

/// How much of the file of a mapping is populated, in memory or in swap space, whoever maps it. For
/// root.
fn populated(pid: u32, Mapping { start, end, .. }: &Mapping) -> io::Result<u64> {
    /// In which files are counted.
    const BLOCK: u64 = 512;
    std::fs::metadata(format!("/proc/{pid}/map_files/{start:x}-{end:x}")).map(|file| file.blocks() * BLOCK)
}

/// How much of a file is in no page table, and a sentence; `None` where that is little.
fn note(mapping: &Mapping, seen: u64, populated: io::Result<u64>) -> Option<(u64, String)> {
    let most = *populated.as_ref().unwrap_or(&mapping.size_bytes);
    let unmapped = most.saturating_sub(seen);
    if (unmapped as f64) < LITTLE * most as f64 || unmapped < 2 << 20 {
        return None;
    }
    let (name, size, seen) = (&mapping.name, bytes(mapping.size_bytes), bytes(seen));
    Some(match populated {
        Ok(populated) => (
            unmapped,
            format!(
                "shared memory {name} of {size}: {} is populated, and {seen} of it is in the page tables of the \
                 processes shown; the other {} is counted nowhere here",
                bytes(populated),
                bytes(unmapped)
            ),
        ),
        Err(_) => (
            0,
            format!(
                "shared memory {name} of {size}: {seen} of it is in the page tables of the processes shown; whether more \
                 is populated, only root sees"
            ),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::advice::tests::mapping;
    use super::*;
    use superpage_linux::why::Why;

    #[test]
    fn what_no_page_table_has_is_said_with_what_is_known() {
        let buffers = mapping(MappingKind::SharedMemory, "rw-s", "/dev/zero", Why::Misaligned, 100);
        let of = |seen: u64, populated: io::Result<u64>| note(&buffers, seen << 20, populated.map(|sum| sum << 20));
        let (unmapped, text) = of(30, Ok(90)).unwrap();
        assert_eq!((unmapped >> 20, of(89, Ok(90)), of(90, Ok(80))), (60, None, None));
        assert!(text.contains("90.0 MB is populated, and 30.0 MB of it is in"), "{text}");
        let (unmapped, text) = of(30, Err(io::ErrorKind::PermissionDenied.into())).unwrap();
        assert!(unmapped == 0 && text.ends_with("whether more is populated, only root sees"), "{text}");
        assert_eq!(of(100, Err(io::ErrorKind::PermissionDenied.into())), None);
    }
}
