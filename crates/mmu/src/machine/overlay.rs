//! Overlays: files of differences that apply to any machine.
//!
//! A table of an overlay replaces the keys that it has, and leaves the others. In the lists
//! (`[[tlb]]`, `[[walk-cache]]`, `[[line-cache]]`) a part patches the part with the same `name` or
//! `level`, or with `name = "*"` each of them; any other is a new one, and must be complete. An
//! empty list (`walk-cache = []`) removes all, and a table too (`host = []`). A value of an overlay
//! is assumed only if the overlay says so. Its `name` and `description` are appended to those of
//! the machine.
//!
//! An overlay with other page sizes cannot know which of a machine's TLBs hold which. With `sizes =
//! "between"` a TLB holds, of the sizes that there are now, those from each that it held up to the
//! next larger one that the machine had; those below all are held where its base page was.

use superpage_pages::PageSize;
use toml::{Table, Value};

/// The tables that not every machine has.
const OPTIONAL: [&str; 7] = ["clustered", "groups", "host", "instruction-cache", "perforated", "range-tlb", "shadow"];

/// Applies an overlay to a machine file; the error says what is wrong with it.
pub(super) fn lay(machine: &mut Table, overlay: &Table) -> Result<(), String> {
    for key in ["name", "description"] {
        let word = overlay.get(key).and_then(Value::as_str).filter(|word| !word.trim().is_empty());
        let word = word.ok_or(format!("expected a {key} of some words, as a machine file has"))?;
        let whole = machine.get(key).and_then(Value::as_str).unwrap_or_default();
        let joined = if key == "name" { format!("{whole}+{word}") } else { format!("{whole}; {word}") };
        machine.insert(key.into(), Value::String(joined));
    }
    let before = sizes(machine.get("pages"));
    let held: Vec<Vec<PageSize>> = tlbs(machine).map(|tlb| sizes(Some(tlb))).collect();
    for (key, value) in overlay.iter().filter(|(key, _)| !matches!(key.as_str(), "name" | "description")) {
        match (machine.get_mut(key), value) {
            (Some(Value::Table(part)), Value::Table(patch)) => replace(part, patch),
            (Some(Value::Table(_)), Value::Array(none)) if none.is_empty() => _ = machine.remove(key),
            (None, Value::Array(none)) if none.is_empty() && OPTIONAL.contains(&key.as_str()) => {}
            (Some(Value::Array(parts)), Value::Array(patches)) if !patches.is_empty() => {
                for (index, patch) in patches.iter().enumerate() {
                    let patch = patch.as_table().ok_or(format!("{key} is a list of tables, [[{key}]]"))?;
                    let same = |other: &Value| other.as_table().is_some_and(|other| label(other) == label(patch));
                    if let Some(label) = label(patch).filter(|_| patches[..index].iter().any(same)) {
                        return Err(format!("[[{key}]] {label} is there twice; make it one table"));
                    }
                    in_list(parts, patch);
                }
            }
            _ => _ = machine.insert(key.clone(), value.clone()),
        }
    }
    spread(machine, &before, &held);
    Ok(())
}

/// The page sizes that a part of a file names; a value that is no list of sizes is reported
/// elsewhere, as an error of types.
fn sizes(part: Option<&Value>) -> Vec<PageSize> {
    let list = part.and_then(|part| part.get("sizes")).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|size| size.as_str()?.parse().ok()).collect()
}

/// The TLBs of a file.
fn tlbs(machine: &mut Table) -> impl Iterator<Item = &mut Value> {
    machine.get_mut("tlb").and_then(Value::as_array_mut).into_iter().flatten()
}

/// Gives TLBs with `sizes = "between"` their sizes. The machine had those `before`, each TLB those
/// that it `held`.
fn spread(machine: &mut Table, before: &[PageSize], held: &[Vec<PageSize>]) {
    let now = sizes(machine.get("pages"));
    let below = |size: PageSize| before.iter().filter(|had| **had <= size).max().or(before.iter().min());
    for (tlb, held) in tlbs(machine).filter_map(Value::as_table_mut).zip(held) {
        if tlb.get("sizes").and_then(Value::as_str) == Some("between") {
            let holds = |size: &&PageSize| below(**size).is_some_and(|had| held.contains(had));
            let all = now.iter().filter(holds).map(|size| Value::String(size.to_string())).collect();
            tlb.insert("sizes".into(), Value::Array(all));
        }
    }
}

/// The key that identifies a part of a list.
pub(super) fn label(part: &Table) -> Option<&Value> {
    part.get("name").or(part.get("level"))
}

/// Patches one part of a list, or all, or adds one.
fn in_list(parts: &mut Vec<Value>, patch: &Table) {
    let every = label(patch).and_then(Value::as_str) == Some("*");
    let mut patched = every;
    let mut for_every = patch.clone();
    for_every.retain(|_, value| value.as_str() != Some("*"));
    for part in parts.iter_mut().filter_map(Value::as_table_mut) {
        if every {
            replace(part, &for_every);
        } else if label(part) == label(patch) {
            replace(part, patch);
            patched = true;
        }
    }
    if !patched {
        parts.push(Value::Table(patch.clone()));
    }
}

/// Replaces keys of a part. Keys from the patch are assumed only if the patch says so.
pub(super) fn replace(part: &mut Table, patch: &Table) {
    let listed = |table: &Table| -> Vec<String> {
        let all = || table.keys().filter(|key| !matches!(key.as_str(), "name" | "source" | "assumed")).cloned();
        let keys = table.get("assumed").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        keys.flat_map(|key| if key == "all" { all().collect() } else { vec![key.to_string()] }).collect()
    };
    let mut assumed: Vec<String> = listed(part).into_iter().filter(|key| !patch.contains_key(key)).collect();
    assumed.extend(listed(patch));
    part.extend(patch.iter().map(|(key, value)| (key.clone(), value.clone())));
    if !assumed.is_empty() || part.contains_key("assumed") {
        part.insert("assumed".into(), Value::Array(assumed.into_iter().map(Value::String).collect()));
    }
}
