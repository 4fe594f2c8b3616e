//! Why memory is not mapped by a superpage, or was not made one: one vocabulary for the manager,
//! for policies, and for every verb of `superpage` that explains, counts or refuses.

use alloc::string::{String, ToString};
use core::fmt;
use superpage_pages::PageSize;

macro_rules! reasons {
    ($($(#[$doc:meta])+ $why:ident = $name:literal, $words:literal;)+) => {
        /// Why a block of memory, what one superpage would map, is not mapped by it, or not any
        /// more. Where several apply, `superpage inspect` gives the first in this order.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Why {
            $($(#[$doc])+ $why,)+
        }

        impl Why {
            /// All reasons, in their order.
            pub const ALL: &[Why] = &[$(Why::$why),+];

            /// A short name for metrics, counts and JSON: `not-populated`.
            pub const fn name(self) -> &'static str {
                match self { $(Why::$why => $name,)+ }
            }

            /// The reason in words, in which SIZE stands for the size of a block.
            const fn template(self) -> &'static str {
                match self { $(Why::$why => $words,)+ }
            }
        }
    };
}

reasons! {
    /// Memory of the kernel or a device that is only mapped into the process; or a process that is
    /// the kernel's.
    Kernel = "kernel", "the kernel's or a device's";
    /// No whole block is in the mapping, with its virtual and physical alignment equal.
    TooSmall = "too-small", "no aligned SIZE in the mapping";
    /// The block is only partly in the mapping.
    Edge = "edge", "edge: less than an aligned SIZE at the mapping's ends";
    /// The mapping maps a file at addresses that differ from the file offsets, modulo the size of a
    /// block.
    Misaligned = "misaligned", "address and file offset differ modulo SIZE";
    /// The process disabled huge pages for itself, by `prctl(PR_SET_THP_DISABLE)`.
    Disabled = "disabled", "the process disabled huge pages by prctl";
    /// The program asks for base pages there (`madvise(MADV_NOHUGEPAGE)`).
    AdvisedAgainst = "advised-against", "MADV_NOHUGEPAGE";
    /// The kernel was built without transparent huge pages, or shows no settings.
    NoSettings = "no-settings", "the kernel shows no transparent huge pages";
    /// The setting says `never` or `deny`. It stops the kernel by itself; a promoter is stopped by
    /// `deny` alone, in shared memory.
    Never = "never", "switched off for the whole system";
    /// The setting requires advice, and the mapping has none (`madvise(MADV_HUGEPAGE)`).
    NotAdvised = "not-advised", "no MADV_HUGEPAGE";
    /// The kernel reports that no large folios are possible here (`THPeligible` in
    /// `/proc/PID/smaps`) and nothing more: for example, the process disabled them except where
    /// advised.
    NotEligible = "not-eligible", "not eligible, says the kernel: disabled by prctl except where advised, say";
    /// Private copies of pages of a file, which are made page by page.
    PrivateCopies = "private-copies", "private copies of a file's pages";
    /// One huge folio holds the block, but it is mapped page by page.
    MappedByPages = "mapped-by-pages", "in SIZE folios, but mapped page by page";
    /// It belongs to a file, whose pages are cached in smaller folios than the block; the manager
    /// promotes none.
    FileFolios = "file-folios", "the file is cached in folios under SIZE";
    /// Pages of the block are in swap space, or in the cache.
    Swapped = "swapped", "pages in swap space";
    /// Pages of the block are missing: never touched, or freed.
    NotPopulated = "not-populated", "not populated";
    /// Pages of the block are shared with another process, since a fork.
    SharedByFork = "shared-by-fork", "shared with another process since a fork";
    /// The program has given pages of the block back (`MADV_FREE`), which the kernel has not taken
    /// yet.
    GivenBack = "given-back", "the program has given pages of it back (MADV_FREE)";
    /// Too little memory would be left in a control group of the process, or in the system.
    NoHeadroom = "no-headroom", "too little memory would be left";
    /// Tasks wait for memory in a control group of the process, or in the system.
    Pressure = "pressure", "tasks wait for memory";
    /// Nothing prevents it: khugepaged has not reached it yet, or `superpage daemon` would promote
    /// it.
    NotCollapsed = "not-collapsed", "full, not collapsed yet: khugepaged or superpage daemon would";
    /// It is a superpage already, or part of one.
    Superpage = "superpage", "it is a superpage";
    /// A page of it is in use for a moment: it is being read in, or pinned.
    Busy = "busy", "a page of it is in use";
    /// No extent of its size is free, or no frame for a page table.
    NoExtent = "no-extent", "no free SIZE";
    /// It cannot be promoted in this way: one extent by copying, or something else in place.
    Otherwise = "otherwise", "not in this way";
    /// A frame could not be filled.
    Contents = "contents", "a frame could not be filled";
    /// It was unmapped since it was looked at.
    Unmapped = "unmapped", "unmapped meanwhile";
    /// The kernel refused the call (`EINVAL`): what else is known of the process may be out of date
    /// too.
    Ineligible = "ineligible", "the kernel refused it (EINVAL)";
    /// A control group of the process is at its limit.
    GroupLimit = "group-limit", "a control group is at its limit";
    /// Promotion has slowed the process, which is left alone for a while.
    Slowed = "slowed", "promotion has slowed the process";
    /// The promoter has no processor time left.
    Budget = "budget", "no processor time is left";
    /// This process may not inspect or change that one.
    Rights = "rights", "no right to do it";
    /// The process has ended, or runs another program.
    Gone = "gone", "the process is gone";
    /// Any other error of the system.
    Other = "other", "an error of the system";
}

impl Why {
    /// The reason in words, for superpages of `size`. Every verb that explains why memory is not
    /// huge uses these words.
    pub fn words(self, size: PageSize) -> String {
        self.template().replace("SIZE", &size.to_string())
    }

    /// Whether the block has changed since a scan found it: it need not be tried again before a
    /// scan finds it again.
    pub const fn is_over(self) -> bool {
        use Why::{AdvisedAgainst, Gone, NotPopulated, Superpage, TooSmall, Unmapped};
        matches!(self, Superpage | NotPopulated | TooSmall | AdvisedAgainst | Unmapped | Gone)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for Why {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_different_and_words_name_the_size() {
        let mut names: alloc::vec::Vec<&str> = Why::ALL.iter().map(|why| why.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Why::ALL.len());
        assert!(Why::ALL.iter().enumerate().all(|(number, why)| *why as usize == number));
        let size: PageSize = "64K".parse().unwrap();
        assert_eq!(Why::TooSmall.words(size), "no aligned 64K in the mapping");
        assert!(Why::ALL.iter().all(|why| !why.words(size).contains("SIZE")));
    }
}
