//! [`Region`]: ordinary memory for a program, and a pager for it, which is [`superpage_vm`]. It
//! changes nothing of the system and nothing of the process except this memory.
//!
//! The crate is empty on other systems than Linux.
#![cfg(target_os = "linux")]
#![deny(unsafe_op_in_unsafe_fn)]

mod contents;
mod error;
mod memory;
mod pager;
mod stats;
mod swap;
mod tables;
mod uffd;

pub use self::error::Error;
pub use self::stats::RegionStats;

use self::contents::Contents;
use self::memory::{BASE, Memory};
use self::pager::{Pager, Request};
use self::swap::Swap;
use self::tables::Tables;
use self::uffd::Uffd;

use rustix::event::EventfdFlags;
use rustix::fd::OwnedFd;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use superpage_pages::{Ladder, PageSize, Vpn};
use superpage_vm::{Config, Dirty, Hash, Hints, Map, Place, Policy, Reclaim, Target, Vm};

/// A piece of memory under a hard limit, whose pages grow from 4 KB to 2 MB in place as they are
/// used, for buffer pools and arenas.
///
/// A first touch reserves a whole 2 MB page and populates one base page of it; when all are
/// populated they become one huge page, without a copy. When memory is scarce, reserved pages that
/// are not populated are used for others.
///
/// *Fault-around.* A fault costs a round trip to the pager, so where pages are touched in order, up
/// or down, a fault populates and maps a whole window of reserved pages, aligned, as large as what
/// lies populated right beside it: 8 KB, 16 KB, ... up to 256 KB (`around` in [`Builder::policy`]).
/// What is touched with gaps gets no page beside. A run is at most doubled, by at most a window,
/// and reaches 2 MB with the fewer touches; what was populated so and never faulted is counted
/// (`untouched_pages` of [`RegionStats::manager`]). It is in every respect a populated page:
/// resident, dirty, promoted and evicted like others, since a process does not see whether it is
/// touched later. Nothing is populated ahead where memory would be short (where fewer frames would
/// be left than the page daemon aims at), where contents are in the swap file, and at all where the
/// limit is less than the size and there is no swap directory: there each frame is for a page that
/// was touched.
///
/// The memory is one shared mapping (`MAP_SHARED`) of a memory file, whatever the limit. A thread
/// serves the region; threads that touch an absent page wait for it. So nothing that this thread
/// needs, such as the global allocator, may use memory of a region.
///
/// Child processes do not inherit the memory. In a forked child a region is an empty handle:
/// [`Region::stats`] are all zero, fallible calls return [`Error::Forked`], and dropping it does
/// nothing.
///
/// ```no_run
/// let mut region = superpage_region::Region::builder().bytes(64 << 20).build()?;
/// region.as_mut_slice()[..5].copy_from_slice(b"hello");
/// assert_eq!(region.stats().manager.resident_pages, 1);
/// # Ok::<(), superpage_region::Error>(())
/// ```
pub struct Region {
    start: NonNull<u8>,
    bytes: usize,
    /// The process that made it, whose threads serve it.
    process: u32,
    // Not dropped in a forked child, where the thread does not exist and the channel may be locked
    // for ever.
    pager: ManuallyDrop<Serving>,
}

/// The connection to the pager.
struct Serving {
    requests: Sender<Request>,
    bell: Arc<OwnedFd>,
    thread: JoinHandle<()>,
}

// SAFETY: the start is plain memory of the process, bound to no thread; what else is here is `Send`
// itself.
unsafe impl Send for Region {}
// SAFETY: through a shared region there are only raw pointers to the memory, and messages to the
// pager.
unsafe impl Sync for Region {}

/// The parameters of a region: see [`Region::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    bytes: usize,
    limit: Option<usize>,
    swap_dir: Option<PathBuf>,
    policy: Policy,
    user_mode_only: bool,
}

impl Builder {
    /// The size of the region, in bytes; rounded up to whole base pages. It must be set.
    pub fn bytes(mut self, bytes: usize) -> Builder {
        self.bytes = bytes;
        self
    }

    /// The most physical memory that the region may hold, in bytes; rounded down to whole base
    /// pages, at least 2 MB. The default is the size of the region, rounded up to whole 2 MB.
    pub fn limit(mut self, limit: usize) -> Builder {
        self.limit = Some(limit);
        self
    }

