//! `superpage probe`: findings as JSON, and a machine file that `superpage sim` accepts.
#![cfg(target_os = "linux")]

use std::process::{Command, Output};

fn superpage(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_superpage")).args(arguments).output().unwrap()
}

#[test]
fn what_is_measured_makes_a_machine_for_the_simulator() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
    let (machine, page) = (file("here.toml"), file("probe.html"));
    let probe =
        superpage(&["probe", "--quick", "--format", "json", "--write-machine", &machine, "--export-html", &page]);
    assert!(probe.status.success(), "{}", String::from_utf8_lossy(&probe.stderr));
    let findings: Vec<serde_json::Value> = serde_json::from_slice(&probe.stdout).unwrap();
    for name in ["clock.hertz", "host.fractures", "tlb.levels.4K", "walk.near", "fault.4K", "promotion.4K"] {
        let finding = findings.iter().find(|finding| finding["name"] == name).unwrap_or_else(|| panic!("no {name}"));
        assert!(finding["evidence"].as_str().is_some_and(|evidence| !evidence.is_empty()), "{finding}");
    }
    let text = std::fs::read_to_string(&machine).unwrap();
    assert!(text.contains("hertz measured:") && text.contains("assumed = ["), "{text}");
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.contains("<svg") && html.contains("Latency of a dependent load"));
    let sim = superpage(&["sim", "--machine", &machine, "--policy", "base", "touch:bytes=4M", "--format", "json"]);
    assert!(sim.status.success(), "{}", String::from_utf8_lossy(&sim.stderr));
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&sim.stdout).unwrap();
    assert_eq!((rows[0]["machine"].as_str(), rows[0]["faults"].as_u64() >= Some(1024)), (Some("probed"), true));
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let probe = superpage(&["probe", "--quick", "--write-machine", "no/such/folder/here.toml"]);
    assert_eq!(probe.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&probe.stderr).contains("cannot write no/such/folder/here.toml"));
}
