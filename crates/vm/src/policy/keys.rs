//! Answers as parameters: what each is called, and what its values stand for.

use super::answers::{
    Accessed, Answers, Cache, Close, Demote, Dirty, Fit, Hash, Hints, Lists, PastEnd, Pieces, Place, Promote, Reclaim,
    Reserve, Resident, Scarce, Stacks, Unmovable, Wake, Wired, ZeroPage,
};

/// An answer as a parameter, as users write it. Every policy with a fault path has all of them.
pub struct Key {
    /// The name.
    pub name: &'static str,
    /// The valid values.
    pub values: &'static [&'static str],
    /// One line of help.
    pub help: &'static str,
    pub(super) set: fn(&mut Answers, usize),
}

impl Key {
    /// Its value in these answers; `None` if none of its values gives them.
    pub(super) fn value(&self, answers: &Answers) -> Option<&'static str> {
        let is = |value: &usize| {
            let mut same = *answers;
            (self.set)(&mut same, *value);
            same == *answers
        };
        (0..self.values.len()).find(is).map(|value| self.values[value])
    }
}

/// A key by its name, the answer that it sets, each value with what that answer is then, and its
/// help.
macro_rules! key {
    ($name:literal, $question:ident.$answer:ident: $($value:literal => $is:expr),*; $help:literal) => {
        Key {
            name: $name,
            values: &[$($value),*],
            help: $help,
            set: |answers, value| answers.$question.$answer = [$($is),*][value],
        }
    };
}

