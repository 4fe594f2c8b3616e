//! `superpage probe`: findings as JSON, and a machine file that `superpage sim` accepts.
#![cfg(target_os = "linux")]

use signal_hook::consts::SIGINT;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn superpage(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_superpage")).args(arguments).output().unwrap()
}

#[test]
fn what_is_measured_makes_a_machine_for_the_simulator() {
    let _turn = superpage_testing::turn_of("probe");
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
    let (machine, page) = (file("here.toml"), file("probe.html"));
    let probe = superpage(&[
        "probe",
        "--quick",
        "--churn",
        "0.01",
        "--format",
        "json",
        "--write-machine",
        &machine,
        "--export-html",
        &page,
    ]);
    assert!(probe.status.success(), "{}", String::from_utf8_lossy(&probe.stderr));
    let findings: Vec<serde_json::Value> = serde_json::from_slice(&probe.stdout).unwrap();
    for name in [
        "clock.hertz",
        "host.fractures",
        "tlb.levels.4K",
        "walk.near",
        "fault.4K",
        "shootdown.send",
        "shootdown.receive",
        "shootdown.unmap.512",
        "promotion.4K",
        "promotion.64K",
        "churn",
    ] {
        let finding = findings.iter().find(|finding| finding["name"] == name).unwrap_or_else(|| panic!("no {name}"));
        assert!(finding["evidence"].as_str().is_some_and(|evidence| !evidence.is_empty()), "{finding}");
    }
    let text = std::fs::read_to_string(&machine).unwrap();
    assert!(text.contains("hertz measured:") && text.contains("assumed = ["), "{text}");
    // Assumed where it could not be determined, which other load can cause.
    for (name, key) in [("shootdown.send", "shootdown-send"), ("shootdown.receive", "shootdown-receive")] {
        let value = findings.iter().find(|finding| finding["name"] == name).unwrap()["value"].as_f64();
        assert_eq!(text.contains(&format!("{key} measured: ")), value.is_some(), "{key} in {text}");
        let line = value.map(|value| format!("\n{key} = {value:.0}\n"));
        assert!(line.is_none_or(|line| text.contains(&line)), "{key} in {text}");
    }
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.contains("<svg") && html.contains("Latency of a dependent load"));
    let sim = superpage(&["sim", "--machine", &machine, "--policy", "base", "touch:bytes=4M", "--format", "json"]);
    assert!(sim.status.success(), "{}", String::from_utf8_lossy(&sim.stderr));
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&sim.stdout).unwrap();
    assert_eq!((rows[0]["machine"].as_str(), rows[0]["faults"].as_u64() >= Some(1024)), (Some("probed"), true));
    let table = superpage(&["sim", "--machine", &machine, "--policy", "thp", "touch:bytes=4M"]);
    let said = String::from_utf8_lossy(&table.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("On a machine file that probe wrote the time of thp over base, predicted from pages alone,"),
        "{said}"
    );
}

#[test]
fn a_share_is_from_0_to_1() {
    let _turn = superpage_testing::turn_of("probe");
    for share in ["-0.1", "1.1", "half", "nan"] {
        let probe = superpage(&["probe", &format!("--churn={share}")]);
        assert_eq!(probe.status.code(), Some(2), "{share}");
        assert!(String::from_utf8_lossy(&probe.stderr).contains("expected a number from 0 to 1"), "{share}");
    }
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let _turn = superpage_testing::turn_of("probe");
    for option in ["--write-machine", "--export-html"] {
        let begun = Instant::now();
        let probe = superpage(&["probe", option, "no/such/folder/here"]);
        let said = String::from_utf8_lossy(&probe.stderr);
        assert_eq!((probe.status.code(), probe.stdout.len()), (Some(2), 0), "{said}");
        assert!(said.contains("cannot write no/such/folder/here: ") && said.lines().count() == 1, "{said}");
        // Before anything is measured, which takes seconds: far from it, also on a busy machine.
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }
}

#[test]
fn an_interrupt_leaves_no_file_and_the_findings_so_far() {
    let _turn = superpage_testing::turn_of("probe");
    let directory = tempfile::tempdir().unwrap();
    let machine = directory.path().join("here.toml");
    std::fs::write(&machine, "before").unwrap();
    let arguments = ["probe", "--format", "json", "--write-machine"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_superpage"));
    let probe = command.args(arguments).arg(&machine).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let process = probe.id().to_string();
    // It catches signals before it starts; then it measures for seconds.
    let caught = |status: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
        u64::from_str_radix(line.trim(), 16).unwrap() & 1 << (SIGINT - 1) != 0
    };
    let status = || std::fs::read_to_string(format!("/proc/{}/status", probe.id())).unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while !caught(&status()) {
        assert!(Instant::now() < until, "it does not catch SIGINT");
        std::thread::sleep(Duration::from_millis(5));
    }
    let killed = Command::new("kill").args(["-INT", &process]).status().unwrap();
    assert!(killed.success());
    let probe = probe.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&probe.stderr);
    assert_eq!(probe.status.code(), Some(130), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    assert!(serde_json::from_slice::<Vec<serde_json::Value>>(&probe.stdout).is_ok());
    assert_eq!(std::fs::read_to_string(&machine).unwrap(), "before");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}
