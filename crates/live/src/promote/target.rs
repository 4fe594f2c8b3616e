//! The processes that the promoter works on.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use superpage_linux::proc::Named;
use superpage_linux::tree::descendants;
use superpage_linux::{Error, cgroup};
use superpage_output::quoted;

/// What one types for processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Selected {
    /// One, by its number.
    Process(i32),
    /// Those of a unit of systemd or a control group.
    Group(PathBuf),
    /// Those of a name, as `ps` shows it.
    Name(String),
}

impl Selected {
    /// The option of `superpage daemon` that selects the same.
    pub fn option(&self) -> String {
        match self {
            Selected::Process(pid) => format!("--pid {pid}"),
            Selected::Group(path) => format!("--cgroup {}", quoted(&path.display().to_string())),
            Selected::Name(name) => format!("--name {}", quoted(name)),
        }
    }

    /// Its processes, now: a number as it is, of others at least one.
    ///
    /// # Errors
    /// [`Error::Usage`]: there is none.
    pub fn members(&self) -> Result<BTreeSet<i32>, Error> {
        let (target, none) = match self {
            Selected::Process(pid) => return Ok([*pid].into()),
            Selected::Group(path) => (Target { cgroups: vec![cgroup::find(path)?], ..Target::default() }, "in"),
            Selected::Name(name) => (Target { names: vec![name.clone()], ..Target::default() }, "named"),
        };
        let members = target.members();
        if members.is_empty() {
            Err(Error::Usage(format!("no process is {none} {self}: see ps for what runs, with its names and numbers")))
        } else {
            Ok(members)
        }
    }
}

impl FromStr for Selected {
    type Err = String;

    fn from_str(text: &str) -> Result<Selected, String> {
        match text.bytes().all(|byte| byte.is_ascii_digit()) {
            true if text.is_empty() => Err("expected the number or the name of a process, as ps shows it".into()),
            true => {
                let pid = text.parse().map_err(|_| "there is no process with such a large number")?;
                Ok(Selected::Process(pid))
            }
            false if text.contains('/') || cgroup::is_unit(Path::new(text)) => Ok(Selected::Group(text.into())),
            false => Ok(Selected::Name(text.into())),
        }
    }
}

impl fmt::Display for Selected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selected::Process(pid) => write!(f, "{pid}"),
            Selected::Group(path) => write!(f, "{}", path.display()),
            Selected::Name(name) => f.write_str(name),
        }
    }
}

/// The processes to promote in: the union of its parts. The promoter's own process is never
/// included. A process that is named by its number is included until it ends, and whoever gets the
/// number then is not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Target {
    /// Every process of the system except the first (`init`), unless it is named.
    pub all: bool,
    /// These processes.
    pub pids: Vec<Named>,
    /// These processes and all their descendants, as they come and go.
    pub trees: Vec<Named>,
    /// Folders of control groups, of version 1 or 2, and units of systemd, which have a folder
    /// while they run: all processes in them and in the groups below, but for `init`.
    pub cgroups: Vec<PathBuf>,
    /// Every process of one of these names, as `ps` shows them, except `init`: whoever has it.
    pub names: Vec<String>,
    /// Of all these, no process of one of these names.
    pub except: Vec<String>,
}

impl Target {
    /// These processes, without those that have ended.
    pub fn pids(pids: impl IntoIterator<Item = i32>) -> Target {
        Target { pids: pids.into_iter().filter_map(Named::of).collect(), ..Target::default() }
    }

    /// A process and its descendants. With the caller's own number, the descendants of the caller.
    pub fn tree(pid: i32) -> Target {
        Target { trees: Named::of(pid).into_iter().collect(), ..Target::default() }
    }

    /// This target, where a number that was named before still means the process that had it then,
    /// even if that has ended. Numbers that are new are added to `known`.
    pub(super) fn pinned_by(mut self, known: &mut Vec<Named>) -> Target {
        for named in self.pids.iter_mut().chain(&mut self.trees) {
            match known.iter().find(|known| known.pid == named.pid) {
                Some(known) => *named = *known,
                None => known.push(*named),
            }
        }
        self
    }

    /// Whether only processes were named, and all have ended.
    pub(crate) fn is_over(&self) -> bool {
        !self.all
            && self.cgroups.is_empty()
            && self.names.is_empty()
            && !self.pids.iter().chain(&self.trees).any(|named| named.lives())
    }

    /// Whether no process is selected.
    pub fn is_empty(&self) -> bool {
        *self == Target::default()
    }

    /// The processes, now, including those that must not be touched. O(processes of the system) for
    /// all and for names, otherwise of the target; some 10 us for each that is named.
    pub fn members(&self) -> BTreeSet<i32> {
        self.members_of(&mut Listing::default(), &mut |_, _| ())
    }

