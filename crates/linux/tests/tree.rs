//! A command and its descendants are counted, listed and ended as one.
#![cfg(target_os = "linux")]

use std::process::{Command, Stdio};
use std::time::Duration;
use superpage_linux::tree::{Tree, children, descendants, exec_status};

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::null());
    command
}

const LONG: Option<Duration> = Some(Duration::from_secs(60));

#[test]
fn the_status_is_that_of_the_command() {
    let _turn = superpage_testing::turn_of("tree");
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("sleep 0 & exit 3", 3)] {
        let mut tree = Tree::spawn(&mut shell(script)).unwrap();
        assert_eq!(tree.wait(LONG).unwrap().unwrap().code(), code, "{script}");
        assert!(tree.wait_all(LONG).unwrap());
    }
}

#[test]
fn a_program_that_cannot_be_started_has_the_status_of_a_shell() {
    let _turn = superpage_testing::turn_of("tree");
    let error = Tree::spawn(&mut Command::new("no-such-program-anywhere")).unwrap_err();
    assert_eq!(exec_status(&error), 127, "{error}");
    let error = Tree::spawn(&mut Command::new("/dev")).unwrap_err();
    assert_eq!(exec_status(&error), 126, "{error}");
    assert!(error.to_string().starts_with("cannot run /dev: "), "{error}");
}

