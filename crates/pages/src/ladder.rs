//! The ladder of page sizes of a machine.

use crate::{PageSize, Vpn};
use core::fmt;

/// The most page sizes that a ladder holds: all powers of two from 4 KB to 1 GB.
pub const MAX_LEVELS: usize = 19;

/// An index into a [`Ladder`]: 0 is the base page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Level(pub u8);

impl Level {
    /// The base page's level.
    pub const BASE: Level = Level(0);

    /// The level as an array index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The next larger level, whether or not a given ladder has it.
    pub const fn up(self) -> Level {
        Level(self.0 + 1)
    }

    /// The next smaller level. Panics at the base page.
    pub const fn down(self) -> Level {
        Level(self.0 - 1)
    }
}

/// The page sizes in use, in ascending order, the base page first: 4K/2M/1G, or 8K/64K/512K/4M
/// (Navarro et al., section 6.1). Has from 1 to [`MAX_LEVELS`] sizes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ladder {
    sizes: [PageSize; MAX_LEVELS],
    len: u8,
}

/// Why a list of sizes does not make a ladder.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LadderError {
    /// No size at all.
    #[error("a ladder needs at least the base page's size")]
    Empty,
    /// More than [`MAX_LEVELS`] sizes.
    #[error("a ladder holds at most {MAX_LEVELS} sizes")]
    TooMany,
    /// A size does not exceed the one before it.
    #[error("sizes must ascend, and {0} does not")]
    NotAscending(PageSize),
    /// A size that was asked for is not a superpage size of the ladder.
    #[error("{0} is not a superpage size of this machine")]
    Unknown(PageSize),
}

impl Ladder {
    /// The sizes of x86-64, and of arm64 with base pages of 4 KB: 4K, 2M, 1G.
    pub const X86_64: Ladder = Ladder::of([PageSize::KB4, PageSize::MB2, PageSize::GB1]);

    /// The ladder of sizes known at compile time. Panics, then, unless they ascend from the base
    /// page's and there are at most [`MAX_LEVELS`].
    pub const fn of<const N: usize>(sizes: [PageSize; N]) -> Ladder {
        assert!(N > 0 && N <= MAX_LEVELS, "a ladder has from one to MAX_LEVELS sizes");
        let mut ladder = Ladder { sizes: [sizes[0]; MAX_LEVELS], len: N as u8 };
        let mut level = 1;
        while level < N {
            assert!(sizes[level - 1].shift() < sizes[level].shift(), "the sizes of a ladder ascend");
            ladder.sizes[level] = sizes[level];
            level += 1;
        }
        ladder
    }

    /// The ladder of `sizes`, which ascend from the base page's.
    ///
    /// # Errors
    /// There are no sizes or more than [`MAX_LEVELS`], or they do not ascend.
    pub fn new(sizes: &[PageSize]) -> Result<Ladder, LadderError> {
        let first = *sizes.first().ok_or(LadderError::Empty)?;
        if sizes.len() > MAX_LEVELS {
            return Err(LadderError::TooMany);
        }
        if let Some(pair) = sizes.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(LadderError::NotAscending(pair[1]));
        }
        let mut ladder = Ladder { sizes: [first; MAX_LEVELS], len: sizes.len() as u8 };
        ladder.sizes[..sizes.len()].copy_from_slice(sizes);
        Ok(ladder)
    }

    /// The ladder with the base page and only those of its superpage sizes that `superpages` lists,
    /// in any order.
    ///
    /// # Errors
    /// [`LadderError::Unknown`]: one of `superpages` is not a superpage size of this ladder.
    pub fn only(&self, superpages: &[PageSize]) -> Result<Ladder, LadderError> {
        if let Some(size) = superpages.iter().find(|size| !self.sizes()[1..].contains(size)) {
            return Err(LadderError::Unknown(*size));
        }
        let mut kept = *self;
        kept.len = 1;
        for size in &self.sizes()[1..] {
            if superpages.contains(size) {
                kept.sizes[kept.len as usize] = *size;
                kept.len += 1;
            }
        }
        Ok(kept)
    }

    /// All sizes, ascending.
    pub fn sizes(&self) -> &[PageSize] {
        &self.sizes[..self.len as usize]
    }

    /// The number of sizes, the base page's included.
    #[allow(clippy::len_without_is_empty, reason = "a ladder always has its base page")]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// All levels, ascending.
    pub fn levels(&self) -> impl DoubleEndedIterator<Item = Level> + ExactSizeIterator + use<> {
        (0..self.len).map(Level)
    }

    /// The size at `level`.
    pub fn size(&self, level: Level) -> PageSize {
        self.sizes()[level.index()]
    }

    /// The base page's size.
    pub fn base(&self) -> PageSize {
        self.sizes[0]
    }

    /// The level of the largest size.
    pub const fn largest(&self) -> Level {
        Level(self.len - 1)
    }

    /// The level of `size`, if the ladder has it.
    pub fn level(&self, size: PageSize) -> Option<Level> {
        self.sizes().iter().position(|s| *s == size).map(|i| Level(i as u8))
    }

    /// The base-two logarithm of the number of base pages in an extent at `level`.
    pub fn order(&self, level: Level) -> u32 {
        self.size(level).shift() - self.base().shift()
    }

    /// The number of base pages in an extent at `level`.
    pub fn pages(&self, level: Level) -> u64 {
        1 << self.order(level)
    }

    /// The number of extents of the next smaller level in one at `level`: R in section 4.9. Panics
    /// at the base page.
    pub fn ratio(&self, level: Level) -> u64 {
        1 << (self.order(level) - self.order(level.down()))
    }

    /// The base page that holds the byte at `address`.
    pub fn vpn(&self, address: u64) -> Vpn {
        Vpn(address >> self.base().shift())
    }
}

impl fmt::Debug for Ladder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, size) in self.sizes().iter().enumerate() {
            write!(f, "{}{size}", if i == 0 { "" } else { "/" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Ladder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ladder(sizes: &[u64]) -> Result<Ladder, LadderError> {
        let mut all = [PageSize::KB4; MAX_LEVELS + 1];
        for (slot, bytes) in all.iter_mut().zip(sizes) {
            *slot = PageSize::from_bytes(*bytes).unwrap();
        }
        Ladder::new(&all[..sizes.len()])
    }

    #[test]
    fn the_alpha_has_a_ratio_of_eight() {
        let alpha = ladder(&[8 << 10, 64 << 10, 512 << 10, 4 << 20]).unwrap();
        assert_eq!(alpha.largest(), Level(3));
        assert_eq!(alpha.pages(Level(3)), 512);
        assert!(alpha.levels().skip(1).all(|level| alpha.ratio(level) == 8));
        let only = alpha.only(&[PageSize::from_bytes(4 << 20).unwrap()]).unwrap();
        assert_eq!((only.len(), only.ratio(Level(1))), (2, 512));
    }

    #[test]
    fn a_bad_ladder_is_refused() {
        assert_eq!(Ladder::new(&[]), Err(LadderError::Empty));
        assert!(matches!(ladder(&[4096, 4096]), Err(LadderError::NotAscending(_))));
        let powers: [u64; MAX_LEVELS + 1] = core::array::from_fn(|power| 1 << power);
        assert_eq!(ladder(&powers), Err(LadderError::TooMany));
        assert_eq!(ladder(&powers[..MAX_LEVELS]).map(|ladder| ladder.len()), Ok(MAX_LEVELS));
        let two = ladder(&[4096, 2 << 20]).unwrap();
        assert!(matches!(two.only(&[PageSize::KB4]), Err(LadderError::Unknown(_))));
    }
}
