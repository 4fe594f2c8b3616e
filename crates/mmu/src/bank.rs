//! Set-associative structures of tags, whose owner remembers where each tag was put.
//!
//! TLBs, page-walk caches and line caches are all this. Each caches *records* (a page-table entry, a line of a table)
//! that exist in the simulator anyway, and a record remembers the way that it was last given. So a lookup compares one
//! tag, whatever the number of ways, and never searches: what the record remembers is only a hint, the tag decides.
//!
//! Several structures share a [`Bank`], whose tags stand in one array. A [`Shape`] says which part is whose.

use crate::replacement::{Journal, Order, PackedLru, Replacement};

/// No record has this number.
const EMPTY: u32 = u32::MAX;

/// The state of all structures of a bank.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bank {
    tags: Vec<u32>,
    /// LRU permutations and round-robin pointers, one word a set.
    words: Vec<u64>,
    journals: Vec<Journal>,
    others: Vec<Other>,
}

/// The state of a structure with any other policy.
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
    Journal,
    Other,
}

/// One structure of a bank.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shape {
    /// Its first tag.
    tags: u32,
    ways: u32,
    /// `sets - 1` if that is a mask, else `u32::MAX`: then the index is a remainder.
    mask: u32,
    /// Its first word, or its index among the journals or the others.
    state: u32,
    lru: PackedLru,
    sets: u32,
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

    /// The first place of a set among all tags of the bank.
    #[inline(always)]
    fn first(&self, set: usize) -> usize {
        self.tags as usize + set * self.ways as usize
    }
}

impl Bank {
    /// Adds an empty structure of `sets` x `ways` entries, both at least 1.
    pub(crate) fn add(&mut self, sets: usize, ways: usize, policy: Replacement) -> Shape {
        let mut shape = Shape {
            tags: self.tags.len() as u32,
            ways: ways as u32,
            mask: if sets.is_power_of_two() { sets as u32 - 1 } else { u32::MAX },
            state: self.words.len() as u32,
            lru: PackedLru::default(),
            sets: sets as u32,
            kept: Kept::Packed,
        };
        match policy {
            Replacement::Lru if ways <= PackedLru::WAYS => {
                shape.lru = PackedLru::new(ways);
                self.words.resize(self.words.len() + sets, shape.lru.initial());
            }
            Replacement::RoundRobin => {
                shape.kept = Kept::RoundRobin;
                self.words.resize(self.words.len() + sets, 0);
            }
            Replacement::Lru if sets == 1 => {
                (shape.kept, shape.state) = (Kept::Journal, self.journals.len() as u32);
                self.journals.push(Journal::new(ways));
            }
            _ => {
                (shape.kept, shape.state) = (Kept::Other, self.others.len() as u32);
                let order = Order::new(policy, sets, ways);
                let vacant = if order.prefers_vacant() { sets * ways } else { 0 };
                self.others.push(Other { order, vacant });
            }
        }
        self.tags.resize(self.tags.len() + sets * ways, EMPTY);
        shape
    }

    /// The bank as its parts, for a stretch of work.
    #[inline(always)]
    pub(crate) fn parts(&mut self) -> Parts<'_> {
        Parts { tags: &mut self.tags, words: &mut self.words, journals: &mut self.journals, others: &mut self.others }
    }

    /// Drops `tag` from the set, if it is there; `way` is what its record remembers.
    pub(crate) fn forget(&mut self, shape: &Shape, set: usize, way: usize, tag: u32) -> bool {
        self.parts().forget(shape, set, way, tag)
    }

    /// Drops everything a structure holds. A round-robin pointer and a random generator stay where they are.
    pub(crate) fn flush(&mut self, shape: &Shape) {
        let (sets, state) = (shape.sets as usize, shape.state as usize);
        self.tags[shape.first(0)..shape.first(sets)].fill(EMPTY);
        match shape.kept {
            Kept::Packed => self.words[state..state + sets].fill(shape.lru.initial()),
            Kept::RoundRobin => {}
            Kept::Journal => self.journals[state].flush(),
            Kept::Other => {
                let other = &mut self.others[state];
                other.order.flush(sets, shape.ways as usize);
                other.vacant = if other.order.prefers_vacant() { sets * shape.ways as usize } else { 0 };
            }
        }
    }

    /// All that a structure holds: set, way, tag.
    pub(crate) fn entries(&self, shape: &Shape) -> impl Iterator<Item = (usize, usize, u32)> {
        let ways = shape.ways as usize;
        let tags = &self.tags[shape.first(0)..shape.first(shape.sets as usize)];
        let places = tags.iter().enumerate().filter(|(_, tag)| **tag != EMPTY);
        places.map(move |(at, tag)| (at / ways, at % ways, *tag))
    }

    /// Whether the way of the set holds `tag`.
    pub(crate) fn holds(&self, shape: &Shape, set: usize, way: usize, tag: u32) -> bool {
        self.tags[shape.first(set) + way] == tag
    }

    /// Checks that no tag is in a set twice, and the replacement state.
    pub(crate) fn validate(&self, shape: &Shape) -> Result<(), String> {
        let (sets, ways, state) = (shape.sets as usize, shape.ways as usize, shape.state as usize);
        for set in 0..sets {
            let tags = &self.tags[shape.first(set)..][..ways];
            let held: Vec<u32> = tags.iter().copied().filter(|tag| *tag != EMPTY).collect();
            if (1..held.len()).any(|at| held[..at].contains(&held[at])) {
                return Err(format!("set {set} holds a tag twice: {held:x?}"));
            }
            let sound = match shape.kept {
                Kept::Packed => shape.lru.is_sound(self.words[state + set]),
                Kept::RoundRobin => self.words[state + set] < shape.ways as u64,
                Kept::Journal => self.journals[state].is_sound(|way| tags[way] != EMPTY),
                Kept::Other => true,
            };
            if !sound {
                return Err(format!("the replacement state of set {set} is impossible"));
            }
        }
        if shape.kept == Kept::Other {
            let other = &self.others[state];
            let empty = sets * ways - self.entries(shape).count();
            if other.order.prefers_vacant() && other.vacant != empty {
                return Err(format!("{} places are counted empty and {empty} are", other.vacant));
            }
            other.order.validate(sets, ways)?;
        }
        Ok(())
    }
}

