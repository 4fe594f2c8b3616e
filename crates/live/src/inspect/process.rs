//! A whole process.

use super::folios::Folios;
use super::mapping::{Mapping, MappingKind, ProcessFacts, facts};
use super::reason::{self, NotHuge};
use procfs::FromBufRead;
use procfs::process::{MemoryMap, MountInfos};
use std::collections::BTreeMap;
use superpage_linux::Error;
use superpage_linux::pagemap::{Frames, Pagemap, open};
use superpage_linux::proc::maps::smaps;
use superpage_linux::proc::{self, disabled, ended, refused};
use superpage_linux::rules::Rules;
use superpage_linux::scan;
use superpage_linux::settings::System;
use superpage_linux::why::{Why, shared_way_out};
use superpage_report::bytes;

/// The share of resident memory, or of a file, below which nothing is said of it.
pub(super) const LITTLE: f64 = 0.02;

/// A process and all its mappings.
#[derive(Clone, PartialEq, Debug)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its name, as `ps` shows it.
    pub command: String,
    /// The mappings, by address.
    pub mappings: Vec<Mapping>,
    /// What a reader must know: what could not be seen, and why.
    pub notes: Vec<Note>,
}

/// What a reader must know.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Note {
    /// A sentence without a full stop.
    pub text: String,
    /// Whether it holds for this process, and perhaps for no other one of its service.
    pub own: bool,
}

impl From<String> for Note {
    fn from(text: String) -> Note {
        Note { text, own: false }
    }
}

/// Whether a promoter makes memory huge that the settings forbid to the kernel.
fn is_promotable(mapping: &Mapping) -> bool {
    mapping.full_bytes > 0 && mapping.reasons.iter().any(|reason| reason.why == Why::Never)
}

impl Process {
    /// Inspects a process: its page table, and as root its folios.
    ///
    /// This takes some 0.2 s of CPU time for each GB in use by base pages, and 0.04 s by huge
    /// pages, most of which is the kernel's time to fill in `/proc/PID/smaps` and
    /// `/proc/kpageflags`; folios cost no more than 0.04 s for each GB of physical memory, and each
    /// mapping some 20 us. The process continues meanwhile, but waits if it maps or unmaps.
    ///
    /// # Errors
    /// No such process ([`Error::Usage`]); one that may not be inspected, has no memory or ended
    /// meanwhile ([`Error::Unable`]).
    pub fn read(pid: u32) -> Result<Process, Error> {
        Process::read_while(pid, &|| true)
    }

    /// Like [`read`](Process::read), and asks every few dozen microseconds whether to continue.
    ///
    /// # Errors
    /// As for [`read`](Process::read), and [`Error::Unable`] if `go_on` said to stop.
    pub(crate) fn read_while(pid: u32, go_on: &dyn Fn() -> bool) -> Result<Process, Error> {
        Process::seen(pid, &open(pid)?, go_on)
    }

    /// Inspects a process by a page table that was opened before, perhaps
    /// [`without_scan`](Pagemap::without_scan).
    ///
    /// # Errors
    /// As for [`read`](Process::read).
    pub fn of(pid: u32, pagemap: &Pagemap) -> Result<Process, Error> {
        Process::seen(pid, pagemap, &|| true)
    }

    /// Why its memory is not huge, over all mappings, most bytes first. The bytes add up to what is
    /// resident and not huge.
    pub fn not_huge_by_reason(&self) -> Vec<NotHuge> {
        reason::not_huge(&self.mappings)
    }

