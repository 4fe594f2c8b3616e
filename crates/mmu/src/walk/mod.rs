//! Page-table walks: the [`formats`] of page tables with their walk caches, and the [`lines`] that
//! they are read through.

pub(crate) mod formats;
pub(crate) mod lines;
mod segments;
mod walk_caches;
mod walker;

pub(crate) use walker::{ProgramLines, Walker};
