//! What a policy needs on a system: which settings of all of it, which environment and which state
//! of the command's process.

use crate::Policy;
use superpage_linux::Error;
use superpage_linux::settings::{System, THP_ENABLED};

/// The arguments of PR_SET_THP_DISABLE in the process of the command: whether, and flags. It
/// survives exec and fork.
pub(crate) type Disable = (libc::c_ulong, libc::c_ulong);

/// As the system's setting says, even if it is disabled in this process itself.
pub(crate) const AS_SET: Disable = (0, 0);
/// No transparent huge pages.
pub(crate) const DISABLED: Disable = (1, 0);
/// Only where a program or a promoter asks for them: a flag since Linux 6.18.
const EXCEPT_ADVISED: Disable = (1, 2);

/// One system-wide setting that a policy needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    pub(crate) setting: String,
    pub(crate) value: String,
    /// Whether another value set by the kernel instead is an error.
    pub(crate) exactly: bool,
    /// Whether the command benefits from the policy even without the right to change it.
    pub(crate) optional: bool,
    /// Whether it matters only while the command maps its memory.
    pub(crate) brief: bool,
}

impl Wanted {
    /// What must be exactly so, as long as the command runs.
    pub(crate) fn new(setting: &str, value: impl ToString) -> Wanted {
        let (setting, value) = (setting.to_string(), value.to_string());
        Wanted { setting, value, exactly: true, optional: false, brief: false }
    }
}

/// What a policy needs on a system.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// The policy.
    pub policy: Policy,
    pub(crate) disable: Option<Disable>,
    /// The value of `glibc.malloc.hugetlb` for the command, if it overrides what the user has set.
    pub(crate) malloc: Option<u8>,
    /// Whether the command runs without address space randomization, since the policy knows
    /// addresses.
    pub(crate) fixed: bool,
    pub(crate) settings: Vec<Wanted>,
    pub(crate) notes: Vec<String>,
}

impl Plan {
    /// Determines what a policy needs on this system; changes nothing. Reads a few small files.
    ///
    /// # Errors
    /// [`Error::Unable`] if the system does not support it, with what is missing; [`Error::File`]
    /// for settings that cannot be read.
    pub fn new(policy: &Policy, system: &System) -> Result<Plan, Error> {
        let mut plan = Plan {
            policy: policy.clone(),
            disable: None,
            malloc: None,
            fixed: false,
            settings: Vec::new(),
            notes: Vec::new(),
        };
        (policy.live().plan)(policy, &mut plan, system)?;
        Ok(plan)
    }

    /// Disables transparent huge pages for the command or not, where the kernel can do either.
    pub(crate) fn disable(&mut self, disable: Disable) {
        self.disable = thp_disabled().map(|_| disable);
    }

    /// Base pages, except where we, or the program itself, ask for more.
    pub(crate) fn only_asked(&mut self, system: &System) -> Result<(), Error> {
        if knows_except_advised() {
            self.disable = Some(EXCEPT_ADVISED);
            return Ok(());
        }
        self.disable(AS_SET);
        if system.get(THP_ENABLED)? == "always" {
            self.want(THP_ENABLED, "madvise");
        }
        Ok(())
    }

    /// Sets this while the command runs; without the right to it, the policy is not supported.
    pub(crate) fn want(&mut self, setting: &str, value: impl ToString) {
        self.settings.push(Wanted::new(setting, value));
    }

    /// Whether system-wide settings must have certain values while the command runs: then the lock
    /// is taken.
    pub fn is_global(&self) -> bool {
        self.settings.iter().any(|wanted| !wanted.brief)
    }

    /// Whether system-wide settings should have certain values while the command maps its memory,
    /// if nobody else has the lock.
    pub fn is_briefly_global(&self) -> bool {
        self.settings.iter().any(|wanted| wanted.brief)
    }
}

/// The tunable of the GNU C library that controls huge pages in its allocator.
pub(crate) const MALLOC: &str = "glibc.malloc.hugetlb";

/// The result of PR_GET_THP_DISABLE for this process; `None` if the kernel does not support it.
fn thp_disabled() -> Option<libc::c_ulong> {
    // SAFETY: it takes numbers and no pointer.
    let state = unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) };
    libc::c_ulong::try_from(state).ok()
}

/// Calls PR_SET_THP_DISABLE for this process; returns whether it succeeded.
pub(crate) fn set_thp_disabled((on, flags): Disable) -> bool {
    // SAFETY: it takes numbers and no pointer.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, on, flags, 0 as libc::c_ulong, 0 as libc::c_ulong) == 0 }
}

/// Whether this kernel can restrict huge pages to advised memory for one process: tried on this
/// one, and restored.
fn knows_except_advised() -> bool {
    let Some(state) = thp_disabled() else { return false };
    let known = set_thp_disabled(EXCEPT_ADVISED);
    set_thp_disabled(if state == 0 { AS_SET } else { (1, state & EXCEPT_ADVISED.1) });
    known
}
