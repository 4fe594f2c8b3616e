//! `index.html`: the figures of a sweep, each with the command that makes it.

use crate::Plan;
use crate::axis::{Point, TRACE};
use crate::figures::{Drawn, Shown};
use crate::map;
use crate::merge::Merged;
use crate::plan::VERSION;
use std::fmt::Write;
use superpage_output::quoted;
use superpage_pages::ExactBytes;
use superpage_report::{escape, page, prose};

/// The page with these figures. `command` made the rows.
pub(crate) fn html(plan: &Plan, merged: &Merged, all: &[Shown], command: &str) -> String {
    let sweep = &plan.sweep;
    let (rows, failed) = (merged.rows.len(), merged.failed.len());
    let mut lead = format!(
        "<p class=\"lead\">{} {} A speedup is the time of <code>base</code> over that of the row, \
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
    let _ = writeln!(lead, "</dl>\n<p><code>{}</code></p>", escape(command));
    let mut main = map::html(plan, merged, command);
    let mut open = false;
    for (number, Shown { drawn, means, example, folded }) in all.iter().enumerate() {
        if *folded != open {
            main += if *folded { "<details><summary>Machine by machine</summary>\n" } else { "</details>\n" };
            open = *folded;
        }
        let alone = of_row(plan, example);
        let alone = alone.map(|alone| format!(" One of its rows alone: <code>{}</code>", escape(&alone)));
        let below = format!(
            "<p class=\"made\">{} Made by <code>{}</code>.{}</p>",
            escape(means),
            escape(command),
            alone.unwrap_or_default()
        );
        let id = format!("figure-{}", number + 1);
        main += &match drawn {
            Drawn::Figure(figure) => figure.html_above(&id, &below),
            Drawn::Heat(heat) => heat.html(&id, &below),
        };
    }
    main += if open { "</details>\n" } else { "" };
    if failed > 0 {
        let items: String = merged.failed.iter().map(|failed| format!("<li>{}</li>", escape(failed))).collect();
        let _ = writeln!(
            main,
            "<details><summary>{failed} rows ended early, and are in no figure</summary><ul>{items}</ul></details>"
        );
    }
    page(&sweep.name, &lead, &main)
}

/// The command that runs one point and its `base`; `None` if the sweep alone knows its machine or
/// policy.
fn of_row(plan: &Plan, point: &Point) -> Option<String> {
    if plan.sweep.is_inline(&point.machine()) || superpage_sim::named(&point.policy).is_err() {
        return None;
    }
    let conditions = &point.conditions;
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
    option("--memory", conditions.memory.map(bytes));
    option("--swap", conditions.swap.map(bytes));
    let usual = superpage_sim::Conditions::default();
    option("--fragment", (conditions.fragment != usual.fragment).then(|| conditions.fragment.to_string()));
    option("--seed", (conditions.seed != usual.seed).then(|| conditions.seed.to_string()));
    option("--files", (conditions.files != usual.files).then(|| "cold".to_string()));
    option("--time-scale", (conditions.time_scale != usual.time_scale).then(|| conditions.time_scale.to_string()));
    option("--background", conditions.background.map(|on| on.to_string()));
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
