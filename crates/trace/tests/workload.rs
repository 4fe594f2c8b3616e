//! The built-in workloads: the rules of a stream, the same stream every time, mixes, and exact
//! counts of those that are no program of Navarro et al.

use crate::streams;

use proptest::prelude::*;
use std::collections::BTreeMap;
use streams::{counts, stream};
use superpage_pages::Access;
use superpage_trace::{Batch, Event, Run, Source, check_stream, workload};

/// One of each kind, small but longer than a batch, and two mixes; with a hash of the whole stream.
const SAMPLES: [(&str, u64); 46] = [
    ("matrix:n=150,rounds=2", 0x050a86402bbc877f),
    ("tree:nodes=500,operations=1K,seed=3", 0x50b18710a1c4542c),
    ("fftw:n=20", 0x5b054415c2ef994e),
    ("touch:bytes=80M", 0x69208b296221fbd4),
    ("stride:step=64K,touches=20K", 0x0cef6d7e1ce97b4a),
    ("random:bytes=1M,references=50K", 0xae013075a092778a),
    ("sequential:bytes=40M,passes=3", 0x1f5900b6812f4f5a),
    ("chase:bytes=1M,references=50K", 0xbebde5abf9e863e6),
    ("zipf:bytes=1M,object=64,references=50K", 0x4551e2f37c49f64c),
    ("zipf:bytes=1M,theta=0.5,references=50K", 0xbfd0f03162e6b788),
    ("fftw:n=20,arrays=2", 0x51c5182427fcd0b4),
    ("fill:bytes=100M,share=0.7", 0x0118292b15a7c312),
    ("seek:times=70,idle=3ms", 0x1c48f64111941018),
    ("cmp:bytes=40000001", 0xb250430d0a72efb4),
    ("dirty-file:same=0.5", 0x78df3b9765b8392f),
    ("dirty-file:bytes=1G,every=1,page=4K", 0x74d6dafc2c84e279),
    ("web:requests=9K,first=5K,kept=300", 0x3703a7e8e834cdbd),
    ("web:requests=2K + seek @slice=1M; web:requests=1K,first=2K", 0xcc37dcebc38565af),
    ("c4:nodes=20K", 0x4d0ccc9bd7a17c90),
    ("share:bytes=20M,processes=5", 0xf83f10e911ded553),
    ("store:bytes=80M,value=20K,reads=3K", 0xa94af2cb70356951),
    ("sp:n=13,steps=2", 0x8bf989bd87b7f1db),
    ("seek:times=70,idle=1s + stride:step=64K,touches=20K @slice=100", 0xdbd2c9ec9382a030),
    ("null-call:times=9K", 0x6fed041ce84be81e),
    ("mmap-latency:touch=tenth,times=300", 0x28cd65228fcd8aa3),
    ("switch:processes=5,bytes=24K,times=400", 0xb09c498626197c46),
    ("switch:processes=1,times=9K", 0x630618622f8d4475),
    ("pipe-latency:times=2K", 0x9f2daa36bfa40012),
    ("pipe-bandwidth", 0x51e8d1a6ccd86031),
    ("start:times=30", 0x9d5d3b9d43b9b749),
    ("reread:bytes=1000K,times=30", 0x023c4b21d21a8486),
    ("draw:bytes=256K,row=1K,times=300", 0xd48077ccbe3a488b),
    ("stacks:threads=30,touched=10K,guard=early", 0x3c5f01566e36205e),
    ("stacks:threads=30", 0x222541b54c3fc8e1),
    ("stacks:threads=30,map-stack=on", 0x31152465639bde35),
    ("gups:bytes=1M,updates=50K", 0xd83501b3263c5c6a),
    ("graph:scale=10,roots=3", 0x975710ebd35273ae),
    ("graph:scale=11,edges=5,build=no,seed=7", 0x0ab6a5fcc2a3f874),
    ("kv:keys=3K,operations=10K", 0xe6c4b2cc7b434c38),
    ("kv:keys=2K,least=4K,most=20K,drop=0.7,discard=no,theta=0.5,operations=9K,inserts=0.3", 0x6fa0a0177779f168),
    ("btree:keys=9K,operations=5K,inserts=0.4", 0x351e0bfb55f8c0e0),
    ("btree:keys=9K,order=64,fill=ascending,operations=5K,seed=5", 0x8076139b5630a7de),
    ("xsbench:nuclides=68,gridpoints=100,lookups=2K", 0x07f4aeb6ead82cc1),
    ("xsbench:nuclides=80,gridpoints=9,lookups=500,seed=2", 0x9f62997b995ae2e9),
    ("matrix:n=90,rounds=2 + tree:nodes=300,operations=50 @slice=1K", 0x95aef9bb6134848b),
    ("tree:nodes=300,operations=50; random:bytes=1M,references=5K + chase:references=5K,bytes=1M", 0x5b84281187629064),
];

