//! Splitting the huge pages of processes: `superpage split`.

use std::collections::HashMap;
use superpage_linux::Error;
use superpage_linux::proc;
use superpage_linux::proc::maps::smaps;
use superpage_linux::split::Splitter;

/// What was done in a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Split {
    /// The process.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// Bytes that its page table mapped by huge pages before.
    pub before: u64,
    /// And since.
    pub after: u64,
}

/// Splits the huge pages of a process into base pages, in every mapping that has some, and counts
/// what is mapped by them before and after; `None` if it has ended. Those of a hugetlb pool cannot
/// be split, and are not counted. Walks its page table twice, and looks at each base page once.
///
/// # Errors
/// The process may not be inspected, or [`Error::Unable`]: the kernel refused all ranges of it, and
/// it still runs.
pub fn split(pid: i32, splitter: &Splitter) -> Result<Option<Split>, Error> {
    let Some(before) = present(pid)? else { return Ok(None) };
    let name = proc::read(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_string();
    let ranges = before.iter().map(|((start, end), _)| splitter.split(pid, *start..*end));
    let refused: Vec<Error> = ranges.filter_map(Result::err).collect();
    // A mapping that was unmapped meanwhile is no failure: the count afterwards says what came of
    // it.
    refused.iter().for_each(|error| tracing::debug!(pid, "{error}"));
    let all = refused.len() == before.len() && proc::stat(pid).is_some();
    if let Some(error) = refused.first().filter(|_| all) {
        return Err(Error::Unable(format!("the kernel split no huge page of process {pid} ({name}): {error}")));
    }
    let sum = |mappings: Vec<Huge>| mappings.iter().map(|(_, huge)| huge).sum();
    let after = present(pid)?.map_or(0, sum);
    Ok(Some(Split { pid, name, before: sum(before), after }))
}

/// The addresses of a mapping, and the bytes of it in huge pages.
type Huge = ((u64, u64), u64);

/// The mappings of a process with huge pages; `None` if it has ended.
fn present(pid: i32) -> Result<Option<Vec<Huge>>, Error> {
    let mappings = match smaps(pid as u32, &|| true) {
        Ok(mappings) => mappings,
        Err(_) if proc::stat(pid).is_none() => return Ok(None),
        Err(error) => return Err(error),
    };
    let huge = |keys: &HashMap<String, u64>| {
        ["AnonHugePages", "ShmemPmdMapped", "FilePmdMapped"].iter().filter_map(|key| keys.get(*key)).sum::<u64>()
    };
    let mappings = mappings.iter().map(|mapping| (mapping.address, huge(&mapping.extension.map)));
    Ok(Some(mappings.filter(|(_, huge)| *huge > 0).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    /// The file takes what the kernel would, and splits nothing.
    #[test]
    fn the_mappings_with_huge_pages_are_named_and_no_others() {
        const SIZE: usize = 8 << 20;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("split_huge_pages");
        std::fs::write(&path, "").unwrap();
        let splitter = Splitter::of(folder.path()).unwrap();
        let own = std::process::id() as i32;
        // SAFETY: a new mapping; only its own bytes are written, and nothing refers to them when it
        // is unmapped.
        let at = unsafe {
            let at = mmap_anonymous(std::ptr::null_mut(), SIZE, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            let at = at.unwrap();
            _ = madvise(at, SIZE, Advice::LinuxHugepage);
            at.cast::<u8>().write_bytes(1, SIZE);
            at as u64
        };
        let there = present(own).unwrap().unwrap();
        let ours = there.iter().find(|((start, end), _)| (*start..*end).contains(&(at + SIZE as u64 / 2)));
        let done = split(own, &splitter).unwrap().unwrap();
        let written = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        let refused = split(own, &splitter);
        // SAFETY: as above.
        unsafe { munmap(at as *mut _, SIZE).unwrap() };
        let Some((_, huge)) = ours else { return superpage_testing::skip!("system", "no huge pages are to be had") };
        assert!(done.before >= *huge && done.before > 0 && done.after > 0, "{done:?}");
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("split no huge page of process") && refused.contains("No such file"), "{refused}");
        assert!(written.starts_with(&format!("{own},0x")) && written.matches(',').count() == 2, "{written}");
    }

    #[test]
    fn a_process_that_is_gone_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("split_huge_pages"), "").unwrap();
        let splitter = Splitter::of(folder.path()).unwrap();
        assert_eq!(split(4_000_000, &splitter).unwrap(), None);
    }
}
