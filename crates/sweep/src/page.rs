//! `index.html`: the rows of a sweep to explore, and the commands that made them.

use crate::Plan;
use crate::axis::{Point, TRACE};
use crate::merge::Merged;
use crate::plan::VERSION;
use std::fmt::Write;
use superpage_output::quoted;
use superpage_pages::ExactBytes;
use superpage_report::{Explorer, escape, page, prose};
use superpage_trace::Cores;

/// The page. `command` made the rows.
pub(crate) fn html(plan: &Plan, merged: &Merged, explorer: Option<&Explorer>, command: &str) -> String {
    let sweep = &plan.sweep;
    let (rows, failed) = (merged.rows.len(), merged.failed.len());
    let mut lead = format!(
        "<p class=\"lead\">{} {} A speed-up is the time of <code>base</code> over that of the row, \
         on the same machine, in the same memory. All rows are in <code>rows.parquet</code> beside this page.</p>\n\
         <ul class=\"counts\"><li><b>{rows}</b> rows</li><li><b>{}</b> simulations</li><li><b>{failed}</b> rows ended early</li>\
         <li>superpage <b>{VERSION}</b></li></ul>\n<dl>",
        prose(&merged.certainty.sentence()),
        prose(&merged.certainty.bound()),
        plan.cells.len()
    );
    for bundle in sweep.bundles() {
        let _ = write!(lead, "<dt>{}</dt><dd>{}</dd>", escape(&bundle.name), escape(&bundle.values.join(" · ")));
    }
    lead += "</dl>\n";
    let alone = example(plan, merged).and_then(|point| of_row(plan, &point));
    let alone = alone.map(|alone| format!(" One of its rows alone: <code>{}</code>", escape(&alone)));
    let below = format!(
        "<p class=\"made\">Means over what is not chosen: geometric of ratios, arithmetic of others. A line through the \
         points joins those that no other beats in both. Vertical and horizontal strokes are 95 % intervals of one row; \
         a <b>?</b> marks what contains a sampled stream of which the kernel's part is not known. Made by \
         <code>{}</code>.{}</p>",
        escape(command),
        alone.unwrap_or_default()
    );
    let mut main = explorer.map_or(below.clone(), |explorer| explorer.html("The rows", &below));
    if failed > 0 {
        let items: String = merged.failed.iter().map(|failed| format!("<li>{}</li>", escape(failed))).collect();
        let _ = writeln!(
            main,
            "<details><summary>{failed} rows ended early, and are not shown</summary><ul>{items}</ul></details>"
        );
    }
    page(&sweep.name, &lead, &main)
}

/// A point whose row is whole, not of `base` if there is another.
fn example(plan: &Plan, merged: &Merged) -> Option<Point> {
    let whole = |point: &Point| merged.rows[merged.place(plan, point)].whole;
    let other = |point: &Point| !merged.rows[merged.place(plan, point)].base;
    let of = |which: &dyn Fn(&Point) -> bool| plan.sweep.points().find(|point| whole(point) && which(point));
    of(&other).or_else(|| of(&|_| true))
}

/// The command that runs one point and its `base`; `None` if the sweep alone knows its machine or
/// policy.
fn of_row(plan: &Plan, point: &Point) -> Option<String> {
    if plan.sweep.is_inline(&point.machine()) || superpage_sim::named(&point.policy).is_err() {
        return None;
    }
    let (conditions, cores) = (&point.conditions, point.cores());
    let mut words: Vec<String> = ["superpage", "sim"].map(String::from).to_vec();
    let mut option = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            words.extend([name.to_string(), quoted(&value)]);
        }
    };
    option("-m", Some(point.machine()));
    option("--host-policy", point.host.clone());
    option("-p", Some(point.policy.clone()).filter(|policy| policy != "base"));
    let sizes = |sizes: &Vec<superpage_pages::PageSize>| {
        sizes.iter().map(|size| size.to_string()).collect::<Vec<_>>().join(",")
    };
    option("--sizes", conditions.sizes.as_ref().map(sizes));
    let bytes = |bytes| ExactBytes(bytes).to_string();
    option("--cores", cores.map(|cores| cores.number.to_string()));
    let quantum = cores.map(|cores| cores.quantum).filter(|quantum| *quantum != Cores::QUANTUM);
    option("--quantum", quantum.map(|quantum| quantum.to_string()));
    option("--memory", conditions.memory.map(bytes));
    option("--swap", conditions.swap.map(bytes));
    let usual = superpage_sim::Conditions::default();
    option("--fragment", (conditions.fragment != usual.fragment).then(|| conditions.fragment.to_string()));
    option("--seed", (conditions.seed != usual.seed).then(|| conditions.seed.to_string()));
    option("--files", (conditions.files != usual.files).then(|| "cold".to_string()));
    option("--time-scale", (conditions.time_scale != usual.time_scale).then(|| conditions.time_scale.to_string()));
    option("--background", conditions.background.map(|on| on.to_string()));
    if cores.is_some_and(|cores| cores.migrate) {
        words.push("--migrate".into());
    }
    if plan.sweep.lines {
        words.push("--lines".into());
    }
    if plan.sweep.contiguity {
        words.push("--contiguity".into());
    }
    words.extend(plan.sweep.every.map(|every| format!("--every {every}")));
    match point.stream.strip_prefix(TRACE) {
        Some(path) => words.extend(["--trace".into(), quoted(path)]),
        None => words.push(quoted(&point.stream)),
    }
    Some(words.join(" "))
}
