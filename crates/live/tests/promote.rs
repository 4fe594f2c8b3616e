//! A promoter and programs: what is full and settled becomes huge, nothing else does, and no memory
//! changes its contents.
//!
//! The programs are this test binary itself, told by an environment variable what to do
//! ([`program::run`]).
#![cfg(target_os = "linux")]

#[path = "../../vm/tests/background/contract.rs"]
mod contract;
#[path = "../../vm/tests/tutorial/hot.rs"]
mod hot;
mod program;

use program::{BLOCK, Program, populations};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use superpage_linux::pagemap::Pagemap;
use superpage_linux::scan::{self, Kind};
use superpage_linux::why::Why;
use superpage_live::promote::{Options, Promoter, Target};

/// Fast, without a limit, for tests of what is promoted.
fn options(text: &str) -> Options {
    format!("promote:age=50ms,interval=10ms,idle=100ms,cpu=1,burst=10s,slowdown=1,{text}")
        .trim_end_matches(',')
        .parse()
        .unwrap()
}

fn promoter(options: Options, target: Target) -> Option<Promoter> {
    usable(Promoter::new(options, target))
}

fn usable(promoter: Result<Promoter, superpage_linux::Error>) -> Option<Promoter> {
    match promoter {
        Ok(promoter) => Some(promoter),
        Err(error @ superpage_linux::Error::Unable(_)) => {
            superpage_testing::skip!("system", "{error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Steps until something is so, or ten seconds have passed; then for a while longer, in which it
/// may become otherwise.
fn settle(promoter: &mut Promoter, mut done: impl FnMut(&Promoter) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !done(promoter) && Instant::now() < deadline {
        std::thread::sleep(promoter.step().min(Duration::from_millis(10)));
    }
    let longer = Instant::now() + Duration::from_millis(300);
    while Instant::now() < longer {
        std::thread::sleep(promoter.step().min(Duration::from_millis(10)));
    }
}

/// Regions of the program's test memory that are huge.
fn huge(program: &Program) -> usize {
    program.populations().iter().filter(|(_, huge)| *huge).count()
}

/// It goes by what is populated, since nobody knows what is accessed.
#[test]
fn the_policy_of_the_tutorial_promotes_live_too() {
    let _turn = superpage_testing::turn_of("promote");
    let program = Program::start("blocks");
    let parameters = [("share", "0.75"), ("interval", "20ms")];
    let policy = superpage_vm::Policy::of(&hot::HOT, parameters, &superpage_live::policy::LINUX).unwrap();
    let Some(mut promoter) = usable(Promoter::new(Options::of(policy).unwrap(), Target::pids([program.pid()]))) else {
        return;
    };
    settle(&mut promoter, |_| huge(&program) >= 4);
    let after: Vec<bool> = program.populations().iter().map(|(_, huge)| *huge).collect();
    assert_eq!(after[..5], [true, true, true, false, true]);
    program.finish();
}

/// A scan reports the same live as simulated: all of it each time, or a part. Each check begins
/// with a memory that was just scanned.
#[test]
fn a_scan_keeps_its_contract_live() {
    let _turn = superpage_testing::turn_of("promote");
    let program = Program::start("blocks");
    let policy = superpage_vm::Policy::of(&contract::CONTRACT, [("regions", "5")], &superpage_live::policy::LINUX);
    let Some(mut promoter) =
        usable(Promoter::new(Options::of(policy.unwrap()).unwrap(), Target::pids([program.pid()])))
    else {
        return;
    };
    (0..3).for_each(|_| std::thread::sleep(promoter.step()));
    assert!(promoter.counters().scans >= 30, "{:?}", promoter.counters());
    assert_eq!(promoter.counters().quiet_scans, 0);
    program.finish();
}

/// Promotes each region once, and then gives back what holds zeroes.
#[derive(Debug)]
struct GivesBack;

static GIVEN_BACK: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

impl superpage_vm::Background for GivesBack {
    fn next(&self) -> Option<superpage_vm::Time> {
        Some(0)
    }

    fn tick(&mut self, _: superpage_vm::Time, system: &mut dyn superpage_vm::System) {
        let level = superpage_pages::Level(1);
        for space in system.spaces() {
            let mut seen = Vec::new();
            system.scan(space, level, &mut |sample| seen.push(sample));
            for sample in seen {
                if sample.superpage {
                    let given = system.shrink(space, level, sample.region);
                    GIVEN_BACK.fetch_add(given, std::sync::atomic::Ordering::Relaxed);
                } else if GIVEN_BACK.load(std::sync::atomic::Ordering::Relaxed) == 0 {
                    system.promote(space, level, &[sample.into()], superpage_vm::How::Either);
                }
            }
        }
    }
}

static GIVES_BACK: superpage_vm::Definition = superpage_vm::Definition {
    name: "gives-back",
    make: |_| superpage_vm::Made::with(superpage_vm::Answers::BASE, GivesBack),
    ..LISTENER
};

#[test]
fn pages_of_zeroes_are_given_back_where_huge_pages_can_be_split() {
    let _turn = superpage_testing::turn_of("promote");
    if let Err(error) = superpage_linux::split::Splitter::of("/sys/kernel/debug") {
        superpage_testing::skip!("system", "{error}");
        return;
    }
    let program = Program::start("blocks");
    let policy = superpage_vm::Policy::of(&GIVES_BACK, [], &superpage_live::policy::LINUX).unwrap();
    let Some(mut promoter) = usable(Promoter::new(Options::of(policy).unwrap(), Target::pids([program.pid()]))) else {
        return;
    };
    let given = || GIVEN_BACK.load(std::sync::atomic::Ordering::Relaxed);
    settle(&mut promoter, |_| given() > 0);
    // Of 512, 512, 511, 256 and 511 pages that were touched.
    assert!(given() > 0, "{:?}", program.populations());
    assert!(program.populations().iter().any(|(populated, huge)| !huge && *populated < 512));
    program.finish();
}

/// A background that scans all that there is, and writes down which spaces are gone.
#[derive(Debug)]
struct Listener;

static GONE: std::sync::Mutex<Vec<i32>> = std::sync::Mutex::new(Vec::new());

impl superpage_vm::Background for Listener {
    fn next(&self) -> Option<superpage_vm::Time> {
        Some(0)
    }

    fn tick(&mut self, _: superpage_vm::Time, system: &mut dyn superpage_vm::System) {
        for space in system.spaces() {
            system.scan(space, superpage_pages::Level(1), &mut |_| {});
        }
    }

    fn events(&self) -> superpage_vm::Events {
        superpage_vm::Events { gone: true, ..Default::default() }
    }

    fn gone(&mut self, space: superpage_vm::SpaceId) {
        GONE.lock().unwrap().push(space.0 as i32);
    }
}

static LISTENER: superpage_vm::Definition = superpage_vm::Definition {
    name: "listener",
    paper: "",
    help: "listens",
    parameters: &[],
    needs: &[],
    make: |_| superpage_vm::Made::with(superpage_vm::Answers::BASE, Listener),
};

#[test]
fn a_background_is_told_of_processes_that_end_and_of_programs_that_are_replaced() {
    let _turn = superpage_testing::turn_of("promote");
    let policy = superpage_vm::Policy::of(&LISTENER, [], &superpage_live::policy::LINUX).unwrap();
    let mut shell = Command::new("sh").args(["-c", "read x; exec cat"]).stdin(Stdio::piped()).spawn().unwrap();
    let pid = shell.id() as i32;
    // It is the shell, and nothing of the exec that made it so is left to do, once it waits for a
    // line.
    while !fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains("(sh) S ") {}
    let Some(mut promoter) = usable(Promoter::new(Options::of(policy).unwrap(), Target::pids([pid]))) else {
        drop(shell.stdin.take());
        shell.wait().unwrap();
        return;
    };
    let name = || fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let until = |promoter: &mut Promoter, times: usize| {
        let patience = Instant::now() + Duration::from_secs(30);
        while GONE.lock().unwrap().len() < times {
            promoter.step();
            assert!(Instant::now() < patience, "gone: {:?}", GONE.lock().unwrap());
        }
        assert_eq!(*GONE.lock().unwrap(), vec![pid; times]);
    };
    (0..3).for_each(|_| _ = promoter.step());
    until(&mut promoter, 0);
    writeln!(shell.stdin.as_mut().unwrap(), "go").unwrap();
    while name() != "cat\n" {}
    until(&mut promoter, 1);
    (0..3).for_each(|_| _ = promoter.step());
    until(&mut promoter, 1);
    drop(shell.stdin.take());
    shell.wait().unwrap();
    until(&mut promoter, 2);
}

#[test]
fn only_full_regions_are_promoted() {
    let _turn = superpage_testing::turn_of("promote");
    let program = Program::start("blocks");
    let Some(mut promoter) = promoter(options(""), Target::pids([program.pid()])) else { return };
    assert_eq!(program.populations(), [(512, false), (512, false), (511, false), (256, false), (511, false)]);
    settle(&mut promoter, |_| huge(&program) >= 2);
    let after = program.populations();
    assert!(after.starts_with(&[(512, true), (512, true), (511, false), (256, false), (511, false)]), "{after:?}");
    assert_eq!(promoter.counters().grown_bytes, 0);
    program.finish();
}

#[test]
fn a_share_of_the_pages_can_do() {
    let _turn = superpage_testing::turn_of("promote");
    let program = Program::start("blocks");
    let Some(mut promoter) = promoter(options("share=0.99"), Target::tree(program.pid())) else { return };
    settle(&mut promoter, |_| huge(&program) >= 4);
    let huge: Vec<bool> = program.populations().iter().map(|(_, huge)| *huge).collect();
    assert_eq!(huge, [true, true, true, false, true]);
    program.finish();
}

#[test]
fn memory_files_are_promoted_unless_told_otherwise() {
    let _turn = superpage_testing::turn_of("promote");
    let program = Program::start("shared");
    let pid = program.pid();
    let kinds: Vec<Kind> = scan::mappings(pid, BLOCK as u64).unwrap().iter().map(|mapping| mapping.kind).collect();
    assert!(kinds.contains(&Kind::Shared));
    let Some(mut not) = promoter(options("shared=off"), Target::pids([pid])) else { return };
    settle(&mut not, |_| true);
    assert_eq!(program.populations(), [(512, false), (256, false)]);
    let Some(mut promoter) = promoter(options(""), Target::pids([pid])) else { return };
    settle(&mut promoter, |_| huge(&program) >= 1);
    assert_eq!(program.populations(), [(512, true), (256, false)]);
    program.finish();
}

#[test]
fn the_page_map_alone_tells_the_same() {
    let _turn = superpage_testing::turn_of("promote");
    let program = Program::start("blocks");
    let plain = Pagemap::open(program.pid()).unwrap().without_scan();
    let mut told = populations(&plain, program.pid());
    let mut wanted = program.populations();
    if !rustix::process::geteuid().is_root() {
        // Where frames are hidden, pages of zeroes look like others.
        assert_eq!(told.pop(), Some((512, false)));
        wanted.truncate(4);
    }
    assert_eq!(told, wanted);
    program.finish();
}

#[test]
fn a_storm_of_exits_forks_execs_and_unmappings_harms_nothing() {
    let _turn = superpage_testing::turn_of("promote");
    let mut program = Program::start("storm");
    let options = "promote:age=0ms,interval=1ms,idle=1ms,cpu=1,burst=10s,slowdown=1,batch=8".parse().unwrap();
    let Some(mut promoter) = promoter(options, Target::tree(program.pid())) else { return };
    let stop = std::sync::atomic::AtomicBool::new(false);
    let counters = std::thread::scope(|scope| {
        let promoting = scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                std::thread::sleep(promoter.step().min(Duration::from_millis(1)));
            }
            promoter.counters()
        });
        let calm = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| program.hear("calm")));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(calm.is_ok(), "the storm ended early");
        promoting.join().unwrap()
    });
    println!("{counters:?}");
    assert!(counters.promoted_regions > 4, "the storm met no promotion");
    assert_eq!(counters.grown_bytes, 0);
    let pid = program.pid();
    let pagemap = Pagemap::open(pid).unwrap();
    let mappings = scan::mappings(pid, BLOCK as u64).unwrap();
    let sparse = mappings.iter().find(|mapping| mapping.range.start == ((0x20 << 40) + 300 * BLOCK) as u64).unwrap();
    let mut found = Vec::new();
    pagemap.populations(sparse, BLOCK as u64, &mut |one| found.push((one.populated, one.huge))).unwrap();
    assert_eq!(found, [(511, false); 8], "promoted below the share");
    program.finish();
}

