//! Findings: a paper's value of a quantity, the value measured here, and whether they agree.

use crate::computed::{Computed, Shown};
use crate::experiment::{Cell, Column, Experiment, Item, Kind, Single};
use crate::judge::{Tolerance, Verdict};
use crate::lookup::Lookup;
use crate::measure::{Measure, Value, slug, split};
use crate::running::Outcome;
use crate::streams::Passes;
use serde::Serialize;
use superpage_keys::Keys;
use superpage_report::Point;

/// A row of the report.
#[derive(Clone, PartialEq, Debug, Serialize, Keys)]
pub struct Finding {
    /// The paper.
    #[key(condition, group = "Findings")]
    pub paper: String,
    /// The paper's table, figure or section.
    #[key(condition)]
    pub experiment: String,
    /// The benchmark.
    #[key(condition)]
    pub item: String,
    /// The quantity.
    #[key(condition)]
    pub quantity: String,
    /// The paper's value, if it has one.
    #[key(state)]
    pub paper_value: Option<Value>,
    /// The value measured here, if there is one.
    #[key(state)]
    pub measured: Option<Value>,
    /// How close it must be, in words; `None` if it is not judged.
    #[key(condition)]
    pub tolerance: Option<String>,
    /// Whether it is.
    #[key(state)]
    pub verdict: Verdict,
    /// Why it is only shown, or why it differs, if that is known.
    #[key(condition)]
    pub reason: Option<String>,
    /// The options that changed the machines it was computed on; `None` if all values are the
    /// experiment's own.
    #[key(condition)]
    pub settings: Option<String>,
    /// The verdict that it would have if those were the experiment's own.
    #[key(state)]
    pub settings_verdict: Option<Verdict>,
    /// How sure `measured` is, if it comes from a sampled stream.
    #[key(state)]
    pub estimate: Option<String>,
}

/// The source of values, whatever the kind of the experiment.
pub(crate) trait Values {
    /// The value of a name in a measure; `item` is the default item.
    fn value(&self, item: Option<&Item>, name: &str) -> Option<Value>;
    /// Why a value is missing.
    fn problem(&self, item: Option<&Item>, name: &str) -> Option<&Outcome>;
    /// The error of a run that went to its end and that the value comes from.
    fn error(&self, item: Option<&Item>, name: &str) -> Option<&str>;
    /// How sure a value is that comes from a sampled stream.
    fn estimate(&self, _item: Option<&Item>, _name: &str) -> Option<String> {
        None
    }
    /// The points of a curve; empty if there is no such curve.
    fn curve(&self, name: &str) -> Vec<Point>;
}

impl Values for Lookup<'_> {
    fn value(&self, item: Option<&Item>, name: &str) -> Option<Value> {
        Lookup::value(self, item, name)
    }

    fn problem(&self, item: Option<&Item>, name: &str) -> Option<&Outcome> {
        Lookup::problem(self, item, name)
    }

    fn error(&self, item: Option<&Item>, name: &str) -> Option<&str> {
        Lookup::error(self, item, name)
    }

    fn estimate(&self, item: Option<&Item>, name: &str) -> Option<String> {
        Lookup::estimate(self, item, name)
    }

    fn curve(&self, name: &str) -> Vec<Point> {
        Lookup::curve(self, name)
    }
}

impl Values for Computed {
    fn value(&self, item: Option<&Item>, name: &str) -> Option<Value> {
        let of_item = || self.values.get(&format!("{}:{name}", slug(&item?.name)));
        self.values.get(name).or_else(of_item).copied().map(Value::Number)
    }

    fn problem(&self, item: Option<&Item>, name: &str) -> Option<&Outcome> {
        let named = split(name).0.map(str::to_string);
        self.problems.get(&named.or_else(|| item.map(|item| slug(&item.name)))?)
    }

    fn error(&self, _: Option<&Item>, _: &str) -> Option<&str> {
        None
    }

    fn curve(&self, name: &str) -> Vec<Point> {
        self.curves.get(name).cloned().unwrap_or_default()
    }
}

/// A value to be judged, from a column or by itself.
struct Question<'a> {
    item: &'a str,
    quantity: &'a str,
    paper: Option<Value>,
    tolerance: Option<Tolerance>,
    steps: Option<u32>,
    /// Why it is only shown.
    shown: Option<&'a String>,
    /// The cause if it differs.
    because: Option<&'a String>,
}

/// All findings of an experiment, by its items and then its single values, without what an
/// interrupt left out.
pub(crate) fn findings(experiment: &Experiment, passes: &Passes, values: &dyn Values) -> Vec<Finding> {
    let mut found = Vec::new();
    for item in &experiment.items {
        let mut cells = item.paper.iter();
        for column in &experiment.columns {
            let paper = column.paper.or_else(|| match cells.next() {
                Some(Cell::Value(value)) => Some(*value),
                _ => None,
            });
            if !item.runs() && (paper.is_none() || column.paper.is_some()) {
                continue;
            }
            let question = of_column(item, column, paper);
            found.extend(answer(experiment, values, Some(item), Some(&column.measure.0), &question));
        }
    }
    let lookup = Lookup { experiment, passes };
    for single in &experiment.values {
        let measure = single.measure.as_ref().map(|text| &text.0);
        found.extend(answer(experiment, values, lookup.item(&single.item), measure, &of_single(single)));
    }
    found
}

