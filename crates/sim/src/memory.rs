//! The physical memory of a point: how it begins, and how much of its contiguity is left.

use superpage_pages::{Extent, Ladder, Level, Pfn};
use superpage_vm::Vm;

/// The contiguity that is left, from 0 to 1: each base page in a wholly free extent of a superpage size has as many points
/// as that size is levels up, against all pages free (Navarro et al., section 6.5).
pub(crate) fn contiguity(vm: &Vm, ladder: &Ladder, frames: u64) -> f64 {
    let points = |free: &dyn Fn(Level) -> u64| -> u64 {
        ladder.levels().skip(1).map(|level| free(level) * ladder.pages(level)).sum()
    };
    let full = points(&|level| frames / ladder.pages(level));
    if full == 0 { 0.0 } else { points(&|level| vm.buddy().free_extents(level)) as f64 / full as f64 }
}

/// Puts an immovable page into `share` of the largest extents: which, and where in each, is a fixed pseudo-random choice.
pub(crate) fn fragment(vm: &mut Vm, ladder: &Ladder, frames: u64, share: f64) -> Result<(), superpage_vm::Error> {
    let pages = ladder.pages(ladder.largest());
    let extents = frames / pages;
    let mut chosen = (share * extents as f64).round() as u64;
    let mut state = 0x5eed_u64;
    let mut random = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    for extent in 0..extents {
        // Selection sampling: just `chosen` of those that are left, each choice equally likely.
        if random() % (extents - extent) < chosen {
            chosen -= 1;
            vm.wire(Extent { start: Pfn(extent * pages + random() % pages), level: Level::BASE })?;
        }
    }
    Ok(())
}
