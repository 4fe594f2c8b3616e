//! The way from the loader to Rust, and from a page fault or an interrupt to Rust and back.
//!
//! The loader (PVH, which QEMU implements) enters in 32-bit protected mode without paging. The
//! first 4 GB are identity-mapped by pages of 2 MB, long mode is entered, and then
//! [`main`](super::main). The second processor begins in real mode, at the copy of `trampoline`
//! below 1 MB, enters long mode at once, and then [`second`](super::second). Interrupts save the
//! registers that Rust may change, on a separate stack of each processor, since the interrupted
//! code may use the 128 bytes below its stack pointer.

use crate::shootdown::PROCESSORS;
use core::arch::{asm, global_asm};

/// The vector by which a processor calls the others.
pub(crate) const SHOOTDOWN: usize = 32;
/// The bytes of a stack. Each processor has one for programs, one for faults, and one for calls by
/// other processors, which may interrupt the handler of a fault.
const STACK: usize = 128 << 10;

global_asm!(
    r#"
    .section .note.pvh, "a", @note
    .long 4, 4, 18                      # XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .long start

    .macro enter_long_mode                 # from real or protected mode, with the tables for it
    mov edi, offset boot_tables
    mov cr3, edi
    mov eax, cr4
    or eax, 0x620                       # PAE, OSFXSR, OSXMMEXCPT
    mov cr4, eax
    mov ecx, 0xc0000080
    rdmsr
    or eax, 0x900                       # LME, NXE
    wrmsr
    mov eax, cr0
    and eax, 0x9ffffffb                 # not CD, NW, EM
    or eax, 0x80010003                  # PG, WP, MP, PE
    mov cr0, eax
    .endm

    .section .boot, "ax"
    .code32
    .global start
start:
    mov esp, offset stacks + {stack}
    mov edi, offset boot_tables            # the root, one table of the third level, four of the second
    lea eax, [edi + 0x1003]
    mov [edi], eax
    lea eax, [edi + 0x2003]
    mov ecx, 4
    lea edx, [edi + 0x1000]
1:  mov [edx], eax
    add eax, 0x1000
    add edx, 8
    loop 1b
    lea edx, [edi + 0x2000]
    mov eax, 0x83                       # present, writable, large
    mov ecx, 2048
2:  mov [edx], eax
    add eax, 0x200000
    add edx, 8
    loop 2b
    enter_long_mode
    lgdt [gdt_at]
    push 8
    mov eax, offset first_start
    push eax
    retf

    .code16
    .global trampoline, trampoline_end
    .set gdt_offset, gdt_copy - trampoline
trampoline:
    cli
    lgdt cs:[gdt_offset]
    enter_long_mode
    .byte 0x66, 0xea                    # a far jump of 32 bits
    .long second_start
    .word 8
gdt_copy:
    .word gdt_at - gdt - 1
    .long gdt
trampoline_end:

    .code64
first_start:
    xor eax, eax
    mov ds, eax
    mov es, eax
    mov ss, eax
    mov edi, ebx                        # the loader's information
    lea rsp, [rip + stacks + {stack}]
    call {main}
second_start:
    lea rsp, [rip + stacks + 4 * {stack}]
    call {second}

    .macro interrupt function              # after the error code is pushed
    push rax
    push rcx
    push rdx
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    push rbp
    mov rbp, rsp
    mov rdi, [rsp + 80]                 # the error code
    mov rsi, cr2
    sub rsp, 512
    and rsp, -16
    fxsave64 [rsp]
    cld
    call \function
    fxrstor64 [rsp]
    mov rsp, rbp
    pop rbp
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rax
    add rsp, 8
    iretq
    .endm

    .global page_fault_entry, shootdown_entry, other_entry
page_fault_entry:
    interrupt {page_fault}
shootdown_entry:
    push 0
    interrupt {shootdown}
other_entry:
    and rsp, -16
    call {other}

    .section .data
    .balign 8
    .global gdt
gdt:
    .quad 0
    .quad 0x00209a0000000000            # code of 64 bits
    .fill 2 * {processors}, 8, 0        # the task segments
gdt_at:
    .word gdt_at - gdt - 1
    .quad gdt

    .section .bss
    .balign 4096
    .global boot_tables, stacks
boot_tables:
    .skip 6 * 4096
stacks:
    .skip 3 * {processors} * {stack}
    "#,
    stack = const STACK,
    processors = const PROCESSORS,
    main = sym super::main,
    second = sym super::second,
    page_fault = sym super::page_fault,
    shootdown = sym crate::processors::interrupted,
    other = sym super::other_fault,
);

