//! How much memory promotion may add, and when it must wait: for the control groups of a process and for the system.
//!
//! A promotion adds the pages of the region that were not populated and, while it copies, a whole region more. Both are
//! charged to the limits of every control group from the process's own up to the root, and to the system's available
//! memory. Of each a *headroom* is left to the programs. What adds pages leaves a quarter of a limit, and an eighth of
//! the system's memory, since a program that is sized to fill its limit would be killed when it grows; a copy, which is
//! temporary, leaves a sixteenth and a sixty-fourth; and none of them less than 16 MB. File cache that was not used
//! recently (`inactive_file`) does not count as used: the kernel reclaims it before it fails an allocation.
//!
//! If tasks have waited for memory in at least [`PRESSED`] percent of the last ten seconds, according to the kernel's
//! pressure stall information, nothing is promoted until that is over. What counts is the pressure of the process's own control
//! group, and of each above it that has a limit, which its members share: a group elsewhere that thrashes at its own limit raises the
//! pressure of the system and of all above it, and is no reason to leave others alone. Version 1 knows the system's pressure
//! only, not whose it is: there it counts if the system, or a group of the process, has no room for more pages either.
//!
//! The files: `memory.max`, `memory.high`, `memory.current`, `memory.pressure` of version 2, `memory.limit_in_bytes` and
//! `memory.usage_in_bytes` of version 1, `memory.stat` of both; `/proc/meminfo` and `/proc/pressure/memory`. A limit
//! that the kernel does not show does not apply.

use super::target::{hierarchy, within};
use crate::proc::bytes_of;
use procfs::{FromBufRead, ProcessCGroups};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use superpage_vm::Candidate;

/// The percentage of time in which some task waited for memory (`some avg10`) from which on promotion waits.
const PRESSED: f64 = 5.0;

/// The owner of a limit.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Place {
    System,
    /// The folder of a control group.
    Group(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::System => f.write_str("the system"),
            Place::Group(folder) => write!(f, "control group {}", folder.display().to_string().escape_debug()),
        }
    }
}

/// What may be added to the memory of a process without using the headroom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Room {
    /// Bytes of permanent pages.
    pub(super) pages: u64,
    /// Bytes of copies, which are freed again.
    pub(super) copies: u64,
    /// The place with the least room for copies.
    pub(super) place: Place,
}

impl Room {
    /// The room where `free` of a limit is unused; pages leave its `pages`-th part, copies its `copies`-th.
    fn of(free: u64, limit: u64, (pages, copies): (u64, u64), place: Place) -> Room {
        let beside = |part: u64| free.saturating_sub((limit / part).max(16 << 20));
        Room { pages: beside(pages), copies: beside(copies), place }
    }

    /// The room under both limits.
    fn and(self, other: Room) -> Room {
        let pages = self.pages.min(other.pages);
        let tighter = if other.copies < self.copies { other } else { self };
        Room { pages, ..tighter }
    }
}

/// The limits of a system and its control groups. It caches nothing: a group may change, and be left, at any time.
#[derive(Clone, Debug)]
pub(crate) struct Headroom {
    root: PathBuf,
}

impl Headroom {
    /// Of the system whose `/proc` and control groups are in `root`: `/`, except in tests.
    pub(crate) fn of(root: impl Into<PathBuf>) -> Headroom {
        Headroom { root: root.into() }
    }

    /// What may be added to a process's memory now. Some 10 us for each group from its own to the root.
    pub(super) fn room(&self, pid: i32) -> Room {
        let unlimited = Room { pages: u64::MAX, copies: u64::MAX, place: Place::System };
        self.rooms(pid).into_iter().fold(unlimited, Room::and)
    }

    /// The room under each limit that applies to a process.
    fn rooms(&self, pid: i32) -> Vec<Room> {
        let system = || {
            let text = self.read("proc/meminfo");
            let (available, total) = (bytes_of(&text, "MemAvailable")?, bytes_of(&text, "MemTotal")?);
            Some(Room::of(available, total, (8, 64), Place::System))
        };
        self.groups(pid).into_iter().filter_map(group_room).chain(system()).collect()
    }

