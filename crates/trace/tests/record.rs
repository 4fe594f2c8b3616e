//! Recording real programs, where QEMU's user-mode emulator and a C compiler are installed.
#![cfg(target_os = "linux")]

use std::collections::{BTreeMap, HashSet};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use superpage_pages::{Access, Hint, Protection};
use superpage_trace::file::Reader;
use superpage_trace::{
    Backing, Batch, Counts, Error, Event, Growth, Info, Phase, Run, Sampling, Source, check_stream, record,
};

/// Whether programs can be recorded and compiled here; says so if not.
fn possible() -> bool {
    for (program, flag) in [("qemu-x86_64", "--version"), ("cc", "--version")] {
        if !std::process::Command::new(program).arg(flag).output().is_ok_and(|output| output.status.success()) {
            superpage_testing::skip!("system", "no {program}");
            return false;
        }
    }
    let here = cfg!(target_arch = "x86_64");
    if !here {
        superpage_testing::skip!("x86-64", "the programs are for x86-64");
    }
    here
}

/// Compiles one of the programs beside this file.
fn compile(folder: &Path, source: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/record").join(source);
    let program = folder.join(source.file_stem().expect("a name"));
    let mut compiler = std::process::Command::new("cc");
    let status = compiler.args(flags).arg("-o").arg(&program).arg(&source).status().expect("a compiler");
    assert!(status.success());
    program
}

fn calls(folder: &Path) -> PathBuf {
    compile(folder, "calls.c", &["-O1", "-pthread"])
}

/// How often one thread after another goes on, and how often the same one.
fn switches(stream: &Stream) -> (usize, usize) {
    let threads: Vec<(u32, u32)> = stream
        .events()
        .filter_map(|event| match event {
            Event::Switch { process, thread } => Some((process.0, *thread)),
            _ => None,
        })
        .collect();
    let same = threads.windows(2).filter(|pair| pair[0] == pair[1]).count();
    (threads.len() - same, same)
}

/// A whole stream, which can be read again.
struct Stream {
    info: Info,
    batches: Vec<Batch>,
    next: usize,
}

impl Source for Stream {
    fn info(&self) -> &Info {
        &self.info
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        let Some(next) = self.batches.get(self.next) else { return Ok(false) };
        batch.clone_from(next);
        self.next += 1;
        Ok(true)
    }
}

impl Stream {
    fn runs(&self) -> impl Iterator<Item = Run> {
        self.batches.iter().flat_map(|batch| batch.runs.iter().copied())
    }

    fn events(&self) -> impl Iterator<Item = &Event> {
        self.batches.iter().flat_map(|batch| batch.events.iter().map(|(_, event)| event))
    }

    fn count(&self, what: impl Fn(&Event) -> bool) -> usize {
        self.events().filter(|event| what(event)).count()
    }
}

/// Records a command and checks the rules of its stream.
fn recorded(command: &record::Command) -> (Stream, Counts, record::Outcome) {
    let mut recording = record::start(command).expect("it starts");
    let mut stream = Stream { info: recording.info().clone(), batches: Vec::new(), next: 0 };
    let mut batch = Batch::default();
    while recording.fill(&mut batch).expect("a stream") {
        stream.batches.push(batch.clone());
    }
    let outcome = recording.finish().expect("an end");
    let counts = check_stream(&mut stream).expect("a stream by the rules");
    (stream, counts, outcome)
}

