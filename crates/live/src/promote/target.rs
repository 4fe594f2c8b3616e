//! The processes that the promoter works on.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use superpage_linux::proc::{self, Named};
use superpage_linux::tree::descendants;
use superpage_linux::{Error, cgroup};

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
    /// Every process of one of these names, as `ps` shows them, except `init`: whoever has it.
    pub names: Vec<String>,
    /// Of all these, no process of one of these names.
    pub except: Vec<String>,
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

    /// What one types for a service: numbers of processes, names of processes, units of systemd, control groups.
    ///
    /// # Errors
    /// [`Error::Usage`]: a unit or control group does not exist.
    pub fn which(words: &[String]) -> Result<Target, Error> {
        let mut target = Target::default();
        for word in words {
            match word.parse() {
                Ok(pid) => target.pids.extend(Named::of(pid)),
                Err(_) if word.contains('/') || cgroup::is_unit(word) => {
                    target.cgroups.push(cgroup::find(Path::new(word))?);
                }
                Err(_) => target.names.push(word.clone()),
            }
        }
        Ok(target)
    }

    /// This target, where a number that was named before is of the process that was meant then, even if that has ended.
    /// What it names is known from then on.
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
        !self.all
            && self.cgroups.is_empty()
            && self.names.is_empty()
            && !self.pids.iter().chain(&self.trees).any(|named| named.lives())
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
        self.cgroups.iter().for_each(|group| cgroup::members(group, &mut grouped));
        members.extend(grouped.into_iter().filter(|pid| *pid != 1));
        if !self.names.is_empty() {
            members.extend(all().filter(|pid| *pid != 1 && is_named(*pid, &self.names)));
        }
        if !self.except.is_empty() {
            members.retain(|pid| !is_named(*pid, &self.except));
        }
        members.remove(&(std::process::id() as i32));
        members
    }
}

/// Whether a process has one of these names, of which the kernel keeps 15 bytes.
fn is_named(pid: i32, names: &[String]) -> bool {
    const KEPT: usize = 15;
    let comm = proc::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let comm = comm.strip_suffix('\n').unwrap_or(&comm);
    names.iter().any(|name| name == comm || comm.len() == KEPT && name.as_bytes().starts_with(comm.as_bytes()))
}

/// Every process of the system.
fn all() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
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
    fn a_service_is_what_one_types() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        let which = |words: &[&str]| Target::which(&words.iter().map(ToString::to_string).collect::<Vec<_>>());
        while !is_named(pid, &["sleep".into()]) {
            std::thread::yield_now();
        }
        let named = which(&["sleep"]).unwrap();
        let members = named.members();
        let except = Target { except: vec!["sleep".into()], ..named.clone() }.members();
        let number = which(&[&pid.to_string(), "no such name"]).unwrap().members();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(members.contains(&pid) && !named.is_over() && !except.contains(&pid));
        assert_eq!(number.into_iter().collect::<Vec<_>>(), [pid]);
        for word in ["no-such.service", "/no/such/group"] {
            assert!(which(&[word]).unwrap_err().to_string().contains("is no control group"));
        }
    }

    #[test]
    fn a_name_is_cut_as_the_kernel_does() {
        let own = std::process::id() as i32;
        let comm = proc::read(format!("/proc/{own}/comm")).unwrap().trim_end().to_string();
        assert!(is_named(own, std::slice::from_ref(&comm)) && !is_named(own, &["other".into()]));
        assert_eq!(is_named(own, &[format!("{comm}more")]), comm.len() == 15);
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
}
