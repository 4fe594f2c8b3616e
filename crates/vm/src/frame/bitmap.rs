//! A set of small numbers with a fast search for its least member: a bitmap under 64-ary summaries.
//!
//! Layer 0 has a bit for each number. A bit of layer `k + 1` is set iff the word of layer `k` that
//! it stands for is not zero; the last layer is one word. All layers lie in one vector, so that the
//! set is one allocation.

use alloc::collections::TryReserveError;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Bits in a word, and words that a summary's word stands for.
const WORD: usize = u64::BITS as usize;

/// Enough layers for any length: 64 to the power of 11 exceeds 2^64.
const MAX_LAYERS: usize = 11;

/// A set of numbers below a fixed length.
#[derive(Clone)]
pub(crate) struct Bitmap {
    words: Vec<u64>,
    /// No word of layer 0 before this one has a bit set. It may lag behind; it only saves most
    /// searches a descent through the summaries.
    low: usize,
    /// The index in `words` of the first word of each layer.
    starts: [usize; MAX_LAYERS],
    layers: usize,
    len: usize,
    count: usize,
}

/// Sets are equal if they have the same length and members, wherever the next search would begin.
impl PartialEq for Bitmap {
    fn eq(&self, other: &Bitmap) -> bool {
        (self.len, self.count) == (other.len, other.count) && self.words == other.words
    }
}

impl Eq for Bitmap {}

/// The bits `first..=last` of a word.
const fn mask(first: usize, last: usize) -> u64 {
    (u64::MAX >> (WORD - 1 - last)) & (u64::MAX << first)
}

/// The words of layer 0 that hold the aligned group of `1 << order` numbers from `start`, and the
/// group's bits in each.
fn group(start: usize, order: u32) -> (Range<usize>, u64) {
    let (at, len) = (start / WORD, 1 << order);
    if len < WORD { (at..at + 1, mask(start % WORD, start % WORD + len - 1)) } else { (at..at + len / WORD, u64::MAX) }
}

/// The numbers of the bits of `word`, the one at index `at` of layer 0, ascending.
fn ones(at: usize, word: u64) -> impl Iterator<Item = usize> {
    let mut left = word;
    core::iter::from_fn(move || {
        let bit = (left != 0).then(|| at * WORD + left.trailing_zeros() as usize)?;
        left &= left - 1;
        Some(bit)
    })
}

impl Bitmap {
    /// The empty set of numbers below `len`.
    pub(crate) fn new(len: usize) -> Result<Bitmap, TryReserveError> {
        let mut starts = [0; MAX_LAYERS];
        let (mut total, mut layers, mut words) = (0, 0, len);
        loop {
            words = words.div_ceil(WORD).max(1);
            starts[layers] = total;
            total += words;
            layers += 1;
            if words == 1 {
                break;
            }
        }
        // That there is room is tried first, since an allocation of zeroes cannot fail; but an
        // operating system provides their memory when they are used.
        Vec::<u64>::new().try_reserve_exact(total)?;
        Ok(Bitmap { words: vec![0; total], starts, layers, len, count: 0, low: 0 })
    }

    /// The length: all members are below it.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The number of members.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The memory that the words take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }

    /// Whether `bit` is a member; false beyond the length.
    #[inline]
    pub(crate) fn contains(&self, bit: usize) -> bool {
        bit < self.len && self.words[bit / WORD] >> (bit % WORD) & 1 != 0
    }

    /// Adds `bit`, which is not a member. The summaries change only when a word ceases to be zero.
    /// Returns the word that holds it.
    #[inline]
    pub(crate) fn insert(&mut self, bit: usize) -> u64 {
        debug_assert!(bit < self.len && !self.contains(bit));
        let at = bit / WORD;
        let before = self.words[at];
        let after = before | 1 << (bit % WORD);
        self.words[at] = after;
        self.count += 1;
        self.low = self.low.min(at);
        if before == 0 {
            self.raise(at);
        }
        after
    }

    /// Removes the member `bit`. The summaries change only where a word becomes zero.
    #[inline]
    pub(crate) fn remove(&mut self, bit: usize) {
        debug_assert!(self.contains(bit));
        let at = bit / WORD;
        let after = self.words[at] & !(1 << (bit % WORD));
        self.words[at] = after;
        self.count -= 1;
        if after == 0 {
            self.lower(at);
        }
    }