fn command(program: &Path, arguments: &[&str]) -> record::Command {
    let words = [program.as_os_str()].into_iter().chain(arguments.iter().map(|word| word.as_ref()));
    record::Command::new(words)
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[test]
fn every_access_of_a_known_program_is_there() {
    if !possible() {
        return;
    }
    let folder = folder();
    let program = compile(folder.path(), "known.s", &["-nostdlib", "-static"]);
    let (stream, counts, outcome) = recorded(&command(&program, &[]));
    assert!(outcome.status.success());
    assert_eq!(counts.references, 2 * 1000 + 3 * 500 + 2);
    // Three at the end, of which the first is on two pages.
    assert_eq!(counts.instructions, 1 + 4 * 1000 + 1 + 4 * 500 + 2 + 3);
    assert_eq!(counts.fetches, counts.instructions + 1);
    let data: Vec<Run> = stream.runs().filter(|run| run.access() != Access::Execute).collect();
    let first = data[0].page();
    let short: Vec<_> = data.iter().map(|run| (run.page() - first, run.access(), run.references)).collect();
    let mut expected = [(0, Access::Read, 1), (1, Access::Write, 1)].repeat(1000);
    // While the program stays on a page: its loads before the first store, its stores, its other
    // loads.
    expected.extend([(0, Access::Read, 2), (0, Access::Write, 500), (0, Access::Read, 2 * 499 + 1)]);
    expected.push((1, Access::Read, 1));
    assert_eq!(short, expected);
    let fetches: Vec<Run> = stream.runs().filter(|run| run.access() == Access::Execute).collect();
    let code = fetches[0].page();
    let short: Vec<_> = fetches.iter().map(|run| (run.page() - code, run.references, run.instructions)).collect();
    assert_eq!(short, [(0, 6004, 6004), (1, 1, 1), (2, 3, 2)]);
}

#[test]
fn lines_of_a_known_program_are_there() {
    if !possible() {
        return;
    }
    let folder = folder();
    let program = compile(folder.path(), "known.s", &["-nostdlib", "-static"]);
    let mut lined = command(&program, &[]);
    lined.lines = true;
    let (stream, counts, outcome) = recorded(&lined);
    assert!(outcome.status.success() && stream.info.lines);
    let of_pages = recorded(&command(&program, &[])).1;
    // What crosses a line here crosses a page.
    assert_eq!((counts.references, counts.instructions), (of_pages.references, of_pages.instructions));
    assert!(counts.fetches >= of_pages.fetches && counts.runs >= of_pages.runs);
    let data: Vec<Run> = stream.runs().filter(|run| run.access() != Access::Execute).collect();
    let first = data[0].line();
    let short: Vec<_> = data.iter().map(|run| (run.line() - first, run.access(), run.references)).collect();
    let mut expected = [(0, Access::Read, 1), (64, Access::Write, 1)].repeat(1000);
    expected.extend([(0, Access::Read, 1), (1, Access::Read, 1), (1, Access::Write, 1)].repeat(500));
    expected.extend([(63, Access::Read, 1), (64, Access::Read, 1)]);
    assert_eq!(short, expected);

    // A larger program, with what it executes: the same pages, to those few that differ from run to
    // run.
    let program = calls(folder.path());
    let file = program.to_str().expect("a name");
    let touched = |lines: bool| {
        let (stream, counts, outcome) = recorded(&record::Command { lines, ..command(&program, &["mappings", file]) });
        assert!(outcome.status.success());
        (stream.runs().map(|run| (run.page(), run.access() as u8)).collect::<HashSet<_>>(), counts.instructions)
    };
    let ((pages, instructions), (of_lines, same)) = (touched(false), touched(true));
    assert!(pages.symmetric_difference(&of_lines).count() * 20 < pages.len(), "{pages:?} {of_lines:?}");
    assert!(instructions.abs_diff(same) * 50 < instructions, "{instructions} {same}");
}

#[test]
fn changes_of_mappings_are_events() {
    if !possible() {
        return;
    }
    let folder = folder();
    let file = folder.path().join("file");
    std::fs::write(&file, vec![1; 5 * 4096 + 1]).expect("a file");
    let program = calls(folder.path());
    let (stream, ..) = recorded(&command(&program, &["mappings", file.to_str().expect("a name")]));
    let area = stream
        .events()
        .find_map(|event| match event {
            Event::Map { start, pages: 100, protection: Protection::NONE, .. } => Some(*start),
            _ => None,
        })
        .expect("the reservation");
    let anonymous = |start, pages| Event::Map {
        start,
        pages,
        protection: Protection::READ_WRITE,
        shared: false,
        backing: Backing::Anonymous,
        growth: Growth::Fixed,
    };
    let place = |event: &Event| {
        let found = stream.events().position(|other| other == event);
        found.unwrap_or_else(|| panic!("{event:?} is missing"))
    };
    let order = [
        anonymous(area + 10, 20),
        Event::Protect { start: area + 10, pages: 5, protection: Protection::READ },
        Event::Discard { start: area + 15, pages: 3 },
        Event::Unmap { start: area + 20, pages: 7 },
    ];
    assert!(order.each_ref().map(place).is_sorted());
    let one = |what: &dyn Fn(&Event) -> bool| assert_eq!(stream.count(what), 1);
    one(&|event| matches!(event, Event::Remap { from, from_pages: 5, to_pages: 33, .. } if *from == area + 15));
    one(&|event| matches!(event, Event::Map { pages: 9, backing: Backing::Anonymous, growth: Growth::Fixed, .. }));
    one(&|event| {
        matches!(
            event,
            Event::Map {
                pages: 1,
                shared: true,
                protection: Protection::READ,
                backing: Backing::File { file_pages: 6, offset: 1, .. },
                ..
            }
        )
    });
    one(&|event| matches!(event, Event::Map { growth: Growth::Down, .. }));
    one(&|event| matches!(event, Event::Map { growth: Growth::Up, .. }));
    let lengths: Vec<u64> = stream
        .events()
        .filter_map(|event| match event {
            Event::Map { growth: Growth::Up, pages, .. } | Event::Grow { pages, .. } => Some(*pages),
            _ => None,
        })
        .collect();
    assert_eq!(lengths, [50, 30]);
}

#[test]
fn what_a_program_asks_for_is_an_event() {
    if !possible() {
        return;
    }
    let folder = folder();
    let (stream, ..) = recorded(&command(&calls(folder.path()), &["advice"]));
    let map = |event: &Event, long| match event {
        Event::Map { start, pages, .. } if *pages == long => Some(*start),
        _ => None,
    };
    let [area, stack] =
        [1024, 99].map(|pages| stream.events().find_map(|event| map(event, pages)).expect("the mapping"));
    let advice: Vec<&Event> = stream.events().filter(|event| matches!(event, Event::Advise { .. })).collect();
    let expected = [
        Event::Advise { start: area + 10, pages: 600, hint: Hint::Huge },
        Event::Advise { start: area + 20, pages: 7, hint: Hint::Base },
        Event::Advise { start: stack, pages: 99, hint: Hint::Stack },
    ];
    assert_eq!(advice, expected.each_ref(), "not what has no length, is misaligned, or is no hint");
}

#[test]
fn system_calls_are_events_where_they_are_asked_for() {
    if !possible() {
        return;
    }
    let folder = folder();
    let file = folder.path().join("file");
    std::fs::write(&file, [0; 200]).unwrap();
    let mut copying = command(&calls(folder.path()), &["copying", file.to_str().unwrap()]);
    let calls = |stream: &Stream| {
        let call = |event: &Event| match event {
            Event::Call { path, at, bytes } => Some((path.clone(), *at, *bytes)),
            _ => None,
        };
        stream.events().filter_map(call).collect::<Vec<_>>()
    };
    let (stream, ..) = recorded(&copying);
    assert!(!stream.info.calls && calls(&stream).is_empty());
    copying.calls = true;
    let (stream, ..) = recorded(&copying);
    let found = calls(&stream);
    let pipe = found.iter().position(|(path, ..)| path == "pipe-write").expect("a write to the pipe");
    let buffer = found[pipe].1;
    let expected = [("pipe-write", 0, 5), ("pipe-read", 8, 5), ("write", 0, 7), ("read", 16, 3), ("read", 0, 0)];
    let expected = expected.map(|(path, offset, bytes)| (path.to_owned(), buffer + offset, bytes));
    assert_eq!(found[pipe..pipe + 5], expected);
    let null = ("null".to_owned(), 0, 0);
    assert!(stream.info.calls && found[pipe + 5..pipe + 25].iter().all(|call| *call == null), "getppid");
    assert_eq!(found.len(), pipe + 25, "what another event stands for is none, and the process ends with its event");
    assert_eq!(stream.count(|event| matches!(event, Event::Unmap { pages: 77, .. })), 1);
}

#[test]
fn a_program_that_is_executed_has_other_children_than_the_one_before() {
    if !possible() {
        return;
    }
    let sh = PathBuf::from("/bin/sh");
    let (stream, ..) = recorded(&command(&sh, &["-c", "/bin/true; exec sh -c '/bin/true; :'"]));
    let children = stream.events().filter_map(|event| match event {
        Event::Fork { child } => Some(child.0),
        _ => None,
    });
    assert_eq!(children.collect::<Vec<_>>(), [1, 2]);
}

/// A compilation of one file, with its processes, system calls and lines: as `corpus/record
/// dougan99` records it.
#[test]
fn a_recorded_compilation_keeps_the_rules() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/dougan99/small.sp");
    let mut reader = Reader::open(&path).unwrap();
    assert!(reader.info().lines && reader.info().calls && reader.info().fetches);
    let totals = reader.totals().expect("a whole file").clone();
    let (mut batch, mut runs, mut calls) = (Batch::default(), 0, BTreeMap::new());
    while reader.fill(&mut batch).unwrap() {
        runs += batch.runs.len() as u64;
        for (_, event) in &batch.events {
            if let Event::Call { path, .. } = event {
                *calls.entry(path.clone()).or_insert(0) += 1;
            }
        }
    }
    assert_eq!((runs, calls.values().sum::<u64>()), (totals.runs, totals.events["call"]));
    // A shell, which starts one that reads files and becomes make; that starts a shell for the
    // file, which starts the compiler, and the compiler that links.
    assert_eq!((totals.processes, totals.events["exec"], totals.events["exit"]), (5, 5, 5));
    assert!(calls["null"] > 500 && calls["read"] > 20 && calls["write"] > 1);
}

