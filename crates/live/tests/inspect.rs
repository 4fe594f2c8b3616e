//! Every column of a process whose memory was laid out on purpose.
#![cfg(target_os = "linux")]

use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use superpage_linux::pagemap::Pagemap;
use superpage_linux::rules::Rules;
use superpage_linux::settings::{HUGETLB_POOL, Settings, THP_ENABLED};
use superpage_linux::why::Why;
use superpage_live::inspect::{Expectation, Mapping, MappingKind, Process, Service};
use superpage_live::promote::Selected;
use superpage_pages::PageSize;

const BASE: usize = 4096;
const HUGE: usize = 2 << 20;
const BLOCK: u64 = HUGE as u64;
const FOLIO: usize = 64 << 10;

/// Maps at an address that nothing else has, far from the last: the kernel would join mappings.
struct Room(usize);

impl Room {
    fn take(&mut self, blocks: usize) -> *mut u8 {
        let at = self.0;
        self.0 += (blocks + 2) * HUGE;
        std::ptr::without_provenance_mut(at)
    }
}

fn map(at: *mut u8, bytes: usize, more: MapFlags) -> *mut u8 {
    let (all, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::FIXED_NOREPLACE | more);
    // SAFETY: nothing is mapped there, else the kernel refuses.
    let at = unsafe { rustix::mm::mmap_anonymous(at.cast(), bytes, all, flags) }.unwrap().cast::<u8>();
    // The fork below must not share it.
    advise(at, bytes, Advice::LinuxDontFork);
    at
}

fn advise(at: *mut u8, bytes: usize, advice: Advice) {
    // SAFETY: a mapping of ours, which holds nothing that is needed.
    unsafe { rustix::mm::madvise(at.cast(), bytes, advice) }.unwrap();
}

fn touch(at: *mut u8, pages: impl Iterator<Item = usize>) {
    for page in pages {
        // SAFETY: the page is in a mapping of ours.
        unsafe { at.add(page * BASE).write_volatile(1) };
    }
}

fn collapse(at: *mut u8, bytes: usize) {
    // SAFETY: advice on a mapping of ours; its contents stay.
    assert_eq!(unsafe { libc::madvise(at.cast(), bytes, 25) }, 0, "{}", std::io::Error::last_os_error());
}

/// Base pages first, then the advice: nothing is huge yet.
fn small_then_advised(at: *mut u8, bytes: usize, pages: impl Iterator<Item = usize>) {
    advise(at, bytes, Advice::LinuxNoHugepage);
    touch(at, pages);
    advise(at, bytes, Advice::LinuxHugepage);
}

