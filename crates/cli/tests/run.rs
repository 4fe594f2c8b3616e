//! `superpage run`, from outside: what the command gets, what its caller sees, and that the system's settings are as they
//! were after every way to end.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use superpage_linux::settings::{HUGETLB_OVERCOMMIT, HUGETLB_POOL, Settings, System, THP_ENABLED};

const SUPERPAGE: &str = env!("CARGO_BIN_EXE_superpage");
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

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The lines on standard error.
fn lines(output: &Output) -> Vec<String> {
    String::from_utf8(output.stderr.clone()).unwrap().lines().map(str::to_string).collect()
}

/// The lines on standard error, but for those that are about other calls of superpage at the same time.
fn sentences(output: &Output) -> Vec<String> {
    let others = ["superpage: waiting until", "superpage: put back what"];
    let mut lines = lines(output);
    lines.retain(|line| !others.iter().any(|other| line.starts_with(other)));
    lines
}

/// The settings of this system while nobody has changed them: `None` after a message where this user cannot lock them.
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

/// One test at a time: each call of superpage puts back what a killed one has left, also one that another test watches.
fn alone() -> MutexGuard<'static, ()> {
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

/// Says `ready` and waits for half a minute; a TERM, an INT or a USR1 makes it end with a status of its own.
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

/// What a command needs is looked at when the one before it has put its settings back, not when the waiting for that began.
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

/// A signal that waits while a command cannot be started ends superpage, but not before the settings are as they were.
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
    // In a namespace of processes that was entered, as a container's, the leader of the session has no number.
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

/// Runs superpage in a mount namespace of its own, after a script that changes what is mounted. `None` after a message
/// where that is not allowed.
fn inside(mounts: &str, folder: &Path, arguments: &[&str]) -> Option<Output> {
    let namespace = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script, "sh", SUPERPAGE]).args(arguments);
        command.env("SUPERPAGE_RUN_DIR", folder.join("run")).stdin(Stdio::null());
        command.output()
    };
    match namespace("mount -t tmpfs none /mnt") {
        Ok(output) if output.status.success() => {}
        _ => {
            superpage_testing::skip!("system", "no mount namespace can be had here");
            return None;
        }
    }
    Some(namespace(&format!("set -e; {mounts}; exec \"$@\"")).unwrap())
}

/// A tree of settings made of files, in the place of the kernel's.
const FILES: &str = "mount -t tmpfs none /sys/kernel/mm; cd /sys/kernel/mm; mkdir -p transparent_hugepage; \
                     [ -e \"$SUPERPAGE_RUN_DIR/enabled\" ] || { mkdir -p $SUPERPAGE_RUN_DIR; echo madvise >$SUPERPAGE_RUN_DIR/enabled; }; \
                     touch transparent_hugepage/enabled; mount --bind $SUPERPAGE_RUN_DIR/enabled transparent_hugepage/enabled";

#[test]
fn a_kernel_without_huge_pages_and_a_container_without_sys_are_told() {
    let _turn = superpage_testing::turn_of("run");
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    for mounts in ["mount -t tmpfs none /sys/kernel/mm", "mount -t tmpfs none /sys"] {
        for policy in ["thp", "thp:malloc=on", "mthp:size=64K"] {
            let arguments = ["run", "--policy", policy, "--", "echo", "started"];
            let Some(output) = inside(mounts, folder.path(), &arguments) else { return };
            assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""), "{policy}");
            let sentences = sentences(&output);
            assert_eq!(sentences.len(), 1, "{sentences:?}");
            assert!(
                sentences[0].starts_with("superpage: this system has no /sys/kernel/mm/transparent_hugepage/enabled")
            );
        }
        let Some(base) = inside(mounts, folder.path(), &["run", "-p", "base", "--", "echo", "started"]) else { return };
        assert_eq!((base.status.code(), stdout(&base).as_str()), (Some(0), "started\n"));
        assert!(base.stderr.is_empty(), "{:?}", sentences(&base));
    }
    let Some(none) = inside("mount -t tmpfs none /proc/sys/vm", folder.path(), &["run", "-p", "hugetlb", "--", "true"])
    else {
        return;
    };
    assert_eq!(none.status.code(), Some(1));
    assert!(sentences(&none)[0].starts_with("superpage: this system has no /proc/sys/vm/nr_hugepages"));
    assert!(!folder.path().join("run").exists(), "nothing had to be locked");
}

#[test]
fn a_system_whose_settings_cannot_be_written_is_told() {
    let _turn = superpage_testing::turn_of("run");
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let mounts = format!("{FILES}; mount -o remount,bind,ro transparent_hugepage/enabled; cd /");
    let Some(output) = inside(&mounts, folder.path(), &["run", "--policy", "thp", "--", "echo", "started"]) else {
        return;
    };
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""), "{:?}", sentences(&output));
    let sentences = sentences(&output);
    assert_eq!(sentences.len(), 1, "{sentences:?}");
    assert!(sentences[0].contains("cannot set /sys/kernel/mm/transparent_hugepage/enabled to always"), "{sentences:?}");
    assert!(!folder.path().join("run/settings.json").exists());
}

