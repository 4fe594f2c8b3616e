//! `superpage run`.

use crate::Failure;
use clap::Args;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::ops::Range;
use std::process::ExitCode;
use superpage_linux::Error;
use superpage_linux::rules::Rules;
use superpage_linux::settings::System;
use superpage_linux::text::Way;
use superpage_linux::tree::exec_status;
use superpage_linux::why::Why;
use superpage_live::Policy;
use superpage_live::inspect::Reach;
use superpage_live::launch::Line;
use superpage_live::policy::{Aim, Plan, part, too_short};
use superpage_live::promote::Work;
use superpage_live::run::{Options, Outcome, run};
use superpage_live::sample::Memory;
use superpage_pages::PageSize;
use superpage_report::{bytes, count, foreign, time};

/// Run a command under a policy for its pages
#[derive(Args)]
#[command(after_long_help = after_help())]
pub(crate) struct Run {
    /// The policy for the command's pages
    #[arg(short, long, value_name = "POLICY", default_value = "promote", value_parser = policy)]
    policy: Policy,

    /// Wait for all descendants of the command, not for the command alone
    #[arg(long)]
    wait: bool,

    /// Place the command's code on huge pages too: file (as pages of its file), remap (as a copy),
    /// auto (whichever is possible)
    #[arg(long, value_name = "WAY", num_args = 0..=1, require_equals = true, default_missing_value = "auto",
          value_parser = way)]
    text: Option<Way>,

    /// Keep the symbols of remapped code in /tmp/perf-PID.map, for perf report
    #[arg(long, requires = "text")]
    perf_map: bool,

    /// Report at the end what was used, and what was changed system-wide
    #[arg(short, long)]
    verbose: bool,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD ARG")]
    command: Vec<OsString>,
}

fn after_help() -> String {
    format!(
        "Examples:\n  superpage run --policy thp -- python3 script.py\n  \
         superpage run -v --policy mthp:size=64K -- make\n  \
         superpage run -v --text -- node server.js\n\n\
         The command's exit status is passed on: 126 and 127 tell that it could not be started, 128 and a number that a\n\
         signal ended it. Signals are passed on to it. Settings of the whole system are put back when the command has\n\
         ended; where this process is killed, by the next call of any live verb.\n\nPolicies:\n{}",
        Policy::help()
    )
}

pub(super) fn policy(text: &str) -> Result<Policy, String> {
    let text = superpage_sim::expand(text).map_err(|error| error.to_string())?;
    text.parse::<Policy>().map_err(|error| error.to_string())
}

fn way(text: &str) -> Result<Way, String> {
    text.parse::<Way>().map_err(|error| error.to_string())
}

