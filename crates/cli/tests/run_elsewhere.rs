//! `superpage run`, from outside, on systems that lack something: settings, rights, files,
//! processes, `/proc`.
#![cfg(target_os = "linux")]

use crate::run::{SUPERPAGE, alone, lines, sentences, stdout};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs superpage in a mount namespace of its own, after a script that changes what is mounted.
/// `None` after a message where that is not allowed.
fn inside(mounts: &str, folder: &Path, arguments: &[&str]) -> Option<Output> {
    let namespace = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script, "sh", SUPERPAGE]).args(arguments);
        command.env("SUPERPAGE_RUN_DIR", folder.join("run")).stdin(Stdio::null());
        command.output()
    };
    match namespace("mount -t tmpfs none /mnt") {
        Ok(output) if output.status.success() => {}
        _ => {
            superpage_testing::skip!("system", "no mount namespace can be had here");
            return None;
        }
    }
    Some(namespace(&format!("set -e; {mounts}; exec \"$@\"")).unwrap())
}

/// A tree of settings made of files, in the place of the kernel's.
const FILES: &str = "mount -t tmpfs none /sys/kernel/mm; cd /sys/kernel/mm; mkdir -p transparent_hugepage; \
                     [ -e \"$SUPERPAGE_RUN_DIR/enabled\" ] || { mkdir -p $SUPERPAGE_RUN_DIR; echo madvise >$SUPERPAGE_RUN_DIR/enabled; }; \
                     touch transparent_hugepage/enabled; mount --bind $SUPERPAGE_RUN_DIR/enabled transparent_hugepage/enabled";

#[test]
fn a_kernel_without_huge_pages_and_a_container_without_sys_are_told() {
    let _turn = superpage_testing::turn_of("run");
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    for mounts in ["mount -t tmpfs none /sys/kernel/mm", "mount -t tmpfs none /sys"] {
        for policy in ["thp", "thp:malloc=on", "mthp:size=64K"] {
            let arguments = ["run", "--policy", policy, "--", "echo", "started"];
            let Some(output) = inside(mounts, folder.path(), &arguments) else { return };
            assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""), "{policy}");
            let sentences = sentences(&output);
            assert_eq!(sentences.len(), 1, "{sentences:?}");
            assert!(
                sentences[0].starts_with("superpage: this system has no /sys/kernel/mm/transparent_hugepage/enabled")
            );
        }
        let Some(base) = inside(mounts, folder.path(), &["run", "-p", "base", "--", "echo", "started"]) else { return };
        assert_eq!((base.status.code(), stdout(&base).as_str()), (Some(0), "started\n"));
        assert!(base.stderr.is_empty(), "{:?}", sentences(&base));
    }
    let Some(none) = inside("mount -t tmpfs none /proc/sys/vm", folder.path(), &["run", "-p", "hugetlb", "--", "true"])
    else {
        return;
    };
    assert_eq!(none.status.code(), Some(1));
    assert!(sentences(&none)[0].starts_with("superpage: this system has no /proc/sys/vm/nr_hugepages"));
    assert!(!folder.path().join("run").exists(), "nothing had to be locked");
}

#[test]
fn a_system_whose_settings_cannot_be_written_is_told() {
    let _turn = superpage_testing::turn_of("run");
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let mounts = format!("{FILES}; mount -o remount,bind,ro transparent_hugepage/enabled; cd /");
    let Some(output) = inside(&mounts, folder.path(), &["run", "--policy", "thp", "--", "echo", "started"]) else {
        return;
    };
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""), "{:?}", sentences(&output));
    let sentences = sentences(&output);
    assert_eq!(sentences.len(), 1, "{sentences:?}");
    assert!(sentences[0].contains("cannot set /sys/kernel/mm/transparent_hugepage/enabled to always"), "{sentences:?}");
    assert!(!folder.path().join("run/settings.json").exists());
}

/// A setting of shared memory at `never`, made of a file.
const SHMEM: &str = "mkdir -p $SUPERPAGE_RUN_DIR; echo never >$SUPERPAGE_RUN_DIR/shmem; \
                     mount --bind $SUPERPAGE_RUN_DIR/shmem /sys/kernel/mm/transparent_hugepage/shmem_enabled";
