//! The way from the loader to Rust, and from a page fault to Rust and back.
//!
//! The loader (PVH, which QEMU implements) enters in 32-bit protected mode without paging. The
//! first 4 GB are identity-mapped by pages of 2 MB, long mode is entered, and then
//! [`main`](super::main). The page-fault entry saves the registers that Rust may change on a stack
//! of its own, since the interrupted code may use the 128 bytes below its stack pointer.

use core::arch::{asm, global_asm};

global_asm!(
    r#"
    .section .note.pvh, "a", @note
    .long 4, 4, 18                      # XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .long start

    .section .boot, "ax"
    .code32
    .global start
start:
    mov esp, offset stack_end
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
    mov cr3, edi
    mov eax, cr4
    or eax, 0x620                       # PAE, OSFXSR, OSXMMEXCPT
    mov cr4, eax
    mov ecx, 0xc0000080
    rdmsr
    or eax, 0x900                       # LME, NXE
    wrmsr
    mov eax, cr0
    and eax, 0xfffffffb
    or eax, 0x80010002                  # PG, WP, MP
    mov cr0, eax
    lgdt [gdt_at]
    push 8
    mov eax, offset long_mode
    push eax
    retf
    .code64
long_mode:
    xor eax, eax
    mov ds, eax
    mov es, eax
    mov ss, eax
    lea rax, [rip + task]               # the base of the task segment, in four pieces
    lea rdx, [rip + gdt]
    mov [rdx + 18], ax
    shr rax, 16
    mov [rdx + 20], al
    mov [rdx + 23], ah
    mov eax, 16
    ltr ax
    lea rsp, [rip + stack_end]
    call {main}
3:  hlt
    jmp 3b

    .global page_fault_entry
page_fault_entry:
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
    call {page_fault}
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

    .global other_entry
other_entry:
    lea rsp, [rip + fault_stack_end]
    call {other}

    .section .data
    .balign 8
gdt:
    .quad 0
    .quad 0x00209a0000000000            # code of 64 bits
    .quad 0x0000890000000067            # the task segment
    .quad 0
gdt_at:
    .word gdt_at - gdt - 1
    .quad gdt
    .balign 16
task:
    .long 0
    .quad 0, 0, 0, 0
    .quad fault_stack_end               # the first of the stacks for interrupts
    .fill 60, 1, 0

    .section .bss
    .balign 4096
    .global boot_tables
boot_tables:
    .skip 6 * 4096
stack:
    .skip 256 * 1024
stack_end:
    .skip 256 * 1024
fault_stack_end:
    "#,
    main = sym super::main,
    page_fault = sym super::page_fault,
    other = sym super::other_fault,
);

// SAFETY: made by the assembly above, under these names; only the processor calls the first two.
unsafe extern "C" {
    fn page_fault_entry();
    fn other_entry();
    static boot_tables: [u64; 512];
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

/// Loads the IDT, with handlers for page faults and for all other exceptions.
pub(crate) fn take_faults() {
    static mut IDT: [[u64; 2]; 32] = [[0; 2]; 32];
    for vector in 0..32 {
        let entry = if vector == 14 { page_fault_entry } else { other_entry };
        let at = entry as *const () as u64;
        let low = at & 0xffff | 8 << 16 | 1 << 32 | 0x8e << 40 | (at >> 16 & 0xffff) << 48;
        // SAFETY: one processor, and no fault before the table is loaded.
        unsafe { (&raw mut IDT).cast::<[u64; 2]>().add(vector).write([low, at >> 32]) };
    }
    let place = (&raw const IDT) as u64;
    let descriptor: [u16; 5] =
        [32 * 16 - 1, place as u16, (place >> 16) as u16, (place >> 32) as u16, (place >> 48) as u16];
    // SAFETY: the table is complete, and is never moved.
    unsafe { asm!("lidt [{}]", in(reg) &descriptor) };
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

/// Writes a byte to the serial port.
pub(crate) fn print_byte(byte: u8) {
    // SAFETY: the first serial port of a PC, or nothing.
    unsafe { asm!("out dx, al", in("dx") 0x3f8_u16, in("al") byte) };
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
