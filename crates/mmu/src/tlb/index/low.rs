//! Low bits: numbers in a row select sets in a row. Where sets are a power of two, the set is the
//! low bits of the number; else it is the remainder.

pub(super) fn refuses(_sets: usize) -> Option<&'static str> {
    None
}

/// No bits of a number are folded in: it has no bit 63.
pub(super) fn fold(_sets: usize) -> Option<u32> {
    Some(63)
}

pub(super) fn set(number: u64, _way: usize, sets: usize) -> usize {
    (number % sets as u64) as usize
}
