//! Which page sizes a program can use here, and how.

use super::Finding;
use super::memory::{HUGE, Memory};
use crate::inspect::{Pool, pools};
use crate::policy::switch;
use std::path::Path;
use superpage_linux::{Error, rules::Rules, settings::Settings, signals::Signals};
use superpage_pages::PageSize;

/// The sizes of folios that the kernel knows, ascending, the huge page among them, and whether
/// advised memory is given them. Some sizes are for files only, and are none of these.
pub(crate) fn folios() -> impl Iterator<Item = (PageSize, bool)> {
    Rules::read().sizes.into_iter().map(|(size, word)| (size, matches!(word.as_str(), "always" | "madvise")))
}

/// The sizes that a program may have.
pub(crate) fn sizes() -> Vec<Finding> {
    // Not what another call has set for its own command: that waits until it has put everything
    // back. Without the right to lock settings it cannot be known.
    let lock = Settings::take(true);
    let doubt = lock.as_ref().err().map_or_else(String::new, |error| {
        format!("; whether another call of superpage has changed them just now is not known: {error}")
    });
    let what = |size: &str| format!("pages of {size}");
    let mut findings = vec![Finding::text("pages.4K", &what("4K"), "base page", 1.0, "sysconf(_SC_PAGESIZE)".into())];
    let (mut allowed, mut refused) = (Vec::new(), Vec::new());
    for (size, enabled) in folios() {
        if size == PageSize::MB2 {
            let (name, what) = (format!("pages.{size}"), what("2M"));
            findings.push(match Memory::huge(4 * HUGE).and_then(|memory| memory.huge_bytes()) {
                Ok(got) if got > 0 => {
                    let evidence =
                        format!("{} MB of {} MB advised and touched were mapped so", got >> 20, (4 * HUGE) >> 20);
                    let way = "transparent huge pages, advised (MADV_HUGEPAGE) or collapsed (MADV_COLLAPSE)";
                    Finding::text(&name, &what, way, got as f64 / (4 * HUGE) as f64, evidence)
                }
                Ok(_) => Finding::unknown(&name, &what, "of 8 MB advised and touched nothing was mapped so".into()),
                Err(error) => Finding::unknown(&name, &what, error.to_string()),
            });
            continue;
        }
        let list = if enabled { &mut allowed } else { &mut refused };
        list.push(size.to_string());
    }
    for (name, list, way) in
        [("now", allowed, "transparent folios, advised (MADV_HUGEPAGE)"), ("not-now", refused, "not now")]
    {
        if !list.is_empty() {
            let evidence = format!("as /sys/kernel/mm/transparent_hugepage/hugepages-*kB/enabled say{doubt}");
            let what = format!("pages of {}", list.join(", "));
            findings.push(Finding::text(&format!("pages.folios.{name}"), &what, way, 1.0, evidence));
        }
    }
    for Pool { size, free, overcommit, .. } in pools(Path::new("/sys/kernel/mm/hugepages")) {
        let evidence = format!("{free} pages free in the static pool, {overcommit} may be added on demand");
        let value =
            if free + overcommit > 0 { "static pool (MAP_HUGETLB)" } else { "not now: the static pool is empty" };
        let what = format!("pages of {size}, hugetlb");
        findings.push(Finding::text(&format!("pages.hugetlb.{size}"), &what, value, 1.0, evidence));
    }
    findings
}

/// Settings of the whole system that are changed while this lives. They are put back before a
/// signal ends this process.
pub(crate) struct Allowed {
    // Dropped in this order.
    _settings: Settings,
    _signals: Signals,
}

/// Allows folios of this size for advised memory too, until the returned value is dropped.
pub(crate) fn allow(size: PageSize) -> Result<Allowed, Error> {
    let _signals = Signals::hold()?;
    let mut settings = Settings::take(true)?;
    settings.set(&switch(size.bytes()), "madvise")?;
    Ok(Allowed { _settings: settings, _signals })
}

/// Allows folios of this size alone for advised memory, until the returned value is dropped: a
/// larger allowed size would be taken first.
pub(crate) fn allow_only(only: PageSize) -> Result<Allowed, Error> {
    let _signals = Signals::hold()?;
    let mut settings = Settings::take(true)?;
    for (size, _) in folios() {
        settings.set(&switch(size.bytes()), if size == only { "madvise" } else { "never" })?;
    }
    Ok(Allowed { _settings: settings, _signals })
}
