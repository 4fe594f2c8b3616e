//! Rows as a page: to explore, and over time where they have series.

use crate::notes::notes;
use crate::quantities::{QUANTITIES, errors, intervals, numbers, values};
use crate::table::{conditions, machines, part_of, program, short};
use crate::{Certainty, Row, Sample};
use superpage_report::{Axis, ExploredAxis, ExploredRow, Explorer, Figure, Kind, Point, Series, escape, page, prose};

/// A page that says what ran, with the notes of the table, all rows to explore if there are
/// several, and a panel for each row that has a series: memory by page size, and below it the
/// misses.
pub fn rows_page(rows: &[Row]) -> String {
    let mut certainty = Certainty::default();
    rows.iter().for_each(|row| certainty.see(row));
    let explorer = explorer(rows, &certainty);
    let bound = format!("<p class=\"made\">{} {}</p>", prose(&certainty.sentence()), prose(&certainty.bound()));
    let main = explorer.map_or(String::new(), |explorer| explorer.html("The rows", &bound));
    let panels = rows.iter().enumerate().filter_map(|(number, row)| Some((number, row, row.series.as_deref()?)));
    let panels: String = panels.map(|(number, row, series)| panel(number, row, series)).collect();
    page(&title(rows), &lead(rows), &(main + &panels))
}

/// Which programs ran on which machines.
fn title(rows: &[Row]) -> String {
    let mut programs: Vec<&str> = rows.iter().map(|row| &row.workload[..]).collect();
    programs.dedup();
    let programs = match programs[..] {
        [program] => short(program),
        ref several => format!("{} programs", several.len()),
    };
    format!("superpage sim: {programs} on {}", machines(rows).join(", "))
}

/// What stands above and below the tables of these rows.
fn lead(rows: &[Row]) -> String {
    let mut lead = String::new();
    for group in rows.chunk_by(|a, b| a.workload == b.workload) {
        let of_machines = group.chunk_by(|a, b| a.machine == b.machine).map(conditions);
        let lines: Vec<String> = std::iter::once(program(group)).chain(of_machines).map(|line| escape(&line)).collect();
        lead += &format!("<p>{}</p>\n", lines.join("<br>\n"));
        let notes = notes(group, part_of(&group[0], rows).is_some());
        if !notes.is_empty() {
            let items: String = notes.iter().map(|note| format!("<li>{}</li>\n", escape(note))).collect();
            lead += &format!("<ul>\n{items}</ul>\n");
        }
    }
    lead
}

/// What rows differ in, and how a row says it.
type Differing = (&'static str, fn(&Row) -> String);
const AXES: [Differing; 3] = [
    ("program", |row| row.workload.clone()),
    ("machine", |row| match &row.kernel {
        Some(kernel) => format!("{} with {kernel}", row.machine),
        None => row.machine.clone(),
    }),
    ("policy", Row::policies),
];

/// The rows to explore; `None` if they differ in nothing.
fn explorer(rows: &[Row], certainty: &Certainty) -> Option<Explorer> {
    let mut axes = AXES.map(|(name, _)| ExploredAxis { name: name.into(), values: Vec::new(), numbers: None });
    let mut explored = Vec::new();
    for of_machine in rows.chunk_by(|a, b| (&a.workload, &a.machine) == (&b.workload, &b.machine)) {
        let base = of_machine.iter().find(|row| row.is_base());
        for row in of_machine.iter().filter(|row| row.complete) {
            let number = |(axis, (_, of)): (&mut ExploredAxis, Differing)| {
                let value = of(row);
                axis.values.iter().position(|known| *known == value).unwrap_or_else(|| {
                    axis.values.push(value);
                    axis.values.len() - 1
                })
            };
            let values = numbers(values(row, base));
            explored.push(ExploredRow {
                chosen: axes.iter_mut().zip(AXES).map(number).collect(),
                complete: row.sampled.as_ref().is_none_or(|sampled| sampled.kernel_exact),
                intervals: intervals(&values, errors(row)),
                values,
            });
        }
    }
    let measures = QUANTITIES.iter().map(|quantity| quantity.measure(certainty)).collect();
    Explorer::new(axes.into(), measures, explored, AXES.len() - 1)
}

fn panel(number: usize, row: &Row, series: &[Sample]) -> String {
    let name = format!("{}: {} on {}", row.workload, row.policies(), row.machine);
    let seconds = Axis { label: "seconds of modelled time".into(), ..Axis::default() };
    let figure = |what: &str, kind: Kind, unit: &str, series: Vec<Series>| Figure {
        title: format!("{name}: {what}"),
        alt: format!("{what} over modelled time"),
        kind,
        x: seconds.clone(),
        y: Axis { label: unit.into(), ..Axis::default() },
        groups: Vec::new(),
        series,
        baseline: None,
    };
    let of = |name: String, value: &dyn Fn(usize, &Sample) -> f64| Series {
        name,
        points: series
            .iter()
            .enumerate()
            .map(|(place, sample)| Point {
                x: sample.seconds,
                y: value(place, sample),
                label: sample.event.clone().unwrap_or_default(),
            })
            .collect(),
        line: true,
        paper: Vec::new(),
    };
    let sizes = series.first().map_or(&[][..], |sample| &sample.pages);
    let used = |size: &usize| series.iter().any(|sample| sample.pages[*size].1 > 0);
    let megabytes = |size: usize| {
        let (size, each) = (size, sizes[size].0.bytes() as f64 / f64::from(1 << 20));
        move |_: usize, sample: &Sample| each * sample.pages[size].1 as f64
    };
    let mapped: Vec<Series> =
        (0..sizes.len()).filter(used).map(|size| of(format!("{} pages", sizes[size].0), &megabytes(size))).collect();
    let mut panel = figure("memory by page size", Kind::Areas, "MB mapped", mapped).html(&format!("memory-{number}"));
    // Of a sampled stream nobody knows when they were.
    if series.iter().all(|sample| sample.tlb_misses.is_some()) {
        let rate = |place: usize, sample: &Sample| {
            let Some(before) = place.checked_sub(1).map(|place| &series[place]) else { return 0.0 };
            let misses = sample.tlb_misses.unwrap_or(0).saturating_sub(before.tlb_misses.unwrap_or(0));
            let seconds = sample.seconds - before.seconds;
            if seconds > 0.0 { misses as f64 / seconds } else { 0.0 }
        };
        let misses = vec![of("TLB misses".into(), &rate)];
        panel += &figure("TLB misses", Kind::Areas, "misses a second", misses).html(&format!("misses-{number}"));
    }
    format!("<section><h2>{}</h2>\n{panel}</section>\n", escape(&name))
}
