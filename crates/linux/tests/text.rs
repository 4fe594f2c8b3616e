//! Code on huge pages: of programs made here, by each way, with a fault at every step.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use superpage_linux::text::{Placed, Way, place, prepare};

/// Three functions with 2 MB of other code between them; the program tells what they return, what
/// its code sums up to, and how it was started.
const PROGRAM: &str = r#"
#include <stdio.h>
#define FILL(n) asm(".text\n.globl fill" #n "\nfill" #n ":\n.fill 2097152, 1, 0x90\n")
extern const unsigned char fill1[], fill3[];
__attribute__((noinline)) int first(int x) { return x * 3 + 1; }
FILL(1);
__attribute__((noinline)) int second(int x) { return first(x) + 7; }
FILL(2);
__attribute__((noinline)) int third(int x) { return second(x) * 5; }
FILL(3);
int main(int argc, char **argv) {
    unsigned long sum = 0;
    for (const unsigned char *at = fill1; at < fill3 + 2097152; at++) sum = sum * 31 + *at;
    printf("%d %lu %d %s\n", third(argc), sum, argc, argv[argc - 1]);
    return 7;
}
"#;

/// The program, made with these flags of the linker; `None` without a compiler that can.
fn program(folder: &Path, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let (source, made) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&source, PROGRAM).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-fno-toplevel-reorder", "-o"]).arg(&made).arg(&source).args(flags);
    let done = gcc.stderr(Stdio::null()).status();
    done.is_ok_and(|status| status.success()).then_some(made)
}

fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["one", "two"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn placed(program: &Path, way: Way, fail_at: Option<usize>) -> (Output, Placed) {
    let (output, placed, _) = placed_as(program, way, fail_at);
    (output, placed)
}

/// With the number that the process had.
fn placed_as(program: &Path, way: Way, fail_at: Option<usize>) -> (Output, Placed, u32) {
    let mut command = command(program);
    prepare(&mut command).unwrap();
    let child = command.spawn().unwrap();
    let pid = child.id();
    let placed = place(pid, way, fail_at);
    (child.wait_with_output().unwrap(), placed, pid)
}

/// What stands in the way of these tests here.
fn skipped() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let why = if !status.contains("TracerPid:\t0") {
        "the test is traced"
    } else if !status.contains("Seccomp:\t0") {
        "the test runs under a seccomp filter"
    } else if std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
        .map_or(true, |e| e.contains("[never]"))
    {
        "there are no transparent huge pages here"
    } else {
        return false;
    };
    superpage_testing::skip!("system", "{why}");
    true
}

const KINDS: [(&str, &[&str]); 4] = [
    ("pie", &["-pie", "-fPIE"]),
    ("plain", &["-no-pie", "-fno-pie"]),
    ("static", &["-static", "-no-pie", "-fno-pie"]),
    ("static-pie", &["-static-pie", "-fPIE"]),
];

#[test]
fn programs_of_every_kind_run_as_before_from_remapped_code() {
    let _turn = superpage_testing::turn_of("text");
    if skipped() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, flags) in KINDS {
        let Some(program) = program(folder.path(), name, flags) else {
            superpage_testing::skip!("system", "no compiler makes a program of kind {name}");
            continue;
        };
        let before = command(&program).output().unwrap();
        assert_eq!(before.status.code(), Some(7));
        let (after, placed, pid) = placed_as(&program, Way::Remap, None);
        assert_eq!(after, before, "{name}: {placed:?}");
        let code: Vec<_> = placed.code.iter().filter(|code| code.path == program).collect();
        let [code] = code[..] else { panic!("{name}: {placed:?}") };
        if code.way.is_none() {
            superpage_testing::skip!("system", "the kernel has no huge pages now: {:?}", placed.notes);
            continue;
        }
        assert_eq!((code.way, code.huge_bytes), (Some(Way::Remap), code.range.end - code.range.start), "{name}");
        let map = placed.symbols(pid).unwrap().unwrap();
        let symbols = std::fs::read_to_string(map.path()).unwrap();
        assert!(symbols.lines().any(|line| line.ends_with(" second")), "{name}: {symbols}");
        let path = map.path().to_path_buf();
        drop(map);
        assert!(!path.exists());
    }
}

#[test]
fn by_file_it_is_the_file_that_is_mapped_huge() {
    let _turn = superpage_testing::turn_of("text");
    if skipped() {
        return;
    }
    // Not on a file system in memory.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let Some(program) = program(folder.path(), "plain", &["-no-pie", "-fno-pie"]) else {
        superpage_testing::skip!("cc", "no compiler");
        return;
    };
    // What is not written back yet cannot be read in again.
    std::fs::File::open(&program).unwrap().sync_all().unwrap();
    let before = command(&program).output().unwrap();
    let (after, placed) = placed(&program, Way::File, None);
    assert_eq!(after, before, "{placed:?}");
    let code = placed.code.iter().find(|code| code.path == program).unwrap();
    assert!(placed.symbols(0).unwrap().is_none());
    if code.way.is_none() {
        superpage_testing::skip!(
            "system",
            "the file system or the kernel has no huge pages for files: {:?}",
            placed.notes
        );
        return;
    }
    assert_eq!((code.way, code.huge_bytes % (2 << 20)), (Some(Way::File), 0), "{placed:?}");
}

