//! The other programs of this machine, into which a setting of the whole system reaches too.

use superpage_linux::proc::{is_kernels, stat, status};
use superpage_linux::tree::{descendants, is_ancestor};
use superpage_output::foreign;
use superpage_report::bytes;

/// A program with less private memory has little that could be huge, and is no service worth
/// asking for.
const LARGE: u64 = 64 << 20;
/// How many are named.
const NAMED: usize = 3;

/// The programs with much memory, the largest first, in words: `redis-server (4711,
/// 2.00 GB)`; `None` if there are none. Reads two small files a process.
pub(super) fn bystanders() -> Option<String> {
    let own = std::process::id() as i32;
    let mine = descendants(own);
    let pids = std::fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let others = pids.filter(|pid: &i32| *pid != own && !mine.contains(pid) && !is_ancestor(*pid));
    let large = |pid: i32| {
        let status = status(pid).ok()?;
        let kilobytes = status.rssanon.unwrap_or(0) + status.rssshmem.unwrap_or(0);
        let of_kernel = stat(pid).is_some_and(|stat| is_kernels(&stat));
        (kilobytes * 1024 >= LARGE && !of_kernel).then_some((kilobytes * 1024, pid, status.name))
    };
    let mut found: Vec<(u64, i32, String)> = others.filter_map(large).collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    let named =
        found.iter().take(NAMED).map(|(size, pid, name)| format!("{} ({pid}, {})", foreign(name), bytes(*size)));
    let mut words: Vec<String> = named.collect();
    if found.len() > NAMED {
        words.push(format!("{} more", found.len() - NAMED));
    }
    (!words.is_empty()).then(|| words.join(", "))
}
