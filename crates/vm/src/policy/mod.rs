//! Policies: what the operating system does. Each policy is one file here with one [`Definition`].
//! To add one takes the file, its `mod` and its line in [`DEFINITIONS`], from which every verb, the
//! help and the documents read.
//!
//! A policy consists of [`Answers`], plain data for the fault path, and perhaps a [`Background`].
//! It is written as a name, or as a name with parameters: `reservation:preempt=off`. For ablations,
//! every answer is also a parameter of every policy.

mod adaptive;
mod answers;
pub(crate) mod background;
pub(crate) mod backoff;
mod base;
mod budget;
mod charges;
mod definition;
mod eager;
mod emd;
mod ethp;
mod freebsd;
mod hawkeye;
mod hugetlb;
mod hybrid;
mod ingens;
mod kcompactd;
mod keys;
mod khugepaged;
mod ladder;
mod leshy;
mod mthp;
mod parameter;
mod pcc;
mod plan;
mod promote;
mod quicksilver;
mod reservation;
mod romer;
pub(crate) mod runner;
pub(crate) mod running;
pub(crate) mod scanner;
mod static_pool;
mod talluri_hill;
mod target;
mod thp;
mod trident;

pub use self::answers::{
    Accessed, Answers, Cache, Close, Demote, Demoting, Dirty, Fit, Hash, Hints, Lists, PastEnd, Pieces, Place, Placing,
    Populating, Promote, Promoting, Reclaim, Reclaiming, Reserve, Resident, Scarce, Shortage, Sizes, Stacks, Unmovable,
    Wake, Wired, ZeroPage,
};
pub use self::definition::{Definition, Made, PolicyError};
pub use self::keys::Key;
pub use self::parameter::{Given, Parameter, Values};
pub use self::plan::planned;
pub use self::promote::LIMITS;
pub(crate) use self::promote::huge;
pub use self::static_pool::StaticPool;
pub use self::target::{Need, Target};

use self::background::Background;
use self::keys::KEYS;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use superpage_pages::PageSize;

/// What a memory manager can do, in the order in which policies are listed.
static DEFINITIONS: &[&Definition] = &[
    &base::POLICY,
    &reservation::POLICY,
    &freebsd::POLICY,
    &talluri_hill::POLICY,
    &thp::POLICY,
    &mthp::POLICY,
    &hugetlb::POLICY,
    &promote::POLICY,
    &khugepaged::POLICY,
    &ingens::POLICY,
    &eager::POLICY,
    &ethp::POLICY,
    &emd::POLICY,
    &hawkeye::POLICY,
    &quicksilver::POLICY,
    &trident::POLICY,
    &romer::POLICY,
    &pcc::POLICY,
    &leshy::POLICY,
    &hybrid::POLICY,
    &plan::POLICY,
    &adaptive::POLICY,
];

/// A policy with its parameters. Parse one from a string, then perhaps change answers by
/// [`Policy::set`] or by field.
#[derive(Clone, PartialEq, Debug)]
pub struct Policy {
    /// How the fault path behaves.
    pub answers: Answers,
    /// The superpage sizes that are left in use; if empty, all.
    pub sizes: Vec<PageSize>,
    given: Given,
}

impl Policy {
    /// The policy with this name, for this crate's manager.
    ///
    /// # Errors
    /// The policy is unknown, or needs something that the manager does not provide.
    pub fn named(name: &str) -> Result<Policy, PolicyError> {
        Policy::new(name, [], &Target::MANAGER)
    }