/// The process that is looked at: lays its memory out, tells the addresses, and waits. Does nothing
/// in an ordinary run.
#[test]
fn layout() {
    let _turn = superpage_testing::turn_of("inspect");
    let Ok(wanted) = std::env::var("SUPERPAGE_TEST_LAYOUT") else { return };
    let private = MapFlags::PRIVATE;
    let mut room = Room(0x2000_0000_0000);
    let mut told: Vec<(&str, usize)> = Vec::new();
    let mut tell = |name, at: *mut u8| told.push((name, at.addr()));

    let at = map(room.take(2), 2 * HUGE, private);
    small_then_advised(at, 2 * HUGE, (0..512).chain(512..612));
    collapse(at, HUGE);
    tell("huge", at);

    let at = map(room.take(2).wrapping_add(BASE), 2 * HUGE, private);
    advise(at, 2 * HUGE, Advice::LinuxNoHugepage);
    touch(at, (0..1024).step_by(2));
    // SAFETY: in a mapping of ours.
    let zeroes: u32 = (1..201).step_by(2).map(|page| u32::from(unsafe { at.add(page * BASE).read_volatile() })).sum();
    assert_eq!(zeroes, 0);
    tell("against", at);

    let at = map(room.take(1), FOLIO, private);
    touch(at, 0..16);
    tell("small", at);

    // Two huge pages, moved 4 KB off.
    let at = map(room.take(2), 2 * HUGE, private);
    small_then_advised(at, 2 * HUGE, 0..1024);
    collapse(at, 2 * HUGE);
    let off = room.take(3).wrapping_add(BASE);
    // SAFETY: from a mapping of ours to addresses where nothing is mapped.
    unsafe { rustix::mm::mremap_fixed(at.cast(), 2 * HUGE, 2 * HUGE, MremapFlags::MAYMOVE, off.cast()) }.unwrap();
    tell("shifted", off);

    // One huge page that a change of protection, taken back, left mapped by pages.
    let at = map(room.take(1), HUGE, private);
    small_then_advised(at, HUGE, 0..512);
    collapse(at, HUGE);
    for protection in [libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE] {
        // SAFETY: a page of a mapping of ours, which nobody uses meanwhile.
        assert_eq!(unsafe { libc::mprotect(at.add(HUGE / 2).cast(), BASE, protection) }, 0);
    }
    tell("split", at);

    let at = map(room.take(1), HUGE, private);
    small_then_advised(at, HUGE, 0..512);
    tell("full", at);

    let at = map(room.take(1), HUGE, private);
    touch(at, (0..512).step_by(4));
    tell("unadvised", at);

    let at = map(room.take(1), HUGE, MapFlags::SHARED);
    touch(at, 0..512);
    tell("shared", at);

    let at = map(room.take(1), HUGE, private);
    advise(at, HUGE, Advice::LinuxDoFork);
    small_then_advised(at, HUGE, 0..512);
    tell("forked", at);

    let at = map(room.take(1), HUGE, private);
    touch(at, 0..512);
    // SAFETY: the contents of a mapping of ours may go.
    assert_eq!(unsafe { libc::madvise(at.add(HUGE / 2).cast(), HUGE / 2, libc::MADV_FREE) }, 0);
    tell("given-back", at);

    let at = map(room.take(1), HUGE, private);
    advise(at, HUGE, Advice::LinuxDoFork);
    touch(at, 0..512);
    tell("forked-unadvised", at);

    // A file of 4 MB: at its own offset, and 4 KB off it with one private copy.
    let mut file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.write_all(&vec![1; 2 * HUGE]).unwrap();
    for (name, by) in [("file", 0), ("misaligned", BASE)] {
        let (at, flags) = (room.take(2).wrapping_add(by), MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE);
        let all = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: nothing is mapped there, else the kernel refuses.
        let at = unsafe { rustix::mm::mmap(at.cast(), 2 * HUGE, all, flags, &file, 0) }.unwrap().cast::<u8>();
        advise(at, 2 * HUGE, Advice::LinuxDontFork);
        // First the copy: where the file is mapped by huge pages, that unmaps all of one.
        touch(at, [3].into_iter());
        // SAFETY: in the mapping, which is as long as the file.
        let read: usize = (0..1024).map(|page| usize::from(unsafe { at.add(page * BASE).read_volatile() })).sum();
        assert_eq!(read, 1024);
        tell(name, at);
    }

    if wanted.contains("folios") {
        let at = map(room.take(1), HUGE / 2, private);
        advise(at, HUGE / 2, Advice::LinuxHugepage);
        touch(at, 0..256);
        tell("folios", at);
    }
    if wanted.contains("hugetlb") {
        let at = map(room.take(2), 2 * HUGE, MapFlags::PRIVATE | MapFlags::HUGETLB);
        touch(at, [0].into_iter());
        tell("hugetlb", at);
    }

    // SAFETY: the child does nothing but wait until this process ends.
    if unsafe { libc::fork() } == 0 {
        // SAFETY: system calls without memory.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
            libc::alarm(60);
            loop {
                libc::pause();
            }
        }
    }
    for (name, at) in told {
        println!("at {name} {at}");
    }
    println!("at end 0");
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// The process, and where it has what.
struct Laid {
    child: Child,
    places: BTreeMap<String, u64>,
}

