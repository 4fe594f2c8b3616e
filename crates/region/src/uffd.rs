//! The `userfaultfd` system call and its requests, from `userfaultfd(2)` and
//! `ioctl_userfaultfd(2)`: only those that a region needs.

use super::Error;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Updater, ioctl, opcode};
use rustix::mm::UserfaultfdFlags;
use std::ffi::c_void;
use std::io;

const GROUP: u8 = 0xaa;
const BASE: u64 = 4096;

/// `UFFD_API`: the version of the interface.
const API_VERSION: u64 = 0xaa;
/// `UFFD_USER_MODE_ONLY`: no faults of the kernel itself on behalf of a system call.
const USER_MODE_ONLY: u32 = 1;

const FEATURE_MISSING_SHMEM: u64 = 1 << 5;
const FEATURE_MINOR_SHMEM: u64 = 1 << 10;
const FEATURE_POISON: u64 = 1 << 14;

const EVENT_PAGEFAULT: u8 = 0x12;
const FLAG_WRITE: u64 = 1;

const MODE_MISSING: u64 = 1;
const MODE_MINOR: u64 = 4;

#[repr(C)]
struct ApiRequest {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct RangeRequest {
    start: u64,
    len: u64,
}

#[repr(C)]
struct RegisterRequest {
    range: RangeRequest,
    mode: u64,
    ioctls: u64,
}

/// Of `UFFDIO_CONTINUE` and `UFFDIO_POISON`: the number of bytes done, or a negative error, is
/// written back.
#[repr(C)]
struct PagesRequest {
    range: RangeRequest,
    mode: u64,
    done: i64,
}

/// `struct uffd_msg`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawMessage {
    event: u8,
    reserved: [u8; 7],
    /// Of a page fault: flags and address.
    arguments: [u64; 3],
}

const MESSAGES: usize = 16;

const API: Opcode = opcode::read_write::<ApiRequest>(GROUP, 0x3f);
const REGISTER: Opcode = opcode::read_write::<RegisterRequest>(GROUP, 0);
const CONTINUE: Opcode = opcode::read_write::<PagesRequest>(GROUP, 7);
const POISON: Opcode = opcode::read_write::<PagesRequest>(GROUP, 8);
const WAKE: Opcode = opcode::read::<RangeRequest>(GROUP, 2);
/// `USERFAULTFD_IOC_NEW`, on the device.
const NEW: Opcode = opcode::none(GROUP, 0);

/// `USERFAULTFD_IOC_NEW`: takes the flags, returns a descriptor.
struct New;

// SAFETY: the opcode is that of the request, which takes flags by value and returns a new
// descriptor or an error.
unsafe impl Ioctl for New {
    type Output = OwnedFd;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        NEW
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::without_provenance_mut((OFlags::CLOEXEC | OFlags::NONBLOCK).bits() as usize)
    }

    // SAFETY: of the trait's caller nothing is needed but that the call has succeeded: the pointer
    // is not read.
    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<OwnedFd> {
        use rustix::fd::FromRawFd;
        // SAFETY: on success the kernel made this descriptor for us alone.
        Ok(unsafe { OwnedFd::from_raw_fd(out) })
    }
}

/// A message from `userfaultfd`: a thread waits for the page that holds this byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    /// The address.
    pub(crate) address: u64,
    /// Whether it wants to write.
    pub(crate) write: bool,
}

/// A `userfaultfd` ready for use.
pub(crate) struct Uffd {
    fd: OwnedFd,
    user_mode_only: bool,
    poison: bool,
}

impl AsFd for Uffd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Uffd {
    /// Opens one, in the best way that this process may: for kernel faults too, otherwise for
    /// user-mode faults only.
    ///
    /// # Errors
    /// This process has no access to one, or the kernel has no minor faults on memory files.
    pub(crate) fn open() -> Result<Uffd, Error> {
        // A kernel only reports its features at the first request on a descriptor, which is then of
        // no more use.
        let (probe, _) = descriptor()?;
        let offered = handshake(&probe, 0).map_err(|_| Error::Kernel("interface of the version known here"))?;
        if offered & FEATURE_MISSING_SHMEM == 0 {
            return Err(Error::Kernel("faults on shared memory"));
        }
        if offered & FEATURE_MINOR_SHMEM == 0 {
            return Err(Error::Kernel("minor faults on shared memory"));
        }
        let (fd, user_mode_only) = descriptor()?;
        let poison = offered & FEATURE_POISON;
        handshake(&fd, FEATURE_MISSING_SHMEM | FEATURE_MINOR_SHMEM | poison)
            .map_err(Error::system("start userfaultfd"))?;
        Ok(Uffd { fd, user_mode_only, poison: poison != 0 })
    }

    /// Whether system calls that touch an absent page fail instead of waiting for it.
    pub(crate) fn user_mode_only(&self) -> bool {
        self.user_mode_only
    }

