//! Rows turned into columns with types, for files and for programs that read columns. Their keys
//! are declared in `row.rs`.

use serde::Serialize;
use serde_json::{Map, Value};
use superpage_report::{Key, Keys, Stored};

/// A column of a table: its name, and a value or none for each row.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// The key of the rows.
    pub name: String,
    /// The values, in the order of the rows.
    pub values: Values,
}

/// The values of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Counts, and what else is a whole number from 0.
    Counts(Vec<Option<u64>>),
    /// Numbers.
    Numbers(Vec<Option<f64>>),
    /// True or false.
    Truths(Vec<Option<bool>>),
    /// Text; nested values are JSON.
    Texts(Vec<Option<String>>),
}

impl Values {
    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        match self {
            Values::Counts(values) => values.len(),
            Values::Numbers(values) => values.len(),
            Values::Truths(values) => values.len(),
            Values::Texts(values) => values.len(),
        }
    }
}

/// The text of one value: none for null, JSON if it is nested.
pub fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

impl Column {
    /// One without rows, for a key.
    pub(crate) fn of(key: &Key) -> Column {
        let values = match key.stored {
            Stored::Count => Values::Counts(Vec::new()),
            Stored::Number => Values::Numbers(Vec::new()),
            Stored::Truth => Values::Truths(Vec::new()),
            Stored::Text | Stored::Json => Values::Texts(Vec::new()),
        };
        Column { name: key.name.into(), values }
    }

    /// Adds the value of a row; one that is not of the column's type becomes null, and of numbers
    /// true is 1.
    pub(crate) fn push(&mut self, value: &Value) {
        match &mut self.values {
            Values::Counts(values) => values.push(value.as_u64()),
            Values::Numbers(values) => {
                values.push(value.as_f64().or_else(|| value.as_bool().map(|truth| f64::from(u8::from(truth)))));
            }
            Values::Truths(values) => values.push(value.as_bool()),
            Values::Texts(values) => values.push(text(value)),
        }
    }
}

/// The columns of rows: one for each key, and for what else the first of them has.
pub fn columns<'a, R: Keys + Serialize + 'a>(rows: impl IntoIterator<Item = &'a R>) -> Vec<Column> {
    let mut columns = Vec::new();
    for fields in rows.into_iter().map(fields) {
        if columns.is_empty() {
            columns = heads(R::KEYS, &fields);
        }
        push(&mut columns, &fields);
    }
    if columns.is_empty() { heads(R::KEYS, &Map::new()) } else { columns }
}

/// Columns without rows: of these keys, and of those of `more` that are not among them, by the
/// types of their values.
pub(crate) fn heads(keys: &[Key], more: &Map<String, Value>) -> Vec<Column> {
    let others = more.iter().filter(|(name, _)| !keys.iter().any(|key| key.name == *name));
    let other = |(name, value): (&String, &Value)| Column {
        name: name.clone(),
        values: match value {
            Value::Number(number) if number.is_u64() => Values::Counts(Vec::new()),
            Value::Number(_) => Values::Numbers(Vec::new()),
            _ => Values::Texts(Vec::new()),
        },
    };
    keys.iter().map(Column::of).chain(others.map(other)).collect()
}

/// The keys and values of a row, in their order.
pub fn fields(row: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(row) {
        Ok(Value::Object(map)) => map,
        _ => unreachable!("a row is a struct of plain values"),
    }
}

/// Adds a row to columns of its keys.
pub(crate) fn push(columns: &mut [Column], fields: &Map<String, Value>) {
    for column in columns {
        column.push(fields.get(&column.name).unwrap_or(&Value::Null));
    }
}
