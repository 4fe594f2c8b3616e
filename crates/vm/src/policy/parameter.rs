//! A policy's own parameters: which values they accept, and which were given.

use super::answers::Sizes;
use super::definition::{Definition, PolicyError};
use super::target::{Need, Target};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;
use superpage_pages::{ExactBytes, PageSize, parse_bytes};

/// The values of a switch.
pub(super) const SWITCH: &[&str] = &["on", "off"];

/// A parameter of one policy.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// The values that it accepts.
    pub values: Values,
    /// The value if none is given, as text; empty if there is no default.
    pub default: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// What a target must provide for it, in addition to what the policy needs.
    pub needs: &'static [Need],
}

/// The values that a parameter accepts.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Values {
    /// One of these words.
    Words(&'static [&'static str]),
    /// Page sizes: `64K`, `64K+2M`.
    PageSizes,
    /// One page size: `2M`.
    PageSize,
    /// A size of memory above 0: `512M`.
    Bytes,
    /// A share, above 0 and at most 1: `0.9` or `90%`.
    Share,
    /// A time of at most 365 days: `100us`, `250ms`, `2s`, `1m`, `1h`, `1d`, or in `ns`; a plain
    /// number means seconds.
    Time,
    /// A time as [`Time`](Values::Time), of at least this.
    TimeFrom(Duration),
    /// A number in this range, both ends included.
    Count(u64, u64),
    /// A number with a fraction in this range, both ends included.
    Number(f64, f64),
    /// Any text without a comma, not empty.
    Text,
    /// The path of a file, without a comma. The target reads it, where it can, when the value is
    /// given ([`Given::contents`]).
    Path,
}

impl Values {
    /// What is expected, for an error message.
    fn expected(self) -> String {
        match self {
            Values::Words(words) => format!("one of {}", words.join(", ")),
            Values::PageSizes => "a page size, or several, such as 64K or 64K+2M".to_string(),
            Values::PageSize => "a page size such as 2M".to_string(),
            Values::Bytes => "a size of memory such as 512M".to_string(),
            Values::Share => "a share such as 0.9 or 90%, above 0 and at most 1".to_string(),
            Values::Time => {
                "a time of at most 365 days, such as 100us, 250ms, 2s, 1m or a number of seconds".to_string()
            }
            Values::TimeFrom(least) => {
                format!(
                    "a time of at least {least:?} and at most 365 days, such as 250ms, 2s, 1m or a number of seconds"
                )
            }
            Values::Count(least, most) => format!("a number from {least} to {most}"),
            Values::Number(least, most) => format!("a number from {least} to {most}, such as {least:.1}"),
            Values::Text => "a text that is not empty".to_string(),
            Values::Path => "the path of a file".to_string(),
        }
    }

    fn read(self, text: &str) -> Option<Value> {
        match self {
            Values::Words(words) => words.iter().find(|word| **word == text).map(|word| Value::Word(word)),
            Values::PageSizes => text.parse().ok().map(Value::Sizes),
            Values::PageSize => text.parse().ok().map(|size| Value::Sizes(Sizes::from_iter([size]))),
            Values::Bytes => parse_bytes(text).ok().filter(|bytes| *bytes > 0).map(Value::Bytes),
            Values::Share => share(text).filter(|share| *share > 0.0 && *share <= 1.0).map(Value::Share),
            Values::Time => time(text).map(Value::Time),
            Values::TimeFrom(least) => time(text).filter(|time| *time >= least).map(Value::Time),
            Values::Count(least, most) => {
                text.parse().ok().filter(|number| (least..=most).contains(number)).map(Value::Number)
            }
            Values::Number(least, most) => {
                text.parse().ok().filter(|number| (least..=most).contains(number)).map(Value::Real)
            }
            Values::Text => (!text.is_empty()).then(|| Value::Text(text.to_string())),
            Values::Path => (!text.is_empty()).then(|| Value::File(text.to_string(), None)),
        }
    }
}

