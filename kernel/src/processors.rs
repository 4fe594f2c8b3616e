//! The two processors: the start of the second one, the lock between them, and what runs on both.

use crate::boot::{self, SHOOTDOWN};
use crate::shootdown::{self, Hardware, Processors};
use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, Ordering};
use superpage_pages::Vpn;

/// The local interrupt controller of the processor that asks (xAPIC).
const APIC: usize = 0xfee0_0000;
/// The page below 1 MB where the second processor begins.
const TRAMPOLINE: usize = 8;

static STARTED: AtomicBool = AtomicBool::new(false);

/// Processors of x86-64.
pub(crate) struct Real;

pub(crate) static ALL: Processors<Real> = Processors::new(Real);

impl Hardware for Real {
    const SPINS: usize = 200; // some 100 us

    fn here(&self) -> usize {
        boot::processor()
    }

    fn interrupt_others(&self) {
        interrupt_others(SHOOTDOWN as u32);
    }

    fn wait_for_interrupt(&self) {
        boot::wait_for_interrupt();
    }

    fn invalidate(&self, stale: Option<&[Vpn]>) {
        match stale {
            Some(pages) => pages.iter().for_each(|at| boot::invalidate(at.0 << 12)),
            None => boot::load_root(boot::root()),
        }
    }
}

/// What one processor may use at a time (a spin lock). The holder is not interrupted.
pub(crate) struct Lock<T> {
    held: shootdown::Lock,
    value: UnsafeCell<T>,
}

// SAFETY: only the processor that holds `held` has a reference to the value.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Lock<T> {
        Lock { held: shootdown::Lock::new(), value: UnsafeCell::new(value) }
    }

    /// Calls `call` with the value. Nothing in it may take the lock, or fault.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&mut T) -> R) -> R {
        boot::without_interrupts(|| {
            ALL.lock(&self.held);
            // SAFETY: see `Sync`.
            let result = call(unsafe { &mut *self.value.get() });
            ALL.unlock(&self.held);
            result
        })
    }
}

/// The handler of the interrupt.
pub(crate) extern "C" fn interrupted() {
    ALL.interrupted();
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
