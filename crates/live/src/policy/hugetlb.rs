//! `hugetlb`: a static pool of huge pages, for the C library's allocator.

use super::{AS_SET, Aim, Bytes, Did, Error, Found, Given, HUGETLB_POOL, Live, Plan, Policy, System, Wanted, found};
use superpage_linux::proc::bytes_of;
use superpage_linux::settings::HUGETLB_OVERCOMMIT;

pub(super) fn live(_: &Given) -> Live {
    Live { plan, did, aim: Some(Aim::Hugetlb), ..Live::default() }
}

fn plan(policy: &Policy, plan: &mut Plan, system: &System) -> Result<(), Error> {
    plan.disable(AS_SET);
    plan.malloc = Some(2);
    let count = |setting: &str| -> Result<u64, Error> {
        let text = system.get(setting)?;
        text.parse().map_err(|_| Error::Unable(format!("{} is no number", system.path(setting).display())))
    };
    let now = count(HUGETLB_POOL)?;
    let page = meminfo(system, "Hugepagesize")?;
    let available = meminfo(system, "MemAvailable")?;
    let Some(pool) = policy.common.given().number("pool") else {
        // Nine tenths, to leave room for the other pages that the programs need.
        let wanted = available / 10 * 9 / page;
        if wanted == 0 && now == 0 {
            return Err(Error::Unable(format!(
                "no memory is available for a page of hugetlb of {}; free some, or use another policy",
                Bytes(page)
            )));
        }
        let limit = count(HUGETLB_OVERCOMMIT)?;
        if wanted > limit {
            let (exactly, optional) = (false, now + limit > 0);
            plan.settings.push(Wanted { exactly, optional, ..Wanted::new(HUGETLB_OVERCOMMIT, wanted) });
        }
        return Ok(());
    };
    let wanted = pool.div_ceil(page);
    let more = wanted.saturating_sub(now).saturating_mul(page);
    if more > available {
        return Err(Error::Unable(format!(
            "a pool of {} needs {} of memory more, and {} is available; ask for a smaller one",
            Bytes(pool),
            Bytes(more),
            Bytes(available)
        )));
    }
    if wanted > now {
        plan.want(HUGETLB_POOL, wanted);
    }
    Ok(())
}

fn did(policy: &Policy, found: &Found) -> Did {
    match (found.hugetlb, &found.why) {
        (Some((pool, before)), Some(why)) if pool > before => Did::new(format!("little: {why}"), true),
        (Some((pool, before)), None) if pool > before => {
            Did::new(format!("{} in pages of hugetlb", found.part(pool)), true)
        }
        (Some((0, 0)), _) => Did::new(found.nothing(), false),
        _ => found::more_huge(policy, found),
    }
}

/// A line of `/proc/meminfo`, in bytes.
fn meminfo(system: &System, name: &str) -> Result<u64, Error> {
    let path = system.path("proc/meminfo");
    let text = std::fs::read_to_string(&path).map_err(Error::file("read", &path))?;
    bytes_of(&text, name)
        .ok_or_else(|| Error::Unable(format!("{} has no {name}: this kernel has no hugetlb", path.display())))
}