    /// What is left to a process of each limit of memory, and what the limit is of, in words.
    pub(crate) fn left(&self, pid: i32) -> Vec<(u64, String)> {
        let system = bytes_of(&self.read("proc/meminfo"), "MemAvailable");
        let groups =
            self.groups(pid).into_iter().filter_map(|folder| Some((group_free(&folder)?.0, Place::Group(folder))));
        let all = groups.chain(system.map(|bytes| (bytes, Place::System)));
        all.map(|(bytes, place)| (bytes, place.to_string())).collect()
    }

    /// Where tasks wait for memory, if they do and that concerns the process: in a control group of its own, or in the system.
    pub(super) fn pressed(&self, pid: i32) -> Option<Place> {
        let groups = self.groups(pid);
        // Its own comes first. The root shows the system's; it has no limit and no type, nor files for them.
        let below_root = |folder: &PathBuf| ["memory.max", "cgroup.type"].iter().any(|name| folder.join(name).exists());
        let own = groups.iter().find(|folder| folder.join("memory.pressure").exists() && below_root(folder));
        if let Some(own) = own {
            let counts = |folder: &&PathBuf| *folder == own || group_free(folder).is_some();
            let mut pressed = groups.iter().filter(counts).filter(|folder| pressed(&file(folder, "memory.pressure")));
            return pressed.next().cloned().map(Place::Group);
        }
        let tightest = || self.rooms(pid).into_iter().find(|room| room.pages == 0);
        let pressed = pressed(&self.read("proc/pressure/memory"));
        pressed.then(tightest).flatten().map(|room| room.place)
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap_or_default()
    }

    /// The folders of the control groups that a process is in, each with those above it.
    fn groups(&self, pid: i32) -> Vec<PathBuf> {
        let mounts = self.read("proc/self/mountinfo");
        let mounts: Vec<(u8, PathBuf, PathBuf)> = mounts.lines().filter_map(hierarchy).collect();
        let mut folders = Vec::new();
        let member = self.read(&format!("proc/{pid}/cgroup"));
        for group in ProcessCGroups::from_buf_read(member.as_bytes()).map_or(Vec::new(), |groups| groups.0) {
            let rank = match &group.controllers[..] {
                [] if group.hierarchy == 0 => 0,
                controllers if controllers.iter().any(|controller| controller == "memory") => 1,
                _ => continue,
            };
            for (_, top, mount) in mounts.iter().filter(|(of, ..)| *of == rank) {
                let mount = self.root.join(mount.strip_prefix("/").unwrap_or(mount));
                let Some(inside) = within(Path::new(&group.pathname), top) else { continue };
                let levels = inside.ancestors().map(|level| mount.join(level));
                folders.extend(levels.filter(|folder| folder.is_dir()));
                break;
            }
        }
        folders
    }
}

/// What simulated promotions would add, one after the other.
#[derive(Debug, Default)]
pub(super) struct Claims(BTreeMap<Place, u64>);

impl Claims {
    /// Splits regions of a process as [`admit`] does, beside everything claimed before, and claims what the admitted
    /// ones add. Also returns the place with too little room for the others.
    pub(super) fn admit(
        &mut self,
        headroom: &Headroom,
        pid: i32,
        batch: Vec<Candidate>,
        (size, page): (u64, u64),
    ) -> (Vec<Candidate>, Vec<Candidate>, Option<Place>) {
        let mut rooms = headroom.rooms(pid);
        for room in &mut rooms {
            let claimed = self.0.get(&room.place).copied().unwrap_or(0);
            (room.pages, room.copies) = (room.pages.saturating_sub(claimed), room.copies.saturating_sub(claimed));
        }
        let unlimited = Room { pages: u64::MAX, copies: u64::MAX, place: Place::System };
        let (fit, others) = admit(batch, &rooms.iter().cloned().fold(unlimited, Room::and), size, page);
        let grown: u64 = fit.iter().map(|candidate| grows(candidate, size, page)).sum();
        for room in &rooms {
            *self.0.entry(room.place.clone()).or_default() += grown;
        }
        // If not even a copy fits nothing is promoted; otherwise there are too many pages.
        let tightest =
            rooms.into_iter().min_by_key(|room| if room.copies < size { (0, room.copies) } else { (1, room.pages) });
        (fit, others, tightest.map(|room| room.place))
    }
}

