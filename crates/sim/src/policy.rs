//! Policies as users write them for the simulator: those of `superpage-vm`, and a user's own, in
//! files.

use crate::Error;
use serde::Deserialize;
use std::collections::BTreeMap;
use superpage_vm::{Policy, Target};

/// The simulator as a target of policies.
pub const SIMULATOR: Target = Target {
    name: "the simulator",
    read: Some(|path| read(path).map_err(|error| error.to_string())),
    ..Target::MANAGER
};

/// A user's own policy: differences from another.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Differences {
    /// A description, for readers of the file.
    #[serde(rename = "description")]
    _description: Option<String>,
    /// The policy that it differs from, perhaps with parameters.
    from: Option<String>,
    /// The parameters that it changes.
    #[serde(default)]
    parameters: BTreeMap<String, toml::Value>,
}

/// A parameter as `key=value`: a word, a number, or `true` or `false` for `on` or `off`.
fn pair((key, value): (String, toml::Value)) -> Result<String, String> {
    match value {
        toml::Value::String(word) => Ok(format!("{key}={word}")),
        toml::Value::Boolean(on) => Ok(format!("{key}={}", if on { "on" } else { "off" })),
        toml::Value::Integer(number) => Ok(format!("{key}={number}")),
        toml::Value::Float(number) => Ok(format!("{key}={number}")),
        other => Err(format!(
            "parameters.{key}: expected a word, a number, true or false, not a value of type {}",
            other.type_str()
        )),
    }
}

/// Parameters in layers, of which a later one replaces what an earlier one has of the same key. A
/// key that is twice in one layer stays so, for the error that says it.
fn layered(layers: &[&str]) -> String {
    let key = |pair: &str| pair.split('=').next().unwrap_or_default().to_string();
    let mut pairs: Vec<&str> = Vec::new();
    for layer in layers {
        let own: Vec<&str> = layer.split(',').filter(|pair| !pair.is_empty()).collect();
        pairs.retain(|before| own.iter().all(|pair| key(pair) != key(before)));
        pairs.extend(own);
    }
    pairs.join(",")
}

/// A policy text in which the path of a policy file (`*.toml`) in place of a name is replaced by
/// the file's contents.
///
/// # Errors
/// The file cannot be read, or is malformed.
pub fn expand(text: &str) -> Result<String, Error> {
    expanded(text, read)
}

/// The contents of a policy file.
fn read(path: &str) -> std::io::Result<String> {
    superpage_output::read_text(path.as_ref())
}

fn expanded(text: &str, read: impl Fn(&str) -> std::io::Result<String>) -> Result<String, Error> {
    let (name, more) = text.split_once(':').unwrap_or((text, ""));
    if !name.ends_with(".toml") {
        return Ok(text.to_string());
    }
    let file = read(name).map_err(|error| Error::Usage(format!("policy {name}: {error}")))?;
    let wrong = |problem: String| Error::Usage(format!("policy {name}: {problem}"));
    let Differences { from, parameters, .. } = toml::from_str(&file).map_err(|error| wrong(one_line(&error, &file)))?;
    let from = from.ok_or_else(|| {
        wrong("missing field `from`, the policy that it differs from, as in from = \"reservation\"".to_string())
    })?;
    let (from, first) = from.split_once(':').unwrap_or((&from, ""));
    let own: Vec<String> = parameters.into_iter().map(pair).collect::<Result<_, _>>().map_err(wrong)?;
    Ok(format!("{from}:{}", layered(&[first, &own.join(","), more])))
}

/// An error of TOML on one line: where, as machine files say it, and what.
pub(crate) fn one_line(error: &toml::de::Error, text: &str) -> String {
    let place = error.span().map_or(String::new(), |span| {
        let before = &text[..span.start.min(text.len())];
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        format!("at line {}, column {column}: ", before.matches('\n').count() + 1)
    });
    format!("{place}{}", error.message().replace('\n', ", "))
}

/// The part of `--help` about policies: each that can be simulated, with its own parameters, and
/// the parameters of all.
pub fn policy_help() -> String {
    let mut help = String::new();
    for definition in SIMULATOR.policies() {
        help += &format!("  {:14} {}\n", definition.name, definition.help);
        for parameter in SIMULATOR.parameters(definition) {
            let values = format!("{}={}", parameter.name, parameter.values);
            let otherwise =
                if parameter.default.is_empty() { "" } else { &format!("; {} if not given", parameter.default) };
            help += &format!("    :{values:<15} {}{otherwise}\n", parameter.help);
        }
    }
    help += "  FILE.toml      your own: from = \"reservation\", and under [parameters] what differs from that\n";
    help += "  with the parameters\n";
    for (key, line) in SIMULATOR.keys() {
        help += &format!("  {key:28} {line}\n");
    }
    help
}

