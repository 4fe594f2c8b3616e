//! `/proc/PID/maps` and `smaps`, which are not snapshots: the kernel writes them piece by piece as
//! they are read, while the process maps and unmaps.

use super::{ended, refused};
use crate::Error;
use procfs::process::MemoryMap;
use std::fs::File;
use std::io::{self, Read};

/// Reads one of them completely.
pub fn read(path: &str) -> io::Result<Vec<u8>> {
    read_while(path, &|| true)
}

/// Reads one of them in pieces of the kernel's size, a page, and asks before each whether to
/// continue: `smaps` of a process with much memory or many mappings can take the kernel seconds.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] if not.
pub fn read_while(path: &str, go_on: &dyn Fn() -> bool) -> io::Result<Vec<u8>> {
    // With a large buffer from the start: otherwise the first read is of a few bytes, for which the
    // kernel writes a single line.
    let (mut file, mut text, mut have) = (File::open(path)?, vec![0; 64 << 10], 0);
    loop {
        if !go_on() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if text.len() - have < 16 << 10 {
            text.resize(2 * text.len(), 0);
        }
        match file.read(&mut text[have..]) {
            Ok(0) => break,
            Ok(read) => have += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    text.truncate(have);
    Ok(text)
}

/// The mappings, ascending and disjoint: a mapping that grew or was merged between two pieces is
/// reported twice, and the later report is newer. `ends` returns a mapping's addresses; `cut` makes
/// it end earlier.
pub fn newest<T>(
    listed: impl IntoIterator<Item = T>,
    ends: impl Fn(&T) -> (u64, u64),
    cut: impl Fn(&mut T, u64),
) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    for new in listed {
        let (start, _) = ends(&new);
        while kept.last().is_some_and(|last| ends(last).0 >= start) {
            kept.pop();
        }
        if let Some(last) = kept.last_mut().filter(|last| ends(last).1 > start) {
            cut(last, start);
        }
        kept.push(new);
    }
    kept
}

/// The mappings of a process from `/proc/PID/smaps`: ascending and disjoint. The kernel walks the
/// whole page table for it, some 15 ms for a GB of base pages. Asks every few dozen microseconds
/// whether to continue.
///
/// # Errors
/// Those of [`refused`], and [`Error::Unable`] if `go_on` said to stop.
pub fn smaps(pid: u32, go_on: &dyn Fn() -> bool) -> Result<Vec<MemoryMap>, Error> {
    /// A few dozen mappings: 0.2 ms.
    const PART: usize = 64 << 10;
    let text = read_while(&format!("/proc/{pid}/smaps"), go_on).map_err(|error| refused(pid, error))?;
    let mut maps = Vec::new();
    for part in super::parts(&text, PART) {
        if !go_on() {
            return Err(refused(pid, io::ErrorKind::TimedOut.into()));
        }
        maps.extend(super::mappings(part).map_err(|_| ended(pid))?.0);
    }
    Ok(newest(maps, |map| map.address, |map, end| map.address.1 = end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn apart(listed: &[(u64, u64)]) -> Vec<(u64, u64)> {
        newest(listed.iter().copied(), |ends| *ends, |ends, end| ends.1 = end)
    }

    #[test]
    fn what_is_listed_later_is_newer() {
        assert_eq!(apart(&[(1, 2), (4, 6), (6, 9)]), [(1, 2), (4, 6), (6, 9)]);
        // Grown; merged with its neighbour below; replaced within another.
        assert_eq!(apart(&[(1, 2), (4, 6), (4, 8), (9, 10)]), [(1, 2), (4, 8), (9, 10)]);
        assert_eq!(apart(&[(1, 2), (3, 4), (5, 6), (3, 8)]), [(1, 2), (3, 8)]);
        assert_eq!(apart(&[(1, 6), (4, 8)]), [(1, 4), (4, 8)]);
        assert_eq!(apart(&[(1, 6), (2, 3)]), [(1, 2), (2, 3)]);
    }

    proptest! {
        #[test]
        fn mappings_ascend_and_are_apart(listed in prop::collection::vec((0_u64..40, 1_u64..9), 0..30)) {
            let listed: Vec<(u64, u64)> = listed.into_iter().map(|(start, length)| (start, start + length)).collect();
            let kept = apart(&listed);
            prop_assert!(kept.iter().all(|(start, end)| start < end));
            prop_assert!(kept.windows(2).all(|pair| pair[0].1 <= pair[1].0));
            prop_assert_eq!(kept.last(), listed.last());
        }
    }
}
