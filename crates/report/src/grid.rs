//! Tables for people.

use comfy_table::{Cell, CellAlignment, Table, presets};

/// A table with a line under its head; the columns named in `left` are flush left, the others right.
pub fn grid(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>, left: &[&str]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let aligned = |(i, cell): (usize, String)| {
        let side = if left.contains(&head[i]) { CellAlignment::Left } else { CellAlignment::Right };
        Cell::new(cell).set_alignment(side)
    };
    table.set_header(head.iter().map(|name| (*name).to_string()).enumerate().map(aligned));
    for row in rows {
        table.add_row(row.into_iter().enumerate().map(aligned));
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_string()).collect();
    let width = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let mut out = format!("{}\n {}\n", lines[0], "─".repeat(width.saturating_sub(1)));
    for line in &lines[1..] {
        out += line;
        out.push('\n');
    }
    out
}
