//! The physical memory of a simulation: how much of its contiguity is left.

use superpage_pages::{Ladder, Level};
use superpage_vm::Vm;

/// The contiguity that is left, from 0 to 1: each base page in a wholly free extent of a superpage
/// size scores as many points as that size is levels up, relative to all pages being free (Navarro
/// et al., section 6.5).
pub(crate) fn contiguity(vm: &Vm, ladder: &Ladder, frames: u64) -> f64 {
    let points = |free: &dyn Fn(Level) -> u64| -> u64 {
        ladder.levels().skip(1).map(|level| free(level) * ladder.pages(level)).sum()
    };
    let full = points(&|level| frames / ladder.pages(level));
    if full == 0 { 0.0 } else { points(&|level| vm.buddy().free_extents(level)) as f64 / full as f64 }
}
