//! Parts of a stream, samples over time, and processes that memory runs out for.

use crate::script;

use script::{Batches, Marked, Script, run_script};
use std::sync::atomic::AtomicBool;
use superpage_pages::Access;
use superpage_report::{KeyKind, Keys};
use superpage_sim::{Conditions, Every, Row, Run, Sample, Watch, plan, rows, run_parts};
use superpage_trace::{Event, Sampling, Source, Window, workload};

fn runs(source: &mut dyn Source, policies: &[&str], watch: Watch) -> Vec<Run> {
    let policies: Vec<String> = policies.iter().map(ToString::to_string).collect();
    let conditions = Conditions { memory: Some(64 << 20), ..Conditions::default() };
    let setups = plan(&["alpha-21264".into(), "zen5".into()], &policies, &conditions).unwrap();
    run_parts(&setups, source, &AtomicBool::new(false), &|_| {}, &watch).unwrap()
}

/// Whether a key of a row counts something, rather than to tell of the state at a moment.
fn counted(key: &str) -> bool {
    Row::KEYS.iter().any(|known| known.name == key && known.kind == KeyKind::Count)
}

#[test]
fn the_counts_of_the_parts_add_up_to_those_of_the_whole() {
    for workload in ["tree:nodes=2000,operations=20K", "touch:bytes=8M;zipf:bytes=4M,references=200K"] {
        let mut source = Marked::new(workload::parse(workload).unwrap(), 3);
        for run in runs(&mut source, &["reservation"], Watch::default()) {
            assert!(run.parts.len() > 1, "{workload}");
            let value = |row| serde_json::to_value(row).unwrap();
            let whole = value(&run.row);
            for (key, all) in whole.as_object().unwrap().iter().filter(|(key, _)| counted(key)) {
                let parts = run.parts.iter().map(|part| value(&part.row)[key].clone());
                if let Some(all) = all.as_u64() {
                    assert_eq!(parts.map(|part| part.as_u64().unwrap()).sum::<u64>(), all, "{workload}: {key}");
                } else if key == "promotions_by_size" {
                    for (size, all) in all.as_object().unwrap() {
                        let sum: u64 = parts.clone().map(|part| part[size].as_u64().unwrap()).sum();
                        assert_eq!(sum, all.as_u64().unwrap(), "{workload}: {size}");
                    }
                }
            }
            let starts: Vec<f64> = run.parts.iter().map(|part| part.start_seconds).collect();
            assert!(starts.is_sorted() && starts[0] == 0.0, "{starts:?}");
            let most = run.parts.iter().map(|part| part.row.peak_touched_bytes).max();
            assert_eq!(most, Some(run.row.peak_touched_bytes), "{workload}");
            let most = run.parts.iter().map(|part| part.row.page_table_bytes).max();
            assert_eq!(most, Some(run.row.page_table_bytes), "{workload}");
        }
    }
}

#[test]
fn what_is_cut_off_has_not_ended() {
    let window = |warmup, most| {
        let source = workload::parse("touch:bytes=16M").unwrap();
        runs(&mut Window::new(source, 0, warmup, Some(most)), &["reservation", "thp"], Watch::default())
    };
    let (first, both, second) = (window(0, 1024), window(0, 2048), window(1024, 1024));
    for ((first, both), second) in first.iter().zip(&both).zip(&second) {
        assert_eq!(both.row.instructions, 2048);
        assert_eq!(both.row.demotions, 0, "nothing was unmapped");
        assert_eq!(both.row.frames_leaked, 0);
        let value = |row| serde_json::to_value(row).unwrap();
        let (first, both, second) = (value(&first.row), value(&both.row), value(&second.parts.last().unwrap().row));
        for (key, all) in both.as_object().unwrap().iter().filter(|(key, all)| counted(key) && all.is_u64()) {
            let sum = first[key].as_u64().unwrap() + second[key].as_u64().unwrap();
            assert_eq!(sum, all.as_u64().unwrap(), "{key}");
        }
    }
}

#[test]
fn a_sampled_stream_has_no_parts() {
    // Estimates do not grow as counts do: the difference of two was below zero.
    let sampling = Sampling { on: 1000, period: 20_000, seed: Some(1) };
    let marked = Marked::new(workload::parse("touch:bytes=8M;zipf:bytes=4M,references=400K").unwrap(), 1);
    for run in runs(&mut superpage_trace::Sample::new(Box::new(marked), sampling), &["reservation"], Watch::default()) {
        assert!(run.parts.is_empty() && run.row.sampled.is_some() && run.row.error.is_none());
    }
}

