//! Scales: from numbers to positions on an axis, and the numbers written beside it.

/// An axis from its least to its greatest number, over so many pixels.
pub(crate) struct Scale {
    least: f64,
    most: f64,
    log: bool,
    from: f64,
    to: f64,
}

impl Scale {
    /// An axis that contains all `values`, drawn from `from` to `to`. A linear one starts at 0 if
    /// `zero`; a logarithmic one ranges from decade to decade.
    pub(crate) fn over(values: impl Iterator<Item = f64>, log: bool, zero: bool, (from, to): (f64, f64)) -> Scale {
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            (least, most) = (least.min(value), most.max(value));
        }
        if least > most {
            (least, most) = (1.0, 10.0);
        }
        if log {
            (least, most) = (10_f64.powf(least.log10().floor()), 10_f64.powf(most.log10().ceil()));
            most = if least == most { 10.0 * least } else { most };
        } else {
            least = if zero { least.min(0.0) } else { least };
            let step = step(most - least);
            (least, most) = ((least / step).floor() * step, (most / step).ceil() * step);
            most = if least == most { least + 1.0 } else { most };
        }
        Scale { least, most, log, from, to }
    }

    /// Narrows it to the range of the values, with a margin on both sides.
    pub(crate) fn close(mut self, values: impl Iterator<Item = f64> + Clone) -> Scale {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let most = values.fold(f64::NEG_INFINITY, f64::max);
        if !self.log && least < most {
            let margin = (most - least) * 0.03;
            (self.least, self.most) = (least - margin, most + margin);
        }
        self
    }

    /// Narrows it to exactly this range, without rounding to ticks.
    pub(crate) fn tight(mut self, least: f64, most: f64) -> Scale {
        (self.least, self.most) = (least, most);
        self
    }

    /// The position of a number.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let share = if self.log {
            (value / self.least).ln() / (self.most / self.least).ln()
        } else {
            (value - self.least) / (self.most - self.least)
        };
        self.from + share * (self.to - self.from)
    }

    /// The numbers to write.
    pub(crate) fn ticks(&self) -> Vec<f64> {
        let inside = |value: &f64| *value >= self.least * (1.0 - 1e-9) && *value <= self.most * (1.0 + 1e-9);
        if self.log {
            let (first, last) = (self.least.log10().floor() as i32, self.most.log10().ceil() as i32);
            return (first..=last).map(|power| 10_f64.powi(power)).filter(inside).collect();
        }
        let step = step(self.most - self.least);
        let first = (self.least / step).ceil() as i64;
        let last = (self.most / step + 1e-9).floor() as i64;
        (first..=last).map(|number| number as f64 * step).collect()
    }
}

/// A round step that divides the range into about five.
fn step(range: f64) -> f64 {
    if range <= 0.0 {
        return 1.0;
    }
    let rough = range / 5.0;
    let decade = 10_f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|factor| factor * decade).into_iter().find(|step| *step >= rough).unwrap_or(10.0 * decade)
}

/// A number beside an axis, with K, M, G for thousands.
pub(crate) fn tick(value: f64) -> String {
    let (number, unit) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, "G"),
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e4 => (value / 1e3, "K"),
        _ => (value, ""),
    };
    let text = format!("{number:.4}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_axis_has_round_numbers_around_its_values() {
        let scale = Scale::over([0.3, 8.7].into_iter(), false, true, (0.0, 100.0));
        assert_eq!(scale.ticks(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(scale.at(5.0), 50.0);
    }

    #[test]
    fn a_logarithmic_axis_goes_by_decades() {
        let scale = Scale::over([0.02, 300.0].into_iter(), true, true, (100.0, 0.0));
        assert_eq!(scale.ticks().len(), 6);
        assert!((scale.at(0.01) - 100.0).abs() < 1e-9 && scale.at(1000.0).abs() < 1e-9);
    }

    #[test]
    fn numbers_beside_an_axis_are_short() {
        assert_eq!([0.01, 1.5, 2000.0, 65536.0, 1e6].map(tick), ["0.01", "1.5", "2000", "65.536K", "1M"]);
    }
}
