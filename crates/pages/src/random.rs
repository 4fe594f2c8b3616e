//! The one generator of pseudo-random numbers: what is drawn is the same on every machine.

/// The generator SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014): a counter and a mixing function. The same seed returns the same
/// numbers on every machine, and every bit of a number depends on every bit of the seed. Not for
/// secrets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Random {
    state: u64,
}

/// The step of SplitMix64's counter: the golden ratio in 64 bits.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// The generator for a seed.
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// The generator for a seed as it is before it returns number `index`, counted from 0.
    pub fn at(seed: u64, index: u64) -> Random {
        Random { state: seed.wrapping_add(index.wrapping_mul(STEP)) }
    }

    /// The next number, at least 0 and below 1, of 53 random bits.
    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// The next number. Of 2^64 in a row no two are equal, as the mixing function is a bijection.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "an iterator's `next` would be an `Option`")]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        let mut z = self.state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// The next number below `bound`: the high half of a product, with a bias below `bound` in
    /// 2^64.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_splitmix64() {
        // The first numbers for seed 1234567, as the generator's public reference program prints
        // them.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
        assert_eq!(random.next(), 9_817_491_932_198_370_423);
        assert_eq!(Random::at(1_234_567, 2).next(), 9_817_491_932_198_370_423);
    }
}
