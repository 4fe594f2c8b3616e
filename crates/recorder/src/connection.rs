//! The process's connection to the collector, and the buffers of its threads.
//!
//! Each process has one connection. A chunk is sent under its lock, so that what one thread sends before another is
//! also received first. If the connection is full, the program waits. A thread's buffer is a shared file beside the
//! socket: if the process is killed, the collector finds there what was not sent.

use std::ffi::{c_int, c_void};
use std::fs::{File, Permissions};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, RawFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::watch;
use crate::wire::{self, CHUNK, CHUNK_WORDS, VERSION, code};

unsafe extern "C" {
    fn send(socket: c_int, bytes: *const c_void, length: usize, flags: c_int) -> isize;
    fn setsockopt(socket: c_int, level: c_int, name: c_int, value: *const c_int, length: u32) -> c_int;
    fn fcntl(file: c_int, command: c_int, ...) -> c_int;
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
}

const MSG_NOSIGNAL: c_int = 0x4000;
const SOL_SOCKET: c_int = 1;
const SO_SNDBUF: c_int = 7;
/// How many bytes may be in flight, if the system allows that many: many chunks, so that neither side often waits.
const ON_THEIR_WAY: c_int = 1 << 21;
const F_SETFD: c_int = 2;
const FD_CLOEXEC: c_int = 1;
const F_DUPFD_CLOEXEC: c_int = 1030;
const PROT_READ_WRITE: c_int = 3;
const MAP_SHARED: c_int = 1;

/// The words of a thread's buffer, with the end mark.
pub(crate) const BUFFER_WORDS: usize = CHUNK_WORDS + 1;
const BUFFER_BYTES: usize = BUFFER_WORDS * size_of::<u64>();

/// One connection.
pub(crate) struct Connection {
    stream: Option<UnixStream>,
    /// The next descriptor to move the socket to: high, since programs expect theirs to be low, and lower each time,
    /// since a program that closes all descriptors usually goes upward.
    number: c_int,
}

impl Connection {
    /// No connection: what is sent is lost.
    pub(crate) const fn closed() -> Connection {
        Connection { stream: None, number: 1000 }
    }

    /// Connects, and sends which process this is. Without a collector the connection stays closed.
    pub(crate) fn open(&mut self, socket: &Path, token: u64) {
        self.stream = UnixStream::connect(socket).ok();
        if let Some(stream) = &self.stream {
            // SAFETY: a call without pointers.
            let moved = unsafe { fcntl(stream.as_raw_fd(), F_DUPFD_CLOEXEC, self.number) };
            self.number -= 1;
            if moved >= 0 {
                // SAFETY: the descriptor was just made and has no other owner.
                self.stream = Some(unsafe { UnixStream::from_raw_fd(moved) });
            }
        }
        if let Some(number) = self.number() {
            let length = size_of_val(&ON_THEIR_WAY) as u32;
            // SAFETY: a pointer to a number of the length that is given; a refusal leaves the default.
            unsafe { setsockopt(number, SOL_SOCKET, SO_SNDBUF, &ON_THEIR_WAY, length) };
        }
        self.send(0, &[wire::event(code::HELLO, 2), VERSION, token]);
        if let Some(number) = self.number() {
            watch::watch(number);
        }
    }

    /// Takes over the connection that the previous program in this process left open.
    pub(crate) fn inherit(&mut self, number: RawFd) {
        // SAFETY: the previous plugin left this descriptor to us.
        self.stream = Some(unsafe { UnixStream::from_raw_fd(number) });
        self.number = number - 1;
        self.keep_through_exec(false);
        watch::watch(number);
    }

    /// The descriptor of the socket.
    pub(crate) fn number(&self) -> Option<RawFd> {
        self.stream.as_ref().map(|stream| stream.as_raw_fd())
    }

    /// Sets whether the next program in this process finds the socket open.
    pub(crate) fn keep_through_exec(&self, keep: bool) {
        if let Some(number) = self.number() {
            // SAFETY: a call without pointers.
            unsafe { fcntl(number, F_SETFD, if keep { 0 } else { FD_CLOEXEC }) };
        }
    }

    /// Forgets a socket that the program itself has closed.
    pub(crate) fn forget(&mut self) {
        if let Some(stream) = self.stream.take() {
            let _ = stream.into_raw_fd();
        }
    }

    /// Closes the socket.
    pub(crate) fn close(&mut self) {
        self.stream = None;
    }

    /// Sends a chunk; waits while the collector is behind. If the collector has released this process, the program
    /// continues unrecorded; if it was killed, the process exits.
    pub(crate) fn send(&mut self, thread: u32, words: &[u64]) {
        let header = [CHUNK, u64::from(thread) << 32 | words.len() as u64];
        if !(self.send_all(&header) && self.send_all(words)) {
            if let Some(number) = self.number() {
                watch::look(number);
            }
            self.close();
        }
    }

    fn send_all(&self, words: &[u64]) -> bool {
        let Some(number) = self.number() else { return false };
        let (start, length) = (words.as_ptr().cast::<u8>(), std::mem::size_of_val(words));
        let mut sent = 0;
        while sent < length {
            // SAFETY: the rest of the slice, whose words are plain bytes.
            let now = unsafe { send(number, start.add(sent).cast(), length - sent, MSG_NOSIGNAL) };
            if now >= 0 {
                sent += now as usize;
            } else if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
                return false;
            }
        }
        true
    }
}

/// The file behind the buffer of a thread of a process.
pub(crate) fn buffer_file(folder: &Path, token: u64, thread: u32) -> PathBuf {
    folder.join(format!("{token:x}-{thread}"))
}

/// Makes a buffer: a shared file or, if that fails, private memory. Returns whether it is the file.
pub(crate) fn buffer(path: &Path) -> (*mut u64, bool) {
    let shared = || {
        let file = File::options().read(true).write(true).create(true).truncate(true).mode(0o600).open(path).ok()?;
        // The umask may have removed rights of the owner, too.
        file.set_permissions(Permissions::from_mode(0o600)).ok()?;
        // Allocate all of it now: a page that does not fit on the file system would end the program with SIGBUS.
        // SAFETY: the file is open; this changes no memory.
        if unsafe { posix_fallocate(file.as_raw_fd(), 0, BUFFER_BYTES as i64) } != 0 {
            return None;
        }
        // SAFETY: a new mapping where the system chooses.
        let memory =
            unsafe { mmap(std::ptr::null_mut(), BUFFER_BYTES, PROT_READ_WRITE, MAP_SHARED, file.as_raw_fd(), 0) };
        (memory as isize != -1).then_some(memory.cast())
    };
    shared().map_or_else(
        || {
            // An incomplete file would be taken for the buffer.
            let _ = std::fs::remove_file(path);
            (Box::leak(vec![0; BUFFER_WORDS].into_boxed_slice()).as_mut_ptr(), false)
        },
        |buffer| (buffer, true),
    )
}

/// Frees a shared buffer and its file; private memory is not freed, since it is rare.
pub(crate) fn release(buffer: *mut u64, file: &Path) {
    if std::fs::remove_file(file).is_ok() {
        // SAFETY: the file was there, so the buffer is its mapping, and its thread has ended.
        unsafe { munmap(buffer.cast(), BUFFER_BYTES) };
    }
}
