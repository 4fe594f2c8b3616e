//! `superpage compare`, from outside.
#![cfg(target_os = "linux")]

use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use superpage_linux::settings::{HUGETLB_OVERCOMMIT, HUGETLB_POOL, Settings, System, THP_ENABLED};

pub(crate) const SUPERPAGE: &str = env!("CARGO_BIN_EXE_superpage");

/// A comparison of `command`; now alone changes nothing.
pub(crate) fn compare(options: &[&str], command: &[&str]) -> Command {
    let mut compare = Command::new(SUPERPAGE);
    compare.arg("compare").args(options).arg("--").args(command);
    compare.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    compare
}

pub(crate) fn output(options: &[&str], command: &[&str]) -> Output {
    compare(options, command).output().expect("the command can be started")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The rows of a comparison that has to succeed, with nothing else on standard output.
pub(crate) fn rows(options: &[&str], command: &[&str]) -> Vec<Value> {
    let output = output(&[&["--format", "json"], options].concat(), command);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    rows.as_array().unwrap().clone()
}

/// The number in a file that another process writes.
pub(crate) fn wait_for(path: &Path) -> u32 {
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        match fs::read_to_string(path).unwrap_or_default().trim().parse() {
            Ok(pid) => return pid,
            Err(_) => assert!(Instant::now() < patience, "{} was never written", path.display()),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn equal_policies_have_rows_of_their_own() {
    let _turn = superpage_testing::turn_of("compare");
    let rows = rows(&["-r", "6", "--policy", "now", "--policy", "now"], &["true"]);
    let names: Vec<&Value> = rows.iter().map(|row| &row["policy"]).collect();
    assert_eq!(names, ["now", "now#2"]);
    for row in &rows {
        for key in [
            "command",
            "runs",
            "wall_seconds",
            "user_seconds",
            "system_seconds",
            "minor_faults",
            "major_faults",
            "peak_rss_bytes",
            "huge_bytes",
            "huge_coverage_percent",
            "most_huge_bytes",
            "did",
            "reached",
            "verdict",
            "system_times",
            "faults",
            "dtlb_load_misses",
            "dtlb_store_misses",
            "itlb_misses",
            "walk_cycles",
            "speedup",
            "exit_codes",
        ] {
            assert!(row.get(key).is_some(), "{key} is missing in {row}");
        }
        for key in ["median", "mean", "stddev", "min", "max"] {
            assert!(row["wall_seconds"][key].as_f64().unwrap() >= 0.0);
        }
        assert_eq!(row["runs"], 6);
        assert_eq!(row["exit_codes"], serde_json::json!([0, 0, 0, 0, 0, 0]));
        assert!(row["minor_faults"].as_u64().unwrap() > 10);
    }
    assert_eq!(rows[0]["speedup"], 1.0);
    assert!(rows[0]["time_ratio"].is_null());
    let ratio = |key: &str| rows[1]["time_ratio"][key].as_f64().unwrap();
    assert!(ratio("low") <= ratio("estimate") && ratio("estimate") <= ratio("high"));
    assert!(ratio("level") >= 0.95);
}

#[test]
fn the_whole_tree_is_measured() {
    let _turn = superpage_testing::turn_of("compare");
    // A daemon that the command does not wait for, in a session of its own: it sleeps, keeps 64 MB,
    // and computes.
    let daemon =
        "sleep 0.4; head -c 64m /dev/zero | tail -c 64m >/dev/null; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
    let script = format!("setsid sh -c '{daemon}' & exit 0");
    let alone = &rows(&["-r", "1", "-w", "0", "--policy", "now"], &["sh", "-c", "exit 0"])[0];
    let row = &rows(&["-r", "1", "-w", "0", "--policy", "now"], &["sh", "-c", &script])[0];
    assert!(row["wall_seconds"]["median"].as_f64().unwrap() >= 0.4, "{row}");
    assert!(row["peak_rss_bytes"].as_u64().unwrap() >= 64 << 20, "{row}");
    let used = |row: &Value| {
        row["user_seconds"]["median"].as_f64().unwrap() + row["system_seconds"]["median"].as_f64().unwrap()
    };
    assert!(used(row) > used(alone), "{row}");
    assert!(row["minor_faults"].as_u64() > alone["minor_faults"].as_u64(), "{row}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let _turn = superpage_testing::turn_of("compare");
    for options in [
        &["-r", "0"][..],
        &["-r", "-1"],
        &["--policy", "reservation"],
        &["--policy", "mthp:size=65K"],
        &["--format", "xml"],
        &["-p", "thp"],
    ] {
        assert_eq!(output(options, &["true"]).status.code(), Some(2), "{options:?}");
    }
    assert_eq!(output(&[], &[]).status.code(), Some(2));
    let export = output(&["--policy", "now", "--export-json", "/no/such/folder/file"], &["true"]);
    assert_eq!(export.status.code(), Some(2));
    assert!(text(&export.stderr).contains("cannot write /no/such/folder/file: "), "{}", text(&export.stderr));
}

#[test]
fn preparations_and_output_are_where_they_belong() {
    let _turn = superpage_testing::turn_of("compare");
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let append = |word: &str| format!("echo {word} >> {}", log.display());
    let (prepare, conclude) = (append("before"), append("after"));
    let options =
        ["-r", "2", "-w", "1", "--policy", "now", "-p", &prepare, "-c", &conclude, "--shell", "--show-output"];
    let shown = output(&options, &["echo said;", &append("run")]);
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    assert_eq!(fs::read_to_string(&log).unwrap(), "before\nrun\nafter\n".repeat(3));
    assert!(text(&shown.stdout).starts_with("said\nsaid\nsaid\n"), "{}", text(&shown.stdout));
    // Without a shell the words are the program and its arguments; with JSON, output goes
    // elsewhere.
    let options = ["-r", "1", "-w", "0", "--policy", "now", "--shell", "-N", "--show-output", "--format", "json"];
    let shown = output(&options, &["echo", "a;", "echo b"]);
    assert!(serde_json::from_slice::<Value>(&shown.stdout).is_ok(), "{}", text(&shown.stdout));
    assert!(text(&shown.stderr).contains("a; echo b\n"), "{}", text(&shown.stderr));
    let failed = output(&["-r", "1", "--policy", "now", "-p", "exit 4"], &["true"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(text(&failed.stderr).contains("--prepare"), "{}", text(&failed.stderr));
}

/// It is ended, whether the signal comes to it too, as from a terminal, or not.
/// `thp (1)` and the like are commands of their own, which differ as much as one wants.
/// A command whose first run alone fails.
#[test]
fn settings_are_put_back() {
    let _turn = superpage_testing::turn_of("compare");
    const SETTINGS: [&str; 4] =
        [THP_ENABLED, "sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled", HUGETLB_POOL, HUGETLB_OVERCOMMIT];
    let all = |settings: &Settings| SETTINGS.map(|setting| settings.system().get(setting).ok());
    let before = match Settings::take(true) {
        Ok(settings) => all(&settings),
        Err(error) => return superpage_testing::skip!("system", "{error}"),
    };
    let options = ["-r", "1", "-w", "0", "--policy", "thp", "--policy", "mthp:size=64K", "--policy", "hugetlb"];
    let done = output(&options, &["cat", "/sys/kernel/mm/transparent_hugepage/enabled"]);
    let after = all(&Settings::take(true).unwrap());
    assert_eq!(before, after);
    if !done.status.success() {
        // A kernel without huge pages, or a container that may not change them.
        return superpage_testing::skip!("system", "{}", text(&done.stderr));
    }
    assert!(text(&done.stdout).contains("too few runs to advise"), "{}", text(&done.stdout));
}

/// Waits for `seconds` at most until something holds.
pub(crate) fn until(seconds: u64, what: &str, holds: impl Fn() -> bool) {
    let patience = Instant::now() + Duration::from_secs(seconds);
    while !holds() {
        assert!(Instant::now() < patience, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn nobody_changes_settings_while_they_are_measured_under() {
    let _turn = superpage_testing::turn_of("compare");
    if let Err(error) = Settings::take(true) {
        return superpage_testing::skip!("system", "{error}");
    }
    let mut reader = compare(&["-r", "1", "-w", "0", "--policy", "base"], &["sleep", "2"]).spawn().unwrap();
    let refused = format!("process {} (", reader.id());
    let lock = || Settings::new(System::live(), false).lock();
    let measures = |said: &str| said.contains(&refused) && said.contains(") measures under the settings");
    until(60, &refused, || lock().is_err_and(|error| measures(&error.to_string())));
    // Another that only measures runs at the same time, and one that changes settings waits.
    rows(&["-r", "1", "-w", "0", "--policy", "now"], &["true"]);
    let done = output(&["-r", "1", "-w", "0", "--policy", "thp"], &["true"]);
    let said = text(&done.stderr);
    // Of several that measure, as other tests may do now, it names one.
    assert!(said.contains("waiting until process") && said.contains("has ended, which measures"), "{said}");
    assert!(reader.wait().unwrap().success());
}

#[test]
fn a_row_measured_under_other_settings_gets_no_verdict() {
    let _turn = superpage_testing::turn_of("compare");
    let mut settings = match Settings::take(true) {
        Ok(settings) => settings,
        Err(error) => return superpage_testing::skip!("system", "{error}"),
    };
    let folder = tempfile::tempdir().unwrap();
    // Another folder for locks, as for one who has no right to this one: a change is noticed all
    // the same.
    let begun = folder.path().join("begun");
    let script = format!("echo $$ > {}; sleep 0.7", begun.display());
    let options = ["-r", "3", "-w", "0", "--policy", "now", "--policy", "now", "--format", "json"];
    let mut command = compare(&options, &["sh", "-c", &script]);
    let comparison = command.env("SUPERPAGE_RUN_DIR", folder.path().join("run")).spawn().unwrap();
    wait_for(&begun);
    let before = settings.system().get(THP_ENABLED).unwrap();
    let set = settings.set(THP_ENABLED, if before == "always" { "madvise" } else { "always" });
    std::thread::sleep(Duration::from_secs(1));
    settings.restore().unwrap();
    let output = comparison.wait_with_output().unwrap();
    if let Err(error) = set {
        return superpage_testing::skip!("system", "{error}");
    }
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    let differed: Vec<u64> = (0..2).map(|row| rows[row]["settings_differed"].as_u64().unwrap()).collect();
    assert!((1..=4).contains(&differed.iter().sum::<u64>()), "{differed:?}");
    assert_eq!(rows[1]["verdict"], "settings-differed");
    assert!(said.contains(&format!("/{THP_ENABLED} was ")) && said.contains("so it gets no verdict"), "{said}");
}

#[test]
fn without_rights_one_sentence_says_so() {
    let _turn = superpage_testing::turn_of("compare");
    // With the lock, nobody else sets what this comparison would need in the meantime.
    let _settings = match Settings::take(true) {
        Ok(settings) => settings,
        Err(error) => return superpage_testing::skip!("system", "{error}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let copy = Path::new("/tmp").join(folder.path().file_name().unwrap()).join("superpage");
    if fs::create_dir_all(copy.parent().unwrap()).and_then(|()| fs::copy(SUPERPAGE, &copy).map(drop)).is_err() {
        return superpage_testing::skip!("system", "/tmp takes no copy of the command");
    }
    let open = |path: &Path| fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    open(copy.parent().unwrap());
    open(&copy);
    let mut command = Command::new(&copy);
    command.args(["compare", "-r", "1", "--policy", "mthp:size=64K", "--", "true"]).uid(65534).gid(65534);
    let output = command.current_dir("/").output();
    fs::remove_dir_all(copy.parent().unwrap()).unwrap();
    let Ok(output) = output else { return superpage_testing::skip!("system", "this user cannot become another") };
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("nothing can be compared with now here; mthp:size=64K is left out: "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// A command that is run may be the service of a manager; one that is measured is not.
#[test]
fn the_socket_of_a_service_manager_is_for_the_command_of_run_alone() {
    let _turn = superpage_testing::turn_of("compare");
    let folder = tempfile::tempdir().unwrap();
    let script = "printf '[%s]' \"$NOTIFY_SOCKET\" > heard";
    let heard = |mut command: Command| {
        let output = command.env("NOTIFY_SOCKET", "/no/such").current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        fs::read_to_string(folder.path().join("heard")).unwrap()
    };
    assert_eq!(heard(compare(&["-r", "1", "-w", "0", "--policy", "now"], &["sh", "-c", script])), "[]");
    let mut run = Command::new(SUPERPAGE);
    run.args(["run", "--policy", "now", "--", "sh", "-c", script]);
    assert_eq!(heard(run), "[/no/such]");
}

#[test]
fn code_on_huge_pages_is_compared_too() {
    let _turn = superpage_testing::turn_of("compare");
    if Command::new("node").arg("-v").output().is_err() || !cfg!(target_arch = "x86_64") {
        superpage_testing::skip!("node", "node is not installed, or this is no x86-64");
        return;
    }
    let output = output(&["--policy", "text", "-r", "2", "-w", "1"], &["env", "node", "-e", "0"]);
    let said = [text(&output.stdout), text(&output.stderr)].concat();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("text: code of ") || said.contains("text: the command's code stays as it is"), "{said}");
}

#[test]
fn what_is_huge_is_known_of_the_shortest_command() {
    let _turn = superpage_testing::turn_of("compare");
    if let Err(error) = superpage_linux::tree::exits::check() {
        return superpage_testing::skip!("system", "{error}");
    }
    for command in
        [&["true"][..], &["sh", "-c", "true; true"], &["dd", "if=/dev/zero", "of=/dev/null", "bs=32M", "count=1"]]
    {
        let row = &rows(&["-r", "1", "--policy", "now"], command)[0];
        assert!(row["huge_coverage_percent"].is_number(), "{command:?}: {row}");
    }
    // Without such a run it says why not, unless it was quick enough to look.
    let output = output(&["-r", "1", "-w", "0", "--policy", "now"], &["true"]);
    let said = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    let why = said.contains("only runs that do not count are looked at when they end");
    assert!(why == said.contains("its huge pages could not be counted"), "{said}");
}

#[test]
fn a_command_that_traces_others_is_run_untraced() {
    let _turn = superpage_testing::turn_of("compare");
    if let Err(error) = superpage_linux::tree::exits::check() {
        return superpage_testing::skip!("system", "{error}");
    }
    let tracing = "import ctypes, os, sys\n\
                   sys.exit(1 if ctypes.CDLL(None).ptrace(0, 0, 0, 0) else 0)";
    if Command::new("python3").arg("--version").output().is_err() {
        return superpage_testing::skip!("python3", "python3 is not installed");
    }
    let output = output(&["-r", "1", "--policy", "now"], &["python3", "-c", tracing]);
    let said = [text(&output.stdout), text(&output.stderr)].concat();
    assert!(output.status.success(), "{said}");
}

/// A program of 64 MB that asks for huge pages itself, in the words of its policy's row.
#[test]
fn a_program_that_asks_for_huge_pages_itself_is_compared_with_what_it_has() {
    let _turn = superpage_testing::turn_of("compare");
    let rules = superpage_linux::rules::Rules::read();
    if rules.anonymous("2M".parse().unwrap()).is_none_or(|word| word == "never") {
        return superpage_testing::skip!("system", "this system gives no huge pages to those who ask");
    }
    let asks = "import mmap, os, ctypes\n\
                m = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
                m.madvise(14)\n\
                m.write(bytes(64 << 20))\n\
                os._exit(0)";
    if Command::new("python3").args(["-c", "import mmap; mmap.mmap(-1, 4096).madvise(14)"]).status().is_err() {
        return superpage_testing::skip!("python3", "python3 is not installed");
    }
    let rows = rows(&["-r", "1", "--policy", "base", "--policy", "promote"], &["python3", "-c", asks]);
    let names: Vec<&str> = rows.iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(names[..2], ["now", "base"]);
    if rows[0]["most_huge_bytes"].as_u64().is_none_or(|bytes| bytes < 32 << 20) {
        return superpage_testing::skip!("system", "no huge pages were to be had: {}", rows[0]);
    }
    // Another test may have changed a setting meanwhile, which is said first.
    assert!(rows[0]["did"].as_str().unwrap().contains("advised by the program itself: "), "{}", rows[0]);
    assert_eq!(rows[1]["reached"], true, "{}", rows[1]);
    assert!(rows[1]["did"].as_str().unwrap().ends_with("huge under now are in base pages"), "{}", rows[1]);
    // It ends long before a promoter has looked, unless the machine is busy.
    if let Some(promote) = rows.get(2).filter(|row| row["settings_differed"] == 0) {
        assert_eq!((&promote["reached"], &promote["verdict"]), (&Value::Bool(false), &Value::from("nothing-reached")));
        assert!(promote["did"].as_str().unwrap().contains("nothing: "), "{promote}");
    }
}

#[test]
fn the_table_is_no_wider_than_a_hundred_columns_unless_it_is_asked_for() {
    let _turn = superpage_testing::turn_of("compare");
    let options = ["-r", "1", "-w", "1", "--policy", "now", "--policy", "base"];
    let widest = |bytes: &[u8]| text(bytes).lines().map(|line| line.chars().count()).max().unwrap();
    let narrow =
        output(&options, &["sh", "-c", "true # a command that has a name as long as a name of a command is never"]);
    assert!(narrow.status.success(), "{}", text(&narrow.stderr));
    assert!(widest(&narrow.stdout) <= 100, "{}", text(&narrow.stdout));
    assert!(!text(&narrow.stdout).contains("faults  major"));
    let wide = output(&[&options[..], &["--wide"]].concat(), &["true"]);
    assert!(text(&wide.stdout).contains("faults  major"), "{}", text(&wide.stdout));
}

/// With a setting of shared memory made of a file, in a namespace where mounts are private. Under
/// any other policy the command ends at once.
#[test]
fn promote_restores_the_setting_of_shared_memory_once_the_command_has_mapped_its_memory() {
    let _turn = superpage_testing::turn_of("compare");
    // Its lock is in another folder, so others would change the other settings meanwhile.
    let _others = match Settings::take(true) {
        Ok(settings) => settings,
        Err(error) => return superpage_testing::skip!("system", "{error}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let setting = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    let mount = format!("echo never > shmem && mount --bind shmem {setting} || exit 77; exec \"$@\"");
    let command = format!("[ $(cat {setting}) = advise ] || exit 0; sleep 11; cat {setting} >> after");
    let done = Command::new("unshare")
        .args(["-m", "sh", "-c", &mount, "sh", SUPERPAGE, "compare", "-r", "1", "-w", "0", "--policy", "promote"])
        .args(["--format", "json", "--", "sh", "-c", &command])
        .env("SUPERPAGE_RUN_DIR", folder.path().join("run"))
        .current_dir(folder.path())
        .output()
        .unwrap();
    let error = text(&done.stderr);
    if done.status.code() == Some(77) || error.contains("unshare: ") || error.contains("promote is left out") {
        return superpage_testing::skip!("system", "{error}");
    }
    assert!(done.status.success(), "{error}");
    assert_eq!(fs::read_to_string(folder.path().join("after")).unwrap(), "never", "{error}");
    let rows: Value = serde_json::from_slice(&done.stdout).unwrap();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 2, "{error}");
    assert!(rows.iter().all(|row| row["settings_differed"] == 0), "{rows:?}");
}

/// A small file system of its own that is full, in a namespace where mounts are private.
#[test]
fn a_row_may_have_a_command_of_its_own() {
    let _turn = superpage_testing::turn_of("compare");
    let with = "now=LEAST=0.3 sh -c 'sleep ${LEAST:-9}'";
    let rows = rows(&["-r", "1", "-w", "0", "--with", with], &["true"]);
    let names: Vec<&Value> = rows.iter().map(|row| &row["policy"]).collect();
    assert_eq!(names, ["now", "now (1)"]);
    let time = |row: &Value| row["wall_seconds"]["median"].as_f64().unwrap();
    assert!(time(&rows[0]) < 0.25 && (0.3..5.0).contains(&time(&rows[1])), "{rows:?}");
    assert!(rows[1]["command"].as_str().unwrap().contains("LEAST=0.3"), "{rows:?}");
    for wrong in ["nothing=true", "thp", "now=", "now=A=1", "mthp:size=64K='open"] {
        let refused = output(&["--with", wrong], &["true"]);
        assert_eq!(refused.status.code(), Some(2), "{wrong}: {}", text(&refused.stderr));
    }
}

#[test]
fn what_reaches_into_other_programs_is_left_out_unless_it_is_asked_for() {
    // Apart from tests that hold the settings in this process.
    let _turn = superpage_testing::turn_of("compare, with the settings of all");
    // Without the lock: a child of another test may have it for a moment.
    if let Err(error) = fs::OpenOptions::new().write(true).open(Path::new("/").join(THP_ENABLED)) {
        return superpage_testing::skip!("system", "{error}");
    }
    let small = ["-r", "1", "-w", "0"];
    let alone = output(&[&small[..], &["--policy", "thp", "--policy", "base", "--only-mine"]].concat(), &["true"]);
    let said = text(&alone.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("thp is left out: it changes settings of the whole system") && said.contains(" base "),
        "{said}"
    );
    // 100 MB of its own: a bystander.
    let mut service = Command::new("python3");
    service.args(["-c", "import time; held = b'x' * (100 << 20); print('up', flush=True); time.sleep(100)"]);
    let Ok(mut service) = service.stdout(Stdio::piped()).spawn() else {
        return superpage_testing::skip!("python3", "there is no python3 to be a bystander");
    };
    std::io::Read::read_exact(service.stdout.as_mut().unwrap(), &mut [0; 3]).unwrap();
    let told = |options: &[&str]| {
        let output = output(&[&small[..], options].concat(), &["true"]);
        let stdout = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        (stdout, text(&output.stderr))
    };
    let (considerate, everybody, chosen) = (told(&[]), told(&["--system-wide"]), told(&["--policy", "thp"]));
    let _ = service.kill();
    let _ = service.wait();
    let left_out = " left out: each changes settings of the whole system, and other programs run: ";
    // The three largest are: a build beside this one may have larger ones.
    let named = considerate.0.contains(&format!("({}, 1", service.id()));
    assert!(
        considerate.0.matches(left_out).count() == 1
            && considerate.0.contains("- thp, ")
            && (named || considerate.0.contains(" more; superpage compare --system-wide")),
        "{considerate:?}"
    );
    // What was not tried is said where the advice is.
    assert!(considerate.0.contains("; not compared, as said below: thp, "), "{}", considerate.0);
    for (stdout, stderr) in [everybody, chosen] {
        assert!(!stdout.contains("left out: it changes"), "{stdout}");
        assert!(stderr.contains("settings of the whole system are changed in the runs of thp"), "{stderr}");
    }
}

/// Three programs, each as it says, and no setting changed: `try` needs no root.
#[test]
fn try_compares_three_programs() {
    let _turn = superpage_testing::turn_of("compare");
    let output = Command::new(SUPERPAGE).args(["try", "-r", "1", "--format", "json"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let programs: Value = serde_json::from_slice(&output.stdout).unwrap();
    let programs = programs.as_object().unwrap();
    assert_eq!(programs.keys().collect::<Vec<_>>(), ["mixer", "sparse", "table"]);
    for (program, rows) in programs {
        let rows = rows.as_array().unwrap();
        let policies: Vec<&Value> = rows.iter().map(|row| &row["policy"]).collect();
        assert_eq!(policies, ["now", "base", "promote:age=100ms,interval=100ms,shared=off", "asks"]);
        let faults = rows[1]["minor_faults"].as_f64().unwrap();
        let least = match program.as_str() {
            "table" => 32_768.0,
            "sparse" => 2048.0,
            _ => 64.0,
        };
        assert!(faults >= least, "{program} has {faults} faults with base pages");
        // What asks has them at first touches, where there are any: whatever its C library does.
        let gives = !fs::read_to_string(Path::new("/").join(THP_ENABLED)).unwrap_or_default().contains("[never]");
        let there = rows[3]["free_blocks"].as_u64().is_some_and(|blocks| blocks > 1024);
        let size = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").unwrap_or_default();
        if gives && there && size.trim() == "2097152" && program != "mixer" {
            let asked = rows[3]["minor_faults"].as_f64().unwrap();
            assert!(asked < faults / 2.0, "{program} has {asked} faults where it asks, and {faults} otherwise");
        }
    }
    assert!(!text(&output.stderr).contains("settings of the whole system"), "{}", text(&output.stderr));
}

/// All free blocks are broken up before each run, and a program that asks for huge pages gets none.
#[test]
fn memory_can_be_fragmented() {
    // Apart from tests that need huge pages.
    let _turn = superpage_testing::turn_of("compare, in fragmented memory");
    if !fs::read_to_string(Path::new("/").join(THP_ENABLED)).unwrap_or_default().contains("[madvise]") {
        return superpage_testing::skip!("huge-pages", "enabled is not madvise");
    }
    if std::env::var_os("SUPERPAGE_REQUIRE").is_none() {
        return superpage_testing::skip!(
            "free memory",
            "not unasked: SUPERPAGE_REQUIRE=root has it done, for all programs"
        );
    }
    let asks = [SUPERPAGE, "try", "--only", "table", "--asks"];
    let fragmented = ["-r", "1", "-w", "0", "--policy", "now", "--memory-state", "fragmented"];
    let fragments = || {
        let rows = rows(&fragmented, &asks);
        let (free, huge) = (rows[0]["free_blocks"].as_u64().unwrap(), rows[0]["huge_bytes"].as_u64());
        let worked = free < 64 && huge.is_none_or(|huge| huge < 64 << 20);
        worked.then_some(()).ok_or(format!("{free} blocks were free, and {huge:?} bytes are huge"))
    };
    // Other programs may give whole blocks back in between.
    (0..3).fold(fragments(), |done, _| done.or_else(|_| fragments())).unwrap();
    let refused = output(&["--memory-state", "fragmented", "--only-mine"], &["true"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
}
