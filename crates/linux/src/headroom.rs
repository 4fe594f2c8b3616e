//! How much memory promotion may add, and when it must wait: for the control groups of a process
//! and for the system.
//!
//! A promotion adds the pages of the region that were not populated and, while it copies, a whole
//! region more. Both are charged to the limits of every control group from the process's own up to
//! the root, and to the system's available memory. Of each a *headroom* is left to the programs.
//! What adds pages leaves a quarter of a limit, and an eighth of the system's memory, since a
//! program that is sized to fill its limit would be killed when it grows; a copy, which is
//! temporary, leaves a sixteenth and a sixty-fourth; and none of them less than 16 MB. File cache
//! that was not used recently (`inactive_file`) does not count as used: the kernel reclaims it
//! before it fails an allocation.
//!
//! If tasks have waited for memory in at least 5 percent of the last ten seconds, according to the
//! kernel's pressure stall information, nothing is promoted until that is over. What counts is the
//! pressure of the process's own control group, and of each above it that has a limit, which its
//! members share: a group elsewhere that thrashes at its own limit raises the pressure of the
//! system and of all above it, and is no reason to leave others alone. Version 1 knows the system's
//! pressure only, not whose it is: there it counts if the system, or a group of the process, has no
//! room for more pages either.
//!
//! The files: `memory.max`, `memory.high`, `memory.current`, `memory.pressure` of version 2,
//! `memory.limit_in_bytes` and `memory.usage_in_bytes` of version 1, `memory.stat` of both;
//! `/proc/meminfo` and `/proc/pressure/memory`. A limit that the kernel does not show does not
//! apply.

use crate::cgroup::{Hierarchy, hierarchy, within};
use crate::memory::Left;
use crate::proc::bytes_of;
use procfs::{FromBufRead, ProcessCGroups};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// The percentage of time in which some task waited for memory (`some avg10`) from which on
/// promotion waits.
const PRESSED: f64 = 5.0;

/// The owner of a limit.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// The system.
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
pub struct Room {
    /// Bytes of permanent pages.
    pub pages: u64,
    /// Bytes of copies, which are freed again.
    pub copies: u64,
    /// The place with the least room for copies.
    pub place: Place,
}

/// A limit of memory, and how much of it is unused, in bytes.
#[derive(Clone, Copy)]
struct Limit {
    bytes: u64,
    free: u64,
}

impl Room {
    /// The room where `free` of a limit is unused; pages leave its `pages`-th part, copies its
    /// `copies`-th.
    fn of(Limit { free, bytes: limit }: Limit, pages: u64, copies: u64, place: Place) -> Room {
        let without = |part: u64| free.saturating_sub((limit / part).max(16 << 20));
        Room { pages: without(pages), copies: without(copies), place }
    }

    /// The room under all of these limits.
    pub fn of_all(rooms: &[Room]) -> Room {
        let unlimited = Room { pages: u64::MAX, copies: u64::MAX, place: Place::System };
        rooms.iter().cloned().fold(unlimited, |one, other| {
            let pages = one.pages.min(other.pages);
            let tighter = if other.copies < one.copies { other } else { one };
            Room { pages, ..tighter }
        })
    }
}

/// The limits of a system and its control groups. It caches nothing: a group may change, and be
/// left, at any time.
#[derive(Clone, Debug)]
pub struct Headroom {
    root: PathBuf,
}

impl Headroom {
    /// Of the system whose `/proc` and control groups are in `root`: `/`, except in tests.
    pub fn of(root: impl Into<PathBuf>) -> Headroom {
        Headroom { root: root.into() }
    }

    /// What may be added to a process's memory now. Some 10 us for each group from its own to the
    /// root.
    pub fn room(&self, pid: i32) -> Room {
        Room::of_all(&self.rooms(pid))
    }

    /// The room under each limit that applies to a process.
    pub fn rooms(&self, pid: i32) -> Vec<Room> {
        let system = || {
            let text = self.read("proc/meminfo");
            let limit = Limit { free: bytes_of(&text, "MemAvailable")?, bytes: bytes_of(&text, "MemTotal")? };
            Some(Room::of(limit, 8, 64, Place::System))
        };
        self.groups(pid).into_iter().filter_map(group_room).chain(system()).collect()
    }

