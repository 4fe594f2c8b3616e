//! Starts a command under a policy: which settings the whole system needs, which the command's
//! environment, and which its process before the program begins.
//!
//! Making a [`Plan`] only reads. [`Plan::arrange`] applies what concerns the whole system, and
//! [`Arrangement::prepare`] what concerns the command; settings are restored when the arrangement
//! is dropped.

mod lines;

pub use lines::{Line, Part};

use crate::policy::{MALLOC, Plan, Wanted, set_thp_disabled};
use crate::promote::{Promoter, Promoting, Target};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use superpage_linux::Error;
use superpage_linux::settings::{HUGETLB_POOL, SHMEM_ENABLED, Settings};

impl Plan {
    /// Applies what concerns the whole system. Other changes in `settings` stay as they are.
    ///
    /// # Errors
    /// [`Error::Unable`] if a setting cannot be applied; then everything that this call had set is
    /// restored.
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
pub(crate) const UNALIGNED: &str = "shared memory may lie where no huge page fits";

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
    /// What matters only while the command maps its memory, where another process has set it and
    /// will put it back.
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
                let what = if wanted.brief { UNALIGNED } else { "only what is there already can be used" };
                self.plan.notes.push(format!("{what}: {error}"));
                return Ok(());
            }
            asked => asked?,
        };
        let path = self.settings.system().path(&wanted.setting);
        let path = path.display();
        if wanted.exactly && now != wanted.value {
            return Err(Error::Unable(if wanted.setting == HUGETLB_POOL {
                format!(
                    "the kernel found memory for {now} of the {} pages of hugetlb that were asked for; free memory, ask \
                 for a smaller pool, or leave the pool out",
                    wanted.value
                )
            } else {
                format!("the kernel took {now} for {path}, not {}", wanted.value)
            }));
        }
        if now != before {
            let does = if wanted.brief { "maps its memory" } else { "runs" };
            let note = format!("{path} is {now} for the whole system while the command {does}, then back to {before}");
            self.plan.notes.push(note);
        }
        Ok(())
    }

    /// What was changed system-wide, and what could not be done: sentences without a full stop.
    pub fn notes(&self) -> &[String] {
        &self.plan.notes
    }

    /// Puts a command that has not been started under the policy. Its `GLIBC_TUNABLES`, or those of
    /// this process, are kept and extended.
    pub fn prepare(&self, command: &mut Command) {
        if let Some(value) = self.plan.malloc {
            let own = command.get_envs().find(|(name, _)| *name == OsStr::new("GLIBC_TUNABLES"));
            let before = match own {
                Some((_, value)) => value.map(OsStr::to_os_string),
                None => std::env::var_os("GLIBC_TUNABLES"),
            };
            command.env("GLIBC_TUNABLES", tunables(before, value));
        }
        if self.plan.fixed {
            superpage_linux::layout::fix(command);
        }
        let Some(disable) = self.plan.disable else { return };
        let disable = move || if set_thp_disabled(disable) { Ok(()) } else { Err(io::Error::last_os_error()) };
        // SAFETY: the closure runs between fork and exec, where it makes one system call and
        // allocates nothing.
        unsafe { command.pre_exec(disable) };
    }

    /// Starts the policy's promoter on a thread, for all descendants of this process; `None` if the
    /// policy has none. Signals blocked in this thread are blocked in that one.
    ///
    /// # Errors
    /// Those of [`Promoter::new`](crate::promote::Promoter::new), or no thread can be created.
    pub fn promoter(&self) -> Result<Option<Promoting>, Error> {
        let Some(options) = &self.plan.policy.live().background else { return Ok(None) };
        let mut promoter = Promoter::new(options.clone(), Target::tree(std::process::id() as i32))?;
        promoter.serve_a_command();
        Promoting::start(promoter).map(Some)
    }

    /// Whether another process has set what this command needs while it maps its memory: then
    /// [`take_over`](Arrangement::take_over) is to be called often.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Sets what the command needs while it maps its memory, once the process that had set it has
    /// put it back. Reads two small files; nobody is waited for. It stays pending until it is done.
    pub(crate) fn take_over(&mut self) {
        let Some(wanted) = self.pending.take() else { return };
        let notes = self.plan.notes.len();
        if self.set(&wanted).is_err() || self.settings.mark() == self.mark {
            // The other has it still, or again: between its journal and its lock there is a moment.
            self.plan.notes.truncate(notes);
            self.pending = Some(wanted);
        }
    }

    /// Restores what matters only while the command maps its memory, and gives up a lock that was
    /// not waited for: the command has done that by now. What cannot be restored is reported on
    /// standard error, and tried again when this is dropped.
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

    /// Whether [`end_brief`](Arrangement::end_brief) has been called, and no setting is in force
    /// since.
    pub(crate) fn has_ended_brief(&self) -> bool {
        self.ended
    }
}

impl Drop for Arrangement<'_> {
    fn drop(&mut self) {
        self.settings.restore_or_tell(self.mark);
    }
}

/// The tunables with ours set; if one is given twice the C library uses the last.
fn tunables(before: Option<OsString>, value: u8) -> OsString {
    let mut text = before.unwrap_or_default();
    if !text.is_empty() {
        text.push(":");
    }
    text.push(format!("{MALLOC}={value}"));
    text
}