#[test]
fn what_asks_not_to_be_huge_is_left_alone() {
    let _turn = superpage_testing::turn_of("promote");
    let program = Program::start("refusing");
    let Some(mut promoter) = promoter(options(""), Target::pids([program.pid()])) else { return };
    settle(&mut promoter, |promoter| promoter.counters().refused.contains_key("ineligible"));
    assert_eq!(program.populations(), [(512, false), (512, false)]);
    program.finish();
    let program = Program::start("disabled");
    let Some(mut promoter) = self::promoter(options(""), Target::pids([program.pid()])) else { return };
    settle(&mut promoter, |promoter| promoter.counters().excluded.contains_key("disabled"));
    assert_eq!(promoter.counters().excluded.get("disabled"), Some(&1));
    assert_eq!((promoter.counters().calls, program.populations()), (0, vec![(512, false)]));
    program.finish();
}

#[test]
fn what_a_program_has_given_back_is_not_made_its_own_again() {
    let _turn = superpage_testing::turn_of("promote");
    if !rustix::process::geteuid().is_root() {
        superpage_testing::skip!("root", "the flags of frames are for root");
        return;
    }
    let program = Program::start("given-back");
    let Some(mut promoter) = promoter(options(""), Target::pids([program.pid()])) else { return };
    settle(&mut promoter, |promoter| promoter.counters().refused.contains_key("given-back"));
    let populations = program.populations();
    assert!(populations.iter().all(|(_, huge)| !huge), "{populations:?}");
    program.finish();
    // What is written since is the program's.
    let program = Program::start("used-again");
    let Some(mut promoter) = self::promoter(options(""), Target::pids([program.pid()])) else { return };
    settle(&mut promoter, |promoter| promoter.counters().promoted_regions == 1);
    assert_eq!(huge(&program), 1);
    program.finish();
}

