//! Set-associative structures of tags, whose owner remembers where each tag was put.
//!
//! TLBs, page-walk caches and line caches are all this. Each caches *records* (a page-table entry, a line of a table)
//! that exist in the simulator anyway, and a record remembers the way that it was last given. So a lookup compares one
//! tag, whatever the number of ways, and never searches: what the record remembers is only a hint, the tag decides.
//!
//! Several structures share a [`Bank`]: all their tags stand in one array, and so does what LRU of few ways and
//! round-robin keep, one word a set. A [`Shape`] says which part is whose.

use crate::replacement::{Order, PackedLru, Replacement};

/// No record has this number.
const EMPTY: u32 = u32::MAX;

/// The state of all structures of a bank.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bank {
    tags: Vec<u32>,
    /// LRU permutations and round-robin pointers.
    words: Vec<u64>,
    others: Vec<Other>,
}

/// The state of a structure whose policy keeps more than a word a set.
#[derive(Clone, Debug)]
struct Other {
    order: Order,
    /// The number of empty places, kept only for policies that must be told of them.
    vacant: usize,
}

/// Where the replacement state is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Kept {
    #[default]
    Packed,
    RoundRobin,
    Other,
}

/// One structure of a bank.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shape {
    /// Its first tag.
    tags: u32,
    /// Its first word, or its index among the others.
    words: u32,
    ways: u32,
    sets: u32,
    /// `sets - 1` if that is a mask, else `u32::MAX`: then the index is a remainder.
    mask: u32,
    lru: PackedLru,
    kept: Kept,
}

impl Shape {
    /// The set of the page (or line) with this number.
    #[inline(always)]
    pub(crate) fn set_of(&self, number: u64) -> usize {
        if self.mask != u32::MAX { number as usize & self.mask as usize } else { self.remainder(number) }
    }

    #[cold]
    fn remainder(&self, number: u64) -> usize {
        (number % self.sets as u64) as usize
    }

    /// The place of a way among all tags of the bank.
    #[inline(always)]
    fn at(&self, set: usize, way: usize) -> usize {
        self.tags as usize + set * self.ways as usize + way
    }
}

impl Bank {
    /// Adds an empty structure of `sets` x `ways` entries, both at least 1.
    pub(crate) fn add(&mut self, sets: usize, ways: usize, policy: Replacement) -> Shape {
        let mut shape = Shape {
            tags: self.tags.len() as u32,
            words: self.words.len() as u32,
            ways: ways as u32,
            sets: sets as u32,
            mask: if sets.is_power_of_two() { sets as u32 - 1 } else { u32::MAX },
            ..Shape::default()
        };
        self.tags.resize(self.tags.len() + sets * ways, EMPTY);
        match policy {
            Replacement::Lru if ways <= PackedLru::WAYS => {
                shape.lru = PackedLru::new(ways);
                self.words.resize(self.words.len() + sets, shape.lru.initial());
            }
            Replacement::RoundRobin => {
                shape.kept = Kept::RoundRobin;
                self.words.resize(self.words.len() + sets, 0);
            }
            _ => {
                shape.kept = Kept::Other;
                shape.words = self.others.len() as u32;
                let order = Order::new(policy, sets, ways);
                let vacant = if order.prefers_vacant() { sets * ways } else { 0 };
                self.others.push(Other { order, vacant });
            }
        }
        shape
    }

