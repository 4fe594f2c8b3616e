//! The QEMU user-mode plugin that records what a program does to its memory.
//!
//! QEMU loads it into the process that emulates the program. It builds runs of accesses, intercepts
//! the system calls that change mappings, follows children, threads and `exec`, and sends all of it
//! over a Unix socket to the collector in `superpage-trace`, which embeds this library. It knows
//! nothing of the trace's format, and it has no dependencies, so that one call of the compiler
//! builds it.

mod buffer;
mod connection;
mod execute;
mod layout;
mod leaves;
mod left_out;
mod mappings;
mod process;
mod program;
mod qemu;
mod runs;
mod schedule;
mod stamps;
mod syscalls;
mod touched;
mod watch;
mod wire;

use std::ffi::{CStr, OsStr, OsString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Once;

use process::{Sampling, Session};
use qemu::{Api, Info, Opaque};
use runs::{AccessFormat, Runs};
use syscalls::Calls;
use wire::code;

/// What the accesses of a run are to: this library is compiled for each.
pub(crate) const UNIT: wire::Unit = if cfg!(superpage_lines) { wire::LINES } else { wire::PAGES };
const OFFSET: u64 = UNIT.bytes() - 1;

/// Called by QEMU when it has loaded the plugin, before the program.
///
/// # Safety
/// QEMU's own: `info` and `words` are valid, `words` with `count` strings.
#[unsafe(no_mangle)]
unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    info: *const Info,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    // SAFETY: by QEMU's word.
    let machine = unsafe { CStr::from_ptr((*info).target_name) };
    let words = (0..count as usize).map(|place| {
        // SAFETY: by QEMU's word.
        OsStr::from_bytes(unsafe { CStr::from_ptr(*words.add(place)) }.to_bytes())
    });
    match install(id, machine.to_bytes(), words) {
        Ok(()) => 0,
        Err(problem) => {
            eprintln!("superpage record: {problem}");
            1
        }
    }
}

/// Parses the plugin's arguments and registers its callbacks.
fn install<'a>(id: u64, machine: &[u8], words: impl Iterator<Item = &'a OsStr>) -> Result<(), String> {
    let api = Api::find().map_err(|name| format!("this QEMU's plugin interface lacks {name:?}, expected QEMU 7.2"))?;
    let machine_name = String::from_utf8_lossy(machine);
    let calls = Calls::of(machine).ok_or_else(|| format!("the system calls of {machine_name} are not known"))?;
    let mut settings = Settings::default();
    for word in words {
        settings.read(word)?;
    }
    let session = Session {
        api,
        calls,
        plugins: [settings.plugin.clone(), settings.spare.clone()].map(PathBuf::from),
        code: process::identity(Path::new(&settings.plugin)),
        specification: settings.specification(),
        socket: settings.socket.clone(),
        program: program_file(),
        format: access_format(&api),
        sampling: settings.sampling,
        tells_calls: settings.calls,
        executed: settings.inherited.is_some(),
    };
    process::begin(session, settings.token, settings.thread, settings.children);
    // A program that cannot be followed does not inherit it.
    execute::own_descriptor(Path::new(&settings.plugin))
        .inspect(|number| connection::keep_through_exec(*number, false));
    match settings.inherited {
        Some(number) => process::connection().inherit(number),
        None => process::connection().open(&settings.socket, settings.token),
    }
    // SAFETY: the functions are QEMU's and the callbacks fit their types.
    unsafe {
        (api.on_translation)(id, translated);
        (api.on_syscall)(id, syscall);
        (api.on_syscall_return)(id, syscall_return);
        (api.on_exit)(id, exited, std::ptr::null_mut());
    }
    Ok(())
}

/// The plugin's arguments, `name=value` each.
#[derive(Default)]
struct Settings {
    plugin: OsString,
    spare: OsString,
    socket: PathBuf,
    token: u64,
    /// The number of the first thread.
    thread: u32,
    /// How many children the process has had.
    children: u64,
    inherited: Option<c_int>,
    sampling: Option<Sampling>,
    /// Whether system calls are reported.
    calls: bool,
}

