//! The recorded process: its threads, what it shares with the collector, and the order of what they
//! send.
//!
//! A thread's accesses go to its own buffer without a lock. In a process with one thread events are
//! in the same buffer, and the order is right by itself. With more, three rules ensure it: a thread
//! sends what it has before each system call, and every event at once; a call that changes mappings
//! holds [`mapping`] until its event is sent; and one that unmaps something first waits until all
//! others have sent what they did before ([`gather_before`]).

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
    Ordering::SeqCst,
};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::buffer::{BUFFER_WORDS, Buffer};
use crate::connection::{self, Connection};
use crate::execute;
use crate::leaves::ALL_PAGES;
use crate::left_out::LeftOut;
use crate::qemu::Api;
use crate::runs::{AccessFormat, GATHERING, Gaps, Gathering, Runs, Sampler};
use crate::schedule::Schedule;
use crate::syscalls::Calls;
use crate::touched::Touched;
use crate::wire::{FIRST, SHORT_WORDS, code};

/// The most threads that can be recorded at once.
const THREADS: usize = 1024;
/// How long to wait for a thread that does not stop, before going on without order.
const PATIENCE: Duration = Duration::from_secs(1);

/// What does not change while the plugin is loaded.
pub(crate) struct Session {
    /// QEMU's functions.
    pub(crate) api: Api,
    /// The system calls of the emulated machine.
    pub(crate) calls: Calls,
    /// Paths of the plugin's own file: one for a process that still has it open, and one for
    /// others.
    pub(crate) plugins: [PathBuf; 2],
    /// The identity of that file, so that another one under its name is not mistaken for it.
    pub(crate) code: Option<(u64, u64)>,
    /// The plugin's own specification, without what differs from process to process.
    pub(crate) specification: OsString,
    /// The collector's socket, in the folder of the buffers.
    pub(crate) socket: PathBuf,
    /// The program's file.
    pub(crate) program: PathBuf,
    /// How QEMU describes accesses.
    pub(crate) format: AccessFormat,
    /// The sampling, if accesses are left out.
    pub(crate) sampling: Option<Sampling>,
    /// Whether system calls are reported that are no events themselves.
    pub(crate) tells_calls: bool,
    /// Whether this program was executed by another in the same process.
    pub(crate) executed: bool,
}

/// Which accesses a sampled recording keeps, for all threads.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sampling {
    /// Accesses kept in each period.
    pub(crate) on: u64,
    /// The period, in accesses.
    pub(crate) period: u64,
    /// The seed of the positions of windows.
    pub(crate) seed: u64,
}

static SESSION: OnceLock<Session> = OnceLock::new();
static RUNS: [Runs; THREADS] = [const { Runs::new() }; THREADS];
/// What the first virtual CPU leaves out: apart, so that its address need not be looked up.
static FIRST_LEFT_OUT: LeftOut = LeftOut::new();
/// The same of the others that have run in a sampled recording; never freed.
static LEFT_OUT: [AtomicPtr<LeftOut>; THREADS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; THREADS];
static BUFFERS: [Buffer; THREADS] = [const { Buffer::new() }; THREADS];
static STOPPED: [AtomicBool; THREADS] = [const { AtomicBool::new(false) }; THREADS];
static CONNECTION: Mutex<Connection> = Mutex::new(Connection::closed());
static MAPPING: Mutex<()> = Mutex::new(());
static TOKEN: AtomicU64 = AtomicU64::new(0);
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// The number of the next thread: unique in the process, also across the programs that it executes,
/// as its file is.
static NUMBERS: AtomicU32 = AtomicU32::new(0);
/// The number of the program's first thread.
static FIRST_NUMBER: AtomicU32 = AtomicU32::new(0);
/// The children so far, also across the programs that the process executes: their tokens tell them
/// apart.
static CHILDREN: AtomicU64 = AtomicU64::new(0);
static LIVING: AtomicI64 = AtomicI64::new(1);
static SEVERAL: AtomicBool = AtomicBool::new(false);
/// Whether the process ends: threads report what they left out, and none goes on after a call.
static ENDING: AtomicBool = AtomicBool::new(false);
static ENDED: AtomicBool = AtomicBool::new(false);
/// The pages that the process has touched, for sampled recordings.
static TOUCHED: Touched = Touched::new();

