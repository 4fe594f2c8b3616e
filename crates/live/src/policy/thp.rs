//! `thp`: transparent huge pages wherever the command's memory allows them.

use super::{AS_SET, Aim, Error, Given, Live, Plan, Policy, SHMEM_ENABLED, System, THP_ENABLED};

pub(super) fn live(given: &Given) -> Live {
    let aim = if given.is_on("malloc") { Aim::Advised } else { Aim::Huge };
    Live { plan, aim: Some(aim), ..Live::default() }
}

fn plan(policy: &Policy, plan: &mut Plan, system: &System) -> Result<(), Error> {
    let given = policy.common.given();
    plan.disable(AS_SET);
    let enabled = system.get(THP_ENABLED)?;
    if !given.is_on("malloc") {
        plan.want(THP_ENABLED, "always");
        let size = system.get("sys/kernel/mm/transparent_hugepage/hpage_pmd_size").ok();
        let own = size.and_then(|bytes| bytes.parse().ok()).map(switch);
        let follows = |value: &str| matches!(value, "inherit" | "always");
        if let Some(own) = own.filter(|own| system.get(own).is_ok_and(|value| !follows(&value))) {
            plan.want(&own, "inherit");
        }
    } else {
        plan.malloc = Some(1);
        if enabled == "never" {
            plan.want(THP_ENABLED, "madvise");
        }
    }
    if given.is_on("shared") {
        system.get(SHMEM_ENABLED)?;
        plan.want(SHMEM_ENABLED, "within_size");
    }
    Ok(())
}

/// The setting for anonymous memory in pages of one size.
pub(crate) fn switch(bytes: u64) -> String {
    format!("sys/kernel/mm/transparent_hugepage/hugepages-{}kB/enabled", bytes / 1024)
}
