//! Skewed: each way selects a set by a different function, so pages that conflict in one way do not
//! in others. Seznec, A case for two-way skewed-associative caches, ISCA 1993. In way n it is H, n
//! times, of the low bits, XOR as many next bits; H shifts by one bit to the right, and its highest
//! bit is the XOR of the highest and the lowest before.

pub(super) fn refuses(sets: usize) -> Option<&'static str> {
    // With one bit H would lose it.
    (!sets.is_power_of_two() || sets < 4)
        .then_some("skewed needs a power of two of sets, at least 4; use low or another number of sets")
}

pub(super) fn fold(_sets: usize) -> Option<u32> {
    None
}

pub(super) fn set(number: u64, way: usize, sets: usize) -> usize {
    let (bits, mask) = (sets.trailing_zeros(), sets as u64 - 1);
    let shifted = |low: u64, _: usize| low >> 1 | ((low ^ low >> (bits - 1)) & 1) << (bits - 1);
    let low = (0..way).fold(number & mask, shifted);
    (low ^ (number >> bits & mask)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In each way an aligned row of as many pages as sets fills each set once, and pages that meet
    /// in one are apart in the next.
    #[test]
    fn each_way_spreads_a_row_otherwise() {
        for sets in [4, 64, 256] {
            for way in 0..16 {
                let mut seen = vec![false; sets];
                (3 * sets as u64..4 * sets as u64).for_each(|number| seen[set(number, way, sets)] = true);
                assert!(seen.iter().all(|seen| *seen), "{sets} sets, way {way}");
            }
        }
        let meeting: Vec<u64> = (0..1 << 16).filter(|number| set(*number, 0, 256) == 7).collect();
        let next: std::collections::BTreeSet<usize> = meeting.iter().map(|number| set(*number, 1, 256)).collect();
        assert_eq!((meeting.len(), next.len()), (256, 256));
    }
}
