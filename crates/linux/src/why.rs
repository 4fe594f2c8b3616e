//! The reasons why memory is not in huge pages, in the words of every verb.

use crate::rules::Rules;
use serde::Serialize;
use superpage_pages::PageSize;

/// Why resident memory is not mapped by a huge page: the first of these, in this order, that applies to its block. A
/// block is what a huge page would map, 2 MB at a multiple of 2 MB on x86-64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// Memory of the kernel or a device that is only mapped into the process.
    Kernel,
    /// No whole block is in the mapping.
    TooSmall,
    /// The block is only partly in the mapping.
    Edge,
    /// The mapping maps a file at addresses that differ from the file offsets, modulo the size of a block.
    Misaligned,
    /// The process disabled huge pages for itself, by `prctl(PR_SET_THP_DISABLE)`.
    Disabled,
    /// The mapping was advised against by `madvise(MADV_NOHUGEPAGE)`.
    AdvisedAgainst,
    /// The kernel was built without transparent huge pages, or shows no settings.
    NoSettings,
    /// The setting says `never` (or `deny`).
    Never,
    /// The setting requires advice, and the mapping has none (`madvise(MADV_HUGEPAGE)`).
    NotAdvised,
    /// The kernel reports that no large folios are possible here (`THPeligible` in `/proc/PID/smaps`) and nothing more:
    /// for example, the process disabled them except where advised.
    NotEligible,
    /// Private copies of pages of a file, which are made page by page.
    PrivateCopies,
    /// One huge folio holds the block, but it is mapped page by page.
    MappedByPages,
    /// The file's pages are cached in folios smaller than the block.
    FileFolios,
    /// Pages of the block are in swap space.
    Swapped,
    /// Pages of the block are missing: never touched, or freed.
    NotPopulated,
    /// Pages of the block are shared with another process since a fork.
    SharedByFork,
    /// `superpage daemon` leaves it alone: too little memory would be left in a control group of the process, or in the
    /// system.
    NoHeadroom,
    /// `superpage daemon` postpones it: tasks wait for memory in a control group of the process, or in the system.
    Pressure,
    /// Nothing prevents it: khugepaged has not reached it yet, or `superpage daemon` would promote it.
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

    /// The reason in words, for huge pages of `size`. Every verb that explains why memory is not huge uses these words.
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

/// [`Misaligned`](Why::Misaligned) of shared memory, for huge pages of `size`, with the `word` of `setting` now: with
/// `never`, the kernel maps it where no huge page fits.
pub fn misaligned_shared(size: PageSize, setting: &str, word: Option<&str>) -> String {
    let words = Why::Misaligned.words(size);
    match word {
        Some(word @ ("never" | "deny")) => format!("{words}: mapped under {setting}={word}"),
        _ => format!("{words}: mapped while {setting} was never, say"),
    }
}

/// What helps against [`misaligned_shared`]: a sentence without a full stop.
pub const SHARED_WAY_OUT: &str = "shared memory that was mapped under shmem_enabled=never lies where no huge page fits, for good; \
     start the program again under `superpage run` (promote: sets advise while memory is mapped, and the promoter makes huge what a process \
     has mapped whole) or `run -p thp:shared=on` (within_size: huge at once), or set \
     /sys/kernel/mm/transparent_hugepage/shmem_enabled before it starts; files in /dev/shm follow the option huge= of its mount";

/// A reason with the memory that it applies to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Reason {
    /// The reason.
    pub why: Why,
    /// Resident bytes that are not mapped by huge pages for this reason.
    pub bytes: u64,
    /// The blocks that they are in.
    pub blocks: u64,
    /// The reason as a phrase, with details found here.
    pub text: String,
}

impl Reason {
    /// A reason that applies to memory whatever its mapping, for huge pages of `size` bytes; `blocks` is the least
    /// number that it fills.
    pub(crate) fn of(why: Why, bytes: u64, size: u64) -> Reason {
        let block = PageSize::from_bytes(size).expect("a power of two");
        let text = match why {
            // A promoter looks at memory without a file only, of which shared memory alone has offsets.
            Why::Misaligned => misaligned_shared(block, "shmem_enabled", Rules::read().shared(block)),
            why => why.words(block),
        };
        Reason { why, bytes, blocks: bytes.div_ceil(size), text }
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