#[test]
fn an_exit_is_one_flush_and_a_page_unmapped_one_shootdown() {
    let mut script = Script::new();
    script.process(0);
    script.map(0x1000, 1024);
    script.touch(0x1000..0x1400, Access::Write);
    script.event(Event::Unmap { start: 0x1200, pages: 512 });
    script.event(Event::Exec);
    script.map(0x1000, 512);
    script.touch(0x1000..0x1200, Access::Write);
    script.event(Event::Exit);
    let conditions = Conditions { memory: Some(64 << 20), ..Conditions::default() };
    for (policy, unmapped, promoted) in [("base", 512, 0), ("reservation", 1, 3), ("thp", 1, 0)] {
        let row = run_script(&mut script, "zen5", &[policy], &conditions).pop().unwrap();
        assert_eq!(row.shootdowns, unmapped + promoted + 2, "{policy}: two address spaces end");
    }
}

#[test]
fn what_a_batch_ends_with_is_what_the_next_one_begins_after() {
    // One page, as many others as push it out of every TLB, and the page again, each in a batch of
    // its own.
    let pieces = [0..1, 1..10_000, 0..1].map(|pages| {
        let mut script = Script::new();
        script.touch(0x1000 + pages.start..0x1000 + pages.end, Access::Read);
        script
    });
    let mut stream = Batches(pieces.into());
    let mut begin = Script::new();
    begin.process(0);
    begin.map(0x1000, 10_000);
    stream.0.insert(0, begin);
    for run in runs(&mut stream, &["base"], Watch::default()) {
        let pages = if run.row.machine == "zen5" { 10_000 } else { 5_000 };
        assert_eq!(run.row.dtlb_misses, pages + 1, "{}", run.row.machine);
        assert_eq!(run.row.peak_touched_bytes, 10_000 * 4096);
    }
}

#[test]
fn marks_change_no_row() {
    let workload = "zipf:bytes=4M,references=200K";
    let plain = runs(workload::parse(workload).unwrap().as_mut(), &["reservation"], Watch::default());
    let mut marked = Marked::new(workload::parse(workload).unwrap(), 2);
    let marked = runs(
        &mut marked,
        &["reservation"],
        Watch { every: Some(superpage_sim::Every::Seconds(0.001)), ..Watch::default() },
    );
    let bare = |runs: &[Run]| runs.iter().map(|run| Row { series: None, ..run.row.clone() }).collect::<Vec<_>>();
    assert_eq!(bare(&plain), bare(&marked));
}

#[test]
fn a_part_holds_the_pages_of_its_own_peak() {
    // The first part's superpages are none of the second's.
    let mut script = Script::large_then_small();
    let runs = runs(&mut script, &["reservation"], Watch::default());
    let pages = |part: usize| -> Vec<u64> { runs[1].parts[part].row.pages.iter().map(|(_, n)| *n).collect() };
    assert_eq!(runs[1].row.policy, "reservation");
    assert_eq!((pages(0), pages(1)), (vec![0, 0, 0, 2], vec![0, 1, 0, 0]));
    let made: Vec<u64> = runs[1].parts[1].row.promotions_by_size.iter().map(|(_, n)| *n).collect();
    assert_eq!(made, [1, 0, 0]);
    assert_eq!(
        runs[1].parts[1].row.speedup,
        Some(runs[0].parts[1].row.cycles as f64 / runs[1].parts[1].row.cycles as f64)
    );
    let named: Vec<String> = rows(runs, true).into_iter().map(|row| row.workload).collect();
    assert_eq!(named, [vec!["script"; 4], vec!["script/large"; 4], vec!["script/small"; 4]].concat());
}