#[test]
fn threads_and_children_are_followed() {
    if !possible() {
        return;
    }
    let folder = folder();
    let program = calls(folder.path());
    let (stream, ..) = recorded(&command(&program, &["threads"]));
    let mut switches: BTreeMap<u32, u32> = BTreeMap::new();
    for event in stream.events() {
        if let Event::Switch { thread, .. } = event {
            *switches.entry(*thread).or_default() += 1;
        }
    }
    assert_eq!(switches.len(), 5);
    assert_eq!(self::switches(&stream).1, 0);
    assert_eq!(stream.count(|event| matches!(event, Event::Unmap { pages: 16, .. })), 5 * 50);

    let (stream, _, outcome) = recorded(&command(&program, &["children"]));
    assert!(outcome.notes.is_empty(), "{:?}", outcome.notes);
    assert_eq!(stream.count(|event| matches!(event, Event::Fork { .. })), 3);
    assert_eq!(stream.count(|event| *event == Event::Exec), 1);
    assert_eq!(stream.count(|event| *event == Event::Exit), 4);
    let made = stream.count(|event| matches!(event, Event::Map { pages: 8, shared: false, .. }));
    assert!(made >= 3, "the mappings of the children, also of the one that was killed");
}

#[test]
fn sleeps_are_idle_time() {
    if !possible() {
        return;
    }
    let folder = folder();
    let began = Instant::now();
    let (stream, ..) = recorded(&command(&calls(folder.path()), &["sleeping"]));
    let times = stream.events().filter_map(|event| match event {
        Event::Idle { microseconds } => Some(Duration::from_micros(*microseconds)),
        _ => None,
    });
    let times: Vec<Duration> = times.collect();
    // The emulator's own threads work a little meanwhile.
    let least = [280, 180, 230].map(Duration::from_millis);
    assert!(times.len() == 3 && times.iter().zip(least).all(|(time, least)| *time >= least), "{times:?}");
    assert!(times.iter().sum::<Duration>() <= began.elapsed(), "{times:?}");
}

