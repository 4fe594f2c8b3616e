//! The answers to the six questions that a policy for superpages must answer: plain data, and all
//! that the fault path knows of a policy. The mechanisms exist once, elsewhere in this crate.

use super::static_pool::StaticPool;
use core::fmt;
use core::str::FromStr;
use superpage_pages::{Hint, Ladder, Level, PageSize, SizeError};

/// Which frames does a fault take?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// One base page, wherever one is free.
    BasePage,
    /// The page's frame in a reservation of the preferred size (Navarro et al., sections 4.1, 4.2).
    Reservation,
    /// All of an extent of the preferred size, zeroed and mapped at once, if the mapping contains
    /// all of it and it is private anonymous memory with no page populated, cached or in swap space
    /// (Linux). Otherwise a base page. Nothing is reserved.
    Extent,
}

/// A set of page sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sizes(u64);

impl Sizes {
    /// Whether a size is in the set.
    pub fn contains(self, size: PageSize) -> bool {
        self.0 >> size.shift() & 1 == 1
    }

    /// The sizes, from the smallest up.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = PageSize> {
        (0..u64::BITS).filter_map(PageSize::from_shift).filter(move |size| self.contains(*size))
    }
}

impl FromIterator<PageSize> for Sizes {
    fn from_iter<I: IntoIterator<Item = PageSize>>(sizes: I) -> Sizes {
        Sizes(sizes.into_iter().fold(0, |set, size| set | 1 << size.shift()))
    }
}

impl FromStr for Sizes {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Sizes, SizeError> {
        text.split('+').map(PageSize::from_str).collect()
    }
}

impl fmt::Display for Sizes {
    /// In the form that is parsed: `64K+2M`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().enumerate().try_for_each(|(i, size)| write!(f, "{}{size}", if i == 0 { "" } else { "+" }))
    }
}

/// How large may a reservation be, or an extent that is taken at once?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reserve {
    /// Of the preferred size (section 4.2), whatever that is.
    Preferred,
    /// Of the largest size or none at all (as in later FreeBSD); smaller superpages are made inside
    /// it.
    Largest,
    /// Of the largest size of at most 2 MB or none at all (Linux: what one entry of the second
    /// level of its page tables maps).
    Huge,
    /// Of the smallest superpage size or none at all (Talluri and Hill, ASPLOS 1994: one size).
    Smallest,
    /// Of 2 MB, else of 64 KB, as far as the machine has them, or none at all (FreeBSD: 2 MB is
    /// what a page of its lowest page tables maps, and 64 KB its smaller reservations on arm64,
    /// Solomon 2024). On a machine without 2 MB of the largest size.
    Tables,
    /// Of the largest of these sizes that is available, or none at all.
    Among(Sizes),
    /// Of the preferred size, which is at most this many bytes.
    UpTo(u64),
    /// Of the preferred size, which may be this one where the machine has none of it: an extent for
    /// windows of base pages.
    PreferredAnd(PageSize),
}

impl Reserve {
    /// The sizes of extents that it names, which a machine need not have pages of, and whether one
    /// that does not lie between those of the machine is a fault of the user's.
    pub fn extents(self) -> (Sizes, bool) {
        match self {
            Reserve::Among(sizes) => (sizes, true),
            Reserve::PreferredAnd(size) => ([size].into_iter().collect(), false),
            _ => (Sizes::default(), false),
        }
    }

    /// Whether it may be of this level.
    pub(crate) fn allows(self, ladder: &Ladder, level: Level) -> bool {
        let size = ladder.size(level);
        match self {
            Reserve::Preferred | Reserve::PreferredAnd(_) => true,
            Reserve::Largest => level == ladder.largest(),
            Reserve::Huge => {
                let larger = (level < ladder.largest()).then(|| ladder.size(level.up()));
                size <= PageSize::MB2 && larger.is_none_or(|larger| larger > PageSize::MB2)
            }
            Reserve::Smallest => level == Level(1),
            Reserve::Tables if ladder.sizes().contains(&PageSize::MB2) => {
                [PageSize::KB64, PageSize::MB2].contains(&size)
            }
            Reserve::Tables => level == ladder.largest(),
            Reserve::Among(sizes) => sizes.contains(size),
            Reserve::UpTo(bytes) => size.bytes() <= bytes,
        }
    }
}

/// Which reservations may reach past the end of their object (section 4.2)?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PastEnd {
    /// None.
    Never,
    /// Those of objects that grow.
    Growing,
    /// Those of all anonymous objects (as in later FreeBSD).
    Anonymous,
}

