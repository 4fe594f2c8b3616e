//! exec() in a loop, after the microbenchmark of Solomon's thesis: a program that replaces itself
//! by itself again and again.
//!
//! `cargo run --release -p superpage-live --example exec_loop -- [TIMES [PROGRAM ARGUMENT...]]`
//!
//! With a program, that is started so often instead, each time by a fork and an exec that are
//! waited for.

#[cfg(unix)]
fn main() {
    if let Err(problem) = unix::main() {
        eprintln!("exec_loop: {problem}");
        std::process::exit(2);
    }
}

#[cfg(not(unix))]
fn main() {
    eprintln!("there is no exec on this system");
}

#[cfg(unix)]
mod unix {
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use std::time::{SystemTime, UNIX_EPOCH};

    /// In the environment of a program that has replaced itself: times left, times in all, and when
    /// the first began.
    const LEFT: &str = "EXEC_LOOP";

    fn microseconds() -> u128 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros())
    }

    fn report(what: &str, times: u64, begun: u128) {
        let each = microseconds().saturating_sub(begun) as f64 / times.max(1) as f64;
        println!("{what} {times} times: {each:.1} us each");
    }

    fn again(left: u64, times: u64, begun: u128) -> Result<(), String> {
        if left == 0 {
            report("exec", times, begun);
            return Ok(());
        }
        let own = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let error = Command::new(&own).env(LEFT, format!("{} {times} {begun}", left - 1)).exec();
        Err(format!("cannot execute {}: {error}", own.display()))
    }

    pub(crate) fn main() -> Result<(), String> {
        if let Ok(state) = std::env::var(LEFT) {
            let numbers: Vec<u128> = state.split(' ').filter_map(|number| number.parse().ok()).collect();
            let [left, times, begun] = numbers[..] else {
                return Err(format!("{LEFT}={state} was not set by this program: unset it"));
            };
            return again(left as u64, times as u64, begun);
        }
        let mut arguments = std::env::args_os().skip(1);
        let times = match arguments.next() {
            None => 1000,
            Some(text) => {
                let number = text.to_str().and_then(|text| text.parse().ok());
                number.ok_or_else(|| format!("{}: expected how many times", text.display()))?
            }
        };
        let begun = microseconds();
        let Some(program) = arguments.next() else {
            return again(times, times, begun);
        };
        let arguments: Vec<_> = arguments.collect();
        for _ in 0..times {
            let status = Command::new(&program).args(&arguments).status();
            let status = status.map_err(|error| format!("cannot run {}: {error}", program.display()))?;
            if !status.success() {
                return Err(format!("{} ended with {status}", program.display()));
            }
        }
        report("fork and exec", times, begun);
        Ok(())
    }
}
