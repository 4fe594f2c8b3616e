//! Kind `holes`: what a machine's TLBs make of memory of which some regions cannot be superpages
//! (Park et al., ISCA 2020).
//!
//! Each item's stream runs on each layout at each point of two axes: the share of the regions that
//! are not plain superpages, and the share of the pages of such a region that are holes. There is
//! no kernel: what is mapped where is drawn ([`layout`]), and mapped at a first touch ([`drive`]),
//! as in a simulator that emulates system calls.

mod drive;
mod layout;
#[cfg(test)]
mod naive;

use crate::computed::{Computed, Shown};
use crate::experiment::{Experiment, Item, slug};
use crate::streams::{Options, Outcome, Watch, What};
use drive::{Counted, Drive, Walks};
use layout::{Layout, Made, Placed};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use superpage_mmu::Machine;

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
    layouts: Vec<Laid>,
}

/// A layout on a machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Laid {
    /// What measures call it.
    key: String,
    /// What rows call it.
    name: String,
    machine: String,
    #[serde(default)]
    regions: Made,
    #[serde(default)]
    placed: Placed,
}

/// One run of a stream.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Job {
    item: usize,
    machine: String,
    layout: Layout,
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
    fn shows(&self, laid: &Laid, key: &str, point: (u32, u32)) -> bool {
        let reference = self.reference();
        let itself = key.starts_with("performance") && self.job(0, laid, point) == self.job(0, reference, point);
        let named = |shown: &String| shown.strip_prefix(&laid.key).and_then(|rest| rest.strip_prefix('.')) == Some(key);
        !itself && self.show.iter().any(|shown| shown == key || named(shown))
    }

    /// The names of the machines of its layouts.
    pub(crate) fn machines(&mut self) -> impl Iterator<Item = &mut String> {
        self.layouts.iter_mut().map(|laid| &mut laid.machine)
    }

    fn reference(&self) -> &Laid {
        self.layouts.iter().find(|laid| laid.key == self.reference).expect("checked")
    }

    /// The points, as share and holes.
    fn points(&self) -> impl Iterator<Item = (u32, u32)> {
        self.share.iter().flat_map(|share| self.holes.iter().map(|holes| (*share, *holes)))
    }

    /// The run of an item with a layout at a point. What does not depend on the point is one run.
    fn job(&self, item: usize, laid: &Laid, (share, holes): (u32, u32)) -> Job {
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

/// Of what a mean over all items is: the layout, the key and the point.
type Mean = (String, &'static str, (u32, u32));

/// A value by its key, and what rows call it.
type Key = (&'static str, &'static str, fn(&Counted) -> f64);

/// The keys. Performance is the quotient of the cycles of the reference and these.
const KEYS: [Key; 12] = [
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

/// Values `ITEM:LAYOUT.KEY@xSHAREhHOLES` and curves `ITEM:LAYOUT.KEY` over the axis that has
/// several points; `mean` in place of an item is the geometric mean of all, of `performance` and of
/// `performance-uncached`. `LAYOUT.walk.filtered`, `.page`, `.hole` and `LAYOUT.covered` are those
/// of one region with the last share of holes, and `bitmap.percent` is what bitmaps take of memory.
pub(crate) fn compute(experiment: &Experiment, options: &Options, stop: &AtomicBool, watch: &dyn Watch) -> Computed {
    let mut found = Computed::default();
    let Some(sweep) = &experiment.sweep else { return found };
    if let Err(problem) = walks(sweep, &mut found) {
        found.failures.push(problem);
        return found;
    }
    let mut results = run(experiment, sweep, options, stop, watch);
    let mut means: BTreeMap<Mean, (f64, u32)> = BTreeMap::new();
    for (index, item) in experiment.items.iter().enumerate().filter(|(_, item)| item.runs()) {
        if let Some(problem) =
            results.iter().find_map(|(job, result)| result.as_ref().err().filter(|_| job.item == index))
        {
            if let Outcome::Failed(problem) = problem {
                found.failures.push(format!("{}: {problem}", item.name));
            }
            // A mean of the others would be no mean of all.
            for item in [slug(&item.name), "mean".into()] {
                found.problems.insert(item, problem.clone());
            }
            continue;
        }
        let mut counted = |laid: &Laid, point: (u32, u32)| {
            let result = results.entry(sweep.job(index, laid, point)).or_insert(Err(Outcome::Interrupted));
            result.as_ref().ok().copied().unwrap_or_default()
        };
        for point in sweep.points() {
            let reference = counted(sweep.reference(), point);
            for laid in &sweep.layouts {
                let here = counted(laid, point);
                for (key, quantity, value) in KEYS {
                    let relative = key.starts_with("performance");
                    let value = if relative { value(&reference) / value(&here) } else { value(&here) };
                    note(&mut found, sweep, (&slug(&item.name), &laid.key, key), point, value);
                    if sweep.shows(laid, key, point) {
                        found.shown.push(row(sweep, &item.name, format!("{}: {quantity}", laid.name), point, value));
                    }
                    if relative {
                        let mean = means.entry((laid.key.clone(), key, point)).or_default();
                        *mean = (mean.0 + value.ln(), mean.1 + 1);
                    }
                }
            }
        }
    }
    if found.problems.contains_key("mean") {
        return found;
    }
    for ((name, key, point), (sum, count)) in means {
        note(&mut found, sweep, ("mean", &name, key), point, (sum / f64::from(count)).exp());
    }
    found
}

/// Adds a value and the point of its curve.
fn note(found: &mut Computed, sweep: &Sweep, (item, layout, key): (&str, &str, &str), point: (u32, u32), value: f64) {
    let (share, holes) = point;
    found.values.insert(format!("{item}:{layout}.{key}@x{share}h{holes}"), value);
    let x = if sweep.share.len() > 1 { share } else { holes };
    found.point(&format!("{item}:{layout}.{key}"), f64::from(x), value, "");
}

fn row(sweep: &Sweep, item: &str, quantity: String, (share, holes): (u32, u32), value: f64) -> Shown {
    let point = if sweep.share.len() > 1 { format!("x = {share} %") } else { format!("{holes} % holes") };
    Shown { item: format!("{item}, {point}"), quantity, value, reason: "the paper draws it and gives no number".into() }
}

/// References of walks into one region, and the size of bitmaps.
fn walks(sweep: &Sweep, found: &mut Computed) -> Result<(), String> {
    for laid in &sweep.layouts {
        let name = &laid.key;
        let machine = superpage_sim::machine(&laid.machine).map_err(|error| error.to_string())?;
        let point = (100, sweep.holes.last().copied().unwrap_or_default());
        let walks = Walks::of(&machine, sweep.job(0, laid, point).layout)?;
        let values = [
            ("walk.filtered", walks.filtered),
            ("walk.page", walks.page),
            ("walk.hole", walks.hole),
            ("covered", Some(walks.covered)),
        ];
        for (key, value) in values.iter().filter_map(|(key, value)| Some((key, (*value)?))) {
            found.values.insert(format!("{name}.{key}"), value as f64);
        }
        let bits = (8 * machine.ladder().base().bytes()) as f64;
        found.values.insert("bitmap.percent".into(), 100.0 / bits);
    }
    Ok(())
}

/// Runs everything, on all cores.
fn run(
    experiment: &Experiment,
    sweep: &Sweep,
    options: &Options,
    stop: &AtomicBool,
    watch: &dyn Watch,
) -> BTreeMap<Job, Result<Counted, Outcome>> {
    let items = experiment.items.iter().enumerate().filter(|(_, item)| item.runs());
    let jobs = items.flat_map(|(index, _)| {
        sweep.points().flat_map(move |point| sweep.layouts.iter().map(move |laid| sweep.job(index, laid, point)))
    });
    let jobs: Vec<Job> = jobs.collect::<std::collections::BTreeSet<Job>>().into_iter().collect();
    let (next, results) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let threads = superpage_sim::threads();
    let work = || {
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let item = &experiment.items[job.item];
            if jobs.iter().position(|other| other.item == job.item).is_some_and(|first| jobs[first] == *job) {
                watch.stream(&item.name, job.item + 1, experiment.items.len());
            }
            let result = one(item, job, (options, experiment.lines), stop);
            results.lock().expect("no thread panics").insert(job.clone(), result);
        }
    };
    std::thread::scope(|scope| (0..threads.min(jobs.len())).for_each(|_| _ = scope.spawn(work)));
    results.into_inner().expect("no thread panics")
}

fn one(item: &Item, job: &Job, (options, lines): (&Options, bool), stop: &AtomicBool) -> Result<Counted, Outcome> {
    let failed = |problem: String| Outcome::Failed(problem);
    let machine: Machine = superpage_sim::machine(&job.machine).map_err(|error| failed(error.to_string()))?;
    let what = What::of(item, options.long).ok_or_else(|| failed("nothing runs".into()))?;
    let warm = item.warm.as_deref().map_or(Ok(0), superpage_pages::parse_count);
    let warm = warm.map_err(|error| failed(format!("warm: {error}")))?;
    let mut source = what.open(&options.corpus, lines)?;
    if lines {
        superpage_sim::check_stream_lines(source.info()).map_err(|error| failed(error.to_string()))?;
    }
    Drive::new(&machine, job.layout, lines).map_err(failed)?.run(source.as_mut(), warm, stop)
}
