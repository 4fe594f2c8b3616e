//! Presentation of results: numbers with units, tables, figures as SVG, rows to explore, pages of
//! HTML, and the files that they are written to. It knows nothing of what they mean.

mod chart;
mod dots;
mod explore;
mod export;
mod figure;
mod format;
mod grid;
mod keys;
mod markup;
mod page;
mod scale;
mod screen;
mod table;

pub use dots::{Dots, DotsOf};
pub use explore::{ExploredAxis, ExploredRow, Explorer, Measure};
pub use export::{Export, Unwritable};
pub use figure::{Axis, Figure, Kind, Point, Series};
pub use format::{bytes, count, time};
pub use grid::grid;
pub use keys::{InSample, Key, KeyKind, Keys, Stored, keys_page};
pub use page::{escape, page, prose};
pub use screen::Screen;
pub use superpage_output::{apart, foreign, foreign_json, quoted, tell};
pub use table::{Column, Table};