impl Laid {
    fn out(wanted: &str) -> Laid {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "inspect::layout", "--nocapture"]).env("SUPERPAGE_TEST_LAYOUT", wanted);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut places = BTreeMap::new();
        for line in lines {
            let words: Vec<&str> = line.split(' ').skip_while(|word| *word != "at").collect();
            if let ["at", name, at] = words[..] {
                places.insert(name.to_string(), at.parse().unwrap());
            }
            if places.contains_key("end") {
                return Laid { child, places };
            }
        }
        panic!("the process that lays out memory ended: {:?}", child.wait());
    }

    fn look(&self) -> Process {
        let process = Process::read(self.child.id()).unwrap();
        process.mappings.iter().for_each(|mapping| mapping.validate().unwrap());
        process
    }

    /// As on a kernel without `PAGEMAP_SCAN`.
    fn look_without_scan(&self) -> Process {
        let pagemap = Pagemap::open(self.child.id()).unwrap().without_scan();
        let process = Process::of(self.child.id(), &pagemap).unwrap();
        process.mappings.iter().for_each(|mapping| mapping.validate().unwrap());
        process
    }

    fn mapping<'p>(&self, process: &'p Process, name: &str) -> &'p Mapping {
        process.mappings.iter().find(|mapping| mapping.start == self.places[name]).unwrap_or_else(|| panic!("{name}"))
    }
}

