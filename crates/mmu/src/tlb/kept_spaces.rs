//! The address spaces of which a TLB keeps entries: a fixed number, those that were current last.
//! When another space comes, the entries of the space that was current longest ago are dropped.
//! Tatar et al., TLB;DR, USENIX Security 2022, section 4.5: four in the second level of Skylake.

/// The spaces of one TLB, the current one first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KeptSpaces {
    most: usize,
    spaces: Vec<u32>,
}

impl KeptSpaces {
    /// Keeps at most `most` spaces, at least one; space 0 is current.
    pub(crate) fn new(most: usize) -> KeptSpaces {
        KeptSpaces { most, spaces: vec![0] }
    }

    /// Switches to a space. Returns the one whose entries are dropped, if any.
    pub(crate) fn switch(&mut self, space: u32) -> Option<u32> {
        match self.spaces.iter().position(|kept| *kept == space) {
            Some(at) => self.spaces[..=at].rotate_right(1),
            None => self.spaces.insert(0, space),
        }
        if self.spaces.len() > self.most { self.spaces.pop() } else { None }
    }

    /// Whether there may be entries of this space.
    pub(crate) fn keep(&self, space: u32) -> bool {
        self.spaces.contains(&space)
    }
}
