//! The kernel's heap: free lists by size, powers of two, from one arena that is never freed.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::null_mut;

const BYTES: usize = 5 << 20;

#[repr(align(4096))]
struct Arena(UnsafeCell<[u8; BYTES]>);

struct Heap {
    /// By the logarithm of the size: the list of freed blocks, each of which begins with a pointer
    /// to the next.
    free: UnsafeCell<[*mut u8; 32]>,
    used: UnsafeCell<usize>,
}

// SAFETY: a processor allocates only while it holds the kernel's lock, or while no other processor
// runs; and its fault handler only where the program that it interrupts does not.
unsafe impl Sync for Arena {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

static ARENA: Arena = Arena(UnsafeCell::new([0; BYTES]));

#[global_allocator]
static HEAP: Heap = Heap { free: UnsafeCell::new([null_mut(); 32]), used: UnsafeCell::new(0) };

fn class(layout: Layout) -> usize {
    layout.size().max(layout.align()).max(16).next_power_of_two().trailing_zeros() as usize
}

// SAFETY: blocks are disjoint, of the requested size or more, and aligned to their size up to a
// page.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let class = class(layout);
        // SAFETY: one user at a time, see above; freed blocks hold the next one.
        unsafe {
            let first = &mut (*self.free.get())[class];
            if !first.is_null() {
                return core::mem::replace(first, first.cast::<*mut u8>().read());
            }
            let used = &mut *self.used.get();
            let start = used.next_multiple_of(1 << class.min(12));
            if start + (1 << class) > BYTES {
                return null_mut();
            }
            *used = start + (1 << class);
            ARENA.0.get().cast::<u8>().add(start)
        }
    }

    // SAFETY: callers pass what `alloc` returned, with its layout.
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above; the block is its caller's and large enough for a pointer.
        unsafe {
            let first = &mut (*self.free.get())[class(layout)];
            block.cast::<*mut u8>().write(*first);
            *first = block;
        }
    }
}
