//! What a policy really did to a program's memory, in few words, and whether it affected any of it.
//!
//! A policy that affected nothing left the program as under the reference: no byte is huge that is not huge there (or,
//! for base, the other way round), nothing was collapsed, nothing is in a folio of its size. A difference in its time
//! is then due to chance, or to something else than pages, and it gets no verdict. If too little could be seen to
//! decide, the policy counts as one that affected something.

use super::Row;
use crate::inspect::{Reach, part};
use superpage_linux::Policy;
use superpage_linux::launch::Work;
use superpage_linux::rules::Rules;
use superpage_pages::PageSize;
use superpage_report::{bytes, count};
use superpage_vm::Sizes;

const THP: Policy = Policy::Thp { malloc: false, shared: false };

/// What was seen of a policy at work, in all of its runs.
#[derive(Clone, Default, Debug)]
pub(super) struct Seen {
    /// What the program asked for, near the peak of the last run that was looked into.
    pub(super) reach: Option<Reach>,
    /// What the promoter did, of the run in which it did most.
    pub(super) work: Option<Work>,
    /// The most code that lay on huge pages, in bytes.
    pub(super) code_bytes: u64,
    /// What there is to say of the code.
    pub(super) code: Vec<String>,
}

impl Seen {
    /// Adds what was seen in a run.
    pub(super) fn add(&mut self, reach: Option<Reach>, work: Option<Work>, code_bytes: u64, code: &[String]) {
        self.reach = reach.or(self.reach.take());
        let regions = |work: &Option<Work>| work.as_ref().map(|work| (work.counters.promoted_regions, work.candidates));
        if regions(&work) >= regions(&self.work) {
            self.work = work;
        }
        self.code_bytes = self.code_bytes.max(code_bytes);
        self.code.extend(code.first().filter(|_| self.code.is_empty()).cloned());
    }
}

/// A policy with what was seen of it.
#[derive(Clone, Copy)]
pub(super) struct Arm<'a> {
    pub(super) policy: &'a Policy,
    pub(super) row: &'a Row,
    pub(super) seen: &'a Seen,
}

impl Arm<'_> {
    /// Why most of the memory cannot be huge under a policy, if the program or its mappings are the reason. What was seen while
    /// memory was small says nothing of what there was later.
    fn why(&self, policy: &Policy) -> Option<String> {
        let reach = self.seen.reach.as_ref().filter(|reach| 4 * reach.resident >= self.row.peak_rss_bytes)?;
        reach.why_nothing(policy)
    }
}

/// What a policy did, and whether it reached anything; `None` where that cannot be told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Did {
    pub(super) words: String,
    pub(super) reached: Option<bool>,
}

/// What the reference is like. `rules` are the settings of the system.
pub(super) fn as_it_is(arm: Arm, rules: &Rules) -> String {
    let Some(huge) = arm.row.huge_bytes else { return "what is huge could not be seen".into() };
    let part = arm.row.part(huge);
    let Some(reach) = &arm.seen.reach else { return format!("{part} huge") };
    let word = rules.enabled.as_deref().unwrap_or("absent");
    match () {
        () if huge > 0 && 2 * reach.hugetlb > huge => format!("{part} in pages of hugetlb"),
        () if huge > 0 && 2 * reach.advised > huge => format!("advised by the program itself: {part} huge"),
        () if huge > 0 => format!("{part} huge"),
        () if word == "never" => "nothing huge: switched off for the whole system".into(),
        () => match arm.why(&THP) {
            Some(why) => format!("nothing huge: {why}"),
            None if reach.advised > 0 => "nothing huge, though the program asks for it".into(),
            None if word == "madvise" => "nothing huge: the program does not ask for it (enabled=madvise)".into(),
            None => format!("nothing huge (enabled={word})"),
        },
    }
}

