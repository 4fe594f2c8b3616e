//! The two processors: the start of the second one, the lock between them, and shootdowns.
//!
//! Only the holder of the kernel's lock shoots down: it writes what to invalidate, sets a bit for
//! each processor that must do so, interrupts them, and waits until all bits are clear. A processor
//! answers in the interrupt or, as it has none then, while it waits for a lock. So the holder never
//! waits for a processor that waits for it.
//!
//! A processor that waits spins for a while and then halts; the one that ends the wait interrupts
//! it. An emulated processor that only spins would take time of its host from the other one.

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

/// What one processor may use at a time (a spin lock). The holder is not interrupted.
pub(crate) struct Lock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: only the processor that set `held` has a reference to the value.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Lock<T> {
        Lock { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Calls `call` with the value. Nothing in it may take the lock, or fault.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&mut T) -> R) -> R {
        boot::without_interrupts(|| {
            wait_until(|| !self.held.load(Ordering::Relaxed) && !self.held.swap(true, Ordering::SeqCst));
            // SAFETY: see `Sync`.
            let result = call(unsafe { &mut *self.value.get() });
            self.held.store(false, Ordering::SeqCst);
            wake();
            result
        })
    }
}

/// The processors that have halted while they wait, a bit for each.
static HALTED: AtomicUsize = AtomicUsize::new(0);
/// How often a processor looks before it halts: some 100 us.
const SPINS: usize = 200;

/// Waits until `done`, which is not called again, and answers meanwhile. Only without interrupts.
fn wait_until(done: impl Fn() -> bool) {
    let bit = 1 << boot::processor();
    loop {
        for _ in 0..SPINS {
            if done() {
                return;
            }
            answer(SPINNING);
            spin_loop();
        }
        // A change after this look finds the bit set, so that its interrupt comes.
        HALTED.fetch_or(bit, Ordering::SeqCst);
        let now = done();
        if !now {
            boot::wait_for_interrupt();
        }
        HALTED.fetch_and(!bit, Ordering::SeqCst);
        if now {
            return;
        }
    }
}

/// Wakes the processors that wait for what has changed.
fn wake() {
    if HALTED.load(Ordering::SeqCst) > 0 {
        interrupt_others(SHOOTDOWN as u32);
    }
}

/// The processors that have not yet done what is requested, a bit for each.
static ASKED: AtomicUsize = AtomicUsize::new(0);
/// The pages to invalidate, the first `STALE` of these; or everything, if that is more than
/// [`MANY`].
static PAGES: [AtomicU64; MANY] = [const { AtomicU64::new(0) }; MANY];
static STALE: AtomicUsize = AtomicUsize::new(0);

/// How many requests were answered, in interrupts and while spinning.
static ANSWERED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
const INTERRUPTED: usize = 0;
const SPINNING: usize = 1;

/// How many requests were answered since the last call, in interrupts and while spinning.
pub(crate) fn answered() -> [u64; 2] {
    [INTERRUPTED, SPINNING].map(|how| ANSWERED[how].swap(0, Ordering::Relaxed))
}

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
    ASKED.store(others, Ordering::SeqCst);
    interrupt_others(SHOOTDOWN as u32);
    wait_until(|| ASKED.load(Ordering::SeqCst) == 0);
}

/// Does what another processor has requested of this one, if anything.
fn answer(how: usize) {
    let bit = 1 << boot::processor();
    if ASKED.load(Ordering::Acquire) & bit == 0 {
        return;
    }
    match PAGES.get(..STALE.load(Ordering::Relaxed)) {
        Some(pages) => pages.iter().for_each(|at| invalidate(Some(&[Vpn(at.load(Ordering::Relaxed))]))),
        None => invalidate(None),
    }
    ANSWERED[how].fetch_add(1, Ordering::Relaxed);
    ASKED.fetch_and(!bit, Ordering::SeqCst);
    wake();
}

/// The handler of the interrupt. A request may have been answered before it comes.
pub(crate) extern "C" fn interrupted() {
    answer(INTERRUPTED);
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

fn wait_at_most(nanoseconds: u64, done: impl Fn() -> bool) {
    let end = boot::nanoseconds() + nanoseconds;
    while !done() && boot::nanoseconds() < end {
        spin_loop();
    }
}

/// Starts the second processor, as Intel's manual has it (volume 3, "MP initialization").
pub(crate) fn start_second() {
    take_apic();
    boot::place_trampoline(TRAMPOLINE);
    let started = || STARTED.load(Ordering::Acquire);
    interrupt_others(5 << 8); // INIT
    wait_at_most(10_000_000, || false);
    for patience in [200_000, 5_000_000_000] {
        interrupt_others(6 << 8 | TRAMPOLINE as u32); // start up
        wait_at_most(patience, started);
    }
    assert!(started(), "there is no second processor");
}

/// What the second processor runs.
static PROGRAM: Lock<Option<fn(usize)>> = Lock::new(None);

/// Runs a program on both processors, with the number of each, until it has ended on both.
pub(crate) fn run_on_both(program: fn(usize)) {
    PROGRAM.with(|slot| *slot = Some(program));
    interrupt_others(SHOOTDOWN as u32); // it asks for nothing, but wakes
    program(0);
    while PROGRAM.with(|slot| slot.is_some()) {
        spin_loop();
    }
}

/// What the second processor does once it is there.
pub(crate) fn run_second() -> ! {
    boot::take_interrupts(1);
    take_apic();
    STARTED.store(true, Ordering::Release);
    loop {
        match PROGRAM.with(|slot| *slot) {
            Some(program) => {
                boot::allow_interrupts();
                program(1);
                boot::forbid_interrupts();
                PROGRAM.with(|slot| *slot = None);
            }
            // A program that came after this look has its interrupt pending.
            None => boot::wait_for_interrupt(),
        }
    }
}
