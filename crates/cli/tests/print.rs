//! Standard output that nobody reads, or that takes nothing more: no verb panics, and no file is
//! lost for it.
#![cfg(unix)]

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../corpus/gzip.sp")
}

fn superpage(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_superpage"));
    command.args(arguments);
    command
}

/// Verbs that print in each way there is: at once, line by line, as a page of help, and more than a
/// pipe holds.
fn verbs() -> Vec<Vec<String>> {
    let corpus = corpus().to_str().unwrap().to_string();
    let mut verbs = vec![
        "--help".to_string(),
        "--version".into(),
        "sim --help".into(),
        "sim touch:bytes=1M".into(),
        "sim touch:bytes=1M --format json".into(),
        "sim touch:bytes=1M --format csv".into(),
        "sim touch:bytes=1M --format parquet".into(),
        "reproduce --list".into(),
        format!("trace info {corpus}"),
        format!("trace export parquet {corpus}"),
        format!("trace export csv {corpus}"),
        format!("trace export text {corpus}"),
    ];
    if cfg!(target_os = "linux") {
        verbs.extend(["inspect --system".into(), "inspect --system --format json".into()]);
        verbs.push(format!("inspect {}", std::process::id()));
        verbs.push(format!("daemon --dry-run --policy promote:age=100ms --pid {}", std::process::id()));
    }
    verbs.iter().map(|verb| verb.split(' ').map(String::from).collect()).collect()
}

/// What a verb tells whose standard output nobody reads any more.
fn unread(verb: &[&str]) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    superpage(verb).stdout(writer).stderr(Stdio::piped()).output().unwrap()
}

#[test]
fn a_closed_output_is_no_failure() {
    let _turn = superpage_testing::turn_of("print");
    for verb in verbs() {
        let verb: Vec<&str> = verb.iter().map(String::as_str).collect();
        let output = unread(&verb);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{verb:?}: {error}");
        assert!(!error.contains("panicked") && !error.contains("cannot write"), "{verb:?}: {error}");
    }
}

#[test]
fn a_reader_that_leaves_ends_an_export_early() {
    let _turn = superpage_testing::turn_of("print");
    let mut child = superpage(&["trace", "export", "csv", corpus().to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut head = [0; 100];
    child.stdout.take().unwrap().read_exact(&mut head).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_output_is_one_sentence() {
    let _turn = superpage_testing::turn_of("print");
    for verb in verbs() {
        let verb: Vec<&str> = verb.iter().map(String::as_str).collect();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = superpage(&verb).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{verb:?}: {error}");
        let told: Vec<&str> = error.lines().filter(|line| line.contains("cannot write to standard output")).collect();
        assert_eq!(told.len(), 1, "{verb:?}: {error}");
    }
}

#[test]
fn a_closed_standard_error_loses_its_sentences_alone() {
    let _turn = superpage_testing::turn_of("print");
    for (verb, status) in [(vec!["sim", "no-such-workload"], 2), (vec!["trace", "info", "no-such-file"], 2)] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = superpage(&verb).stderr(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{verb:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn no_output_at_all_is_one_sentence() {
    let _turn = superpage_testing::turn_of("print");
    for verb in verbs() {
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" >&-", env!("CARGO_BIN_EXE_superpage")]).args(&verb);
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{verb:?}: {error}");
        assert!(error.ends_with("superpage: cannot write to standard output: it is closed\n"), "{verb:?}: {error}");
    }
    // Where nothing is to be printed none is needed.
    let output = Command::new("sh")
        .args(["-c", "exec \"$0\" run -p now -- true >&-", env!("CARGO_BIN_EXE_superpage")])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}
