//! Pools of hugetlb: what a service uses of them, and how large one must be.

use super::mapping::Mapping;
use super::process::Process;
use super::system::{Pool, pools};
use crate::launch::Line;
use std::collections::BTreeSet;
use std::path::Path;
use superpage_linux::pagemap::huge_page_bytes;
use superpage_pages::PageSize;
use superpage_report::bytes;

/// A sentence for each pool of this system that has pages: how much of it the processes use, and others.
pub(super) fn notes(processes: &[Process]) -> Vec<String> {
    let mapped = |size: PageSize| {
        let pooled = processes.iter().flat_map(|process| &process.mappings).map(|mapping| &mapping.pooled);
        let pages: BTreeSet<_> = pooled
            .filter(|pooled| pooled.page == size.bytes())
            .flat_map(|pooled| pooled.offsets.iter().map(move |at| (pooled.file, *at)))
            .collect();
        pages.len() as u64
    };
    let pools = pools(Path::new("/sys/kernel/mm/hugepages"));
    pools.iter().filter(|pool| pool.pages > 0).map(|pool| note(pool, mapped(pool.size))).collect()
}

fn note(pool: &Pool, mapped: u64) -> String {
    let of = |pages: u64| bytes(pages * pool.size.bytes());
    let Pool { size, pages, free, reserved, .. } = pool;
    let own = match mapped {
        0 => "none of them is used here".to_string(),
        some => format!("{some} of them are used here"),
    };
    let rest = match (free, reserved) {
        (0, _) => "none is free".to_string(),
        (free, 0) => format!("{free} are free, {} that nothing else can use", of(*free)),
        (free, reserved) => format!("{free} are free, {reserved} of these reserved"),
    };
    format!("the hugetlb pool of {size} has {pages} pages ({}): {own}, {rest}", of(*pages))
}

/// What sets a pool aside, of which these mappings need `now` pages as they are mapped now, or if their program knows
/// better, N.
pub(super) fn set_aside(now: u64) -> [Line; 2] {
    let does = format!(
        "sets a pool aside, N pages of {} that nothing else can use: {now} for what is mapped now (root; undone by 0)",
        PageSize::from_bytes(huge_page_bytes()).expect("it is a power of two")
    );
    [
        Line::new(does, "sysctl -w vm.nr_hugepages=N"),
        Line::new(
            "the same at each boot (root; undone by removing the file)",
            "echo 'vm.nr_hugepages = N' > /etc/sysctl.d/superpage.conf",
        ),
    ]
}

/// How many huge pages hold these mappings, each by itself; what several processes map counts once.
pub(super) fn needed<'a>(mappings: impl Iterator<Item = &'a Mapping>) -> u64 {
    let distinct: BTreeSet<(u64, u64, &str)> = mappings.map(|it| (it.start, it.end, it.name.as_str())).collect();
    distinct.into_iter().map(|(start, end, _)| (end - start).div_ceil(huge_page_bytes())).sum()
}

#[cfg(test)]
mod tests {
    use super::super::advice::tests::mapping;
    use super::super::mapping::Kind;
    use super::*;
    use superpage_linux::why::Why;

    #[test]
    fn a_pool_is_rounded_up_for_each_mapping() {
        let shared = |megabytes| mapping(Kind::SharedMemory, "rw-s", "/dev/zero", Why::Misaligned, megabytes);
        // The same buffers of two processes, and others.
        assert_eq!(needed([shared(143), shared(143), shared(1)].iter()), 72 + 1);
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