    fn seen(pid: u32, pagemap: &Pagemap, go_on: &dyn Fn() -> bool) -> Result<Process, Error> {
        let status = proc::status(pid as i32).map_err(|error| match error.kind() {
            std::io::ErrorKind::Other => ended(pid),
            _ => refused(pid, error),
        })?;
        let smaps = smaps(pid, go_on)?;
        if smaps.is_empty() {
            return Err(ended(pid));
        }
        let (rules, temporary) = Rules::of(pid, &System::live());
        let tmpfs = tmpfs(pid as i32);
        let mut folios = Frames::open().map(|frames| Folios::new(frames, pagemap.huge() / pagemap.base()));
        let disabled = disabled(&status);
        let around = ProcessFacts {
            pid,
            pagemap,
            rules: &rules,
            disabled,
            tmpfs: &tmpfs,
            temporary: temporary.is_some(),
            go_on,
        };
        // Of the last page of all addresses, which no page table holds, there is nothing to tell.
        let known = smaps.iter().filter(|map| map.address.1 <= 1 << 63);
        let mappings: Vec<Mapping> =
            known.clone().map(|map| Mapping::read(map, &around, folios.as_mut())).collect::<Result<_, _>>()?;
        if !pagemap.alive() {
            return Err(ended(pid));
        }
        let mut notes = Vec::new();
        let (resident, several) = mapped_again(known.clone().zip(&mappings));
        if several > 0 && several as f64 >= LITTLE * resident as f64 {
            let text = format!(
                "{} are shared memory that this process maps more than once, as a JVM's ZGC does: it counts in each \
                 mapping",
                bytes(several)
            );
            notes.push(Note { text, own: true });
        }
        if let Some(temporary) = temporary {
            notes.push(Note::from(format!("{temporary}: the reasons and the advice go by these")));
        }
        if folios.is_none() {
            let text =
                "folios and contiguity are not shown: the kernel shows frames only to CAP_SYS_ADMIN; run as root";
            notes.push(Note::from(text.to_string()));
        }
        if disabled {
            let text = "the process disabled transparent huge pages for itself (PR_SET_THP_DISABLE)";
            notes.push(Note { text: text.into(), own: true });
        }
        let shared = |(map, mapping): (&_, &Mapping)| {
            let whys = || mapping.reasons.iter().map(|reason| reason.why);
            let stuck = whys().any(|why| why == Why::Misaligned || (why == Why::Never && rules.denies_shared()));
            let kind = || {
                if facts(map, &rules, disabled, &tmpfs).mounted { scan::Kind::Mounted } else { scan::Kind::Shared }
            };
            (mapping.kind == MappingKind::SharedMemory && stuck).then(kind)
        };
        let stuck: Vec<scan::Kind> = known.clone().zip(&mappings).filter_map(shared).collect();
        notes.extend(shared_way_out(&stuck, &rules).map(Note::from));
        if mappings.iter().any(is_promotable) {
            let text = "`never` binds the kernel alone: as root, `superpage daemon` makes regions huge that are full";
            notes.push(Note::from(text.to_string()));
        }
        Ok(Process { pid, command: status.name, mappings, notes })
    }
}

/// Resident bytes of all, and of shared memory of which the process maps the same part elsewhere
/// too.
fn mapped_again<'a>(mappings: impl Iterator<Item = (&'a MemoryMap, &'a Mapping)>) -> (u64, u64) {
    let (mut all, mut places) = (0, BTreeMap::new());
    for (map, mapping) in mappings {
        all += mapping.resident_bytes;
        if mapping.kind == MappingKind::SharedMemory {
            let (times, bytes) = places.entry((map.dev, map.inode, map.offset)).or_insert((0, 0));
            (*times, *bytes) = (*times + 1, *bytes + mapping.resident_bytes);
        }
    }
    (all, places.into_values().filter(|(times, _)| *times > 1).map(|(_, bytes)| bytes).sum())
}

/// The file systems in memory that are mounted where this process sees them, with the rule for huge
/// pages of each that has one.
pub(super) fn tmpfs(pid: i32) -> BTreeMap<(i32, i32), Option<String>> {
    let mounts = proc::read(format!("/proc/{pid}/mountinfo"))
        .ok()
        .and_then(|text| MountInfos::from_buf_read(text.as_bytes()).ok());
    let mounts = mounts.into_iter().flat_map(|mounts| mounts.0).filter(|mount| mount.fs_type == "tmpfs");
    let ruled = mounts.filter_map(|mount| {
        let (major, minor) = mount.majmin.split_once(':')?;
        // A mount without the option has the rule `never`.
        let rule = mount.super_options.get("huge").cloned().flatten().unwrap_or_else(|| "never".into());
        Some(((major.parse().ok()?, minor.parse().ok()?), Some(rule)))
    });
    ruled.collect()
}

#[cfg(test)]
mod tests {
    use super::super::advice::tests::mapping;
    use super::*;

    #[test]
    fn the_daemon_is_named_for_what_is_full() {
        let buffers = mapping(MappingKind::SharedMemory, "rw-s", "/dev/zero", Why::Never, 100);
        assert!(!is_promotable(&buffers), "this process has not populated it");
        assert!(is_promotable(&Mapping { full_bytes: 2 << 20, ..buffers }));
    }
}
