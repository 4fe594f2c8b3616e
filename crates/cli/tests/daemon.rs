//! The verb `daemon`, from outside: what it is told wrong, what it would do, and its life with
//! signals.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

fn superpage(run: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_superpage"));
    command.arg("daemon").env("SUPERPAGE_RUN_DIR", run).env_remove("RUST_LOG");
    command
}

fn output(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// A process of ours to promote in, ended at the end.
struct Sleeper(Child);

impl Sleeper {
    fn new() -> Sleeper {
        Sleeper(Command::new("sleep").arg("600").spawn().unwrap())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_makes_no_sense_is_one_line_and_status_two() {
    let _turn = superpage_testing::turn_of("daemon");
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("bad.toml");
    std::fs::write(&bad, "[processes]\nall = true\n[promote]\nshare = 0.9\nage = \"often\"\n").unwrap();
    let cases: [(&[&str], &str); 8] = [
        (&["--except", "x"], "--pid, --name, --cgroup or --all"),
        (&["--all", "--policy", "promote:of-command=1%"], "a daemon has none"),
        (&["--all", "--policy", "thp"], "policy thp has no background work"),
        (&["--all", "--policy", "promote:shore=1"], "its parameters: share=SHARE, age=TIME"),
        (&["--all", "--policy", "promote:cpu=7"], "at most 1"),
        (&["--dry-run", "--pid", "4000000"], "no process 4000000"),
        (&["--cgroup", "/no/such/group"], "no control group"),
        (&["--config", bad.to_str().unwrap()], "bad.toml:5"),
    ];
    for (arguments, part) in cases {
        let (status, stdout, stderr) = output(superpage(folder.path()).args(arguments));
        assert_eq!((status, stdout.as_str(), stderr.lines().count()), (Some(2), "", 1), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("superpage: ") && stderr.contains(part), "{arguments:?}: {stderr}");
    }
}

#[test]
fn the_help_names_what_the_daemon_takes() {
    let _turn = superpage_testing::turn_of("daemon");
    let (status, help, _) = output(superpage(Path::new("/nowhere")).arg("--help"));
    assert!(status == Some(0) && help.contains("  slowdown ") && !help.contains("\n  of-command "), "{help}");
}

#[test]
fn a_dry_run_prints_rows_and_nothing_else() {
    let _turn = superpage_testing::turn_of("daemon");
    let folder = tempfile::tempdir().unwrap();
    let sleeper = Sleeper::new();
    let pid = sleeper.0.id().to_string();
    let mut command = superpage(folder.path());
    let arguments = ["--dry-run", "--format", "json", "--policy", "promote:age=10ms", "--pid", pid.as_str()];
    let (status, stdout, stderr) = output(command.args(arguments));
    if status == Some(1) && stderr.contains("no transparent huge pages") {
        superpage_testing::skip!("system", "{stderr}");
        return;
    }
    let rows: serde_json::Value =
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"));
    assert_eq!(
        (status, rows[0]["name"].as_str(), rows[0]["promotable"].as_u64()),
        (Some(0), Some("sleep"), Some(0)),
        "{stderr}"
    );
    assert!(rows[0].as_object().unwrap().get("service").is_some_and(serde_json::Value::is_null), "{rows}");
    assert!(!folder.path().join("daemon.lock").exists(), "a dry run takes no lock");
}

#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let _turn = superpage_testing::turn_of("daemon");
    use std::io::Read;
    let folder = tempfile::tempdir().unwrap();
    let mut command = superpage(folder.path());
    command.args(["--dry-run", "--all", "--policy", "promote:age=1ms"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    let code = child.wait().unwrap().code();
    if code == Some(1) && stderr.contains("no transparent huge pages") {
        superpage_testing::skip!("system", "{stderr}");
        return;
    }
    assert!(code == Some(0) && !stderr.contains("panic"), "{code:?}: {stderr}");
}

#[test]
fn a_thread_of_the_kernel_is_not_waited_for() {
    let _turn = superpage_testing::turn_of("daemon");
    if std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        let folder = tempfile::tempdir().unwrap();
        let (status, _, stderr) = output(superpage(folder.path()).args(["--pid", "2"]));
        assert_eq!(status, Some(2), "{stderr}");
        assert!(stderr.contains("process 2 is a thread of the kernel"), "{stderr}");
    } else {
        superpage_testing::skip!("system", "the kernel's threads cannot be seen from this namespace of processes");
    }
}

#[test]
fn names_of_others_are_escaped() {
    let _turn = superpage_testing::turn_of("daemon");
    let folder = tempfile::tempdir().unwrap();
    // Memory of its own for the table to show, and a name that clears the screen.
    let script = "import ctypes, mmap, sys\nlibc = ctypes.CDLL(None)\n\
                  libc.prctl(15, b'a\\n\\x1b[2Jb', 0, 0, 0)\nlibc.prctl(41, 1, 0, 0, 0)\n\
                  m = mmap.mmap(-1, 8 << 20)\nm[:] = b'1' * len(m)\nprint('ready', flush=True)\nsys.stdin.read()\n";
    let python = Command::new("python3").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut child) = python else {
        superpage_testing::skip!("python3", "there is no python3");
        return;
    };
    let mut ready = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let pid = child.id().to_string();
    let dry_run = ["--dry-run", "--policy", "promote:age=1ms", "--pid", &pid];
    let table = output(superpage(folder.path()).args(dry_run));
    let json = output(superpage(folder.path()).args(dry_run).args(["--format", "json"]));
    let mut inspect = Command::new(env!("CARGO_BIN_EXE_superpage"));
    let inspect = output(inspect.args(["inspect", &pid]));
    let _ = child.kill();
    let _ = child.wait();
    for (status, stdout, stderr) in [table, json, inspect] {
        if status == Some(1) && stderr.contains("no transparent huge pages") {
            superpage_testing::skip!("system", "{stderr}");
            return;
        }
        assert_eq!(status, Some(0), "{stderr}");
        assert!(!stdout.contains('\u{1b}'), "{stdout}");
        assert!(stdout.contains(r"a\n\u{1b}[2Jb") || stdout.contains(r"a\n\u001b[2Jb"), "{stdout}");
        assert!(stdout.contains("disabled"), "{stdout}");
    }
}

#[test]
fn a_log_that_cannot_be_written_ends_no_daemon() {
    let _turn = superpage_testing::turn_of("daemon");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let (reader, unread) = std::io::pipe().unwrap();
    drop(reader);
    for log in [Stdio::from(full), Stdio::from(unread)] {
        let folder = tempfile::tempdir().unwrap();
        let metrics = folder.path().join("superpage.prom");
        let sleeper = Sleeper::new();
        let mut command = superpage(folder.path());
        command.arg("--metrics-file").arg(&metrics).args(["-v", "--pid", &sleeper.0.id().to_string()]);
        let mut daemon = command.stderr(log).spawn().unwrap();
        while !metrics.exists() && daemon.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        // It logs that it promotes, and that what it was named has ended.
        drop(sleeper);
        let status = daemon.wait().unwrap();
        if status.code() == Some(1) && !metrics.exists() {
            superpage_testing::skip!("system", "no daemon can promote here");
            return;
        }
        assert_eq!(status.code(), Some(0));
    }
}

#[test]
fn a_unit_that_does_not_run_yet_is_waited_for() {
    let _turn = superpage_testing::turn_of("daemon");
    let folder = tempfile::tempdir().unwrap();
    let mut command = superpage(folder.path());
    command.args(["--cgroup", "no-such-superpage.service", "--policy", "promote:interval=10ms,idle=10ms"]);
    let path = folder.path().join("log");
    let mut daemon = command.stderr(std::fs::File::create(&path).unwrap()).spawn().unwrap();
    let log = || std::fs::read_to_string(&path).unwrap();
    let looked = std::time::Instant::now();
    while !log().contains("is no control group") && looked.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(20));
    }
    // More scans say it no more.
    std::thread::sleep(Duration::from_secs(1));
    let _ = Command::new("kill").args(["-TERM", &daemon.id().to_string()]).status();
    let (status, log) = (daemon.wait().unwrap(), log());
    if status.code() == Some(1) {
        superpage_testing::skip!("system", "{log}");
        return;
    }
    assert_eq!((status.code(), log.matches("is no control group").count()), (Some(0), 1), "{log}");
    assert!(log.contains("promoting") && log.contains("it is looked for at each scan"), "{log}");
}

