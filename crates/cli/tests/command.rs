//! The command as its users meet it: what it prints, what it refuses and with which status, what it
//! leaves behind.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub(crate) fn superpage(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_superpage")).args(arguments).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Asserts status 2, nothing on standard output, and one line on standard error with all of
/// `parts`.
pub(crate) fn refused(arguments: &[&str], parts: &[&str]) {
    let output = superpage(arguments);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    for part in parts {
        assert!(error.contains(part), "{arguments:?}: {error}");
    }
    if error.starts_with("superpage: ") {
        assert_eq!(error.trim_end().lines().count(), 1, "{arguments:?}: {error}");
    }
}

/// A small trace, made by importing a few lines of Lackey's text.
pub(crate) fn trace(folder: &Path) -> PathBuf {
    let foreign = folder.join("small.lackey");
    let mut lines = String::from("==1== Lackey\n");
    for i in 0..20_000u64 {
        lines += &format!(
            "I  {:08x},4\n L {:08x},8\n S {:08x},8\n",
            0x40_0000 + i % 2000 * 4,
            0x1000_0000 + i * 512,
            0x2000_0000
        );
    }
    std::fs::write(&foreign, lines).unwrap();
    let ours = folder.join("small.sp");
    let output = superpage(&["trace", "import", "lackey", foreign.to_str().unwrap(), "-o", ours.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    ours
}

/// Of a plan that was cut short, in simulations and live alike.
#[cfg(target_os = "linux")]
#[test]
fn a_plan_that_was_cut_short_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("cut.plan");
    let policy = format!("plan:file={}", plan.display());
    for (text, why) in [
        ("huge,mmap,300000,addr,>,0x7fff", "cut.plan, line 1: the file ends within this line"),
        ("# native\nhuge,mmap,300000,addr,>,0x7fff\n", "cut.plan, line 2: expected an upper address"),
        ("# native\nhuge,mmap,1,addr,>,0x8000,addr,<,0x7000\n", "cut.plan, line 2: expected LO below HI"),
    ] {
        std::fs::write(&plan, text).unwrap();
        refused(&["run", "-p", &policy, "--", "true"], &[why]);
        // Simulations read the lines before `# native`.
        std::fs::write(&plan, text.replace("# native", "# all")).unwrap();
        refused(&["sim", "-p", &policy, "touch:bytes=1M"], &[why]);
    }
}

/// Before anything runs: the program would leave a file.
#[cfg(target_os = "linux")]
#[test]
fn a_plan_does_not_replace_what_the_advice_is_about() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (program, machine, ran, pipe) = (path("program"), path("own.toml"), path("ran"), path("pipe"));
    std::fs::write(&program, format!("#!/bin/sh\ntouch {ran}\n")).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/zen5.toml"), &machine).unwrap();
    let also = ["is also the input, and would be replaced"];
    refused(&["advise", "-o", &program, "--", &program], &also);
    refused(&["advise", "-o", &program, "--", "sh", &program], &also);
    refused(&["advise", "-o", &machine, "-m", &machine, "--", &program], &also);
    let output = Command::new(env!("CARGO_BIN_EXE_superpage"))
        .args(["advise", "-o", &program, "--", "program"])
        .env("PATH", folder.path())
        .output()
        .unwrap();
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains(also[0]), "{}", text(&output.stderr));
    assert!(!Path::new(&ran).exists() && std::fs::read_to_string(&program).unwrap().starts_with("#!"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    refused(&["advise", "-o", &pipe, "--", &program], &["is a pipe or a socket", "name a regular file"]);
    assert!(!Path::new(&ran).exists());
    let output = superpage(&["advise", "-m", "zen5", "-o", "/dev/stdout", "random:bytes=32M,references=200K"]);
    assert!(output.status.success() && text(&output.stdout).starts_with("huge,mmap,"), "{}", text(&output.stderr));
}

#[test]
fn advice_says_what_the_rows_of_its_table_say() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("own plan");
    let said = |workload: &str| {
        let output = superpage(&["advise", "-m", "zen5", "-o", plan.to_str().unwrap(), workload]);
        let table = text(&output.stdout);
        again_as_printed(&table);
        table.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    // Where thp gives as much in the same memory, advice by the program is not what to do.
    let mix = said("random:bytes=4M,references=300K+cmp:bytes=4M");
    assert!(mix.contains("2 regions with most misses (of 4; 2 not in the plan) give 100.0 %"), "{mix}");
    assert!(mix.contains("thp gives 100.0 % in no more memory (superpage run -p thp -- CMD)"), "{mix}");
    let one = said("random:bytes=2M,references=200K;touch:bytes=1M");
    assert!(one.contains("in 1 region (") && one.contains("1 region (all that miss) gives 100.0 %"), "{one}");
}

/// Runs the simulation that advice names.
fn again_as_printed(advice: &str) {
    let line = advice.lines().find_map(|line| line.trim().strip_prefix("superpage sim ")).expect(advice);
    let words = shlex::split(line).unwrap();
    let output = superpage(&std::iter::once("sim").chain(words.iter().map(String::as_str)).collect::<Vec<_>>());
    assert!(output.status.success(), "{line}: {}", text(&output.stderr));
}

#[test]
fn advice_is_a_table_or_json_and_a_plan_that_sim_takes() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("own.plan");
    let plan = plan.to_str().unwrap();
    let workload = "random:bytes=32M,references=200K";
    let output = superpage(&["advise", "-m", "zen5", "-o", plan, workload]);
    let table = text(&output.stdout);
    assert!(output.status.success() && table.contains("95 %") && table.contains("mapping at"), "{table}");
    let lines = std::fs::read_to_string(plan).unwrap();
    assert!(!lines.is_empty() && lines.lines().all(|line| line.starts_with("huge,mmap,")), "{lines}");
    again_as_printed(&table);
    let output = superpage(&["advise", "-m", "zen5", "--format", "json", workload]);
    let advice: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(advice["layouts"].as_array().unwrap().len() > 8 && advice["base"]["policy"] == "base");
    let output = superpage(&["advise", "-m", "zen5", "--layout", "mosalloc", "-o", plan, "--format", "json", workload]);
    let advice: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(advice["mosalloc"]["regions"], 0, "nothing of it is a heap");
    assert!(advice["mosalloc"]["left_out"].as_u64().unwrap() > 8);
    assert!(text(&output.stderr).contains("in Mosalloc's pools is not known"), "{}", text(&output.stderr));
    let lines = std::fs::read_to_string(plan).unwrap();
    assert!(lines.starts_with("type,pageSize,startOffset,endOffset\nmmap,-1,0,"), "{lines}");
    let alpha = ["advise", "-m", "alpha-21264", "--layout", "mosalloc", "-o", plan, "random:bytes=16M,references=100K"];
    refused(&alpha, &["no pages of 512 KB", "-m"]);
    refused(&["advise", "--layout", "mosalloc", workload], &["--output"]);
    let output = superpage(&["advise", "-o", plan, "random:bytes=16K,references=1K"]);
    assert!(output.status.success() && text(&output.stderr).contains("no plan was written"));
    let sampled = concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus/gzip.sp");
    refused(&["advise", "--trace", sampled], &["is sampled", "without --sample"]);
    refused(&["advise", "--trace", sampled, "-o", sampled], &["cannot write"]);
    refused(&["advise", "no-such-workload"], &["no-such-workload"]);
    refused(&["advise", "-m", "no-such-machine", workload], &["no-such-machine"]);
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_small_stack_is_enough() {
    let _turn = superpage_testing::turn_of("command");
    let folder = tempfile::tempdir().unwrap();
    let trace = trace(folder.path()).to_str().unwrap().to_string();
    for arguments in [
        &["sim", "touch:bytes=1M", "-m", "zen5+nested", "-p", "reservation", "--lines"][..],
        &["sim", "--help"],
        &["trace", "info", &trace],
        &["reproduce", "navarro02/table1", "--list"],
        &["inspect", "--system"],
        &["run", "--policy", "now", "--", "true"],
    ] {
        let script = "ulimit -s 128; exec \"$0\" \"$@\"";
        let mut command = Command::new("sh");
        let output = command.args(["-c", script, env!("CARGO_BIN_EXE_superpage")]).args(arguments).output().unwrap();
        let error = text(&output.stderr);
        assert!(output.status.code().is_some() && !error.contains("overflow"), "{arguments:?}: {error}");
    }
}

#[test]
fn json_stands_alone_on_standard_output() {
    let _turn = superpage_testing::turn_of("command");
    let output = superpage(&["sim", "touch:bytes=4M", "-m", "alpha-21264", "-m", "zen5", "--format", "json"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 4);
    assert_eq!(rows[1]["policy"], "reservation");
    assert_eq!(rows[1]["pages"]["4M"], 1);
    assert_eq!(rows[1]["frames_leaked"], 0);
}

#[test]
fn each_part_of_a_workload_is_a_row_if_asked_for() {
    let _turn = superpage_testing::turn_of("command");
    let workload = "touch:bytes=1M;touch:bytes=2M";
    let output = superpage(&["sim", workload, "-m", "zen5", "--parts", "--format", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |key: &str| rows.as_array().unwrap().iter().map(|row| row[key].clone()).collect::<Vec<_>>();
    let parts = ["", "", "/touch:bytes=1M", "/touch:bytes=1M", "/touch:bytes=2M", "/touch:bytes=2M"];
    assert_eq!(of("workload"), parts.map(|part| format!("{workload}{part}")));
    let faults: Vec<u64> = of("faults").iter().map(|faults| faults.as_u64().unwrap()).collect();
    assert_eq!(faults[0], faults[2] + faults[4]);
}

#[test]
fn the_number_of_threads_changes_no_byte() {
    let _turn = superpage_testing::turn_of("command");
    let run = |threads| {
        let workload = "tree:nodes=2K,operations=3K+zipf:bytes=8M,references=50K";
        let arguments =
            ["sim", workload, "-m", "alpha-21264", "-m", "skylake-sp", "--format", "json", "--threads", threads];
        superpage(&arguments).stdout
    };
    let one = run("1");
    assert!(!one.is_empty());
    assert_eq!(one, run("2"));
    assert_eq!(one, run("2"));
}

#[test]
fn what_is_unknown_is_refused_with_what_is_known() {
    refused(&["sim", "touch:bytes=1M", "--set", ""], &["--set", "expected KEY=VALUE, as in costs.fault=900"]);
    let _turn = superpage_testing::turn_of("command");
    refused(&["sim", "touch", "-m", "pdp-11"], &["pdp-11", "alpha-21264", "zen5"]);
    refused(&["sim", "touch", "-p", "magic"], &["magic", "base, reservation"]);
    refused(&["sim", "touch", "-p", "reservation:magic=on"], &["magic", "preempt"]);
    refused(&["sim", "touch", "--sizes", "3K"], &["3K", "power of two"]);
    refused(&["sim", "touch", "--sizes", "64K", "-m", "zen5"], &["64K", "4K/2M/1G"]);
    refused(&["sim", "tetris"], &["tetris", "matrix", "zipf"]);
    refused(&["sim", "touch:shoes=2"], &["shoes", "bytes"]);
    refused(&["sim", "touch:bytes=many"], &["bytes", "many"]);
    refused(&["sim", "touch", "--format", "xml"], &["xml", "parquet"]);
    refused(&["sim", "touch", "--memory", "0"], &["--memory"]);
    refused(&["sim", "touch", "--memory", "lots"], &["lots"]);
    refused(&["sim", "touch", "--memory", "32K", "-m", "alpha-21264"], &["less than one superpage of 64K", "--memory"]);
    refused(&["sim", "touch", "--fragment", "2"], &["from 0 to 1"]);
    refused(&["sim", "touch", "--fragment", "old"], &["old", "frag-50, aged, or a file of"]);
    refused(&["sim", "touch", "--fragment", "/no/such.memory"], &["cannot read /no/such.memory", "--memory-state"]);
    refused(&["sim", "touch", "--swap", "some"], &["some"]);
    refused(&["sim", "touch", "--files", "tepid"], &["tepid", "warm or cold"]);
    refused(&["sim", "touch", "--digest", "md5"], &["md5", "fast or sha-1"]);
    refused(&["sim", "touch", "--threads", "0"], &["threads"]);
    refused(&["sim"], &["WORKLOAD"]);
    refused(&["sim", "--", "/no/such/program"], &["/no/such/program"]);
    refused(&["record", "-o", "unwritten.sp", "--", "no-such-program-anywhere"], &["no-such-program-anywhere"]);
    refused(&["record", "-o", "unwritten.sp", "--sample", "9/3", "--", "true"], &["ON", "PERIOD"]);
    refused(&["trace", "import", "morse", "x", "-o", "y"], &["morse", "lackey"]);
    assert!(!Path::new("unwritten.sp").exists());
}

#[test]
#[cfg(target_os = "linux")]
fn rows_that_do_not_fit_together_are_refused_before_they_are_allocated() {
    let _turn = superpage_testing::turn_of("command");
    // Each of three machines with 64 GB takes up to 300 MB.
    for (limit, named) in [("-v", "address space (ulimit -v)"), ("-d", "data (ulimit -d)")] {
        let script = format!("ulimit {limit} 1000000 && exec \"$0\" sim touch:bytes=1M -m zen5 -m zen4 -m skylake-sp");
        let sh = Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_superpage")]).output().unwrap();
        let error = text(&sh.stderr);
        assert_eq!(sh.status.code(), Some(2), "{error}");
        assert!(error.contains("6 rows at once") && error.contains(named), "{error}");
        assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    }
    // A row of 300 MB fits; with what simulations leave free it does not.
    let script = "ulimit -v 400000 && exec \"$0\" sim touch:bytes=1M -m zen5 -p base";
    let sh = Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_superpage")]).output().unwrap();
    let error = text(&sh.stderr);
    assert_eq!((sh.status.code(), error.trim_end().lines().count()), (Some(2), 1), "{error}");
    assert!(error.contains("1 row takes") && error.contains("256 MB must stay free"), "{error}");
}

/// Each point of a series takes memory, and there are millions of them.
#[test]
#[cfg(target_os = "linux")]
fn a_simulation_that_runs_short_of_memory_ends_with_one_sentence_and_status_1() {
    let _turn = superpage_testing::turn_of("command");
    let script = "ulimit -v 400000 && exec \"$0\" sim random:bytes=64M,references=9M -m zen5 -p base --memory 128M \
                  --threads 1 --every 10ns --format json";
    let sh = Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_superpage")]).output().unwrap();
    let error = text(&sh.stderr);
    assert_eq!((sh.status.code(), text(&sh.stdout)), (Some(1), String::new()), "{error}");
    assert!(
        error.starts_with("superpage: memory ran short: only ") && error.contains("address space (ulimit -v)"),
        "{error}"
    );
    assert!(error.contains("--memory") && error.trim_end().lines().count() == 1, "{error}");
}

#[test]
fn memory_that_runs_out_ends_the_run_with_a_row_and_status_1() {
    let _turn = superpage_testing::turn_of("command");
    let output =
        superpage(&["sim", "touch:bytes=64M", "--memory", "4M", "--swap", "8M", "-m", "zen5", "--format", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for row in rows.as_array().unwrap() {
        assert_eq!(row["complete"], false);
        assert!(row["error"].as_str().unwrap().contains("memory"));
        assert_eq!(row["frames_leaked"], 0);
    }
}

#[test]
fn swap_space_and_cold_files_show_in_rows_and_table() {
    let _turn = superpage_testing::turn_of("command");
    let touch = ["sim", "touch:bytes=8M", "--memory", "4M", "-m", "zen5"];
    let table = text(&superpage(&touch).stdout);
    let wide = text(&superpage(&[&touch[..], &["--wide"]].concat()).stdout);
    assert!(table.contains("disk time") && wide.contains("paged out") && wide.contains("disk time"), "{table}{wide}");
    let first = |more: &[&str]| {
        let output = superpage(&[more, &["-m", "zen5", "--format", "json"]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        rows[0].clone()
    };
    let row = first(&touch[..4]);
    assert_eq!(row["bytes_written"], row["page_outs"].as_u64().unwrap() * 4096);
    let [warm, cold] = ["warm", "cold"].map(|files| first(&["sim", "cmp:bytes=1M", "--files", files]));
    assert_eq!((&warm["io_requests"], &warm["page_ins"]), (&0.into(), &cold["page_ins"]));
    assert!(cold["io_requests"].as_u64().unwrap() > 0);
}

#[cfg(unix)]
#[test]
fn an_interrupt_leaves_whole_rows_that_say_that_they_are_partial() {
    let _turn = superpage_testing::turn_of("command");
    let signals = [("INT", 130), ("TERM", 143), ("HUP", 129), ("QUIT", 131)];
    // As in the background of a script, where shells have these two ignored.
    let children = signals.map(|_| {
        let line = "trap '' INT QUIT; exec \"$0\" sim random:bytes=256M,references=1G --format json";
        let mut shell = Command::new("sh");
        shell.args(["-c", line, env!("CARGO_BIN_EXE_superpage")]).stdout(Stdio::piped()).stderr(Stdio::piped());
        shell.spawn().unwrap()
    });
    std::thread::sleep(std::time::Duration::from_secs(2));
    for (child, (signal, status)) in children.into_iter().zip(signals) {
        let killed = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(status));
        let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(rows.as_array().unwrap().iter().all(|row| row["complete"] == false));
        assert!(text(&output.stderr).contains("interrupted"));
    }
}

/// The background of a policy, which has much to look at in that time, does not hold up the end.
#[cfg(unix)]
#[test]
fn an_interrupt_ends_idle_time() {
    let _turn = superpage_testing::turn_of("command");
    let mut command = Command::new(env!("CARGO_BIN_EXE_superpage"));
    command.args(["sim", "seek:times=3,idle=1000000s", "-p", "promote", "--format", "json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    let asked = std::time::Instant::now();
    let output = child.wait_with_output().unwrap();
    assert!(asked.elapsed().as_secs() < 20, "{:?}", asked.elapsed());
    assert_eq!(output.status.code(), Some(143));
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(rows.as_array().unwrap().iter().any(|row| row["complete"] == false), "{rows}");
}

#[cfg(unix)]
#[test]
fn a_hangup_that_is_ignored_stays_ignored() {
    let _turn = superpage_testing::turn_of("command");
    let line = format!(
        "trap '' HUP; '{}' sim random:bytes=64M,references=20M >/dev/null & sleep 0.5; kill -HUP $!; wait $!",
        env!("CARGO_BIN_EXE_superpage")
    );
    assert_eq!(Command::new("sh").args(["-c", &line]).status().unwrap().code(), Some(0));
}

#[test]
fn help_of_help_is_help() {
    for (words, verb) in [
        (&["help", "--help"][..], "advise"),
        (&["help", "-h"], "advise"),
        (&["help", "sim", "--help"], "--fragment"),
        (&["trace", "help", "--help"], "import"),
    ] {
        let output = superpage(words);
        assert!(output.status.success() && text(&output.stdout).contains(verb), "{words:?}: {output:?}");
    }
}

#[test]
fn every_verb_has_help_with_an_example() {
    let _turn = superpage_testing::turn_of("command");
    for verb in [&["sim"][..], &["record"], &["trace", "info"], &["trace", "import"], &["trace", "export"]] {
        let output = superpage(&[verb, &["--help"]].concat());
        let help = text(&output.stdout);
        assert!(output.status.success() && help.contains("Example") && help.contains("superpage "), "{help}");
    }
}

/// Whether programs can be recorded here; says so where not.
fn recorder() -> bool {
    let there = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|folder| folder.join(format!("qemu-{}", std::env::consts::ARCH)).exists());
    if !there {
        superpage_testing::skip!("qemu-user", "QEMU's user-mode emulator is not installed (apt install qemu-user)");
    }
    there
}

#[test]
fn a_program_is_recorded_and_simulated_with_and_without_a_file() {
    let _turn = superpage_testing::turn_of("command");
    if !recorder() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("ls.sp");
    let output = superpage(&["record", "-o", trace.to_str().unwrap(), "--", "ls", "/"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("usr"), "the program's output is its own");
    let row = |arguments: &[&str]| {
        let output = superpage(arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let json = text(&output.stdout);
        let rows: serde_json::Value = serde_json::from_str(&json[json.find("[\n").unwrap()..]).unwrap();
        rows[1].clone()
    };
    let kept = row(&["sim", "--format", "json", "--trace", trace.to_str().unwrap()]);
    let live = row(&["sim", "--format", "json", "--", "ls", "/"]);
    assert_eq!(kept["workload"], "ls /");
    let (kept, live) = (kept["references"].as_f64().unwrap(), live["references"].as_f64().unwrap());
    assert!(kept > 10_000.0 && (0.9..1.1).contains(&(live / kept)), "{kept} {live}");
}

#[test]
fn the_status_of_a_recorded_program_is_passed_on() {
    let _turn = superpage_testing::turn_of("command");
    if !recorder() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("false.sp");
    let output = superpage(&["record", "-o", trace.to_str().unwrap(), "--", "sh", "-c", "exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(names(folder.path()), ["false.sp"], "the trace is whole all the same");
    let output = superpage(&["sim", "--format", "json", "--", "sh", "-c", "exit 7"]);
    assert_eq!(output.status.code(), Some(7), "and so where it is simulated at once");
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 2, "the rows are there all the same");
}

#[test]
fn without_qemu_recording_says_what_to_install() {
    let _turn = superpage_testing::turn_of("command");
    let output = Command::new(env!("CARGO_BIN_EXE_superpage"))
        .args(["record", "-o", "unwritten.sp", "--", "/bin/ls"])
        .env("PATH", "/nonexistent")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(error.contains("apt install qemu-user"), "{error}");
    assert!(!Path::new("unwritten.sp").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn a_wrong_number_of_a_process_is_told_in_words() {
    let _turn = superpage_testing::turn_of("command");
    refused(&["inspect", "self"], &["no process is named self"]);
    refused(&["inspect", "-1"], &["no process is named -1"]);
    refused(&["inspect", "99999999999999999999"], &["no process with such a large number"]);
}

#[test]
fn a_policy_of_the_host_is_for_guests() {
    let _turn = superpage_testing::turn_of("command");
    let sim = |machine| ["sim", "touch:bytes=8M", "-m", machine, "-p", "thp", "--host-policy", "thp"];
    refused(&sim("zen5"), &["machine zen5: --host-policy", "zen5+nested"]);
    let output = superpage(&sim("zen5+nested"));
    let table = text(&output.stdout);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    // Both policies on both hosts, with what each host has mapped.
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    for (policies, pages) in
        [(["base", "base"], "4K"), (["thp", "base"], "4K"), (["base", "thp"], "2M"), (["thp", "thp"], "2M")]
    {
        let row = rows.iter().find(|row| row.starts_with(&policies));
        assert!(row.is_some_and(|row| row.last().unwrap().ends_with(pages)), "{policies:?}: {table}");
    }
}

#[test]
fn a_window_of_a_stream_is_what_is_left_of_it() {
    let workload = "random:bytes=8M,references=200K";
    let counts = |options: &[&str]| {
        let words = [&["sim", workload, "-m", "zen5", "-p", "thp", "--format", "json"], options].concat();
        let output = superpage(&words);
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let keys = ["instructions", "references", "tlb_misses", "faults", "walk_cycles"];
        let of = |row: &serde_json::Value| keys.map(|key| row[key].as_u64().unwrap());
        rows.as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    let (whole, first, rest) = (counts(&[]), counts(&["--max", "100K"]), counts(&["--warmup", "100K"]));
    let part = counts(&["--warmup", "100K", "--max", "50K"]);
    for (((whole, first), rest), part) in whole.iter().zip(&first).zip(&rest).zip(&part) {
        let sum: Vec<u64> = first.iter().zip(rest).map(|(first, rest)| first + rest).collect();
        assert_eq!(sum, whole);
        // To the end of a run, of which the longest clears a page.
        assert!((100_000..105_000).contains(&first[0]) && (50_000..55_000).contains(&part[0]), "{first:?} {part:?}");
        assert!(part.iter().zip(rest).all(|(part, rest)| part <= rest));
    }
    let all = whole[0][0];
    for (behind, rest) in counts(&["--skip", "100K"]).iter().zip(&rest) {
        assert_eq!(behind[..2], rest[..2], "instructions and references that follow");
        assert!(behind[3] > rest[3], "first touches are all among them: {behind:?} {rest:?}");
    }
    refused(&["sim", workload, "--skip", "1G"], &[&format!("{workload} has no instruction after --skip 1000000000")]);
    refused(&["sim", workload, "--warmup", "1G"], &[&format!("{workload} has {all} instructions"), "leaves none"]);
    refused(&["sim", workload, "--max", "0"], &["at least 1"]);
    refused(&["sim", workload, "--warmup", "1M", "--parts"], &["cannot be used with"]);
    let sampled = concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus/ld.sp");
    refused(
        &["sim", "--trace", sampled, "--max", "1M"],
        &["is sampled", "--skip, --warmup and --max need all accesses"],
    );
}
