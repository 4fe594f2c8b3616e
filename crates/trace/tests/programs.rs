//! The workloads that are programs of a field: `gups`, `graph`, `kv`, `btree`, `xsbench`. What they
//! do to memory, against brute force; what each keeps of its structures is tested beside it.

use crate::streams::stream;

use std::collections::{BTreeMap, BTreeSet};
use superpage_pages::Access;
use superpage_trace::{Event, Run, workload};

/// The runs of each part of a stream, by the name of its mark.
fn parts(text: &str) -> Vec<(String, Vec<Run>)> {
    let (runs, events) = stream(text);
    let marks = events.into_iter().filter_map(|(at, event)| match event {
        Event::Mark(name) => Some((at, name)),
        _ => None,
    });
    let marks: Vec<_> = marks.collect();
    let ends = marks.iter().skip(1).map(|(at, _)| *at).chain([runs.len()]);
    marks.iter().zip(ends).map(|((at, name), end)| (name.clone(), runs[*at..end].to_vec())).collect()
}

/// All references of some runs.
fn references(runs: &[Run]) -> u64 {
    runs.iter().map(|run| u64::from(run.references)).sum()
}

#[test]
fn gups_updates_the_words_of_the_benchmarks_sequence() {
    for updates in [1_u64, 100, 128, 1000, 5001] {
        let parts = parts(&format!("gups:bytes=1M,updates={updates}"));
        let [(fill, filled), (update, updated)] = &parts[..] else { panic!("{} parts", parts.len()) };
        assert_eq!((&**fill, &**update, references(filled)), ("fill", "update", 1 << 17));
        // Each update is a read and a write of the same page, and pages alone are in the stream.
        let mut expected: BTreeMap<(u64, Access), u32> = BTreeMap::new();
        let mut element = 1_u64;
        for _ in 0..updates {
            element = (element << 1) ^ if (element as i64) < 0 { 7 } else { 0 };
            let page = (1 << 18) + (element & ((1 << 17) - 1)) / 512;
            *expected.entry((page, Access::Read)).or_default() += 1;
            *expected.entry((page, Access::Write)).or_default() += 1;
        }
        let mut found: BTreeMap<(u64, Access), u32> = BTreeMap::new();
        updated.iter().for_each(|run| *found.entry((run.page(), run.access())).or_default() += run.references);
        assert_eq!(found, expected, "{updates} updates");
    }
}

#[test]
fn what_a_store_drops_is_given_back() {
    // Values of a page: of 2000 keys 1500 go, and with them 1500 pages, and those of entries all of
    // whose slots are free.
    let resident = |text: &str| {
        let (runs, events) = stream(text);
        let mut events = events.into_iter().peekable();
        let mut pages = BTreeSet::new();
        for at in 0..=runs.len() {
            while let Some((_, event)) = events.next_if(|(before, _)| *before == at) {
                if let Event::Discard { start, pages: count } = event {
                    (start..start + count)
                        .for_each(|page| assert!(pages.remove(&page), "{text}: a page given back twice"));
                }
            }
            pages.extend(runs.get(at).map(|run| run.page()));
        }
        pages.len()
    };
    let kept = "kv:keys=2000,least=4K,most=4K,operations=0,drop=";
    // 4 pages of buckets, 16 of entries (128 in each), 2016 runs of 128 bytes of data.
    assert_eq!(resident(&format!("{kept}0")), 4 + 16 + 2000 + 63);
    assert_eq!(resident(&format!("{kept}0.75,discard=no")), 4 + 16 + 2000 + 63);
    // A page of entries is full of holes, but none of 16 is empty: 500 of 2000 are left at random.
    let left = resident(&format!("{kept}0.75"));
    assert!((4 + 16 + 500 + 63..=4 + 16 + 501 + 63).contains(&left), "{left}");
    assert!((4 + 1 + 1 + 63..=4 + 2 + 1 + 63).contains(&resident(&format!("{kept}1"))));
}

#[test]
fn a_graph_is_searched_as_often_as_said() {
    for (build, names) in [("yes", ["fill", "search"]), ("no", ["fill", "search"])] {
        let of = |roots: u64| parts(&format!("graph:scale=9,edges=8,roots={roots},build={build}"));
        let (none, two) = (of(0), of(2));
        assert_eq!([&*two[0].0, &*two[1].0], names);
        assert_eq!((references(&none[1].1), &none[0]), (0, &two[0]));
        // The parents are written twice, and most vertices are in one component, whose edges are
        // read twice.
        assert!(references(&two[1].1) > 2 * 512 + 2 * 2 * 8 * 512, "{}", references(&two[1].1));
    }
}

#[test]
fn a_btree_and_xsbench_fill_before_they_measure() {
    for (text, name) in
        [("btree:keys=900,operations=", "use"), ("xsbench:nuclides=68,gridpoints=5,lookups=", "look-up")]
    {
        let (none, some) = (parts(&format!("{text}0")), parts(&format!("{text}300")));
        assert_eq!([&*some[0].0, &*some[1].0], ["fill", name]);
        assert_eq!((references(&none[1].1), &none[0]), (0, &some[0]));
        assert!(some[1].1.iter().all(|run| run.access() == Access::Read), "{text}");
    }
    // In order: 68 grids of 5 points of 6 words, 340 energies, 340 rows of 68 entries, numbers and
    // concentrations.
    let filled = parts("xsbench:nuclides=68,gridpoints=5,lookups=0");
    assert_eq!(references(&filled[0].1), 340 * 6 + 340 + 340 * 68 + 12 * 34 * 3);
}

#[test]
fn what_a_workload_keeps_is_known_before_it_is_allocated() {
    for (text, least, most) in [
        ("gups:bytes=16G", 0, 0),
        ("graph:scale=26", 8 << 30, 10 << 30),
        ("kv:keys=10M", 400_000_000, 1 << 30),
        ("btree:keys=1G", 8_000_000_000, 20_000_000_000),
        ("xsbench", 64_000_000, 70_000_000),
        ("xsbench + graph:scale=26", 8 << 30, 10 << 30),
    ] {
        let memory = workload::parse(text).unwrap().info().memory;
        assert!((least..=most).contains(&memory), "{text}: {memory}");
    }
}