#[test]
fn a_survey_promotes_nothing_and_says_what_would_be() {
    let _turn = superpage_testing::turn_of("promote");
    let program = Program::start("blocks");
    let mut promoter = Promoter::observer(options(""), Target::pids([program.pid()])).unwrap();
    let findings = promoter.survey(&std::sync::atomic::AtomicBool::new(false));
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    assert!(finding.promotable >= 2 && finding.sparse >= 3 && finding.huge == 0, "{finding:?}");
    let first = ((0x20_u64) << 40, (0x20_u64 << 40) + BLOCK as u64);
    assert!(finding.first.contains(&first.0) && finding.first.contains(&first.1), "{finding:?}");
    assert!(program.populations().iter().all(|(_, huge)| !huge));
    program.finish();
}

#[test]
fn a_survey_is_of_any_policy() {
    let _turn = superpage_testing::turn_of("promote");
    let program = Program::start("blocks");
    let survey = |text: &str| {
        let mut promoter = Promoter::observer(text.parse().unwrap(), Target::pids([program.pid()])).unwrap();
        promoter.survey(&AtomicBool::new(false)).remove(0)
    };
    let [promote, all, one] = [
        "promote:age=50ms,interval=10ms",
        "ingens:util=0.01,interval=20ms",
        "khugepaged:pages=512,interval=20ms,max-none=0",
    ]
    .map(survey);
    // What is full under promote, and anything that is populated.
    assert!(promote.promotable > 0 && promote.sparse > 0, "{promote:?}");
    assert_eq!(
        (all.promotable, all.young, all.sparse),
        (promote.promotable + promote.sparse, 0, 0),
        "{promote:?} {all:?}"
    );
    // A region in each wake-up, of which full ones are taken.
    assert!(one.promotable <= promote.promotable && one.promotable + one.young == all.promotable, "{one:?} {all:?}");
    assert!(program.populations().iter().all(|(_, huge)| !huge));
    program.finish();
}

