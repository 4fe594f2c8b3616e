//! The processes of LmBench: small dynamically linked programs, as Linux and the dynamic linker of
//! glibc 2 start them.
//!
//! All programs have the same layout, so that a call is the same code in each. The parent
//! documentation says which sizes are assumed.

use super::super::file;
use super::super::files::data_file;
use super::super::program::{Out, PAGE};
use crate::{Backing, Event, Growth, ProcessId};
use superpage_pages::{Access, Protection};

/// What a linker leaves between the text and the data of an object.
const GAP: u64 = 64 << 10;
const STACK_END: u64 = 0x8000_0000;
const STACK_BYTES: u64 = 8 << 20;
/// Where the kernel looks for room for a mapping first.
const MAPPED: u64 = 0x3000_0000;
/// Pages of the dynamic linker's list of libraries: assumed.
const CACHE_PAGES: u64 = 4;
const RELOCATIONS: u64 = 512;
/// About how many runs of pages a start gives.
pub(super) const START_RUNS: u64 = 5 * RELOCATIONS;

/// A program or a library: its file, where it is mapped, and the pages of its parts.
#[derive(Clone, Copy)]
pub(super) struct Object {
    file: u32,
    at: u64,
    text: u64,
    data: u64,
    zeroed: u64,
}

impl Object {
    /// A program of the suite: that of a workload.
    pub(super) fn program(workload: &str) -> Object {
        Object { file: file(workload), at: PROGRAM, text: 8, data: 1, zeroed: 1 }
    }

    /// The program that is started: it says hello.
    pub(super) fn hello() -> Object {
        Object { file: data_file("start", 3), at: PROGRAM, text: 1, data: 1, zeroed: 1 }
    }

    fn linker() -> Object {
        Object { file: data_file("start", 0), at: MAPPED, text: 22, data: 2, zeroed: 0 }
    }

    /// The C library, behind the dynamic linker.
    fn library() -> Object {
        let at = Object::linker().end();
        Object { file: data_file("start", 1), at, text: 86, data: 4, zeroed: 4 }
    }

    fn data_at(self) -> u64 {
        self.at + self.text * PAGE + GAP
    }

    fn zeroed_at(self) -> u64 {
        self.data_at() + self.data * PAGE
    }

    /// The first byte behind it.
    pub(super) fn end(self) -> u64 {
        self.zeroed_at() + self.zeroed * PAGE
    }

    /// Pages of its file.
    fn file_pages(self) -> u64 {
        self.text + self.data
    }

    fn of_file(self, start: u64, pages: u64, protection: Protection, offset: u64) -> Event {
        let backing = Backing::File { file: self.file, file_pages: self.file_pages(), offset };
        Event::Map { start: start / PAGE, pages, protection, shared: false, backing, growth: Growth::Fixed }
    }

    fn map_text(self, out: &mut Out) {
        out.event(self.of_file(self.at, self.text, Protection::READ_EXECUTE, 0));
    }

    fn map_data(self, out: &mut Out) {
        out.event(self.of_file(self.data_at(), self.data, Protection::READ_WRITE, self.text));
        if self.zeroed > 0 {
            out.map_anonymous(self.zeroed_at(), self.zeroed * PAGE);
        }
    }
}

const PROGRAM: u64 = 0x0180_0000;

/// The stubs of the C library, by their pages in its text from the first of them on.
#[derive(Clone, Copy)]
pub(super) enum Stub {
    Getppid,
    Read,
    Write,
    Map,
    Fork,
    Wait,
    Exec,
    /// `open`, `close`, `pipe`, `lseek`.
    Files,
}

impl Stub {
    fn at(self) -> u64 {
        const FIRST: u64 = 60;
        Object::library().at + (FIRST + self as u64) * PAGE
    }
}

/// An address in the topmost page of the stack, where small buffers are.
pub(super) fn stack() -> u64 {
    STACK_END - 1024
}

/// Where the kernel maps a file: behind the libraries.
pub(super) fn mapped_file() -> u64 {
    Object::library().end()
}

/// Adds accesses to `words` words of 4 bytes from an address on, without instructions.
pub(super) fn words(out: &mut Out, address: u64, access: Access, words: u64) {
    let (mut at, end) = (address, address + 4 * words);
    while at < end {
        let bytes = (out.unit() - at % out.unit()).min(end - at);
        out.data(at, access, (bytes / 4) as u32, 0);
        at += bytes;
    }
}