/// What a policy did beside the reference, on a system whose huge pages have `huge` bytes. `rules` are its settings as they
/// are without any policy.
pub(super) fn beside(arm: Arm, reference: Arm, huge: u64, rules: &Rules) -> Did {
    let did = |words: String, reached: bool| Did { words, reached: Some(reached) };
    let (most, before) = (arm.row.most_huge_bytes, reference.row.most_huge_bytes);
    let more = most.zip(before).map(|(most, before)| most >= before + huge);
    let all = |bytes: u64| arm.row.part(bytes);
    let name = &reference.row.policy;
    match arm.policy {
        policy if policy == reference.policy => did(format!("the same as {name}"), true),
        Policy::Now => match arm.row.huge_bytes {
            Some(bytes) => Did { words: format!("{} huge", all(bytes)), reached: None },
            None => Did { words: "what is huge could not be seen".into(), reached: None },
        },
        Policy::Base => match most.zip(before) {
            None => Did { words: "takes huge pages away; how many could not be seen".into(), reached: None },
            Some((_, 0)) => did(format!("nothing: nothing is huge under {name} that could be taken away"), false),
            Some((most, before)) if most + huge <= before => {
                did(format!("{} that are huge under {name} are in base pages", bytes(before - most)), true)
            }
            Some((most, _)) => did(format!("nothing: {} are huge as under {name}", bytes(most)), false),
        },
        Policy::Mthp { sizes } => {
            folios(arm, *sizes, huge, sizes.iter().all(|size| rules.anonymous(size) == Some("always")))
        }
        Policy::Promote(options) if options.goes_by_age() => promoted(arm, &format!("{:?}", options.interval), huge),
        Policy::Promote(_) => promoted(arm, "time that the policy says", huge),
        Policy::Text { .. } => match arm.seen.code_bytes {
            0 => did(format!("nothing: {}", arm.seen.code.first().map_or("no code was placed", |said| said)), false),
            placed => did(format!("{} of code on huge pages", bytes(placed)), true),
        },
        Policy::Hugetlb { .. } => {
            let pool = |arm: Arm| arm.seen.reach.as_ref().map(|reach| reach.hugetlb);
            match pool(arm).zip(pool(reference)) {
                Some((pool, before)) if pool > before => match arm.why(arm.policy) {
                    Some(why) => did(format!("little: {why}"), true),
                    None => did(format!("{} in pages of hugetlb", all(pool)), true),
                },
                Some((0, 0)) => did(format!("nothing: {}", nothing(arm, reference)), false),
                _ => more_huge(arm, reference, more),
            }
        }
        Policy::Thp { .. } => more_huge(arm, reference, more),
    }
}

/// Of a policy that makes more memory huge.
fn more_huge(arm: Arm, reference: Arm, more: Option<bool>) -> Did {
    let malloc = matches!(arm.policy, Policy::Thp { malloc: true, .. });
    let asks = malloc || matches!(arm.policy, Policy::Hugetlb { .. });
    let words = match (more, arm.why(arm.policy)) {
        (None, _) => "what is huge could not be seen".into(),
        (Some(true), Some(why)) if asks => format!("little: {why}"),
        (Some(true), why) => {
            let huge = arm.row.huge_bytes.or(arm.row.most_huge_bytes).unwrap_or(0);
            let huge = arm.row.part(huge);
            if let Some(why) = why {
                return Did { words: format!("little, {huge} huge: {why}"), reached: more };
            }
            let asked = if malloc { "asked for by the allocator: " } else { "" };
            format!("{asked}{huge} huge")
        }
        (Some(false), _) => format!("nothing: {}", nothing(arm, reference)),
    };
    Did { words, reached: more }
}

/// Why nothing more is huge.
fn nothing(arm: Arm, reference: Arm) -> String {
    match (arm.why(arm.policy), arm.row.most_huge_bytes) {
        (Some(why), _) => why,
        (None, Some(huge)) if huge > 0 => {
            format!("{} are huge, no more than under {}", bytes(huge), reference.row.policy)
        }
        _ => "no huge page came to be".into(),
    }
}

/// Of a policy that is about folios of these sizes; `already`: the system has them everywhere anyhow.
fn folios(arm: Arm, sizes: Sizes, huge: u64, already: bool) -> Did {
    // A huge page is a folio too, and easier to see.
    let whole = arm.row.huge_bytes.filter(|_| PageSize::from_bytes(huge).is_some_and(|huge| sizes.contains(huge)));
    let Some(found) = arm.row.folio_bytes.max(whole.filter(|bytes| *bytes > 0)) else {
        let why = match rustix::process::geteuid().is_root() {
            true => "no run was long enough near its peak to read every page",
            false => "root sees it, in warm-up runs",
        };
        return Did { words: format!("how much is in folios of {sizes} was not seen: {why}"), reached: None };
    };
    let words = match (found, already) {
        (_, true) => format!("nothing: this system has folios of {sizes} everywhere as it is"),
        (0, false) => {
            let why = arm.why(&THP);
            format!("nothing: {}", why.unwrap_or_else(|| format!("no folio of {sizes} came to be")))
        }
        (found, false) => format!("{} in folios of {sizes}", part(found, arm.row.peak_rss_bytes)),
    };
    Did { words, reached: Some(found > 0 && !already) }
}

