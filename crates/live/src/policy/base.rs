//! `base`: transparent huge pages are disabled for the command, and so are those of its allocator.

use super::{Bytes, DISABLED, Did, Error, Found, Given, Live, MALLOC, Plan, Policy, System};

pub(super) fn live(_: &Given) -> Live {
    Live { plan, did, aim: None, ..Live::default() }
}

fn plan(_: &Policy, plan: &mut Plan, system: &System) -> Result<(), Error> {
    plan.disable(DISABLED);
    if plan.disable.is_none() {
        plan.notes.push(if system.path("sys/kernel/mm/transparent_hugepage").is_dir() {
            "this kernel cannot switch transparent huge pages off for one process".to_string()
        } else {
            "this kernel has no transparent huge pages to switch off".to_string()
        });
    }
    let tunables = std::env::var_os("GLIBC_TUNABLES").unwrap_or_default();
    if tunables.to_string_lossy().contains(MALLOC) {
        plan.malloc = Some(0);
        plan.notes.push(format!("{MALLOC} in GLIBC_TUNABLES is set to 0 for the command"));
    }
    Ok(())
}

fn did(_: &Policy, found: &Found) -> Did {
    let name = found.reference;
    match (found.most, found.before) {
        (None, _) => Did::new("takes huge pages away; whether there were any could not be seen", None),
        (Some(most), None) => found.alone(most),
        (Some(_), Some(0)) => {
            Did::new(format!("nothing: nothing is huge under {name} that could be taken away"), false)
        }
        (Some(most), Some(before)) if most + found.page <= before => {
            Did::new(format!("{} that are huge under {name} are in base pages", Bytes(before - most)), true)
        }
        (Some(most), Some(_)) => Did::new(format!("nothing: {} are huge as under {name}", Bytes(most)), false),
    }
}
