//! Values by name: `all.pages.4M@fftw-1` is the key `pages`, `4M` of the run `all`, in the part
//! `fftw 1` of the stream.

use crate::experiment::{Experiment, Item};
use crate::measure::{Value, slug, split};
use crate::running::Outcome;
use crate::streams::Passes;
use superpage_pages::PageSize;
use superpage_report::Point;
use superpage_sim::Row;

/// Finds the values of a grid.
pub(crate) struct Lookup<'a> {
    pub(crate) experiment: &'a Experiment,
    pub(crate) passes: &'a Passes,
}

impl<'a> Lookup<'a> {
    /// The value of the name; `item` is used if it names none.
    pub(crate) fn value(&self, item: Option<&Item>, name: &str) -> Option<Value> {
        let (row, key) = self.row(item, name)?;
        number(row, key)
    }

    /// How sure it is, if its stream was sampled.
    pub(crate) fn estimate(&self, item: Option<&Item>, name: &str) -> Option<String> {
        let (row, key) = self.row(item, name)?;
        row.why_inexact(key.split('.').next()?).map(String::from)
    }

    /// The row of a value, and its key.
    fn row<'b>(&self, item: Option<&Item>, name: &'b str) -> Option<(&'a Row, &'b str)> {
        let (named, rest) = split(name);
        let item = named.map_or(item, |named| self.item(named))?;
        let (run, rest) = rest.split_once('.')?;
        let (key, part) = rest.split_once('@').map_or((rest, None), |(key, part)| (key, Some(part)));
        match self.passes.outcome(self.experiment.lines, item, self.experiment.runs.get(run)?)? {
            Outcome::Done(done) => Some((done.part(part)?, key)),
            _ => None,
        }
    }

    /// Why a value of a measure is missing, or must be read with care: the first reason.
    pub(crate) fn problem(&self, item: Option<&Item>, name: &str) -> Option<&'a Outcome> {
        self.outcome(item, name).filter(|outcome| !matches!(outcome, Outcome::Done(_)))
    }

    /// The error of the run of a value that was found.
    pub(crate) fn error(&self, item: Option<&Item>, name: &str) -> Option<&'a str> {
        match self.outcome(item, name)? {
            Outcome::Done(done) => done.error(),
            _ => None,
        }
    }

    fn outcome(&self, item: Option<&Item>, name: &str) -> Option<&'a Outcome> {
        let (named, rest) = split(name);
        let item = named.map_or(item, |named| self.item(named))?;
        self.passes.outcome(self.experiment.lines, item, self.experiment.runs.get(rest.split('.').next()?)?)
    }

    /// A quantity over time: `Item:run.contiguity`, over seconds of modelled time.
    pub(crate) fn curve(&self, name: &str) -> Vec<Point> {
        let found = || {
            let (item, rest) = split(name);
            let (run, key) = rest.split_once('.')?;
            match self.passes.outcome(self.experiment.lines, self.item(item?)?, self.experiment.runs.get(run)?)? {
                Outcome::Done(done) => done.over_time(key),
                _ => None,
            }
        };
        found().unwrap_or_default()
    }

    /// The item of this name, spaces or not.
    pub(crate) fn item(&self, name: &str) -> Option<&'a Item> {
        self.experiment.items.iter().find(|item| slug(&item.name) == slug(name))
    }
}

/// A number of a row by its key. What is counted by page size, as `pages`, is 0 for a size that has
/// none.
fn number(row: &Row, key: &str) -> Option<Value> {
    let json = serde_json::to_value(row).expect("a row is a struct of plain values");
    let (key, inner) = key.split_once('.').map_or((key, None), |(key, inner)| (key, Some(inner)));
    let found = match (json.get(key)?, inner) {
        (value, None) => value,
        (object, Some(inner)) => match object.get(inner) {
            Some(value) => value,
            None if object.is_object() && inner.parse::<PageSize>().is_ok() => return Some(Value::Number(0.0)),
            None => return None,
        },
    };
    found.as_f64().map(Value::Number).or_else(|| found.as_bool().map(Value::Truth))
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_sim::{Conditions, plan, run};
    use superpage_trace::workload;

    #[test]
    fn only_sizes_that_have_none_are_zero() {
        let setups = plan(&["zen5".into()], &[], &Conditions::default()).unwrap();
        let mut source = workload::parse("touch:bytes=64K").unwrap();
        let rows = run(&setups, source.as_mut(), &false.into(), &|_| {}).unwrap();
        assert_eq!(number(&rows[0], "pages.4K"), Some(Value::Number(16.0)));
        assert_eq!(number(&rows[0], "pages.2M"), Some(Value::Number(0.0)));
        assert_eq!(number(&rows[0], "pages.evict"), None);
        assert_eq!(number(&rows[0], "kernel_counts.evict"), None);
    }
}
