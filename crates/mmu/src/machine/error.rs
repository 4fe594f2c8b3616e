//! Errors of machine files, and the sources and assumed values that a file states.

use super::overlay::{self, label};
use super::{LineCacheSpec, TlbSpec, WalkCacheSpec};

/// Why a machine could not be made: one sentence that names the file, the key and the expected
/// value.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct MachineError(String);

impl MachineError {
    pub(super) fn unknown(what: &str, name: &str, known: &[(&str, &str)]) -> MachineError {
        let known: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        MachineError(format!(
            "there is no built-in {what} \"{name}\"; take one of {}, or the path of a file of your own that ends in .toml",
            known.join(", ")
        ))
    }

    /// A file could not be read.
    pub fn unread(path: &str, why: impl std::fmt::Display) -> MachineError {
        MachineError(format!("machine file {path}: {why}"))
    }

    /// The value of a key is wrong.
    pub(crate) fn of(origin: &str, key: &str, problem: &str) -> MachineError {
        MachineError(format!("{origin}: {key}: {problem}"))
    }

    pub(super) fn syntax(origin: &str, error: &toml::de::Error) -> MachineError {
        // The parser's message, on one line, without its drawing of the place.
        let place = error.to_string();
        let line = place.lines().next().and_then(|first| first.split("at ").nth(1)).map(|at| format!(" at {at}"));
        let message = in_words(error.message());
        MachineError(format!("{origin}{}: {message}", line.unwrap_or_default()))
    }

    /// The types of a file with overlays do not fit. Such an error knows no line: it names the key,
    /// and in a list the part.
    pub(super) fn types(origin: &str, file: &toml::Table, error: &toml::de::Error) -> MachineError {
        let whole = error.to_string();
        let key = whole.lines().last().and_then(|last| last.strip_prefix("in `")?.strip_suffix('`'));
        let list = key.and_then(|key| key.split('.').next()).unwrap_or_default();
        let parts = file.get(list).and_then(toml::Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let problem = in_words(error.message());
        let Some(at) = parts.iter().position(|part| !fits(list, part)) else {
            let key = key.map(|key| format!("{key}: ")).unwrap_or_default();
            return MachineError(format!("{origin}: {key}{problem}"));
        };
        let named = |part: &toml::Value| part.as_table().and_then(label).map(toml::Value::to_string);
        let name = named(&parts[at]).unwrap_or_else(|| "without a name".to_string());
        let without_joins = parts[at].as_table().cloned().map(|mut part| {
            part.remove("joins");
            toml::Value::Table(part)
        });
        if without_joins.is_some_and(|part| fits(list, &part)) {
            return MachineError(format!(
                "{origin}: [[{list}]] {name}: joins: {problem}; expected kind, pages and source, and \
                                         perhaps alike and prefetch"
            ));
        }
        if !problem.starts_with("missing field") {
            return MachineError(format!("{origin}: [[{list}]] {name}: {problem}"));
        }
        let others = parts.iter().enumerate().filter(|(index, _)| *index != at);
        let others: Vec<String> = others.filter_map(|(_, part)| named(part)).collect();
        let others = if others.is_empty() { "none".to_string() } else { others.join(", ") };
        MachineError(format!(
            "{origin}: [[{list}]] {name}: {problem}; one that the machine does not have is new, and must be \
             complete: it has {others}"
        ))
    }
}

/// A message of the parser on one line, in which serde's names of Rust types become words: from
/// "invalid type: string \"many\", expected u64", "\"many\" is not a whole number of 0 or more".
fn in_words(message: &str) -> String {
    let plain = message.replace('\n', ", ");
    let types = plain.strip_prefix("invalid type: ").or_else(|| plain.strip_prefix("invalid value: "));
    let Some((given, wanted)) = types.and_then(|types| types.rsplit_once(", expected ")) else { return plain };
    let most = |bits: u32| format!("a whole number from 0 to {}", u64::MAX >> (u64::BITS - bits));
    let wanted = match wanted {
        "u8" => most(8),
        "u16" => most(16),
        "u32" => most(32),
        "u64" | "usize" => "a whole number of 0 or more".to_string(),
        "f64" => "a number".to_string(),
        "a boolean" => "true or false".to_string(),
        "a sequence" => "a list".to_string(),
        "a map" => "a table".to_string(),
        other if other.starts_with("struct ") => "a table".to_string(),
        other => other.to_string(),
    };
    let given = match (given.strip_prefix("string "), given.split_once('`')) {
        (Some(text), _) => text,
        (None, Some((_, value))) => value.trim_end_matches('`'),
        (None, None) if given == "sequence" => "a list",
        (None, None) if given == "map" => "a table",
        (None, None) => given,
    };
    format!("{given} is not {wanted}")
}

/// Whether a part of a list of a machine file has the keys and types that it should have.
fn fits(list: &str, part: &toml::Value) -> bool {
    let part = part.clone();
    match list {
        "tlb" => part.try_into::<TlbSpec>().is_ok(),
        "walk-cache" => part.try_into::<WalkCacheSpec>().is_ok(),
        "line-cache" => part.try_into::<LineCacheSpec>().is_ok(),
        _ => true,
    }
}

/// The tables of a file.
pub(super) fn table(text: &str, origin: &str) -> Result<toml::Table, MachineError> {
    toml::from_str(text).map_err(|error| MachineError::syntax(origin, &error))
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

/// The values marked as assumed, read from the file's own tables so that no key is forgotten.
pub(super) fn assumed(file: &toml::Table, origin: &str) -> Result<Vec<(String, String)>, MachineError> {
    let mut found = Vec::new();
    for (label, table) in parts("", file) {
        let Some(toml::Value::Array(keys)) = table.get("assumed") else { continue };
        for key in keys.iter().filter_map(|key| key.as_str()) {
            let about = |key: &str| matches!(key, "source" | "assumed" | "name");
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

/// Checks that names are names, and that sources say something.
pub(super) fn said(file: &toml::Table, origin: &str) -> Result<(), MachineError> {
    for (label, table) in std::iter::once((String::new(), file)).chain(parts("", file)) {
        let empty =
            |key: &&str| table.get(*key).and_then(toml::Value::as_str).is_some_and(|text| text.trim().is_empty());
        if let Some(key) = ["name", "description", "source"].into_iter().find(empty) {
            let what = match key {
                "source" => {
                    "it is empty; say where the values come from, and list those that nobody has published in assumed"
                }
                _ => "it is empty; expected some words",
            };
            return Err(MachineError::of(origin, format!("{label}.{key}").trim_start_matches('.'), what));
        }
    }
    Ok(())
}