#[test]
fn statuses_are_the_programs_own_and_a_crash_leaves_a_whole_stream() {
    if !possible() {
        return;
    }
    let folder = folder();
    let program = calls(folder.path());
    assert_eq!(recorded(&command(&program, &["status", "42"])).2.status.code(), Some(42));
    let (stream, counts, outcome) = recorded(&command(&program, &["crash"]));
    assert_eq!(outcome.status.signal(), Some(11));
    assert_eq!(stream.count(|event| *event == Event::Exit), 1);
    let whole = recorded(&command(&program, &[])).1;
    // Its only thread, and the kernel's at the end that it did not tell itself.
    assert_eq!(switches(&stream), (2, 0));
    let close = |a: u64, b: u64| a.abs_diff(b) < b / 20;
    assert!(close(counts.references, whole.references), "{counts:?}, expected about {whole:?}");
}

#[test]
fn closing_all_files_does_not_end_a_recording() {
    if !possible() {
        return;
    }
    let folder = folder();
    let (stream, ..) = recorded(&command(&calls(folder.path()), &["closing"]));
    assert_eq!(stream.count(|event| matches!(event, Event::Map { pages: 123, .. })), 1);
    assert_eq!(stream.count(|event| *event == Event::Exit), 1);
}

/// A parent and a child that execute a program each: the child marks descriptors with one call, the
/// parent one by one.
fn check_starting(words: &[&str]) -> record::Outcome {
    let folder = folder();
    let (stream, _, outcome) = recorded(&command(&calls(folder.path()), words));
    assert_eq!(outcome.status.code(), Some(42), "the child's status was 7");
    assert_eq!(stream.count(|event| *event == Event::Exec), 2);
    assert_eq!(stream.count(|event| *event == Event::Exit), 2);
    outcome
}

