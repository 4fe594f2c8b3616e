//! Determines which reason applies to a block of a mapping.

use super::mapping::{Mapping, MappingKind};
use std::collections::BTreeMap;
use superpage_linux::rules::Rules;
use superpage_linux::why::{MOUNT_OPTION, NOT_POPULATED_HERE, Part, Reason, Why, misaligned_shared};
use superpage_pages::PageSize;

/// What would help where memory of a kind is not huge for this reason, as a phrase; `None` where
/// nothing would.
fn help(why: Why, kind: MappingKind, code: bool) -> Option<&'static str> {
    let shared = kind == MappingKind::SharedMemory;
    Some(match why {
        Why::TooSmall | Why::Edge => "larger, aligned mappings",
        Why::Misaligned if shared => "another setting before it is mapped (below)",
        Why::Misaligned if code => "superpage run --text; or linking it with 2 MB as max-page-size",
        Why::Disabled => "not disabling them",
        Why::AdvisedAgainst => "not advising against them",
        Why::NoSettings => "another kernel",
        Why::Never => "another setting; or superpage daemon, for what is full",
        Why::NotAdvised => "advice by the program; or superpage daemon, for what is full",
        Why::NotEligible => "a setting that allows this size without advice",
        Why::MappedByPages => "superpage daemon",
        Why::FileFolios if code => "superpage run --text, if the program starts with it (not by dlopen)",
        Why::NotCollapsed => "waiting for khugepaged; or superpage daemon",
        Why::SharedByFork => "huge pages before it forks: advice by the program, or settings",
        _ => return None,
    })
}

/// Memory of a process that is not huge for one reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotHuge {
    /// Resident bytes.
    pub bytes: u64,
    /// The reason, in words that hold for all of them.
    pub text: String,
    /// What would help, as a phrase; `None` where nothing would.
    pub help: Option<&'static str>,
}

/// Why the memory of these mappings is not huge, most bytes first. The bytes add up to what is
/// resident and not huge.
pub(super) fn not_huge(mappings: &[Mapping]) -> Vec<NotHuge> {
    let mut found: BTreeMap<(Why, &'static str, String), NotHuge> = BTreeMap::new();
    for mapping in mappings {
        let code = mapping.is_code();
        for Reason { why, bytes, text, .. } in &mapping.reasons {
            let kind = match mapping.kind {
                MappingKind::Anonymous => "",
                MappingKind::SharedMemory => "shared memory: ",
                MappingKind::File if code => "code: ",
                MappingKind::File => "files: ",
                MappingKind::Hugetlb | MappingKind::Kernel => "",
            };
            // How full blocks are differs from mapping to mapping.
            let words = match why {
                Why::NotAdvised => text.split(';').next(),
                Why::NotPopulated => text.split(':').next(),
                _ => None,
            };
            let words = words.unwrap_or(text).to_string();
            let new = || NotHuge { bytes: 0, text: format!("{kind}{words}"), help: help(*why, mapping.kind, code) };
            found.entry((*why, kind, words.clone())).or_insert_with(new).bytes += bytes;
        }
    }
    let mut found: Vec<NotHuge> = found.into_values().collect();
    found.sort_by_key(|part| std::cmp::Reverse(part.bytes));
    found
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
    /// Resident pages that the program has given back, perhaps written since, where that is seen.
    pub(super) given_back: u64,
    /// The whole block is in the mapping.
    pub(super) inside: bool,
    /// The block is one folio.
    pub(super) one_folio: bool,
}

impl Block {
    pub(super) fn is_full(&self) -> bool {
        self.resident == self.pages
    }
}

/// What holds for a mapping as a whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct MappingFacts<'a> {
    pub(super) kind: MappingKind,
    /// Whether any whole block is in the mapping.
    pub(super) has_block: bool,
    pub(super) congruent: bool,
    pub(super) disabled: bool,
    pub(super) advised: Option<bool>,
    /// Whether pages were given back and not written since.
    pub(super) given_back: bool,
    /// What the kernel says.
    pub(super) eligible: Option<bool>,
    /// The word of the settings for such memory.
    pub(super) word: Option<&'a str>,
    /// Whether it is the option `huge=` of a mount.
    pub(super) mounted: bool,
}

