//! Which simulations of a grid are one: machines on which the same kernel does the same.
//!
//! What a kernel does depends on the stream, the sizes of pages and the format of page tables, the
//! policy, memory, swap space and files. It does not depend on TLBs and walkers, as long as no
//! policy asks for misses or for time, and no samples are taken at modelled times. So all machines
//! of a grid that differ in nothing else share one kernel and its mappings
//! ([`superpage_mmu::Mmu::of`]), and each has its own counts, costs and rows.

use crate::{Setup, Watch};
use superpage_vm::Hash;

/// Groups the places of all setups: each group is one simulation. Groups, and the places in each,
/// are in the order of the grid.
pub fn groups(setups: &[Setup], watch: &Watch) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (place, setup) in setups.iter().enumerate() {
        let joins = |group: &&mut Vec<usize>| {
            let first = &setups[group[0]];
            watch.every.is_none() && does_the_same(first, setup) && !asks_the_machine(first)
        };
        match groups.iter_mut().find(joins) {
            Some(group) => group.push(place),
            None => groups.push(vec![place]),
        }
    }
    groups
}

/// Whether the kernels of both do the same, unless they ask the machine: fields that are known not
/// to matter are taken out, and all others compared.
fn does_the_same(a: &Setup, b: &Setup) -> bool {
    let with_ours = || Setup { machine: a.machine.clone(), name: a.name.clone(), digest: a.digest, ..b.clone() };
    a.policy == b.policy && a.frames == b.frames && a.machine.shares_mappings(&b.machine) && *a == with_ours()
}

/// Whether the kernel does things that depend on misses or on modelled time: a policy with a
/// background, and idle time in which digests are computed, or there is a model of what it touches;
/// or whether the misses of this machine are counted by region, or somebody looks on.
pub(crate) fn asks_the_machine(setup: &Setup) -> bool {
    setup.kernel.is_some()
        || setup.miss_region.is_some()
        || setup.observed.is_some()
        || setup.policy.background().is_some()
        || setup.policy.answers.reclaim.hash == Hash::Idle
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Conditions, plan_machines};
    use superpage_mmu::Machine;

    #[test]
    fn machines_are_together_where_the_kernel_asks_none() {
        let cove = Machine::builtin("golden-cove").unwrap();
        let mut small = cove.clone();
        small.name = "small".into();
        small.tlb.iter_mut().for_each(|tlb| tlb.entries = 16);
        let skylake = Machine::builtin("skylake-sp").unwrap();
        let policies = ["base", "thp", "promote", "reservation:hash=idle"].map(String::from);
        let setups = plan_machines(&[cove, skylake, small], &policies, &Conditions::default()).unwrap();
        let places = groups(&setups, &Watch::default());
        // Skylake's tables have four levels, the others' five.
        assert_eq!(
            places,
            [vec![0, 8], vec![1, 9], vec![2], vec![3], vec![4], vec![5], vec![6], vec![7], vec![10], vec![11]]
        );
        let timed = Watch { every: Some(crate::Every::Seconds(1.0)), ..Watch::default() };
        assert_eq!(groups(&setups, &timed).len(), setups.len());
    }
}
