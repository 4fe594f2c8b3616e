//! Counts that only grow, alone and by the hundred.

extern crate alloc;

use alloc::vec::Vec;

/// Counts that only grow during a run: two can be added, and what was counted between two moments
/// is a difference. `superpage-keys` derives it for structs of counts, in which fields that are
/// marked as anything else stay as they are in `self`.
pub trait Counts {
    /// Both together.
    #[must_use]
    fn plus(&self, other: &Self) -> Self;

    /// What was counted since `before`, an earlier state of this.
    #[must_use]
    fn since(&self, before: &Self) -> Self;

    /// Counts `more` too.
    fn add(&mut self, more: &Self)
    where
        Self: Sized,
    {
        *self = self.plus(more);
    }
}

macro_rules! numbers {
    ($($number:ty)*) => { $(
        impl Counts for $number {
            #[inline]
            fn plus(&self, other: &Self) -> Self {
                self + other
            }

            #[inline]
            fn since(&self, before: &Self) -> Self {
                self - before
            }
        }
    )* };
}

numbers!(u64 u128 f64);

impl<T: Counts, const N: usize> Counts for [T; N] {
    fn plus(&self, other: &Self) -> Self {
        core::array::from_fn(|at| self[at].plus(&other[at]))
    }

    fn since(&self, before: &Self) -> Self {
        core::array::from_fn(|at| self[at].since(&before[at]))
    }
}

/// What is counted by a key, in an order that stays.
impl<K: Clone, T: Counts> Counts for Vec<(K, T)> {
    fn plus(&self, other: &Self) -> Self {
        self.iter().zip(other).map(|((key, count), (_, more))| (key.clone(), count.plus(more))).collect()
    }

    fn since(&self, before: &Self) -> Self {
        self.iter().zip(before).map(|((key, count), (_, then))| (key.clone(), count.since(then))).collect()
    }
}

/// What is counted or not, all the time.
impl<T: Counts + Clone> Counts for Option<T> {
    fn plus(&self, other: &Self) -> Self {
        self.as_ref().map(|count| other.as_ref().map_or_else(|| count.clone(), |more| count.plus(more)))
    }

    fn since(&self, before: &Self) -> Self {
        self.as_ref().map(|count| before.as_ref().map_or_else(|| count.clone(), |then| count.since(then)))
    }
}