    /// Registers a range of whole mappings of a memory file, for faults where the page is in the
    /// file but not mapped, and where the file has a hole.
    pub(crate) fn register(&self, start: u64, bytes: u64) -> io::Result<()> {
        let range = RangeRequest { start, len: bytes };
        let mut request = RegisterRequest { range, mode: MODE_MISSING | MODE_MINOR, ioctls: 0 };
        // SAFETY: the opcode is that of the structure; registering changes no memory, only who
        // hears of faults.
        unsafe { ioctl(&self.fd, Updater::<REGISTER, _>::new(&mut request)) }?;
        Ok(())
    }

    /// Maps those pages of a range that the file has and that are not mapped, and wakes the threads
    /// that wait for any of them. Returns whether any was mapped.
    pub(crate) fn resume(&self, start: u64, bytes: u64) -> io::Result<bool> {
        let (mut at, end, mut mapped) = (start, start + bytes, false);
        while at < end {
            let mut request = PagesRequest { range: RangeRequest { start: at, len: end - at }, mode: 0, done: 0 };
            // SAFETY: the opcode is that of the structure; the range is the region's own, where
            // pages appear as at any fault.
            match unsafe { ioctl(&self.fd, Updater::<CONTINUE, _>::new(&mut request)) } {
                Ok(()) => return Ok(true),
                Err(Errno::AGAIN) => {
                    mapped |= request.done > 0;
                    at += request.done.max(0) as u64;
                }
                Err(Errno::EXIST) => {
                    self.wake(at, BASE)?;
                    at += BASE;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(mapped)
    }

    /// Wakes the threads that wait for a page of the range: they retry the access.
    pub(crate) fn wake(&self, start: u64, bytes: u64) -> io::Result<()> {
        let mut request = RangeRequest { start, len: bytes };
        // SAFETY: the opcode is that of the structure; no memory changes.
        unsafe { ioctl(&self.fd, Updater::<WAKE, _>::new(&mut request)) }?;
        Ok(())
    }

    /// Makes accesses to an unmapped base page fail with `SIGBUS`, and wakes the threads that wait
    /// for it.
    ///
    /// # Errors
    /// The kernel (before 6.6) does not support it.
    pub(crate) fn poison(&self, start: u64) -> io::Result<()> {
        if !self.poison {
            return Err(Errno::NOTSUP.into());
        }
        let mut request = PagesRequest { range: RangeRequest { start, len: BASE }, mode: 0, done: 0 };
        // SAFETY: the opcode is that of the structure; the range is the region's own and holds no
        // page.
        match unsafe { ioctl(&self.fd, Updater::<POISON, _>::new(&mut request)) } {
            // Two threads waited for it.
            Err(Errno::EXIST) => self.wake(start, BASE),
            other => Ok(other?),
        }
    }

    /// Reads the pending messages, at most a batch, and calls `take` with each. Does not wait.
    pub(crate) fn read(&self, mut take: impl FnMut(Message)) -> io::Result<()> {
        let mut raw = [RawMessage::default(); MESSAGES];
        let size = size_of::<RawMessage>();
        // SAFETY: the messages are plain numbers, of which any bytes are a value, and have no
        // padding.
        let bytes = unsafe { std::slice::from_raw_parts_mut(raw.as_mut_ptr().cast::<u8>(), size * MESSAGES) };
        let read = match rustix::io::read(&self.fd, bytes) {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            other => other?,
        };
        for message in &raw[..read / size] {
            let [flags, address, _] = message.arguments;
            if message.event == EVENT_PAGEFAULT {
                take(Message { address, write: flags & FLAG_WRITE != 0 });
            }
        }
        Ok(())
    }
}

/// A new descriptor, and whether it is for user mode only.
fn descriptor() -> Result<(OwnedFd, bool), Error> {
    let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
    // SAFETY: a descriptor alone has no effect on memory.
    let refused = match unsafe { rustix::mm::userfaultfd(flags) } {
        Ok(fd) => return Ok((fd, false)),
        Err(Errno::NOSYS) => return Err(Error::Kernel("system call of that name")),
        Err(error) => error,
    };
    if let Ok(device) = rustix::fs::open("/dev/userfaultfd", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        // SAFETY: `New` is the request of this device.
        if let Ok(fd) = unsafe { ioctl(device, New) } {
            return Ok((fd, false));
        }
    }
    // SAFETY: as above.
    match unsafe { rustix::mm::userfaultfd(flags | UserfaultfdFlags::from_bits_retain(USER_MODE_ONLY)) } {
        Ok(fd) => Ok((fd, true)),
        Err(_) => Err(Error::Rights(refused.into())),
    }
}

/// Negotiates features; returns those that the kernel has.
fn handshake(fd: &OwnedFd, features: u64) -> io::Result<u64> {
    let mut request = ApiRequest { api: API_VERSION, features, ioctls: 0 };
    // SAFETY: the opcode is that of the structure; no memory changes.
    unsafe { ioctl(fd, Updater::<API, _>::new(&mut request)) }?;
    Ok(request.features)
}
