//! The width of what is printed, and its consequences: which columns of a table are shown, and
//! where text is wrapped.
//!
//! A verb makes one [`Screen`] from its flag `--wide`, and prints everything through it:
//!
//! ```
//! use superpage_report::{Column, Screen, Table};
//!
//! let mut table = Table::new([Column::name("policy"), Column::number("time"), Column::number("user").only_wide()]);
//! table.row(["base", "1.20 s", "1.10 s"]);
//! let screen = Screen::of(40);
//! assert_eq!(screen.table(&table), " policy    time\n ──────────────\n base    1.20 s\n");
//! assert_eq!(screen.note("a sentence that is longer than the screen"), "- a sentence that is longer than the\n  screen\n");
//! ```

use std::io::IsTerminal;

use crate::table::{Table, fold};
use superpage_output::foreign;
use unicode_width::UnicodeWidthStr;

/// Where results are printed for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Screen {
    /// The width; `None`: unlimited.
    columns: Option<usize>,
}

impl Screen {
    /// The width if there is no terminal: a pipe or a file, which should read the same wherever it
    /// was made.
    pub const DEFAULT: usize = 100;
    /// The least width: narrower terminals wrap lines themselves.
    const LEAST: usize = 40;
    /// The longest line of a sentence, however wide the terminal is.
    const READABLE: usize = 120;

    /// Standard output: as wide as its terminal, or [`DEFAULT`](Screen::DEFAULT) if it is not one;
    /// with `wide` every column is shown and nothing is wrapped.
    pub fn stdout(wide: bool) -> Screen {
        if wide {
            return Screen { columns: None };
        }
        let stdout = std::io::stdout();
        let terminal = stdout.is_terminal().then(|| terminal_size::terminal_size_of(&stdout)).flatten();
        Screen::of(terminal.map_or(Screen::DEFAULT, |(width, _)| width.0 as usize))
    }

    /// A screen of so many columns.
    pub fn of(columns: usize) -> Screen {
        Screen { columns: Some(columns.max(Screen::LEAST)) }
    }

    /// Whether every column is shown and nothing is wrapped.
    pub fn is_wide(&self) -> bool {
        self.columns.is_none()
    }

    /// The table, with a line under its head, ending in a newline. Without `--wide`, columns that
    /// are [`only_wide`](crate::Column::only_wide) are left out, and columns of
    /// [prose](crate::Column::prose) are wrapped to fit.
    pub fn table(&self, table: &Table) -> String {
        table.render(self.columns)
    }

    /// The table; if it is wider than the screen, several below each other, each with the first
    /// column and as many of the others as fit.
    pub fn table_in_parts(&self, table: &Table) -> String {
        table.render_in_parts(self.columns)
    }

    /// A text, wrapped between words, ending in a newline.
    pub fn paragraph(&self, text: &str) -> String {
        self.hanging("", text)
    }

    /// A text as an item of a list, with a dash before it.
    pub fn note(&self, text: &str) -> String {
        self.hanging("- ", text)
    }

    /// A text after a mark; further lines are aligned with the first word.
    pub fn hanging(&self, mark: &str, text: &str) -> String {
        let text = foreign(text);
        let Some(columns) = self.columns else { return format!("{mark}{text}\n") };
        let room = columns.min(Screen::READABLE).saturating_sub(mark.width()).max(1);
        let mut lines = vec![String::new()];
        let mut used = 0;
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            // A word that is too long for a line has several, of which no other is on the same
            // line.
            for (at, piece) in fold(word, room).lines().enumerate() {
                let space = usize::from(used > 0);
                if at > 0 || used + space + piece.width() > room {
                    lines.push(piece.into());
                    used = piece.width();
                } else if let Some(line) = lines.last_mut() {
                    *line += &" "[..space];
                    *line += piece;
                    used += space + piece.width();
                }
            }
        }
        let indent = " ".repeat(mark.width());
        let marks = std::iter::once(mark).chain(std::iter::repeat(indent.as_str()));
        marks.zip(lines).map(|(mark, line)| format!("{}\n", format!("{mark}{line}").trim_end())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Column;

    const LONG: &str = "thp: /sys/kernel/mm/transparent_hugepage/enabled is always for the whole system while the command \
                        runs, then back to madvise";

    fn widest(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    #[test]
    fn sentences_keep_to_the_width_and_all_words() {
        for columns in [40, 72, 100, 120] {
            let text = Screen::of(columns).note(LONG);
            assert!(widest(&text) <= columns, "{columns}: {text}");
            let words =
                |text: &str| text.replace("- thp", "thp").split_whitespace().map(String::from).collect::<Vec<_>>();
            if columns > 60 {
                assert_eq!(words(&text), words(LONG));
            }
            assert!(text.lines().skip(1).all(|line| line.starts_with("  ") && !line.ends_with(' ')), "{text}");
        }
        assert!(widest(&Screen::of(400).paragraph(&LONG.repeat(3))) <= 120, "a line that the eye can follow");
        assert_eq!(Screen::stdout(true).note(LONG), format!("- {LONG}\n"));
        assert_eq!(Screen::of(100).paragraph("short"), "short\n");
    }

    #[test]
    fn a_pipe_has_a_hundred_columns() {
        // In a test, standard output is a terminal or not; neither is a wide screen.
        assert!(!Screen::stdout(false).is_wide() && Screen::stdout(true).is_wide());
        assert_eq!(Screen::of(3), Screen::of(40));
    }

    #[test]
    fn prose_is_broken_and_numbers_are_not() {
        let columns = [Column::name("policy"), Column::number("time"), Column::prose("what it did")];
        let mut table = Table::new(columns);
        table.row(["promote", "788.82 ms ± 105.86 ms", LONG]);
        table.row(["base", "1.000 s ± 2.00 ms", "nothing"]);
        let narrow = Screen::of(80).table(&table);
        assert!(widest(&narrow) <= 80 && narrow.lines().count() > 4, "{narrow}");
        assert!(narrow.contains("788.82 ms ± 105.86 ms"), "{narrow}");
        let wide = Screen::stdout(true).table(&table);
        assert_eq!(wide.lines().count(), 4);
        assert!(wide.contains(LONG));
    }
}
