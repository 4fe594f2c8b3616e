//! Mappings that change under the feet of running threads: a part of the region comes to show other frames, in one step.
//!
//! Mapping a file over the region and registering it for minor faults would be two steps, and a thread that touches a page
//! between them would get a frame that nobody gave it. So the new mapping is made and registered elsewhere and then
//! moved to its place (`mremap`), which keeps the registration and is one step to all other threads. The kernel lets
//! a move return only when its message has been read from the `userfaultfd`; hence a thread that reads while the
//! pager moves. A single page whose frame is filled already needs none of that: who touches it early finds what it would
//! have found later.

use super::memory::BASE;
use super::uffd::{Message, Tell, Uffd};
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use superpage_pages::Pfn;

/// See the module.
pub(crate) struct Drain {
    start: Option<Sender<()>>,
    cancel: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Drain {
    /// Starts the thread. `faults` is called with the faults that it reads meanwhile.
    pub(crate) fn new(uffd: Arc<Uffd>, faults: impl Fn(Message) + Send + 'static) -> io::Result<Drain> {
        let (start, started) = channel();
        let cancel = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?);
        let cancelled = Arc::clone(&cancel);
        let thread = std::thread::Builder::new()
            .name("region-drain".into())
            .spawn(move || drain(&uffd, &cancelled, &started, &faults))?;
        Ok(Drain { start: Some(start), cancel, thread: Some(thread) })
    }

    /// Makes `pages` base pages of the region at `at` show the frames of `file` from `frame` on. None of the pages is mapped
    /// afterwards, but one alone may be.
    ///
    /// # Errors
    /// The process has too many mappings, or the system is out of memory; nothing is changed, but that one page alone may
    /// be no memory any more.
    pub(crate) fn show(
        &self,
        uffd: &Uffd,
        file: BorrowedFd<'_>,
        at: *mut u8,
        pages: usize,
        frame: Pfn,
    ) -> io::Result<()> {
        let bytes = pages * BASE;
        let offset = frame.0 * BASE as u64;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        if pages == 1 {
            // SAFETY: the page is the region's and in nobody's use; it appears with its contents, as at any fault.
            let shown = unsafe {
                rustix::mm::mmap(at.cast(), bytes, rights, MapFlags::SHARED | MapFlags::FIXED, file, offset)
            }?;
            let registered = register(uffd, shown, bytes);
            if registered.is_err() {
                // Nobody would hear of faults there. Better none at all than a frame that is somebody else's later.
                // SAFETY: the page is the region's, and its user was told of an error.
                let _ = unsafe { rustix::mm::munmap(shown, bytes) };
            }
            return registered;
        }
        // SAFETY: a new mapping where the kernel chooses touches nothing that exists.
        let staged = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, rights, MapFlags::SHARED, file, offset) }?;
        let moved = register(uffd, staged, bytes).and_then(|()| self.put(staged, bytes, at));
        if moved.is_err() {
            // SAFETY: the mapping is our own and was not moved.
            let _ = unsafe { rustix::mm::munmap(staged, bytes) };
        }
        moved
    }

    /// Moves a mapping to its place.
    fn put(&self, staged: *mut c_void, bytes: usize, at: *mut u8) -> io::Result<()> {
        let start = self.start.as_ref().expect("the thread runs until the drop");
        start.send(()).expect("the thread runs until the drop");
        // SAFETY: the range at `at` is the region's, where pages come and go as in any paged memory; what was mapped there is
        // no page in use, as the caller has seen to.
        let moved = unsafe { rustix::mm::mremap_fixed(staged, bytes, bytes, MremapFlags::MAYMOVE, at.cast()) };
        if moved.is_err() {
            rustix::io::write(&*self.cancel, &1_u64.to_ne_bytes())?;
        }
        moved?;
        Ok(())
    }
}

/// Makes a mapping one that tells of its faults and that no child process inherits: a child would have no pager.
fn register(uffd: &Uffd, mapping: *mut c_void, bytes: usize) -> io::Result<()> {
    // SAFETY: the mapping is of this crate; the advice changes no memory.
    unsafe { rustix::mm::madvise(mapping, bytes, Advice::LinuxDontFork) }?;
    uffd.register(mapping.addr() as u64, bytes as u64, Tell::MinorOrMissing)
}

impl Drop for Drain {
    fn drop(&mut self) {
        self.start = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// For each start: reads messages until a move was told of, or the mover says that there was none.
fn drain(uffd: &Uffd, cancel: &OwnedFd, started: &Receiver<()>, faults: &impl Fn(Message)) {
    while started.recv().is_ok() {
        let mut done = false;
        while !done {
            let mut ready = [PollFd::new(uffd, PollFlags::IN), PollFd::from_borrowed_fd(cancel.as_fd(), PollFlags::IN)];
            let waited = rustix::event::poll(&mut ready, None);
            let cancelled = !ready[1].revents().is_empty();
            // Nobody can go on if messages are lost: then the pager waits here, and those who fault wait for it.
            if waited.is_ok() && cancelled {
                let _ = rustix::io::read(cancel, &mut [0; 8]);
                break;
            }
            let _ = uffd.read(|message| match message {
                Message::Moved => done = true,
                fault => faults(fault),
            });
        }
    }
}
