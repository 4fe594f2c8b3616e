//! The relevant system calls: what is done before each, and what is reported after it.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::connection::Connection;
use crate::execute;
use crate::mappings::{
    Heap, Mapping, PAGE, file_behind, forget, restrict, tell_advice, tell_protect, tell_range, tell_remap,
};
use crate::process;
use crate::runs::Runs;
use crate::wire::{PATHS, SHARED, code};

/// The numbers of the calls on one machine.
#[derive(Clone, Copy)]
pub(crate) struct Calls {
    /// Those that this recorder follows.
    followed: &'static [(i64, Call)],
    /// `read`, `pread64`, `write`, `pwrite64`.
    copying: [i64; 4],
    /// Those that end when a time has passed, if nothing else ended them, and what they return
    /// then: `nanosleep`, `clock_nanosleep`, `poll`, `ppoll`, `select`, `pselect6`, `epoll_wait`,
    /// `epoll_pwait` and `futex`, of which newer machines lack `poll`, `select` and `epoll_wait`.
    waiting: &'static [(i64, i64)],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    Map,
    Unmap,
    Protect,
    Break,
    Remap,
    Advise,
    AttachSegment,
    DetachSegment,
    Fork,
    Clone,
    Execute,
    ExecuteAt,
    Exit,
    ExitGroup,
    Close,
    CloseRange,
    Duplicate,
}

const X86_64: Calls = Calls {
    copying: [0, 17, 1, 18],
    waiting: &[(35, 0), (230, 0), (7, 0), (271, 0), (23, 0), (270, 0), (232, 0), (281, 0), (202, TIMED_OUT)],
    followed: &[
        (3, Call::Close),
        (9, Call::Map),
        (10, Call::Protect),
        (11, Call::Unmap),
        (12, Call::Break),
        (25, Call::Remap),
        (28, Call::Advise),
        (30, Call::AttachSegment),
        (33, Call::Duplicate),
        (56, Call::Clone),
        (57, Call::Fork),
        (58, Call::Fork),
        (59, Call::Execute),
        (60, Call::Exit),
        (67, Call::DetachSegment),
        (231, Call::ExitGroup),
        (292, Call::Duplicate),
        (322, Call::ExecuteAt),
        (436, Call::CloseRange),
    ],
};

/// The numbers that newer machines share.
const GENERIC: Calls = Calls {
    copying: [63, 67, 64, 68],
    waiting: &[(101, 0), (115, 0), (73, 0), (72, 0), (22, 0), (98, TIMED_OUT)],
    followed: &[
        (24, Call::Duplicate),
        (57, Call::Close),
        (93, Call::Exit),
        (94, Call::ExitGroup),
        (196, Call::AttachSegment),
        (197, Call::DetachSegment),
        (214, Call::Break),
        (215, Call::Unmap),
        (216, Call::Remap),
        (220, Call::Clone),
        (221, Call::Execute),
        (222, Call::Map),
        (226, Call::Protect),
        (233, Call::Advise),
        (281, Call::ExecuteAt),
        (436, Call::CloseRange),
    ],
};

/// `-ETIMEDOUT`.
const TIMED_OUT: i64 = -110;
const CLONE_VM: u64 = 0x100;
const CLONE_VFORK: u64 = 0x4000;
const MAP_TYPE: u64 = 3;
const MAP_PRIVATE: u64 = 2;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_STACK: u64 = 0x20000;
/// The number in a trace of the hint that memory is for a stack.
const STACK: u64 = 3;
const MREMAP_FIXED: u64 = 2;
const SHM_RDONLY: u64 = 0x1000;
/// With this flag the call closes nothing before the next `execve`, where the plugin keeps its own
/// descriptors open.
const CLOSE_RANGE_CLOEXEC: u64 = 4;
/// `MADV_DONTNEED`, `MADV_FREE`, `MADV_REMOVE`, `MADV_DONTNEED_LOCKED`.
const DISCARDING: [u64; 4] = [4, 8, 9, 24];

/// The number of a hint in a trace by what `madvise` calls it: `MADV_HUGEPAGE`, `MADV_NOHUGEPAGE`.
fn hint(advice: u64) -> Option<u64> {
    match advice {
        14 => Some(1),
        15 => Some(2),
        _ => None,
    }
}

