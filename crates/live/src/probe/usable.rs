//! Which page sizes a program can use here, and how.

use super::Finding;
use super::memory::{HUGE, Memory};
use std::fs;
use superpage_linux::{Error, settings::Settings, signals::Signals};
use superpage_pages::PageSize;

/// A size of folio that the kernel knows between the base page and the huge page, or the huge page.
pub(crate) struct Mthp {
    pub(crate) bytes: usize,
    /// Whether advised memory is given it.
    pub(crate) enabled: bool,
}

const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// All sizes for transparent huge pages, ascending.
pub(crate) fn mthp() -> Vec<Mthp> {
    let global = chosen(&format!("{THP}/enabled"));
    // Some sizes are for files only, and have no such switch.
    let mut sizes: Vec<Mthp> = kilobytes(THP)
        .into_iter()
        .filter_map(|size| {
            let own = chosen(&format!("{THP}/hugepages-{size}kB/enabled"))?;
            let word = if own == "inherit" { global.as_deref().unwrap_or_default() } else { &own };
            Some(Mthp { bytes: size << 10, enabled: matches!(word, "always" | "madvise") })
        })
        .collect();
    sizes.sort_by_key(|size| size.bytes);
    sizes
}

/// The sizes that a program may have.
pub(crate) fn sizes() -> Vec<Finding> {
    // Not what another call has set for its own command: that waits until it has put everything back. Without the right to
    // lock settings it cannot be known.
    let lock = Settings::take(true);
    let doubt = lock.as_ref().err().map_or_else(String::new, |error| {
        format!("; whether another call of superpage has changed them just now is not known: {error}")
    });
    let what = |size: &str| format!("pages of {size}");
    let mut findings = vec![Finding::text("pages.4K", &what("4K"), "base page", 1.0, "sysconf(_SC_PAGESIZE)".into())];
    let (mut allowed, mut refused) = (Vec::new(), Vec::new());
    for Mthp { bytes, enabled } in mthp() {
        let size =
            PageSize::from_bytes(bytes as u64).map_or_else(|| format!("{} KB", bytes >> 10), |size| size.to_string());
        let (name, what) = (format!("pages.{size}"), what(&size));
        if bytes == HUGE {
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
        list.push(size);
    }
    for (name, list, way) in
        [("now", allowed, "transparent folios, advised (MADV_HUGEPAGE)"), ("not-now", refused, "not now")]
    {
        if !list.is_empty() {
            let evidence = format!("as {THP}/hugepages-*kB/enabled say{doubt}");
            let what = format!("pages of {}", list.join(", "));
            findings.push(Finding::text(&format!("pages.folios.{name}"), &what, way, 1.0, evidence));
        }
    }
    let pools = "/sys/kernel/mm/hugepages";
    let mut sizes = kilobytes(pools);
    sizes.sort_unstable();
    for size in sizes {
        let read = |file: &str| {
            let text = fs::read_to_string(format!("{pools}/hugepages-{size}kB/{file}"));
            text.ok().and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        let name =
            PageSize::from_bytes((size as u64) << 10).map_or_else(|| format!("{size} KB"), |size| size.to_string());
        let (free, over) = (read("free_hugepages"), read("nr_overcommit_hugepages"));
        let evidence = format!("{free} pages free in the static pool, {over} may be added on demand");
        let value = if free + over > 0 { "static pool (MAP_HUGETLB)" } else { "not now: the static pool is empty" };
        let what = format!("pages of {name}, hugetlb");
        findings.push(Finding::text(&format!("pages.hugetlb.{name}"), &what, value, 1.0, evidence));
    }
    findings
}

/// The sizes in the names of directories `hugepages-<size>kB`.
fn kilobytes(directory: &str) -> Vec<usize> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let name = |entry: fs::DirEntry| entry.file_name().into_string().ok();
    let size = |name: String| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok();
    entries.filter_map(name).filter_map(size).collect()
}

/// The word in brackets of a file with a choice.
fn chosen(file: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let word = text.split_once('[')?.1.split_once(']')?.0;
    Some(word.to_string())
}

/// Settings of the whole system that are changed while this lives. They are put back before a signal ends this process.
pub(crate) struct Allowed {
    // Dropped in this order.
    _settings: Settings,
    _signals: Signals,
}

/// Allows folios of this size for advised memory too, until the returned value is dropped.
pub(crate) fn allow(bytes: usize) -> Result<Allowed, Error> {
    let _signals = Signals::hold()?;
    let mut settings = Settings::take(true)?;
    settings.set(&setting(bytes), "madvise")?;
    Ok(Allowed { _settings: settings, _signals })
}

fn setting(bytes: usize) -> String {
    format!("sys/kernel/mm/transparent_hugepage/hugepages-{}kB/enabled", bytes >> 10)
}

/// Allows folios of this size alone for advised memory, until the returned value is dropped: a larger allowed size would be
/// taken first.
pub(crate) fn allow_only(bytes: usize) -> Result<Allowed, Error> {
    let _signals = Signals::hold()?;
    let mut settings = Settings::take(true)?;
    for size in mthp() {
        settings.set(&setting(size.bytes), if size.bytes == bytes { "madvise" } else { "never" })?;
    }
    Ok(Allowed { _settings: settings, _signals })
}
