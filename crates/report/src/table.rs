//! Tables: columns that know what they contain, and rows.

use comfy_table::{
    Cell, CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table as Layout, Width, presets,
};
use superpage_output::foreign;
use unicode_width::UnicodeWidthStr;

/// Longer heads are broken after their punctuation if the screen is not wide,
const LONG_HEAD: usize = 24;
/// and so are longer words of prose in a table that would not fit.
const LONG_WORD: usize = 20;

/// The content of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    Number,
    Name,
    Prose,
}

/// A column of a [`Table`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    name: String,
    pub(crate) content: Content,
    only_wide: bool,
    pub(crate) classed: bool,
}

impl Column {
    fn new(name: impl Into<String>, content: Content) -> Column {
        Column { name: name.into(), content, only_wide: false, classed: false }
    }

    /// Numbers, flush right and never broken.
    pub fn number(name: impl Into<String>) -> Column {
        Column::new(name, Content::Number)
    }

    /// Names, flush left and never broken.
    pub fn name(name: impl Into<String>) -> Column {
        Column::new(name, Content::Name)
    }

    /// Text, flush left and wrapped between words if the screen is narrow. It comes last.
    pub fn prose(name: impl Into<String>) -> Column {
        Column::new(name, Content::Prose)
    }

    /// Leaves the column out unless everything is requested.
    pub fn only_wide(self) -> Column {
        Column { only_wide: true, ..self }
    }

    /// Gives each cell in HTML its first word as a class, for colours: of a few known words only.
    pub fn classed(self) -> Column {
        Column { classed: true, ..self }
    }

    /// The name in the head.
    pub fn head(&self) -> &str {
        &self.name
    }

    /// Whether it contains text that may be wrapped.
    pub fn is_prose(&self) -> bool {
        self.content == Content::Prose
    }

    /// Whether it is left out unless everything is requested.
    pub fn is_only_wide(&self) -> bool {
        self.only_wide
    }
}