/// In the command: from now on nobody can set it.
const READ_ONLY: &str = "mount -o remount,bind,ro /sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// Neither at the end of the command, nor when it has mapped its memory, after 10 s.
#[test]
fn a_setting_that_cannot_be_put_back_harms_no_command() {
    let _turn = superpage_testing::turn_of("run");
    let _alone = alone();
    for (more, said) in [("", "first\n"), ("sleep 11; echo later; ", "first\nlater\n")] {
        let folder = tempfile::tempdir().unwrap();
        let script = format!("{READ_ONLY} && echo first; {more}exit 7");
        let arguments = ["run", "--policy", "promote", "--", "sh", "-c", &script];
        let Some(output) = inside(SHMEM, folder.path(), &arguments) else { return };
        let lines = lines(&output);
        if output.status.code() == Some(1) && lines.iter().any(|line| line.contains("promot")) {
            return superpage_testing::skip!("system", "{lines:?}");
        }
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(7), said), "{lines:?}");
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].starts_with("superpage: cannot set /sys/kernel/mm/transparent_hugepage/shmem_enabled to never")
        );
        assert!(lines[0].ends_with("the next call of any live verb of superpage tries again"), "{lines:?}");
        let file = folder.path().join("run/shmem");
        assert_eq!(fs::read_to_string(&file).unwrap(), "advise");
        let again = "mount --bind $SUPERPAGE_RUN_DIR/shmem /sys/kernel/mm/transparent_hugepage/shmem_enabled";
        inside(again, folder.path(), &["run", "--policy", "base", "--", "true"]).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "never");
    }
}

/// The second command starts while the first has the setting, and maps its memory after the first
/// has ended.
#[test]
fn a_second_command_has_the_setting_of_shared_memory_as_long_as_it_needs() {
    let _turn = superpage_testing::turn_of("run");
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "word=/sys/kernel/mm/transparent_hugepage/shmem_enabled; {SUPERPAGE} run -p promote -- sleep 3 & sleep 1; cat $word; \
         {SUPERPAGE} run -v -p promote -- sh -c \"sleep 3; cat $word\"; cat $word; wait"
    );
    let Some(output) = inside(SHMEM, folder.path(), &["run", "-p", "base", "--", "sh", "-c", &script]) else { return };
    let lines = lines(&output);
    if stdout(&output).is_empty() {
        return superpage_testing::skip!("system", "{lines:?}");
    }
    // The file in the place of the kernel's has no line feed after it was written.
    assert_eq!(stdout(&output), "adviseadvisenever", "{lines:?}");
    assert!(
        lines.iter().any(|line| line.ends_with("while the command maps its memory, then back to never")),
        "{lines:?}"
    );
}

/// As another user, to whom `/proc` shows no process of root, inside a command whose settings are
/// in force.
#[test]
fn a_process_that_cannot_be_seen_is_not_taken_for_dead() {
    let _turn = superpage_testing::turn_of("run");
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("superpage");
    fs::copy(SUPERPAGE, &copy).unwrap();
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", copy.to_str().unwrap()];
    let arguments =
        [&["run", "--policy", "thp", "--"], &nobody[..], &["run", "--policy", "base", "--", "echo"], &["begun"]];
    let mounts = format!("{FILES}; cd /; mount -t proc -o hidepid=2 none /proc");
    let Some(output) = inside(&mounts, folder.path(), &arguments.concat()) else { return };
    if output.status.code() == Some(127) || lines(&output).iter().any(|line| line.starts_with("mount: ")) {
        return superpage_testing::skip!("system", "{:?}", lines(&output));
    }
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "begun\n"), "{:?}", lines(&output));
    assert!(output.stderr.is_empty(), "{:?}", lines(&output));
}

#[test]
fn a_damaged_journal_is_told_once() {
    let _turn = superpage_testing::turn_of("run");
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("run")).unwrap();
    fs::write(folder.path().join("run/settings.json"), "{").unwrap();
    let Some(output) = inside(FILES, folder.path(), &["run", "--policy", "thp", "--", "echo", "started"]) else {
        return;
    };
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""), "{:?}", lines(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.matches("is not one that superpage wrote").count(), 1, "{said}");
    assert!(
        said.contains("would have to be always for the whole system, but settings that were changed before"),
        "{said}"
    );
}

