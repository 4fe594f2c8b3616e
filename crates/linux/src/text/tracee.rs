//! A stopped process in whose name system calls are made: `ptrace` on x86-64.
//!
//! Whatever fails, [`Tracee::release`] lets the process go on with the registers, the signal mask
//! and the code that it had. If this process is killed meanwhile the kernel kills the stopped one
//! too, which would not be whole.

use crate::Error;
use crate::pagemap::page_of_file;
use libc::{c_int, c_long, user_regs_struct};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;
use procfs::process::{MMPermissions, MMapPath};
use std::io::{IoSlice, IoSliceMut};
use std::time::{Duration, Instant};

/// The instruction `syscall`.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// The instruction `int3`.
const BREAK: u8 = 0xcc;
/// `PTRACE_GETSIGMASK`, `PTRACE_SETSIGMASK`.
const GET_MASK: u32 = 0x420a;
const SET_MASK: u32 = 0x420b;
const AT_ENTRY: u64 = 9;
const AT_BASE: u64 = 7;

pub(super) struct Tracee {
    pid: Pid,
    /// The registers that it goes on with.
    registers: user_regs_struct,
    /// Its signal mask, if it is changed now.
    mask: Option<u64>,
    /// Where an instruction `syscall` is.
    gate: u64,
    /// Signals that came meanwhile.
    signals: Vec<Signal>,
    /// The breakpoint: its address and the word that was there.
    breakpoint: Option<(u64, c_long)>,
    steps: usize,
    fail_at: Option<usize>,
}

/// Why a process stopped.
enum Stop {
    /// A signal is about to be delivered to it.
    Signal(Signal),
    /// It executed another program.
    Exec,
    /// It has ended; who waits for it will hear so.
    Ended,
}

impl Tracee {
    /// The process, which is to stop after its exec.
    pub(super) fn adopt(pid: u32, fail_at: Option<usize>) -> Result<Tracee, Error> {
        let pid = Pid::from_raw(pid as i32);
        if !is_traced(pid)? {
            return Err(Error::Unable("it cannot be traced: another traces it, or this user may not".into()));
        }
        loop {
            match wait(pid)? {
                Stop::Signal(Signal::SIGTRAP) => break,
                Stop::Signal(signal) => ptrace::cont(pid, signal).map_err(system("start"))?,
                Stop::Exec => {}
                Stop::Ended => return Err(ended()),
            }
        }
        // From here on it is stopped and must be let go.
        let registers = match ptrace::getregs(pid) {
            Ok(registers) => registers,
            Err(error) => {
                let _ = ptrace::detach(pid, None);
                return Err(system("read the registers of")(error));
            }
        };
        let (signals, breakpoint) = (Vec::new(), None);
        Ok(Tracee { pid, registers, mask: None, gate: 0, signals, breakpoint, steps: 0, fail_at })
    }

    /// Lets the process run to its entry point, with the libraries mapped, and makes ready for
    /// calls.
    pub(super) fn run_to_entry(&mut self) -> Result<(), Error> {
        self.step("set the options of")?;
        let options = Options::PTRACE_O_EXITKILL | Options::PTRACE_O_TRACEEXEC;
        ptrace::setoptions(self.pid, options).map_err(system("set the options of"))?;
        let mut copied = None;
        loop {
            self.check_kind()?;
            let (entry, base) = self.entry()?;
            if base == 0 {
                // No dynamic linker: all is mapped, and nothing has run.
                break;
            }
            copied = page_of_file(self.pid.as_raw() as u32, entry)?;
            self.set_breakpoint(entry)?;
            if self.run_to_breakpoint(entry)? {
                break;
            }
            copied = None;
        }
        self.find_gate()?;
        self.step("block the signals of")?;
        let mut mask = 0_u64;
        self.mask_request(GET_MASK, &mut mask)?;
        self.mask = Some(mask);
        self.mask_request(SET_MASK, &mut u64::MAX.clone())?;
        if let Some(page) = copied {
            // The breakpoint made a private copy of a page of the file; the file's own is as good
            // again.
            let bytes = rustix::param::page_size() as u64;
            self.call(
                "drop the copy of a page of",
                libc::SYS_madvise,
                [page, bytes, libc::MADV_DONTNEED as u64, 0, 0, 0],
            )?;
        }
        Ok(())
    }

