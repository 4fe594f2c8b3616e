//! One step of a row of tags in the vector units of x86-64 ([`super::rows`]): all lanes are
//! compared with the tag at once, and those in front of it are moved by one, in the same way for a
//! hit and for a miss.
//!
//! All unsafe code of this crate is here. A caller can break none of it: a [`Unit`] other than
//! [`Unit::Portable`] is only made where the processor has it.
#![allow(unsafe_code)]

use super::Folded;
use crate::tlb::uses::{BATCH, each};
#[cfg(target_arch = "x86_64")]
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// The vector unit that a processor has for rows of tags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Unit(Kind);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Unit {
    /// Nothing: rows are gone through lane by lane.
    #[allow(non_upper_case_globals)]
    pub(super) const Portable: Unit = Unit(Kind::Portable);

    /// All that this processor has, the best last.
    pub(super) fn all() -> impl Iterator<Item = Unit> {
        #[cfg(target_arch = "x86_64")]
        let wide = {
            let avx2 = is_x86_feature_detected!("avx2");
            // To the compiler these are part of the larger vectors.
            let less = avx2 && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
            let avx512 = less && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl");
            avx2.then_some(Unit(Kind::Avx2)).into_iter().chain(avx512.then_some(Unit(Kind::Avx512)))
        };
        #[cfg(not(target_arch = "x86_64"))]
        let wide = std::iter::empty();
        std::iter::once(Unit::Portable).chain(wide)
    }

    pub(super) fn best() -> Unit {
        Unit::all().last().unwrap_or(Unit::Portable)
    }
}

/// The shape of a row.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) lanes: usize,
    pub(super) ways: usize,
}

/// The keys that are used, and where their rows are.
#[derive(Clone, Copy)]
pub(super) struct Used<'a> {
    pub(super) numbers: &'a [u64; BATCH],
    pub(super) keys: &'a [u32; BATCH],
    pub(super) index: Folded,
}

impl Used<'_> {
    /// The row and the tag of the one with this index.
    #[inline(always)]
    pub(super) fn at(&self, index: usize) -> (usize, u32) {
        (self.index.set_of(self.numbers[index]), self.keys[index].wrapping_add(1))
    }
}

/// Uses keys in rows of this shape, those whose bit is set in `asking`, in order. Returns which
/// were not there. Panics for [`Unit::Portable`].
#[cfg(target_arch = "x86_64")]
pub(super) fn access(unit: Unit, rows: &mut [u32], Row { lanes, ways }: Row, asking: u64, used: Used<'_>) -> u64 {
    let (last, one) = (1u32 << (ways - 1), rows.len() == lanes);
    // SAFETY: the processor has what the function needs, or there would be no unit of this kind.
    unsafe {
        match (unit.0, lanes) {
            (Kind::Avx512, 8) if one => avx512_of_8::<true>(rows.as_chunks_mut().0, last, asking, used),
            (Kind::Avx512, 8) => avx512_of_8::<false>(rows.as_chunks_mut().0, last, asking, used),
            (Kind::Avx512, 16) if one => avx512_of_16::<true>(rows.as_chunks_mut().0, last, asking, used),
            (Kind::Avx512, 16) => avx512_of_16::<false>(rows.as_chunks_mut().0, last, asking, used),
            (Kind::Avx512, 32) if one => avx512_of_32::<true>(rows.as_chunks_mut().0, last, asking, used),
            (Kind::Avx512, 32) => avx512_of_32::<false>(rows.as_chunks_mut().0, last, asking, used),
            (Kind::Avx2, 8) => avx2::<8, 1>(rows.as_chunks_mut().0, last, asking, used),
            (Kind::Avx2, 16) => avx2::<16, 2>(rows.as_chunks_mut().0, last, asking, used),
            (Kind::Avx2, 32) => avx2::<32, 4>(rows.as_chunks_mut().0, last, asking, used),
            (kind, lanes) => unreachable!("{kind:?} has no rows of {lanes} lanes"),
        }
    }
}

/// As above: other processors have no unit but [`Unit::Portable`].
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn access(unit: Unit, _: &mut [u32], _: Row, _: u64, _: Used<'_>) -> u64 {
    unreachable!("{unit:?} is not of this processor")
}