    /// Parses a name, or a name with parameters: `reservation:preempt=off,pieces=free`.
    ///
    /// # Errors
    /// It is unknown, gives a parameter twice, or cannot run on `target`; the message says what is
    /// available instead.
    pub fn parse(text: &str, target: &Target) -> Result<Policy, PolicyError> {
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        let mut pairs = Vec::new();
        for pair in parameters.split(',').filter(|pair| !pair.is_empty()) {
            let syntax = || format!("policy {name}: `{pair}` should read key=value, as in {name}:key=value,key=value");
            let (key, value) = pair.split_once('=').ok_or_else(syntax).map_err(PolicyError)?;
            if pairs.iter().any(|(other, _)| *other == key) {
                return Err(PolicyError(format!("policy {name}: {key} is given twice; keep one of them")));
            }
            pairs.push((key, value));
        }
        Policy::new(name, pairs, target)
    }

    /// The policy with this name and these parameters. If a parameter is given twice, the last one
    /// counts.
    ///
    /// # Errors
    /// As for [`Policy::parse`].
    pub fn new<'a>(
        name: &str,
        parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
        target: &Target,
    ) -> Result<Policy, PolicyError> {
        let Some(definition) = target.known().find(|definition| definition.name == name) else {
            let (target, names) = (target.name, target.names());
            return Err(PolicyError(format!("no policy is named `{name}`; {target} has {names}")));
        };
        Policy::of(definition, parameters, target)
    }

    /// The policy of a definition, which need not be one of this crate's, with these parameters.
    ///
    /// # Errors
    /// As for [`Policy::parse`].
    pub fn of<'a>(
        definition: &'static Definition,
        parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
        target: &Target,
    ) -> Result<Policy, PolicyError> {
        target.provides(definition, None)?;
        let mut given = Given::defaults(definition, *target);
        let (mut answers, mut limit) = (Vec::new(), None);
        for (key, value) in parameters {
            if definition.parameters.iter().all(|own| own.name != key) {
                limit = target.limits.iter().find(|limit| limit.name == key).or(limit);
            }
            match target.accepted(definition).find(|parameter| parameter.name == key) {
                Some(parameter) if target.lacks(parameter.needs).is_none() => given.set(parameter, value)?,
                None if target.has.contains(&Need::Faults) => answers.push((key, value)),
                _ => return Err(unknown(definition, key, target)),
            }
        }
        let made = (definition.make)(&given);
        if let Some(why) = made.error {
            return Err(PolicyError(format!("policy {}: {why}", definition.name)));
        }
        target.provides(definition, made.background.as_deref())?;
        if let Some(limit) = limit.filter(|_| made.background.is_none()) {
            return Err(unknown(definition, limit.name, target));
        }
        let mut policy = Policy { answers: made.answers, sizes: Vec::new(), given };
        for (key, value) in answers {
            if key != "sizes" && !KEYS.iter().any(|known| known.name == key) {
                return Err(unknown(definition, key, target));
            }
            policy.set(key, value)?;
        }
        Ok(policy)
    }

    /// The definition that it was made from.
    pub fn definition(&self) -> &'static Definition {
        self.given.definition()
    }

    /// The values of its own parameters.
    pub fn given(&self) -> &Given {
        &self.given
    }

    /// Makes its background, in its initial state; `None` if it has none.
    pub fn background(&self) -> Option<Box<dyn Background>> {
        let made = (self.definition().make)(&self.given);
        match (made.background?, made.budget) {
            (background, Some((share, burst))) => Some(Box::new(runner::Runner::new(background, share, burst))),
            (background, None) => Some(background),
        }
    }

    /// Whether its background keeps to its own budget ([`Made::within`]).
    pub fn has_budget(&self) -> bool {
        (self.definition().make)(&self.given).budget.is_some()
    }

    /// Checks that a target, which need not be the one that it was parsed for, provides what it
    /// needs. Its answers are not looked at.
    ///
    /// # Errors
    /// A sentence that names what is missing.
    pub fn check(&self, target: &Target) -> Result<(), PolicyError> {
        target.provides(self.definition(), self.background().as_deref())
    }

    /// What of it does not happen on a target that meets its needs, each in words. The rest is the
    /// policy all the same, or it would need it.
    pub fn goes_without(&self, target: &Target) -> Vec<&'static str> {
        let wants = self.background().map(|background| background.wants()).unwrap_or_default();
        let told = wants.fault || wants.starved || wants.mapped || wants.unmapped;
        let parts = [
            (self.answers.place.frames != Place::BasePage, Need::Faults, "it does nothing at faults"),
            (told, Need::FaultEvents, "it does not see faults and mappings"),
            (wants.miss, Need::Misses, "it does not see misses in the TLBs"),
            (wants.accessed, Need::Accesses, "it does not know which pages are accessed"),
        ];
        parts
            .into_iter()
            .filter(|(used, need, _)| *used && !target.has.contains(need))
            .map(|(.., words)| words)
            .collect()
    }

    /// The names that [`Policy::named`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Target::MANAGER.policies().map(|definition| definition.name)
    }

    /// The answers as parameters, each with its values and a line of help.
    pub fn keys() -> &'static [Key] {
        &KEYS
    }

    /// Changes the answer that `key` stands for to `value`.
    ///
    /// # Errors
    /// There is no such answer, or it has no such value.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), PolicyError> {
        let name = self.definition().name;
        if key == "sizes" {
            let read = |size: &str| {
                size.parse().map_err(|error| PolicyError(format!("policy {name}: sizes: size {size}: {error}")))
            };
            self.sizes = value.split('+').map(read).collect::<Result<_, _>>()?;
            return Ok(());
        }
        let Some(known) = KEYS.iter().find(|known| known.name == key) else {
            return Err(unknown(self.definition(), key, &Target::MANAGER));
        };
        let Some(value) = known.values.iter().position(|valid| *valid == value) else {
            let values = known.values.join(", ");
            return Err(PolicyError(format!("policy {name}: {key} is one of {values}, not `{value}`")));
        };
        (known.set)(&mut self.answers, value);
        Ok(())
    }
}

