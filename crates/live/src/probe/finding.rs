//! Findings, with their evidence.

use serde::Serialize;

/// One thing that was measured, or could not be determined.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Finding {
    /// Its name in JSON: words separated by dots, such as `tlb.l2.entries.4K`.
    pub name: String,
    /// The question, for people.
    pub what: String,
    /// The answer; `None` if it could not be determined.
    pub value: Option<Value>,
    /// The unit of the value: `ns`, `cycles`, `entries`, ...; empty if it has none.
    pub unit: &'static str,
    /// How well repeats agree, from 0 (not at all) to 1.
    pub confidence: f64,
    /// One sentence: the observation behind the answer, or why it could not be determined.
    pub evidence: String,
    /// The measured points, in series.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Series>,
}

/// How the evidence begins of what was not measured.
const UNMEASURED: &str = "not measured";

/// The value of a finding.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// Yes or no.
    Yes(bool),
    /// A number, in the unit of the finding.
    Number(f64),
    /// One word or several.
    Text(String),
}

/// A series of measured points.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// The meaning of x and y.
    pub axes: [&'static str; 2],
    /// Pairs of x and y.
    pub points: Vec<[f64; 2]>,
}

impl Finding {
    /// A finding with the value yes or no.
    pub fn yes(name: &str, what: &str, yes: bool, confidence: f64, evidence: String) -> Finding {
        Finding::of(name, what, Some(Value::Yes(yes)), confidence, evidence)
    }

    /// A finding with a number, without a unit; see [`unit`](Finding::unit).
    pub fn number(name: &str, what: &str, number: f64, confidence: f64, evidence: String) -> Finding {
        Finding::of(name, what, Some(Value::Number(number)), confidence, evidence)
    }

    /// A finding with one word or several.
    pub fn text(name: &str, what: &str, text: &str, confidence: f64, evidence: String) -> Finding {
        Finding::of(name, what, Some(Value::Text(text.into())), confidence, evidence)
    }

    /// Something that could not be determined, and why.
    pub fn unknown(name: &str, what: &str, because: String) -> Finding {
        Finding::of(name, what, None, 0.0, format!("could not be determined, because {because}"))
    }

    /// Something that was not measured, and why.
    pub(crate) fn unmeasured(name: &str, what: &str, because: String) -> Finding {
        Finding::of(name, what, None, 0.0, format!("{UNMEASURED}, because {because}"))
    }

    /// Whether nothing was measured, as opposed to inconclusive points.
    pub(crate) fn is_unmeasured(&self) -> bool {
        self.value.is_none() && self.evidence.starts_with(UNMEASURED)
    }

    /// This finding, with the unit of its number.
    pub fn unit(self, unit: &'static str) -> Finding {
        Finding { unit, ..self }
    }

    /// This finding, with another series of measured points.
    pub fn with(mut self, series: Series) -> Finding {
        self.series.push(series);
        self
    }

    /// Whether the answer is yes; `None` if it could not be determined or is not yes or no.
    pub(crate) fn is_so(&self) -> Option<bool> {
        match self.value {
            Some(Value::Yes(yes)) => Some(yes),
            _ => None,
        }
    }

    /// The value, if it is a number and could be determined.
    pub(crate) fn as_number(&self) -> Option<f64> {
        match self.value {
            Some(Value::Number(number)) => Some(number),
            _ => None,
        }
    }

    fn of(name: &str, what: &str, value: Option<Value>, confidence: f64, evidence: String) -> Finding {
        let (name, what) = (name.into(), what.into());
        Finding { name, what, value, unit: "", confidence, evidence, series: Vec::new() }
    }
}