/// Which of four tags are this one, as a bit set.
#[inline(always)]
fn equal_of_4(tags: &[u32; 4], tag: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this kind has the instructions; four tags are 16 bytes.
    unsafe {
        let equal = _mm_cmpeq_epi32(_mm_loadu_si128(tags.as_ptr().cast()), _mm_set1_epi32(tag as i32));
        _mm_movemask_ps(_mm_castsi128_ps(equal)) as u32
    }
    #[cfg(not(target_arch = "x86_64"))]
    (0..4).fold(0, |equal, lane| equal | u32::from(tags[lane] == tag) << lane)
}

/// The tags behind the last set that [`equal`] may look at.
pub(super) const SPARE: usize = 3;

/// Which of `ways` tags, at most 64, from `first` on are this one, as a bit set. Up to [`SPARE`]
/// tags behind them are looked at.
#[inline(always)]
pub(super) fn equal(tags: &[u32], first: usize, ways: usize, tag: u32) -> u64 {
    let fours = tags[first..first + ways.next_multiple_of(4)].as_chunks::<4>().0;
    let each = fours.iter().zip((0..u64::BITS).step_by(4));
    let equal = each.fold(0, |equal, (four, at)| equal | u64::from(equal_of_4(four, tag)) << at);
    equal & (u64::MAX >> (64 - ways))
}

/// Asks the processor to have an element in its caches soon. Does nothing where there is none, or
/// no such instruction.
#[inline(always)]
pub(crate) fn prefetch<T>(from: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(element) = from.get(index) {
        // SAFETY: every processor of this kind has the instruction, which changes nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(element).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (from, index);
}

/// The lanes up to the first that is equal, or up to the last way: all of them move.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn moving(equal: u32, last: u32) -> u32 {
    let stop = equal | last;
    stop ^ stop.wrapping_sub(1)
}

// Below, each lane's source is given explicitly, also where a lane keeps its tag: a lane that is
// not written would make the store a masked one, for which the next load from the row would wait.
// If there is `ONE` row it stays in registers all the time.

/// Generates a function for rows of `$lanes` lanes, from the load and the store of a row, and its
/// step: the row after the use of a tag, and which lanes held the tag.
#[cfg(target_arch = "x86_64")]
macro_rules! avx512 {
    ($name:ident, $lanes:literal, $last:ident, $load:expr, $store:expr, $step:expr) => {
        #[target_feature(enable = "avx512f,avx512vl")]
        fn $name<const ONE: bool>(rows: &mut [[u32; $lanes]], $last: u32, asking: u64, used: Used<'_>) -> u64 {
            let (load, store, step) = ($load, $store, $step);
            let (mut kept, mut missed, mut latest) = (load(&rows[0]), 0, rows[0][0]);
            for index in each(asking) {
                let (row, tag) = used.at(index);
                // The upper tables of a batch of walks are often the same: that need not wait for
                // what is before it.
                if ONE && tag == latest {
                    continue;
                }
                latest = tag;
                let held = if ONE { kept } else { load(&rows[row]) };
                let equal: u32;
                (kept, equal) = step(held, tag);
                if !ONE {
                    store(&mut rows[row], kept);
                }
                missed |= u64::from(equal == 0) << index;
            }
            if ONE {
                store(&mut rows[0], kept);
            }
            missed
        }
    };
}

#[cfg(target_arch = "x86_64")]
avx512! { avx512_of_8, 8, last,
    // SAFETY: a row is 32 bytes, here and in the store.
    |row: &[u32; 8]| unsafe { _mm256_loadu_si256(row.as_ptr().cast()) },
    // SAFETY: as above.
    |row: &mut [u32; 8], tags| unsafe { _mm256_storeu_si256(row.as_mut_ptr().cast(), tags) },
    |held, tag: u32| {
        let (lane, wanted) = (_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(tag as i32));
        let equal = u32::from(_mm256_cmpeq_epi32_mask(held, wanted));
        let from = _mm256_mask_sub_epi32(lane, moving(equal, last) as u8, lane, _mm256_set1_epi32(1));
        (_mm256_permutex2var_epi32(held, from, wanted), equal)
    }
}

