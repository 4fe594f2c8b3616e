//! The policies of a comparison, and the runs of each.

use super::Options;
use super::did::Seen;
use super::row::Run;
use super::statistics::Family;
use crate::launch::UNALIGNED;
use crate::policy::Plan;
use crate::sample;
use std::ffi::OsString;
use superpage_linux::Error;
use superpage_linux::settings::{Settings, System, THP_ENABLED};

/// A policy, and what distinguishes it from others of its name.
pub(super) struct Entry {
    pub(super) name: String,
    /// The command that it runs in place of the one that is compared.
    pub(super) own: Option<Vec<OsString>>,
    pub(super) plan: Plan,
    /// What was seen of it at work.
    pub(super) seen: Seen,
    /// The most memory that a run of it had so far.
    pub(super) peak: u64,
    /// What was seen of memory in runs that do not count.
    pub(super) warmups: Vec<sample::Memory>,
    pub(super) runs: Vec<Run>,
    /// How settings of the system differed in runs that do not count, for each in which they did.
    pub(super) differed: Vec<String>,
    /// The look after which it is run no more, and why.
    pub(super) dropped: Option<(Family, String)>,
}

impl Entry {
    /// Its runs in the first `rounds` rounds.
    pub(super) fn runs(&self, rounds: usize) -> &[Run] {
        &self.runs[..rounds.min(self.runs.len())]
    }

    /// How settings of the system differed in runs of the first `rounds` rounds and those that do
    /// not count.
    pub(super) fn differed(&self, rounds: usize) -> impl Iterator<Item = &String> {
        self.differed.iter().chain(self.runs(rounds).iter().filter_map(|run| run.differed.as_ref()))
    }
}

/// The policies that are supported here, the reference first, each tried once, and the names of the
/// others. `notes` says why these are left out.
///
/// Where there are `others`, what reaches into their memory is left out, with one note for all.
pub(super) fn entries(
    options: &Options,
    others: Option<String>,
    settings: &mut Settings,
    notes: &mut Vec<String>,
) -> Result<(Vec<Entry>, Vec<String>), Error> {
    let mut policies = options.policies.clone();
    match policies.iter().position(|policy| *policy == options.reference) {
        Some(place) => policies[..=place].rotate_right(1),
        None => policies.insert(0, options.reference.clone()),
    }
    let numbered = policies.iter().enumerate().map(|(index, policy)| {
        let before = policies[..index].iter().filter(|other| *other == policy).count();
        let name = if before == 0 { policy.to_string() } else { format!("{policy}#{}", before + 1) };
        let note = (before > 0).then(|| format!("{name} is {policy} once more, as it was named more than once"));
        (name, policy, None, note)
    });
    let with = options.with.iter().enumerate().map(|(index, with)| {
        if let Some(name) = &with.name {
            return (name.clone(), &with.policy, Some(&with.command), None);
        }
        let (name, line) = (format!("{} ({})", with.policy, index + 1), options.line_with(Some(&with.command)));
        let note = format!("{name} is {} with the command of --with number {}: {line}", with.policy, index + 1);
        (name, &with.policy, Some(&with.command), Some(note))
    });
    let wanted: Vec<_> = numbered.chain(with).collect();
    let mut entries: Vec<Entry> = Vec::new();
    let (mut left_out, mut reaching, mut whys) = (Vec::new(), Vec::new(), Vec::new());
    for (index, (name, policy, own, note)) in wanted.into_iter().enumerate() {
        let mut plan = Plan::new(policy, settings.system());
        if let (Some(others), Ok(plan)) = (&others, &mut plan) {
            if plan.is_global() {
                if index == 0 {
                    return Err(Error::Unable(reaches(&[name], others)));
                }
                reaching.push(name.clone());
                left_out.push(name);
                continue;
            }
            // What is for shared memory alone is left out, and not the policy.
            if plan.is_briefly_global() {
                plan.settings.clear();
                plan.notes.push(format!("{UNALIGNED}: shmem_enabled is left alone, as it is of the whole system"));
            }
        }
        let tried = plan.and_then(|plan| {
            let arrangement = plan.clone().arrange(settings)?;
            let said = arrangement.notes().to_vec();
            drop(arrangement);
            Ok((plan, said))
        });
        match tried {
            Ok((plan, said)) => {
                notes.extend(note);
                notes.extend(said.into_iter().map(|note| format!("{name}: {note}")));
                entries.push(Entry {
                    name,
                    own: own.cloned(),
                    plan,
                    seen: Seen::default(),
                    peak: 0,
                    warmups: Vec::new(),
                    runs: Vec::new(),
                    differed: Vec::new(),
                    dropped: None,
                });
            }
            Err(error) if index == 0 => return Err(error),
            Err(error) => {
                whys.push(format!("{name} is left out: {error}"));
                left_out.push(name);
            }
        }
    }
    if !reaching.is_empty() {
        whys.insert(0, reaches(&reaching, others.as_deref().unwrap_or_default()));
    }
    if let Some(why) = whys.first_mut().filter(|_| options.with.is_empty() && asks_suffice(settings.system())) {
        *why += "; without any setting, for what the C library's malloc hands out: superpage compare --with \
                 'now=GLIBC_TUNABLES=glibc.malloc.hugetlb=1 CMD' -- CMD";
    }
    if entries.len() == 1 && !left_out.is_empty() {
        return Err(Error::Unable(format!(
            "nothing can be compared with {} here; {}",
            options.reference,
            whys.join("; ")
        )));
    }
    notes.extend(whys);
    Ok((entries, left_out))
}