/// Fills 16 MB once the file that it is given exists, with base pages unless somebody promotes
/// them.
const FILL: &str = "import ctypes, mmap, os, sys, time\n\
                    if ctypes.CDLL(None).prctl(41, 1, 2, 0, 0): sys.exit(77)\n\
                    print('ready', flush=True)\n\
                    while not os.path.exists(sys.argv[1]): time.sleep(0.02)\n\
                    m = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
                    m[:] = b'1' * len(m)\nprint('filled', flush=True)\ntime.sleep(600)\n";

/// Huge pages of a process, in kB.
const HUGE: &str = "huge() { awk '/^AnonHugePages/ { print $2 }' /proc/$1/smaps_rollup; }";

/// Runs a script in a namespace of processes of its own, in a folder, with superpage as `$0` and a
/// program that fills memory as `$1`. `None` after a message where it ends with status 77, since
/// something is missing.
fn alone(script: &str, folder: &Path) -> Option<Output> {
    let mut command = Command::new("unshare");
    command.args(["-p", "-f", "--mount-proc", "--kill-child", "bash", "-c", &format!("{HUGE}\n{script}")]);
    command.args([env!("CARGO_BIN_EXE_superpage"), FILL]).current_dir(folder).stdin(Stdio::null());
    let output = command.env("SUPERPAGE_RUN_DIR", folder.join("run")).output();
    match output {
        Ok(output) if output.status.code() != Some(77) && !output.stderr.starts_with(b"unshare: ") => Some(output),
        Ok(output) => {
            superpage_testing::skip!("system", "{}", String::from_utf8_lossy(&output.stderr));
            None
        }
        Err(error) => {
            superpage_testing::skip!("system", "{error}");
            None
        }
    }
}

