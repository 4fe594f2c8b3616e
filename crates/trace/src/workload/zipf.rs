//! `zipf`: loads from objects of which a few are popular: the k-th most popular of them is loaded
//! from in proportion to `1 / k^theta`, as of the keys of a store or the pages of a cache.
//!
//! The region is full of objects of `object` bytes, by default of a page each, and a random
//! permutation scatters the popular ones over it; a load goes to an object's first 8 bytes. 16
//! instructions a load are assumed: a key is hashed and looked up. The region is filled first by a
//! sequential pass of 8-byte stores unless `populate=no`.
//!
//! A rank is drawn by the alias method (Walker 1977, Vose 1991) from a table of 8 bytes an object:
//! one random number, one entry, whatever theta. The table holds whole numbers, computed with an
//! exponential function that is the same on every machine.

use super::Kind;
use super::loads::{Place, region};
use super::parameters::{Parameter, Values};
use super::permutation::Permutation;
use crate::{Error, Source};
use superpage_pages::Random;

pub(super) const KIND: Kind = Kind {
    name: "zipf",
    help: "loads from objects of unequal popularity, scattered over a region",
    parameters: &[
        Parameter { name: "bytes", default: "256M", help: "the size of the region" },
        Parameter { name: "object", default: "4K", help: "the size of an object; at most 16M objects" },
        Parameter { name: "theta", default: "0.99", help: "0 is uniform; the larger, the more the few get" },
        Parameter { name: "references", default: "100M", help: "the number of loads" },
        Parameter { name: "seed", default: "1", help: "chooses the loads and the places of the objects" },
        Parameter { name: "populate", default: "yes", help: "whether the region is written once before: yes or no" },
    ],
    start,
};

/// The most objects: their table takes 128 MB.
const MOST_OBJECTS: u64 = 1 << 24;

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let bytes = region(values)?;
    let object = values.bytes("object", 8..=bytes)?;
    if bytes / object > MOST_OBJECTS {
        return Err(values.wrong("object", "a size with which the region holds at most 16M objects"));
    }
    let theta = values.fraction("theta", 0.0..=8.0)?;
    let mut random = Random::new(values.seed()?);
    let places = Permutation::new(bytes / object, random.next());
    let popular = Popular { popularity: Popularity::new(bytes / object, theta, &places), object, random };
    super::loads::start(values, bytes, popular)
}

/// An entry of the alias table: of 2^32 draws, `own` go to the first object and the rest to the
/// other.
#[derive(Clone, Copy)]
struct Entry {
    own: u32,
    other: u32,
}

struct Popular {
    popularity: Popularity,
    object: u64,
    random: Random,
}

impl Place for Popular {
    const INSTRUCTIONS: u32 = 16;

    #[inline]
    fn next(&mut self) -> u64 {
        self.popularity.object(self.random.next()) * self.object
    }
}

/// Objects of which the k-th most popular is drawn in proportion to `1 / k^theta`, as an alias
/// table.
pub(super) struct Popularity(Vec<Entry>);

impl Popularity {
    /// The popularity of `objects` objects, below 2^32, where `places` says which object has which
    /// rank.
    pub(super) fn new(objects: u64, theta: f64, places: &Permutation) -> Popularity {
        Popularity(table(objects, theta, places))
    }

    /// The object that a random number of 64 bits draws.
    #[inline]
    pub(super) fn object(&self, random: u64) -> u64 {
        let number = u128::from(random) * self.0.len() as u128;
        let (index, rest) = ((number >> 64) as usize, (number >> 32) as u32);
        let entry = self.0[index];
        if rest < entry.own { index as u64 } else { u64::from(entry.other) }
    }
}

/// The alias table of `objects` objects, where `places` says which object has which rank.
///
/// Each entry starts with its object's share of the draws, in units of a mean share; those with
/// less than one are filled up from those with more, each by one other.
fn table(objects: u64, theta: f64, places: &Permutation) -> Vec<Entry> {
    let mut shares = vec![0.0; objects as usize];
    let mut total = 0.0;
    for rank in (0..objects).rev() {
        let share = libm::pow((rank + 1) as f64, -theta);
        shares[places.at(rank) as usize] = share;
        total += share;
    }
    let scale = objects as f64 / total;
    shares.iter_mut().for_each(|share| *share *= scale);
    let (mut less, mut more): (Vec<u32>, Vec<u32>) = (0..objects as u32).partition(|i| shares[*i as usize] < 1.0);
    let mut table: Vec<Entry> = (0..objects as u32).map(|other| Entry { own: u32::MAX, other }).collect();
    while let (Some(small), Some(large)) = (less.pop(), more.last().copied()) {
        let missing = 1.0 - shares[small as usize];
        table[small as usize] = Entry { own: (shares[small as usize] * 4_294_967_296.0) as u32, other: large };
        shares[large as usize] -= missing;
        if shares[large as usize] < 1.0 {
            more.pop();
            less.push(large);
        }
    }
    table
}
