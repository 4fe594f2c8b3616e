//! `superpage run`, from outside: what the command gets, what its caller sees, and that the
//! system's settings are as they were after every way to end.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use superpage_linux::settings::{HUGETLB_OVERCOMMIT, HUGETLB_POOL, Settings, System, THP_ENABLED};

pub(crate) const SUPERPAGE: &str = env!("CARGO_BIN_EXE_superpage");
const SETTINGS: [&str; 5] = [
    THP_ENABLED,
    "sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled",
    "sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled",
    HUGETLB_POOL,
    HUGETLB_OVERCOMMIT,
];

fn run(policy: &str, command: &[&str]) -> Command {
    let mut run = Command::new(SUPERPAGE);
    run.args(["run", "--policy", policy, "--"]).args(command).stdin(Stdio::null());
    run.stdout(Stdio::piped()).stderr(Stdio::piped());
    run
}

fn output(command: &mut Command) -> Output {
    command.output().expect("the command can be started")
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The lines on standard error.
pub(crate) fn lines(output: &Output) -> Vec<String> {
    String::from_utf8(output.stderr.clone()).unwrap().lines().map(str::to_string).collect()
}

/// The lines on standard error, but for those that are about other calls of superpage at the same
/// time.
pub(crate) fn sentences(output: &Output) -> Vec<String> {
    let others = ["superpage: waiting until", "superpage: put back what"];
    let mut lines = lines(output);
    lines.retain(|line| !others.iter().any(|other| line.starts_with(other)));
    lines
}

/// The settings of this system while nobody has changed them: `None` after a message where this
/// user cannot lock them.
fn settings() -> Option<Vec<Option<String>>> {
    match Settings::take(true) {
        Ok(settings) => Some(SETTINGS.map(|setting| settings.system().get(setting).ok()).to_vec()),
        Err(error) => {
            superpage_testing::skip!("system", "{error}");
            None
        }
    }
}

/// This system for one test at a time, with the settings as they have to be in the end.
struct Live {
    before: Vec<Option<String>>,
    _only: MutexGuard<'static, ()>,
}

/// One test at a time: each call of superpage puts back what a killed one has left, also one that
/// another test watches.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ONLY: Mutex<()> = Mutex::new(());
    ONLY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Live {
    /// `None` after a message where this user or this kernel cannot change settings.
    fn take() -> Option<Live> {
        let only = alone();
        if let Err(error) = System::live().get(THP_ENABLED) {
            superpage_testing::skip!("system", "{error}");
            return None;
        }
        let writable = fs::OpenOptions::new().write(true).open(System::live().path(THP_ENABLED));
        if let Err(error) = writable {
            superpage_testing::skip!("system", "the settings of this system cannot be changed: {error}");
            return None;
        }
        Some(Live { before: settings()?, _only: only })
    }

    fn is_as_it_was(&self) {
        assert_eq!(settings().as_ref(), Some(&self.before));
    }
}

/// The next line of a running command.
fn line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::with_capacity(1, child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line.trim_end().to_string()
}

fn signal(child: &Child, signal: &str) {
    assert!(Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn a_policy_that_made_nothing_huge_is_not_advised() {
    let Some(live) = Live::take() else { return };
    let _turn = superpage_testing::turn_of("run");
    let mut command = Command::new(SUPERPAGE);
    let output = output(command.args(["run", "-v", "--policy", "thp", "--", "sleep", "0.2"]));
    live.is_as_it_was();
    let said = String::from_utf8(output.stderr).unwrap();
    if !said.contains("0 B of ") {
        return superpage_testing::skip!("system", "nothing was counted of a program of 0.2 s: {said}");
    }
    assert!(!said.contains("echo always"), "{said}");
}

/// Says `ready` and waits for half a minute; a TERM, an INT or a USR1 makes it end with a status of
/// its own.
const WAITING: &str = "trap 'exit 15' TERM; trap 'exit 2' INT; trap 'exit 10' USR1; cat /sys/kernel/mm/transparent_hugepage/enabled; \
                       echo ready; i=0; while [ $i -lt 600 ]; do i=$((i+1)); sleep 0.05; done; exit 99";

#[test]
fn the_status_of_the_command_is_passed_on() {
    let _turn = superpage_testing::turn_of("run");
    let _alone = alone();
    for (script, code) in
        [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -TERM $$", 143), ("kill -KILL $$", 137)]
    {
        let output = output(&mut run("base", &["sh", "-c", script]));
        assert_eq!(output.status.code(), Some(code), "{script}");
        assert!(sentences(&output).is_empty());
    }
    for (program, code) in [("no-such-program-anywhere", 127), ("/dev", 126)] {
        let output = output(&mut run("base", &[program]));
        assert_eq!(output.status.code(), Some(code));
        let sentences = sentences(&output);
        assert_eq!(sentences.len(), 1);
        assert!(sentences[0].starts_with(&format!("superpage: cannot run {program}: ")), "{sentences:?}");
    }
    assert_eq!(output(&mut run("reservation", &["true"])).status.code(), Some(2));
    assert_eq!(output(&mut run("base", &[])).status.code(), Some(2));
}

/// What a command needs is looked at when the one before it has put its settings back, not when the
/// waiting for that began.
#[test]
fn what_a_policy_needs_is_looked_at_after_the_waiting() {
    let _turn = superpage_testing::turn_of("run");
    let Some(live) = Live::take() else { return };
    let other = System::live().path("sys/kernel/mm/transparent_hugepage/hugepages-32kB/enabled");
    let chosen = || fs::read_to_string(&other).map(|text| text.split(['[', ']']).nth(1).unwrap_or("").to_string());
    let Ok(before) = chosen() else {
        return superpage_testing::skip!("system", "this kernel has no folios of 32 KB");
    };
    fs::write(&other, "always").unwrap();
    let mut first = run("mthp:size=2M", &["sh", "-c", WAITING]).spawn().unwrap();
    while line(&mut first) != "ready" {}
    assert_eq!(chosen().unwrap(), "madvise", "folios of 2 MB, and no others");
    let mut second = run("mthp:size=64K", &["cat", other.to_str().unwrap()]).spawn().unwrap();
    let mut told = String::new();
    BufReader::with_capacity(1, second.stderr.as_mut().unwrap()).read_line(&mut told).unwrap();
    signal(&first, "TERM");
    assert_eq!(first.wait().unwrap().code(), Some(15));
    let second = second.wait_with_output().unwrap();
    let after = chosen().unwrap();
    fs::write(&other, before).unwrap();
    assert!(told.starts_with("superpage: waiting until"), "{told}");
    assert_eq!((stdout(&second).as_str(), after.as_str()), ("always inherit [madvise] never\n", "always"));
    live.is_as_it_was();
}

#[test]
fn the_streams_are_those_of_the_command() {
    let _turn = superpage_testing::turn_of("run");
    let _alone = alone();
    let mut child = run("base", &["sh", "-c", "cat; echo problem >&2"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"one\0two\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"one\0two\n"[..], &b"problem\n"[..]));
    // Signals are as the caller has them: not blocked, none caught, and what was ignored is.
    let masks = ["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"];
    let plain = Command::new(masks[0]).args(&masks[1..]).output().unwrap();
    assert_eq!(stdout(&self::output(&mut run("base", &masks))), stdout(&plain));
    let ignoring =
        format!("trap '' HUP INT; exec {SUPERPAGE} run --policy base -- {} '{}' {}", masks[0], masks[2], masks[3]);
    let ignored = Command::new("sh").args(["-c", &ignoring.replace("'^", "-E '^")]).output().unwrap();
    let line = stdout(&ignored).lines().find_map(|line| line.strip_prefix("SigIgn:").map(str::to_string)).unwrap();
    assert_eq!(u64::from_str_radix(line.trim(), 16).unwrap() & 3, 3, "SIGHUP and SIGINT stay ignored");
}

#[test]
fn base_switches_huge_pages_off_for_the_command_and_its_children() {
    let _turn = superpage_testing::turn_of("run");
    let _alone = alone();
    let output = output(&mut run("base", &["sh", "-c", "sh -c 'grep THP_enabled /proc/self/status; true'"]));
    match stdout(&output).as_str() {
        "" => superpage_testing::skip!("system", "this kernel does not tell"),
        text => assert_eq!(text, "THP_enabled:\t0\n"),
    }
    let nested = [SUPERPAGE, "run", "--policy", "thp:malloc=on", "--", "grep", "THP_enabled", "/proc/self/status"];
    let nested = self::output(&mut run("base", &nested));
    if nested.status.success() {
        assert_eq!(stdout(&nested), "THP_enabled:\t1\n");
    }
}

#[test]
fn what_a_policy_sets_is_there_for_the_command_and_gone_afterwards() {
    let _turn = superpage_testing::turn_of("run");
    let Some(live) = Live::take() else { return };
    let show = |policy: &str, file: &str| {
        let output = output(run(policy, &["cat", file]).env("GLIBC_TUNABLES", "glibc.malloc.check=0"));
        assert_eq!(output.status.code(), Some(0), "{:?}", sentences(&output));
        assert!(sentences(&output).is_empty(), "{:?}", sentences(&output));
        stdout(&output)
    };
    assert!(show("thp", "/sys/kernel/mm/transparent_hugepage/enabled").contains("[always]"));
    let folios = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled";
    if Path::new(folios).exists() {
        assert!(show("mthp:size=64K", folios).contains("[always]"));
    }
    for policy in ["thp:malloc=on", "hugetlb:pool=8M"] {
        if policy.starts_with("hugetlb") && !Path::new("/proc/sys/vm/nr_hugepages").exists() {
            continue;
        }
        let value = if policy.starts_with("thp") { 1 } else { 2 };
        let output = output(run(policy, &["printenv", "GLIBC_TUNABLES"]).env("GLIBC_TUNABLES", "glibc.malloc.check=0"));
        assert_eq!(stdout(&output), format!("glibc.malloc.check=0:glibc.malloc.hugetlb={value}\n"), "{policy}");
    }
    if Path::new("/proc/sys/vm/nr_hugepages").exists() {
        assert_eq!(show("hugetlb:pool=8M", "/proc/sys/vm/nr_hugepages"), "4\n");
        assert_ne!(show("hugetlb", "/proc/sys/vm/nr_overcommit_hugepages"), "0\n");
    }
    live.is_as_it_was();
}

#[test]
fn signals_reach_the_command_and_the_settings_are_put_back() {
    let _turn = superpage_testing::turn_of("run");
    let Some(live) = Live::take() else { return };
    for (name, code) in [("TERM", 15), ("INT", 2), ("USR1", 10), ("HUP", 129)] {
        let mut child = run("thp", &["sh", "-c", WAITING]).spawn().unwrap();
        assert!(line(&mut child).contains("[always]"));
        assert_eq!(line(&mut child), "ready");
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{name}");
        assert!(sentences(&output).is_empty(), "{:?}", sentences(&output));
        live.is_as_it_was();
    }
}

/// A signal that waits while a command cannot be started ends superpage, but not before the
/// settings are as they were.
#[test]
fn a_signal_during_a_start_that_fails_leaves_no_settings_behind() {
    let _turn = superpage_testing::turn_of("run");
    let Some(_live) = Live::take() else { return };
    let now = || fs::read_to_string(System::live().path(THP_ENABLED)).unwrap();
    let before = now();
    if before.contains("[always]") {
        return superpage_testing::skip!("system", "the policy changes nothing here");
    }
    // So many folders that the search takes a while.
    let path = "/proc/self/no/such/folder/anywhere:".repeat(3500);
    let mut child = run("thp", &["no-such-program-anywhere"]).env("PATH", &path).spawn().unwrap();
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !now().contains("[always]") && child.try_wait().unwrap().is_none() {
        assert!(std::time::Instant::now() < patience);
    }
    signal(&child, "TERM");
    let ended = child.wait().unwrap();
    assert_eq!(now(), before, "after {ended}");
}

#[test]
fn signals_reach_the_command_where_its_session_began_elsewhere() {
    let _turn = superpage_testing::turn_of("run");
    let _alone = alone();
    // In a namespace of processes that was entered, as a container's, the leader of the session has
    // no number.
    let script =
        "trap 'exit 20' HUP; (kill -HUP $PPID); i=0; while [ $i -lt 200 ]; do i=$((i+1)); sleep 0.05; done; exit 99";
    let mut inside = Command::new("unshare");
    inside.args(["-p", "-f", SUPERPAGE, "run", "--policy", "base", "--", "sh", "-c", script]).stdin(Stdio::null());
    match inside.output() {
        Ok(output) if !lines(&output).iter().any(|line| line.starts_with("unshare: ")) => {
            assert_eq!(output.status.code(), Some(20), "{:?}", lines(&output));
        }
        _ => superpage_testing::skip!("system", "no namespace of processes can be had here"),
    }
}

#[test]
fn what_the_command_leaves_running_is_waited_for_if_asked() {
    let _turn = superpage_testing::turn_of("run");
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("late");
    let script = format!("setsid sh -c 'sleep 0.4; touch {}' >/dev/null 2>&1 & exit 3", file.display());
    let run = |options: &[&str]| {
        let mut run = Command::new(SUPERPAGE);
        run.arg("run").args(options).args(["--policy", "base", "--", "sh", "-c", &script]).stdin(Stdio::null());
        output(&mut run)
    };
    let output = run(&["--wait", "-v"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(file.exists());
    let waited = sentences(&output);
    assert!(waited[0].starts_with("superpage: base: ") && waited.len() == 2, "{waited:?}");
    assert!(waited[1].starts_with("superpage: at most ") && waited[1].contains(" resident"), "{waited:?}");
    fs::remove_file(&file).unwrap();
    let output = run(&["-v"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(!file.exists());
    let left = sentences(&output);
    assert!(left.last().unwrap().contains("still run; --wait waits for them"), "{left:?}");
    for _ in 0..500 {
        if file.exists() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("what runs on has not ended");
}

#[test]
fn what_a_policy_left_alone_is_said() {
    let _turn = superpage_testing::turn_of("run");
    let _only = alone();
    let done = output(&mut run("promote", &["sh", "-c", "sleep 1 >&- 2>&- & exit 0"]));
    let told = sentences(&done);
    if done.status.code() == Some(1) {
        superpage_testing::skip!("system", "{told:?}");
        return;
    }
    let [left] = &told[..] else { panic!("{told:?}") };
    // Before its exec the child has the name of the shell.
    let named = ["sleep", "sh"].map(|name| format!("superpage: the command has left {name} ("));
    assert!(named.iter().any(|start| left.starts_with(start)), "{left}");
    assert!(left.ends_with("where nothing more is promoted while they still run; --wait waits for them"), "{left}");

    let script = "import ctypes, mmap, time\nctypes.CDLL(None).prctl(41, 1, 0, 0, 0)\n\
                  m = mmap.mmap(-1, 24 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
                  m[:] = b'1' * len(m)\ntime.sleep(3)";
    let mut verbose = Command::new(SUPERPAGE);
    verbose.args(["run", "-v", "--policy", "promote", "--", "python3", "-c", script]);
    let told = sentences(&output(&mut verbose));
    if told.iter().any(|line| line.contains("cannot run python3")) {
        superpage_testing::skip!("system", "{told:?}");
        return;
    }
    let why = "is left alone: the process disabled huge pages by prctl";
    assert!(told.iter().any(|line| line.ends_with(why)), "{told:?}");
}

#[test]
fn promote_makes_settled_memory_huge() {
    let _turn = superpage_testing::turn_of("run");
    let _alone = alone();
    // A program of 64 MB in small pieces, which waits for its input to end.
    let script = "(head -c 67108864 /dev/zero; sleep 1.5) | tail -c 67108864 >/dev/null; exit 5";
    let output = output(&mut run("promote:age=100ms,interval=50ms,cpu=0.5", &["sh", "-c", script]));
    match output.status.code() {
        Some(5) => assert!(sentences(&output).is_empty(), "without -v nothing is said: {:?}", sentences(&output)),
        _ => {
            superpage_testing::skip!("system", "{:?}", sentences(&output));
            return;
        }
    }
    let mut verbose = Command::new(SUPERPAGE);
    let policy = "promote:age=100ms,interval=50ms,cpu=0.5";
    let output = self::output(verbose.args(["run", "-v", "--policy", policy, "--", "sh", "-c", script]));
    let sentences = sentences(&output);
    let promoted = sentences.iter().find_map(|line| line.strip_prefix("superpage: promoted ")).expect("a line");
    let bytes = promoted.split(" of memory").next().unwrap();
    assert!(bytes.ends_with(" MB"), "{sentences:?}");
    // Where nothing came of it, the reason is said.
    let mut verbose = Command::new(SUPERPAGE);
    let policy = "promote:age=1h,interval=50ms,cpu=0.5";
    let output = self::output(verbose.args(["run", "-v", "--policy", policy, "--", "sh", "-c", script]));
    let reason = "regions were populated enough to be promoted, but none had been unchanged for 3600s";
    assert!(self::sentences(&output).iter().any(|line| line.contains(reason)), "{:?}", self::sentences(&output));
}

#[test]
fn an_interrupt_from_the_terminal_reaches_the_command_once() {
    let _turn = superpage_testing::turn_of("run");
    let _alone = alone();
    if Command::new("script").arg("--version").output().is_err() {
        superpage_testing::skip!("script", "there is no script(1) to make a terminal");
        return;
    }
    let count =
        "trap 'n=$((n+1))' INT; n=0; echo ready; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.05; done; echo got $n";
    let inside = format!("{SUPERPAGE} run --policy base -- sh -c \"{}\"", count.replace('$', "\\$"));
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &inside, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped()).env("SHELL", "/bin/sh");
    let mut terminal = terminal.spawn().unwrap();
    assert_eq!(line(&mut terminal), "ready");
    let mut keyboard = terminal.stdin.take().unwrap();
    keyboard.write_all(b"\x03").unwrap();
    let mut rest = String::new();
    terminal.stdout.take().unwrap().read_to_string(&mut rest).unwrap();
    assert!(rest.contains("got 1"), "{rest}");
    terminal.wait().unwrap();
}

#[test]
fn a_terminal_that_goes_away_ends_the_command() {
    let _turn = superpage_testing::turn_of("run");
    let _alone = alone();
    if Command::new("script").arg("--version").output().is_err() {
        superpage_testing::skip!("script", "there is no script(1) to make a terminal");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ended");
    let program = folder.path().join("command");
    fs::write(
        &program,
        "trap 'echo >\"$1\"; exit 1' HUP; echo ready; i=0; while [ $i -lt 600 ]; do i=$((i+1)); sleep 0.05; done",
    )
    .unwrap();
    // The shell of script(1) is replaced, so superpage leads the session of the terminal.
    let inside = format!("exec {SUPERPAGE} run --policy base -- sh {} {}", program.display(), file.display());
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &inside, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped()).env("SHELL", "/bin/sh");
    let mut terminal = terminal.spawn().unwrap();
    assert_eq!(line(&mut terminal), "ready");
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    for _ in 0..500 {
        if file.exists() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("the command has not heard of it");
}

/// What another superpage has set for a while is not what the system has.
#[test]
fn inspect_goes_by_the_settings_that_last() {
    let _turn = superpage_testing::turn_of("run");
    let Some(live) = Live::take() else { return };
    let before = live.before[0].clone().unwrap();
    if before == "always" {
        return superpage_testing::skip!("system", "thp changes nothing where enabled is always");
    }
    let mut child = run("thp", &["sh", "-c", WAITING]).spawn().unwrap();
    while line(&mut child) != "ready" {}
    let own = std::process::id().to_string();
    let [process, system, json] = [&[own.as_str()][..], &["--system"], &["--format", "json", &own]]
        .map(|arguments| output(Command::new(SUPERPAGE).args(["inspect", "--wide"]).args(arguments)));
    signal(&child, "TERM");
    child.wait().unwrap();
    let note = format!("process {} of superpage has other settings in force for now, and puts back ", child.id());
    for output in [process, system] {
        let text = stdout(&output);
        let note = text.lines().find(|line| line.contains(&note)).unwrap_or_else(|| panic!("{text}"));
        assert!(note.contains(&format!("enabled={before}")), "{note}");
    }
    assert!(lines(&json).iter().any(|line| line.contains(&note)), "{:?}", lines(&json));
    let rows: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let reasons = rows.as_array().unwrap().iter().flat_map(|row| row["reasons"].as_array().unwrap());
    let private = |reason: &&serde_json::Value| reason["text"].as_str().unwrap().starts_with("enabled=");
    let words: Vec<String> = reasons.filter(private).map(|reason| reason["text"].to_string()).collect();
    assert!(words.iter().all(|text| text.contains(&before)), "{words:?}");
    live.is_as_it_was();
}

#[test]
fn the_call_after_a_kill_puts_the_settings_back() {
    let _turn = superpage_testing::turn_of("run");
    let Some(live) = Live::take() else { return };
    let mut child = run("thp", &["sh", "-c", WAITING]).spawn().unwrap();
    assert!(line(&mut child).contains("[always]"));
    let command = superpage_linux::tree::children(child.id() as i32);
    signal(&child, "KILL");
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    let next = output(&mut run("base", &["true"]));
    assert_eq!(next.status.code(), Some(0));
    // Unless another call of superpage on this system has done it in between.
    for sentence in lines(&next) {
        assert!(sentence.contains(&format!("put back what process {} had changed", child.id())), "{sentence}");
    }
    for pid in command {
        Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    }
    live.is_as_it_was();
}

#[test]
fn a_call_inside_another_does_not_wait_for_it() {
    let _turn = superpage_testing::turn_of("run");
    let Some(live) = Live::take() else { return };
    let inner = |policy: &str| output(&mut run("thp", &[SUPERPAGE, "run", "-p", policy, "--", "echo", "started"]));
    let same = inner("thp");
    assert_eq!((same.status.code(), stdout(&same).as_str()), (Some(0), "started\n"), "{:?}", sentences(&same));
    if Path::new("/proc/sys/vm/nr_hugepages").exists() {
        let other = inner("hugetlb");
        assert_eq!((other.status.code(), stdout(&other).as_str()), (Some(1), ""));
        assert!(sentences(&other)[0].contains("which has started this one"), "{:?}", sentences(&other));
    }
    live.is_as_it_was();
}

#[test]
fn a_program_that_is_not_there_leaves_nothing_changed() {
    let _turn = superpage_testing::turn_of("run");
    let Some(live) = Live::take() else { return };
    let output = output(&mut run("thp", &["no-such-program-anywhere"]));
    assert_eq!(output.status.code(), Some(127));
    assert_eq!(sentences(&output).len(), 1);
    live.is_as_it_was();
}

#[test]
fn a_pool_that_cannot_be_had_is_an_error() {
    let _turn = superpage_testing::turn_of("run");
    let Some(live) = Live::take() else { return };
    if !Path::new("/proc/sys/vm/nr_hugepages").exists() {
        superpage_testing::skip!("system", "this kernel has no hugetlb");
        return;
    }
    let output = output(&mut run("hugetlb:pool=1024T", &["echo", "started"]));
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""));
    let sentences = sentences(&output);
    assert_eq!(sentences.len(), 1, "{sentences:?}");
    assert!(sentences[0].contains("ask for a smaller one"), "{sentences:?}");
    live.is_as_it_was();
}

#[test]
fn a_user_without_rights_is_told_what_needs_them() {
    let _turn = superpage_testing::turn_of("run");
    let Some(live) = Live::take() else { return };
    // A place from which that user may run it.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("superpage");
    fs::copy(SUPERPAGE, &copy).unwrap();
    let nobody = |policy: &str| {
        let mut run = Command::new(&copy);
        run.args(["run", "--policy", policy, "--", "echo", "started"]).uid(65534).gid(65534);
        output(run.env_remove("SUPERPAGE_RUN_DIR"))
    };
    let refused = nobody("thp");
    assert_eq!((refused.status.code(), stdout(&refused).as_str()), (Some(1), ""));
    let sentence = sentences(&refused);
    assert_eq!(sentence.len(), 1, "{sentence:?}");
    assert!(sentence[0].contains("would have to be always for the whole system, but only root may"), "{sentence:?}");
    let base = nobody("base");
    assert_eq!((base.status.code(), stdout(&base).as_str(), sentences(&base).len()), (Some(0), "started\n", 0));
    live.is_as_it_was();
}
