//! The kernel's settings for huge pages.

use crate::settings::{System, sizes};
use crate::tree::is_ancestor_of;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use superpage_pages::PageSize;

/// The settings under `/sys/kernel/mm/transparent_hugepage`, each as the word in force.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Rules {
    /// `enabled`: `always`, `madvise` or `never`; `None` if the kernel has no transparent huge
    /// pages, or shows none here.
    pub enabled: Option<String>,
    /// `defrag`.
    pub defrag: Option<String>,
    /// `shmem_enabled`: for shared anonymous memory and memory files.
    pub shmem_enabled: Option<String>,
    /// `hugepages-*/enabled`, with `inherit` replaced by what is inherited.
    pub sizes: BTreeMap<PageSize, String>,
    /// `hugepages-*/shmem_enabled`, with `inherit` replaced by what is inherited.
    pub shmem_sizes: BTreeMap<PageSize, String>,
    /// `khugepaged/max_ptes_none`: the most pages that may be missing in a region that khugepaged
    /// collapses.
    pub max_ptes_none: Option<u64>,
}

/// The folder, below the root of a system.
const FOLDER: &str = "sys/kernel/mm/transparent_hugepage";

/// Settings that another process of superpage has changed for a while.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Temporary {
    /// The process.
    pub pid: u32,
    /// What it puts back, as `enabled=madvise`.
    pub before: Vec<String>,
}

impl fmt::Display for Temporary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "process {} of superpage has other settings in force for now, and puts back {}",
            self.pid,
            self.before.join(", ")
        )
    }
}

impl Rules {
    /// The settings as they are now.
    pub fn read() -> Rules {
        Rules::read_from(&Path::new("/").join(FOLDER))
    }

    /// The settings of a system that last: where another process of superpage that runs has changed
    /// one for a while, what it was before. Also returns that process and which ones, if there are
    /// any.
    pub fn lasting(system: &System) -> (Rules, Option<Temporary>) {
        let (pid, before) = system.put_back_by_others().unzip();
        let before: BTreeMap<PathBuf, String> = before.unwrap_or_default();
        let folder = system.path(FOLDER);
        let text = |path: &Path| before.get(path).cloned().or_else(|| std::fs::read_to_string(path).ok());
        let rules = Rules::read_by(&folder, &text);
        let changed: Vec<String> = before
            .iter()
            .filter_map(|(path, before)| Some(format!("{}={before}", path.strip_prefix(&folder).ok()?.display())))
            .collect();
        (rules, pid.filter(|_| !changed.is_empty()).map(|pid| Temporary { pid, before: changed }))
    }

    /// The settings by which the memory of a process is judged: as they are now where it runs under
    /// the process of superpage that changed them, else those that [last](Rules::lasting).
    pub fn of(pid: u32, system: &System) -> (Rules, Option<Temporary>) {
        match Rules::lasting(system) {
            (_, Some(temporary)) if is_ancestor_of(pid as i32, temporary.pid as i32) => {
                (Rules::read_from(&system.path(FOLDER)), None)
            }
            lasting => lasting,
        }
    }

    /// The settings in another folder with the kernel's layout.
    pub fn read_from(folder: &Path) -> Rules {
        Rules::read_by(folder, &|path| std::fs::read_to_string(path).ok())
    }

    /// The settings by the text of each file.
    fn read_by(folder: &Path, text: &dyn Fn(&Path) -> Option<String>) -> Rules {
        let word = |path: &Path| chosen(&text(path)?);
        let enabled = word(&folder.join("enabled"));
        let shmem_enabled = word(&folder.join("shmem_enabled"));
        let max_ptes_none = text(&folder.join("khugepaged/max_ptes_none"));
        let mut rules = Rules {
            defrag: word(&folder.join("defrag")),
            max_ptes_none: max_ptes_none.and_then(|text| text.trim().parse().ok()),
            ..Rules::default()
        };
        let inherited = |own: Option<String>, above: &Option<String>| match own.as_deref() {
            Some("inherit") => above.clone(),
            _ => own,
        };
        for (size, path) in sizes(folder) {
            let own = inherited(word(&path.join("enabled")), &enabled);
            rules.sizes.extend(own.map(|word| (size, word)));
            let own = inherited(word(&path.join("shmem_enabled")), &shmem_enabled);
            rules.shmem_sizes.extend(own.map(|word| (size, word)));
        }
        Rules { enabled, shmem_enabled, ..rules }
    }

    /// The word for anonymous memory in huge pages of a size. Kernels before 6.8 know one size
    /// only.
    pub fn anonymous(&self, size: PageSize) -> Option<&str> {
        self.sizes.get(&size).or(self.enabled.as_ref()).map(String::as_str)
    }

    /// The word for shared anonymous memory in huge pages of a size. `deny` rules all sizes.
    pub fn shared(&self, size: PageSize) -> Option<&str> {
        let own = self.shmem_sizes.get(&size).filter(|_| !self.denies_shared());
        own.or(self.shmem_enabled.as_ref()).map(String::as_str)
    }

    /// The word that rules all memory that is shared, whatever the mount of its file says: `deny`
    /// or `force`, if there is one.
    pub fn over_mounts(&self) -> Option<&str> {
        self.shmem_enabled.as_deref().filter(|word| matches!(*word, "deny" | "force"))
    }

    /// Whether no shared memory may be huge, not even by promotion: `shmem_enabled` is `deny`.
    pub fn denies_shared(&self) -> bool {
        self.over_mounts() == Some("deny")
    }
}

/// The word in brackets, or all of a text without.
fn chosen(text: &str) -> Option<String> {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    let word = inside.map_or(text.trim(), |(word, _)| word);
    (!word.is_empty()).then(|| word.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_inherit_and_what_is_absent_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(Rules::read_from(folder.path()), Rules::default());
        write("enabled", "always [madvise] never\n");
        write("hugepages-2048kB/enabled", "always [inherit] madvise never\n");
        write("hugepages-64kB/enabled", "always inherit madvise [never]\n");
        write("khugepaged/max_ptes_none", "511\n");
        let rules = Rules::read_from(folder.path());
        let word = |size: &str| rules.anonymous(size.parse().unwrap());
        assert_eq!((word("2M"), word("64K"), word("32K")), (Some("madvise"), Some("never"), Some("madvise")));
        assert_eq!((rules.shared("2M".parse().unwrap()), rules.max_ptes_none), (None, Some(511)));
    }
}