impl Settings {
    fn read(&mut self, word: &OsStr) -> Result<(), String> {
        let unknown = || format!("the plugin has no argument {word:?}");
        let bytes = word.as_bytes();
        let at = bytes.iter().position(|byte| *byte == b'=').ok_or_else(unknown)?;
        let value = OsStr::from_bytes(&bytes[at + 1..]);
        let number = || value.to_str().and_then(|digits| digits.parse::<i64>().ok()).ok_or_else(unknown);
        match &bytes[..at] {
            b"plugin" => self.plugin = value.to_owned(),
            b"spare" => self.spare = value.to_owned(),
            b"socket" => self.socket = PathBuf::from(value),
            b"token" => {
                let token = value.to_str().and_then(|digits| u64::from_str_radix(digits, 16).ok());
                self.token = token.ok_or_else(unknown)?;
            }
            b"thread" => self.thread = number()? as u32,
            b"children" => self.children = number()? as u64,
            b"inherited" => self.inherited = Some(number()? as c_int),
            b"calls" => self.calls = number()? != 0,
            b"on" => self.sampling.get_or_insert_default().on = number()? as u64,
            b"period" => self.sampling.get_or_insert_default().period = number()? as u64,
            b"seed" => self.sampling.get_or_insert_default().seed = number()? as u64,
            _ => return Err(unknown()),
        }
        Ok(())
    }

    /// The argument of `-plugin` for another program, without the file and the token.
    fn specification(&self) -> OsString {
        let mut words = OsString::from(",spare=");
        words.push(doubled(&self.spare));
        words.push(",socket=");
        words.push(doubled(self.socket.as_os_str()));
        words.push(if self.calls { ",calls=1" } else { "" });
        if let Some(Sampling { on, period, seed }) = self.sampling {
            // Another program of the same process has its own windows.
            let seed = seed.wrapping_add(1) & i64::MAX as u64;
            words.push(format!(",on={on},period={period},seed={seed}"));
        }
        words
    }
}

/// The value with commas doubled, as QEMU's options require.
fn doubled(value: &OsStr) -> OsString {
    let mut bytes = Vec::new();
    for byte in value.as_bytes() {
        bytes.push(*byte);
        if *byte == b',' {
            bytes.push(b',');
        }
    }
    OsStr::from_bytes(&bytes).to_owned()
}

/// The file of the program: the word after `-0 NAME` on QEMU's own command line.
fn program_file() -> PathBuf {
    let words = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let mut words = words.split(|byte| *byte == 0);
    let file = words.find(|word| *word == b"-0").and_then(|_| words.nth(1)).unwrap_or_default();
    let file = PathBuf::from(OsStr::from_bytes(file));
    std::fs::canonicalize(&file).unwrap_or(file)
}

/// Determines how accesses are described by trying each bit.
fn access_format(api: &Api) -> AccessFormat {
    // SAFETY: a pure function of its argument.
    let size = |info| unsafe { (api.size_shift)(info) };
    // SAFETY: a pure function of its argument.
    let store = |info| unsafe { (api.is_store)(info) };
    let bits = |holds: &dyn Fn(u32) -> bool| (0..32).map(|bit| 1 << bit).filter(|bit| holds(*bit)).sum::<u32>();
    let sized = bits(&|bit| size(bit) != size(0));
    let shift = sized.trailing_zeros() % 32;
    // The bit for loads is the one below, as in the interface's `qemu_plugin_mem_rw`, which QEMU
    // packs there as it is.
    let kind_shift = bits(&store).trailing_zeros().wrapping_sub(1) % 32;
    AccessFormat { kind_shift, size_shift: shift, size_mask: sized >> shift }
}

/// Instruments a block: one callback for its fetches from each page (or line), one for each access.
extern "C" fn translated(_: u64, block: Opaque) {
    static START: Once = Once::new();
    let Some(session) = process::session() else { return };
    START.call_once(|| begin_program(session));
    let api = &session.api;
    // SAFETY: the block and its instructions are valid in this callback.
    let (count, at) = unsafe { ((api.block_length)(block), |place| (api.instruction)(block, place)) };
    let page_of = |place| {
        // SAFETY: as above.
        let (address, size) = unsafe { ((api.address)(at(place)), (api.size)(at(place)) as u64) };
        (address & !OFFSET, address.wrapping_add(size.max(1) - 1) & !OFFSET)
    };
    let (executed, executed_straddling): (qemu::Executed, qemu::Executed) = match session.sampling {
        None => (executed, executed_straddling),
        Some(_) => (executed_sampled, executed_straddling_sampled),
    };
    let mut place = 0;
    let mut straddling = false;
    while place < count {
        let first = place;
        let page = if straddling { page_of(first - 1).1 } else { page_of(first).0 };
        let mut ends_on = page;
        // Their number stands below the page's address.
        while place < count && page_of(place).0 == page && ends_on == page && ((place - first) as u64) + 1 < OFFSET {
            ends_on = page_of(place).1;
            place += 1;
        }
        let number = (place - first) as u64;
        match (straddling, first) {
            // The rest of the previous instruction is fetched when that is.
            (true, _) => api.watch_instruction(at(first - 1), executed_straddling, page | (number + 1)),
            (false, 0) => api.watch_block(block, executed, page | number),
            (false, _) => api.watch_instruction(at(first), executed, page | number),
        }
        straddling = ends_on != page;
    }
    if straddling {
        api.watch_instruction(at(count - 1), executed_straddling, page_of(count - 1).1 | 1);
    }
    let accessed = match (session.sampling, session.format.kind_shift) {
        (None, KIND_SHIFT) => accessed,
        (None, _) => accessed_otherwise,
        (Some(_), KIND_SHIFT) => accessed_sampled,
        (Some(_), _) => accessed_sampled_otherwise,
    };
    for place in 0..count {
        api.watch_accesses(at(place), accessed, runs::ONE);
    }
}

