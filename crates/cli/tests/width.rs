//! What every verb prints for people fits a screen of a hundred columns, whatever it is given; with
//! `--wide` nothing is left out. `compare` has tests of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

const COLUMNS: usize = 100;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What is printed into a pipe.
fn printed(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_superpage")).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The same; every line fits, and something is shown.
fn fits(arguments: &[&str]) -> String {
    let text = printed(arguments);
    let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > COLUMNS).collect();
    assert!(long.is_empty() && text.lines().count() > 2, "{arguments:?}: {long:#?} of\n{text}");
    text
}

#[test]
fn simulations_of_several_machines_and_policies() {
    let _turn = superpage_testing::turn_of("width");
    let machines = ["-m", "golden-cove", "-m", "zen5", "-m", "neoverse-v2"];
    let names = [
        "reservation:sizes=2M,threshold=7/8,growing-limit=off,preempt=off,reclaim=none,lists=one,stepwise=off,wired=scatter",
        "reservation:sizes=2M",
        "thp",
        "freebsd",
        "talluri-hill",
    ];
    let policies: Vec<&str> = names.iter().flat_map(|name| ["-p", name]).collect();
    let mixes = ["touch:bytes=1M ; touch:bytes=2M ; touch:bytes=3M ; touch:bytes=4M ; matrix:n=60 ; touch:bytes=5M"];
    for workload in mixes {
        let arguments = [&["sim", workload, "--fragment", "1", "--memory", "256M"], &machines[..], &policies].concat();
        let text = fits(&arguments);
        assert!(text.contains("256 MB of memory") && text.contains("touched, immovable pages"), "{text}");
        assert!(
            !text.contains("100.00") && !text.contains("assumed") && text.contains("are bounds, not times"),
            "{text}"
        );
        let wide = printed(&[&arguments[..], &["--wide"]].concat());
        for word in ["walk refs", "tables", "faults", "nobody has published", " of 2M", workload] {
            assert!(wide.contains(word), "{word}: {wide}");
        }
    }
}

#[test]
fn simulations_of_several_sampled_traces() {
    let _turn = superpage_testing::turn_of("width");
    let corpus = ["sim", "--trace", "corpus/gzip.sp", "corpus/sqlite3.sp", "-m", "zen5", "-m", "golden-cove"];
    let text = fits(&[&corpus[..], &["-p", "thp", "-p", "reservation", "-p", "reservation:sizes=2M"]].concat());
    assert!(text.contains("zen5: speedup over base, fewer TLB misses, and more memory"), "{text}");
}

#[test]
fn a_simulation_that_pages() {
    let _turn = superpage_testing::turn_of("width");
    let text = fits(&["sim", "touch:bytes=8M", "--memory", "4M", "-m", "zen5", "-p", "thp", "-p", "reservation"]);
    assert!(text.contains("disk time"), "{text}");
}

#[test]
fn a_trace_of_a_long_name() {
    let _turn = superpage_testing::turn_of("width");
    let folder = tempfile::tempdir().unwrap();
    let [foreign, ours] = ["lackey", "sp"].map(|end| folder.path().join(format!("{}.{end}", "long-name-".repeat(20))));
    std::fs::write(&foreign, "I  00400000,4\n L 10000000,8\n").unwrap();
    let [foreign, ours] = [&foreign, &ours].map(|path| path.to_str().unwrap());
    printed(&["trace", "import", "lackey", foreign, "-o", ours]);
    fits(&["trace", "info", ours]);
    fits(&["sim", "--trace", ours]);
    assert!(printed(&["trace", "info", ours, "--wide"]).contains(ours));
    fits(&["trace", "info", "corpus/redis-server.sp"]);
}

#[test]
fn experiments() {
    let _turn = superpage_testing::turn_of("width");
    fits(&["reproduce", "--list"]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.toml");
    let experiment = r#"
title = "Table 9: an experiment whose title is long enough that nobody would want to read it in one line of a screen"
section = "9"
there = "something"
here = "something small"
kind = "sequence"

[runs]
all = "reservation"

[[column]]
quantity = "pages of 64 KB, counted after the program has touched all of its memory for the first time and some of it twice"
measure = "all.pages.64K"
tolerance = "exact"

[[item]]
name = "a program with a name that is as long as the names of programs in papers are when they name their inputs too"
workload = "touch:bytes=64K"
paper = [2]

[[value]]
item = "a program with a name that is as long as the names of programs in papers are when they name their inputs too"
quantity = "promotions"
measure = "all.promotions"
paper = 3
tolerance = "exact"
because = "the paper is made up, and a reason that is given here should be long as well, so that it goes over several lines"
"#;
    std::fs::write(&path, experiment).unwrap();
    let text = fits(&["reproduce", path.to_str().unwrap()]);
    assert!(text.contains("2 findings: "), "{text}");
    assert!(printed(&["reproduce", path.to_str().unwrap(), "--wide"]).contains("exact"));
}

#[cfg(target_os = "linux")]
mod live {
    use super::*;
    use std::process::{Child, Stdio};

    /// A process of a long name, from a file of a longer one; ended when dropped.
    struct Sleeper(Child, #[allow(dead_code, reason = "the file is there as long")] tempfile::TempDir);

    impl Sleeper {
        fn new() -> Sleeper {
            let folder = tempfile::tempdir().unwrap();
            let sleep = folder.path().join(format!("{}\u{1b}[2J", "a-long-name-of-a-program-".repeat(8)));
            std::fs::copy("/bin/sleep", &sleep).unwrap();
            // Another test that forks meanwhile has the copy open for writing until it executes its
            // own program.
            let child = loop {
                match Command::new(&sleep).arg("600").stdout(Stdio::null()).spawn() {
                    Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
                    started => break started.unwrap(),
                }
            };
            let mapped = || std::fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap().contains("libc");
            while !mapped() {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            Sleeper(child, folder)
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_process_with_long_names() {
        let _turn = superpage_testing::turn_of("width");
        let sleeper = Sleeper::new();
        let pid = sleeper.0.id().to_string();
        let text = fits(&["inspect", &pid]);
        assert!(text.contains("why not huge") && !text.contains("populated") && !text.contains('\u{1b}'), "{text}");
        let wide = printed(&["inspect", &pid, "--wide"]);
        assert!(wide.contains("populated") && wide.contains("/a-long-name") && !wide.contains('\u{1b}'), "{wide}");
    }

    #[test]
    fn the_system() {
        let _turn = superpage_testing::turn_of("width");
        let text = fits(&["inspect", "--system"]);
        assert!(text.contains("Fragmentation: percent of free memory"), "{text}");
    }

    #[test]
    fn a_dry_run() {
        let _turn = superpage_testing::turn_of("width");
        let output = Command::new(env!("CARGO_BIN_EXE_superpage"))
            .args(["daemon", "--dry-run", "--all", "--policy", "promote:age=1ms"])
            .output()
            .unwrap();
        let (text, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            superpage_testing::skip!("system", "{error}");
            return;
        }
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        assert!(text.contains("why not") && !text.contains("too young  "), "{text}");
    }

    #[test]
    fn what_is_measured() {
        let _turn = superpage_testing::turn_of("width");
        let text = fits(&["probe", "--quick", "--churn", "0"]);
        assert!(text.contains("repeats agree"), "{text}");
    }
}
