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
pub(crate) mod sweep;

use crate::computed::{Computed, Shown};
use crate::experiment::{Experiment, Item};
use crate::measure::slug;
use crate::running::{Options, Outcome, Watch};
use crate::streams::What;
use drive::{Counted, Drive, Walks};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use superpage_mmu::Machine;
use sweep::{Job, KEYS, Laid, Point, Sweep};

/// Of what a mean over all items is: the layout, the key and the point.
type Mean = (String, &'static str, Point);

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
        let mut counted = |laid: &Laid, point: Point| {
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
                    note(&mut found, sweep, &format!("{}:{}.{key}", slug(&item.name), laid.key), point, value);
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
        note(&mut found, sweep, &format!("mean:{name}.{key}"), point, (sum / f64::from(count)).exp());
    }
    found
}

/// Adds a value, and the point of its curve, `ITEM:LAYOUT.KEY`.
fn note(found: &mut Computed, sweep: &Sweep, curve: &str, Point { share, holes }: Point, value: f64) {
    found.values.insert(format!("{curve}@x{share}h{holes}"), value);
    let x = if sweep.share.len() > 1 { share } else { holes };
    found.point(curve, f64::from(x), value, "");
}

fn row(sweep: &Sweep, item: &str, quantity: String, at: Point, value: f64) -> Shown {
    let Point { share, holes } = at;
    let point = if sweep.share.len() > 1 { format!("x = {share} %") } else { format!("{holes} % holes") };
    Shown { item: format!("{item}, {point}"), quantity, value, reason: "the paper draws it and gives no number".into() }
}

/// References of walks into one region, and the size of bitmaps.
fn walks(sweep: &Sweep, found: &mut Computed) -> Result<(), String> {
    for laid in &sweep.layouts {
        let name = &laid.key;
        let machine = superpage_sim::machine(&laid.machine).map_err(|error| error.to_string())?;
        let point = Point { share: 100, holes: sweep.holes.last().copied().unwrap_or_default() };
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
            let result = one(item, job, options, experiment.lines, stop);
            results.lock().expect("no thread panics").insert(job.clone(), result);
        }
    };
    std::thread::scope(|scope| (0..threads.min(jobs.len())).for_each(|_| _ = scope.spawn(work)));
    results.into_inner().expect("no thread panics")
}

fn one(item: &Item, job: &Job, options: &Options, lines: bool, stop: &AtomicBool) -> Result<Counted, Outcome> {
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
