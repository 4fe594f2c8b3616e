//! `random`: 8-byte loads spread evenly over a region, the worst case of every TLB and of every
//! simulator.
//!
//! The region is one fixed anonymous mapping, filled first by a sequential pass of 8-byte stores
//! unless `populate=no`, so that the loads find all of it resident. 8 instructions a load are
//! assumed: a random number and the load.

use super::Kind;
use super::loads::{Place, region};
use super::parameters::{Parameter, Values};
use crate::{Error, Source};
use superpage_pages::Random;

pub(super) const KIND: Kind = Kind {
    name: "random",
    help: "8-byte loads at uniformly random places",
    parameters: &[
        Parameter { name: "bytes", default: "256M", help: "the size of the region" },
        Parameter { name: "references", default: "100M", help: "the number of loads" },
        Parameter { name: "seed", default: "1", help: "chooses the places" },
        Parameter { name: "populate", default: "yes", help: "whether the region is written once before: yes or no" },
    ],
    start,
};

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let bytes = region(values)?;
    super::loads::start(values, bytes, Uniform { words: bytes / 8, random: Random::new(values.seed()?) })
}

struct Uniform {
    words: u64,
    random: Random,
}

impl Place for Uniform {
    const INSTRUCTIONS: u32 = 8;

    #[inline]
    fn next(&mut self) -> u64 {
        self.random.below(self.words) * 8
    }
}