/// Of a policy with a promoter that looks each `interval`.
fn promoted(arm: Arm, interval: &str, huge: u64) -> Did {
    let Some(work) = &arm.seen.work else { return Did { words: "no promoter ran".into(), reached: Some(false) } };
    let regions = work.counters.promoted_regions;
    let size = PageSize::from_bytes(huge).map_or(String::new(), |size| format!(" of {size}"));
    let words = if work.candidates > 0 {
        // Of the run in which it was most.
        let most = if regions > 0 { "up to " } else { "" };
        let sparse = match work.sparse > work.candidates * huge {
            true => format!("; {} in others, not populated", bytes(work.sparse)),
            false => String::new(),
        };
        format!("promoted {most}{} of {} candidate regions{size}{sparse}", count(regions), count(work.candidates))
    } else if work.counters.scans == 0 && work.excluded.is_empty() {
        format!("nothing: it ended before the promoter looked for the first time, after {interval}")
    } else {
        let excluded =
            work.excluded.contains("disabled").then_some("the process disabled huge pages by prctl".to_string());
        let why = arm.why(arm.policy).or(excluded);
        format!("promoted nothing: {}", why.unwrap_or_else(|| format!("no region{size} was full and not huge")))
    };
    Did { words, reached: Some(regions > 0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::advice::tests::row;
    use crate::inspect::Library;
    use superpage_linux::promote::Counters;
    use superpage_linux::scan::Kind;
    use superpage_linux::why::Why;

    const MB: u64 = 1 << 20;

    /// A row of 620 MB with so much of it huge.
    fn with_huge(policy: &str, huge: Option<u64>) -> Row {
        let row = row(policy, &[1.0; 8], 620 * MB, None);
        Row { huge_bytes: huge, most_huge_bytes: huge, ..row }
    }

    fn told(policy: &str, huge: Option<u64>, seen: &Seen, now: Option<u64>) -> Did {
        let (policy, base) = (policy.parse::<Policy>().unwrap(), Seen::default());
        let (row, reference) = (with_huge("x", huge), with_huge("now", now));
        let reference = Arm { policy: &Policy::Now, row: &reference, seen: &base };
        beside(Arm { policy: &policy, row: &row, seen }, reference, 2 * MB, &Rules::default())
    }

    #[test]
    fn the_program_as_it_is_says_who_asked() {
        let rules = Rules { enabled: Some("madvise".into()), ..Rules::default() };
        let told = |huge: Option<u64>, reach: Reach| {
            let seen = Seen { reach: Some(reach), ..Seen::default() };
            as_it_is(Arm { policy: &Policy::Now, row: &with_huge("now", huge), seen: &seen }, &rules)
        };
        let numpy = Reach { resident: 600 * MB, huge: 581 * MB, advised: 585 * MB, ..Reach::default() };
        assert_eq!(told(Some(581 * MB), numpy), "advised by the program itself: 581 of 620 MB huge");
        let plain = Reach { resident: 600 * MB, ..Reach::default() };
        assert_eq!(told(Some(0), plain.clone()), "nothing huge: the program does not ask for it (enabled=madvise)");
        let redis = Reach { left: [((Why::Disabled, Kind::Anonymous), 590 * MB)].into(), ..plain };
        assert_eq!(told(Some(0), redis), "nothing huge: the process disabled huge pages by prctl");
        assert_eq!(told(None, Reach::default()), "what is huge could not be seen");
    }

    #[test]
    fn a_policy_that_leaves_all_as_it_is_reached_nothing() {
        let none = Seen::default();
        let numpy = Some(581 * MB);
        let reached = |policy: &str, huge| told(policy, huge, &none, numpy).reached;
        assert_eq!(reached("thp", Some(581 * MB)), Some(false));
        assert_eq!(reached("thp", Some(582 * MB)), Some(false), "less than one huge page more");
        assert_eq!(reached("thp", Some(610 * MB)), Some(true));
        assert_eq!(reached("thp", None), None);
        assert_eq!(reached("base", Some(0)), Some(true));
        assert_eq!(told("base", Some(0), &none, numpy).words, "581 MB that are huge under now are in base pages");
        assert_eq!(told("base", Some(0), &none, Some(0)).reached, Some(false));
        assert_eq!(told("thp", Some(581 * MB), &none, numpy).words, "nothing: 581 MB are huge, no more than under now");
    }

    #[test]
    fn huge_pages_are_folios_of_their_size() {
        let none = Seen::default();
        let both = told("mthp:size=64K+2M", Some(581 * MB), &none, Some(0));
        assert_eq!((both.words.as_str(), both.reached), ("581 of 620 MB in folios of 64K+2M", Some(true)));
        let small = told("mthp:size=64K", Some(581 * MB), &none, Some(0));
        assert!(small.words.contains("was not seen") && small.reached.is_none(), "{small:?}");
    }

    #[test]
    fn what_a_promoter_left_as_not_populated_is_said() {
        let seen = |sparse| {
            let counters = Counters { promoted_regions: 8, scans: 9, ..Counters::default() };
            Seen { work: Some(Work { counters, candidates: 8, sparse, ..Work::default() }), ..Seen::default() }
        };
        let words = |sparse| told("promote", Some(16 * MB), &seen(sparse), Some(0)).words;
        assert_eq!(words(MB), "promoted up to 8 of 8 candidate regions of 2M");
        assert_eq!(words(200 * MB), "promoted up to 8 of 8 candidate regions of 2M; 200 MB in others, not populated");
    }

    #[test]
    fn an_allocator_that_does_not_ask_is_named() {
        let reach = Reach { resident: 600 * MB, library: Some(Library::Static), ..Reach::default() };
        let seen = Seen { reach: Some(reach), ..Seen::default() };
        for policy in ["hugetlb", "thp:malloc=on"] {
            let did = told(policy, Some(0), &seen, Some(0));
            assert!(did.words.starts_with("nothing: the allocator does not ask the C library"), "{did:?}");
            assert_eq!(did.reached, Some(false));
        }
        // A little that it does ask for is not what the policy is about, huge or not.
        let java = Reach {
            resident: 600 * MB,
            advised: 5 * MB,
            hugetlb: 4 * MB,
            library: Some(Library::Gnu),
            ..Reach::default()
        };
        let seen = Seen { reach: Some(java), ..Seen::default() };
        let words = |policy: &str, huge| told(policy, Some(huge), &seen, Some(0)).words;
        let why = "the allocator does not ask the C library, but for";
        assert_eq!(words("thp:malloc=on", 0), format!("nothing: {why} 5.00 of 600 MB"));
        assert_eq!(words("thp:malloc=on", 2 * MB), format!("little: {why} 5.00 of 600 MB"));
        assert_eq!(words("hugetlb", 4 * MB), format!("little: {why} 4.00 of 600 MB"));
        assert_eq!(words("thp", 2 * MB), "2.00 of 620 MB huge");
    }

    #[test]
    fn a_promoter_tells_what_it_had_before_it() {
        let told = |work: Work| {
            let seen = Seen { work: Some(work), ..Seen::default() };
            told("promote", Some(581 * MB), &seen, Some(581 * MB))
        };
        let counters = Counters { scans: 3, ..Counters::default() };
        let work = Work { counters: counters.clone(), candidates: 12, ..Work::default() };
        assert_eq!(told(work.clone()).words, "promoted 0 of 12 candidate regions of 2M");
        assert_eq!(told(work.clone()).reached, Some(false));
        let some = Counters { promoted_regions: 5, ..counters };
        let did = told(Work { counters: some, ..work });
        assert_eq!((did.words.as_str(), did.reached), ("promoted up to 5 of 12 candidate regions of 2M", Some(true)));
        let short = told(Work::default());
        assert!(short.words.starts_with("nothing: it ended before the promoter looked"), "{short:?}");
        let redis = Work { excluded: ["disabled"].into(), ..Work::default() };
        assert_eq!(told(redis).words, "promoted nothing: the process disabled huge pages by prctl");
    }
}