#[test]
fn samples_tell_the_state_at_steps_of_modelled_time() {
    let mut script = Script::new();
    script.process(0);
    script.map(0x1000, 512);
    script.touch(0x1000..0x1200, Access::Write);
    script.event(Event::Idle { microseconds: 5_000_000 });
    script.event(Event::Unmap { start: 0x1000, pages: 512 });
    script.event(Event::Idle { microseconds: 5_000_000 });
    let run = &runs(&mut script, &["reservation"], Watch { every: Some(Every::Seconds(4.0)), ..Watch::default() })[1];
    let series = run.row.series.as_ref().unwrap();
    let [begin, full, end, last] = &series[..] else { panic!("at 0, 4 and 8 s, and the end: {series:?}") };
    assert_eq!(*last, Sample { event: Some("end".into()), seconds: last.seconds, ..end.clone() });
    assert_eq!((begin.seconds, begin.contiguity, begin.free_bytes), (0.0, 1.0, 64 << 20));
    let times = [(full, 4.0..4.00001), (end, 8.0..8.00001), (last, 10.0..10.1)];
    assert!(times.iter().all(|(sample, time)| time.contains(&sample.seconds)), "in the middle of idle time: {times:?}");
    assert_eq!(full.active_bytes, 2 << 20);
    assert_eq!(full.pages.iter().map(|(size, n)| size.bytes() * n).sum::<u64>(), 2 << 20);
    assert!(full.contiguity < 1.0);
    assert_eq!((end.contiguity, end.free_bytes, end.active_bytes), (1.0, 64 << 20, 0));
    assert!((run.row.idle_seconds, run.row.seconds < 1.0) == (10.0, true), "idle time is no work");
    let error = run_parts(
        &[],
        &mut Script::new(),
        &AtomicBool::new(false),
        &|_| {},
        &Watch { every: Some(Every::Seconds(0.0)), ..Watch::default() },
    );
    assert!(error.unwrap_err().to_string().contains("0 seconds"));
}

#[test]
fn swap_space_that_is_full_is_said_to_be() {
    let mut script = Script::new();
    script.process(0);
    script.map(0x1000, 2048);
    script.touch(0x1000..0x1800, Access::Write);
    for (swap, parts) in [
        (1 << 20, ["memory of 2.00 MB and the swap space of 1.00 MB full", "--swap"]),
        (0, ["no frame", "more memory"]),
    ] {
        let conditions = Conditions { memory: Some(2 << 20), swap: Some(swap), ..Conditions::default() };
        for row in run_script(&mut script, "zen5", &["base"], &conditions) {
            let error = row.error.as_deref().unwrap();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }
}

#[test]
fn memory_that_runs_out_ends_one_process_and_not_the_run() {
    // Process 0 takes 1 MB of the 2 MB and stays; process 1 wants 4 MB, and forks a child before;
    // process 2 comes later.
    let mut script = Script::new();
    script.process(0);
    script.map(0x1000, 256);
    script.touch(0x1000..0x1100, Access::Write);
    script.process(1);
    script.map(0x10000, 1024);
    script.touch(0x10000..0x10400, Access::Write);
    script.event(Event::Fork { child: superpage_trace::ProcessId(3) });
    script.event(Event::Unmap { start: 0x10000, pages: 1024 });
    script.process(3);
    script.touch(0x10000..0x10010, Access::Read);
    script.event(Event::Exit);
    script.process(1);
    script.event(Event::Exit);
    script.process(2);
    script.map(0x1000, 200);
    script.touch(0x1000..0x10c8, Access::Write);
    script.event(Event::Exit);
    script.process(0);
    script.touch(0x1000..0x1100, Access::Read);
    let conditions = Conditions { memory: Some(2 << 20), swap: Some(0), ..Conditions::default() };
    for row in run_script(&mut script, "zen5", &["base", "reservation"], &conditions) {
        let error = row.error.as_deref().unwrap();
        assert!(error.starts_with("process 1 was ended") && error.contains("page 0x10100"), "{error}");
        assert_eq!(error.matches("process").count(), 2, "one was ended, and its child never began: {error}");
        // 256 and 256 before the end, 200 and 256 after it; what process 1 still does is left out.
        assert_eq!(row.references, 256 + 256 + 200 + 256);
        assert_eq!(row.faults, 256 + 256 + 200);
        assert_eq!((row.frames_leaked, row.complete), (0, false));
    }
}

#[test]
fn references_before_a_process_is_ended_are_counted_exactly() {
    // On pages of 8 KB two pages of the stream make one request; memory of 64 pages of 8 KB holds
    // 128 of them.
    let mut script = Script::new();
    script.process(0);
    script.map(0x1000, 512);
    script.touch(0x1000..0x1200, Access::Write);
    let conditions = Conditions { memory: Some(64 * 8192), swap: Some(0), ..Conditions::default() };
    for row in run_script(&mut script, "alpha-21264", &["base", "reservation"], &conditions) {
        assert_eq!((row.references, row.faults), (128, 64));
    }
}