pub(super) static KEYS: [Key; 35] = [
    key!("place", place.frames: "base" => Place::BasePage, "reservation" => Place::Reservation, "extent" => Place::Extent;
        "frames that a fault takes: a base page, the page's frame in a reservation, or a whole extent"),
    key!("growing-limit", place.growing_limit: "on" => true, "off" => false;
        "a reservation in a growing object is at most as large as the object"),
    key!("past-end", place.past_end: "on" => PastEnd::Growing, "off" => PastEnd::Never, "anonymous" => PastEnd::Anonymous;
        "a reservation in a growing (or in any anonymous) object may reach past the object's end"),
    key!("reserve", place.size: "preferred" => Reserve::Preferred, "largest" => Reserve::Largest,
        "smallest" => Reserve::Smallest, "huge" => Reserve::Huge, "tables" => Reserve::Tables;
        "size of reservations and extents: the preferred one, or only the largest, the smallest, the largest up to 2 MB, or 2 MB and 64 KB"),
    key!("threshold", populate.threshold:
        "8/8" => 8, "7/8" => 7, "6/8" => 6, "5/8" => 5, "4/8" => 4, "3/8" => 3, "2/8" => 2, "1/8" => 1;
        "share of a region at which the rest of it is prepopulated"),
    key!("promote", promote.when: "full" => Promote::FullPopulation, "never" => Promote::Never;
        "when a region becomes a superpage"),
    key!("dirty", promote.dirty: "files" => Dirty::Files, "all" => Dirty::All, "nowhere" => Dirty::Nowhere;
        "objects in which dirty bits must agree before a region becomes a superpage"),
    key!("accessed", promote.accessed: "any" => Accessed::Any, "all" => Accessed::All;
        "base pages of a region whose reference bits must be set before a fault promotes it"),
    Key {
        name: "preempt",
        values: &["on", "off"],
        help: "preempt a reservation rather than take a smaller extent",
        set: |answers, value| match (value, answers.scarce.then) {
            (0, _) => answers.scarce.then = Scarce::Preempt,
            (_, Scarce::Preempt) => answers.scarce.then = Scarce::Smaller,
            _ => {}
        },
    },
    Key {
        name: "compact",
        values: &["on", "off", "advised"],
        help: "compact at a fault for an extent of the preferred size, rather than preempt or take a smaller one; advised: where the program asks for superpages",
        set: |answers, value| match (value, answers.scarce.then) {
            (0, _) => answers.scarce.then = Scarce::Compact,
            (2, _) => answers.scarce.then = Scarce::CompactAdvised,
            (_, Scarce::Compact | Scarce::CompactAdvised) => answers.scarce.then = Scarce::Smaller,
            _ => {}
        },
    },
    key!("pieces", scarce.pieces: "keep" => Pieces::Keep, "free" => Pieces::Free;
        "partially populated pieces of a preempted reservation stay reserved, or are broken up too"),
    key!("lists", scarce.lists: "by-size" => Lists::BySize, "one" => Lists::One;
        "preempt the least recent reservation of the list of the size asked for, or of all"),
    key!("stepwise", demote.steps: "on" => Demote::Stepwise, "off" => Demote::ToBase;
        "demote to the next smaller size, and further only around the boundaries of what changes"),
    key!("demote-on-unmap", demote.on_unmap: "on" => true, "off" => false;
        "demote a superpage before it is unmapped, instead of removing it in one piece"),
    key!("demote-on-move", demote.on_move: "on" => true, "off" => false;
        "demote a superpage that moves (mremap), even where it could stay one"),
    key!("demote-on-write", demote.on_write: "on" => true, "off" => false;
        "demote a clean superpage at its first write, where dirty bits matter"),
    key!("deferred-split", demote.deferred: "on" => true, "off" => false;
        "a huge page of which a part is unmapped keeps its frames until memory is short"),
    key!("hash", reclaim.hash: "off" => Hash::Off, "read" => Hash::Read, "late" => Hash::Late, "idle" => Hash::Idle;
        "infer dirty base pages from digests, taken when read in, before the first write, or when idle"),
    key!("speculate", demote.speculate: "4/4" => 4, "3/4" => 3, "2/4" => 2, "1/4" => 1, "0/4" => 0;
        "probability that the daemon demotes a superpage whose reference bit it clears under pressure"),
    key!("reclaim", reclaim.pages: "lru" => Reclaim::Lru, "none" => Reclaim::Nothing;
        "pages that are evicted when memory is short: the least recently used, or none"),
    key!("cache", reclaim.cache: "available" => Cache::Available, "held" => Cache::Held, "free" => Cache::Free;
        "clean evicted pages count as free but keep their contents, keep their frames, or are freed"),
    key!("wake", scarce.wake: "contiguity" => Wake::Contiguity, "memory" => Wake::Memory;
        "the daemon also wakes on failed requests for contiguity, or only when memory is short"),
    key!("close", reclaim.close: "inactive" => Close::Inactive, "keep" => Close::Keep;
        "clean pages of a file become inactive at its last close, or stay as they are"),
    key!("wired", reclaim.wired: "cluster" => Wired::Cluster, "scatter" => Wired::Scatter;
        "the kernel's own pages are placed in contiguous pools, or anywhere"),
    key!("pools", reclaim.unmovable:
        "none" => Unmovable::Anywhere, "two" => Unmovable::Apart, "block:1G" => Unmovable::Blocks(1 << 30);
        "the kernel's own pages are from anywhere, from the upper end of memory, or from blocks that have some"),
    key!("aim", reclaim.aim: "2" => 2, "4" => 4, "6" => 6, "8" => 8, "10" => 10, "12" => 12, "16" => 16;
        "percent of memory that the daemon aims at having free or in cache pages, once it is woken at a quarter of that"),
    key!("hints", place.hints: "ignored" => Hints::Ignored, "opt-out" => Hints::OptOut, "opt-in" => Hints::OptIn;
        "what a program asks for (madvise): ignored, no superpages where it wants none, or only where it wants them"),
    key!("stacks", place.stacks: "any" => Stacks::Any, "base" => Stacks::Base;
        "what is mapped for a stack (MAP_STACK) is as other memory, or as where base pages are asked for (Linux 6.7)"),
    key!("around", populate.around: "1" => 1, "2" => 2, "4" => 4, "8" => 8, "16" => 16, "32" => 32, "64" => 64,
        "128" => 128, "256" => 256, "512" => 512;
        "fault-around: base pages of the largest window that is prepopulated where pages are touched in order"),
    key!("resident", populate.resident: "page" => Resident::Page, "extent" => Resident::Extent;
        "what is mapped of a file's pages in memory when one is touched: it, or the largest whole extent around it"),
    key!("fit", place.fit: "first" => Fit::First, "next" => Fit::Next;
        "of the free extents of a size, the lowest is taken, or the next one round and round, so that what is freed is taken last"),
    key!("colours", place.colours: "0" => 0, "2" => 2, "4" => 4, "8" => 8, "16" => 16, "32" => 32, "64" => 64,
        "128" => 128, "256" => 256, "512" => 512, "1024" => 1024, "2048" => 2048, "4096" => 4096, "8192" => 8192,
        "16384" => 16384, "32768" => 32768, "65536" => 65536;
        "page colouring: single base pages get frames of their number modulo this, where one is free; 0: any frame"),
    key!("demote-on-evict", demote.on_evict: "on" => true, "off" => false;
        "demote a superpage of which a page is evicted, instead of evicting all of it"),
    key!("text", promote.text: "off" => false, "on" => true;
        "a background collapses programs' text too: pages of files that are executed and not written"),
    key!("zero-page", place.zero_page: "off" => ZeroPage::Off, "base" => ZeroPage::Base,
        "huge-split" => ZeroPage::HugeSplit, "huge" => ZeroPage::Huge;
        "reads of memory never written take none, but map a page of zeroes: base ones, or huge ones too, which a write splits or replaces"),
];
