//! `superpage compare --server`, from outside.
#![cfg(target_os = "linux")]

use crate::compare::{compare, output, text, until, wait_for};
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// What a comparison of a server says.
fn served(options: &[&str], server: &str, ready: &str, load: &str) -> Output {
    output(&[&["--policy", "now", "--server", server, "--ready", ready], options].concat(), &["sh", "-c", load])
}

#[test]
fn a_server_is_measured_and_its_load_is_not() {
    let _turn = superpage_testing::turn_of("compare");
    let folder = tempfile::tempdir().unwrap();
    let ready = folder.path().join("ready").display().to_string();
    // 64 MB that it keeps; it is ready when it has them. The load has 128 MB, and computes.
    let server =
        format!("python3 -c 'import time; held = b\"x\" * (64 << 20); open(\"{ready}\", \"w\"); time.sleep(100)'");
    let load = "head -c 128m /dev/zero | tail -c 128m >/dev/null; \
                echo 'SET: 2000.00 requests per second, p50=0.215 msec'; \
                echo '99% 3ms'";
    if Command::new("python3").arg("-V").output().is_err() {
        return superpage_testing::skip!("python3", "there is no python3 to be a server");
    }
    let begun = Instant::now();
    let remove = format!("rm -f {ready}");
    let options = ["--format", "json", "-r", "2", "-w", "1", "--policy", "base", "--prepare", &remove];
    let output = served(&options, &server, &format!("test -e {ready}"), load);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(begun.elapsed() < Duration::from_secs(60), "SIGTERM ends a server");
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    for row in rows.as_array().unwrap() {
        let number = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key} of {row}"));
        assert_eq!((number("requests_per_second"), number("latency_p50_seconds")), (2000.0, 0.215e-3));
        assert_eq!((number("latency_p99_seconds"), row["latency_p999_seconds"].is_null()), (0.003, true));
        // The time that is compared is that of a request.
        assert_eq!(row["wall_seconds"]["median"], 0.0005);
        for key in ["peak_rss_bytes", "end_bytes"] {
            assert!((60.0..100.0).contains(&(number(key) / 1e6)), "{key} of {row}");
        }
        assert!(row["command"].as_str().unwrap().starts_with("python3 -c"), "{row}");
    }
    let table = served(&["-r", "1", "-w", "0"], "sleep 100", "true", "echo rate: 7");
    assert!(text(&table.stdout).contains("no throughput that is known"), "{}", text(&table.stdout));
    let told = served(&["-r", "1", "-w", "0", "--throughput", "rate: "], "sleep 100", "true", "echo rate: 7");
    assert!(text(&told.stdout).contains("requests/s"), "{}", text(&told.stdout));
    // Neither a text that is not there, nor a number that may be a thousand times as large.
    for said in ["rate: 7", "speed: 1,5", "speed: 1.234,5", "speed: 12 K", "speed: 12k"] {
        let load = format!("echo '{said}'");
        let wrong = served(&["-r", "1", "-w", "0", "--throughput", "speed:"], "sleep 100", "true", &load);
        let error = text(&wrong.stderr);
        assert!(error.contains("has no number after \"speed:\" (--throughput) under now"), "{said}: {error}");
        assert_eq!(wrong.status.code(), Some(2), "{said}");
    }
}

