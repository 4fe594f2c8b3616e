//! `superpage reproduce`: names, experiment files, rows in every format, the page, and exit
//! statuses.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn superpage(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_superpage")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A small experiment that has everything: runs, columns, an item that runs, one without a trace,
/// one that is only shown, single values, a figure.
const SMALL: &str = r#"
title = "Table 9: small"
section = "9"
there = "something"
here = "something small"
kind = "sequence"

[runs]
base = "base"
all = "reservation"

[[column]]
quantity = "pages of 64 KB"
measure = "all.pages.64K"
tolerance = "exact"

[[column]]
quantity = "order: more promotions"
measure = "all.promotions > base.promotions"
paper = true

[[item]]
name = "twice"
workload = "touch:bytes=64K ; touch:bytes=128K"
paper = [2]

[[item]]
name = "not there"
trace = "none.sp"
paper = [1]

[[item]]
name = "not ours"
shown = "it is not ours to run"
paper = [3]

[[value]]
item = "twice"
quantity = "promotions in the second part"
measure = "all.promotions@touch-2"
paper = 3
tolerance = "exact"
because = "the paper is made up"

[[figure]]
title = "Promotions"
alt = "Two bars."
kind = "bars"
x = { label = "part" }
y = { label = "promotions" }
groups = ["1", "2"]
series = [{ name = "all", values = ["twice:all.promotions@touch", "twice:all.promotions@touch-2"], paper = [1, 3] }]
"#;

fn file(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("small.toml");
    std::fs::write(&path, text).unwrap();
    path
}

fn rows(path: &Path) -> (Vec<Value>, Output) {
    let output = superpage(&["reproduce", path.to_str().unwrap(), "--format", "json"]);
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    (rows.as_array().unwrap().clone(), output)
}

#[test]
fn without_names_the_experiments_are_listed() {
    let _turn = superpage_testing::turn_of("reproduce");
    for arguments in [&["reproduce"][..], &["reproduce", "--list"], &["reproduce", "navarro02", "--list"]] {
        let output = superpage(arguments);
        assert!(output.status.success());
        let list = text(&output.stdout);
        for name in ["figure1", "table1", "table2", "table3", "fragmentation", "concurrent", "adversaries", "dirty"] {
            assert!(list.contains(&format!("navarro02/{name} ")), "{list}");
        }
    }
}

#[test]
fn an_unknown_name_is_answered_with_those_that_there_are() {
    let _turn = superpage_testing::turn_of("reproduce");
    let output = superpage(&["reproduce", "navarro02/table9"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    assert!(
        text(&output.stderr).contains("there is no experiment navarro02/table9; take a paper or one of navarro02/")
    );
}

#[test]
fn the_rows_are_the_same_with_any_number_of_threads() {
    let _turn = superpage_testing::turn_of("reproduce");
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), SMALL);
    let run =
        |threads: &str| superpage(&["reproduce", path.to_str().unwrap(), "--format", "json", "--threads", threads]);
    let [one, two] = ["1", "2"].map(run);
    assert!(one.status.success() && two.status.success(), "{}", text(&two.stderr));
    assert_eq!(text(&one.stdout), text(&two.stdout));
    assert_eq!(run("0").status.code(), Some(2));
}

#[test]
fn every_row_has_its_keys_and_its_verdict() {
    let _turn = superpage_testing::turn_of("reproduce");
    let folder = tempfile::tempdir().unwrap();
    let (rows, output) = rows(&file(folder.path(), SMALL));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let keys = "paper experiment item quantity paper_value measured tolerance verdict reason settings settings_verdict \
                estimate";
    for row in &rows {
        assert_eq!(row.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" "), keys);
        assert_eq!(row["experiment"], "small");
        assert!(row["settings"].is_null() && row["settings_verdict"].is_null(), "{row}");
    }
    let seen: Vec<(&str, &str)> =
        rows.iter().map(|row| (row["item"].as_str().unwrap(), row["verdict"].as_str().unwrap())).collect();
    let expected = [
        ("twice", "agrees"),
        ("twice", "agrees"),
        ("not there", "shown"),
        ("not there", "shown"),
        ("not ours", "shown"),
        ("twice", "differs"),
    ];
    assert_eq!(seen, expected);
    assert_eq!((&rows[0]["paper_value"], &rows[0]["measured"]), (&Value::from(2.0), &Value::from(2.0)));
    assert_eq!((&rows[1]["paper_value"], &rows[1]["measured"]), (&Value::from(true), &Value::from(true)));
    assert!(rows[2]["measured"].is_null());
    assert!(rows[2]["reason"].as_str().unwrap().contains("there is no trace corpus/none.sp"));
    assert_eq!(rows[4]["reason"], "it is not ours to run");
    assert_eq!((&rows[5]["measured"], &rows[5]["reason"]), (&Value::from(2.0), &Value::from("the paper is made up")));
}

