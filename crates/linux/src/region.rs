//! [`Region`]: memory that a program just uses, and its pager beside it.

mod drain;
mod error;
mod memory;
mod pager;
mod stats;
mod swap;
mod tables;
mod uffd;

pub use self::error::Error;
pub use self::stats::RegionStats;

use self::drain::Drain;
use self::memory::{BASE, Memory};
use self::pager::{Pager, Request};
use self::swap::Swap;
use self::tables::Tables;
use self::uffd::{Tell, Uffd};

use rustix::event::EventfdFlags;
use rustix::fd::OwnedFd;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use superpage_pages::{Ladder, PageSize, Protection, Vpn};
use superpage_vm::{Backing, Config, Dirty, Growth, Hash, Map, Policy, Reclaim, Vm};

/// A piece of memory under a hard limit, whose pages grow from 4 KB to 2 MB in place as they are used, for buffer pools
/// and arenas.
///
/// A first touch reserves a whole 2 MB page and populates one base page of it; when all are populated they become one huge
/// page, without a copy. Under scarcity what is reserved and not populated goes to others. Nothing is populated that was
/// not touched: there is no bloat.
///
/// The memory is shared (`MAP_SHARED`) and not inherited by child processes. Two threads serve the region; threads that
/// touch an absent page wait for them, so neither the global allocator nor anything else that those two need may live in
/// a region.
///
/// ```no_run
/// let mut region = superpage_linux::Region::builder().bytes(64 << 20).build()?;
/// region.as_mut_slice()[..5].copy_from_slice(b"hello");
/// assert_eq!(region.stats().manager.resident_pages, 1);
/// # Ok::<(), superpage_linux::region::Error>(())
/// ```
pub struct Region {
    start: NonNull<u8>,
    bytes: usize,
    requests: Sender<Request>,
    bell: Arc<OwnedFd>,
    pager: Option<JoinHandle<()>>,
}

// SAFETY: the start is plain memory of the process, bound to no thread; what else is here is `Send` itself.
unsafe impl Send for Region {}
// SAFETY: through a shared region there are only raw pointers to the memory, and messages to the pager.
unsafe impl Sync for Region {}

/// What a region is to be: see [`Region::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    bytes: usize,
    limit: Option<usize>,
    swap_dir: Option<PathBuf>,
    policy: Policy,
}

impl Builder {
    /// The size of the region, in bytes; rounded up to whole base pages. It has to be given.
    pub fn bytes(mut self, bytes: usize) -> Builder {
        self.bytes = bytes;
        self
    }

    /// The most physical memory that the region may hold, in bytes; rounded down to whole base pages, at least 2 MB. Without a
    /// limit it is the size of the region, rounded up to whole 2 MB.
    pub fn limit(mut self, limit: usize) -> Builder {
        self.limit = Some(limit);
        self
    }

    /// Where pages go that the limit leaves no room for: an unlinked file in this directory. Without one they cannot go, and
    /// accesses beyond the limit end with `SIGBUS`.
    pub fn swap_dir(mut self, directory: impl Into<PathBuf>) -> Builder {
        self.swap_dir = Some(directory.into());
        self
    }

    /// What the manager does; without this, policy `reservation` with digests (`hash=read`). Without a swap directory nothing
    /// is reclaimed, whatever the policy says; dirty bits are of no account for promotion here.
    pub fn policy(mut self, policy: Policy) -> Builder {
        self.policy = policy;
        self
    }

