//! Starts a command under a policy: which settings the whole system needs, which the command's environment, and
//! which its process before the program begins.
//!
//! Making a [`Plan`] only reads. [`Plan::arrange`] applies what concerns the whole system, and
//! [`Arrangement::prepare`] what concerns the command; settings are restored when the arrangement is dropped.

mod promoting;

pub use promoting::{Promoting, Work};

use crate::proc::bytes_of;
use crate::promote::{Promoter, Target};
use crate::settings::{HUGETLB_OVERCOMMIT, HUGETLB_POOL, SHMEM_ENABLED, Settings, System, THP_ENABLED};
use crate::text::{self, Way};
use crate::{Error, Policy};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use superpage_pages::{Bytes, PageSize};
use superpage_vm::Sizes;

/// The argument of PR_SET_THP_DISABLE in the process of the command; it survives exec and fork.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Disable {
    /// As the system's setting says, even if it is disabled in this process itself.
    No,
    Yes,
    /// Except where a program or a promoter asks for them.
    ExceptAdvised,
}

/// Transparent huge pages only where advised: a flag of PR_SET_THP_DISABLE since Linux 6.18.
const EXCEPT_ADVISED: libc::c_ulong = 2;

/// One system-wide setting that a policy needs.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Wanted {
    setting: String,
    value: String,
    /// Whether another value set by the kernel instead is an error.
    exactly: bool,
    /// Whether the command benefits from the policy even without the right to change it.
    optional: bool,
    /// Whether it matters only while the command maps its memory.
    brief: bool,
}

/// What a policy needs on a system.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    policy: Policy,
    disable: Option<Disable>,
    /// The value of `glibc.malloc.hugetlb` for the command, if it overrides what the user has set.
    malloc: Option<u8>,
    settings: Vec<Wanted>,
    notes: Vec<String>,
}

impl Plan {
    /// Determines what a policy needs on this system; changes nothing. Reads a few small files.
    ///
    /// # Errors
    /// [`Error::Unable`] if the system does not support it, with what is missing; [`Error::File`] for settings that
    /// cannot be read.
    pub fn new(policy: &Policy, system: &System) -> Result<Plan, Error> {
        let mut plan =
            Plan { policy: policy.clone(), disable: None, malloc: None, settings: Vec::new(), notes: Vec::new() };
        let thp = system.path("sys/kernel/mm/transparent_hugepage").is_dir();
        match policy {
            Policy::Now => {}
            Policy::Base => plan.base(thp),
            Policy::Thp { malloc: true, .. } => {
                plan.disable = thp_disabled().map(|_| Disable::No);
                plan.malloc = Some(1);
                if system.get(THP_ENABLED)? == "never" {
                    plan.want(THP_ENABLED, "madvise");
                }
            }
            Policy::Thp { malloc: false, .. } => {
                plan.disable = thp_disabled().map(|_| Disable::No);
                system.get(THP_ENABLED)?;
                plan.want(THP_ENABLED, "always");
                let whole = thp_size(system).map(|size| size_switch(size.bytes()));
                if let Some(switch) = whole
                    && system.get(&switch).is_ok_and(|value| !matches!(value.as_str(), "inherit" | "always"))
                {
                    plan.want(&switch, "inherit");
                }
            }
            Policy::Mthp { sizes } => plan.mthp(*sizes, system)?,
            Policy::Hugetlb { pool } => plan.hugetlb(*pool, system)?,
            Policy::Promote(options) => {
                Promoter::new(options.clone(), Target::default())?;
                plan.only_asked(system)?;
                plan.aligned(options.shared, system);
            }
            Policy::Text { .. } => {
                text::check()?;
                plan.only_asked(system)?;
            }
        }
        if let Policy::Thp { shared: true, .. } = policy {
            system.get(SHMEM_ENABLED)?;
            plan.want(SHMEM_ENABLED, "within_size");
        }
        Ok(plan)
    }

    fn base(&mut self, thp: bool) {
        self.disable = thp_disabled().map(|_| Disable::Yes);
        if self.disable.is_none() {
            self.notes.push(match thp {
                true => "this kernel cannot switch transparent huge pages off for one process".to_string(),
                false => "this kernel has no transparent huge pages to switch off".to_string(),
            });
        }
        let tunables = std::env::var_os("GLIBC_TUNABLES").unwrap_or_default();
        if tunables.to_string_lossy().contains(MALLOC) {
            self.malloc = Some(0);
            self.notes.push(format!("{MALLOC} in GLIBC_TUNABLES is set to 0 for the command"));
        }
    }

