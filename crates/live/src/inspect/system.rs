//! The system: free memory by size, its fragmentation, the pools, and the work of the kernel's own
//! threads.

use procfs::{Current, Meminfo};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;
use superpage_linux::Error;
use superpage_linux::rules::Rules;
use superpage_linux::settings::sizes;
use superpage_pages::PageSize;

/// The free memory of a zone, from `/proc/buddyinfo`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Zone {
    /// The memory node.
    pub node: u32,
    /// `DMA32`, `Normal` and so on.
    pub zone: String,
    /// Free blocks of each order: block `n` is `2^n` base pages.
    pub free_blocks: Vec<u64>,
}

impl Zone {
    /// Free bytes.
    pub fn free_bytes(&self) -> u64 {
        self.bytes_from(0)
    }

    /// The share of the free memory that an allocation of `2^order` base pages cannot use, since it
    /// is in smaller blocks: the unusable free space index, 0 (none) to 1 (all); `None` if nothing
    /// is free.
    pub fn unusable(&self, order: usize) -> Option<f64> {
        let free = self.free_bytes();
        (free > 0).then(|| (free - self.bytes_from(order)) as f64 / free as f64)
    }

    fn bytes_from(&self, order: usize) -> u64 {
        let base = rustix::param::page_size() as u64;
        self.free_blocks.iter().enumerate().skip(order).map(|(order, blocks)| blocks * (base << order)).sum()
    }
}

/// A pool of `hugetlb` pages of one size. All but the size are numbers of pages.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Pool {
    /// The size of its pages.
    pub size: PageSize,
    /// All pages, including surplus ones.
    pub pages: u64,
    /// Unused pages, including reserved ones.
    pub free: u64,
    /// Pages reserved by mappings, not yet touched.
    pub reserved: u64,
    /// Pages beyond the configured number.
    pub surplus: u64,
    /// The limit of surplus pages.
    pub overcommit: u64,
}

/// The system at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct System {
    /// The zones with memory.
    pub zones: Vec<Zone>,
    /// The pools, smallest pages first.
    pub pools: Vec<Pool>,
    /// The settings.
    pub rules: Rules,
    /// The fields of `/proc/meminfo` about huge pages and total memory, in bytes.
    pub memory: BTreeMap<&'static str, u64>,
    /// For each folio size: what was allocated, refused, split, swapped since the system started
    /// (`hugepages-*/stats`; those that begin with `nr_` are current values).
    pub folios: BTreeMap<PageSize, BTreeMap<String, u64>>,
    /// Counters since the system started: `thp_*`, `compact_*`, `htlb_*` and `pgmigrate_*` of
    /// `/proc/vmstat`, and `khugepaged_*` of its own folder.
    pub counters: BTreeMap<String, u64>,
    /// When this was read.
    #[serde(skip)]
    pub when: Instant,
}

impl System {
    /// Reads everything, in about a millisecond. What this kernel does not have, or does not show,
    /// is left out.
    ///
    /// # Errors
    /// `/proc` is missing.
    pub fn read() -> Result<System, Error> {
        let path = Path::new("/proc/buddyinfo");
        let buddyinfo = std::fs::read_to_string(path).map_err(Error::file("read", path))?;
        let thp = Path::new("/sys/kernel/mm/transparent_hugepage");
        let vmstat = procfs::vmstat().unwrap_or_default();
        let shown =
            |name: &str| ["thp_", "compact_", "htlb_", "pgmigrate_"].iter().any(|begin| name.starts_with(begin));
        let mut counters: BTreeMap<String, u64> =
            vmstat.into_iter().filter(|(name, _)| shown(name)).map(|(name, n)| (name, n.max(0) as u64)).collect();
        for name in ["pages_collapsed", "full_scans"] {
            let count = number(&thp.join("khugepaged").join(name));
            counters.extend(count.map(|count| (format!("khugepaged_{name}"), count)));
        }
        let stats = |folder: &Path| {
            let files = std::fs::read_dir(folder.join("stats")).into_iter().flatten().flatten();
            files.filter_map(|file| Some((file.file_name().into_string().ok()?, number(&file.path())?))).collect()
        };
        Ok(System {
            zones: zones(&buddyinfo),
            pools: pools(Path::new("/sys/kernel/mm/hugepages")),
            rules: Rules::read(),
            memory: Meminfo::current().map(|info| memory(&info)).unwrap_or_default(),
            folios: sizes(thp).into_iter().map(|(size, folder)| (size, stats(&folder))).collect(),
            counters,
            when: Instant::now(),
        })
    }

    /// Counts per second since an earlier moment, by the name of the counter; counters that did not
    /// change are left out. Counters of folios are named `64K anon_fault_alloc`.
    pub fn rates(&self, since: &System) -> BTreeMap<String, f64> {
        let seconds = self.when.duration_since(since.when).as_secs_f64();
        let (now, then) = (self.all(), since.all());
        let changed = now.into_iter().filter_map(|(name, count)| {
            let more = count.checked_sub(*then.get(&name)?)?;
            (more > 0 && seconds > 0.0).then(|| (name, more as f64 / seconds))
        });
        changed.collect()
    }

