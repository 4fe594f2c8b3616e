//! Follows a program into the one that it executes: the plugin itself executes QEMU, with itself,
//! for it.
//!
//! QEMU would pass the call to the system, and the new program would run natively. The plugin sees
//! the call first and makes it in its own way, after the same checks that the system makes; if one
//! fails, QEMU continues and returns the error to the program. The socket and the plugin's own file
//! stay open for the new program, whatever this one has asked for: programs that start others mark
//! all descriptors to be closed (`close_range`).

use std::ffi::{CString, OsStr, OsString, c_char, c_int};
use std::fs::File;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::connection::{closes_at_exec, keep_through_exec};
use crate::process::{self, Session};
use crate::program::{self, Obstacle};
use crate::runs::Runs;
use crate::wire::code;

unsafe extern "C" {
    fn execve(file: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
}

/// More strings than a program can be given.
const STRINGS: usize = 1 << 20;

/// What a program passes to `execve` or `execveat`, as guest pointers.
pub(crate) struct Pointers {
    /// The folder's descriptor and the flags of `execveat`.
    pub(crate) at: Option<(RawFd, u64)>,
    pub(crate) path: u64,
    pub(crate) arguments: u64,
    pub(crate) environment: u64,
}

const AT_FDCWD: RawFd = -100;
const AT_EMPTY_PATH: u64 = 0x1000;

/// The file that is executed, and the descriptor that it is reached by, which must stay open for
/// the emulator even if the program wants it closed. `None` where only the system knows: links that
/// are not followed, errors.
fn file(path: Vec<u8>, at: Option<(RawFd, u64)>) -> Option<(PathBuf, Option<RawFd>)> {
    let path = PathBuf::from(OsString::from_vec(path));
    let number = match at {
        Some((number, flags)) if path.as_os_str().is_empty() && flags & !AT_EMPTY_PATH == 0 => Some(number),
        Some((number, 0)) if path.is_relative() && number != AT_FDCWD => {
            return Some((std::fs::read_link(format!("/proc/self/fd/{number}")).ok()?.join(path), None));
        }
        Some((_, flags)) if flags & !AT_EMPTY_PATH != 0 => return None,
        _ => own_descriptor(&path),
    };
    let Some(number) = number else { return Some((path, None)) };
    let open = PathBuf::from(format!("/proc/self/fd/{number}"));
    // A file that has its name yet: then nothing has to stay open. A memfd has none.
    let named = std::fs::read_link(&open).ok().filter(|name| process::identity(name) == process::identity(&open));
    Some(named.map_or((open, Some(number)), |name| (name, None)))
}

/// Executes `execve` or `execveat`. Returns only on failure.
pub(crate) fn execute(session: &Session, cpu: u32, runs: &Runs, passed: &Pointers) {
    let Some(memory) = Memory::open(session) else { return };
    let (Some(path), Some(arguments)) = (memory.string(passed.path), memory.strings(passed.arguments)) else { return };
    let Some(environment) = memory.strings(passed.environment) else { return };
    let Some((mut file, descriptor)) = self::file(path, passed.at) else { return };
    if file == Path::new("/proc/self/exe") || file == Path::new(&format!("/proc/{}/exe", std::process::id())) {
        file.clone_from(&session.program);
    }
    let arguments: Vec<OsString> = arguments.into_iter().map(OsString::from_vec).collect();
    let program = match program::resolve(&file, &arguments) {
        Ok(program) => program,
        Err(Obstacle::System(_)) => return,
        Err(Obstacle::Format) => return note(runs, &file, "it is neither an ELF program nor a script"),
        Err(Obstacle::Unreadable) => return note(runs, &file, "it is not readable"),
        Err(Obstacle::Machine(machine)) => {
            return note(runs, &file, &format!("its ELF machine {machine} is not known to the recorder"));
        }
    };
    let Some(emulator) = emulator(program.emulator) else {
        return note(runs, &file, &format!("{} is not installed", program.emulator));
    };
    if program.file.metadata().is_ok_and(|file| {
        let mode = file.permissions().mode();
        mode & 0o4000 != 0 && file.uid() != std::fs::metadata("/proc/self").map_or(file.uid(), |own| own.uid())
    }) {
        tell_note(runs, &format!("{} is set-user-ID, which it cannot be under QEMU", program.file.display()));
    }
    let Some(plugin) = session.plugins.iter().find(|plugin| process::identity(plugin) == session.code) else {
        return note(runs, &file, "the process has closed all files and cannot open the recorder's any more");
    };
    process::gather(cpu);
    runs.tell_skipped();
    runs.hand_over();
    let connection = process::connection();
    let mut specification = OsString::from("file=");
    specification.push(crate::doubled(plugin.as_os_str()));
    specification.push(",plugin=");
    specification.push(crate::doubled(plugin.as_os_str()));
    specification.push(&session.specification);
    let (thread, children) = (process::next_thread(), process::children());
    specification.push(format!(",token={:x},thread={thread},children={children}", process::token()));
    if let Some(number) = connection.number() {
        specification.push(format!(",inherited={number}"));
    }
    let mut words = vec![OsString::from(program.emulator)];
    words.extend(program::emulation(&program, &specification));
    let words = words.into_iter().map(OsString::into_vec).collect();
    let (Ok(emulator), Some(words), Some(environment)) =
        (CString::new(emulator.into_os_string().into_vec()), Words::new(words), Words::new(environment))
    else {
        return;
    };
    let descriptor = descriptor.filter(|number| closes_at_exec(*number));
    let inherited = || connection.number().into_iter().chain(own_descriptor(plugin)).chain(descriptor);
    inherited().for_each(|number| keep_through_exec(number, true));
    // SAFETY: a string and two arrays of strings that end with null.
    unsafe { execve(emulator.as_ptr(), words.pointers(), environment.pointers()) };
    inherited().for_each(|number| keep_through_exec(number, false));
}

/// The descriptor of this process that a path names, if it names one.
pub(crate) fn own_descriptor(path: &Path) -> Option<RawFd> {
    let number = path.strip_prefix("/proc/self/fd").or_else(|_| path.strip_prefix("/dev/fd"));
    number.ok()?.to_str()?.parse().ok()
}

fn note(runs: &Runs, file: &Path, reason: &str) {
    tell_note(runs, &format!("{} was not followed: {reason}", file.display()));
}

/// Sends a note to the reader at once.
pub(crate) fn tell_note(runs: &Runs, text: &str) {
    add_note(runs, text);
    runs.hand_over();
}

/// Adds a note for the reader to what the thread will send.
pub(crate) fn add_note(runs: &Runs, text: &str) {
    let mut payload = vec![[text.len() as u64, 0]];
    for piece in text.as_bytes().chunks(16) {
        let mut bytes = [0; 16];
        bytes[..piece.len()].copy_from_slice(piece);
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        payload.push([word(0), word(8)]);
    }
    runs.event(code::NOTE, &payload);
}

/// The file of an emulator: this one's own, or another one beside it or in `PATH`.
fn emulator(name: &str) -> Option<PathBuf> {
    let own = std::fs::read_link("/proc/self/exe").ok()?;
    if own.file_name() == Some(OsStr::new(name)) {
        return Some(own);
    }
    let beside = own.with_file_name(name);
    if beside.exists() { Some(beside) } else { program::search(OsStr::new(name), std::env::var_os("PATH").as_deref()) }
}

/// The guest's memory, read in a way that is safe with invalid pointers.
struct Memory {
    file: File,
    base: u64,
}

impl Memory {
    fn open(session: &Session) -> Option<Memory> {
        Some(Memory { file: File::open("/proc/self/mem").ok()?, base: session.api.guest_base })
    }

    fn string(&self, address: u64) -> Option<Vec<u8>> {
        let mut string = Vec::new();
        let mut piece = [0; 256];
        loop {
            let place = address.wrapping_add(self.base).wrapping_add(string.len() as u64);
            // Not across the end of a page, since the next one may not exist.
            let length = piece.len().min(4096 - (place % 4096) as usize);
            let read = self.file.read_at(&mut piece[..length], place).ok().filter(|read| *read > 0)?;
            if let Some(end) = piece[..read].iter().position(|byte| *byte == 0) {
                string.extend(&piece[..end]);
                return Some(string);
            }
            string.extend(&piece[..read]);
        }
    }

    /// An array of strings; a null pointer is an empty one, as in Linux.
    fn strings(&self, address: u64) -> Option<Vec<Vec<u8>>> {
        let mut strings = Vec::new();
        while address != 0 && strings.len() < STRINGS {
            let mut pointer = [0; 8];
            let place = address.wrapping_add(self.base).wrapping_add(8 * strings.len() as u64);
            self.file.read_exact_at(&mut pointer, place).ok()?;
            match u64::from_le_bytes(pointer) {
                0 => break,
                pointer => strings.push(self.string(pointer)?),
            }
        }
        Some(strings)
    }
}

/// An array of C strings.
struct Words {
    _strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Words {
    fn new(words: Vec<Vec<u8>>) -> Option<Words> {
        let strings: Vec<CString> = words.into_iter().map(CString::new).collect::<Result<_, _>>().ok()?;
        let pointers = strings.iter().map(|word| word.as_ptr()).chain([std::ptr::null()]).collect();
        Some(Words { _strings: strings, pointers })
    }

    fn pointers(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}
