//! Control groups, of version 1 or 2: their folders, and the processes in them.

use crate::Error;
use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Adds the processes of a control group and of all below it.
pub fn members(group: &Path, into: &mut BTreeSet<i32>) {
    if let Ok(text) = procs(group) {
        // Processes of other pid namespaces show as 0.
        into.extend(text.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()).filter(|pid| *pid != 0));
    }
    let below = std::fs::read_dir(group).into_iter().flatten().flatten();
    for entry in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        members(&entry.path(), into);
    }
}

/// The processes of a control group, as its file says. What is no regular file, as a pipe that somebody put there,
/// is refused.
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

/// Whether it is the name of a unit of systemd, which has a control group of that name.
pub fn is_unit(name: &str) -> bool {
    !name.contains('/') && [".service", ".scope", ".slice"].iter().any(|end| name.ends_with(end))
}

/// The folder of this name below a folder, the nearest one.
fn below(folder: &Path, name: &Path) -> Option<PathBuf> {
    let mut level = vec![folder.to_path_buf()];
    while !level.is_empty() {
        let entries = level.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
        level = entries.filter(|at| at.file_type().is_ok_and(|kind| kind.is_dir())).map(|at| at.path()).collect();
        level.sort();
        if let Some(found) = level.iter().find(|at| at.file_name() == Some(name.as_os_str())) {
            return Some(found.clone());
        }
    }
    None
}

/// Finds the folder of a control group: a folder as given, or a path inside the mounted hierarchies, that of
/// version 2 first, then those of version 1, the memory controller's first; of a unit of systemd its name is enough.
///
/// # Errors
/// [`Error::Usage`]: there is no such group.
pub fn find(path: &Path) -> Result<PathBuf, Error> {
    let is_group = |folder: &PathBuf| is_mounted(folder) && folder.join("cgroup.procs").is_file();
    let given = path.to_path_buf();
    if path.is_absolute() && is_group(&given) {
        return Ok(given);
    }
    let inside = path.strip_prefix("/").unwrap_or(path);
    let mounts = crate::proc::read("/proc/self/mountinfo").unwrap_or_default();
    let mut folders: Vec<(u8, PathBuf, PathBuf)> = mounts.lines().filter_map(hierarchy).collect();
    folders.sort();
    let found = folders.iter().map(|(.., folder)| folder.join(inside)).find(is_group);
    let unit = path.to_str().is_some_and(is_unit);
    let of_unit = || folders.iter().filter_map(|(.., folder)| below(folder, path)).find(is_group);
    found.or_else(|| unit.then(of_unit).flatten()).ok_or_else(|| {
        let sentence = "is no control group: give its folder, its path below the mounted hierarchies, as in \
                        /proc/PID/cgroup, or the name of a unit of systemd that runs";
        Error::Usage(format!("{} {sentence}", path.display()))
    })
}

/// A hierarchy of control groups, from its line in `mountinfo`: its rank, the group that is mounted, and where. Read
/// before each batch of promotions: procfs would make tables of all options of all mounts.
pub(crate) fn hierarchy(line: &str) -> Option<(u8, PathBuf, PathBuf)> {
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
pub(crate) fn within<'a>(group: &'a Path, top: &Path) -> Option<&'a Path> {
    let inside = group.strip_prefix(top).ok()?;
    inside.components().all(|part| matches!(part, std::path::Component::Normal(_))).then_some(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(find(Path::new("/no/such/group")).unwrap_err().status(), 2);
    }
}