/// A finding that is shown with the paper, which has no number for it.
pub(crate) fn shown(experiment: &Experiment, shown: Shown) -> Finding {
    Finding {
        paper: experiment.paper.clone(),
        experiment: experiment.name.clone(),
        item: shown.item,
        quantity: shown.quantity,
        paper_value: None,
        measured: Some(Value::Number(shown.value)),
        tolerance: None,
        verdict: Verdict::Shown,
        reason: Some(shown.reason),
        settings: experiment.settings_of(None),
        settings_verdict: None,
        estimate: None,
    }
}

fn of_column<'a>(item: &'a Item, column: &'a Column, paper: Option<Value>) -> Question<'a> {
    // An order is judged even for a program that only represents the paper's.
    let order = matches!(paper, Some(Value::Truth(_)));
    let shown = item.unlike.get(&column.quantity).or(column.shown.as_ref()).or(item.shown.as_ref());
    Question {
        item: &item.name,
        quantity: &column.quantity,
        paper,
        tolerance: column.tolerance.or(order.then_some(Tolerance::Exact)),
        steps: item.steps,
        shown: if order { item.unlike.get(&column.quantity).or(column.shown.as_ref()) } else { shown },
        because: item.because.get(&column.quantity),
    }
}

fn of_single(single: &Single) -> Question<'_> {
    Question {
        item: &single.item,
        quantity: &single.quantity,
        paper: single.paper,
        tolerance: single.tolerance.or(Some(Tolerance::Exact)),
        steps: single.steps,
        shown: single.shown.as_ref(),
        because: single.because.as_ref(),
    }
}

fn answer(
    experiment: &Experiment,
    values: &dyn Values,
    item: Option<&Item>,
    measure: Option<&Measure>,
    question: &Question,
) -> Option<Finding> {
    // An item that does not run has no measured values.
    let idle =
        item.is_some_and(|item| !item.runs()) && matches!(experiment.kind, Kind::Grid | Kind::Sequence | Kind::Live);
    let measure = measure.filter(|_| !idle);
    let measured = measure.and_then(|measure| measure.value(&|name| values.value(item, name)));
    let mut reason = question.shown.cloned();
    let mut verdict = Verdict::Shown;
    if let (None, Some(measure)) = (measured, measure) {
        let mut problem = None;
        let mut absent = None;
        measure.names(&mut |name| {
            problem = problem.or_else(|| values.problem(item, name));
            absent = absent.take().or_else(|| values.value(item, name).is_none().then(|| name.to_string()));
        });
        reason = Some(match problem {
            Some(Outcome::Interrupted) => return None,
            Some(Outcome::Missing(text)) => text.clone(),
            Some(Outcome::Failed(text)) => format!("the run failed: {text}"),
            _ => match absent {
                Some(name) => format!("there is no value {name}"),
                None => "it would divide by 0".into(),
            },
        });
    }
    if let Some(measure) = measure {
        let mut error = None;
        measure.names(&mut |name| error = error.or_else(|| values.error(item, name)));
        reason = reason.or_else(|| error.map(|error| format!("a process was killed in the run: {error}")));
    }
    let settings = measured.and(measure).and_then(|measure| experiment.settings_of(Some(measure)));
    let mut settings_verdict = None;
    let mut estimate = None;
    if let (Some(measure), Some(_)) = (measure, measured) {
        measure.names(&mut |name| estimate = estimate.take().or_else(|| values.estimate(item, name)));
    }
    let mut tolerance = None;
    if let (None, Some(paper), Some(measured), Some(by)) =
        (question.shown, question.paper, measured, question.tolerance)
    {
        verdict = by.judge(paper, measured, question.steps);
        tolerance = Some(by.describe(paper, question.steps));
        if let Some(settings) = &settings {
            // Neither a verdict on the experiment, nor the reason for one, holds for other values.
            reason = reason.or_else(|| Some(format!("with {settings} it {}", verdict.conditional())));
            settings_verdict = Some(std::mem::replace(&mut verdict, Verdict::Shown));
        } else if verdict == Verdict::Differs {
            reason = question.because.cloned().or(reason);
        }
    }
    Some(Finding {
        paper: experiment.paper.clone(),
        experiment: experiment.name.clone(),
        item: question.item.into(),
        quantity: question.quantity.into(),
        paper_value: question.paper,
        measured,
        tolerance,
        verdict,
        reason,
        settings,
        settings_verdict,
        estimate,
    })
}