#[test]
fn the_same_rows_come_in_every_format() {
    let _turn = superpage_testing::turn_of("reproduce");
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), SMALL);
    let run = |format| superpage(&["reproduce", path.to_str().unwrap(), "--format", format]).stdout;
    let table = text(&run("table"));
    assert!(
        table.contains("Table 9: small") && table.contains("6 findings: 2 agree, 1 differ, 3 are shown"),
        "{table}"
    );
    let csv = text(&run("csv"));
    assert_eq!(csv.lines().count(), 7);
    assert!(
        csv.starts_with(
            "paper,experiment,item,quantity,paper_value,measured,tolerance,verdict,reason,settings,settings_verdict,estimate\n"
        ),
        "{csv}"
    );
    let parquet = run("parquet");
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
}

#[test]
fn the_page_needs_nothing_else_and_tells_what_its_figures_show() {
    let _turn = superpage_testing::turn_of("reproduce");
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let path = file(folder.path(), SMALL);
    let output = superpage(&["reproduce", path.to_str().unwrap(), "--export-html", page.to_str().unwrap()]);
    assert!(output.status.success());
    let page = std::fs::read_to_string(page).unwrap();
    let coloured = ["class=\"text agrees\"", "class=\"text differs\""];
    let figure = ["<svg", "/small-figure0-desc\">Two bars.</desc>", "class=\"explore\""];
    for part in figure.into_iter().chain(coloured) {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<script src") && !page.contains("<link"));
}

/// All values of `--format json` are on the page: one by one those judged, the others in a table of
/// items and quantities.
#[test]
fn the_page_of_markdown_has_the_rows_of_json() {
    let _turn = superpage_testing::turn_of("reproduce");
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.md");
    let run = ["reproduce", "piehl12/table1-6", "--format", "json", "--export-markdown", page.to_str().unwrap()];
    let (output, page) = (superpage(&run), std::fs::read_to_string(&page).unwrap());
    let rows = parsed(&output);
    assert_eq!((output.status.code(), rows.len()), (Some(0), 14), "{}", text(&output.stderr));
    let lines: Vec<Vec<&str>> = page.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
    let said = |line: &Vec<&str>, at: usize, value: &Value| match value {
        Value::Bool(truth) => line[at] == if *truth { "yes" } else { "no" },
        number => line[at].parse::<f64>().is_ok_and(|found| (found / number.as_f64().unwrap() - 1.0).abs() < 1e-3),
    };
    for row in &rows {
        let [item, quantity, verdict] = ["item", "quantity", "verdict"].map(|key| row[key].as_str().unwrap());
        if verdict == "shown" {
            let found = lines.iter().find(|line| line.len() == 5 && line[1] == quantity).unwrap();
            let value = found[if item == "1 GB" { 2 } else { 3 }].split(' ').next().unwrap();
            assert_eq!(value.parse::<f64>().unwrap(), row["measured"].as_f64().unwrap(), "{page}");
        } else {
            let of_row = |line: &&Vec<&str>| line.len() == 8 && line[1] == item && line[2] == quantity;
            let [line] = lines.iter().filter(of_row).collect::<Vec<_>>()[..] else { panic!("{row}: {page}") };
            assert!(said(line, 3, &row["paper_value"]) && said(line, 4, &row["measured"]), "{row}: {line:?}");
            assert!(line[6].starts_with(verdict) && line[6].contains('[') == row["reason"].is_string(), "{line:?}");
        }
        if let Some(reason) = row["reason"].as_str() {
            let once = page.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(format!("{once} ").matches(&format!(" {reason} ")).count(), 1, "{reason}: {page}");
        }
    }
    assert!(page.contains("\nsuperpage reproduce piehl12/table1-6 --export-markdown "), "{page}");
    assert!(page.contains("| piehl12/table1-6 | 6 | 5 | 3 |") && page.contains("`piehl12/table4-8`"), "{page}");
    assert!(page.lines().all(|line| line.starts_with('|') || line.chars().count() <= 100 || line.contains("/page.md")));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_standard_output_does_not_cost_the_page() {
    let _turn = superpage_testing::turn_of("reproduce");
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let path = file(folder.path(), SMALL);
    let output = Command::new(env!("CARGO_BIN_EXE_superpage"))
        .args(["reproduce", path.to_str().unwrap(), "--export-html", page.to_str().unwrap()])
        .stdout(std::fs::File::options().write(true).open("/dev/full").unwrap())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(std::fs::read_to_string(page).unwrap().contains("<svg"));
}

#[test]
fn a_page_that_cannot_be_written_is_said_before_anything_runs() {
    let _turn = superpage_testing::turn_of("reproduce");
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), SMALL);
    let output = superpage(&["reproduce", path.to_str().unwrap(), "--export-html", "no/such/folder/page.html"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    assert!(text(&output.stderr).contains("cannot write no/such/folder/page.html: "), "{}", text(&output.stderr));
}

#[test]
fn a_run_that_fails_leaves_the_other_rows_and_status_1() {
    let _turn = superpage_testing::turn_of("reproduce");
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), &SMALL.replace("all = \"reservation\"", "all = \"none-such\""));
    let (rows, output) = rows(&path);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(rows.len(), 6);
    assert!(rows[0]["reason"].as_str().unwrap().starts_with("the run failed: "), "{}", rows[0]);
    assert!(text(&output.stderr).contains("none-such"));
}

