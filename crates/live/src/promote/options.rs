//! What a promoter does: the background of a policy, and what is kept to whatever that decides.

use crate::target::{LINUX, OF_COMMAND};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;
use superpage_linux::Error;
use superpage_vm::{Background, Given, Policy, Runner};

/// A policy with a background, and how a promoter goes about what that decides. As text, the
/// policy's: `promote:share=0.9,age=5s`.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    policy: Box<Policy>,
    /// The share of a region's base pages that must be populated for a scan to count it as a
    /// candidate, above 0 and at most 1.
    pub share: f64,
    /// For how long its population must not have changed.
    pub age: Duration,
    /// The most processor time that is used over time, as a share of one core.
    pub cpu: f64,
    /// The processor time that may be saved up, and used in one call; a daemon has charged it when
    /// it begins.
    pub burst: Duration,
    /// Of a command that is run under the policy: the share of what it uses that may be used beyond
    /// [`cpu`](Options::cpu), and by which promotion may slow it if no
    /// [`slowdown`](Options::slowdown) is given.
    pub of_command: f64,
    /// Regions promoted in one call.
    pub batch: usize,
    /// The time between two scans for processes, and of a process that changes.
    pub interval: Duration,
    /// The longest time between two scans of a process that does not change.
    pub idle: Duration,
    /// The most by which promotion may slow a process, as a share of its own speed: after a batch
    /// that cost it more, the next one waits. `None`: [`SLOWDOWN`].
    pub slowdown: Option<f64>,
    /// Whether memory files are promoted too.
    pub shared: bool,
}

/// The most by which promotion may slow a process where nothing else is given.
pub const SLOWDOWN: f64 = 0.02;

/// The parameters that limit the processor time.
const CPU: &str = "cpu";
const BURST: &str = "burst";

/// Under a policy that does not go by age: between two scans for processes, and between two of a
/// process that does not change.
const INTERVAL: Duration = Duration::from_secs(1);
const IDLE: Duration = Duration::from_secs(10);

impl Options {
    /// Those of a policy.
    ///
    /// # Errors
    /// [`Error::Usage`]: it has no background, needs what a live Linux does not have, or its values
    /// contradict each other.
    pub fn of(policy: Policy) -> Result<Options, Error> {
        let usage = |error: superpage_vm::PolicyError| Error::Usage(error.to_string());
        policy.check(&LINUX).map_err(usage)?;
        let policy = if policy.given().target().name == LINUX.name {
            policy
        } else {
            // Made for another target, it lacks the limits of this one.
            Policy::of(policy.definition(), pairs(&policy.to_string()), &LINUX).map_err(usage)?
        };
        let name = policy.definition().name;
        if policy.background().is_none() {
            let sentence = format!(
                "policy {name} has no background work, so it cannot promote in running programs; where Linux has it, \
                 `superpage run -p {name} -- COMMAND` runs a command under it"
            );
            return Err(Error::Usage(sentence));
        }
        let given = policy.given();
        // Another one sees every region with anything populated, and its times are its own.
        let by_age = by_age(given);
        let time = |name, otherwise| given.find_time(name).filter(|_| by_age).unwrap_or(otherwise);
        let options = Options {
            share: if by_age { given.share("share") } else { f64::MIN_POSITIVE },
            age: time("age", Duration::ZERO),
            cpu: given.share("cpu"),
            burst: given.time("burst"),
            of_command: given.share(OF_COMMAND),
            batch: given.number("batch").expect("it has a default") as usize,
            interval: time("interval", INTERVAL),
            idle: time("idle", IDLE),
            slowdown: given.find_share("slowdown"),
            shared: given.is_on("shared"),
            policy: Box::new(policy),
        };
        if options.idle < options.interval {
            let Options { idle, interval, .. } = options;
            let idle = if idle.is_zero() { "0".into() } else { format!("{idle:?}") };
            return Err(Error::Usage(format!(
                "policy {name}: idle={idle} must be at least the interval, {interval:?}"
            )));
        }
        Ok(options)
    }

    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The ranges of addresses that the policy's plan names, ascending; none of a policy without
    /// one.
    pub fn planned(&self) -> Vec<Range<u64>> {
        superpage_vm::planned(&self.policy).into_iter().filter(|range| range.end < u64::MAX).collect()
    }

    /// Whether the policy decides by share, age and interval, so that these say what it would do,
    /// and when.
    pub fn goes_by_age(&self) -> bool {
        by_age(self.policy.given())
    }

    /// Those of another policy, or of this one with some parameters changed.
    ///
    /// # Errors
    /// As for [`Options::of`]; or it is no policy.
    pub fn changed(&self, text: &str) -> Result<Options, Error> {
        let usage = |error: superpage_vm::PolicyError| Error::Usage(error.to_string());
        let given = Policy::parse(text, &LINUX).map_err(usage)?;
        let name = given.definition().name;
        if name != self.policy.definition().name {
            return Options::of(given);
        }
        let own = self.to_string();
        let all = pairs(&own).chain(pairs(text));
        Options::of(Policy::of(given.definition(), all, &LINUX).map_err(usage)?)
    }

