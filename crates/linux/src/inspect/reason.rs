//! Why memory is not in huge pages.

use super::mapping::Kind;
use super::rules::Rules;
use serde::Serialize;
use superpage_pages::PageSize;

/// Why resident memory is not mapped by a huge page: the first of these, in this order, that holds for its block. A block is
/// what a huge page would map, 2 MB at a multiple of 2 MB on x86-64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// Memory of the kernel or a device that the process only sees.
    Kernel,
    /// No whole block is in the mapping.
    TooSmall,
    /// The block is only partly in the mapping.
    Edge,
    /// The mapping shows a file at addresses that differ from the offsets in the file, modulo the size of a block.
    Misaligned,
    /// The process disabled huge pages for itself, by `prctl(PR_SET_THP_DISABLE)`.
    Disabled,
    /// The mapping was advised against by `madvise(MADV_NOHUGEPAGE)`.
    AdvisedAgainst,
    /// The kernel was built without transparent huge pages, or shows no settings here.
    NoSettings,
    /// The setting says `never` (or `deny`).
    Never,
    /// The setting wants advice, and the mapping has none (`madvise(MADV_HUGEPAGE)`).
    NotAdvised,
    /// The kernel says that no large folios are possible here (`THPeligible` in `/proc/PID/smaps`) and shows no more: the
    /// process disabled them except where advised, say.
    NotEligible,
    /// Private copies of pages of a file, which are made page by page.
    PrivateCopies,
    /// One huge folio holds the block, but it is mapped page by page.
    MappedByPages,
    /// The file's pages are cached in folios smaller than the block.
    FileFolios,
    /// Pages of the block are in swap space.
    Swapped,
    /// Pages of the block are missing: never touched, or given back.
    NotPopulated,
    /// Pages of the block are shared with another process since a fork.
    SharedByFork,
    /// `superpage daemon` leaves it as it is: too little memory would be left in a control group of the process, or in the system.
    NoHeadroom,
    /// `superpage daemon` waits with it: tasks wait for memory in a control group of the process, or in the system.
    Pressure,
    /// Nothing is in the way: khugepaged has not come to it, or `superpage daemon` would promote it.
    NotCollapsed,
}

impl Why {
    /// A short name for metrics and JSON: `not-populated`.
    pub fn name(self) -> &'static str {
        match self {
            Why::Kernel => "kernel",
            Why::TooSmall => "too-small",
            Why::Edge => "edge",
            Why::Misaligned => "misaligned",
            Why::Disabled => "disabled",
            Why::AdvisedAgainst => "advised-against",
            Why::NoSettings => "no-settings",
            Why::Never => "never",
            Why::NotAdvised => "not-advised",
            Why::NotEligible => "not-eligible",
            Why::PrivateCopies => "private-copies",
            Why::MappedByPages => "mapped-by-pages",
            Why::FileFolios => "file-folios",
            Why::Swapped => "swapped",
            Why::NotPopulated => "not-populated",
            Why::SharedByFork => "shared-by-fork",
            Why::NoHeadroom => "no-headroom",
            Why::Pressure => "pressure",
            Why::NotCollapsed => "not-collapsed",
        }
    }

    /// The reason in words, with huge pages of `size`. These are the words of every verb that says why memory is not huge.
    pub fn words(self, size: PageSize) -> String {
        match self {
            Why::Kernel => "the kernel's or a device's".into(),
            Why::TooSmall => format!("no aligned {size} in the mapping"),
            Why::Edge => format!("edge: less than an aligned {size} at the mapping's ends"),
            Why::Misaligned => format!("address and file offset differ modulo {size}"),
            Why::Disabled => "the process disabled huge pages by prctl".into(),
            Why::AdvisedAgainst => "MADV_NOHUGEPAGE".into(),
            Why::NoSettings => "the kernel shows no transparent huge pages".into(),
            Why::Never => "switched off for the whole system".into(),
            Why::NotAdvised => "no MADV_HUGEPAGE".into(),
            Why::NotEligible => "not eligible, says the kernel: disabled by prctl except where advised, say".into(),
            Why::PrivateCopies => "private copies of a file's pages".into(),
            Why::MappedByPages => format!("in {size} folios, but mapped page by page"),
            Why::FileFolios => format!("the file is cached in folios under {size}"),
            Why::Swapped => "pages in swap space".into(),
            Why::NotPopulated => "not populated".into(),
            Why::SharedByFork => "shared with another process since a fork".into(),
            Why::NoHeadroom => "too little memory would be left".into(),
            Why::Pressure => "tasks wait for memory".into(),
            Why::NotCollapsed => "full, not collapsed yet: khugepaged or superpage daemon would".into(),
        }
    }
}

/// A reason with what it holds for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Reason {
    /// The reason.
    pub why: Why,
    /// Resident bytes that are not mapped by huge pages for this reason.
    pub bytes: u64,
    /// The blocks that they are in.
    pub blocks: u64,
    /// The reason as a phrase, with what was found here.
    pub text: String,
}

