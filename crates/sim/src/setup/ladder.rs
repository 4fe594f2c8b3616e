//! The sizes of pages that a kernel uses on a machine.

use crate::Error;
use superpage_mmu::Machine;
use superpage_pages::{Ladder, PageSize};
use superpage_vm::{Policy, Sizes};

/// The ladder of a kernel with this policy on a machine, of whose sizes these are in use.
pub(crate) fn ladder(machine: &Machine, ladder: &Ladder, policy: &Policy) -> Result<Ladder, Error> {
    if policy.sizes.is_empty() {
        with_extents(machine, ladder, policy)
    } else {
        with_extents(machine, &only(machine, ladder, &policy.sizes)?, policy)
    }
}

/// The ladder of a kernel that allocates extents of sizes that the machine has no pages of, between
/// sizes that it has.
fn with_extents(machine: &Machine, ladder: &Ladder, policy: &Policy) -> Result<Ladder, Error> {
    let place = &policy.answers.place;
    let (own, asked) = place.size.extents();
    // Where the program asks for superpages they may be of others.
    let hinted = place.hinted.map(|size| size.extents().0).unwrap_or_default();
    let extents: Sizes = own.iter().chain(hinted.iter()).collect();
    let [base, .., largest] = machine.pages.sizes[..] else { return Ok(*ladder) };
    let fits = |size: &PageSize| *size > base && *size <= largest;
    if let Some(size) = extents.iter().find(|size| asked && !fits(size)) {
        let (name, policy) = (&machine.name, policy.definition().name);
        return Err(Error::Usage(format!(
            "machine {name}: policy {policy} takes extents of {size}, where they can be larger than {base} and up to {largest}"
        )));
    }
    let extents = extents.iter().filter(|size| fits(size) && !machine.pages.sizes.contains(size));
    let mut sizes: Vec<PageSize> = ladder.sizes().iter().copied().chain(extents).collect();
    sizes.sort_unstable();
    Ladder::new(&sizes).map_err(|error| Error::Usage(format!("machine {}: {error}", machine.name)))
}

/// The ladder with these superpage sizes alone.
pub(crate) fn only(machine: &Machine, ladder: &Ladder, sizes: &[PageSize]) -> Result<Ladder, Error> {
    ladder.only(sizes).map_err(|error| Error::Usage(format!("machine {}: {error}; it has {ladder}", machine.name)))
}
