//! The rows of all policies, and what each did.

use super::did::{self, Arm};
use super::entries::Entry;
use super::row::{Labels, Row, Run, Verdict};
use super::statistics::Family;
use super::{Options, options};
use crate::policy::Did;
use std::collections::BTreeMap;
use superpage_linux::pagemap::huge_page_bytes;
use superpage_linux::rules::Rules;

/// A look at the first `rounds` rounds, with intervals of this family.
pub(super) struct Look {
    pub(super) rounds: usize,
    pub(super) family: Family,
}

/// The system as it was when the runs began: its settings, and what was done with memory before.
#[derive(Clone, Copy)]
pub(super) struct Began<'a> {
    pub(super) memory_before: &'static str,
    pub(super) rules: &'a Rules,
}

/// A row for each policy at a look.
pub(super) fn rows(
    options: &Options,
    entries: &[Entry],
    Look { rounds, family }: Look,
    Began { memory_before, rules }: Began<'_>,
) -> Vec<Row> {
    if rounds == 0 {
        return Vec::new();
    }
    let reference: Vec<f64> = entries[0].runs[..rounds].iter().map(|run| run.wall).collect();
    let rows = entries.iter().enumerate().map(|(index, entry)| {
        let runs: Vec<&Run> = entry.runs(rounds).iter().collect();
        let family = entry.dropped.as_ref().map_or(family, |(family, _)| *family);
        let others = (index > 0).then_some((&reference[..], family));
        let line = options.line_with(entry.own.as_deref());
        let labels = Labels { command: &line, policy: &entry.name, memory_before };
        let row = Row::of(labels, &runs, &entry.warmups, others);
        let own_command = entry.own.as_deref().map(options::line);
        let (settings_differed, dropped) = (entry.differed(rounds).count(), entry.dropped.as_ref());
        Row { settings_differed, dropped: dropped.map(|(_, why)| why.clone()), own_command, ..row }
    });
    let mut rows: Vec<Row> = rows.collect();
    let arm = |index: usize| {
        let Entry { plan, seen, .. } = &entries[index];
        Arm { policy: &plan.policy, row: &rows[index], seen }
    };
    let huge = huge_page_bytes();
    let others = (1..entries.len()).map(|index| match entries[index].own {
        // What is huge under the reference is another command's.
        Some(_) => Did::new(did::as_it_is(arm(index), huge, rules), None),
        None => did::against(arm(index), arm(0), huge, rules),
    });
    let first = Did::new(did::as_it_is(arm(0), huge, rules), None);
    let all: Vec<Did> = std::iter::once(first).chain(others).collect();
    let settings = entries[0].differed(rounds).next().map(|_| Verdict::SettingsDiffered);
    let theirs = rows[0].exit_codes.clone();
    for (row, Did { words, reached }) in rows.iter_mut().zip(all) {
        let did = if row.settings_differed > 0 { format!("under other settings: {words}") } else { words };
        // Of a row that was dropped there are fewer runs.
        let alike = statuses(&row.exit_codes) == statuses(&theirs[..row.runs]);
        let otherwise = (!alike).then_some(Verdict::StatusesDiffer);
        row.tell(did, reached, settings.or(otherwise));
    }
    rows
}

/// How many runs ended with each status.
fn statuses(codes: &[u8]) -> BTreeMap<u8, usize> {
    let mut statuses = BTreeMap::new();
    codes.iter().for_each(|code| *statuses.entry(*code).or_default() += 1);
    statuses
}

/// A sentence for each row with runs that failed, where that is no error.
pub(super) fn failed(rows: &[Row]) -> impl Iterator<Item = String> {
    rows.iter().filter_map(|row| {
        let failed: Vec<(u8, usize)> = statuses(&row.exit_codes).into_iter().filter(|(code, _)| *code != 0).collect();
        let statuses: Vec<String> = failed.iter().map(|(code, _)| code.to_string()).collect();
        let runs: usize = failed.iter().map(|(_, runs)| runs).sum();
        let policy = &row.policy;
        (runs > 0)
            .then(|| format!("{runs} of {} runs under {policy} failed, with status {}", row.runs, statuses.join(", ")))
    })
}

/// A sentence on the rows that do not say how much is huge; `traces` is why processes were not
/// looked at when they ended.
pub(super) fn unseen(options: &Options, rows: &[Row], traces: Option<String>) -> Option<String> {
    let unseen: Vec<&str> =
        rows.iter().filter(|row| row.huge_coverage_percent.is_none()).map(|row| row.policy.as_str()).collect();
    if unseen.is_empty() {
        return None;
    }
    let why = match traces {
        _ if options.server.is_some() => {
            "it served too short a time: give more of the load, or warm-up runs (-w), which are looked at more closely"
                .into()
        }
        _ if options.warmup == 0 => {
            "only runs that do not count are looked at when they end, and there are none".into()
        }
        Some(why) => format!("the command is not looked at when it ends: {why}"),
        None => "at its end it had given back what it had at the peak, which was too short to be looked at".into(),
    };
    Some(format!("what is huge at the peak was not seen under {}: {why}", unseen.join(", ")))
}