    fn all(&self) -> BTreeMap<String, u64> {
        let folios = self.folios.iter().flat_map(|(size, stats)| {
            let counted = stats.iter().filter(|(name, _)| !name.starts_with("nr_"));
            counted.map(move |(name, count)| (format!("{size} {name}"), *count))
        });
        self.counters.clone().into_iter().chain(folios).collect()
    }
}

/// How many free blocks of `size` bytes there are, larger ones counted as several; `None` where the
/// kernel does not show it.
pub(crate) fn free_blocks(size: u64) -> Option<u64> {
    let buddyinfo = std::fs::read_to_string("/proc/buddyinfo").ok()?;
    Some(blocks_of(&zones(&buddyinfo), size / rustix::param::page_size() as u64))
}

/// The free blocks of this many base pages.
fn blocks_of(zones: &[Zone], pages: u64) -> u64 {
    let of = |zone: &Zone| -> u64 {
        let orders = zone.free_blocks.iter().enumerate();
        orders.map(|(order, blocks)| blocks * ((1 << order) / pages)).sum()
    };
    zones.iter().map(of).sum()
}

fn zones(buddyinfo: &str) -> Vec<Zone> {
    let zone = |line: &str| {
        let (place, rest) = line.split_once(", zone")?;
        let mut words = rest.split_whitespace();
        Some(Zone {
            node: place.strip_prefix("Node")?.trim().parse().ok()?,
            zone: words.next()?.to_string(),
            free_blocks: words.map(|word| word.parse().ok()).collect::<Option<_>>()?,
        })
    };
    buddyinfo.lines().filter_map(zone).collect()
}

/// The pools that the kernel shows in this folder, smallest pages first.
pub(crate) fn pools(folder: &Path) -> Vec<Pool> {
    let pools = sizes(folder).into_iter().map(|(size, folder)| {
        let file = |name: &str| number(&folder.join(name)).unwrap_or(0);
        Pool {
            size,
            pages: file("nr_hugepages"),
            free: file("free_hugepages"),
            reserved: file("resv_hugepages"),
            surplus: file("surplus_hugepages"),
            overcommit: file("nr_overcommit_hugepages"),
        }
    });
    pools.collect()
}

fn memory(info: &Meminfo) -> BTreeMap<&'static str, u64> {
    let known = [
        ("MemTotal", Some(info.mem_total)),
        ("MemFree", Some(info.mem_free)),
        ("MemAvailable", info.mem_available),
        ("AnonPages", info.anon_pages),
        ("AnonHugePages", info.anon_hugepages),
        ("ShmemHugePages", info.shmem_hugepages),
        ("ShmemPmdMapped", info.shmem_pmd_mapped),
        ("FileHugePages", info.file_huge_pages),
        ("FilePmdMapped", info.file_pmd_mapped),
        ("Hugetlb", info.hugetlb),
        ("PageTables", info.page_tables),
    ];
    known.into_iter().filter_map(|(name, bytes)| Some((name, bytes?))).collect()
}

fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragmentation_is_what_lies_in_smaller_blocks() {
        let text = "Node 0, zone      DMA      0      0      1 \nNode 1, zone   Normal      4      2      0 \n";
        let found = zones(text);
        assert_eq!(
            (found[0].node, found[0].zone.as_str(), found[1].free_blocks.as_slice()),
            (0, "DMA", &[4, 2, 0][..])
        );
        assert_eq!((found[0].unusable(2), found[0].unusable(3)), (Some(0.0), Some(1.0)));
        assert_eq!(
            (found[1].unusable(0), found[1].unusable(1), found[1].unusable(2)),
            (Some(0.0), Some(0.5), Some(1.0))
        );
        assert_eq!([1, 2, 4].map(|pages| blocks_of(&found, pages)), [4 + 4 + 2 * 2, 2 + 2, 1]);
        let none = Zone { free_blocks: vec![0, 0], ..found[0].clone() };
        assert_eq!(none.unusable(1), None);
    }

    #[test]
    fn rates_are_of_what_changed() {
        let Ok(now) = System::read() else {
            superpage_testing::skip!("system", "no /proc/buddyinfo");
            return;
        };
        let later = now.when + std::time::Duration::from_secs(2);
        let mut counters = now.counters.clone();
        counters.insert("thp_fault_alloc".into(), now.counters.get("thp_fault_alloc").unwrap_or(&0) + 10);
        let mut now = now;
        now.counters.entry("thp_fault_alloc".into()).or_default();
        let then = System { counters, when: later, ..now.clone() };
        assert_eq!(then.rates(&now).into_iter().collect::<Vec<_>>(), [("thp_fault_alloc".to_string(), 5.0)]);
        assert!(now.rates(&now).is_empty());
    }
}
