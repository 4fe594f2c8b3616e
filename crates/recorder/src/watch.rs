//! Exits with the collector: a process whose recorder was killed must not continue to run in
//! emulation.
//!
//! The collector sends a farewell before it releases a process; if it was killed, the connection
//! just ends. A thread of its own waits for that, since the program's threads may sleep for long.
//! It takes no signals, which are the program's.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;

unsafe extern "C" {
    fn recv(socket: c_int, bytes: *mut c_void, length: usize, flags: c_int) -> isize;
    fn pthread_sigmask(how: c_int, new: *const Signals, old: *mut Signals) -> c_int;
    fn kill(process: c_int, signal: c_int) -> c_int;
    fn getpid() -> c_int;
}

/// At least as large as the system's set of signals.
type Signals = [u64; 16];

const SIG_BLOCK: c_int = 0;
const SIG_SETMASK: c_int = 2;
const SIGKILL: c_int = 9;
const MSG_PEEK: c_int = 2;
const MSG_DONTWAIT: c_int = 0x40;
const STACK_BYTES: usize = 1 << 16;

/// Watches a connection until its end. If no thread can be created, [`released`] notices it.
pub(crate) fn watch(socket: RawFd) {
    let mut old: Signals = [0; 16];
    // SAFETY: two sets of signals. All are blocked, so that the new thread begins with none.
    if unsafe { pthread_sigmask(SIG_BLOCK, &[!0; 16], &mut old) } != 0 {
        return;
    }
    let _ = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || end_with(socket, 0));
    // SAFETY: the set that was there before.
    unsafe { pthread_sigmask(SIG_SETMASK, &old, std::ptr::null_mut()) };
}

/// Whether the collector has released this process. If it was killed, this does not return.
pub(crate) fn released(socket: RawFd) -> bool {
    end_with(socket, MSG_DONTWAIT)
}

/// Waits for the end of a connection, or checks for it, and kills the process if it came without a
/// farewell. Returns whether there was one.
fn end_with(socket: RawFd, flags: c_int) -> bool {
    let mut byte = 0_u8;
    loop {
        // SAFETY: room for one byte, which stays to be read again.
        let read = unsafe { recv(socket, (&raw mut byte).cast(), 1, flags | MSG_PEEK) };
        let ended = match read {
            0 => true,
            1.. => return true,
            _ => match std::io::Error::last_os_error().kind() {
                std::io::ErrorKind::Interrupted => continue,
                kind => kind == std::io::ErrorKind::ConnectionReset,
            },
        };
        if ended {
            // SAFETY: calls without pointers.
            unsafe { kill(getpid(), SIGKILL) };
        }
        return false;
    }
}
