//! Policies by name: compositions of answers in `policies/*.toml`, the built-in ones and a user's own.

use crate::Error;
use serde::Deserialize;
use std::collections::BTreeMap;
use superpage_pages::PageSize;
use superpage_vm::Policy;

/// The built-in compositions: their names and texts.
const BUILT_IN: [(&str, &str); 5] = [
    ("base", include_str!("../../../policies/base.toml")),
    ("reservation", include_str!("../../../policies/reservation.toml")),
    ("freebsd", include_str!("../../../policies/freebsd.toml")),
    ("talluri-hill", include_str!("../../../policies/talluri-hill.toml")),
    ("thp", include_str!("../../../policies/thp.toml")),
];

/// A composition as its file holds it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Composition {
    description: String,
    /// The built-in policy that the answers are differences from; without it all must be there.
    base: Option<String>,
    answers: BTreeMap<String, String>,
}

impl Composition {
    fn parse(text: &str, origin: &str) -> Result<Composition, Error> {
        toml::from_str(text).map_err(|error| Error::Usage(format!("policy {origin}: {}", one_line(&error))))
    }

    /// The answers, upon those of the policy that they are differences from.
    fn policy(&self, origin: &str) -> Result<Policy, Error> {
        let mut policy = match &self.base {
            Some(name) => {
                let Some(text) = built_in(name) else {
                    let names = names();
                    return Err(Error::Usage(format!("policy {origin}: base = {name:?}: expected one of {names}")));
                };
                Composition::parse(text, name)?.policy(name)?
            }
            None => {
                let lacking = |key: &&str| !self.answers.contains_key(*key);
                let lacking: Vec<&str> = Policy::keys().iter().map(|key| key.name).filter(lacking).collect();
                if !lacking.is_empty() {
                    return Err(Error::Usage(format!(
                        "policy {origin}: [answers] lacks {}; expected all answers, or a line such as base = \"reservation\" \
                         above [answers] for those that are not there",
                        lacking.join(", ")
                    )));
                }
                Policy::named("base").expect("base is always there")
            }
        };
        for (key, value) in &self.answers {
            policy.set(key, value).map_err(|error| Error::Usage(format!("policy {origin}: {error}")))?;
        }
        Ok(policy)
    }
}

/// An error of TOML as one line: where, and what.
fn one_line(error: &toml::de::Error) -> String {
    let place = error.span().map_or(String::new(), |span| format!("byte {}: ", span.start));
    format!("{place}{}", error.message().replace('\n', ", "))
}

fn names() -> String {
    BUILT_IN.map(|(name, _)| name).join(", ")
}

fn built_in(name: &str) -> Option<&'static str> {
    BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The built-in policies, each with a line that describes it.
pub fn policies() -> Vec<(&'static str, String)> {
    BUILT_IN
        .iter()
        .map(|(name, text)| (*name, Composition::parse(text, name).expect("built-in files are right").description))
        .collect()
}

/// The parameters that follow a policy's name, as `key=values`, each with a line that describes it.
pub fn policy_keys() -> Vec<(String, String)> {
    let own = ("sizes=SIZE+SIZE...".to_string(), "leave only these superpage sizes in use".to_string());
    let keys =
        Policy::keys().iter().map(|key| (format!("{}={}", key.name, key.values.join("|")), key.help.to_string()));
    std::iter::once(own).chain(keys).collect()
}

/// Reads a policy as people write it: a name or the path of a policy file (`*.toml`), then perhaps parameters after a
/// colon. The second value is what its parameter `sizes` leaves in use.
///
/// # Errors
/// A sentence that lists the names, keys or values that there are.
pub fn policy(text: &str) -> Result<(Policy, Option<Vec<PageSize>>), Error> {
    let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
    let mut policy = if name.ends_with(".toml") {
        let text = std::fs::read_to_string(name).map_err(|error| Error::Usage(format!("policy {name}: {error}")))?;
        Composition::parse(&text, name)?.policy(name)?
    } else {
        let Some(text) = built_in(name) else {
            let names = names();
            return Err(Error::Usage(format!("unknown policy {name}: expected {names}, or the path of a .toml file")));
        };
        Composition::parse(text, name)?.policy(name)?
    };
    let mut sizes = None;
    for parameter in parameters.split(',').filter(|parameter| !parameter.is_empty()) {
        match parameter.split_once('=') {
            Some(("sizes", list)) => {
                let read = |size: &str| {
                    size.parse::<PageSize>()
                        .map_err(|error| Error::Usage(format!("policy {text}: size {size}: {error}")))
                };
                sizes = Some(list.split('+').map(read).collect::<Result<Vec<_>, _>>()?);
            }
            Some((key, value)) => {
                policy.set(key, value).map_err(|error| Error::Usage(format!("policy {text}: {error}")))?;
            }
            None => {
                let problem = "expected key=value, such as preempt=off";
                return Err(Error::Usage(format!("policy {text}: parameter {parameter}: {problem}")));
            }
        }
    }
    Ok((policy, sizes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_say_what_the_names_of_the_crate_mean() {
        for name in Policy::names() {
            assert_eq!(policy(name).unwrap().0, Policy::named(name).unwrap(), "{name}");
        }
    }

    #[test]
    fn every_file_answers_every_question() {
        for (name, text) in BUILT_IN {
            let answered: Vec<String> = Composition::parse(text, name).unwrap().answers.into_keys().collect();
            let mut keys: Vec<&str> = Policy::keys().iter().map(|key| key.name).collect();
            keys.sort_unstable();
            assert_eq!(answered, keys, "{name}");
        }
    }

    #[test]
    fn parameters_change_answers_and_sizes() {
        let (changed, sizes) = policy("reservation:sizes=64K+4M,preempt=off").unwrap();
        assert_ne!(changed, Policy::named("reservation").unwrap());
        assert_eq!(sizes.unwrap().len(), 2);
    }

    #[test]
    fn a_users_own_is_whole_or_says_what_it_differs_from() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("own.toml");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            policy(file.to_str().unwrap()).map(|(policy, _)| policy).map_err(|error| error.to_string())
        };
        let own = |base: &str, answers: &str| format!("description = \"own\"\n{base}\n[answers]\n{answers}\n");
        let changed = policy("reservation:preempt=off").unwrap().0;
        assert_eq!(read(&own("base = \"reservation\"", "preempt = \"off\"")).unwrap(), changed);
        let lacking = read(&own("", "preempt = \"off\"")).unwrap_err();
        assert!(lacking.contains("lacks place, ") && lacking.contains("base = "), "{lacking}");
        let unknown = read(&own("base = \"none\"", "")).unwrap_err();
        assert!(unknown.contains("\"none\": expected one of base, reservation"), "{unknown}");
    }

    #[test]
    fn what_is_unknown_is_named_with_what_is_known() {
        for (text, part) in [
            ("navarro", "expected base, reservation, freebsd, talluri-hill, thp"),
            ("reservation:shoes=on", "place"),
            ("reservation:preempt=maybe", "on, off"),
            ("reservation:preempt", "key=value"),
            ("reservation:sizes=3K", "power of two"),
            ("no/such.toml", "no/such.toml"),
        ] {
            let message = policy(text).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }
}