#[test]
fn a_server_that_fails_is_told_with_its_last_words() {
    let _turn = superpage_testing::turn_of("compare");
    let cases = [
        (
            "sh -c 'echo no room; exit 4'",
            "false",
            "true",
            "server ended with status 4 before it was ready; its last words: no room",
        ),
        ("sleep 100", "false", "true", "false did not succeed; it said nothing"),
        ("sleep 100", "sleep 60", "true", "not ready within 3 s"),
        (
            "sh -c 'echo up; sleep 100'",
            "no-such-probe",
            "true",
            "its last words: up; no-such-probe did not succeed; its last words: sh:",
        ),
        ("sleep 1", "true", "sleep 30", "server ended with status 0 under its load"),
        // The load ends at the same moment, well or not.
        (
            "sh -c 'echo no memory; until [ -e $T ]; do sleep 0.02; done; exit 9'",
            "true",
            "touch $T; sleep 0.05; exit 3",
            "server ended with status 9 under its load; its last words: no memory",
        ),
        (
            "sh -c 'until [ -e $T ]; do sleep 0.02; done; exit 9'",
            "true",
            "touch $T; sleep 0.1; echo 5 requests per second",
            "server ended with status 9 under its load; it said nothing",
        ),
        // It says something without end.
        ("sh -c 'yes & sleep 2; kill $!; echo enough; exit 5'", "true", "sleep 30", "enough"),
        (
            "sleep 100",
            "true",
            "echo gone; exit 3",
            "load ended with status 3 under now in round 1; its last words: gone",
        ),
        ("sleep 0.3", "sleep 0.8", "true", "another server may run there"),
        (
            "sleep 100",
            "true",
            "[ -e $T ] || { touch $T; echo 5 requests per second; }",
            "throughput in some runs and none in others",
        ),
        ("sleep 100", "true", "echo 0 requests per second", "had 0.0 requests a second, which is no throughput"),
        ("sh -c 'sleep 50 & sleep 3; exit 0'", "true", "sleep 30", "server ended with status 0 under its load"),
        ("sh -c 'sleep 50 & exit 0'", "true", "sleep 30", "stay in the foreground, as by redis-server --daemonize no"),
    ];
    for (number, (server, ready, load, said)) in cases.into_iter().enumerate() {
        let mark = std::env::temp_dir().join(format!("superpage-{}-{number}", std::process::id()));
        let [server, load] = [server, load].map(|text| text.replace("$T", &mark.display().to_string()));
        let options = ["-r", "1", "-w", "0", "--policy", "now", "--ready-within", "3"];
        let output = served(&options, &server, ready, &load);
        let _ = fs::remove_file(&mark);
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""), "{server}: {stderr}");
        assert!(stderr.contains(said), "{server}: {stderr}");
        let besides = ["will not be enough", "superpage: waiting until", "superpage: put back what"];
        let errors = stderr.lines().filter(|line| !besides.iter().any(|besides| line.contains(besides))).count();
        assert_eq!(errors, 1, "{stderr}");
    }
    let refused = served(&[], "a 'b", "true", "true");
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
}

#[test]
fn a_server_is_held_under_its_load() {
    let _turn = superpage_testing::turn_of("compare");
    let folder = tempfile::tempdir().unwrap();
    let (log, page) = (folder.path().join("log"), folder.path().join("page.html"));
    let load = format!("echo x >> {}; sleep 0.7; echo 100 requests per second", log.display());
    let options = ["-r", "1", "-w", "0", "--for", "2s", "--format", "json", "--export-html", page.to_str().unwrap()];
    let output = served(&options, "sleep 100", "true", &load);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let times = fs::read_to_string(&log).unwrap().lines().count();
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = &rows[0];
    let number = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key} of {row}"));
    assert!(times >= 2 && number("load_seconds") >= 2.0, "{times} times: {row}");
    assert!((number("requests_per_second") - 100.0).abs() < 1e-9, "{row}");
    let series = row["memory_over_time"].as_array().unwrap();
    assert!(series.len() >= 2 && series.last().unwrap()[0].as_f64().unwrap() >= 2.0, "{row}");
    assert!(number("load_peak_bytes") >= number("end_bytes"), "{row}");
    assert!(fs::read_to_string(&page).unwrap().contains("Memory during the load of the last round"));
    let alone = compare(&["--for", "1s"], &["true"]).output().unwrap();
    assert_eq!(alone.status.code(), Some(2), "{}", text(&alone.stderr));
}

#[test]
fn a_load_that_does_not_exist_is_refused_also_where_failures_are_ignored() {
    let _turn = superpage_testing::turn_of("compare");
    let server = ["--server", "sleep 100", "--ready", "true"];
    for (options, command) in
        [(&server[..], "no-such-load"), (&server[..], "/dev/null"), (&["--shell"], "no-such | cat; no-such")]
    {
        let options = [&["-i", "-r", "1", "-w", "0", "--policy", "now"], options].concat();
        let output = output(&options, &[command]);
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{command}: {stderr}");
        assert!(stderr.ends_with("name one that can be run\n"), "{command}: {stderr}");
    }
}

