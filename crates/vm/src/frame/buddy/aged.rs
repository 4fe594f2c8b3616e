//! The maximal free extents of one size that have cache pages: the tail of that size's free list,
//! in the order in which they became free.

use crate::frame::bitmap::Bitmap;
use alloc::collections::{BTreeSet, TryReserveError};
use alloc::format;
use alloc::string::String;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// A set of extents of one size, by index, each with a stamp of when it became free.
#[derive(Clone)]
pub(super) struct Aged {
    bits: Bitmap,
    /// The stamp of each member, to find it in the order.
    stamps: HashMap<usize, u64, FxBuildHasher>,
    /// The stamp and the index of each member. The pieces of one split share a stamp.
    order: BTreeSet<(u64, usize)>,
}

impl Aged {
    /// The empty set of extents with an index below `len`.
    pub(super) fn new(len: usize) -> Result<Aged, TryReserveError> {
        Ok(Aged { bits: Bitmap::new(len)?, stamps: HashMap::default(), order: BTreeSet::new() })
    }

    /// The members, as a bitmap.
    #[inline]
    pub(super) fn bits(&self) -> &Bitmap {
        &self.bits
    }

    /// The members' indices, oldest first.
    pub(super) fn by_age(&self) -> impl Iterator<Item = usize> {
        self.order.iter().map(|(_, index)| *index)
    }

    /// The memory that the set takes, in bytes, without the unused room in the nodes of the order.
    pub(super) fn bytes(&self) -> usize {
        let stamps = self.stamps.allocation_size();
        self.bits.bytes() + stamps + self.order.len() * size_of::<(u64, usize)>()
    }

    /// Adds `index`, which is no member.
    pub(super) fn insert(&mut self, index: usize, stamp: u64) {
        self.bits.insert(index);
        self.stamps.insert(index, stamp);
        self.order.insert((stamp, index));
    }

    /// Removes the member `index`. Returns its stamp.
    pub(super) fn remove(&mut self, index: usize) -> u64 {
        self.bits.remove(index);
        let stamp = self.stamps.remove(&index).expect("each member has its stamp");
        self.order.remove(&(stamp, index));
        stamp
    }

    /// Removes the members of the aligned group of `1 << order` from `first`. Returns whether there
    /// were any.
    pub(super) fn remove_group(&mut self, first: usize, order: u32) -> bool {
        let before = self.order.len();
        for index in self.bits.iter_group(first, order) {
            let stamp = self.stamps.remove(&index).expect("each member has its stamp");
            self.order.remove(&(stamp, index));
        }
        self.bits.clear_group(first, order);
        self.order.len() < before
    }

    /// Removes the oldest member, the lowest if several have its stamp. Returns its index and its
    /// stamp.
    pub(super) fn pop_oldest(&mut self) -> Option<(usize, u64)> {
        let (stamp, index) = self.order.pop_first()?;
        self.stamps.remove(&index);
        self.bits.remove(index);
        Some((index, stamp))
    }

    /// Checks that the bitmap, the stamps and the order have the same members, none with a stamp
    /// after `now`.
    pub(super) fn validate(&self, now: u64) -> Result<(), String> {
        self.bits.validate()?;
        if (self.stamps.len(), self.order.len()) != (self.bits.count(), self.bits.count()) {
            let (bits, stamps, order) = (self.bits.count(), self.stamps.len(), self.order.len());
            return Err(format!("{bits} bits, {stamps} stamps, and {order} members in order"));
        }
        for (stamp, index) in &self.order {
            if self.stamps.get(index) != Some(stamp) || !self.bits.contains(*index) || *stamp > now {
                return Err(format!("extent {index} is in the order with stamp {stamp} (now {now}), and nowhere else"));
            }
        }
        Ok(())
    }
}
