//! Untrusted text: names that processes give themselves, paths of files.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a terminal would obey a character, or a reader be deceived by it: control characters,
/// and those that change the direction of writing, break lines, or cannot be seen.
fn deceives(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// The text with such characters escaped: `\n`, `\u{1b}`. Tables and the sentences of a screen do
/// this by themselves.
pub fn foreign(text: &str) -> Cow<'_, str> {
    if !text.contains(deceives) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if deceives(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// JSON with such characters escaped as JSON does, except the ends of its own lines: it means the
/// same.
pub fn foreign_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || !deceives(c) {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "a\n\u{1b}[2Jb\u{9b}31m\u{202e}c\u{200b}\t";
    const WRITTEN: &str = r"a\n\u{1b}[2Jb\u{9b}31m\u{202e}c\u{200b}\t";

    #[test]
    fn what_a_terminal_obeys_is_written_out() {
        assert_eq!(foreign(NAME), WRITTEN);
        assert!(matches!(foreign("/usr/lib/grün ± 日本.so"), Cow::Borrowed(_)));
    }

    #[test]
    fn json_means_the_same() {
        let json = "{\n  \"name\": \"x\u{9b}31m\u{202e}\u{e0041}\"\n}";
        assert_eq!(foreign_json(json), "{\n  \"name\": \"x\\u009b31m\\u202e\\udb40\\udc41\"\n}");
    }
}
