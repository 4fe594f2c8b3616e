//! A demonstration kernel on `superpage-vm`: it boots in QEMU, runs programs that check what they
//! read, and prints what the manager did for them, under two policies. Programs are functions that
//! use memory of their own address space, in ring 0. Their faults are the processor's, and so are
//! the accessed and dirty bits that the page daemon uses. The last program of each policy has two
//! threads, on two processors.
#![no_std]
#![no_main]

extern crate alloc;

mod boot;
mod churn;
mod heap;
mod processors;
mod shootdown;
mod tables;

/// What `shootdown.rs` synchronizes by.
mod sync {
    pub(crate) use core::hint::spin_loop;
    pub(crate) use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
}

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering};
use processors::Lock;
use shootdown::{Hardware, PROCESSORS, Running};
use superpage_pages::{Access, Extent, Ladder, Level, Pfn, Vpn};
use superpage_vm::{Backed, Config, FaultError, Filled, Map, Memory, NoContents, Page, SpaceId, Stats, Vm};
use tables::{Machine, Tables};

const PAGE: usize = 4096;
/// The memory of the manager: 32 MB.
const FRAMES: u64 = 8192;
/// The first 8 MB of it hold the kernel's own text and data.
const OWN: u64 = 2048;
/// The swap device is memory too, from here on: 64 MB.
const DISK: u64 = FRAMES * PAGE as u64;
const SLOTS: u64 = 16_384;
/// Where programs have their memory: at 512 GB, the second entry of the root.
const START: Vpn = Vpn(1 << 27);
/// The stride of the words that programs use, in bytes: one word per cache line.
const STEP: u64 = 64;

struct Serial;

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(boot::print_byte);
        Ok(())
    }
}

macro_rules! println {
    ($($what:tt)*) => { let _ = writeln!(Serial, $($what)*); };
}

/// Identity-mapped physical memory.
struct Physical;

fn frame(frame: Pfn) -> *mut [u8; PAGE] {
    (frame.0 as usize * PAGE) as *mut [u8; PAGE]
}

fn slot(from: Backed) -> *mut [u8; PAGE] {
    let Backed::Swap { slot } = from else { panic!("there are no files here") };
    (DISK as usize + slot as usize * PAGE) as *mut [u8; PAGE]
}

/// The tables in it, and the TLBs of the processors.
impl Machine for Running {
    fn read(&self, table: Pfn, index: usize) -> u64 {
        // SAFETY: a frame that the manager gave for page tables; volatile, as the processor sets
        // bits in it.
        unsafe { frame(table).cast::<u64>().add(index).read_volatile() }
    }

    fn write(&mut self, table: Pfn, index: usize, entry: u64) {
        // SAFETY: as above.
        unsafe { frame(table).cast::<u64>().add(index).write_volatile(entry) };
    }

    fn new_root(&mut self, root: Pfn) {
        Machine::write(self, root, 0, boot::kernel_entry());
    }

    fn take(&mut self, table: Pfn, index: usize) -> u64 {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(frame(table).cast::<u64>().add(index)) }.swap(0, Ordering::Relaxed)
    }

    fn invalidate(&mut self, space: SpaceId, stale: &[Vpn]) {
        processors::ALL.shoot_down(self, space, Some(stale));
    }

    fn invalidate_here(&mut self, space: SpaceId, at: Vpn) {
        if self.0[boot::processor()] == Some(space) {
            processors::ALL.hardware.invalidate(Some(&[at]));
        }
    }

    fn invalidate_all(&mut self, space: SpaceId) {
        processors::ALL.shoot_down(self, space, None);
    }
}

impl Memory for Physical {
    fn zero(&mut self, first: Pfn, frames: u64, _: Page) -> Result<(), NoContents> {
        // SAFETY: frames that the manager has just allocated; the same for the two below.
        unsafe { frame(first).cast::<u8>().write_bytes(0, frames as usize * PAGE) };
        Ok(())
    }

    fn copy(&mut self, from: Pfn, to: Pfn, _: Page) {
        // SAFETY: see `zero`.
        unsafe { frame(to).copy_from(frame(from), 1) };
    }

