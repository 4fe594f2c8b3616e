//! What was seen of a program under a policy, from which the policy says what it did.

use super::{Bytes, Policy, Work};
use superpage_linux::rules::Rules;

/// The part of a program's memory that a policy aims at, as far as it can be seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aim {
    /// Whatever is huge.
    Huge,
    /// Folios smaller than a huge page.
    Folios,
    /// What the C library's allocator asks for by `madvise`.
    Advised,
    /// What the C library's allocator takes from a hugetlb pool.
    Hugetlb,
}

impl Aim {
    /// Whether the policy depends on the C library's allocator, which a program need not use.
    pub fn asks(self) -> bool {
        !matches!(self, Aim::Huge | Aim::Folios)
    }
}

/// What a policy did to a program, in few words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Did {
    /// What it did.
    pub words: String,
    /// Whether it reached any memory; `None` where that cannot be seen.
    pub reached: Option<bool>,
}

impl Did {
    /// From its parts.
    pub fn new(words: impl Into<String>, reached: impl Into<Option<bool>>) -> Did {
        Did { words: words.into(), reached: reached.into() }
    }
}

/// What was seen of a program in all runs under a policy, and of the reference. Sizes are in bytes;
/// `None` is unseen.
#[derive(Debug)]
pub struct Found<'a> {
    /// The name of the reference.
    pub reference: &'a str,
    /// The settings of the system without any policy.
    pub rules: &'a Rules,
    /// The size of a huge page.
    pub page: u64,
    /// The most memory at once.
    pub peak: u64,
    /// How much was resident when huge pages were looked at, near the peak.
    pub looked: Option<u64>,
    /// How much of it was huge.
    pub huge: Option<u64>,
    /// The most that was huge at once, near the peak or not.
    pub most: Option<u64>,
    /// The most that was huge at once under the reference.
    pub before: Option<u64>,
    /// How much was in folios of the policy's sizes.
    pub folios: Option<u64>,
    /// How much was in pages of hugetlb, and under the reference.
    pub hugetlb: Option<(u64, u64)>,
    /// What the promoter did, of the run in which it did most.
    pub work: Option<&'a Work>,
    /// The most code on huge pages.
    pub code_bytes: u64,
    /// What there is to say of the code.
    pub code: Option<&'a str>,
    /// Why most of the memory cannot be what the policy [aims](super::Live::aim) at, if the program
    /// or its mappings are the reason.
    pub why: Option<String>,
}

impl Found<'_> {
    /// Where huge pages could not be seen.
    pub(crate) const UNSEEN: &'static str =
        "its huge pages could not be counted; a warm-up run (-w 1) looks more often";

    /// Bytes of what was resident when huge pages were looked at, in words; of the peak where that
    /// was not seen.
    pub fn part(&self, bytes: u64) -> String {
        part(bytes, self.looked.filter(|looked| *looked >= bytes).unwrap_or(self.peak))
    }

    /// With `most` bytes huge, where the reference's huge memory could not be seen.
    pub(super) fn alone(&self, most: u64) -> Did {
        let huge = self.part(self.huge.unwrap_or(most));
        Did::new(format!("{huge} huge; how much is under {} could not be seen", self.reference), None)
    }

    /// Why nothing more is huge.
    pub(super) fn nothing(&self) -> String {
        match (&self.why, self.most) {
            (Some(why), _) => format!("nothing: {why}"),
            (None, Some(huge)) if huge > 0 => {
                format!("nothing: {} are huge, no more than under {}", Bytes(huge), self.reference)
            }
            _ => "nothing: no huge page came to be".into(),
        }
    }
}

/// Of a policy that makes more memory huge.
pub(super) fn more_huge(policy: &Policy, found: &Found) -> Did {
    let aim = policy.live.aim;
    let Some(most) = found.most else { return Did::new(Found::UNSEEN, None) };
    let Some(before) = found.before else { return found.alone(most) };
    if most < before + found.page {
        return Did::new(found.nothing(), false);
    }
    let huge = found.part(found.huge.unwrap_or(most));
    let words = match &found.why {
        Some(why) if aim.is_some_and(Aim::asks) => format!("little: {why}"),
        Some(why) => format!("little, {huge} huge: {why}"),
        None if aim == Some(Aim::Advised) => format!("asked for by the allocator: {huge} huge"),
        None => format!("{huge} huge"),
    };
    Did::new(words, true)
}

/// Bytes of others in words: "581 of 620 MB".
pub fn part(some: u64, all: u64) -> String {
    let (some, all) = (Bytes(some).to_string(), Bytes(all).to_string());
    match (some.split_once(' '), all.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number} of {all}"),
        _ => format!("{some} of {all}"),
    }
}
