//! Random permutations that are the same on every machine.

use superpage_pages::Random;

/// A permutation of the numbers below a length, computed and not stored.
///
/// Each round of xor-shifting and multiplying by an odd number is a bijection of the numbers of so
/// many bits; what falls outside the length is permuted again until it falls inside, less than once
/// on average.
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