#[test]
fn programs_are_followed_whose_parent_leaves_them_no_descriptors() {
    if possible() {
        let notes = check_starting(&["starting"]).notes;
        assert!(notes.is_empty(), "{notes:?}");
    }
}

#[test]
fn a_program_that_limits_the_size_of_files_is_not_killed_by_its_buffers() {
    if possible() {
        let notes = check_starting(&["starting", "tiny files"]).notes;
        assert!(notes.len() == 1 && notes[0].contains("ulimit -f"), "{notes:?}");
    }
}

#[test]
fn programs_are_followed_that_are_executed_by_a_descriptor() {
    if !possible() {
        return;
    }
    let folder = folder();
    let (stream, _, outcome) = recorded(&command(&calls(folder.path()), &["descriptors"]));
    assert_eq!(outcome.status.code(), Some(3 * 7), "{:?}", outcome.notes);
    assert_eq!(stream.count(|event| *event == Event::Exec), 3, "{:?}", outcome.notes);
}

#[test]
fn a_program_that_removes_the_folder_of_its_recording_is_told() {
    if !possible() {
        return;
    }
    let script = "rm -r /dev/shm/superpage-record-* /tmp/superpage-record-* 2>&-; exec ls /";
    // In a place of its own: other recordings have folders there.
    let words = ["-m", "sh", "-c", "mount -t tmpfs none /dev/shm && exec \"$@\"", "sh"];
    let this = std::env::current_exe().expect("a path");
    if std::env::var_os("SUPERPAGE_TEST_REMOVES").is_none() {
        let mut own = std::process::Command::new("unshare");
        own.args(words)
            .arg(this)
            .args(["--exact", "record::a_program_that_removes_the_folder_of_its_recording_is_told"]);
        let output = own.env("SUPERPAGE_TEST_REMOVES", "1").output().expect("unshare");
        let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        if said.contains("unshare: ") || said.contains("mount: ") {
            return superpage_testing::skip!("system", "no mount namespace can be had here");
        }
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let mut recording = record::start(&record::Command::new(["sh", "-c", script])).expect("it starts");
    let mut batch = Batch::default();
    let error = loop {
        match recording.fill(&mut batch) {
            Ok(more) => assert!(more, "it ended"),
            Err(error) => break error,
        }
    };
    let said = error.to_string();
    assert!(said.contains("removed /dev/shm/superpage-record-") && error.status() == 1, "{said}");
}

#[test]
fn a_script_runs_its_interpreter() {
    if !possible() {
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    let script = folder.path().join("script");
    std::fs::write(&script, "#!/bin/sh -e\nexit $1\n").expect("a script");
    let problem = command(&script, &["3"]).check().expect_err("not executable").to_string();
    assert!(problem.contains("not an executable file"), "{problem}");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("rights");
    assert_eq!(recorded(&command(&script, &["3"])).2.status.code(), Some(3));
}

#[test]
fn what_cannot_be_recorded_is_refused_in_one_sentence() {
    if !possible() {
        return;
    }
    let folder = folder();
    let text = folder.path().join("text");
    std::fs::write(&text, "text").expect("a file");
    for (name, reason) in
        [("no-such-program", "no such program"), ("/no/such", "no such file"), ("/", "not an executable")]
    {
        let error = record::start(&record::Command::new([name])).expect_err("refused");
        assert_eq!(error.status(), 2);
        let message = error.to_string();
        assert!(message.contains(name) && message.contains(reason), "{message}");
    }
    let nothing = record::start(&record::Command::new([""; 0])).expect_err("refused").to_string();
    assert!(nothing.contains("expected a command"), "{nothing}");
}

#[test]
fn a_stopped_recording_is_whole() {
    if !possible() {
        return;
    }
    let folder = folder();
    let mut recording = record::start(&command(&calls(folder.path()), &["forever"])).expect("it starts");
    let stop = recording.stopper();
    let (mut batch, mut events) = (Batch::default(), Vec::new());
    let mut ended = false;
    while recording.fill(&mut batch).expect("a stream") {
        events.extend(batch.events.drain(..).map(|(_, event)| event));
        if !ended {
            std::thread::sleep(std::time::Duration::from_millis(200));
            stop.stop();
            ended = true;
        }
    }
    let status: ExitStatus = recording.finish().expect("an end").status;
    assert_eq!(status.signal(), Some(15));
    assert_eq!(events.last(), Some(&Event::Exit));
}

#[test]
fn sampling_keeps_events_first_touches_and_the_count() {
    if !possible() {
        return;
    }
    let folder = folder();
    let program = compile(folder.path(), "known.s", &["-nostdlib", "-static"]);
    let whole = recorded(&command(&program, &[])).1;
    let mut sampled = command(&program, &[]);
    sampled.sampling = Some(Sampling { on: 100, period: 1000, seed: Some(1) });
    let (stream, counts, _) = recorded(&sampled);
    assert_eq!(stream.info.sampling, sampled.sampling);
    let skipped = |stream: &Stream| {
        let both = stream.events().filter_map(|event| match event {
            Event::Skipped { references, instructions } => Some((*references, *instructions)),
            _ => None,
        });
        both.fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1))
    };
    let (references, instructions) = skipped(&stream);
    assert_eq!(counts.references + references, whole.references);
    assert_eq!(counts.instructions + instructions, whole.instructions);
    let kept = counts.references + counts.fetches;
    let all = whole.references + whole.fetches;
    // The last loop is one run, and windows are cut in it nonetheless.
    assert!((all / 10..all / 6).contains(&kept), "{kept} of {all}");
    assert!(stream.count(|event| matches!(event, Event::Phase { .. })) > 0);

    // A larger program: the pages are the same, to the dynamic linker's few that differ from run to
    // run.
    let program = calls(folder.path());
    let file = program.to_str().expect("a name");
    let pages = |stream: &Stream| {
        let of = |write: bool| -> HashSet<u64> {
            stream.runs().filter(|run| !write || run.access() == Access::Write).map(Run::page).collect()
        };
        (of(false), of(true))
    };
    let whole = recorded(&command(&program, &["mappings", file])).0;
    let mut sampled = command(&program, &["mappings", file]);
    sampled.sampling = Some(Sampling { on: 1000, period: 20_000, seed: Some(1) });
    let stream = recorded(&sampled).0;
    assert_eq!(pages(&stream), pages(&whole));
    let changes = |stream: &Stream| stream.count(|event| matches!(event, Event::Map { .. } | Event::Unmap { .. }));
    assert_eq!(changes(&stream), changes(&whole));
    assert!(stream.runs().count() * 3 < whole.runs().count());
}

