//! Estimates from a sample against the exact counts of the whole stream.

use std::sync::atomic::AtomicBool;
use superpage_sim::{Conditions, Format, Row, plan, run, write};
use superpage_trace::{Sample, Sampling, Source, workload};

fn rows_in(machine: &str, source: &mut dyn Source, conditions: &Conditions) -> Vec<Row> {
    let setups = plan(&[machine.into()], &["reservation".into()], conditions).unwrap();
    run(&setups, source, &AtomicBool::new(false), &|_| {}).unwrap()
}

fn rows(machine: &str, source: &mut dyn Source) -> Vec<Row> {
    rows_in(machine, source, &Conditions::default())
}

fn sample(text: &str, on: u64, period: u64, seed: u64) -> Sample {
    Sample::new(workload::parse(text).unwrap(), Sampling { on, period, seed: Some(seed) })
}

/// Two of these are loops on one page of code, whose fetches are one run for long.
const PROGRAMS: [&str; 4] =
    ["matrix:n=60", "tree:nodes=2K,operations=500", "zipf:bytes=32M,references=400K", "chase:bytes=8M,references=400K"];

#[test]
fn intervals_hold_the_truth_about_as_often_as_they_say() {
    let (samplings, mut held) = (25, [0; 3]);
    for text in PROGRAMS {
        let exact = rows("alpha-21264", workload::parse(text).unwrap().as_mut());
        let mut of_program = [0; 3];
        for seed in 0..samplings {
            let estimates = rows("alpha-21264", &mut sample(text, 4000, 20_000, seed));
            let (own, compared) = (estimates[0].sampled.as_ref().unwrap(), estimates[1].sampled.as_ref().unwrap());
            let within = |exact: f64, value: f64, error: Option<f64>| (value - exact).abs() <= error.unwrap() + 1e-9;
            let (base, other) = (&exact[0], &exact[1]);
            let misses = (base.tlb_misses as f64, estimates[0].tlb_misses as f64);
            of_program[0] += usize::from(within(misses.0, misses.1, own.tlb_misses_error.map(|error| error + 0.5)));
            let fewer = |row: &Row| row.tlb_miss_reduction_percent.unwrap();
            let error = compared.tlb_miss_reduction_percent_error;
            of_program[1] += usize::from(within(fewer(other), fewer(&estimates[1]), error));
            let speedup = |row: &Row| row.speedup.unwrap();
            of_program[2] += usize::from(within(speedup(other), speedup(&estimates[1]), compared.speedup_error));
        }
        println!("{text}: {of_program:?} of {samplings}");
        of_program.iter().zip(&mut held).for_each(|(one, all)| *all += one);
    }
    // 95 of 100 are expected; fewer than 86 come once in ten thousand times. `make coverage` looks closer.
    assert!(held.iter().all(|held| *held >= 86), "{held:?}");
}

#[test]
fn what_the_kernel_does_is_exact() {
    for text in PROGRAMS {
        let exact = rows("skylake-sp", workload::parse(text).unwrap().as_mut());
        let sampled = rows("skylake-sp", &mut sample(text, 4000, 20_000, 1));
        for (exact, estimate) in exact.iter().zip(&sampled) {
            let name = format!("{text} {}", exact.policy);
            assert_eq!(exact.faults, estimate.faults, "{name}");
            assert_eq!(exact.pages, estimate.pages, "{name}");
            assert_eq!(exact.promotions, estimate.promotions, "{name}");
            assert_eq!(exact.references, estimate.references, "{name}");
            assert_eq!(exact.instructions, estimate.instructions, "{name}");
            assert!(exact.sampled.is_none() && estimate.sampled.as_ref().unwrap().kernel_exact);
        }
    }
}

#[test]
fn nothing_is_claimed_to_be_exact_when_memory_is_short() {
    let (text, short) =
        ("random:bytes=16M,references=200K", Conditions { memory: Some(8 << 20), ..Conditions::default() });
    let exact = rows_in("skylake-sp", workload::parse(text).unwrap().as_mut(), &short);
    let sampled = rows_in("skylake-sp", &mut sample(text, 4000, 40_000, 1), &short);
    for (exact, estimate) in exact.iter().zip(&sampled) {
        // Pages that come back in gaps are not seen to come back.
        assert!(exact.faults > 2 * estimate.faults, "{} and {}", exact.faults, estimate.faults);
        let sampled = estimate.sampled.as_ref().unwrap();
        assert!(!sampled.kernel_exact && sampled.tlb_misses_error.is_none() && sampled.speedup_error.is_none());
    }
    let mut table = Vec::new();
    write(&sampled, Format::Table, superpage_report::Screen::of(100), &mut table).unwrap();
    let table = String::from_utf8(table).unwrap();
    assert!(table.contains("memory was short") && !table.contains(&sampled[0].faults.to_string()), "{table}");
}

#[test]
fn a_comparison_is_surer_than_what_it_compares() {
    let rows = rows("skylake-sp", &mut sample("zipf:bytes=64M,references=2M", 4000, 40_000, 3));
    let (base, other) = (rows[0].sampled.as_ref().unwrap(), rows[1].sampled.as_ref().unwrap());
    assert_eq!(base.tlb_miss_reduction_percent_error, Some(0.0));
    assert_eq!(base.speedup_error, Some(0.0));
    let relative = |error: Option<f64>, of: f64| error.unwrap() / of;
    let base_error = relative(base.cycles_error, rows[0].cycles as f64);
    let other_error = relative(other.cycles_error, rows[1].cycles as f64);
    let speedup = relative(other.speedup_error, rows[1].speedup.unwrap());
    assert!(speedup < base_error + other_error, "{speedup} of {base_error} and {other_error}");
}

#[test]
fn a_sample_of_everything_is_exact() {
    let text = "zipf:bytes=4M,references=100K";
    let exact = rows("zen4", workload::parse(text).unwrap().as_mut());
    let sampled = rows("zen4", &mut sample(text, 1_000_000_000, 1_000_000_000, 1));
    assert_eq!(exact, sampled);
}
