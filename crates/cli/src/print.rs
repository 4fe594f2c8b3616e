//! What verbs print: findings on standard output, sentences on standard error. Nothing else in this command writes there.
//!
//! A reader that has gone away, as `| head` does, wanted no more: the verb goes on as if it had read all, and so its files
//! are written and its exit status is what it would have been. An output that cannot be written otherwise, as on a full
//! disk or where there is none (`>&-`), is a failed run, told when all files of the verb have been written. A standard error that nobody reads, or that
//! is full, loses its sentences and nothing else.

use crate::Failure;
use std::io::{self, ErrorKind, Write};
use superpage_report::Screen;

/// How wide tables for people are.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct Width {
    /// Show every column, and break no line
    #[arg(long)]
    wide: bool,
}

impl Width {
    /// Standard output with this width.
    pub(crate) fn screen(self) -> Screen {
        Screen::stdout(self.wide)
    }
}

/// `eprintln!` as elsewhere, but for the panic of the standard one where standard error cannot be written.
macro_rules! eprintln {
    ($($sentence:tt)*) => { superpage_report::tell(format_args!($($sentence)*)) };
}

/// Findings on standard output, all of them there when this returns.
///
/// # Errors
/// [`Failure::Run`] if they cannot be written; not if nobody wants to read them.
pub(crate) fn print(findings: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut out = stdout();
    done(out.write_all(findings.as_ref()).and_then(|()| out.flush()))
}

/// What came of writing to standard output.
pub(crate) fn done(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Ok(()) if closed() => Err(Failure::Run("cannot write to standard output: it is closed".into())),
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Run(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Standard output itself, for what is too large to be held as one text; what comes of writing there is for [`done`].
#[allow(clippy::disallowed_methods, reason = "here is the one place")]
pub(crate) fn stdout() -> io::Stdout {
    io::stdout()
}

/// Whether this process was started without standard output. The standard library opens `/dev/null` in its place before `main`,
/// which would take all that is found; so this is looked at before that.
#[cfg(target_os = "linux")]
fn closed() -> bool {
    use std::os::fd::BorrowedFd;
    use std::sync::atomic::{AtomicBool, Ordering};
    static CLOSED: AtomicBool = AtomicBool::new(false);
    extern "C" fn look() {
        // SAFETY: it is only copied, which fails where it is not open.
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
