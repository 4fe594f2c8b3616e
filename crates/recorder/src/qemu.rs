//! The functions of QEMU's plugin interface that are used, and symbols that its executable exports
//! beside them.
//!
//! All are looked up when the plugin is loaded: so this crate links without QEMU, and what an
//! emulator lacks is reported.

use std::ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void};

/// The version of the interface that this plugin is written for, read by QEMU.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is QEMU's")]
static qemu_plugin_version: c_int = 1;

/// The information that QEMU passes to a plugin.
#[repr(C)]
pub(crate) struct Info {
    /// The emulated architecture.
    pub(crate) target_name: *const c_char,
    /// The oldest and the newest interface understood.
    pub(crate) version: [c_int; 2],
    /// Whether a whole machine is emulated.
    pub(crate) system_emulation: bool,
}

/// No access to registers by a callback.
const NO_REGISTERS: c_int = 0;
/// Loads and stores.
const READ_WRITE: c_int = 3;

/// A translation block, an instruction: QEMU's own.
pub(crate) type Opaque = *mut c_void;
/// Called with the number of the virtual CPU and the registered word.
pub(crate) type Executed = extern "C" fn(u32, *mut c_void);
/// Called with the number of the virtual CPU, the access's description, its address and the
/// registered word.
pub(crate) type Accessed = extern "C" fn(u32, u32, u64, *mut c_void);
/// Called for each new translation block.
pub(crate) type Translated = extern "C" fn(u64, Opaque);
/// Called before a system call with its number and arguments.
pub(crate) type Syscall = extern "C" fn(u64, u32, i64, u64, u64, u64, u64, u64, u64, u64, u64);
/// Called after a system call with its number and result.
pub(crate) type SyscallReturn = extern "C" fn(u64, u32, i64, i64);
/// Called for each stretch of guest memory with equal rights.
pub(crate) type Region = extern "C" fn(*mut c_void, u64, u64, c_ulong) -> c_int;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

macro_rules! interface {
    ($($(#[$doc:meta])* $field:ident: $name:literal as $kind:ty,)*) => {
        /// QEMU's functions.
        #[derive(Clone, Copy)]
        pub(crate) struct Api {
            $($(#[$doc])* pub(crate) $field: $kind,)*
            /// Where guest memory begins in QEMU's own.
            pub(crate) guest_base: u64,
            /// Lists guest memory.
            pub(crate) walk_regions: Option<unsafe extern "C" fn(*mut c_void, Region) -> c_int>,
            /// Returns (with 0) or moves the end of the heap.
            pub(crate) break_at: Option<unsafe extern "C" fn(u64) -> c_long>,
            /// Moves the start of the heap.
            pub(crate) set_break: Option<unsafe extern "C" fn(u64)>,
        }

        impl Api {
            /// Finds the functions in the running process; `Err` names the first that is missing.
            pub(crate) fn find() -> Result<Api, &'static CStr> {
                // SAFETY: the types are those of QEMU's declarations (version 1 of the interface,
                // QEMU 7.2).
                unsafe {
                    Ok(Api {
                        $($field: symbol::<$kind>($name).ok_or($name)?,)*
                        guest_base: symbol::<*const u64>(c"guest_base").map_or(0, |base| base.read()),
                        walk_regions: symbol(c"walk_memory_regions"),
                        break_at: symbol(c"do_brk"),
                        set_break: symbol(c"target_set_brk"),
                    })
                }
            }
        }
    };
}

interface! {
    /// Registers the callback for new translation blocks.
    on_translation: c"qemu_plugin_register_vcpu_tb_trans_cb" as unsafe extern "C" fn(u64, Translated),
    /// Registers a callback for each execution of a block.
    on_block: c"qemu_plugin_register_vcpu_tb_exec_cb" as unsafe extern "C" fn(Opaque, Executed, c_int, *mut c_void),
    /// Registers a callback for each execution of an instruction.
    on_instruction: c"qemu_plugin_register_vcpu_insn_exec_cb"
        as unsafe extern "C" fn(Opaque, Executed, c_int, *mut c_void),
    /// Registers a callback for each access of an instruction.
    on_access: c"qemu_plugin_register_vcpu_mem_cb"
        as unsafe extern "C" fn(Opaque, Accessed, c_int, c_int, *mut c_void),
    /// Registers the callback before system calls.
    on_syscall: c"qemu_plugin_register_vcpu_syscall_cb" as unsafe extern "C" fn(u64, Syscall),
    /// Registers the callback after system calls.
    on_syscall_return: c"qemu_plugin_register_vcpu_syscall_ret_cb" as unsafe extern "C" fn(u64, SyscallReturn),
    /// Registers the callback for QEMU's own end.
    on_exit: c"qemu_plugin_register_atexit_cb"
        as unsafe extern "C" fn(u64, extern "C" fn(u64, *mut c_void), *mut c_void),
    /// The number of instructions in a block.
    block_length: c"qemu_plugin_tb_n_insns" as unsafe extern "C" fn(Opaque) -> usize,
    /// An instruction of a block.
    instruction: c"qemu_plugin_tb_get_insn" as unsafe extern "C" fn(Opaque, usize) -> Opaque,
    /// The address of an instruction.
    address: c"qemu_plugin_insn_vaddr" as unsafe extern "C" fn(Opaque) -> u64,
    /// The length of an instruction in bytes.
    size: c"qemu_plugin_insn_size" as unsafe extern "C" fn(Opaque) -> usize,
    /// Whether a description of an access is that of a store.
    is_store: c"qemu_plugin_mem_is_store" as unsafe extern "C" fn(u32) -> bool,
    /// The logarithm of the size of an access.
    size_shift: c"qemu_plugin_mem_size_shift" as unsafe extern "C" fn(u32) -> u32,
}

/// # Safety
/// `T` must be a pointer type that fits the symbol.
unsafe fn symbol<T>(name: &CStr) -> Option<T> {
    const { assert!(size_of::<T>() == size_of::<*mut c_void>()) };
    // SAFETY: the name is a string; null stands for the whole process.
    let found = unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) };
    // SAFETY: same size by the assertion, fitting by the caller's word.
    (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
}

impl Api {
    /// Registers `callback` to be called with `word` before each execution of a block.
    pub(crate) fn watch_block(&self, block: Opaque, callback: Executed, word: u64) {
        // SAFETY: called with a block in its translation callback.
        unsafe { (self.on_block)(block, callback, NO_REGISTERS, word as *mut c_void) };
    }

    /// Registers `callback` to be called with `word` before each execution of an instruction.
    pub(crate) fn watch_instruction(&self, instruction: Opaque, callback: Executed, word: u64) {
        // SAFETY: called with an instruction of a block in its translation callback.
        unsafe { (self.on_instruction)(instruction, callback, NO_REGISTERS, word as *mut c_void) };
    }

    /// Registers `callback` to be called with `word` for each access of an instruction.
    pub(crate) fn watch_accesses(&self, instruction: Opaque, callback: Accessed, word: u64) {
        // SAFETY: called with an instruction of a block in its translation callback.
        unsafe { (self.on_access)(instruction, callback, NO_REGISTERS, READ_WRITE, word as *mut c_void) };
    }
}
