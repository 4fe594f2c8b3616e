//! The rows of a sweep as what its page explores.

use crate::Plan;
use crate::file::Bundle;
use crate::merge::{Brief, Merged};
use std::collections::{BTreeMap, HashMap};
use superpage_report::{ExploredAxis, ExploredRow, Explorer, Measure};
use superpage_sim::quantities::{QUANTITIES, intervals, numbers};

/// The most rows of a page: some 200 bytes each. Of more, means over an axis are shown.
const ROWS: usize = 30_000;

/// The place of an axis that every sweep has.
pub(crate) fn place(bundles: &[Bundle], axis: &str) -> usize {
    bundles.iter().position(|bundle| bundle.has(axis)).expect("every sweep has this axis")
}

/// The rows that ran to their end, in the order of the grid.
pub(crate) fn rows(plan: &Plan, merged: &Merged) -> Vec<ExploredRow> {
    let sweep = &plan.sweep;
    let all = sweep.points().enumerate().map(|(number, point)| {
        let row = merged.rows[merged.place(plan, &point)];
        (sweep.chosen(number), row)
    });
    let explored = |(chosen, row): (Vec<usize>, Brief)| {
        let values = numbers(row.values);
        let intervals = intervals(&values, row.errors);
        ExploredRow { chosen, complete: row.whole, values, intervals }
    };
    let mut rows: Vec<ExploredRow> = all.filter(|(_, row)| row.ended).map(explored).collect();
    if sweep.bundles().iter().any(Bundle::sets) {
        over_first(plan, merged, &mut rows);
    }
    rows
}

/// Adds to each row its time over that of the row with the first value of each `set.` axis, first.
fn over_first(plan: &Plan, merged: &Merged, rows: &mut [ExploredRow]) {
    let (sweep, bundles) = (&plan.sweep, plan.sweep.bundles());
    let seconds: HashMap<Vec<usize>, f64> = sweep
        .points()
        .enumerate()
        .map(|(number, point)| (sweep.chosen(number), merged.rows[merged.place(plan, &point)]))
        .filter(|(_, row)| row.ended)
        .map(|(chosen, row)| (chosen, row.seconds))
        .collect();
    for row in rows {
        let first = row.chosen.iter().zip(&bundles);
        let first: Vec<usize> = first.map(|(value, bundle)| if bundle.sets() { 0 } else { *value }).collect();
        let of = |chosen: &Vec<usize>| seconds.get(chosen).copied().unwrap_or(f64::NAN);
        row.values.insert(0, of(&first) / of(&row.chosen));
        row.intervals.insert(0, None);
    }
}

/// What can be explored; `None` if there is one row of each policy alone.
pub(crate) fn explorer(plan: &Plan, merged: &Merged, rows: Vec<ExploredRow>) -> Option<Explorer> {
    let bundles = plan.sweep.bundles();
    let mut measures: Vec<Measure> = QUANTITIES.iter().map(|quantity| quantity.measure(&merged.certainty)).collect();
    if bundles.iter().any(Bundle::sets) {
        let label = format!("{}speed-up over the first values", merged.certainty.sign());
        measures.insert(0, Measure { name: "first", label, unit: "", ratio: true, higher_is_better: Some(true) });
    }
    let mut axes: Vec<ExploredAxis> = bundles
        .iter()
        .map(|bundle| ExploredAxis {
            name: bundle.name.clone(),
            values: bundle.values.clone(),
            numbers: bundle.numbers.as_ref().map(|(_, numbers)| numbers.clone()),
        })
        .collect();
    let (mut rows, policies) = (rows, place(&bundles, "policy"));
    while rows.len() > ROWS {
        let others = (0..axes.len()).filter(|at| *at != policies && axes[*at].values.len() > 1);
        let longest = others.max_by_key(|at| axes[*at].values.len())?;
        rows = means_over(longest, &measures, rows);
        axes[longest].values = vec![format!("mean of {}", axes[longest].values.len())];
        axes[longest].numbers = None;
    }
    Explorer::new(axes, measures, rows, policies)
}