/// What a region's promotion adds permanently.
fn grows(candidate: &Candidate, size: u64, page: u64) -> u64 {
    size - u64::from(candidate.populated) * page
}

/// Splits regions of `size` bytes into those that fit into the room, in their order, and the others.
pub(super) fn admit(batch: Vec<Candidate>, room: &Room, size: u64, page: u64) -> (Vec<Candidate>, Vec<Candidate>) {
    let mut rest = room.pages;
    batch.into_iter().partition(|candidate| {
        let grows = grows(candidate, size, page);
        // One region at a time exists twice, while it is copied.
        let fits = room.copies >= size && grows <= rest;
        rest -= if fits { grows } else { 0 };
        fits
    })
}

fn file(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap_or_default()
}

/// The room in a group; `None` if it has no limit.
fn group_room(folder: PathBuf) -> Option<Room> {
    let (free, limit) = group_free(&folder)?;
    Some(Room::of(free, limit, (4, 16), Place::Group(folder)))
}

/// What is free of a group's limit, and the limit; `None` if it has none.
fn group_free(folder: &Path) -> Option<(u64, u64)> {
    let value = |name: &str| file(folder, name).trim().parse::<u64>().ok();
    // "max" is not a number, and in version 1 no limit is nearly all of 63 bits.
    let limits = ["memory.max", "memory.high", "memory.limit_in_bytes"].into_iter().filter_map(value);
    let limit = limits.filter(|limit| *limit < 1 << 60).min()?;
    let used = value("memory.current").or_else(|| value("memory.usage_in_bytes"))?;
    let stat = file(folder, "memory.stat");
    // In version 1, the plain one is of the group without its descendants.
    let cached = number(&stat, "total_inactive_file ").or_else(|| number(&stat, "inactive_file ")).unwrap_or(0);
    Some((limit.saturating_sub(used.saturating_sub(cached)), limit))
}

