//! How often the 95 % intervals of sampled estimates hold the truth:
//! `coverage [-n SAMPLINGS] [-c CORES] MACHINE,... POLICY {ON/PERIOD {WORKLOAD|FILE.sp}...}...`
//!
//! Each whole stream is simulated once, and then samplings of it with other places of windows,
//! drawn from the seeds 1, 2, and so on. A line for each stream and machine: the windows of a
//! sampling; the exact number of misses under `base`, the share of the samplings whose interval
//! held it, and in percent of it the mean error of the estimates and the mean half width of their
//! intervals; the same of what walks read from memory under `base`, and of the cycles under the
//! policy; the same of `fewer` and `speedup`, in their own units. Where not all samplings gave an
//! interval, the number of those that did follows, and the share is of them.

use rayon::prelude::*;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use superpage_sim::{Conditions, Row, Setup, Watch, plan, run_parts};
use superpage_trace::file::Reader;
use superpage_trace::{Cores, Error, Sample, Sampling, Source, workload};

fn source(text: &str) -> Result<Box<dyn Source>, Error> {
    Ok(if text.ends_with(".sp") { Box::new(Reader::open(Path::new(text))?) } else { workload::parse(text)? })
}

fn rows(setups: &[Setup], mut source: Box<dyn Source>, watch: &Watch) -> Result<Vec<Row>, superpage_sim::Error> {
    let runs = run_parts(setups, source.as_mut(), &AtomicBool::new(false), &|_| {}, watch)?;
    Ok(runs.into_iter().map(|run| run.row).collect())
}

/// A quantity: exact, and the estimates with their errors.
struct Quantity {
    exact: f64,
    /// What rounding to whole numbers may change.
    rounding: f64,
    estimates: Vec<(f64, Option<f64>)>,
}

impl Quantity {
    /// A quantity of the rows of one machine, those of `base` and of a policy.
    fn new(
        exact: &[Row],
        sampled: &[Vec<Row>],
        rounding: f64,
        value: impl Fn(&[Row]) -> f64,
        error: impl Fn(&[Row]) -> Option<f64>,
    ) -> Quantity {
        let estimates = sampled.iter().map(|rows| (value(rows), error(rows))).collect();
        Quantity { exact: value(exact), rounding, estimates }
    }

    /// The number of intervals that hold the truth, and of intervals.
    fn held(&self) -> [usize; 2] {
        let given = || self.estimates.iter().filter_map(|(value, error)| error.map(|error| (value, error)));
        let held = given().filter(|(value, error)| (*value - self.exact).abs() <= error + self.rounding);
        [held.count(), given().count()]
    }

    /// The columns of a table: the share held, the mean error of the estimates, the mean half
    /// width, the latter in units.
    fn columns(&self, unit: f64) -> String {
        let count = self.estimates.len() as f64;
        let bias = self.estimates.iter().map(|(value, _)| value).sum::<f64>() / count - self.exact;
        let [_, given] = self.held();
        let width: f64 = self.estimates.iter().filter_map(|(_, error)| *error).sum();
        let width = if given == 0 { "-".into() } else { format!("{:.3}", width / given as f64 / unit) };
        format!("{} | {:+.3} | {width}", share(self.held(), self.estimates.len()), bias / unit)
    }
}

/// How many of the intervals given hold the truth, of so many that might have been given.
fn share([held, given]: [usize; 2], all: usize) -> String {
    let share = format!("{:.1}", 100.0 * held as f64 / given as f64);
    match given {
        0 => "-".into(),
        _ if given < all => format!("{share} of {given}"),
        _ => share,
    }
}

