//! `promote`, and any other policy with a background: base pages, and the background, which
//! promotes while the command runs.

use super::{
    Bytes, Count, Did, Error, Found, LINUX, Live, PageSize, Plan, Policy, SHMEM_ENABLED, System, Wanted, Work,
};
use crate::promote::{Options, Promoter, Target, reason};
use std::time::Duration;
use superpage_linux::why::Why;

pub(super) fn live(options: Options) -> Live {
    Live { plan, did, background: Some(options), ..Live::default() }
}

/// Shared memory lies where huge pages fit, if it is mapped under another setting than `never`:
/// `advise` is the one that makes nothing huge by itself, and only `never` gives way to it: also
/// where another process has changed it, and will put `never` back.
fn plan(policy: &Policy, plan: &mut Plan, system: &System) -> Result<(), Error> {
    let options = policy.live.background.clone().expect("it has one");
    let shared = options.shared;
    if !options.planned().is_empty() {
        superpage_linux::layout::allowed()?;
        plan.fixed = true;
        plan.notes.push("the command runs without address space randomization, as its plan has addresses".into());
    }
    Promoter::new(options, Target::default())?;
    plan.only_asked(system)?;
    plan.notes.extend(without(&policy.common));
    let word = || system.put_back_by_another(SHMEM_ENABLED).or_else(|| system.get(SHMEM_ENABLED).ok());
    if shared && word().is_some_and(|word| word == "never") {
        let advise = Wanted::new(SHMEM_ENABLED, "advise");
        plan.settings.push(Wanted { optional: true, brief: true, ..advise });
    }
    Ok(())
}

/// What of a policy does not happen on a live Linux, as a sentence without a full stop; `None` if
/// all does.
pub fn without(policy: &superpage_vm::Policy) -> Option<String> {
    let without = policy.goes_without(&LINUX);
    (!without.is_empty()).then(|| format!("policy {policy} on {}: {}", LINUX.name, without.join(", and ")))
}

fn did(policy: &Policy, found: &Found) -> Did {
    let Some(work) = found.work else { return Did::new("no promoter ran", false) };
    let (regions, candidates) = (work.counters.promoted_regions, work.candidates);
    let page = PageSize::from_bytes(found.page);
    let size = page.map_or(String::new(), |size| format!(" of {size}"));
    let background = policy.live.background.as_ref();
    let sooner = || background.and_then(sooner).map_or(String::new(), |policy| format!(": try {policy}"));
    let words = if candidates > 0 {
        // Of the run in which it was most.
        let most = if regions > 0 { "up to " } else { "" };
        // Each process has its own page table of what it shares.
        let each = if work.sparse > found.peak { ", counted in each process" } else { "" };
        let sparse = if work.sparse > candidates * found.page {
            format!("; {} in others, not populated{each}", Bytes(work.sparse))
        } else {
            String::new()
        };
        let why = match background.filter(|_| regions == 0) {
            Some(options) => match (refused(options, work), page) {
                (Some(why), Some(page)) => format!("; {}", why.words(page)),
                _ if options.goes_by_age() => {
                    format!("; it ended before any was unchanged for age={:?}{}", options.age, sooner())
                }
                _ => "; the policy chose none".into(),
            },
            None => String::new(),
        };
        format!("promoted {most}{} of {} candidate regions{size}{sparse}{why}", Count(regions), Count(candidates))
    } else if work.counters.scans == 0 && work.excluded.is_empty() {
        let interval = match background {
            Some(options) if options.goes_by_age() => format!("interval={:?}{}", options.interval, sooner()),
            _ => "time that the policy says".into(),
        };
        format!("nothing: it ended before the promoter looked for the first time, after {interval}")
    } else {
        let disabled = work.excluded.contains("disabled").then(|| "the process disabled huge pages by prctl".into());
        let most = |why: &Why| work.kept.get(why.name()).copied().unwrap_or(0);
        let kept = Why::ALL.iter().filter(|why| most(why) > 0).max_by_key(|why| most(why));
        let kept = kept.zip(page).map(|(why, size)| why.words(size));
        let why = found.why.clone().or(disabled).or(kept);
        format!("promoted nothing: {}", why.unwrap_or_else(|| format!("no region{size} was full and not huge")))
    };
    Did::new(words, regions > 0)
}

/// Why the system let a promoter promote nothing, as far as its counters say: what most attempts
/// met, or what it waited for most of the time. None if nothing had come of age.
fn refused(options: &Options, work: &Work) -> Option<Why> {
    let counters = &work.counters;
    let most = |why: &&Why| counters.refused.get(why.name()).copied().unwrap_or(0);
    let met = Why::ALL.iter().filter(|why| most(why) > 0).max_by_key(most);
    let no_room = (counters.no_room > 0).then_some(Why::NoHeadroom);
    if let Some(why) = met.copied().or(no_room) {
        return Some(why);
    }
    let of_age = !options.goes_by_age() || counters.elapsed >= options.interval + options.age;
    let (waited, longest) = counters.waited.iter().max_by_key(|(_, time)| **time)?;
    reason(waited).filter(|_| of_age && 2 * *longest > counters.elapsed)
}

/// The policy with an age and an interval that let it promote in a command of a second; none if
/// they are as short already.
fn sooner(options: &Options) -> Option<String> {
    const SOON: Duration = Duration::from_millis(100);
    let long = [("age", options.age), ("interval", options.interval)].into_iter().filter(|(_, time)| *time > SOON);
    let changed: Vec<String> = long.map(|(name, _)| format!("{name}={SOON:?}")).collect();
    let text = format!("{}:{}", options.policy().definition().name, changed.join(","));
    options.changed(&text).ok().filter(|_| options.goes_by_age() && !changed.is_empty()).map(|it| it.to_string())
}

/// Why a promoter did nothing, if the command ended, after `wall`, before anything was due.
pub fn too_short(options: &Options, work: &Work, wall: Duration) -> Option<String> {
    let (Options { interval, age, .. }, counters) = (options, &work.counters);
    if !options.goes_by_age() || counters.promoted_regions > 0 || counters.calls > 0 {
        return None;
    }
    match (counters.scans, work.candidates) {
        (0, _) if wall < *interval => {
            Some(format!("the command ended before the first scan, which comes after {interval:?}"))
        }
        // Processes that are excluded are not scanned, and others had nothing that could be
        // promoted.
        (0, _) | (_, 0) => None,
        (_, candidates) => Some(format!(
            "{} regions were populated enough to be promoted, but none had been unchanged for {age:?} when the command \
             ended (promote:age=TIME)",
            Count(candidates)
        )),
    }
}
