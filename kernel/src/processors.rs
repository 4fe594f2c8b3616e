//! The two processors: the start of the second one, and the lock between them.

use crate::boot;
use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

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
                spin_loop();
            }
            // SAFETY: see `Sync`.
            let result = call(unsafe { &mut *self.value.get() });
            self.serving.store(ticket + 1, Ordering::Release);
            result
        })
    }
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