impl Target {
    /// Checks that it provides what a policy of this definition needs, and the events that its
    /// background asks for.
    ///
    /// # Errors
    /// A sentence that names what is missing.
    fn provides(&self, definition: &Definition, background: Option<&dyn Background>) -> Result<(), PolicyError> {
        let asked = background.map(|background| background.events()).unwrap_or_default();
        match self.lacks(definition.needs).or_else(|| asked.needs().find(|need| !self.has.contains(need))) {
            None => Ok(()),
            Some(need) => {
                let (name, target, names) = (definition.name, self.name, self.names());
                Err(PolicyError(format!(
                    "policy {name} needs {need}, which {target} does not have; {target} has {names}"
                )))
            }
        }
    }

    /// The policies that can run on it.
    pub fn policies(&self) -> impl Iterator<Item = &'static Definition> {
        self.known().filter(|definition| self.lacks(definition.needs).is_none())
    }

    /// Its own, and all of this crate.
    fn known(&self) -> impl Iterator<Item = &'static Definition> {
        self.own.iter().chain(DEFINITIONS).copied()
    }

    /// The names of the policies that can run on it, as a phrase.
    fn names(&self) -> String {
        self.policies().map(|definition| definition.name).collect::<Vec<&str>>().join(", ")
    }
}

/// The error for a parameter that does not exist, or not on this target.
fn unknown(definition: &'static Definition, key: &str, target: &Target) -> PolicyError {
    let name = definition.name;
    let runs = (definition.make)(&Given::defaults(definition, *target)).background.is_some();
    let limits = target.accepted(definition).skip(definition.parameters.len()).filter(|_| runs);
    let own = target.parameters(definition).chain(limits);
    let mut names: Vec<String> = own.map(|it| format!("{}={}", it.name, it.values)).collect();
    if target.has.contains(&Need::Faults) {
        names.push("sizes".to_string());
        names.extend(KEYS.iter().map(|key| key.name.to_string()));
    }
    let names = if names.is_empty() { "none".to_string() } else { names.join(", ") };
    let parameter = definition.parameters.iter().find(|parameter| parameter.name == key);
    let answer = KEYS.iter().any(|known| known.name == key).then_some(Need::Faults);
    let need = parameter.and_then(|parameter| target.lacks(parameter.needs)).or(answer);
    PolicyError(match need {
        Some(need) => {
            format!(
                "policy {name}: {key} needs {need}, which {} does not have; its parameters there: {names}",
                target.name
            )
        }
        None => format!("policy {name} has no parameter `{key}`; its parameters: {names}"),
    })
}

