//! Rows over time: series, and policies whose time never came.

use crate::script::Script;
use std::sync::atomic::AtomicBool;
use superpage_pages::Access;
use superpage_report::Screen;
use superpage_sim::{Conditions, Every, Format, Row, Watch, plan, run_parts, series_page, write};
use superpage_trace::Event;

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
    assert_eq!(series.iter().map(|sample| sample.faults).collect::<Vec<_>>(), [0, 0, 4, 4, 4, 20, 20, 20]);
    assert!(series.is_sorted_by_key(|sample| sample.seconds));
    let page = series_page(&rows);
    assert!(page.contains("<title>process 0 ends</title>") && page.contains("thp on zen5"), "{page}");
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