impl fmt::Display for Values {
    /// For a usage line: `on|off`, `SIZE`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Values::Words(words) => f.write_str(&words.join("|")),
            Values::PageSizes => f.write_str("SIZE+SIZE..."),
            Values::PageSize | Values::Bytes => f.write_str("SIZE"),
            Values::Share => f.write_str("SHARE"),
            Values::Time | Values::TimeFrom(_) => f.write_str("TIME"),
            Values::Count(..) | Values::Number(..) => f.write_str("NUMBER"),
            Values::Text => f.write_str("TEXT"),
            Values::Path => f.write_str("FILE"),
        }
    }
}

fn share(text: &str) -> Option<f64> {
    match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().ok().map(|percent| percent / 100.0),
        None => text.parse().ok(),
    }
}

fn time(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return None,
    };
    let time = Duration::try_from_secs_f64(digits.parse::<f64>().ok()? * unit).ok()?;
    (time <= LONGEST).then_some(time)
}

/// The longest time of a parameter: sums of several are far from the end of a clock of nanoseconds.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// One value.
#[derive(Clone, PartialEq, Debug)]
enum Value {
    Word(&'static str),
    Number(u64),
    Real(f64),
    Text(String),
    /// A path, and the text of the file where the target reads files.
    File(String, Option<String>),
    Bytes(u64),
    Sizes(Sizes),
    Share(f64),
    Time(Duration),
}

impl fmt::Display for Value {
    /// As [`Values`] read it, in one way.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Word(word) => f.write_str(word),
            Value::Number(number) => write!(f, "{number}"),
            Value::Real(number) => write!(f, "{number}"),
            Value::Text(text) | Value::File(text, _) => f.write_str(text),
            Value::Bytes(bytes) => ExactBytes(*bytes).fmt(f),
            Value::Sizes(sizes) => write!(f, "{sizes}"),
            Value::Share(share) => write!(f, "{share}"),
            Value::Time(time) => {
                let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us"), (1, "ns")];
                let nanoseconds = time.as_nanos();
                let (each, unit) =
                    units.into_iter().find(|(each, _)| nanoseconds.is_multiple_of(*each)).expect("1 divides all");
                write!(f, "{}{unit}", nanoseconds / each)
            }
        }
    }
}

/// Accessors of parameters that have a value, each of one kind.
macro_rules! accessors {
    ($($doc:literal $name:ident: $kind:ident => $type:ty;)*) => { $(
        #[doc = $doc]
        pub fn $name(&self, name: &str) -> $type {
            match self.value(name) {
                Some(Value::$kind(value)) => value,
                other => panic!("{name} is {other:?}"),
            }
        }
    )* };
}

/// The values given for a policy's own parameters and the limits of its target, or their defaults.
///
/// # Panics
/// Each accessor panics if the policy has no such parameter of that kind: a bug in the policy's
/// file that its first use shows.
#[derive(Clone)]
pub struct Given {
    definition: &'static Definition,
    target: Target,
    /// By the parameter's position.
    values: Vec<Option<Value>>,
}

impl Given {
    /// With nothing given.
    pub(super) fn defaults(definition: &'static Definition, target: Target) -> Given {
        let value = |parameter: &Parameter| match parameter.default {
            "" => None,
            text => Some(parameter.values.read(text).expect("a default is one of the values")),
        };
        Given { definition, target, values: target.accepted(definition).map(value).collect() }
    }

