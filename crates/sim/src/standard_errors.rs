//! The errors of rows of a sampled stream.

use crate::Row;
use crate::estimate::Evidence;

/// Sets the errors of a row of a sampled stream.
pub(crate) fn own_errors(row: &mut Row, evidence: Option<&Evidence>) {
    let (Some(sampled), Some(evidence)) = (&mut row.sampled, evidence) else { return };
    // The page daemon runs when memory is short, and a process is killed when there is none.
    sampled.kernel_exact = row.daemon_runs == 0 && row.error.is_none();
    if sampled.kernel_exact {
        evidence.own_errors(sampled);
    }
}

/// Sets the errors of the figures that compare a row of a sampled stream with `base`.
pub(crate) fn compared_errors(row: &mut Row, own: Option<&Evidence>, base: &Row, theirs: Option<&Evidence>) {
    let (Some(own), Some(theirs)) = (own, theirs) else { return };
    let same = row.is_base();
    let Some(sampled) = &mut row.sampled else { return };
    let base_exact = base.sampled.as_ref().is_some_and(|base| base.kernel_exact);
    if !sampled.kernel_exact || !base_exact || !own.has_windows_of(theirs) {
        return;
    }
    if row.tlb_miss_reduction_percent.is_some() {
        sampled.tlb_miss_reduction_percent_error = own.reduction_error(theirs, same);
    }
    if row.speedup.is_some() {
        sampled.speedup_error = own.speedup_error(theirs, [row.cycles, base.cycles], same);
    }
}