    /// Lets the process run on until it executes another program: a launcher does so soon, such as
    /// `env` or a script that ends in `exec`. Returns whether it did, for
    /// [`run_to_entry`](Tracee::run_to_entry); else it has ended, or is stopped where it was when
    /// `patience` ended. Signals reach it meanwhile, and it lives on if this process is killed.
    pub(super) fn follow(&mut self, patience: Duration) -> Result<bool, Error> {
        self.step("follow")?;
        ptrace::setoptions(self.pid, Options::PTRACE_O_TRACEEXEC).map_err(system("set the options of"))?;
        self.resume_as_it_was();
        let (mut signal, mut late) = (None, false);
        let deadline = Instant::now() + patience;
        let executed = 'stops: loop {
            ptrace::cont(self.pid, signal.take()).map_err(system("run"))?;
            let stop = loop {
                if let Some(stop) = look(self.pid, libc::WNOHANG)? {
                    break stop;
                }
                // A process that is no longer traced, as when one of its threads executes a
                // program, is let alone.
                if !late && Instant::now() > deadline {
                    if !is_traced(self.pid)? {
                        return Err(Error::Unable("one of its threads has executed another program".into()));
                    }
                    late = true;
                    nix::sys::signal::kill(self.pid, Signal::SIGSTOP).map_err(system("stop"))?;
                }
                std::thread::sleep(Duration::from_micros(500));
            };
            match stop {
                Stop::Ended => return Ok(false),
                Stop::Signal(Signal::SIGSTOP) if late => break 'stops false,
                Stop::Exec if !late => break 'stops true,
                Stop::Exec => {}
                Stop::Signal(which) => signal = Some(which),
            }
        };
        self.registers = ptrace::getregs(self.pid).map_err(system("read the registers of"))?;
        Ok(executed)
    }

    /// # Errors
    /// It is not a program of this kind of processor and word size.
    fn check_kind(&mut self) -> Result<(), Error> {
        self.step("look at the program of")?;
        let mut head = [0_u8; 20];
        let path = format!("/proc/{}/exe", self.pid);
        let read = std::fs::File::open(&path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut head));
        read.map_err(Error::file("read", path))?;
        // ELF, 64 bits, x86-64.
        if head[..5] == *b"\x7fELF\x02" && head[18..20] == [62, 0] {
            Ok(())
        } else {
            Err(Error::Unable("it is no 64-bit program for x86-64".into()))
        }
    }

    /// The entry point, and where the dynamic linker is (0: there is none).
    fn entry(&mut self) -> Result<(u64, u64), Error> {
        self.step("find the entry point of")?;
        let path = format!("/proc/{}/auxv", self.pid);
        let bytes = std::fs::read(&path).map_err(Error::file("read", path))?;
        let words: Vec<u64> =
            bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes"))).collect();
        let value = |key: u64| words.chunks_exact(2).find(|pair| pair[0] == key).map(|pair| pair[1]);
        let entry = value(AT_ENTRY).filter(|entry| *entry != 0);
        entry
            .map(|entry| (entry, value(AT_BASE).unwrap_or(0)))
            .ok_or_else(|| Error::Unable("it names no entry point".into()))
    }

    fn set_breakpoint(&mut self, at: u64) -> Result<(), Error> {
        self.step("set a breakpoint in")?;
        let word = ptrace::read(self.pid, at as *mut _).map_err(system("read the code of"))?;
        let with = (word & !0xff) | c_long::from(BREAK);
        ptrace::write(self.pid, at as *mut _, with).map_err(system("set a breakpoint in"))?;
        self.breakpoint = Some((at, word));
        Ok(())
    }

    /// `false` if it executed another program before it came there.
    fn run_to_breakpoint(&mut self, at: u64) -> Result<bool, Error> {
        self.step("run")?;
        let mut signal = None;
        loop {
            ptrace::cont(self.pid, signal).map_err(system("run"))?;
            match wait(self.pid)? {
                Stop::Ended => return Err(ended()),
                Stop::Exec => {
                    self.breakpoint = None;
                    self.registers = ptrace::getregs(self.pid).map_err(system("read the registers of"))?;
                    return Ok(false);
                }
                Stop::Signal(which) => {
                    // It stops here for release, too, should a step fail.
                    self.registers = ptrace::getregs(self.pid).map_err(system("read the registers of"))?;
                    if which == Signal::SIGTRAP && self.registers.rip == at + 1 {
                        self.registers.rip = at;
                        self.registers.orig_rax = u64::MAX;
                        self.clear_breakpoint()?;
                        return Ok(true);
                    }
                    signal = Some(which);
                }
            }
        }
    }

    fn clear_breakpoint(&mut self) -> Result<(), Error> {
        if let Some((at, word)) = self.breakpoint.take() {
            ptrace::write(self.pid, at as *mut _, word).map_err(system("take the breakpoint from"))?;
        }
        Ok(())
    }

    /// Finds an instruction `syscall` in the code that is mapped, in the kernel's own first.
    fn find_gate(&mut self) -> Result<(), Error> {
        self.step("find a system call in")?;
        let path = format!("/proc/{}/maps", self.pid);
        let maps = std::fs::read(&path).map_err(Error::file("read", path))?;
        let maps = crate::proc::mappings(&maps).map_err(|_| ended())?;
        let mut code: Vec<_> = maps.0.iter().filter(|map| map.perms.contains(MMPermissions::EXECUTE)).collect();
        code.sort_by_key(|map| map.pathname != MMapPath::Vdso);
        for map in code {
            /// Enough to hold one, in any library that makes calls.
            const MOST: u64 = 4 << 20;
            let (start, end) = map.address;
            let mut bytes = vec![0; (end - start).min(MOST) as usize];
            let Ok(read) = self.read(start, &mut bytes) else { continue };
            if let Some(at) = bytes[..read].windows(2).position(|pair| pair == SYSCALL) {
                self.gate = start + at as u64;
                return Ok(());
            }
        }
        Err(Error::Unable("there is no system call instruction in its code".into()))
    }

    /// Makes a system call in the process's name; `what` completes the sentence "cannot ... the
    /// command".
    pub(super) fn call(&mut self, what: &str, number: c_long, arguments: [u64; 6]) -> Result<u64, Error> {
        self.step(what)?;
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let registers = user_regs_struct {
            rip: self.gate,
            rax: number as u64,
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..self.registers
        };
        ptrace::setregs(self.pid, registers).map_err(system(what))?;
        loop {
            ptrace::step(self.pid, None).map_err(system(what))?;
            match wait(self.pid)? {
                Stop::Ended => return Err(ended()),
                Stop::Exec => {}
                Stop::Signal(Signal::SIGTRAP) => {}
                Stop::Signal(signal) => self.signals.push(signal),
            }
            let now = ptrace::getregs(self.pid).map_err(system(what))?;
            if now.rip != self.gate {
                let result = now.rax as i64;
                return if (-4095..0).contains(&result) {
                    Err(system(what)(nix::errno::Errno::from_raw(-result as i32)))
                } else {
                    Ok(now.rax)
                };
            }
        }
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<usize, Error> {
        let remote = RemoteIoVec { base: at as usize, len: bytes.len() };
        process_vm_readv(self.pid, &mut [IoSliceMut::new(bytes)], &[remote]).map_err(system("read the memory of"))
    }

    /// Copies memory of the process to another place in it.
    pub(super) fn copy(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), Error> {
        self.step("copy the code of")?;
        let mut buffer = vec![0; bytes];
        let read = self.read(from, &mut buffer)?;
        let remote = RemoteIoVec { base: to as usize, len: bytes };
        let written = process_vm_writev(self.pid, &[IoSlice::new(&buffer)], &[remote]);
        match (read, written.map_err(system("write the memory of"))?) {
            (read, written) if read == bytes && written == bytes => Ok(()),
            _ => Err(Error::Unable("its code could not be copied whole".into())),
        }
    }

    /// Counts a step; the one that is to fail does.
    pub(super) fn step(&mut self, what: &str) -> Result<(), Error> {
        self.steps += 1;
        if self.fail_at == Some(self.steps) {
            Err(Error::Unable(format!("cannot {what} the command: step {} was to fail", self.steps)))
        } else {
            Ok(())
        }
    }

    /// For undoing: no step of it fails on demand.
    pub(super) fn calmly<T>(&mut self, undo: impl FnOnce(&mut Tracee) -> T) -> T {
        let fail_at = self.fail_at.take();
        let done = undo(self);
        self.fail_at = fail_at;
        done
    }

    fn mask_request(&self, request: u32, mask: &mut u64) -> Result<(), Error> {
        // SAFETY: both requests take the size of a signal mask and one, which lives across the
        // call.
        let done = unsafe { libc::ptrace(request as _, self.pid.as_raw(), size_of::<u64>(), &raw mut *mask) };
        match done {
            0 => Ok(()),
            _ => Err(Error::system("set the signal mask of the command")(std::io::Error::last_os_error())),
        }
    }

    /// Lets the process go on as it was, no longer traced, with the signals that came meanwhile.
    /// Returns the number of steps. A process that has ended needs nothing.
    pub(super) fn release(mut self) -> usize {
        self.resume_as_it_was();
        let _ = ptrace::detach(self.pid, None);
        self.steps
    }

    /// Restores the process's code, registers and signal mask, and delivers the signals that
    /// arrived meanwhile.
    fn resume_as_it_was(&mut self) {
        let _ = self.clear_breakpoint();
        let _ = ptrace::setregs(self.pid, self.registers);
        if let Some(mut mask) = self.mask.take() {
            let _ = self.mask_request(SET_MASK, &mut mask);
        }
        for signal in self.signals.drain(..) {
            let _ = nix::sys::signal::kill(self.pid, signal);
        }
    }
}