    /// Where to evict pages that exceed the limit: to an unlinked file in this directory. Without
    /// one no page can be evicted, and accesses beyond the limit end with `SIGBUS`.
    ///
    /// With one, do no input into the region that bypasses the page cache (`O_DIRECT`, registered
    /// buffers of `io_uring`, `vmsplice`): if a page is evicted while a device writes to it, the
    /// device's data is lost.
    pub fn swap_dir(mut self, directory: impl Into<PathBuf>) -> Builder {
        self.swap_dir = Some(directory.into());
        self
    }

    /// The policy of the manager: `reservation`, `freebsd`, `talluri-hill` or `base`; by default
    /// `reservation` with digests (`hash=read`) and fault-around (`around=64`: windows of at most
    /// 64 base pages; 1 is without, and what a policy has that does not say it: then exactly what
    /// is touched is populated). Others are refused ([`Error::Policy`]): `thp` and `mthp` take
    /// whole extents of private memory only, and a region is shared memory; `promote`, and any
    /// other policy with a background, needs a clock, which the pager of a region has not; with
    /// `hints=opt-in` superpages are made where a program asks for them, and nobody can ask in a
    /// region. Without a swap directory nothing is reclaimed, whatever the policy says; dirty bits
    /// do not affect promotion here.
    pub fn policy(mut self, policy: Policy) -> Builder {
        self.policy = policy;
        self
    }

    /// Accepts a process that may only handle user-mode faults: then a system call that accesses an
    /// unpopulated page of the region fails with `EFAULT` (`read` into it, for example).
    /// [`Region::populate`] avoids that, if nothing is evicted. Without this, such a process gets
    /// [`Error::UserModeOnly`].
    pub fn user_mode_only(mut self) -> Builder {
        self.user_mode_only = true;
        self
    }

    /// Makes the region and starts its pager.
    ///
    /// # Errors
    /// See [`Error`]: no access to `userfaultfd`, a kernel without a required feature, sizes out of
    /// range.
    pub fn build(self) -> Result<Region, Error> {
        let page = rustix::param::page_size();
        if page != BASE {
            return Err(Error::BasePage(page));
        }
        let sizes = ["4K", "64K", "2M"].map(|size| size.parse::<PageSize>().expect("a size"));
        let ladder = Ladder::new(&sizes).expect("an ascending ladder");
        let block = memory::BLOCK * BASE;
        /// Pages and frames are counted in 32 bits.
        const MOST: usize = (u32::MAX as usize - 1) * BASE;
        if self.bytes == 0 || self.bytes > MOST {
            return Err(Error::Bytes(self.bytes));
        }
        let bytes = self.bytes.next_multiple_of(BASE);
        let limit = self.limit.unwrap_or(bytes.next_multiple_of(block));
        if limit < block || limit > MOST {
            return Err(Error::Limit(limit));
        }
        let (pages, frames) = (bytes / BASE, limit / BASE);
        let mut policy = self.policy;
        if let Some(why) = does_nothing(&policy) {
            return Err(Error::Policy { policy: policy.definition().name, why });
        }
        if self.swap_dir.is_none() {
            policy.answers.reclaim.pages = Reclaim::Nothing;
            if limit < bytes {
                // What nobody touched could not be evicted for what somebody does.
                policy.answers.populate.around = 1;
            }
        }
        // There are no clean superpages to protect from writes here: everything mapped may have
        // been written.
        policy.answers.promote.dirty = Dirty::Nowhere;
        let swap = Swap::new(self.swap_dir.as_deref(), pages)?;
        let uffd = Uffd::open()?;
        if uffd.user_mode_only() && !self.user_mode_only {
            return Err(Error::UserModeOnly);
        }
        let memory = Memory::new(pages, frames)?;
        let range = Reserved::new(bytes, &memory)?;
        let first = Vpn((range.start.addr() / BASE) as u64);
        let registered = uffd.register(range.start.addr() as u64, bytes as u64);
        registered.map_err(Error::system("register the region with userfaultfd"))?;

        let mut tables = Tables::new(ladder, range.start, pages);
        let config = Config { ladder, frames: frames as u64, policy, swap_pages: pages as u64 };
        let mut vm = Vm::new(config).map_err(|_| Error::Limit(limit))?;
        let space = vm.create_space();
        let map = Map::anonymous(first, pages as u64).shared(true);
        vm.map(&mut tables, space, map).map_err(|_| Error::Bytes(bytes))?;

        let (requests, received) = channel();
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = Arc::new(bell.map_err(Error::system("make an event counter"))?);
        let pager = Pager {
            vm,
            space,
            tables,
            contents: Contents::new(memory, swap, ladder, first),
            uffd,
            first,
            refused: BTreeSet::new(),
            stats: RegionStats::default(),
        };
        let heard = Arc::clone(&bell);
        let thread = std::thread::Builder::new()
            .name("region-pager".into())
            .spawn(move || {
                let _last = AbortUnlessDone;
                if let Err(error) = pager.run(&received, &heard) {
                    panic!("the pager of a region cannot go on: {error}");
                }
                std::mem::forget(_last);
            })
            .map_err(Error::system("start a thread"))?;
        let start = range.keep();
        let pager = ManuallyDrop::new(Serving { requests, bell, thread });
        Ok(Region { start, bytes, process: std::process::id(), pager })
    }
}

