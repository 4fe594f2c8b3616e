//! What is swept, and over what.

use super::drive::Counted;
use super::layout::{Layout, Made, Placed};
use serde::Deserialize;

/// What is swept, and over what.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Sweep {
    /// Regions that cannot be plain superpages, percent of all.
    pub(crate) share: Vec<u32>,
    /// Holes of such a region, percent of its pages.
    pub(crate) holes: Vec<u32>,
    /// Chooses regions and holes.
    seed: u64,
    /// The layout whose performance is 1.
    reference: String,
    /// Values that are rows, at each point: `KEY` of all layouts, or `LAYOUT.KEY`.
    #[serde(default)]
    show: Vec<String>,
    pub(super) layouts: Vec<Laid>,
}

/// A layout on a machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Laid {
    /// What measures call it.
    pub(super) key: String,
    /// What rows call it.
    pub(super) name: String,
    pub(super) machine: String,
    #[serde(default)]
    regions: Made,
    #[serde(default)]
    placed: Placed,
}

/// One run of a stream.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Job {
    pub(super) item: usize,
    pub(super) machine: String,
    pub(super) layout: Layout,
}

/// A point of a sweep, in percent: the share of the regions that are not plain superpages, and the
/// share of the pages of such a region that are holes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Point {
    pub(super) share: u32,
    pub(super) holes: u32,
}

impl Sweep {
    /// What is wrong with it, in a sentence.
    pub(crate) fn check(&self) -> Result<(), String> {
        let percent = |values: &[u32]| !values.is_empty() && values.iter().all(|value| *value <= 100);
        if !percent(&self.share) || !percent(&self.holes) {
            return Err("sweep: expected one or more percentages, 0 to 100, in share and in holes".into());
        }
        let layouts = || self.layouts.iter().map(|laid| laid.key.as_str());
        let known = || layouts().collect::<Vec<_>>().join(", ");
        if !layouts().any(|layout| layout == self.reference) {
            return Err(format!(
                "sweep: there is no layout {}; expected one of {} as reference",
                self.reference,
                known()
            ));
        }
        for shown in &self.show {
            let (layout, key) =
                shown.split_once('.').map_or((None, shown.as_str()), |(layout, key)| (Some(layout), key));
            if layout.is_some_and(|layout| !layouts().any(|known| known == layout)) {
                return Err(format!("sweep: show \"{shown}\": expected one of the layouts {}", known()));
            }
            if !KEYS.iter().any(|known| known.0 == key) {
                let keys = KEYS.map(|known| known.0).join(", ");
                return Err(format!("sweep: show \"{shown}\": expected one of the keys {keys}"));
            }
        }
        Ok(())
    }

    /// Whether this value of a layout is a row at a point: not if it is the reference's own
    /// performance.
    pub(super) fn shows(&self, laid: &Laid, key: &str, point: Point) -> bool {
        let reference = self.reference();
        let itself = key.starts_with("performance") && self.job(0, laid, point) == self.job(0, reference, point);
        let named = |shown: &String| shown.strip_prefix(&laid.key).and_then(|rest| rest.strip_prefix('.')) == Some(key);
        !itself && self.show.iter().any(|shown| shown == key || named(shown))
    }

    /// The names of the machines of its layouts.
    pub(crate) fn machines(&mut self) -> impl Iterator<Item = &mut String> {
        self.layouts.iter_mut().map(|laid| &mut laid.machine)
    }

    pub(super) fn reference(&self) -> &Laid {
        self.layouts.iter().find(|laid| laid.key == self.reference).expect("checked")
    }

    /// The points.
    pub(super) fn points(&self) -> impl Iterator<Item = Point> {
        self.share.iter().flat_map(|share| self.holes.iter().map(|holes| Point { share: *share, holes: *holes }))
    }

    /// The run of an item with a layout at a point. What does not depend on the point is one run.
    pub(super) fn job(&self, item: usize, laid: &Laid, Point { share, holes }: Point) -> Job {
        let whole = Layout { made: laid.regions, share: 0, holes: 0, placed: Placed::default(), seed: self.seed };
        let layout = match laid.regions {
            Made::Mixed if share == 0 => Layout { made: Made::Superpage, ..whole },
            Made::Mixed if holes == 0 => Layout { share, ..whole },
            Made::Mixed => Layout { share, holes, placed: laid.placed, ..whole },
            Made::Base | Made::Superpage => whole,
        };
        Job { item, machine: laid.machine.clone(), layout }
    }
}

/// A value by its key, and what rows call it.
pub(super) type Key = (&'static str, &'static str, fn(&Counted) -> f64);

/// The keys. Performance is the quotient of the cycles of the reference and these.
pub(super) const KEYS: [Key; 12] = [
    ("performance", "performance, ideal = 1", |counted| counted.cycles),
    ("performance-uncached", "performance if all data come from memory, ideal = 1", |counted| counted.uncached),
    ("cycles", "cycles", |counted| counted.cycles),
    ("instructions", "instructions", |counted| counted.instructions),
    ("misses", "TLB misses", |counted| counted.misses),
    ("mpki", "TLB misses per 1000 instructions", |counted| 1000.0 * counted.misses / counted.instructions),
    ("second", "hits in the second-level TLB", |counted| counted.second),
    ("walked", "references of a walk", |counted| counted.walked / counted.misses),
    ("superpages", "second-level entries: 2 MB", |counted| counted.entries.superpages as f64),
    ("perforated", "second-level entries: perforated pages", |counted| counted.entries.perforated as f64),
    ("bitmaps", "second-level entries: hole bitmaps", |counted| counted.entries.bitmaps as f64),
    ("base", "second-level entries: 4 KB, holes among them", |counted| counted.entries.base as f64),
];
