//! Whether the settings of the system stay as they were when the comparison began, except for what
//! each policy sets itself. The lock keeps other processes of superpage from changing them; a
//! process without the right to the lock, and anybody who writes them by hand, is only noticed.

use std::collections::BTreeMap;
use superpage_linux::settings::{Settings, System};

/// Values of settings, by their paths from the root of the system.
type Values = BTreeMap<String, String>;

/// The settings as they were when the comparison began.
#[derive(Debug)]
pub(super) struct Constant {
    system: System,
    /// No other process of superpage changes settings, because this one holds the lock.
    locked: bool,
    began: Values,
}

impl Constant {
    pub(super) fn begin(settings: &Settings) -> Constant {
        let system = settings.system().clone();
        Constant { began: system.huge_page_settings(), locked: settings.is_locked(), system }
    }

    /// What differs now from the beginning, outside of any run, in words. Reads some thirty small
    /// files: 0.2 ms.
    pub(super) fn differs(&self) -> Option<String> {
        let other = if self.locked { None } else { self.system.changed_by() };
        let other =
            other.map(|pid| format!("process {pid} has changed settings of this kernel and not yet put them back"));
        other.or_else(|| difference(&self.began, &self.system.huge_page_settings()))
    }

    /// The settings under a policy that is in force, to be looked at during its run.
    pub(super) fn in_force(&self) -> InForce<'_> {
        InForce { constant: self, began: self.system.huge_page_settings(), differed: None }
    }
}

/// The settings as they were when a run began.
#[derive(Debug)]
pub(super) struct InForce<'a> {
    constant: &'a Constant,
    began: Values,
    /// The first difference that was seen.
    pub(super) differed: Option<String>,
}

impl InForce<'_> {
    /// Compares with what is in force now. If the policy has `restored` its settings already, they
    /// are to be as when the comparison began.
    pub(super) fn look(&mut self, restored: bool) {
        if self.differed.is_none() {
            let wanted = if restored { &self.constant.began } else { &self.began };
            self.differed = difference(wanted, &self.constant.system.huge_page_settings());
        }
    }
}

/// The first setting that differs, in words.
fn difference(before: &Values, now: &Values) -> Option<String> {
    let changed = before.iter().find(|(setting, value)| now.get(*setting) != Some(value));
    changed.map(|(setting, value)| {
        let absent = "absent".to_string();
        format!("/{setting} was {}, not {value} as before", now.get(setting).unwrap_or(&absent))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use superpage_linux::settings::THP_ENABLED;

    #[test]
    fn a_change_by_anybody_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let system = System::at(folder.path().join("root"), folder.path().join("run"));
        let enabled = system.path(THP_ENABLED);
        fs::create_dir_all(enabled.parent().unwrap()).unwrap();
        fs::write(&enabled, "always [madvise] never\n").unwrap();
        let mut settings = Settings::new(system.clone(), false);
        settings.share().unwrap();
        let constant = Constant::begin(&settings);
        assert_eq!(constant.differs(), None);
        // What the policy itself sets is in force during its run, and another value is not.
        fs::write(&enabled, "[always] madvise never\n").unwrap();
        assert_eq!(constant.differs().unwrap(), format!("/{THP_ENABLED} was always, not madvise as before"));
        let mut run = constant.in_force();
        run.look(false);
        assert_eq!(run.differed, None);
        // Some policies restore it during the run.
        let mut restored = constant.in_force();
        restored.look(true);
        assert_eq!(restored.differed.unwrap(), format!("/{THP_ENABLED} was always, not madvise as before"));
        fs::write(&enabled, "always madvise [never]\n").unwrap();
        run.look(false);
        assert_eq!(run.differed.unwrap(), format!("/{THP_ENABLED} was never, not always as before"));
    }
}
