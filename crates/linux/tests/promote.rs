//! A promoter and programs: what is full and settled becomes huge, nothing else does, and no memory changes its contents.
//!
//! The programs are this test binary itself, told by an environment variable what to do ([`program`]).
#![cfg(target_os = "linux")]

#[path = "../../vm/tests/tutorial/hot.rs"]
mod hot;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use superpage_linux::pagemap::Pagemap;
use superpage_linux::promote::{Options, Promoter, Target};
use superpage_linux::scan::{self, Kind};
use superpage_linux::why::Why;

const PAGE: usize = 4096;
const BLOCK: usize = 2 << 20;
/// `PR_THP_DISABLE_EXCEPT_ADVISED`.
const EXCEPT_ADVISED: libc::c_ulong = 2;
const PROGRAM: &str = "SUPERPAGE_TEST_PROGRAM";

/// A program under test: it says a line when it is ready, obeys lines, and ends with its input.
struct Program {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Program {
    fn start(what: &str) -> Program {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "promote::program", "--nocapture"]).env(PROGRAM, what);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut program = Program { child, said };
        program.hear("ready");
        program
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits for a line that ends like this; the test harness may have written something before it.
    fn hear(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "the program ended before it said {word:?}");
            if let Some((_, rest)) = line.trim_end().split_once(word) {
                return rest.trim().to_string();
            }
        }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Lets it check its memory and end.
    fn finish(mut self) {
        self.tell("end");
        assert!(self.child.wait().unwrap().success(), "the program found its memory changed");
    }

    fn populations(&self) -> Vec<(u32, bool)> {
        let pagemap = Pagemap::open(self.pid()).unwrap();
        populations(&pagemap, self.pid())
    }
}

/// Of the named test mapping's regions, page counts and whether huge.
fn populations(pagemap: &Pagemap, pid: i32) -> Vec<(u32, bool)> {
    let mut found = Vec::new();
    for mapping in scan::mappings(pid, BLOCK as u64).unwrap().iter().filter(|mapping| mapping.range.start >> 40 == 0x20)
    {
        pagemap.populations(mapping, BLOCK as u64, &mut |one| found.push((one.populated, one.huge))).unwrap();
    }
    found
}

/// Memory at an address of our choice, so that the tests know it again; private or of a memory file.
fn map(block: usize, blocks: usize, shared: bool) -> *mut u8 {
    let at = (0x20 << 40) + block * BLOCK;
    let how =
        libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE | if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping that replaces nothing.
    let map = unsafe { libc::mmap(at as *mut libc::c_void, blocks * BLOCK, rights, how, -1, 0) };
    assert_eq!(map as usize, at);
    map.cast()
}

fn map_at(block: usize) -> *mut u8 {
    ((0x20 << 40) + block * BLOCK) as *mut u8
}

/// Writes its own number into each page of the range.
fn fill(start: *mut u8, pages: std::ops::Range<usize>) {
    for page in pages {
        let word = start.wrapping_add(page * PAGE).cast::<u64>();
        // SAFETY: the callers pass memory that is mapped and theirs.
        unsafe { word.write_volatile(word as u64) };
    }
}

fn check(start: *mut u8, pages: std::ops::Range<usize>) {
    for page in pages {
        let word = start.wrapping_add(page * PAGE).cast::<u64>();
        // SAFETY: as in `fill`.
        assert_eq!(unsafe { word.read_volatile() }, word as u64);
    }
}

fn say(line: &str) {
    println!("{line}");
    std::io::stdout().flush().unwrap();
}

fn obey(mut what: impl FnMut(&str)) {
    for line in std::io::stdin().lines() {
        match line.unwrap().as_str() {
            "end" => return,
            line => what(line),
        }
    }
}

