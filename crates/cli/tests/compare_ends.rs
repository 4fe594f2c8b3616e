//! How `superpage compare` ends: by a signal, a failure, a limit or its verdicts; and what it has
//! written then.
#![cfg(target_os = "linux")]

use super::compare::{compare, output, rows, text, wait_for};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use superpage_linux::settings::THP_ENABLED;

#[test]
fn a_failure_ends_the_comparison_unless_it_is_ignored() {
    let _turn = superpage_testing::turn_of("compare");
    let failed = output(&["--policy", "now"], &["sh", "-c", "exit 3"]);
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(text(&failed.stdout), "");
    assert!(
        text(&failed.stderr).contains("ended with status 3 under now in a warm-up run"),
        "{}",
        text(&failed.stderr)
    );
    let failed = output(&["-w", "0", "-r", "2", "--policy", "now"], &["sh", "-c", "kill -KILL $$"]);
    assert!(text(&failed.stderr).contains("ended with status 137 under now in round 1"), "{}", text(&failed.stderr));
    let rows = rows(&["-i", "-r", "2", "--policy", "now"], &["sh", "-c", "exit 3"]);
    assert_eq!(rows[0]["exit_codes"], serde_json::json!([3, 3]));
    let missing = output(&["--policy", "now"], &["/no/such/program"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("/no/such/program"), "{}", text(&missing.stderr));
}

#[test]
fn exports_are_whole_or_not_at_all() {
    let _turn = superpage_testing::turn_of("compare");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (json, csv, markdown, html) = (path("a.json"), path("a.csv"), path("a.md"), path("a.html"));
    fs::write(&json, "before").unwrap();
    let options = [
        "-r",
        "2",
        "--policy",
        "now",
        "--policy",
        "now",
        "--export-json",
        &json,
        "--export-csv",
        &csv,
        "--export-markdown",
        &markdown,
        "--export-html",
        &html,
    ];
    let failed = output(&options, &["false"]);
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(fs::read_to_string(&json).unwrap(), "before");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");

    let done = output(&options, &["echo", "a|b, \"c\" <d>"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let exported: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let results = exported["results"].as_array().unwrap();
    assert_eq!(results.len(), 2);
    assert_eq!(results[1]["parameters"]["policy"], "now#2");
    assert_eq!(results[0]["times"].as_array().unwrap().len(), 2);
    assert_eq!(results[0]["exit_codes"], serde_json::json!([0, 0]));
    for key in ["command", "mean", "stddev", "median", "user", "system", "min", "max"] {
        assert!(!results[0][key].is_null(), "{key}");
    }
    let csv = fs::read_to_string(&csv).unwrap();
    assert!(csv.starts_with("command,mean,stddev,median,user,system,min,max,parameter_policy,"), "{csv}");
    assert_eq!(csv.lines().count(), 3);
    let markdown = fs::read_to_string(&markdown).unwrap();
    assert!(markdown.contains("`: 2 rounds\n"), "{markdown}");
    assert!(markdown.contains("| policy | time |") && markdown.contains("\n| now#2 |"), "{markdown}");
    let html = fs::read_to_string(&html).unwrap();
    assert!(html.contains("&lt;d&gt;") && html.contains("Page faults") && html.ends_with("</html>\n"));
}

#[test]
fn an_interrupt_ends_the_command_and_the_complete_rounds_are_shown_and_written() {
    let _turn = superpage_testing::turn_of("compare");
    let folder = tempfile::tempdir().unwrap();
    let (log, alive) = (folder.path().join("log"), folder.path().join("alive"));
    let prepare = format!("echo x >> {}", log.display());
    // The third run and those after it never end.
    let script =
        format!("[ $(wc -l < {}) -le 2 ] || {{ echo $$ > {}; exec sleep 1000; }}", log.display(), alive.display());
    let export = folder.path().join("export.json");
    fs::write(&export, "before").unwrap();
    let concluded = folder.path().join("concluded");
    let conclude = format!("echo x >> {}", concluded.display());
    let export_to = export.to_str().unwrap();
    let options = ["-w", "0", "--policy", "now", "-p", &prepare, "-c", &conclude, "--export-json", export_to];
    let signals =
        [("INT", 130), ("TERM", 143), ("HUP", 129), ("QUIT", 131), ("USR1", 138), ("USR2", 140), ("ALRM", 142)];
    for (signal, status) in
        signals.into_iter().chain([("ABRT", 134), ("XCPU", 152), ("IO", 157), ("PWR", 158), ("RTMIN", 162)])
    {
        let _ = (fs::remove_file(&log), fs::remove_file(&alive), fs::remove_file(&concluded));
        let child = compare(&options, &["sh", "-c", &script]).spawn().unwrap();
        let pid = wait_for(&alive);
        assert!(
            Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap().success()
        );
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{signal}");
        let exported: Value = serde_json::from_str(&fs::read_to_string(&export).unwrap()).unwrap();
        assert_eq!(exported["ended_early"], true);
        assert_eq!(exported["results"][0]["times"].as_array().unwrap().len(), 2);
        assert!(text(&output.stdout).contains("2 of 10 rounds, ended early"), "{}", text(&output.stdout));
        assert!(text(&output.stderr).contains("the 2 of 10 rounds that were complete"), "{}", text(&output.stderr));
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{pid} still runs after {signal}");
        assert_eq!(fs::read_to_string(&log).unwrap(), fs::read_to_string(&concluded).unwrap(), "{signal}");
    }
}

#[test]
fn an_interrupt_of_what_comes_beside_a_run_leaves_the_complete_rounds() {
    let _turn = superpage_testing::turn_of("compare");
    let folder = tempfile::tempdir().unwrap();
    let (log, alive, export) =
        (folder.path().join("log"), folder.path().join("alive"), folder.path().join("export.json"));
    let [log_path, alive_path] = [&log, &alive].map(|path| path.display());
    // The shell stays, and waits for a child of its own.
    let script = format!(
        "echo x >> {log_path}; [ $(wc -l < {log_path}) -le 2 ] || {{ echo $$ > {alive_path}; sleep 1000; echo; }}"
    );
    for (flag, both) in [("-p", true), ("-p", false), ("-c", false)] {
        let _ = (fs::remove_file(&log), fs::remove_file(&alive));
        let options = ["-w", "0", "--policy", "now", flag, &script, "--export-json", export.to_str().unwrap()];
        let child = compare(&options, &["true"]).spawn().unwrap();
        let script = wait_for(&alive);
        for pid in [Some(child.id()), both.then_some(script)].into_iter().flatten() {
            assert!(Command::new("kill").args(["-INT", &pid.to_string()]).status().unwrap().success());
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
        assert!(!Path::new(&format!("/proc/{script}")).exists(), "{script} still runs");
        let exported: Value = serde_json::from_str(&fs::read_to_string(&export).unwrap()).unwrap();
        assert_eq!(exported["results"][0]["times"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn without_a_complete_round_files_stay_as_they_were() {
    let _turn = superpage_testing::turn_of("compare");
    let folder = tempfile::tempdir().unwrap();
    let (export, alive) = (folder.path().join("export.csv"), folder.path().join("alive"));
    fs::write(&export, "before").unwrap();
    let script = format!("echo $$ > {}; exec sleep 1000", alive.display());
    let options = ["-w", "0", "--policy", "now", "--export-csv", export.to_str().unwrap()];
    let child = compare(&options, &["sh", "-c", &script]).spawn().unwrap();
    wait_for(&alive);
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143));
    assert_eq!(fs::read_to_string(&export).unwrap(), "before");
    let (said, shown) = (text(&output.stderr), text(&output.stdout));
    let last =
        "superpage: interrupted before a round was complete; no file was written, and what was there is as it was\n";
    assert!(said.ends_with(last) && shown.is_empty(), "{said}{shown}");
}

#[test]
fn a_time_limit_ends_a_comparison_which_keeps_its_complete_rounds() {
    let _turn = superpage_testing::turn_of("compare");
    let folder = tempfile::tempdir().unwrap();
    let (log, export) = (folder.path().join("log"), folder.path().join("export.json"));
    // Two runs end at once, and the third never.
    let script = format!("echo x >> {0}; [ $(wc -l < {0}) -le 2 ] || exec sleep 1000", log.display());
    let options = ["-w", "0", "--policy", "now", "--time-limit", "3s", "--export-json", export.to_str().unwrap()];
    let ended = output(&options, &["sh", "-c", &script]);
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    assert!(text(&ended.stdout).contains("2 of 10 rounds, ended early by the time limit"), "{}", text(&ended.stdout));
    assert!(
        text(&ended.stderr).contains("the time limit came; what is shown are the 2 of 10"),
        "{}",
        text(&ended.stderr)
    );
    let exported: Value = serde_json::from_str(&fs::read_to_string(&export).unwrap()).unwrap();
    assert_eq!(exported["ended_early"], true);
    // What was prepared is put back, also where the limit comes while that is done.
    let folder = folder.path().display();
    let prepare = format!("echo x >> {folder}/prepared");
    for (sleep, rounds, conclude) in [("1000", 0, ""), ("0", 1, "sleep 3; ")] {
        let conclude = format!("{conclude}echo x >> {folder}/concluded");
        let options = ["-w", "0", "--policy", "now", "--time-limit", "1s", "-p", &prepare, "-c", &conclude];
        let ended = output(&options, &["sleep", sleep]);
        assert_eq!(ended.status.success(), rounds > 0, "{}", text(&ended.stderr));
        let [prepared, concluded] =
            ["prepared", "concluded"].map(|name| fs::read_to_string(format!("{folder}/{name}")).unwrap());
        assert_eq!(prepared, concluded, "{sleep}");
    }
    // Nothing is shown where no round is complete.
    let none = output(&["-w", "0", "--policy", "now", "--time-limit", "1s"], &["sleep", "1000"]);
    assert_eq!((none.status.code(), text(&none.stdout).as_str()), (Some(1), ""));
    assert!(text(&none.stderr).ends_with("superpage: the time limit came before a round was complete\n"));
}

#[test]
fn losers_are_run_no_more_and_a_decided_comparison_ends() {
    let _turn = superpage_testing::turn_of("compare");
    let options = ["--adaptive", "-w", "0", "--policy", "now", "--with", "now=sleep 0.3", "--with", "now=sleep 0.01"];
    let rows = rows(&options, &["sleep", "0.1"]);
    let [first, slow, fast] = &rows[..] else { panic!("{rows:?}") };
    let runs = |row: &Value| row["runs"].as_u64().unwrap();
    assert_eq!((&slow["verdict"], &fast["verdict"]), (&"slower".into(), &"faster".into()), "{slow} {fast}");
    // All differ at the first look, so the comparison ends there.
    assert_eq!((runs(first), runs(slow), runs(fast)), (9, 9, 9));
    assert_eq!(slow["dropped"], "surely slower than now and than now (2)");
    assert!(fast["dropped"].is_null() && first["ended_early"] == false, "{fast}");
    let shown = output(&options, &["sleep", "0.1"]);
    let shown = text(&shown.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains("9 of 50 rounds, then every row had a verdict"), "{shown}");
    assert!(shown.contains("run no more after 9 rounds: surely slower than now and than now (2)"), "{shown}");
}

#[test]
fn one_round_has_no_interval_and_too_few_are_said_at_once() {
    let _turn = superpage_testing::turn_of("compare");
    let options = ["-r", "1", "-w", "0", "--policy", "now", "--policy", "now"];
    let shown = output(&options, &["true"]);
    let (out, said) = (text(&shown.stdout), text(&shown.stderr));
    assert!(out.contains("true: 1 round, order") && out.contains(", no interval"), "{out}");
    let sentence =
        "superpage: 1 round will not be enough to advise: with 1 policy besides now, 6 are the least (-r 6)\n";
    assert!(said.ends_with(sentence), "{said}");
    let row = &rows(&options, &["true"])[1];
    assert!(row["time_ratio"]["low"].is_null() && row["time_ratio"]["estimate"].is_f64(), "{row}");
}

#[test]
fn a_failure_in_a_warm_up_run_is_told() {
    let _turn = superpage_testing::turn_of("compare");
    let folder = tempfile::tempdir().unwrap();
    let flag = folder.path().join("flag");
    let script = format!("[ -e {0} ] || {{ touch {0}; exit 3; }}", flag.display());
    for options in [&["-r", "1", "--policy", "base"][..], &["-r", "1", "--policy", "base", "-i"]] {
        let _ = fs::remove_file(&flag);
        let done = output(options, &["sh", "-c", &script]);
        let said = text(&done.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        let told = said.contains("the command ended with status 3 under now in a warm-up run");
        match done.status.code() {
            Some(0) => assert!(told, "{said}"),
            // Where nothing is traced nothing is repeated.
            code => {
                assert!(code == Some(1) && text(&done.stderr).contains("in a warm-up run"), "{}", text(&done.stderr))
            }
        }
    }
}

#[test]
fn an_export_is_written_though_nobody_reads_what_is_printed() {
    let _turn = superpage_testing::turn_of("compare");
    let folder = tempfile::tempdir().unwrap();
    for format in ["table", "json"] {
        let file = folder.path().join(format);
        let options =
            ["-r", "1", "-w", "0", "--policy", "now", "--format", format, "--export-json", file.to_str().unwrap()];
        let mut child = compare(&options, &["true"]).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(!text(&output.stderr).contains("panicked"), "{}", text(&output.stderr));
        let exported: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(exported["results"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn a_full_disk_costs_neither_the_table_nor_the_other_files() {
    let _turn = superpage_testing::turn_of("compare");
    let folder = tempfile::tempdir().unwrap();
    let (full, other) = (folder.path().join("full"), folder.path().join("other.csv"));
    fs::create_dir(&full).unwrap();
    let script = "mount -t tmpfs -o size=4k none $0 || exit 77; head -c 4096 /dev/zero > $0/all; exec \"$@\"";
    let (json, csv) = (full.join("a.json"), other.clone());
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, full.to_str().unwrap(), env!("CARGO_BIN_EXE_superpage"), "compare", "-r", "1"])
        .args(["-w", "0", "--policy", "now", "--export-json", json.to_str().unwrap()])
        .args(["--export-csv", csv.to_str().unwrap(), "--", "true"])
        .output();
    let Ok(output) = output.as_ref().map_err(|_| ()).and_then(|output| match output.status.code() {
        Some(77) => Err(()),
        _ if text(&output.stderr).contains("unshare failed") => Err(()),
        _ => Ok(output),
    }) else {
        return superpage_testing::skip!("system", "no file system can be mounted here");
    };
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(text(&output.stdout).contains("1 round,"), "{}", text(&output.stdout));
    assert!(error.contains("a.json") && error.contains("free some space"), "{error}");
    assert!(fs::read_to_string(&other).unwrap().starts_with("command,"), "{error}");
}

#[test]
fn who_does_not_wait_is_told_for_whom_it_would_have_been() {
    // Apart from tests that hold the settings in this process.
    let _turn = superpage_testing::turn_of("compare, with the settings of all");
    // Without the lock: a child of another test may have it for a moment.
    if let Err(error) = fs::OpenOptions::new().write(true).open(Path::new("/").join(THP_ENABLED)) {
        return superpage_testing::skip!("system", "{error}");
    }
    let holder = compare(&["-r", "1", "-w", "0", "--policy", "thp"], &["sleep", "30"]).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let begun = Instant::now();
    let refused = output(&["--no-wait", "--policy", "now"], &["true"]);
    let took = begun.elapsed();
    rustix::process::kill_process(rustix::process::Pid::from_child(&holder), rustix::process::Signal::TERM).unwrap();
    assert_eq!(holder.wait_with_output().unwrap().status.code(), Some(143));
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("superpage compare") && said.contains("not yet put them back"), "{said}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}