/// Sets the session, the process's token, the number of its first thread and how many children it
/// has had; call it once, before anything else.
pub(crate) fn begin(session: Session, token: u64, first: u32, children: u64) -> &'static Session {
    CHILDREN.store(children, Relaxed);
    TOKEN.store(token, Relaxed);
    NUMBERS.store(first, Relaxed);
    FIRST_NUMBER.store(first, Relaxed);
    PROCESS.store(std::process::id(), Relaxed);
    SESSION.get_or_init(|| session)
}

/// The device and inode of a file.
pub(crate) fn identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|file| (file.dev(), file.ino()))
}

/// The session, once it has begun.
pub(crate) fn session() -> Option<&'static Session> {
    SESSION.get()
}

/// The runs of a virtual CPU, if it is one of those recorded.
#[inline(always)]
pub(crate) fn runs(cpu: u32) -> Option<&'static Runs> {
    RUNS.get(cpu as usize)
}

/// What a virtual CPU leaves out, if it is the first or has run in a sampled recording.
#[inline(always)]
pub(crate) fn left_out(cpu: u32) -> Option<&'static LeftOut> {
    if cpu == 0 {
        return Some(&FIRST_LEFT_OUT);
    }
    let pointer = LEFT_OUT.get(cpu as usize)?.load(Acquire);
    // SAFETY: null or the value of this CPU, which `left_out_of` has made and nobody frees.
    unsafe { pointer.as_ref() }
}

/// The same for a virtual CPU that begins to run.
fn left_out_of(cpu: usize) -> &'static LeftOut {
    left_out(cpu as u32).unwrap_or_else(|| {
        let made = LeftOut::leaked();
        LEFT_OUT[cpu].store(std::ptr::from_ref(made).cast_mut(), Release);
        made
    })
}

/// What each virtual CPU leaves out, perhaps of threads that have ended, with its number.
fn each_left_out() -> impl Iterator<Item = (u32, &'static LeftOut)> {
    (0..THREADS as u32).filter_map(|cpu| Some((cpu, left_out(cpu)?)))
}

/// Makes all threads but this one look for pages that were forgotten, at the next block of each.
pub(crate) fn tell_changes(cpu: u32) {
    each_left_out().filter(|(other, _)| *other != cpu).for_each(|(_, left_out)| left_out.interrupt());
}

/// Forgets which pages of a range were touched, and when each thread used them last.
pub(crate) fn forget(start: u64, pages: u64) {
    TOUCHED.forget(start, pages);
    each_left_out().for_each(|(_, left_out)| left_out.forget(start, pages));
}

/// Forgets all pages.
pub(crate) fn forget_all() {
    forget(0, ALL_PAGES);
}

/// Applies new rights to a range of pages.
pub(crate) fn restrict(start: u64, pages: u64, read: bool, execute: bool) {
    TOUCHED.restrict(start, pages, read, execute);
    each_left_out().for_each(|(_, left_out)| left_out.restrict(start, pages, read, execute));
}

/// The connection, locked for this thread.
pub(crate) fn connection() -> MutexGuard<'static, Connection> {
    CONNECTION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lock for changes of mappings.
pub(crate) fn mapping() -> MutexGuard<'static, ()> {
    MAPPING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Assigns a thread its number and buffer at its first block.