/// Whoever is first, no region would be promoted that is huge when the survey ends.
#[test]
fn a_survey_does_not_count_what_another_promotes_meanwhile() {
    let _turn = superpage_testing::turn_of("promote");
    let program = Program::start("blocks");
    let survey = || {
        let options = "ingens:util=0.01,interval=20ms".parse().unwrap();
        let mut promoter = Promoter::observer(options, Target::pids([program.pid()])).unwrap();
        promoter.survey(&AtomicBool::new(false)).remove(0)
    };
    let before = survey();
    let Some(mut other) = promoter(options(""), Target::pids([program.pid()])) else { return };
    let after = std::thread::scope(|scope| {
        let survey = scope.spawn(survey);
        // After the policy has asked for all, which it does at once.
        std::thread::sleep(Duration::from_millis(300));
        settle(&mut other, |_| survey.is_finished());
        survey.join().unwrap()
    });
    assert_eq!(before.huge, 0, "{before:?}");
    assert_eq!(after.promotable + after.huge, before.promotable, "{before:?} {after:?}");
    program.finish();
}

#[test]
fn a_survey_counts_the_blocks_that_memory_is_in() {
    let _turn = superpage_testing::turn_of("promote");
    let mut program = Program::start("half");
    program.tell("go");
    program.hear("filled");
    let mut promoter = Promoter::observer(options(""), Target::pids([program.pid()])).unwrap();
    let finding = promoter.survey(&AtomicBool::new(false)).remove(0);
    let sparse = finding.reasons.iter().find(|reason| reason.why == Why::NotPopulated).unwrap();
    assert_eq!(sparse.blocks, finding.sparse, "{finding:?}");
    assert!(sparse.blocks * BLOCK as u64 > sparse.bytes + 10 * BLOCK as u64, "{finding:?}");
    let small = finding.reasons.iter().find(|reason| reason.why == Why::TooSmall).unwrap();
    assert!(small.blocks > small.bytes / BLOCK as u64 + 1, "{finding:?}");
    program.finish();
}