fn quantities(exact: &[Row], sampled: &[Vec<Row>]) -> [Quantity; 5] {
    let of = |row: &Row| row.sampled.clone().unwrap_or_default();
    let (misses, cycles) = (exact[0].tlb_misses.max(1) as f64, exact[1].cycles as f64);
    let fewer = |rows: &[Row]| rows[1].tlb_miss_reduction_percent.unwrap_or(0.0);
    let speedup = |rows: &[Row]| rows[1].speedup.unwrap_or(0.0);
    // Misses of data and of instructions are rounded each, and so are cycles of walks and of hits.
    [
        Quantity::new(exact, sampled, 1.0, |rows| rows[0].tlb_misses as f64, |rows| of(&rows[0]).tlb_misses_error),
        Quantity::new(
            exact,
            sampled,
            1.0,
            |rows| rows[0].walk_memory_references as f64,
            |rows| of(&rows[0]).walk_memory_references_error,
        ),
        Quantity::new(exact, sampled, 1.0, |rows| rows[1].cycles as f64, |rows| of(&rows[1]).cycles_error),
        Quantity::new(exact, sampled, 200.0 / misses, fewer, |rows| of(&rows[1]).tlb_miss_reduction_percent_error),
        Quantity::new(exact, sampled, 4.0 / cycles, speedup, |rows| of(&rows[1]).speedup_error),
    ]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const USAGE: &str = "coverage [-n SAMPLINGS] [-c CORES] MACHINE,... POLICY {ON/PERIOD {WORKLOAD|FILE.sp}...}...";
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let (mut samplings, mut watch) = (200, Watch::default());
    while let Some(option) = words.first().filter(|word| ["-n", "-c"].contains(&word.as_str())) {
        let number = words.get(1).ok_or(USAGE)?.parse()?;
        match option.as_str() {
            "-n" => samplings = number,
            _ => watch.cores = Some(Cores::new(u32::try_from(number)?)),
        }
        words.drain(..2);
    }
    let [machines, policy, streams @ ..] = &words[..] else { return Err(USAGE.into()) };
    let machines: Vec<String> = machines.split(',').map(String::from).collect();
    let setups = plan(&machines, std::slice::from_ref(policy), &Conditions::default())?;
    println!("Policy `{policy}`; {samplings} samplings of each stream.\n");
    println!(
        "| stream | machine | windows | misses | held % | off % | ± % | walk references held % | off % | ± % \
         | cycles held % | off % | ± % | fewer % | held % | off | ± | speedup | held % | off | ± |"
    );
    println!("| --- | --- |{}", " ---: |".repeat(19));
    let mut sums = vec![[[0; 2]; 5]; machines.len()];
    let (mut sampling, mut count) = (None, 0);
    for text in streams {
        let numbers = text.split_once('/').and_then(|(on, period)| {
            Some((superpage_pages::parse_count(on).ok()?, superpage_pages::parse_count(period).ok()?))
        });
        if numbers.is_some() {
            sampling = numbers;
            continue;
        }
        let (on, period) = sampling.ok_or(USAGE)?;
        eprintln!("{text}");
        count += 1;
        let exact = rows(&setups, source(text)?, &watch)?;
        let sampled: Vec<Vec<Row>> = (1..=samplings)
            .into_par_iter()
            .map(|seed| {
                let sampling = Sampling { on, period, seed: Some(seed) };
                let source = source(text).map_err(|error| error.to_string())?;
                rows(&setups, Box::new(Sample::new(source, sampling)), &watch).map_err(|error| error.to_string())
            })
            .collect::<Result<_, String>>()?;
        for (index, (machine, sums)) in machines.iter().zip(&mut sums).enumerate() {
            let (from, to) = (index * 2, index * 2 + 2);
            let exact = &exact[from..to];
            let sampled: Vec<Vec<Row>> = sampled.iter().map(|rows| rows[from..to].to_vec()).collect();
            let all = quantities(exact, &sampled);
            for (quantity, [held, given]) in all.iter().zip(sums) {
                let now = quantity.held();
                (*held, *given) = (*held + now[0], *given + now[1]);
            }
            let [misses, walks, cycles, fewer, speedup] = &all;
            let windows: u64 = sampled.iter().flat_map(|rows| &rows[0].sampled).map(|sampled| sampled.windows).sum();
            let name: String = text.rsplit('/').next().unwrap_or(text).into();
            println!(
                "| `{name}` | {machine} | {} | {} | {} | {} | {} | {:.2} | {} | {:.3} | {} |",
                windows / samplings,
                misses.exact,
                misses.columns(misses.exact.max(1.0) / 100.0),
                walks.columns(walks.exact.max(1.0) / 100.0),
                cycles.columns(cycles.exact / 100.0),
                fewer.exact,
                fewer.columns(1.0),
                speedup.exact,
                speedup.columns(1.0),
            );
        }
    }
    for (machine, sums) in machines.iter().zip(sums) {
        let [misses, walks, cycles, fewer, speedup] = sums.map(|sum| share(sum, samplings as usize * count));
        println!(
            "| all | {machine} | | | {misses} | | | {walks} | | | {cycles} | | | | {fewer} | | | | {speedup} | | |"
        );
    }
    Ok(())
}
