//! Values that are set in a machine by its name: `zen5:tlb.L2 DTLB.entries=512,costs.fault=900`.
//!
//! A key is written as [`Machine::assumed`](super::Machine::assumed) writes it: the table, for a
//! part of a list its `name` or `level` (`*`: each part), and the key in it, joined by dots. A
//! value is a number, `true` or `false`, or else a word. What is set is in the machine's name, and
//! assumed no more. The name then has all that was set, in the order given.

use super::overlay::{label, replace};
use super::{Machine, MachineError, Replacement};
use crate::tlb::CustomReplacement;
use toml::{Table, Value};

impl Machine {
    /// This machine with another replacement policy in the TLBs of a name. As what is set by name,
    /// it is in the machine's name, and assumed no more.
    ///
    /// # Errors
    /// There is no such TLB, it is of a kind that needs LRU, or a built-in policy has that name.
    pub fn with_replacement(
        mut self,
        tlb: &str,
        replacement: &'static CustomReplacement,
    ) -> Result<Machine, MachineError> {
        if Replacement::ALL.iter().any(|built_in| built_in.name() == replacement.name) {
            let problem = format!("replacement policy {} is built in; name this one otherwise", replacement.name);
            return Err(MachineError::of(&self.name, "tlb", &problem));
        }
        let known: Vec<&str> = self.tlb.iter().map(|tlb| tlb.name.as_str()).collect();
        if !known.contains(&tlb) {
            let problem = format!("there is no {tlb}; take one of {}", known.join(", "));
            return Err(MachineError::of(&self.name, "tlb", &problem));
        }
        for spec in self.tlb.iter_mut().filter(|spec| spec.name == tlb) {
            spec.replacement = Replacement::Custom(replacement);
        }
        let key = format!("tlb.{tlb}.replacement");
        self.assumed.retain(|(assumed, _)| *assumed != key);
        let before = if split(&self.name).1.is_some() { ',' } else { ':' };
        self.name += &format!("{before}{key}={}", replacement.name);
        self.check(&self.name)?;
        Ok(self)
    }
}

/// A machine's name without its settings, and these. Text after a colon is a setting only if it has
/// a `=`: paths may have colons.
pub(super) fn split(name: &str) -> (&str, Option<&str>) {
    match name.split_once(':') {
        Some((machine, values)) if values.contains('=') => (machine, Some(values)),
        _ => (name, None),
    }
}

/// Sets values in a machine file; the error says what is wrong.
pub(super) fn set(file: &mut Table, values: &str) -> Result<(), String> {
    let mut keys: Vec<&str> = Vec::new();
    for pair in values.split(',') {
        let (key, value) = pair.split_once('=').ok_or(format!("{pair}: expected KEY=VALUE, as in costs.fault=900"))?;
        if keys.contains(&key) {
            return Err(format!("{key} is set twice"));
        }
        keys.push(key);
        one(file, key, parse(value)).map_err(|problem| format!("{key}: {problem}"))?;
    }
    if let Some(Value::String(name)) = file.get_mut("name") {
        *name = format!("{name}:{values}");
    }
    Ok(())
}

fn parse(text: &str) -> Value {
    match (text.parse(), text.parse(), text.parse()) {
        (Ok(number), ..) => Value::Integer(number),
        (_, Ok(truth), _) => Value::Boolean(truth),
        (.., Ok(number)) if f64::is_finite(number) => Value::Float(number),
        _ => Value::String(text.into()),
    }
}

/// Sets one value; the error says why the machine has no such key.
pub(super) fn one(file: &mut Table, key: &str, value: Value) -> Result<(), String> {
    let (table, rest) = key.split_once('.').ok_or("expected TABLE.KEY, as in costs.fault")?;
    let tables = || -> String {
        let of = |(name, value): (&String, &Value)| match value {
            Value::Table(_) => Some(name.clone()),
            Value::Array(_) => Some(format!("{name}.NAME")),
            _ => None,
        };
        file.iter().filter_map(of).collect::<Vec<_>>().join(", ")
    };
    let unknown = format!("the machine has no table {table}; it has {}", tables());
    match file.get_mut(table) {
        Some(Value::Table(part)) => in_part(part, rest, value),
        Some(Value::Array(parts)) => {
            let (name, key) = rest.rsplit_once('.').ok_or("expected LIST.NAME.KEY, as in tlb.L2.entries")?;
            let names = |part: &Value| {
                part.as_table().and_then(label).map(|label| match label {
                    Value::String(label) => label.clone(),
                    other => other.to_string(),
                })
            };
            let known: Vec<String> = parts.iter().filter_map(names).collect();
            if name != "*" && !known.iter().any(|known| known == name) {
                return Err(format!("there is no {table} {name}; take one of {}, or * for all", known.join(", ")));
            }
            let named = parts.iter_mut().filter(|part| name == "*" || names(part).as_deref() == Some(name));
            named.filter_map(Value::as_table_mut).try_for_each(|part| in_part(part, key, value.clone()))
        }
        _ => Err(unknown),
    }
}

fn in_part(part: &mut Table, key: &str, value: Value) -> Result<(), String> {
    match part.get(key) {
        Some(Value::Table(_) | Value::Array(_)) => Err("has several values: write an overlay for it".into()),
        Some(_) => {
            replace(part, &Table::from_iter([(key.to_string(), value)]));
            Ok(())
        }
        None => {
            let plain = part.iter().filter(|(_, value)| !matches!(value, Value::Table(_) | Value::Array(_)));
            let known: Vec<&str> = plain.map(|(key, _)| key.as_str()).filter(|key| *key != "source").collect();
            Err(format!("there is no such key; take one of {}", known.join(", ")))
        }
    }
}