    /// Folios of these sizes, and of no other, where the program gives no advice.
    fn mthp(&mut self, wanted: Sizes, system: &System) -> Result<(), Error> {
        self.disable = thp_disabled().map(|_| Disable::No);
        let enabled = system.get(THP_ENABLED)?;
        let sizes = folio_sizes(system);
        if let Some(size) = wanted.iter().find(|size| !sizes.contains(size)) {
            let sizes: Vec<String> = sizes.iter().map(PageSize::to_string).collect();
            return Err(Error::Unable(match sizes.is_empty() {
                true => "this kernel has no folios of several sizes; Linux has them from 6.8 on".to_string(),
                false => format!("this kernel has no folios of {size}; it has {}", sizes.join(", ")),
            }));
        }
        for other in sizes.into_iter().filter(|other| !wanted.contains(*other)) {
            let switch = size_switch(other.bytes());
            let value = system.get(&switch)?;
            if value == "always" || (value == "inherit" && enabled == "always") {
                self.want(&switch, "madvise");
            }
        }
        wanted.iter().for_each(|size| self.want(&size_switch(size.bytes()), "always"));
        Ok(())
    }

    fn hugetlb(&mut self, pool: Option<u64>, system: &System) -> Result<(), Error> {
        self.disable = thp_disabled().map(|_| Disable::No);
        self.malloc = Some(2);
        let count = |setting: &str| -> Result<u64, Error> {
            let text = system.get(setting)?;
            text.parse().map_err(|_| Error::Unable(format!("{} is no number", system.path(setting).display())))
        };
        let now = count(HUGETLB_POOL)?;
        let page = meminfo(system, "Hugepagesize")?;
        match pool {
            Some(pool) => {
                let wanted = pool.div_ceil(page);
                let more = wanted.saturating_sub(now).saturating_mul(page);
                let available = meminfo(system, "MemAvailable")?;
                if more > available {
                    return Err(Error::Unable(format!(
                        "a pool of {} needs {} of memory more, and {} is available; ask for a smaller one",
                        Bytes(pool),
                        Bytes(more),
                        Bytes(available)
                    )));
                }
                if wanted > now {
                    self.want(HUGETLB_POOL, &wanted.to_string());
                }
            }
            None => {
                // Nine tenths, to leave room for the other pages that the programs need.
                let wanted = meminfo(system, "MemAvailable")? / 10 * 9 / page;
                if wanted == 0 && now == 0 {
                    return Err(Error::Unable(format!(
                        "no memory is available for a page of hugetlb of {}; free some, or use another policy",
                        Bytes(page)
                    )));
                }
                let limit = count(HUGETLB_OVERCOMMIT)?;
                if wanted > limit {
                    let (setting, value) = (HUGETLB_OVERCOMMIT.to_string(), wanted.to_string());
                    let optional = now + limit > 0;
                    self.settings.push(Wanted { setting, value, exactly: false, optional, brief: false });
                }
            }
        }
        Ok(())
    }

    /// Base pages, except where we, or the program itself, ask for more.
    fn only_asked(&mut self, system: &System) -> Result<(), Error> {
        if knows_except_advised() {
            self.disable = Some(Disable::ExceptAdvised);
            return Ok(());
        }
        self.disable = thp_disabled().map(|_| Disable::No);
        if system.get(THP_ENABLED)? == "always" {
            self.want(THP_ENABLED, "madvise");
        }
        Ok(())
    }

    /// Shared memory lies where huge pages fit, if it is mapped under another setting than `never`: `advise` is the one
    /// that makes nothing huge by itself, and only `never` gives way to it: also where another process has changed it, and
    /// will put `never` back.
    fn aligned(&mut self, shared: bool, system: &System) {
        let never = || {
            let word = system.put_back_by_another(SHMEM_ENABLED);
            word.or_else(|| system.get(SHMEM_ENABLED).ok()).is_some_and(|word| word == "never")
        };
        if shared && never() {
            let (setting, value) = (SHMEM_ENABLED.to_string(), "advise".to_string());
            self.settings.push(Wanted { setting, value, exactly: true, optional: true, brief: true });
        }
    }

    fn want(&mut self, setting: &str, value: &str) {
        let (setting, value) = (setting.to_string(), value.to_string());
        self.settings.push(Wanted { setting, value, exactly: true, optional: false, brief: false });
    }

    /// Whether system-wide settings must have certain values while the command runs: then the lock is taken.
    pub fn is_global(&self) -> bool {
        self.settings.iter().any(|wanted| !wanted.brief)
    }

    /// Whether system-wide settings should have certain values while the command maps its memory, if nobody else has
    /// the lock.
    pub fn is_briefly_global(&self) -> bool {
        self.settings.iter().any(|wanted| wanted.brief)
    }