/// Threads that map and unmap while others are between windows, and processes that end in every
/// way.
#[test]
fn samples_of_threads_and_children_keep_the_rules_and_their_share() {
    if !possible() {
        return;
    }
    let folder = folder();
    let program = calls(folder.path());
    let sampled = |mode: &str, on, period| {
        let sampling = Some(Sampling { on, period, seed: Some(1) });
        let (stream, counts, _) = recorded(&record::Command { sampling, ..command(&program, &[mode]) });
        let skipped = stream.events().map(|event| match event {
            Event::Skipped { references, instructions } => references + instructions,
            _ => 0,
        });
        let kept = counts.references + counts.fetches;
        (kept as f64 / (kept + skipped.sum::<u64>()) as f64, stream)
    };
    let (share, stream) = sampled("threads", 1000, 20_000);
    // A twentieth, and the first touches.
    assert!((0.05..0.06).contains(&share), "{share}");
    assert_eq!(stream.count(|event| matches!(event, Event::Unmap { pages: 16, .. })), 5 * 50);
    let (_, stream) = sampled("children", 100, 1000);
    assert_eq!(stream.count(|event| *event == Event::Exit), 4);
}

/// Each thread's windows begin with pages that it used itself, and what it left out is told, also
/// if another ends the process.
#[test]
fn a_window_begins_with_what_its_own_thread_used() {
    if !possible() {
        return;
    }
    let folder = folder();
    let program = calls(folder.path());
    let sampling = Some(Sampling { on: 200, period: 1_000_000_000, seed: Some(1) });
    let (stream, ..) = recorded(&record::Command { sampling, ..command(&program, &["leaving"]) });
    let left_out = references_of_areas(&stream, &mut |_, _, _| ());
    assert_eq!(left_out.len(), 4);
    // 20 000 loads and stores; those of its stack and of first touches are few.
    assert!(left_out.values().all(|references| *references > 39_000), "{left_out:?}");

    let sampling = Some(Sampling { on: 200, period: 10_000, seed: Some(1) });
    let (stream, ..) = recorded(&record::Command { sampling, ..command(&program, &["leaving"]) });
    assert!(!stream.info.mixed_windows);
    let mut begun = BTreeMap::new();
    let mut of_others = 0;
    references_of_areas(&stream, &mut |thread, page, recent| {
        if recent && begun.entry(thread).or_insert(page >> 18) == &(page >> 18) {
            return;
        }
        of_others += u32::from(recent);
    });
    assert_eq!((begun.len(), of_others), (4, 0), "{begun:?}");
}