impl Drop for Laid {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Of a mapping: resident, huge, zero bytes, and the reasons with their bytes.
fn sums(mapping: &Mapping) -> (u64, u64, u64, Vec<(Why, u64)>) {
    let reasons = mapping.reasons.iter().map(|reason| (reason.why, reason.bytes)).collect();
    (mapping.resident_bytes, mapping.huge_bytes, mapping.zero_bytes, reasons)
}

fn folios(mapping: &Mapping) -> Vec<(String, u64)> {
    mapping.folio_bytes.as_ref().unwrap().iter().map(|(size, bytes)| (size.to_string(), *bytes)).collect()
}

fn contiguous(mapping: &Mapping, size: &str) -> u64 {
    mapping.contiguous_bytes.as_ref().unwrap()[&size.parse::<PageSize>().unwrap()]
}

/// Collapses that khugepaged has made so far: it may change what was laid out.
fn khugepaged() -> String {
    std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/khugepaged/pages_collapsed").unwrap_or_default()
}

#[test]
fn every_column_is_what_was_laid_out() {
    let _turn = superpage_testing::turn_of("inspect");
    if !rustix::process::geteuid().is_root() || rustix::param::page_size() != BASE {
        superpage_testing::skip!("root", "needs root and base pages of 4 KB");
        return;
    }
    // While the lock is held nobody else makes other pages the rule.
    let mut settings = match Settings::take(true) {
        Ok(settings) => settings,
        Err(error) => {
            superpage_testing::skip!("system", "{error}");
            return;
        }
    };
    let mut has = |setting: &str, wanted: &str| match settings.set(setting, wanted) {
        Ok(_) => true,
        Err(error) => {
            superpage_testing::skip!("system", "{setting}: {error}");
            false
        }
    };
    if !has(THP_ENABLED, "madvise") {
        return;
    }
    let mut wanted = String::new();
    if has("sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled", "madvise") {
        wanted += "folios ";
    }
    if has(HUGETLB_POOL, "2") {
        wanted += "hugetlb";
    }
    for _ in 0..5 {
        let before = khugepaged();
        let laid = Laid::out(&wanted);
        let (process, without) = (laid.look(), laid.look_without_scan());
        if khugepaged() == before {
            check(&laid, &without, &wanted);
            return check(&laid, &process, &wanted);
        }
    }
    superpage_testing::skip!("system", "khugepaged does not rest");
}

fn check(laid: &Laid, process: &Process, wanted: &str) {
    let page = BASE as u64;
    let rules = Rules::read();
    let of = |name: &str| laid.mapping(process, name);

    let huge = of("huge");
    assert_eq!(sums(huge), (BLOCK + 100 * page, BLOCK, 0, vec![(Why::NotPopulated, 100 * page)]));
    assert_eq!((huge.kind, huge.advised, huge.size_bytes), (MappingKind::Anonymous, Some(true), 2 * BLOCK));
    assert_eq!(folios(huge).last().unwrap(), &("2M".to_string(), BLOCK));
    assert_eq!((contiguous(huge, "2M"), huge.populated_share), (BLOCK, 612.0 / 1024.0));
    assert!(huge.reasons[0].text.contains("100 of 512"), "{}", huge.reasons[0].text);

    // Every second page of 4 MB, from 4 KB on: one whole block, and two edges.
    let against = of("against");
    let reasons = vec![(Why::Edge, 256 * page), (Why::AdvisedAgainst, 256 * page)];
    let (resident, huge, zero, mut found) = sums(against);
    found.sort();
    assert_eq!((resident, huge, zero, found), (512 * page, 0, 100 * page, reasons));
    assert_eq!(
        (against.advised, contiguous(against, "8K"), folios(against)),
        (Some(false), 0, vec![("4K".into(), BLOCK)])
    );

    assert_eq!(sums(of("small")), (FOLIO as u64, 0, 0, vec![(Why::TooSmall, FOLIO as u64)]));

    let shifted = of("shifted");
    let (resident, huge, _, mut found) = sums(shifted);
    found.sort();
    assert_eq!((resident, huge, found), (2 * BLOCK, 0, vec![(Why::Edge, BLOCK), (Why::NotCollapsed, BLOCK)]));
    assert_eq!((folios(shifted), contiguous(shifted, "8K")), (vec![("2M".into(), 2 * BLOCK)], 0));

    let split = of("split");
    assert_eq!(sums(split), (BLOCK, 0, 0, vec![(Why::MappedByPages, BLOCK)]));
    assert_eq!(
        (contiguous(split, "64K"), contiguous(split, "2M"), folios(split)),
        (BLOCK, BLOCK, vec![("2M".into(), BLOCK)])
    );

    assert_eq!(sums(of("full")), (BLOCK, 0, 0, vec![(Why::NotCollapsed, BLOCK)]));
    let unadvised = of("unadvised");
    assert_eq!(sums(unadvised), (128 * page, 0, 0, vec![(Why::NotAdvised, 128 * page)]));
    let shared = of("shared");
    assert_eq!((shared.kind, shared.resident_bytes), (MappingKind::SharedMemory, BLOCK));
    if rules.shared("2M".parse().unwrap()) == Some("never") {
        assert_eq!(sums(shared), (BLOCK, 0, 0, vec![(Why::Never, BLOCK)]));
        // The setting stops the kernel alone.
        assert!(
            process.notes.iter().any(|note| note.text.contains("as root, `superpage daemon`")),
            "{:?}",
            process.notes
        );
    }
    // Whatever the settings say, no promoter changes it.
    let given_back = ("given-back", Why::GivenBack);
    for (name, why) in [("forked", Why::SharedByFork), ("forked-unadvised", Why::SharedByFork), given_back] {
        assert_eq!(sums(of(name)), (BLOCK, 0, 0, vec![(why, BLOCK)]), "{name}");
        assert_eq!(of(name).full_bytes, 0, "{name}");
    }

    let file = of("file");
    assert_eq!((file.kind, file.resident_bytes), (MappingKind::File, 2 * BLOCK));
    assert!(file.reasons.iter().any(|reason| (reason.why, reason.bytes) == (Why::PrivateCopies, BLOCK)), "{file:?}");
    let misaligned = of("misaligned");
    let (_, huge, _, mut found) = sums(misaligned);
    found.sort();
    assert_eq!((huge, found), (0, vec![(Why::Edge, BLOCK), (Why::Misaligned, BLOCK)]));

    if wanted.contains("folios") {
        let mapping = of("folios");
        assert_eq!((folios(mapping), contiguous(mapping, "64K")), (vec![("64K".into(), BLOCK / 2)], BLOCK / 2));
        assert_eq!((sums(mapping).3, mapping.populated_share), (vec![(Why::TooSmall, BLOCK / 2)], 1.0));
    }
    if wanted.contains("hugetlb") {
        let mapping = of("hugetlb");
        assert_eq!((mapping.kind, sums(mapping)), (MappingKind::Hugetlb, (BLOCK, BLOCK, 0, vec![])));
        assert_eq!((folios(mapping), mapping.populated_share), (vec![("2M".into(), BLOCK)], 0.5));
    }
}

/// Two pages of a pool, of which a child maps one.
#[test]
fn pages_of_a_pool_that_two_processes_map_count_once() {
    let _turn = superpage_testing::turn_of("inspect");
    let pool = Settings::take(true).and_then(|mut settings| settings.set(HUGETLB_POOL, "2").map(|_| settings));
    let _settings = match pool {
        Ok(settings) => settings,
        Err(error) => return superpage_testing::skip!("system", "{HUGETLB_POOL}: {error}"),
    };
    let script = "import mmap, os, sys\nMAP_HUGETLB = 0x40000\n\
                  m = mmap.mmap(-1, 4 << 20, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | MAP_HUGETLB)\n\
                  m[:] = b'1' * len(m)\n\
                  if not os.fork():\n m[0] = 50\n print(os.getpid(), flush=True)\nsys.stdin.read()";
    let python = Command::new("python3").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut parent) = python else { return superpage_testing::skip!("python3", "python3 is not installed") };
    let mut child = String::new();
    BufReader::new(parent.stdout.take().unwrap()).read_line(&mut child).unwrap();
    let selected = [Selected::Process(parent.id() as i32), Selected::Process(child.trim_end().parse().unwrap())];
    let service = Service::read(&selected, true);
    drop(parent.stdin.take());
    parent.wait().unwrap();
    let service = service.unwrap();
    let of = |process: &Process| {
        let mapping = process.mappings.iter().find(|mapping| mapping.kind == MappingKind::Hugetlb).unwrap();
        (mapping.resident_bytes, mapping.proportional_bytes)
    };
    let mut parts: Vec<(u64, u64)> = service.processes.iter().map(of).collect();
    parts.sort();
    assert_eq!(parts, [(BLOCK, BLOCK / 2), (2 * BLOCK, BLOCK + BLOCK / 2)]);
    let whole = service.as_one_process();
    let pool = whole.mappings.iter().filter(|mapping| mapping.kind == MappingKind::Hugetlb);
    assert_eq!(pool.map(|mapping| mapping.resident_bytes).sum::<u64>(), 2 * BLOCK);
    let expected: Expectation = "shared huge >= 100 %".parse().unwrap();
    assert_eq!(expected.unmet(&whole), None);
}