#[test]
fn streams_keep_the_rules_and_are_the_same_on_every_machine() {
    let mut hashes = Vec::new();
    for (text, _) in SAMPLES {
        let counts = counts(text);
        let (runs, events) = stream(text);
        assert_eq!((counts.runs, counts.events), (runs.len() as u64, events.len() as u64), "{text}");
        // FNV-1a over the words of the runs and the text of the events.
        let words = runs
            .iter()
            .flat_map(|run| [run.page(), run.access() as u64, run.references.into(), run.instructions.into()]);
        let events = events.iter().flat_map(|event| format!("{event:?}").into_bytes()).map(u64::from);
        let hash = words
            .chain(events)
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, word| (hash ^ word).wrapping_mul(0x100_0000_01b3));
        hashes.push((text, hash));
    }
    assert_eq!(hashes, SAMPLES);
}

/// What the runs of a stream amount to: accesses of each kind and instructions by page, and the
/// events.
fn by_page(source: &mut dyn Source) -> (BTreeMap<(u64, Access), u64>, u64, Vec<Event>) {
    let (mut batch, mut pages, mut instructions, mut events) = (Batch::default(), BTreeMap::new(), 0, Vec::new());
    while source.fill(&mut batch).unwrap() {
        for run in &batch.runs {
            *pages.entry((run.page(), run.access())).or_default() += u64::from(run.references);
            instructions += u64::from(run.instructions);
        }
        events.extend(batch.events.drain(..).map(|(_, event)| event));
    }
    (pages, instructions, events)
}

#[test]
fn a_stream_of_lines_has_the_same_accesses_and_events() {
    // Members of a mix may begin their turns a run earlier or later.
    for (text, _) in SAMPLES.into_iter().filter(|(text, _)| !text.contains(['+', ';'])) {
        let mut lines = workload::parse_lines(text).unwrap();
        assert!(lines.info().lines, "{text}");
        let counts = check_stream(&mut *workload::parse_lines(text).unwrap()).unwrap_or_else(|e| panic!("{text}: {e}"));
        let (pages, instructions, events) = by_page(&mut *workload::parse(text).unwrap());
        assert_eq!(by_page(&mut *lines), (pages, instructions, events), "{text}");
        assert_eq!(counts.instructions, instructions, "{text}");
    }
}

#[test]
fn a_pass_has_a_run_for_each_line() {
    let mut source = workload::parse_lines("sequential:bytes=8K,passes=1,populate=no").unwrap();
    let mut batch = Batch::default();
    let mut lines = Vec::new();
    while source.fill(&mut batch).unwrap() {
        lines.extend(batch.runs.iter().map(|run| (run.line(), run.references)));
    }
    let first = (1 << 30) / 64;
    assert_eq!(lines, (first..first + 128).map(|line| (line, 8)).collect::<Vec<_>>());
}

#[test]
fn the_runs_to_come_are_about_as_many_as_said() {
    for (text, _) in SAMPLES {
        let said = workload::parse(text).unwrap().info().runs.unwrap();
        let given = counts(text).runs;
        assert!(given / 2 <= said && said <= given * 2, "{text}: said {said}, gave {given}");
    }
}