impl Reason {
    /// A reason that holds for memory whatever its mapping, with huge pages of `size` bytes; `blocks` is how many it fills at
    /// least.
    pub(crate) fn of(why: Why, bytes: u64, size: u64) -> Reason {
        let text = why.words(PageSize::from_bytes(size).expect("a power of two"));
        Reason { why, bytes, blocks: bytes.div_ceil(size), text }
    }
}

/// What a block's pages are like; all numbers are of base pages.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Block {
    pub(super) pages: u64,
    pub(super) resident: u64,
    pub(super) swapped: u64,
    /// Resident anonymous pages.
    pub(super) anonymous: u64,
    /// Resident anonymous pages that no other process maps.
    pub(super) exclusive: u64,
    /// The whole block is in the mapping.
    pub(super) inside: bool,
    /// The block is one folio.
    pub(super) one_folio: bool,
}

/// What holds for a mapping as a whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances<'a> {
    pub(super) kind: Kind,
    /// Whether any whole block is in the mapping.
    pub(super) has_block: bool,
    pub(super) congruent: bool,
    pub(super) disabled: bool,
    pub(super) advised: Option<bool>,
    /// What the kernel says.
    pub(super) eligible: Option<bool>,
    /// The word of the settings for such memory.
    pub(super) word: Option<&'a str>,
}

impl<'a> Circumstances<'a> {
    /// The word that governs memory of a kind.
    pub(super) fn word(rules: &'a Rules, kind: Kind, huge: PageSize) -> Option<&'a str> {
        match kind {
            Kind::Anonymous => rules.anonymous(huge),
            Kind::SharedMemory => rules.shared(huge),
            Kind::File | Kind::Hugetlb | Kind::Kernel => None,
        }
    }

    /// The reason that the mapping as a whole gives, whatever is in it and whatever the settings say.
    pub(super) fn whole(&self) -> Option<Why> {
        let file = matches!(self.kind, Kind::File | Kind::SharedMemory);
        let place = [
            (Why::Kernel, self.kind == Kind::Kernel),
            (Why::TooSmall, !self.has_block),
            (Why::Misaligned, file && !self.congruent),
            (Why::Disabled, self.disabled),
            (Why::AdvisedAgainst, self.advised == Some(false)),
        ];
        place.into_iter().find(|(_, holds)| *holds).map(|(why, _)| why)
    }

    /// The reason for the part of a block that is resident and not huge.
    pub(super) fn why(&self, block: &Block) -> Why {
        let file = matches!(self.kind, Kind::File | Kind::SharedMemory);
        match self.whole() {
            Some(why @ (Why::Kernel | Why::TooSmall)) => return why,
            _ if !block.inside => return Why::Edge,
            Some(why) => return why,
            None => {}
        }
        if self.kind != Kind::File {
            match self.word {
                None => return Why::NoSettings,
                Some("never" | "deny") => return Why::Never,
                Some("madvise" | "advise") if self.advised != Some(true) => return Why::NotAdvised,
                _ if self.eligible == Some(false) => return Why::NotEligible,
                _ => {}
            }
        }
        let pages = [
            (Why::PrivateCopies, file && block.anonymous > 0),
            (Why::MappedByPages, block.one_folio),
            (Why::FileFolios, self.kind == Kind::File),
            (Why::Swapped, block.swapped > 0),
            (Why::NotPopulated, block.resident < block.pages),
            (Why::SharedByFork, self.kind == Kind::Anonymous && block.exclusive < block.anonymous),
        ];
        pages.iter().find(|(_, holds)| *holds).map_or(Why::NotCollapsed, |(why, _)| *why)
    }

    /// The reason as a phrase. `bytes` lie in `blocks` blocks of `block` bytes.
    pub(super) fn text(&self, why: Why, bytes: u64, blocks: u64, block: u64, base: u64) -> String {
        let size = PageSize::from_bytes(block).expect("a power of two");
        let word = self.word.unwrap_or("absent");
        let setting = if self.kind == Kind::SharedMemory { "shmem_enabled" } else { "enabled" };
        match why {
            Why::Never => format!("{setting}={word}"),
            Why::NotAdvised => format!("{setting}={word}, and {}", why.words(size)),
            Why::NotPopulated => {
                let pages = bytes as f64 / base as f64 / blocks as f64;
                format!("{}: {pages:.0} of {} pages a block", why.words(size), block / base)
            }
            why => why.words(size),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_json() {
        for why in [
            Why::Kernel,
            Why::TooSmall,
            Why::AdvisedAgainst,
            Why::NotPopulated,
            Why::NoHeadroom,
            Why::Pressure,
            Why::NotCollapsed,
        ] {
            assert_eq!(serde_json::to_value(why).unwrap(), why.name());
        }
    }
}