impl Calls {
    /// The calls of an emulated machine by QEMU's name for it.
    pub(crate) fn of(machine: &[u8]) -> Option<Calls> {
        match machine {
            b"x86_64" => Some(X86_64),
            b"aarch64" | b"riscv64" => Some(GENERIC),
            _ => None,
        }
    }

    fn call(self, number: i64) -> Option<Call> {
        self.followed.iter().find(|(known, _)| *known == number).map(|(_, call)| *call)
    }

    /// The path of a call, and its buffer; `None` if the event of another kind stands for it. What
    /// copies through a list of buffers counts as copying nothing.
    fn path(self, number: i64, arguments: [u64; 6]) -> Option<(usize, u64)> {
        let silent = [Call::Close, Call::CloseRange, Call::Duplicate];
        if self.call(number).is_some_and(|call| !silent.contains(&call)) {
            return None;
        }
        let [file, buffer, ..] = arguments;
        let copying = self.copying.iter().position(|known| *known == number);
        let (path, at) = match (copying, copying.is_some() && is_pipe(file as RawFd)) {
            (None, _) => ("null", 0),
            (Some(0 | 1), false) => ("read", buffer),
            (Some(0 | 1), true) => ("pipe-read", buffer),
            (Some(_), false) => ("write", buffer),
            (Some(_), true) => ("pipe-write", buffer),
        };
        PATHS.iter().position(|known| *known == path).map(|place| (place, at))
    }
}

/// The call that a thread is in.
struct Pending {
    call: Call,
    arguments: [u64; 6],
    /// The file behind a mapping to be made.
    file: Option<(u64, u64, u64)>,
    /// The token of the child to be made.
    child: u64,
    _mapping: Option<MutexGuard<'static, ()>>,
    connection: Option<MutexGuard<'static, Connection>>,
}

thread_local! {
    /// The path and the buffer of the call that a thread is in, if it is to be reported.
    static TOLD: Cell<Option<(usize, u64)>> = const { Cell::new(None) };
    static PENDING: RefCell<Option<Pending>> = const { RefCell::new(None) };
    /// Since when a thread waits for a time, by the clock and by the processor time of its process,
    /// and what the call returns when the time has passed.
    static WAITS: Cell<Option<(Instant, Duration, i64)>> = const { Cell::new(None) };
}

/// The heap, once its start is known.
static HEAP: Mutex<Heap> = Mutex::new(Heap::unknown());
/// Attached segments of shared memory: address and length.
static SEGMENTS: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

/// Sets where the heap begins.
pub(crate) fn set_heap(heap: Heap) {
    *self::heap() = heap;
}

fn heap() -> MutexGuard<'static, Heap> {
    HEAP.lock().unwrap_or_else(PoisonError::into_inner)
}

fn segments() -> MutexGuard<'static, Vec<(u64, u64)>> {
    SEGMENTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Called before a system call.
