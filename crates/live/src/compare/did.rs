//! What a policy really did to a program's memory, in few words, and whether it affected any of it.
//!
//! A policy that affected nothing left the program as under the reference: no byte is huge that is
//! not huge there (or, for base, the other way round), nothing was collapsed, nothing is in a folio
//! of its size. A difference in its time is then due to chance, or to something else than pages,
//! and it gets no verdict. If too little could be seen to decide, the policy counts as one that
//! affected something.

use super::Row;
use crate::Policy;
use crate::inspect::Reach;
use crate::policy::{Aim, Did, Found};
use crate::promote::Work;
use superpage_linux::rules::Rules;

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
    pub(super) code: Option<String>,
}

impl Seen {
    /// Adds what was seen in a run.
    pub(super) fn add(&mut self, run: Seen) {
        self.reach = run.reach.or(self.reach.take());
        let regions = |work: &Option<Work>| work.as_ref().map(|work| (work.counters.promoted_regions, work.candidates));
        if regions(&run.work) >= regions(&self.work) {
            self.work = run.work;
        }
        self.code_bytes = self.code_bytes.max(run.code_bytes);
        self.code = self.code.take().or(run.code);
    }
}

/// A policy with what was seen of it.
#[derive(Clone, Copy)]
pub(super) struct Arm<'a> {
    pub(super) policy: &'a Policy,
    pub(super) row: &'a Row,
    pub(super) seen: &'a Seen,
}

impl<'a> Arm<'a> {
    /// Why most of the memory cannot be what a policy aims at, if the program or its mappings are
    /// the reason. What was seen while memory was small says nothing of what there was later.
    fn why(&self, aim: Aim, rules: &Rules) -> Option<String> {
        let reach = self.seen.reach.as_ref().filter(|reach| 4 * reach.resident >= self.row.peak_rss_bytes)?;
        reach.why_nothing(aim, rules)
    }

    /// What the policy says of itself from.
    fn found(self, reference: Arm<'a>, page: u64, rules: &'a Rules) -> Found<'a> {
        let (Arm { policy, row, seen }, before) = (self, reference.row);
        let pool = |seen: &Seen| seen.reach.as_ref().map(|reach| reach.hugetlb);
        Found {
            reference: &before.policy,
            rules,
            page,
            peak: row.peak_rss_bytes,
            looked: row.looked_bytes,
            huge: row.huge_bytes,
            most: row.most_huge_bytes,
            before: before.most_huge_bytes,
            folios: row.folio_bytes,
            hugetlb: pool(seen).zip(pool(reference.seen)),
            work: seen.work.as_ref(),
            code_bytes: seen.code_bytes,
            code: seen.code.as_deref(),
            why: policy.live().aim.and_then(|aim| self.why(aim, rules)),
        }
    }
}

/// What the reference is like, on a system whose huge pages have `page` bytes. `rules` are the
/// settings of the system.
pub(super) fn as_it_is(arm: Arm, page: u64, rules: &Rules) -> String {
    let Some(huge) = arm.row.huge_bytes.or(arm.row.most_huge_bytes) else { return Found::UNSEEN.into() };
    let part = arm.found(arm, page, rules).part(huge);
    let Some(reach) = &arm.seen.reach else {
        return if huge > 0 { format!("{part} huge") } else { "nothing huge".into() };
    };
    let word = rules.enabled.as_deref().unwrap_or("absent");
    // The look that found these may have been at another time than the one that found most.
    let most = |of: u64| huge > 0 && 2 * of > reach.huge.min(huge);
    match () {
        () if most(reach.hugetlb) => format!("{part} in pages of hugetlb"),
        () if most(reach.advised) => format!("advised by the program itself: {part} huge"),
        () if huge > 0 => format!("{part} huge"),
        () if 2 * reach.shared > reach.resident => {
            let word = rules.shmem_enabled.as_deref().unwrap_or("absent");
            format!("nothing huge: most of it is shared memory (shmem_enabled={word})")
        }
        () if word == "never" => "nothing huge: switched off for the whole system".into(),
        () => match arm.why(Aim::Huge, rules) {
            Some(why) => format!("nothing huge: {why}"),
            None if reach.advised > 0 => "nothing huge, though the program asks for it".into(),
            None if word == "madvise" => "nothing huge: the program does not ask for it (enabled=madvise)".into(),
            None => format!("nothing huge (enabled={word})"),
        },
    }
}

