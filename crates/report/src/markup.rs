//! Tables in markup: Markdown, and HTML.

use crate::page::escape;
use crate::screen::Screen;
use crate::table::{Column, Content, Table};
use std::fmt::Write;

impl Table {
    /// All columns in Markdown; text flush left, with code in backquotes.
    pub fn markdown(&self) -> String {
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let cells: Vec<String> = cells.map(|cell| markdown(cell).replace('|', "\\|")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let side = |column: &Column| if column.content == Content::Number { "---:" } else { ":---" };
        let mut out = line(&mut self.columns().iter().map(Column::head));
        out += &line(&mut self.columns().iter().map(side));
        self.rows().iter().for_each(|row| out += &line(&mut row.iter().map(String::as_str)));
        out
    }

    /// As HTML, with the columns that are only shown wide or without. The first column names the
    /// row; `caption` is for screen readers.
    pub fn html(&self, caption: &str, wide: bool) -> String {
        let shown: Vec<usize> =
            (0..self.columns().len()).filter(|index| wide || !self.columns()[*index].is_only_wide()).collect();
        let text = |index: usize| {
            if index == 0 || self.columns()[index].content != Content::Number { " class=\"text\"" } else { "" }
        };
        let cell = |index: usize, cell: &str| match cell.split(' ').next() {
            Some(word) if self.columns()[index].classed => {
                format!("<td class=\"text {}\">{}</td>", escape(word), escape(cell))
            }
            _ => format!("<td{}>{}</td>", text(index), escape(cell)),
        };
        let mut out = format!(
            "<div class=\"scroll\" tabindex=\"0\"><table><caption class=\"heard\">{}</caption>\n<thead><tr>",
            escape(caption)
        );
        for &index in &shown {
            let _ = write!(out, "<th scope=\"col\"{}>{}</th>", text(index), escape(self.columns()[index].head()));
        }
        out += "</tr></thead>\n<tbody>\n";
        for row in self.rows() {
            let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape(&row[0]));
            shown[1..].iter().for_each(|&index| out += &cell(index, &row[index]));
            out += "</tr>\n";
        }
        out + "</tbody></table></div>\n"
    }
}

impl Screen {
    /// A text as [`Screen::hanging`] wraps it, in Markdown, with what would be markup outside of
    /// code escaped. No line begins a heading, a list or a quotation: the first word is escaped,
    /// others stay on the line before, as they may be code.
    pub fn markdown(&self, mark: &str, text: &str) -> String {
        let mut text = markdown(text);
        if let Some(at) = block_mark(&text) {
            text.insert(at, '\\');
        }
        let wrapped = self.hanging(mark, &text);
        let mut out = String::new();
        for mut line in wrapped.lines() {
            while !out.is_empty() && block_mark(line.trim_start()).is_some() {
                let (word, rest) = line.trim_start().split_once(' ').unwrap_or((line.trim_start(), ""));
                out.truncate(out.trim_end().len());
                out += &format!(" {word}\n");
                line = rest;
            }
            if !line.is_empty() {
                let indent = if line.starts_with(' ') || out.is_empty() { 0 } else { mark.len() };
                out += &format!("{:indent$}{line}\n", "");
            }
        }
        out
    }
}

/// Where a line is to be escaped that would begin a heading, a list or a quotation, or underline
/// one.
fn block_mark(line: &str) -> Option<usize> {
    let word = line.split(' ').next()?;
    let number = word.trim_end_matches(['.', ')']);
    let digits = number.len() + 1 == word.len() && number.bytes().all(|byte| byte.is_ascii_digit());
    let line_of = |mark: char| !line.is_empty() && line.trim_matches([mark, ' ']).is_empty();
    match word {
        "-" | "+" => Some(0),
        _ if word.starts_with(['#', '>']) || line_of('-') || line_of('=') => Some(0),
        _ if digits && !number.is_empty() => Some(number.len()),
        _ => None,
    }
}