pub(crate) fn enter(cpu: u32, runs: &Runs, number: i64, arguments: [u64; 6]) {
    let Some(session) = process::session() else { return };
    process::stop(cpu, runs);
    TOLD.set(session.tells_calls.then(|| session.calls.path(number, arguments)).flatten());
    let waiting = session.calls.waiting.iter().find(|(known, _)| *known == number);
    WAITS.set(waiting.map(|(_, late)| (Instant::now(), worked(), *late)));
    let Some(call) = session.calls.call(number) else { return };
    let [first, second, third, fourth, fifth, _] = arguments;
    let mut pending = Pending { call, arguments, file: None, child: 0, _mapping: None, connection: None };
    match call {
        Call::Map => {
            pending._mapping = Some(process::mapping());
            if fourth & MAP_FIXED != 0 {
                process::gather_before(cpu, || forget(first, second));
            }
            if fourth & MAP_ANONYMOUS == 0 {
                pending.file = file_behind(fifth as RawFd);
            }
        }
        Call::Unmap | Call::Remap => {
            pending._mapping = Some(process::mapping());
            process::gather_before(cpu, || {
                forget(first, second);
                if call == Call::Remap && fourth & MREMAP_FIXED != 0 {
                    forget(fifth, third);
                }
            });
        }
        Call::Protect => {
            pending._mapping = Some(process::mapping());
            process::gather_before(cpu, || restrict(first, second, third));
        }
        Call::DetachSegment => {
            pending._mapping = Some(process::mapping());
            let length = segments().iter().find(|(address, _)| *address == first).map_or(0, |(_, length)| *length);
            process::gather_before(cpu, || forget(first, length));
        }
        Call::Advise if DISCARDING.contains(&third) => {
            pending._mapping = Some(process::mapping());
            process::gather_before(cpu, || forget(first, second));
        }
        Call::Advise if hint(third).is_some() => {
            pending._mapping = Some(process::mapping());
            process::gather(cpu);
        }
        Call::Break => {
            pending._mapping = Some(process::mapping());
            if let Some((start, pages)) = heap().lost(first) {
                process::gather_before(cpu, || process::forget(start, pages));
            }
        }
        Call::AttachSegment => pending._mapping = Some(process::mapping()),
        Call::Fork | Call::Clone => {
            if call == Call::Clone && first & CLONE_VM != 0 && first & CLONE_VFORK == 0 {
                runs.hand_over();
                process::add_thread();
                process::stop(cpu, runs);
            } else {
                pending._mapping = Some(process::mapping());
                process::gather(cpu);
                pending.child = process::next_child();
                runs.hand_over();
                pending.connection = Some(process::connection());
            }
        }
        Call::Execute => {
            let passed = execute::Pointers { at: None, path: first, arguments: second, environment: third };
            execute::execute(session, cpu, runs, &passed);
            return;
        }
        Call::ExecuteAt => {
            let at = Some((first as RawFd, fifth));
            let passed = execute::Pointers { at, path: second, arguments: third, environment: fourth };
            execute::execute(session, cpu, runs, &passed);
            return;
        }
        Call::Exit => return process::end_thread(cpu, runs),
        Call::ExitGroup => return process::end_process(cpu, runs),
        Call::Close | Call::CloseRange | Call::Duplicate => {
            let own = process::connection().number().map_or(u64::MAX, |own| own as u64);
            let hit = match call {
                Call::Close => first == own,
                Call::CloseRange => (first..=second).contains(&own) && third & CLOSE_RANGE_CLOEXEC == 0,
                _ => second == own,
            };
            if !hit {
                return;
            }
            // Its return comes while the connection is held.
            TOLD.set(None);
            runs.event(code::RECONNECT, &[]);
            runs.hand_over();
            let mut connection = process::connection();
            connection.forget();
            pending.connection = Some(connection);
        }
        Call::Advise => return,
    }
    PENDING.set(Some(pending));
}