#[test]
fn a_bad_file_is_refused_with_its_place() {
    let _turn = superpage_testing::turn_of("reproduce");
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("kind = \"sequence\"", "kind = \"poem\"", "line 6"),
        ("paper = [2]", "paper = [2, 3]", "item twice has 2 values of the paper, expected 1"),
        ("all.pages.64K", "al.pages.64K", "there is no run al; expected one of all, base"),
        ("\"all.pages.64K\"", "\"all.pages.64K +\"", "expected a number or a name, found its end"),
        ("tolerance = \"exact\"\n\n[[column]]", "[[column]]", "column \"pages of 64 KB\" needs a tolerance"),
        ("workload = ", "work = ", "line 24"),
        ("groups = [\"1\", \"2\"]", "groups = [\"1\"]", "series all has not 1 values"),
    ];
    for (old, new, problem) in cases {
        assert!(SMALL.contains(old), "{old}");
        let path = file(folder.path(), &SMALL.replacen(old, new, 1));
        let output = superpage(&["reproduce", path.to_str().unwrap()]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(output.stdout.is_empty());
        assert!(error.contains("small.toml") && error.contains(problem), "{problem}: {error}");
        assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    }
}

/// A page that is there stays as it was, and it is said.
#[test]
#[cfg(unix)]
fn an_interrupt_writes_no_page() {
    let _turn = superpage_testing::turn_of("reproduce");
    let folder = tempfile::tempdir().unwrap();
    let path =
        file(folder.path(), &SMALL.replace("touch:bytes=64K ; touch:bytes=128K", "touch:bytes=64M,rounds=1000000"));
    let page = folder.path().join("page.html");
    std::fs::write(&page, "before").unwrap();
    for (signal, status) in [("INT", 130), ("QUIT", 131), ("USR1", 138)] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_superpage"))
            .args(["reproduce", path.to_str().unwrap(), "--export-html", page.to_str().unwrap()])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1500));
        assert!(child.try_wait().unwrap().is_none(), "it is to run until it is stopped");
        let kill = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status();
        assert!(kill.unwrap().success());
        let output = child.wait_with_output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{error}");
        assert!(error.contains("no file was written"), "{error}");
        assert_eq!(std::fs::read_to_string(&page).unwrap(), "before");
    }
}

/// Two machines, of which one has a page table whose superpages are replicated entries.
const TWO: &str = r#"
title = "Table 10: two machines"
section = "10"
there = "something"
here = "something small"
kind = "grid"

[runs]
alpha = "reservation"
alpha-base = "base"
zen = { policy = "base", machine = "zen5" }