    /// Its processes, by a listing that several targets share; `absent` is called for each unit
    /// that has no control group now, and each name that no process has, with the reason.
    pub(crate) fn members_of(&self, listing: &mut Listing, absent: &mut dyn FnMut(&Path, Error)) -> BTreeSet<i32> {
        let mut members = BTreeSet::new();
        let living = |named: &[Named]| -> Vec<i32> {
            named.iter().filter(|named| named.lives()).map(|named| named.pid).collect()
        };
        members.extend(living(&self.pids));
        if self.all {
            members.extend(listing.all().iter().filter(|pid| **pid != 1));
        }
        for root in living(&self.trees) {
            members.insert(root);
            members.extend(descendants(root));
        }
        let mut grouped = BTreeSet::new();
        for group in &self.cgroups {
            match cgroup::is_unit(group).then(|| cgroup::find(group)) {
                None => cgroup::members(group, &mut grouped),
                Some(Ok(folder)) => cgroup::members(&folder, &mut grouped),
                Some(Err(error)) => absent(group, error),
            }
        }
        members.extend(grouped.into_iter().filter(|pid| *pid != 1));
        for name in &self.names {
            let named = listing.named(name);
            if named.is_empty() {
                absent(Path::new(name), Error::Unable(format!("no process has the name {name} now")));
            }
            members.extend(named.iter().filter(|pid| **pid != 1));
        }
        for name in &self.except {
            listing.named(name).iter().for_each(|pid| _ = members.remove(pid));
        }
        members.remove(&(std::process::id() as i32));
        members
    }
}

/// The processes of the system, and their names: each is read once, when it is asked for first.
#[derive(Default, Debug)]
pub struct Listing {
    all: Option<Vec<i32>>,
    by_name: Option<HashMap<Vec<u8>, Vec<i32>>>,
}

impl Listing {
    /// Every process of the system.
    fn all(&mut self) -> &[i32] {
        self.all.get_or_insert_with(|| {
            let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
            entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
        })
    }

    /// Every process of a name, of which the kernel keeps 15 bytes.
    fn named(&mut self, name: &str) -> &[i32] {
        const KEPT: usize = 15;
        if self.by_name.is_none() {
            let mut by_name: HashMap<Vec<u8>, Vec<i32>> = HashMap::new();
            for pid in self.all() {
                let mut name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
                name.pop_if(|last| *last == b'\n');
                by_name.entry(name).or_default().push(*pid);
            }
            self.by_name = Some(by_name);
        }
        let kept = &name.as_bytes()[..name.len().min(KEPT)];
        self.by_name.as_ref().and_then(|by_name| by_name.get(kept)).map_or(&[], Vec::as_slice)
    }
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
        let all = Target { all: true, ..Target::default() }.members();
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
        assert_eq!(Target { pids: vec![first], ..Target::default() }.pinned_by(&mut known).pids, [first]);
        // It was not named in between.
        assert!(Target::default().pinned_by(&mut known).is_empty());
        known[0] = Named::of(1).map(|other| Named { pid: own, ..other }).unwrap();
        assert_eq!(later.pinned_by(&mut known).pids[1], known[0]);
        assert_eq!(known.len(), 2);
        assert!(!known[0].lives());
    }

    #[test]
    fn a_service_is_what_one_types() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        while !Listing::default().named("sleep").contains(&pid) {
            std::thread::yield_now();
        }
        let members = |word: &str| word.parse::<Selected>().unwrap().members();
        let named = Target { names: vec!["sleep".into()], ..Target::default() };
        let except = Target { except: vec!["sleep".into()], ..named.clone() }.members();
        let found = [members("sleep"), members(&pid.to_string())];
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.into_iter().all(|found| found.unwrap().contains(&pid)));
        assert!(!named.is_over() && !except.contains(&pid));
        for (word, problem) in [
            ("no-such.service", "no-such.service is no control group"),
            ("/no/such/group", "is no control group"),
            ("no such name", "no process is named no such name"),
        ] {
            assert!(members(word).unwrap_err().to_string().contains(problem));
        }
        for (word, option) in [
            ("7", "--pid 7"),
            ("a b", "--name 'a b'"),
            ("web.service", "--cgroup web.service"),
            ("/a/b", "--cgroup /a/b"),
        ] {
            let selected: Selected = word.parse().unwrap();
            assert_eq!((selected.option().as_str(), selected.to_string().as_str()), (option, word));
        }
        // No process has a number above that.
        assert!("2147483648".parse::<Selected>().is_err() && "".parse::<Selected>().is_err());
    }

    #[test]
    fn a_unit_that_starts_again_is_found_again() {
        let name = format!("superpage-test-{}.service", std::process::id());
        let unit = Target { cgroups: vec![name.clone().into()], ..Target::default() };
        let members = || {
            let mut absent = 0;
            let members = unit.members_of(&mut Listing::default(), &mut |_, _| absent += 1);
            (members.into_iter().collect::<Vec<_>>(), absent)
        };
        assert_eq!(members(), (vec![], 1));
        let tops = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory", "/sys/fs/cgroup"];
        let Some(folder) = tops.iter().map(|top| Path::new(top).join(&name)).find(|at| std::fs::create_dir(at).is_ok())
        else {
            return superpage_testing::skip!("root", "no control group can be made here");
        };
        for _ in 0..2 {
            let _ = std::fs::create_dir(&folder);
            let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
            let moved = std::fs::write(folder.join("cgroup.procs"), child.id().to_string());
            let found = members();
            child.kill().unwrap();
            child.wait().unwrap();
            while std::fs::remove_dir(&folder).is_err() {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            if moved.is_err() {
                return superpage_testing::skip!("root", "no process can be moved to a control group here");
            }
            assert_eq!(found, (vec![child.id() as i32], 0));
            assert_eq!(members(), (vec![], 1));
        }
    }

    #[test]
    fn a_name_is_cut_as_the_kernel_does() {
        let own = std::process::id() as i32;
        let comm = std::fs::read_to_string(format!("/proc/{own}/comm")).unwrap().trim_end().to_string();
        let mut listing = Listing::default();
        assert!(listing.named(&comm).contains(&own) && !listing.named("other").contains(&own));
        assert_eq!(listing.named(&format!("{comm}more")).contains(&own), comm.len() == 15);
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
