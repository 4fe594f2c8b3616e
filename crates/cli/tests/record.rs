//! `superpage record` and what it leaves: who may read it, and what is left of one that is killed.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Whether programs can be recorded here; says so where not.
fn recorder() -> bool {
    let there = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|folder| folder.join(format!("qemu-{}", std::env::consts::ARCH)).exists());
    if !there {
        superpage_testing::skip!("qemu-user", "QEMU's user-mode emulator is not installed (apt install qemu-user)");
    }
    there
}

/// Starts a recording under an umask.
fn start(umask: &str, trace: &Path, program: &str) -> Child {
    let line = format!("umask {umask}; exec \"$0\" record -o \"$1\" -- sh -c \"$2\"");
    Command::new("sh")
        .args(["-c", &line, env!("CARGO_BIN_EXE_superpage")])
        .arg(trace)
        .arg(program)
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits for something that comes soon; panics where it does not.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A process's children and theirs.
fn descendants(process: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    let children = children.split_whitespace().map(|child| child.parse::<u32>().unwrap());
    children.flat_map(|child| std::iter::once(child).chain(descendants(child))).collect()
}

/// Whether a process is there and has not ended; the program that should reap it may not.
fn runs(process: u32) -> bool {
    fs::read_to_string(format!("/proc/{process}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with(['Z', 'X']))
}

/// The private folder of a recording, from the command line of what it emulates, once all threads
/// have their buffers.
fn folder(recording: u32, buffers: usize) -> (Vec<u32>, PathBuf) {
    until("the program has begun", || {
        let emulated = descendants(recording);
        let words = fs::read(format!("/proc/{}/cmdline", emulated.first()?)).ok()?;
        let words = String::from_utf8_lossy(&words).into_owned();
        let socket = PathBuf::from(words.split("socket=").nth(1)?.split(',').next()?);
        let folder = socket.parent()?.to_path_buf();
        let there = fs::read_dir(&folder).ok()?.flatten().filter(|file| file.file_name() != "socket").count();
        (emulated.len() >= buffers && there >= buffers).then_some((emulated, folder))
    })
}

#[test]
fn nothing_runs_on_after_a_kill_and_the_next_recording_clears_up() {
    let _turn = superpage_testing::turn_of("record");
    if !recorder() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let trace = place.path().join("killed.sp");
    let mut recording = start("022", &trace, "sleep 1000 & wait");
    let (emulated, folder) = folder(recording.id(), 2);
    assert!(emulated.iter().all(|process| runs(*process)));
    recording.kill().unwrap();
    recording.wait().unwrap();
    until("what is emulated ends with its recorder", || emulated.iter().all(|process| !runs(*process)).then_some(()));
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "no part of the trace is left");
    // The next recording clears the folder up: this one, or one of another test meanwhile.
    assert!(start("022", &trace, "exit 0").wait().unwrap().success());
    assert!(!folder.exists());
}

#[test]
fn the_stream_is_the_users_own_whatever_the_umask() {
    let _turn = superpage_testing::turn_of("record");
    if !recorder() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    for umask in ["000", "022", "277"] {
        let mut recording = start(umask, &place.path().join(umask), "sleep 1000 & wait");
        let (emulated, folder) = folder(recording.id(), 2);
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700, "umask {umask}");
        for file in fs::read_dir(&folder).unwrap() {
            let file = file.unwrap().path();
            assert_eq!(mode(&file), 0o600, "umask {umask}: {}", file.display());
        }
        // What QEMU loads lies there too, or has no name at all.
        let words = fs::read(format!("/proc/{}/cmdline", emulated[0])).unwrap();
        let words = String::from_utf8_lossy(&words).into_owned();
        let plugin = words.split("file=").nth(1).unwrap().split(',').next().unwrap();
        assert!(plugin.starts_with("/proc/self/fd/") || Path::new(plugin).starts_with(&folder), "{plugin}");
        recording.kill().unwrap();
        recording.wait().unwrap();
    }
}

#[test]
fn two_that_write_one_trace_leave_one_that_is_whole() {
    let _turn = superpage_testing::turn_of("record");
    if !recorder() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (trace, victim) = (place.path().join("same.sp"), place.path().join("victim"));
    // A link under a name that could be guessed, to something that must stay.
    fs::write(&victim, "mine").unwrap();
    std::os::unix::fs::symlink(&victim, place.path().join("same.sp.part")).unwrap();
    let recordings: Vec<Child> =
        ["ls / | sort", "i=0; while [ $i -lt 300 ]; do i=$((i+1)); done"].map(|line| start("022", &trace, line)).into();
    for mut recording in recordings {
        assert!(recording.wait().unwrap().success());
    }
    let info = Command::new(env!("CARGO_BIN_EXE_superpage")).args(["trace", "info"]).arg(&trace).output().unwrap();
    assert!(info.status.success(), "{}", String::from_utf8_lossy(&info.stderr));
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
    let mut names: Vec<_> = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["same.sp", "same.sp.part", "victim"]);
}

