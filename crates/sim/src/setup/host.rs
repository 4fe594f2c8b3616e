//! The host of a guest, checked.

use super::ladder::ladder;
use crate::Error;
use superpage_mmu::Machine;
use superpage_pages::Ladder;
use superpage_vm::Policy;

/// What the host of a simulation is, checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HostSetup {
    /// The policy as the user wrote it.
    pub(crate) name: String,
    pub(crate) policy: Policy,
    pub(crate) ladder: Ladder,
    pub(crate) frames: u64,
}

impl HostSetup {
    /// The host of a guest on this machine, which has `frames` frames. Its kernel may use all sizes
    /// of the machine that the policy does.
    pub(crate) fn new(
        machine: &Machine,
        (name, policy): &(String, Policy),
        guest_frames: u64,
    ) -> Result<HostSetup, Error> {
        let refused = |problem: &str| Error::Usage(format!("machine {}: {problem}", machine.name));
        if machine.host.as_ref().is_none_or(|host| host.page_table_bits.is_empty()) {
            let base = machine.name.split('+').next().unwrap_or_default();
            return Err(refused(&format!(
                "--host-policy is for a guest, whose walks go through the page tables of a host: use machines \
                 with nested page tables, as {base}+nested"
            )));
        }
        if machine.tlb.iter().any(|tlb| tlb.inclusive) {
            return Err(refused("--host-policy takes no TLB that includes others: leave out `inclusive`"));
        }
        if machine.perforated.is_some() {
            return Err(refused(
                "--host-policy takes no perforated pages: a host backs these by pages of one size, +nested or +nested-2m",
            ));
        }
        if policy.background().is_some_and(|background| background.events().missed) {
            return Err(refused(&format!(
                "policy {name} goes by TLB misses, which a host does not see: give another one with --host-policy"
            )));
        }
        let ladder = ladder(machine, &machine.ladder(), policy)?;
        // As much as the guest has, its tables, and room to copy pages into extents.
        let largest = ladder.pages(ladder.largest());
        let frames = guest_frames.next_multiple_of(largest) + guest_frames / 8 + 2 * largest;
        Ok(HostSetup { name: name.clone(), policy: policy.clone(), ladder, frames })
    }
}