    /// What is left to a process of each limit of memory.
    pub fn left(&self, pid: i32) -> Vec<Left> {
        let system = bytes_of(&self.read("proc/meminfo"), "MemAvailable");
        let left = |bytes, place: Place| Left { bytes, of: place.to_string(), counts_untouched: false };
        let groups = self.groups(pid).into_iter();
        let groups = groups.filter_map(|folder| Some(left(group_limit(&folder)?.free, Place::Group(folder))));
        groups.chain(system.map(|bytes| left(bytes, Place::System))).collect()
    }

    /// Where tasks wait for memory, if they do and that concerns the process: in a control group of
    /// its own, or in the system.
    pub fn pressed(&self, pid: i32) -> Option<Place> {
        let groups = self.groups(pid);
        // Its own comes first. The root shows the system's; it has no limit and no type, nor files
        // for them.
        let below_root = |folder: &PathBuf| ["memory.max", "cgroup.type"].iter().any(|name| folder.join(name).exists());
        let own = groups.iter().find(|folder| folder.join("memory.pressure").exists() && below_root(folder));
        if let Some(own) = own {
            let counts = |folder: &&PathBuf| *folder == own || group_limit(folder).is_some();
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
        let mounts: Vec<Hierarchy> = mounts.lines().filter_map(hierarchy).collect();
        let mut folders = Vec::new();
        let member = self.read(&format!("proc/{pid}/cgroup"));
        for group in ProcessCGroups::from_buf_read(member.as_bytes()).map_or(Vec::new(), |groups| groups.0) {
            let rank = match &group.controllers[..] {
                [] if group.hierarchy == 0 => 0,
                controllers if controllers.iter().any(|controller| controller == "memory") => 1,
                _ => continue,
            };
            for Hierarchy { top, folder: mount, .. } in mounts.iter().filter(|mount| mount.rank == rank) {
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

fn file(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap_or_default()
}

/// The room in a group; `None` if it has no limit.
fn group_room(folder: PathBuf) -> Option<Room> {
    Some(Room::of(group_limit(&folder)?, 4, 16, Place::Group(folder)))
}

/// A group's limit; `None` if it has none.
fn group_limit(folder: &Path) -> Option<Limit> {
    let value = |name: &str| file(folder, name).trim().parse::<u64>().ok();
    // "max" is not a number, and in version 1 no limit is nearly all of 63 bits.
    let limits = ["memory.max", "memory.high", "memory.limit_in_bytes"].into_iter().filter_map(value);
    let bytes = limits.filter(|limit| *limit < 1 << 60).min()?;
    let used = value("memory.current").or_else(|| value("memory.usage_in_bytes"))?;
    let stat = file(folder, "memory.stat");
    // In version 1, the plain one is of the group without its descendants.
    let cached = number(&stat, "total_inactive_file ").or_else(|| number(&stat, "inactive_file ")).unwrap_or(0);
    Some(Limit { bytes, free: bytes.saturating_sub(used.saturating_sub(cached)) })
}

/// The number after a name at the start of a line.
fn number(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Whether a file of pressure stall information reports that tasks wait: `some avg10=7.50
/// avg60=...`.
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
        // 200 MB, of which 160 are used, 10 of those cached; copies leave 16 to the programs, and
        // pages 50.
        let room = headroom.room(7);
        assert_eq!((room.pages, room.copies), (0, (200 - 160 + 10 - 16) * MB));
        assert_eq!(room.place, Place::Group(folder.path().join("sys/fs/cgroup/a")));
        let left: Vec<u64> = headroom.left(7).into_iter().map(|left| left.bytes / MB).collect();
        assert_eq!(left, [1024 - 100, 200 - 160 + 10, 1024], "from its own group to the system");
        assert!(headroom.left(7)[1].of.starts_with("control group /"));
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
        assert_eq!(headroom.left(7)[0].bytes, (512 - 256 + 1) * MB);
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
        // In a group that does not wait, whatever the system and the groups above say, unless these
        // have a limit.
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
