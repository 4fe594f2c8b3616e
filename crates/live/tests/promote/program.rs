//! The programs that are promoted: this test binary itself, told by an environment variable what to
//! do ([`run`]).

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use superpage_linux::pagemap::Pagemap;
use superpage_linux::scan;

const PAGE: usize = 4096;
pub(super) const BLOCK: usize = 2 << 20;
/// `PR_THP_DISABLE_EXCEPT_ADVISED`.
const EXCEPT_ADVISED: libc::c_ulong = 2;
const PROGRAM: &str = "SUPERPAGE_TEST_PROGRAM";

/// A program under test: it says a line when it is ready, obeys lines, and ends with its input.
pub(super) struct Program {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Program {
    pub(super) fn start(what: &str) -> Program {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "promote::program::run", "--nocapture"]).env(PROGRAM, what);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut program = Program { child, said };
        program.hear("ready");
        program
    }

    pub(super) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits for a line that ends like this; the test harness may have written something before it.
    pub(super) fn hear(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "the program ended before it said {word:?}");
            if let Some((_, rest)) = line.trim_end().split_once(word) {
                return rest.trim().to_string();
            }
        }
    }

    pub(super) fn tell(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Lets it check its memory and end.
    pub(super) fn finish(mut self) {
        self.tell("end");
        assert!(self.child.wait().unwrap().success(), "the program found its memory changed");
    }

    pub(super) fn populations(&self) -> Vec<(u32, bool)> {
        let pagemap = Pagemap::open(self.pid()).unwrap();
        populations(&pagemap, self.pid())
    }
}

/// Of the named test mapping's regions, page counts and whether huge.
pub(super) fn populations(pagemap: &Pagemap, pid: i32) -> Vec<(u32, bool)> {
    let mut found = Vec::new();
    for mapping in scan::mappings(pid, BLOCK as u64).unwrap().iter().filter(|mapping| mapping.range.start >> 40 == 0x20)
    {
        pagemap.populations(mapping, BLOCK as u64, &mut |one| found.push((one.populated, one.huge))).unwrap();
    }
    found
}

/// Memory at an address of our choice, so that the tests know it again; private or of a memory
/// file.
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
fn run() {
    let _turn = superpage_testing::turn_of("promote");
    let Ok(what) = std::env::var(PROGRAM) else { return };
    // Whatever the system's settings are just now, faults bring base pages, except where a program
    // asks: the promoter does. SAFETY: the request changes only how this program's memory is
    // mapped.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, EXCEPT_ADVISED, 0, 0) };
    match what.as_str() {
        // Two full blocks, one that lacks a page, a half, one with a page of zeroes, and an empty
        // one.
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
        // A quarter is given back, and stays until memory is short: enough of it that the kernel
        // does not keep that to itself.
        "given-back" | "used-again" => {
            let start = map(0, 1, false);
            fill(start, 0..512);
            // SAFETY: nothing of it is looked at again.
            assert_eq!(unsafe { libc::madvise(start.cast(), BLOCK / 4, libc::MADV_FREE) }, 0);
            if what == "used-again" {
                fill(start, 0..128);
            }
            say("ready");
            obey(|_| {});
            check(start, 128..512);
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
        // As PostgreSQL maps its buffers: shared, at an address that differs from the offset modulo
        // 2 MB.
        "misaligned" => {
            let start = map(0, 3, true);
            // SAFETY: the mapping is this program's own; its head goes, and what stays begins one
            // page further on.
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
            next.args(["--exact", "promote::program::run", "--nocapture"]).env(PROGRAM, "leaf of a leaf");
            panic!("{}", std::os::unix::process::CommandExt::exec(&mut next));
        }
        // Another program at the same addresses, that has little there.
        "leaf of a leaf" => {
            let start = map(STORM, 4, false);
            fill(start, 0..100);
            pause();
            check(start, 0..100);
            let pid = std::process::id() as i32;
            // If the program before it was found full, and it came between that and the promotion,
            // it is promoted in its place: no call of the kernel excludes that. It reads what it
            // wrote all the same.
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

/// For two seconds: memory is filled, checked and unmapped; filled, freed in part and filled again;
/// forked, and written by both; and programs are started that exec another one and end. Beside all
/// that lie blocks that lack one page.
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
            leaf.args(["--exact", "promote::program::run", "--nocapture"]).env(PROGRAM, "leaf").stdout(Stdio::null());
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
