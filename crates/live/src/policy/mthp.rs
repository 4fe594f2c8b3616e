//! `mthp`: folios of these sizes for all anonymous memory, and of no other where the program gives
//! no advice.

use super::thp::switch;
use super::{AS_SET, Aim, Did, Error, Found, Given, Live, PageSize, Plan, Policy, System, THP_ENABLED, part};
use superpage_linux::pagemap::huge_page_bytes;

pub(super) fn live(given: &Given) -> Live {
    let sizes = given.sizes("size");
    // What is too small for a huge page is not for a folio.
    let huge = PageSize::from_bytes(huge_page_bytes());
    let aim = Some(if sizes.iter().all(|size| Some(size) == huge) { Aim::Huge } else { Aim::Folios });
    Live { plan, aim, did, folios: Some(sizes), text: Some(format!("mthp:size={sizes}")), ..Live::default() }
}

fn plan(policy: &Policy, plan: &mut Plan, system: &System) -> Result<(), Error> {
    plan.disable(AS_SET);
    let (wanted, enabled) = (policy.common.given().sizes("size"), system.get(THP_ENABLED)?);
    let folders = superpage_linux::settings::sizes(&system.path("sys/kernel/mm/transparent_hugepage"));
    let offered = folders.into_iter().filter(|(_, folder)| folder.join("enabled").exists());
    let offered: Vec<PageSize> = offered.map(|(size, _)| size).collect();
    if let Some(size) = wanted.iter().find(|size| !offered.contains(size)) {
        let offered: Vec<String> = offered.iter().map(PageSize::to_string).collect();
        return Err(Error::Unable(if offered.is_empty() {
            "this kernel has no folios of several sizes; Linux has them from 6.8 on".to_string()
        } else {
            format!("this kernel has no folios of {size}; it has {}", offered.join(", "))
        }));
    }
    for other in offered.into_iter().filter(|other| !wanted.contains(*other)) {
        let switch = switch(other.bytes());
        let value = system.get(&switch)?;
        if value == "always" || (value == "inherit" && enabled == "always") {
            plan.want(&switch, "madvise");
        }
    }
    wanted.iter().for_each(|size| plan.want(&switch(size.bytes()), "always"));
    Ok(())
}

fn did(policy: &Policy, found: &Found) -> Did {
    let sizes = policy.common.given().sizes("size");
    // A huge page is a folio too, and easier to see.
    let whole = PageSize::from_bytes(found.page).is_some_and(|huge| sizes.contains(huge));
    let Some(bytes) = found.folios.max(found.huge.filter(|bytes| whole && *bytes > 0)) else {
        let why = if rustix::process::geteuid().is_root() {
            "no run was long enough near its peak to read every page"
        } else {
            "root sees it, in warm-up runs"
        };
        return Did::new(format!("how much is in folios of {sizes} was not seen: {why}"), None);
    };
    if sizes.iter().all(|size| found.rules.anonymous(size) == Some("always")) {
        return Did::new(format!("nothing: this system has folios of {sizes} everywhere as it is"), false);
    }
    match (bytes, &found.why) {
        (0, Some(why)) => Did::new(format!("nothing: {why}"), false),
        (0, None) => Did::new(format!("nothing: no folio of {sizes} came to be"), false),
        (bytes, _) => Did::new(format!("{} in folios of {sizes}", part(bytes, found.peak)), true),
    }
}
