//! Curves: the latency of a chase against the pages that it touches.

use super::Series;
use super::chase::{Chase, spread};
use super::memory::{BASE, HUGE, Memory};

/// Latencies against pages, the least of all rounds so far.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    pub(crate) name: &'static str,
    /// Pages touched, and nanoseconds a load.
    pub(crate) points: Vec<[f64; 2]>,
}

/// The least number of loads of a repeat, which are also at least four rounds of its pages.
const LOADS: usize = 4096;
const REPEATS: usize = 6;

/// Numbers of pages from 8 to `most`, with `in_octave` in each octave; the last is `most` itself.
pub(crate) fn grid(most: usize, in_octave: u32) -> Vec<usize> {
    let octaves = (most as f64 / 8.0).log2();
    let steps = (octaves * f64::from(in_octave)).ceil() as u32;
    let mut grid: Vec<usize> =
        (0..=steps).map(|step| (8.0 * 2_f64.powf(f64::from(step) / f64::from(in_octave))).round() as usize).collect();
    grid.retain(|pages| *pages < most);
    grid.push(most);
    grid.dedup();
    grid
}

impl Curve {
    pub(crate) fn new(name: &'static str, grid: &[usize]) -> Curve {
        Curve { name, points: grid.iter().map(|pages| [*pages as f64, f64::INFINITY]).collect() }
    }

    /// Measures a point and keeps it if it is less than before. Returns it in nanoseconds per load.
    pub(crate) fn measure(&mut self, point: usize, memory: &Memory, lines: Vec<usize>, seed: u64) -> f64 {
        let loads = LOADS.max(4 * lines.len());
        let chase = Chase::new(memory, lines, seed);
        let least = (0..REPEATS).map(|_| chase.time(loads)).fold(f64::INFINITY, f64::min);
        let known = &mut self.points[point][1];
        *known = known.min(least);
        least
    }

    /// The points in cycles, less those of another curve over the same pages: what TLBs add, where
    /// the other touches as many lines in few pages.
    pub(crate) fn beyond(&self, other: &Curve, hertz: f64) -> Vec<[f64; 2]> {
        let pairs = self.points.iter().zip(&other.points);
        pairs.map(|([pages, all], [_, data])| [*pages, (all - data) * hertz / 1e9]).collect()
    }

    /// For a finding.
    pub(crate) fn series(&self) -> Series {
        Series { name: self.name.into(), axes: ["pages touched", "ns a load"], points: self.points.clone() }
    }
}

/// Lines of adjacent cache lines.
pub(crate) fn adjacent(lines: usize) -> Vec<usize> {
    (0..lines).map(|line| 64 * line).collect()
}

/// One line of each base page.
pub(crate) fn base_pages(pages: usize) -> Vec<usize> {
    spread(pages, BASE)
}

/// One line of each page of 2 MB, each in another piece of 4 KB of it and in another set of the
/// caches.
pub(crate) fn huge_pages(pages: usize) -> Vec<usize> {
    (0..pages).map(|page| page * HUGE + page * (BASE + 64) % HUGE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_ascend_to_their_end() {
        let grid = grid(100, 4);
        assert_eq!((grid[0], grid[4], grid[grid.len() - 1]), (8, 16, 100));
        assert!(grid.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn lines_of_huge_pages_are_all_different_within_a_page() {
        let mut places: Vec<usize> = huge_pages(8192).into_iter().map(|at| at % HUGE).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 8192);
    }
}