#[test]
fn all_that_a_script_around_a_server_started_is_asked_to_end() {
    let _turn = superpage_testing::turn_of("compare");
    let folder = tempfile::tempdir().unwrap();
    let [around, server, asked] = ["around", "server", "asked"].map(|name| folder.path().join(name));
    fs::write(&around, format!("trap : TERM\nsh {}\n", server.display())).unwrap();
    // A shell runs a trap once its child in the foreground has ended, but at once in `wait`.
    fs::write(&server, format!("trap 'touch {}; exit' TERM\nsleep 100 &\nwait\n", asked.display())).unwrap();
    let load = "echo 7 requests per second, p50=1 msec; echo 8 requests per second, p50=2 msec";
    let output = served(&["-r", "1", "-w", "0"], &format!("sh {}", around.display()), "true", load);
    let said = text(&output.stdout);
    assert!(output.status.success() && asked.exists(), "{said}{}", text(&output.stderr));
    assert!(!said.contains("left processes behind"), "{said}");
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("percentiles are those of the slowest"), "{said}");
}

#[test]
fn a_load_and_a_command_end_where_the_comparison_is_killed() {
    let _turn = superpage_testing::turn_of("compare");
    let folder = tempfile::tempdir().unwrap();
    let runs = |pid: u32| fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    let serves = &["--server", "sleep 100", "--ready", "true"][..];
    // By `kill -9` of the process, and by SIGTERM to its whole group, as `timeout` sends it.
    for (server, group) in [(serves, false), (serves, true), (&[][..], false)] {
        let alive = folder.path().join(format!("alive{}{group}", server.len()));
        let mut script = format!("echo $$ > {}; exec sleep 1000", alive.display());
        let stays = folder.path().join(format!("stays{group}"));
        if !server.is_empty() {
            // Of a load, also what ignores SIGTERM and does not end with its first process.
            script = format!("(trap '' TERM; sleep 1000 & echo $! > {}; wait) & {script}", stays.display());
        }
        let options = [&["-r", "1", "-w", "0", "--policy", "now"], server].concat();
        let own = tempfile::tempdir().unwrap();
        let mut running =
            compare(&options, &["sh", "-c", &script]).env("TMPDIR", own.path()).process_group(0).spawn().unwrap();
        let mut pids = vec![wait_for(&alive)];
        if !server.is_empty() {
            pids.push(wait_for(&stays));
        }
        let pid = rustix::process::Pid::from_child(&running);
        if group {
            rustix::process::kill_process_group(pid, rustix::process::Signal::TERM).unwrap()
        } else {
            running.kill().unwrap()
        }
        running.wait().unwrap();
        until(60, "the load ends", || !pids.iter().any(|pid| runs(*pid)));
        until(60, "its folder goes", || fs::read_dir(own.path()).unwrap().next().is_none());
    }
}

#[test]
fn an_interrupt_that_the_server_gets_too_leaves_whole_rounds() {
    let _turn = superpage_testing::turn_of("compare");
    let options = ["-r", "50", "-w", "0", "--policy", "now", "--server", "sleep 77", "--ready", "true", "--shell"];
    let mut command = compare(&options, &["sleep 0.7 | cat; echo 3 requests per second"]);
    let mut running = command.process_group(0).spawn().unwrap();
    let group = rustix::process::Pid::from_child(&running);
    std::thread::sleep(Duration::from_secs(4));
    rustix::process::kill_process_group(group, rustix::process::Signal::INT).unwrap();
    let begun = Instant::now();
    running.stdin = None;
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("of 50 rounds, ended early"), "{}", text(&output.stdout));
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

#[test]
fn a_unit_is_no_server_to_be_started() {
    let refused = served(&[], "redis-server.service", "true", "true");
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("systemctl show -p ExecStart redis-server.service"), "{said}");
}
