//! The sources of a machine file. Each table in it has a key `source`, which says where its values
//! come from, and may have a key `assumed`, which lists the keys whose values nobody has published.
//! Both are for readers and reports: they are removed before a file becomes a [`Machine`].

use super::overlay;
use super::{Machine, MachineError};
use serde::Deserialize;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

const STATED: [&str; 2] = ["source", "assumed"];

/// Removes `source` and `assumed` from a table and those within it.
pub(super) fn remove(value: &mut Value) {
    match value {
        Value::Table(table) => {
            STATED.iter().for_each(|key| _ = table.remove(*key));
            table.iter_mut().for_each(|(_, value)| remove(value));
        }
        Value::Array(values) => values.iter_mut().for_each(remove),
        _ => {}
    }
}

/// As [`remove`], from values that know their lines.
fn remove_placed(value: &mut DeValue) {
    match value {
        DeValue::Table(table) => {
            STATED.iter().for_each(|key| _ = table.remove(*key));
            table.iter_mut().for_each(|(_, value)| remove_placed(value.get_mut()));
        }
        DeValue::Array(values) => values.iter_mut().for_each(|value| remove_placed(value.get_mut())),
        _ => {}
    }
}

/// The machine of a file's text; an error knows its line.
pub(super) fn machine_of_text(text: &str) -> Result<Machine, toml::de::Error> {
    let mut file = DeTable::parse(text)?;
    file.get_mut().iter_mut().for_each(|(_, value)| remove_placed(value.get_mut()));
    Machine::deserialize(toml::Deserializer::from(file)).map_err(|mut error| {
        error.set_input(Some(text));
        error
    })
}

/// The machine of a file's tables; an error knows its key.
pub(super) fn machine_of_tables(file: &Table) -> Result<Machine, toml::de::Error> {
    let mut file = file.clone();
    file.iter_mut().for_each(|(_, value)| remove(value));
    file.try_into()
}

/// The tables of a file, nested ones too, each with its name in errors.
fn parts<'a>(label: &str, file: &'a toml::Table) -> Vec<(String, &'a toml::Table)> {
    let mut found = Vec::new();
    for (name, value) in file {
        let name = if label.is_empty() { name.clone() } else { format!("{label}.{name}") };
        let tables: Vec<(String, &toml::Table)> = match value {
            toml::Value::Table(table) => vec![(name, table)],
            toml::Value::Array(parts) => {
                let label = |part: &toml::Table| match overlay::label(part) {
                    Some(toml::Value::String(label)) => format!("{name}.{label}"),
                    Some(label) => format!("{name}.{label}"),
                    None => name.clone(),
                };
                parts.iter().filter_map(|part| part.as_table()).map(|part| (label(part), part)).collect()
            }
            _ => continue,
        };
        for (label, table) in tables {
            let within = parts(&label, table);
            found.push((label, table));
            found.extend(within);
        }
    }
    found
}

/// The values marked as assumed: keys and values.
pub(super) fn assumed(file: &Table, origin: &str) -> Result<Vec<(String, String)>, MachineError> {
    let mut found = Vec::new();
    for (label, table) in parts("", file) {
        let Some(keys) = table.get("assumed") else { continue };
        let keys: Option<Vec<&str>> = keys.as_array().and_then(|keys| keys.iter().map(Value::as_str).collect());
        let key = format!("{label}.assumed");
        let keys = keys.ok_or_else(|| MachineError::of(origin, &key, "expected a list of keys, or [\"all\"]"))?;
        for key in keys {
            let about = |key: &str| STATED.contains(&key) || key == "name";
            let mut named = table.iter().filter(|(k, _)| if key == "all" { !about(k) } else { *k == key }).peekable();
            if named.peek().is_none() {
                let keys = table.keys().filter(|key| !about(key)).cloned().collect::<Vec<_>>().join(", ");
                return Err(MachineError(format!(
                    "{origin}: {label}.assumed names \"{key}\", which is not a key there; expected \"all\" \
                     or some of {keys}"
                )));
            }
            found.extend(named.map(|(key, value)| (format!("{label}.{key}"), value.to_string())));
        }
    }
    Ok(found)
}

/// Checks that names are names, and that each table has a source that says something.
pub(super) fn check(file: &Table, origin: &str) -> Result<(), MachineError> {
    for (label, table) in std::iter::once((String::new(), file)).chain(parts("", file)) {
        let wrong = |key: &str| match table.get(key) {
            Some(Value::String(text)) if !text.trim().is_empty() => None,
            Some(Value::String(_)) => Some("empty"),
            Some(_) => Some("not a text"),
            None => (key == "source" && !label.is_empty()).then_some("missing"),
        };
        let found = ["name", "description", "source"].into_iter().find_map(|key| Some((key, wrong(key)?)));
        let Some((key, wrong)) = found else { continue };
        let expected = match key {
            "source" => "say where the values come from, and list those that nobody has published in assumed",
            _ => "expected some words",
        };
        let key = format!("{label}.{key}");
        return Err(MachineError::of(origin, key.trim_start_matches('.'), &format!("it is {wrong}; {expected}")));
    }
    Ok(())
}
