//! Rows over time: series, and policies whose time never came.

use crate::script::Script;
use std::sync::atomic::AtomicBool;
use superpage_pages::{Access, PageSize};
use superpage_report::Screen;
use superpage_sim::{Conditions, Every, Format, Row, Watch, plan, rows_page, run_parts, write};
use superpage_trace::{Batch, Error, Event, Info, Source, workload};

fn rows(script: &mut Script, policies: &[&str], every: Option<Every>) -> Vec<Row> {
    let policies: Vec<String> = policies.iter().map(ToString::to_string).collect();
    let conditions = Conditions { memory: Some(64 << 20), ..Conditions::default() };
    let setups = plan(&["zen5".into()], &policies, &conditions).unwrap();
    let watch = Watch { every, ..Watch::default() };
    let runs = run_parts(&setups, script, &AtomicBool::new(false), &|_| {}, &watch).unwrap();
    runs.into_iter().map(|run| run.row).collect()
}

#[test]
fn a_series_has_marks_and_ends_of_processes() {
    let rows = rows(&mut Script::large_then_small(), &["thp"], Some(Every::Instructions(1 << 40)));
    let series = rows[1].series.as_ref().unwrap();
    let said: Vec<&str> = series.iter().map(|sample| sample.event.as_deref().unwrap_or("due")).collect();
    assert_eq!(said, ["due", "large", "due", "process 0 ends", "small", "due", "process 1 ends", "end"]);
    let resident: Vec<u64> = series.iter().map(|sample| sample.resident_bytes >> 10).collect();
    assert_eq!(resident, [0, 0, 8192, 0, 0, 64, 0, 0]);
    let touched: Vec<u64> = series.iter().map(|sample| sample.touched_bytes >> 10).collect();
    assert_eq!(touched, [0, 0, 8192, 0, 0, 64, 0, 0], "nothing is left of a process that has ended");
    assert_eq!(series.iter().map(|sample| sample.faults).collect::<Vec<_>>(), [0, 0, 4, 4, 4, 20, 20, 20]);
    assert!(series.is_sorted_by_key(|sample| sample.seconds));
    let page = rows_page(&rows);
    assert!(page.contains("<title>process 0 ends</title>") && page.contains("thp on zen5"), "{page}");
    assert!(page.contains("<title>superpage sim: script on zen5</title>") && page.contains("<p>script: "), "{page}");
}

#[test]
fn a_background_that_never_ran_is_told() {
    let table = |policy: &str| {
        let mut script = Script::new();
        script.process(0);
        script.map(0x1000, 2048);
        script.touch(0x1000..0x1800, Access::Write);
        script.event(Event::Idle { microseconds: 1_000_000 });
        let rows = rows(&mut script, &[policy], None);
        let mut out = Vec::new();
        write(&rows, Format::Table, Screen::of(100), &mut out).unwrap();
        (rows[1].background_runs, String::from_utf8(out).unwrap().contains("its background never ran"))
    };
    assert_eq!(table("promote:interval=10s"), (Some(0), true));
    let (runs, said) = table("promote:interval=100ms");
    assert!(runs > Some(0) && !said, "{runs:?}");
    assert_eq!(table("thp"), (None, false));
}

/// A stream with a note after each run, at which samples are taken.
struct Apart(Box<dyn Source>);

impl Source for Apart {
    fn info(&self) -> &Info {
        self.0.info()
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        let mut inner = Batch::default();
        let more = self.0.fill(&mut inner)?;
        batch.clear();
        let mut events = inner.events.into_iter().peekable();
        for (number, run) in inner.runs.into_iter().enumerate() {
            while let Some((_, event)) = events.next_if(|(at, _)| *at as usize <= number) {
                batch.event(event);
            }
            batch.run(run);
            batch.event(Event::Note(String::new()));
        }
        events.for_each(|(_, event)| batch.event(event));
        Ok(more)
    }
}

