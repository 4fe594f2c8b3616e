//! Page colouring (Kessler and Hill, ACM TOCS 1992; the pages' queues by colour in FreeBSD 4;
//! Navarro et al., section 6.3): base pages in frames that a physically indexed cache holds
//! elsewhere than those of their neighbours.
//!
//! The colour of a frame, and that of a page, is its number modulo the number of colours. To find a
//! free frame of a colour, the plain extents of each size that has fewer frames than there are
//! colours are kept once more, sorted by the colour of their first frame. A larger extent has
//! frames of all colours. Colouring changes only which frame an allocation takes that asks for a
//! colour: free frames are the same maximal extents, and coalesce as ever.

use super::{Buddy, BuddyError, Cached, Tier};
use crate::frame::bitmap::Bitmap;
use alloc::boxed::Box;
use alloc::collections::TryReserveError;
use alloc::format;
use alloc::string::String;
use superpage_pages::{Extent, Level, Pfn};

/// The plain extents of one size, by colour: one run of numbers for each colour that a first frame
/// may have, in it one number for each extent of that colour, by address.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ByColour {
    bits: Bitmap,
    /// The base-two logarithm of the number of colours that a first frame may have.
    order: u32,
    /// The length of a run.
    run: usize,
}

impl ByColour {
    /// With no extent, for `len` of a size of which `1 << order` have all colours.
    fn new(len: usize, order: u32) -> Result<ByColour, TryReserveError> {
        let run = len.div_ceil(1 << order);
        Ok(ByColour { bits: Bitmap::new(run << order)?, order, run })
    }

    /// The number that stands for extent `index`.
    fn number(&self, index: usize) -> usize {
        (index & ((1 << self.order) - 1)) * self.run + (index >> self.order)
    }

    pub(super) fn insert(&mut self, index: usize) {
        self.bits.insert(self.number(index));
    }

    pub(super) fn remove(&mut self, index: usize) {
        self.bits.remove(self.number(index));
    }

    /// The lowest extent of a colour, counted in extents. Cost: at most two words for each layer of
    /// the bitmap.
    fn first(&self, colour: usize) -> Option<usize> {
        let start = colour * self.run;
        let row = self.bits.next(start)? - start;
        (row < self.run).then_some(row << self.order | colour)
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<ByColour>() + self.bits.bytes()
    }
}

impl Tier {
    /// The lowest plain extent of this size that has a frame of this colour.
    fn first_of(&self, colour: u64) -> Option<usize> {
        match &self.by_colour {
            Some(by_colour) => by_colour.first((colour >> self.order) as usize),
            None => self.plain.next(0),
        }
    }

    /// Checks that each plain extent is there once more by colour, and nothing else.
    pub(super) fn validate_colours(&self) -> Result<(), String> {
        let Some(by_colour) = &self.by_colour else { return Ok(()) };
        by_colour.bits.validate()?;
        let (plain, coloured) = (self.plain.count(), by_colour.bits.count());
        if plain != coloured {
            return Err(format!("{coloured} extents are there by colour, {plain} are free"));
        }
        match self.plain.iter().find(|index| !by_colour.bits.contains(by_colour.number(*index))) {
            Some(index) => Err(format!("extent {index} is free, and not there by colour")),
            None => Ok(()),
        }
    }
}

impl Buddy {
    /// The same allocator, of which one can ask for frames by colour
    /// ([`Buddy::allocate_coloured`]). There are `colours` of them, a power of two: the size of a
    /// physically indexed cache, divided by its ways and by the size of a page. With 0 or 1 nothing
    /// changes. Metadata grows to about four bits for each frame.
    ///
    /// Splitting or coalescing an extent then costs O(R) instead of O(R / 64), for each size that
    /// has fewer frames than there are colours; otherwise the costs are those of an allocator that
    /// has had cache pages.
    ///
    /// Panics if `colours` is no power of two.
    ///
    /// # Errors
    /// There is no memory for the bitmaps.
    pub fn with_colours(mut self, colours: u64) -> Result<Buddy, BuddyError> {
        if colours < 2 {
            return Ok(self);
        }
        assert!(colours.is_power_of_two(), "{colours} colours are no power of two");
        let too_many = BuddyError::TooManyFrames(self.frames);
        for tier in &mut self.tiers {
            let Some(order) = colours.ilog2().checked_sub(tier.order).filter(|order| *order > 0) else { break };
            // Colours beyond the end of memory are those of no frame.
            let order = order.min(tier.plain.len().next_power_of_two().ilog2());
            let mut by_colour = ByColour::new(tier.plain.len(), order).map_err(|_| too_many)?;
            tier.plain.iter().for_each(|index| by_colour.insert(index));
            tier.by_colour = Some(Box::new(by_colour));
        }
        if self.cached.is_none() {
            // Its paths keep the colours; those without it are as fast as ever.
            self.cached = Some(Box::new(Cached::new(&self.tiers).map_err(|_| too_many)?));
        }
        self.colours = colours;
        Ok(self)
    }

    /// The number of colours; 0 without colouring.
    pub fn colours(&self) -> u64 {
        self.colours
    }

    /// Takes a base page of the colour of `page`, which is the number of a page or of a frame: from
    /// the lowest free extent without cache pages of the smallest size that has one, which is
    /// split. So a larger extent is broken only where no piece of a smaller one has the colour.
    /// Returns `None`, with nothing taken, if no frame of that colour is free in an extent without
    /// cache pages, and without colouring. Cost: O(L log64 N), and a split.
    pub fn allocate_coloured(&mut self, page: u64) -> Option<Extent> {
        let mask = self.colours.checked_sub(1)?;
        let colour = page & mask;
        if colour >= self.frames {
            return None;
        }
        let found = self.tiers.iter().find_map(|tier| Some((tier.first_of(colour)? as u64) << tier.order))?;
        let extent = Extent { start: Pfn(found & !mask | colour), level: Level::BASE };
        let taken = self.allocate_at(extent);
        debug_assert!(taken, "an extent that is found by colour is free");
        taken.then_some(extent)
    }
}
