//! Tables in markup: Markdown, and HTML.

use crate::page::escape;
use crate::table::{Column, Content, Table};
use std::fmt::Write;

impl Table {
    /// All columns in Markdown; text flush left.
    pub fn markdown(&self) -> String {
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let cells: Vec<String> = cells.map(|cell| cell.replace('|', "\\|")).collect();
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
            shown[1..].iter().for_each(|&index| _ = write!(out, "<td{}>{}</td>", text(index), escape(&row[index])));
            out += "</tr>\n";
        }
        out + "</tbody></table></div>\n"
    }
}
