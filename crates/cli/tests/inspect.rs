//! `superpage inspect` and `run --text`, as they are called.
#![cfg(target_os = "linux")]

use serde_json::Value;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use superpage_pages::FrameUse;

const SUPERPAGE: &str = env!("CARGO_BIN_EXE_superpage");

fn inspect(arguments: &[&str]) -> Output {
    Command::new(SUPERPAGE).arg("inspect").args(arguments).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A process that waits; ended when dropped.
struct Waiting(Child);

impl Waiting {
    fn new(user: Option<u32>) -> Waiting {
        let mut command = Command::new("sleep");
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        let waiting = Waiting(command.arg("60").spawn().unwrap());
        // It may not have mapped its program yet; when it sleeps, it has.
        let stat = || std::fs::read_to_string(format!("/proc/{}/stat", waiting.pid())).unwrap();
        while !stat().contains("(sleep) S") {
            std::thread::sleep(Duration::from_millis(5));
        }
        waiting
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_is_a_row_for_each_mapping() {
    let _turn = superpage_testing::turn_of("inspect");
    let process = Waiting::new(None);
    let output = inspect(&["--format", "json", &process.pid()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let Value::Array(rows) = serde_json::from_slice(&output.stdout).unwrap() else { panic!("an array") };
    let code = rows.iter().find(|row| row["name"].as_str().unwrap().ends_with("/sleep")).unwrap();
    for key in
        ["pid", "command", "start", "size_bytes", "resident_bytes", "populated_share", "huge_bytes", "folio_bytes"]
    {
        assert!(!code[key].is_null() || key == "folio_bytes", "{key}: {code}");
    }
    assert!(code.get("contiguous_bytes").is_some() && code["reasons"].is_array());
    let output = inspect(&[&process.pid()]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with(&format!("sleep ({}): ", process.pid())) && text.contains("why not huge"), "{text}");
}

#[test]
fn a_service_is_all_its_processes_by_their_name() {
    let _turn = superpage_testing::turn_of("inspect");
    let (one, other) = (Waiting::new(None), Waiting::new(None));
    let output = inspect(&[&one.pid(), &other.pid(), "--expect", "all huge >= 0 %", "--expect", "heap huge >= 99 %"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with(&format!("{} {}: 2 processes, ", one.pid(), other.pid())), "{text}");
    for part in [one.pid().as_str(), other.pid().as_str(), "its share"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).ends_with(" of the heap is in huge pages, less than the expected 99 %\n"),
        "{}",
        stderr(&output)
    );
    assert!(!stderr(&output).contains("all huge"), "{}", stderr(&output));
    let output = inspect(&["--format", "json", "sleep"]);
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |process: &Waiting| process.pid().parse::<u64>().unwrap();
    let of = |pid: u64| rows.as_array().unwrap().iter().filter(move |row| row["pid"] == pid);
    assert!(output.status.success() && of(number(&one)).count() > 3 && of(number(&other)).count() > 3);
    // A word that selects nothing is said, and no health check passes without it.
    let (pid, gone) = (one.pid(), "2147483646");
    for (word, why) in [("no such name", "no process is named no such name"), (gone, "there is no process 2147483646")]
    {
        let output = inspect(&[&pid, word]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains(&format!("- {why}")), "{text}");
        let output = inspect(&[&pid, word, "--expect", "all huge >= 0 %"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(why) && output.stdout.is_empty(), "{}", stderr(&output));
    }
    // Both map the same code.
    let code = of(number(&one)).find(|row| row["name"].as_str().unwrap().ends_with("/sleep")).unwrap();
    assert!(code["proportional_bytes"].as_u64() < code["resident_bytes"].as_u64(), "{code}");
}

#[test]
fn names_that_are_no_utf8_are_shown_with_a_sign() {
    let _turn = superpage_testing::turn_of("inspect");
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join(OsStr::from_bytes(b"odd\xff"));
    let sleep = ["/usr/bin/sleep", "/bin/sleep"].iter().find(|path| std::path::Path::new(path).exists()).unwrap();
    std::fs::copy(sleep, &program).unwrap();
    // Another test may fork while the copy is open for writing; its child has it open until its
    // exec.
    let process = loop {
        match Command::new(&program).arg0("sleep").arg("60").spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
            other => break Waiting(other.unwrap()),
        }
    };
    let stat =
        || String::from_utf8_lossy(&std::fs::read(format!("/proc/{}/stat", process.pid())).unwrap()).into_owned();
    while !stat().contains("(odd\u{fffd}) S") {
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = inspect(&["--format", "json", &process.pid()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let Value::Array(rows) = serde_json::from_slice(&output.stdout).unwrap() else { panic!("an array") };
    let code = rows.iter().find(|row| row["name"].as_str().unwrap().ends_with("/odd\u{fffd}")).unwrap();
    assert_eq!(code["command"], "odd\u{fffd}");
    assert!(rows.iter().any(|row| row["resident_bytes"].as_u64() > Some(0)), "{rows:?}");
}

#[test]
fn the_system_is_shown() {
    let _turn = superpage_testing::turn_of("inspect");
    let output = inspect(&["--system"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("Free blocks by size\n"));
    let rows: Value = serde_json::from_slice(&inspect(&["--system", "--format", "json"]).stdout).unwrap();
    assert!(rows[0]["zones"][0]["free_blocks"].is_array() && rows[0]["counters"].is_object());
}

/// The free memory of the system and all of it, in bytes.
fn memory() -> [u64; 2] {
    let rows: Value = serde_json::from_slice(&inspect(&["--system", "--format", "json"]).stdout).unwrap();
    ["MemFree", "MemTotal"].map(|key| rows[0]["memory"][key].as_u64().unwrap())
}

#[test]
fn the_state_of_memory_is_written_and_simulated() {
    let _turn = superpage_testing::turn_of("inspect");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("today.memory").display().to_string();
    let [before, all] = memory();
    let output = inspect(&["--system", "--memory-state", &path]);
    let [after, _] = memory();
    if output.status.code() == Some(1) && stderr(&output).contains("does not show the frames") {
        superpage_testing::skip!("root", "{}", stderr(&output));
        return;
    }
    assert!(output.status.success(), "{}", stderr(&output));
    let file = superpage_sim::SnapshotFile::read(&path).unwrap();
    let bytes = |of| file.snapshot().bytes(of);
    let found = bytes(FrameUse::Free);
    // Programs run meanwhile, and processors keep some free pages for themselves.
    let some = all / 25;
    assert!(
        found + some > before.min(after) && found < before.max(after) + some,
        "{found}: {before}, {after} of {all}"
    );
    assert!(bytes(FrameUse::Movable) > 0 && bytes(FrameUse::Immovable) > 0);
    assert!(String::from_utf8_lossy(&output.stderr).starts_with(&path));
    let sim = ["sim", "touch:bytes=64K", "-m", "zen5", "-p", "base", "--format", "json", "--fragment", &path];
    let sim = Command::new(SUPERPAGE).args(sim).output().unwrap();
    let rows: Value = serde_json::from_slice(&sim.stdout).unwrap_or_else(|_| panic!("{}", stderr(&sim)));
    assert_eq!(rows[0]["movable_bytes"].as_u64(), Some(bytes(FrameUse::Movable)));
    assert_eq!((&rows[0]["memory_state"], &rows[0]["frames_leaked"]), (&Value::from(path), &Value::from(0)));
}

#[test]
fn errors_are_one_sentence_with_their_status() {
    let _turn = superpage_testing::turn_of("inspect");
    let bad: [(&[&str], i32, &str); 15] = [
        (&["2147483646"], 2, "no process 2147483646"),
        (&["no such name"], 2, "no process is named no such name"),
        (&["no-such.service"], 2, "no-such.service is no control group"),
        (&["no such name", "2147483646"], 2, "no process is named no such name"),
        (&["sleep", "--watch"], 2, "--watch shows one process"),
        (&["sleep", "--expect", "heap huge > 1 %"], 2, "as `heap huge >= 90 %`"),
        (&["99999999999"], 2, "such a large number"),
        (&["1", "--system"], 2, "cannot be used with"),
        (&["--system", "--expect", "all huge >= 1 %"], 2, "cannot be used with"),
        (&["--system", "--watch=0"], 2, "expected seconds"),
        (&["--system", "--watch"], 2, "needs a terminal"),
        (&["1", "--memory-state", "m.memory"], 2, "cannot be used with"),
        (&["--memory-state", "m.memory"], 2, "--system"),
        (&["--system", "--watch", "--memory-state", "m.memory"], 2, "cannot be used with"),
        (&["--system", "--memory-state", "/no/such/m.memory"], 2, "cannot write /no/such/m.memory"),
    ];
    for (arguments, status, words) in bad {
        let output = Command::new(SUPERPAGE).arg("inspect").args(arguments).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
}

#[test]
fn without_root_ones_own_is_shown_without_folios_and_others_are_not() {
    let _turn = superpage_testing::turn_of("inspect");
    const NOBODY: u32 = 65534;
    let (root, own) = (Waiting::new(None), Waiting::new(Some(NOBODY)));
    if std::fs::metadata(format!("/proc/{}", root.pid())).map(|m| std::os::unix::fs::MetadataExt::uid(&m)).ok()
        != Some(0)
    {
        superpage_testing::skip!("root", "needs root");
        return;
    }
    // Where a user without rights can execute it.
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let superpage = folder.path().join("superpage");
    std::fs::copy(SUPERPAGE, &superpage).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let nobody =
        |words: &[&str]| Command::new(&superpage).arg("inspect").args(words).uid(NOBODY).gid(NOBODY).output().unwrap();
    let look = |pid: &str| nobody(&[pid]);
    let output = look(&own.pid());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(text.contains("run as root") && !text.contains("folio 4K") && !text.contains("tlb 64K"), "{text}");
    let output = look(&root.pid());
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("may not be looked into"), "{}", stderr(&output));
    let output = nobody(&["sleep"]);
    let text = String::from_utf8_lossy(&output.stdout).replace("\n  ", " ");
    assert!(text.contains("of the processes of sleep left out: process ") && text.contains("not be looked"), "{text}");
    let output = nobody(&["--system", "--memory-state", "/dev/null"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("that takes root"), "{}", stderr(&output));
}

#[test]
fn what_has_no_memory_is_told_by_what_it_is() {
    let _turn = superpage_testing::turn_of("inspect");
    let refused = |pid: &str| {
        let output = inspect(&[pid]);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        stderr(&output)
    };
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id().to_string();
    let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    while !state().contains(") Z") {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(refused(&pid).contains("(true) has ended, with all its memory, and only waits"), "{}", refused(&pid));
    child.wait().unwrap();
    match std::fs::read_to_string("/proc/2/comm") {
        Ok(name) if name == "kthreadd\n" => {
            assert!(refused("2").contains("process 2 (kthreadd) is a thread of the kernel"), "{}", refused("2"));
        }
        _ => superpage_testing::skip!("system", "the kernel's threads cannot be seen from this namespace of processes"),
    }
    if Command::new("python3").arg("--version").output().is_err() {
        return superpage_testing::skip!("python3", "python3 is not installed");
    }
    let script = "import ctypes, threading, time\nthreading.Thread(target=lambda: time.sleep(60)).start()\n\
                  ctypes.CDLL(None).pthread_exit(None)";
    let headless = Waiting(Command::new("python3").args(["-c", script]).spawn().unwrap());
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", headless.pid())).unwrap();
    while !state().contains(") Z") {
        std::thread::sleep(Duration::from_millis(5));
    }
    let said = refused(&headless.pid());
    let thread = said.split("superpage inspect ").nth(1).unwrap().trim_end().trim_end_matches(')').to_string();
    assert!(inspect(&[&thread]).status.success(), "{said}");
}

/// What a terminal shows while `superpage inspect` runs in it, and how that ends.
struct Terminal {
    script: Child,
    shown: std::thread::JoinHandle<String>,
}

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

impl Terminal {
    /// `None` where there is no program `script`.
    fn start(arguments: &str) -> Option<Terminal> {
        let inside = format!("stty rows 50 cols 200; echo shell $$; exec {SUPERPAGE} inspect {arguments}");
        let mut script = Command::new("script");
        script.args(["-qefc", &inside, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut script = script.spawn().ok()?;
        let mut out = script.stdout.take().unwrap();
        let shown = std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = out.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Some(Terminal { script, shown })
    }

    fn press(&mut self, keys: &str) {
        self.script.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// What was shown, and the status.
    fn end(mut self) -> (String, Option<i32>) {
        let status = self.script.wait().unwrap();
        (self.shown.join().unwrap(), status.code())
    }
}

/// The process that runs in the terminal: the child of `script` whose program is ours by now.
fn inside(script: u32) -> Option<i32> {
    let children = std::fs::read_to_string(format!("/proc/{script}/task/{script}/children")).ok()?;
    let mut ours = children.split_whitespace().filter(|pid| {
        let program = std::fs::read_link(format!("/proc/{pid}/exe"));
        program.is_ok_and(|program| program.ends_with("superpage"))
    });
    ours.next()?.parse().ok()
}

#[test]
fn the_live_view_sorts_quits_and_puts_the_terminal_back() {
    let _turn = superpage_testing::turn_of("inspect");
    let process = Waiting::new(None);
    let Some(mut terminal) = Terminal::start(&format!("{} --watch=0.2", process.pid())) else {
        superpage_testing::skip!("script", "there is no program script");
        return;
    };
    std::thread::sleep(Duration::from_millis(1500));
    terminal.press("\x1b[C");
    std::thread::sleep(Duration::from_millis(300));
    terminal.press("r");
    std::thread::sleep(Duration::from_millis(300));
    terminal.press("q");
    let (shown, status) = terminal.end();
    assert_eq!(status, Some(0), "{shown}");
    assert!(shown.contains(ENTER) && shown.trim_end().ends_with(LEAVE) || shown.contains(LEAVE), "{shown:?}");
    assert!(shown.contains("resident↓") && shown.contains('↑') && shown.contains("q: quit"), "{shown}");
}

#[test]
fn the_live_view_puts_the_terminal_back_on_a_signal_and_when_the_process_ends() {
    let _turn = superpage_testing::turn_of("inspect");
    let Some(terminal) = Terminal::start("--system --watch=0.2") else {
        superpage_testing::skip!("script", "there is no program script");
        return;
    };
    let until = Instant::now() + Duration::from_secs(30);
    let pid = loop {
        match inside(terminal.script.id()) {
            Some(pid) => break pid,
            None => assert!(Instant::now() < until, "it does not start"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    std::thread::sleep(Duration::from_millis(1500));
    let kill = Command::new("kill").args(["-TERM", &pid.to_string()]).status().unwrap();
    assert!(kill.success());
    let (shown, status) = terminal.end();
    assert_eq!(status, Some(128 + 15), "{shown}");
    assert!(shown.contains("Fragmentation:") && shown.contains(LEAVE), "{shown:?}");

    let process = Waiting::new(None);
    let terminal = Terminal::start(&format!("{} --watch=0.2", process.pid())).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    drop(process);
    let (shown, status) = terminal.end();
    assert_ne!(status, Some(0), "{shown}");
    let after = shown.split(LEAVE).last().unwrap();
    assert!(after.contains("superpage: "), "{shown:?}");
}

#[test]
fn text_is_placed_and_the_status_passed_on() {
    let _turn = superpage_testing::turn_of("inspect");
    let run = |text: &str, command: &[&str]| {
        let mut run = Command::new(SUPERPAGE);
        run.args(["run", "-v", "--policy", "promote", text, "--"]).args(command).output().unwrap()
    };
    let output = run("--text", &["sh", "-c", "echo out; exit 9"]);
    if stderr(&output).contains("CAP_SYS_NICE") {
        superpage_testing::skip!("system", "{}", stderr(&output));
        return;
    }
    assert_eq!(output.status.code(), Some(9), "{}", stderr(&output));
    assert_eq!(output.stdout, b"out\n");
    let output = run("--text=elsewhere", &["true"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("expected file, remap or auto"), "{}", stderr(&output));
    let output = run("--text", &["/nowhere/at/all"]);
    assert_eq!(output.status.code(), Some(127), "{}", stderr(&output));
    if Command::new("node").arg("-v").output().is_err() {
        superpage_testing::skip!("node", "node is not installed");
        return;
    }
    for way in ["--text", "--text=remap", "--text=file"] {
        let output = run(way, &["node", "-e", "process.on('exit', () => console.log('bye')); process.exitCode = 3"]);
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(3), &b"bye\n"[..]), "{way}: {}", stderr(&output));
    }
}

/// As of a server whose buffers another process of it has filled.
#[test]
fn shared_memory_that_is_in_no_page_table_is_told_of() {
    let _turn = superpage_testing::turn_of("inspect");
    let script = "import mmap, os, time\nf = os.memfd_create('a\\x1b[2Jb')\nos.ftruncate(f, 64 << 20)\n\
                  m = mmap.mmap(f, 64 << 20)\npid = os.fork()\n\
                  if pid == 0:\n    m[:48 << 20] = b'1' * (48 << 20)\n    os._exit(0)\n\
                  os.waitpid(pid, 0)\nprint('ready', flush=True)\ntime.sleep(600)\n";
    let python = Command::new("python3").args(["-c", script]).stdout(Stdio::piped()).spawn();
    let Ok(mut child) = python else {
        return superpage_testing::skip!("python3", "there is no python3");
    };
    // It stays open: without a buffer Python writes the end of the line by itself.
    let mut said = child.stdout.take().unwrap();
    said.read_exact(&mut [0; 5]).unwrap();
    let process = Waiting(child);
    let output = inspect(&["--wide", &process.pid()]);
    let text = String::from_utf8_lossy(&output.stdout);
    let root =
        std::fs::metadata(format!("/proc/{}/map_files", process.pid())).is_ok() && rustix::process::geteuid().is_root();
    let expected = if root {
        "of 64.0 MB: 48.0 MB is populated, and 0 B of it is in the page tables of the processes shown; the other 48.0 MB is counted nowhere here"
    } else {
        "of 64.0 MB: 0 B of it is in the page tables of the processes shown; whether more is populated, only root sees"
    };
    let named = r"shared memory /memfd:a\u{1b}[2Jb";
    assert!(text.contains(named) && text.contains(expected), "{text}");
    // The name of a file is untrusted.
    let json = inspect(&["--format", "json", &process.pid()]);
    assert!(stderr(&json).contains(named) && stderr(&json).contains(expected), "{}", stderr(&json));
    assert!(!text.contains('\u{1b}') && !stderr(&json).contains('\u{1b}'));
}
