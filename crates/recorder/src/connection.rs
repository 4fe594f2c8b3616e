//! The process's connection to the collector.
//!
//! Each process has one connection. A chunk, or where it is, is sent under its lock, so that what
//! one thread sends before another is also received first. If the connection is full, the program
//! waits.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::watch;
use crate::wire::{self, CHUNK, SWAPPED, THREAD_ENDS, VERSION, code};

unsafe extern "C" {
    fn send(socket: c_int, bytes: *const c_void, length: usize, flags: c_int) -> isize;
    fn setsockopt(socket: c_int, level: c_int, name: c_int, value: *const c_int, length: u32) -> c_int;
    fn fcntl(file: c_int, command: c_int, ...) -> c_int;
}

const MSG_NOSIGNAL: c_int = 0x4000;
const SOL_SOCKET: c_int = 1;
const SO_SNDBUF: c_int = 7;
/// How many bytes may be in flight, if the system allows that many: many chunks, so that neither
/// side often waits.
const ON_THEIR_WAY: c_int = 1 << 21;
const F_GETFD: c_int = 1;
const F_SETFD: c_int = 2;
const FD_CLOEXEC: c_int = 1;
const F_DUPFD_CLOEXEC: c_int = 1030;

/// One connection.
pub(crate) struct Connection {
    stream: Option<UnixStream>,
    /// The next descriptor to move the socket to: high, since programs expect theirs to be low, and
    /// lower each time, since a program that closes all descriptors usually goes upward.
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
            // SAFETY: a pointer to a number of the length that is given; a refusal leaves the
            // default.
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
        keep_through_exec(number, false);
        watch::watch(number);
    }

    /// The descriptor of the socket.
    pub(crate) fn number(&self) -> Option<RawFd> {
        self.stream.as_ref().map(|stream| stream.as_raw_fd())
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

    /// Sends a chunk; waits while the collector is behind. If the collector has released this
    /// process, the program continues unrecorded; if it was killed, the process exits.
    pub(crate) fn send(&mut self, thread: u32, words: &[u64]) {
        let header = [CHUNK, u64::from(thread) << 32 | words.len() as u64];
        if !(self.send_all(&header) && self.send_all(words)) {
            self.give_up();
        }
    }

    /// Tells that so many words of a thread are in a slot of its file; otherwise like
    /// [`Connection::send`].
    pub(crate) fn send_slot(&mut self, thread: u32, slot: usize, words: usize) {
        if !self.send_all(&[SWAPPED + slot as u64, u64::from(thread) << 32 | words as u64]) {
            self.give_up();
        }
    }

    /// Tells that nothing more comes from a thread.
    pub(crate) fn send_end(&mut self, thread: u32) {
        if !self.send_all(&[THREAD_ENDS, u64::from(thread) << 32]) {
            self.give_up();
        }
    }

    /// Whether nobody reads any more what is sent.
    pub(crate) fn is_lost(&mut self) -> bool {
        if self.number().is_some_and(watch::released) {
            self.close();
        }
        self.stream.is_none()
    }

    fn give_up(&mut self) {
        if let Some(number) = self.number() {
            watch::released(number);
        }
        self.close();
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

/// Whether the next program in this process does not find a descriptor open.
pub(crate) fn closes_at_exec(number: RawFd) -> bool {
    // SAFETY: a call without pointers.
    let flags = unsafe { fcntl(number, F_GETFD) };
    flags >= 0 && flags & FD_CLOEXEC != 0
}

/// Sets whether the next program in this process finds a descriptor open.
pub(crate) fn keep_through_exec(number: RawFd, keep: bool) {
    // SAFETY: a call without pointers.
    unsafe { fcntl(number, F_SETFD, if keep { 0 } else { FD_CLOEXEC }) };
}

/// The file behind the buffer of a thread of a process.
pub(crate) fn buffer_file(folder: &Path, token: u64, thread: u32) -> PathBuf {
    folder.join(format!("{token:x}-{thread}"))
}