#[test]
fn who_stops_a_recording_gets_a_whole_trace_and_the_signals_status() {
    let _turn = superpage_testing::turn_of("record");
    if !recorder() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    for (signal, status) in [("INT", 130), ("TERM", 143), ("HUP", 129), ("QUIT", 131), ("USR2", 140)] {
        let trace = place.path().join(signal);
        let mut recording = start("022", &trace, "sleep 1000 & wait");
        let (emulated, folder) = folder(recording.id(), 2);
        let process = recording.id().to_string();
        assert!(Command::new("kill").args([&format!("-{signal}"), &process]).status().unwrap().success());
        // A terminal that is closed sends several.
        let _ = Command::new("kill").args([&format!("-{signal}"), &process]).status();
        assert_eq!(recording.wait().unwrap().code(), Some(status), "{signal}");
        assert!(!folder.exists() && emulated.iter().all(|process| !runs(*process)), "{signal}");
        let info = Command::new(env!("CARGO_BIN_EXE_superpage")).args(["trace", "info"]).arg(&trace).output().unwrap();
        assert!(info.status.success(), "{signal}: {}", String::from_utf8_lossy(&info.stderr));
    }
}

#[test]
fn advice_on_a_command_passes_its_status_on_and_a_part_of_it_gets_none() {
    let _turn = superpage_testing::turn_of("record");
    if !recorder() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let plan = place.path().join("plan");
    let advise = |program: &str| {
        let mut advise = Command::new(env!("CARGO_BIN_EXE_superpage"));
        advise.args(["advise", "-m", "zen5", "-o"]).arg(&plan).args(["--", "sh", "-c", program]);
        advise.stdout(Stdio::piped()).stderr(Stdio::piped());
        advise.spawn().unwrap()
    };
    let stopped = advise("sleep 1000 & wait");
    folder(stopped.id(), 2);
    assert!(Command::new("kill").args(["-INT", &stopped.id().to_string()]).status().unwrap().success());
    let output = stopped.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len(), plan.exists()), (Some(130), 0, false), "{said}");
    assert!(said.contains("nothing can be said of a part of it"), "{said}");
    let failed = advise("exit 3").wait_with_output().unwrap();
    assert_eq!(failed.status.code(), Some(3), "{}", String::from_utf8_lossy(&failed.stderr));
    assert!(!failed.stdout.is_empty());
}

/// The folder in `place` with the recording of an `advise`.
fn recording_in(place: &Path) -> Option<PathBuf> {
    let folders = fs::read_dir(place).ok()?.flatten().map(|entry| entry.path());
    folders.filter(|folder| folder.is_dir()).find(|folder| folder.join("program.sp").exists())
}