/// A setting of shared memory at `never`, made of a file.
const SHMEM: &str = "mkdir -p $SUPERPAGE_RUN_DIR; echo never >$SUPERPAGE_RUN_DIR/shmem; \
                     mount --bind $SUPERPAGE_RUN_DIR/shmem /sys/kernel/mm/transparent_hugepage/shmem_enabled";
/// In the command: from now on nobody can set it.
const READ_ONLY: &str = "mount -o remount,bind,ro /sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// Neither at the end of the command, nor when it has mapped its memory, after 10 s.
#[test]
fn a_setting_that_cannot_be_put_back_harms_no_command() {
    let _turn = superpage_testing::turn_of("run");
    let _alone = alone();
    for (more, said) in [("", "first\n"), ("sleep 11; echo later; ", "first\nlater\n")] {
        let folder = tempfile::tempdir().unwrap();
        let script = format!("{READ_ONLY} && echo first; {more}exit 7");
        let arguments = ["run", "--policy", "promote", "--", "sh", "-c", &script];
        let Some(output) = inside(SHMEM, folder.path(), &arguments) else { return };
        let lines = lines(&output);
        if output.status.code() == Some(1) && lines.iter().any(|line| line.contains("promot")) {
            return superpage_testing::skip!("system", "{lines:?}");
        }
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(7), said), "{lines:?}");
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].starts_with("superpage: cannot set /sys/kernel/mm/transparent_hugepage/shmem_enabled to never")
        );
        assert!(lines[0].ends_with("the next call of any live verb of superpage tries again"), "{lines:?}");
        let file = folder.path().join("run/shmem");
        assert_eq!(fs::read_to_string(&file).unwrap(), "advise");
        let again = "mount --bind $SUPERPAGE_RUN_DIR/shmem /sys/kernel/mm/transparent_hugepage/shmem_enabled";
        inside(again, folder.path(), &["run", "--policy", "base", "--", "true"]).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "never");
    }
}

/// The second command starts while the first has the setting, and maps its memory after the first has ended.
#[test]
fn a_second_command_has_the_setting_of_shared_memory_as_long_as_it_needs() {
    let _turn = superpage_testing::turn_of("run");
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "word=/sys/kernel/mm/transparent_hugepage/shmem_enabled; {SUPERPAGE} run -p promote -- sleep 3 & sleep 1; cat $word; \
         {SUPERPAGE} run -v -p promote -- sh -c \"sleep 3; cat $word\"; cat $word; wait"
    );
    let Some(output) = inside(SHMEM, folder.path(), &["run", "-p", "base", "--", "sh", "-c", &script]) else { return };
    let lines = lines(&output);
    if stdout(&output).is_empty() {
        return superpage_testing::skip!("system", "{lines:?}");
    }
    // The file in the place of the kernel's has no line feed after it was written.
    assert_eq!(stdout(&output), "adviseadvisenever", "{lines:?}");
    assert!(
        lines.iter().any(|line| line.ends_with("while the command maps its memory, and never again then")),
        "{lines:?}"
    );
}

/// As another user, to whom `/proc` shows no process of root, inside a command whose settings are in force.
#[test]
fn a_process_that_cannot_be_seen_is_not_taken_for_dead() {
    let _turn = superpage_testing::turn_of("run");
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("superpage");
    fs::copy(SUPERPAGE, &copy).unwrap();
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", copy.to_str().unwrap()];
    let arguments =
        [&["run", "--policy", "thp", "--"], &nobody[..], &["run", "--policy", "base", "--", "echo"], &["begun"]];
    let mounts = format!("{FILES}; cd /; mount -t proc -o hidepid=2 none /proc");
    let Some(output) = inside(&mounts, folder.path(), &arguments.concat()) else { return };
    if output.status.code() == Some(127) || lines(&output).iter().any(|line| line.starts_with("mount: ")) {
        return superpage_testing::skip!("system", "{:?}", lines(&output));
    }
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "begun\n"), "{:?}", lines(&output));
    assert!(output.stderr.is_empty(), "{:?}", lines(&output));
}

#[test]
fn a_damaged_journal_is_told_once() {
    let _turn = superpage_testing::turn_of("run");
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("run")).unwrap();
    fs::write(folder.path().join("run/settings.json"), "{").unwrap();
    let Some(output) = inside(FILES, folder.path(), &["run", "--policy", "thp", "--", "echo", "started"]) else {
        return;
    };
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""), "{:?}", lines(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.matches("is not one that superpage wrote").count(), 1, "{said}");
    assert!(
        said.contains("would have to be always for the whole system, but settings that were changed before"),
        "{said}"
    );
}