/// A table for people; [`Screen::table`](crate::Screen::table) prints it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Table {
        Table { columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row, with a cell for every column, including those that are only shown wide. Text may
    /// come from untrusted sources: it is escaped by [`foreign`].
    ///
    /// # Panics
    /// If it has a different number of cells.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        let cells: Vec<String> = cells.into_iter().map(|cell| foreign(&cell.into()).into_owned()).collect();
        assert_eq!(cells.len(), self.columns.len(), "a row has a cell for every column");
        self.rows.push(cells);
    }

    /// The columns.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The rows.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// The table for a screen of so many columns, in parts where prose in it would be broken within
    /// words; without a number all of it, unwrapped.
    pub(crate) fn render(&self, width: Option<usize>) -> String {
        let shown = self.shown(width);
        let least: usize = shown.iter().map(|&index| self.least_width(index, width)).sum();
        let breaks =
            width.is_some_and(|most| least > most) && shown.iter().any(|&index| self.columns[index].is_prose());
        if breaks { self.render_in_parts(width) } else { self.lay_out(&shown, width) }
    }

    /// The same; if it does not fit, several tables, each with the first column and as many of the
    /// others as fit.
    pub(crate) fn render_in_parts(&self, width: Option<usize>) -> String {
        let shown = self.shown(width);
        let (Some(most), Some((&first, others))) = (width, shown.split_first()) else { return self.render(width) };
        let mut parts: Vec<Vec<usize>> = Vec::new();
        let mut used = usize::MAX;
        for &index in others {
            let wants = self.least_width(index, width);
            match parts.last_mut() {
                Some(part) if used + wants <= most => {
                    used += wants;
                    part.push(index);
                }
                _ => {
                    used = self.least_width(first, width) + wants;
                    parts.push(vec![first, index]);
                }
            }
        }
        let parts: Vec<String> = parts.iter().map(|part| self.lay_out(part, width)).collect();
        parts.join("\n")
    }

    fn shown(&self, width: Option<usize>) -> Vec<usize> {
        (0..self.columns.len()).filter(|&index| width.is_none() || !self.columns[index].only_wide).collect()
    }

    fn head_of(&self, index: usize, width: Option<usize>) -> String {
        let head = foreign(&self.columns[index].name).into_owned();
        if width.is_some() { fold(&head, LONG_HEAD) } else { head }
    }

    /// The width of a column, with the space around it, if none of its cells is wrapped.
    fn natural_width(&self, index: usize, width: Option<usize>) -> usize {
        let head = self.head_of(index, width);
        let cells = self.rows.iter().map(|row| row[index].width());
        head.lines().map(UnicodeWidthStr::width).chain(cells).max().unwrap_or(0) + 2
    }

    /// The width of a column of prose, with the space around it, below which words would be broken
    /// that need not be.
    fn longest_word(&self, index: usize) -> usize {
        let words = |row: &Vec<String>| fold_words(&row[index]).split_whitespace().map(UnicodeWidthStr::width).max();
        self.rows.iter().filter_map(words).max().unwrap_or(0) + 2
    }

    /// The width that a column needs, with the space around it.
    fn least_width(&self, index: usize, width: Option<usize>) -> usize {
        let natural = self.natural_width(index, width);
        if self.columns[index].is_prose() { natural.min(self.longest_word(index)) } else { natural }
    }

    fn lay_out(&self, shown: &[usize], width: Option<usize>) -> String {
        /// Nothing else in a table is a line of only these.
        const RULE: char = '─';
        let mut layout = Layout::new();
        layout.load_style(presets::NOTHING.header_separator(LineStyle::none().fill(RULE)));
        let aligned = |index: usize, text: &str| {
            let side = match self.columns[index].content {
                Content::Number => CellAlignment::Right,
                Content::Name | Content::Prose => CellAlignment::Left,
            };
            Cell::new(text).set_alignment(side)
        };
        layout.set_header(shown.iter().map(|&index| aligned(index, &self.head_of(index, width))));
        let natural: usize = shown.iter().map(|&index| self.natural_width(index, width)).sum();
        let tight = width.is_some_and(|width| natural > width);
        for row in &self.rows {
            layout.add_row(shown.iter().map(|&index| match self.columns[index].content {
                Content::Prose if tight => aligned(index, &fold_words(&row[index])),
                _ => aligned(index, &row[index]),
            }));
        }
        if let Some(width) = width {
            layout.set_content_arrangement(ContentArrangement::Dynamic).set_width(width.min(u16::MAX.into()) as u16);
            for (&index, column) in shown.iter().zip(layout.column_iter_mut()) {
                column.set_constraint(match self.columns[index].content {
                    Content::Prose => ColumnConstraint::LowerBoundary(Width::Fixed(self.longest_word(index) as u16)),
                    _ => ColumnConstraint::ContentWidth,
                });
            }
        }
        let lines: Vec<String> = layout.lines().map(|line| line.trim_end().to_string()).collect();
        let is_rule = |line: &String| !line.is_empty() && line.chars().all(|c| c == RULE);
        let rule = lines.iter().position(is_rule).unwrap_or(0);
        let others = lines.iter().enumerate().filter(|(at, _)| *at != rule);
        let width = others.map(|(_, line)| line.width()).max().unwrap_or(0);
        let mut out = String::new();
        for (at, line) in lines.iter().enumerate() {
            if at == rule {
                out += &format!(" {}", RULE.to_string().repeat(width.saturating_sub(1)))
            } else {
                out += line
            }
            out.push('\n');
        }
        out
    }
}

/// A text with its long words broken into several lines.
fn fold_words(text: &str) -> String {
    text.split(' ').map(|word| fold(word, LONG_WORD)).collect::<Vec<_>>().join(" ")
}

