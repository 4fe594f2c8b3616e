//! Verdicts: whether a measured value agrees with a paper's, by a tolerance in the experiment file.

use crate::measure::Value;
use std::ops::RangeInclusive;
use std::str::FromStr;
use superpage_report::{Keys, Stored};

/// How close a value must be to the paper's.
#[derive(Clone, Copy, PartialEq, Debug, serde::Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum Tolerance {
    /// Equal, both rounded to a billionth.
    Exact,
    /// Within this many percent of the paper's value.
    Percent(f64),
    /// Within so much of the paper's value.
    Within(f64),
    /// At least the paper's value.
    AtLeast,
    /// At most the paper's value.
    AtMost,
    /// A share in percent of a count that the paper's counter measured in whole steps: as close as
    /// one step of both counts allows. The item says how many steps the whole is.
    Steps,
}

impl FromStr for Tolerance {
    type Err = String;

    fn from_str(text: &str) -> Result<Tolerance, String> {
        let problem = || {
            format!(
                "tolerance \"{text}\": expected exact, at least, at most, steps, a number such as 0.5, or one with %"
            )
        };
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|n| *n >= 0.0).ok_or_else(problem);
        match text {
            "exact" => Ok(Tolerance::Exact),
            "at least" => Ok(Tolerance::AtLeast),
            "at most" => Ok(Tolerance::AtMost),
            "steps" => Ok(Tolerance::Steps),
            _ => match text.strip_suffix('%') {
                Some(percent) => number(percent).map(Tolerance::Percent),
                None => number(text).map(Tolerance::Within),
            },
        }
    }
}

impl TryFrom<String> for Tolerance {
    type Error = String;

    fn try_from(text: String) -> Result<Tolerance, String> {
        text.parse()
    }
}

impl Keys for Verdict {
    const STORED: Stored = Stored::Text;
}

/// The result of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Within the tolerance.
    Agrees,
    /// Beyond it.
    Differs,
    /// Not judged: to be compared by eye, for the reason given.
    Shown,
}

impl Verdict {
    /// All of them, in the order of [`Verdict::counts`].
    pub(crate) const ALL: [Verdict; 3] = [Verdict::Agrees, Verdict::Differs, Verdict::Shown];

    /// How many there are of each.
    pub(crate) fn counts(verdicts: impl IntoIterator<Item = Verdict>) -> [usize; 3] {
        let mut counts = [0; 3];
        verdicts.into_iter().for_each(|verdict| counts[verdict as usize] += 1);
        counts
    }

    /// The verdict of a value that is not the experiment's own, in words.
    pub(crate) fn conditional(self) -> &'static str {
        match self {
            Verdict::Agrees => "would agree",
            Verdict::Differs => "would differ",
            Verdict::Shown => "would be shown",
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Verdict::Agrees => "agrees",
            Verdict::Differs => "differs",
            Verdict::Shown => "shown",
        })
    }
}

impl Tolerance {
    /// The interval that agrees with the paper's value. `steps` is the whole in steps of the
    /// paper's counter.
    fn interval(self, paper: f64, steps: Option<u32>) -> RangeInclusive<f64> {
        match self {
            Tolerance::Exact => paper - 1e-9..=paper + 1e-9,
            Tolerance::Percent(percent) => {
                let width = paper.abs() * percent / 100.0;
                paper - width..=paper + width
            }
            Tolerance::Within(width) => paper - width..=paper + width,
            Tolerance::AtLeast => paper..=f64::INFINITY,
            Tolerance::AtMost => f64::NEG_INFINITY..=paper,
            Tolerance::Steps => {
                // A count of k steps stands for anything between k - 1 and k + 1 of them.
                let whole = f64::from(steps.unwrap_or(1));
                let left = ((1.0 - paper / 100.0) * whole).round();
                let share = |left: f64, whole: f64| 100.0 * (1.0 - left / whole);
                share(left + 1.0, (whole - 1.0).max(1.0))..=share((left - 1.0).max(0.0), whole + 1.0)
            }
        }
    }

    /// Whether `measured` agrees with `paper`.
    pub(crate) fn judge(self, paper: Value, measured: Value, steps: Option<u32>) -> Verdict {
        let agrees = match (paper, measured) {
            (Value::Number(paper), Value::Number(measured)) => self.interval(paper, steps).contains(&measured),
            (paper, measured) => paper == measured,
        };
        if agrees { Verdict::Agrees } else { Verdict::Differs }
    }

    /// The tolerance in words.
    pub(crate) fn describe(self, paper: Value, steps: Option<u32>) -> String {
        match (self, paper) {
            (_, Value::Truth(_)) | (Tolerance::Exact, _) => "exact".into(),
            (Tolerance::Percent(percent), _) => format!("±{percent} %"),
            (Tolerance::Within(width), _) => format!("±{width}"),
            (Tolerance::AtLeast, _) => "at least".into(),
            (Tolerance::AtMost, _) => "at most".into(),
            (Tolerance::Steps, Value::Number(paper)) => {
                let (least, most) = self.interval(paper, steps).into_inner();
                format!("{least:.2} to {most:.2}, a step of the counter")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Agrees, Differs};

    fn judge(tolerance: &str, paper: f64, measured: f64, steps: Option<u32>) -> Verdict {
        tolerance.parse::<Tolerance>().unwrap().judge(Value::Number(paper), Value::Number(measured), steps)
    }

    #[test]
    fn each_tolerance_has_its_interval() {
        assert_eq!(judge("exact", 6.0, 6.0, None), Agrees);
        assert_eq!(judge("exact", 6.0, 6.001, None), Differs);
        assert_eq!(judge("10 %", 7.5, 8.2, None), Agrees);
        assert_eq!(judge("10%", 7.5, 8.3, None), Differs);
        assert_eq!(judge("1", 12.0, 13.0, None), Agrees);
        assert_eq!(judge("1", 12.0, 14.0, None), Differs);
        assert_eq!(judge("at least", 20.0, 21.0, None), Agrees);
        assert_eq!(judge("at most", 0.1, -0.2, None), Agrees);
    }

    #[test]
    fn a_counter_with_steps_tells_no_more_than_its_steps() {
        // 99.47 % is one step left of 189: so everything from about 98.9 % up reads the same.
        assert_eq!(judge("steps", 99.47, 99.998, Some(189)), Agrees);
        assert_eq!(judge("steps", 99.47, 98.95, Some(189)), Agrees);
        assert_eq!(judge("steps", 99.47, 98.8, Some(189)), Differs);
        assert_eq!(judge("steps", 90.43, 99.67, Some(188)), Differs);
    }

    #[test]
    fn a_truth_is_compared_as_it_is() {
        assert_eq!(Tolerance::Exact.judge(Value::Truth(true), Value::Truth(true), None), Agrees);
        assert_eq!(Tolerance::Exact.judge(Value::Truth(true), Value::Truth(false), None), Differs);
    }

    #[test]
    fn an_unknown_tolerance_is_refused() {
        assert!("about".parse::<Tolerance>().unwrap_err().contains("expected exact"));
        assert!("-3 %".parse::<Tolerance>().is_err());
    }
}
