//! The keys of rows: what each is, and as what it is stored.

use std::borrow::Cow;
use superpage_pages::PageSize;

/// A key of a row, as `#[derive(Keys)]` of `superpage-keys` makes it of a field.
#[derive(Debug)]
pub struct Key {
    /// Its name in JSON, CSV and Parquet.
    pub name: &'static str,
    /// What it is, as rustdoc has it.
    pub doc: &'static str,
    /// Of what it is a number; empty if `doc` says that, or if it is none.
    pub unit: &'static str,
    /// How it behaves in time.
    pub kind: KeyKind,
    /// What is known of it where the stream was sampled.
    pub sample: InSample,
    /// The heading under which it is described.
    pub group: &'static str,
    /// The heading of its column in tables for people; empty if it has none.
    pub column: &'static str,
    /// Whether only wide tables have that.
    pub wide: bool,
    /// The type of its column.
    pub stored: Stored,
    /// The keys of what is nested in it.
    pub keys: &'static [Key],
}

/// How a key behaves in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyKind {
    /// It only grows: the counts of the parts of a run are differences.
    Count,
    /// A value at a moment: at the end, at a peak.
    State,
    /// It is computed from others.
    Ratio,
    /// What the run was of.
    Condition,
}

/// What is known of a key where the stream was sampled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InSample {
    /// All, as long as the sample has all that decides what the kernel does.
    Exact,
    /// All: the stream alone decides it.
    OfStream,
    /// It is an estimate.
    Estimated,
}

/// The type of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored {
    /// A whole number from 0.
    Count,
    /// A number.
    Number,
    /// True or false.
    Truth,
    /// Text.
    Text,
    /// JSON as text: a list, or an object with keys.
    Json,
}

/// What can be the value of a key. `superpage-keys` derives it for a struct of keys, which are then
/// nested.
pub trait Keys {
    /// The type of a column of such values.
    const STORED: Stored = Stored::Json;
    /// The keys of such a value.
    const KEYS: &'static [Key] = &[];
}

macro_rules! stored {
    ($($value:ty: $stored:ident)*) => { $(
        impl Keys for $value {
            const STORED: Stored = Stored::$stored;
        }
    )* };
}

stored!(u64: Count f64: Number bool: Truth String: Text Cow<'_, str>: Text);

impl<T: Keys> Keys for Option<T> {
    const STORED: Stored = T::STORED;
    const KEYS: &'static [Key] = T::KEYS;
}

/// A list, whose keys are those of its members.
impl<T: Keys> Keys for Vec<T> {
    const KEYS: &'static [Key] = T::KEYS;
}

/// Of a list that is an object, with page sizes as keys.
impl<T> Keys for (PageSize, T) {}

impl Keys for PageSize {
    const STORED: Stored = Stored::Text;
}

/// A Markdown page of keys: a table for each group, in their order.
pub fn keys_page(title: &str, introduction: &str, keys: &[Key]) -> String {
    let mut page = format!("# {title}\n\n{introduction}\n");
    for group in keys.chunk_by(|a, b| a.group == b.group) {
        page += &format!("\n## {}\n\n| key | unit | kind | what it is |\n| --- | --- | --- | --- |\n", group[0].group);
        group.iter().for_each(|key| describe(key, "", &mut page));
    }
    page
}

fn describe(key: &Key, within: &str, page: &mut String) {
    let kind = match (key.kind, key.sample) {
        (KeyKind::Count, InSample::Estimated) => "count ≈",
        (KeyKind::Count, _) => "count",
        (KeyKind::State, _) => "state",
        (KeyKind::Ratio, InSample::Estimated) => "ratio ≈",
        (KeyKind::Ratio, _) => "ratio",
        (KeyKind::Condition, _) => "condition",
    };
    let name = format!("{within}{}", key.name);
    *page += &format!("| `{name}` | {} | {kind} | {} |\n", key.unit, without_links(key.doc).replace('|', "\\|"));
    key.keys.iter().for_each(|key| describe(key, &format!("{name}."), page));
}

/// The text of a documentation without the targets of its links.
fn without_links(doc: &str) -> String {
    let mut text = String::new();
    let mut parts = doc.split("[`");
    text += parts.next().unwrap_or_default();
    for part in parts {
        let (name, rest) = part.split_once("`]").unwrap_or((part, ""));
        let rest = rest.strip_prefix('(').and_then(|target| target.split_once(')')).map_or(rest, |(_, rest)| rest);
        text += &format!("`{name}`{rest}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_rustdoc_are_words() {
        let doc = "Only if [`Watch`](crate::Watch) asks, or [`Mmu::run`]; else `None`.";
        assert_eq!(without_links(doc), "Only if `Watch` asks, or `Mmu::run`; else `None`.");
    }
}