/// Goes through a range word by word with 2 instructions for each, unrolled to 128 words: a sum, or
/// zeroing. The code is in this page of the program.
pub(super) fn pass(out: &mut Out, page: u64, start: u64, bytes: u64, access: Access) {
    const PIECE: u64 = 64;
    const UNROLLED: u64 = 512;
    for at in (0..bytes).step_by(PIECE as usize) {
        let count = PIECE.min(bytes - at).div_ceil(4);
        out.code(PROGRAM + page * PAGE + at % UNROLLED * 2, 2 * count as u32);
        words(out, start + at, access, count);
    }
}

/// Copies words from one place to another, 64 bytes at a time, with 2 instructions for each,
/// unrolled as in [`pass`].
pub(super) fn copy(out: &mut Out, page: u64, from: u64, to: u64, bytes: u64) {
    const PIECE: u64 = 64;
    for at in (0..bytes).step_by(PIECE as usize) {
        let count = PIECE.min(bytes - at).div_ceil(4);
        out.code(PROGRAM + page * PAGE + at % (4 * PIECE) * 2, 2 * count as u32);
        words(out, from + at, Access::Read, count);
        words(out, to + at, Access::Write, count);
    }
}

/// Runs straight code of the program, from the start of a page of its text on, which uses its
/// stack: a word for 8 instructions.
pub(super) fn work(out: &mut Out, page: u64, instructions: u32) {
    out.code(PROGRAM + page * PAGE, instructions);
    words(out, stack() - 256, Access::Write, u64::from(instructions.div_ceil(8)).min(64));
}

/// The way into the kernel: through the program's table of procedures to the stub.
pub(super) fn enter(out: &mut Out, stub: Stub) {
    out.code(PROGRAM + PAGE - 64, 4);
    out.code(stub.at(), 4);
}

/// The way back to the program.
pub(super) fn leave(out: &mut Out, stub: Stub) {
    out.code(stub.at() + 16, 4);
}

/// A system call that does what `event` says.
pub(super) fn system(out: &mut Out, stub: Stub, event: Event) {
    enter(out, stub);
    out.event(event);
    leave(out, stub);
}

/// The event of a call that copies `bytes` from or to the buffer at an address.
pub(super) fn call(path: &str, at: u64, bytes: u64) -> Event {
    Event::Call { path: path.into(), at, bytes }
}

/// A call that copies nothing.
pub(super) fn null() -> Event {
    call("null", 0, 0)
}

/// Another process runs.
pub(super) fn switch(out: &mut Out, process: u32) {
    out.event(Event::Switch { process: ProcessId(process), thread: process });
}

/// The current process forks; it goes on, and writes its stack.
pub(super) fn fork(out: &mut Out, child: u32) {
    system(out, Stub::Fork, Event::Fork { child: ProcessId(child) });
    work(out, 1, 32);
}

/// A process that was forked runs for the first time.
pub(super) fn begin_child(out: &mut Out, child: u32) {
    switch(out, child);
    leave(out, Stub::Fork);
    work(out, 2, 32);
}

/// The current process reads from an empty pipe and waits; another goes on in a read where it
/// waited before, which copies `bytes` to its stack.
pub(super) fn wait_for(out: &mut Out, process: u32, bytes: u64) {
    enter(out, Stub::Read);
    switch(out, process);
    out.event(call("pipe-read", stack(), bytes));
    leave(out, Stub::Read);
}

/// The current process, which is new or has executed the program, starts: the kernel maps the
/// program, the dynamic linker and the stack; the dynamic linker finds the C library, maps and
/// relocates it; both initialise themselves. Returns where the heap begins.
pub(super) fn start(out: &mut Out, program: Object) -> u64 {
    let linker = Object::linker();
    for object in [program, linker] {
        object.map_text(out);
        object.map_data(out);
    }
    out.event(Event::Map {
        start: (STACK_END - STACK_BYTES) / PAGE,
        pages: STACK_BYTES / PAGE,
        protection: Protection::READ_WRITE,
        shared: false,
        backing: Backing::Anonymous,
        growth: Growth::Down,
    });
    // The kernel has put the arguments there.
    words(out, STACK_END - 256, Access::Write, 64);
    // The dynamic linker relocates itself.
    for page in 0..linker.data {
        out.code(linker.at + page * PAGE, 1024);
        words(out, linker.data_at() + page * PAGE, Access::Write, 256);
    }
    find_library(out);
    relocate(out);
    for page in 0..12 {
        out.code(Object::library().at + (20 + 2 * page) * PAGE, 256);
        words(out, Object::library().zeroed_at() + page % 4 * PAGE, Access::Write, 16);
    }
    work(out, 0, 256);
    words(out, program.data_at(), Access::Write, 64);
    words(out, program.zeroed_at(), Access::Write, 64);
    program.end()
}