    /// The bank as its parts, for a stretch of work.
    #[inline(always)]
    pub(crate) fn parts(&mut self) -> Parts<'_> {
        Parts { tags: &mut self.tags, words: &mut self.words, others: &mut self.others }
    }

    /// Whether the way of the set holds `tag`.
    pub(crate) fn holds(&self, shape: &Shape, set: usize, way: usize, tag: u32) -> bool {
        self.tags[shape.at(set, way)] == tag
    }

    /// Drops what the way holds.
    pub(crate) fn invalidate(&mut self, shape: &Shape, set: usize, way: usize) {
        self.parts().invalidate(shape, set, way);
    }

    /// Drops everything a structure holds. A round-robin pointer and a random generator stay where they are.
    pub(crate) fn flush(&mut self, shape: &Shape) {
        let (sets, ways) = (shape.sets as usize, shape.ways as usize);
        self.tags[shape.tags as usize..][..sets * ways].fill(EMPTY);
        match shape.kept {
            Kept::Packed => self.words[shape.words as usize..][..sets].fill(shape.lru.initial()),
            Kept::RoundRobin => {}
            Kept::Other => {
                let other = &mut self.others[shape.words as usize];
                other.order.flush(sets, ways);
                other.vacant = if other.order.prefers_vacant() { sets * ways } else { 0 };
            }
        }
    }

    /// All places of a structure that hold something: set, way, tag.
    pub(crate) fn entries(&self, shape: &Shape) -> impl Iterator<Item = (usize, usize, u32)> {
        let ways = shape.ways as usize;
        let tags = &self.tags[shape.tags as usize..][..shape.sets as usize * ways];
        let places = tags.iter().enumerate().filter(|(_, tag)| **tag != EMPTY);
        places.map(move |(at, tag)| (at / ways, at % ways, *tag))
    }

    /// Checks the replacement state and the count of empty places.
    pub(crate) fn validate(&self, shape: &Shape) -> Result<(), String> {
        let (sets, ways) = (shape.sets as usize, shape.ways as usize);
        match shape.kept {
            Kept::Packed | Kept::RoundRobin => {
                for (set, word) in self.words[shape.words as usize..][..sets].iter().enumerate() {
                    let sound = match shape.kept {
                        Kept::Packed => shape.lru.is_sound(*word),
                        _ => *word < shape.ways as u64,
                    };
                    if !sound {
                        return Err(format!("the replacement state of set {set} is impossible: {word:#x}"));
                    }
                }
                Ok(())
            }
            Kept::Other => {
                let other = &self.others[shape.words as usize];
                let empty = sets * ways - self.entries(shape).count();
                if other.order.prefers_vacant() && other.vacant != empty {
                    return Err(format!("{} places are counted empty and {empty} are", other.vacant));
                }
                other.order.validate(sets, ways, |set, way| self.tags[shape.at(set, way)] != EMPTY)
            }
        }
    }
}

/// A bank lent for a stretch of work, as slices that need not be found again.
pub(crate) struct Parts<'a> {
    tags: &'a mut [u32],
    words: &'a mut [u64],
    others: &'a mut [Other],
}

impl Parts<'_> {
    /// Whether the way of the set holds `tag`.
    #[inline(always)]
    pub(crate) fn holds(&self, shape: &Shape, set: usize, way: usize, tag: u32) -> bool {
        self.tags[shape.at(set, way)] == tag
    }

    /// A hit on the way.
    #[inline(always)]
    pub(crate) fn touch(&mut self, shape: &Shape, set: usize, way: usize) {
        match shape.kept {
            Kept::Packed => {
                let word = &mut self.words[shape.words as usize + set];
                *word = PackedLru::touched(*word, way);
            }
            Kept::RoundRobin => {}
            Kept::Other => self.others[shape.words as usize].order.touch(set, way),
        }
    }

    /// Puts `tag` into the set; returns the way, and what was there or [`Parts::NOTHING`].
    #[inline(always)]
    pub(crate) fn fill(&mut self, shape: &Shape, set: usize, tag: u32) -> (usize, u32) {
        let way = match shape.kept {
            Kept::Packed => {
                let word = &mut self.words[shape.words as usize + set];
                let way = shape.lru.oldest(*word);
                *word = shape.lru.rotated(*word);
                way
            }
            Kept::RoundRobin => {
                let word = &mut self.words[shape.words as usize + set];
                let way = *word;
                *word = if way + 1 == shape.ways as u64 { 0 } else { way + 1 };
                way as usize
            }
            Kept::Other => self.choose(shape, set),
        };
        (way, std::mem::replace(&mut self.tags[shape.at(set, way)], tag))
    }

    /// What [`Parts::fill`] returns for an empty place.
    pub(crate) const NOTHING: u32 = EMPTY;

    #[inline(never)]
    fn choose(&mut self, shape: &Shape, set: usize) -> usize {
        let other = &mut self.others[shape.words as usize];
        if other.vacant > 0 {
            let first = shape.at(set, 0);
            let tags = &self.tags[first..first + shape.ways as usize];
            if let Some(way) = tags.iter().position(|tag| *tag == EMPTY) {
                other.vacant -= 1;
                other.order.touch(set, way);
                return way;
            }
        }
        other.order.victim(set)
    }

    /// Drops what the way holds.
    pub(crate) fn invalidate(&mut self, shape: &Shape, set: usize, way: usize) {
        self.tags[shape.at(set, way)] = EMPTY;
        match shape.kept {
            Kept::Packed => {
                let word = &mut self.words[shape.words as usize + set];
                *word = shape.lru.demoted(*word, way);
            }
            Kept::RoundRobin => {}
            Kept::Other => {
                let other = &mut self.others[shape.words as usize];
                other.order.invalidate(set, way);
                other.vacant += other.order.prefers_vacant() as usize;
            }
        }
    }
}
