//! Control groups, of version 1 or 2: their folders, and the processes in them.

use crate::Error;
use std::collections::BTreeSet;
use std::ffi::OsStr;
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

/// The processes of a control group, as its file says. What is no regular file, as a pipe that
/// somebody put there, is refused.
fn procs(group: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    superpage_output::open_regular(&group.join("cgroup.procs"))?.read_to_string(&mut text)?;
    Ok(text)
}

/// Whether a folder is of a file system of control groups: elsewhere its owner could say which
/// processes are in it.
fn is_mounted(folder: &Path) -> bool {
    let kind = rustix::fs::statfs(folder).map(|system| system.f_type);
    kind.is_ok_and(|kind| [libc::CGROUP_SUPER_MAGIC, libc::CGROUP2_SUPER_MAGIC].contains(&kind))
}

/// Whether it is the control group of a unit of systemd, by its name or its path: it comes and goes
/// with the unit.
pub fn is_unit(path: &Path) -> bool {
    ["service", "scope", "slice"].iter().any(|kind| path.extension() == Some(OsStr::new(kind)))
}

/// Adds the folders of a unit of systemd in the slices below a folder. Not in those of users and of
/// machines, nor in services and scopes, such as containers: there others than root may make groups
/// of any name.
fn units(folder: &Path, name: &OsStr, into: &mut Vec<PathBuf>) {
    let below = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        let (path, own) = (entry.path(), entry.file_name());
        if path.extension() == Some(OsStr::new("slice")) && own != "user.slice" && own != "machine.slice" {
            units(&path, name, into);
        }
        into.extend((own == name).then_some(path));
    }
}

/// The only one of the folders that a unit of systemd has; `None` if it has none.
fn only(mut found: Vec<PathBuf>) -> Result<Option<PathBuf>, Error> {
    match found.as_slice() {
        [one, other, ..] => Err(Error::Usage(format!(
            "which unit is meant, {} or {}? Give the folder instead of the name",
            one.display(),
            other.display()
        ))),
        _ => Ok(found.pop()),
    }
}

/// Finds the folder of a control group: a folder as given, or a path inside the mounted
/// hierarchies, that of version 2 first, then those of version 1, the memory controller's first; of
/// a unit of systemd its name is enough, if it is in the slices of the system. Some 20 us for each
/// slice.
///
/// # Errors
/// [`Error::Usage`]: there is no such group, or two units of that name.
pub fn find(path: &Path) -> Result<PathBuf, Error> {
    let is_group = |folder: &PathBuf| is_mounted(folder) && folder.join("cgroup.procs").is_file();
    let given = path.to_path_buf();
    if path.is_absolute() && is_group(&given) {
        return Ok(given);
    }
    let inside = path.strip_prefix("/").unwrap_or(path);
    let mounts = crate::proc::read("/proc/self/mountinfo").unwrap_or_default();
    let mut hierarchies: Vec<Hierarchy> = mounts.lines().filter_map(hierarchy).collect();
    hierarchies.sort();
    let mut found = None;
    for Hierarchy { folder, .. } in hierarchies {
        found = if is_unit(path) && path.parent() == Some(Path::new("")) {
            let mut found = Vec::new();
            units(&folder, path.as_os_str(), &mut found);
            found.retain(is_group);
            only(found)?
        } else {
            Some(folder.join(inside)).filter(is_group)
        };
        if found.is_some() {
            break;
        }
    }
    found.ok_or_else(|| {
        let sentence = "is no control group: give its folder, its path below the mounted hierarchies, as in \
                        /proc/PID/cgroup, or the name of a unit of systemd that runs, not a user's or a container's";
        Error::Usage(format!("{} {sentence}", path.display()))
    })
}

/// A mounted hierarchy of control groups.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Hierarchy {
    /// 0 for version 2, 1 for the memory controller's of version 1, 2 for the others.
    pub(crate) rank: u8,
    /// The group that is mounted.
    pub(crate) top: PathBuf,
    /// Where.
    pub(crate) folder: PathBuf,
}

/// The hierarchy of a line in `mountinfo`. Read before each batch of promotions: procfs would make
/// tables of all options of all mounts.
pub(crate) fn hierarchy(line: &str) -> Option<Hierarchy> {
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
    Some(Hierarchy { rank, top, folder })
}

/// The path of a group relative to one above it; `None` if it is elsewhere, or outside of the
/// namespace.
pub(crate) fn within<'a>(group: &'a Path, top: &Path) -> Option<&'a Path> {
    let inside = group.strip_prefix(top).ok()?;
    inside.components().all(|part| matches!(part, std::path::Component::Normal(_))).then_some(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_have_their_order() {
        let rank = |line| hierarchy(line).map(|found| (found.rank, found.folder.display().to_string()));
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

    #[test]
    fn a_unit_is_the_systems_and_nobody_elses() {
        let top = tempfile::tempdir().unwrap();
        let found = |places: &[&str]| {
            places.iter().for_each(|place| std::fs::create_dir_all(top.path().join(place)).unwrap());
            let mut found = Vec::new();
            units(top.path(), OsStr::new("web.service"), &mut found);
            found
        };
        let others = [
            "user.slice/user-7.slice/user@7.service/app.slice/web.service",
            "user.slice/web.service",
            "machine.slice/machine-a.scope/system.slice/web.service",
            "system.slice/docker-1.scope/web.service",
            "system.slice/web-other.service/web.service",
            "docker/1/web.service",
        ];
        assert!(found(&others).is_empty());
        std::os::unix::fs::symlink(top.path().join("user.slice"), top.path().join("a.slice")).unwrap();
        let own = found(&["system.slice/system-web.slice/web.service"]);
        assert_eq!(own, [top.path().join("system.slice/system-web.slice/web.service")]);
        assert_eq!(only(own.clone()).unwrap(), Some(own[0].clone()));
        let error = only(found(&["web.service"])).unwrap_err();
        assert!(error.status() == 2 && error.to_string().contains("Give the folder"), "{error}");
        for (path, unit) in [("a.service", true), ("/a/b.scope", true), ("a/b", false), (".service", false)] {
            assert_eq!(is_unit(Path::new(path)), unit, "{path}");
        }
    }
}