    /// Removes the least member. Cost: usually one word; if that has to be searched for, one word
    /// per layer.
    #[inline]
    pub(crate) fn pop_first(&mut self) -> Option<usize> {
        if self.words[self.low] == 0 {
            self.low = self.first_word()?;
        }
        let at = self.low;
        let before = self.words[at];
        let after = before & before.wrapping_sub(1);
        self.words[at] = after;
        self.count -= 1;
        if after == 0 {
            self.lower(at);
        }
        Some(at * WORD + before.trailing_zeros() as usize)
    }

    /// The least word of layer 0 that is not zero.
    fn first_word(&self) -> Option<usize> {
        if self.count == 0 {
            return None;
        }
        Some(self.starts[1..self.layers].iter().rev().fold(0, |index, start| {
            let word = self.words[start + index];
            index * WORD + word.trailing_zeros() as usize
        }))
    }

    /// The least member from `from` on. Cost: at most two words per layer.
    pub(crate) fn next(&self, from: usize) -> Option<usize> {
        let mut index = from;
        for (layer, start) in self.starts[..self.layers].iter().enumerate() {
            let end = if layer + 1 < self.layers { self.starts[layer + 1] } else { self.words.len() };
            let word = self.words[..end].get(start + index / WORD)? & (u64::MAX << (index % WORD));
            if word != 0 {
                let found = index / WORD * WORD + word.trailing_zeros() as usize;
                return Some(
                    self.starts[..layer]
                        .iter()
                        .rev()
                        .fold(found, |index, start| index * WORD + self.words[start + index].trailing_zeros() as usize),
                );
            }
            index = index / WORD + 1;
        }
        None
    }

    /// Sets the summaries of word `at` of layer 0, which is no longer zero.
    fn raise(&mut self, at: usize) {
        let mut index = at;
        for start in &self.starts[1..self.layers] {
            let word = &mut self.words[start + index / WORD];
            let before = *word;
            *word |= 1 << (index % WORD);
            if before != 0 {
                return;
            }
            index /= WORD;
        }
    }

    /// Clears the summaries of word `at` of layer 0, which became zero.
    fn lower(&mut self, at: usize) {
        let mut index = at;
        for start in &self.starts[1..self.layers] {
            let word = &mut self.words[start + index / WORD];
            *word &= !(1 << (index % WORD));
            if *word != 0 {
                return;
            }
            index /= WORD;
        }
    }

    /// Adds the `len` (at least one) numbers from `start`, none of which is a member. Cost: one
    /// word per 64 of them.
    pub(crate) fn insert_run(&mut self, start: usize, len: usize) {
        debug_assert!(start + len <= self.len);
        self.count += len;
        self.low = self.low.min(start / WORD);
        let (mut first, mut last) = (start, start + len - 1);
        for start in &self.starts[..self.layers] {
            let (head, tail) = (first / WORD, last / WORD);
            let words = &mut self.words[start + head..=start + tail];
            for (i, word) in words.iter_mut().enumerate() {
                let from = if i == 0 { first % WORD } else { 0 };
                let to = if i == tail - head { last % WORD } else { WORD - 1 };
                *word |= mask(from, to);
            }
            (first, last) = (head, tail);
        }
    }

    /// Adds all of the aligned group of `1 << order` numbers from `start`, some of which may be
    /// members already.
    pub(crate) fn fill_group(&mut self, start: usize, order: u32) {
        self.count -= self.count_group(start, order);
        self.insert_run(start, 1 << order);
    }

    /// Removes the members of the aligned group of `1 << order` numbers from `start`: all are
    /// members.
    pub(crate) fn remove_group(&mut self, start: usize, order: u32) {
        debug_assert!(self.is_full(start, order));
        self.count -= 1 << order;
        self.zero_group(start, order);
    }

    /// Removes whatever members there are in the aligned group of `1 << order` numbers from
    /// `start`.
    pub(crate) fn clear_group(&mut self, start: usize, order: u32) {
        self.count -= self.count_group(start, order);
        self.zero_group(start, order);
    }