#[cold]
pub(crate) fn begin_thread(runs: &Runs) {
    let Some(session) = session() else { return };
    let thread = NUMBERS.fetch_add(1, Relaxed);
    let file = buffer_file(session, thread);
    let own = buffer(runs);
    let memory = own.open(&file);
    let sampler = session.sampling.map(|Sampling { on, period, seed }| {
        let thread = thread - FIRST_NUMBER.load(Relaxed);
        let stream = (TOKEN.load(Relaxed) << 16) ^ u64::from(thread);
        let schedule = Schedule::new(on, period, seed, stream);
        let first = thread == 0 && TOKEN.load(Relaxed) == FIRST;
        let schedule = if first { schedule.with_beginning() } else { schedule };
        let gaps = Gaps { touched: &TOUCHED, left_out: left_out_of(place(runs)) };
        Sampler { schedule, gaps }
    });
    let memory = std::ptr::slice_from_raw_parts_mut(memory, BUFFER_WORDS);
    // SAFETY: the buffer is new and lives until the thread ends.
    unsafe { runs.begin(memory, thread, Gathering { format: session.format, sampler, sink: hand_over }) };
    if !own.is_shared() {
        let folder = file.parent().unwrap_or(&file).display().to_string();
        let text = format!(
            "{folder} has no room for a buffer, or the program's limit of file sizes (ulimit -f) is lower: what a thread \
             does last is lost if it is killed"
        );
        // Not at once: during a fork the connection is locked.
        execute::add_note(runs, &text);
    }
}

fn buffer_file(session: &Session, thread: u32) -> PathBuf {
    let folder = session.socket.parent().unwrap_or(&session.socket);
    connection::buffer_file(folder, TOKEN.load(Relaxed), thread)
}

/// The virtual CPU whose runs these are.
fn place(runs: &Runs) -> usize {
    (std::ptr::from_ref(runs).addr() - RUNS.as_ptr().addr()) / size_of::<Runs>()
}

/// Its buffers.
fn buffer(runs: &Runs) -> &'static Buffer {
    &BUFFERS[place(runs)]
}

fn hand_over(runs: &Runs, words: &[u64]) -> *mut u64 {
    let (buffer, thread) = (buffer(runs), runs.thread());
    let Some(session) = session().filter(|_| !ENDED.load(Relaxed)) else { return buffer.again() };
    if !buffer.is_shared() || words.len() <= SHORT_WORDS {
        connection().send(thread, words);
        return buffer.again();
    }
    connection().send_slot(thread, buffer.slot(), words.len());
    buffer.swap(|| buffer_file(session, thread), || connection().is_lost())
}

/// Whether the process has or had more than one thread.
pub(crate) fn several() -> bool {
    SEVERAL.load(Relaxed)
}

/// Counts a thread that is about to be created.
pub(crate) fn add_thread() {
    SEVERAL.store(true, SeqCst);
    LIVING.fetch_add(1, SeqCst);
}

/// Uncounts a thread whose creation failed.
pub(crate) fn thread_failed() {
    LIVING.fetch_sub(1, SeqCst);
}

/// Marks the thread as stopped at a system call: nothing more comes from it until it continues.
pub(crate) fn stop(cpu: u32, runs: &Runs) {
    if several() {
        runs.hand_over();
        STOPPED[cpu as usize].store(true, SeqCst);
    }
}

/// Marks the thread as running after a system call; if the process ends, waits for that.
pub(crate) fn go_on(cpu: u32) {
    STOPPED[cpu as usize].store(false, SeqCst);
    if is_ending() {
        STOPPED[cpu as usize].store(true, SeqCst);
        // Not for ever: the one that ends it may wait for the connection, which this one has.
        std::thread::sleep(PATIENCE);
    }
}

/// Whether threads report what they left out, since their process ends.
pub(crate) fn is_ending() -> bool {
    ENDING.load(SeqCst)
}

/// Waits until every other thread has sent what it did so far.
pub(crate) fn gather(cpu: u32) {
    if !several() {
        return;
    }
    GATHERING.fetch_add(1, SeqCst);
    let start = Instant::now();
    for (other, (runs, stopped)) in RUNS.iter().zip(&STOPPED).enumerate() {
        while other != cpu as usize && runs.begun() && runs.behind() && !stopped.load(SeqCst) {
            // Repeatedly: the other may just have set what this resets.
            runs.interrupt();
            left_out(other as u32).inspect(|left_out| left_out.interrupt());
            std::thread::yield_now();
            if start.elapsed() > PATIENCE {
                break;
            }
        }
    }
}

