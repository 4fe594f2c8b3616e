//! What the tests of several crates share: counted skips, turns for tests that must not run
//! concurrently, and a check that no file of tests is forgotten.

use std::fmt::Arguments;
use std::io::Write;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Skips the test, or a part of it, because something is missing: `skip!("qemu-user", "why, as a
/// sentence")`. Fails the test if `SUPERPAGE_REQUIRE` names what is missing, in a list with commas;
/// otherwise the sentence is appended to the file that `SUPERPAGE_SKIPPED` names, which `make test`
/// shows and counts at its end.
#[macro_export]
macro_rules! skip {
    ($need:literal, $($why:tt)*) => { $crate::skipped($need, format_args!($($why)*)) };
}

/// The function behind [`skip!`].
pub fn skipped(need: &str, why: Arguments<'_>) {
    let required = std::env::var("SUPERPAGE_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name == need), "{why}; and SUPERPAGE_REQUIRE names {need}");
    let thread = std::thread::current();
    let line = format!("{need}: {}: {why}\n", thread.name().unwrap_or("a test"));
    print!("skipped: {line}");
    if let Some(path) = std::env::var_os("SUPERPAGE_SKIPPED") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    }
}

/// Panics unless each file of a folder of tests is a module of the test program whose source is
/// `listed`.
pub fn every_file_is_listed(folder: &str, listed: &str) {
    for file in std::fs::read_dir(folder).expect("a folder of tests") {
        let name = file.expect("an entry").file_name().into_string().expect("a name in UTF-8");
        let Some(module) = name.strip_suffix(".rs").filter(|module| *module != "main") else { continue };
        assert!(listed.contains(&format!("mod {module};")), "tests/{name} is in no test program");
    }
}

/// The group that has the turn, and the number of its tests that run.
static TURN: (Mutex<(&str, usize)>, Condvar) = (Mutex::new(("", 0)), Condvar::new());

fn turn() -> MutexGuard<'static, (&'static str, usize)> {
    TURN.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends a turn when it is dropped.
pub struct Turn(());

/// Waits until no test of another group has the turn. Tests of one group may run concurrently.
pub fn turn_of(group: &'static str) -> Turn {
    let mut now = turn();
    while now.1 > 0 && now.0 != group {
        now = TURN.1.wait(now).unwrap_or_else(PoisonError::into_inner);
    }
    *now = (group, now.1 + 1);
    Turn(())
}

impl Drop for Turn {
    fn drop(&mut self) {
        turn().1 -= 1;
        TURN.1.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_take_turns() {
        use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
        static INSIDE: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
        std::thread::scope(|scope| {
            for number in 0..40 {
                scope.spawn(move || {
                    let _turn = turn_of(["a", "b"][number % 2]);
                    INSIDE[number % 2].fetch_add(1, SeqCst);
                    std::thread::yield_now();
                    assert_eq!(INSIDE[1 - number % 2].load(SeqCst), 0);
                    INSIDE[number % 2].fetch_sub(1, SeqCst);
                });
            }
        });
    }
}
