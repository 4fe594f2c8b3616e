//! The recorder: a running program as a [`Source`](crate::Source).
//!
//! The program runs under QEMU's user-mode emulator with a plugin of ours (`crates/recorder`, built
//! into this library), and so do its threads, its children and the programs that they execute. Its
//! input and output are its own. The plugin builds runs and puts them with the changes of mappings
//! into buffers that it shares with [`Recording`], which hears over a socket which buffer is next
//! and merges what comes from the processes into one order.
//!
//! Within a thread the order is exact, and so is the order between a thread's accesses and changes
//! of mappings by any thread of its process. Between threads and processes the order is that of
//! their chunks of at most 8192 runs: each chunk is a slice of time, and if another thread
//! continues it begins with a [`Switch`](crate::Event::Switch). A program that is faster than its
//! reader waits for it.
//!
//! The counts are of what the emulator does: an access of 16 bytes is two of 8, each step of a
//! repeated string instruction counts as an instruction, and in multithreaded programs an atomic
//! read-modify-write is one write. Memory accesses of the kernel in system calls are not counted.
//! Heaps begin at 128 GB, where they have room to grow, and libraries and large allocations are
//! placed from 256 GB up, in the order of their mapping.
//!
//! ```no_run
//! use superpage_trace::{Batch, Source, record};
//! let mut recording = record::start(&record::Command::new(["gzip", "-k", "file"]))?;
//! let mut batch = Batch::default();
//! while recording.fill(&mut batch)? {}
//! let outcome = recording.finish()?;
//! # Ok::<(), superpage_trace::Error>(())
//! ```

mod command;

#[cfg(target_os = "linux")]
mod buffers;
#[cfg(target_os = "linux")]
mod code;
#[cfg(target_os = "linux")]
mod connection;
#[cfg(target_os = "linux")]
mod decode;
mod folder;
#[cfg(target_os = "linux")]
#[path = "../../plugin/program.rs"]
mod program;
#[cfg(target_os = "linux")]
mod recording;
#[cfg(not(target_os = "linux"))]
#[path = "unsupported.rs"]
mod recording;
#[cfg(target_os = "linux")]
#[path = "../../plugin/wire.rs"]
#[allow(dead_code, reason = "the plugin makes records, the collector only reads them")]
mod wire;

pub use command::Command;
pub use folder::Folder;
pub use recording::{Outcome, Recording, Stop, start};

/// What the header of a recording says of who made it, in addition to its program.
pub fn notes() -> [(String, String); 2] {
    [
        ("recorder".to_string(), format!("superpage {}", env!("CARGO_PKG_VERSION"))),
        ("architecture".to_string(), std::env::consts::ARCH.to_string()),
    ]
}

/// The exit status of a program in a shell's encoding: 128 and more for a signal.
pub fn exit_status(status: std::process::ExitStatus) -> u8 {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return 128 + signal as u8;
    }
    status.code().unwrap_or(1) as u8
}

/// What the collector makes of any bytes on a connection: for the fuzzer.
#[cfg(all(fuzzing, target_os = "linux"))]
#[doc(hidden)]
pub fn hear(bytes: &[u8]) {
    use std::io::Write;
    let Ok((mut plugin, collector)) = std::os::unix::net::UnixStream::pair() else { return };
    let (mut connection, mut words) = (connection::Connection::new(collector), Vec::new());
    // What does not fit into the socket's buffer would wait for ever.
    let _ = plugin.write_all(&bytes[..bytes.len().min(100_000)]);
    drop(plugin);
    let (mut names, mut batch, mut heard) = (decode::Names::default(), crate::Batch::default(), Vec::new());
    while !connection.closed {
        if connection.read().is_err() || connection.greet(&mut words).is_err() {
            return;
        }
        while let Ok(Some(_)) = connection.message(&mut words) {
            let (mut other, mut unheard) = (crate::Batch::default(), Vec::new());
            assert!(decode::decode(&words, wire::LINES, &mut names, &mut other, &mut unheard) <= words.len());
            assert!(decode::decode(&words, wire::PAGES, &mut names, &mut batch, &mut heard) <= words.len());
        }
    }
    for words in buffers::leftovers(bytes, 0) {
        decode::decode(&words, wire::PAGES, &mut names, &mut batch, &mut heard);
    }
}
