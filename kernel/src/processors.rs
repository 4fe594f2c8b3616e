//! The two processors: the start of the second one, the lock between them, and shootdowns.
//!
//! Only the holder of the kernel's lock shoots down: it writes what to invalidate, sets a bit for
//! each processor that must do so, interrupts them, and waits until all bits are clear. A processor
//! answers in the interrupt or, as it has none then, while it waits for a lock. So the holder never
//! waits for a processor that waits for it.

use crate::boot::{self, SHOOTDOWN};
use crate::tables::MANY;
use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use superpage_pages::Vpn;

pub(crate) const PROCESSORS: usize = 2;

/// The local interrupt controller of the processor that asks (xAPIC).
const APIC: usize = 0xfee0_0000;
/// The page below 1 MB where the second processor begins.
const TRAMPOLINE: usize = 8;

static STARTED: AtomicBool = AtomicBool::new(false);

/// What one processor may use at a time, in the order in which they ask (a ticket lock). The holder
/// is not interrupted.
pub(crate) struct Lock<T> {
    next: AtomicUsize,
    serving: AtomicUsize,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder of the ticket that is served has a reference to the value.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Lock<T> {
        Lock { next: AtomicUsize::new(0), serving: AtomicUsize::new(0), value: UnsafeCell::new(value) }
    }

    /// Calls `call` with the value. Nothing in it may take the lock, or fault.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&mut T) -> R) -> R {
        boot::without_interrupts(|| {
            let ticket = self.next.fetch_add(1, Ordering::Relaxed);
            while self.serving.load(Ordering::Acquire) != ticket {
                if answer() {
                    ANSWERED[WAITING].fetch_add(1, Ordering::Relaxed);
                }
                spin_loop();
            }
            // SAFETY: see `Sync`.
            let result = call(unsafe { &mut *self.value.get() });
            self.serving.store(ticket + 1, Ordering::Release);
            result
        })
    }
}

/// The processors that have not yet done what is requested, a bit for each.
static ASKED: AtomicUsize = AtomicUsize::new(0);
/// The pages to invalidate, the first `STALE` of these; or everything, if that is more than
/// [`MANY`].
static PAGES: [AtomicU64; MANY] = [const { AtomicU64::new(0) }; MANY];
static STALE: AtomicUsize = AtomicUsize::new(0);

/// How many requests were answered, in interrupts and while waiting for a lock.
static ANSWERED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
const INTERRUPTED: usize = 0;
const WAITING: usize = 1;

/// Invalidates pages, or everything, on this processor.
pub(crate) fn invalidate(stale: Option<&[Vpn]>) {
    match stale {
        Some(pages) => pages.iter().for_each(|at| boot::invalidate(at.0 << 12)),
        None => boot::load_root(boot::root()),
    }
}

/// Has other processors, a bit for each, invalidate pages, or everything; returns when they have.
/// Only for the holder of the kernel's lock.
pub(crate) fn shoot_down(others: usize, stale: Option<&[Vpn]>) {
    let pages = stale.unwrap_or_default();
    PAGES.iter().zip(pages).for_each(|(slot, at)| slot.store(at.0, Ordering::Relaxed));
    STALE.store(stale.map_or(MANY + 1, <[Vpn]>::len), Ordering::Relaxed);
    ASKED.store(others, Ordering::Release);
    interrupt_others(SHOOTDOWN as u32);
    while ASKED.load(Ordering::Acquire) > 0 {
        spin_loop();
    }
}

/// Does what another processor has requested of this one; returns whether there was something.
fn answer() -> bool {
    let bit = 1 << boot::processor();
    if ASKED.load(Ordering::Acquire) & bit == 0 {
        return false;
    }
    match PAGES.get(..STALE.load(Ordering::Relaxed)) {
        Some(pages) => pages.iter().for_each(|at| invalidate(Some(&[Vpn(at.load(Ordering::Relaxed))]))),
        None => invalidate(None),
    }
    ASKED.fetch_and(!bit, Ordering::Release);
    true
}

/// The handler of the interrupt. A request may have been answered before it comes.
pub(crate) extern "C" fn interrupted() {
    if answer() {
        ANSWERED[INTERRUPTED].fetch_add(1, Ordering::Relaxed);
    }
    boot::write_device(APIC + 0xb0, 0); // end of the interrupt
}

/// Enables the local interrupt controller.
fn take_apic() {
    boot::write_device(APIC + 0xf0, 0x1ff);
}

/// Sends an interrupt to all processors but this one: its vector and how it is delivered.
fn interrupt_others(command: u32) {
    boot::write_device(APIC + 0x300, 0xc_4000 | command);
    while boot::read_device(APIC + 0x300) & 1 << 12 > 0 {
        spin_loop();
    }
}

fn wait(nanoseconds: u64, until: impl Fn() -> bool) {
    let end = boot::nanoseconds() + nanoseconds;
    while !until() && boot::nanoseconds() < end {
        spin_loop();
    }
}

/// Starts the second processor, as Intel's manual has it (volume 3, "MP initialization").
pub(crate) fn start_second() {
    take_apic();
    boot::place_trampoline(TRAMPOLINE);
    let started = || STARTED.load(Ordering::Acquire);
    interrupt_others(5 << 8); // INIT
    wait(10_000_000, || false);
    for patience in [200_000, 5_000_000_000] {
        interrupt_others(6 << 8 | TRAMPOLINE as u32); // start up
        wait(patience, started);
    }
    assert!(started(), "there is no second processor");
}

/// What the second processor does once it is there.
pub(crate) fn run_second() -> ! {
    boot::take_interrupts(1);
    take_apic();
    STARTED.store(true, Ordering::Release);
    loop {
        boot::wait_for_interrupt();
    }
}
