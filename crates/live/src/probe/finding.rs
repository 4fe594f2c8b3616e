//! What was found out, with the evidence.

use serde::Serialize;

/// One thing that was measured, or that could not be told.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Finding {
    /// Its name, as in JSON: words with dots, such as `tlb.l2.entries.4K`.
    pub name: String,
    /// What was asked, for people.
    pub what: String,
    /// What was found; `None` if it could not be told.
    pub value: Option<Value>,
    /// The unit of the value: `ns`, `cycles`, `entries`, ...; empty where it has none.
    pub unit: &'static str,
    /// How well repeats agree, from 0 (not at all) to 1.
    pub confidence: f64,
    /// One sentence: what was seen that says so, or why it could not be told.
    pub evidence: String,
    /// The measured points, a series each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Series>,
}

/// How the evidence begins of what was not measured.
const UNMEASURED: &str = "not measured";

/// A value that was found.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// It is so, or not.
    Yes(bool),
    /// A number, in the unit of the finding.
    Number(f64),
    /// A word or several.
    Text(String),
}

/// Measured points that go together.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// What x and y are.
    pub axes: [&'static str; 2],
    /// Pairs of x and y.
    pub points: Vec<[f64; 2]>,
}

impl Finding {
    /// Something that is so or not.
    pub fn yes(name: &str, what: &str, yes: bool, confidence: f64, evidence: String) -> Finding {
        Finding::of(name, what, Some(Value::Yes(yes)), "", confidence, evidence)
    }

    /// A number.
    pub fn number(
        name: &str,
        what: &str,
        number: f64,
        unit: &'static str,
        confidence: f64,
        evidence: String,
    ) -> Finding {
        Finding::of(name, what, Some(Value::Number(number)), unit, confidence, evidence)
    }

    /// A word or several.
    pub fn text(name: &str, what: &str, text: &str, confidence: f64, evidence: String) -> Finding {
        Finding::of(name, what, Some(Value::Text(text.into())), "", confidence, evidence)
    }

    /// Something that could not be told, and why.
    pub fn unknown(name: &str, what: &str, because: String) -> Finding {
        Finding::of(name, what, None, "", 0.0, format!("could not be told, because {because}"))
    }

    /// Something that was not measured, and why.
    pub fn unmeasured(name: &str, what: &str, because: String) -> Finding {
        Finding::of(name, what, None, "", 0.0, format!("{UNMEASURED}, because {because}"))
    }

    /// Whether nothing was tried: it is not that the measured points do not tell.
    pub fn is_unmeasured(&self) -> bool {
        self.value.is_none() && self.evidence.starts_with(UNMEASURED)
    }

    /// The same with measured points.
    pub fn with(mut self, series: Series) -> Finding {
        self.series.push(series);
        self
    }

    /// Whether it is so; `None` if it could not be told or is no such question.
    pub fn is_so(&self) -> Option<bool> {
        match self.value {
            Some(Value::Yes(yes)) => Some(yes),
            _ => None,
        }
    }

    /// The number found, if it is one and could be told.
    pub fn as_number(&self) -> Option<f64> {
        match self.value {
            Some(Value::Number(number)) => Some(number),
            _ => None,
        }
    }

    fn of(
        name: &str,
        what: &str,
        value: Option<Value>,
        unit: &'static str,
        confidence: f64,
        evidence: String,
    ) -> Finding {
        Finding { name: name.into(), what: what.into(), value, unit, confidence, evidence, series: Vec::new() }
    }
}