/// Text as Markdown: what would be markup outside of code is escaped. Code is in backquotes.
///
/// As in GitHub's specification (6.1 to 6.6): a run of backquotes ends at the next of its length;
/// `_` within a word and marks between spaces are no emphasis; `[` alone is no link.
fn markdown(text: &str) -> String {
    let mut out = String::new();
    let (mut before, mut rest) = (' ', text);
    while let Some(c) = rest.chars().next() {
        if c == '`' {
            let (run, code) = (backquotes(rest), end_of_code(rest));
            out += &code.map_or("\\`".repeat(run), |end| rest[..end].into());
            rest = &rest[code.unwrap_or(run)..];
        } else {
            rest = &rest[c.len_utf8()..];
            let after = rest.chars().next().unwrap_or(' ');
            let both = |are: fn(char) -> bool| are(before) && are(after);
            let markup = match c {
                '<' | '*' => true,
                '_' => !both(char::is_alphanumeric) && !both(char::is_whitespace),
                '~' => !both(char::is_whitespace) && text.matches('~').count() > 1,
                '[' => ["](", "][", "]:"].iter().any(|end| rest.contains(end)),
                '\\' => after.is_ascii_punctuation(),
                _ => false,
            };
            out.extend(markup.then_some('\\').into_iter().chain([c]));
        }
        before = c;
    }
    out
}

/// The length of the run of backquotes that a text begins with.
fn backquotes(text: &str) -> usize {
    text.len() - text.trim_start_matches('`').len()
}

/// Where the code ends that a text begins with; `None` if it does not end.
fn end_of_code(text: &str) -> Option<usize> {
    let length = backquotes(text);
    let mut from = length;
    while let Some(at) = text[from..].find('`').map(|at| from + at) {
        let run = backquotes(&text[at..]);
        from = at + run;
        if run == length {
            return Some(from);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_markup_is_escaped_outside_of_code() {
        let same = ["snake_case, a _ b", "a [1] of ~/x", "`_a_ *b* [c](d)`", "``a ` b`` c", r"C:\dir", "- 1 | 2"];
        for text in same {
            assert_eq!(markdown(text), text);
        }
        for (text, written) in [
            ("<b> 2*3", r"\<b> 2\*3"),
            ("_a_ and __b__", r"\_a\_ and \_\_b\_\_"),
            ("[a](b), [c][d], [`e`](f)", r"\[a](b), \[c]\[d], \[`e`](f)"),
            ("~~a~~", r"\~\~a\~\~"),
            ("one ` alone, *", r"one \` alone, \*"),
            ("`a`` <b>", r"\`a\`\` \<b>"),
            (r"\*", r"\\\*"),
        ] {
            assert_eq!(markdown(text), written);
        }
    }

    #[test]
    fn no_line_begins_something_else() {
        let screen = Screen::of(40);
        for (mark, text, written) in [
            ("", "# a", "\\# a\n"),
            ("", "+ a", "\\+ a\n"),
            ("1. ", "2. of", "1. 2\\. of\n"),
            ("- ", "a 2.5 -p", "- a 2.5 -p\n"),
            ("", "---", "\\---\n"),
            (
                "- ",
                "a word that fills nearly all the line - b and",
                "- a word that fills nearly all the line -\n  b and\n",
            ),
            (
                "",
                "a text of forty columns, `so many that a 1) > # b` c",
                "a text of forty columns, `so many that a 1) > #\nb` c\n",
            ),
        ] {
            assert_eq!(screen.markdown(mark, text), written);
        }
    }

    #[test]
    fn cells_are_escaped_and_have_their_class() {
        let mut table = Table::new([Column::name("item"), Column::name("why"), Column::name("verdict").classed()]);
        table.row(["a|b", "agrees_ `x|_y`", "agrees [1]"]);
        assert!(table.markdown().ends_with("| a\\|b | agrees\\_ `x\\|_y` | agrees [1] |\n"), "{}", table.markdown());
        let html = table.html("", true);
        assert!(
            html.contains("<td class=\"text\">agrees_") && html.contains("<td class=\"text agrees\">agrees [1]</td>")
        );
    }
}
