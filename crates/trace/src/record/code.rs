//! The plugin's code, as a file that QEMU can load and no other user can change.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The plugin, as built by the build script; empty where it cannot be built.
pub(super) static PLUGIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/recorder.so"));
/// The one that records lines.
static LINES_PLUGIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/recorder-lines.so"));

/// File descriptors from here on do not interfere with programs, which expect theirs to be low.
const HIGH: RawFd = 1001;

/// Where the code is.
#[derive(Debug)]
pub(super) enum Code {
    /// In memory, without a name: the emulator inherits the descriptor, and so does what the
    /// program executes.
    Memory(OwnedFd),
    /// In the private folder, if the system has no memfd.
    File(PathBuf),
}

impl Code {
    pub(super) fn create(folder: &Path, lines: bool) -> io::Result<Code> {
        let plugin = if lines { LINES_PLUGIN } else { PLUGIN };
        in_memory(plugin).map(Code::Memory).or_else(|_| {
            let path = folder.join("recorder.so");
            let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
            file.set_permissions(Permissions::from_mode(0o600))?;
            file.write_all(plugin)?;
            Ok(Code::File(path))
        })
    }

    /// The path by which a process finds the code that it has inherited, and one for a process of
    /// this user that has closed it.
    pub(super) fn names(&self) -> [PathBuf; 2] {
        match self {
            Code::Memory(file) => {
                let number = file.as_raw_fd();
                [format!("/proc/self/fd/{number}").into(), format!("/proc/{}/fd/{number}", std::process::id()).into()]
            }
            Code::File(path) => [path.clone(), path.clone()],
        }
    }

    /// Starts a process that inherits it; other programs started from here do not.
    pub(super) fn start(&self, process: &mut std::process::Command) -> io::Result<std::process::Child> {
        let inherited = |flags| if let Code::Memory(file) = self { fcntl_setfd(file, flags) } else { Ok(()) };
        inherited(FdFlags::empty())?;
        let child = process.spawn();
        inherited(FdFlags::CLOEXEC)?;
        child
    }
}

/// A sealed memfd, which cannot be changed any more.
fn in_memory(plugin: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // A system that knows this flag may require it; a library can be mapped all the same.
    let memory = memfd_create("superpage-recorder", flags | MemfdFlags::NOEXEC_SEAL);
    let mut memory = File::from(memory.or_else(|_| memfd_create("superpage-recorder", flags))?);
    memory.write_all(plugin)?;
    fcntl_add_seals(&memory, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    let memory = OwnedFd::from(memory);
    Ok(fcntl_dupfd_cloexec(&memory, HIGH).unwrap_or(memory))
}
