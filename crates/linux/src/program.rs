//! What a program's file says of how it is linked.

use object::Endianness;
use object::elf::{DT_NEEDED, FileHeader64};
use object::read::ReadCache;
use object::read::elf::{Dyn, FileHeader};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

/// The libraries that the dynamic linker loads for a file itself (`DT_NEEDED`), by name; `None` if
/// it cannot be read, or is no 64-bit ELF file.
pub fn needed(file: &Path) -> Option<Vec<String>> {
    let data = &ReadCache::new(File::open(file).ok()?);
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, data).ok()?;
    let Some((entries, link)) = sections.dynamic(endian, data).ok()? else { return Some(Vec::new()) };
    let strings = sections.strings(endian, data, link).ok()?;
    let entries = entries.iter().filter(|entry| entry.tag(endian) == DT_NEEDED);
    let names = entries.filter_map(|entry| entry.string(endian, strings).ok());
    Some(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

/// Which of the `mapped` files a process has had since its start, and not by `dlopen`: its program,
/// and all that this and its libraries need. `None` if that cannot be seen.
pub fn loaded_at_start<'a>(pid: u32, mapped: &BTreeSet<&'a str>) -> Option<BTreeSet<&'a str>> {
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let program = *mapped.get(program.to_str()?)?;
    let (mut found, mut next) = (BTreeSet::from([program]), vec![program]);
    while let Some(file) = next.pop() {
        for name in needed(Path::new(&format!("/proc/{pid}/root{file}")))? {
            // The name is often a link to a file whose name is longer.
            let file = mapped.iter().find(|file| file.rsplit('/').next().is_some_and(|last| last.starts_with(&name)));
            next.extend(file.filter(|file| found.insert(file)));
        }
    }
    Some(found)
}

/// Whether the program of a process has the C library of GNU in its own file, and reads its
/// tunables.
pub fn is_static_gnu(pid: u32) -> bool {
    let file = std::fs::read(format!("/proc/{pid}/exe")).unwrap_or_default();
    memchr::memmem::find(&file, b"glibc.malloc.hugetlb").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_of_a_program_are_those_that_it_needs() {
        let own = std::env::current_exe().unwrap();
        let needed = needed(&own).unwrap();
        assert!(needed.iter().any(|name| name.starts_with("libc.so")), "{needed:?}");
        let libc = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = libc.lines().find_map(|line| line.split_whitespace().nth(5).filter(|at| at.contains("libc.so")));
        let libc = libc.unwrap();
        let mapped = BTreeSet::from([own.to_str().unwrap(), libc, "/usr/lib/libLLVM-14.so.1"]);
        let found = loaded_at_start(std::process::id(), &mapped).unwrap();
        assert_eq!(found, BTreeSet::from([own.to_str().unwrap(), libc]));
        assert_eq!(super::needed(Path::new("/proc/self/maps")), None);
    }
}