/// Averages of a run are those of its state after each reference, which holds for the instructions
/// of it; and so are those of parts.
#[test]
fn averages_over_time_are_those_of_samples_at_each_reference() {
    for (workload, memory) in [
        ("touch:bytes=3M,rounds=2;zipf:bytes=4M,references=2K,populate=no", 64 << 20),
        ("random:bytes=4M,references=3K,populate=no", 3 << 20),
        ("store:bytes=4M,reads=500", 64 << 20),
    ] {
        let run = |source: &mut dyn Source, every| {
            let policies = ["thp", "reservation", "freebsd"].map(String::from);
            let conditions = Conditions { memory: Some(memory), ..Conditions::default() };
            let setups = plan(&["zen5".into(), "alpha-21264".into()], &policies, &conditions).unwrap();
            run_parts(&setups, source, &AtomicBool::new(false), &|_| {}, &Watch { every, ..Watch::default() }).unwrap()
        };
        let whole = run(workload::parse(workload).unwrap().as_mut(), None);
        let apart = run(&mut Apart(workload::parse(workload).unwrap()), Some(Every::Instructions(1)));
        for (whole, apart) in whole.into_iter().zip(apart) {
            let (row, series) = (whole.row, apart.row.series.unwrap());
            let (mut resident, mut touched, mut mapped, mut huge) = (0, 0, 0, 0);
            for pair in series.windows(2) {
                let spent = pair[1].instructions - pair[0].instructions;
                let base = pair[1].pages[0].0;
                let of = |wanted: &dyn Fn(PageSize) -> bool| -> u64 {
                    let those = pair[1].pages.iter().filter(|(size, _)| wanted(*size));
                    those.map(|(size, pages)| size.bytes() * pages).sum()
                };
                resident += pair[1].resident_bytes * spent;
                touched += pair[1].touched_bytes * spent;
                mapped += of(&|_| true) * spent;
                huge += of(&|size| size > base) * spent;
            }
            let name = format!("{workload} {} {}", row.machine, row.policy);
            assert!(series.len() > 500 && touched > 0, "{name}: {}", series.len());
            let bloat = 100.0 * (resident as f64 / touched as f64 - 1.0);
            let same = |ours: Option<f64>, theirs: f64| (ours.unwrap() - theirs).abs() < 1e-9;
            assert!(same(row.mean_bloat_percent, bloat), "{name}: {:?} {bloat}", row.mean_bloat_percent);
            let share = 100.0 * huge as f64 / mapped as f64;
            assert!(same(row.mean_huge_percent, share), "{name}: {:?} {share}", row.mean_huge_percent);
            assert_eq!(series.iter().map(|sample| sample.touched_bytes).max(), Some(row.peak_touched_bytes), "{name}");
        }
    }
}

/// The first run that begins at or after each multiple of a step has a sample before it, wherever
/// traps and events are.
#[test]
fn samples_are_at_each_step_of_instructions() {
    const WORKLOAD: &str = "zipf:bytes=1M,references=3K;random:bytes=1M,references=500,populate=no";
    let (mut batch, mut begun, mut starts) = (Batch::default(), 0, Vec::new());
    let mut source = workload::parse(WORKLOAD).unwrap();
    while source.fill(&mut batch).unwrap() {
        for run in &batch.runs {
            starts.push(begun);
            begun += u64::from(run.instructions);
        }
    }
    // The others are told of each miss.
    let policies = [(1, "thp"), (7, "thp"), (100, "thp"), (1000, "thp"), (100_000, "thp")];
    let told = ["romer", "pcc", "leshy", "hybrid"].map(|policy| (1000, policy));
    for (step, policy) in policies.into_iter().chain(told).chain([(1, "romer"), (100_000, "pcc")]) {
        let setups = plan(&["zen5".into()], &[policy.into()], &Conditions::default()).unwrap();
        let watch = Watch { every: Some(Every::Instructions(step)), ..Watch::default() };
        let mut source = workload::parse(WORKLOAD).unwrap();
        let runs = run_parts(&setups, source.as_mut(), &AtomicBool::new(false), &|_| {}, &watch).unwrap();
        let (row, series) = (&runs[1].row, runs[1].row.series.as_ref().unwrap());
        let (mut due, mut expected) = (step, Vec::new());
        for start in starts.iter().filter(|start| **start > 0) {
            if *start >= due {
                expected.push(*start);
                due = (start / step + 1) * step;
            }
        }
        let mut at: Vec<u64> = series.iter().map(|sample| sample.instructions).collect();
        assert!(at.is_sorted() && at.last() == Some(&row.instructions) && begun == row.instructions);
        at.dedup();
        // Beside those that are due there are those of marks and ends.
        let missing: Vec<&u64> = expected.iter().filter(|due| at.binary_search(due).is_err()).take(3).collect();
        assert!(missing.is_empty() && at.len() < expected.len() + 10, "{step}, {policy}: {missing:?}");
        assert!(series.is_sorted_by_key(|sample| (sample.seconds, sample.faults)), "{step}, {policy}");
        assert!(series.iter().all(|sample| sample.touched_bytes <= sample.resident_bytes), "{step}, {policy}");
    }
}