/// The number after a name at the start of a line.
fn number(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Whether a file of pressure stall information reports that tasks wait: `some avg10=7.50 avg60=...`.
fn pressed(text: &str) -> bool {
    let some = text.lines().find_map(|line| line.strip_prefix("some "));
    let share = some.and_then(|some| some.split(' ').find_map(|word| word.strip_prefix("avg10=")));
    share.and_then(|share| share.parse::<f64>().ok()).is_some_and(|share| share >= PRESSED)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    /// A system in a folder, with files of these texts.
    fn system(files: &[(&str, &str)]) -> (tempfile::TempDir, Headroom) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let headroom = Headroom::of(folder.path());
        (folder, headroom)
    }

    const MEMORY: (&str, &str) = ("proc/meminfo", "MemTotal:  4194304 kB\nMemAvailable:  1048576 kB\n");
    const V2: (&str, &str) = ("proc/self/mountinfo", "31 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    const V1: (&str, &str) = (
        "proc/self/mountinfo",
        "36 25 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n31 23 0:27 / /sys/fs/cgroup/unified rw - cgroup2 x rw\n",
    );

    #[test]
    fn what_does_not_fit_is_left_and_what_adds_nothing_is_not() {
        let candidate = |region, populated| Candidate { region, populated, accessed: 0, pieces: 1, since: 0, least: 1 };
        let batch = || vec![candidate(1, 256), candidate(2, 128), candidate(3, 256), candidate(4, 512)];
        let regions = |pages, copies| {
            let room = Room { pages, copies, place: Place::System };
            let (fit, _) = admit(batch(), &room, 2 * MB, 4096);
            fit.iter().map(|candidate| candidate.region).collect::<Vec<_>>()
        };
        assert_eq!(regions(u64::MAX, u64::MAX), [1, 2, 3, 4]);
        // 1 MB each; the second would add 1.5.
        assert_eq!(regions(2 * MB, 2 * MB), [1, 3, 4]);
        assert_eq!(regions(0, 2 * MB), [4]);
        assert_eq!(regions(4 * MB, 2 * MB - 1), [0; 0]);
    }

    #[test]
    fn what_is_only_thought_of_adds_up() {
        let candidate = |region, populated| Candidate { region, populated, accessed: 0, pieces: 1, since: 0, least: 1 };
        let (_folder, headroom) = system(&[
            ("proc/meminfo", "MemTotal:  1048576 kB\nMemAvailable:  134144 kB\n"),
            V2,
            ("proc/8/cgroup", "0::/a\n"),
            ("sys/fs/cgroup/a/memory.max", "104857600\n"),
            ("sys/fs/cgroup/a/memory.current", "99614720\n"),
        ]);
        let mut claims = Claims::default();
        let mut admit = |pid, batch: &[Candidate]| {
            let (fit, others, place) = claims.admit(&headroom, pid, batch.to_vec(), (2 * MB, 4096));
            (fit.len(), others.len(), place)
        };
        // The system has 131 MB, of which 128 are left to the programs, and the group has none.
        assert_eq!(admit(7, &[candidate(1, 256), candidate(2, 512)]), (2, 0, Some(Place::System)));
        let (fit, others, place) = admit(8, &[candidate(1, 512)]);
        assert_eq!((fit, others), (0, 1));
        assert!(place.is_some_and(|place| place.to_string().contains("/a")));
        assert_eq!(admit(9, &[candidate(3, 256), candidate(4, 256), candidate(5, 256)]), (2, 1, Some(Place::System)));
        assert_eq!(admit(7, &[candidate(6, 256), candidate(7, 512)]), (1, 1, Some(Place::System)));
    }

    #[test]
    fn the_system_keeps_some() {
        let (_folder, headroom) = system(&[MEMORY]);
        let room = Room { pages: (1024 - 512) * MB, copies: (1024 - 64) * MB, place: Place::System };
        assert_eq!(headroom.room(7), room);
        let (_folder, nothing) = system(&[]);
        assert_eq!((nothing.room(7).pages, nothing.pressed(7)), (u64::MAX, None));
    }

    #[test]
    fn the_tightest_group_on_the_way_up_counts() {
        let (folder, headroom) = system(&[
            MEMORY,
            V2,
            ("proc/7/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.high", "1073741824\n"),
            ("sys/fs/cgroup/a/b/memory.current", "104857600\n"),
            ("sys/fs/cgroup/a/memory.max", "209715200\n"),
            ("sys/fs/cgroup/a/memory.current", "167772160\n"),
            ("sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 10485760\n"),
        ]);
        // 200 MB, of which 160 are used, 10 of those cached; copies leave 16 to the programs, and pages 50.
        let room = headroom.room(7);
        assert_eq!((room.pages, room.copies), (0, (200 - 160 + 10 - 16) * MB));
        assert_eq!(room.place, Place::Group(folder.path().join("sys/fs/cgroup/a")));
        let left: Vec<u64> = headroom.left(7).into_iter().map(|(bytes, _)| bytes / MB).collect();
        assert_eq!(left, [1024 - 100, 200 - 160 + 10, 1024], "from its own group to the system");
        assert!(headroom.left(7)[1].1.starts_with("control group /"));
        fs::write(folder.path().join("sys/fs/cgroup/a/b/memory.current"), "1073741824\n").unwrap();
        assert_eq!(headroom.room(7).copies, 0);
        assert_eq!(headroom.room(8).place, Place::System, "a process of no group");
    }

    #[test]
    fn version_one_and_a_container_whose_hierarchy_begins_below() {
        let files = [
            MEMORY,
            V1,
            ("proc/7/cgroup", "4:memory:/box\n1:cpu:/x\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "9000000000\n"),
            ("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "536870912\n"),
            ("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "268435456\n"),
            ("sys/fs/cgroup/memory/box/memory.stat", "inactive_file 1\ntotal_inactive_file 1048576\n"),
        ];
        let (_folder, headroom) = system(&files);
        let room = headroom.room(7);
        assert_eq!((room.pages, room.copies), ((512 - 256 + 1 - 128) * MB, (512 - 256 + 1 - 32) * MB));
        assert_eq!(headroom.left(7)[0].0, (512 - 256 + 1) * MB);
        let inside = "36 25 0:30 /outer/box /sys/fs/cgroup/memory/box rw - cgroup cgroup rw,memory\n";
        let (folder, headroom) = system(&files);
        fs::write(folder.path().join("proc/self/mountinfo"), inside).unwrap();
        fs::write(folder.path().join("proc/7/cgroup"), "4:memory:/outer/box\n").unwrap();
        let room = headroom.room(7);
        assert_eq!((room.pages, room.copies), ((512 - 256 + 1 - 128) * MB, (512 - 256 + 1 - 32) * MB));
    }

    #[test]
    fn pressure_is_of_the_system_or_of_a_group() {
        let text =
            |share: &str| format!("some avg10={share} avg60=0.00 avg300=0.00 total=1\nfull avg10=99.0 avg60=0\n");
        assert!(pressed(&text("5.00")) && pressed(&text("63.2")) && !pressed(&text("4.99")) && !pressed(""));
        let files = [MEMORY, V2, ("proc/7/cgroup", "0::/a\n"), ("sys/fs/cgroup/a/x", "")];
        let (folder, headroom) = system(&files);
        assert_eq!(headroom.pressed(7), None);
        fs::write(folder.path().join("sys/fs/cgroup/a/memory.pressure"), text("7.0")).unwrap();
        assert_eq!(headroom.pressed(7), None, "the root of all groups has no limit");
        fs::write(folder.path().join("sys/fs/cgroup/a/memory.max"), "max\n").unwrap();
        assert_eq!(headroom.pressed(7), Some(Place::Group(folder.path().join("sys/fs/cgroup/a"))));
        fs::create_dir_all(folder.path().join("proc/pressure")).unwrap();
        fs::write(folder.path().join("proc/pressure/memory"), text("7.0")).unwrap();
        // In a group that does not wait, whatever the system and the groups above say, unless these have a limit.
        for (path, content) in [
            ("proc/9/cgroup", "0::/top/calm\n".to_string()),
            ("sys/fs/cgroup/top/memory.max", "max\n".into()),
            ("sys/fs/cgroup/top/memory.current", "104857600\n".into()),
            ("sys/fs/cgroup/top/memory.pressure", text("63.0")),
            ("sys/fs/cgroup/top/calm/memory.max", "max\n".into()),
            ("sys/fs/cgroup/top/calm/memory.pressure", text("0.0")),
        ] {
            fs::create_dir_all(folder.path().join(path).parent().unwrap()).unwrap();
            fs::write(folder.path().join(path), content).unwrap();
        }
        assert_eq!(headroom.pressed(9), None);
        fs::write(folder.path().join("sys/fs/cgroup/top/memory.max"), "209715200\n").unwrap();
        assert_eq!(headroom.pressed(9), Some(Place::Group(folder.path().join("sys/fs/cgroup/top"))));
    }

    #[test]
    fn a_container_that_thrashes_elsewhere_stops_nobody() {
        let text = "some avg10=63.00 avg60=0.00 avg300=0.00 total=1\n";
        let limited = |limit: &'static str| {
            [
                V1,
                ("proc/pressure/memory", text),
                ("proc/7/cgroup", "4:memory:/a\n"),
                ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", limit),
                ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "104857600\n"),
            ]
        };
        const PLENTY: (&str, &str) = ("proc/meminfo", "MemTotal:  4194304 kB\nMemAvailable:  3145728 kB\n");
        const LITTLE: (&str, &str) = ("proc/meminfo", "MemTotal:  4194304 kB\nMemAvailable:  131072 kB\n");
        let pressed = |meminfo, limit| {
            let (_folder, headroom) = system(&[&limited(limit)[..], &[meminfo]].concat());
            headroom.pressed(7).map(|place| place == Place::System)
        };
        const NONE: &str = "9223372036854771712\n";
        assert_eq!(pressed(PLENTY, NONE), None);
        assert_eq!(pressed(LITTLE, NONE), Some(true));
        assert_eq!(pressed(PLENTY, "115343360\n"), Some(false), "at its own limit");
    }
}