/// Means over all values of an axis: geometric of ratios.
fn means_over(axis: usize, measures: &[Measure], rows: Vec<ExploredRow>) -> Vec<ExploredRow> {
    let mut groups: BTreeMap<Vec<usize>, Vec<ExploredRow>> = BTreeMap::new();
    for mut row in rows {
        row.chosen[axis] = 0;
        groups.entry(row.chosen.clone()).or_default().push(row);
    }
    let mean = |(chosen, rows): (Vec<usize>, Vec<ExploredRow>)| {
        let of = |(at, measure): (usize, &Measure)| {
            let known = rows.iter().map(|row| row.values[at]).filter(|value| !measure.ratio || *value > 0.0);
            let known: Vec<f64> = known.filter(|value| value.is_finite()).collect();
            let mean = |values: f64| values / known.len() as f64;
            if measure.ratio {
                mean(known.iter().map(|value| value.ln()).sum()).exp()
            } else {
                mean(known.iter().sum())
            }
        };
        let values = numbers(measures.iter().enumerate().map(|measure| of(measure) as f32));
        let complete = rows.iter().all(|row| row.complete);
        ExploredRow { chosen, complete, values, intervals: vec![None; measures.len()] }
    };
    groups.into_iter().map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sweep;
    use superpage_sim::{Row, Sampled};

    /// Of a sweep with two streams, one of them sampled.
    fn explored(axes: &str) -> Option<Explorer> {
        let text = format!(
            "[sweep]\nname = \"small\"\n[axes]\nworkload = [\"touch:bytes=64K\", \"touch:bytes=128K\"]\nmachine = \"zen5\"\n{axes}\n"
        );
        let plan = Plan::new(Sweep::of_text(&text, "small.toml").unwrap(), &[]).unwrap();
        let row = |policy: &str, cycles, sampled| Row {
            policy: policy.into(),
            machine: "zen5".into(),
            cycles,
            seconds: cycles as f64,
            tlb_misses: cycles / 10,
            peak_resident_bytes: 3000,
            complete: true,
            sampled: (sampled && policy != "base").then(|| Sampled { speedup_error: Some(0.01), ..Sampled::default() }),
            ..Row::default()
        };
        let mut merged = Merged::default();
        for part in &plan.parts {
            let rows = [row("base", 2000, part.stream == 1), row("thp", 1500, part.stream == 1)];
            merged.add("stream", &rows[..part.rows]);
        }
        let rows = rows(&plan, &merged);
        explorer(&plan, &merged, rows)
    }

    #[test]
    fn each_row_has_its_values_and_errors() {
        let Explorer { axes, rows, colours, measures, .. } = explored("policy = [\"base\", \"thp\"]").unwrap();
        assert_eq!((rows.len(), &axes[colours].values[..]), (4, &["base".to_string(), "thp".into()][..]));
        // Of the second stream, under thp: the kernel's part is not known.
        let last = rows.last().unwrap();
        assert!(!last.complete && rows[0].complete);
        assert_eq!((measures[0].name, (1000.0 * last.values[0]).round(), last.values[1]), ("speedup", 1333.0, 1.0));
        let (low, high) = last.intervals[0].unwrap();
        assert_eq!(((100.0 * (high - low)).round(), rows[0].intervals[0]), (2.0, None));
        // Of 0 over 0 there is no value.
        assert!(last.values[2].is_nan());
    }

    #[test]
    fn values_that_are_set_are_compared_with_the_first() {
        let axes = "policy = \"base\"\nset.costs.fault = [1000, 2000]";
        let Explorer { axes, rows, colours, measures, .. } = explored(axes).unwrap();
        let first: Vec<f64> = rows.iter().map(|row| (1000.0 * row.values[0]).round()).collect();
        assert_eq!((measures[0].name, &first[..2]), ("first", &[1000.0, 1333.0][..]));
        assert_eq!(axes[colours].values.len(), 2);
    }

    #[test]
    fn one_row_has_nothing_to_explore() {
        assert!(
            explored("policy = \"base\"").is_some_and(|explorer| explorer.axes[explorer.colours].values.len() == 2)
        );
    }

    #[test]
    fn means_over_an_axis_are_geometric_where_they_are_ratios() {
        let measure =
            |ratio| Measure { name: "m", label: String::new(), unit: "", ratio, higher_is_better: Some(true) };
        let row = |policy: usize, stream: usize, value: f64| ExploredRow {
            chosen: vec![policy, stream],
            complete: stream == 0,
            values: vec![value, value],
            intervals: vec![Some((0.5, 1.5)); 2],
        };
        let rows = vec![row(0, 0, 1.0), row(0, 1, 4.0), row(1, 0, 1.0)];
        let means = means_over(1, &[measure(true), measure(false)], rows);
        assert_eq!(means.iter().map(|row| &row.values[..]).collect::<Vec<_>>(), [&[2.0, 2.5][..], &[1.0, 1.0]]);
        assert_eq!(means.iter().map(|row| row.complete).collect::<Vec<_>>(), [false, true]);
    }
}
