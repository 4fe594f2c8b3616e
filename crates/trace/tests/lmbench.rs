//! The workloads after LmBench: what their operations call, count for count.

use crate::streams::stream;
use std::collections::BTreeMap;
use superpage_pages::Access;
use superpage_trace::{Event, ProcessId, Run};

/// The runs and the events of the part `measured` of a workload.
fn measured(text: &str) -> (Vec<Run>, Vec<Event>) {
    let (runs, events) = stream(text);
    let place = |name: &str| {
        let mark = Event::Mark(name.into());
        events.iter().position(|(_, event)| *event == mark).unwrap_or_else(|| panic!("{text} has no part {name}"))
    };
    let (warm, from, to) = (place("warm"), place("measured"), place("end"));
    assert!(warm == 0 && from < to, "{text}");
    let runs = runs[events[from].0..events[to].0].to_vec();
    (runs, events[from + 1..to].iter().map(|(_, event)| event.clone()).collect())
}

/// How many events of each kind: calls by path, with the bytes that they copy.
fn kinds(events: &[Event]) -> BTreeMap<String, (u64, u64)> {
    let mut counts = BTreeMap::new();
    for event in events {
        let (name, bytes) = match event {
            Event::Call { path, bytes, .. } => (path.clone(), *bytes),
            Event::Read { .. } => ("file-read".into(), 0),
            other => (format!("{other:?}").split([' ', '{', '(']).next().unwrap().to_lowercase(), 0),
        };
        let (count, sum) = counts.entry(name).or_insert((0, 0));
        (*count, *sum) = (*count + 1, *sum + bytes);
    }
    counts
}

fn expect(text: &str, expected: &[(&str, u64, u64)]) {
    let (_, events) = measured(text);
    let expected = expected.iter().map(|(kind, count, bytes)| ((*kind).to_string(), (*count, *bytes))).collect();
    assert_eq!(kinds(&events), expected, "{text}");
}

#[test]
fn an_operation_calls_what_the_program_of_lmbench_calls() {
    expect("null-call:times=70", &[("null", 70, 0)]);
    expect("mmap-latency:times=9", &[("map", 9, 0), ("unmap", 9, 0)]);
    let writes = |count| [("pipe-write", count, 4 * count), ("pipe-read", count, 4 * count)];
    for (processes, rounds) in [(2, 30), (8, 5)] {
        let passes = processes * rounds;
        let text = format!("switch:processes={processes},times={rounds}");
        expect(&text, &[&writes(passes)[..], &[("switch", passes, 0)]].concat());
    }
    expect("switch:processes=1,times=30", &writes(30));
    expect("pipe-latency:times=40", &[("pipe-write", 80, 80), ("pipe-read", 80, 80), ("switch", 80, 0)]);
    // 3 writes of 64 KB in pieces of 4 KB, with a switch to the reader and back after each.
    expect("pipe-bandwidth:bytes=130K", &[("pipe-write", 48, 3 << 16), ("pipe-read", 48, 3 << 16), ("switch", 96, 0)]);
    // 100 KB are a read of 64 KB and one of 36 KB, after a call that goes to the start.
    expect("reread:bytes=100K,times=4", &[("null", 4, 0), ("file-read", 8, 0), ("read", 8, 4 * (100 << 10))]);
}

/// A rectangle is 48 rows of 64 words, each read from the pixmap and written to the screen, and
/// nothing of it is a call.
#[test]
fn a_program_that_draws_tells_the_kernel_of_its_device() {
    let (runs, events) = measured("draw:bytes=512K,row=2K,times=50");
    assert_eq!(events, []);
    let screen = |run: &&Run| (1 << 18..(1 << 18) + 128).contains(&run.page());
    let written = |run: &Run| assert_eq!(run.access(), Access::Write);
    runs.iter().filter(screen).for_each(written);
    assert_eq!(runs.iter().filter(screen).map(|run| u64::from(run.references)).sum::<u64>(), 50 * 48 * 64);
    // Pieces of 64 bytes, with a read of the pixmap between.
    assert_eq!(runs.iter().filter(screen).count(), 50 * 48 * 4);
    let (_, events) = stream("draw:times=1");
    let event = |wanted: &dyn Fn(&Event) -> bool| events.iter().position(|(_, event)| wanted(event)).unwrap();
    let map = event(
        &|event| matches!(event, Event::Map { start, pages, shared, .. } if (*start, *pages, *shared) == (1 << 18, 512, true)),
    );
    let told = Event::Call { path: "ioremap".into(), at: 1 << 30, bytes: 0 };
    assert_eq!(event(&|event| *event == told), map + 1);
}