#[test]
fn what_a_kill_left_is_put_back_once_and_said_once() {
    let _turn = superpage_testing::turn_of("run");
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run/enabled");
    let kill = ["run", "--policy", "thp", "--", "sh", "-c", "kill -9 $PPID; sleep 0.2"];
    let Some(killed) = inside(FILES, folder.path(), &kill) else { return };
    assert_eq!(killed.status.signal(), Some(9));
    assert_eq!(fs::read_to_string(&file).unwrap(), "always");
    assert!(folder.path().join("run/settings.json").exists());
    let next = inside(FILES, folder.path(), &["run", "--policy", "base", "--", "cat", "transparent_hugepage/enabled"])
        .unwrap();
    assert_eq!((next.status.code(), stdout(&next).as_str()), (Some(0), "madvise"));
    let sentences = lines(&next);
    assert_eq!(sentences.len(), 1, "{sentences:?}");
    assert!(sentences[0].starts_with("superpage: put back what process "), "{sentences:?}");
    assert!(sentences[0].ends_with(": /sys/kernel/mm/transparent_hugepage/enabled = madvise"), "{sentences:?}");
    let again = inside(FILES, folder.path(), &["run", "--policy", "base", "--", "true"]).unwrap();
    assert!(again.stderr.is_empty());
}

/// Whatever the limit: either nothing is started and a sentence says the way out, or it is run to
/// its end.
#[test]
fn too_few_open_files_are_told_before_the_command_is_started() {
    let _turn = superpage_testing::turn_of("run");
    for limit in 3..40 {
        // Also with a file that whoever started it left open.
        let script =
            format!("exec 8</dev/null; ulimit -n {limit}; exec \"$0\" run -v -p base -- sh -c 'echo begun; exit 7'");
        let output = Command::new("sh").args(["-c", &script, SUPERPAGE]).output().unwrap();
        let (said, error) = (stdout(&output), String::from_utf8_lossy(&output.stderr).into_owned());
        match output.status.code() {
            Some(7) => assert_eq!(said, "begun\n", "{limit}: {error}"),
            Some(1) if said.is_empty() && limit >= 9 => assert!(error.contains("ulimit -n"), "{limit}: {error}"),
            // Not even what a program needs to begin.
            status => assert!(said.is_empty() && limit < 9, "{limit}: {status:?}, {said}, {error}"),
        }
    }
}

/// As another user, whose processes are counted from none. Whatever the limit: either nothing is
/// started and a sentence says why, or it is run to its end; a simulation needs no thread but its
/// own.
#[test]
fn too_few_processes_are_told_before_the_command_is_started() {
    let _turn = superpage_testing::turn_of("run");
    let nobody = |limit: u32, words: &str| {
        let script = format!("ulimit -u {limit}; exec \"$0\" {words}");
        Command::new("bash").args(["-c", &script, SUPERPAGE]).uid(65534).gid(65534).output()
    };
    if !nobody(1000, "--version").is_ok_and(|output| output.status.success()) {
        superpage_testing::skip!("system", "the command cannot be run as another user");
        return;
    }
    for limit in 1..8 {
        for how in ["-v -p base", "-v -p thp:malloc=on", "-p base --text"] {
            let output = nobody(limit, &format!("run {how} -- sh -c 'echo begun; exit 7'")).unwrap();
            let (said, error) = (stdout(&output), String::from_utf8_lossy(&output.stderr).into_owned());
            match output.status.code() {
                Some(7) => assert_eq!(said, "begun\n", "{limit} {how}: {error}"),
                Some(1 | 126) => {
                    assert!(said.is_empty() && lines(&output).len() == 1, "{limit} {how}: {said}, {error}")
                }
                status => panic!("{limit} {how}: {status:?}, {said}, {error}"),
            }
        }
        let output = nobody(limit, "sim touch:bytes=64K").unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{limit}: {:?}", lines(&output));
        let output = nobody(limit, "compare -r 1 -w 0 --cold-host --policy base -- true").unwrap();
        let panics = lines(&output).iter().any(|line| line.contains("panicked"));
        assert!(matches!(output.status.code(), Some(0 | 1)) && !panics, "{limit}: {:?}", lines(&output));
    }
}

#[test]
fn without_proc_one_sentence_says_so() {
    let _turn = superpage_testing::turn_of("run");
    let folder = tempfile::tempdir().unwrap();
    for verb in
        [&["inspect", "1"][..], &["compare", "-r", "1", "--policy", "now", "--", "true"], &["run", "--", "true"]]
    {
        let Some(output) = inside("mount -t tmpfs none /proc", folder.path(), verb) else { return };
        let sentences = sentences(&output);
        assert_eq!(output.status.code(), Some(1), "{sentences:?}");
        assert!(sentences.len() == 1 && sentences[0].contains("/proc is not mounted here"), "{sentences:?}");
    }
}
