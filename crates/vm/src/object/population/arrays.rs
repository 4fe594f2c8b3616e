//! Arrays of numbers, one for each node, that only take memory for the stretches in use: a program that touches
//! memory sparsely has few children per node.

use super::{NONE, reserve_some};
use alloc::vec::Vec;

/// The most numbers of a stretch, as a power of two.
const STRETCH: u32 = 4;

/// Arrays of one length. Elements that were not set are [`NONE`].
pub(super) struct Arrays {
    /// Numbers of an array, and of a stretch, as powers of two.
    order: u32,
    stretch: u32,
    /// For each stretch of each array its place; in an unused array, the first one holds the next unused array.
    places: Vec<u32>,
    stretches: Vec<u32>,
    /// The unused ones, as lists.
    vacant: u32,
    vacant_stretch: u32,
}

impl Arrays {
    /// No arrays yet, of `1 << order` numbers each.
    pub(super) fn new(order: u32) -> Arrays {
        let (places, stretches) = (Vec::new(), Vec::new());
        Arrays { order, stretch: order.min(STRETCH), places, stretches, vacant: NONE, vacant_stretch: NONE }
    }

    /// Where the stretch with this number is noted.
    fn place(&self, array: u32, position: u32) -> usize {
        ((array as usize) << (self.order - self.stretch)) + (position >> self.stretch) as usize
    }

    /// A number within a stretch.
    fn within(&self, stretch: u32, position: u32) -> usize {
        ((stretch as usize) << self.stretch) + (position & ((1 << self.stretch) - 1)) as usize
    }

    /// A new array.
    pub(super) fn add(&mut self) -> u32 {
        if self.vacant != NONE {
            let array = self.vacant;
            let place = self.place(array, 0);
            self.vacant = core::mem::replace(&mut self.places[place], NONE);
            return array;
        }
        let (len, places) = (self.places.len(), 1 << (self.order - self.stretch));
        reserve_some(&mut self.places, places);
        self.places.resize(len + places, NONE);
        (len / places) as u32
    }

    /// Frees an array.
    pub(super) fn remove(&mut self, array: u32) {
        let first = self.place(array, 0);
        for place in first..self.place(array + 1, 0) {
            let stretch = core::mem::replace(&mut self.places[place], NONE);
            if stretch != NONE {
                let head = self.within(stretch, 0);
                self.stretches[head] = self.vacant_stretch;
                self.vacant_stretch = stretch;
            }
        }
        self.places[first] = self.vacant;
        self.vacant = array;
    }

    /// The number at a position.
    pub(super) fn get(&self, array: u32, position: u32) -> u32 {
        match self.places[self.place(array, position)] {
            NONE => NONE,
            stretch => self.stretches[self.within(stretch, position)],
        }
    }

    /// Sets the number at a position.
    pub(super) fn set(&mut self, array: u32, position: u32, number: u32) {
        let place = self.place(array, position);
        if self.places[place] == NONE {
            self.places[place] = self.add_stretch();
        }
        let within = self.within(self.places[place], position);
        self.stretches[within] = number;
    }

    /// A new stretch, in which nothing is set.
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

    /// The positions of an array that have this number, ascending. O(length).
    pub(super) fn positions(&self, array: u32, number: u32) -> impl Iterator<Item = u32> {
        let first = self.place(array, 0);
        let stretches = (0..).zip(&self.places[first..self.place(array + 1, 0)]);
        stretches.filter(|(_, stretch)| **stretch != NONE).flat_map(move |(nth, stretch)| {
            let head = self.within(*stretch, 0);
            let numbers = (nth << self.stretch..).zip(&self.stretches[head..head + (1 << self.stretch)]);
            numbers.filter(move |(_, other)| **other == number).map(|(position, _)| position)
        })
    }

    /// Bytes held.
    pub(super) fn metadata_bytes(&self) -> usize {
        (self.places.capacity() + self.stretches.capacity()) * 4
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
                assert!(arrays.positions(*array, array + 7).eq([last]));
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
