//! Student's t for variances of differences between neighbours.

/// The degrees of freedom of a variance that is the mean of these squared differences of
/// neighbours: those of the gamma distribution with its mean and variance (Satterthwaite, 1946),
/// here estimated from the squares themselves, of which neighbours share a window. A burst in K
/// windows of many gives 2 K. At least 1, and at most those under a normal distribution (von
/// Neumann et al., 1941).
pub(super) fn freedom(squares: &[f64]) -> f64 {
    let count = squares.len() as f64;
    let normal = 2.0 * count.powi(2) / (3.0 * count - 1.0);
    let sum: f64 = squares.iter().sum();
    let off: Vec<f64> = squares.iter().map(|square| square - sum / count).collect();
    let shared: f64 = off.windows(2).map(|pair| pair[0] * pair[1]).sum();
    let variance = off.iter().map(|off| off.powi(2)).sum::<f64>() + 2.0 * shared;
    if variance > 0.0 { (2.0 * sum.powi(2) / variance).clamp(1.0, normal) } else { normal }
}

/// The 97.5 % quantile of Student's t with `freedom` degrees of freedom, at least 1: from tables,
/// interpolated linearly in the inverse, which is accurate to 1 %.
pub(super) fn student(freedom: f64) -> f64 {
    const TABLE: [(f64, f64); 12] = [
        (1.0, 12.706),
        (1.5, 6.017),
        (2.0, 4.303),
        (3.0, 3.182),
        (4.0, 2.776),
        (5.0, 2.571),
        (7.0, 2.365),
        (10.0, 2.228),
        (15.0, 2.131),
        (30.0, 2.042),
        (100.0, 1.984),
        (f64::INFINITY, 1.960),
    ];
    let at = TABLE.iter().rposition(|(freedom_of, _)| *freedom_of <= freedom).unwrap_or(0);
    let (Some(low), Some(high)) = (TABLE.get(at), TABLE.get(at + 1)) else { return 1.960 };
    let part = (1.0 / low.0 - 1.0 / freedom) / (1.0 / low.0 - 1.0 / high.0);
    low.1 + part * (high.1 - low.1)
}
