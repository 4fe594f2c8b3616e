//! The built-in workloads: exact counts, the rules of a stream, and the same stream every time.

use superpage_pages::Access;
use superpage_trace::{Batch, Counts, Event, Run, check_stream, workload};

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

#[test]
fn the_smallest_of_each_kind_keeps_the_rules() {
    for text in ["matrix:n=1,rounds=2", "touch:bytes=1", "stride:touches=1", "random:bytes=4K,references=10"] {
        assert!(counts(text).references > 0, "{text}");
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
fn a_wrong_text_is_refused_in_one_sentence() {
    for (text, says) in [
        ("matrx", "no such workload; expected one of matrix, touch"),
        ("", "no such workload"),
        ("matrix:m=3", "matrix has no parameter \"m\"; it has n, rounds, heap"),
        ("matrix:n", "expected key=value"),
        ("matrix:n=0", "expected a count from 1"),
        ("matrix:n=1,n=2", "given twice"),
        ("matrix:n=9999999", "to 25000"),
        ("matrix:heap=97K", "a multiple of 8K"),
        ("touch:bytes=1.5M", "expected a size from 1 to 16T bytes"),
        ("touch:access=maybe", "expected write or read"),
        ("random:seed=x", "a whole number"),
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
}

#[test]
fn a_resumed_process_fetches_where_it_was() {
    let alone = counts("matrix:n=100,rounds=1");
    let both = counts("matrix:n=100,rounds=1+matrix:n=100,rounds=1@slice=1K");
    assert_eq!(both.references, 2 * alone.references);
    // About 31 K references each in turns of 1 K: a fetch for each switch back.
    assert!((60..=64).contains(&(both.fetches - 2 * alone.fetches)), "{}", both.fetches - 2 * alone.fetches);
}