#[test]
fn the_smallest_of_each_kind_keeps_the_rules() {
    for (kind, parameters) in [
        ("matrix", "n=1,rounds=1"),
        ("tree", "nodes=1,operations=0"),
        ("tree", "nodes=1,operations=200"),
        ("fftw", "n=2"),
        ("touch", "bytes=1"),
        ("stride", "touches=1"),
        ("random", "bytes=4K,references=0,populate=no"),
        ("random", "bytes=4K,references=10"),
        ("sequential", "bytes=4K,passes=0"),
        ("sequential", "bytes=4K,passes=3"),
        ("chase", "bytes=4K,node=4K,references=3"),
        ("zipf", "bytes=4K,object=4K,references=9"),
        ("zipf", "bytes=4K,object=8,theta=8,references=9"),
        ("fftw", "n=2,arrays=2"),
        ("fill", "bytes=1"),
        ("fill", "bytes=64K,share=0"),
        ("seek", "bytes=1,times=1,idle=0s"),
        ("cmp", "bytes=1"),
        ("share", "bytes=1,processes=1"),
        ("share", "bytes=1,processes=3,step=1"),
        ("store", "bytes=8,value=8,share=1,reads=3"),
        ("store", "bytes=64K,value=1K,share=0.001,reads=0"),
        ("sp", "n=8,steps=1"),
        ("sp", "n=9,steps=0"),
        ("c4", "nodes=1"),
        ("c4", "position=,nodes=2"),
        ("c4", "position=121212,nodes=1M"),
        ("web", "requests=0"),
        ("web", "requests=3,kept=1,wired=0"),
        ("web", "requests=100,kept=1,wired=1M"),
        ("dirty-file", "bytes=1,every=1,page=4K,same=1"),
        ("null-call", "times=1"),
        ("mmap-latency", "bytes=1,times=1,touch=tenth"),
        ("switch", "processes=1,bytes=1,times=1"),
        ("switch", "processes=64,bytes=5K,times=1"),
        ("pipe-latency", "times=1"),
        ("pipe-bandwidth", "bytes=1"),
        ("start", "times=1"),
        ("start", "times=1,beside=1"),
        ("reread", "bytes=1,times=1"),
        ("draw", "bytes=128K,row=16K,times=1"),
        ("gups", "bytes=4K,updates=0"),
        ("gups", "bytes=4K,updates=1"),
        ("graph", "scale=1,edges=1,roots=0"),
        ("graph", "scale=1,edges=1,roots=3"),
        ("graph", "scale=1,edges=1,roots=1,build=no"),
        ("kv", "keys=1,least=8,most=8,operations=0"),
        ("kv", "keys=1,least=1M,most=1M,drop=1,operations=9"),
        ("kv", "keys=3,operations=50,inserts=0.5,deletes=0.5"),
        ("btree", "keys=1,operations=0"),
        ("btree", "keys=1,order=4,operations=90,inserts=1"),
        ("xsbench", "nuclides=68,gridpoints=2,lookups=0"),
        ("xsbench", "nuclides=68,gridpoints=2,lookups=1"),
    ] {
        let text = format!("{kind}:{parameters}");
        counts(&text);
    }
    assert!(workload::all().iter().all(|kind| SAMPLES.iter().any(|(text, _)| text.starts_with(kind.name))));
}

#[test]
fn every_default_is_accepted() {
    for kind in workload::all() {
        assert_eq!(workload::parse(kind.name).map(|source| source.info().workload.clone()).unwrap(), kind.name);
        for parameter in kind.parameters {
            let text = format!("{}:{}={}", kind.name, parameter.name, parameter.default);
            assert!(workload::parse(&text).is_ok(), "{text}");
        }
    }
}

#[test]
fn random_fills_the_region_and_loads_all_over_it() {
    let (runs, _) = stream("random:bytes=4M,references=200K,seed=7");
    assert!(
        runs[..1024]
            .iter()
            .enumerate()
            .all(|(i, run)| *run == Run::new((1 << 18) + i as u64, Access::Write, 512, 1536))
    );
    let loads = runs.iter().map(|run| u64::from(run.references)).sum::<u64>() - 1024 * 512;
    assert_eq!(loads, 200_000);
    let mut touched = vec![0; 1024];
    runs[1024..].iter().for_each(|run| touched[(run.page() - (1 << 18)) as usize] += run.references);
    assert!(touched.iter().all(|count| (120..280).contains(count)), "200 loads a page, give or take");
    assert_ne!(stream("random:bytes=4M,references=1K,seed=8").0, stream("random:bytes=4M,references=1K,seed=9").0);
    assert_eq!(counts("random:bytes=4K,references=1K,populate=no").runs, 1);
}

#[test]
fn sequential_reads_every_word_of_every_pass() {
    let counts = counts("sequential:bytes=1M,passes=5");
    assert_eq!((counts.runs, counts.references, counts.instructions), (6 * 256, 6 << 17, 18 << 17));
}

