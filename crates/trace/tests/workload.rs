//! The built-in workloads: exact counts, the rules of a stream, and the same stream every time.

use proptest::prelude::*;
use std::collections::HashSet;
use superpage_pages::Access;
use superpage_trace::{Backing, Batch, Counts, Event, Growth, Run, check_stream, workload};

/// The whole stream of a workload: its runs, and its events with their places among all runs.
fn stream(text: &str) -> (Vec<Run>, Vec<(usize, Event)>) {
    let mut source = workload::parse(text).unwrap();
    let (mut batch, mut runs, mut events) = (Batch::default(), Vec::new(), Vec::new());
    while source.fill(&mut batch).unwrap() {
        events.extend(batch.events.iter().map(|(at, event)| (runs.len() + *at as usize, event.clone())));
        runs.extend_from_slice(&batch.runs);
    }
    assert!(!source.fill(&mut batch).unwrap() && batch == Batch::default(), "{text} goes on after its end");
    (runs, events)
}

fn counts(text: &str) -> Counts {
    check_stream(&mut *workload::parse(text).unwrap()).unwrap()
}

/// One of each kind, small but longer than a batch, and two mixes; with a hash of the whole stream.
const SAMPLES: [(&str, u64); 23] = [
    ("matrix:n=150,rounds=2", 0x050a86402bbc877f),
    ("tree:nodes=500,operations=1K,seed=3", 0x26aa5c1576952426),
    ("fftw:n=20", 0x682a1b2ca422ef9c),
    ("touch:bytes=80M", 0x69208b296221fbd4),
    ("stride:step=64K,touches=20K", 0x0cef6d7e1ce97b4a),
    ("random:bytes=1M,references=50K", 0xae013075a092778a),
    ("sequential:bytes=40M,passes=3", 0x1f5900b6812f4f5a),
    ("chase:bytes=1M,references=50K", 0xbebde5abf9e863e6),
    ("zipf:bytes=1M,object=64,references=50K", 0x4551e2f37c49f64c),
    ("zipf:bytes=1M,theta=0.5,references=50K", 0xbfd0f03162e6b788),
    ("fftw:n=20,arrays=2", 0x373d8cbae450a805),
    ("fill:bytes=100M,share=0.7", 0x0118292b15a7c312),
    ("seek:times=70,idle=3ms", 0x1c48f64111941018),
    ("cmp:bytes=40000001", 0xb250430d0a72efb4),
    ("dirty-file:same=0.5", 0x78df3b9765b8392f),
    ("dirty-file:bytes=1G,every=1,page=4K", 0x74d6dafc2c84e279),
    ("web:requests=9K,first=5K,kept=300", 0x3703a7e8e834cdbd),
    ("web:requests=2K + seek @slice=1M; web:requests=1K,first=2K", 0xcc37dcebc38565af),
    ("c4:nodes=20K", 0x4d0ccc9bd7a17c90),
    ("sp:n=13,steps=2", 0x636bc24b11521f38),
    ("seek:times=70,idle=1s + stride:step=64K,touches=20K @slice=100", 0xdbd2c9ec9382a030),
    ("matrix:n=90,rounds=2 + tree:nodes=300,operations=50 @slice=1K", 0x1ec3dfe6cc67d5b6),
    ("tree:nodes=300,operations=50; random:bytes=1M,references=5K + chase:references=5K,bytes=1M", 0xe6ebf65a9fdf475c),
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
        ("sp", "n=8,steps=1"),
        ("sp", "n=9,steps=0"),
        ("c4", "nodes=1"),
        ("c4", "position=,nodes=2"),
        ("c4", "position=121212,nodes=1M"),
        ("web", "requests=0"),
        ("web", "requests=3,kept=1,wired=0"),
        ("web", "requests=100,kept=1,wired=1M"),
        ("dirty-file", "bytes=1,every=1,page=4K,same=1"),
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
fn matrix_counts_are_exact() {
    for (n, rounds) in [(1, 1), (5, 3), (23, 2), (64, 1), (300, 2)] {
        let counts = counts(&format!("matrix:n={n},rounds={rounds}"));
        let start_up = 12 * 64;
        assert_eq!(counts.references, start_up + n * n * (1 + 2 * rounds));
        assert_eq!(counts.instructions, 16 * 256 + 64 + n * n * (4 + 6 * rounds) + 16 * (rounds + 1));
        assert_eq!(counts.fetches, counts.instructions);
    }
}

#[test]
fn a_transposition_loads_along_rows_and_stores_down_columns() {
    let (runs, events) = stream("matrix:n=600,rounds=1");
    let maps: Vec<u64> =
        events.iter().filter_map(|(_, e)| if let Event::Map { start, .. } = e { Some(*start) } else { None }).collect();
    let source = *maps.last().unwrap();
    let target = source + (600_u64 * 600 * 8).div_ceil(8192) * 2;
    let data: Vec<Run> = runs.iter().copied().filter(|run| run.access() != Access::Execute).collect();
    let transposed = &data[data.len() - 2 * 600 * 600..];
    for (k, pair) in transposed.chunks(2).enumerate() {
        let (i, j) = (k as u64 / 600, k as u64 % 600);
        assert_eq!(pair[0], Run::new(source + (i * 600 + j) * 8 / 4096, Access::Read, 1, 0));
        assert_eq!(pair[1], Run::new(target + (j * 600 + i) * 8 / 4096, Access::Write, 1, 0));
    }
}

#[test]
fn touch_touches_every_page_once_a_round() {
    let (runs, events) = stream("touch:bytes=1M,rounds=2");
    let expected: Vec<Run> = (0..512).map(|i| Run::new((1 << 18) + i % 256, Access::Write, 1, 4)).collect();
    assert_eq!(runs, expected);
    let kinds: Vec<_> =
        events.iter().map(|(at, e)| (*at, format!("{e:?}").split(' ').next().unwrap().to_string())).collect();
    let kinds: Vec<_> = kinds.iter().map(|(at, kind)| (*at, kind.as_str())).collect();
    assert_eq!(kinds, [(0, "Switch"), (0, "Map"), (256, "Unmap"), (256, "Map"), (512, "Unmap"), (512, "Exit")]);
    assert_eq!(counts("touch:bytes=1M,step=1K").references, 1024);
    assert_eq!(counts("touch:bytes=1M,step=1K").runs, 256);
    assert_eq!(counts("touch:bytes=1M,step=8K,access=read").runs, 128);
}

#[test]
fn stride_goes_over_one_mapping() {
    let (runs, events) = stream("stride:step=4M,touches=500,rounds=2");
    let expected: Vec<Run> = (0..1000).map(|i| Run::new((1 << 18) + i % 500 * 1024, Access::Write, 1, 4)).collect();
    assert_eq!(runs, expected);
    assert_eq!(events.len(), 4);
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
fn fftw_goes_over_the_array_along_each_dimension() {
    let n = 17_u64;
    let counts = counts("fftw:n=17,transforms=2");
    // Filled once; six times gathered and scattered, 8 references an element, and 5 passes of 5.
    assert_eq!(counts.references, n.pow(3) * (2 + 6 * (8 + 5 * 5)));
    assert_eq!(counts.instructions, 2 * counts.references);
    // Along the last dimension of n = 64, consecutive elements are 64 KB apart.
    let (runs, events) = stream("fftw:n=64");
    let unmap = events.iter().find(|(_, event)| matches!(event, Event::Unmap { .. })).unwrap().0;
    let last: Vec<u64> = runs[..unmap].iter().rev().step_by(2).take(64).map(|run| run.page()).collect();
    assert!(last.windows(2).all(|pair| pair[0] - pair[1] == 16), "{last:?}");
}

#[test]
fn fftw_goes_from_one_array_to_another() {
    // n = 64: arrays of 4 MB; the first line of each dimension, seen in the array where it is gathered and scattered.
    let (runs, events) = stream("fftw:n=64,arrays=2");
    assert_eq!(counts("fftw:n=64,arrays=2").references, counts("fftw:n=64").references);
    let (first, second) = (1 << 18, 2 << 18);
    let maps: Vec<_> =
        events.iter().filter_map(|(_, e)| if let Event::Map { start, .. } = e { Some(*start) } else { None }).collect();
    assert_eq!(maps, [first, second, 3 << 18]);
    let references = |array: u64, access: Access| -> u64 {
        let of = runs.iter().filter(|run| (array..array + 1024).contains(&run.page()) && run.access() == access);
        of.map(|run| u64::from(run.references)).sum()
    };
    let elements = 64 * 64 * 64;
    assert_eq!((references(first, Access::Write), references(first, Access::Read)), (2 * elements, 2 * elements));
    assert_eq!((references(second, Access::Write), references(second, Access::Read)), (6 * elements, 4 * elements));
}

/// The events but switches, as short words, with their places among the runs.
fn words(text: &str) -> Vec<(usize, String)> {
    let word = |event: &Event| match event {
        Event::Open { file, file_pages } => format!("open {} of {file_pages}", file & 0xf_ffff),
        Event::Close { file } => format!("close {}", file & 0xf_ffff),
        Event::Sync { .. } => "sync".into(),
        Event::Map { start, pages, .. } => format!("map {pages} at {start:#x}"),
        Event::Unmap { pages, .. } => format!("unmap {pages}"),
        Event::Idle { microseconds } => format!("idle {microseconds}"),
        Event::Rewrite { start, pages } => format!("rewrite {pages} at {start:#x}"),
        Event::Exit => "exit".into(),
        other => panic!("{other:?}"),
    };
    let of = stream(text).1.into_iter().filter(|(_, event)| !matches!(event, Event::Switch { .. }));
    of.map(|(at, event)| (at, word(&event))).collect()
}

fn of(words: &[(usize, &str)]) -> Vec<(usize, String)> {
    words.iter().map(|(at, word)| (*at, word.to_string())).collect()
}

#[test]
fn fill_writes_a_share_of_its_pages() {
    let all = counts("fill:bytes=1M");
    assert_eq!((all.runs, all.references, all.events), (256, 256 * 512, 3));
    let (runs, _) = stream("fill:bytes=1M,share=0.25");
    let expected: Vec<Run> = (0..64).map(|i| Run::new((1 << 18) + 4 * i + 3, Access::Write, 512, 1536)).collect();
    assert_eq!(runs, expected);
    assert_eq!(words("fill:bytes=100M"), of(&[(0, "map 25600 at 0x40000"), (25600, "exit")]));
}

#[test]
fn seek_maps_touches_and_unmaps() {
    let round = |at| [(at, "map 256 at 0x40000"), (at + 256, "unmap 256"), (at + 256, "idle 200000")];
    let expected = [&round(0)[..], &round(256), &[(512, "exit")]].concat();
    assert_eq!(words("seek:times=2"), of(&expected));
    let (runs, _) = stream("seek:times=2");
    assert!(runs.iter().enumerate().all(|(i, r)| *r == Run::new((1 << 18) + i as u64 % 256, Access::Write, 1, 4)));
}

#[test]
fn what_is_idle_gives_up_its_turn() {
    // Three rounds of 2 touches, a pause after each: in a mix each pause is 100 touches of the other.
    let text = "seek:bytes=8K,times=3 + stride:touches=250,step=4K @slice=100";
    let places: Vec<_> = stream(text)
        .1
        .iter()
        .filter_map(|(at, event)| if let Event::Switch { process, .. } = event { Some((*at, process.0)) } else { None })
        .collect();
    assert_eq!(places, [(0, 0), (2, 1), (102, 0), (104, 1), (204, 0), (206, 1), (256, 0)]);
    assert!(words(text).iter().all(|(_, word)| !word.starts_with("idle")));
    // Alone in the end, it is idle.
    let late = words("seek:bytes=8K,times=3 + stride:touches=50,step=4K @slice=100");
    assert_eq!(late.iter().filter(|(_, word)| word == "idle 200000").count(), 2);
}

#[test]
fn cmp_reads_both_files_side_by_side() {
    let counts = counts("cmp:bytes=10000");
    assert_eq!((counts.references, counts.instructions), (20_000, 80_000));
    let (runs, _) = stream("cmp:bytes=10000");
    let expected: Vec<Run> = [(0, 4096), (1, 4096), (2, 1808)]
        .into_iter()
        .flat_map(|(page, count)| [1 << 18, 2 << 18].map(|at| Run::new(at + page, Access::Read, count, 4 * count)))
        .collect();
    assert_eq!(runs, expected);
    let begin = [(0, "open 0 of 3"), (0, "map 3 at 0x40000"), (0, "open 1 of 3"), (0, "map 3 at 0x80000")];
    let end = [(6, "unmap 3"), (6, "close 0"), (6, "unmap 3"), (6, "close 1"), (6, "exit")];
    assert_eq!(words("cmp:bytes=10000"), of(&[&begin[..], &end].concat()));
}

#[test]
fn dirty_file_writes_one_page_of_each_largest_superpage() {
    let (runs, _) = stream("dirty-file");
    let page = 1 << 18;
    let reads = (0..25_600).map(|i| Run::new(page + i, Access::Read, 1, 4));
    let writes = (0..25).map(|i| Run::new(page + 1024 * i, Access::Write, 1, 4));
    assert_eq!(runs, reads.chain(writes).collect::<Vec<_>>());
    let end = [(25_625, "sync"), (25_625, "unmap 25600"), (25_625, "close 0"), (25_625, "exit")];
    let begin = [(0, "open 0 of 25600"), (0, "map 25600 at 0x40000")];
    assert_eq!(words("dirty-file"), of(&[&begin[..], &end].concat()));
    // A share of the writes, each between two rewrites, stores what is there.
    let same = words("dirty-file:bytes=1M,every=2,same=1");
    let rewrites: Vec<_> = same.iter().filter(|(_, word)| word.starts_with("rewrite")).cloned().collect();
    assert_eq!(rewrites.len(), 2 * 64);
    assert_eq!(rewrites[2..4], of(&[(257, "rewrite 2 at 0x40004"), (258, "rewrite 0 at 0x0")]));
    let some = words("dirty-file:bytes=16M,every=1,same=0.25");
    let some = some.iter().filter(|(_, word)| word.starts_with("rewrite 2")).count();
    assert!((440..=584).contains(&some), "{some} of 2048, expected a quarter");
}

/// The files that a web server maps, each with where, and the greatest number of files that were open at once.
fn served(text: &str) -> (Vec<(u32, u64, u64)>, usize) {
    let (mut maps, mut open, mut most) = (Vec::new(), HashSet::new(), 0);
    for (_, event) in stream(text).1 {
        match event {
            Event::Map { start, pages, backing: Backing::File { file, offset: 0, .. }, shared: true, .. } => {
                maps.push((file, start, pages));
            }
            Event::Open { file, .. } => assert!(open.insert(file), "{file} is open already"),
            Event::Close { file } => assert!(open.remove(&file), "{file} is not open"),
            _ => {}
        }
        most = most.max(open.len());
    }
    (maps, most)
}

#[test]
fn web_keeps_what_it_maps() {
    let (all, open) = served("web:requests=3K");
    let files: HashSet<u32> = all.iter().map(|(file, ..)| *file).collect();
    // Each file once, and the log.
    assert_eq!((all.len(), open), (files.len(), files.len() + 1));
    assert!((1000..2500).contains(&files.len()), "{} files", files.len());
    // Each aligned to whatever superpage is no larger.
    assert!(all.iter().all(|(_, start, pages)| start.is_multiple_of(1 << pages.ilog2())));
    let (few, open) = served("web:requests=3K,kept=50");
    assert!(few.len() > all.len());
    // The log, those kept, and the one that comes before another goes.
    assert_eq!(open, 52);
}

#[test]
fn web_requests_are_one_sequence() {
    // What is read: the runs of reads alone, as lengths. The files' pages differ as their addresses do.
    let reads = |text: &str| -> Vec<u32> {
        stream(text).0.iter().filter(|run| run.access() == Access::Read).map(|run| run.references).collect()
    };
    let (whole, first, second) =
        (reads("web:requests=900"), reads("web:requests=400"), reads("web:first=400,requests=500"));
    assert_eq!(whole, [first, second].concat());
    assert_ne!(whole, reads("web:requests=900,seed=2"));
}

#[test]
fn web_writes_its_log_and_takes_kernel_memory() {
    let sums = |text: &str| {
        stream(text).1.iter().fold((Vec::new(), 0), |(mut log, wired), (_, event)| match event {
            Event::Write { start, pages, .. } => {
                log.extend(*start..start + pages);
                (log, wired)
            }
            Event::Wire { pages } => (log, wired + pages),
            _ => (log, wired),
        })
    };
    assert_eq!(sums("web:requests=2K"), ((0..48).collect(), 80));
    assert_eq!(sums("web:requests=2K,first=3K,wired=7"), ((73..122).collect(), 14));
    assert_eq!(sums("web:requests=1K,wired=0").1, 0);
}

#[test]
fn c4_clears_its_table_and_searches() {
    let note = |text: &str| {
        let events = stream(text).1;
        events.iter().find_map(|(_, e)| if let Event::Note(note) = e { Some(note.clone()) } else { None }).unwrap()
    };
    // The player to move wins at once: one node, whose frame is 16 words.
    let clear = (4 * 1_050_011_u64).div_ceil(8) + 1_050_011_u64.div_ceil(8);
    let won = counts("c4:position=121212");
    assert_eq!((won.references, won.instructions), (12 * 64 + clear + 16, 12 * 256 + 3 * clear + 150 + 16));
    assert_eq!(note("c4:position=121212"), "c4: the position is won for the player to move, after 1 nodes");
    assert_eq!(note("c4:nodes=5K"), "c4: the position is still open for the player to move, after 5000 nodes");
    // The search goes all over the pages of the table.
    let (runs, _) = stream("c4:nodes=50K");
    let pages: HashSet<u64> = runs.iter().filter(|run| run.access() == Access::Read).map(|run| run.page()).collect();
    assert!(pages.len() > 1200, "{} of 1283 pages", pages.len());
}

#[test]
fn sp_touches_each_element_as_often_as_its_loops_do() {
    for (n, steps) in [(8, 1), (13, 2), (36, 1)] {
        let (all, inner, line) = (n * n * n, (n - 2_u64).pow(3), (n - 2) * (n - 2));
        // The speeds and squares, and the copy of forcing.
        let prepared = (5 + 8 + 10) * all;
        // In each direction: fluxes, from 11 arrays at 3 points, and dissipation, from 5 points but where they lie outside.
        let fluxes = (5 + 11 * 3 + 5) * inner;
        let dissipation = 5 * ((1 + 3 + 1) * inner + 2 * (n - 3) * line);
        // In each direction: lines, lhs, its factors, elimination, substitution, product.
        let lines = line * (4 * n + 10 * (n - 2));
        let elimination = (9 + 9 + 6 + 9) + 2 * (9 + 3 + 6 + 3);
        let solved = lines + (10 + 17 + elimination + 5 * 6 + 10) * inner;
        let rest = (10 + 17 + 6 + 15) * inner;
        let start = 12 * 64 + 38 * (n / 2 * 2 + 1).pow(3) + 26 * n;
        let expected = start + steps * (prepared + 3 * (fluxes + dissipation + solved) + rest);
        let counts = counts(&format!("sp:n={n},steps={steps}"));
        assert_eq!(counts.references, expected, "n = {n}");
        assert_eq!(counts.instructions, 12 * 256 + 3 * (start - 12 * 64) + 2 * (expected - start));
    }
}

#[test]
fn sp_misses_along_the_farthest_lines() {
    // 34 * 34 lines, of two arrays at 36 points and five at 34.
    let misses = Tlb::misses("sp:steps=2") - Tlb::misses("sp:steps=1");
    let lines = 34 * 34 * (36 * 2 + 34 * 5);
    assert!((lines..lines + 25_000).contains(&misses), "{misses}, of them {lines} along lines");
}

#[test]
fn tree_runs_its_mix_of_operations() {
    let built = counts("tree:nodes=2K,operations=0");
    let done = counts("tree:nodes=2K,operations=1K");
    // 20 traversals, give or take: 8 loads of the record and about 4 of fields for each of 2000 nodes, and 1000 others.
    let traversals = (done.references - built.references) / (2000 * 12);
    assert!((10..32).contains(&traversals), "{traversals}");
    assert_eq!(done.instructions, 3 * (done.references - 12 * 64) + 12 * 256);
    // 2000 nodes of 64 bytes and records of 128: 375 KB, in 16 and 32 pages of 8 KB.
    let grown: Vec<_> = stream("tree:nodes=2K,operations=0")
        .1
        .into_iter()
        .filter_map(|(_, event)| match event {
            Event::Grow { pages, .. } => Some(pages),
            _ => None,
        })
        .collect();
    assert_eq!(grown, (2..=48).map(|pages| pages * 2).collect::<Vec<_>>());
}

#[test]
fn a_wrong_text_is_refused_in_one_sentence() {
    for (text, says) in [
        ("matrx", "no such workload; expected one of matrix, tree, fftw, touch"),
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
        ("seek:idle=5", "a time in us, ms or s"),
        ("dirty-file:page=6K", "a multiple of 4K"),
        ("stride:step=16T,touches=2", "at most 16T"),
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

#[test]
fn the_matrices_lie_as_in_table_1() {
    // The aligned extents of whole 4M, 512K, 64K and 8K within the heap: 3, 5 and 12 superpages.
    let (_, events) = stream("matrix:n=1000,rounds=1");
    let mut heap = events.iter().filter_map(|(_, event)| match event {
        Event::Map { start, growth: Growth::Up, .. } => Some(*start),
        _ => None,
    });
    let mut end = events.iter().filter_map(|(_, event)| match event {
        Event::Grow { start, pages } => Some(start + pages),
        _ => None,
    });
    let (mut at, end) = (heap.next_back().unwrap(), end.next_back().unwrap());
    let mut extents = [0; 4];
    while at < end {
        let fits = |pages: &u64| at.is_multiple_of(*pages) && at + pages <= end;
        let size = [1024, 128, 16, 2].iter().position(fits).unwrap();
        extents[size] += 1;
        at += [1024, 128, 16, 2][size];
    }
    assert_eq!(extents, [3, 5, 12, 2]);
}

/// A TLB of 128 entries for pages of 8 KB, the oldest replaced: the Alpha's.
struct Tlb {
    entries: [u64; 128],
    next: usize,
    misses: u64,
}

impl Tlb {
    fn misses(text: &str) -> u64 {
        let mut tlb = Tlb { entries: [0; 128], next: 0, misses: 0 };
        for run in stream(text).0.iter().filter(|run| run.access() != Access::Execute) {
            let page = run.page() / 2;
            if !tlb.entries.contains(&page) {
                tlb.entries[tlb.next] = page;
                tlb.next = (tlb.next + 1) % 128;
                tlb.misses += 1;
            }
        }
        tlb.misses
    }
}

#[test]
fn a_transposition_misses_once_for_two_references() {
    let misses = Tlb::misses("matrix:n=1000,rounds=2") - Tlb::misses("matrix:n=1000,rounds=1");
    assert!((960_000..=1_000_000).contains(&misses), "{misses} for 2 M references");
}

/// A small workload with arbitrary parameters.
fn any_workload() -> impl Strategy<Value = String> {
    let (a, b, c) = (1..60_u64, 1..4_u64, 0..3000_u64);
    (0..15_usize, a, b, c).prop_map(|(kind, a, b, c)| match kind {
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
        // The switches between turns and the marks before the groups are new, and idle time may go; nothing else does.
        prop_assert!(mixed.events + 12 >= events);
        let ignored = |event: &Event| matches!(event, Event::Switch { .. } | Event::Mark(_) | Event::Idle { .. });
        let others = |text: &str| stream(text).1.iter().filter(|(_, event)| !ignored(event)).count();
        let apart: usize = groups.iter().flat_map(|(workloads, _)| workloads).map(|text| others(text)).sum();
        prop_assert_eq!(others(&text), apart);
    }
}