/// A bank lent for a stretch of work, as slices that need not be found again.
pub(crate) struct Parts<'a> {
    tags: &'a mut [u32],
    words: &'a mut [u64],
    journals: &'a mut [Journal],
    others: &'a mut [Other],
}

/// What a lookup found and did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The tag was there.
    Hit,
    /// The tag is not there.
    Missed,
    /// The tag was not there and now is.
    Filled {
        /// The way, for its record to remember.
        way: usize,
        /// What was in the place, or [`Parts::NOTHING`].
        evicted: u32,
    },
}

impl Parts<'_> {
    /// What is in an empty place.
    pub(crate) const NOTHING: u32 = EMPTY;

    /// Looks `tag` up in the set of `number` and counts a hit as a use; `way` is what its record remembers. If it is not
    /// there and `fill` is set, it is put there, for all structures are filled by what misses in them.
    #[inline(always)]
    pub(crate) fn access(&mut self, shape: &Shape, number: u64, way: usize, tag: u32, fill: bool) -> Outcome {
        let set = shape.set_of(number);
        let first = shape.first(set);
        if self.tags[first + way] == tag {
            match shape.kept {
                Kept::Packed => {
                    let word = &mut self.words[shape.state as usize + set];
                    *word = PackedLru::touched(*word, way);
                }
                Kept::RoundRobin => {}
                Kept::Journal | Kept::Other => self.touch(shape, set, way),
            }
            return Outcome::Hit;
        }
        if !fill {
            return Outcome::Missed;
        }
        let way = if shape.kept == Kept::Packed {
            let word = &mut self.words[shape.state as usize + set];
            let oldest = shape.lru.oldest(*word);
            *word = shape.lru.rotated(*word);
            oldest
        } else {
            self.choose(shape, set)
        };
        Outcome::Filled { way, evicted: std::mem::replace(&mut self.tags[first + way], tag) }
    }

    /// A use, where the state is no word. Kept out of line, as [`Parts::choose`] is, for the sake of the common case.
    #[inline(never)]
    fn touch(&mut self, shape: &Shape, set: usize, way: usize) {
        match shape.kept {
            Kept::Packed | Kept::RoundRobin => {}
            Kept::Journal => self.journals[shape.state as usize].touch(way),
            Kept::Other => self.others[shape.state as usize].order.touch(set, way),
        }
    }

    /// The way to fill, by any policy but LRU of few ways.
    #[inline(never)]
    fn choose(&mut self, shape: &Shape, set: usize) -> usize {
        let state = shape.state as usize;
        match shape.kept {
            Kept::Packed => shape.lru.oldest(self.words[state + set]),
            Kept::RoundRobin => {
                let word = &mut self.words[state + set];
                let way = *word;
                *word = if way + 1 == shape.ways as u64 { 0 } else { way + 1 };
                way as usize
            }
            Kept::Journal => self.journals[state].victim(),
            Kept::Other => {
                let other = &mut self.others[state];
                let tags = &self.tags[shape.first(set)..][..shape.ways as usize];
                let vacant = if other.vacant == 0 { None } else { tags.iter().position(|tag| *tag == EMPTY) };
                match vacant {
                    Some(way) => {
                        other.vacant -= 1;
                        other.order.touch(set, way);
                        way
                    }
                    None => other.order.victim(set),
                }
            }
        }
    }

    /// Drops `tag` from the set, if it is there; `way` is what its record remembers.
    pub(crate) fn forget(&mut self, shape: &Shape, set: usize, way: usize, tag: u32) -> bool {
        let (place, state) = (shape.first(set) + way, shape.state as usize);
        if self.tags[place] != tag {
            return false;
        }
        self.tags[place] = EMPTY;
        match shape.kept {
            Kept::Packed => self.words[state + set] = shape.lru.demoted(self.words[state + set], way),
            Kept::RoundRobin => {}
            Kept::Journal => self.journals[state].invalidate(way),
            Kept::Other => {
                let other = &mut self.others[state];
                other.order.invalidate(set, way);
                other.vacant += other.order.prefers_vacant() as usize;
            }
        }
        true
    }
}