/// Has this thread see another word as the setting of shared memory; `None` after a message where
/// it may not.
fn set_here(folder: &std::path::Path, word: &str) -> Option<()> {
    let file = folder.join("word");
    fs::write(&file, word).unwrap();
    let path = |path: &std::path::Path| std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
    let (file, setting) =
        (path(&file), path(std::path::Path::new("/sys/kernel/mm/transparent_hugepage/shmem_enabled")));
    let none = std::ptr::null();
    // SAFETY: the thread gets mounts and a working directory of its own, and the strings live to
    // the end of the calls.
    let done = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()) == 0
            && libc::mount(file.as_ptr(), setting.as_ptr(), none, libc::MS_BIND, none.cast()) == 0
    };
    if !done {
        superpage_testing::skip!("system", "no mount namespace can be had here");
    }
    done.then_some(())
}

#[test]
fn where_a_setting_denies_it_no_shared_memory_would_be_promoted() {
    let _turn = superpage_testing::turn_of("promote");
    let program = Program::start("shared");
    let folder = tempfile::tempdir().unwrap();
    let survey = || {
        let mut promoter = Promoter::observer(options(""), Target::pids([program.pid()])).unwrap();
        promoter.survey(&AtomicBool::new(false)).remove(0)
    };
    let Some(()) = set_here(folder.path(), "never") else { return };
    let found = survey();
    assert!(found.promotable >= 1 && found.stuck.is_empty(), "{found:?}");
    let here = found.reasons.iter().find(|reason| reason.text == "not populated by this process").unwrap();
    assert_eq!((here.why, here.bytes, here.blocks), (Why::NotPopulated, BLOCK as u64 / 2, 1));
    fs::write(folder.path().join("word"), "deny").unwrap();
    let found = survey();
    let denied = found.reasons.iter().find(|reason| reason.why == Why::Never).unwrap();
    assert_eq!((found.promotable, denied.text.as_str()), (0, "shmem_enabled=deny"), "{found:?}");
    assert_eq!((denied.bytes, denied.blocks, found.stuck), (3 * BLOCK as u64 / 2, 2, vec![Kind::Shared]));
    program.finish();
}