/// Not a test of its own: what the programs do.
#[test]
fn program() {
    let _turn = superpage_testing::turn_of("promote");
    let Ok(what) = std::env::var(PROGRAM) else { return };
    // Whatever the system's settings are just now, faults bring base pages, except where a program asks: the promoter does.
    // SAFETY: the request changes only how this program's memory is mapped.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, EXCEPT_ADVISED, 0, 0) };
    match what.as_str() {
        // Two full blocks, one that lacks a page, a half, one with a page of zeroes, and an empty one.
        "blocks" => {
            let start = map(0, 6, false);
            let filled = [0..1024, 1024..1535, 1536..1792, 2048..2559];
            filled.iter().for_each(|pages| fill(start, pages.clone()));
            // SAFETY: reading mapped memory that only this program has.
            assert_eq!(unsafe { start.wrapping_add(2559 * PAGE).read_volatile() }, 0);
            say("ready");
            obey(|_| {});
            filled.iter().for_each(|pages| check(start, pages.clone()));
        }
        // 30 MB in 30 blocks, each half full, when it is told to.
        "half" => {
            say("ready");
            obey(|_| {
                let start = map(0, 30, false);
                (0..30).for_each(|block| fill(start, block * 512..block * 512 + 256));
                say("filled");
            });
            (0..30).for_each(|block| check(map_at(0), block * 512..block * 512 + 256));
        }
        "shared" => {
            let start = map(0, 2, true);
            fill(start, 0..768);
            say("ready");
            obey(|_| {});
            check(start, 0..768);
        }
        "refusing" => {
            let start = map(0, 2, false);
            // SAFETY: the advice changes no contents.
            assert_eq!(unsafe { libc::madvise(start.cast(), 2 * BLOCK, libc::MADV_NOHUGEPAGE) }, 0);
            fill(start, 0..1024);
            say("ready");
            obey(|_| {});
            check(start, 0..1024);
        }
        "disabled" => {
            // SAFETY: the request changes only how this program's memory is mapped.
            assert_eq!(unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) }, 0);
            let start = map(0, 1, false);
            fill(start, 0..512);
            say("ready");
            obey(|_| {});
            check(start, 0..512);
        }
        // As PostgreSQL maps its buffers: shared, at an address that differs from the offset modulo 2 MB.
        "misaligned" => {
            let start = map(0, 3, true);
            // SAFETY: the mapping is this program's own; its head goes, and what stays begins one page further on.
            let moved = unsafe {
                let to = map(8, 3, false).wrapping_add(PAGE);
                libc::mremap(start.cast(), 2 * BLOCK, 2 * BLOCK, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, to)
            };
            assert_ne!(moved, libc::MAP_FAILED);
            fill(moved.cast(), 0..1024);
            say("ready");
            obey(|_| {});
            check(moved.cast(), 0..1024);
        }
        "storm" => storm(),
        "leaf" => {
            fill(map(STORM, 4, false), 0..2048);
            pause();
            let mut next = Command::new(std::env::current_exe().unwrap());
            next.args(["--exact", "promote::program", "--nocapture"]).env(PROGRAM, "leaf of a leaf");
            panic!("{}", std::os::unix::process::CommandExt::exec(&mut next));
        }
        // Another program at the same addresses, that has little there.
        "leaf of a leaf" => {
            let start = map(STORM, 4, false);
            fill(start, 0..100);
            pause();
            check(start, 0..100);
            let pid = std::process::id() as i32;
            // If the program before it was found full, and it came between that and the promotion, it is promoted in its
            // place: no call of the kernel excludes that. It reads what it wrote all the same.
            let now = populations(&Pagemap::open(pid).unwrap(), pid);
            assert!([[(100, false)], [(512, true)]].contains(&now[..].try_into().unwrap()), "{now:?}");
            check(start, 0..100);
        }
        _ => panic!("no program {what:?}"),
    }
}

/// Where the storm maps and unmaps, in blocks.
const STORM: usize = 100;

fn pause() {
    std::thread::sleep(Duration::from_millis(15));
}

