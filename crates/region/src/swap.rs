//! The swap file of a region: an unlinked file with one slot for each page of the region.

use super::Error;
use super::memory::BASE;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The swap file, if there is one, and the pages that could not be written to it.
pub(crate) struct Swap {
    /// `None`: nothing is ever written out.
    file: Option<File>,
    /// Pages that could not be written are kept here: over the limit, but not lost.
    kept: HashMap<u32, Box<[u8]>>,
    pub(crate) pages_out: u64,
    pub(crate) pages_in: u64,
}

impl Swap {
    /// A file of `slots` pages in a directory; all of its space is allocated now, so that it cannot
    /// run out.
    ///
    /// # Errors
    /// The directory cannot hold a file of this size.
    pub(crate) fn new(directory: Option<&Path>, slots: usize) -> Result<Swap, Error> {
        let make = |directory: &Path| {
            let file = tempfile::tempfile_in(directory)?;
            let bytes = (slots * BASE) as u64;
            match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
                // Some file systems cannot preallocate.
                Err(Errno::OPNOTSUPP) => file.set_len(bytes)?,
                other => other?,
            }
            Ok::<File, io::Error>(file)
        };
        let file = directory.map(make).transpose();
        let file = file.map_err(Error::system("make a swap file of the region's size in the swap directory"))?;
        Ok(Swap { file, kept: HashMap::new(), pages_out: 0, pages_in: 0 })
    }

    /// Reads a page back.
    ///
    /// # Errors
    /// Reading the file fails: the contents are lost.
    pub(crate) fn read(&mut self, slot: u32, contents: &mut [u8]) -> io::Result<()> {
        if let Some(kept) = self.kept.get(&slot) {
            contents.copy_from_slice(kept);
        } else {
            let file = self.file.as_ref().ok_or_else(|| io::Error::other("the region has no swap file"))?;
            file.read_exact_at(contents, offset(slot))?;
        }
        self.pages_in += 1;
        Ok(())
    }

    /// Writes a page out; if the file fails, the page is kept here.
    pub(crate) fn write(&mut self, slot: u32, contents: &[u8]) {
        self.pages_out += 1;
        let written = self.file.as_ref().map(|file| file.write_all_at(contents, offset(slot)));
        if let Some(Ok(())) = written {
            self.kept.remove(&slot);
        } else {
            self.kept.insert(slot, contents.into());
        }
    }
}

fn offset(slot: u32) -> u64 {
    u64::from(slot) * BASE as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_also_where_the_file_fails() {
        let mut page = [0; BASE];
        let mut whole = Swap::new(Some(&std::env::temp_dir()), 3).unwrap();
        let mut none = Swap::new(None, 3).unwrap();
        for swap in [&mut whole, &mut none] {
            for slot in 0..3 {
                swap.write(slot, &[slot as u8 + 1; BASE]);
            }
            swap.write(1, &[9; BASE]);
            for (slot, expected) in [1, 9, 3].into_iter().enumerate() {
                swap.read(slot as u32, &mut page).unwrap();
                assert_eq!(page, [expected; BASE]);
            }
            assert_eq!((swap.pages_out, swap.pages_in), (4, 3));
        }
        assert!(whole.kept.is_empty());
        assert!(none.read(3, &mut page).is_err());
    }
}
