//! Arrays of numbers, one for each node, that only take memory for the stretches in use: a program
//! that touches memory sparsely has few children per node.

use alloc::vec::Vec;

/// Stands for no slot, no frame, or no reservation.
pub(crate) const NONE: u32 = u32::MAX;

/// The most numbers of a stretch, as a power of two.
const STRETCH: u32 = 4;

/// Arrays of one length. Elements that were not set are [`NONE`].
pub(super) struct Arrays {
    /// Stretches of an array, and numbers of a stretch, as powers of two.
    spread: u32,
    stretch: u32,
    /// For each stretch of each array its place; in an unused array, the first one holds the next
    /// unused array. Empty if an array is one stretch, with the same number.
    places: Vec<u32>,
    stretches: Vec<u32>,
    /// The unused ones, as lists.
    vacant: u32,
    vacant_stretch: u32,
}

impl Arrays {
    /// No arrays yet, of `1 << order` numbers each.
    pub(super) fn new(order: u32) -> Arrays {
        let stretch = order.min(STRETCH);
        let (places, stretches) = (Vec::new(), Vec::new());
        Arrays { spread: order - stretch, stretch, places, stretches, vacant: NONE, vacant_stretch: NONE }
    }

    /// Where the stretch with this number is noted.
    fn place(&self, array: u32, position: u32) -> usize {
        ((array as usize) << self.spread) + (position >> self.stretch) as usize
    }

    /// A number within a stretch.
    fn within(&self, stretch: u32, position: u32) -> usize {
        ((stretch as usize) << self.stretch) + (position & ((1 << self.stretch) - 1)) as usize
    }

    /// The stretch of an array that has this position; `NONE` if nothing in it was set.
    #[inline]
    fn stretch(&self, array: u32, position: u32) -> u32 {
        if self.spread == 0 { array } else { self.places[self.place(array, position)] }
    }

    /// A new array.
    pub(super) fn add(&mut self) -> u32 {
        if self.spread == 0 {
            return self.add_stretch();
        }
        if self.vacant != NONE {
            let array = self.vacant;
            let place = self.place(array, 0);
            self.vacant = core::mem::replace(&mut self.places[place], NONE);
            return array;
        }
        let (len, places) = (self.places.len(), 1 << self.spread);
        reserve_some(&mut self.places, places);
        self.places.resize(len + places, NONE);
        (len / places) as u32
    }

    /// Frees an array.
    pub(super) fn remove(&mut self, array: u32) {
        if self.spread == 0 {
            return self.remove_stretch(array);
        }
        let first = self.place(array, 0);
        for place in first..self.place(array + 1, 0) {
            let stretch = core::mem::replace(&mut self.places[place], NONE);
            if stretch != NONE {
                self.remove_stretch(stretch);
            }
        }
        self.places[first] = self.vacant;
        self.vacant = array;
    }

    /// The number at a position.
    #[inline]
    pub(super) fn get(&self, array: u32, position: u32) -> u32 {
        match self.stretch(array, position) {
            NONE => NONE,
            stretch => self.stretches[self.within(stretch, position)],
        }
    }

    /// Sets the number at a position.
    #[inline]
    pub(super) fn set(&mut self, array: u32, position: u32, number: u32) {
        let mut stretch = self.stretch(array, position);
        if stretch == NONE {
            stretch = self.add_stretch();
            let place = self.place(array, position);
            self.places[place] = stretch;
        }
        let within = self.within(stretch, position);
        self.stretches[within] = number;
    }

    /// A new stretch, in which nothing is set.
    #[cold]
    fn add_stretch(&mut self) -> u32 {
        let numbers = 1 << self.stretch;
        if self.vacant_stretch != NONE {
            let stretch = self.vacant_stretch;
            let head = self.within(stretch, 0);
            self.vacant_stretch = self.stretches[head];
            self.stretches[head..head + numbers].fill(NONE);
            return stretch;
        }
        let len = self.stretches.len();
        reserve_some(&mut self.stretches, numbers);
        self.stretches.resize(len + numbers, NONE);
        (len >> self.stretch) as u32
    }

    /// Frees a stretch.
    fn remove_stretch(&mut self, stretch: u32) {
        let head = self.within(stretch, 0);
        self.stretches[head] = self.vacant_stretch;
        self.vacant_stretch = stretch;
    }

    /// The first position of an array that has this number and is one of those asked for.
    /// O(length).
    pub(super) fn find(&self, array: u32, number: u32, asked: impl Fn(u32) -> bool) -> Option<u32> {
        if self.spread == 0 {
            return self.find_in(array, 0, number, asked);
        }
        let first = self.place(array, 0);
        let stretches = (0..).zip(&self.places[first..][..1 << self.spread]).filter(|(_, stretch)| **stretch != NONE);
        for (nth, stretch) in stretches {
            let found = self.find_in(*stretch, nth << self.stretch, number, &asked);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// The same in one stretch, whose first number is at the position `first`.
    #[inline]
    fn find_in(&self, stretch: u32, first: u32, number: u32, asked: impl Fn(u32) -> bool) -> Option<u32> {
        let head = self.within(stretch, 0);
        let numbers = &self.stretches[head..][..1 << self.stretch];
        // Few stretches have the number: those of full length are compared as a whole first.
        if let Ok(numbers) = <&[u32; 1 << STRETCH]>::try_from(numbers)
            && !numbers.iter().fold(false, |any, other| any | (*other == number))
        {
            return None;
        }
        for (position, other) in (first..).zip(numbers) {
            if *other == number && asked(position) {
                return Some(position);
            }
        }
        None
    }

    /// Bytes held.
    pub(super) fn metadata_bytes(&self) -> usize {
        (self.places.capacity() + self.stretches.capacity()) * 4
    }
}

/// Makes room for `more` elements, growing by an eighth instead of doubling, to keep metadata
/// small.
pub(crate) fn reserve_some<T>(vec: &mut Vec<T>, more: usize) {
    if vec.capacity() - vec.len() < more {
        vec.reserve_exact(more.max(vec.len() / 8).max(16));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_numbers_take_little_and_are_found() {
        for order in [1, 3, 4, 9] {
            let mut arrays = Arrays::new(order);
            let last = (1 << order) - 1;
            let made: Vec<u32> = (0..1000).map(|_| arrays.add()).collect();
            made.iter().for_each(|array| arrays.set(*array, last, array + 7));
            for array in &made {
                assert_eq!((arrays.get(*array, last), arrays.get(*array, 0)), (array + 7, NONE));
                assert_eq!(arrays.find(*array, array + 7, |_| true), Some(last));
                assert_eq!(arrays.find(*array, array + 7, |position| position != last), None);
                assert_eq!(arrays.find(*array, array + 6, |_| true), None);
            }
            assert!(arrays.metadata_bytes() < 1000 * 220, "{}", arrays.metadata_bytes());
            // What is freed is reused, and empty.
            let held = arrays.metadata_bytes();
            made.iter().for_each(|array| arrays.remove(*array));
            for _ in 0..1000 {
                let array = arrays.add();
                assert!((0..=last).all(|position| arrays.get(array, position) == NONE));
                arrays.set(array, 0, 5);
            }
            assert_eq!(arrays.metadata_bytes(), held);
        }
    }
}
