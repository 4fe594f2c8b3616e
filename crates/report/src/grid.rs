//! Tables of a fixed set of columns, of any width.

use crate::table::{Column, Table};

/// A table with a line under its head; the columns named in `left` are flush left, the others flush
/// right. It ignores the width of the screen; [`Screen`](crate::Screen) makes tables that fit.
pub fn grid(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>, left: &[&str]) -> String {
    let column = |name: &&str| if left.contains(name) { Column::name(*name) } else { Column::number(*name) };
    let mut table = Table::new(head.iter().map(column));
    rows.into_iter().for_each(|row| table.row(row));
    table.render(None)
}
