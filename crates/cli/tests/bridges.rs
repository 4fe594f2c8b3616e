//! Traces to and from the formats of other tools, as users go there and back.

use crate::command::{refused, superpage, text, trace};
use std::path::Path;

/// What the command prints; it must succeed.
fn printed(arguments: &[&str]) -> String {
    let output = superpage(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// The rows of a simulation of a trace, without what names the trace.
fn rows(trace: &Path) -> Vec<serde_json::Value> {
    let printed = printed(&["sim", "--trace", trace.to_str().unwrap(), "-m", "zen5", "-p", "thp", "--format", "json"]);
    let mut rows: Vec<serde_json::Value> = match serde_json::from_str(&printed).unwrap() {
        serde_json::Value::Array(rows) => rows,
        row => vec![row],
    };
    for row in &mut rows {
        let row = row.as_object_mut().unwrap();
        ["workload", "trace_digest"].iter().for_each(|key| drop(row.remove(*key)));
    }
    rows
}

#[test]
fn what_was_exported_simulates_alike() {
    let folder = tempfile::tempdir().unwrap();
    let ours = trace(folder.path());
    let expected = rows(&ours);
    assert_eq!(expected.len(), 2);
    for format in ["csv", "parquet", "text"] {
        let [there, back] = ["there", "sp"].map(|end| folder.path().join(format!("{format}.{end}")));
        printed(&["trace", "export", format, ours.to_str().unwrap(), "-o", there.to_str().unwrap()]);
        printed(&["trace", "import", format, there.to_str().unwrap(), "-o", back.to_str().unwrap()]);
        assert_eq!(rows(&back), expected, "{format}");
    }
}

#[test]
fn a_wrong_table_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [table, trace] = ["table.csv", "trace.sp"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    std::fs::write(&table, "address,kind\n0x1000,R\n0x1000,jump\n").unwrap();
    refused(&["trace", "import", "csv", &table, "-o", &trace], &["table.csv: line 3: kind \"jump\", expected read"]);
    assert!(!Path::new(&trace).exists());
}

#[test]
fn two_files_of_champsim_are_two_threads() {
    let folder = tempfile::tempdir().unwrap();
    let ours = trace(folder.path());
    let [records, events, both] = ["a.champsim.xz", "events.csv", "both.sp"].map(|name| folder.path().join(name));
    let [ours, records, events, both] = [&ours, &records, &events, &both].map(|path| path.to_str().unwrap());
    printed(&["trace", "export", "champsim", ours, "-o", records, "--events", events]);
    assert!(std::fs::read_to_string(events).unwrap().contains(",map,65536,2500,"));
    printed(&["trace", "import", "champsim", records, records, "-o", both]);
    let rows = printed(&["sim", "--trace", both, "--cores", "2", "-m", "zen5", "--format", "json"]);
    assert!(rows.contains("\"threads\": 2") && rows.contains("\"references\": 80000"), "{rows}");
    refused(&["trace", "export", "champsim", ours, "-o", records, "--events", records], &["cannot write"]);
    refused(&["trace", "import", "champsim", records, records, "-o", both, "--v2p", events], &["--v2p"]);
}

#[test]
fn traces_of_intervals_have_weighted_means() {
    let folder = tempfile::tempdir().unwrap();
    let ours = trace(folder.path());
    let weights = folder.path().join("some.weights");
    let [ours, file] = [&ours, &weights].map(|path| path.to_str().unwrap());
    std::fs::write(&weights, "0.25 0\n0.25 1\n").unwrap();
    let means = printed(&["sim", "-m", "zen5", "--format", "csv", "--weights", file, "--trace", ours, ours]);
    let lines: Vec<&str> = means.lines().collect();
    assert_eq!(lines.len(), 3, "{means}");
    assert!(lines[1].starts_with("zen5,base,2,20000.0,2503.0,"), "{means}");
    let table = printed(&["sim", "-m", "zen5", "--weights", file, "--trace", ours, ours]);
    assert!(table.contains("weighted means of 2 intervals") && table.contains("125.150"), "{table}");
    refused(&["sim", "--weights", file, "--trace", ours], &["some.weights: lines with a weight: 2, traces: 1;"]);
    refused(&["sim", "--weights", file, "--format", "parquet", "--trace", ours, ours], &["JSON or CSV"]);
}