#[test]
fn a_lap_of_chase_visits_every_node_once() {
    let (runs, _) = stream("chase:bytes=1M,references=16K,node=64");
    let (lap, _) = stream("chase:bytes=1M,references=16384,node=64,populate=no");
    assert_eq!(runs.iter().map(|run| u64::from(run.references)).sum::<u64>(), (1 << 17) + 16_000);
    let mut visits = vec![0; 256];
    lap.iter().for_each(|run| visits[(run.page() - (1 << 18)) as usize] += run.references);
    assert!(visits.iter().all(|visits| *visits == 64));
    // And the second lap is the first one again.
    let (laps, _) = stream("chase:bytes=1M,references=32768,node=64,populate=no");
    assert_eq!(laps.iter().map(|run| run.references).sum::<u32>(), 32768);
    assert_eq!(laps[..lap.len() - 1], laps[laps.len() - lap.len()..][..lap.len() - 1]);
}

#[test]
fn zipf_is_as_popular_as_it_says() {
    // 256 objects of a page: the shares, most popular first, against 1 / rank^theta.
    for theta in [0.0, 0.5, 0.99, 2.0] {
        let (runs, _) = stream(&format!("zipf:bytes=1M,theta={theta},references=1M,populate=no"));
        let mut loads = vec![0_u32; 256];
        runs.iter().for_each(|run| loads[(run.page() - (1 << 18)) as usize] += run.references);
        assert_eq!(loads.iter().sum::<u32>(), 1_000_000);
        loads.sort_unstable_by(|a, b| b.cmp(a));
        let total: f64 = (1..=256).map(|rank| f64::from(rank).powf(-theta)).sum();
        for rank in [1, 2, 10, 100] {
            let expected = 1e6 / total / f64::from(rank).powf(theta);
            let found = f64::from(loads[rank as usize - 1]);
            // Five standard deviations, and for the uniform case what sorting does to the order.
            assert!((found - expected).abs() < 5.0 * expected.sqrt() + 5.0, "theta {theta}, rank {rank}: {found}");
        }
    }
}

#[test]
fn a_store_is_filled_and_then_whole_values_of_it_are_read() {
    let (runs, events) = stream("store:bytes=64M,value=16K,share=0.75,reads=5K");
    let marks = events.iter().filter_map(|(at, event)| match event {
        Event::Mark(name) => Some((*at, &**name)),
        _ => None,
    });
    let marks: Vec<_> = marks.collect();
    let [(0, "fill"), (first, "read")] = marks[..] else { panic!("{marks:?}") };
    // 4 pages of 512 words each, one after the other; of 4096 slots 3072 hold a value, give or take
    // five standard deviations.
    let values = |runs: &[Run], access| -> Vec<u64> {
        let page = |value: u64, i: usize| Run::new((1 << 18) + 4 * value + i as u64, access, 512, 1536);
        runs.chunks(4)
            .map(|runs| {
                let value = (runs[0].page() - (1 << 18)) / 4;
                assert!(runs.iter().enumerate().all(|(i, run)| *run == page(value, i)), "{runs:?}");
                value
            })
            .collect()
    };
    let (filled, read) = (values(&runs[..first], Access::Write), values(&runs[first..], Access::Read));
    assert!(filled.is_sorted_by(|a, b| a < b) && (2933..3211).contains(&filled.len()), "{}", filled.len());
    assert!(read.len() == 5000 && read.iter().all(|value| filled.contains(value)));
    let different: std::collections::BTreeSet<_> = read.iter().collect();
    // Of 3072, 5000 draws leave one of e^1.63 out.
    assert!((2350..2600).contains(&different.len()), "{}", different.len());
}

#[test]
fn what_is_idle_gives_up_its_turn() {
    // Three rounds of 2 touches, a pause after each: in a mix each pause is 100 touches of the
    // other.
    let text = "seek:bytes=8K,times=3 + stride:touches=250,step=4K @slice=100";
    let places: Vec<_> = stream(text)
        .1
        .iter()
        .filter_map(|(at, event)| if let Event::Switch { process, .. } = event { Some((*at, process.0)) } else { None })
        .collect();
    assert_eq!(places, [(0, 0), (2, 1), (102, 0), (104, 1), (204, 0), (206, 1), (256, 0)]);
    let pauses = |text: &str| {
        let events = stream(text).1;
        events.iter().filter(|(_, event)| *event == Event::Idle { microseconds: 200_000 }).count()
    };
    assert_eq!(pauses(text), 0);
    // Alone in the end, it is idle.
    assert_eq!(pauses("seek:bytes=8K,times=3 + stride:touches=50,step=4K @slice=100"), 2);
}