/// Reports the state in which the program begins.
fn begin_program(session: &Session) {
    let Some(runs) = process::runs(0) else { return };
    process::begin_thread(runs);
    if session.executed {
        runs.event(code::EXEC, &[]);
    }
    match layout::tell(session, runs) {
        Some(heap) => syscalls::set_heap(heap),
        None => execute::tell_note(runs, "this QEMU does not list the mappings with which the program begins"),
    }
}

extern "C" fn executed(cpu: u32, word: *mut c_void) {
    if let Some(runs) = process::runs(cpu)
        && !runs.usual_fetches(word as u64)
    {
        fetch_elsewhere(runs, word as u64);
    }
}

#[cold]
#[inline(never)]
fn fetch_elsewhere(runs: &Runs, block: u64) {
    if !runs.begun() {
        process::begin_thread(runs);
    }
    runs.fetches(block);
}

/// The same for a sampled recording.
extern "C" fn executed_sampled(cpu: u32, word: *mut c_void) {
    if !process::left_out(cpu).is_some_and(|left_out| left_out.counts_fetches(word as u64)) {
        fetch_sampled(cpu, word as u64);
    }
}

#[cold]
#[inline(never)]
fn fetch_sampled(cpu: u32, block: u64) {
    if let Some(runs) = process::runs(cpu) {
        if !runs.begun() {
            process::begin_thread(runs);
        }
        runs.fetches_sampled(block);
    }
}

extern "C" fn executed_straddling(cpu: u32, word: *mut c_void) {
    if let Some(runs) = process::runs(cpu) {
        runs.straddling_fetches(word as u64);
    }
}

extern "C" fn executed_straddling_sampled(cpu: u32, word: *mut c_void) {
    if let Some(runs) = process::runs(cpu) {
        runs.straddling_fetches_sampled(word as u64);
    }
}

/// The position of the kind in the description of an access by every QEMU that is known.
const KIND_SHIFT: u32 = 16;

/// Called for each load and store. What is added to a run's word is passed in as `one`: so it is in
/// a register.
extern "C" fn accessed(cpu: u32, info: u32, address: u64, one: *mut c_void) {
    if let Some(runs) = process::runs(cpu) {
        runs.data_of((info >> KIND_SHIFT) as usize, info, address, one as u64);
    }
}

/// The same for a QEMU that describes accesses in another way.
extern "C" fn accessed_otherwise(cpu: u32, info: u32, address: u64, one: *mut c_void) {
    if let (Some(runs), Some(session)) = (process::runs(cpu), process::session()) {
        runs.data_of(session.format.kind(info), info, address, one as u64);
    }
}

/// Called for each load and store of a sampled recording.
extern "C" fn accessed_sampled(cpu: u32, info: u32, address: u64, _: *mut c_void) {
    if let Some(left_out) = process::left_out(cpu)
        && !left_out.counts((info >> KIND_SHIFT) as usize, address)
    {
        access_sampled(cpu, info, address);
    }
}

/// The same for a QEMU that describes accesses in another way.
extern "C" fn accessed_sampled_otherwise(cpu: u32, info: u32, address: u64, _: *mut c_void) {
    if let (Some(left_out), Some(session)) = (process::left_out(cpu), process::session())
        && !left_out.counts(session.format.kind(info), address)
    {
        access_sampled(cpu, info, address);
    }
}

#[cold]
#[inline(never)]
fn access_sampled(cpu: u32, info: u32, address: u64) {
    if let Some(runs) = process::runs(cpu) {
        runs.data_sampled(info, address);
    }
}

extern "C" fn syscall(_: u64, cpu: u32, number: i64, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, _: u64, _: u64) {
    if let Some(runs) = process::runs(cpu).filter(|runs| runs.begun()) {
        syscalls::enter(cpu, runs, number, [a, b, c, d, e, f]);
    }
}

extern "C" fn syscall_return(_: u64, cpu: u32, _: i64, result: i64) {
    if let Some(runs) = process::runs(cpu).filter(|runs| runs.begun()) {
        syscalls::leave(cpu, runs, result);
    }
}

/// The exit of QEMU itself, for a program that did not request it.
extern "C" fn exited(_: u64, _: *mut c_void) {
    process::end_abruptly();
}
