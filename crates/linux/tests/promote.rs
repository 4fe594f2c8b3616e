//! A promoter and programs: what is full and settled becomes huge, nothing else does, and no memory changes its contents.
//!
//! The programs are this test binary itself, told by an environment variable what to do ([`program`]).
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use superpage_linux::promote::{Options, Promoter, Target};
use superpage_linux::scan::{self, Kind, Pagemap};

const PAGE: usize = 4096;
const BLOCK: usize = 2 << 20;
const PROGRAM: &str = "SUPERPAGE_TEST_PROGRAM";

/// A program under test: it says a line when it is ready, obeys lines, and ends with its input.
struct Program {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Program {
    fn start(what: &str) -> Program {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "program", "--nocapture"]).env(PROGRAM, what);
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
    let Ok(what) = std::env::var(PROGRAM) else { return };
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
        "shared" => {
            let start = map(0, 2, true);
            fill(start, 0..768);
            say("ready");
            obey(|_| {});
            check(start, 0..768);
        }
        _ => panic!("no program {what:?}"),
    }
}

/// Fast, without a limit, for tests of what is promoted.
fn options(text: &str) -> Options {
    format!("age=50ms,interval=10ms,idle=100ms,cpu=1,burst=10s,slowdown=1,{text}")
        .trim_end_matches(',')
        .parse()
        .unwrap()
}

fn promoter(options: Options, target: Target) -> Option<Promoter> {
    match Promoter::new(options, target) {
        Ok(promoter) => Some(promoter),
        Err(error @ superpage_linux::Error::Unable(_)) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Steps until something is so, or ten seconds have passed; then for a while longer, in which it may become otherwise.
fn settle(promoter: &mut Promoter, done: impl Fn(&Promoter) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !done(promoter) && Instant::now() < deadline {
        std::thread::sleep(promoter.step().min(Duration::from_millis(10)));
    }
    let longer = Instant::now() + Duration::from_millis(300);
    while Instant::now() < longer {
        std::thread::sleep(promoter.step().min(Duration::from_millis(10)));
    }
}

#[test]
fn only_full_regions_are_promoted() {
    let program = Program::start("blocks");
    let Some(mut promoter) = promoter(options(""), Target::pid(program.pid())) else { return };
    assert_eq!(program.populations(), [(512, false), (512, false), (511, false), (256, false), (511, false)]);
    settle(&mut promoter, |promoter| promoter.counters().promoted_regions >= 2);
    let after = program.populations();
    assert!(after.starts_with(&[(512, true), (512, true), (511, false), (256, false), (511, false)]), "{after:?}");
    assert_eq!(promoter.counters().grown_bytes, 0);
    program.finish();
}

#[test]
fn a_share_of_the_pages_can_do() {
    let program = Program::start("blocks");
    let Some(mut promoter) = promoter(options("share=0.99"), Target::tree(program.pid())) else { return };
    settle(&mut promoter, |promoter| promoter.counters().promoted_regions >= 4);
    let huge: Vec<bool> = program.populations().iter().map(|(_, huge)| *huge).collect();
    assert_eq!(huge, [true, true, true, false, true]);
    program.finish();
}

#[test]
fn memory_files_are_promoted_unless_told_otherwise() {
    let program = Program::start("shared");
    let pid = program.pid();
    let kinds: Vec<Kind> = scan::mappings(pid, BLOCK as u64).unwrap().iter().map(|mapping| mapping.kind).collect();
    assert!(kinds.contains(&Kind::Shared));
    let Some(mut not) = promoter(options("shared=off"), Target::pid(pid)) else { return };
    settle(&mut not, |_| true);
    assert_eq!(program.populations(), [(512, false), (256, false)]);
    let Some(mut promoter) = promoter(options(""), Target::pid(pid)) else { return };
    settle(&mut promoter, |promoter| promoter.counters().promoted_regions >= 1);
    assert_eq!(program.populations(), [(512, true), (256, false)]);
    program.finish();
}

#[test]
fn the_page_map_alone_tells_the_same() {
    let program = Program::start("blocks");
    let plain = Pagemap::open(program.pid()).unwrap().without_scan();
    let mut told = populations(&plain, program.pid());
    // The page map does not tell pages of zeroes from others.
    assert_eq!(told.pop(), Some((512, false)));
    assert_eq!(told, program.populations()[..4]);
    program.finish();
}