[[column]]
quantity = "cycles of promotion"
measure = "alpha.promotion_cycles"
tolerance = "exact"

[[column]]
quantity = "cycles of hits"
measure = "zen.tlb_hit_cycles"
tolerance = "exact"

[[column]]
quantity = "data misses in caches, of both"
measure = "alpha-base.data_cycles + zen.data_cycles"
shown = "without lines there are none"

[[item]]
name = "touch"
workload = "touch:bytes=64K"
paper = [660, 0, "-"]
because = { "cycles of promotion" = "the cost of a traversal is made up" }
"#;

fn reproduce(path: &Path, options: &[&str]) -> Output {
    superpage(&[&["reproduce", path.to_str().unwrap()], options].concat())
}

fn parsed(output: &Output) -> Vec<Value> {
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    rows.as_array().unwrap().clone()
}

#[test]
fn rows_of_changed_values_say_so_and_have_no_verdict() {
    let _turn = superpage_testing::turn_of("reproduce");
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), TWO);
    let own = parsed(&reproduce(&path, &["--format", "json"]));
    assert_eq!(
        (&own[0]["verdict"], &own[0]["reason"]),
        (&"differs".into(), &"the cost of a traversal is made up".into())
    );
    // The alpha has no second level: its row says nothing of that value.
    let (key, zen) = ("costs.pte-traversal=20", "tlb.L2 DTLB.hit-cycles=99");
    let output = reproduce(&path, &["--format", "json", "--set", key, "--set", zen]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let changed = parsed(&output);
    assert_ne!(changed[0]["measured"], own[0]["measured"]);
    let both = format!("--set {key} --set '{zen}'");
    for (row, settings) in changed.iter().zip([format!("--set {key}"), both.clone(), both]) {
        assert_eq!((&row["settings"], &row["verdict"]), (&settings.clone().into(), &"shown".into()), "{row}");
        if let Some(would) = row["settings_verdict"].as_str() {
            let words = if would == "agrees" { "would agree" } else { "would differ" };
            assert_eq!(row["reason"], format!("with {settings} it {words}"));
        }
    }
    assert!(text(&output.stderr).contains("/small: rows computed with --set"), "{}", text(&output.stderr));
    let alone = parsed(&reproduce(&path, &["--format", "json", "--set", zen]));
    assert_eq!(alone[0], own[0]);
    assert_eq!(alone[1]["settings"], format!("--set '{zen}'"));
    let table = text(&reproduce(&path, &["--set", key]).stdout);
    assert!(table.contains("with --set costs.pte-traversal=20"), "{table}");
    assert!(table.contains("0 agree, 0 differ, 3 are shown; with the changed values"), "{table}");
    let csv = text(&reproduce(&path, &["--set", key, "--format", "csv"]).stdout);
    assert!(csv.lines().nth(1).unwrap().contains(",shown,"), "{csv}");
    let page = folder.path().join("page.html");
    reproduce(&path, &["--set", key, "--export-html", page.to_str().unwrap()]);
    assert!(std::fs::read_to_string(page).unwrap().contains("--set costs.pte-traversal=20"));
}

#[test]
fn lines_can_be_added_to_an_experiment_without() {
    let _turn = superpage_testing::turn_of("reproduce");
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), TWO);
    let own = parsed(&reproduce(&path, &["--format", "json"]));
    let with = parsed(&reproduce(&path, &["--format", "json", "--lines"]));
    assert_eq!((&own[2]["measured"], &own[2]["settings"]), (&0.0.into(), &Value::Null));
    assert!(with[2]["measured"].as_f64().unwrap() > 0.0);
    assert_eq!((&with[2]["settings"], &with[2]["settings_verdict"]), (&"--lines".into(), &Value::Null));
}