    /// Clears the bits of a group and the summaries of the words that become zero; the count is the
    /// caller's.
    fn zero_group(&mut self, start: usize, order: u32) {
        let mut len = 1 << order;
        let mut first = start;
        for start in &self.starts[..self.layers] {
            let at = start + first / WORD;
            if len < WORD {
                self.words[at] &= !mask(first % WORD, first % WORD + len - 1);
                if self.words[at] != 0 {
                    return;
                }
            } else {
                self.words[at..at + len / WORD].fill(0);
            }
            (first, len) = (first / WORD, (len / WORD).max(1));
        }
    }

    /// Whether all of the aligned group of `1 << order` numbers from `start` are members. Cost: at
    /// worst one word per 64 of them.
    pub(crate) fn is_full(&self, start: usize, order: u32) -> bool {
        let (at, len) = (start / WORD, 1 << order);
        if len < WORD {
            let all = mask(start % WORD, start % WORD + len - 1);
            self.words[at] & all == all
        } else {
            self.words[at..at + len / WORD].iter().all(|word| *word == u64::MAX)
        }
    }

    /// Whether each of the aligned group of `1 << order` numbers from `start` is a member of this
    /// set or of `other`, which has the same length.
    pub(crate) fn is_full_with(&self, other: &Bitmap, start: usize, order: u32) -> bool {
        let (words, all) = group(start, order);
        self.words[words.clone()].iter().zip(&other.words[words]).all(|(one, two)| (one | two) & all == all)
    }

    /// How many of the aligned group of `1 << order` numbers from `start` are members. Cost: one
    /// word per 64 of them.
    pub(crate) fn count_group(&self, start: usize, order: u32) -> usize {
        let (words, all) = group(start, order);
        self.words[words].iter().map(|word| (word & all).count_ones() as usize).sum()
    }

    /// The members of the aligned group of `1 << order` numbers from `start`, ascending. Cost: one
    /// word per 64 of them.
    pub(crate) fn iter_group(&self, start: usize, order: u32) -> impl Iterator<Item = usize> {
        let (words, all) = group(start, order);
        let first = words.start;
        self.words[words].iter().enumerate().flat_map(move |(i, word)| ones(first + i, word & all))
    }

    /// Whether none of the aligned group of `1 << order` numbers from `start` is a member. Cost:
    /// one word, in the layer where the group takes at most a word.
    #[inline]
    pub(crate) fn is_clear(&self, start: usize, order: u32) -> bool {
        let layer = order.saturating_sub(1) / WORD.ilog2();
        let below = layer * WORD.ilog2();
        let first = start >> below;
        let word = self.words[self.starts[layer as usize] + first / WORD];
        word >> (first % WORD) & mask(0, (1 << (order - below)) - 1) == 0
    }