/// The largest window of fault-around by default, in base pages: 256 KB.
const AROUND: u32 = 64;

/// Why a policy would leave a region with base pages for ever, silently, although it means to make
/// superpages.
fn does_nothing(policy: &Policy) -> Option<&'static str> {
    let place = &policy.answers.place;
    match () {
        () if policy.background().is_some() => {
            Some("it has background work, and the pager of a region runs only at faults")
        }
        () if policy.check(&Target::MANAGER).is_err() => Some("it is a setting of a running Linux"),
        () if place.frames == Place::Extent => {
            Some("it takes whole extents of private memory only, and a region is shared")
        }
        () if place.hints == Hints::OptIn => {
            Some("it makes superpages where the program asks, and a region has no such call")
        }
        () => None,
    }
}

impl Region {
    /// A builder without a size, a limit or a swap directory.
    pub fn builder() -> Builder {
        let mut policy = Policy::named("reservation").expect("a policy that the manager names");
        // A region cannot see which pages were only read; digests avoid writing those out.
        policy.answers.reclaim.hash = Hash::Read;
        policy.answers.populate.around = AROUND;
        Builder { bytes: 0, limit: None, swap_dir: None, policy, user_mode_only: false }
    }

    /// The first byte, at a multiple of 2 MB. The memory is initially zero, and may be read and
    /// written through this pointer by any thread for as long as the region lives, under Rust's
    /// rules for memory that threads share.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.start
    }

    /// The size in bytes: whole base pages.
    #[allow(clippy::len_without_is_empty, reason = "a region has at least one page")]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// All of the memory, for reading.
    ///
    /// # Safety
    /// While the slice is in use nobody may write the memory (through [`Region::as_ptr`]) or
    /// discard any of it.
    pub unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: the region is mapped and zeroed or written at every byte, as far as anybody can
        // see; the caller keeps writers away.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// All of the memory, for reading and writing.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and the region is borrowed alone. Who uses a pointer from
        // `as_ptr` meanwhile breaks the rules under which it was given.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// Populates the pages of a range now, as touching each in order would, but reports a lack of
    /// memory as an error instead of a signal. Until they are evicted or discarded, accessing them
    /// cannot fail. Faults of other threads are served in between, after each 2 MB; other calls of
    /// the region's wait until it ends.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]: the pages before are populated. [`Error::Range`], [`Error::Forked`].
    pub fn populate(&self, range: Range<usize>) -> Result<(), Error> {
        let (from, to) = self.pages(&range)?;
        self.ask(|answer| Request::Populate(from, to, answer))?
    }

    /// Discards the contents of a range, which then reads as zeroes; its frames are reused. Huge
    /// pages across its ends are demoted. A round trip to the pager, as is [`Region::stats`].
    ///
    /// # Errors
    /// [`Error::Range`], [`Error::Forked`].
    pub fn discard(&self, range: Range<usize>) -> Result<(), Error> {
        let (from, to) = self.pages(&range)?;
        if from < to { self.ask(|answer| Request::Discard(from, to, answer)) } else { Ok(()) }
    }

    /// Returns the memory of pages that are not in use, reserved or cached to the system. Does
    /// nothing in a forked child. A round trip to the pager, as is [`Region::stats`], and O(frames
    /// of the limit) there.
    pub fn trim(&self) {
        let _ = self.ask(Request::Trim);
    }

    /// The counters. All zero in a forked child, which has none of the memory.
    ///
    /// A round trip: a message to the pager's thread, which answers after what it is doing, and a
    /// wait for the answer. Tens of microseconds where the pager is idle, as long as a
    /// [`Region::populate`] of another thread takes where there is one.
    pub fn stats(&self) -> RegionStats {
        self.ask(Request::Stats).unwrap_or_default()
    }

    /// The number of bytes that the manager maps by 2 MB pages, now. Costs what [`Region::stats`]
    /// costs.
    pub fn promoted_bytes(&self) -> u64 {
        self.stats().promoted_bytes()
    }

    /// Checks every structure of the manager and the pager against the others, for tests. O(size of
    /// the region).
    ///
    /// # Errors
    /// A sentence that says what is inconsistent.
    pub fn validate(&self) -> Result<(), String> {
        self.ask(Request::Validate).unwrap_or_else(|error| Err(error.to_string()))
    }

    fn pages(&self, range: &Range<usize>) -> Result<(usize, usize), Error> {
        let Range { start, end } = *range;
        if start > end || end > self.bytes || start % BASE != 0 || end % BASE != 0 {
            return Err(Error::Range { start, end, bytes: self.bytes });
        }
        Ok((start / BASE, end / BASE))
    }

    fn ask<T>(&self, request: impl FnOnce(Sender<T>) -> Request) -> Result<T, Error> {
        if self.process != std::process::id() {
            return Err(Error::Forked);
        }
        let (answer, answered) = channel();
        self.pager.send(request(answer));
        Ok(answered.recv().expect("the pager answers as long as the region lives"))
    }
}