    /// Applies what concerns the whole system. Other changes in `settings` stay as they are.
    ///
    /// # Errors
    /// [`Error::Unable`] if a setting cannot be applied; then everything that this call had set is restored.
    pub fn arrange(self, settings: &mut Settings) -> Result<Arrangement<'_>, Error> {
        let mark = settings.mark();
        let brief = !self.is_global();
        let mut arrangement = Arrangement { plan: self, settings, mark, brief, ended: false, pending: None };
        for wanted in std::mem::take(&mut arrangement.plan.settings) {
            arrangement.set(&wanted)?;
        }
        Ok(arrangement)
    }
}

/// What follows where `shmem_enabled` stays `never` while the command maps its memory.
const UNALIGNED: &str = "shared memory may lie where no huge page fits";

/// A policy in force, for commands that are started with it. System-wide settings are restored when
/// this is dropped; what cannot be restored is reported on standard error, once.
#[derive(Debug)]
pub struct Arrangement<'s> {
    plan: Plan,
    settings: &'s mut Settings,
    mark: usize,
    /// Whether nothing is set but what matters while the command maps its memory.
    brief: bool,
    /// Whether that is over.
    ended: bool,
    /// What matters only while the command maps its memory, where another process has set it and will put it back.
    pending: Option<Wanted>,
}

impl Arrangement<'_> {
    fn set(&mut self, wanted: &Wanted) -> Result<(), Error> {
        if wanted.brief && self.settings.system().put_back_by_another(&wanted.setting).is_some() {
            self.pending = Some(wanted.clone());
            return Ok(());
        }
        let (before, now) = match self.settings.ask(&wanted.setting, &wanted.value) {
            Err(error) if wanted.optional => {
                let what = match wanted.brief {
                    true => UNALIGNED,
                    false => "only what is there already can be used",
                };
                self.plan.notes.push(format!("{what}: {error}"));
                return Ok(());
            }
            asked => asked?,
        };
        let path = self.settings.system().path(&wanted.setting);
        let path = path.display();
        if wanted.exactly && now != wanted.value {
            return Err(Error::Unable(match wanted.setting == HUGETLB_POOL {
                true => format!(
                    "the kernel found memory for {now} of the {} pages of hugetlb that were asked for; free memory, ask \
                     for a smaller pool, or leave the pool out",
                    wanted.value
                ),
                false => format!("the kernel took {now} for {path}, not {}", wanted.value),
            }));
        }
        if now != before {
            let (does, then) = if wanted.brief { ("maps its memory", "then") } else { ("runs", "afterwards") };
            let note =
                format!("{path} is {now} for the whole system while the command {does}, and {before} again {then}");
            self.plan.notes.push(note);
        }
        Ok(())
    }

    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.plan.policy
    }

    /// What was changed system-wide, and what could not be done: sentences without a full stop.
    pub fn notes(&self) -> &[String] {
        &self.plan.notes
    }

    /// Puts a command that has not been started under the policy. Its `GLIBC_TUNABLES`, or those of this
    /// process, are kept and extended.
    pub fn prepare(&self, command: &mut Command) {
        if let Some(value) = self.plan.malloc {
            let own = command.get_envs().find(|(name, _)| *name == OsStr::new("GLIBC_TUNABLES"));
            let before = match own {
                Some((_, value)) => value.map(OsStr::to_os_string),
                None => std::env::var_os("GLIBC_TUNABLES"),
            };
            command.env("GLIBC_TUNABLES", tunables(before, value));
        }
        let Some(disable) = self.plan.disable else { return };
        let (on, flags) = match disable {
            Disable::No => (0, 0),
            Disable::Yes => (1, 0),
            Disable::ExceptAdvised => (1, EXCEPT_ADVISED),
        };
        let disable = move || match set_thp_disabled(on, flags) {
            true => Ok(()),
            false => Err(io::Error::last_os_error()),
        };
        // SAFETY: the closure runs between fork and exec, where it makes one system call and allocates nothing.
        unsafe { command.pre_exec(disable) };
    }

    /// How the policy places the command's code: such a command must be passed to [`text::prepare`] before it is
    /// started, and [`text::place`] then lets it run.
    pub fn text(&self) -> Option<Way> {
        match self.plan.policy {
            Policy::Text { way } => Some(way),
            _ => None,
        }
    }

    /// Starts the policy's promoter on a thread, for all descendants of this process; `None` if the policy has
    /// none. Signals blocked in this thread are blocked in that one.
    ///
    /// # Errors
    /// Those of [`Promoter::new`](crate::promote::Promoter::new), or no thread can be created.
    pub fn promoter(&self) -> Result<Option<Promoting>, Error> {
        let target = Target::tree(std::process::id() as i32);
        let promoter = match &self.plan.policy {
            Policy::Promote(options) => Promoter::new(options.clone(), target)?,
            _ => return Ok(None),
        };
        Promoting::start(promoter).map(Some)
    }

    /// Whether another process has set what this command needs while it maps its memory: then
    /// [`take_over`](Arrangement::take_over) is to be called often.
    pub fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Sets what the command needs while it maps its memory, once the process that had set it has put it back. Reads two
    /// small files; nobody is waited for. It stays pending until it is done.
    pub fn take_over(&mut self) {
        let Some(wanted) = self.pending.take() else { return };
        let notes = self.plan.notes.len();
        if self.set(&wanted).is_err() || self.settings.mark() == self.mark {
            // The other has it still, or again: between its journal and its lock there is a moment.
            self.plan.notes.truncate(notes);
            self.pending = Some(wanted);
        }
    }

    /// Restores what matters only while the command maps its memory, and gives up a lock that was not waited for: the
    /// command has done that by now. What cannot be restored is reported on standard error, and tried again when this is dropped.
    pub fn end_brief(&mut self) {
        if self.brief && !self.ended {
            self.ended = true;
            if self.pending.take().is_some()
                && self.settings.system().get(SHMEM_ENABLED).is_ok_and(|word| word == "never")
            {
                self.plan.notes.push(format!("{UNALIGNED}: another process has the settings of this kernel"));
            }
            self.settings.restore_or_tell(self.mark);
            self.settings.release();
        }
    }

    /// Whether [`end_brief`](Arrangement::end_brief) has been called, and no setting is in force since.
    pub fn has_ended_brief(&self) -> bool {
        self.ended
    }
}

