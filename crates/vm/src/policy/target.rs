//! What policies run on: the manager of this crate, or a live Linux; what each provides, and what
//! policies need.

use super::definition::Definition;
use super::keys::KEYS;
use super::parameter::Parameter;
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;

/// What a policy, or a parameter, may require of the target that it runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Need {
    /// Control over how page faults are resolved.
    Faults,
    /// The settings of a running Linux.
    Settings,
    /// Superpages made by copying.
    Copying,
    /// Page-fault events.
    FaultEvents,
    /// TLB-miss events.
    Misses,
    /// Free memory that is zeroed ahead.
    Zeroing,
    /// To know which pages hold zeroes.
    Contents,
    /// To know which pages are accessed.
    Accesses,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Need::Faults => "control over page faults",
            Need::Settings => "the settings of a running Linux",
            Need::Copying => "superpages made by copying",
            Need::FaultEvents => "page-fault events",
            Need::Misses => "TLB-miss events",
            Need::Zeroing => "free memory that is zeroed ahead",
            Need::Contents => "to know which pages hold zeroes",
            Need::Accesses => "to know which pages are accessed",
        })
    }
}

/// Returns the text of a file, or why it cannot be read.
type ReadFile = fn(&str) -> Result<String, String>;

/// What policies run on.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, in sentences.
    pub name: &'static str,
    /// What it provides of what policies need.
    pub has: &'static [Need],
    /// The policies that are there on it alone; in addition it has those of this crate whose needs
    /// it meets.
    pub own: &'static [&'static Definition],
    /// What it keeps every background to: parameters that each policy with one has there, beside
    /// its own. One of its own of the same name stands for both.
    pub limits: &'static [Parameter],
    /// Returns the text of a file, or why it cannot be read; `None` where there are no files.
    pub read: Option<ReadFile>,
}

impl Target {
    /// The manager of this crate.
    pub const MANAGER: Target = Target {
        name: "this memory manager",
        own: &[],
        limits: &[],
        read: None,
        has: &[
            Need::Faults,
            Need::Copying,
            Need::FaultEvents,
            Need::Misses,
            Need::Zeroing,
            Need::Contents,
            Need::Accesses,
        ],
    };

    /// The first of these needs that it does not provide.
    pub fn lacks(&self, needs: &[Need]) -> Option<Need> {
        needs.iter().copied().find(|need| !self.has.contains(need))
    }

    /// The parameters that a policy has on it.
    pub fn parameters(&self, definition: &Definition) -> impl Iterator<Item = &'static Parameter> {
        let here = |parameter: &&Parameter| self.lacks(parameter.needs).is_none();
        definition.parameters.iter().filter(here)
    }

    /// All parameters that may be given for a policy on it; a limit is refused later where there is
    /// no background.
    pub fn accepted(self, definition: &'static Definition) -> impl Iterator<Item = &'static Parameter> {
        let own = definition.parameters;
        let limits = self.limits.iter().filter(|limit| own.iter().all(|own| own.name != limit.name));
        own.iter().chain(limits)
    }

    /// The parameters that all policies have on it: the answers, and the sizes in use. Each as
    /// `key=values` with a line of help.
    pub fn keys(&self) -> impl Iterator<Item = (String, &'static str)> {
        let own = ("sizes=SIZE+SIZE...".to_string(), "leave only these superpage sizes in use");
        let keys = KEYS.iter().map(|key| (format!("{}={}", key.name, key.values.join("|")), key.help));
        core::iter::once(own).chain(keys).filter(|_| self.lacks(&[Need::Faults]).is_none())
    }
}
