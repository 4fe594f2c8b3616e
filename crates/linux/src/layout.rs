//! Where the kernel places the mappings of a program.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Has a command, and what it starts, run without address space randomization, as `setarch -R` does: the same program
/// with the same input has the same addresses each time. A program with the rights of another user is still placed at
/// random.
pub fn fix(command: &mut Command) {
    let fixed = || {
        // SAFETY: it takes a number and no pointer; this one asks for what is in force.
        let now = unsafe { libc::personality(0xffff_ffff) };
        // SAFETY: as above.
        match now >= 0 && unsafe { libc::personality((now | libc::ADDR_NO_RANDOMIZE) as libc::c_ulong) } >= 0 {
            true => Ok(()),
            false => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure runs between fork and exec, where it makes two system calls and allocates nothing.
    unsafe { command.pre_exec(fixed) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_the_same_addresses_each_time() {
        let maps = || {
            let mut command = Command::new("cat");
            command.arg("/proc/self/maps");
            fix(&mut command);
            command.output().unwrap().stdout
        };
        assert_eq!(maps(), maps());
    }
}
