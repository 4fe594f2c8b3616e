//! Where the kernel places the mappings of a program.

use crate::Error;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Has a command, and what it starts, run without address space randomization, as `setarch -R`
/// does: the same program with the same input has the same addresses each time. A program with the
/// rights of another user is still placed at random.
pub fn fix(command: &mut Command) {
    // SAFETY: the closure runs between fork and exec, where it makes two system calls and allocates
    // nothing.
    unsafe { command.pre_exec(|| turn_off().map(drop)) };
}

/// Tries whether [`fix`] is allowed here: on this thread, which is put back.
///
/// # Errors
/// [`Error::Unable`]: it is refused, as by Docker's default seccomp profile.
pub fn allowed() -> Result<(), Error> {
    let before = turn_off().map_err(|error| {
        Error::Unable(format!(
            "address space randomization cannot be turned off, so addresses of a plan say nothing here: personality \
             is refused ({error}), most likely by a container's seccomp profile; start the container with one that \
             allows it (docker run --security-opt seccomp=unconfined), or run outside of it"
        ))
    })?;
    // SAFETY: it takes a number and no pointer.
    unsafe { libc::personality(before) };
    Ok(())
}

/// Turns randomization off for what this thread executes; returns its personality before.
fn turn_off() -> io::Result<libc::c_ulong> {
    // SAFETY: it takes a number and no pointer; this one asks for what is in force.
    let now = unsafe { libc::personality(0xffff_ffff) };
    // SAFETY: as above.
    if now >= 0 && unsafe { libc::personality((now | libc::ADDR_NO_RANDOMIZE) as libc::c_ulong) } >= 0 {
        Ok(now as libc::c_ulong)
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_the_same_addresses_each_time() {
        if let Err(error) = allowed() {
            return superpage_testing::skip!("system", "{error}");
        }
        // SAFETY: it takes a number and no pointer.
        let now = || unsafe { libc::personality(0xffff_ffff) };
        let before = now();
        assert!(allowed().is_ok() && now() == before, "it is put back");
        let maps = || {
            let mut command = Command::new("cat");
            command.arg("/proc/self/maps");
            fix(&mut command);
            command.output().unwrap().stdout
        };
        assert_eq!(maps(), maps());
    }
}