/// What does the fault path make of what a program asks for ([`Hint`])? Where it is against it, a
/// page is placed alone and no superpage is made; what is one already stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hints {
    /// Nothing.
    Ignored,
    /// Reservations, extents and superpages unless base pages are asked for (Linux: `enabled` at
    /// `always`).
    OptOut,
    /// Reservations, extents and superpages only where superpages are asked for (Linux: `enabled`
    /// at `madvise`).
    OptIn,
}

/// What is memory that was mapped for a stack (`MAP_STACK`)?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stacks {
    /// As any other.
    Any,
    /// As if base pages were asked for there (Linux since 6.7).
    Base,
}

impl Hints {
    /// Whether more than base pages may be taken where the program asks for `hint`.
    #[inline]
    pub fn allow(self, hint: Hint) -> bool {
        match self {
            Hints::Ignored => true,
            Hints::OptOut => hint != Hint::Base,
            Hints::OptIn => hint == Hint::Huge,
        }
    }

    /// Whether a background may make a superpage where the program asks for `hint`: never against
    /// it.
    pub(crate) fn allow_background(self, hint: Hint) -> bool {
        hint != Hint::Base && self.allow(hint)
    }
}

/// When does the fault path make a superpage of a region?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promote {
    /// Never: the policy's allocations without their benefit (section 6.6, "overhead in practice"),
    /// or promotion by a background alone.
    Never,
    /// As soon as it is fully populated, size by size, in place (section 4.5).
    FullPopulation,
}

/// In which objects must the dirty bits of a region agree before it is promoted (section 4.9)?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dirty {
    /// In file objects. A page of an anonymous object has no other copy and must be written out
    /// with or without a dirty bit, so nothing is lost with the bit.
    Files,
    /// In all objects, as in the paper. There the bit is emulated, so the first write to each page
    /// faults and promotion is tried again; if the hardware sets it, a region of pages that were
    /// read first may never be promoted.
    All,
    /// In none.
    Nowhere,
}

/// What is mapped at the first touch of a page of a file that others have brought into memory?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resident {
    /// That page.
    Page,
    /// Unless it is written: the largest extent around it that is all in memory, in the map entry,
    /// aligned there as in physical memory, and of which nothing is mapped yet; as a superpage.
    /// FreeBSD's `vm_fault_soft_fast`. No other page of the extent may be a cache page: its frame
    /// counts as available, and others may take it without looking for mappings.
    Extent,
}

/// Which base pages of a region must have been accessed before it is promoted?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accessed {
    /// None but the one that is touched.
    Any,
    /// All: what is prepopulated is mapped without a reference bit, and keeps its region from
    /// promotion until it is used and another page of the region faults. Extents that are populated
    /// at once, and what a background promotes, are not concerned. FreeBSD's rule, until it stopped
    /// to ask for the bit on Arm (D44983).
    All,
}

/// Which of the free extents of a size is taken?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// The lowest.
    First,
    /// The next one behind the last, round and round: what is freed is taken after all else.
    Next,
}

/// What if no extent of the preferred size is free (section 4.3)?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scarce {
    /// Take a smaller one. Only a fault that would find not even a base page preempts.
    Smaller,
    /// Preempt the reservation whose most recent page allocation occurred least recently.
    Preempt,
    /// Compact at the fault: relocate the pages of the extent with the most free frames, then take
    /// it; otherwise as [`Scarce::Smaller`]. After failures that is put off (Linux: direct
    /// compaction).
    Compact,
    /// [`Scarce::Compact`] where the program asks for superpages, [`Scarce::Smaller`] elsewhere
    /// (Linux: `defrag` at `madvise`).
    CompactAdvised,
}

impl Scarce {
    /// Whether a fault compacts where the program asks for `hint`.
    #[inline]
    pub fn compacts(self, hint: Hint) -> bool {
        self == Scarce::Compact || self == Scarce::CompactAdvised && hint == Hint::Huge
    }
}

/// What happens to the partially populated pieces of a preempted reservation (section 4.8)?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pieces {
    /// They stay reservations, at the head of the right list.
    Keep,
    /// They are broken too: every unused frame is freed at once (as in later FreeBSD).
    Free,
}

/// Which of the reservations that can yield an extent is preempted (section 4.8)?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lists {
    /// The least recent of those that yield no more than is asked for, if there is one: a list for
    /// each size.
    BySize,
    /// The least recent of all: one queue (as in later FreeBSD).
    One,
}

/// Which pages are evicted when memory is short?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reclaim {
    /// None: there are no page lists and no page daemon, files' pages are freed with their last
    /// mapping, and running out of memory is an error.
    Nothing,
    /// The least recently used, in approximate LRU order (section 5.1).
    Lru,
}

/// What happens to clean pages that the daemon evicts (section 5.1, change 1)?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cache {
    /// They are freed.
    Free,
    /// They keep their frames until none is free.
    Held,
    /// They count as free: coalesced with free frames, available to reservations, and kept until
    /// overwritten.
    Available,
}