#[test]
fn what_is_left_alone_is_told_in_the_words_of_inspect() {
    let _turn = superpage_testing::turn_of("promote");
    let survey = |program: &Program| {
        let mut promoter = Promoter::observer(options(""), Target::pids([program.pid()])).unwrap();
        let findings = promoter.survey(&std::sync::atomic::AtomicBool::new(false));
        let reasons = findings[0].reasons.iter();
        let told: Vec<(String, u64)> = reasons.map(|reason| (reason.text.clone(), reason.bytes)).collect();
        (told, promoter.counters().left)
    };
    for (what, why, name) in [
        ("misaligned", "address and file offset differ modulo 2M: mapped ", "misaligned"),
        ("disabled", "the process disabled huge pages by prctl", "disabled"),
        ("refusing", "MADV_NOHUGEPAGE", "advised-against"),
        ("blocks", "not populated", "not-populated"),
        ("given-back", "the program has given pages of it back", ""),
    ] {
        // Only root sees that.
        if what == "given-back" && !rustix::process::geteuid().is_root() {
            continue;
        }
        let program = Program::start(what);
        let (told, left) = survey(&program);
        let bytes = told.iter().find(|(text, _)| text.starts_with(why)).unwrap_or_else(|| panic!("{what}: {told:?}")).1;
        assert!(
            bytes >= BLOCK as u64 && (name.is_empty() || left.get(name).is_some_and(|bytes| *bytes >= BLOCK as u64)),
            "{what}: {left:?}"
        );
        program.finish();
    }
}

/// A control group of version 1 or 2 with a limit, if this system lets us make one; removed at the
/// end.
struct Group(std::path::PathBuf);

impl Group {
    fn new(limit: usize) -> Option<Group> {
        for (top, file) in [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")] {
            let folder = std::path::Path::new(top).join(format!("superpage-test-{}", std::process::id()));
            if fs::create_dir(&folder).is_ok() {
                let group = Group(folder);
                if group.0.join(file).exists() && fs::write(group.0.join(file), limit.to_string()).is_ok() {
                    return Some(group);
                }
            }
        }
        None
    }

