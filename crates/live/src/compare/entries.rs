//! The policies of a comparison, and the runs of each.

use super::Options;
use super::did::Seen;
use super::row::Run;
use super::statistics::Family;
use crate::policy::Plan;
use crate::sample;
use std::ffi::OsString;
use superpage_linux::Error;
use superpage_linux::settings::Settings;

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

/// The policies that are supported here, the reference first, each tried once. A line goes to
/// `notes` for each of the others, whose number is returned too.
///
/// Where there are `others`, what reaches into their memory is left out.
pub(super) fn entries(
    options: &Options,
    others: Option<String>,
    settings: &mut Settings,
    notes: &mut Vec<String>,
) -> Result<(Vec<Entry>, usize), Error> {
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
    let mut left_out = Vec::new();
    for (index, (name, policy, own, note)) in wanted.into_iter().enumerate() {
        let plan = Plan::new(policy, settings.system()).and_then(|mut plan| match &others {
            // What is for shared memory alone is left out, and not the policy.
            Some(others) if others.is_empty() && !plan.is_global() => {
                plan.settings.clear();
                Ok(plan)
            }
            Some(others) if plan.is_global() => Err(Error::Unable(if others.is_empty() {
                "it changes settings of the whole system".into()
            } else {
                format!(
                    "it changes settings of the whole system, and other programs run: {others}; --system-wide \
                 compares it all the same"
                )
            })),
            _ => Ok(plan),
        });
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
            Err(error) => left_out.push(format!("{name} is left out: {error}")),
        }
    }
    if entries.len() == 1 && !left_out.is_empty() {
        return Err(Error::Unable(format!(
            "nothing can be compared with {} here; {}",
            options.reference,
            left_out.join("; ")
        )));
    }
    let number = left_out.len();
    notes.extend(left_out);
    Ok((entries, number))
}
