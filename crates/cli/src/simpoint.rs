//! Means over the intervals of a program that SimPoint chose (Sherwood et al., ASPLOS 2002): a
//! trace for each, and the weights that it printed.
//!
//! A weight is the share of the program's intervals that are like that one. So counts are weighted,
//! and ratios are those of the weighted counts: in sums over intervals `mpki` is `1000 w m / w i`,
//! and `speedup` is `w c / w d`, with the cycles `c` under `base`. With intervals of one length the
//! first is the weighted mean of their MPKI; the second is never the mean of their speedups.

use crate::Failure;
use serde::Serialize;
use std::path::Path;
use superpage_output::read_text;
use superpage_report::{Column, Screen, Table, count};
use superpage_sim::{Format, Row};

/// The means of one policy on one machine, per interval.
#[derive(Serialize, Debug, PartialEq)]
pub(crate) struct Mean {
    machine: String,
    policy: String,
    intervals: usize,
    instructions: f64,
    tlb_misses: f64,
    walk_cycles: f64,
    cycles: f64,
    mpki: f64,
    cycles_per_instruction: f64,
    speedup: Option<f64>,
}

/// The weights of a file of SimPoint, `WEIGHT LABEL` in each line, of which there must be `traces`.
/// Their sum is 1 in what is returned.
///
/// # Errors
/// A sentence with the file, the line and what was expected.
pub(crate) fn weights(file: &Path, traces: usize) -> Result<Vec<f64>, Failure> {
    let wrong = |problem: String| Failure::Usage(format!("--weights {}: {problem}", file.display()));
    let text = read_text(file)
        .map_err(|error| wrong(format!("{error}; name the file that SimPoint wrote by -saveSimpointWeights")))?;
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    let weight = |(line, number): (&str, u32)| {
        let mut words = line.split_whitespace();
        let weight = words.next().and_then(|word| word.parse::<f64>().ok());
        let label = words.next().map(str::parse::<u64>);
        match (weight.filter(|weight| (0.0..=1.0).contains(weight)), label, words.next()) {
            (Some(weight), None | Some(Ok(_)), None) => Ok(weight),
            _ => {
                let shown: String = line.chars().take(40).collect();
                Err(wrong(format!("line {number}: {shown:?}, expected a weight from 0 to 1 and a label, as in 0.25 3")))
            }
        }
    };
    let weights: Vec<f64> = lines.map(weight).collect::<Result<_, _>>()?;
    let sum: f64 = weights.iter().sum();
    if weights.len() != traces {
        return Err(wrong(format!(
            "lines with a weight: {}, traces: {traces}; give a line for each trace, in the order of --trace",
            weights.len()
        )));
    }
    if sum <= 0.0 {
        return Err(wrong("all weights are 0: a mean needs one above 0".into()));
    }
    Ok(weights.into_iter().map(|weight| weight / sum).collect())
}

/// The means over traces with these weights: `rows` has the same policies and machines for each.
///
/// # Errors
/// A simulation failed, or was interrupted.
pub(crate) fn means(rows: &[Row], weights: &[f64]) -> Result<Vec<Mean>, Failure> {
    let each = rows.len() / weights.len();
    if let Some(error) = rows.iter().find_map(|row| row.error.as_ref()) {
        return Err(Failure::Run(format!("there are no means, since a simulation failed: {error}")));
    }
    if each * weights.len() != rows.len() || each == 0 || rows.iter().any(|row| !row.complete) {
        return Err(Failure::Run(
            "there are no means, since not all of the traces were simulated to their ends".into(),
        ));
    }
    let mean = |place: usize| {
        let sum = |value: &dyn Fn(&Row) -> f64| -> f64 {
            let rows = rows[place..].iter().step_by(each);
            rows.zip(weights).map(|(row, weight)| weight * value(row)).sum()
        };
        let (instructions, cycles) = (sum(&|row| row.instructions as f64), sum(&|row| row.cycles as f64));
        let tlb_misses = sum(&|row| row.tlb_misses as f64);
        Mean {
            machine: rows[place].machine.clone(),
            policy: rows[place].policy.clone(),
            intervals: weights.len(),
            instructions,
            tlb_misses,
            walk_cycles: sum(&|row| row.walk_cycles as f64),
            cycles,
            mpki: 1000.0 * tlb_misses / instructions,
            cycles_per_instruction: cycles / instructions,
            // Of each row, the cycles under `base` in its own interval.
            speedup: rows[place].speedup.map(|_| sum(&|row| row.speedup.unwrap_or(1.0) * row.cycles as f64) / cycles),
        }
    };
    Ok((0..each).map(mean).collect())
}