/// A name in lines of at most so many columns, broken after its punctuation if it has any.
pub(crate) fn fold(name: &str, columns: usize) -> String {
    let mut lines: Vec<String> = vec![String::new()];
    let mut put = |piece: &str| match lines.last_mut() {
        Some(line) if line.is_empty() || line.width() + piece.width() <= columns => line.push_str(piece),
        _ => lines.push(piece.to_string()),
    };
    for piece in name.split_inclusive([' ', ':', ',', '+', '=', '/', '-']) {
        if piece.width() <= columns {
            put(piece);
        } else {
            piece.chars().for_each(|c| put(c.encode_utf8(&mut [0; 4])));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Screen;

    const NAME: &str = "a\n\u{1b}[2Jb\u{9b}31m\u{202e}c\u{200b}\t";
    const WRITTEN: &str = r"a\n\u{1b}[2Jb\u{9b}31m\u{202e}c\u{200b}\t";

    #[test]
    fn what_a_terminal_obeys_is_written_out() {
        let mut table = Table::new([Column::name("name"), Column::number("n"), Column::prose("why")]);
        table.row([NAME, "1", NAME]);
        for screen in [Screen::of(100), Screen::stdout(true)] {
            for text in [screen.table(&table), screen.note(NAME), screen.paragraph(NAME)] {
                assert!(text.contains(WRITTEN) && !text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text}");
            }
        }
        assert!(!crate::grid(&["name"], [vec![NAME.to_string()]], &["name"]).contains('\u{1b}'));
    }

    fn widest(text: &str) -> usize {
        text.lines().map(UnicodeWidthStr::width).max().unwrap_or(0)
    }

    #[test]
    fn a_head_of_several_lines_stands_above_the_rule() {
        let mut table = Table::new([Column::name("a"), Column::prose("two words")]);
        table.row(["x".repeat(36), "some text that is longer than what is left of the screen".into()]);
        let text = Screen::of(48).table(&table);
        let rule = text.lines().position(|line| line.trim_start().starts_with('─')).unwrap();
        assert!(rule == 2 && text.lines().nth(1).unwrap().trim() == "words", "{text}");
    }

    #[test]
    fn what_does_not_fit_stands_below() {
        let policies = ["reservation:sizes=64K+512K+2M,speculative=on", "thp", "ingens", "hawkeye", "promote"];
        let mut table = Table::new(std::iter::once(Column::name("workload")).chain(policies.map(Column::number)));
        table.row(["gzip -k data", "1.047 ± 0.003 12.5 %", "2", "3", "4", "5 and many more words, not broken"]);
        let screen = Screen::of(60);
        let text = screen.table_in_parts(&table);
        assert!(widest(&text) <= 60, "{text}");
        assert_eq!(text.matches("gzip -k data").count(), 2, "{text}");
        let words: String = text.split_whitespace().collect();
        assert!(policies[1..].iter().all(|policy| words.contains(policy)), "{text}");
        assert_eq!(Screen::of(200).table_in_parts(&table), Screen::of(200).table(&table));
        assert_eq!(Screen::stdout(true).table_in_parts(&table), Screen::stdout(true).table(&table));
    }

    #[test]
    fn long_words_are_broken_behind_their_marks_if_they_must_be() {
        let mut table = Table::new([Column::prose("policy"), Column::number("n")]);
        table.row(["reservation:sizes=64K+512K,preempt=off", "1"]);
        assert!(Screen::of(60).table(&table).contains(" reservation:sizes=64K+512K,preempt=off  1\n"));
        let text = Screen::of(40).table(&table);
        assert!(text.contains("\n reservation:sizes=  ") && text.contains("\n 64K+512K,preempt=off\n"), "{text}");
    }

    #[test]
    fn words_are_not_broken_inside_to_make_room() {
        let mut table = Table::new([Column::prose("policy"), Column::number("requests/s"), Column::number("ratio")]);
        table.row(["mthp:size=64K (1)", "225 K", "0.981 (0.861 to 1.159) slower"]);
        let text = Screen::of(56).table(&table);
        assert!(text.contains("\n mthp:size=64K") && text.contains(" (1)"), "{text}");
    }

    #[test]
    fn names_are_folded_behind_their_marks() {
        assert_eq!(fold("reservation:sizes=64K+512K+2M", 20), "reservation:sizes=\n64K+512K+2M");
        assert_eq!(fold("thp", 20), "thp");
        assert_eq!(fold(&"x".repeat(45), 20).lines().map(str::len).collect::<Vec<_>>(), [20, 20, 5]);
    }
}