/// What wakes the page daemon (section 5.1, change 2)?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// Too few free frames.
    Memory,
    /// Also a failed allocation of the preferred size; then it restores the contiguity that was
    /// lacking, and no more.
    Contiguity,
}

/// What happens to clean pages of a file at its last close (section 5.1, change 3)?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Close {
    /// They stay as active as they were.
    Keep,
    /// They become inactive.
    Inactive,
}

/// Where are the kernel's own pages (section 5.2)?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wired {
    /// Wherever a base page is free.
    Scatter,
    /// In pools of contiguous frames.
    Cluster,
}

/// From which part of memory are the kernel's own pages, which cannot move?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmovable {
    /// From wherever the allocator takes any page.
    Anywhere,
    /// From the upper end of memory, and all others from the lower one: two regions (Contiguitas;
    /// Linux: a movable zone).
    Apart,
    /// From blocks of so many bytes that have such pages already, while they have room
    /// (superpageblocks).
    Blocks(u64),
}

/// Are dirty base pages of a superpage inferred from digests of their contents (section 4.7)?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hash {
    /// No: all base pages of a dirty superpage are written out.
    Off,
    /// Yes: each page is hashed when it is read in.
    Read,
    /// Yes: the pages of a clean superpage are hashed just before it is first written.
    Late,
    /// Yes: pages that were read in are hashed by the idle loop.
    Idle,
}

/// How far is a superpage demoted when part of it must change (section 4.6)?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Demote {
    /// To the next smaller size, and further only for the superpages that contain a boundary of the
    /// part.
    Stepwise,
    /// To base pages at once.
    ToBase,
}

/// What does a read take of private anonymous memory that was never written?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZeroPage {
    /// Memory, as a write does.
    Off,
    /// None: it maps a page of zeroes that all share, without the right to write. The first write
    /// takes a frame.
    Base,
    /// As [`ZeroPage::Base`]. Where a fault may take a huge page ([`Reserve::Huge`]), and nothing
    /// is mapped, it maps a huge page of zeroes. A write there splits that into base ones, and
    /// takes a base page (Linux 5.8 to 6.12).
    HugeSplit,
    /// As above, but a write there is as a first touch: it takes a huge page if the policy does
    /// (Linux before and since).
    Huge,
}

/// Question 1: which frames does a fault take?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placing {
    /// Where the frames come from.
    pub frames: Place,
    /// How large a reservation or an extent may be.
    pub size: Reserve,
    /// The same where the program asks for superpages and hints are not ignored; `None`: as
    /// elsewhere.
    pub hinted: Option<Reserve>,
    /// Whether a reservation in a growing object is at most as large as the object is now (section
    /// 4.2).
    pub growing_limit: bool,
    /// Which reservations may reach past their object's end.
    pub past_end: PastEnd,
    /// What is made of the program's hints.
    pub hints: Hints,
    /// What is made of memory that was mapped for a stack ([`Hint::Stack`]).
    pub stacks: Stacks,
    /// *Page colouring*: a single base page gets a frame whose number is that of the page modulo
    /// this, a power of two, where one is free (Kessler and Hill; section 6.3). 0: any frame.
    pub colours: u32,
    /// Which of the free extents of a size is taken.
    pub fit: Fit,
    /// A static pool, of whose pages mappings that use it are made; `None`: there is none.
    pub pool: Option<StaticPool>,
    /// What a read takes of memory that was never written.
    pub zero_page: ZeroPage,
}

impl Placing {
    /// What a map entry keeps of what a program asks for.
    pub(crate) fn asked(&self, hint: Hint) -> Hint {
        match hint {
            Hint::Stack if self.stacks == Stacks::Any => Hint::None,
            Hint::Stack => Hint::Base,
            other => other,
        }
    }
}

/// Question 2: how much is prepopulated around the page that faulted?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Populating {
    /// The population, in eighths of a region, at which the rest of it is prepopulated: 8 means
    /// never (section 4.5).
    pub threshold: u8,
    /// *Fault-around*: the largest window, in base pages, a power of two, aligned, that is
    /// prepopulated around a page that is touched, where the window of its size before it or after
    /// it is populated. 1: none.
    pub around: u32,
    /// What is mapped at a fault on a page of a file that is in memory.
    pub resident: Resident,
}

/// Question 3: when does a region become a superpage?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promoting {
    /// When the fault path promotes.
    pub when: Promote,
    /// In which objects dirty bits must agree for that.
    pub dirty: Dirty,
    /// Which reference bits must be set for that.
    pub accessed: Accessed,
    /// Whether a background may collapse the pages of files that programs execute and do not write
    /// (Linux: `CONFIG_READ_ONLY_THP_FOR_FS`). Whole extents of them are mapped as with
    /// [`Resident::Extent`].
    pub text: bool,
}

