//! Why a policy did nothing, where its row and what it is say so for certain.

use crate::Row;
use crate::policy::SIMULATOR;
use std::time::Duration;
use superpage_pages::PageSize;
use superpage_vm::{Accessed, Hints, Place, Policy, Promote, Reserve, Why, ZeroPage};

/// Why a row has no superpage and is as that of `base`; `None` if it is not so, or not known why.
pub(crate) fn idle(row: &Row, group: &[Row]) -> Option<String> {
    let of_base = |base: &&Row| base.machine == row.machine && base.kernel == row.kernel && base.is_base();
    let base = group.iter().find(of_base)?;
    let made = row.promotions > 0 || row.pages.iter().skip(1).any(|(_, pages)| *pages > 0);
    let alike = (row.cycles, row.faults, row.tlb_misses) == (base.cycles, base.faults, base.tlb_misses);
    let known = row.complete && row.sampled.as_ref().is_none_or(|sampled| sampled.kernel_exact);
    if made || !alike || !known || row.is_base() || row.host_policy.is_some() {
        return None;
    }
    // What a file or a caller has made has a name that is none of these.
    let policy = Policy::parse(&row.policy, &SIMULATOR).ok()?;
    let sizes: Vec<PageSize> = row.pages.iter().skip(1).map(|(size, _)| *size).collect();
    if sizes.is_empty() {
        return Some("no superpage size of this machine is in use".into());
    }
    if policy.background().is_some() {
        // It finds a process after an interval, scans it after another, and then waits for the age.
        let unsettled = policy.definition().name == "promote" && clock(row) < longest(&policy);
        let late = || (unsettled && row.background_runs > Some(0)).then(|| too_short(row));
        return refused(row).or_else(late);
    }
    let place = policy.answers.place;
    if place.pool.is_some() || place.zero_page != ZeroPage::Off {
        return None;
    }
    let size = match place.size {
        Reserve::Preferred => sizes.first(),
        Reserve::Huge => sizes.iter().rfind(|size| size.bytes() <= 2 << 20),
        _ => None,
    }?;
    let requests = row.contiguity_requests;
    if requests > 0 && row.contiguity_failed == requests && row.reservations_made == 0 {
        return Some(format!("for none of its {requests} requests was an extent of {size} free"));
    }
    match place.frames {
        Place::BasePage => None,
        // Each page that was populated was refused an extent of any size before one was asked for.
        Place::Extent if requests == 0 => {
            let asked = match place.hints {
                Hints::Ignored => "",
                Hints::OptOut => ", where the program does not ask for base pages",
                Hints::OptIn => ", for which the program asks for huge pages by madvise, as this policy needs",
            };
            Some(format!(
                "no fault was in an aligned {size} of private anonymous memory that was whole in its mapping, empty, \
                 and no stack{asked}"
            ))
        }
        Place::Reservation if requests == 0 && place.hints == Hints::Ignored => {
            Some(format!("no fault was in an aligned {size} that was whole in its mapping, or file, and empty"))
        }
        Place::Reservation if place.hints == Hints::Ignored && row.reservations_made > 0 => {
            let promote = policy.answers.promote;
            let whole = promote.when == Promote::FullPopulation && promote.accessed == Accessed::Any;
            whole.then(|| {
                format!(
                    "of {} reservations, none had an aligned {size} populated whole, in one mapping, with equal rights \
                     and dirty bits",
                    row.reservations_made
                )
            })
        }
        _ => None,
    }
}

/// That a run is too short for what its background waits for, and what to set for a longer one.
pub(crate) fn too_short(row: &Row) -> String {
    let policy = Policy::parse(&row.policy, &SIMULATOR).ok();
    let given = policy.as_ref().map(Policy::given);
    let cpu = given.filter(|given| given.has("cpu")).and_then(|given| given.find_share("cpu")).filter(|cpu| *cpu < 1.0);
    let mut limits: Vec<String> =
        policy.iter().flat_map(waits).map(|(name, time)| format!("{name}={time:?}")).collect();
    limits.extend(cpu.map(|share| format!("cpu={share}")));
    // Twice that, since memory is there only from some time on.
    let needed = policy.as_ref().map(|policy| 2.0 * longest(policy).as_secs_f64() / clock(row).as_secs_f64());
    let factor = needed.filter(|needed| *needed > 1.0).map_or(100, round_up);
    format!(
        "the run ({} modelled) {} too short for what it waits for{}: set shorter times, or --time-scale {}{}",
        superpage_report::time(row.seconds + row.idle_seconds),
        if row.sampled.is_some() { "seems" } else { "is" },
        if limits.is_empty() { String::new() } else { format!(" ({})", limits.join(", ")) },
        row.time_scale.times(factor),
        if cpu.is_some() { ", and cpu=1" } else { "" }
    )
}

/// What a background waits for before it promotes: until it looks, and until a region has settled.
fn waits(policy: &Policy) -> impl Iterator<Item = (&'static str, Duration)> {
    let time = |name| Some((name, policy.given().find_time(name)?));
    ["interval", "scan", "age", "inactive"].into_iter().filter_map(time)
}

/// The most that it waits: for two looks, and for a region to settle.
fn longest(policy: &Policy) -> Duration {
    waits(policy).map(|(name, time)| if matches!(name, "interval" | "scan") { 2 * time } else { time }).sum()
}

/// How long a run is on the clock of its background.
fn clock(row: &Row) -> Duration {
    Duration::from_nanos(row.time_scale.nanoseconds(row.seconds + row.idle_seconds))
}

/// The next of 1, 2, 5, 10, 20 and so on.
fn round_up(number: f64) -> u32 {
    let power = 10_f64.powf(number.log10().floor());
    let digit = [1.0, 2.0, 5.0, 10.0].into_iter().find(|digit| digit * power >= number).unwrap_or(10.0);
    (digit * power).round() as u32
}

/// What a background refused.
fn refused(row: &Row) -> Option<String> {
    let counts = Why::ALL.iter().map(|why| (why, row.refusals.count(*why))).filter(|(_, count)| *count > 0);
    let words: Vec<String> = counts.map(|(why, count)| format!("{why} ({count})")).collect();
    (!words.is_empty()).then(|| format!("its background could promote no region: {}", words.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Refusals;

    #[test]
    fn what_a_background_refused_is_why_it_promoted_nothing() {
        let row = |policy: &str, refusals| Row {
            policy: policy.into(),
            pages: ["4K", "2M"].map(|size| (size.parse().unwrap(), 0)).into(),
            complete: true,
            refusals,
            ..Row::default()
        };
        let refusals = Refusals::of([(Why::NotPopulated, 3), (Why::NoExtent, 2)].into_iter());
        let group = [row("base", Refusals::default()), row("promote", refusals), row("promote", Refusals::default())];
        let said = idle(&group[1], &group).unwrap();
        assert_eq!(said, "its background could promote no region: not-populated (3), no-extent (2)");
        assert_eq!(idle(&group[2], &group), None);
        assert_eq!(idle(&group[0], &group), None);
        let made = Row { promotions: 1, ..group[1].clone() };
        assert_eq!(idle(&made, &group), None);
        let slower = Row { cycles: 1, ..group[1].clone() };
        assert_eq!(idle(&slower, &group), None);
    }
}
