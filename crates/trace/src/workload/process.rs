//! The process around a workload that is a C program: its code, data, stack and heap.
//!
//! The layout is that of a small statically linked program on FreeBSD for the Alpha, the system of
//! Navarro et al., section 6.1: code at 0x1_2000_0000, data in the next 64 KB, the zeroed data
//! after it, the heap of `brk` right behind that or where the workload says, and the stack at the
//! top of the user's addresses. So the heap starts where a program happens to end and not at a
//! superpage's boundary. The sizes are assumed: 64 KB of code, 16 KB of data, 16 KB zeroed, and 16
//! KB of the stack in use.

use super::program::{Out, PAGE};
use crate::{Backing, Event, Growth};
use superpage_pages::{Access, Protection};

/// The first byte of the code; 4 MB divide it.
const CODE: u64 = 0x1_2000_0000;
const CODE_BYTES: u64 = 64 << 10;
/// The first byte of the initialised data: the next 64 KB, as the linkers of the Alpha align
/// segments.
pub(super) const DATA: u64 = CODE + CODE_BYTES;
const DATA_BYTES: u64 = 16 << 10;
pub(super) const ZEROED: u64 = DATA + DATA_BYTES;
const ZEROED_BYTES: u64 = 16 << 10;
/// The least distance of the heap from the start of the code.
pub(super) const LEAST_HEAP: u64 = ZEROED + ZEROED_BYTES - CODE;
/// The end of the stack, and the most it may take.
const STACK_END: u64 = 1 << 41;
const STACK_BYTES: u64 = 8 << 20;
/// The page of the Alpha, in which its `malloc` deals.
pub(super) const MALLOC_PAGE: u64 = 8 << 10;

/// The instructions that start-up spends in each page of code: assumed.
const START_UP: u32 = 256;

/// A process whose heap has begun.
pub(super) struct Process {
    heap: u64,
    heap_bytes: u64,
}

impl Process {
    /// Maps code, data and stack and runs the start-up code, which goes once through all pages of
    /// the code, writes each page of data and the topmost pages of the stack; `heap` is the heap's
    /// distance from the start of the code, at least [`LEAST_HEAP`] and a multiple of 8 KB. `file`
    /// numbers the program. Without `fetches` no instruction is in the stream and the data runs
    /// stand for them.
    pub(super) fn start(out: &mut Out, file: u32, heap: u64, fetches: bool) -> Process {
        let file_pages = (CODE_BYTES + DATA_BYTES) / PAGE;
        let mut map = |start: u64, bytes: u64, protection, growth, offset: Option<u64>| {
            let backing = match offset {
                Some(offset) => Backing::File { file, file_pages, offset: offset / PAGE },
                None => Backing::Anonymous,
            };
            let (start, pages) = (start / PAGE, bytes / PAGE);
            out.event(Event::Map { start, pages, protection, shared: false, backing, growth });
        };
        map(CODE, CODE_BYTES, Protection::READ_EXECUTE, Growth::Fixed, Some(0));
        map(DATA, DATA_BYTES, Protection::READ_WRITE, Growth::Fixed, Some(CODE_BYTES));
        map(ZEROED, ZEROED_BYTES, Protection::READ_WRITE, Growth::Fixed, None);
        map(STACK_END - STACK_BYTES, STACK_BYTES, Protection::READ_WRITE, Growth::Down, None);
        let data = (DATA / PAGE..(ZEROED + ZEROED_BYTES) / PAGE).chain((1..=4).map(|i| STACK_END / PAGE - i));
        let mut data = data.collect::<Vec<_>>().into_iter();
        for code in CODE / PAGE..(CODE + CODE_BYTES) / PAGE {
            if fetches {
                out.fetch_once(code, START_UP);
            }
            if let Some(page) = data.next() {
                out.data(page * PAGE, Access::Write, START_UP / 4, if fetches { 0 } else { START_UP });
            }
        }
        Process { heap: CODE + heap, heap_bytes: 0 }
    }

    /// The page of the code with this number.
    pub(super) fn code(page: u64) -> u64 {
        CODE / PAGE + page
    }

    /// An address in the topmost page of the stack.
    pub(super) fn stack() -> u64 {
        STACK_END - PAGE
    }

    /// Moves the end of the heap up by `bytes`, rounded up to pages of `malloc`, and returns the
    /// address of what was added.
    pub(super) fn grow_heap(&mut self, out: &mut Out, bytes: u64) -> u64 {
        let (start, added) = (self.heap / PAGE, self.heap + self.heap_bytes);
        let first = self.heap_bytes == 0;
        self.heap_bytes += bytes.next_multiple_of(MALLOC_PAGE);
        let pages = self.heap_bytes / PAGE;
        let (protection, backing) = (Protection::READ_WRITE, Backing::Anonymous);
        out.event(if first {
            Event::Map { start, pages, protection, shared: false, backing, growth: Growth::Up }
        } else {
            Event::Grow { start, pages }
        });
        added
    }
}