#[cfg(target_arch = "x86_64")]
avx512! { avx512_of_16, 16, last,
    // SAFETY: a row is 64 bytes, here and in the store.
    |row: &[u32; 16]| unsafe { _mm512_loadu_si512(row.as_ptr().cast()) },
    // SAFETY: as above.
    |row: &mut [u32; 16], tags| unsafe { _mm512_storeu_si512(row.as_mut_ptr().cast(), tags) },
    |held, tag: u32| {
        let lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        let wanted = _mm512_set1_epi32(tag as i32);
        let equal = u32::from(_mm512_cmpeq_epi32_mask(held, wanted));
        let from = _mm512_mask_sub_epi32(lane, moving(equal, last) as u16, lane, _mm512_set1_epi32(1));
        (_mm512_permutex2var_epi32(held, from, wanted), equal)
    }
}

#[cfg(target_arch = "x86_64")]
avx512! { avx512_of_32, 32, last,
    // SAFETY: a row is twice 64 bytes, here and in the store.
    |row: &[u32; 32]| unsafe {
        (_mm512_loadu_si512(row.as_ptr().cast()), _mm512_loadu_si512(row[16..].as_ptr().cast()))
    },
    // SAFETY: as above.
    |row: &mut [u32; 32], (low, high)| unsafe {
        _mm512_storeu_si512(row.as_mut_ptr().cast(), low);
        _mm512_storeu_si512(row[16..].as_mut_ptr().cast(), high);
    },
    |(low, high), tag: u32| {
        let lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        let (wanted, step) = (_mm512_set1_epi32(tag as i32), _mm512_set1_epi32(1));
        let equal = u32::from(_mm512_cmpeq_epi32_mask(low, wanted));
        let equal = equal | u32::from(_mm512_cmpeq_epi32_mask(high, wanted)) << 16;
        let lanes = moving(equal, last);
        let near = _mm512_mask_sub_epi32(lane, lanes as u16, lane, step);
        let far = _mm512_mask_sub_epi32(lane, (lanes >> 16) as u16, lane, step);
        ((_mm512_permutex2var_epi32(low, near, wanted), _mm512_permutex2var_epi32(high, far, low)), equal)
    }
}

/// Rows of `PARTS` vectors of 8 lanes.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2<const LANES: usize, const PARTS: usize>(
    rows: &mut [[u32; LANES]],
    last: u32,
    asking: u64,
    used: Used<'_>,
) -> u64 {
    const { assert!(LANES == 8 * PARTS) };
    let lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    let first = _mm256_setr_epi32(-1, 0, 0, 0, 0, 0, 0, 0);
    let mut missed = 0;
    for index in each(asking) {
        let (row, tag) = used.at(index);
        let parts = rows[row].as_chunks_mut::<8>().0;
        let wanted = _mm256_set1_epi32(tag as i32);
        let (mut held, mut equal) = ([wanted; PARTS], 0);
        for (number, (part, held)) in parts.iter().zip(&mut held).enumerate() {
            // SAFETY: a part is 32 bytes, here and in the store below.
            *held = unsafe { _mm256_loadu_si256(part.as_ptr().cast()) };
            let alike = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(*held, wanted)));
            equal |= (alike as u32) << (8 * number);
        }
        let lanes = moving(equal, last);
        // Its last lane moves to the first of the next part: that of the tag, or of the part
        // before.
        let mut before = wanted;
        for (number, (part, held)) in parts.iter_mut().zip(held).enumerate() {
            let here = _mm256_set1_epi32((lanes >> (8 * number) & 0xff) as i32);
            // Minus one in each lane that moves, so that the first gets the number 7.
            let moves = _mm256_cmpeq_epi32(_mm256_and_si256(here, bits), bits);
            let turned = _mm256_permutevar8x32_epi32(held, _mm256_add_epi32(lane, moves));
            let last = _mm256_permutevar8x32_epi32(before, _mm256_set1_epi32(7));
            let moved = _mm256_blendv_epi8(turned, last, _mm256_and_si256(moves, first));
            // SAFETY: as above.
            unsafe { _mm256_storeu_si256(part.as_mut_ptr().cast(), moved) };
            before = held;
        }
        missed |= u64::from(equal == 0) << index;
    }
    missed
}
