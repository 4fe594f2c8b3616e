//! Kind `coverage`: how much of main memory the entries of a TLB reach, over the years (figure 1).

use crate::computed::{Computed, Shown};
use serde::Deserialize;
use std::collections::BTreeMap;
use superpage_mmu::{Machine, Serves};
use superpage_pages::PageSize;

/// A computer of the figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Workstation {
    /// The letter of the computer in the figure.
    pub(crate) letter: String,
    pub(crate) name: String,
    /// The year in which it came to market.
    pub(crate) year: f64,
    /// Pages that the TLB entries for data map.
    pub(crate) pages: u64,
    pub(crate) page: PageSize,
    /// The most memory that it could hold.
    pub(crate) memory: Bytes,
    /// Where the values come from.
    pub(crate) source: String,
    /// The keys whose values are assumed.
    #[serde(default)]
    pub(crate) assumed: Vec<String>,
}

/// Bytes, as `96M`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Bytes(u64);

impl Bytes {
    pub(crate) fn bytes(self) -> u64 {
        self.0
    }
}

impl TryFrom<String> for Bytes {
    type Error = String;

    fn try_from(text: String) -> Result<Bytes, String> {
        superpage_pages::parse_bytes(&text).map(Bytes).map_err(|error| error.to_string())
    }
}

impl Workstation {
    /// The share of memory that is covered; at most all of it.
    fn percent(&self) -> f64 {
        (100.0 * (self.pages * self.page.bytes()) as f64 / self.memory.0 as f64).min(100.0)
    }
}

/// Coverage in percent of memory: curves `workstations`, `base-pages` and `largest-superpages`;
/// values `LETTER.percent`, `MACHINE.base`, `MACHINE.largest`, and `line.factor`: by how much
/// coverage falls in ten years, from a straight line through the logarithms of the workstations'
/// points. `years` are those of machines.
pub(crate) fn compute(workstations: &[Workstation], years: &BTreeMap<String, f64>) -> Computed {
    let mut found = Computed::default();
    for workstation in workstations {
        let Workstation { letter, name, year, source, assumed, .. } = workstation;
        let percent = workstation.percent();
        found.values.insert(format!("{letter}.percent"), percent);
        found.point("workstations", *year, percent, letter);
        let assumed = if assumed.is_empty() { String::new() } else { format!("; assumed: {}", assumed.join(", ")) };
        found.shown.push(Shown {
            item: format!("{letter}: {name}, {year}"),
            quantity: "TLB coverage, % of the most memory".into(),
            value: percent,
            reason: format!("the paper draws the point and gives no number; {source}{assumed}"),
        });
    }
    let points: Vec<(f64, f64)> =
        found.curves.get("workstations").into_iter().flatten().map(|point| (point.x, point.y.log10())).collect();
    if let Some(slope) = slope(&points) {
        found.values.insert("line.factor".into(), 10_f64.powf(-10.0 * slope));
        let middle = |values: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(values).sum::<f64>() / points.len() as f64;
        let (x, y) = (middle(&|point| point.0), middle(&|point| point.1));
        let years = points.iter().map(|point| point.0);
        for year in [years.clone().fold(f64::INFINITY, f64::min), years.fold(0.0, f64::max)] {
            found.point("line", year, 10_f64.powf(y + slope * (year - x)), "");
        }
    }
    for name in superpage_sim::machines() {
        let machine = superpage_sim::machine(name).expect("a built-in machine");
        let sizes = machine.ladder();
        let (base, largest) = (sizes.base(), sizes.size(sizes.largest()));
        for (key, curve, size) in [("base", "base-pages", base), ("largest", "largest-superpages", largest)] {
            let percent = (100.0 * reach(&machine, size) as f64 / machine.memory.size as f64).min(100.0);
            found.values.insert(format!("{name}.{key}"), percent);
            if let Some(year) = years.get(name) {
                found.point(curve, *year, percent, name);
            }
            if key == "largest" && largest == base {
                continue;
            }
            found.shown.push(Shown {
                item: name.into(),
                quantity: format!("TLB coverage with pages of {size}, % of memory"),
                value: percent,
                reason: format!(
                    "not in the paper: the machine file, with {} of memory",
                    superpage_report::bytes(machine.memory.size)
                ),
            });
        }
    }
    found
}

/// The memory that the entries for loads of pages of this size map, in the TLB level that maps
/// most.
fn reach(machine: &Machine, size: PageSize) -> u64 {
    let serves = |serves: Serves| matches!(serves, Serves::Data | Serves::Load | Serves::Unified);
    let holding = machine.tlb.iter().filter(|tlb| serves(tlb.serves) && tlb.sizes.contains(&size));
    holding.map(|tlb| tlb.entries as u64 * size.bytes()).max().unwrap_or(0)
}

/// The slope of the line that fits the points best by least squares; `None` if all have the same x.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let n = points.len() as f64;
    let (x, y) = (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
    let spread: f64 = points.iter().map(|p| (p.0 - x) * (p.0 - x)).sum();
    (spread > 0.0).then(|| points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum::<f64>() / spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_through_points_on_a_line_is_that_line() {
        assert_eq!(slope(&[(0.0, 3.0), (1.0, 1.0), (3.0, -3.0)]), Some(-2.0));
        assert_eq!(slope(&[(1.0, 1.0), (1.0, 2.0)]), None);
    }

    #[test]
    fn a_machine_of_one_size_is_shown_once() {
        let computed = compute(&[], &BTreeMap::new());
        let of = |name: &str| computed.shown.iter().filter(|shown| shown.item == name).count();
        assert_eq!((of("ppc604"), of("alpha-21264")), (1, 2));
        assert!(computed.values.contains_key("ppc604.largest"));
    }

    #[test]
    fn the_alpha_reaches_a_megabyte_with_base_pages_and_half_a_gigabyte_with_the_largest() {
        let alpha = superpage_sim::machine("alpha-21264").unwrap();
        assert_eq!(reach(&alpha, "8K".parse().unwrap()), 1 << 20);
        assert_eq!(reach(&alpha, "4M".parse().unwrap()), 512 << 20);
    }
}
