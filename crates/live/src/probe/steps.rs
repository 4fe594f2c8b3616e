//! Where a curve of latency against pages steps up: change points of a piecewise constant function,
//! by dynamic programming.

/// A stretch of a curve that stays at one height.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Plateau {
    /// The first point of it.
    pub(crate) from: usize,
    /// The point after its last.
    pub(crate) to: usize,
    /// Its height.
    pub(crate) height: f64,
}

/// A step between two plateaus.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Step {
    /// Where a tenth of the height is climbed: nothing misses before.
    pub(crate) begins: f64,
    /// Where the curve crosses the middle (of the logarithms) between the two heights.
    pub(crate) at: f64,
    /// The height before.
    pub(crate) low: f64,
    /// The height after.
    pub(crate) high: f64,
}

/// Cycles that are added to a height before its logarithm is compared: differences of a fraction of
/// a cycle mean nothing.
const FLOOR: f64 = 1.0;
/// The noise that is taken for granted, in logarithms of 2.
const NOISE: f64 = 0.1;
/// A plateau spans at least this factor of pages, in at least [`POINTS`] points; what is shorter is
/// a slope between two.
const SPAN: f64 = 1.25;
const POINTS: usize = 3;
/// Points, in pages and cycles, in the order of the pages.
type Points = [[f64; 2]];

fn log(height: f64) -> f64 {
    (height.max(0.0) + FLOOR).log2()
}

/// The plateaus of a curve, in order. O(points^2).
pub(crate) fn plateaus(points: &Points) -> Vec<Plateau> {
    let heights: Vec<f64> = points.iter().map(|point| log(point[1])).collect();
    let mut plateaus: Vec<Plateau> = segments(&heights)
        .into_iter()
        .filter(|(from, to)| to - from >= POINTS && points[to - 1][0] >= SPAN * points[*from][0])
        .map(|(from, to)| Plateau { from, to, height: median(points[from..to].iter().map(|point| point[1])) })
        .collect();
    // What a slope was cut into belongs together if the heights do.
    plateaus.dedup_by(|next, before| {
        let same = (log(next.height) - log(before.height)).abs() < 2.0 * NOISE;
        if same {
            before.to = next.to;
            before.height = median(points[before.from..before.to].iter().map(|point| point[1]));
        }
        same
    });
    plateaus
}

/// The steps up between plateaus that follow each other. What falls is no step.
pub(crate) fn steps(points: &Points) -> Vec<Step> {
    let plateaus = plateaus(points);
    let crossing = |low: &Plateau, high: &Plateau, height: f64| {
        // The last point that is still below, from which on all are above.
        let range = &points[low.from..high.to];
        let above = range.iter().rposition(|point| point[1] < height)? + 1;
        let ([x0, y0], [x1, y1]) = (range[above - 1], *range.get(above)?);
        Some(x0 + (x1 - x0) * (height - y0) / (y1 - y0))
    };
    plateaus
        .windows(2)
        .filter(|pair| pair[1].height > pair[0].height)
        .filter_map(|pair| {
            let (low, high) = (pair[0].height, pair[1].height);
            let middle = ((log(low) + log(high)) / 2.0).exp2() - FLOOR;
            let begins = crossing(&pair[0], &pair[1], low + 0.1 * (high - low))?;
            Some(Step { begins, at: crossing(&pair[0], &pair[1], middle)?, low, high })
        })
        .collect()
}

/// Cuts a series into stretches of about one height: the cut with the least squares, at a price for
/// each stretch as in the Bayesian information criterion.
fn segments(heights: &[f64]) -> Vec<(usize, usize)> {
    let count = heights.len();
    let price = 2.0 * (count.max(2) as f64).ln() * NOISE * NOISE;
    let mut sums = vec![(0.0, 0.0); count + 1];
    for (at, height) in heights.iter().enumerate() {
        sums[at + 1] = (sums[at].0 + height, sums[at].1 + height * height);
    }
    let squares = |from: usize, to: usize| {
        let (sum, square) = (sums[to].0 - sums[from].0, sums[to].1 - sums[from].1);
        square - sum * sum / (to - from) as f64
    };
    // The least cost of the first points, and where the last stretch of that cut begins.
    let mut best = vec![(0.0, 0)];
    for to in 1..=count {
        let costs = (0..to).map(|from| (best[from].0 + squares(from, to) + price, from));
        best.push(costs.min_by(|a, b| a.0.total_cmp(&b.0)).expect("there is a point before"));
    }
    let mut cuts = Vec::new();
    let mut to = count;
    while to > 0 {
        cuts.push((best[to].1, to));
        to = best[to].1;
    }
    cuts.reverse();
    cuts
}

/// The median; of an even number of values, the greater of the two in the middle.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A curve over 8 points an octave, with noise of a known seed.
    fn curve(noise: f64, height: impl Fn(f64) -> f64) -> Vec<[f64; 2]> {
        let mut rng = fastrand::Rng::with_seed(1);
        let grid = (24..=112).map(|eighth| 2_f64.powf(f64::from(eighth) / 8.0));
        grid.map(|x| [x, height(x) * (1.0 + noise * (rng.f64() - 0.5))]).collect()
    }

    #[test]
    fn sharp_steps_are_where_they_are() {
        let tlbs = |x: f64| {
            if x <= 72.0 {
                0.0
            } else if x <= 3072.0 {
                7.0
            } else {
                40.0
            }
        };
        let steps = steps(&curve(0.1, tlbs));
        assert_eq!(steps.len(), 2, "{steps:?}");
        assert!((66.0..79.0).contains(&steps[0].at) && (2817.0..3350.0).contains(&steps[1].at), "{steps:?}");
        assert!((6.5..7.5).contains(&steps[0].high));
    }

    #[test]
    fn a_slope_is_one_step_in_its_middle() {
        let slope = |x: f64| 7.0 + 33.0 * ((x - 1500.0) / 3000.0).clamp(0.0, 1.0);
        let steps = steps(&curve(0.05, slope));
        assert_eq!(steps.len(), 1, "{steps:?}");
        assert!((1600.0..3000.0).contains(&steps[0].at), "{steps:?}");
    }

    #[test]
    fn a_level_curve_has_no_step() {
        assert_eq!(steps(&curve(0.1, |_| 5.0)), []);
        assert_eq!(plateaus(&curve(0.1, |_| 5.0)).len(), 1);
    }
}
