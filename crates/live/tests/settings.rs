//! Settings are put back, whatever happens: on a tree of files that stands for a system.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use superpage_linux::Error;
use superpage_linux::settings::{HUGETLB_POOL, SHMEM_ENABLED, Settings, System, THP_ENABLED, recover_at};
use superpage_live::Policy;
use superpage_live::policy::Plan;

const SIZE_64K: &str = "sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled";
const SIZE_2M: &str = "sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled";

/// A system in a directory, which lives as long as the directory.
fn system(folder: &Path) -> System {
    let system = System::at(folder.join("root"), folder.join("run"));
    for (setting, text) in [
        (THP_ENABLED, "always [madvise] never\n"),
        (SIZE_64K, "always inherit madvise [never]\n"),
        (SIZE_2M, "always [inherit] madvise never\n"),
        (HUGETLB_POOL, "3\n"),
        ("proc/sys/vm/nr_overcommit_hugepages", "0\n"),
        ("proc/meminfo", "MemTotal: 4096 kB\nMemAvailable:  40960 kB\nHugepagesize:       2048 kB\n"),
        ("proc/sys/kernel/random/boot_id", "this boot\n"),
        ("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n"),
    ] {
        let path = system.path(setting);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    system
}

/// The turn of a test, and a directory with a system of its own.
fn fresh(system: fn(&Path) -> System) -> (impl Drop, tempfile::TempDir, System) {
    let (turn, folder) = (superpage_testing::turn_of("settings"), tempfile::tempdir().unwrap());
    let system = system(folder.path());
    (turn, folder, system)
}

fn plan(policy: &str, system: &System) -> Result<Plan, Error> {
    Plan::new(&policy.parse::<Policy>().unwrap(), system)
}

#[test]
fn what_was_set_is_put_back_the_last_first() {
    let (_turn, folder, system) = fresh(system);
    let journal = folder.path().join("run/settings.json");
    {
        let mut settings = Settings::new(system.clone(), false);
        assert_eq!(settings.set(THP_ENABLED, "always").unwrap(), "madvise");
        assert_eq!(system.get(THP_ENABLED).unwrap(), "always");
        settings.validate().unwrap();
        let mark = settings.mark();
        assert_eq!(settings.set(THP_ENABLED, "never").unwrap(), "always");
        settings.set(HUGETLB_POOL, "9").unwrap();
        assert!(fs::read_to_string(&journal).unwrap().contains("nr_hugepages"));
        settings.validate().unwrap();
        settings.restore_to(mark).unwrap();
        settings.validate().unwrap();
        assert_eq!(
            (system.get(THP_ENABLED).unwrap(), system.get(HUGETLB_POOL).unwrap()),
            ("always".into(), "3".into())
        );
        // Nothing to do, and no entry in the journal.
        settings.set(HUGETLB_POOL, "3").unwrap();
        assert_eq!(settings.mark(), mark);
    }
    assert_eq!(system.get(THP_ENABLED).unwrap(), "madvise");
    assert!(!journal.exists());
}

#[test]
fn what_to_type_for_a_policy_is_what_its_plan_sets() {
    let (_turn, _folder, system) = fresh(system);
    let lines = |policy: &str| -> Vec<String> {
        plan(policy, &system).unwrap().lines(&system, "CMD").into_iter().map(|line| line.line).collect()
    };
    let path = |setting: &str| system.path(setting).display().to_string();
    let [enabled, small] = [THP_ENABLED, SIZE_64K].map(path);
    let both = |path: &str, word: &str| {
        [format!("echo {word} > {path}"), format!("echo 'w {path} - - - - {word}' >> /etc/tmpfiles.d/superpage.conf")]
    };
    let run = |policy: &str| vec![format!("superpage run -p '{policy}' -- CMD")];
    assert_eq!(lines("thp"), [run("thp"), both(&enabled, "always").into()].concat());
    assert_eq!(lines("mthp:size=64K"), [run("mthp:size=64K"), both(&small, "always").into()].concat());
    let malloc = ["GLIBC_TUNABLES=glibc.malloc.hugetlb=1 CMD".to_string()];
    assert_eq!(lines("thp:malloc=on"), [run("thp:malloc=on"), malloc.into()].concat());
    let daemon = ["superpage daemon --policy 'ingens' --pid PID".to_string()];
    assert_eq!(lines("ingens")[..2], [run("ingens"), daemon.into()].concat());
    // Of a pool only how a command uses it.
    assert!(lines("hugetlb").iter().all(|line| !line.contains("echo")), "{:?}", lines("hugetlb"));
    fs::write(system.path(THP_ENABLED), "[always] madvise never\n").unwrap();
    assert_eq!(lines("thp"), run("thp"), "it is so already");
    assert_eq!(lines("now"), Vec::<String>::new());
}

#[test]
fn a_panic_puts_back_too() {
    let (_turn, _folder, system) = fresh(system);
    let inside = system.clone();
    let thread = std::thread::spawn(move || {
        let mut settings = Settings::new(inside, false);
        settings.set(THP_ENABLED, "always").unwrap();
        panic!("on purpose");
    });
    assert!(thread.join().is_err());
    assert_eq!(system.get(THP_ENABLED).unwrap(), "madvise");
}

#[test]
fn what_a_killed_process_left_is_put_back_once_nobody_holds_the_lock() {
    let (_turn, folder, system) = fresh(system);
    let mut settings = Settings::new(system.clone(), false);
    settings.set(THP_ENABLED, "always").unwrap();
    settings.set(SIZE_64K, "always").unwrap();
    assert_eq!(recover_at(&system).unwrap(), None, "its owner lives");
    let other = Settings::new(system.clone(), false).set(THP_ENABLED, "never").unwrap_err().to_string();
    assert!(other.contains(&format!("process {}", std::process::id())), "{other}");
    // As after a SIGKILL: no destructor runs, and the kernel drops the lock. Here a copy of the
    // journal stands for it.
    let journal = fs::read(folder.path().join("run/settings.json")).unwrap();
    drop(settings);
    fs::write(folder.path().join("run/settings.json"), &journal).unwrap();
    fs::write(system.path(THP_ENABLED), "always").unwrap();
    fs::write(system.path(SIZE_64K), "always").unwrap();
    let recovered = recover_at(&system).unwrap().expect("there is a journal");
    assert_eq!((recovered.pid, recovered.restored), (std::process::id(), true));
    assert_eq!(recovered.settings[0], (system.path(THP_ENABLED), "madvise".to_string()));
    assert_eq!((system.get(THP_ENABLED).unwrap(), system.get(SIZE_64K).unwrap()), ("madvise".into(), "never".into()));
    assert_eq!(recover_at(&system).unwrap(), None, "only once");

    // The next to lock does the same, and a journal of another boot is nothing.
    fs::write(folder.path().join("run/settings.json"), &journal).unwrap();
    fs::write(system.path(THP_ENABLED), "always").unwrap();
    Settings::new(system.clone(), false).lock().unwrap();
    assert_eq!(system.get(THP_ENABLED).unwrap(), "madvise");
    fs::write(folder.path().join("run/settings.json"), &journal).unwrap();
    fs::write(system.path(THP_ENABLED), "always").unwrap();
    fs::write(system.path("proc/sys/kernel/random/boot_id"), "the next boot\n").unwrap();
    assert_eq!(recover_at(&system).unwrap(), None);
    assert_eq!(system.get(THP_ENABLED).unwrap(), "always");
    assert!(!folder.path().join("run/settings.json").exists());
}

#[test]
fn what_somebody_else_has_set_is_left() {
    let (_turn, folder, system) = fresh(system);
    let journal = folder.path().join("run/settings.json");
    let get = |setting: &str| system.get(setting).unwrap();
    let mut settings = Settings::new(system.clone(), false);
    settings.set(THP_ENABLED, "always").unwrap();
    settings.set(HUGETLB_POOL, "9").unwrap();
    // As `echo never >` does, beside us.
    fs::write(system.path(THP_ENABLED), "never\n").unwrap();
    settings.restore().unwrap();
    settings.validate().unwrap();
    assert_eq!((get(THP_ENABLED), get(HUGETLB_POOL)), ("never".into(), "3".into()));
    assert!(!journal.exists(), "what is left is nobody's business any more");

    // After a kill, the call that finds the journal leaves it too, and says so.
    fs::write(system.path(THP_ENABLED), "madvise\n").unwrap();
    settings.set(THP_ENABLED, "always").unwrap();
    settings.set(HUGETLB_POOL, "9").unwrap();
    let killed = fs::read(&journal).unwrap();
    drop(settings);
    fs::write(&journal, killed).unwrap();
    fs::write(system.path(THP_ENABLED), "never\n").unwrap();
    fs::write(system.path(HUGETLB_POOL), "9\n").unwrap();
    let recovered = recover_at(&system).unwrap().unwrap();
    assert_eq!((get(THP_ENABLED), get(HUGETLB_POOL)), ("never".into(), "3".into()));
    let sentence = recovered.to_string();
    assert!(sentence.starts_with("put back what process ") && sentence.contains("nr_hugepages = 3"), "{sentence}");
    assert!(sentence.contains("enabled was changed to never by somebody else"), "{sentence}");
    assert!(sentence.ends_with("it is left at never, and not put back to madvise"), "{sentence}");
    assert_eq!(recover_at(&system).unwrap(), None);
}

/// A lock belongs to all that have the open file: a child that was being started when its parent
/// was killed has it until it executes its command.
#[test]
fn a_lock_that_a_killed_process_left_to_its_child_is_waited_for() {
    let (_turn, folder, system) = fresh(system);
    let mut settings = Settings::new(system.clone(), false);
    settings.set(THP_ENABLED, "always").unwrap();
    let journal = fs::read_to_string(folder.path().join("run/settings.json")).unwrap();
    drop(settings);
    // flock(1) takes it and ends; the open file stays with `sleep`.
    let script = "exec 9<>\"$0\" && flock -x 9 && { sleep 0.3 & } && echo held";
    let lock = folder.path().join("run/settings.lock");
    let mut sh = std::process::Command::new("sh");
    sh.args(["-c", script]).arg(&lock).stdin(Stdio::null()).stdout(Stdio::null());
    assert!(sh.status().unwrap().success());
    let inode = format!(":{} ", fs::metadata(&lock).unwrap().ino());
    let locks = fs::read_to_string("/proc/locks").unwrap();
    let line = locks.lines().find(|line| line.contains(&inode) && line.contains("FLOCK")).expect("it is locked");
    let pid = line.split_whitespace().nth(4).unwrap();
    let own = format!("\"pid\":{}", std::process::id());
    assert!(journal.contains(&own));
    fs::write(folder.path().join("run/settings.json"), journal.replace(&own, &format!("\"pid\":{pid}"))).unwrap();
    fs::write(system.path(THP_ENABLED), "always").unwrap();
    let recovered = recover_at(&system).unwrap().expect("it was waited for");
    assert_eq!((recovered.pid.to_string().as_str(), recovered.restored), (pid, true));
    assert_eq!(system.get(THP_ENABLED).unwrap(), "madvise");
}

#[test]
fn what_a_kill_kept_from_being_set_is_as_it_was() {
    let (_turn, folder, system) = fresh(system);
    let journal = folder.path().join("run/settings.json");
    let mut settings = Settings::new(system.clone(), false);
    settings.set(THP_ENABLED, "always").unwrap();
    let killed = fs::read(&journal).unwrap();
    drop(settings);
    // Killed between the journal and the change.
    fs::write(&journal, killed).unwrap();
    assert_eq!(recover_at(&system).unwrap().unwrap().left, []);
    assert_eq!(system.get(THP_ENABLED).unwrap(), "madvise");
}

#[test]
fn what_a_kill_let_the_kernel_set_in_part_is_put_back() {
    let (_turn, folder, system) = fresh(system);
    let journal = folder.path().join("run/settings.json");
    // A pipe, so that the write waits and the journal of just then can be copied.
    let pool = system.path(HUGETLB_POOL);
    fs::remove_file(&pool).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&pool).status().unwrap().success());
    let kernel = std::thread::spawn({
        let (pool, journal) = (pool.clone(), journal.clone());
        move || {
            fs::write(&pool, "3\n").unwrap();
            while !journal.exists() {
                std::thread::yield_now();
            }
            let while_written = fs::read(&journal).unwrap();
            assert_eq!(fs::read_to_string(&pool).unwrap(), "4096");
            fs::write(&pool, "4000\n").unwrap();
            while_written
        }
    });
    let mut settings = Settings::new(system.clone(), false);
    assert_eq!(settings.ask(HUGETLB_POOL, "4096").unwrap(), ("3".into(), "4000".into()));
    let while_written = kernel.join().unwrap();
    let once_written = fs::read(&journal).unwrap();
    fs::remove_file(&pool).unwrap();
    fs::write(&pool, "4000\n").unwrap();
    drop(settings);
    assert_eq!(system.get(HUGETLB_POOL).unwrap(), "3");

    for (killed, now, after) in [
        (&while_written, "1700", "3"),
        (&while_written, "4096", "3"),
        (&while_written, "4097", "4097"),
        (&while_written, "2", "2"),
        (&once_written, "4000", "3"),
        (&once_written, "1700", "1700"),
    ] {
        fs::write(&journal, killed).unwrap();
        fs::write(&pool, now).unwrap();
        let recovered = recover_at(&system).unwrap().unwrap();
        assert_eq!(
            (system.get(HUGETLB_POOL).unwrap().as_str(), recovered.left.len()),
            (after, usize::from(after != "3")),
            "{now}"
        );
    }
}

