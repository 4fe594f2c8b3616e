//! The map of a sweep: gain and cost of each policy, for the streams, machines and memories that
//! the reader chooses.
//!
//! The page contains the numbers of all rows and the script `map.js`, which takes means and draws
//! them. It needs no network.

use crate::Plan;
use crate::merge::{Brief, Merged};
use crate::quantities::{QUANTITIES, Quantity};
use serde_json::{Value, json};
use superpage_report::escape;

/// The most rows of a page with a map: some 150 bytes each.
const ROWS: usize = 30_000;

/// The map as HTML; empty if there is nothing to choose from, or too much to carry.
pub(crate) fn html(plan: &Plan, merged: &Merged, command: &str) -> String {
    let sweep = &plan.sweep;
    let bundles = sweep.bundles();
    let policies = bundles.iter().position(|bundle| bundle.has("policy")).expect("every sweep has policies");
    let streams = bundles.iter().position(|bundle| bundle.has("workload")).expect("every sweep has streams");
    if bundles[policies].values.len() < 2 || policies == streams || merged.rows.len() > ROWS {
        return String::new();
    }
    // Four digits are what a reader can tell apart, and a third of the bytes.
    let number = |value: &f32| match format!("{value:.3e}").parse::<f64>() {
        Ok(value) if value.is_finite() => json!(value),
        _ => Value::Null,
    };
    let rows: Vec<Value> = sweep
        .points()
        .enumerate()
        .map(|(number, point)| (sweep.chosen(number), merged.rows[merged.place(plan, &point)]))
        .filter(|(_, row): &(_, Brief)| row.ended)
        .map(|(chosen, row)| {
            let chosen = chosen.into_iter().map(Value::from);
            Value::from_iter(chosen.chain([json!(u8::from(row.whole))]).chain(row.values.iter().map(number)))
        })
        .collect();
    let quantities = QUANTITIES.iter().map(|quantity| {
        let Quantity { name, label, more, ratio, estimated, .. } = quantity;
        let sign = if *estimated { merged.certainty.sign() } else { "" };
        json!({ "name": name, "label": format!("{sign}{label}"), "more": more, "ratio": ratio })
    });
    let data = json!({
        "axes": bundles.iter().map(|bundle| json!({ "name": bundle.name, "values": bundle.values })).collect::<Vec<_>>(),
        "policies": policies,
        "streams": streams,
        "over": bundles.iter().position(|bundle| bundle.has("fragment") && bundle.values.len() > 1),
        "quantities": quantities.collect::<Vec<_>>(),
        "rows": rows,
    });
    format!(
        "<section id=\"map\"><h2>The map</h2>\n\
         <p class=\"made\">Means over what is not chosen: geometric of ratios, arithmetic of percentages. A <b>?</b> marks \
         what contains a sampled stream of which the kernel's part is not known under this policy. \
         The line joins policies that no other beats in both. Point at one to see it everywhere; click to keep it. \
         Made by <code>{}</code>.</p>\n<noscript><p>The map needs a script; the figures below do not.</p></noscript>\n\
         <form id=\"map-choice\"></form>\n<div id=\"map-panels\"></div>\n\
         <script type=\"application/json\" id=\"map-data\">{}</script>\n<script>\n{}</script></section>\n",
        escape(command),
        data.to_string().replace('<', "\\u003c"),
        include_str!("map.js"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sweep;
    use superpage_sim::{Row, Sampled};

    /// A page of a sweep with two streams, one of them sampled, and the numbers in it.
    fn numbers(policies: &str) -> Option<Value> {
        let text = format!(
            "[sweep]\nname = \"small\"\n[axes]\nworkload = [\"touch:bytes=64K\", \"touch:bytes=128K\"]\nmachine = \"zen5\"\npolicy = {policies}\n"
        );
        let plan = Plan::new(Sweep::of_text(&text, "small.toml").unwrap(), &[]).unwrap();
        let row = |policy: &str, cycles, sampled| Row {
            policy: policy.into(),
            machine: "zen5".into(),
            cycles,
            tlb_misses: cycles / 10,
            peak_resident_bytes: 3000,
            complete: true,
            sampled: (sampled && policy != "base").then(Sampled::default),
            ..Row::default()
        };
        let mut merged = Merged::default();
        for (part, sampled) in plan.parts.iter().zip([false, true]) {
            let rows = [row("base", 2000, sampled), row("thp", 1500, sampled)];
            merged.add("stream", &rows[..part.rows]);
        }
        let page = html(&plan, &merged, "superpage sweep '</script>'");
        let data = page.split_once("id=\"map-data\">")?.1.split_once("</script>").unwrap().0;
        Some(serde_json::from_str(data).unwrap())
    }

    #[test]
    fn the_page_has_each_row_with_its_values_beside_base() {
        let data = numbers("[\"base\", \"thp\"]").unwrap();
        let axes = data["axes"].as_array().unwrap();
        let rows = data["rows"].as_array().unwrap();
        assert_eq!(
            (rows.len(), &axes[data["policies"].as_u64().unwrap() as usize]["values"]),
            (4, &json!(["base", "thp"]))
        );
        // Of the second stream, under thp: it is not sure.
        let last = &rows.iter().map(|row| row.as_array().unwrap()).collect::<Vec<_>>()[3][axes.len()..];
        assert_eq!(last[..3], [json!(0), json!(1.333), json!(1.0)]);
        assert_eq!(rows[0][axes.len()], json!(1));
        // Of 0 over 0 there is no value.
        assert_eq!(last[3], Value::Null);
    }

    #[test]
    fn one_policy_has_no_map() {
        assert_eq!(numbers("\"base\""), None);
    }
}