/// Whether a program needs only to ask for huge pages.
fn asks_suffice(system: &System) -> bool {
    system.get(THP_ENABLED).is_ok_and(|word| word == "madvise")
}

/// Why these policies are left out, and what to do to compare them.
fn reaches(policies: &[String], others: &str) -> String {
    let (names, is, each) = match policies {
        [one] => (one.clone(), "is", "it"),
        several => (several.join(", "), "are", "each"),
    };
    if others.is_empty() {
        return format!(
            "{names} {is} left out: {each} changes settings of the whole system, which --only-mine forbids"
        );
    }
    format!(
        "{names} {is} left out: {each} changes settings of the whole system, and other programs run: {others}; \
         superpage compare --system-wide compares them too"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_linux::settings::SHMEM_ENABLED;

    /// Not the one for shared memory either, which `promote` would set for a while.
    #[test]
    fn while_other_programs_run_no_setting_of_the_system_is_changed() {
        let folder = tempfile::tempdir().unwrap();
        let (root, run) = (folder.path().join("root"), folder.path().join("run"));
        for (setting, word) in
            [(THP_ENABLED, "always [madvise] never"), (SHMEM_ENABLED, "always within_size advise [never] deny force")]
        {
            std::fs::create_dir_all(root.join(setting).parent().unwrap()).unwrap();
            std::fs::write(root.join(setting), word).unwrap();
        }
        let mut settings = Settings::new(System::at(root, run), false);
        let policies = ["now", "thp", "promote"].map(|name| name.parse().unwrap()).into();
        let options = Options { policies, ..Options::new(["true"]) };
        let mut of = |others: &str| {
            let mut notes = Vec::new();
            let found = entries(&options, Some(others.into()), &mut settings, &mut notes);
            // Without the right to promote nothing is left to compare.
            let Ok((entries, left_out)) = found else { return found.map(|_| ()).unwrap_err().to_string() };
            assert_eq!(left_out, ["thp"]);
            assert!(entries.iter().all(|entry| entry.plan.settings.is_empty()));
            assert!(notes.iter().any(|note| note.contains("fits: shmem_enabled is left alone")), "{notes:?}");
            notes.join("\n")
        };
        for others in ["", "redis (7, 2 GB)"] {
            let said = of(others);
            let offer = "; without any setting, for what the C library's malloc hands out: superpage compare --with";
            assert_eq!(said.matches(offer).count(), 1, "{said}");
        }
    }

    #[test]
    fn policies_that_reach_into_other_programs_have_one_note() {
        let names = ["thp", "hugetlb"].map(String::from);
        let said = reaches(&names, "redis (7, 2 GB)");
        assert!(
            said.starts_with("thp, hugetlb are left out: each changes settings of the whole system, and"),
            "{said}"
        );
        assert!(said.contains("redis (7, 2 GB)") && said.contains("--system-wide"), "{said}");
        let said = reaches(&names[..1], "");
        assert!(said.starts_with("thp is left out: it changes settings of the whole system, which --only"), "{said}");
    }
}