    /// Makes the region and starts its pager.
    ///
    /// # Errors
    /// See [`Error`]: no right to `userfaultfd`, a kernel that lacks what is needed, sizes that cannot be, too few mappings.
    pub fn build(self) -> Result<Region, Error> {
        let page = rustix::param::page_size();
        if page != BASE {
            return Err(Error::BasePage(page));
        }
        let sizes = ["4K", "64K", "2M"].map(|size| size.parse::<PageSize>().expect("a size"));
        let ladder = Ladder::new(&sizes).expect("an ascending ladder");
        let block = memory::BLOCK * BASE;
        const MOST: usize = 1 << 44;
        if self.bytes == 0 || self.bytes > MOST {
            return Err(Error::Bytes(self.bytes));
        }
        let bytes = self.bytes.next_multiple_of(BASE);
        let limit = self.limit.unwrap_or(bytes.next_multiple_of(block));
        if limit < block || limit > MOST {
            return Err(Error::Limit(limit));
        }
        let (pages, frames) = (bytes / BASE, limit / BASE);
        enough_mappings(pages, frames)?;
        let mut policy = self.policy;
        if self.swap_dir.is_none() {
            policy.reclaim = Reclaim::Nothing;
        }
        // There are no clean superpages here to be kept from writes: all that is mapped may have been written.
        policy.dirty = Dirty::Nowhere;
        let swap = Swap::new(self.swap_dir.as_deref(), pages)?;
        let uffd = Arc::new(Uffd::open()?);
        let memory = Memory::new(frames)?;
        let range = Reserved::new(bytes)?;
        let first = Vpn((range.start.addr() / BASE) as u64);
        let missing = uffd.register(range.start.addr() as u64, bytes as u64, Tell::Missing);
        missing.map_err(Error::system("register the region with userfaultfd"))?;

        let mut tables = Tables::new(ladder, range.start, pages);
        let config = Config { ladder, frames: frames as u64, policy, swap_pages: pages as u64 };
        let mut vm = Vm::new(config).map_err(|_| Error::Limit(limit))?;
        let space = vm.create_space();
        let (protection, backing, growth) = (Protection::READ_WRITE, Backing::Anonymous, Growth::Fixed);
        let map = Map { start: first, pages: pages as u64, protection, shared: true, backing, growth };
        vm.map(&mut tables, space, map).map_err(|_| Error::Bytes(bytes))?;

        let (requests, received) = channel();
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = Arc::new(bell.map_err(Error::system("make an event counter"))?);
        let (to_pager, ring) = (requests.clone(), Arc::clone(&bell));
        let drain = Drain::new(Arc::clone(&uffd), move |message| send(&to_pager, &ring, Request::Message(message)));
        let drain = drain.map_err(Error::system("start a thread"))?;
        let pager = Pager {
            vm,
            space,
            tables,
            memory,
            swap,
            uffd,
            drain,
            first,
            refused: BTreeSet::new(),
            stats: RegionStats::default(),
        };
        let heard = Arc::clone(&bell);
        let pager = std::thread::Builder::new()
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
        Ok(Region { start, bytes, requests, bell, pager: Some(pager) })
    }
}

impl Region {
    /// A region of no size yet, with no limit and no swap directory.
    pub fn builder() -> Builder {
        let mut policy = Policy::named("reservation").expect("a policy that the manager names");
        // A region cannot see which pages were only read; digests spare it writing those out.
        policy.hash = Hash::Read;
        Builder { bytes: 0, limit: None, swap_dir: None, policy }
    }

    /// The first byte, at a multiple of 2 MB. The memory is zero at first, and may be read and written through this pointer by
    /// any thread for as long as the region lives, under Rust's rules for memory that threads share.
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
    /// While the slice is in use nobody writes the memory (through [`Region::as_ptr`]) or discards any of it.
    pub unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: the region is mapped and zeroed or written at every byte, as far as anybody can see; the caller keeps
        // writers away.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// All of the memory, for reading and writing.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and the region is borrowed alone. Who uses a pointer from `as_ptr` meanwhile breaks the
        // rules under which it was given.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// Populates the pages of a range now, as touching each would, but tells of a lack of memory by an error instead of a
    /// signal. Until they are evicted or discarded, using them cannot fail.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; the pages before are populated. [`Error::Range`].
    pub fn populate(&self, range: Range<usize>) -> Result<(), Error> {
        let (from, to) = self.pages(&range)?;
        self.ask(|answer| Request::Populate(from, to, answer))
    }

