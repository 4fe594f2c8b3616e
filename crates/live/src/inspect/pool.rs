//! Pools of hugetlb: what a service uses of them, and how large one must be.

use super::mapping::{Mapping, Pooled};
use super::process::Process;
use super::system::{Pool, pools};
use crate::launch::{Line, Part};
use procfs::{Current, Meminfo};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use superpage_linux::pagemap::huge_page_bytes;
use superpage_linux::settings::{HUGETLB_POOL, System};
use superpage_pages::PageSize;
use superpage_report::bytes;

/// A sentence for each pool of this system that has pages: how much of it the processes use, and
/// others. Of their shared memory they use also what none of them has in its page table: bytes by
/// the size of the pages.
pub(super) fn notes(processes: &[Process], unmapped: &BTreeMap<u64, u64>) -> Vec<String> {
    let mappings = || processes.iter().flat_map(|process| &process.mappings);
    let used = |size: PageSize| {
        let unmapped = unmapped.get(&size.bytes()).copied().unwrap_or(0);
        // Shares of pages that several map do not add up to the byte.
        mapped(mappings(), size) + (unmapped + size.bytes() / 2) / size.bytes()
    };
    let pools = pools(Path::new(POOLS));
    pools.iter().filter(|pool| pool.pages > 0).map(|pool| note(pool, used(pool.size))).collect()
}

/// How many pages of the pool of this size are resident in the mappings; what several of them share
/// counts once.
fn mapped<'a>(mappings: impl Iterator<Item = &'a Mapping>, size: PageSize) -> u64 {
    let (mut alone, mut shared) = (0, BTreeMap::new());
    for mapping in mappings.filter(|mapping| mapping.pooled.size == size.bytes()) {
        let Pooled { file, page, offsets, .. } = &mapping.pooled;
        alone += mapping.resident_bytes - offsets.len() as u64 * page;
        shared.extend(offsets.iter().map(|at| ((*file, *at), *page)));
    }
    (alone + shared.values().sum::<u64>()).div_ceil(size.bytes())
}

fn note(pool: &Pool, used: u64) -> String {
    let of = |pages: u64| bytes(pages * pool.size.bytes());
    let Pool { size, pages, free, reserved, .. } = pool;
    let own = match used {
        0 => "none of them is used here".to_string(),
        1 => "one of them is used here".to_string(),
        some => format!("{some} of them are used here"),
    };
    let rest = match (free, reserved) {
        (0, _) => "none is free".to_string(),
        (free, 0) => format!("{free} are free, {} that nothing else can use", of(*free)),
        (free, reserved) => format!("{free} are free, {reserved} of these reserved"),
    };
    format!("the hugetlb pool of {size} has {pages} pages ({}): {own}, {rest}", of(*pages))
}

/// Lines that set up a pool; of its default size, `now` pages would hold what is mapped.
pub(super) fn set_aside(now: u64) -> [Line; 2] {
    let size = PageSize::from_bytes(page()).map_or(String::new(), |size| format!(" of {size}"));
    let there = pools(Path::new(POOLS)).into_iter().find(|pool| pool.size.bytes() == page());
    let used = there.as_ref().map_or(0, |pool| pool.pages.saturating_sub(pool.free) + pool.reserved);
    let there = there.map_or(0, |pool| pool.pages - pool.surplus);
    // Another superpage may have changed it for a while.
    let before = System::live().put_back_by_another(HUGETLB_POOL);
    let there = before.and_then(|pages| pages.parse().ok()).unwrap_or(there);
    lines(now, there, used.min(there), &size)
}

/// Those lines, where `there` pages are in the pool now, of which others have `used`.
fn lines(now: u64, there: u64, used: u64, size: &str) -> [Line; 2] {
    let others = if used > 0 { format!(", and others have {used}") } else { String::new() };
    let does = format!(
        "sets a pool aside, N pages{size} that nothing else can use: what is mapped now takes {now}{others} (root; \
         undo: sysctl -w vm.nr_hugepages={there})"
    );
    [
        Line::new(does, "sysctl -w vm.nr_hugepages=N"),
        Line {
            file: Some(Part {
                path: FILE.into(),
                text: format!(
                    "# As many pages{size} as what is mapped now takes{}. To undo it, remove this file and type\n\
                     # sysctl -w vm.nr_hugepages={there}\nvm.nr_hugepages = {}\n",
                    if used > 0 { format!(", and {used} of others") } else { String::new() },
                    now + used
                ),
            }),
            ..Line::new(
                format!("the same at each boot (root; undo: rm {FILE}; sysctl -w vm.nr_hugepages={there})"),
                format!("echo 'vm.nr_hugepages = N' > {FILE}"),
            )
        },
    ]
}

