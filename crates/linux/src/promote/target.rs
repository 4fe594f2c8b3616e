//! The processes that the promoter works on.

use crate::Error;
use crate::proc::Named;
use crate::tree::descendants;
use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The processes to promote in: the union of its parts. The promoter's own process is never included. A process that is
/// named by its number is included until it ends, and whoever gets the number then is not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Target {
    /// Every process of the system except the first (`init`), unless it is named.
    pub all: bool,
    /// These processes.
    pub pids: Vec<Named>,
    /// These processes and all their descendants, as they come and go.
    pub trees: Vec<Named>,
    /// The folders of control groups, of version 1 or 2: all processes in them and in the groups below, but for `init`.
    pub cgroups: Vec<PathBuf>,
}

impl Target {
    /// Every process.
    pub fn all() -> Target {
        Target { all: true, ..Target::default() }
    }

    /// These processes, without those that have ended.
    pub fn pids(pids: impl IntoIterator<Item = i32>) -> Target {
        Target { pids: pids.into_iter().filter_map(Named::of).collect(), ..Target::default() }
    }

    /// A process and its descendants. With the caller's own number, the descendants of the caller.
    pub fn tree(pid: i32) -> Target {
        Target { trees: Named::of(pid).into_iter().collect(), ..Target::default() }
    }

    /// This target, where a number that was named before is of the process that was meant then, even if that has ended. What it names is
    /// known from then on.
    pub(super) fn after(mut self, known: &mut Vec<Named>) -> Target {
        for named in self.pids.iter_mut().chain(&mut self.trees) {
            match known.iter().find(|known| known.pid == named.pid) {
                Some(known) => *named = *known,
                None => known.push(*named),
            }
        }
        self
    }

    /// Whether only processes were named, and all have ended.
    pub fn is_over(&self) -> bool {
        !self.all && self.cgroups.is_empty() && !self.pids.iter().chain(&self.trees).any(|named| named.lives())
    }

    /// Whether no process is selected.
    pub fn is_empty(&self) -> bool {
        *self == Target::default()
    }

    /// The processes, now, including those that must not be touched. O(processes of the system) for all, otherwise of
    /// the target; some 10 us for each that is named.
    pub fn members(&self) -> BTreeSet<i32> {
        let mut members = BTreeSet::new();
        let living = |named: &[Named]| -> Vec<i32> {
            named.iter().filter(|named| named.lives()).map(|named| named.pid).collect()
        };
        members.extend(living(&self.pids));
        if self.all {
            members.extend(all().filter(|pid| *pid != 1));
        }
        for root in living(&self.trees) {
            members.insert(root);
            members.extend(descendants(root));
        }
        let mut grouped = BTreeSet::new();
        self.cgroups.iter().for_each(|group| group_members(group, &mut grouped));
        members.extend(grouped.into_iter().filter(|pid| *pid != 1));
        members.remove(&(std::process::id() as i32));
        members
    }
}

/// Every process of the system.
fn all() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Adds the processes of a control group and of all below it.
fn group_members(group: &Path, members: &mut BTreeSet<i32>) {
    if let Ok(text) = procs(group) {
        // Processes of other pid namespaces show as 0.
        members.extend(text.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()).filter(|pid| *pid != 0));
    }
    let below = std::fs::read_dir(group).into_iter().flatten().flatten();
    for entry in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        group_members(&entry.path(), members);
    }
}

/// The processes of a control group, as its file says. What is no regular file, as a pipe that somebody put there, is refused.
fn procs(group: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    superpage_output::open_regular(&group.join("cgroup.procs"))?.read_to_string(&mut text)?;
    Ok(text)
}

/// Whether a folder is of a file system of control groups: elsewhere its owner could say which processes are in it.
fn is_mounted(folder: &Path) -> bool {
    let kind = rustix::fs::statfs(folder).map(|system| system.f_type);
    kind.is_ok_and(|kind| [libc::CGROUP_SUPER_MAGIC, libc::CGROUP2_SUPER_MAGIC].contains(&kind))
}

/// Finds the folder of a control group: a folder as given, or a path inside the mounted hierarchies, that of
/// version 2 first, then those of version 1, the memory controller's first.
///
/// # Errors
/// [`Error::Usage`]: there is no such group.
pub fn cgroup(path: &Path) -> Result<PathBuf, Error> {
    let is_group = |folder: &PathBuf| is_mounted(folder) && folder.join("cgroup.procs").is_file();
    let given = path.to_path_buf();
    if path.is_absolute() && is_group(&given) {
        return Ok(given);
    }
    let inside = path.strip_prefix("/").unwrap_or(path);
    let mounts = crate::proc::read("/proc/self/mountinfo").unwrap_or_default();
    let mut folders: Vec<(u8, PathBuf, PathBuf)> = mounts.lines().filter_map(hierarchy).collect();
    folders.sort();
    let found = folders.into_iter().map(|(.., folder)| folder.join(inside)).find(is_group);
    found.ok_or_else(|| {
        let sentence =
            "is no control group: give its folder, or its path below the mounted hierarchies, as in /proc/PID/cgroup";
        Error::Usage(format!("{} {sentence}", path.display()))
    })
}

