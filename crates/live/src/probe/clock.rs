//! Measures the processor's clock by instructions of known latency.

use super::steady::Steady;
use std::time::Instant;

/// Additions in a row of which each needs the one before: one cycle each on every processor of the
/// last decades.
const ADDITIONS: usize = 20_000;

/// The clock that the processor runs at now, in cycles a second: from additions in a row, in
/// the shortest time.
pub(crate) fn hertz() -> Steady {
    let steady = Steady::measure(5, 20, || {
        let begun = Instant::now();
        let mut sum = std::hint::black_box(1_u64);
        let addend = std::hint::black_box(3_u64);
        for _ in 0..ADDITIONS / 20 {
            sum = add_20(sum, addend);
        }
        std::hint::black_box(sum);
        begun.elapsed().as_secs_f64() / ADDITIONS as f64
    });
    Steady { value: 1.0 / steady.value, agreement: steady.agreement }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn add_20(mut sum: u64, addend: u64) -> u64 {
    // SAFETY: additions of registers touch nothing else.
    unsafe {
        std::arch::asm!(
            ".rept 20", "add {sum}, {addend}", ".endr",
            sum = inout(reg) sum, addend = in(reg) addend, options(pure, nomem, nostack)
        );
    }
    sum
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn add_20(mut sum: u64, addend: u64) -> u64 {
    // SAFETY: additions of registers touch nothing else.
    unsafe {
        std::arch::asm!(
            ".rept 20", "add {sum}, {sum}, {addend}", ".endr",
            sum = inout(reg) sum, addend = in(reg) addend, options(pure, nomem, nostack)
        );
    }
    sum
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(always)]
fn add_20(mut sum: u64, addend: u64) -> u64 {
    for _ in 0..20 {
        sum = std::hint::black_box(sum.wrapping_add(addend));
    }
    sum
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_clock_is_that_of_a_processor() {
        let hertz = super::hertz().value;
        assert!((1e8..2e10).contains(&hertz), "{hertz}");
    }
}