/// A system that also has the setting of shared memory, at `never`.
fn with_shared_memory(folder: &Path) -> System {
    let system = system(folder);
    fs::write(system.path(SHMEM_ENABLED), "always within_size advise [never] deny force\n").unwrap();
    system
}

#[test]
fn shared_memory_is_aligned_while_the_command_maps_it() {
    let (_turn, _folder, system) = fresh(with_shared_memory);
    let promote = match plan("promote", &system) {
        Ok(plan) => plan,
        Err(error) => return superpage_testing::skip!("system", "{error}"),
    };
    let word = || system.get(SHMEM_ENABLED).unwrap();
    let off = plan("promote:shared=off", &system).unwrap();
    assert!(promote.is_briefly_global() && !off.is_briefly_global());
    let mut settings = Settings::new(system.clone(), false);
    let mut arrangement = promote.clone().arrange(&mut settings).unwrap();
    assert_eq!(word(), "advise");
    assert!(arrangement.notes()[0].ends_with("then back to never"), "{:?}", arrangement.notes());
    // Programs map what they share when they start: then others may have the lock.
    assert!(Settings::new(system.clone(), false).lock().is_err());
    arrangement.end_brief();
    assert_eq!(word(), "never");
    let mut other = Settings::new(system.clone(), false);
    other.lock().unwrap();
    drop(arrangement);
    // While another has it nobody waits, and a note says what that means.
    let arrangement = promote.arrange(&mut settings).unwrap();
    assert!(arrangement.notes()[0].starts_with("shared memory may lie where no huge page fits: "));
    assert_eq!(word(), "never");
    drop((arrangement, other));
    // What is huge at its first touch needs the setting as long as it runs.
    let mut arrangement = plan("thp:shared=on", &system).unwrap().arrange(&mut settings).unwrap();
    arrangement.end_brief();
    assert_eq!(word(), "within_size");
    drop(arrangement);
    assert_eq!(word(), "never");
    // Only `never` gives way.
    for other in ["deny", "advise", "within_size"] {
        fs::write(system.path(SHMEM_ENABLED), other).unwrap();
        assert!(!plan("promote", &system).unwrap().is_briefly_global(), "{other}");
    }
}

