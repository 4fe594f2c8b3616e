//! XOR of neighbours: the low n bits of the number with the next n bits, for 2^n sets. Measured for
//! the second-level TLB of Skylake, with n = 7 (XOR-7; TLB;DR, USENIX Security 2022).

pub(super) fn refuses(sets: usize) -> Option<&'static str> {
    (!sets.is_power_of_two()).then_some("xor needs a power of two of sets; use low or another number of sets")
}

pub(super) fn fold(sets: usize) -> Option<u32> {
    Some(sets.trailing_zeros())
}

pub(super) fn set(number: u64, _way: usize, sets: usize) -> usize {
    let next = number >> sets.trailing_zeros();
    (number ^ next) as usize & (sets - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 128 sets, as in Skylake, for pages of 4 KB: bits 12 to 18 of the address with the bits
    /// from 19 to 25.
    #[test]
    fn the_next_bits_are_folded_in() {
        let set = |address: u64| set(address >> 12, 0, 128);
        assert_eq!(set(5 << 12), 5);
        assert_eq!(set(5 << 19), 5);
        assert_eq!(set(5 << 12 | 6 << 19), 3);
        assert_eq!(set(1 << 26), 0);
    }

    #[test]
    fn sets_are_a_power_of_two() {
        assert!(refuses(24).is_some() && refuses(0).is_some());
        assert!(refuses(1).is_none() && refuses(128).is_none());
    }
}