/// The dynamic linker maps its list of libraries, reads in it, and maps the C library: all of it at
/// once, then its data over that; what lies between is made inaccessible.
fn find_library(out: &mut Out) {
    let (linker, library) = (Object::linker(), Object::library());
    // The first room that is large enough: between the text of the linker and its data.
    let (file, at) = (data_file("start", 2), linker.at + linker.text * PAGE);
    let code = |out: &mut Out, page: u64| out.code(linker.at + page * PAGE, 128);
    code(out, 2);
    out.event(Event::Open { file, file_pages: CACHE_PAGES });
    code(out, 2);
    out.event(null()); // fstat
    code(out, 2);
    let list = Object { file, at, text: CACHE_PAGES, data: 0, zeroed: 0 };
    out.event(list.of_file(at, CACHE_PAGES, Protection::READ, 0));
    for page in 0..CACHE_PAGES {
        code(out, 3);
        words(out, at + page * PAGE, Access::Read, 64);
    }
    out.event(Event::Unmap { start: at / PAGE, pages: CACHE_PAGES });
    out.event(Event::Close { file });
    code(out, 4);
    out.event(Event::Open { file: library.file, file_pages: library.file_pages() });
    code(out, 4);
    out.event(Event::Read { file: library.file, start: 0, pages: 1 });
    out.event(call("read", stack() - 512, 512));
    code(out, 5);
    out.event(library.of_file(library.at, (library.end() - library.at) / PAGE, Protection::READ_EXECUTE, 0));
    code(out, 5);
    let (start, pages) = (library.at / PAGE + library.text, GAP / PAGE);
    out.event(Event::Protect { start, pages, protection: Protection::NONE });
    code(out, 5);
    library.map_data(out);
    out.event(Event::Close { file: library.file });
}

/// Relocates the data of the C library: for each word an entry of the table, the symbol's hash, the
/// symbol and its name, all in the first pages of the text.
fn relocate(out: &mut Out) {
    let (linker, library) = (Object::linker(), Object::library());
    for number in 0..RELOCATIONS {
        let symbol = number * 61 % 1024;
        out.code(linker.at + 6 * PAGE, 24);
        words(out, library.at + 2 * PAGE + number * 12, Access::Read, 3);
        words(out, library.at + PAGE + symbol * 4, Access::Read, 1);
        words(out, library.at + 4 * PAGE + symbol * 16, Access::Read, 4);
        words(out, library.at + 8 * PAGE + symbol * 16, Access::Read, 4);
        words(out, library.data_at() + number * (library.data * PAGE / RELOCATIONS), Access::Write, 1);
    }
}

/// Reads the files of a start, so that all their pages are in memory: a page of data that is
/// written before anybody reads it would be read from the disk at each start. They stay open, so
/// that no kernel drops them.
pub(super) fn read_files(out: &mut Out) {
    let list = Object { file: data_file("start", 2), at: 0, text: CACHE_PAGES, data: 0, zeroed: 0 };
    for object in [Object::linker(), Object::library(), Object::hello(), list] {
        let (file, pages) = (object.file, object.file_pages());
        out.event(Event::Open { file, file_pages: pages });
        out.event(Event::Read { file, start: 0, pages });
    }
}

/// The current process runs what the C library does at an end, and exits.
pub(super) fn exit(out: &mut Out) {
    for page in 0..4 {
        out.code(Object::library().at + (50 + page) * PAGE, 64);
    }
    out.event(Event::Exit);
}

/// Grows the heap, which begins there, from nothing to a buffer of `bytes` bytes, rounded up to
/// pages.
pub(super) fn allocate(out: &mut Out, heap: u64, bytes: u64) {
    enter(out, Stub::Map);
    out.event(Event::Map {
        start: heap / PAGE,
        pages: bytes.div_ceil(PAGE),
        protection: Protection::READ_WRITE,
        shared: false,
        backing: Backing::Anonymous,
        growth: Growth::Up,
    });
    leave(out, Stub::Map);
}
