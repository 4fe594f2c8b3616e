//! The reasons why memory is not in huge pages, in the words of every verb.

use crate::rules::Rules;
use crate::scan::Kind;
use serde::{Serialize, Serializer};
use superpage_pages::PageSize;
pub use superpage_vm::Why;

/// The reason in words, for memory of a kind under these settings, where only shared memory has
/// offsets.
pub fn words_of(why: Why, kind: Kind, size: PageSize, rules: &Rules) -> String {
    match (why, kind) {
        (Why::Misaligned, Kind::Mounted) if !rules.denies_shared() => misaligned_shared(size, MOUNT_OPTION, None),
        (Why::Misaligned, _) => misaligned_shared(size, "shmem_enabled", rules.shared(size)),
        (Why::Never, Kind::Shared | Kind::Mounted) if rules.denies_shared() => "shmem_enabled=deny".into(),
        (Why::NotPopulated, Kind::Shared | Kind::Mounted) => NOT_POPULATED_HERE.into(),
        _ => why.words(size),
    }
}

/// [`Misaligned`](Why::Misaligned) of shared memory, for huge pages of `size`, with the `word` of
/// `setting` now: with `never`, the kernel maps it where no huge page fits.
pub fn misaligned_shared(size: PageSize, setting: &str, word: Option<&str>) -> String {
    let words = Why::Misaligned.words(size);
    match word {
        Some(word @ ("never" | "deny")) => format!("{words}: mapped under {setting}={word}"),
        _ => format!("{words}: mapped while {setting} was never, say"),
    }
}

/// Words for the option `huge=` of a mounted file system in memory, which rules its files.
pub const MOUNT_OPTION: &str = "the mount's huge";

/// What is said of shared memory that is not populated: what others have populated is not in this
/// page table.
pub const NOT_POPULATED_HERE: &str = "not populated by this process";

/// What helps where shared memory is [`Misaligned`](Why::Misaligned) or under
/// [`Never`](Why::Never), of these kinds, under these settings; a sentence without a full stop.
/// `None` without shared memory.
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
             whole) or `run -p thp:shared=on` (within_size: huge at once), or set {SETTING} to within_size before it starts"
        )
    });
    let mounted = mounted.then(|| {
        "files that were mapped while their mount had huge=never lie where no huge page fits, for good; `mount -o remount,huge=advise \
         /dev/shm`, and start the program again"
            .to_string()
    });
    Some([nameless, mounted].into_iter().flatten().collect::<Vec<String>>().join("; "))
}

/// Serializes a reason as its name.
fn name<S: Serializer>(why: &Why, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(why.name())
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
    /// The reason, in JSON its name.
    #[serde(serialize_with = "name")]
    pub why: Why,
    /// Resident bytes that are not mapped by huge pages for this reason.
    pub bytes: u64,
    /// The blocks that they are in. In a survey for [`Disabled`](Why::Disabled) and
    /// [`AdvisedAgainst`](Why::AdvisedAgainst), whose page tables are not read, the least number
    /// that holds them.
    pub blocks: u64,
    /// The reason as a phrase, with details found here.
    pub text: String,
}

impl Reason {
    /// A reason that applies to memory of a kind, for huge pages of `size` bytes, under these
    /// settings.
    pub fn of(why: Why, kind: Kind, part: Part, size: u64, rules: &Rules) -> Reason {
        let block = PageSize::from_bytes(size).expect("a power of two");
        Reason { why, bytes: part.bytes, blocks: part.blocks, text: words_of(why, kind, block, rules) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_has_the_reason_of_its_kind_and_a_way_out_that_can_be_gone() {
        let size: PageSize = "2M".parse().unwrap();
        let rules = |word: &str| Rules { shmem_enabled: Some(word.into()), ..Rules::default() };
        let words = |kind, word| words_of(Why::Misaligned, kind, size, &rules(word));
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
}