impl Drop for Arrangement<'_> {
    fn drop(&mut self) {
        self.settings.restore_or_tell(self.mark);
    }
}

/// The tunable of the GNU C library that controls huge pages in its allocator.
const MALLOC: &str = "glibc.malloc.hugetlb";

/// The tunables with ours set; if one is given twice the C library uses the last.
fn tunables(before: Option<OsString>, value: u8) -> OsString {
    let mut text = before.unwrap_or_default();
    if !text.is_empty() {
        text.push(":");
    }
    text.push(format!("{MALLOC}={value}"));
    text
}

/// The setting for one folio size.
fn size_switch(bytes: u64) -> String {
    format!("sys/kernel/mm/transparent_hugepage/hugepages-{}kB/enabled", bytes / 1024)
}

/// The folio sizes that the kernel offers for anonymous memory, ascending.
pub fn folio_sizes(system: &System) -> Vec<PageSize> {
    let Ok(entries) = fs::read_dir(system.path("sys/kernel/mm/transparent_hugepage")) else { return Vec::new() };
    let mut sizes: Vec<PageSize> = entries
        .flatten()
        .filter(|entry| entry.path().join("enabled").exists())
        .filter_map(|entry| {
            let name = entry.file_name();
            let kilobytes = name.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok()?;
            PageSize::from_bytes(kilobytes * 1024)
        })
        .collect();
    sizes.sort();
    sizes
}

/// The size of a transparent huge page: 2 MB on most machines. `None` without transparent huge pages.
pub fn thp_size(system: &System) -> Option<PageSize> {
    let text = system.get("sys/kernel/mm/transparent_hugepage/hpage_pmd_size").ok()?;
    PageSize::from_bytes(text.parse().ok()?)
}

/// A line of `/proc/meminfo`, in bytes.
fn meminfo(system: &System, name: &str) -> Result<u64, Error> {
    let path = system.path("proc/meminfo");
    let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
    bytes_of(&text, name)
        .ok_or_else(|| Error::Unable(format!("{} has no {name}: this kernel has no hugetlb", path.display())))
}

/// The result of PR_GET_THP_DISABLE for this process; `None` if the kernel does not support it.
fn thp_disabled() -> Option<libc::c_ulong> {
    // SAFETY: it takes numbers and no pointer.
    let state = unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) };
    libc::c_ulong::try_from(state).ok()
}

/// Calls PR_SET_THP_DISABLE for this process; returns whether it succeeded.
fn set_thp_disabled(on: libc::c_ulong, flags: libc::c_ulong) -> bool {
    // SAFETY: it takes numbers and no pointer.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, on, flags, 0 as libc::c_ulong, 0 as libc::c_ulong) == 0 }
}

/// Whether this kernel can restrict huge pages to advised memory for one process: tried on this one, and restored.
fn knows_except_advised() -> bool {
    let Some(state) = thp_disabled() else { return false };
    let known = set_thp_disabled(1, EXCEPT_ADVISED);
    let (on, flags) = if state == 0 { (0, 0) } else { (1, state & EXCEPT_ADVISED) };
    set_thp_disabled(on, flags);
    known
}