#[test]
fn a_change_that_would_do_nothing_is_refused() {
    let _turn = superpage_testing::turn_of("reproduce");
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), TWO);
    let two = path.to_str().unwrap();
    let cases: [(&[&str], &str); 13] = [
        (&[two, "--set", "costs.none=1"], "no machine of"),
        (&[two, "--set", "costs.none=1"], "there is no such key; take one of copy-per-kb, cycles-per-instruction"),
        (&[two, "--set", "costs.fault"], "expected KEY=VALUE"),
        (&[two, "--set", "costs.fault=much"], "costs.fault"),
        (&[two, "--set", "costs.fault=1", "--set", "costs.fault=2"], "set twice"),
        (&["piehl12/table4-1", "--set", "costs.fault=1"], "piehl12/table4-1: it runs real programs"),
        (&["piehl12/table4-1", "--lines"], "piehl12/table4-1: it runs real programs"),
        (&["navarro02/figure1", "--set", "costs.fault=1"], "navarro02/figure1: it simulates no machine"),
        (&["dougan99/table1", "--lines"], "dougan99/table1: it has lines already"),
        (&["park20/mechanism", "--lines"], "park20/mechanism: it runs no stream"),
        (
            &["navarro02/figure1", "navarro02/scalability", "--set", "costs.fault=1"],
            "navarro02/figure1: it simulates no",
        ),
        (&["--set", "costs.fault=1"], "PAPER[/EXPERIMENT]"),
        (&["navarro02", "--list", "--lines"], "--lines"),
    ];
    for (arguments, problem) in cases {
        let output = superpage(&[&["reproduce"], arguments].concat());
        let error = text(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}: {error}");
        assert!(error.contains(problem), "{arguments:?}, {problem}: {error}");
    }
}

#[test]
fn experiments_without_a_key_run_as_they_are() {
    let _turn = superpage_testing::turn_of("reproduce");
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), TWO);
    let both = ["reproduce", path.to_str().unwrap(), "navarro02/figure1", "--format", "json"];
    let settings = ["--set", "costs.pte-traversal=20", "--lines"];
    let output = superpage(&[&both[..], &settings].concat());
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    for option in ["--set costs.pte-traversal=20", "--lines"] {
        let line = format!("superpage: {option} would change nothing in navarro02/figure1: run without it");
        assert_eq!(errors.lines().filter(|found| **found == line).count(), 1, "{errors}");
    }
    let of = |rows: Vec<Value>, name: &str| -> Vec<Value> {
        rows.into_iter().filter(|row| row["experiment"] == name).collect()
    };
    let (changed, own) = (parsed(&output), parsed(&superpage(&both)));
    assert_eq!(of(changed.clone(), "figure1"), of(own.clone(), "figure1"));
    assert_ne!(of(changed, "small"), of(own, "small"));
}

#[test]
fn values_are_set_in_the_layouts_of_holes_too() {
    let _turn = superpage_testing::turn_of("reproduce");
    let run = |set: &[&str]| {
        let output =
            superpage(&[&["reproduce", "park20/mechanism", "--format", "json", "--threads", "1"], set].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        parsed(&output)
    };
    let rows = run(&["--set", "costs.cycles-per-instruction=2"]);
    assert!(rows.iter().all(|row| row["settings"] == "--set costs.cycles-per-instruction=2"));
    assert!(rows.iter().all(|row| row["verdict"] == "shown"));
    assert!(run(&[]).iter().all(|row| row["settings"].is_null()));
}

/// The pipe is opened when all is computed, and nobody reads it.
#[test]
fn one_signal_ends_what_waits_for_the_reader_of_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let (experiment, pipe) = (file(folder.path(), SMALL), folder.path().join("pipe"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let arguments = ["reproduce", experiment.to_str().unwrap(), "--export-html", pipe.to_str().unwrap()];
    let mut waits = Command::new(env!("CARGO_BIN_EXE_superpage"))
        .args(arguments)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // It opens the pipe: the only system call in which it blocks for ever.
    let opens = || {
        std::fs::read_to_string(format!("/proc/{}/wchan", waits.id()))
            .is_ok_and(|at| at.contains("fifo") || at.contains("wait_for_partner"))
    };
    let began = std::time::Instant::now();
    while !opens() && began.elapsed().as_secs() < 5 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(Command::new("kill").arg(waits.id().to_string()).status().unwrap().success());
    let began = std::time::Instant::now();
    let status = loop {
        match waits.try_wait().unwrap() {
            Some(status) => break status,
            None if began.elapsed().as_secs() > 20 => {
                waits.kill().unwrap();
                panic!("one signal does not end it");
            }
            None => std::thread::sleep(std::time::Duration::from_millis(20)),
        }
    };
    assert_eq!(status.code(), Some(128 + 15));
}