    /// The options of one service among others: another policy, or this one with some parameters
    /// changed, within the same processor time.
    ///
    /// # Errors
    /// As for [`Options::changed`]; or the processor time is given.
    pub(crate) fn of_service(&self, text: &str) -> Result<Options, Error> {
        if let Some((name, _)) = pairs(text).find(|(name, _)| [CPU, BURST, OF_COMMAND].contains(name)) {
            let sentence = format!(
                "{name} is of the daemon, not of one service: give it in [promote], or in the policy above the tables"
            );
            return Err(Error::Usage(sentence));
        }
        let options = self.changed(text)?;
        let name = options.policy.definition().name;
        if name == self.policy.definition().name {
            return Ok(options);
        }
        options.changed(&format!("{name}:{CPU}={},{BURST}={}ns", self.cpu, self.burst.as_nanos()))
    }

    /// The least population of a region of `size` bytes that a scan counts as a candidate, in base
    /// pages.
    pub(super) fn least(&self, size: u64) -> u32 {
        let pages = size / rustix::param::page_size() as u64;
        ((self.share * pages as f64).ceil() as u32).max(1)
    }

    /// For how long a dry run looks: the policy's interval and age, where it has them, and as long
    /// as a first scan waits.
    pub fn looks(&self) -> Duration {
        let own = |name| self.policy.given().find_time(name).unwrap_or_default();
        self.interval.saturating_add(own("interval")).saturating_add(own("age"))
    }

    /// How long these regions take, at `cost` each, within the share of a core.
    pub fn takes(&self, regions: u64, cost: Duration) -> Duration {
        Duration::try_from_secs_f64(regions as f64 * cost.as_secs_f64() / self.cpu).unwrap_or(Duration::MAX)
    }

    /// The policy's background as for a dry run: nothing limits its time.
    pub(super) fn unlimited(&self) -> Box<dyn Background> {
        let whole = self.policy.has_budget().then(|| {
            let text = format!("{}:cpu=1,burst=10s", self.policy.definition().name);
            self.changed(&text).expect("they are in their ranges")
        });
        whole.as_ref().unwrap_or(self).policy.background().expect("it was looked for")
    }

    /// The policy's background in its initial state, within the budget.
    pub(super) fn background(&self) -> Box<dyn Background> {
        let background = self.policy.background().expect("it was looked for");
        if self.policy.has_budget() { background } else { Box::new(Runner::new(background, self.cpu, self.burst)) }
    }
}

/// The parameters in the text of a policy.
fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = text.split_once(':').map_or("", |(_, pairs)| pairs);
    pairs.split(',').filter_map(|pair| pair.split_once('='))
}

fn by_age(given: &Given) -> bool {
    given.has("share") && given.has("age")
}

impl Default for Options {
    fn default() -> Options {
        "promote".parse().expect("the defaults of a policy go together")
    }
}

impl FromStr for Options {
    type Err = Error;

    fn from_str(text: &str) -> Result<Options, Error> {
        Options::of(Policy::parse(text, &LINUX).map_err(|error| Error::Usage(error.to_string()))?)
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.policy.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for text in [
            "promote",
            "promote:share=0.9,age=250ms,cpu=0.05,shared=off",
            "promote:interval=1000001ns",
            "ingens:interval=8s,cpu=0.05,slowdown=0.1",
        ] {
            assert_eq!(text.parse::<Options>().unwrap().to_string(), text);
        }
        let other: Options = "ingens:cpu=5%,batch=2,shared=off".parse().unwrap();
        assert_eq!((other.cpu, other.batch, other.shared, other.goes_by_age()), (0.05, 2, false, false));
        let short: Options = "promote:age=100us,burst=1500us".parse().unwrap();
        assert_eq!(short.changed("promote:age=2s,batch=2").unwrap().to_string(), "promote:burst=1500us,batch=2");
        assert_eq!(short.changed("promote").unwrap(), short);
    }

    #[test]
    fn a_service_has_its_own_parameters_and_no_time_of_its_own() {
        let daemon: Options = "promote:age=5s,cpu=0.02,burst=50ms".parse().unwrap();
        let of = |text: &str| daemon.of_service(text).map(|options| options.to_string());
        assert_eq!(of("promote:share=0.5").unwrap(), "promote:share=0.5,age=5s,cpu=0.02,burst=50ms");
        let other = daemon.of_service("ingens:slowdown=1%").unwrap();
        assert_eq!((other.cpu, other.burst, other.slowdown), (0.02, Duration::from_millis(50), Some(0.01)));
        for text in ["promote:cpu=1%", "ingens:burst=1s", "promote:of-command=1%"] {
            let error = of(text).unwrap_err();
            assert!(error.status() == 2 && error.to_string().contains("is of the daemon"), "{error}");
        }
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
            ("idle=1ms", "at least the interval, 1s"),
            ("interval=0", "a time of at least 1ms"),
            ("interval=999us", "a time of at least 1ms"),
            ("batch=0", "from 1 to 1024"),
            ("age", "key=value"),
            ("age=1s,age=2s", "age is given twice"),
        ] {
            let error = format!("promote:{text}").parse::<Options>().unwrap_err();
            assert!(error.to_string().contains(part) && error.status() == 2, "{text}: {error}");
        }
        let elsewhere = Options::of("ingens:interval=8s".parse().unwrap()).unwrap();
        assert_eq!((elsewhere.cpu, elsewhere.to_string().as_str()), (0.01, "ingens:interval=8s"));
        let error = "thp:cpu=0.05".parse::<Options>().unwrap_err();
        assert!(error.to_string().contains("has no parameter `cpu`") && error.status() == 2, "{error}");
        let error = "thp".parse::<Options>().unwrap_err();
        assert!(error.to_string().contains("has no background work") && error.status() == 2, "{error}");
    }
}