/// The means as JSON, CSV or a table.
///
/// # Errors
/// There are none.
pub(crate) fn written(means: &[Mean], format: Format, screen: Screen) -> Result<Vec<u8>, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Run(error.to_string());
    match format {
        Format::Json => {
            let mut text = serde_json::to_vec_pretty(means).map_err(|error| failed(&error))?;
            text.push(b'\n');
            Ok(text)
        }
        Format::Csv => {
            let mut out = csv::Writer::from_writer(Vec::new());
            means.iter().try_for_each(|mean| out.serialize(mean)).map_err(|error| failed(&error))?;
            out.into_inner().map_err(|error| failed(&error))
        }
        Format::Table | Format::Parquet => {
            let names = ["instructions", "TLB misses", "MPKI", "cycles", "speedup"].map(Column::number);
            let mut table = Table::new([Column::name("machine"), Column::name("policy")].into_iter().chain(names));
            for mean in means {
                let (small, large) = (|value: f64| format!("{value:.3}"), |value: f64| count(value.round() as u64));
                let numbers = [large(mean.instructions), large(mean.tlb_misses), small(mean.mpki)];
                let times = [large(mean.cycles), mean.speedup.map(small).unwrap_or_default()];
                let names = [mean.machine.clone(), mean.policy.clone()];
                table.row(names.into_iter().chain(numbers).chain(times));
            }
            let head = format!("weighted means of {} intervals, per interval:\n", means[0].intervals);
            Ok((head + &screen.table(&table)).into_bytes())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(instructions: u64, tlb_misses: u64, cycles: u64, speedup: f64) -> Row {
        Row { instructions, tlb_misses, cycles, speedup: Some(speedup), complete: true, ..Row::default() }
    }

    #[test]
    fn ratios_are_those_of_weighted_counts() {
        let rows =
            [row(1000, 10, 4000, 1.0), row(1000, 5, 2000, 2.0), row(1000, 2, 1000, 1.0), row(1000, 1, 1000, 1.0)];
        let Ok(means) = means(&rows, &[0.25, 0.75]) else { panic!("there are means") };
        assert_eq!((means.len(), means[0].mpki, means[1].mpki), (2, 4.0, 2.0));
        assert_eq!((means[0].cycles, means[1].cycles), (1750.0, 1250.0));
        // 1750 / 1250; the mean of 2 and 1 would be 1.25.
        assert_eq!(means[1].speedup, Some(1.4));
        assert_eq!(means[0].cycles_per_instruction, 1.75);
        assert!(super::means(&rows[..3], &[0.25, 0.75]).is_err());
    }

    #[test]
    fn a_file_of_weights_is_one_line_for_each_trace() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights");
        let read = |text: &str, traces| {
            std::fs::write(&path, text).unwrap();
            weights(&path, traces)
        };
        assert!(matches!(read("0.2 0\n0.6 1\n", 2), Ok(of) if (of[0] - 0.25).abs() < 1e-12));
        for (text, problem) in [
            ("0.2 0\n", "lines with a weight: 1, traces: 2;"),
            ("0.2 0\nhalf 1\n", "line 2: \"half 1\", expected a weight"),
            ("0.2 0\n-1 1\n", "line 2"),
            ("0.2 0\n1e999 1\n", "line 2"),
            ("0 0\n0 1\n", "all weights are 0"),
            ("0.2 0 9\n0.2 1\n", "line 1"),
            ("-0 0\n-0 1\n", "all weights are 0"),
            ("", "lines with a weight: 0, traces: 2;"),
        ] {
            let Err(Failure::Usage(sentence)) = read(text, 2) else { panic!("{text:?} was read") };
            assert!(sentence.contains(problem), "{sentence}");
        }
    }
}