impl Run {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let Run { wait, text, perf_map, verbose, .. } = *self;
        let options = Options { policy: self.policy.clone(), wait, watch: verbose, text, perf_map };
        match run(&options, &self.command) {
            Ok(outcome) => {
                for note in &outcome.text_notes {
                    eprintln!("superpage: {note}");
                }
                if self.verbose {
                    summary(&self.policy, &outcome);
                    lasting(&self.policy, &outcome);
                }
                left(&self.policy, &outcome, self.verbose);
                Ok(ExitCode::from(outcome.code))
            }
            Err(error @ Error::Exec { .. }) => {
                eprintln!("superpage: {error}");
                Ok(ExitCode::from(exec_status(&error)))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Prints what was used, on standard error.
fn summary(policy: &Policy, outcome: &Outcome) {
    for note in &outcome.notes {
        eprintln!("superpage: {note}");
    }
    for code in &outcome.text {
        eprintln!("superpage: {code}");
    }
    let Some(ended) = outcome.ended else { return };
    let usage = &outcome.usage;
    eprintln!(
        "superpage: {policy}: {} wall, {} user, {} system; {} minor and {} major faults",
        time(ended.wall.as_secs_f64()),
        time(usage.user.as_secs_f64()),
        time(usage.system.as_secs_f64()),
        count(usage.minor_faults),
        count(usage.major_faults),
    );
    if let Some(seen) = &outcome.memory {
        eprintln!("superpage: {}", memory(seen, policy.live().aim));
    }
    if let Some(work) = &outcome.work {
        let promoted = &work.counters;
        let name = policy.live().background.as_ref().map_or("promote", |options| options.policy().definition().name);
        // What several processes share is promoted in each.
        let places = work.places.len() as u64 * promoted.region_bytes;
        let other = if promoted.promoted_bytes() > places {
            format!(" ({} of addresses, in several processes or again)", bytes(places))
        } else {
            String::new()
        };
        eprintln!(
            "superpage: promoted {} of memory{other} in {} calls, with {} of CPU time for that and {} for looking",
            bytes(promoted.promoted_bytes()),
            count(promoted.calls),
            time(promoted.promote_cpu.as_secs_f64()),
            time(promoted.scan_cpu.as_secs_f64()),
        );
        planned(policy, work);
        // Beside a plan's regions, nothing is to become huge.
        let others = if of_plan(policy).is_empty() { work.candidates } else { 0 };
        let left = others.saturating_sub(promoted.promoted_regions);
        // As each process has its own page table of it.
        let shares = outcome.reach.as_ref().is_some_and(|reach| reach.shared > 0);
        let each = if shares { ", shared memory counted in each process" } else { "" };
        if let Some(cost) = promoted.region_cost().filter(|_| left > 0) {
            eprintln!(
                "superpage: at one time up to {} more regions could have become huge{each}: {} of CPU time, at {} each",
                count(left),
                time(left as f64 * cost.as_secs_f64()),
                time(cost.as_secs_f64()),
            );
        }
        let size = PageSize::from_bytes(promoted.region_bytes).expect("a power of two");
        for (why, regions) in &work.kept {
            let s = if *regions == 1 { "" } else { "s" };
            let why = Why::ALL.iter().find(|known| known.name() == *why).map_or(String::new(), |why| why.words(size));
            eprintln!("superpage: up to {} region{s} at once could not become huge{each}: {why}", count(*regions));
        }
        if promoted.grown_bytes > 0 {
            eprintln!(
                "superpage: which grew it by up to {}: pages that were not populated",
                bytes(promoted.grown_bytes)
            );
        }
        if 20 * promoted.paused >= ended.wall {
            let paused = time(promoted.paused.as_secs_f64());
            eprintln!(
                "superpage: for {paused} in all nothing was promoted, since that had slowed a process \
                 ({name}:slowdown=SHARE)"
            );
        }
        for (reason, regions) in &promoted.refused {
            let s = if *regions == 1 { "" } else { "s" };
            eprintln!("superpage: {regions} attempt{s} to promote a region failed, and may be repeated: {reason}");
        }
        if work.sparse > 0 && 10 * work.sparse >= outcome.memory.map_or(u64::MAX, |memory| memory.peak) {
            let sparse = bytes(work.sparse);
            eprintln!(
                "superpage: up to {sparse} were in regions that were not populated to the share ({name}:share=SHARE)"
            );
        }
        if let Some(why) = policy.live().background.as_ref().and_then(|options| too_short(options, work, ended.wall)) {
            eprintln!("superpage: {why}");
        }
    }
    for sentence in reach(policy, outcome) {
        eprintln!("superpage: {sentence}");
    }
}

/// The ranges of addresses of the policy's plan, if it has one with addresses.
fn of_plan(policy: &Policy) -> Vec<Range<u64>> {
    policy.live().background.as_ref().map(|options| options.planned()).unwrap_or_default()
}

/// Prints how much of the policy's plan became huge, and what of it did not.
fn planned(policy: &Policy, work: &Work) {
    if let Some(line) = of_the_plan(&of_plan(policy), &work.places, work.counters.region_bytes) {
        eprintln!("superpage: {line}");
    }
}

fn of_the_plan(ranges: &[Range<u64>], places: &BTreeSet<u64>, size: u64) -> Option<String> {
    const NAMED: usize = 4;
    // A plan of more regions has a range without a real bound.
    const MOST: u64 = 1 << 16;
    let regions = || ranges.iter().map(|range| range.start.div_ceil(size)..range.end / size);
    let all = regions().fold(0u64, |sum, range| sum.saturating_add(range.end.saturating_sub(range.start)));
    if all == 0 {
        return None;
    }
    if all > MOST {
        let inside = |place: &&u64| regions().any(|range| range.contains(&(**place / size)));
        return Some(format!("promoted {} regions in the ranges of the plan", places.iter().filter(inside).count()));
    }
    let mut left = regions().flatten().map(|region| region * size).filter(|address| !places.contains(address));
    let named: Vec<String> = left.by_ref().take(NAMED).map(|address| format!("{address:x}")).collect();
    let more = left.count();
    let promoted = all - (named.len() + more) as u64;
    let mut line = format!("promoted {promoted} of the {} regions of the plan", count(all));
    if !named.is_empty() {
        let more = if more > 0 { ", ..." } else { "" };
        line += &format!(
            "; the others, at {}{more}, were not populated when it looked, were refused, or had to wait (plan:interval=TIME,cpu=SHARE)",
            named.join(", ")
        );
    }
    Some(line)
}

/// Prints what to type to have the policy without this command, if it did anything.
fn lasting(policy: &Policy, outcome: &Outcome) {
    let idle = outcome.work.as_ref().is_some_and(|work| work.counters.promoted_regions == 0);
    let unseen = outcome.memory.as_ref().is_none_or(|memory| memory.most_huge.is_none());
    let none = outcome.memory.as_ref().is_some_and(|memory| memory.most_huge == Some(0));
    let idle = idle || (unseen || none) && policy.live().aim == Some(Aim::Huge);
    let aims = outcome.reach.as_ref().zip(policy.live().aim);
    // Code on huge pages is the file system's doing.
    let little = |(reach, aim): (&Reach, Aim)| {
        reach.why_nothing(aim, &Rules::read()).is_some() || aim == Aim::Huge && reach.reached(aim) == 0
    };
    if idle || unseen && policy.live().aim.is_some() || aims.is_some_and(little) {
        return;
    }
    let system = System::live();
    let lines = Plan::new(policy, &system).map_or(Vec::new(), |plan| plan.lines(&system, "CMD"));
    for Line { does, line, .. } in lines.iter().filter(|line| !line.line.starts_with("superpage run ")) {
        eprintln!("superpage: {does}: {line}");
    }
}

/// The memory that the policy did not affect, and why.
fn reach(policy: &Policy, outcome: &Outcome) -> Vec<String> {
    let Some((reach, aim)) = outcome.reach.as_ref().zip(policy.live().aim) else { return Vec::new() };
    let rules = Rules::read();
    if aim.asks() {
        let little = if reach.reached(aim) > 0 { "little" } else { "nothing" };
        reach.why_nothing(aim, &rules).map(|why| format!("{policy} came to {little}: {why}")).into_iter().collect()
    } else {
        let reasons = reach.reasons(aim, &rules);
        let mut said: Vec<String> =
            reasons.into_iter().map(|(size, why)| format!("{} is left alone: {why}", bytes(size))).collect();
        let above = outcome.work.as_ref().is_some_and(|work| !work.kept.is_empty());
        let above = if above { "as said above, " } else { "" };
        let rest = reach.rest().filter(|_| aim == Aim::Huge && of_plan(policy).is_empty());
        said.extend(rest.map(|rest| {
            format!(
                "{} of private memory could be huge and was not when it was last looked at: {above}{}",
                bytes(rest),
                why_not_yet(policy)
            )
        }));
        said
    }
}

/// Why memory is not huge that could be, as far as a policy says it.
fn why_not_yet(policy: &Policy) -> &'static str {
    match &policy.live().background {
        Some(options) if options.goes_by_age() => {
            "not populated to the share, too young, or waiting for the promoter (share, age, cpu)"
        }
        Some(_) => "the policy has not chosen it",
        None if sets_nothing(policy) => "the program did not ask for it, or no huge page was free when it was touched",
        None => "no huge page was free when it was touched, or its mapping was smaller then",
    }
}

/// Whether the policy is the system as it is.
fn sets_nothing(policy: &Policy) -> bool {
    let system = System::live();
    Plan::new(policy, &system).is_ok_and(|plan| plan.lines(&system, "CMD").is_empty())
}

/// The processes that the command leaves behind. If a promoter was to promote in them, this is
/// reported in any case.
fn left(policy: &Policy, outcome: &Outcome, verbose: bool) {
    let promotes = policy.live().background.is_some();
    if outcome.left.is_empty() || !(verbose || promotes) {
        return;
    }
    const NAMED: usize = 3;
    let mut names: Vec<String> =
        outcome.left.iter().take(NAMED).map(|(pid, name)| format!("{} ({pid})", foreign(name))).collect();
    if outcome.left.len() > NAMED {
        names.push(format!("{} more", outcome.left.len() - NAMED));
    }
    let how = if promotes { "where nothing more is promoted while they" } else { "which" };
    eprintln!("superpage: the command has left {} behind, {how} still run; --wait waits for them", names.join(", "));
}

/// The sampled memory of the command and its descendants.
fn memory(memory: &Memory, aim: Option<Aim>) -> String {
    let mut text = format!("at most {} resident", bytes(memory.peak));
    let looked = memory.looked.filter(|looked| *looked >= memory.peak / 4);
    if let (Some(huge), Some(looked), Some(coverage)) = (memory.huge, looked, memory.coverage) {
        let part = part(huge, looked);
        text += &format!("; {part} ({:.1} %) in huge pages at the last look near that", coverage * 100.0);
    } else {
        text += "; how much of it was huge is not known: no look was finished while it had about that";
    }
    match memory.folios {
        Some(folios) => text += &format!("; {} in folios of the policy's size", bytes(folios)),
        None if aim == Some(Aim::Folios) => text += "; how much was in folios of the policy's size is not known",
        None => {}
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_of_a_plan_was_promoted_is_said_and_a_range_without_a_bound_is_not_listed() {
        const SIZE: u64 = 2 << 20;
        let places = BTreeSet::from([2 * SIZE, 4 * SIZE, 100 * SIZE]);
        let said = |start, end| of_the_plan(&[Range { start, end }], &places, SIZE);
        assert_eq!((of_the_plan(&[], &places, SIZE), said(1, SIZE), said(3 * SIZE + 1, 3 * SIZE)), (None, None, None));
        assert_eq!(said(2 * SIZE, 3 * SIZE).unwrap(), "promoted 1 of the 1 regions of the plan");
        let some = said(SIZE + 1, 5 * SIZE).unwrap();
        assert!(some.starts_with("promoted 2 of the 3 regions of the plan; the others, at 600000, were not"), "{some}");
        let many = said(0, 20 * SIZE).unwrap();
        assert!(
            many.contains("promoted 2 of the 20 ") && many.contains("at 0, 200000, 600000, a00000, ...,"),
            "{many}"
        );
        assert_eq!(said(3 * SIZE, u64::MAX - 1).unwrap(), "promoted 2 regions in the ranges of the plan");
    }
}