#[test]
fn a_wrong_text_is_refused_in_one_sentence() {
    for (text, says) in [
        ("matrx", "no such workload; expected one of matrix, tree, fftw, touch"),
        ("corpus/xz.sp", "a recorded program is a trace: --trace FILE"),
        ("", "no such workload"),
        ("matrix:m=3", "matrix has no parameter \"m\"; it has n, rounds, heap"),
        ("matrix:n", "expected key=value"),
        ("matrix:n=0", "expected a count from 1"),
        ("matrix:n=1,n=2", "given twice"),
        ("matrix:n=9999999", "to 25000"),
        ("matrix:heap=97K", "a multiple of 8K"),
        ("touch:bytes=1.5M", "expected a size from 1 to 16T bytes"),
        ("touch:access=maybe", "expected write or read"),
        ("c4:position=4444444", "moves that do not end the game"),
        ("c4:position=1212121", "moves that do not end the game"),
        ("random:seed=x", "a whole number"),
        ("store:value=12", "a multiple of 8"),
        ("store:bytes=16K,share=0.001", "some slot holds a value"),
        ("seek:idle=5", "a time in us, ms or s"),
        ("dirty-file:page=6K", "a multiple of 4K"),
        ("stride:step=16T,touches=2", "at most 16T"),
        ("gups:bytes=3M", "a power of two"),
        ("gups:bytes=1K", "expected a size from 4K to 16T"),
        ("graph:scale=29", "expected a count from 1 to 28"),
        ("graph:edges=0", "expected a count from 1 to 64"),
        ("kv:keys=65M", "to 64000000"),
        ("kv:keys=64M,most=8K", "at most 32G bytes"),
        ("kv:least=12", "a multiple of 8"),
        ("kv:least=2K", "expected a size from 2K to 1M"),
        ("kv:inserts=0.6,deletes=0.5", "at most 1 together"),
        ("btree:order=3", "expected a count from 4 to 512"),
        ("btree:keys=4G,operations=1K,inserts=0.5", "at most 4G keys"),
        ("btree:fill=sorted", "expected random or ascending"),
        ("xsbench:nuclides=67", "expected a count from 68"),
        ("xsbench:nuclides=1000,gridpoints=10M", "at most 16T bytes"),
        ("touch + touch @ slice=0", "a count of references"),
        ("touch + touch @ quantum=3", "@slice="),
        ("touch;", "no such workload"),
        ("touch:", "touch"),
    ] {
        match workload::parse(text) {
            Err(error) => assert!(error.to_string().contains(says), "{text:?}: {error}"),
            Ok(source) => assert_eq!((text, &*source.info().workload), ("touch:", says)),
        }
    }
}

#[test]
fn workloads_at_once_take_turns() {
    let text = "touch:bytes=1M+stride:touches=300,step=64K@slice=100";
    let (runs, events) = stream(text);
    assert_eq!(counts(text).references, 556);
    let switches: Vec<_> = events
        .iter()
        .filter_map(|(at, event)| match event {
            Event::Switch { process, thread } => Some((*at, process.0, *thread)),
            _ => None,
        })
        .collect();
    assert_eq!(switches, [(0, 0, 0), (100, 1, 1), (200, 0, 0), (300, 1, 1), (400, 0, 0), (456, 1, 1)]);
    assert_eq!(runs.len(), 556);
}

#[test]
fn workloads_in_turn_do_not_overlap() {
    let (runs, events) = stream("touch:bytes=64K;touch:bytes=32K + stride:touches=3");
    assert_eq!(runs.len(), 16 + 8 + 3);
    let exits: Vec<_> = events.iter().filter(|(_, event)| *event == Event::Exit).map(|(at, _)| *at).collect();
    assert_eq!(exits, [16, 24, 27]);
    let marks = events.iter().filter_map(|(at, event)| match event {
        Event::Mark(name) => Some((*at, &**name)),
        _ => None,
    });
    assert_eq!(marks.collect::<Vec<_>>(), [(0, "touch:bytes=64K"), (16, "touch:bytes=32K + stride:touches=3")]);
}