/// For two seconds: memory is filled, checked and unmapped; filled, freed in part and filled again; forked, and written by
/// both; and programs are started that exec another one and end. Beside all that lie blocks that lack one page.
fn storm() {
    let sparse = map(300, 8, false);
    for block in 0..8 {
        fill(sparse, block * 512..block * 512 + 511);
    }
    let kept = map(400, 4, false);
    fill(kept, 0..2048);
    let (sparse_at, kept_at) = (sparse as usize, kept as usize);
    say("ready");
    let end = Instant::now() + Duration::from_secs(2);
    let going = move || Instant::now() < end;
    let unmapping = std::thread::spawn(move || {
        while going() {
            let start = map(STORM, 4, false);
            fill(start, 0..2048);
            pause();
            check(start, 0..2048);
            // SAFETY: the mapping is this thread's own.
            assert_eq!(unsafe { libc::munmap(start.cast(), 4 * BLOCK) }, 0);
        }
    });
    let freeing = std::thread::spawn(move || {
        let start = map(200, 4, false);
        while going() {
            fill(start, 0..2048);
            pause();
            check(start, 0..2048);
            for block in 0..4 {
                let half = start.wrapping_add(block * BLOCK + BLOCK / 2);
                // SAFETY: the mapping is this thread's own, and nothing refers into it.
                assert_eq!(unsafe { libc::madvise(half.cast(), BLOCK / 2, libc::MADV_DONTNEED) }, 0);
                // SAFETY: mapped memory of this thread.
                assert_eq!(unsafe { half.cast::<u64>().read_volatile() }, 0);
            }
        }
    });
    let starting = std::thread::spawn(move || {
        while going() {
            let mut leaf = Command::new(std::env::current_exe().unwrap());
            leaf.args(["--exact", "promote::program", "--nocapture"]).env(PROGRAM, "leaf").stdout(Stdio::null());
            assert!(leaf.status().unwrap().success(), "a leaf of the storm found its memory changed");
        }
    });
    while going() {
        let kept = kept_at as *mut u8;
        // SAFETY: the child only reads and writes memory that exists, and ends.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let mut good = true;
            for page in 0..2048 {
                let word = kept.wrapping_add(page * PAGE).cast::<u64>();
                // SAFETY: as in `fill`; the child's copy is its own.
                unsafe {
                    good &= word.read_volatile() == word as u64;
                    word.write_volatile(!(word as u64));
                    good &= word.read_volatile() == !(word as u64);
                }
            }
            // SAFETY: ends this child at once, without what the parent would do at its end.
            unsafe { libc::_exit(i32::from(!good)) };
        }
        check(kept, 0..2048);
        let mut status = 0;
        // SAFETY: the status is ours.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "a child found its memory changed");
        pause();
        // Its pages are its own again.
        fill(kept, 0..2048);
    }
    for thread in [unmapping, freeing, starting] {
        thread.join().unwrap();
    }
    for block in 0..8 {
        check(sparse_at as *mut u8, block * 512..block * 512 + 511);
    }
    say("calm");
    obey(|_| {});
    check(kept, 0..2048);
}