/// Called after a system call.
pub(crate) fn leave(cpu: u32, runs: &Runs, result: i64) {
    process::go_on(cpu);
    if let Some((path, at)) = TOLD.take() {
        let bytes = if PATHS[path] == "null" { 0 } else { result.max(0) as u64 };
        runs.event(code::CALL, &[[path as u64, at], [bytes, 0]]);
        if process::several() {
            runs.hand_over();
        }
    }
    if let Some((since, worked_before, _)) = WAITS.take().filter(|(.., late)| *late == result) {
        let idle = since.elapsed().saturating_sub(worked().saturating_sub(worked_before));
        let [milliseconds, now] = [idle, clock(CLOCK_MONOTONIC)].map(|time| (time.as_micros() as u64 + 500) / 1000);
        if milliseconds > 0 {
            runs.event(code::SLEPT, &[[milliseconds, now]]);
            runs.hand_over();
        }
    }
    let Some(pending) = PENDING.take() else { return };
    let failed = (-4095..0).contains(&result);
    let result = result as u64;
    let [first, second, third, fourth, _, sixth] = pending.arguments;
    match pending.call {
        Call::Fork | Call::Clone => return after_fork(cpu, runs, pending, failed),
        Call::Close | Call::CloseRange | Call::Duplicate => {
            if let (Some(mut connection), Some(session)) = (pending.connection, process::session()) {
                connection.open(&session.socket, process::token());
            }
            return;
        }
        // Its rights are what they were, which nobody has noted.
        Call::Protect if failed && process::several() => forget(first, second),
        _ if failed => {}
        Call::Map => {
            let mut mapping = Mapping::anonymous(result / PAGE, second.div_ceil(PAGE), third);
            if fourth & MAP_TYPE != MAP_PRIVATE {
                mapping.flags |= SHARED;
            }
            if let Some((device, inode, length)) = pending.file {
                mapping.set_file((device, inode), length, sixth / PAGE);
            }
            mapping.tell(runs);
            if fourth & MAP_STACK != 0 {
                tell_advice(runs, result, second, STACK);
            }
        }
        Call::Unmap => tell_range(runs, code::UNMAP, first, second),
        Call::Protect => tell_protect(runs, first, second, third),
        Call::Advise if second == 0 => {}
        Call::Advise => match hint(third) {
            Some(hint) => tell_advice(runs, first, second, hint),
            None => tell_range(runs, code::DISCARD, first, second),
        },
        Call::Remap => tell_remap(runs, first, second, result, third),
        Call::Break => heap().tell_break(runs, result),
        Call::AttachSegment => {
            let length = segment_length(first as i32);
            let rights = if third & SHM_RDONLY != 0 { 1 } else { 3 };
            let mut mapping = Mapping::anonymous(result / PAGE, length.div_ceil(PAGE), rights);
            mapping.flags |= SHARED;
            mapping.set_segment(first);
            mapping.tell(runs);
            segments().push((result, length));
        }
        Call::DetachSegment => {
            let mut segments = segments();
            if let Some(place) = segments.iter().position(|(address, _)| *address == first) {
                let (address, length) = segments.swap_remove(place);
                tell_range(runs, code::UNMAP, address, length);
            }
        }
        Call::Execute | Call::ExecuteAt | Call::Exit | Call::ExitGroup => {}
    }
    if process::several() {
        process::tell_changes(cpu);
        runs.hand_over();
    }
}

fn after_fork(cpu: u32, runs: &Runs, pending: Pending, failed: bool) {
    let Some(mut connection) = pending.connection else {
        if failed {
            process::thread_failed();
        }
        return;
    };
    if process::is_child() {
        process::begin_child(cpu, pending.child, &mut connection);
        return;
    }
    drop(connection);
    if !failed {
        // What is written next is copied first, so it counts as new.
        process::forget_all();
        process::tell_changes(cpu);
        runs.event(code::FORK, &[[pending.child, 0]]);
        runs.hand_over();
    }
}

/// Whether a descriptor of the program, which is the emulator's too, is that of a pipe.
fn is_pipe(number: RawFd) -> bool {
    if number < 0 {
        return false;
    }
    // SAFETY: only asked about; `ManuallyDrop` leaves it open. A number that is closed gives an
    // error.
    let file = ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(number) });
    file.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo())
}

unsafe extern "C" {
    fn clock_gettime(clock: i32, time: *mut [i64; 2]) -> i32;
    fn shmctl(identifier: i32, command: i32, segment: *mut u64) -> i32;
}

/// The processor time of this process, of all its threads.
fn worked() -> Duration {
    clock(CLOCK_PROCESS_CPUTIME_ID)
}

const CLOCK_MONOTONIC: i32 = 1;
const CLOCK_PROCESS_CPUTIME_ID: i32 = 2;

fn clock(number: i32) -> Duration {
    let mut time = [0; 2];
    // SAFETY: a `struct timespec` is two 64-bit numbers on the hosts that QEMU's plugins run on.
    unsafe { clock_gettime(number, &raw mut time) };
    Duration::new(time[0] as u64, time[1] as u32)
}

/// The length of a segment of System V's shared memory in bytes.
fn segment_length(identifier: i32) -> u64 {
    const IPC_STAT: i32 = 2;
    // More than `struct shmid_ds`, in which the length follows the 48 bytes of the permissions.
    let mut segment = [0_u64; 32];
    // SAFETY: the buffer is larger than what the call writes.
    let failed = unsafe { shmctl(identifier, IPC_STAT, segment.as_mut_ptr()) } < 0;
    if failed { 0 } else { segment[6] }
}