/// How many pages of the default size hold these mappings, each by itself; what several processes
/// map counts once, and what is smaller than a page is not for a pool.
pub(super) fn needed<'a>(mappings: impl Iterator<Item = &'a Mapping>) -> u64 {
    let large = mappings.filter(|it| it.end - it.start >= page());
    let distinct: BTreeSet<(u64, u64, &str)> = large.map(|it| (it.start, it.end, it.name.as_str())).collect();
    distinct.into_iter().map(|(start, end, _)| (end - start).div_ceil(page())).sum()
}

/// What sets a pool aside at each boot.
const FILE: &str = "/etc/sysctl.d/superpage.conf";

/// The kernel's folder of all pools.
const POOLS: &str = "/sys/kernel/mm/hugepages";

/// The default size of a pool's pages, which `vm.nr_hugepages` counts.
fn page() -> u64 {
    Meminfo::current().ok().and_then(|info| info.hugepagesize).unwrap_or_else(huge_page_bytes)
}

#[cfg(test)]
mod tests {
    use super::super::advice::tests::mapping;
    use super::super::mapping::MappingKind;
    use super::*;
    use superpage_linux::why::Why;

    #[test]
    fn a_pool_is_rounded_up_for_each_mapping() {
        let shared = |megabytes| mapping(MappingKind::SharedMemory, "rw-s", "/dev/zero", Why::Misaligned, megabytes);
        // The same buffers of two processes, and others.
        let each = |megabytes: u64| (megabytes << 20).div_ceil(page());
        assert_eq!(needed([shared(143), shared(143), shared(5), shared(1)].iter()), each(143) + each(5));
    }

    #[test]
    fn a_pool_is_set_aside_by_a_file_that_says_how_to_undo_it() {
        for (there, used, begin, end) in [
            (
                0,
                0,
                "# As many pages of 2M as what is mapped now takes. To undo",
                "vm.nr_hugepages=0\nvm.nr_hugepages = 73\n",
            ),
            (9, 0, "# As many pages of 2M as what is mapped now takes. To undo", "=9\nvm.nr_hugepages = 73\n"),
            (9, 5, "# As many pages of 2M as what is mapped now takes, and 5 of others.", "=9\nvm.nr_hugepages = 78\n"),
        ] {
            let [_, at_boot] = lines(73, there, used, " of 2M");
            let Part { path, text } = at_boot.file.unwrap();
            assert_eq!(path, "/etc/sysctl.d/superpage.conf");
            assert!(text.starts_with(begin) && text.ends_with(end) && text.lines().count() == 3, "{text}");
        }
    }

    #[test]
    fn a_page_that_several_share_is_used_once_and_one_of_a_single_process_too() {
        let huge = |offsets: Vec<u64>, inode: u64, page: u64, size: u64| {
            let pooled = Pooled { file: ((0, 1), inode), page, size, offsets };
            Mapping { pooled, ..mapping(MappingKind::Hugetlb, "rw-s", "/dev/zero", Why::Misaligned, 8) }
        };
        let (two, giga) = (2 << 20, 1 << 30);
        // 8 MB each: two shared pages of 2 MB among two processes, the other two of each its own.
        let both = [huge(vec![0, two], 7, two, two), huge(vec![0, two], 7, two, two)];
        let size = |bytes| PageSize::from_bytes(bytes).unwrap();
        assert_eq!((mapped(both.iter(), size(two)), mapped(both.iter(), size(giga))), (2 + 2 + 2, 0));
        assert_eq!(mapped([huge(vec![], 8, two, giga)].iter(), size(giga)), 1);
        assert_eq!(mapped([mapping(MappingKind::Anonymous, "rw-p", "", Why::NotAdvised, 8)].iter(), size(two)), 0);
    }

    #[test]
    fn what_lies_idle_is_said() {
        let pool = |free, reserved| Pool {
            size: PageSize::from_bytes(2 << 20).unwrap(),
            pages: 100,
            free,
            reserved,
            surplus: 0,
            overcommit: 0,
        };
        let all = "the hugetlb pool of 2M has 100 pages (200 MB): ";
        assert_eq!(
            note(&pool(100, 0), 0),
            format!("{all}none of them is used here, 100 are free, 200 MB that nothing else can use")
        );
        assert_eq!(
            note(&pool(40, 30), 60),
            format!("{all}60 of them are used here, 40 are free, 30 of these reserved")
        );
        assert_eq!(note(&pool(0, 0), 100), format!("{all}100 of them are used here, none is free"));
    }
}
