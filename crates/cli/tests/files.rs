//! What is read and written: traces, exports, and what is in their way.

use crate::command::{names, refused, superpage, text, trace};
use std::path::PathBuf;
use std::process::Command;

#[test]
fn damaged_traces_are_refused_and_their_whole_part_can_be_used() {
    let _turn = superpage_testing::turn_of("command");
    let folder = tempfile::tempdir().unwrap();
    let whole = trace(folder.path());
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let bytes = std::fs::read(&whole).unwrap();
    let ours = whole.to_str().unwrap();

    std::fs::write(path("cut.sp"), &bytes[..bytes.len() * 2 / 3]).unwrap();
    std::fs::write(path("empty.sp"), b"").unwrap();
    std::fs::write(path("wrong.sp"), b"this is not a trace at all, is it?").unwrap();
    let mut corrupt = bytes.clone();
    let middle = bytes.len() / 2;
    corrupt[middle] ^= 0x40;
    std::fs::write(path("corrupt.sp"), corrupt).unwrap();

    refused(&["sim", "--trace", &path("cut.sp")], &["cut.sp", "--up-to-cut"]);
    refused(&["sim", "--trace", &path("corrupt.sp")], &["corrupt.sp", "--up-to-cut"]);
    refused(&["sim", "--trace", &path("empty.sp")], &["empty.sp", "empty"]);
    refused(&["sim", "--trace", &path("wrong.sp")], &["wrong.sp"]);
    refused(&["sim", "--trace", &path("missing.sp")], &["missing.sp"]);
    refused(&["sim", "--trace", folder.path().to_str().unwrap()], &["directory"]);
    refused(&["trace", "info", &path("cut.sp")], &["cut.sp", "--up-to-cut"]);

    let references = |arguments: &[&str]| {
        let output = superpage(arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        rows[0]["references"].as_u64().unwrap()
    };
    let all = references(&["sim", "--format", "json", "--trace", ours]);
    assert_eq!(all, 40_000);
    let part = references(&["sim", "--format", "json", "--up-to-cut", "--trace", &path("cut.sp")]);
    assert!(part <= all);
}

#[test]
fn trace_info_counts_what_was_imported() {
    let _turn = superpage_testing::turn_of("command");
    let folder = tempfile::tempdir().unwrap();
    let ours = trace(folder.path());
    assert_eq!(names(folder.path()), ["small.lackey", "small.sp"]);
    let output = superpage(&["trace", "info", ours.to_str().unwrap(), "--format", "json"]);
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["references"], 40_000);
    assert_eq!(summary["fetches"], 20_000);
    assert_eq!(summary["complete"], true);
    let table = text(&superpage(&["trace", "info", ours.to_str().unwrap()]).stdout);
    assert!(table.contains("references") && table.contains("whole  yes"), "{table}");
}

