//! The verb `split`, from outside.
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// Fills 8 MB in huge pages; answers each line with whether they still hold what was written.
const PROGRAM: &str = "import mmap, sys\n\
    m = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
    m.madvise(mmap.MADV_HUGEPAGE)\n\
    pattern = bytes(range(251)) * (len(m) // 251 + 1)\n\
    m[:] = pattern[:len(m)]\nprint('ready', flush=True)\n\
    for line in sys.stdin: print(m[:] == pattern[:len(m)], flush=True)\n";

/// Where it is mounted already, mounting it again fails.
const DEBUGFS: &str = "{ mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug; }";

/// In namespaces of mounts and processes of their own, with debugfs or without it.
fn split(debugfs: &str, which: &str) -> (Option<i32>, String, String) {
    let script = format!("{debugfs} && exec \"$0\" split {which}");
    let mut command = Command::new("unshare");
    let output = command.args(["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_superpage")]).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn memory_is_in_base_pages_then_and_holds_what_it_held() {
    let _turn = superpage_testing::turn_of("split");
    let mut command = Command::new("python3");
    command.args(["-c", PROGRAM]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut program) = command.spawn() else {
        return superpage_testing::skip!("python3", "python3 is not installed");
    };
    let mut answers = BufReader::new(program.stdout.take().unwrap()).lines();
    let ready = answers.next().is_some_and(|line| line.unwrap() == "ready");
    let huge = || -> u64 {
        let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", program.id())).unwrap();
        let line = rollup.lines().find_map(|line| line.strip_prefix("AnonHugePages:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    let before = if ready { huge() } else { 0 };
    let (status, stdout, stderr) = split(DEBUGFS, &program.id().to_string());
    let after = if ready { huge() } else { 0 };
    let mut stdin = program.stdin.take().unwrap();
    let asked = writeln!(stdin, "?");
    let kept = answers.next();
    drop(stdin);
    let _ = program.wait();
    if !ready || before == 0 || status != Some(0) {
        superpage_testing::skip!("debugfs", "nothing can be split here: {before} kB are huge; {stderr}");
        return;
    }
    assert_eq!((after, stderr.as_str()), (0, ""), "{stdout}");
    assert!(asked.is_ok() && kept.unwrap().unwrap() == "True");
    let row = stdout.lines().last().unwrap();
    assert!(row.contains("python3") && row.trim_end().ends_with('0') && stdout.contains("huge before"), "{stdout}");
}

#[test]
fn without_debugfs_or_a_process_it_is_one_sentence() {
    let _turn = superpage_testing::turn_of("split");
    let (status, stdout, stderr) = split("mount -t tmpfs none /sys/kernel/debug", "1");
    if stderr.starts_with("unshare: ") || stderr.contains("mount: ") {
        superpage_testing::skip!("root", "{stderr}");
        return;
    }
    assert_eq!((status, stdout.as_str(), stderr.lines().count()), (Some(1), "", 1), "{stderr}");
    assert!(stderr.contains("cannot be split here") && stderr.contains("mount -t debugfs"), "{stderr}");
    for which in ["4000000", "no-such-program-here"] {
        let (status, _, stderr) = split(DEBUGFS, which);
        if status != Some(1) {
            assert_eq!((status, stderr.lines().count()), (Some(2), 1), "{which}: {stderr}");
        }
    }
}