/// As any user: where frames are hidden, counts must do.
#[test]
fn a_kernel_without_the_scan_shows_the_same() {
    let _turn = superpage_testing::turn_of("inspect");
    let laid = Laid::out("");
    for _ in 0..20 {
        let (before, without, after) = (laid.look(), laid.look_without_scan(), laid.look());
        if before == after {
            before.mappings.iter().zip(&without.mappings).for_each(|(one, other)| assert_eq!(one, other));
            assert_eq!(before, without);
            return;
        }
        // It still comes to rest.
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("the process does not rest");
}

#[test]
fn what_is_shown_agrees_with_smaps() {
    let _turn = superpage_testing::turn_of("inspect");
    let process = Process::read(std::process::id()).unwrap();
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let sum = |key: &str| -> u64 {
        let lines = smaps.lines().filter_map(|line| line.strip_prefix(key)?.trim().strip_suffix(" kB"));
        lines.map(|kilobytes| kilobytes.trim().parse::<u64>().unwrap() * 1024).sum()
    };
    let resident: u64 = process.mappings.iter().map(|mapping| mapping.resident_bytes).sum();
    // The process runs on between the two looks: other tests, the buffer for the text.
    assert!(resident.abs_diff(sum("Rss:")) < 64 << 20, "{resident} here, {} in smaps", sum("Rss:"));
    assert!(process.mappings.iter().any(|mapping| mapping.name == "[stack]" && mapping.resident_bytes > 0));
}

#[test]
fn processes_that_cannot_be_looked_at_are_said() {
    let _turn = superpage_testing::turn_of("inspect");
    let error = Process::read(u32::MAX >> 1).unwrap_err();
    assert_eq!((error.status(), error.to_string().contains("no process")), (2, true), "{error}");
    // One that has ended and was not waited for.
    let mut child = Command::new("true").spawn().unwrap();
    while std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap().split(' ').nth(2) != Some("Z") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let error = Process::read(child.id()).unwrap_err();
    assert_eq!(error.status(), 1, "{error}");
    child.wait().unwrap();
    // A thread of the kernel.
    if std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd") {
        assert_eq!(Process::read(2).unwrap_err().status(), 1);
    }
}