/// Question 4: what if no extent of the preferred size is free?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shortage {
    /// Smaller extents, or preemption.
    pub then: Scarce,
    /// What happens to the pieces of a preempted reservation.
    pub pieces: Pieces,
    /// Which reservation is preempted.
    pub lists: Lists,
    /// What wakes the page daemon.
    pub wake: Wake,
}

/// Question 5: when is a superpage demoted beyond what is unavoidable, and how far?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Demoting {
    /// How far.
    pub steps: Demote,
    /// Whether a superpage is demoted, completely and as `steps` says, before it is unmapped: the
    /// three demotions of section 6.6. Otherwise it is removed in one piece.
    pub on_unmap: bool,
    /// Whether a superpage that moves (`mremap`) is demoted even where it could stay one (Linux
    /// until 3.1).
    pub on_move: bool,
    /// Whether a superpage is demoted when one of its pages is evicted. Otherwise all of it is,
    /// where swap space has room for that (Linux since 4.13).
    pub on_evict: bool,
    /// Whether a clean superpage is demoted at its first write, where dirty bits matter as `dirty`
    /// says (section 4.7).
    pub on_write: bool,
    /// The probability, in quarters, that a superpage is demoted when the daemon clears its
    /// reference bit under memory pressure (section 4.6).
    pub speculate: u8,
    /// Whether an extent that was populated as a whole keeps its frames when a part of it is
    /// unmapped, until memory is short (Linux: deferred split). Otherwise those frames are free at
    /// once. An extent that is reserved keeps them anyway.
    pub deferred: bool,
    /// Where memory is short, huge pages with more pages of zeroes than this lose them, each looked
    /// at once, the oldest first (Linux 6.12: `shrink_underused`, with `max_ptes_none`). `None`:
    /// none. Needs a policy that reclaims pages.
    pub underused: Option<u32>,
}

/// Question 6: which pages are evicted when memory is short, and what is kept of them?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reclaiming {
    /// Which pages.
    pub pages: Reclaim,
    /// What happens to clean pages that are evicted.
    pub cache: Cache,
    /// What happens to clean pages of closed files.
    pub close: Close,
    /// Where the kernel's own pages are placed.
    pub wired: Wired,
    /// From which part of memory they are.
    pub unmovable: Unmovable,
    /// The percent of memory that the daemon, once woken, aims at having available; it is woken at
    /// a quarter of that. FreeBSD 4 aims at 4 to 10, by its options.
    pub aim: u8,
    /// Whether dirty base pages are inferred from digests.
    pub hash: Hash,
}

/// The answers to the six questions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answers {
    /// Which frames does a fault take?
    pub place: Placing,
    /// How much is populated at once?
    pub populate: Populating,
    /// When does a region become a superpage?
    pub promote: Promoting,
    /// What if no extent of that size is free?
    pub scarce: Shortage,
    /// When is a superpage demoted?
    pub demote: Demoting,
    /// Which pages are evicted?
    pub reclaim: Reclaiming,
}

impl Answers {
    /// The answers of the policy `base`: nothing is reserved; those that only concern reservations
    /// are the paper's.
    pub const BASE: Answers = Answers {
        place: Placing {
            frames: Place::BasePage,
            size: Reserve::Preferred,
            hinted: None,
            growing_limit: true,
            past_end: PastEnd::Growing,
            hints: Hints::Ignored,
            stacks: Stacks::Any,
            colours: 0,
            fit: Fit::First,
            pool: None,
            zero_page: ZeroPage::Off,
        },
        populate: Populating { threshold: 8, around: 1, resident: Resident::Page },
        promote: Promoting { when: Promote::Never, dirty: Dirty::Files, accessed: Accessed::Any, text: false },
        scarce: Shortage { then: Scarce::Preempt, pieces: Pieces::Keep, lists: Lists::BySize, wake: Wake::Memory },
        demote: Demoting {
            steps: Demote::Stepwise,
            on_unmap: true,
            on_evict: true,
            on_move: false,
            on_write: false,
            speculate: 0,
            deferred: false,
            underused: None,
        },
        reclaim: Reclaiming {
            pages: Reclaim::Lru,
            cache: Cache::Held,
            close: Close::Keep,
            wired: Wired::Scatter,
            unmovable: Unmovable::Anywhere,
            aim: 2,
            hash: Hash::Off,
        },
    };

    /// Whether all of an extent is populated at the first touch of one of its pages.
    pub(crate) fn takes_extents(&self) -> bool {
        self.place.frames == Place::Extent
    }
}