#[test]
fn who_measures_puts_back_what_a_killed_process_left_and_shares_the_lock() {
    let (_turn, folder, system) = fresh(system);
    let mut settings = Settings::new(system.clone(), false);
    settings.set(THP_ENABLED, "always").unwrap();
    assert!(Settings::new(system.clone(), false).share().unwrap_err().to_string().contains("has changed settings"));
    let journal = fs::read(folder.path().join("run/settings.json")).unwrap();
    drop(settings);
    fs::write(folder.path().join("run/settings.json"), &journal).unwrap();
    fs::write(system.path(THP_ENABLED), "always").unwrap();
    let mut readers = [(); 2].map(|()| Settings::new(system.clone(), false));
    readers.iter_mut().for_each(|reader| reader.share().unwrap());
    assert_eq!(system.get(THP_ENABLED).unwrap(), "madvise");
    assert!(readers.iter().all(Settings::is_locked));
    let refused = Settings::new(system.clone(), false).set(THP_ENABLED, "never").unwrap_err().to_string();
    assert!(refused.contains("measures under the settings of this kernel as they are"), "{refused}");
    // One of them that changes something needs the lock alone.
    let [mut first, second] = readers;
    assert!(first.set(THP_ENABLED, "never").is_err());
    drop(second);
    first.set(THP_ENABLED, "never").unwrap();
    first.validate().unwrap();
}

