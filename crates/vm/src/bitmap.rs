//! A set of small numbers that finds its least member fast: a bitmap, and over it summaries, 64-ary.
//!
//! Layer 0 has a bit for each number. A bit of layer `k + 1` is set iff the word of layer `k` that it stands for is not
//! zero; the last layer is one word. All layers lie in one vector, so that the set is one allocation.

use alloc::collections::TryReserveError;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Bits in a word, and words that a summary's word stands for.
const WORD: usize = u64::BITS as usize;

/// Enough layers for any length: 64 to the power of 11 exceeds 2^64.
const MAX_LAYERS: usize = 11;

/// A set of numbers below a fixed length.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Bitmap {
    words: Vec<u64>,
    /// The index in `words` of the first word of each layer.
    starts: [usize; MAX_LAYERS],
    layers: usize,
    len: usize,
    count: usize,
}

/// The bits `first..=last` of a word.
const fn mask(first: usize, last: usize) -> u64 {
    (u64::MAX >> (WORD - 1 - last)) & (u64::MAX << first)
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
        let mut all = Vec::new();
        all.try_reserve_exact(total)?;
        all.resize(total, 0);
        Ok(Bitmap { words: all, starts, layers, len, count: 0 })
    }

    /// Members are below this.
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

    /// Whether `bit` is a member.
    #[inline]
    pub(crate) fn contains(&self, bit: usize) -> bool {
        self.words[bit / WORD] & 1 << (bit % WORD) != 0
    }

    /// Adds `bit`, which is no member. The summaries change only where a word leaves zero.
    #[inline]
    pub(crate) fn insert(&mut self, bit: usize) {
        debug_assert!(bit < self.len && !self.contains(bit));
        self.count += 1;
        let mut index = bit;
        for start in &self.starts[..self.layers] {
            let word = &mut self.words[start + index / WORD];
            let before = *word;
            *word |= 1 << (index % WORD);
            if before != 0 {
                return;
            }
            index /= WORD;
        }
    }

    /// Removes the member `bit`. The summaries change only where a word becomes zero.
    #[inline]
    pub(crate) fn remove(&mut self, bit: usize) {
        debug_assert!(self.contains(bit));
        self.count -= 1;
        let mut index = bit;
        for start in &self.starts[..self.layers] {
            let word = &mut self.words[start + index / WORD];
            *word &= !(1 << (index % WORD));
            if *word != 0 {
                return;
            }
            index /= WORD;
        }
    }

    /// Adds the `len` (at least one) numbers from `start`, none of which is a member. Cost: a word for 64 of them.
    pub(crate) fn insert_run(&mut self, start: usize, len: usize) {
        debug_assert!(start + len <= self.len);
        self.count += len;
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

    /// Removes the members of an aligned group: `len`, a power of two, from a multiple of it; all are members.
    pub(crate) fn remove_group(&mut self, start: usize, len: usize) {
        debug_assert!(self.is_full(start, len));
        self.count -= len;
        let (mut first, mut len) = (start, len);
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

    /// Whether all of an aligned group are members. Cost: a word for 64 of them at worst.
    #[inline]
    pub(crate) fn is_full(&self, start: usize, len: usize) -> bool {
        let at = start / WORD;
        if len < WORD {
            let all = mask(start % WORD, start % WORD + len - 1);
            self.words[at] & all == all
        } else {
            self.words[at..at + len / WORD].iter().all(|word| *word == u64::MAX)
        }
    }

    /// Whether none of an aligned group is a member. Cost: one word, of the layer where the group is at most a word.
    #[inline]
    pub(crate) fn is_clear(&self, start: usize, len: usize) -> bool {
        let (mut first, mut len, mut layer) = (start, len, 0);
        while len > WORD {
            (first, len, layer) = (first / WORD, len / WORD, layer + 1);
        }
        self.words[self.starts[layer] + first / WORD] & mask(first % WORD, first % WORD + len - 1) == 0
    }

    /// The least member. Cost: a word of each layer.
    #[inline]
    pub(crate) fn first(&self) -> Option<usize> {
        if self.count == 0 {
            return None;
        }
        Some(self.starts[..self.layers].iter().rev().fold(0, |index, start| {
            let word = self.words[start + index];
            index * WORD + word.trailing_zeros() as usize
        }))
    }

    /// The members, ascending. Cost: a word for 64 numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        self.words[..self.len.div_ceil(WORD)].iter().enumerate().flat_map(|(i, word)| {
            let mut left = *word;
            core::iter::from_fn(move || {
                let bit = (left != 0).then(|| i * WORD + left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(bit)
            })
        })
    }

    /// Checks the count, the length and each bit of each summary.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let set: usize = self.iter().map(|_| 1).sum();
        if set != self.count {
            return Err(format!("{set} bits are set, and the count says {}", self.count));
        }
        if let Some(bit) = self.iter().find(|bit| *bit >= self.len) {
            return Err(format!("bit {bit} is set, of only {}", self.len));
        }
        let ends = self.starts[1..self.layers].iter().copied().chain([self.words.len()]);
        let layers: Vec<&[u64]> =
            self.starts[..self.layers].iter().zip(ends).map(|(s, e)| &self.words[*s..e]).collect();
        for (k, pair) in layers.windows(2).enumerate() {
            for i in 0..pair[1].len() * WORD {
                let said = pair[1][i / WORD] & 1 << (i % WORD) != 0;
                if said != pair[0].get(i).is_some_and(|word| *word != 0) {
                    return Err(format!("summary {k} says {said} of word {i}, which is the contrary"));
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
    fn the_least_member_is_found_through_three_layers() {
        let mut bits = Bitmap::new(300_000).unwrap();
        assert_eq!((bits.first(), bits.layers), (None, 4));
        for bit in [299_999, 4096, 64, 63] {
            bits.insert(bit);
            assert_eq!(bits.first(), Some(bit));
        }
        assert!(bits.iter().eq([63, 64, 4096, 299_999]));
        bits.validate().unwrap();
    }

    #[test]
    fn an_empty_range_has_no_member() {
        let bits = Bitmap::new(0).unwrap();
        assert_eq!((bits.first(), bits.iter().next(), bits.len()), (None, None, 0));
        bits.validate().unwrap();
    }

    proptest! {
        #[test]
        fn groups_and_runs_are_as_in_a_plain_set(
            len in 1usize..9000,
            steps in prop::collection::vec((any::<usize>(), 0u32..13, 0u8..4), 1..60),
        ) {
            let mut bits = Bitmap::new(len).unwrap();
            let mut plain = BTreeSet::new();
            for (at, order, what) in steps {
                let (bit, group) = (at % len, 1usize << order);
                let start = bit & !(group - 1);
                let fits = start + group <= len;
                match what {
                    0 if plain.insert(bit) => bits.insert(bit),
                    1 if plain.remove(&bit) => bits.remove(bit),
                    2 => {
                        let end = (bit + group).min(len);
                        if plain.range(bit..end).next().is_none() {
                            bits.insert_run(bit, end - bit);
                            plain.extend(bit..end);
                        }
                    }
                    3 if fits && bits.is_full(start, group) => {
                        bits.remove_group(start, group);
                        plain.retain(|b| !(start..start + group).contains(b));
                    }
                    _ => {}
                }
                bits.validate().map_err(TestCaseError::fail)?;
                prop_assert!(bits.iter().eq(plain.iter().copied()));
                prop_assert_eq!(bits.first(), plain.first().copied());
                if fits {
                    let members = plain.range(start..start + group).count();
                    prop_assert_eq!(bits.is_full(start, group), members == group);
                    prop_assert_eq!(bits.is_clear(start, group), members == 0);
                }
            }
        }
    }
}