impl fmt::Display for Policy {
    /// Its one canonical text, which [`Policy::parse`] reads: the name, and what is not as it would
    /// be if nothing was given, in the order of its own parameters, sizes and answers. An answer
    /// that was set by field to what no parameter says is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let definition = self.definition();
        let mut pairs: Vec<(&str, String)> = self.given.changed().collect();
        if !self.sizes.is_empty() {
            pairs.push(("sizes", self.sizes.iter().copied().collect::<Sizes>().to_string()));
        }
        let made = (definition.make)(&self.given).answers;
        for key in &KEYS {
            let value = key.value(&self.answers).filter(|value| key.value(&made) != Some(*value));
            pairs.extend(value.map(|value| (key.name, value.to_string())));
        }
        f.write_str(definition.name)?;
        for (place, (name, value)) in pairs.iter().enumerate() {
            write!(f, "{}{name}={value}", if place == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    /// As [`Policy::parse`], for this crate's manager.
    fn from_str(text: &str) -> Result<Policy, PolicyError> {
        Policy::parse(text, &Target::MANAGER)
    }
}

#[cfg(test)]
mod tests {
    use super::background::{Events, System, Time, Wants};
    use super::*;

    const LINUX: Target =
        Target { name: "a live Linux", has: &[Need::Settings, Need::Copying], own: &[], limits: &[], read: None };

    #[test]
    fn what_does_not_happen_elsewhere_is_named() {
        let without = |text: &str, target: &Target| text.parse::<Policy>().unwrap().goes_without(target);
        assert_eq!(
            without("khugepaged", &LINUX),
            ["it does nothing at faults", "it does not know which pages are accessed"]
        );
        assert_eq!(without("khugepaged:fault=off", &LINUX).len(), 1);
        assert_eq!(without("promote", &LINUX), [""; 0]);
        assert!(Policy::names().all(|name| without(name, &Target::MANAGER).is_empty()));
    }

    #[test]
    fn every_value_of_every_key_can_be_set() {
        for key in Policy::keys() {
            let policies: Vec<Policy> = key
                .values
                .iter()
                .map(|value| {
                    let mut policy = Policy::named("reservation").unwrap();
                    policy.set(key.name, value).unwrap();
                    policy
                })
                .collect();
            assert!(policies.windows(2).all(|pair| pair[0] != pair[1]), "{} changes nothing", key.name);
            assert!(policies.contains(&Policy::named("reservation").unwrap()), "{} hides the default", key.name);
        }
    }

    #[test]
    fn every_definition_is_sound() {
        for (i, definition) in DEFINITIONS.iter().enumerate() {
            let Definition { name, help, parameters, .. } = definition;
            assert!(DEFINITIONS[..i].iter().all(|other| other.name != *name), "{name} twice");
            assert!(!help.is_empty() && !help.ends_with('.'), "{name}");
            // Panics if a default is not one of the values.
            let given = Given::defaults(definition, Target::MANAGER);
            let _ = (definition.make)(&given);
            for parameter in *parameters {
                let taken = KEYS.iter().any(|key| key.name == parameter.name) || parameter.name == "sizes";
                assert!(!taken, "{name}: {} is an answer", parameter.name);
            }
        }
    }

    #[test]
    fn a_policy_has_one_text() {
        let canonical = |text: &str| text.parse::<Policy>().unwrap().to_string();
        assert_eq!(canonical("reservation:preempt=on"), "reservation");
        assert_eq!(canonical("base:sizes=4M+64K"), "base:sizes=64K+4M");
        assert_eq!(canonical("reservation:pieces=free,place=base"), "reservation:place=base,pieces=free");
        let times = ["100us", "0.0001s", "100000ns"].map(|age| canonical(&format!("promote:preempt=off,age={age}")));
        assert_eq!(times, ["promote:age=100us,preempt=off"; 3]);
        let sizes = ["1M", "1024K", "1048576"].map(|size| canonical(&format!("mthp:size={size}")));
        assert_eq!(sizes, ["mthp:size=1M"; 3]);
    }

    #[test]
    fn an_error_lists_what_would_be_right() {
        let policy: Policy = "reservation:preempt=off,pieces=free,sizes=64K+4M".parse().unwrap();
        assert_eq!((policy.answers.scarce.then, policy.answers.scarce.pieces), (Scarce::Smaller, Pieces::Free));
        assert_eq!(policy.sizes.len(), 2);
        let message = |text: &str| text.parse::<Policy>().unwrap_err().to_string();
        let here: Vec<&str> = Target::MANAGER.policies().map(|definition| definition.name).collect();
        let here = here.join(", ");
        assert!(here.starts_with("base, reservation, freebsd, "), "{here}");
        assert_eq!(message("reserve"), format!("no policy is named `reserve`; this memory manager has {here}"));
        assert!(message("base:x=1").contains("no parameter `x`; its parameters: sizes, place, growing-limit"));
        assert!(message("base:preempt=maybe").ends_with("preempt is one of on, off, not `maybe`"));
        assert!(message("base:preempt").contains("key=value"));
        assert_eq!(message("base:preempt=off,x=1,preempt=on"), "policy base: preempt is given twice; keep one of them");
        let age = |text: &str| format!("promote:age={text}").parse::<Policy>().unwrap().given().time("age").as_nanos();
        assert_eq!([age("100us"), age("0.0001s"), age("7ns"), age("1.5ms")], [100_000, 100_000, 7, 1_500_000]);
        assert!(message("base:sizes=3K").contains("power of two"));
        assert!(message("thp:malloc=on").contains("malloc needs the settings of a running Linux"));
    }

    #[test]
    fn an_event_that_a_target_does_not_have_is_refused_by_name() {
        #[derive(Debug)]
        struct Listener(Events);
        impl Background for Listener {
            fn next(&self) -> Option<Time> {
                None
            }
            fn tick(&mut self, _: Time, _: &mut dyn System) {}
            fn events(&self) -> Events {
                self.0
            }
        }
        const ANSWERS: Answers = Answers::BASE;
        const FAULTED: Events = Events { faulted: true, missed: false, gone: true };
        static FAULTS: Definition = Definition {
            name: "faults",
            paper: "",
            help: "listens",
            parameters: &[],
            needs: &[],
            make: |_| Made::with(ANSWERS, Listener(FAULTED)),
        };
        static MISSES: Definition = Definition {
            name: "misses",
            make: |_| Made::with(ANSWERS, Listener(Events { missed: true, ..Events::default() })),
            ..FAULTS
        };
        static ENDS: Definition = Definition {
            name: "ends",
            make: |_| Made::with(ANSWERS, Listener(Events { gone: true, ..Events::default() })),
            ..FAULTS
        };
        let message = |definition: &'static Definition| {
            let policy = Policy::of(definition, [], &Target::MANAGER).unwrap();
            let error = Policy::of(definition, [], &LINUX).map(drop);
            assert_eq!(error, policy.check(&LINUX));
            error.map_err(|error| error.to_string())
        };
        let faults = message(&FAULTS).unwrap_err();
        assert!(
            faults.starts_with("policy faults needs page-fault events, which a live Linux does not have"),
            "{faults}"
        );
        let misses = message(&MISSES).unwrap_err();
        assert!(misses.starts_with("policy misses needs TLB-miss events, which"), "{misses}");
        assert_eq!(message(&ENDS), Ok(()));
    }

    #[test]
    fn what_is_wanted_alone_is_no_refusal() {
        #[derive(Debug)]
        struct Listener;
        impl Background for Listener {
            fn next(&self) -> Option<Time> {
                None
            }
            fn tick(&mut self, _: Time, _: &mut dyn System) {}
            fn wants(&self) -> Wants {
                Wants { fault: true, miss: true, neighbour: true, starved: true, ..Wants::default() }
            }
        }
        static WANTS: Definition = Definition {
            name: "wants",
            paper: "",
            help: "listens",
            parameters: &[],
            needs: &[],
            make: |_| Made::with(Answers::BASE, Listener),
        };
        assert!(Policy::of(&WANTS, [], &LINUX).is_ok());
    }

    #[test]
    fn making_a_policy_may_fail_and_sees_its_values_and_the_target() {
        static PLAN: Definition = Definition {
            name: "plan",
            paper: "",
            help: "reads a file",
            parameters: &[
                Parameter { name: "file", values: Values::Path, default: "", help: "the plan", needs: &[] },
                Parameter { name: "note", values: Values::Text, default: "none", help: "any text", needs: &[] },
                Parameter { name: "alpha", values: Values::Number(-1.0, 1.0), default: "0.25", help: "", needs: &[] },
            ],
            needs: &[],
            make: |given| match given.text("file") {
                _ if given.target().name == LINUX.name => Made::failed("plans are not read live"),
                Some("/plan") => Made::answers(Answers::BASE),
                other => Made::failed(format!("there is no plan {}", other.unwrap_or("at all"))),
            },
        };
        let make = |pairs: &[(&'static str, &'static str)], target| {
            Policy::of(&PLAN, pairs.iter().copied(), target).map_err(|error| error.to_string())
        };
        let target = &Target::MANAGER;
        let policy = make(&[("alpha", "-0.5"), ("file", "/plan"), ("note", "a b=c")], target).unwrap();
        assert_eq!(policy.to_string(), "plan:file=/plan,note=a b=c,alpha=-0.5");
        assert_eq!((policy.given().real("alpha"), policy.given().text("note")), (-0.5, Some("a b=c")));
        assert_eq!(make(&[], target).unwrap_err(), "policy plan: there is no plan at all");
        assert_eq!(make(&[("file", "/x")], target).unwrap_err(), "policy plan: there is no plan /x");
        assert_eq!(make(&[("file", "/plan")], &LINUX).unwrap_err(), "policy plan: plans are not read live");
        assert!(make(&[("alpha", "2")], target).unwrap_err().contains("alpha is a number from -1 to 1"));
        assert!(make(&[("alpha", "nan")], target).unwrap_err().contains("alpha is a number"));
        assert!(make(&[("note", "")], target).unwrap_err().contains("note is a text that is not empty"));
    }

    #[test]
    fn a_target_says_by_name_what_it_cannot_do() {
        let message = |text: &str| Policy::parse(text, &LINUX).unwrap_err().to_string();
        let begins = "policy reservation needs control over page faults, which a live Linux does not have; a live Linux \
                      has base, thp, mthp, hugetlb, promote, ";
        assert!(message("reservation").starts_with(begins), "{}", message("reservation"));
        assert_eq!(
            message("thp:preempt=off"),
            "policy thp: preempt needs control over page faults, which a live Linux does not have; its \
             parameters there: malloc=on|off, shared=on|off"
        );
        assert_eq!(message("base:x=1"), "policy base has no parameter `x`; its parameters: none");
        assert_eq!(message("mthp:bytes=1"), "policy mthp has no parameter `bytes`; its parameters: size=SIZE+SIZE...");
        assert_eq!(
            message("mthp:size=65K"),
            "policy mthp: size is a page size, or several, such as 64K or 64K+2M, not `65K`"
        );
    }
}