/// Parses a policy as users write it: a name or the path of a policy file (`*.toml`), then perhaps
/// parameters after a colon.
///
/// # Errors
/// A sentence that lists the names, keys or values that exist.
pub fn policy(text: &str) -> Result<Policy, Error> {
    policy_with_text(text, read).map(|(policy, _)| policy)
}

/// A policy with its name in rows: its canonical text, or that of the user, if it is of a file.
///
/// # Errors
/// As for [`policy`].
pub fn named(text: &str) -> Result<(String, Policy), Error> {
    policy(text).map(|policy| (if file(text).is_some() { text.into() } else { policy.to_string() }, policy))
}

/// The path of the file that a text names.
fn file(text: &str) -> Option<&str> {
    text.split(':').next().filter(|name| name.ends_with(".toml"))
}

/// Like [`policy`], with the text that [`expand`] returns, and what files that it names hold, for a
/// digest; `read` returns the contents of a file by its path, and is called once at most.
///
/// # Errors
/// As for [`policy`], or those of `read`.
pub fn policy_with_text(text: &str, read: impl Fn(&str) -> std::io::Result<String>) -> Result<(Policy, String), Error> {
    let whole = expanded(text, read)?;
    let policy = Policy::parse(&whole, &SIMULATOR).map_err(|error| {
        Error::Usage(match file(text) {
            Some(file) => format!("policy {file}: {error}"),
            None => error.to_string(),
        })
    })?;
    let text = policy.given().files().fold(whole, |text, file| text + "\n" + file);
    Ok((policy, text))
}

/// The names of the policies that can be simulated.
pub fn policies() -> impl Iterator<Item = &'static str> {
    SIMULATOR.policies().map(|definition| definition.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_of_a_policy_holds_is_in_its_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.csv");
        let text = |lines: &str| {
            std::fs::write(&path, lines).unwrap();
            policy_with_text(&format!("plan:file={}", path.display()), |_| unreachable!()).unwrap().1
        };
        assert_ne!(
            text("huge,mmap,300000,addr,>,0x400000,addr,<,0x800000\n"),
            text("huge,mmap,300000,addr,>,0x400000,addr,<,0xa00000\n")
        );
    }

    #[test]
    fn a_users_own_is_differences() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("own.toml");
        let path = file.to_str().unwrap();
        let read = |text: &str, more: &str| {
            std::fs::write(&file, text).unwrap();
            policy(&format!("{path}{more}")).map_err(|error| error.to_string())
        };
        let changed = policy("reservation:pieces=free,preempt=off").unwrap();
        let own = "description = \"own\"\nfrom = \"reservation:pieces=free\"\n[parameters]\npreempt = \"off\"\n";
        assert_eq!(read(own, "").unwrap(), changed);
        assert_eq!(read(own, ":preempt=on").unwrap(), policy("reservation:pieces=free").unwrap());
        assert_eq!(read("from = \"thp\"", "").unwrap(), policy("thp").unwrap());
        let lacking = read("[parameters]\npreempt = \"off\"\n", "").unwrap_err();
        assert!(lacking.contains(path) && lacking.contains("missing field `from`"), "{lacking}");
        let unknown = read("from = \"none\"", "").unwrap_err();
        assert!(unknown.contains(path) && unknown.contains("`none`; the simulator has base, reservation"), "{unknown}");
        let old = read("base = \"reservation\"", "").unwrap_err();
        assert!(old.contains("unknown field `base`, expected one of `description`, `from`, `parameters`"), "{old}");
        assert!(old.contains(": at line 1, column 1: "), "{old}");
        assert!(read("", "").unwrap_err().contains("missing field `from`, the policy that it differs from"));
        // Numbers and switches as TOML has them.
        let native = "from = \"promote\"\n[parameters]\nbatch = 2\nshare = 0.5\npreempt = false\n";
        assert_eq!(read(native, "").unwrap(), policy("promote:batch=2,share=0.5,preempt=off").unwrap());
        let list = read("from = \"promote\"\n[parameters]\nbatch = [2]\n", "").unwrap_err();
        assert!(
            list.contains("parameters.batch: expected a word, a number, true or false, not a value of type array"),
            "{list}"
        );
        let twice = read(own, ":preempt=on,preempt=off").unwrap_err();
        assert!(twice.contains("preempt is given twice"), "{twice}");
    }

    #[test]
    fn what_is_unknown_is_named_with_what_is_known() {
        for (text, part) in [
            ("navarro", "the simulator has base, reservation, freebsd, talluri-hill, thp"),
            ("text", "no policy is named `text`; the simulator has base"),
            ("reservation:shoes=on", "place"),
            ("reservation:preempt=maybe", "on, off"),
            ("reservation:preempt", "key=value"),
            ("reservation:preempt=off,preempt=on", "preempt is given twice"),
            ("promote:age=1x", "100us"),
            ("reservation:sizes=3K", "power of two"),
            ("no/such.toml", "no/such.toml"),
        ] {
            let message = policy(text).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }
}
