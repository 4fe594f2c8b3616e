//! What is wrong in a configuration, and where, for people.

use std::ops::Range;
use std::path::Path;
use superpage_linux::Error;
use superpage_output::foreign;

/// The text of a configuration, and the file that it is from.
pub(super) struct Read<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
}

impl Read<'_> {
    /// The error that something is wrong there: one line, with the file and the line.
    pub(super) fn wrong(&self, at: Range<usize>, problem: &str) -> Error {
        let line = self.before(at.start).matches('\n').count() + 1;
        Error::Usage(format!("{}:{line}: {}", self.path.display(), shown(problem)))
    }

    /// The error that it is no TOML, or has keys or values that are not expected. The crate toml
    /// says which types its caller reads, and not always of which key.
    pub(super) fn no_configuration(&self, error: &toml::de::Error) -> Error {
        let at = error.span().unwrap_or(0..0);
        let (key, message) = (self.key(at.start), error.message().replace('\n', "; "));
        let problem = if message == "duplicate key" {
            let name = self.text.get(at.clone()).unwrap_or(key);
            format!("{name} is given twice: keep one of them")
        } else if message.contains("128`") || message.contains("as i128") || message.contains("as u128") {
            format!("{key}: the number is too large; expected one of at most {}", i64::MAX)
        } else if key == "[service]" {
            "[service] is one table: write [[service]], of which there may be several".to_string()
        } else if let Some(found) = message.strip_suffix(", expected a sequence") {
            let example = if key == "pids" { "4711" } else { "\"...\"" };
            format!("{key}: {found}, expected a list, such as {key} = [{example}]")
        } else if let Some((found, _)) = message.split_once(", expected struct") {
            format!("{key}: {found}, expected a table, [{key}]")
        } else if let Some(found) = message.strip_suffix(", expected i32") {
            format!("{key}: {found}, expected the number of a process, as ps shows it")
        } else if message.contains("socket address") {
            format!("{key}: expected an address and a port, such as 127.0.0.1:9415")
        } else if message.starts_with("invalid type") || message.starts_with("invalid value") {
            format!("{key}: {message}")
        } else {
            message
        };
        self.wrong(at, &problem)
    }

    fn before(&self, at: usize) -> &str {
        self.text.get(..at).unwrap_or(self.text)
    }

    /// The key whose value is at a position, or the head of a table.
    fn key(&self, at: usize) -> &str {
        let start = self.before(at).rfind('\n').map_or(0, |feed| feed + 1);
        // A list may begin some lines above.
        let lines = self.text[..start].lines().rev();
        let own = self.text[start..].lines().next().unwrap_or_default();
        let head = |line: &&str| line.contains('=') || line.trim_start().starts_with('[');
        let line = std::iter::once(own).chain(lines).find(head).unwrap_or(own);
        line.split(['=', '#']).next().unwrap_or(line).trim()
    }
}

/// The most characters of a problem at its beginning and at its end: what is longer has a long
/// value in it.
const BEGIN: usize = 120;
const END: usize = 160;

/// A problem on one line, without the middle of a long value.
fn shown(problem: &str) -> String {
    let text = foreign(problem);
    let number = text.chars().count();
    if number <= BEGIN + END {
        return text.into_owned();
    }
    let begin: String = text.chars().take(BEGIN).collect();
    let end: String = text.chars().skip(number - END).collect();
    format!("{begin}...{end}")
}

#[cfg(test)]
mod tests {
    use crate::daemon::Config;

    #[test]
    fn what_is_wrong_is_told_on_one_line_with_its_place_and_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.toml");
        let long = "x".repeat(100_000);
        for (text, part) in [
            ("[promote]\nage = \"3s\"\nidle = 0\n", ":3: policy promote: idle=0 must be at least the interval"),
            ("[promote]\nage = \"3s\"\ninterval = 20\n", ":3: policy promote: idle=10s must be"),
            ("[promote]\ncpu = 99999999999999999999\n", ":2: cpu: the number is too large; expected"),
            ("[processes]\npids = [\n1,\n9999999999]\n", ":4: pids: invalid value: integer `9999999999`, expected the"),
            ("\n[service]\nnames = [\"a\"]\n", ":2: [service] is one table: write [[service]]"),
            ("[processes]\nnames = \"x\"\n", ":2: names: invalid type: string \"x\", expected a list, such as names ="),
            ("[processes]\npids = 1\n", "expected a list, such as pids = [4711]"),
            ("processes = 3\n", ":1: processes: invalid type: integer `3`, expected a table"),
            ("[processes]\nnames = []\nnames = []\n", ":3: names is given twice: keep one of them"),
            ("[processes]\n[processes]\n", ":2: processes is given twice"),
            ("[[service]]\n\nnames = [\"\"]\n", ":3: a name that is empty, or has a NUL, selects nothing"),
            ("[processes]\nexcept = [\"a\\u0000b\"]\n", ":2: a name that is empty, or has a NUL"),
            ("[[service]]\ncgroups = [\"\"]\n", ":2: a control group without a name selects nothing"),
            ("[processes]\n\ncgroups = [\"/no/such\"]\n", ":3: /no/such is no control group: give"),
            ("[[service]]\nlabel = \"\"\nnames = [\"a\"]\n", ":1: its label is empty"),
            ("[metrics]\nfile = \"\"\n", ":2: an empty path names no file"),
            ("[metrics]\nlisten = \"here\"\n", ":2: listen: expected an address and a port"),
            ("policy = \"promote:share=2\\n INFO ends\"\n", ":1: policy promote: share is a share such as 0.9"),
            (&format!("policy = \"promote:share={long}\"\n"), "and at most 1, not `xxx"),
            (&format!("[processes]\n{long} = 1\n"), "expected one of `all`, `pids`"),
            (&format!("[processes]\nall = \"{long}\"\n"), "expected a boolean"),
            ("\n[processes]\nnames = [\"a\"]\nexcept = [\"a\"]\n", ":2: except has all of names"),
            ("\n[[service]]\nnames = [\"a\"]\nexcept = [\"b\", \"a\"]\n", ":2: except has all of names"),
            (
                "[[service]]\nnames = [\"a\", \"b\"]\n[[service]]\nlabel = \"c\"\nnames = [\"b\"]\n",
                ":3: it selects nothing: service a and",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Config::read(&path).unwrap_err();
            let shown = error.to_string();
            assert!(shown.contains(part) && error.status() == 2, "{shown}");
            assert!(!shown.contains('\n') && shown.len() < 400 + path.as_os_str().len(), "{shown}");
        }
        // What only looks alike.
        for text in [
            "[[service]]\nnames = [\"a\", \"b\"]\nexcept = [\"b\"]\n[[service]]\nlabel = \"c\"\nnames = [\"b\"]\n",
            "[processes]\nall = true\nnames = [\"a\"]\nexcept = [\"a\"]\n",
            "[[service]]\nnames = [\"a\"]\n[[service]]\nlabel = \"b\"\ncgroups = [\"b.slice\"]\n",
        ] {
            std::fs::write(&path, text).unwrap();
            Config::read(&path).unwrap();
        }
    }
}