    /// The members, ascending. Cost: one word per 64 numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        self.words[..self.len.div_ceil(WORD)].iter().enumerate().flat_map(|(i, word)| ones(i, *word))
    }

    /// The members that this set shares with `other` (of the same length), or all if there is no
    /// `other`. Ascending.
    pub(crate) fn iter_with(&self, other: Option<&Bitmap>) -> impl Iterator<Item = usize> {
        let words = self.words[..self.len.div_ceil(WORD)].iter().enumerate();
        words.flat_map(move |(i, word)| ones(i, word | other.map_or(0, |other| other.words[i])))
    }

    /// Checks the count, the length and each bit of each summary.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let set: usize = self.iter().map(|_| 1).sum();
        if set != self.count {
            return Err(format!("{set} bits are set, but the count is {}", self.count));
        }
        if let Some(bit) = self.iter().find(|bit| *bit >= self.len) {
            return Err(format!("bit {bit} is set in a set of length {}", self.len));
        }
        if let Some(early) = self.iter().next().filter(|bit| bit / WORD < self.low) {
            return Err(format!("bit {early} is set before word {}, where the search begins", self.low));
        }
        let ends = self.starts[1..self.layers].iter().copied().chain([self.words.len()]);
        let layers: Vec<&[u64]> =
            self.starts[..self.layers].iter().zip(ends).map(|(s, e)| &self.words[*s..e]).collect();
        for (k, pair) in layers.windows(2).enumerate() {
            for i in 0..pair[1].len() * WORD {
                let said = pair[1][i / WORD] & 1 << (i % WORD) != 0;
                if said != pair[0].get(i).is_some_and(|word| *word != 0) {
                    return Err(format!("summary {k} has {said} for word {i}, which is wrong"));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    #[test]
    fn the_least_member_is_found_through_the_summaries() {
        let mut bits = Bitmap::new(300_000).unwrap();
        assert_eq!((bits.pop_first(), bits.layers), (None, 4));
        let members = [63, 64, 4096, 299_999];
        for bit in members.iter().rev() {
            bits.insert(*bit);
        }
        assert!(bits.iter().eq(members));
        assert!(members.iter().all(|bit| bits.pop_first() == Some(*bit) && bits.validate().is_ok()));
        assert_eq!(bits.pop_first(), None);
        assert!(bits == Bitmap::new(300_000).unwrap());
    }

    #[test]
    fn an_empty_range_has_no_member() {
        let mut bits = Bitmap::new(0).unwrap();
        assert_eq!((bits.pop_first(), bits.iter().next(), bits.contains(0)), (None, None, false));
        bits.validate().unwrap();
    }

    #[test]
    fn a_group_may_be_all_there_is() {
        for order in [0, 1, 5, 6, 7, 12] {
            let mut bits = Bitmap::new(1 << order).unwrap();
            assert!(bits.is_clear(0, order));
            bits.insert((1 << order) - 1);
            assert!(!bits.is_clear(0, order), "{order}");
        }
    }

    #[test]
    fn two_sets_are_read_as_one() {
        for order in [0, 3, 6, 9] {
            let len = 2 << order;
            let [mut even, mut odd] = [0, 1].map(|from| {
                let mut bits = Bitmap::new(len).unwrap();
                (from..len).step_by(2).for_each(|bit| _ = bits.insert(bit));
                bits
            });
            assert!(even.iter_with(Some(&odd)).eq(0..len) && even.iter_with(None).eq(even.iter()));
            let second = 1 << order;
            assert!(even.is_full_with(&odd, 0, order) && odd.is_full_with(&even, second, order));
            even.clear_group(0, order);
            odd.remove(len - 1);
            assert!(!even.is_full_with(&odd, 0, order) && !odd.is_full_with(&even, second, order), "{order}");
        }
    }

    proptest! {
        #[test]
        fn groups_and_runs_are_as_in_a_plain_set(
            len in 1usize..9000,
            steps in prop::collection::vec((any::<usize>(), 0u32..13, 0u8..7), 1..60),
        ) {
            let mut bits = Bitmap::new(len).unwrap();
            let mut plain = BTreeSet::new();
            for (at, order, what) in steps {
                let (bit, group) = (at % len, 1usize << order);
                let start = bit & !(group - 1);
                let fits = start + group <= len;
                match what {
                    0 if plain.insert(bit) => {
                        bits.insert(bit);
                    }
                    1 if plain.remove(&bit) => bits.remove(bit),
                    2 => {
                        let end = (bit + group).min(len);
                        if plain.range(bit..end).next().is_none() {
                            bits.insert_run(bit, end - bit);
                            plain.extend(bit..end);
                        }
                    }
                    3 if fits && bits.is_full(start, order) => {
                        bits.remove_group(start, order);
                        plain.retain(|b| !(start..start + group).contains(b));
                    }
                    4 => prop_assert_eq!(bits.pop_first(), plain.pop_first()),
                    5 if fits => {
                        bits.fill_group(start, order);
                        plain.extend(start..start + group);
                    }
                    6 if fits => {
                        bits.clear_group(start, order);
                        plain.retain(|b| !(start..start + group).contains(b));
                    }
                    _ => {}
                }
                bits.validate().map_err(TestCaseError::fail)?;
                prop_assert!(bits.iter().eq(plain.iter().copied()));
                prop_assert_eq!(bits.next(bit), plain.range(bit..).next().copied());
                prop_assert_eq!(bits.next(0), plain.first().copied());
                prop_assert_eq!(bits.next(len), None);
                if fits {
                    let members = plain.range(start..start + group).count();
                    prop_assert_eq!(bits.is_full(start, order), members == group);
                    prop_assert_eq!(bits.is_clear(start, order), members == 0);
                    prop_assert_eq!(bits.count_group(start, order), members);
                    prop_assert!(bits.iter_group(start, order).eq(plain.range(start..start + group).copied()));
                }
            }
        }
    }
}