#[test]
fn a_resumed_process_fetches_where_it_was() {
    let alone = counts("matrix:n=100,rounds=1");
    let both = counts("matrix:n=100,rounds=1+matrix:n=100,rounds=1@slice=1K");
    assert_eq!(both.references, 2 * alone.references);
    // About 31 K references each in turns of 1 K: a fetch for each switch back.
    assert!((60..=64).contains(&(both.fetches - 2 * alone.fetches)), "{}", both.fetches - 2 * alone.fetches);
}

/// A small workload with arbitrary parameters.
fn any_workload() -> impl Strategy<Value = String> {
    let (a, b, c) = (1..60_u64, 1..4_u64, 0..3000_u64);
    (0..27_usize, a, b, c).prop_map(|(kind, a, b, c)| match kind {
        0 => format!("matrix:n={a},rounds={b},heap={}K", 96 + 8 * c),
        1 => format!("tree:nodes={a},operations={c},seed={b}"),
        2 => format!("fftw:n={},transforms={b}", 2 + a % 9),
        3 => format!("touch:bytes={},step={},rounds={b},access=read", a * 999, 1 + c),
        4 => format!("stride:touches={a},rounds={b},step={}", 1 + 7 * c),
        5 => format!("random:bytes={}K,references={c},seed={a}", 4 * a),
        6 => format!("sequential:bytes={}K,passes={b}", 4 * a),
        7 => format!("chase:bytes={}K,node={},references={c}", 4 * a, 8 * b),
        8 => format!("fill:bytes={}K,share=0.{b}", 4 * a),
        9 => format!("seek:bytes={a}K,times={b},idle={c}us"),
        12 => format!("sp:n={},steps={b}", 8 + a % 3),
        14 => format!("store:bytes={}K,value={},share=0.9,reads={}", 64 * a, 8 * (1 + c % 500), c % 50),
        15 => format!("switch:processes={b},bytes={c},times={b}"),
        16 => format!("pipe-bandwidth:bytes={}", 100 * a),
        17 => format!("start:times={b},beside={}K", a - 1).replace("=0K", "=0"),
        19 => format!("draw:bytes=128K,row=512,times={b},seed={a}"),
        22 => format!("gups:bytes=64K,updates={c}"),
        23 => format!("graph:scale={},edges={b},roots={b},seed={a}", 1 + a % 9),
        24 => format!("kv:keys={a},least=8,most={}K,drop=0.{b},operations={c},inserts=0.4,seed={a}", 4 * b),
        25 => format!("btree:keys={a},order={},operations={c},inserts=0.{b}", 3 + b),
        26 => format!("xsbench:nuclides={},gridpoints={},lookups={b}", 68 + a, 1 + a % 9 + b),
        20 => format!("stacks:threads={a},bytes={}K", 16 + 4 * c),
        18 => format!("reread:bytes={}K,times={b}", a),
        13 => format!("c4:nodes={c}", c = c + 1),
        10 => format!("cmp:bytes={}", 1 + a * c),
        11 => format!("dirty-file:bytes={}K,every={b},page={}K,same=0.{a}", 1 + c, 4 * b),
        _ => format!("zipf:bytes={}K,object={},theta=0.{a},references={c}", 4 * a, 8 * b),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_mix_keeps_the_rules_and_loses_nothing(
        groups in prop::collection::vec((prop::collection::vec(any_workload(), 1..4), 1..5000_u64), 1..3),
    ) {
        let group = |(workloads, slice): &(Vec<String>, u64)| format!("{} @ slice={slice}", workloads.join(" + "));
        let text = groups.iter().map(group).collect::<Vec<_>>().join(" ; ");
        let alone = groups.iter().flat_map(|(workloads, _)| workloads).map(|text| counts(text));
        let (references, events) = alone.fold((0, 0), |(r, e), one| (r + one.references, e + one.events));
        let mixed = counts(&text);
        prop_assert_eq!(mixed.references, references);
        // The switches between turns and the marks before the groups are new, and idle time may go;
        // nothing else does.
        prop_assert!(mixed.events + 12 >= events);
        let ignored = |event: &Event| matches!(event, Event::Switch { .. } | Event::Mark(_) | Event::Idle { .. });
        let others = |text: &str| stream(text).1.iter().filter(|(_, event)| !ignored(event)).count();
        let apart: usize = groups.iter().flat_map(|(workloads, _)| workloads).map(|text| others(text)).sum();
        prop_assert_eq!(others(&text), apart);
    }
}
