//! Why a policy did nothing, where its row and what it is say so for certain.

use crate::Row;
use crate::policy::SIMULATOR;
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
        return refused(row);
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
