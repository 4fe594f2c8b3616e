//! The buffers of a thread: slots of a file that it shares with the collector, filled in turn.
//!
//! A full slot is not sent: the collector is told which one it is, and reads it there while the
//! thread fills the next. Slots are added while the collector is behind, up to [`SLOTS`]; then the
//! thread waits. If the process is killed, the collector finds in the file what it was not told of.
//! [`crate::wire`] describes the file.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::fs::{File, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::time::Duration;

use crate::wire::{CHUNK_WORDS, FRONT_WORDS, SLOT_FRONT_WORDS, SLOT_WORDS, SLOTS};

unsafe extern "C" {
    fn mmap(
        address: *mut c_void,
        length: usize,
        protection: c_int,
        flags: c_int,
        file: c_int,
        offset: i64,
    ) -> *mut c_void;
    fn posix_fallocate(file: c_int, offset: i64, length: i64) -> c_int;
    fn munmap(address: *mut c_void, length: usize) -> c_int;
    fn getrlimit(resource: c_int, limits: *mut [u64; 2]) -> c_int;
}

const PROT_READ_WRITE: c_int = 3;
const MAP_SHARED: c_int = 1;
const RLIMIT_FSIZE: c_int = 1;

/// The words of a slot that a thread fills, with the end mark.
pub(crate) const BUFFER_WORDS: usize = CHUNK_WORDS + 1;
/// The bytes of the mapping: room for all slots, whether the file has them or not.
const BYTES: usize = bytes(SLOTS);
/// How long to sleep while no slot is free: less than filling one takes.
const NAP: Duration = Duration::from_micros(50);

/// The bytes of a file with so many slots.
const fn bytes(slots: usize) -> usize {
    (FRONT_WORDS + slots * SLOT_WORDS) * size_of::<u64>()
}

/// The buffers of one thread, which alone uses this.
pub(crate) struct Buffer {
    /// The file's mapping; without one, private memory of one slot; null before the thread begins.
    memory: Cell<*mut u64>,
    /// The slots that the file has; 0 for private memory.
    slots: Cell<usize>,
    /// The slot that is being filled.
    slot: Cell<usize>,
    /// Chunks that have been sent.
    sent: Cell<u64>,
    /// Of each slot: it is free when so many chunks were taken.
    until: [Cell<u64>; SLOTS],
}

// SAFETY: only the thread to which it belongs uses it, or another one when that does not run any
// more.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// None yet.
    pub(crate) const fn new() -> Buffer {
        Buffer {
            memory: Cell::new(std::ptr::null_mut()),
            slots: Cell::new(0),
            slot: Cell::new(0),
            sent: Cell::new(0),
            until: [const { Cell::new(0) }; SLOTS],
        }
    }

    /// Makes the first slot, in a new file or, if that fails, in private memory. Returns its words.
    pub(crate) fn open(&self, path: &Path) -> *mut u64 {
        self.slot.set(0);
        self.sent.set(0);
        self.until.iter().for_each(|until| until.set(0));
        let shared = map(path);
        self.slots.set(usize::from(shared.is_some()));
        self.memory.set(shared.unwrap_or_else(|| {
            // An incomplete file would be taken for the buffer.
            let _ = std::fs::remove_file(path);
            Box::leak(vec![0; FRONT_WORDS + SLOT_WORDS].into_boxed_slice()).as_mut_ptr()
        }));
        self.begin()
    }

    /// Whether the collector can read it.
    pub(crate) fn is_shared(&self) -> bool {
        self.slots.get() > 0
    }

    /// The slot that is being filled.
    pub(crate) fn slot(&self) -> usize {
        self.slot.get()
    }

    /// Empties the slot whose contents were sent as they are. Returns its words.
    pub(crate) fn again(&self) -> *mut u64 {
        self.sent.update(|sent| sent + 1);
        self.begin()
    }

    /// Leaves the slot to the collector, which has been told of it, and waits for another one.
    /// Returns its words. If `lost` says that there is no collector any more, they are those of the
    /// same slot.
    pub(crate) fn swap(&self, path: impl Fn() -> PathBuf, mut lost: impl FnMut() -> bool) -> *mut u64 {
        self.sent.update(|sent| sent + 1);
        self.until[self.slot.get()].set(self.sent.get());
        loop {
            // SAFETY: the first word of the mapping, which the collector writes by a system call.
            let taken = unsafe { AtomicU64::from_ptr(self.memory.get()) }.load(Acquire);
            let slots = self.slots.get();
            let free = (1..=slots).map(|step| (self.slot.get() + step) % slots);
            if let Some(slot) = free.into_iter().find(|slot| self.until[*slot].get() <= taken) {
                self.slot.set(slot);
                break;
            }
            if slots < SLOTS && grow(&path(), slots + 1) {
                self.slots.set(slots + 1);
            } else if lost() {
                break;
            } else {
                std::thread::sleep(NAP);
            }
        }
        self.begin()
    }

    /// Removes the mapping; the file is the collector's to remove. Private memory is not freed,
    /// since it is rare.
    pub(crate) fn close(&self) {
        let memory = self.memory.replace(std::ptr::null_mut());
        if self.is_shared() {
            // SAFETY: the mapping that `open` made, and its thread has ended.
            unsafe { munmap(memory.cast(), BYTES) };
        }
        self.slots.set(0);
    }

    /// Begins the next chunk in the current slot.
    fn begin(&self) -> *mut u64 {
        // SAFETY: the memory has this slot.
        unsafe {
            let front = self.memory.get().add(FRONT_WORDS + self.slot.get() * SLOT_WORDS);
            let words = front.add(SLOT_FRONT_WORDS);
            words.write(0);
            // Last, so that a process killed here leaves no chunk twice.
            AtomicU64::from_ptr(front).store(self.sent.get() + 1, Release);
            words
        }
    }
}

/// Makes the file with one slot, and maps it.
fn map(path: &Path) -> Option<*mut u64> {
    let file = File::options().read(true).write(true).create(true).truncate(true).mode(0o600).open(path).ok()?;
    // The umask may have removed rights of the owner, too.
    file.set_permissions(Permissions::from_mode(0o600)).ok()?;
    if !allocate(&file, 1) {
        return None;
    }
    // SAFETY: a new mapping where the system chooses. What is behind the end of the file is not
    // used.
    let memory = unsafe { mmap(std::ptr::null_mut(), BYTES, PROT_READ_WRITE, MAP_SHARED, file.as_raw_fd(), 0) };
    (memory as isize != -1).then_some(memory.cast())
}

/// Extends the file to so many slots, if there is room and this process may still open it.
fn grow(path: &Path, slots: usize) -> bool {
    File::options().write(true).open(path).is_ok_and(|file| allocate(&file, slots))
}

/// Allocates all of it now: a page that does not fit on the file system would end the program with
/// SIGBUS, and a file larger than the program's own limit (`ulimit -f`), which this process has
/// too, with SIGXFSZ.
fn allocate(file: &File, slots: usize) -> bool {
    let mut limits = [0; 2];
    // SAFETY: room for the current limit and the highest one.
    let allowed = unsafe { getrlimit(RLIMIT_FSIZE, &mut limits) } == 0 && bytes(slots) as u64 <= limits[0];
    // SAFETY: the file is open; this changes no memory.
    allowed && unsafe { posix_fallocate(file.as_raw_fd(), 0, bytes(slots) as i64) == 0 }
}
