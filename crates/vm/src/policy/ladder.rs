//! The page sizes of a manager with a policy.

use super::{Policy, PolicyError, Sizes};
use alloc::format;
use alloc::vec::Vec;
use superpage_pages::{Ladder, PageSize};

impl Policy {
    /// The ladder of a manager with this policy, on page tables with the sizes of `hardware`, of
    /// which those of `used` are in use: of these the sizes that the policy leaves in use
    /// ([`Policy::sizes`]), and those of its extents that the hardware has no pages of
    /// (`mthp:size=64K` on x86-64), between sizes that it has.
    ///
    /// # Errors
    /// The policy leaves a size in use that `used` does not have, or extents of a size that was
    /// asked for are too small or too large for the hardware.
    pub fn ladder(&self, hardware: &Ladder, used: &Ladder) -> Result<Ladder, PolicyError> {
        let ladder = match &self.sizes[..] {
            [] => *used,
            sizes => used.only(sizes).map_err(|error| PolicyError(format!("{error}; it has {used}")))?,
        };
        let place = &self.answers.place;
        let (own, asked) = place.size.extents();
        // Where the program asks for superpages they may be of others.
        let hinted = place.hinted.map(|size| size.extents().0).unwrap_or_default();
        let extents: Sizes = own.iter().chain(hinted.iter()).collect();
        let (base, largest) = (hardware.base(), hardware.size(hardware.largest()));
        let fits = |size: &PageSize| *size > base && *size <= largest;
        if let Some(size) = extents.iter().find(|size| asked && !fits(size)) {
            let policy = self.definition().name;
            return Err(PolicyError(format!(
                "policy {policy}: extent size {size} must be above {base} and at most {largest}"
            )));
        }
        let extents = extents.iter().filter(|size| fits(size) && hardware.level(*size).is_none());
        let mut sizes: Vec<PageSize> = ladder.sizes().iter().copied().chain(extents).collect();
        sizes.sort_unstable();
        Ladder::new(&sizes).map_err(|error| PolicyError(format!("{error}")))
    }
}
