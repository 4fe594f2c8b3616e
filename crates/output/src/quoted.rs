//! Words of commands, for people.

/// A word as a shell would want it, on one line, to be shown. The crate shlex quotes `=` and `,`
/// too, which most options have, and leaves control characters as they are.
pub fn quoted(word: &str) -> String {
    if word.chars().any(char::is_control) {
        let escaped = |c: char| match c {
            '\'' | '\\' => format!("\\{c}"),
            '\n' => "\\n".into(),
            '\t' => "\\t".into(),
            c if c.is_ascii_control() => format!("\\x{:02x}", c as u32),
            c => c.to_string(),
        };
        return format!("$'{}'", word.chars().map(escaped).collect::<String>());
    }
    let plain = |c: char| c.is_alphanumeric() || "_-./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_string()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_as_a_shell_would_want_them() {
        for (word, shown) in [
            ("gcc", "gcc"),
            ("--memory=2G,4G", "--memory=2G,4G"),
            ("grün", "grün"),
            ("", "''"),
            ("it's", r"'it'\''s'"),
            ("a b", "'a b'"),
            ("a\nb 'ü'\u{1b}", r"$'a\nb \'ü\'\x1b'"),
        ] {
            assert_eq!(quoted(word), shown);
        }
    }
}