#[test]
fn what_a_kill_left_is_put_back_once_and_said_once() {
    let _turn = superpage_testing::turn_of("run");
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run/enabled");
    let kill = ["run", "--policy", "thp", "--", "sh", "-c", "kill -9 $PPID; sleep 0.2"];
    let Some(killed) = inside(FILES, folder.path(), &kill) else { return };
    assert_eq!(killed.status.signal(), Some(9));
    assert_eq!(fs::read_to_string(&file).unwrap(), "always");
    assert!(folder.path().join("run/settings.json").exists());
    let next = inside(FILES, folder.path(), &["run", "--policy", "base", "--", "cat", "transparent_hugepage/enabled"])
        .unwrap();
    assert_eq!((next.status.code(), stdout(&next).as_str()), (Some(0), "madvise"));
    let sentences = lines(&next);
    assert_eq!(sentences.len(), 1, "{sentences:?}");
    assert!(sentences[0].starts_with("superpage: put back what process "), "{sentences:?}");
    assert!(sentences[0].ends_with(": /sys/kernel/mm/transparent_hugepage/enabled = madvise"), "{sentences:?}");
    let again = inside(FILES, folder.path(), &["run", "--policy", "base", "--", "true"]).unwrap();
    assert!(again.stderr.is_empty());
}

/// Whatever the limit: either nothing is started and a sentence says the way out, or it is run to its end.
#[test]
fn too_few_open_files_are_told_before_the_command_is_started() {
    let _turn = superpage_testing::turn_of("run");
    for limit in 3..40 {
        // Also with a file that whoever started it left open.
        let script =
            format!("exec 8</dev/null; ulimit -n {limit}; exec \"$0\" run -v -p base -- sh -c 'echo begun; exit 7'");
        let output = Command::new("sh").args(["-c", &script, SUPERPAGE]).output().unwrap();
        let (said, error) = (stdout(&output), String::from_utf8_lossy(&output.stderr).into_owned());
        match output.status.code() {
            Some(7) => assert_eq!(said, "begun\n", "{limit}: {error}"),
            Some(1) if said.is_empty() && limit >= 9 => assert!(error.contains("ulimit -n"), "{limit}: {error}"),
            // Not even what a program needs to begin.
            status => assert!(said.is_empty() && limit < 9, "{limit}: {status:?}, {said}, {error}"),
        }
    }
}

/// As another user, whose processes are counted from none. Whatever the limit: either nothing is started and a sentence says why, or
/// it is run to its end; a simulation needs no thread but its own.
#[test]
fn too_few_processes_are_told_before_the_command_is_started() {
    let _turn = superpage_testing::turn_of("run");
    let nobody = |limit: u32, words: &str| {
        let script = format!("ulimit -u {limit}; exec \"$0\" {words}");
        Command::new("bash").args(["-c", &script, SUPERPAGE]).uid(65534).gid(65534).output()
    };
    if !nobody(1000, "--version").is_ok_and(|output| output.status.success()) {
        superpage_testing::skip!("system", "the command cannot be run as another user");
        return;
    }
    for limit in 1..8 {
        for how in ["-v -p base", "-v -p thp:malloc=on", "-p base --text"] {
            let output = nobody(limit, &format!("run {how} -- sh -c 'echo begun; exit 7'")).unwrap();
            let (said, error) = (stdout(&output), String::from_utf8_lossy(&output.stderr).into_owned());
            match output.status.code() {
                Some(7) => assert_eq!(said, "begun\n", "{limit} {how}: {error}"),
                Some(1 | 126) => {
                    assert!(said.is_empty() && lines(&output).len() == 1, "{limit} {how}: {said}, {error}")
                }
                status => panic!("{limit} {how}: {status:?}, {said}, {error}"),
            }
        }
        let output = nobody(limit, "sim touch:bytes=64K").unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{limit}: {:?}", lines(&output));
        let output = nobody(limit, "compare -r 1 -w 0 --cold-host --policy base -- true").unwrap();
        let panics = lines(&output).iter().any(|line| line.contains("panicked"));
        assert!(matches!(output.status.code(), Some(0 | 1)) && !panics, "{limit}: {:?}", lines(&output));
    }
}

#[test]
fn without_proc_one_sentence_says_so() {
    let _turn = superpage_testing::turn_of("run");
    let folder = tempfile::tempdir().unwrap();
    for verb in
        [&["inspect", "1"][..], &["compare", "-r", "1", "--policy", "now", "--", "true"], &["run", "--", "true"]]
    {
        let Some(output) = inside("mount -t tmpfs none /proc", folder.path(), verb) else { return };
        let sentences = sentences(&output);
        assert_eq!(output.status.code(), Some(1), "{sentences:?}");
        assert!(sentences.len() == 1 && sentences[0].contains("/proc is not mounted here"), "{sentences:?}");
    }
}