/// The same before a call that takes pages from all threads: from then on, no other begins a window
/// with them.
pub(crate) fn gather_before(cpu: u32, take: impl Fn()) {
    if several() {
        take();
        gather(cpu);
        // Another thread may just have been telling when it used them last.
        take();
    }
}

/// Ends the thread, and with the last one the process.
pub(crate) fn end_thread(cpu: u32, runs: &Runs) {
    if LIVING.fetch_sub(1, SeqCst) <= 1 {
        end_process(cpu, runs);
        return;
    }
    runs.tell_skipped();
    runs.hand_over();
    runs.end();
    buffer(runs).close();
    if !ENDED.load(Relaxed) {
        connection().send_end(runs.thread());
    }
}

/// Ends the process: what its threads did is sent, and nothing that they do later.
pub(crate) fn end_process(cpu: u32, runs: &Runs) {
    if ENDING.swap(true, SeqCst) {
        // Another thread does.
        return std::thread::sleep(PATIENCE);
    }
    gather(cpu);
    // Those that are in a call stay there.
    for (other, (runs, _)) in RUNS.iter().zip(&STOPPED).enumerate().filter(|(_, (_, stopped))| stopped.load(SeqCst)) {
        if other != cpu as usize && runs.begun() {
            runs.tell_skipped();
            runs.hand_over();
        }
    }
    runs.tell_skipped();
    runs.event(code::EXIT, &[]);
    runs.hand_over();
    ENDED.store(true, SeqCst);
}

/// The token of the next child; parent and child both know it.
pub(crate) fn next_child() -> u64 {
    u64::from(PROCESS.load(Relaxed)) << 24 | (CHILDREN.fetch_add(1, Relaxed) & 0xff_ffff)
}

/// Whether this is a copy of the process that the plugin knew.
pub(crate) fn is_child() -> bool {
    std::process::id() != PROCESS.load(Relaxed)
}

/// Makes a forked copy a process of its own: its only thread begins anew, on its own connection.
pub(crate) fn begin_child(cpu: u32, token: u64, connection: &mut Connection) {
    let Some(session) = session() else { return };
    PROCESS.store(std::process::id(), Relaxed);
    TOKEN.store(token, Relaxed);
    NUMBERS.store(0, Relaxed);
    FIRST_NUMBER.store(0, Relaxed);
    LIVING.store(1, Relaxed);
    SEVERAL.store(false, Relaxed);
    ENDING.store(false, Relaxed);
    for (runs, stopped) in RUNS.iter().zip(&STOPPED) {
        stopped.store(false, Relaxed);
        if runs.begun() {
            runs.end();
        }
    }
    forget_all();
    // The old one is closed only now: while the collector sees it open, it waits for the new one.
    let mut old = std::mem::replace(connection, Connection::closed());
    connection.open(&session.socket, token);
    old.close();
    if let Some(runs) = runs(cpu) {
        begin_thread(runs);
    }
}

/// The number of the first thread of the next program in this process.
pub(crate) fn next_thread() -> u32 {
    NUMBERS.load(Relaxed)
}

/// How many children the process has had.
pub(crate) fn children() -> u64 {
    CHILDREN.load(Relaxed)
}

/// The token of this process.
pub(crate) fn token() -> u64 {
    TOKEN.load(Relaxed)
}

/// Handles an exit of QEMU without a system call of the program: sends what its threads have, since
/// none of them runs any more.
pub(crate) fn end_abruptly() {
    if !ENDED.load(SeqCst) {
        for runs in RUNS.iter().filter(|runs| runs.begun()) {
            runs.tell_skipped();
            runs.hand_over();
        }
    }
}