#[test]
fn whatever_step_fails_the_program_runs_as_before() {
    let _turn = superpage_testing::turn_of("text");
    if skipped() {
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for ((name, flags), way) in KINDS.iter().flat_map(|kind| [(kind, Way::Auto), (kind, Way::Remap)]) {
        let Some(program) = program(folder.path(), name, flags) else {
            superpage_testing::skip!("system", "no compiler makes a program of kind {name}");
            continue;
        };
        let before = command(&program).output().unwrap();
        let (_, whole) = placed(&program, way, None);
        assert!(whole.steps >= 5, "{whole:?}");
        for step in 1..=whole.steps {
            let (after, placed) = placed(&program, way, Some(step));
            assert_eq!(after, before, "{name} by {way}, step {step} of {}: {placed:?}", whole.steps);
        }
    }
}

/// A command line that a shell runs, with its output, beside the same with its code placed.
fn launched(line: &str, way: Way, fail_at: Option<usize>) -> (Output, Output, Placed) {
    let shell = || {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        shell
    };
    let before = shell().spawn().unwrap();
    let mut command = shell();
    prepare(&mut command).unwrap();
    let child = command.spawn().unwrap();
    let placed = place(child.id(), way, fail_at);
    let ended = child.wait_with_output().unwrap();
    (before.wait_with_output().unwrap(), ended, placed)
}

#[test]
fn a_launcher_is_followed_to_its_program() {
    let _turn = superpage_testing::turn_of("text");
    if skipped() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(folder.path(), "pie", &["-pie", "-fPIE"]) else {
        superpage_testing::skip!("cc", "no compiler");
        return;
    };
    let name = program.display();
    let script = folder.path().join("script");
    std::fs::write(&script, format!("#!/usr/bin/env sh\nexec nice -n 1 {name} \"$@\"\n")).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let script = script.display();
    let lines = [
        format!("exec env A=b {name} one two"),
        format!("exec {script} one two"),
        // What it starts beside it is not traced, and signals reach it.
        format!("trap 'exec {name} one two' USR1; (sleep 0.1; kill -USR1 $$) & while :; do sleep 0.02; done"),
    ];
    let mut allowed = true;
    for line in &lines {
        // On a machine that others keep busy a launcher may take longer than it has.
        let followed = (0..5).any(|_| {
            let (before, after, placed) = launched(line, Way::Remap, None);
            assert_eq!((before.status.code(), &after), (Some(7), &before), "{line}: {placed:?}");
            allowed &= !placed.notes.iter().any(|note| note.contains("for root alone"));
            placed.code.iter().any(|code| code.path == program)
        });
        if !allowed {
            superpage_testing::skip!("system", "this user may not follow a launcher");
            return;
        }
        assert!(followed, "{line}");
    }
    let (_, _, whole) = launched(&lines[0], Way::Remap, None);
    for step in 1..=whole.steps {
        let (before, after, placed) = launched(&lines[0], Way::Remap, Some(step));
        assert_eq!(after, before, "step {step} of {}: {placed:?}", whole.steps);
    }
    // One that takes its time, and one that executes nothing, run on as they were.
    let slow = [
        format!("sleep 1.6; exec {name} one two"),
        "(sleep 1.6; kill -STOP $$; kill -CONT $$) & sleep 2; exit 7".to_string(),
    ];
    for line in slow {
        let (before, after, placed) = launched(&line, Way::Remap, None);
        assert_eq!((before.status.code(), &after), (Some(7), &before), "{line}: {placed:?}");
        assert!(placed.code.is_empty(), "{placed:?}");
        assert!(placed.notes.iter().any(|note| note.contains("within a second")), "{placed:?}");
    }
}

#[test]
fn what_cannot_be_placed_is_said_and_runs() {
    let _turn = superpage_testing::turn_of("text");
    if skipped() {
        return;
    }
    // A program without enough code; one that ends by a signal; one that does not exist.
    let (after, placed) = placed(Path::new("/bin/echo"), Way::Auto, None);
    assert_eq!(String::from_utf8_lossy(&after.stdout), "one two\n");
    assert!(placed.code.is_empty() && placed.notes.iter().any(|note| note.contains("no code")), "{placed:?}");
    let mut absent = command(Path::new("/nowhere/at/all"));
    prepare(&mut absent).unwrap();
    assert_eq!(absent.spawn().unwrap_err().kind(), std::io::ErrorKind::NotFound);
    // One that was not made ready is not stopped, and not harmed.
    let mut child = Command::new("sleep").arg("0.2").spawn().unwrap();
    let placed = place(child.id(), Way::Auto, None);
    assert!(child.wait().unwrap().success() && placed.notes[0].contains("cannot be traced"), "{placed:?}");
    // One with rights of its own is refused.
    let folder = tempfile::tempdir().unwrap();
    let privileged = folder.path().join("echo");
    std::fs::copy("/bin/echo", &privileged).unwrap();
    std::fs::set_permissions(&privileged, std::os::unix::fs::PermissionsExt::from_mode(0o4755)).unwrap();
    let error = prepare(&mut command(&privileged)).unwrap_err();
    assert!(error.to_string().contains("set-user-ID"), "{error}");
}

#[test]
fn threads_signals_and_large_programs_do_not_mind() {
    let _turn = superpage_testing::turn_of("text");
    if skipped() {
        return;
    }
    let script = "const {Worker, isMainThread} = require('worker_threads');\
                  if (isMainThread) { let n = 0; for (let i = 0; i < 3; i++) new Worker(__filename).on('exit', () => { \
                  if (++n == 3) console.log('done', [3, 1, 2].sort().join()) }); } \
                  else { let s = 0; for (let i = 0; i < 1e6; i++) s += i % 7; }";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("threads.js");
    std::fs::write(&file, script).unwrap();
    for way in [Way::Auto, Way::Remap] {
        let mut node = Command::new("node");
        node.arg(&file).stdout(Stdio::piped());
        prepare(&mut node).unwrap();
        let Ok(child) = node.spawn() else {
            superpage_testing::skip!("node", "node is not installed");
            return;
        };
        let placed = place(child.id(), way, None);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{way}: {:?} {placed:?}", output.status);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "done 1,2,3\n", "{way}: {placed:?}");
    }
}