/// The references that were left out of each thread that uses one of the areas; `each` is called
/// with each access there, by its thread and its page, and whether a window begins with it.
fn references_of_areas(stream: &Stream, each: &mut dyn FnMut(u32, u64, bool)) -> BTreeMap<u32, u64> {
    let (mut skipped, mut users): (BTreeMap<u32, u64>, HashSet<u32>) = Default::default();
    let (mut current, mut phases) = (0, BTreeMap::new());
    for batch in &stream.batches {
        let mut events = batch.events.iter().peekable();
        for at in 0..=batch.runs.len() {
            while let Some((_, event)) = events.next_if(|(before, _)| *before as usize == at) {
                match event {
                    Event::Switch { thread, .. } => current = *thread,
                    Event::Skipped { references, .. } => *skipped.entry(current).or_default() += references,
                    // A gap, and what follows it.
                    Event::Phase { phase, .. } => {
                        let number = phases.entry(current).or_insert(0);
                        *number = if *phase == Phase::Gap { 0 } else { *number + 1 };
                    }
                    _ => {}
                }
            }
            let Some(run) = batch.runs.get(at).filter(|run| (1..5).contains(&(run.page() >> 18))) else { continue };
            users.insert(current);
            let warming = run.references == 1 && run.access() == Access::Read;
            each(current, run.page(), warming && phases.get(&current) == Some(&1));
        }
    }
    skipped.retain(|thread, _| users.contains(thread));
    skipped
}
