//! Errors of machine files.

use super::overlay::label;
use super::sources;
use super::{LineCacheSpec, TlbSpec, WalkCacheSpec};

/// Why a machine could not be made: one sentence that names the file, the key and the expected
/// value.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct MachineError(pub(super) String);

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
    let mut part = part.clone();
    sources::remove(&mut part);
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
