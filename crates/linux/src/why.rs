//! The reasons why memory is not in huge pages, in the words of every verb.

use crate::rules::Rules;
use crate::scan::Kind;
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
    /// The setting says `never` or `deny`. It stops the kernel by itself; a promoter is stopped by `deny` alone, in shared memory.
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

    /// The reason in words, for memory of a kind under these settings, where only shared memory has offsets.
    pub fn words_of(self, kind: Kind, size: PageSize, rules: &Rules) -> String {
        match (self, kind) {
            (Why::Misaligned, Kind::Mounted) if !rules.denies_shared() => misaligned_shared(size, MOUNT_OPTION, None),
            (Why::Misaligned, _) => misaligned_shared(size, "shmem_enabled", rules.shared(size)),
            (Why::Never, Kind::Shared | Kind::Mounted) if rules.denies_shared() => "shmem_enabled=deny".into(),
            (Why::NotPopulated, Kind::Shared | Kind::Mounted) => NOT_POPULATED_HERE.into(),
            _ => self.words(size),
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

/// Words for the option `huge=` of a mounted file system in memory, which rules its files.
pub const MOUNT_OPTION: &str = "the mount's huge";

/// What is said of shared memory that is not populated: what others have populated is not in this page table.
pub const NOT_POPULATED_HERE: &str = "not populated by this process";

/// What helps where shared memory is [`Misaligned`](Why::Misaligned) or under [`Never`](Why::Never), of these kinds, under these settings;
/// a sentence without a full stop. `None` without shared memory.
pub fn shared_way_out(kinds: &[Kind], rules: &Rules) -> Option<String> {
    const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    let (nameless, mounted) = (kinds.contains(&Kind::Shared), kinds.contains(&Kind::Mounted));
    if !nameless && !mounted {
        return None;
    }
    if rules.denies_shared() {
        return Some(format!(
            "shmem_enabled=deny forbids huge pages in all shared memory, also in files of /dev/shm, to promoters too, and what is mapped \
             under it lies where none fits, for good: set {SETTING} to another word as root and start the program again, or start it again \
             under `superpage run -p thp:shared=on` (within_size while it runs)"
        ));
    }
    let nameless = nameless.then(|| {
        format!(
            "shared memory that was mapped under shmem_enabled=never lies where no huge page fits, for good; start the program again \
             under `superpage run` (promote: sets advise while memory is mapped, and the promoter makes huge what a process has mapped \
             whole) or `run -p thp:shared=on` (within_size: huge at once), or set {SETTING} before it starts"
        )
    });
    let mounted = mounted.then(|| {
        "files that were mapped while their mount had huge=never lie where no huge page fits, for good; `mount -o remount,huge=advise \
         /dev/shm`, and start the program again"
            .to_string()
    });
    Some([nameless, mounted].into_iter().flatten().collect::<Vec<String>>().join("; "))
}

/// Memory that a reason applies to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Part {
    /// Resident bytes that are not mapped by huge pages.
    pub bytes: u64,
    /// The blocks that they are in.
    pub blocks: u64,
}

impl Part {
    /// Memory of which only the bytes are known: as many blocks of `size` bytes as it fills.
    pub fn of_bytes(bytes: u64, size: u64) -> Part {
        Part { bytes, blocks: bytes.div_ceil(size) }
    }
}

/// A reason with the memory that it applies to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Reason {
    /// The reason.
    pub why: Why,
    /// Resident bytes that are not mapped by huge pages for this reason.
    pub bytes: u64,
    /// The blocks that they are in. In a survey for [`Disabled`](Why::Disabled) and [`AdvisedAgainst`](Why::AdvisedAgainst), whose page
    /// tables are not read, the least number that holds them.
    pub blocks: u64,
    /// The reason as a phrase, with details found here.
    pub text: String,
}

impl Reason {
    /// A reason that applies to memory of a kind, for huge pages of `size` bytes, under these settings.
    pub(crate) fn of(why: Why, kind: Kind, part: Part, size: u64, rules: &Rules) -> Reason {
        let block = PageSize::from_bytes(size).expect("a power of two");
        Reason { why, bytes: part.bytes, blocks: part.blocks, text: why.words_of(kind, block, rules) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_has_the_reason_of_its_kind_and_a_way_out_that_can_be_gone() {
        let size: PageSize = "2M".parse().unwrap();
        let rules = |word: &str| Rules { shmem_enabled: Some(word.into()), ..Rules::default() };
        let words = |kind, word| Why::Misaligned.words_of(kind, size, &rules(word));
        assert!(words(Kind::Shared, "never").ends_with("mapped under shmem_enabled=never"));
        assert!(words(Kind::Shared, "advise").ends_with("mapped while shmem_enabled was never, say"));
        assert!(words(Kind::Mounted, "never").ends_with("mapped while the mount's huge was never, say"));
        assert!(words(Kind::Mounted, "deny").ends_with("mapped under shmem_enabled=deny"));
        let out = |kinds: &[Kind], word| shared_way_out(kinds, &rules(word)).unwrap();
        assert!(out(&[Kind::Shared], "never").contains("promote: sets advise"));
        assert!(out(&[Kind::Mounted], "never").starts_with("files that were mapped while their mount had huge=never"));
        assert!(!out(&[Kind::Shared, Kind::Mounted], "deny").contains("promote: sets"));
        assert_eq!(shared_way_out(&[], &rules("never")), None);
    }

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