// SAFETY: made by the assembly above, under these names; only processors call the functions.
unsafe extern "C" {
    fn page_fault_entry();
    fn shootdown_entry();
    fn other_entry();
    static boot_tables: [u64; 512];
    static mut gdt: [[u64; 2]; 1 + PROCESSORS];
    static stacks: [u8; 3 * PROCESSORS * STACK];
    static trampoline: u8;
    static trampoline_end: u8;
}

/// The first entry in the root of each space: the kernel's own memory.
pub(crate) fn kernel_entry() -> u64 {
    // SAFETY: made before `main`, and nobody writes it.
    unsafe { (&raw const boot_tables).cast::<u64>().read() }
}

/// The root with which the kernel booted, where no program has memory.
pub(crate) fn first_root() -> u64 {
    (&raw const boot_tables) as u64
}

static mut IDT: [[u64; 2]; 256] = [[0; 2]; 256];

/// Fills the interrupt table, and masks the interrupts of devices.
pub(crate) fn make_interrupt_table() {
    for vector in 0..256 {
        let entry = match vector {
            14 => page_fault_entry,
            SHOOTDOWN => shootdown_entry,
            _ => other_entry,
        };
        let at = entry as *const () as u64;
        let stack = if vector == SHOOTDOWN { 2 } else { 1 };
        let low = at & 0xffff | 8 << 16 | stack << 32 | 0x8e << 40 | (at >> 16 & 0xffff) << 48;
        // SAFETY: called before any processor has loaded the table.
        unsafe { (&raw mut IDT).cast::<[u64; 2]>().add(vector).write([low, at >> 32]) };
    }
    write_port(0x21, 0xff);
    write_port(0xa1, 0xff);
}

/// Loads the interrupt table, and a task segment that holds the processor's stacks for it.
pub(crate) fn take_interrupts(processor: usize) {
    static mut TASKS: [[u32; 26]; PROCESSORS] = [[0; 26]; PROCESSORS];
    let stack = (&raw const stacks) as usize + (3 * processor + 2) * STACK; // below 4 GB
    let place = (&raw const IDT) as u64;
    let table: [u16; 5] =
        [256 * 16 - 1, place as u16, (place >> 16) as u16, (place >> 32) as u16, (place >> 48) as u16];
    // SAFETY: each processor writes what is its own, once, before it uses it. The interrupt table
    // is complete and is never moved.
    unsafe {
        let task = (&raw mut TASKS).cast::<[u32; 26]>().add(processor);
        (*task)[9] = stack as u32;
        (*task)[11] = (stack + STACK) as u32;
        let at = task as u64;
        let low = 0x67 | (at & 0xff_ffff) << 16 | 0x89 << 40 | (at >> 24 & 0xff) << 56;
        (&raw mut gdt).cast::<[u64; 2]>().add(1 + processor).write([low, at >> 32]);
        asm!("ltr {0:x}", "lidt [{1}]", in(reg) 16 * (1 + processor), in(reg) &table);
    }
}

/// The number of the processor that asks: that of its task segment.
pub(crate) fn processor() -> usize {
    let segment: usize;
    // SAFETY: reads a register.
    unsafe { asm!("str {}", out(reg) segment, options(nomem, nostack, preserves_flags)) };
    segment / 16 - 1
}

/// Copies the trampoline to a page below 1 MB.
pub(crate) fn place_trampoline(page: usize) {
    let (start, end) = (&raw const trampoline, &raw const trampoline_end);
    // SAFETY: the loader's memory, which nobody uses any more; below 1 MB all is mapped.
    unsafe { ((page * 4096) as *mut u8).copy_from_nonoverlapping(start, end as usize - start as usize) };
}

/// Calls `call` without interrupts.
pub(crate) fn without_interrupts<R>(call: impl FnOnce() -> R) -> R {
    let flags: u64;
    // SAFETY: reads a register.
    unsafe { asm!("pushfq", "pop {}", out(reg) flags) };
    forbid_interrupts();
    let result = call();
    if flags & 1 << 9 > 0 {
        allow_interrupts();
    }
    result
}

/// Allows interrupts.
pub(crate) fn allow_interrupts() {
    // SAFETY: handlers restore what they change.
    unsafe { asm!("sti") };
}

/// Forbids interrupts.
pub(crate) fn forbid_interrupts() {
    // SAFETY: see `allow_interrupts`.
    unsafe { asm!("cli") };
}

/// Allows interrupts until one has come.
pub(crate) fn wait_for_interrupt() {
    // SAFETY: see `allow_interrupts`.
    unsafe { asm!("sti", "hlt", "cli") };
}

