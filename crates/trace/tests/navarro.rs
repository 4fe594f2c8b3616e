//! The programs of Navarro et al.: what each does, counted exactly.

use crate::streams;

use std::collections::HashSet;
use streams::{counts, stream};
use superpage_pages::Access;
use superpage_trace::{Backing, Event, Growth, Run};

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
    // n = 64: arrays of 4 MB; the first line of each dimension, seen in the array where it is
    // gathered and scattered.
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
    let idle = words("dirty-file:bytes=1M,every=2,idle=3").into_iter().find(|(_, word)| word.starts_with("idle"));
    assert_eq!(idle.expect("the processor idles").0, 256, "after the reads");
    let some = words("dirty-file:bytes=16M,every=1,same=0.25");
    let some = some.iter().filter(|(_, word)| word.starts_with("rewrite 2")).count();
    assert!((440..=584).contains(&some), "{some} of 2048, expected a quarter");
}

/// The files that a web server maps, each with where, and the greatest number of files that were
/// open at once.
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
    // What is read: the runs of reads alone, as lengths. The files' pages differ as their addresses
    // do.
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
        // In each direction: fluxes, from 11 arrays at 3 points, and dissipation, from 5 points but
        // where they lie outside.
        let fluxes = (5 + 11 * 3 + 5) * inner;
        let dissipation = 5 * ((1 + 3 + 1) * inner + 2 * (n - 3) * line);
        // In each direction: lines, lhs, its factors, elimination, substitution, product.
        let lines = line * (4 * n + 10 * (n - 2));
        let elimination = (9 + 9 + 6 + 9) + 2 * (9 + 3 + 6 + 3);
        let solved = lines + (10 + 17 + elimination + 5 * 6 + 10) * inner;
        let rest = (10 + 17 + 6 + 15) * inner;
        let start = 12 * 64 + 38 * all + 26 * n;
        let expected = start + steps * (prepared + 3 * (fluxes + dissipation + solved) + rest);
        let counts = counts(&format!("sp:n={n},steps={steps}"));
        assert_eq!(counts.references, expected, "n = {n}");
        assert_eq!(counts.instructions, 12 * 256 + 3 * (start - 12 * 64) + 2 * (expected - start));
    }
}

#[test]
fn sp_touches_no_padding() {
    // Of each array the last of 37 planes of 37 * 37 * 8 bytes; the padding of rows is never a page
    // alone.
    let (runs, events) = stream("sp:steps=1");
    let touched: HashSet<u64> = runs.iter().map(|run| run.page()).collect();
    let mut mapped = events.iter().filter_map(|(_, event)| match event {
        Event::Map { start, pages, .. } if *pages > 3000 => Some(*start),
        _ => None,
    });
    let first = mapped.next_back().expect("the arrays");
    for array in 0..38 {
        let plane = first * 4096 + (array * 37 + 36) * 37 * 37 * 8;
        let within = plane.div_ceil(4096)..(plane + 37 * 37 * 8) / 4096;
        assert!(
            !within.is_empty() && within.clone().all(|page| !touched.contains(&page)),
            "{within:?} of array {array}"
        );
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
    // 20 traversals, give or take: 8 loads of the record and about 4 of fields for each of 2000
    // nodes, and 1000 others.
    let traversals = (done.references - built.references) / (2000 * 12);
    assert!((10..32).contains(&traversals), "{traversals}");
    assert_eq!(done.instructions, 3 * (done.references - 12 * 64) + 12 * 256);
    // 2000 nodes and records of 128 bytes each: 500 KB, in 63 pages of 8 KB.
    let grown: Vec<_> = stream("tree:nodes=2K,operations=0")
        .1
        .into_iter()
        .filter_map(|(_, event)| match event {
            Event::Grow { pages, .. } => Some(pages),
            _ => None,
        })
        .collect();
    assert_eq!(grown, (2..=63).map(|pages| pages * 2).collect::<Vec<_>>());
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
