//! The contiguity that the kernel provides: how much of fresh memory is in aligned contiguous
//! groups, before and after a churn.

use super::churn::{Churn, Free};
use super::memory::{BASE, Memory};
use super::{Finding, Series};
use crate::inspect::contiguity as inspect;
use procfs::process::{MMPermissions, MMapPath, MemoryMap};
use std::io::Write;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicBool;
use superpage_linux::Error;
use superpage_linux::proc::{mappings, maps};

/// Memory that is looked at.
const BYTES: usize = 32 << 20;
/// The order of 16 KB.
const ORDER: usize = 2;

/// Anonymous, file and text memory, fresh and while a churn holds its pages; and what the kernel
/// has free before, meanwhile and after. `share` of the available memory is churned, none for 0.
pub(crate) fn measure(share: f64, stop: &AtomicBool) -> Vec<Finding> {
    let mut findings = all("fresh", "");
    let (name, what) = ("churn", "a churn of base pages");
    if share == 0.0 {
        findings.push(Finding::unmeasured(name, what, "--churn 0 asks for none".into()));
        return findings;
    }
    findings.push(free("fresh", ""));
    let churn = match Churn::start(share, stop) {
        Ok(churn) => churn,
        Err(error) => {
            findings.push(Finding::unmeasured(name, what, error.to_string()));
            return findings;
        }
    };
    let size = format!("{}, half of it held", superpage_report::bytes(churn.taken));
    findings.push(Finding::text(name, what, &size, 1.0, churn.done.clone()));
    findings.push(free("churned", ", after a churn"));
    findings.extend(all("churned", ", after a churn"));
    drop(churn);
    findings.push(free("given-back", ", after it was given back"));
    findings
}

/// How much of what is free lies in blocks that four pages fit into.
fn free(when: &str, then: &str) -> Finding {
    let (name, what) = (format!("free.{when}"), format!("free memory in blocks of 16K and more{then}"));
    let free = match Free::now() {
        Ok(free) => free,
        Err(error) => return Finding::unknown(&name, &what, error.to_string()),
    };
    let all = (free.bytes_from(0) + free.kept).max(1);
    let share = |bytes: u64| bytes as f64 / all as f64;
    let blocks: Vec<String> = free.blocks.iter().map(u64::to_string).collect();
    let evidence = format!(
        "{} are free; blocks by order, from 4K, in all zones: {}; and {} in pages that processors keep for themselves",
        superpage_report::bytes(all),
        blocks.join(" "),
        superpage_report::bytes(free.kept)
    );
    let points = (0..free.blocks.len())
        .map(|order| [(BASE << order) as f64, share(free.bytes_from(order) - free.bytes_from(order + 1))]);
    let series = Series { name, axes: ["bytes of a free block", "share of free memory"], points: points.collect() };
    let value = 100.0 * share(free.bytes_from(ORDER));
    Finding::number(&series.name, &what, value, 1.0, evidence).unit("%").with(series.clone())
}

fn all(when: &str, then: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for kind in ["anonymous", "file", "text"] {
        // The text of this program is where it was.
        if kind == "text" && when != "fresh" {
            continue;
        }
        let (name, what) =
            (format!("contiguity.{kind}.{when}"), format!("{kind} memory in aligned groups of 64K{then}"));
        let groups = match kind {
            "anonymous" => anonymous(),
            "file" => file(),
            _ => text(),
        };
        findings.push(match groups {
            Ok(groups) => groups.finding(&name, &what),
            Err(error) => Finding::unknown(&name, &what, error.to_string()),
        });
    }
    findings
}

/// Shares of memory in aligned contiguous groups, by bytes of the group.
struct Groups {
    resident: u64,
    shares: Vec<[f64; 2]>,
}

impl Groups {
    fn of(range: Range<u64>) -> Result<Groups, Error> {
        let contiguity = inspect(std::process::id(), range)?;
        if contiguity.resident_bytes == 0 {
            return Err(Error::Unable("nothing of it is in memory".into()));
        }
        let resident = contiguity.resident_bytes;
        let share = |bytes: u64| bytes as f64 / resident as f64;
        let shares = contiguity.aligned_bytes.iter().map(|(size, bytes)| [size.bytes() as f64, share(*bytes)]);
        Ok(Groups { resident, shares: shares.collect() })
    }

    fn finding(&self, name: &str, what: &str) -> Finding {
        let of = |bytes: f64| self.shares.iter().find(|[size, _]| *size == bytes).map_or(0.0, |[_, share]| *share);
        let shares: Vec<String> = [(16, "16K"), (32, "32K"), (64, "64K"), (2048, "2M")]
            .map(|(kilobytes, size)| format!("{:.0} % in {size}", 100.0 * of(f64::from(kilobytes << 10))))
            .to_vec();
        let evidence = format!("of {}: {}", superpage_report::bytes(self.resident), shares.join(", "));
        let value = 100.0 * of(65536.0);
        Finding::number(name, what, value, 1.0, evidence).unit("%").with(Series {
            name: name.into(),
            axes: ["bytes of an aligned group", "share of memory"],
            points: self.shares.clone(),
        })
    }
}

fn range(start: usize, bytes: usize) -> Range<u64> {
    start as u64..(start + bytes) as u64
}

fn anonymous() -> Result<Groups, Error> {
    let memory = Memory::base(BYTES)?;
    Groups::of(range(memory.start(), BYTES))
}

fn file() -> Result<Groups, Error> {
    let mut file = tempfile::tempfile().map_err(Error::system("make a temporary file"))?;
    let block = vec![1_u8; 1 << 20];
    for _ in 0..BYTES >> 20 {
        file.write_all(&block).map_err(Error::system("write a temporary file"))?;
    }
    let memory = Memory::file(file.as_raw_fd(), BYTES)?;
    memory.touch(0..BYTES, BASE);
    Groups::of(range(memory.start(), BYTES))
}

/// The text of this program.
fn text() -> Result<Groups, Error> {
    let text = maps::read("/proc/self/maps").map_err(Error::file("read", "/proc/self/maps"))?;
    let own = std::env::current_exe().map_err(Error::system("find this program's file"))?;
    let runs = |map: &MemoryMap| {
        map.perms.contains(MMPermissions::EXECUTE) && matches!(&map.pathname, MMapPath::Path(path) if *path == own)
    };
    match mappings(&text).ok().and_then(|maps| maps.0.into_iter().find(runs)) {
        Some(map) => Groups::of(map.address.0..map.address.1),
        None => Err(Error::Unable(format!("/proc/self/maps has no text of {}", own.display()))),
    }
}
