//! How often the 95 % intervals of sampled estimates hold the truth:
//! `coverage [-n SAMPLINGS] MACHINE POLICY ON/PERIOD WORKLOAD|FILE.sp...`
//!
//! Each whole stream is simulated once, and then samplings of it with other places of windows, drawn from the seeds 1, 2,
//! and so on. A line a stream: the share of the samplings whose interval held the exact number of misses under `base`, and
//! the exact `fewer` and `speedup` of the policy; the mean of the estimates over the truth, and of the half width of their
//! intervals.

use rayon::prelude::*;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use superpage_sim::{Conditions, Row, Setup, plan, run};
use superpage_trace::file::Reader;
use superpage_trace::{Error, Sample, Sampling, Source, workload};

fn source(text: &str) -> Result<Box<dyn Source>, Error> {
    Ok(if text.ends_with(".sp") { Box::new(Reader::open(Path::new(text))?) } else { workload::parse(text)? })
}

fn rows(setups: &[Setup], mut source: Box<dyn Source>) -> Result<Vec<Row>, superpage_sim::Error> {
    run(setups, source.as_mut(), &AtomicBool::new(false), &|_| {})
}

/// A quantity: exact, and the estimates with their errors.
#[derive(Default)]
struct Quantity {
    exact: f64,
    /// What rounding to a whole number may change.
    rounding: f64,
    estimates: Vec<(f64, Option<f64>)>,
}

impl Quantity {
    /// The number of intervals that hold the truth.
    fn held(&self) -> usize {
        let within = |(value, error): &&(f64, Option<f64>)| {
            error.is_some_and(|e| (value - self.exact).abs() <= e + self.rounding)
        };
        self.estimates.iter().filter(within).count()
    }

    fn mean(&self) -> f64 {
        self.estimates.iter().map(|(value, _)| value).sum::<f64>() / self.estimates.len() as f64
    }

    fn mean_error(&self) -> f64 {
        self.estimates.iter().filter_map(|(_, error)| *error).sum::<f64>() / self.estimates.len() as f64
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let mut samplings = 200;
    if words.first().is_some_and(|word| word == "-n") {
        samplings = words.get(1).ok_or("a number of samplings")?.parse()?;
        words.drain(..2);
    }
    let [machine, policy, sampling, streams @ ..] = &words[..] else {
        return Err("coverage [-n SAMPLINGS] MACHINE POLICY ON/PERIOD WORKLOAD|FILE.sp...".into());
    };
    let (on, period) = sampling.split_once('/').ok_or("expected ON/PERIOD")?;
    let (on, period) = (superpage_pages::parse_count(on)?, superpage_pages::parse_count(period)?);
    let setups = plan(std::slice::from_ref(machine), std::slice::from_ref(policy), &Conditions::default())?;
    println!("{samplings} samplings of {on} of every {period} accesses; {machine}, {policy} against base");
    println!("{:28} {:^38} {:^23} {:^23}", "", "misses under base", "fewer, %", "speedup");
    let head = ["exact", "held", "mean", "±", "held", "exact", "±", "held", "exact", "±"];
    let [a, b, c, d, e, f, g, h, i, j] = head;
    println!("{:28} {a:>12} {b:>7} {c:>8} {d:>8} {e:>7} {f:>7} {g:>7} {h:>7} {i:>7} {j:>7}", "stream");
    let mut sums = [0; 3];
    for text in streams {
        let exact = rows(&setups, source(text)?)?;
        let sampled: Vec<Vec<Row>> = (1..=samplings)
            .into_par_iter()
            .map(|seed| {
                let sampling = Sampling { on, period, seed: Some(seed) };
                let source = source(text).map_err(|error| error.to_string())?;
                rows(&setups, Box::new(Sample::new(source, sampling))).map_err(|error| error.to_string())
            })
            .collect::<Result<_, String>>()?;
        let mut all = [Quantity::default(), Quantity::default(), Quantity::default()];
        let (base, last) = (&exact[0], exact.last().expect("rows"));
        (all[0].exact, all[0].rounding) = (base.tlb_misses as f64, 0.5);
        all[1].exact = last.tlb_miss_reduction_percent.unwrap_or(0.0);
        all[2].exact = last.speedup.unwrap_or(0.0);
        for rows in &sampled {
            let (base, last) = (&rows[0], rows.last().expect("rows"));
            let (own, compared) = (base.sampled.clone().unwrap_or_default(), last.sampled.clone().unwrap_or_default());
            all[0].estimates.push((base.tlb_misses as f64, own.tlb_misses_error));
            let fewer = last.tlb_miss_reduction_percent.unwrap_or(0.0);
            all[1].estimates.push((fewer, compared.tlb_miss_reduction_percent_error));
            all[2].estimates.push((last.speedup.unwrap_or(0.0), compared.speedup_error));
        }
        let share = |number: usize| 100.0 * number as f64 / samplings as f64;
        let [misses, fewer, speedup] = &all;
        let name: String = text.rsplit('/').next().unwrap_or(text).chars().take(28).collect();
        println!(
            "{name:28} {:12} {:5.1} % {:8.3} {:8.3} {:5.1} % {:7.2} {:7.2} {:5.1} % {:7.3} {:7.3}",
            misses.exact,
            share(misses.held()),
            misses.mean() / misses.exact,
            misses.mean_error() / misses.exact,
            share(fewer.held()),
            fewer.exact,
            fewer.mean_error(),
            share(speedup.held()),
            speedup.exact,
            speedup.mean_error(),
        );
        if std::env::var_os("VERBOSE").is_some() {
            println!("{:?}", misses.estimates);
            println!("{:?}", sampled.iter().map(|rows| rows[0].sampled.clone()).collect::<Vec<_>>());
        }
        all.iter().zip(&mut sums).for_each(|(quantity, sum)| *sum += quantity.held());
    }
    let share = |sum: usize| 100.0 * sum as f64 / (samplings as usize * streams.len()) as f64;
    let [misses, fewer, speedup] = sums.map(share);
    println!("{:41} {misses:5.1} % {:17} {fewer:5.1} % {:15} {speedup:5.1} %", "all", "", "");
    Ok(())
}