#[test]
fn a_start_maps_a_program_its_linker_and_the_library() {
    let (_, events) = measured("start:times=3");
    let counts = kinds(&events);
    let count = |kind: &str| counts.get(kind).map_or(0, |(count, _)| *count / 3);
    // The texts and data of program and linker, zeroed data, the stack; the list; the library, its
    // data and zeroed data.
    assert_eq!(count("map"), 4 + 1 + 1 + 1 + 3);
    assert_eq!((count("fork"), count("exec"), count("exit"), count("switch")), (1, 1, 1, 2));
    assert_eq!((count("unmap"), count("protect"), count("open"), count("close")), (1, 1, 2, 2));
    // fstat, close, write to a closed file, wait; the first bytes of the library.
    assert_eq!((count("null"), count("read")), (4, 1));
    let lengths = events.iter().filter_map(|event| match event {
        Event::Map { pages, .. } => Some(*pages),
        _ => None,
    });
    assert_eq!(lengths.take(10).collect::<Vec<_>>(), [1, 1, 1, 22, 2, 2048, 4, 110, 4, 4]);
}

/// Between starts another process runs, which reads a word of each page, and whose process is not
/// one of those that start.
#[test]
fn a_process_beside_those_that_start_reads_its_pages_after_each() {
    let (alone, with) = ("start:times=3,idle=70", "start:times=3,idle=70,beside=100K");
    let (runs, events) = measured(with);
    let counts = kinds(&events);
    let count = |kind: &str| counts.get(kind).map_or(0, |(count, _)| *count);
    assert_eq!((count("fork"), count("exit"), count("idle"), count("switch")), (3, 3, 3, 3 * 4));
    let loads = |runs: &[Run]| {
        let loads = runs.iter().filter(|run| run.access() == Access::Read);
        loads.map(|run| u64::from(run.references)).sum::<u64>()
    };
    assert_eq!(loads(&runs), loads(&measured(alone).0) + 3 * 25);
    let idle = events.iter().position(|event| matches!(event, Event::Idle { .. })).unwrap();
    let before = events[..idle].iter().rev().find(|event| matches!(event, Event::Switch { .. }));
    assert!(matches!(before, Some(Event::Switch { process: ProcessId(1), .. })), "it sleeps while all is idle");
}

#[test]
fn arrays_and_buffers_are_gone_through_word_by_word() {
    let references = |text: &str, access: Access| {
        let (runs, _) = measured(text);
        runs.iter().filter(|run| run.access() == access).map(|run| u64::from(run.references)).sum::<u64>()
    };
    // Two passes, each of a sum over 8 KB; nothing else is loaded.
    assert_eq!(references("switch:bytes=8K,times=1", Access::Read), 2 * 2048);
    assert_eq!(references("switch:times=1", Access::Read), 0);
    assert_eq!(references("reread:bytes=100K,times=2", Access::Read), 2 * 25600);
    // The first tenth of 1 MB has 6.4 times 16 KB: 7 stores more, and a word of the stack with
    // each.
    let (none, tenth) = ("mmap-latency:bytes=1M,times=1", "mmap-latency:bytes=1M,times=1,touch=tenth");
    assert_eq!(references(tenth, Access::Write), references(none, Access::Write) + 7 * 2);
    assert_eq!(
        references("switch:bytes=8K,times=1", Access::Execute),
        references("switch:times=1", Access::Execute) + 2 * 4096
    );
}