/// The numbers of processes are given out in their order in this namespace, so the next one to
/// start gets the number that is free again.
#[test]
fn a_process_that_gets_the_number_of_a_named_one_is_left_alone() {
    let _turn = superpage_testing::turn_of("daemon");
    let folder = tempfile::tempdir().unwrap();
    let script = "
        sleep 600 & ended=$!
        python3 -c \"$1\" go > named & named=$!
        until grep -qs ready named; do kill -0 $named || exit 77; sleep 0.05; done
        \"$0\" daemon --pid $ended --pid $named --policy promote:age=200ms,interval=50ms,idle=50ms,cpu=1,burst=10s 2> log & daemon=$!
        until grep -qs promoting log; do kill -0 $daemon || { cat log >&2; exit 77; }; sleep 0.05; done
        sleep 0.5; kill $ended; wait $ended; sleep 0.5
        touch now
        echo $((ended - 1)) > /proc/sys/kernel/ns_last_pid || exit 77
        python3 -c \"$1\" now > other & other=$!
        [ $other = $ended ] || { echo \"$other is not $ended\" >&2; exit 77; }
        until grep -qs filled other; do sleep 0.05; done
        sleep 2; touch go
        for i in $(seq 400); do [ $(huge $named) -gt 0 ] && break; sleep 0.05; done
        sleep 1; echo $(huge $named) $(huge $other)
        kill $named; wait $named
        for i in $(seq 100); do kill -0 $daemon 2> /dev/null || break; sleep 0.05; done
        tail -n 2 log
        kill $daemon 2> /dev/null";
    let Some(output) = alone(script, folder.path()) else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    let huge: Vec<u64> = said.lines().next().unwrap().split(' ').map(|size| size.parse().unwrap()).collect();
    assert!(huge[0] > 0 && huge[1] == 0, "{said}");
    assert!(said.contains("all processes that were named have ended"), "{said}");
}

/// It has settled when the files can be opened again: what it did meanwhile must not count as seen.
#[test]
fn a_scan_that_failed_is_made_up_for() {
    let _turn = superpage_testing::turn_of("daemon");
    let folder = tempfile::tempdir().unwrap();
    let script = "
        command -v prlimit > /dev/null || exit 77
        python3 -c \"$1\" go > named & named=$!
        until grep -qs ready named; do kill -0 $named || exit 77; sleep 0.05; done
        \"$0\" daemon --pid $named --policy promote:age=200ms,interval=50ms,idle=50ms,cpu=1,burst=10s 2> log & daemon=$!
        until grep -qs promoting log; do kill -0 $daemon || { cat log >&2; exit 77; }; sleep 0.05; done
        sleep 0.5
        # One file at a time, and no two.
        free=0; while [ -e /proc/$daemon/fd/$free ]; do free=$((free + 1)); done
        prlimit --pid $daemon --nofile=$((free + 1)):
        touch go
        until grep -qs filled named; do sleep 0.05; done
        sleep 2; echo $(huge $named); grep -c 'Too many open files' log
        prlimit --pid $daemon --nofile=1024:
        for i in $(seq 200); do [ $(huge $named) -gt 0 ] && break; sleep 0.05; done
        echo $(huge $named)
        kill $daemon $named";
    let Some(output) = alone(script, folder.path()) else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<u64> = said.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(lines[..2], [0, 1], "not huge, and told once: {said}");
    assert!(lines[2] > 0, "{said}");
}

/// What decides is the policy's background, by what it sees of a live process.
#[test]
fn other_policies_promote_too() {
    let _turn = superpage_testing::turn_of("daemon");
    for policy in ["khugepaged:interval=100ms", "ingens:interval=100ms"] {
        let folder = tempfile::tempdir().unwrap();
        let script = format!(
            "
            python3 -c \"$1\" go > named & named=$!
            until grep -qs ready named; do kill -0 $named || exit 77; sleep 0.05; done
            touch go
            until grep -qs filled named; do sleep 0.05; done
            \"$0\" daemon --pid $named --policy {policy} 2> log & daemon=$!
            until grep -qs promoting log; do kill -0 $daemon || {{ cat log >&2; exit 77; }}; sleep 0.05; done
            # It has a hundredth of a core, of which its start was charged already: under load, seconds of waiting.
            for i in $(seq 2000); do [ $(huge $named) -gt 0 ] && break; sleep 0.05; done
            echo $(huge $named); cat log
            kill $daemon $named"
        );
        let Some(output) = alone(&script, folder.path()) else { return };
        let said = String::from_utf8_lossy(&output.stdout);
        let huge: u64 = said.lines().next().unwrap().parse().unwrap();
        assert!(huge > 0 && said.contains(policy), "{policy}: {said}");
        // What of it does not happen here.
        let without = "a live Linux: it does nothing at faults, and it does not know which pages are accessed";
        assert_eq!(said.contains(without), policy.starts_with("khugepaged"), "{said}");
    }
}

/// Sends a signal to a process of ours.
fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// The next line of the log with this part.
fn hear(log: &mut impl BufRead, part: &str) -> Option<String> {
    log.lines().map(Result::unwrap).find(|line| line.contains(part))
}

#[test]
fn a_daemon_is_the_only_one_and_hears_its_signals() {
    let _turn = superpage_testing::turn_of("daemon");
    let folder = tempfile::tempdir().unwrap();
    let (config, metrics, run) =
        (folder.path().join("superpage.toml"), folder.path().join("superpage.prom"), folder.path().join("run"));
    let sleeper = Sleeper::new();
    let write = |more: &str| {
        std::fs::write(&config, format!("[processes]\npids = [{}]\n[promote]\n{more}\n", sleeper.0.id())).unwrap();
    };
    write("age = \"3s\"");
    let mut command = superpage(&run);
    command.arg("--config").arg(&config).arg("--metrics-file").arg(&metrics).args(["--metrics-listen", "127.0.0.1:0"]);
    let mut daemon = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(daemon.stderr.take().unwrap());
    let mut first = String::new();
    log.read_line(&mut first).unwrap();
    if first.starts_with("superpage: ") {
        assert_eq!(daemon.wait().unwrap().code(), Some(1));
        superpage_testing::skip!("system", "{first}");
        return;
    }
    assert!(first.contains("metrics at http://127.0.0.1:"), "{first}");
    assert!(hear(&mut log, "promoting").unwrap().contains("age=3s"));

    let (status, _, stderr) = output(superpage(&run).args(["--pid", &sleeper.0.id().to_string()]));
    assert_eq!((status, stderr.lines().count()), (Some(1), 1), "{stderr}");
    assert!(stderr.contains(&format!("process {}", daemon.id())), "{stderr}");

    write("age = \"whenever\"");
    signal(&daemon, "-HUP");
    assert!(hear(&mut log, "stays as it was").unwrap().contains("superpage.toml:4"));
    write("share = 0.9");
    signal(&daemon, "-HUP");
    assert!(hear(&mut log, "configured again").unwrap().contains("share=0.9"));

    signal(&daemon, "-TERM");
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
    let text = std::fs::read_to_string(&metrics).unwrap();
    assert!(text.contains("superpage_watched_processes") && text.ends_with("# EOF\n"), "{text}");

    // The lock went with its holder.
    let mut next = superpage(&run);
    let mut next = next.args(["--pid", &sleeper.0.id().to_string()]).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(next.stderr.take().unwrap());
    assert!(hear(&mut log, "promoting").is_some());
    // It ends with the last process that was named.
    drop(sleeper);
    assert!(hear(&mut log, "have ended").is_some());
    assert_eq!(next.wait().unwrap().code(), Some(0));
}

/// What a service manager hears, line by line, from a socket at a path and from one of the abstract
/// namespace.
#[test]
fn a_service_manager_hears_of_start_reload_and_end() {
    let _turn = superpage_testing::turn_of("daemon");
    for is_abstract in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (path, name) = (folder.path().join("notify"), format!("superpage-test-{}", std::process::id()));
        let (address, given) = if is_abstract {
            (SocketAddr::from_abstract_name(&name).unwrap(), format!("@{name}"))
        } else {
            (SocketAddr::from_pathname(&path).unwrap(), path.display().to_string())
        };
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let config = folder.path().join("superpage.toml");
        let sleeper = Sleeper::new();
        let write = |more: &str| {
            std::fs::write(&config, format!("[processes]\npids = [{}]\n{more}\n", sleeper.0.id())).unwrap();
        };
        write("");
        let mut command = superpage(&folder.path().join("run"));
        command.arg("--config").arg(&config).env("NOTIFY_SOCKET", given).stderr(Stdio::piped());
        let mut daemon = command.spawn().unwrap();
        let mut heard = Vec::new();
        // Reads until a line begins so; `None` where the daemon ends before.
        let mut hear = |daemon: &mut Child, begins: &str| loop {
            let mut bytes = [0; 4096];
            if let Ok(length) = socket.recv(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
                heard.extend(text.lines().map(String::from));
            } else if daemon.try_wait().unwrap().is_some() {
                return None;
            }
            if let Some(at) = heard.iter().position(|line: &String| line.starts_with(begins)) {
                return Some(heard.drain(..=at).collect::<Vec<_>>());
            }
        };
        let Some(first) = hear(&mut daemon, "STATUS=") else {
            superpage_testing::skip!("system", "no daemon can promote here");
            return;
        };
        assert_eq!(first[0], "READY=1");
        assert!(first[1].starts_with("STATUS=watching ") && first[1].ends_with(", promoted 0 regions"), "{first:?}");
        write("[promote]\nage = \"whenever\"");
        signal(&daemon, "-HUP");
        let reload = hear(&mut daemon, "STATUS=").unwrap();
        let begun = reload.iter().position(|line| line == "RELOADING=1").unwrap();
        let since = reload[begun + 1].strip_prefix("MONOTONIC_USEC=").unwrap();
        assert!(since.parse::<u64>().is_ok() && reload[begun + 2] == "READY=1", "{reload:?}");
        assert!(reload[begun + 3].contains("stays as it was: ") && reload[begun + 3].contains(".toml:4"), "{reload:?}");
        write("[promote]\nage = \"3s\"");
        signal(&daemon, "-HUP");
        let reload = hear(&mut daemon, "STATUS=").unwrap();
        assert!(!reload.last().unwrap().contains("stays"), "{reload:?}");
        signal(&daemon, "-TERM");
        assert!(hear(&mut daemon, "STOPPING=1").is_some());
        assert_eq!(daemon.wait().unwrap().code(), Some(0));
    }
}

