//! Tables: columns that say what stands in them, and rows.

use crate::foreign::foreign;
use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table as Layout, presets};

/// What stands in a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Content {
    Number,
    Name,
    Prose,
}

/// A column of a [`Table`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    name: String,
    content: Content,
    only_wide: bool,
}

impl Column {
    fn new(name: impl Into<String>, content: Content) -> Column {
        Column { name: name.into(), content, only_wide: false }
    }

    /// Numbers, flush right and never broken.
    pub fn number(name: impl Into<String>) -> Column {
        Column::new(name, Content::Number)
    }

    /// Names, flush left and never broken.
    pub fn name(name: impl Into<String>) -> Column {
        Column::new(name, Content::Name)
    }

    /// Text, flush left and broken between words where the screen is narrow. It stands last, so that the eye finds it.
    pub fn prose(name: impl Into<String>) -> Column {
        Column::new(name, Content::Prose)
    }

    /// Left out unless everything is asked for.
    pub fn only_wide(self) -> Column {
        Column { only_wide: true, ..self }
    }

    /// The name in the head.
    pub fn head(&self) -> &str {
        &self.name
    }

    /// Whether text stands in it that may be broken.
    pub fn is_prose(&self) -> bool {
        self.content == Content::Prose
    }

    /// Whether it is left out unless everything is asked for.
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

    /// Adds a row, with a cell for every column, those that are only shown wide too. What a cell says may be chosen by
    /// others: it is escaped by [`foreign`].
    ///
    /// # Panics
    /// If it has another number of cells.
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

    /// The table for a screen of so many columns; all of it, unbroken, without a number.
    pub(crate) fn render(&self, width: Option<usize>) -> String {
        let shown: Vec<usize> =
            (0..self.columns.len()).filter(|&index| width.is_none() || !self.columns[index].only_wide).collect();
        let mut layout = Layout::new();
        layout.load_style(presets::NOTHING);
        let aligned = |index: usize, text: &str| {
            let side = match self.columns[index].content {
                Content::Number => CellAlignment::Right,
                Content::Name | Content::Prose => CellAlignment::Left,
            };
            Cell::new(text).set_alignment(side)
        };
        layout.set_header(shown.iter().map(|&index| aligned(index, &self.columns[index].name)));
        for row in &self.rows {
            layout.add_row(shown.iter().map(|&index| aligned(index, &row[index])));
        }
        if let Some(width) = width {
            layout.set_content_arrangement(ContentArrangement::Dynamic).set_width(width.min(u16::MAX.into()) as u16);
            for (&index, column) in shown.iter().zip(layout.column_iter_mut()) {
                if self.columns[index].content != Content::Prose {
                    column.set_constraint(ColumnConstraint::ContentWidth);
                }
            }
        }
        let lines: Vec<String> = layout.lines().map(|line| line.trim_end().to_string()).collect();
        let width = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
        let mut out = format!("{}\n {}\n", lines[0], "─".repeat(width.saturating_sub(1)));
        for line in &lines[1..] {
            out += line;
            out.push('\n');
        }
        out
    }
}