impl<'a> MappingFacts<'a> {
    /// The word that governs memory of a kind.
    pub(super) fn word(rules: &'a Rules, kind: MappingKind, huge: PageSize) -> Option<&'a str> {
        match kind {
            MappingKind::Anonymous => rules.anonymous(huge),
            MappingKind::SharedMemory => rules.shared(huge),
            MappingKind::File | MappingKind::Hugetlb | MappingKind::Kernel => None,
        }
    }

    /// The reason that applies to the mapping as a whole, whatever is in it and whatever the
    /// settings say.
    pub(super) fn why_of_mapping(&self) -> Option<Why> {
        let file = matches!(self.kind, MappingKind::File | MappingKind::SharedMemory);
        let place = [
            (Why::Kernel, self.kind == MappingKind::Kernel),
            (Why::TooSmall, !self.has_block),
            (Why::Misaligned, file && !self.congruent),
            (Why::Disabled, self.disabled),
            (Why::AdvisedAgainst, self.advised == Some(false)),
        ];
        place.into_iter().find(|(_, holds)| *holds).map(|(why, _)| why)
    }

    /// The reason for the part of a block that is resident and not huge.
    pub(super) fn why(&self, block: &Block) -> Why {
        let file = matches!(self.kind, MappingKind::File | MappingKind::SharedMemory);
        match self.why_of_mapping() {
            Some(why @ (Why::Kernel | Why::TooSmall)) => return why,
            _ if !block.inside => return Why::Edge,
            Some(why) => return why,
            None => {}
        }
        // Whatever the settings say now, no promoter makes it huge.
        let shared = self.kind == MappingKind::Anonymous && block.exclusive < block.anonymous;
        match () {
            () if shared && block.is_full() => return Why::SharedByFork,
            () if self.given_back && block.given_back > 0 && block.is_full() => return Why::GivenBack,
            () => {}
        }
        if self.kind != MappingKind::File {
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
            (Why::FileFolios, self.kind == MappingKind::File),
            (Why::Swapped, block.swapped > 0),
            (Why::NotPopulated, !block.is_full()),
        ];
        pages.iter().find(|(_, holds)| *holds).map_or(Why::NotCollapsed, |(why, _)| *why)
    }

    /// The reason as a phrase, for memory in blocks of `block` bytes, of base pages of `base`.
    pub(super) fn text(&self, why: Why, part: Part, block: u64, base: u64) -> String {
        let size = PageSize::from_bytes(block).expect("a power of two");
        let word = self.word.unwrap_or("absent");
        let setting = match self.kind {
            MappingKind::SharedMemory if self.mounted => MOUNT_OPTION,
            MappingKind::SharedMemory => "shmem_enabled",
            _ => "enabled",
        };
        let pages = part.bytes as f64 / base as f64 / part.blocks.max(1) as f64;
        let populated = format!("{pages:.0} of {} pages a block", block / base);
        match why {
            Why::Misaligned if self.kind == MappingKind::SharedMemory => misaligned_shared(size, setting, self.word),
            Why::Never => format!("{setting}={word}"),
            // What a promoter would then make of it.
            Why::NotAdvised if pages.round() < (block / base) as f64 => {
                format!("{setting}={word}, and {}; {populated} are populated", why.words(size))
            }
            Why::NotAdvised => format!("{setting}={word}, and {}", why.words(size)),
            Why::NotPopulated => {
                let words =
                    if self.kind == MappingKind::SharedMemory { NOT_POPULATED_HERE.into() } else { why.words(size) };
                format!("{words}: {populated}")
            }
            why => why.words(size),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::advice::tests::mapping;
    use super::*;

    #[test]
    fn what_is_not_huge_adds_up_by_reason_and_kind_of_memory() {
        let mappings = [
            mapping(MappingKind::Anonymous, "rw-p", "", Why::NotPopulated, 3),
            mapping(MappingKind::File, "r-xp", "/bin/x", Why::TooSmall, 5),
            mapping(MappingKind::Anonymous, "rw-p", "", Why::TooSmall, 2),
            mapping(MappingKind::File, "r--p", "/lib/y", Why::TooSmall, 1),
            mapping(MappingKind::SharedMemory, "rw-s", "", Why::Misaligned, 4),
        ];
        let found: Vec<(u64, String)> =
            not_huge(&mappings).into_iter().map(|part| (part.bytes >> 20, part.text)).collect();
        let expected = [
            (5, "code: no aligned 2M in the mapping"),
            (4, "shared memory: address and file offset differ modulo 2M: mapped while shmem_enabled was never, say"),
            (3, "not populated"),
            (2, "no aligned 2M in the mapping"),
            (1, "files: no aligned 2M in the mapping"),
        ];
        assert_eq!(found, expected.map(|(megabytes, text)| (megabytes, text.to_string())));
    }
}