/// As where a unit's environment was copied.
#[test]
fn a_service_manager_that_cannot_be_reached_is_one_warning() {
    let _turn = superpage_testing::turn_of("daemon");
    let folder = tempfile::tempdir().unwrap();
    let sleeper = Sleeper::new();
    let mut command = superpage(&folder.path().join("run"));
    command.args(["--pid", &sleeper.0.id().to_string()]).env("NOTIFY_SOCKET", folder.path().join("no\nsocket"));
    let mut daemon = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(daemon.stderr.take().unwrap()).lines().map_while(Result::ok);
    let Some(line) = log.find(|line| line.contains("NOTIFY_SOCKET")) else {
        daemon.wait().unwrap();
        return superpage_testing::skip!("system", "no daemon can promote here");
    };
    assert!(line.contains("WARN") && line.contains(r"/no\nsocket cannot be reached (No such file"), "{line}");
    signal(&daemon, "-TERM");
    assert!(log.all(|line| !line.contains("NOTIFY_SOCKET")), "it is said once");
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
}

/// A manager that starts many services may not read for a while.
#[test]
fn a_service_manager_whose_socket_is_full_hears_of_the_start_later() {
    let _turn = superpage_testing::turn_of("daemon");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    // What never comes fails the test.
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // Each from a socket of its own, so that no sender is at its limit.
    let send = || {
        let other = UnixDatagram::unbound().unwrap();
        other.set_nonblocking(true).unwrap();
        other.send_to(b"full", &path)
    };
    while send().is_ok() {}
    let sleeper = Sleeper::new();
    let mut command = superpage(&folder.path().join("run"));
    command.args(["--pid", &sleeper.0.id().to_string()]).args(["--metrics-file", "prom"]).current_dir(folder.path());
    let mut daemon = command.env("NOTIFY_SOCKET", &path).stderr(Stdio::null()).spawn().unwrap();
    // Written once in each run of its loop, after the message.
    let metrics = folder.path().join("prom");
    let watches = || std::fs::read_to_string(&metrics).is_ok_and(|text| text.contains("watched_processes 1"));
    while !watches() {
        if daemon.try_wait().unwrap().is_some() {
            return superpage_testing::skip!("system", "no daemon can promote here");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let hear = || {
        let mut bytes = [0; 4096];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let first = std::iter::repeat_with(hear).find(|text| text != "full").unwrap();
    let next = hear();
    signal(&daemon, "-TERM");
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
    assert!(first == "READY=1" && next.starts_with("STATUS=watching "), "{first}, {next}");
}

/// Two programs, each with a name of its own: one is a service with parameters of its own, the
/// other is among all.
#[test]
fn a_service_has_its_own_policy_and_its_own_metrics() {
    let _turn = superpage_testing::turn_of("daemon");
    let folder = tempfile::tempdir().unwrap();
    let script = "
        for name in alpha beta; do
            ln -s $(python3 -c 'import sys; print(sys.executable)') $name || exit 77
            ./$name -c \"$1\" go > $name.said & eval $name=$!
            until grep -qs ready $name.said; do kill -0 ${!name} || exit 77; sleep 0.05; done
        done
        touch go
        until grep -qs filled alpha.said && grep -qs filled beta.said; do sleep 0.05; done
        printf '%s\\n' 'policy = \"promote:interval=50ms,idle=50ms,cpu=1,burst=10s,age=1h\"' \
            '[processes]' 'all = true' '[[service]]' 'names = [\"alpha\"]' 'policy = \"promote:age=200ms\"' > a.toml
        # A dry run looks for as long as the age.
        sed s/age=1h/age=1s/ a.toml > soon.toml
        \"$0\" daemon --dry-run --config soon.toml > dry || exit 77
        \"$0\" daemon --dry-run --config soon.toml --format json > rows || exit 77
        \"$0\" daemon --config a.toml --metrics-file prom 2> log & daemon=$!
        until grep -qs promoting log; do kill -0 $daemon || { cat log >&2; exit 77; }; sleep 0.05; done
        for i in $(seq 400); do [ $(huge $alpha) -gt 0 ] && break; sleep 0.05; done
        sleep 1; echo $(huge $alpha) $(huge $beta)
        # Now one policy for all.
        printf '%s\\n' 'policy = \"promote:interval=50ms,idle=50ms,cpu=1,burst=10s,age=200ms\"' '[processes]' 'all = true' > a.toml
        kill -HUP $daemon
        for i in $(seq 400); do [ $(huge $beta) -gt 0 ] && break; sleep 0.05; done
        echo $(huge $beta)
        printf '%s\\n' 'policy = \"promote:cpu=1,burst=10s\"' '[[service]]' 'names = [\"alpha\"]' '[[service]]' 'label = \"b\"' 'names = [\"beta\"]' > a.toml
        kill -HUP $daemon; sleep 5
        kill $daemon; wait $daemon; cat log prom dry; tr -d '\n' < rows
        kill $alpha $beta";
    let Some(output) = alone(script, folder.path()) else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    let mut lines = said.lines();
    let mut sizes = || -> Vec<u64> { lines.next().unwrap().split(' ').map(|size| size.parse().unwrap()).collect() };
    let (first, second) = (sizes(), sizes());
    assert!(first[0] > 0 && first[1] == 0 && second[0] > 0, "{said}");
    assert!(said.contains("service=\"alpha\"") && said.contains("service=\"processes\""), "{said}");
    // The first reload drops it, and what it has done is in the sum at the end.
    let number = |line: &str| line.split_once("regions=").unwrap().1.split(' ').next().unwrap().parse::<u64>().unwrap();
    let of = |part: &str| said.lines().filter(|line| line.contains(part)).map(number).sum::<u64>();
    assert!(of("served no longer service=\"alpha\"") > 0, "{said}");
    assert!(of(" ends regions=") >= of("served no longer"), "{said}");
    assert!(said.contains("superpage_watched_processes{service=\"alpha\"} 1"), "{said}");
    assert!(said.contains("superpage_watched_processes{service=\"b\"} 1"), "{said}");
    assert!(
        said.contains("\nsuperpage_cpu_seconds_total ") && !said.contains("\nsuperpage_cpu_seconds_total{"),
        "{said}"
    );
    assert!(said.contains("service alpha, policy promote:"), "the dry run: {said}");
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let shares = words.matches(" at cpu=1, which 2 services share, without scans: each ").count();
    assert_eq!(shares, 2, "one line for each: {said}");
    let rows: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    let service =
        |name: &str| rows.as_array().unwrap().iter().find(|row| row["name"] == name).unwrap()["service"].clone();
    assert_eq!((service("alpha"), service("beta")), ("alpha".into(), "processes".into()), "{rows}");
    // What the services do not use is the daemon's, so that the parts add up.
    let seconds = |name: &str| -> f64 {
        let of = |line: &&str| line.split([' ', '{']).next() == Some(name);
        said.lines().filter(of).map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    };
    let parts = ["scan", "promote", "other"].map(|part| seconds(&format!("superpage_{part}_cpu_seconds_total")));
    let (sum, total) = (parts.iter().sum::<f64>(), seconds("superpage_cpu_seconds_total"));
    assert!(parts.iter().all(|part| *part > 0.0) && (sum - total).abs() < 1e-6, "{parts:?} of {total}");
}

/// What little time it may use is used up by its start.
#[test]
fn the_metrics_say_what_promotion_waits_for() {
    let _turn = superpage_testing::turn_of("daemon");
    let folder = tempfile::tempdir().unwrap();
    let script = "
        python3 -c \"$1\" go > named & named=$!
        until grep -qs ready named; do kill -0 $named || exit 77; sleep 0.05; done
        \"$0\" daemon --pid $named --policy promote:cpu=0.1% --metrics-file prom 2> log & daemon=$!
        until grep -qs promoting log; do kill -0 $daemon || { cat log >&2; exit 77; }; sleep 0.05; done
        sleep 3; kill $daemon; wait $daemon; kill $named
        cat prom";
    let Some(output) = alone(script, folder.path()) else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    let waited = |by: &str| -> f64 {
        let name = format!("superpage_throttled_seconds_total{{by=\"{by}\"}} ");
        said.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or_else(|| panic!("{said}")).parse().unwrap()
    };
    assert!(waited("cpu") > 0.0, "{said}");
    for by in ["slowdown", "pressure", "headroom", "no_huge_page"] {
        assert_eq!(waited(by), 0.0, "{by}");
    }
}