#[test]
fn what_a_killed_advise_left_goes_with_the_next_one() {
    let _turn = superpage_testing::turn_of("record");
    if !recorder() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let advise = |program: &str| {
        let mut advise = Command::new(env!("CARGO_BIN_EXE_superpage"));
        advise.args(["advise", "-m", "zen5"]).args(["--", "sh", "-c", program]).env("TMPDIR", place.path());
        advise.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut killed = advise("exit 0");
    let left = until("the recording is there, or all is done", || {
        let left = recording_in(place.path());
        let ended = killed.try_wait().unwrap().is_some();
        (left.is_some() || ended).then_some(left)
    });
    killed.kill().unwrap();
    killed.wait().unwrap();
    // One that is locked is another's, and stays.
    let own = place.path().join("superpage-record-other");
    fs::create_dir(&own).unwrap();
    fs::set_permissions(&own, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    fs::write(own.join("program.sp"), "theirs").unwrap();
    let lock = fs::File::open(&own).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let next = advise("exit 0").wait_with_output().unwrap();
    assert!(next.status.success(), "{}", String::from_utf8_lossy(&next.stderr));
    assert!(left.is_none_or(|left| !left.exists()) && own.join("program.sp").exists());
    drop(lock);
    assert!(advise("exit 0").wait().unwrap().success());
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

/// Whether `advise` can run a program of Perl natively, to find its addresses.
fn native_run() -> bool {
    let starts = |program: &str, option: &str| {
        Command::new(program).arg(option).stdout(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    let can = starts("strace", "-V") && starts("perl", "-v");
    if !can {
        superpage_testing::skip!("strace", "strace or perl is not installed");
    }
    can
}

#[test]
fn a_signal_during_the_native_run_ends_it_and_leaves_the_advice() {
    let _turn = superpage_testing::turn_of("record");
    if !recorder() || !native_run() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (plan, ran, pid) = (place.path().join("plan"), place.path().join("ran"), place.path().join("pid"));
    // The second time it says who it is, ignores SIGTERM and waits.
    let program = "$s = \"\\0\" x 16e6; vec($s, $_ * 7919 % 16000000, 8)++ for 1 .. 20000; \
        if (-e $ARGV[0]) { $SIG{TERM} = 'IGNORE'; open F, '>', \"$ARGV[1].new\"; print F $$; close F; \
        rename \"$ARGV[1].new\", $ARGV[1]; sleep 1000 } open F, '>', $ARGV[0]";
    let mut advise = Command::new(env!("CARGO_BIN_EXE_superpage"));
    advise.args(["advise", "-m", "zen5", "-o"]).arg(&plan).args(["--", "perl", "-e", program]).args([&ran, &pid]);
    let mut advise = advise.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let native = until("it runs natively, or ends", || {
        let ended = advise.try_wait().unwrap().is_some();
        fs::read_to_string(&pid).ok().map(|text| text.parse::<u32>().ok()).or(ended.then_some(None))
    });
    let Some(native) = native else {
        let said = advise.wait_with_output().unwrap();
        return superpage_testing::skip!("strace", "it may not trace here: {}", String::from_utf8_lossy(&said.stdout));
    };
    for _ in 0..2 {
        assert!(Command::new("kill").args(["-INT", &advise.id().to_string()]).status().unwrap().success());
    }
    let output = advise.wait_with_output().unwrap();
    let (printed, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(130), "{said}");
    let words = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("of the gain") && words.contains("a signal interrupted the native run"), "{printed}");
    assert!(!runs(native), "the command is gone");
    let text = fs::read_to_string(&plan).unwrap();
    assert!(!text.is_empty() && !text.contains("# native"), "{text}");
}

#[test]
fn a_plan_of_a_command_makes_its_regions_huge_and_no_others_in_the_live_program() {
    let _turn = superpage_testing::turn_of("record");
    if !recorder() || !native_run() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let plan = place.path().join("plan");
    // A string of 32 MB, of which the first 8 are used: then it waits as long as standard input is
    // open.
    let program = "$s = \"\\0\" x 32e6; vec($s, $_ * 7919 % 8000000, 8)++ for 1 .. 20000; $| = 1; print 1; <STDIN>";
    let command = ["perl", "-e", program];
    let mut advise = Command::new(env!("CARGO_BIN_EXE_superpage"));
    advise.args(["advise", "-m", "zen5", "--format", "json", "-o"]).arg(&plan).arg("--").args(command);
    let output = advise.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let json = String::from_utf8_lossy(&output.stdout).into_owned();
    // The program's own output comes first.
    let advice: serde_json::Value = serde_json::from_str(json.trim_start_matches('1')).unwrap();
    let native = &advice["native"];
    if native.is_null() {
        return superpage_testing::skip!("strace", "it may not trace here: {said}");
    }
    let (matched, regions) = (native["matched"].as_u64().unwrap(), native["regions"].as_array().unwrap());
    assert!(matched > 12 && matched as usize <= regions.len(), "{native}");
    assert!(said.contains("run -v -p plan:file="), "{said}");
    let text = fs::read_to_string(&plan).unwrap();
    let (recorded, lines) = text.split_once("# native\n").unwrap();
    assert_eq!((recorded.lines().count(), lines.lines().count() as u64), (regions.len(), matched));
    let simulated = format!("plan:file={},cost=0", plan.display());
    let mut sim = Command::new(env!("CARGO_BIN_EXE_superpage"));
    sim.args(["sim", "-m", "zen5", "-p", &simulated, "random:bytes=1M,references=1K"]);
    assert!(sim.output().unwrap().status.success());
    // The first of them alone, so that others are populated and stay as they are.
    const FIRST: usize = 8;
    let first: String = lines.lines().take(FIRST).map(|line| format!("{line}\n")).collect();
    fs::write(&plan, format!("{recorded}# native\n{first}")).unwrap();
    if !rustix::process::geteuid().is_root() {
        superpage_testing::skip!("root", "a live plan needs the right to promote");
        return;
    }
    let mut run = Command::new(env!("CARGO_BIN_EXE_superpage"));
    run.args(["run", "-v", "-p", &format!("plan:file={},interval=10ms", plan.display()), "--"]).args(command);
    let mut run = run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let child = until("the command runs", || descendants(run.id()).first().copied());
    let huge = until("its regions are huge", || {
        let text = fs::read_to_string(format!("/proc/{child}/smaps_rollup")).ok()?;
        let line = text.lines().find(|line| line.starts_with("AnonHugePages:"))?;
        let huge = line.split_whitespace().nth(1)?.parse::<u64>().ok()? / 2048;
        (huge >= 2).then_some(huge)
    });
    assert!(huge <= FIRST as u64, "{huge} of {FIRST}");
    drop(run.stdin.take());
    let output = run.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("regions of the plan"), "{said}");
    assert!(said.contains("without address space randomization"), "{said}");
}

#[test]
fn what_the_emulator_cannot_start_leaves_the_file_that_was_there() {
    let _turn = superpage_testing::turn_of("record");
    if !recorder() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (trace, program) = (place.path().join("there.sp"), place.path().join("cut"));
    fs::write(&trace, "before").unwrap();
    let whole = fs::read(env!("CARGO_BIN_EXE_superpage")).unwrap();
    fs::write(&program, &whole[..4096]).unwrap();
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut record = Command::new(env!("CARGO_BIN_EXE_superpage"));
    let output = record.args(["record", "-o"]).arg(&trace).arg("--").arg(&program).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("the emulator ended before the program began"), "{said}");
    assert_eq!(fs::read(&trace).unwrap(), b"before");
}

#[test]
fn a_full_folder_for_buffers_ends_no_program() {
    let _turn = superpage_testing::turn_of("record");
    let mounts =
        || Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "-o", "size=32k", "none", "/dev/shm"]).output();
    if !recorder() {
        return;
    }
    if !mounts().is_ok_and(|output| output.status.success()) {
        return superpage_testing::skip!("system", "only root may mount a small /dev/shm");
    }
    let place = tempfile::tempdir().unwrap();
    let line =
        "mount -t tmpfs -o size=32k none /dev/shm && exec \"$0\" record -o \"$1\" -- sh -c 'ls / | sort; exit 7'";
    let recording = Command::new("unshare")
        .args(["-m", "sh", "-c", line, env!("CARGO_BIN_EXE_superpage")])
        .arg(place.path().join("full.sp"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&recording.stderr);
    assert_eq!(recording.status.code(), Some(7), "{said}");
    assert!(said.contains("has no room for a buffer"), "{said}");
    assert!(!said.contains("interrupted") && place.path().join("full.sp").exists(), "{said}");
}

/// A folder that was removed has no right that root would lack, whatever the system says.
#[test]
fn where_the_working_directory_was_removed_an_output_is_refused_for_that() {
    let place = tempfile::tempdir().unwrap();
    let input = place.path().join("small.lackey");
    std::fs::write(&input, " L 1000,8\nI  400000,3\n").unwrap();
    let gone = place.path().join("gone");
    std::fs::create_dir(&gone).unwrap();
    let script = "rmdir \"$PWD\" && exec \"$0\" trace import lackey \"$1\" -o out.sp";
    let import = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_superpage")])
        .arg(&input)
        .current_dir(&gone)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&import.stderr);
    assert_eq!(import.status.code(), Some(2), "{said}");
    assert!(said.contains("out.sp: the working directory was removed"), "{said}");
}
