//! What the promoter may be told: the parameters of the policy `promote`.

use crate::Error;
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A time for people and files: `250ms`, `2s`, `1m`; a plain number is seconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = Error;

    fn from_str(text: &str) -> Result<Span, Error> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match &text[digits.len()..] {
            "ms" => 1e-3,
            "" | "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => f64::NAN,
        };
        let seconds = digits.parse::<f64>().ok().map(|number| number * unit);
        let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        time.map(Span)
            .ok_or_else(|| Error::Usage(format!("{text:?} is no time: write 250ms, 2s, 1m or a number of seconds")))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        if millis.is_multiple_of(1000) { write!(f, "{}s", millis / 1000) } else { write!(f, "{millis}ms") }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time like \"2s\" or a number of seconds")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Span, E> {
                seconds.to_string().parse().map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Span, E> {
                Ok(Span(Duration::from_secs(seconds)))
            }

            fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<Span, E> {
                seconds.to_string().parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Text)
    }
}

/// The parameters of the policy `promote` on live Linux. As text, `share=0.9,age=5s`; in TOML, a table of the same names.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// The least share of a region's base pages that are populated, above 0 and at most 1.
    pub share: f64,
    /// How long its population has not changed.
    pub age: Span,
    /// The most that the promoter may use of one core, over time, for all that it does.
    pub cpu: f64,
    /// The CPU time that it may save up while it does less, and use at once.
    pub burst: Span,
    /// The time between two looks at what runs, and at a process that changes.
    pub interval: Span,
    /// The longest time between two looks at a process that does not change.
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
        Options {
            share: 1.0,
            age: Span(Duration::from_secs(2)),
            cpu: 0.01,
            burst: Span(Duration::from_millis(100)),
            interval: Span(Duration::from_secs(1)),
            idle: Span(Duration::from_secs(10)),
            slowdown: 0.02,
            batch: 4,
            shared: true,
        }
    }
}

/// A share as `0.01` or `1%`.
fn share(text: &str) -> Option<f64> {
    match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().ok().map(|percent| percent / 100.0),
        None => text.parse().ok(),
    }
}

impl Options {
    /// The names of the parameters.
    pub const KEYS: [&str; 9] = ["share", "age", "cpu", "burst", "interval", "idle", "slowdown", "batch", "shared"];

    /// Each parameter: its name, its default, and a line of help.
    pub fn help() -> impl Iterator<Item = (&'static str, String, &'static str)> {
        let help = [
            "the least share of a region's pages that are populated",
            "how long its population has not changed",
            "the most that is used of one core, over time",
            "CPU time that may be saved up and used at once",
            "between two looks at what runs, and at a process that changes",
            "between two looks at a process that does not, at most",
            "by how much promotion may slow a process",
            "regions promoted in one call",
            "whether memory files (memfd, /dev/shm) are promoted too: on, off",
        ];
        let defaults = Options::KEYS.into_iter().zip(Options::default().values());
        defaults.zip(help).map(|((key, value), help)| (key, value, help))
    }

    /// The values as text, in the order of [`Options::KEYS`].
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

    /// Sets the parameters of `key=value` pairs parted by commas; the others stay.
    ///
    /// # Errors
    /// [`Error::Usage`]: no such parameter, no value for it, or values that do not go together.
    pub fn change(&mut self, text: &str) -> Result<(), Error> {
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| Error::Usage(format!("{pair:?} is no parameter: write promote:key=value")))?;
            self.set(key.trim(), value.trim())?;
        }
        self.validate()
    }

    /// Sets one parameter by its name. Call [`Options::validate`] when all are set.
    ///
    /// # Errors
    /// [`Error::Usage`]: no such parameter, or not a value for it.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), Error> {
        let bad = |expected: &str| Error::Usage(format!("promote:{key}={value}: expected {expected}"));
        let fraction = || share(value).ok_or_else(|| bad("a share like 0.9 or 90%"));
        match key {
            "share" => self.share = fraction()?,
            "cpu" => self.cpu = fraction()?,
            "slowdown" => self.slowdown = fraction()?,
            "age" => self.age = value.parse()?,
            "burst" => self.burst = value.parse()?,
            "interval" => self.interval = value.parse()?,
            "idle" => self.idle = value.parse()?,
            "batch" => self.batch = value.parse().map_err(|_| bad("a number of regions"))?,
            "shared" => {
                self.shared = match value {
                    "on" | "true" => true,
                    "off" | "false" => false,
                    _ => return Err(bad("on or off")),
                }
            }
            _ => {
                let keys = Options::KEYS.join(", ");
                return Err(Error::Usage(format!("promote has no parameter {key:?}: it has {keys}")));
            }
        }
        Ok(())
    }

    /// Checks each value and that they go together.
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

    /// The defaults, changed by `key=value` parted by commas.
    fn from_str(text: &str) -> Result<Options, Error> {
        let mut options = Options::default();
        options.change(text)?;
        Ok(options)
    }
}

impl fmt::Display for Options {
    /// What differs from the defaults, as it is parsed; nothing if nothing does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = Options::KEYS.iter().zip(self.values()).zip(Options::default().values());
        let changed: Vec<String> =
            pairs.filter(|((_, own), default)| own != default).map(|((key, own), _)| format!("{key}={own}")).collect();
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
        assert_eq!(toml::from_str::<Options>("age = 3\nidle = 90.5").unwrap().idle.0, Duration::from_millis(90_500));
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        for (text, part) in [
            ("shore=1", "share, age"),
            ("share=0", "more than 0"),
            ("share=1.1", "at most 1"),
            ("share=x", "0.9 or 90%"),
            ("age=2y", "250ms"),
            ("age=-1", "250ms"),
            ("cpu=200%", "one core"),
            ("idle=1ms", "interval"),
            ("batch=0", "1 to 1024"),
            ("age", "key=value"),
        ] {
            let error = text.parse::<Options>().unwrap_err();
            assert!(error.to_string().contains(part) && error.status() == 2, "{text}: {error}");
        }
        assert!(toml::from_str::<Options>("shore = 1").is_err());
        assert!(toml::from_str::<Options>("age = true").is_err());
    }
}