    fn read(&mut self, from: Backed, to: Pfn, _: Page) -> Result<Filled, NoContents> {
        // SAFETY: see `zero`; slots lie beyond the memory of the manager.
        unsafe { frame(to).copy_from(slot(from), 1) };
        Ok(Filled::Now)
    }

    fn write(&mut self, to: Backed, from: Pfn) {
        // SAFETY: see `read`.
        unsafe { slot(to).copy_from(frame(from), 1) };
    }

    fn digest(&mut self, _: Pfn) -> u128 {
        panic!("no policy here uses digests")
    }
}

struct Kernel {
    vm: Vm,
    tables: Tables<Running>,
    /// By processor.
    faults: [u64; PROCESSORS],
}

impl Kernel {
    /// Has this processor run a space, or none.
    fn run(&mut self, space: Option<SpaceId>) {
        self.tables.machine.0[boot::processor()] = space;
        let root = space.and_then(|space| self.tables.root(space));
        boot::load_root(root.map_or_else(boot::first_root, |root| root.0 * PAGE as u64));
    }

    /// The page-fault handler.
    fn fault(&mut self, error: u64, address: u64) -> Result<(), FaultError> {
        let access = match error {
            error if error & 16 > 0 => Access::Execute,
            error if error & 2 > 0 => Access::Write,
            _ => Access::Read,
        };
        self.faults[boot::processor()] += 1;
        let space = self.tables.machine.0[boot::processor()].expect("a program runs");
        let at = space.page(Vpn(address / PAGE as u64));
        while let Err(error) = self.vm.fault(&mut self.tables, &mut Physical, at, access) {
            let full = matches!(error, FaultError::OutOfMemory(_));
            if !full || !self.vm.run_daemon(&mut self.tables, &mut Physical) {
                return Err(error);
            }
        }
        if self.vm.daemon_wanted() {
            self.vm.run_daemon(&mut self.tables, &mut Physical);
        }
        // Its first fault gave the space a root.
        let root = self.tables.root(space).map(|root| root.0 * PAGE as u64);
        if let Some(root) = root.filter(|root| *root != boot::root()) {
            boot::load_root(root);
        }
        Ok(())
    }
}

/// The one lock of the kernel. A program holds no reference into the kernel where it may fault.
static KERNEL: Lock<Option<Kernel>> = Lock::new(None);

/// Calls `call` with the kernel, under its lock; nothing in it may fault.
fn kernel<R>(call: impl FnOnce(&mut Kernel) -> R) -> R {
    KERNEL.with(|kernel| call(kernel.as_mut().expect("it was made")))
}

pub(crate) extern "C" fn page_fault(error: u64, address: u64) {
    if let Err(why) = kernel(|kernel| kernel.fault(error, address)) {
        panic!("a program used {address:#x}: {why}");
    }
}

pub(crate) extern "C" fn other_fault() -> ! {
    panic!("an exception other than a page fault");
}