#[test]
fn every_export_writes_a_file() {
    let _turn = superpage_testing::turn_of("command");
    let folder = tempfile::tempdir().unwrap();
    let ours = trace(folder.path());
    for format in superpage_trace::export::formats() {
        let out = folder.path().join(format!("out.{format}"));
        let output = superpage(&["trace", "export", format, ours.to_str().unwrap(), "-o", out.to_str().unwrap()]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(out.metadata().unwrap().len() > 100, "{format}");
        // Standard output that is no terminal holds the same.
        let printed = superpage(&["trace", "export", format, ours.to_str().unwrap()]);
        assert!(printed.status.success(), "{}", text(&printed.stderr));
        assert!(printed.stdout == std::fs::read(&out).unwrap(), "{format}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_one_sentence_and_leaves_nothing() {
    let _turn = superpage_testing::turn_of("command");
    let folder = tempfile::tempdir().unwrap();
    let foreign = folder.path().join("small.lackey");
    std::fs::write(&foreign, " L 1000,8\n").unwrap();
    let output = superpage(&["trace", "import", "lackey", foreign.to_str().unwrap(), "-o", "/dev/full"]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("/dev/full") && error.trim_end().lines().count() == 1, "{error}");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_superpage"))
        .args(["sim", "touch:bytes=1M", "--format", "json"])
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(status.status.code(), Some(1));
    assert!(text(&status.stderr).starts_with("superpage: cannot write"), "{}", text(&status.stderr));
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_limit_is_one_sentence_and_leaves_nothing() {
    let _turn = superpage_testing::turn_of("command");
    let folder = tempfile::tempdir().unwrap();
    let ours = trace(folder.path());
    let before = names(folder.path());
    let script = "ulimit -f 8; exec \"$0\" trace export csv \"$1\" -o \"$1.csv\"";
    let output = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_superpage"), ours.to_str().unwrap()])
        .output()
        .unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("free some space") && error.contains("ulimit -f"), "{error}");
    assert_eq!(names(folder.path()), before);
    // A program that is started dies by the signal as it would without us.
    let script = "ulimit -f 8; exec \"$0\" run -p base -- sh -c 'exec head -c 1000000 /dev/zero > \"$0\"' \"$1.big\"";
    let output = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_superpage"), ours.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(128 + 25), "{}", text(&output.stderr));
}

/// Under its own name, through a link and through another name of the file.
#[test]
fn an_input_is_not_written_over() {
    let _turn = superpage_testing::turn_of("command");
    let folder = tempfile::tempdir().unwrap();
    let ours = trace(folder.path());
    let (foreign, experiment) = (folder.path().join("small.lackey"), folder.path().join("own.toml"));
    std::fs::copy(
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../experiments/navarro02/table3.toml"),
        &experiment,
    )
    .unwrap();
    for (verb, option, input) in [
        (&["trace", "export", "csv"][..], "-o", &ours),
        (&["trace", "import", "lackey"], "-o", &foreign),
        (&["reproduce"], "--export-html", &experiment),
    ] {
        let before = std::fs::read(input).unwrap();
        let (link, name) = (folder.path().join("link"), folder.path().join("name"));
        std::os::unix::fs::symlink(input, &link).unwrap();
        std::fs::hard_link(input, &name).unwrap();
        for output in [input, &link, &name] {
            let words = [verb, &[input.to_str().unwrap(), option, output.to_str().unwrap()]].concat();
            refused(&words, &["is also the input", "name another file"]);
        }
        assert_eq!(std::fs::read(input).unwrap(), before);
        let _ = (std::fs::remove_file(link), std::fs::remove_file(name));
    }
}

/// What a command reads on its way is not known before, and is not written over at its end.
#[test]
fn what_was_read_is_not_written_over() {
    let _turn = superpage_testing::turn_of("command");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (records, pages) = (path("own.trace"), path("v2p.textproto"));
    let (file, weights) = (path("own.csv"), path("weights"));
    std::fs::create_dir(path("folder")).unwrap();
    let kept = path("folder/kept.trace");
    let done = |words: &[&str]| assert!(superpage(words).status.success(), "{words:?}");
    done(&["trace", "export", "drmemtrace", trace(folder.path()).to_str().unwrap(), "-o", &records]);
    std::fs::copy(&records, &kept).unwrap();
    std::fs::write(&file, "address\n4096\n8192\n").unwrap();
    std::fs::write(&weights, "1 0\n").unwrap();
    let sp = path("own.sp");
    done(&["trace", "import", "csv", &file, "-o", &sp]);
    std::fs::write(&pages, "page_size: 4096\n").unwrap();
    for (words, input) in [
        (&["trace", "import", "drmemtrace", &path("folder"), "-o", &kept][..], &kept),
        (&["trace", "import", "drmemtrace", &records, "--v2p", &pages, "-o", &pages], &pages),
        (&["sim", "--trace", &sp, "--weights", &weights, "--export-html", &weights], &weights),
    ] {
        let before = std::fs::read(input).unwrap();
        let output = superpage(words);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains("is also the input"), "{words:?}: {said}");
        assert_eq!(std::fs::read(input).unwrap(), before, "{words:?}");
    }
    let (events, csv) = (path("twice"), format!("{}/./twice", folder.path().display()));
    refused(&["trace", "export", "champsim", &sp, "-o", &events, "--events", &csv], &["is to be written twice"]);
    assert!(!std::path::Path::new(&events).exists());
}

/// Not for ever, and not until memory is full.
#[cfg(target_os = "linux")]
#[test]
fn inputs_that_never_end_or_never_come_are_refused() {
    let _turn = superpage_testing::turn_of("command");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (zero, pipe) = (path("zero.toml"), path("pipe.toml"));
    std::os::unix::fs::symlink("/dev/zero", &zero).unwrap();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for file in [&zero, &pipe] {
        for words in [
            &["sim", "touch:bytes=1M", "-m", file][..],
            &["sim", "touch:bytes=1M", "-m", &format!("zen5+{file}")],
            &["sim", "touch:bytes=1M", "-p", file],
            &["reproduce", file],
            &["daemon", "--dry-run", "--config", file],
            &["run", "-p", file, "--", "true"],
        ] {
            refused(words, &["is not a regular file"]);
        }
    }
    for file in [&zero, &pipe] {
        refused(&["trace", "info", file], &["is not a regular file"]);
        refused(&["trace", "export", "csv", file], &["is not a regular file"]);
        refused(&["sim", "--trace", file], &["is not a regular file"]);
    }
    refused(&["sim", "touch:bytes=64K", "-p", "promote:interval=0"], &["a time of at least 1ms", "not `0`"]);
    refused(&["run", "-p", "promote:interval=0", "--", "true"], &["a time of at least 1ms", "not `0`"]);
    refused(&["sim", "touch:bytes=64K", "-p", "promote:age=8761h"], &["a time of at most 365 days", "not `8761h`"]);
    refused(&["sim", "share:processes=100K,bytes=64M"], &["processes x bytes is more than 1024G"]);
    refused(&["trace", "import", "champsim", &pipe, "-o", &path("x.sp")], &["is not a regular file"]);
    // In the place of the journal of settings: an inspect does not wait for it.
    assert!(Command::new("mkfifo").arg(path("settings.json")).status().unwrap().success());
    let output = Command::new(env!("CARGO_BIN_EXE_superpage"))
        .args(["inspect", "--system"])
        .env("SUPERPAGE_RUN_DIR", folder.path())
        .output()
        .unwrap();
    assert!(
        output.status.success() && text(&output.stderr).contains("is not a regular file"),
        "{}",
        text(&output.stderr)
    );
}

/// Neither in what goes well nor in what does not.
#[cfg(unix)]
#[test]
fn a_terminal_obeys_no_name_of_a_file() {
    let _turn = superpage_testing::turn_of("command");
    let folder = tempfile::tempdir().unwrap();
    trace(folder.path());
    let foreign = folder.path().join("small.lackey");
    let ours = folder.path().join("n\u{1b}[31m\n.sp");
    for (input, status) in [(&foreign, 0), (&ours.join("none"), 2)] {
        let output = Command::new(env!("CARGO_BIN_EXE_superpage"))
            .args(["trace", "import", "lackey"])
            .arg(input)
            .arg("-o")
            .arg(&ours)
            .output()
            .unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{error}");
        assert!(!error.contains('\u{1b}') && error.contains("\\u{1b}[31m"), "{error}");
    }
}

/// With less memory than a group of rows takes: from limits under which nothing starts to one under
/// which all is done.
#[test]
fn an_export_without_memory_ends_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let whole = concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus/gzip.sp");
    let out = folder.path().join("out.parquet");
    let export = |kilobytes: u64| {
        let line = format!("ulimit -v {kilobytes}; exec \"$0\" trace export parquet \"$1\" -o \"$2\"");
        let words = ["-c", &line, env!("CARGO_BIN_EXE_superpage"), whole];
        Command::new("sh").args(words).arg(&out).output().unwrap()
    };
    let mut told = 0;
    for megabytes in (80..=260).step_by(20) {
        let done = export(megabytes << 10);
        let said = text(&done.stderr);
        match done.status.code() {
            Some(0) => {}
            Some(1) => {
                assert!(said.contains("there is no memory for more than") && !out.exists(), "{megabytes}: {said}");
                told += 1;
            }
            code => panic!("{megabytes} MB: {code:?}: {said}"),
        }
        let _ = std::fs::remove_file(&out);
    }
    assert!(told > 0, "the limits are too high");
}
