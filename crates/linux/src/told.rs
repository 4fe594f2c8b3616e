//! What the kernel tells of processes as text. The names in it, of programs and of files, are bytes that anybody may choose.

use procfs::process::MemoryMaps;
use procfs::{FromBufRead, ProcResult};
use std::fs;
use std::io;
use std::path::Path;

/// A file of `/proc`, with a sign for each piece of a name that is no UTF-8: the names are shown, and the numbers beside
/// them count all the same.
pub(crate) fn read(path: impl AsRef<Path>) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}

/// The mappings in the text of `/proc/PID/maps` or `smaps`, with names as [`read`] has them.
pub(crate) fn mappings(text: &[u8]) -> ProcResult<MemoryMaps> {
    MemoryMaps::from_buf_read(String::from_utf8_lossy(text).as_bytes())
}
