//! Resolves the execution of a file: follows `#!` lines to an ELF program, and finds the emulator
//! for its machine. Used by the plugin for what a program executes, and by the collector for the
//! first program.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A program as it is to be emulated.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The ELF file.
    pub(crate) file: PathBuf,
    /// Its arguments, its own name first.
    pub(crate) arguments: Vec<OsString>,
    /// The emulator's name, as in `qemu-x86_64`.
    pub(crate) emulator: &'static str,
}

/// Why a file cannot be emulated.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// It does not exist, is not a file, or is not executable: the system would return this error
    /// too.
    System(i32),
    /// It may be executed but not read.
    Unreadable,
    /// It is not a program, or a script without an interpreter.
    Format,
    /// It is for a machine that the recorder does not support.
    Machine(u16),
}

/// The most `#!` lines that are followed, as in Linux.
const SCRIPTS: usize = 5;

/// Error numbers of the system.
const EACCES: i32 = 13;
const ELOOP: i32 = 40;

/// Determines what executing `path` with `arguments` (its own name first) would run.
pub(crate) fn resolve(path: &Path, arguments: &[OsString]) -> Result<Program, Obstacle> {
    let mut file = path.to_path_buf();
    let mut arguments = arguments.to_vec();
    for _ in 0..SCRIPTS {
        let head = head(&file)?;
        if let Some(line) = head.strip_prefix(b"#!") {
            let (interpreter, argument) = shebang(line).ok_or(Obstacle::Format)?;
            let mut longer = vec![interpreter.clone()];
            longer.extend(argument);
            longer.push(file.into());
            longer.extend(arguments.into_iter().skip(1));
            arguments = longer;
            file = interpreter.into();
            continue;
        }
        return match *head.as_slice() {
            // 64 bits, little-endian; the machine is at offset 18.
            [0x7f, b'E', b'L', b'F', 2, 1, ..] if head.len() >= 20 => {
                let machine = u16::from_le_bytes([head[18], head[19]]);
                let emulator = emulator(machine).ok_or(Obstacle::Machine(machine))?;
                Ok(Program { file, arguments, emulator })
            }
            [0x7f, b'E', b'L', b'F', ..] if head.len() >= 20 => {
                Err(Obstacle::Machine(u16::from_le_bytes([head[18], head[19]])))
            }
            _ => Err(Obstacle::Format),
        };
    }
    Err(Obstacle::System(ELOOP))
}

/// The emulator for an ELF machine whose system calls the recorder knows.
fn emulator(machine: u16) -> Option<&'static str> {
    match machine {
        62 => Some("qemu-x86_64"),
        183 => Some("qemu-aarch64"),
        243 => Some("qemu-riscv64"),
        _ => None,
    }
}

/// The first bytes of a file that may be executed.
fn head(path: &Path) -> Result<Vec<u8>, Obstacle> {
    let system = |error: std::io::Error| Obstacle::System(error.raw_os_error().unwrap_or(EACCES));
    let metadata = path.metadata().map_err(system)?;
    if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
        return Err(Obstacle::System(EACCES));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => Obstacle::Unreadable,
        _ => system(error),
    })?;
    file.take(256).read_to_end(&mut bytes).map_err(system)?;
    Ok(bytes)
}

/// The interpreter of a `#!` line and its one argument.
fn shebang(line: &[u8]) -> Option<(OsString, Option<OsString>)> {
    let line = line.split(|byte| *byte == b'\n').next()?.trim_ascii();
    let end = line.iter().position(|byte| byte.is_ascii_whitespace()).unwrap_or(line.len());
    let (interpreter, argument) = (&line[..end], line[end..].trim_ascii());
    let owned = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    (!interpreter.is_empty()).then(|| (owned(interpreter), (!argument.is_empty()).then(|| owned(argument))))
}

/// The file that `name` refers to: itself if it contains a folder, else the first executable one in
/// `path`.
pub(crate) fn search(name: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name));
    }
    let path = path.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"));
    std::env::split_paths(path).map(|folder| folder.join(name)).find(|file| {
        file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    })
}

/// The arguments of the emulator, after its own name, that run a program with the plugin.
pub(crate) fn emulation(program: &Program, plugin: &OsStr) -> Vec<OsString> {
    let name = program.arguments.first().map_or(program.file.as_os_str(), |name| name.as_os_str());
    // A path that begins with a dash would be parsed as an option.
    let file = if program.file.is_absolute() { program.file.clone() } else { Path::new(".").join(&program.file) };
    let mut all: Vec<OsString> = vec!["-plugin".into(), plugin.into(), "-0".into(), name.into(), file.into_os_string()];
    all.extend(program.arguments.iter().skip(1).cloned());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_line_gives_the_interpreter_and_one_argument() {
        let split = |line: &str| shebang(line.as_bytes());
        assert_eq!(split(" /bin/sh\nrest"), Some(("/bin/sh".into(), None)));
        assert_eq!(split("/usr/bin/env  -S perl -w \n"), Some(("/usr/bin/env".into(), Some("-S perl -w".into()))));
        assert_eq!(split(" \n"), None);
    }

    #[test]
    fn this_test_is_a_program_and_a_folder_is_none() {
        let own = std::env::current_exe().expect("a path");
        let program = resolve(&own, &["name".into(), "argument".into()]).expect("an ELF program");
        assert_eq!(program.file, own);
        let words = emulation(&program, OsStr::new("file=x"));
        assert_eq!(words[..4], ["-plugin", "file=x", "-0", "name"]);
        assert_eq!(words[5..], ["argument"]);
        assert_eq!(resolve(Path::new("/"), &[]), Err(Obstacle::System(EACCES)));
        assert_eq!(resolve(Path::new("/no/such"), &[]), Err(Obstacle::System(2)));
    }
}
