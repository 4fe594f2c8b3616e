//! Experiments of kind `live`: programs that run for real, programs that are not there, and what
//! the rows say of both.
#![cfg(target_os = "linux")]

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// A program that writes 8 MB, one that checks its input and its parameter, one that is not
/// installed, one that takes `--long`, and one that nobody can run.
const PROGRAMS: &str = r#"
title = "Table 9: programs"
section = "9"
there = "something"
here = "something small"
kind = "live"

[runs]
base = "base"
thp = "thp"

[[column]]
quantity = "page faults"
measure = "base.minor_faults"
shown = "it is shown"

[[column]]
quantity = "dTLB load misses"
measure = "base.dtlb_load_misses"
shown = "it is shown"

[[column]]
quantity = "order: some memory"
measure = "thp.peak_rss_bytes > 0"
paper = true

[[item]]
name = "writes"
live = { command = "head -c 8388608 /dev/zero" }
paper = [1, 2]

[[item]]
name = "reads"
live = { command = "test \"$(cat in.txt) $(cat made.txt)\" = 'n is 5 made 5'", prepare = "echo made {N} > made.txt", inputs = ["in.txt"], set = { N = "5" } }
paper = [1, 2]

[[item]]
name = "not there"
live = { command = "frobnicate", needs = { frobnicate = "frobnicator" } }
paper = [1, 2]

[[item]]
name = "long"
live = { command = "true {N}", long = { N = "5" } }
paper = [1, 2]

[[item]]
name = "not ours"
shown = "it is not ours to run"
paper = [1, 2]
"#;

fn reproduce(folder: &Path, text: &str) -> (Vec<Value>, Output) {
    let path = folder.join("programs.toml");
    fs::write(&path, text).unwrap();
    fs::create_dir_all(folder.join("inputs")).unwrap();
    fs::write(folder.join("inputs/in.txt"), "n is {N}\n").unwrap();
    let arguments = ["reproduce", path.to_str().unwrap(), "--format", "json"];
    let output = Command::new(env!("CARGO_BIN_EXE_superpage")).args(arguments).output().unwrap();
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (rows.as_array().cloned().unwrap_or_default(), output)
}

fn row<'a>(rows: &'a [Value], item: &str, quantity: &str) -> &'a Value {
    let found = rows.iter().find(|row| row["item"] == item && row["quantity"] == quantity);
    found.unwrap_or_else(|| panic!("no row {item}, {quantity}"))
}

/// Whether policies that are settings of the whole system can be had.
fn allowed() -> bool {
    let enabled = "/sys/kernel/mm/transparent_hugepage/enabled";
    let allowed = fs::OpenOptions::new().write(true).open(enabled).is_ok();
    if !allowed {
        superpage_testing::skip!("system", "{enabled} cannot be written, which the policy thp needs");
    }
    allowed
}

#[test]
fn programs_run_and_what_is_not_there_is_said() {
    let _turn = superpage_testing::turn_of("reproduce_live");
    if !allowed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (rows, output) = reproduce(folder.path(), PROGRAMS);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    for item in ["writes", "reads"] {
        let faults = row(&rows, item, "page faults");
        assert!(faults["measured"].as_f64().unwrap() > 50.0, "{faults}");
        assert_eq!(faults["paper_value"], 1.0);
        assert_eq!(row(&rows, item, "order: some memory")["verdict"], "agrees");
        let misses = row(&rows, item, "dTLB load misses");
        let reason = misses["reason"].as_str().unwrap();
        assert!(misses["measured"].is_number() || reason.contains("counters"), "{misses}");
    }
    let missing = row(&rows, "not there", "page faults");
    assert_eq!(missing["reason"], "frobnicate is not installed: apt install frobnicator");
    assert_eq!(missing["measured"], Value::Null);
    assert!(said.contains("apt install frobnicator"), "{said}");
    assert!(row(&rows, "long", "page faults")["reason"].as_str().unwrap().contains("--long"));
    assert_eq!(row(&rows, "not ours", "page faults")["measured"], Value::Null);
}

#[test]
fn a_program_that_fails_is_a_failure() {
    let _turn = superpage_testing::turn_of("reproduce_live");
    let folder = tempfile::tempdir().unwrap();
    let text = PROGRAMS.replace("thp = \"thp\"\n", "").replace("thp.peak", "base.peak");
    let (rows, output) = reproduce(folder.path(), &text.replace("head -c 8388608 /dev/zero", "exit 3"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("writes: exit 3") && said.contains("status 3"), "{said}");
    let failed = row(&rows, "writes", "page faults");
    assert!(failed["reason"].as_str().unwrap().starts_with("the run failed"), "{failed}");
    assert!(row(&rows, "reads", "page faults")["measured"].is_number());
}

#[test]
fn a_file_that_asks_for_what_is_not_there_is_bad_input() {
    let _turn = superpage_testing::turn_of("reproduce_live");
    let folder = tempfile::tempdir().unwrap();
    let bad = [
        (PROGRAMS.replace("in.txt\"]", "none.txt\"]"), "no input none.txt"),
        (PROGRAMS.replace("kind = \"live\"", "kind = \"grid\""), "expected live where the kind is live"),
        (PROGRAMS.replace("long = { N = \"5\" }", "set = { M = \"1\" }, long = { N = \"5\" }"), "the same parameters"),
        (PROGRAMS.replace("command = \"frobnicate\"", "command = \" \""), "its command is empty"),
    ];
    for (text, expected) in bad {
        let (_, output) = reproduce(folder.path(), &text);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}