/// What a policy did compared with the reference, on a system whose huge pages have `page` bytes.
/// `rules` are its settings without any policy.
pub(super) fn against(arm: Arm, reference: Arm, page: u64, rules: &Rules) -> Did {
    if arm.policy == reference.policy {
        return Did::new(format!("the same as {}", reference.row.policy), true);
    }
    (arm.policy.live().did)(arm.policy, &arm.found(reference, page, rules))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::advice::tests::row;
    use crate::inspect::Library;
    use crate::promote::Counters;
    use std::time::Duration;
    use superpage_linux::scan::Kind;
    use superpage_linux::why::Why;

    const MB: u64 = 1 << 20;

    /// A row of 620 MB, of which `huge` bytes are huge.
    fn with_huge(policy: &str, huge: Option<u64>) -> Row {
        let row = row(policy, &[1.0; 8], 620 * MB, None::<(&[f64], usize)>);
        Row { huge_bytes: huge, most_huge_bytes: huge, ..row }
    }

    fn told(policy: &str, huge: Option<u64>, seen: &Seen, before: Option<u64>) -> Did {
        let ([policy, now], base) = ([policy, "now"].map(|name| name.parse().unwrap()), Seen::default());
        let (row, reference) = (with_huge("x", huge), with_huge("now", before));
        let reference = Arm { policy: &now, row: &reference, seen: &base };
        against(Arm { policy: &policy, row: &row, seen }, reference, 2 * MB, &Rules::default())
    }

    #[test]
    fn the_program_as_it_is_says_who_asked() {
        let rules = Rules { enabled: Some("madvise".into()), ..Rules::default() };
        let told = |huge: Option<u64>, reach: Reach| {
            let seen = Seen { reach: Some(reach), ..Seen::default() };
            let arm = Arm { policy: &"now".parse().unwrap(), row: &with_huge("now", huge), seen: &seen };
            as_it_is(arm, 2 * MB, &rules)
        };
        let numpy = Reach { resident: 600 * MB, huge: 581 * MB, advised: 585 * MB, ..Reach::default() };
        assert_eq!(told(Some(581 * MB), numpy), "advised by the program itself: 581 of 620 MB huge");
        let early = Reach { resident: 70 * MB, huge: 60 * MB, advised: 62 * MB, ..Reach::default() };
        assert_eq!(told(Some(581 * MB), early), "advised by the program itself: 581 of 620 MB huge");
        let zgc = Reach { resident: 600 * MB, shared: 500 * MB, ..Reach::default() };
        assert!(told(Some(0), zgc).starts_with("nothing huge: most of it is shared memory (shmem_enabled="));
        let plain = Reach { resident: 600 * MB, ..Reach::default() };
        assert_eq!(told(Some(0), plain.clone()), "nothing huge: the program does not ask for it (enabled=madvise)");
        let redis = Reach { left: [((Why::Disabled, Kind::Anonymous), 590 * MB)].into(), ..plain };
        assert_eq!(told(Some(0), redis), "nothing huge: the process disabled huge pages by prctl");
        assert_eq!(
            told(None, Reach::default()),
            "its huge pages could not be counted; a warm-up run (-w 1) looks more often"
        );
        let arm = Arm { policy: &"now".parse().unwrap(), row: &with_huge("now", Some(0)), seen: &Seen::default() };
        assert_eq!(as_it_is(arm, 2 * MB, &rules), "nothing huge", "what it asks for was not looked at");
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
        // A figure of the row stands next to what it did.
        for policy in ["thp", "base", "hugetlb"] {
            let did = told(policy, Some(484 * MB), &none, None);
            assert_eq!(did.words, "484 of 620 MB huge; how much is under now could not be seen");
            assert_eq!(did.reached, None);
        }
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
        let none = "promoted 0 of 12 candidate regions of 2M";
        let young = "; it ended before any was unchanged for age=2s: try promote:age=100ms,interval=100ms";
        assert_eq!(told(work.clone()).words, format!("{none}{young}"));
        assert_eq!(told(work.clone()).reached, Some(false));
        // What it met, and what it waited for once regions were of age.
        let met = Counters { refused: [("no-extent", 3), ("busy", 1)].into(), ..counters.clone() };
        assert_eq!(told(Work { counters: met, ..work.clone() }).words, format!("{none}; no free 2M"));
        let waits = |elapsed| {
            let (elapsed, waited) = (Duration::from_secs(elapsed), [("cpu", Duration::from_secs(9))].into());
            told(Work { counters: Counters { elapsed, waited, ..counters.clone() }, ..work.clone() }).words
        };
        assert_eq!(waits(10), format!("{none}; no processor time is left"));
        assert_eq!([waits(2), waits(20)], [0, 1].map(|_| format!("{none}{young}")));
        let no_room = Counters { no_room: 2, ..counters.clone() };
        assert_eq!(
            told(Work { counters: no_room, ..work.clone() }).words,
            format!("{none}; too little memory would be left")
        );
        let kept = Work { kept: [("shared-by-fork", 4)].into(), candidates: 0, ..work.clone() };
        assert_eq!(told(kept).words, "promoted nothing: shared with another process since a fork");
        let some = Counters { promoted_regions: 5, ..counters };
        let did = told(Work { counters: some, ..work });
        assert_eq!((did.words.as_str(), did.reached), ("promoted up to 5 of 12 candidate regions of 2M", Some(true)));
        let short = told(Work::default());
        let after = "nothing: it ended before the promoter looked for the first time, after interval=1s: try promote:";
        assert!(short.words.starts_with(after), "{short:?}");
        let redis = Work { excluded: ["disabled"].into(), ..Work::default() };
        assert_eq!(told(redis).words, "promoted nothing: the process disabled huge pages by prctl");
    }
}