    fn used(&self) -> u64 {
        let files = ["memory.usage_in_bytes", "memory.current"];
        let text = files.iter().find_map(|file| fs::read_to_string(self.0.join(file)).ok()).unwrap();
        text.trim().parse().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What was in it has ended, but may not be gone yet.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_control_group_is_left_headroom() {
    let _turn = superpage_testing::turn_of("promote");
    let Some(group) = Group::new(64 << 20) else {
        superpage_testing::skip!("system", "this system lets us make no control group with a limit of memory");
        return;
    };
    let mut program = Program::start("half");
    fs::write(group.0.join("cgroup.procs"), program.pid().to_string()).unwrap();
    program.tell("go");
    program.hear("filled");
    let Some(mut promoter) = promoter(options("share=0.4"), Target::pids([program.pid()])) else { return };
    // A dry run says what will be.
    let mut observer = Promoter::observer(options("share=0.4"), Target::pids([program.pid()])).unwrap();
    let found = observer.survey(&AtomicBool::new(false)).remove(0);
    let waits = found.reasons.iter().find(|reason| reason.why == Why::NoHeadroom).unwrap();
    assert!(found.promotable > 0 && found.promotable + waits.blocks >= 29, "{found:?}");
    assert!(waits.text.contains(group.0.to_str().unwrap()), "{found:?}");
    settle(&mut promoter, |promoter| promoter.counters().no_room > 0);
    assert!(
        promoter.counters().promoted_regions.abs_diff(found.promotable) <= 1,
        "{found:?}, {:?}",
        promoter.counters()
    );
    let counters = promoter.counters();
    assert!(counters.promoted_regions > 0 && counters.no_room > 0, "{counters:?}");
    // All 30 blocks whole would be 60 MB; 16 of 64 are left to the program.
    assert!(group.used() <= 48 << 20, "{} MB are used", group.used() >> 20);
    program.finish();
}

#[test]
fn kernel_threads_and_what_has_ended_are_no_targets() {
    let _turn = superpage_testing::turn_of("promote");
    let mut child = Command::new("true").spawn().unwrap();
    // It ends, and is not waited for yet.
    std::thread::sleep(Duration::from_millis(50));
    let mut pids = vec![child.id() as i32, 4_000_000];
    match fs::read_to_string("/proc/2/comm") {
        Ok(name) if name == "kthreadd\n" => pids.push(2),
        _ => superpage_testing::skip!("system", "the kernel's threads cannot be seen from this namespace of processes"),
    }
    let promoter = promoter(options(""), Target::pids(pids));
    let counters = promoter.map(|mut promoter| {
        settle(&mut promoter, |_| true);
        promoter.counters()
    });
    child.wait().unwrap();
    let Some(counters) = counters else { return };
    assert_eq!((counters.calls, counters.watched), (0, 0), "{counters:?}");
}

#[test]
fn mappings_are_apart_while_they_grow() {
    let _turn = superpage_testing::turn_of("promote");
    use std::sync::atomic::{AtomicBool, Ordering};
    const ROOM: usize = 4096 * 4096;
    // SAFETY: new addresses, which nobody else uses.
    let room = unsafe {
        let (none, private) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
        libc::mmap(std::ptr::null_mut(), ROOM, none, private, -1, 0)
    };
    assert_ne!(room, libc::MAP_FAILED);
    let at = room as usize;
    let stop = AtomicBool::new(false);
    let (mut looks, mut seen) = (0, 0);
    std::thread::scope(|scope| {
        // What may be read and written grows, down and up in turns, at the cost of the rest.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for page in 0..2048 {
                    for (from, protection) in [(2047 - page, 3), (2048 + page, 3)] {
                        // SAFETY: these addresses are the test's own, and nothing is in them.
                        unsafe { libc::mprotect((at + from * 4096) as *mut _, 4096, protection) };
                    }
                }
                // SAFETY: as above.
                unsafe { libc::mprotect(at as *mut _, ROOM, libc::PROT_NONE) };
            }
        });
        let deadline = Instant::now() + Duration::from_millis(500);
        while Instant::now() < deadline {
            let mappings = scan::mappings(std::process::id() as i32, 4096).unwrap();
            looks += 1;
            seen += mappings.iter().filter(|mapping| (at..at + ROOM).contains(&(mapping.range.start as usize))).count();
            let apart = mappings.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start);
            if !apart {
                stop.store(true, Ordering::Relaxed);
            }
            assert!(apart, "after {looks} looks: {mappings:?}");
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(seen > 0, "the memory that grows was never seen in {looks} looks");
    // SAFETY: the test's own addresses.
    unsafe { libc::munmap(room, ROOM) };
}
