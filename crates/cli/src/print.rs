//! Output of verbs: results on standard output, messages on standard error. Nothing else in this
//! command writes there.
//!
//! If the reader has gone away, as with `| head`, the verb continues as if everything had been
//! read, so its files are written and its exit status is the same. An output that cannot be written
//! for another reason, such as a full disk or none at all (`>&-`), is a failed run, reported when
//! all files of the verb have been written. If standard error is closed or full, only its messages
//! are lost.

use crate::Failure;
use std::io::{self, ErrorKind, Write};
use superpage_report::Screen;

/// The width of tables for people.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct Width {
    /// Show every column, and wrap no line
    #[arg(long)]
    wide: bool,
}

impl Width {
    /// Standard output with this width.
    pub(crate) fn screen(self) -> Screen {
        Screen::stdout(self.wide)
    }
}

/// `eprintln!`, without the panic of the standard one if standard error cannot be written.
macro_rules! eprintln {
    ($($sentence:tt)*) => { superpage_report::tell(format_args!($($sentence)*)) };
}

/// Prints results on standard output; all of them are written when this returns.
///
/// # Errors
/// [`Failure::Run`] if they cannot be written; not if the reader has gone away.
pub(crate) fn print(findings: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut out = stdout();
    done(out.write_all(findings.as_ref()).and_then(|()| out.flush()))
}

/// The result of writing to standard output.
pub(crate) fn done(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Ok(()) if closed() => Err(Failure::Run("cannot write to standard output: it is closed".into())),
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Run(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Standard output itself, for output too large to hold as one string; pass the result of writing
/// to [`done`].
#[allow(clippy::disallowed_methods, reason = "here is the one place")]
pub(crate) fn stdout() -> io::Stdout {
    io::stdout()
}

/// Whether this process was started without standard output. The standard library opens `/dev/null`
/// in its place before `main`, which would swallow all results; so this is checked before that.
#[cfg(target_os = "linux")]
fn closed() -> bool {
    use std::os::fd::BorrowedFd;
    use std::sync::atomic::{AtomicBool, Ordering};
    static CLOSED: AtomicBool = AtomicBool::new(false);
    extern "C" fn look() {
        // SAFETY: it is only duplicated, which fails if it is not open.
        let copied = unsafe { BorrowedFd::borrow_raw(1) }.try_clone_to_owned();
        CLOSED.store(copied.is_err_and(|error| error.raw_os_error() == Some(9)), Ordering::Relaxed);
    }
    #[used]
    // SAFETY: the section holds functions without parameters that are called at the start.
    #[unsafe(link_section = ".init_array")]
    static LOOK: extern "C" fn() = look;
    CLOSED.load(Ordering::Relaxed)
}

#[cfg(not(target_os = "linux"))]
fn closed() -> bool {
    false
}
