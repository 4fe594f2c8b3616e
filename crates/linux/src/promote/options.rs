//! The options of the promoter: the parameters of the policy `promote`.

use crate::Error;
use crate::policy::LINUX;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, Unexpected, Visitor};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use superpage_vm::{Background, Definition, Given, Policy};

/// A time as users write it: `250ms`, `2s`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Span(pub Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us"), (1, "ns")];
        let (each, unit) =
            units.into_iter().find(|(each, _)| nanos.is_multiple_of(*each)).expect("all are whole nanoseconds");
        write!(f, "{}{unit}", nanos / each)
    }
}

/// The parameters of the policy `promote` on live Linux. As text, `share=0.9,age=5s`; in TOML, a table of the same names.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// The share of a region's base pages that must be populated, above 0 and at most 1.
    pub share: f64,
    /// For how long its population must not have changed.
    pub age: Span,
    /// The most that the promoter may use of one core, over time, for all its work.
    pub cpu: f64,
    /// The CPU time that it may save up while it does less, and use at once.
    pub burst: Span,
    /// The time between two scans for processes, and of a process that changes.
    pub interval: Span,
    /// The longest time between two scans of a process that does not change.
    pub idle: Span,
    /// The most by which promotion may slow a process, as a share of its own speed: after a batch that cost it more, the
    /// next one waits.
    pub slowdown: f64,
    /// Regions promoted in one call. All are checked right before it.
    pub batch: usize,
    /// Whether memory files are promoted too.
    pub shared: bool,
}

impl Default for Options {
    fn default() -> Options {
        "".parse().expect("the defaults of a policy go together")
    }
}

impl Options {
    /// The options from the values given for the policy's parameters.
    ///
    /// # Errors
    /// [`Error::Usage`]: the values contradict each other.
    pub fn new(given: &Given) -> Result<Options, Error> {
        let options = Options::unchecked(given);
        options.validate()?;
        Ok(options)
    }

    fn unchecked(given: &Given) -> Options {
        let time = |name| Span(given.time(name));
        Options {
            share: given.share("share"),
            age: time("age"),
            cpu: given.share("cpu"),
            burst: time("burst"),
            interval: time("interval"),
            idle: time("idle"),
            slowdown: given.share("slowdown"),
            batch: given.number("batch").expect("it has a default") as usize,
            shared: given.is_on("shared"),
        }
    }

    /// The policy's background with these options, in its initial state.
    pub(super) fn background(&self) -> Box<dyn Background> {
        let policy = Policy::parse(&format!("promote:{self}"), &LINUX).expect("it is written as it is read");
        policy.background().expect("it does what it does in time of its own")
    }

    /// The policy whose parameters these are.
    pub fn definition() -> &'static Definition {
        LINUX.policies().find(|definition| definition.name == "promote").expect("a policy that the manager names")
    }

    /// The values as text, in the order of the policy's parameters.
    fn values(&self) -> [String; 9] {
        [
            self.share.to_string(),
            self.age.to_string(),
            self.cpu.to_string(),
            self.burst.to_string(),
            self.interval.to_string(),
            self.idle.to_string(),
            self.slowdown.to_string(),
            self.batch.to_string(),
            if self.shared { "on" } else { "off" }.to_string(),
        ]
    }

    /// Sets the parameters of `key=value` pairs separated by commas; the others stay.
    ///
    /// # Errors
    /// [`Error::Usage`]: no such parameter, an invalid value, or values that contradict each other.
    pub fn change(&mut self, text: &str) -> Result<(), Error> {
        let given = |key: &str| text.split(',').any(|pair| pair.split('=').next() == Some(key));
        let (own, kept) = (self.to_string(), |pair: &&str| !pair.split('=').next().is_some_and(given));
        let kept: Vec<&str> = own.split(',').filter(kept).collect();
        *self = format!("{},{text}", kept.join(",")).parse()?;
        Ok(())
    }

    /// Checks each value, and that they are consistent.
    ///
    /// # Errors
    /// [`Error::Usage`] names the parameter, its value and what was expected.
    pub fn validate(&self) -> Result<(), Error> {
        let wrong = |key: &str, value: &dyn fmt::Display, expected: &str| {
            Err(Error::Usage(format!("promote:{key}={value}: expected {expected}")))
        };
        let millisecond = Span(Duration::from_millis(1));
        if !(self.share > 0.0 && self.share <= 1.0) {
            return wrong("share", &self.share, "more than 0 and at most 1");
        }
        if !(self.cpu > 0.0 && self.cpu <= 1.0) {
            return wrong("cpu", &self.cpu, "a share of one core, more than 0 and at most 1");
        }
        if !(self.slowdown > 0.0 && self.slowdown <= 1.0) {
            return wrong("slowdown", &self.slowdown, "more than 0 and at most 1");
        }
        if self.burst < millisecond {
            return wrong("burst", &self.burst, "at least 1ms");
        }
        if self.interval < millisecond {
            return wrong("interval", &self.interval, "at least 1ms");
        }
        if self.idle < self.interval {
            return wrong("idle", &self.idle, &format!("at least the interval, {}", self.interval));
        }
        if !(1..=1024).contains(&self.batch) {
            return wrong("batch", &self.batch, "1 to 1024 regions");
        }
        Ok(())
    }
}

