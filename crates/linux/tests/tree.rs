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
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("sleep 0 & exit 3", 3)] {
        let mut tree = Tree::spawn(&mut shell(script)).unwrap();
        assert_eq!(tree.wait(LONG).unwrap().unwrap().code(), code, "{script}");
        assert!(tree.wait_all(LONG).unwrap());
    }
}

#[test]
fn a_program_that_cannot_be_started_has_the_status_of_a_shell() {
    let error = Tree::spawn(&mut Command::new("no-such-program-anywhere")).unwrap_err();
    assert_eq!(exec_status(&error), 127, "{error}");
    let error = Tree::spawn(&mut Command::new("/dev")).unwrap_err();
    assert_eq!(exec_status(&error), 126, "{error}");
    assert!(error.to_string().starts_with("cannot run /dev: "), "{error}");
}

#[test]
fn a_daemon_stays_in_the_tree_and_its_work_is_counted() {
    // A process of a session of its own, whose parents have ended: it touches 32 MB and then sleeps.
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
    let tree = Tree::spawn(&mut shell("trap '' TERM HUP; (trap '' TERM; sleep 600) & sleep 600")).unwrap();
    let pid = tree.pid();
    while tree.members().len() < 3 {
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
