//! What processors agree on: the lock of the kernel, which space each one runs, and shootdowns.
//!
//! Only the holder of the kernel's lock shoots down: it writes what to invalidate, sets a bit for
//! each processor that must do so, interrupts them, and waits until all bits are clear. A processor
//! answers in the interrupt or, as it has none then, while it waits for a lock. So the holder never
//! waits for a processor that waits for it.
//!
//! A processor that waits spins for a while and then halts; the one that ends the wait interrupts
//! it. An emulated processor that only spins would take time of its host from the other one.
//!
//! `crates/vm/tests/shootdowns.rs` runs this file, with `super::sync` the atomics of a scheduler
//! that tries interleavings.

use super::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering, spin_loop};
use super::tables::MANY;
use superpage_pages::Vpn;
use superpage_vm::SpaceId;

pub(crate) const PROCESSORS: usize = 2;

/// What the processor that calls can do.
pub(crate) trait Hardware {
    /// How often it looks for what it waits for before it halts.
    const SPINS: usize;
    /// Its number.
    fn here(&self) -> usize;
    /// Interrupts all others.
    fn interrupt_others(&self);
    /// Allows interrupts until one has come. It may have come before.
    fn wait_for_interrupt(&self);
    /// Invalidates pages in its TLB, or everything.
    fn invalidate(&self, stale: Option<&[Vpn]>);
}

/// The space whose tables each processor uses. It holds no translation of any other one, since
/// loading a root flushes its TLB. Guarded by the kernel's lock.
#[derive(Default)]
pub(crate) struct Running(pub(crate) [Option<SpaceId>; PROCESSORS]);

impl Running {
    /// The processors that run a space, a bit for each.
    fn processors(&self, space: SpaceId) -> usize {
        (0..PROCESSORS).filter(|processor| self.0[*processor] == Some(space)).fold(0, |all, one| all | 1 << one)
    }
}

/// A lock that one processor holds at a time. The holder is not interrupted.
pub(crate) struct Lock(AtomicBool);

impl Lock {
    pub(crate) const fn new() -> Lock {
        Lock(AtomicBool::new(false))
    }

    /// Takes it if it is free.
    pub(crate) fn try_lock(&self) -> bool {
        !self.0.load(Ordering::SeqCst) && !self.0.swap(true, Ordering::SeqCst)
    }
}

/// Requests among the processors.
pub(crate) struct Processors<H> {
    pub(crate) hardware: H,
    /// Those that have halted while they wait, a bit for each.
    halted: AtomicUsize,
    /// Those that have not yet done what is requested, a bit for each.
    asked: AtomicUsize,
    /// The pages to invalidate, the first `stale` of these; or everything, if that is more than
    /// [`MANY`].
    pages: [AtomicU64; MANY],
    stale: AtomicUsize,
    /// How many requests were made, and answered in interrupts and while spinning.
    counts: [AtomicU64; 3],
}

const SENT: usize = 0;
const INTERRUPTED: usize = 1;
const SPINNING: usize = 2;

impl<H: Hardware> Processors<H> {
    pub(crate) const fn new(hardware: H) -> Processors<H> {
        Processors {
            hardware,
            halted: AtomicUsize::new(0),
            asked: AtomicUsize::new(0),
            pages: [const { AtomicU64::new(0) }; MANY],
            stale: AtomicUsize::new(0),
            counts: [const { AtomicU64::new(0) }; 3],
        }
    }

    /// Takes a lock. Only without interrupts, and for who does not hold it.
    pub(crate) fn lock(&self, lock: &Lock) {
        self.wait_until(|| lock.try_lock());
    }

    /// Releases a lock.
    pub(crate) fn unlock(&self, lock: &Lock) {
        lock.0.store(false, Ordering::SeqCst);
        self.wake();
    }

    /// Waits until `done`, which is not called again, and answers meanwhile. Only without
    /// interrupts.
    fn wait_until(&self, done: impl Fn() -> bool) {
        let bit = 1 << self.hardware.here();
        loop {
            for _ in 0..H::SPINS {
                if done() {
                    return;
                }
                self.answer(SPINNING);
                spin_loop();
            }
            // A change after this look finds the bit set, so that its interrupt comes.
            self.halted.fetch_or(bit, Ordering::SeqCst);
            let now = done();
            if !now {
                self.hardware.wait_for_interrupt();
            }
            self.halted.fetch_and(!bit, Ordering::SeqCst);
            if now {
                return;
            }
        }
    }

    /// Wakes the processors that wait for what has changed.
    fn wake(&self) {
        if self.halted.load(Ordering::SeqCst) > 0 {
            self.hardware.interrupt_others();
        }
    }

    /// Invalidates pages of a space, or all, wherever it runs; returns when no processor uses them.
    /// Only for the holder of the kernel's lock.
    pub(crate) fn shoot_down(&self, running: &Running, space: SpaceId, stale: Option<&[Vpn]>) {
        let (all, here) = (running.processors(space), 1 << self.hardware.here());
        if all & here > 0 {
            self.hardware.invalidate(stale);
        }
        if all & !here == 0 {
            return;
        }
        let pages = stale.unwrap_or_default();
        self.pages.iter().zip(pages).for_each(|(slot, at)| slot.store(at.0, Ordering::Relaxed));
        self.stale.store(stale.map_or(MANY + 1, <[Vpn]>::len), Ordering::Relaxed);
        self.counts[SENT].fetch_add(1, Ordering::Relaxed);
        self.asked.store(all & !here, Ordering::SeqCst);
        self.hardware.interrupt_others();
        self.wait_until(|| self.asked.load(Ordering::SeqCst) == 0);
    }

    /// Does what another processor has requested of this one, if anything.
    fn answer(&self, how: usize) {
        let bit = 1 << self.hardware.here();
        if self.asked.load(Ordering::Acquire) & bit == 0 {
            return;
        }
        match self.pages.get(..self.stale.load(Ordering::Relaxed)) {
            Some(pages) => {
                pages.iter().for_each(|at| self.hardware.invalidate(Some(&[Vpn(at.load(Ordering::Relaxed))])));
            }
            None => self.hardware.invalidate(None),
        }
        self.counts[how].fetch_add(1, Ordering::Relaxed);
        self.asked.fetch_and(!bit, Ordering::SeqCst);
        self.wake();
    }

    /// The handler of the interrupt. A request may have been answered before it comes.
    pub(crate) fn interrupted(&self) {
        self.answer(INTERRUPTED);
    }

    /// How many requests were made since the last call, and answered in interrupts and while
    /// spinning.
    pub(crate) fn counts(&self) -> [u64; 3] {
        [SENT, INTERRUPTED, SPINNING].map(|what| self.counts[what].swap(0, Ordering::Relaxed))
    }
}