/// A hierarchy of control groups, from its line in `mountinfo`: its rank, the group that is mounted, and where. Read before
/// each batch of promotions: procfs would make tables of all options of all mounts.
pub(super) fn hierarchy(line: &str) -> Option<(u8, PathBuf, PathBuf)> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut words = mount.split(' ').skip(3);
    let (top, folder) = (PathBuf::from(words.next()?), PathBuf::from(words.next()?));
    let mut words = file_system.split(' ');
    let rank = match words.next()? {
        "cgroup2" => 0,
        "cgroup" if words.nth(1)?.split(',').any(|option| option == "memory") => 1,
        "cgroup" => 2,
        _ => return None,
    };
    Some((rank, top, folder))
}

/// The path of a group relative to one above it; `None` if it is elsewhere, or outside of the namespace.
pub(super) fn within<'a>(group: &'a Path, top: &Path) -> Option<&'a Path> {
    let inside = group.strip_prefix(top).ok()?;
    inside.components().all(|part| matches!(part, std::path::Component::Normal(_))).then_some(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_its_descendants_and_not_ourselves() {
        let mut child = std::process::Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let own = std::process::id() as i32;
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let members = loop {
            let members = Target::tree(child.id() as i32).members();
            if members.len() > 1 || std::time::Instant::now() > deadline {
                break members;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        let ours = Target::tree(own).members();
        let all = Target::all().members();
        for pid in members.iter().rev() {
            // SAFETY: sending a signal to a child of ours touches no memory.
            unsafe { libc::kill(*pid, libc::SIGKILL) };
        }
        child.wait().unwrap();
        assert_eq!(members.len(), 2);
        assert!(members.is_subset(&ours) && members.is_subset(&all));
        assert!(!ours.contains(&own) && !all.contains(&own) && !all.contains(&1));
    }

    #[test]
    fn a_number_is_of_the_process_that_had_it_when_it_was_named_first() {
        let own = std::process::id() as i32;
        let first = Named::of(own).unwrap();
        let later = Target { pids: vec![Named::of(1).unwrap(), first], ..Target::default() };
        let mut known = Vec::new();
        assert_eq!(Target { pids: vec![first], ..Target::default() }.after(&mut known).pids, [first]);
        // It was not named in between.
        assert!(Target::default().after(&mut known).is_empty());
        known[0] = Named::of(1).map(|other| Named { pid: own, ..other }).unwrap();
        assert_eq!(later.after(&mut known).pids[1], known[0]);
        assert_eq!(known.len(), 2);
        assert!(!known[0].lives());
    }

    #[test]
    fn a_control_group_is_without_init() {
        let group = tempfile::tempdir().unwrap();
        std::fs::write(group.path().join("cgroup.procs"), "1\n2\n0\n").unwrap();
        let target = Target { cgroups: vec![group.path().into()], ..Target::default() };
        assert_eq!(target.members().into_iter().collect::<Vec<_>>(), [2]);
        let named = Target { pids: Target::pids([1]).pids, ..target };
        assert!(named.members().contains(&1));
    }

    #[test]
    fn hierarchies_have_their_order() {
        let rank = |line| hierarchy(line).map(|(rank, _, folder)| (rank, folder.display().to_string()));
        let unified = "31 23 0:27 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";
        let memory = "36 25 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory";
        let cpu = "37 25 0:31 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct";
        assert_eq!(rank(unified), Some((0, "/sys/fs/cgroup".into())));
        assert_eq!(rank(memory), Some((1, "/sys/fs/cgroup/memory".into())));
        assert_eq!(rank(cpu), Some((2, "/sys/fs/cgroup/cpu,cpuacct".into())));
        assert_eq!(rank("22 1 0:20 / / rw - ext4 /dev/vda rw"), None);
        let path = |group: &'static str, top: &str| within(Path::new(group), Path::new(top)).and_then(Path::to_str);
        assert_eq!((path("/a/b", "/"), path("/a/b", "/a"), path("/a", "/a")), (Some("a/b"), Some("b"), Some("")));
        assert_eq!((path("/a/b", "/c"), path("/../b", "/")), (None, None));
        assert_eq!(cgroup(Path::new("/no/such/group")).unwrap_err().status(), 2);
    }
}
