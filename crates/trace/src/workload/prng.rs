//! Random numbers and random permutations that are the same on every machine.

/// The generator SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a counter and a mixing function, so that the same seed
/// gives the same numbers everywhere, and no number waits long for the one before it.
pub(super) struct Random {
    state: u64,
}

/// The step of SplitMix64's counter: the golden ratio in 64 bits.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// The generator for a seed.
    pub(super) fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// The generator for a seed as it is before it gives number `index`, counted from 0.
    pub(super) fn at(seed: u64, index: u64) -> Random {
        Random { state: seed.wrapping_add(index.wrapping_mul(STEP)) }
    }

    /// The next number, at least 0 and below 1, of 53 random bits.
    pub(super) fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// The next number. Of 2^64 in a row no two are equal, as the mixing function is a bijection.
    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        let mut z = self.state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// The next number below `bound`: the high half of a product, with a bias below `bound` in 2^64.
    #[inline]
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// A permutation of the numbers below a length, computed and not stored.
///
/// Each round of xor-shifting and multiplying by an odd number is a bijection of the numbers of so many bits; what falls
/// outside the length is permuted again until it falls inside, less than once on average.
pub(super) struct Permutation {
    len: u64,
    mask: u64,
    shift: u32,
    keys: [u64; 6],
}

impl Permutation {
    /// The permutation of the numbers below `len` for a seed.
    pub(super) fn new(len: u64, seed: u64) -> Permutation {
        let bits = 64 - len.saturating_sub(1).leading_zeros();
        let mut random = Random::new(seed);
        Permutation {
            len,
            mask: if bits == 64 { u64::MAX } else { (1 << bits) - 1 },
            shift: (bits / 2).max(1),
            keys: std::array::from_fn(|_| random.next()),
        }
    }

    /// Where `index`, below the length, goes.
    #[inline]
    pub(super) fn at(&self, index: u64) -> u64 {
        let mut x = index;
        loop {
            for keys in self.keys.chunks_exact(2) {
                x = x.wrapping_add(keys[0]) & self.mask;
                x ^= x >> self.shift;
                x = x.wrapping_mul(keys[1] | 1) & self.mask;
            }
            x ^= x >> self.shift;
            if x < self.len {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_splitmix64() {
        // The first numbers for seed 1234567, as the generator's public reference program prints them.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
        assert_eq!(random.next(), 9_817_491_932_198_370_423);
        assert_eq!(Random::at(1_234_567, 2).next(), 9_817_491_932_198_370_423);
    }

    #[test]
    fn a_permutation_hits_every_number_once() {
        for len in [1, 2, 3, 5, 8, 100, 1000, 4096, 70_001] {
            let permutation = Permutation::new(len, len ^ 7);
            let mut seen = vec![false; len as usize];
            (0..len).for_each(|i| assert!(!std::mem::replace(&mut seen[permutation.at(i) as usize], true)));
        }
    }

    #[test]
    fn a_permutation_scatters_neighbours() {
        let (len, permutation) = (1 << 16, Permutation::new(1 << 16, 1));
        let near = (1..len).filter(|i| permutation.at(*i).abs_diff(permutation.at(i - 1)) < len / 16).count();
        // A random pair is that near in about 12 % of all cases.
        assert!((6000..10_000).contains(&near), "{near}");
    }
}