impl Serving {
    /// Sends a request and rings the bell; both are lost on a pager that has ended.
    fn send(&self, request: Request) {
        if self.requests.send(request).is_ok() {
            let _ = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes());
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        // SAFETY: this is the drop, after which nobody uses the field.
        let pager = unsafe { ManuallyDrop::take(&mut self.pager) };
        pager.send(Request::Stop);
        let _ = pager.thread.join();
        drop(Reserved { start: self.start.as_ptr(), bytes: self.bytes });
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Region").field("start", &self.start).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// The addresses of a region before it is complete: unmapped when dropped.
struct Reserved {
    start: *mut u8,
    bytes: usize,
}

impl Reserved {
    /// Maps the memory file at a multiple of 2 MB, not inherited by child processes, which would
    /// have no pager.
    fn new(bytes: usize, memory: &Memory) -> Result<Reserved, Error> {
        let what = "map the region";
        let start = memory::reserve(bytes).map_err(Error::system(what))?;
        let reserved = Reserved { start, bytes };
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: the range was just reserved, and nothing else lives there.
        unsafe {
            rustix::mm::mmap(start.cast(), bytes, rights, flags, memory.file(), 0)
                .and_then(|_| rustix::mm::madvise(start.cast(), bytes, Advice::LinuxDontFork))
        }
        .map_err(Error::system(what))?;
        Ok(reserved)
    }

    /// Passes the addresses on to the region.
    fn keep(self) -> NonNull<u8> {
        let start = NonNull::new(self.start).expect("the kernel maps nothing at address 0 unasked");
        std::mem::forget(self);
        start
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: the range is the region's, which nobody uses any more. A failure would only leave
        // it mapped.
        let _ = unsafe { rustix::mm::munmap(self.start.cast(), self.bytes) };
    }
}

/// Aborts the process if the pager panics: otherwise threads would wait for ever, and without a
/// pager the region would show frames of other pages.
struct AbortUnlessDone;

impl Drop for AbortUnlessDone {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// The guide for builders of kernels: its programs are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/kernel.md")]
#[doc = include_str!("../../../docs/kernel-calls.md")]
#[doc = include_str!("../../../docs/region.md")]
struct Guide;

/// The README: its program is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