/// The word that a program writes to an address, the `time`th time.
fn word(address: u64, time: u64) -> u64 {
    (address ^ time << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

/// Accesses some words of each page of a range: writes them, or compares them with what `time`
/// wrote. Returns how many were wrong.
fn program(pages: impl Iterator<Item = u64>, write: bool, time: u64) -> u64 {
    let mut wrong = 0;
    for page in pages {
        let start = (START + page).0 * PAGE as u64;
        for address in (start..start + PAGE as u64).step_by(STEP as usize) {
            let place = address as *mut u64;
            // SAFETY: memory of the program, which page faults populate.
            unsafe {
                if write {
                    place.write_volatile(word(address, time));
                } else {
                    wrong += u64::from(place.read_volatile() != word(address, time));
                }
            }
        }
    }
    wrong
}

fn report(what: &str, wrong: u64) {
    let (stats, faults, tables) =
        kernel(|kernel| (kernel.vm.stats(), kernel.faults.iter().sum::<u64>(), kernel.tables.frames()));
    let Stats { promotions, demotions, mapped, page_ins, page_outs, .. } = stats;
    println!(
        "  {what:<35} {faults:>6} faults  {:>3} promotions {:>3} demotions  {:>5} x 4K {:>2} x 2M  {page_outs:>5} out {page_ins:>5} in  {tables:>3} \
         tables  {wrong} wrong words",
        promotions.iter().sum::<u64>(),
        demotions.iter().sum::<u64>(),
        mapped[0],
        mapped[1],
    );
}

/// Runs the programs under a policy; returns how many words they found wrong.
fn demonstrate(policy: &str, seconds: u64) -> u64 {
    println!("{policy}:");
    let answers = policy.parse().unwrap_or_else(|error| panic!("{error}"));
    let config = Config { ladder: Ladder::X86_64, frames: FRAMES, policy: answers, swap_pages: SLOTS };
    let mut vm = Vm::new(config).unwrap_or_else(|error| panic!("{error}"));
    for start in (0..OWN).step_by(512) {
        vm.wire(Extent { start: Pfn(start), level: Level(1) }).expect("nobody has it yet");
    }
    let parent = vm.create_space();
    KERNEL.with(|slot| *slot = Some(Kernel { vm, tables: Tables::new(Running::default()), faults: [0; PROCESSORS] }));
    kernel(|kernel| kernel.run(Some(parent)));
    let map = |pages| {
        kernel(|kernel| {
            let Kernel { vm, tables, .. } = kernel;
            vm.map(tables, parent, Map::anonymous(START, pages)).expect("a range of the program's");
        });
    };
    let mut all = 0;
    let mut done = |what, wrong| {
        all += wrong;
        report(what, wrong);
    };

    map(4096);
    program(0..2048, true, 1);
    done("8 MB written", 0);
    done("and read", program(0..2048, false, 1));

    let child = kernel(|kernel| kernel.vm.fork(&mut kernel.tables, parent).expect("the space is there"));
    program((0..2048).step_by(3), true, 2);
    let mut wrong = program((0..2048).step_by(3), false, 2) + program((0..2048).filter(|page| page % 3 > 0), false, 1);
    done("forked, and each third page written", wrong);
    kernel(|kernel| kernel.run(Some(child)));
    wrong = program(0..2048, false, 1);
    program(0..2048, true, 3);
    wrong += program(0..2048, false, 3);
    done("its child reads and writes all", wrong);
    kernel(|kernel| {
        kernel.run(Some(parent));
        kernel.vm.exit(&mut kernel.tables, child).expect("the space is there");
    });

    map(12_288);
    program(0..12_288, true, 4);
    done("48 MB written in 24 MB", 0);
    wrong = program((0..12_288).map(|step| step * 5 % 12_288), false, 4);
    done("and read in another order", wrong);

    wrong = churn::on_both(parent, seconds);
    done("40 MB used on two processors", wrong);

    kernel(|kernel| {
        kernel.vm.validate(&kernel.tables).unwrap_or_else(|why| panic!("{why}"));
        kernel.run(None);
        kernel.vm.exit(&mut kernel.tables, parent).expect("the space is there");
        kernel.vm.validate(&kernel.tables).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(kernel.vm.buddy().free_frames(), FRAMES - OWN, "every frame is free again");
    });
    all
}

/// How long the threads of the last program run, unless the command line has another number.
const SECONDS: u64 = 5;

pub(crate) extern "C" fn main(information: u64) -> ! {
    let seconds = boot::argument(information).unwrap_or(SECONDS);
    boot::make_interrupt_table();
    boot::take_interrupts(0);
    processors::start_second();
    boot::allow_interrupts();
    let mut wrong = 0;
    for policy in ["reservation", "thp"] {
        wrong += demonstrate(policy, seconds);
    }
    println!("{wrong} wrong words in all");
    boot::leave(u8::from(wrong > 0));
}

pub(crate) extern "C" fn second() -> ! {
    processors::run_second()
}

#[panic_handler]
fn panic(information: &core::panic::PanicInfo) -> ! {
    println!("{information}");
    boot::leave(2);
}