/// Whether this thread traces the process.
fn is_traced(pid: Pid) -> Result<bool, Error> {
    let status = crate::proc::status(pid.as_raw()).map_err(Error::system("find the command"))?;
    Ok(status.tracerpid == rustix::thread::gettid().as_raw_nonzero().get())
}

/// Waits for the next stop. The end of the process is left for others to wait for.
fn wait(pid: Pid) -> Result<Stop, Error> {
    loop {
        if let Some(stop) = look(pid, 0)? {
            return Ok(stop);
        }
    }
}

/// The next stop, waited for but with `WNOHANG`.
fn look(pid: Pid, hang: c_int) -> Result<Option<Stop>, Error> {
    let what = "wait for the command";
    loop {
        // SAFETY: all bits zero are a `siginfo_t`.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let options = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL | hang;
        // SAFETY: `info` is written by the call and lives across it.
        if unsafe { libc::waitid(libc::P_PID, pid.as_raw() as u32, &mut info, options) } != 0 {
            match std::io::Error::last_os_error() {
                error if error.kind() == std::io::ErrorKind::Interrupted => continue,
                error => return Err(Error::system(what)(error)),
            }
        }
        if [libc::CLD_EXITED, libc::CLD_KILLED, libc::CLD_DUMPED].contains(&info.si_code) {
            return Ok(Some(Stop::Ended));
        }
        if info.si_signo == 0 {
            return Ok(None);
        }
        let mut status: c_int = 0;
        // SAFETY: `status` is written by the call and lives across it.
        if unsafe { libc::waitpid(pid.as_raw(), &mut status, libc::__WALL) } < 0 {
            return Err(Error::system(what)(std::io::Error::last_os_error()));
        }
        if status >> 16 == libc::PTRACE_EVENT_EXEC {
            return Ok(Some(Stop::Exec));
        }
        let signal = Signal::try_from(libc::WSTOPSIG(status)).map_err(Error::system::<nix::errno::Errno>(what))?;
        return Ok(Some(Stop::Signal(signal)));
    }
}

fn system(what: &str) -> impl FnOnce(nix::errno::Errno) -> Error {
    Error::system(format!("{what} the command"))
}

fn ended() -> Error {
    Error::Unable("it has ended".into())
}
