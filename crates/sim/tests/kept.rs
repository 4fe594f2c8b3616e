//! Runs kept in files, group by group, and put together again are the grid's own.

use std::sync::atomic::AtomicBool;
use superpage_sim::{Conditions, Kept, Run, Setup, Watch, compare, groups, keep, plan, run_parts};
use superpage_trace::{Sample, Sampling, Source, workload};

fn runs(setups: &[Setup], source: &mut dyn Source, watch: &Watch) -> Vec<Run> {
    run_parts(setups, source, &AtomicBool::new(false), &|_| {}, watch).unwrap()
}

fn again(
    machines: &[&str],
    policies: &[&str],
    conditions: &Conditions,
    watch: &Watch,
    source: &dyn Fn() -> Box<dyn Source>,
) {
    let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
    let setups = plan(&names(machines), &names(policies), conditions).unwrap();
    let whole = runs(&setups, source().as_mut(), watch);
    let folder = tempfile::tempdir().unwrap();
    let mut parts: Vec<Option<Run>> = vec![None; setups.len()];
    for group in groups(&setups, watch) {
        let members: Vec<Setup> = group.iter().map(|place| setups[*place].clone()).collect();
        let path = folder.path().join("kept");
        std::fs::write(&path, keep(&runs(&members, source().as_mut(), watch), &[("seconds", "1.5".into())]).unwrap())
            .unwrap();
        let Kept { runs, notes } = Kept::read(std::fs::read(&path).unwrap()).unwrap();
        assert!(notes.contains(&("seconds".into(), "1.5".into())), "{notes:?}");
        group.iter().zip(runs).for_each(|(place, run)| parts[*place] = Some(run));
    }
    let mut parts: Vec<Run> = parts.into_iter().flatten().collect();
    compare(&mut parts);
    let rows = |runs: &[Run]| runs.iter().map(|run| run.row.clone()).collect::<Vec<_>>();
    assert_eq!(rows(&parts), rows(&whole));
    let json = |runs: &[Run]| serde_json::to_string(&rows(runs)).unwrap();
    assert_eq!(json(&parts), json(&whole));
}

#[test]
fn groups_run_and_kept_apart_are_the_grid() {
    let (conditions, watch) = (Conditions::default(), Watch::default());
    let sampled = || -> Box<dyn Source> {
        let sampling = Sampling { on: 2100, period: 20_000, seed: Some(1) };
        Box::new(Sample::new(workload::parse("zipf:bytes=32M,references=150K").unwrap(), sampling))
    };
    again(&["harpertown", "zen5", "skylake-sp"], &["reservation", "thp", "promote"], &conditions, &watch, &sampled);
    let short = Conditions {
        memory: Some(16 << 20),
        fragment: "2M:0.3".parse().unwrap(),
        seed: 7,
        host_policies: vec!["thp".into()],
        ..Conditions::default()
    };
    let watched = Watch { contiguity: true, ..watch };
    let random = || workload::parse("random:bytes=24M,references=30K").unwrap();
    again(&["zen5+nested"], &["thp", "reservation"], &short, &watched, &random);
    let lines = Watch { lines: true, ..watch };
    let with_lines = || workload::parse_lines("sequential:bytes=1M").unwrap();
    again(&["zen5", "zen5+shadow"], &["thp"], &conditions, &lines, &with_lines);
}

#[test]
fn what_was_not_kept_is_no_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("not");
    std::fs::write(&path, "PAR1 or not").unwrap();
    assert!(Kept::read(std::fs::read(&path).unwrap()).is_err());
    let rows = superpage_sim::run(
        &plan(&["zen5".into()], &[], &Conditions::default()).unwrap(),
        workload::parse("touch:bytes=64K").unwrap().as_mut(),
        &AtomicBool::new(false),
        &|_| {},
    );
    let mut bytes = Vec::new();
    superpage_sim::write(&rows.unwrap(), superpage_sim::Format::Parquet, superpage_report::Screen::of(100), &mut bytes)
        .unwrap();
    std::fs::write(&path, bytes).unwrap();
    assert!(Kept::read(std::fs::read(&path).unwrap()).unwrap_err().contains("checksum is missing or wrong"));
}