    /// The definition whose parameters they are.
    pub fn definition(&self) -> &'static Definition {
        self.definition
    }

    /// The target that the policy was made for.
    pub fn target(&self) -> &Target {
        &self.target
    }

    pub(super) fn set(&mut self, parameter: &Parameter, text: &str) -> Result<(), PolicyError> {
        let (name, key) = (self.definition.name, parameter.name);
        let Some(mut value) = parameter.values.read(text) else {
            let expected = parameter.values.expected();
            return Err(PolicyError(format!("policy {name}: {key} is {expected}, not `{text}`")));
        };
        if let (Value::File(path, contents), Some(read)) = (&mut value, self.target.read) {
            let error = |why| PolicyError(format!("policy {name}: {key} {path}: {why}"));
            *contents = Some(read(path).map_err(error)?);
        }
        let at = self.position(parameter.name);
        self.values[at] = Some(value);
        Ok(())
    }

    /// The parameters that may have been given, in the order of their values.
    fn parameters(&self) -> impl Iterator<Item = &'static Parameter> + use<> {
        self.target.accepted(self.definition)
    }

    fn position(&self, name: &str) -> usize {
        let found = self.parameters().position(|parameter| parameter.name == name);
        found.unwrap_or_else(|| panic!("policy {} has no parameter {name}", self.definition.name))
    }

    /// The parameters that are not as they are if nothing is given, with their values.
    pub(super) fn changed(&self) -> impl Iterator<Item = (&'static str, String)> {
        let defaults = Given::defaults(self.definition, self.target).values;
        let pairs = self.parameters().zip(self.values.iter().zip(defaults));
        pairs.filter_map(|(parameter, (value, default))| {
            Some((parameter.name, value.as_ref().filter(|value| Some(*value) != default.as_ref())?.to_string()))
        })
    }

    fn value(&self, name: &str) -> Option<Value> {
        self.values[self.position(name)].clone()
    }

    accessors! {
        "A number with a fraction." real: Real => f64;
        "Page sizes." sizes: Sizes => Sizes;
        "A share." share: Share => f64;
        "A time." time: Time => Duration;
        "A word." word: Word => &'static str;
    }

    /// A text or a path; `None` if it has no default.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.values[self.position(name)].as_ref().map(|value| match value {
            Value::Text(text) | Value::File(text, _) => text.as_str(),
            other => panic!("{name} is {other:?}"),
        })
    }

    /// The text of the file that a path names, as it was when the path was given; `None` where none
    /// was, or the target reads none.
    pub fn contents(&self, name: &str) -> Option<&str> {
        match self.values[self.position(name)].as_ref()? {
            Value::File(_, contents) => contents.as_deref(),
            other => panic!("{name} is {other:?}"),
        }
    }

    /// The texts of all files that were given, as [`Given::contents`].
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.values.iter().flatten().filter_map(|value| match value {
            Value::File(_, contents) => contents.as_deref(),
            _ => None,
        })
    }

    /// A number, of bytes or of a count; `None` if it has no default.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.value(name).map(|value| match value {
            Value::Number(number) | Value::Bytes(number) => number,
            other => panic!("{name} is {other:?}"),
        })
    }

    /// One page size; `None` if it has no default.
    pub fn find_size(&self, name: &str) -> Option<PageSize> {
        self.value(name).map(|value| match value {
            Value::Sizes(sizes) => sizes.iter().next().expect("there is one"),
            other => panic!("{name} is {other:?}"),
        })
    }

    /// Page sizes; `None` if it has no default.
    pub fn find_sizes(&self, name: &str) -> Option<Sizes> {
        self.value(name).map(|_| self.sizes(name))
    }

    /// A share; `None` if it has no default.
    pub fn find_share(&self, name: &str) -> Option<f64> {
        self.value(name).map(|value| match value {
            Value::Share(share) => share,
            other => panic!("{name} is {other:?}"),
        })
    }

    /// A time; `None` if there is no parameter of this name that is one.
    pub fn find_time(&self, name: &str) -> Option<Duration> {
        match self.parameters().zip(&self.values).find(|(parameter, _)| parameter.name == name)?.1 {
            Some(Value::Time(time)) => Some(*time),
            _ => None,
        }
    }

    /// Whether there is a parameter of this name.
    pub fn has(&self, name: &str) -> bool {
        self.parameters().any(|parameter| parameter.name == name)
    }

    /// A switch.
    pub fn is_on(&self, name: &str) -> bool {
        self.word(name) == "on"
    }
}

impl PartialEq for Given {
    fn eq(&self, other: &Given) -> bool {
        self.definition.name == other.definition.name && self.values == other.values
    }
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.parameters().map(|parameter| parameter.name);
        write!(f, "{} ", self.definition.name)?;
        f.debug_map().entries(names.zip(&self.values)).finish()
    }
}