/// Fast, without a limit, for tests of what is promoted.
fn options(text: &str) -> Options {
    format!("age=50ms,interval=10ms,idle=100ms,cpu=1,burst=10s,slowdown=1,{text}")
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

/// Steps until something is so, or ten seconds have passed; then for a while longer, in which it may become otherwise.
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
    let policy = superpage_vm::Policy::of(&hot::HOT, parameters, &superpage_linux::policy::LINUX).unwrap();
    let Some(mut promoter) = usable(Promoter::of(&policy, Target::pid(program.pid()))) else { return };
    settle(&mut promoter, |_| huge(&program) >= 4);
    let after: Vec<bool> = program.populations().iter().map(|(_, huge)| *huge).collect();
    assert_eq!(after[..5], [true, true, true, false, true]);
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
    let policy = superpage_vm::Policy::of(&LISTENER, [], &superpage_linux::policy::LINUX).unwrap();
    let mut shell = Command::new("sh").args(["-c", "read x; exec cat"]).stdin(Stdio::piped()).spawn().unwrap();
    let pid = shell.id() as i32;
    let Some(mut promoter) = usable(Promoter::of(&policy, Target::pid(pid))) else {
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
    while name() != "sh\n" {}
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
    let Some(mut promoter) = promoter(options(""), Target::pid(program.pid())) else { return };
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
    let Some(mut not) = promoter(options("shared=off"), Target::pid(pid)) else { return };
    settle(&mut not, |_| true);
    assert_eq!(program.populations(), [(512, false), (256, false)]);
    let Some(mut promoter) = promoter(options(""), Target::pid(pid)) else { return };
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
    let options = "age=0ms,interval=1ms,idle=1ms,cpu=1,burst=10s,slowdown=1,batch=8".parse().unwrap();
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
    let Some(mut promoter) = promoter(options(""), Target::pid(program.pid())) else { return };
    settle(&mut promoter, |promoter| promoter.counters().refused.contains_key("ineligible"));
    assert_eq!(program.populations(), [(512, false), (512, false)]);
    program.finish();
    let program = Program::start("disabled");
    let Some(mut promoter) = self::promoter(options(""), Target::pid(program.pid())) else { return };
    settle(&mut promoter, |promoter| promoter.counters().excluded.contains_key("disabled"));
    assert_eq!(promoter.counters().excluded.get("disabled"), Some(&1));
    assert_eq!((promoter.counters().calls, program.populations()), (0, vec![(512, false)]));
    program.finish();
}

#[test]
fn a_survey_promotes_nothing_and_says_what_would_be() {
    let _turn = superpage_testing::turn_of("promote");
    let program = Program::start("blocks");
    let mut promoter = Promoter::observer(options(""), Target::pid(program.pid())).unwrap();
    let findings = promoter.survey(&std::sync::atomic::AtomicBool::new(false));
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    assert!(finding.promotable >= 2 && finding.sparse >= 3 && finding.huge == 0, "{finding:?}");
    let first = ((0x20_u64) << 40, (0x20_u64 << 40) + BLOCK as u64);
    assert!(finding.first.contains(&first.0) && finding.first.contains(&first.1), "{finding:?}");
    assert!(program.populations().iter().all(|(_, huge)| !huge));
    program.finish();
}

#[test]
fn what_is_left_alone_is_told_in_the_words_of_inspect() {
    let _turn = superpage_testing::turn_of("promote");
    let survey = |program: &Program| {
        let mut promoter = Promoter::observer(options(""), Target::pid(program.pid())).unwrap();
        let findings = promoter.survey(&std::sync::atomic::AtomicBool::new(false));
        let reasons = findings[0].reasons.iter();
        let told: Vec<(String, u64)> = reasons.map(|reason| (reason.text.clone(), reason.bytes)).collect();
        (told, promoter.counters().left)
    };
    for (what, why, name) in [
        ("misaligned", "address and file offset differ modulo 2M", "misaligned"),
        ("disabled", "the process disabled huge pages by prctl", "disabled"),
        ("refusing", "MADV_NOHUGEPAGE", "advised-against"),
        ("blocks", "not populated", "not-populated"),
    ] {
        let program = Program::start(what);
        let (told, left) = survey(&program);
        let bytes = told.iter().find(|(text, _)| text == why).unwrap_or_else(|| panic!("{what}: {told:?}")).1;
        assert!(
            bytes >= BLOCK as u64 && left.get(name).is_some_and(|bytes| *bytes >= BLOCK as u64),
            "{what}: {left:?}"
        );
        program.finish();
    }
}

/// A control group of version 1 or 2 with a limit, if this system lets us make one; removed at the end.
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
    let Some(mut promoter) = promoter(options("share=0.4"), Target::pid(program.pid())) else { return };
    // A dry run says what will be.
    let mut observer = Promoter::observer(options("share=0.4"), Target::pid(program.pid())).unwrap();
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
    let target = Target { pids, ..Target::default() };
    let promoter = promoter(options(""), target);
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