#[test]
fn a_journal_that_names_other_files_is_refused() {
    let (_turn, folder, system) = fresh(system);
    system.make_run_directory().unwrap();
    let victim = folder.path().join("root/etc");
    fs::write(&victim, "as it was").unwrap();
    let tricks = [victim.clone(), system.path("sys/kernel/mm/../../../etc")];
    for path in tricks {
        let journal = serde_json::json!({"boot": "this boot", "pid": 1, "started": 0, "changes": [{"path": path, "before": "x", "set": "y"}]});
        fs::write(folder.path().join("run/settings.json"), journal.to_string()).unwrap();
        let error = recover_at(&system).unwrap_err().to_string();
        assert!(error.contains("is no setting of this system"), "{error}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "as it was");
    }
    fs::write(folder.path().join("run/settings.json"), "{\"boot\":").unwrap();
    assert!(recover_at(&system).unwrap_err().to_string().contains("not one that superpage wrote"));
}

#[test]
fn a_directory_that_others_may_write_to_is_refused() {
    let _turn = superpage_testing::turn_of("settings");
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let system = system(folder.path());
    fs::create_dir(folder.path().join("run")).unwrap();
    fs::set_permissions(folder.path().join("run"), fs::Permissions::from_mode(0o777)).unwrap();
    let error = Settings::new(system, false).lock().unwrap_err().to_string();
    assert!(error.contains("others may write to"), "{error}");
}

#[test]
fn each_policy_sets_what_it_says() {
    let (_turn, _folder, system) = fresh(system);
    let mut settings = Settings::new(system.clone(), false);
    assert!(!plan("base", &system).unwrap().is_global());
    assert!(!plan("thp:malloc=on", &system).unwrap().is_global());
    let get = |setting: &str| system.get(setting).unwrap();

    let arrangement = plan("thp", &system).unwrap().arrange(&mut settings).unwrap();
    assert_eq!((get(THP_ENABLED), get(SIZE_2M)), ("always".into(), "inherit".into()));
    let [note] = arrangement.notes() else { panic!("{:?}", arrangement.notes()) };
    assert!(note.ends_with("is always for the whole system while the command runs, then back to madvise"), "{note}");
    drop(arrangement);
    assert_eq!(get(THP_ENABLED), "madvise");

    fs::write(system.path(THP_ENABLED), "always").unwrap();
    let arrangement = plan("mthp:size=64K", &system).unwrap().arrange(&mut settings).unwrap();
    assert_eq!((get(SIZE_64K), get(SIZE_2M), get(THP_ENABLED)), ("always".into(), "madvise".into(), "always".into()));
    drop(arrangement);
    assert_eq!((get(SIZE_64K), get(SIZE_2M)), ("never".into(), "inherit".into()));
    let error = plan("mthp:size=32K", &system).unwrap_err().to_string();
    assert_eq!(error, "this kernel has no folios of 32K; it has 64K, 2M");

    let arrangement = plan("hugetlb:pool=9M", &system).unwrap().arrange(&mut settings).unwrap();
    assert_eq!(get(HUGETLB_POOL), "5");
    drop(arrangement);
    assert_eq!(get(HUGETLB_POOL), "3");
    assert!(!plan("hugetlb:pool=6M", &system).unwrap().is_global(), "the pool is there");
    let arrangement = plan("hugetlb", &system).unwrap().arrange(&mut settings).unwrap();
    assert_eq!(get("proc/sys/vm/nr_overcommit_hugepages"), "18");
    drop(arrangement);
    assert_eq!(get("proc/sys/vm/nr_overcommit_hugepages"), "0");
}

#[test]
fn what_a_system_lacks_is_said() {
    let _turn = superpage_testing::turn_of("settings");
    let folder = tempfile::tempdir().unwrap();
    let empty = System::at(folder.path().join("nothing"), folder.path().join("run"));
    assert!(plan("base", &empty).is_ok());
    for policy in ["thp", "thp:malloc=on", "mthp", "hugetlb"] {
        match plan(policy, &empty) {
            Err(error @ Error::Unable(_)) => assert!(error.to_string().starts_with("this system has no "), "{error}"),
            other => panic!("{policy}: {other:?}"),
        }
    }
}

#[test]
fn a_lock_that_was_removed_is_no_lock() {
    let _turn = superpage_testing::turn_of("settings");
    use std::time::Duration;
    let folder = tempfile::tempdir().unwrap();
    let system = system(folder.path());
    let mut first = Settings::new(system.clone(), false);
    first.lock().unwrap();
    let (told, tell) = std::sync::mpsc::channel();
    let waiter = {
        let mut waiting = Settings::new(system.clone(), true);
        std::thread::spawn(move || {
            waiting.lock().unwrap();
            told.send(()).unwrap();
            waiting.validate().unwrap();
        })
    };
    std::thread::sleep(Duration::from_millis(100));
    // Somebody tidies up, and another makes the file anew and takes it: what is waited for is no
    // lock any more.
    fs::remove_file(folder.path().join("run/settings.lock")).unwrap();
    let mut second = Settings::new(system.clone(), false);
    second.lock().unwrap();
    drop(first);
    assert!(tell.recv_timeout(Duration::from_millis(200)).is_err(), "two have the lock");
    drop(second);
    tell.recv_timeout(Duration::from_secs(20)).unwrap();
    waiter.join().unwrap();
}