/// The first number of the kernel's command line (PVH).
pub(crate) fn argument(information: u64) -> Option<u64> {
    // SAFETY: what the loader hands over, below 4 GB and not yet overwritten: the address of the
    // command line, or none, and bytes that end with zero.
    unsafe {
        let line = ((information + 24) as *const u64).read() as *const u8;
        let bytes = (0..if line.is_null() { 0 } else { 4096 }).map(|place| line.add(place).read());
        let digits = bytes.skip_while(u8::is_ascii_whitespace).take_while(u8::is_ascii_digit);
        digits.fold(None, |number, digit| Some(number.unwrap_or(0) * 10 + u64::from(digit - b'0')))
    }
}

/// Reads a register of a device, 32 bits.
pub(crate) fn read_device(address: usize) -> u32 {
    // SAFETY: callers name registers of devices that each PC has at this address.
    unsafe { (address as *const u32).read_volatile() }
}

/// Writes a register of a device, 32 bits.
pub(crate) fn write_device(address: usize, value: u32) {
    // SAFETY: as above; these registers change no memory.
    unsafe { (address as *mut u32).write_volatile(value) };
}

/// Nanoseconds since the start of the timer, which this starts (HPET).
pub(crate) fn nanoseconds() -> u64 {
    const HPET: usize = 0xfed0_0000;
    write_device(HPET + 0x10, 1);
    let period = u64::from(read_device(HPET + 4)); // in femtoseconds
    loop {
        let high = read_device(HPET + 0xf4);
        let low = read_device(HPET + 0xf0);
        if high == read_device(HPET + 0xf4) {
            return (u64::from(high) << 32 | u64::from(low)) * (period / 1000) / 1000;
        }
    }
}

/// Switches to another address space.
pub(crate) fn load_root(root: u64) {
    // SAFETY: the kernel's own memory is the same in every root.
    unsafe { asm!("mov cr3, {}", in(reg) root) };
}

pub(crate) fn root() -> u64 {
    let root: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr3", out(reg) root) };
    root
}

/// Invalidates the TLB's entries for an address.
pub(crate) fn invalidate(address: u64) {
    // SAFETY: changes no memory.
    unsafe { asm!("invlpg [{}]", in(reg) address) };
}

fn write_port(port: u16, byte: u8) {
    // SAFETY: callers name ports of devices that each PC has, or nothing.
    unsafe { asm!("out dx, al", in("dx") port, in("al") byte) };
}

/// Writes a byte to the serial port.
pub(crate) fn print_byte(byte: u8) {
    write_port(0x3f8, byte);
}

/// Exits QEMU with twice this status plus 1 (through its device `isa-debug-exit`).
pub(crate) fn leave(status: u8) -> ! {
    loop {
        // SAFETY: as above; does not return where the device is.
        unsafe { asm!("out dx, al", "hlt", in("dx") 0xf4_u16, in("al") status) };
    }
}

/// The memory functions that the compiler calls by these names.
mod bytes {
    use core::arch::asm;

    // SAFETY of all: they do what C specifies for these names, which nothing else here defines;
    // callers keep to C's rules.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
        // SAFETY: by the caller's word.
        unsafe { asm!("rep movsb", inout("rdi") to => _, inout("rsi") from => _, inout("rcx") bytes => _) };
        to
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
        if (to as usize).wrapping_sub(from as usize) >= bytes {
            // SAFETY: by the caller's word; what is copied forward is read before it is
            // overwritten.
            return unsafe { memcpy(to, from, bytes) };
        }
        // SAFETY: by the caller's word, from the end.
        unsafe {
            let (to, from) = (to.add(bytes).wrapping_sub(1), from.add(bytes).wrapping_sub(1));
            asm!("std", "rep movsb", "cld", inout("rdi") to => _, inout("rsi") from => _, inout("rcx") bytes => _);
        }
        to
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memset(to: *mut u8, byte: i32, bytes: usize) -> *mut u8 {
        // SAFETY: by the caller's word.
        unsafe { asm!("rep stosb", inout("rdi") to => _, in("al") byte as u8, inout("rcx") bytes => _) };
        to
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, bytes: usize) -> i32 {
        for place in 0..bytes {
            // SAFETY: by the caller's word.
            let (one, other) = unsafe { (one.add(place).read_volatile(), other.add(place).read_volatile()) };
            if one != other {
                return i32::from(one) - i32::from(other);
            }
        }
        0
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, bytes: usize) -> i32 {
        // SAFETY: by the caller's word.
        unsafe { memcmp(one, other, bytes) }
    }

    /// The libraries of this target can unwind; nothing here does.
    #[unsafe(no_mangle)]
    extern "C" fn rust_eh_personality() {}

    #[unsafe(no_mangle)]
    extern "C" fn _Unwind_Resume() {}
}