#[test]
fn a_daemon_stays_in_the_tree_and_its_work_is_counted() {
    let _turn = superpage_testing::turn_of("tree");
    // A process of a session of its own, whose parents have ended: it touches 32 MB and then
    // sleeps.
    let work = "head -c 33554432 /dev/zero | tail -c 33554432 >/dev/null; sleep 600";
    let mut tree = Tree::spawn(&mut shell(&format!("setsid sh -c '{work}' & exit 4"))).unwrap();
    assert_eq!(tree.wait(LONG).unwrap().unwrap().code(), 4);
    assert!(!tree.wait_all(Some(Duration::from_millis(10))).unwrap());
    let members = tree.members();
    assert!(!members.is_empty() && !members.contains(&tree.pid()), "{members:?}");
    // The last of its pipeline is a child of the daemon, or gone and replaced by the sleeping one.
    for _ in 0..1000 {
        let names = |pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if tree.members().iter().any(|&pid| names(pid) == "sleep\n") {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    tree.end(Duration::from_secs(5)).unwrap();
    assert!(tree.members().is_empty());
    let usage = tree.usage();
    assert!(usage.waited >= 2, "{usage:?}");
    assert!(usage.peak_process_bytes >= 32 << 20, "{usage:?}");
    assert!(usage.minor_faults >= 1000, "{usage:?}");
}

#[test]
fn dropping_a_tree_ends_it_also_when_it_ignores_signals() {
    let _turn = superpage_testing::turn_of("tree");
    let tree = Tree::spawn(&mut shell("trap '' TERM HUP; (trap '' TERM; sleep 600) & sleep 600")).unwrap();
    let pid = tree.pid();
    while tree.members().len() < 3 || children(pid).len() < 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let members = tree.members();
    assert_eq!(members[0], pid);
    assert!(descendants(pid).len() >= 2);
    assert!(children(pid).len() >= 2);
    drop(tree);
    for member in members {
        assert!(!std::path::Path::new(&format!("/proc/{member}")).exists(), "{member} lives");
    }
}

/// The processes of a script by name, each with what it had resident when it ended; and how the
/// script ended.
fn at_their_ends(script: &str) -> (Vec<(String, u64)>, u8, superpage_linux::tree::Usage) {
    let seen = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let noted = std::rc::Rc::clone(&seen);
    let hook = move |pid: i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(|text| text.trim().to_string());
        let resident = field("VmRSS:").and_then(|text| text.strip_suffix(" kB")?.parse::<u64>().ok());
        noted.borrow_mut().push((field("Name:").unwrap(), resident.unwrap_or(0) << 10));
    };
    let mut tree = Tree::spawn_traced(&mut shell(script), hook).unwrap();
    let ended = tree.wait(LONG).unwrap().unwrap();
    assert!(tree.wait_all(LONG).unwrap(), "{script}");
    let seen = seen.borrow().clone();
    (seen, ended.code(), tree.usage())
}

fn may_trace() -> bool {
    let checked = superpage_linux::tree::exits::check();
    if let Err(error) = &checked {
        superpage_testing::skip!("system", "{error}");
    }
    checked.is_ok()
}

#[test]
fn every_process_is_shown_at_its_end_with_its_memory() {
    let _turn = superpage_testing::turn_of("tree");
    if !may_trace() {
        return;
    }
    let (seen, code, usage) =
        at_their_ends("echo a | dd if=/dev/zero of=/dev/null bs=32M count=1 status=none | cat; exit 5");
    assert_eq!(code, 5);
    let mut names: Vec<&str> = seen.iter().map(|(name, _)| name.as_str()).collect();
    names.sort();
    assert_eq!(names, ["cat", "dd", "sh", "sh"]);
    assert!(seen.iter().all(|(_, resident)| *resident > 0), "{seen:?}");
    let copy = seen.iter().find(|(name, _)| name == "dd").unwrap();
    assert!(copy.1 >= 32 << 20, "{seen:?}");
    // The shell waits for its children itself, and counts them.
    assert_eq!(usage.waited, 1);
    assert!(usage.minor_faults >= 1000, "{usage:?}");
}

#[test]
fn those_that_are_killed_are_shown_and_those_that_are_stopped_stay_stopped() {
    let _turn = superpage_testing::turn_of("tree");
    if !may_trace() {
        return;
    }
    let (seen, code, _) = at_their_ends("sh -c 'kill -KILL $$'; kill -TERM $$");
    assert_eq!((seen.len(), code), (2, 143), "{seen:?}");
    let (seen, code, _) = at_their_ends("trap 'exit 9' USR1; kill -USR1 $$");
    assert_eq!((seen.len(), code), (1, 9), "{seen:?}");
    // A child that stops itself sleeps until it is continued, and then goes on to its end.
    let stopped = "sh -c 'kill -STOP $$; exit 6' & until grep -q '^State:.T (stopped)' /proc/$!/status; do sleep 0.01; done; \
                   kill -CONT $!; wait $!";
    let (_, code, _) = at_their_ends(stopped);
    assert_eq!(code, 6);
    // Another program in the place of the shell, and one that is there at once.
    assert_eq!(at_their_ends("exec true").0.len(), 1);
    assert_eq!(at_their_ends("exec sh -c 'exec sh -c \"exit 3\"'").1, 3);
}

#[test]
fn a_process_of_many_threads_is_shown_whichever_of_them_ends_it() {
    let _turn = superpage_testing::turn_of("tree");
    if !may_trace() {
        return;
    }
    let script = "import os, threading, time\nblock = bytearray(40 << 20)\n\
                  threading.Thread(target=lambda: os._exit(4)).start()\ntime.sleep(60)";
    let (seen, code, _) = at_their_ends(&format!("exec python3 -c '{script}'"));
    if code == 127 {
        return superpage_testing::skip!("python3", "python3 is not installed");
    }
    assert_eq!(code, 4);
    // Where python3 is a script, others come before it.
    assert!(seen.last().is_some_and(|(_, resident)| *resident >= 40 << 20), "{seen:?}");
}

#[test]
fn what_this_process_ever_had_is_not_the_commands_peak() {
    let _turn = superpage_testing::turn_of("tree");
    // More than any test beside it has at a time.
    drop(std::hint::black_box(vec![1_u8; 160 << 20]));
    let mut tree = Tree::spawn(&mut Command::new("true")).unwrap();
    assert!(tree.wait_all(LONG).unwrap());
    assert!(tree.usage().peak_process_bytes < 128 << 20, "{:?}", tree.usage());
}

#[test]
fn a_process_whose_first_thread_has_ended_is_in_the_tree() {
    let _turn = superpage_testing::turn_of("tree");
    let script = "import ctypes, threading, time\nthreading.Thread(target=lambda: time.sleep(600)).start()\n\
                  ctypes.CDLL(None).pthread_exit(None)";
    // What is started beside a tree would be taken for a member of another test's.
    let mut tree = match Tree::spawn(Command::new("python3").args(["-c", script])) {
        Err(error) if exec_status(&error) == 127 => return superpage_testing::skip!("system", "{error}"),
        other => other.unwrap(),
    };
    let state = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let threads = |pid: i32| std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    // Where python3 is a script, it is a child.
    let headless = |pid: &i32| state(*pid).contains(") Z ") && threads(*pid) > 1;
    let found = (0..1000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        descendants(std::process::id() as i32).into_iter().find(headless)
    });
    tree.end(Duration::ZERO).unwrap();
    assert!(found.is_some());
}