    /// Gives up the contents of a range, which reads as zeroes again; its frames are for others. Huge pages across its edges
    /// are demoted.
    ///
    /// # Errors
    /// [`Error::Range`].
    pub fn discard(&self, range: Range<usize>) -> Result<(), Error> {
        let (from, to) = self.pages(&range)?;
        if from < to {
            self.ask(|answer| Request::Discard(from, to, answer));
        }
        Ok(())
    }

    /// Gives blocks of 2 MB in which no page is in use or reserved back to the system.
    pub fn trim(&self) {
        self.ask(Request::Trim);
    }

    /// What was done so far, and what is held now.
    pub fn stats(&self) -> RegionStats {
        self.ask(Request::Stats)
    }

    /// The bytes that the manager maps by 2 MB pages, now.
    pub fn promoted_bytes(&self) -> u64 {
        self.stats().promoted_bytes()
    }

    /// Checks every structure of the manager and the pager against the others. For tests: O(size of the region).
    ///
    /// # Errors
    /// Says what does not agree.
    pub fn validate(&self) -> Result<(), String> {
        self.ask(Request::Validate)
    }

    fn pages(&self, range: &Range<usize>) -> Result<(usize, usize), Error> {
        let Range { start, end } = *range;
        if start > end || end > self.bytes || start % BASE != 0 || end % BASE != 0 {
            return Err(Error::Range { start, end, bytes: self.bytes });
        }
        Ok((start / BASE, end / BASE))
    }

    fn ask<T>(&self, request: impl FnOnce(Sender<T>) -> Request) -> T {
        let (answer, answered) = channel();
        send(&self.requests, &self.bell, request(answer));
        answered.recv().expect("the pager answers as long as the region lives")
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        send(&self.requests, &self.bell, Request::Stop);
        if let Some(pager) = self.pager.take() {
            let _ = pager.join();
        }
        drop(Reserved { start: self.start.as_ptr(), bytes: self.bytes });
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Region").field("start", &self.start).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// Sends a request and rings the bell. A pager that has ended hears neither.
fn send(requests: &Sender<Request>, bell: &OwnedFd, request: Request) {
    if requests.send(request).is_ok() {
        let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
    }
}

/// The addresses of a region before and after it lives: unmapped when dropped.
struct Reserved {
    start: *mut u8,
    bytes: usize,
}

impl Reserved {
    /// Anonymous memory at a multiple of 2 MB, not inherited by child processes.
    fn new(bytes: usize) -> Result<Reserved, Error> {
        let what = "map the region";
        let start = memory::reserve(bytes).map_err(Error::system(what))?;
        let reserved = Reserved { start, bytes };
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the range was just reserved, and nothing else lives there.
        unsafe {
            rustix::mm::mmap_anonymous(start.cast(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags)
                .and_then(|_| rustix::mm::madvise(start.cast(), bytes, Advice::LinuxDontFork))
        }
        .map_err(Error::system(what))?;
        Ok(reserved)
    }

    /// The region lives.
    fn keep(self) -> NonNull<u8> {
        let start = NonNull::new(self.start).expect("the kernel maps nothing at address 0 unasked");
        std::mem::forget(self);
        start
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: the range is the region's, which nobody uses any more. A failure would only leave it mapped.
        let _ = unsafe { rustix::mm::munmap(self.start.cast(), self.bytes) };
    }
}

/// A pager that dies leaves threads that wait for ever, and a region without one would show frames that are others': the
/// process ends instead.
struct AbortUnlessDone;

impl Drop for AbortUnlessDone {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// Each page may come to need a mapping of its own where memory is short; else each block has one.
fn enough_mappings(pages: usize, frames: usize) -> Result<(), Error> {
    /// For the rest of the program.
    const OTHERS: u64 = 1024;
    let blocks = pages.div_ceil(memory::BLOCK);
    let need = if blocks * memory::BLOCK <= frames { blocks } else { pages } as u64;
    let have = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok().and_then(|text| text.trim().parse().ok());
    match have {
        Some(have) if need + OTHERS > have => Err(Error::Mappings { need, have, raise: need + OTHERS }),
        _ => Ok(()),
    }
}
