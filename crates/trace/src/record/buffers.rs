//! The files in which threads leave their chunks; [`super::wire`] describes them.
//!
//! They are read and written by system calls, never mapped: whatever a program does to them, it
//! ends in an error here and not in a signal.

use super::connection::word;
use super::wire::{FRONT_WORDS, SLOT_FRONT_WORDS, SLOT_WORDS};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const WORD_BYTES: usize = size_of::<u64>();

/// A thread that leaves chunks: the token of its process, and its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Owner {
    pub(super) token: u64,
    pub(super) thread: u32,
}

/// A chunk in a slot of a thread's file, and its length in words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    pub(super) slot: usize,
    pub(super) length: usize,
}

/// The buffers of all threads.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// The chunks that were taken of each thread.
    taken: HashMap<Owner, u64>,
    /// The file that was used last; there may be more than a process may open.
    open: Option<(Owner, File)>,
    bytes: Vec<u8>,
}

impl Buffers {
    /// Counts a chunk that came over the connection.
    pub(super) fn count(&mut self, owner: Owner) {
        *self.taken.entry(owner).or_default() += 1;
    }

    /// Takes the words out of a slot, which is free then.
    pub(super) fn take(
        &mut self,
        folder: &Path,
        owner: Owner,
        Slot { slot, length }: Slot,
        words: &mut Vec<u64>,
    ) -> io::Result<()> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != owner) {
            let file = File::options().read(true).write(true).open(path(folder, owner))?;
            self.open = Some((owner, file));
        }
        let Some((_, file)) = &self.open else { return Ok(()) };
        self.bytes.resize(length * WORD_BYTES, 0);
        let at = FRONT_WORDS + slot * SLOT_WORDS + SLOT_FRONT_WORDS;
        file.read_exact_at(&mut self.bytes, (at * WORD_BYTES) as u64)?;
        let taken = self.taken.entry(owner).or_default();
        *taken += 1;
        file.write_all_at(&taken.to_ne_bytes(), 0)?;
        words.clear();
        words.extend(self.bytes.chunks_exact(WORD_BYTES).map(word));
        Ok(())
    }

    /// Removes the file of a thread that has ended.
    pub(super) fn remove(&mut self, folder: &Path, owner: Owner) {
        self.open.take_if(|(open, _)| *open == owner);
        self.taken.remove(&owner);
        let _ = std::fs::remove_file(path(folder, owner));
    }

    /// The threads of a process that have files, in the order of their numbers.
    pub(super) fn threads(folder: &Path, token: u64) -> Vec<u32> {
        let prefix = format!("{token:x}-");
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.strip_prefix(&prefix)?.parse().ok();
        let mut threads: Vec<u32> = entries.filter_map(number).collect();
        threads.sort_unstable();
        threads
    }

    /// The chunks that a killed process has left in a thread's file without a message, in their
    /// order. Each ends with an end mark or what was in the slot before.
    pub(super) fn leftovers(&self, folder: &Path, owner: Owner) -> Vec<Vec<u64>> {
        let bytes = std::fs::read(path(folder, owner)).unwrap_or_default();
        leftovers(&bytes, self.taken.get(&owner).copied().unwrap_or(0))
    }
}

/// The chunks in the bytes of a file of which `taken` were taken.
pub(super) fn leftovers(bytes: &[u8], taken: u64) -> Vec<Vec<u64>> {
    let words: Vec<u64> = bytes.chunks_exact(WORD_BYTES).map(word).collect();
    let slots = words.get(FRONT_WORDS..).unwrap_or_default().chunks_exact(SLOT_WORDS);
    let mut left: Vec<(u64, &[u64])> =
        slots.map(|slot| (slot[0], &slot[SLOT_FRONT_WORDS..])).filter(|(number, _)| *number > taken).collect();
    left.sort_unstable_by_key(|(number, _)| *number);
    left.into_iter().map(|(_, words)| words.to_vec()).filter(|words| words[0] != 0).collect()
}

fn path(folder: &Path, Owner { token, thread }: Owner) -> PathBuf {
    folder.join(format!("{token:x}-{thread}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_taken_once_and_what_was_not_reported_is_left_in_order() {
        let owner = Owner { token: 0xab, thread: 7 };
        let folder = tempfile::tempdir().unwrap();
        let mut file = vec![0u64; FRONT_WORDS + 3 * SLOT_WORDS];
        // The third slot holds chunk 3, the first 4, and the second 5, which has not begun.
        for (slot, number, first) in [(2, 3, 33), (0, 4, 44), (1, 5, 0)] {
            let at = FRONT_WORDS + slot * SLOT_WORDS;
            (file[at], file[at + SLOT_FRONT_WORDS], file[at + SLOT_FRONT_WORDS + 1]) = (number, first, first);
        }
        let bytes: Vec<u8> = file.iter().flat_map(|word| word.to_ne_bytes()).collect();
        std::fs::write(path(folder.path(), owner), &bytes).unwrap();
        let mut buffers = Buffers::default();
        (0..2).for_each(|_| buffers.count(owner));
        let left: Vec<u64> = buffers.leftovers(folder.path(), owner).iter().map(|words| words[0]).collect();
        assert_eq!(left, [33, 44]);
        let mut words = Vec::new();
        buffers.take(folder.path(), owner, Slot { slot: 2, length: 2 }, &mut words).unwrap();
        assert_eq!(words, [33, 33]);
        assert_eq!(std::fs::read(path(folder.path(), owner)).unwrap()[..8], 3u64.to_ne_bytes());
        let left: Vec<u64> = buffers.leftovers(folder.path(), owner).iter().map(|words| words[0]).collect();
        assert_eq!(left, [44]);
        assert_eq!(Buffers::threads(folder.path(), 0xab), [7]);
        buffers.remove(folder.path(), owner);
        assert!(Buffers::threads(folder.path(), 0xab).is_empty());
        assert!(buffers.take(folder.path(), owner, Slot { slot: 0, length: 1 }, &mut words).is_err());
    }
}
