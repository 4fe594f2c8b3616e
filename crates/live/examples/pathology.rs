//! The pathology of Piehl's thesis (chapter 5): many requests of three huge pages and one byte,
//! each of which gets a fourth huge page, zeroed by the kernel, for its last byte; and his remedy,
//! requests of whole huge pages.
//!
//! `cargo run --release -p superpage-live --example pathology -- [--style malloc|mapped|mmap]
//! [--bytes SIZE] [--round] [--requests N] [--live N]`
//!
//! Each request is written as far as it was asked for, and freed when `--live` later ones have been
//! made.

#[cfg(target_os = "linux")]
fn main() {
    if let Err(problem) = linux::main() {
        eprintln!("pathology: {problem}");
        std::process::exit(2);
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("what its memory is backed by is compared on Linux only");
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::VecDeque;
    use std::io;
    use std::time::Instant;
    use superpage_pages::parse_bytes;

    /// A huge page.
    const HUGE: usize = 2 << 20;

    /// Who is asked for memory.
    #[derive(Clone, Copy, Debug)]
    enum Style {
        /// The C library, which keeps what was freed for later requests.
        Malloc,
        /// The C library, told to map each request by itself: what the thesis used does that.
        Mapped,
        /// The kernel, for a mapping of its own.
        Mmap,
    }

    struct Asked {
        style: Style,
        bytes: usize,
        round: bool,
        requests: usize,
        live: usize,
    }

    impl Asked {
        fn read(mut arguments: impl Iterator<Item = String>) -> Result<Asked, String> {
            let mut asked = Asked { style: Style::Malloc, bytes: 3 * HUGE + 1, round: false, requests: 600, live: 8 };
            while let Some(flag) = arguments.next() {
                if flag == "--round" {
                    asked.round = true;
                    continue;
                }
                let value = arguments.next().ok_or_else(|| format!("{flag} needs a value"))?;
                let number = || value.parse::<usize>().ok().filter(|number| *number > 0);
                let number = || number().ok_or_else(|| format!("{flag} {value}: expected a number from 1"));
                match (flag.as_str(), value.as_str()) {
                    ("--style", "malloc") => asked.style = Style::Malloc,
                    ("--style", "mapped") => asked.style = Style::Mapped,
                    ("--style", "mmap") => asked.style = Style::Mmap,
                    ("--style", _) => return Err(format!("--style {value}: expected malloc, mapped or mmap")),
                    ("--bytes", _) => {
                        let bytes = parse_bytes(&value).map_err(|error| error.to_string())?;
                        asked.bytes =
                            usize::try_from(bytes).map_err(|_| format!("--bytes {value} is too much"))?.max(1);
                    }
                    ("--requests", _) => asked.requests = number()?,
                    ("--live", _) => asked.live = number()?,
                    _ => {
                        return Err(format!(
                            "{flag} is not known; expected --style, --bytes, --round, --requests, --live"
                        ));
                    }
                }
            }
            Ok(asked)
        }
    }

    /// A piece of memory that was asked for.
    struct Piece {
        start: *mut u8,
        bytes: usize,
        style: Style,
    }

    impl Piece {
        fn new(style: Style, bytes: usize) -> io::Result<Piece> {
            let start = match style {
                // SAFETY: any size may be asked for.
                Style::Malloc | Style::Mapped => unsafe { libc::malloc(bytes) },
                Style::Mmap => {
                    let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
                    // SAFETY: a new mapping where the kernel chooses touches nothing that exists.
                    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, flags, -1, 0) };
                    if start == libc::MAP_FAILED { std::ptr::null_mut() } else { start }
                }
            };
            if start.is_null() {
                Err(io::Error::last_os_error())
            } else {
                Ok(Piece { start: start.cast(), bytes, style })
            }
        }

        /// Writes its first `bytes`.
        fn write(&mut self, bytes: usize, value: u8) {
            assert!(bytes <= self.bytes, "no more is written than was asked for");
            // SAFETY: the piece has so many bytes, and nobody else knows of it.
            unsafe { std::ptr::write_bytes(self.start, value, bytes) };
            std::hint::black_box(&mut self.start);
        }
    }

    impl Drop for Piece {
        fn drop(&mut self) {
            match self.style {
                // SAFETY: the piece is from `malloc`, and freed once.
                Style::Malloc | Style::Mapped => unsafe { libc::free(self.start.cast()) },
                // SAFETY: the mapping is the piece's. A failure would leave it mapped.
                Style::Mmap => _ = unsafe { libc::munmap(self.start.cast(), self.bytes) },
            }
        }
    }

    /// Minor faults of this process so far.
    fn faults() -> i64 {
        // SAFETY: the structure is plain numbers, and the call fills it.
        unsafe {
            let mut usage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &mut usage);
            usage.ru_minflt
        }
    }

    pub(crate) fn main() -> Result<(), String> {
        let asked = Asked::read(std::env::args().skip(1))?;
        let request = if asked.round { asked.bytes.next_multiple_of(HUGE) } else { asked.bytes };
        #[cfg(target_env = "gnu")]
        if let Style::Mapped = asked.style {
            // SAFETY: a switch of the allocator, set before there is a second thread. It also ends
            // its own setting of it.
            unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10) };
        }
        let (before, begun) = (faults(), Instant::now());
        let mut live = VecDeque::with_capacity(asked.live);
        for number in 0..asked.requests {
            if live.len() == asked.live {
                live.pop_front();
            }
            let piece = Piece::new(asked.style, request);
            let mut piece = piece.map_err(|error| format!("cannot allocate {request} bytes: {error}"))?;
            piece.write(asked.bytes, number as u8);
            live.push_back(piece);
        }
        drop(live);
        let each = begun.elapsed().as_secs_f64() * 1e6 / asked.requests as f64;
        let faults = (faults() - before) as f64 / asked.requests as f64;
        println!(
            "{:?}: {} requests of {request} bytes, {} of them written: {each:.1} us and {faults:.1} page faults each",
            asked.style, asked.requests, asked.bytes
        );
        Ok(())
    }
}
