//! The sizes of pages that a kernel uses on a machine.

use crate::Error;
use superpage_mmu::Machine;
use superpage_pages::{Ladder, PageSize};
use superpage_vm::Policy;

/// The ladder of a kernel with this policy on a machine, of whose sizes these are in use.
pub(crate) fn ladder(machine: &Machine, ladder: &Ladder, policy: &Policy) -> Result<Ladder, Error> {
    let made = policy.ladder(&machine.ladder(), ladder);
    made.map_err(|error| Error::Usage(format!("machine {}: {error}", machine.name)))
}

/// The ladder with these superpage sizes alone.
pub(crate) fn only(machine: &Machine, ladder: &Ladder, sizes: &[PageSize]) -> Result<Ladder, Error> {
    ladder.only(sizes).map_err(|error| Error::Usage(format!("machine {}: {error}; it has {ladder}", machine.name)))
}