impl FromStr for Options {
    type Err = Error;

    /// The defaults, changed by `key=value` pairs separated by commas.
    fn from_str(text: &str) -> Result<Options, Error> {
        let policy = Policy::parse(&format!("promote:{text}"), &LINUX);
        Options::new(policy.map_err(|error| Error::Usage(error.to_string()))?.given())
    }
}

impl<'de> Deserialize<'de> for Options {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Options, D::Error> {
        deserializer.deserialize_map(Table)
    }
}

/// A table of parameters, each parsed by itself, so that an error knows its place.
struct Table;

impl<'de> Visitor<'de> for Table {
    type Value = Options;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of parameters")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Options, A::Error> {
        let mut options = Options::default();
        while let Some(key) = map.next_key_seed(Key)? {
            options = map.next_value_seed(Change { key, options })?;
        }
        options.validate().map_err(A::Error::custom)?;
        Ok(options)
    }
}

/// The name of a parameter.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = &'static str;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<&'static str, D::Error> {
        let key = String::deserialize(deserializer)?;
        let names = || Options::definition().parameters.iter().map(|parameter| parameter.name);
        let found = names().find(|name| *name == key);
        let expected = || names().collect::<Vec<_>>().join(", ");
        found.ok_or_else(|| D::Error::custom(format!("unknown field `{key}`, expected one of {}", expected())))
    }
}

/// A change of one parameter, to a value of any type that can represent it.
struct Change {
    key: &'static str,
    options: Options,
}

impl Change {
    fn to<E: serde::de::Error>(mut self, value: &dyn fmt::Display) -> Result<Options, E> {
        // Consistency is checked when all are set.
        let (own, value) = (self.options.to_string(), value.to_string());
        let pairs = own.split(',').filter_map(|pair| pair.split_once('=')).chain([(self.key, value.as_str())]);
        let policy = Policy::new("promote", pairs, &LINUX).map_err(E::custom)?;
        self.options = Options::unchecked(policy.given());
        Ok(self.options)
    }
}

impl<'de> DeserializeSeed<'de> for Change {
    type Value = Options;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Options, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Change {
    type Value = Options;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value for {}", self.key)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Options, E> {
        self.to(&value)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Options, E> {
        self.to(&value)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Options, E> {
        self.to(&value)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Options, E> {
        self.to(&value)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Options, E> {
        if self.key != "shared" {
            return Err(E::invalid_type(Unexpected::Bool(value), &self));
        }
        self.to(&if value { "on" } else { "off" })
    }
}

impl fmt::Display for Options {
    /// What differs from the defaults, in the form that is parsed; empty if nothing does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = Options::definition().parameters.iter().zip(self.values());
        let changed = pairs.filter(|(parameter, own)| own != parameter.default);
        let changed: Vec<String> = changed.map(|(parameter, own)| format!("{}={own}", parameter.name)).collect();
        f.write_str(&changed.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_toml_say_the_same() {
        let text: Options = "share=90%,age=250ms,cpu=0.05,shared=off".parse().unwrap();
        let toml: Options = toml::from_str("share = 0.9\nage = '250ms'\ncpu = 0.05\nshared = false").unwrap();
        assert_eq!(text, toml);
        assert_eq!(text.to_string(), "share=0.9,age=250ms,cpu=0.05,shared=off");
        assert_eq!(text.to_string().parse::<Options>().unwrap(), text);
        assert_eq!(Options::default().to_string(), "");
        let short: Options = "age=100us,burst=1500us,interval=1000001ns".parse().unwrap();
        assert_eq!(short.to_string(), "age=100us,burst=1500us,interval=1000001ns");
        let mut changed = short.clone();
        changed.change("age=2s,batch=2").unwrap();
        assert_eq!(changed.to_string(), "burst=1500us,interval=1000001ns,batch=2");
        assert_eq!(toml::from_str::<Options>("age = 3\nidle = 90.5").unwrap().idle.0, Duration::from_millis(90_500));
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        for (text, part) in [
            ("shore=1", "share=SHARE, age=TIME"),
            ("share=0", "above 0"),
            ("share=1.1", "at most 1"),
            ("share=x", "0.9 or 90%"),
            ("age=2y", "250ms"),
            ("age=-1", "250ms"),
            ("age=8761h", "at most 365 days"),
            ("idle=31536001s", "at most 365 days"),
            ("cpu=200%", "at most 1"),
            ("idle=1ms", "interval"),
            ("interval=0", "a time of at least 1ms"),
            ("interval=999us", "a time of at least 1ms"),
            ("batch=0", "from 1 to 1024"),
            ("age", "key=value"),
            ("age=1s,age=2s", "age is given twice"),
        ] {
            let error = text.parse::<Options>().unwrap_err();
            assert!(error.to_string().contains(part) && error.status() == 2, "{text}: {error}");
        }
        assert!(toml::from_str::<Options>("shore = 1").is_err());
        assert!(toml::from_str::<Options>("age = true").is_err());
    }
}
