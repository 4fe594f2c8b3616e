//! Associativity: how many pages at a power-of-two stride a TLB holds.
//!
//! Pages whose numbers differ by a multiple of the number of sets share a set. As the stride
//! doubles, fewer such pages fit, until it reaches the number of sets: then as many fit as there
//! are ways. Behind a first level that holds any pages, the second is only reached if others are
//! touched in between: pages of other sets, twice as many as the first level holds.

use super::curve::Curve;
use super::memory::{BASE, Memory};
use super::steps::{Step, median, steps};
use super::{Finding, Series};
use superpage_linux::Error;

/// Strides in pages. Pages farther apart need entries of the upper page table each, and those may
/// live in the same TLB.
const STRIDES: [usize; 7] = [8, 16, 32, 64, 128, 256, 512];
/// The most pages at a stride that are tried: more ways than any second level has.
const MOST: usize = 72;
/// Knees that differ by less than this factor are the same.
const SAME: f64 = 1.2;
const ROUNDS: u64 = 8;
/// How often strides are measured again where they show no sets.
const ATTEMPTS: usize = 3;
const AXES: [&str; 2] = ["stride, pages", "pages that fit"];

/// The ways of the first level, and whether they are all its entries.
pub(crate) fn first(entries: f64, hertz: f64) -> Result<Finding, Error> {
    let (name, what) = ("tlb.l1.ways.4K", "ways of TLB level 1");
    let most = (2.0 * entries) as usize;
    let mut knees = Vec::new();
    for stride in [1, 64, 1024, 4096] {
        let memory = Memory::new((most + 1) * stride * BASE)?;
        memory.advise(libc::MADV_NOHUGEPAGE)?;
        let grid: Vec<usize> = (4..=most).collect();
        let mut curve = Curve::new("", &grid);
        for round in 0..ROUNDS {
            for (point, pages) in grid.iter().enumerate() {
                let lines = (0..*pages).map(|page| at(page, stride)).collect();
                curve.measure(point, &memory, lines, round);
            }
        }
        let points: Vec<[f64; 2]> =
            curve.points.iter().map(|[pages, ns]| [*pages, (ns - curve.points[0][1]) * hertz / 1e9]).collect();
        let Some(Step { begins, .. }) = steps(&points).first().copied() else {
            let because = format!("{most} pages at a stride of {stride} pages show no step");
            return Ok(Finding::unknown(name, what, because));
        };
        knees.push([stride as f64, begins.floor()]);
    }
    let (near, far) = (knees[0][1], knees[knees.len() - 1][1]);
    let list = list(&knees);
    Ok(if far * SAME >= near {
        Finding::text(name, what, "full", far.min(near) / far.max(near), format!("as many fit at every stride: {list}"))
    } else {
        Finding::number(name, what, far, 1.0, format!("fewer fit as the stride doubles: {list}")).unit("ways")
    }
    .with(Series { name: "level 1".into(), axes: AXES, points: knees }))
}

/// The ways and the sets of the second level, behind a first level of `first` entries.
pub(crate) fn second(first: f64, entries: f64, hertz: f64) -> Result<Vec<Finding>, Error> {
    let (name, what) = ("tlb.l2.ways.4K", "ways of TLB level 2");
    let same = |a: f64, b: f64| a.max(b) <= SAME * a.min(b);
    let (mut seen, mut series) = (String::new(), Vec::new());
    for _ in 0..ATTEMPTS {
        let knees = knees(first, hertz)?;
        let stays = knees.windows(2).find(|pair| same(pair[0][1], pair[1][1])).map(|pair| pair[0][0]);
        seen = list(&knees);
        series = knees.clone();
        let Some(sets) = stays else { continue };
        let far: Vec<f64> = knees.iter().filter(|[stride, _]| *stride >= sets).map(|[_, fit]| *fit).collect();
        let ways = median(far.into_iter());
        let product = sets * ways;
        // As many entries as the curve of latency shows, or the sets are not those of its numbers'
        // low bits.
        if !(0.5 * entries..2.0 * entries).contains(&product) {
            continue;
        }
        let confidence = (product / entries).min(entries / product);
        let evidence = format!("pages that fit at strides: {seen}; {sets} sets of {ways} ways are {product} entries");
        let series = Series { name: "level 2".into(), axes: AXES, points: series };
        return Ok(vec![
            Finding::number(name, what, ways, confidence, evidence.clone()).unit("ways").with(series),
            Finding::number("tlb.l2.sets.4K", "sets of TLB level 2", sets, confidence, evidence).unit("sets"),
        ]);
    }
    let because = format!("the pages that fit at strides show no number of sets: {seen}");
    let series = Series { name: "level 2".into(), axes: AXES, points: series };
    Ok(vec![Finding::unknown(name, what, because).with(series)])
}

/// Strides, and how many pages fit.
fn knees(first: f64, hertz: f64) -> Result<Vec<[f64; 2]>, Error> {
    let mut knees: Vec<[f64; 2]> = Vec::new();
    let fillers = (2.0 * first) as usize;
    for stride in STRIDES {
        let ring = MOST * stride;
        let memory = Memory::new((ring + 4 * fillers.max(stride) + stride) * BASE)?;
        memory.advise(libc::MADV_NOHUGEPAGE)?;
        let grid: Vec<usize> = (4..=MOST).collect();
        let mut curve = Curve::new("", &grid);
        // Pages of all other sets, in a row.
        let others: Vec<usize> = (ring..).filter(|page| page % stride != 0).take(fillers).collect();
        for round in 0..ROUNDS {
            for (point, pages) in grid.iter().enumerate() {
                let lines = (0..*pages).map(|page| at(page, stride));
                let lines = lines.chain(others.iter().map(|page| page * BASE + page * 64 % BASE)).collect();
                curve.measure(point, &memory, lines, round);
            }
        }
        let calm = curve.points[0][1];
        let each = |[pages, ns]: &[f64; 2]| [*pages, (ns - calm) * (pages + fillers as f64) / pages * hertz / 1e9];
        let points: Vec<[f64; 2]> = curve.points.iter().map(each).collect();
        if let Some(step) = steps(&points).first() {
            knees.push([stride as f64, step.begins.floor()]);
        }
    }
    Ok(knees)
}

/// One line of a page, each page's in another place.
fn at(page: usize, stride: usize) -> usize {
    page * stride * BASE + page * 64 % BASE
}

fn list(knees: &[[f64; 2]]) -> String {
    let each: Vec<String> = knees.iter().map(|[stride, pages]| format!("{pages} at {stride}")).collect();
    each.join(", ")
}
